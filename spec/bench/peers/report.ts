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
  writeFileSync(new URL(`${name}.json`, folder), `${JSON.stringify({ at, machine: machine(), verdicts, ...run }, null, 2)}\n`);
  console.log(`\n${text}\n\nin ${fileURLToPath(new URL(name, folder))}.md and .json`);
  return verdicts.every(({ met }) => met !== false);
}

function machine(): string {
  const all = cpus();
  return `${all.length} × ${all[0]?.model.trim() ?? "unknown processor"}, Linux ${release()}, Node ${process.versions.node}`;
}

function versions({ versions }: Run): string {
  return Object.entries(versions)
    .filter(([name, version]) => version !== null && !name.startsWith("ours") && name !== "bare")
    .map(([name, version]) => `${name} ${version}`)
    .join(", ");
}

/** Ratios of processor time for a request, or of memory for idle connections; below 1 is better than the other. */
function tableOf(some: readonly Measured[]): string {
  const weight = (each: Measured | null) => each?.cpuMicros ?? each?.rssMib ?? null;
  const nginx = some.find(({ name }) => name === "nginx") ?? null;
  const node = least(some.filter(({ kind }) => kind === "node"), weight);
  const paced = some.some(({ rate }) => rate > 0);
  const common = ["requests/s", "CPU µs", "p50 ms", "p99 ms", "RSS MiB", "× nginx", "× best of Node"];
  const heads = paced ? ["proxy", "asked/s", ...common, "loader's timers, p99 ms"] : ["proxy", ...common];
  const rows = some.map((each) => [
    each.plain ? `${each.name} (without)` : each.name,
    ...(paced ? [brief(each.rate)] : []),
    ...[brief(each.rps), brief(each.cpuMicros), brief(each.p50), brief(each.p99), brief(each.rssMib)],
    brief(ratio(weight(each), weight(nginx))),
    brief(ratio(weight(each), weight(node))),
    ...(paced ? [brief(each.timerP99)] : []),
  ]);
  return markdown(heads, rows);
}

function least(some: readonly Measured[], of: (each: Measured) => number | null): Measured | null {
  return some.reduce<Measured | null>((best, each) => (of(each) !== null && (best === null || of(each)! < of(best)!) ? each : best), null);
}

function ratio(value: number | null | undefined, other: number | null | undefined): number | null {
  return typeof value === "number" && typeof other === "number" && other > 0 ? value / other : null;
}

const PACKAGES = ["http-proxy", "fastify", "fast-gateway"];

/** Targets of other benchmarks. */
const ELSEWHERE = [
  ["lookup at 10000 routes", "router"],
  ["limiter decision, bytes per caller", "limiter"],
  ["start with 1000 routes", "start"],
] as const;

function judged(measured: readonly Measured[]): Verdict[] {
  const one = (scenario: string, name: string) => measured.find((each) => each.scenario === scenario && each.name === name) ?? null;
  const cpu = (each: Measured | null) => each?.cpuMicros ?? null;
  const some = (scenario: string, names: readonly string[]) => measured.filter((each) => each.scenario === scenario && names.includes(each.name));
  const guarded = one("guarded", "ours");
  const ofPackages = least(some("guarded", PACKAGES), cpu);
  const large = least(some("large", ["bare", ...PACKAGES]), cpu);
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
    times(`key and rate limit, CPU, against ${ofPackages?.name ?? "the best package of Node"} without any`, guarded, ofPackages, 0.45),
    times("the same, against caddy without rate limit", guarded, one("guarded", "caddy"), 0.65),
    times("the same, against nginx with both", guarded, one("guarded", "nginx"), 3),
    times("the same, against our own without plugins", guarded, one("guarded", "ours-plain"), 1.15),
    times(`64 KiB responses, CPU, against ${large?.name ?? "the best of Node"}`, one("large", "ours"), large, 0.6),
    tail(one("paced", "ours")),
    times("access log on, CPU, against off", one("small", "ours-log"), one("small", "ours"), 1.08),
    mib("RSS, idle", one("idle", "ours")?.freshRssMib, 70),
    mib("RSS, 1000 connections at load", one("connections", "ours")?.rssMib, 140),
    ...ELSEWHERE.map(([what, bench]) => ({ what, figure: `\`npm run bench -- ${bench}\``, target: "told there", met: null })),
  ];
}

/** p99 ≤ 2 × p50 + 5 ms */
function tail(paced: Measured | null): Verdict {
  const [p50, p99] = [paced?.p50 ?? null, paced?.p99 ?? null];
  const what = "p99 at 60 % of own peak";
  if (p50 === null || p99 === null) return { what, figure: "–", target: "≤ 2 × p50 + 5 ms", met: null };
  const most = 2 * p50 + 5;
  return { what, figure: `${brief(p99)} ms (p50 ${brief(p50)} ms)`, target: `≤ 2 × p50 + 5 ms = ${brief(most)} ms`, met: p99 <= most };
}
