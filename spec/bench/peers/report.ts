/** Prints and writes the results of a comparison: tables of figures and ratios, and the targets that were met. */
import { writeFileSync } from "node:fs";
import { cpus, release } from "node:os";
import { fileURLToPath } from "node:url";
import { brief, markdown, verdictTable, type Verdict } from "../figures.ts";
import type { Competitor } from "./competitors.ts";
import { SCENARIOS } from "./scenarios.ts";

export interface Round {
  readonly rps: number | null;
  readonly cpuMicros: number | null;
  /** Milliseconds. */
  readonly p50: number | null;
  readonly p99: number | null;
  readonly rssMib: number;
  readonly timerP99?: number;
}

/** One proxy in one scenario: medians of its rounds. */
export interface Measured {
  readonly scenario: string;
  readonly name: string;
  readonly kind: Competitor["kind"];
  /** It runs without the guards that the others have. */
  readonly plain: boolean;
  /** The rate of a paced load in requests a second; 0 for other loads. */
  readonly rate: number;
  readonly rps: number | null;
  readonly cpuMicros: number | null;
  readonly p50: number | null;
  readonly p99: number | null;
  readonly rssMib: number | null;
  /** Before the load. */
  readonly freshRssMib: number;
  readonly timerP99: number | null;
  readonly rounds: readonly Round[];
}

export interface Run {
  readonly rounds: number;
  readonly seconds: number;
  readonly versions: Readonly<Record<string, string | null>>;
  readonly measured: readonly Measured[];
  readonly notes: readonly string[];
}

/** Prints the tables, and writes them and all rounds to `folder`; true when no target that was measured is missed. */
export function report(run: Run, folder: URL): boolean {
  const verdicts = judged(run.measured);
  const text = [
    `${run.rounds} rounds of ${run.seconds} s, every proxy in turn; medians. ${machine()}, ${versions(run)}.`,
    ...SCENARIOS.flatMap(({ name, title }) => {
      const some = run.measured.filter(({ scenario }) => scenario === name);
      return some.length === 0 ? [] : [`### ${title}`, tableOf(some)];
    }),
    "### Targets",
    verdictTable(verdicts),
    ...(run.notes.length === 0 ? [] : [run.notes.map((note) => `- ${note}`).join("\n")]),
  ].join("\n\n");
  const at = new Date();
  const name = `peers-${at.toISOString().replace(/[-:]|\.\d+/g, "")}`;
  writeFileSync(new URL(`${name}.md`, folder), `${text}\n`);
  writeFileSync(
    new URL(`${name}.json`, folder),
    `${JSON.stringify({ at, machine: machine(), verdicts, ...run }, null, 2)}\n`,
  );
  console.log(`\n${text}\n\nin ${fileURLToPath(new URL(name, folder))}.md and .json`);
  return verdicts.every(({ met }) => met !== false);
}

function machine(): string {
  const all = cpus();
  return (
    `${all.length} × ${all[0]?.model.trim() ?? "unknown processor"}, Linux ${release()}, ` +
    `Node ${process.versions.node}`
  );
}

function versions({ versions }: Run): string {
  return Object.entries(versions)
    .filter(
      ([name, version]) =>
        version !== null &&
        (!name.startsWith("ours") || name === "ours-node24") &&
        !["bare", "nginx-default"].includes(name),
    )
    .map(([name, version]) => `${name} ${version}`)
    .join(", ");
}

/** Ratios of processor time for a request, or of memory for idle connections; below 1 is better than the other. */
function tableOf(some: readonly Measured[]): string {
  const weight = (each: Measured | null) => each?.cpuMicros ?? each?.rssMib ?? null;
  const nginx = some.find(({ name }) => name === "nginx") ?? null;
  const node = least(
    some.filter(({ kind }) => kind === "node"),
    weight,
  );
  const untuned = some.find(({ name }) => name === "nginx-default") ?? null;
  const paced = some.some(({ rate }) => rate > 0);
  const common = [
    "requests/s",
    "CPU µs",
    "p50 ms",
    "p99 ms",
    "RSS MiB",
    "× nginx",
    ...(untuned === null ? [] : ["× nginx-default"]),
    "× best of Node",
  ];
  const heads = paced ? ["proxy", "asked/s", ...common, "loader's timers, p99 ms"] : ["proxy", ...common];
  const rows = some.map((each) => [
    each.plain ? `${each.name} (without)` : each.name,
    ...(paced ? [brief(each.rate)] : []),
    ...[brief(each.rps), brief(each.cpuMicros), brief(each.p50), brief(each.p99), brief(each.rssMib)],
    brief(ratio(weight(each), weight(nginx))),
    ...(untuned === null ? [] : [brief(ratio(weight(each), weight(untuned)))]),
    brief(ratio(weight(each), weight(node))),
    ...(paced ? [brief(each.timerP99)] : []),
  ]);
  return markdown(heads, rows);
}

function least(some: readonly Measured[], of: (each: Measured) => number | null): Measured | null {
  return some.reduce<Measured | null>(
    (best, each) => (of(each) !== null && (best === null || of(each)! < of(best)!) ? each : best),
    null,
  );
}

function ratio(value: number | null | undefined, other: number | null | undefined): number | null {
  return typeof value === "number" && typeof other === "number" && other > 0 ? value / other : null;
}

/** Targets of other benchmarks. */
const ELSEWHERE = [
  ["lookup at 10000 routes", "router"],
  ["limiter decision, bytes per caller", "limiter"],
  ["start with 1000 routes", "start"],
  ["memory at rest, of a connection, of newer releases of Node", "memory"],
] as const;

/** The most processor time of a request, as a multiple of nginx's. */
const OF_NGINX: readonly (readonly [scenario: string, most: number])[] = [
  ["small", 1.4],
  ["guarded", 1.5],
  ["large", 1.25],
  ["post", 1.6],
  ["pieces", 1.5],
  ["https", 1.6],
  ["http2", 2],
  ["connections", 1.3],
];

/**
 * The same, with key and limit, as a multiple of others, of which Caddy has no limit, and those of Node have neither.
 */
const OF_OTHERS: readonly (readonly [name: string, most: number])[] = [
  ["caddy", 0.42],
  ["http-proxy", 0.32],
  ["undici", 0.6],
];

function judged(measured: readonly Measured[]): Verdict[] {
  const one = (scenario: string, name: string) =>
    measured.find((each) => each.scenario === scenario && each.name === name) ?? null;
  const cpu = (each: Measured | null) => each?.cpuMicros ?? null;
  const times = (what: string, value: Measured | null, other: Measured | null, most: number): Verdict => {
    const is = ratio(cpu(value), cpu(other));
    const figure = is === null ? "–" : `${brief(is)}× (${brief(cpu(value))} : ${brief(cpu(other))} µs)`;
    return { what, figure, target: `≤ ${most}×`, met: is === null ? null : is <= most };
  };
  const mib = (what: string, value: number | null | undefined, most: number): Verdict => ({
    ...{ what, figure: typeof value === "number" ? `${brief(value)} MiB` : "–", target: `≤ ${most} MiB` },
    met: typeof value === "number" ? value <= most : null,
  });
  return [
    ...OF_NGINX.map(([scenario, most]) =>
      times(`${scenario}, CPU, against nginx`, one(scenario, "ours"), one(scenario, "nginx"), most),
    ),
    ...OF_OTHERS.map(([name, most]) =>
      times(`guarded, CPU, against ${name}`, one("guarded", "ours"), one("guarded", name), most),
    ),
    times("access log on, CPU, against off", one("small", "ours-log"), one("small", "ours"), 1.06),
    tail(one("paced", "ours"), one("paced", "nginx")),
    mib("RSS, 1000 connections at load", one("connections", "ours")?.rssMib, 140),
    ...ELSEWHERE.map(([what, bench]) => ({
      what,
      figure: `\`npm run bench -- ${bench}\``,
      target: "told there",
      met: null,
    })),
  ];
}

/** Each at 60 % of its own peak. */
function tail(ours: Measured | null, nginx: Measured | null): Verdict {
  const is = ratio(ours?.p99, nginx?.p99);
  const figure = is === null ? "–" : `${brief(is)}× (${brief(ours!.p99)} : ${brief(nginx!.p99)} ms)`;
  return {
    what: "p99 at 60 % of the own peak, against nginx",
    figure,
    target: `≤ ${MAX_TAIL}×`,
    met: is === null ? null : is <= MAX_TAIL,
  };
}

const MAX_TAIL = 1.5;
