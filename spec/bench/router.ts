/**
 * Compares route lookups with other routers: time to compile, nanoseconds and bytes of a lookup, with ten, a thousand
 * and ten thousand routes; and whole requests of the gateway with as many.
 */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { brief, markdown, median, verdictTable, type Verdict } from "./figures.ts";
import { build, install, versionOf } from "./ready.ts";
import type { RouterFigures } from "./router_child.ts";
import { wholeRequests } from "./router_requests.ts";
import { SETS, type SetName } from "./router_sets.ts";

const CHILD = fileURLToPath(new URL("./router_child.ts", import.meta.url));
const LOADER = new URL("../../node_modules/tsx/dist/loader.mjs", import.meta.url).href;

const OURS = "edge-gateway";
const OURS_READ = "edge-gateway, target read";
const ROUTERS = [OURS, OURS_READ, "find-my-way", "rou3"];
const COUNTS = [10, 1_000, 10_000];
const MAX_NS = 1_000;
/**
 * Of whole requests. A lookup alone takes 1.6 to 1.8 times as long among many, for it waits for memory; that is less
 * than a microsecond.
 */
const MAX_GROWTH = 1.1;
const MEASURE_MS = 300;

/** Takes the number of rounds as its first word, 5 by default. Prints its figures; true when the targets are met. */
export async function router([given = "5"]: readonly string[]): Promise<boolean> {
  const rounds = Number(given);
  if (!(Number.isInteger(rounds) && rounds >= 1 && rounds <= 50)) throw new RangeError("there are 1 to 50 rounds");
  build();
  install();
  const figures = new Map<string, RouterFigures[]>();
  // Interleaved, so that a busy moment of the machine affects every router.
  for (let round = 0; round < rounds; round++) {
    for (const set of SETS) {
      for (const count of COUNTS) {
        for (const name of ROUTERS) {
          const key = keyOf(name, set, count);
          figures.set(key, [...(figures.get(key) ?? []), await measured(name, set, count)]);
        }
      }
    }
  }
  const of = (name: string, set: SetName, count: number) => medians(figures.get(keyOf(name, set, count))!);
  print(of, rounds);
  const requests = await wholeRequests(COUNTS);
  const growth = requests.at(-1)! / requests[0]!;
  const verdicts = [
    ...SETS.flatMap((set) => judged(set, of)),
    {
      what: `processor time of a whole request with ${COUNTS.at(-1)!} routes, against ${COUNTS[0]!}`,
      figure: `${brief(growth)}×`,
      target: `≤ ${MAX_GROWTH}×`,
      met: growth <= MAX_GROWTH,
    },
  ];
  console.log(verdictTable(verdicts));
  return verdicts.every(({ met }) => met);
}

type FiguresOf = (name: string, set: SetName, count: number) => RouterFigures;

function keyOf(name: string, set: SetName, count: number): string {
  return `${name} ${set} ${count}`;
}

function measured(name: string, set: SetName, count: number): Promise<RouterFigures> {
  // Enough room for new objects that none are collected in the middle of a batch, whose bytes are counted.
  const execArgv = ["--expose-gc", "--max-semi-space-size=64", "--min-semi-space-size=64", "--import", LOADER];
  const child = fork(CHILD, [name, set, String(count), String(MEASURE_MS)], { execArgv });
  return new Promise((resolve, reject) => {
    child.once("message", (said) => resolve(said as RouterFigures));
    child.once("error", reject);
    child.once("close", (code) => reject(new Error(`${name} with ${count} ${set} routes ended with ${code}`)));
  });
}

function medians(rounds: readonly RouterFigures[]): RouterFigures {
  const of = (pick: (each: RouterFigures) => number) => median(rounds.map(pick));
  return {
    compileMs: of(({ compileMs }) => compileMs),
    hit: { ns: of(({ hit }) => hit.ns), bytes: of(({ hit }) => hit.bytes) },
    miss: { ns: of(({ miss }) => miss.ns), bytes: of(({ miss }) => miss.bytes) },
  };
}

function print(of: FiguresOf, rounds: number): void {
  const others = ["find-my-way", "rou3"].map((name) => `${name} ${versionOf(name)}`).join(", ");
  console.log(
    `medians of ${rounds} rounds, each router in a process of its own; Node ${process.versions.node}, ${others}\n`,
  );
  for (const set of SETS) {
    const heads = [`${set} routes`, "routes", "compile ms", "hit ns", "hit bytes", "miss ns", "miss bytes"];
    const rows = COUNTS.flatMap((count) =>
      ROUTERS.map((name) => {
        const { compileMs, hit, miss } = of(name, set, count);
        return [
          name,
          count,
          brief(compileMs),
          hit.ns.toFixed(0),
          hit.bytes.toFixed(0),
          miss.ns.toFixed(0),
          miss.bytes.toFixed(0),
        ];
      }),
    );
    console.log(`${markdown(heads, rows)}\n`);
  }
}

function judged(set: SetName, of: FiguresOf): Verdict[] {
  const many = COUNTS.at(-1)!;
  const [last, read, other] = [of(OURS, set, many), of(OURS_READ, set, many), of("find-my-way", set, many)];
  const ns = (value: number) => `${value.toFixed(0)} ns`;
  const both = `${ns(read.hit.ns)} : ${ns(other.hit.ns)}`;
  return [
    {
      what: `${set}: a lookup among ${many} routes`,
      figure: ns(last.hit.ns),
      target: `≤ ${MAX_NS} ns`,
      met: last.hit.ns <= MAX_NS,
    },
    {
      what: `${set}: with the target read, against find-my-way`,
      figure: both,
      target: "ahead",
      met: read.hit.ns < other.hit.ns,
    },
  ];
}
