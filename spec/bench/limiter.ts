/** Measures a rate limit decision over three windows in nanoseconds, and the bytes that one caller occupies. */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Clock } from "../../lib/base/clock.ts";
import { random } from "../support/random.ts";
import { brief, markdown, median, verdictTable, type Verdict } from "./figures.ts";
import { build, builtModule } from "./ready.ts";

const LOADER = new URL("../../node_modules/tsx/dist/loader.mjs", import.meta.url).href;
const PROGRAM = fileURLToPath(import.meta.url);
/** The argument with which this file measures instead of only exporting its function. */
const WORD = "measure";

const MAX_NS = 500;
const MAX_BYTES = 300;
const DECISIONS = 200_000;
const CALLERS = 20_000;
const WARM_UP = 3;
/** Less than half a millisecond: most slices end before another process gets the processor. */
const SLICE = 500;

interface Figures {
  readonly ns: Readonly<Record<string, number>>;
  readonly bytes: Readonly<Record<string, number>>;
}

const ONE = "one caller";
const MANY = `${CALLERS} callers`;
const MORE = `${5 * CALLERS} callers`;
const REFUSED = "one caller, refused";
/** Otherwise time runs at a million decisions a second: 50 requests a second from each of 20000 callers. */
const PACED = ", thirty thousand requests a second";
const NO_CLOCK = PACED + ", the clock left out";
const SHARED = PACED + ", in memory that threads share";
const QUIET = "one request each";
const MIXED = "ten requests each on average, unevenly";
const EVEN = "ten requests each, within ten minutes";
const FULL = "every window full";

/** Takes the number of rounds as its first word, 5 by default. Prints its figures; true when the targets are met. */
export async function limiter([given = "5"]: readonly string[]): Promise<boolean> {
  const rounds = Number(given);
  if (!(Number.isInteger(rounds) && rounds >= 1 && rounds <= 50)) throw new RangeError("there are 1 to 50 rounds");
  build();
  const all: Figures[] = [];
  for (let round = 0; round < rounds; round++) all.push(await inOwnProcess());
  const medians = (pick: (each: Figures) => Readonly<Record<string, number>>) =>
    new Map(Object.keys(pick(all[0]!)).map((key) => [key, median(all.map((each) => pick(each)[key]!))] as const));
  const ns = medians((each) => each.ns);
  const bytes = medians((each) => each.bytes);
  console.log(`three windows (second, minute, hour); medians of ${rounds} processes; Node ${process.versions.node}\n`);
  console.log(
    `${markdown(
      ["a decision", "ns"],
      [...ns].map(([what, value]) => [what, value.toFixed(0)]),
    )}\n`,
  );
  console.log(
    `${markdown(
      [`a caller of ${CALLERS}`, "bytes"],
      [...bytes].map(([what, value]) => [what, value.toFixed(0)]),
    )}\n`,
  );
  const verdicts: Verdict[] = [
    ...[ONE, MANY, MANY + PACED].map((what) => atMost(`decision, ${what}`, ns.get(what)!, MAX_NS, "ns")),
    atMost(`caller, ${MIXED}`, bytes.get(MIXED)!, MAX_BYTES, "B"),
  ];
  console.log(verdictTable(verdicts));
  return verdicts.every(({ met }) => met);
}

function atMost(what: string, value: number, most: number, unit: string): Verdict {
  return { what, figure: `${brief(value)} ${unit}`, target: `≤ ${most} ${unit}`, met: value <= most };
}

function inOwnProcess(): Promise<Figures> {
  const child = fork(PROGRAM, [WORD], { execArgv: ["--expose-gc", "--import", LOADER] });
  return new Promise((resolve, reject) => {
    child.once("message", (said) => resolve(said as Figures));
    child.once("error", reject);
    child.once("close", (code) => reject(new Error(`the process that measures ended with ${code}`)));
  });
}

async function measure(): Promise<Figures> {
  const { LocalTable, memoryCounters, MemoryLimiter } =
    await builtModule<typeof import("../../lib/store/memory.ts")>("store/memory");
  const { workerCounters } =
    await builtModule<typeof import("../../lib/store/shared_callers.ts")>("store/shared_callers");
  const { TAKEN } = await builtModule<typeof import("../../lib/store/cells.ts")>("store/cells");
  const { systemClock } = await builtModule<typeof import("../../lib/base/clock.ts")>("base/clock");
  let time = 0;
  const hand: Clock = { ...systemClock, now: () => time };
  const paced: Clock = { ...systemClock, now: () => (systemClock.now() < 0 ? 0 : time) };
  const clocks = new Map([
    [systemClock, ""],
    [paced, PACED],
    [hand, NO_CLOCK],
  ]);
  const shared = (_name: string, size: number) => new SharedArrayBuffer(size);
  /** Limits that no measured request reaches. */
  const high = windows(64, 1_000_000, 1_000_000_000);
  const one = () => "192.0.2.1";
  const many = (callers: number) => () => `198.51.${dice.int(0, 255)}.${dice.int(0, callers >> 8)}`;
  const dice = random(5);
  const ns: Record<string, number> = {};
  const cases = [
    { what: ONE, limits: windows(1_000_000, 10_000_000, 1_000_000_000), caller: one },
    { what: MANY, limits: high, caller: many(CALLERS) },
    { what: MORE, limits: high, caller: many(5 * CALLERS) },
    { what: REFUSED, limits: windows(1, 1, 1), caller: one },
  ];
  for (const { what, limits, caller } of cases) {
    for (const [clock, how] of [...clocks, [paced, SHARED] as const]) {
      const options = { windows: limits, maxCallers: 1_000_000 };
      const limiter =
        how === SHARED
          ? workerCounters(clock, { id: 2, count: 2 }).limiter("k", options, shared)
          : memoryCounters(clock).limiter("k", options);
      const slices: number[] = [];
      const names = new Array<string>(SLICE);
      for (let round = 0; round < WARM_UP + 5; round++) {
        for (let from = 0; from < DECISIONS; from += SLICE) {
          // A new string each time, joined as in the plugin: it has no hash yet.
          for (let i = 0; i < SLICE; i++) names[i] = "ip:" + Buffer.from(caller(), "latin1").toString("latin1");
          const began = process.hrtime.bigint();
          for (let i = 0; i < SLICE; i++) {
            limiter.decide(names[i]!);
            time += 1 / 30;
          }
          if (round >= WARM_UP) slices.push(Number(process.hrtime.bigint() - began) / SLICE);
        }
      }
      ns[what + how] = median(slices);
    }
  }
  const limits = windows(10, 100, 1_000);
  /** Keeps all of them until the last is measured, so that freed memory does not count for the next. */
  const weighed: unknown[] = [];
  /** Of its memory, which doubles as it fills, the system gives what was written. */
  const remembered = (fill: (decide: (caller: number) => void) => void) => {
    const table = new LocalTable([1, 2]);
    const limiter = new MemoryLimiter(hand, table, { windows: limits, maxCallers: 1_000_000 });
    const before = heap();
    // Joined from pieces, as in the plugin.
    fill((caller) => void limiter.decide("ip:" + `203.0.${caller >> 8}.${caller & 255}`));
    weighed.push(limiter);
    const { words } = table.shards[0]!;
    return (heap() - before - (words.byteLength - 4 * words[TAKEN]!)) / CALLERS;
  };
  remembered((decide) => decide(0)); // compiled
  return {
    ns,
    bytes: {
      [QUIET]: remembered((decide) => everyCaller(decide)),
      [MIXED]: remembered((decide) => {
        everyCaller(decide);
        // By Zipf's law: the busiest caller sends twice as many requests as the second, three times as many as the
        // third.
        for (let i = 0; i < 9 * CALLERS; i++) {
          time += 600_000 / (9 * CALLERS); // within ten minutes
          decide(Math.min(CALLERS - 1, Math.trunc(CALLERS ** dice.next()) - 1));
        }
      }),
      [EVEN]: remembered((decide) => {
        for (let i = 0; i < 10; i++) {
          everyCaller(decide);
          time += 60_000;
        }
      }),
      [FULL]: remembered((decide) => {
        for (let i = 0; i < 1_000; i++) {
          everyCaller(decide);
          time += 1_000;
        }
      }),
    },
  };
}

function everyCaller(decide: (caller: number) => void): void {
  for (let i = 0; i < CALLERS; i++) decide(i);
}

function windows(second: number, minute: number, hour: number) {
  return [
    { name: "second", limit: second, ms: 1_000 },
    { name: "minute", limit: minute, ms: 60_000 },
    { name: "hour", limit: hour, ms: 3_600_000 },
  ];
}

function heap(): number {
  // Buffers found by one garbage collection are freed by the next.
  globalThis.gc!();
  globalThis.gc!();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

if (process.argv[1] === PROGRAM && process.argv[2] === WORD && process.send !== undefined) {
  process.once("disconnect", () => process.exit());
  process.send(await measure());
  process.disconnect();
}
