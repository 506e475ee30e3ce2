/**
 * Measures how the cost of a configuration grows with its size, and of a reload with what changed: the built gateway
 * beside nginx and Caddy, with N routes of one plugin each in services of a hundred.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { brief, markdown, verdictTable, type Verdict } from "./figures.ts";
import { openLoop, pause, percentile, request, until, type Outcome } from "./load.ts";
import { PROGRAMS, ROUTES_OF_A_SERVICE, statusOf, type Change, type Program, type Shape } from "./growth_programs.ts";
import { costsOf, withMachine, type Machine, type Running } from "./peers/machine.ts";
import { build } from "./ready.ts";

const USAGE = `usage: npm run bench -- growth [N,…] [--only NAME,…] [--shapes routes,upstreams,callers]
  N       how many routes; default: 1000,10000,50000
  --only  ${PROGRAMS.map(({ name }) => name).join(", ")}; default: all that are installed`;
const SIZES = [1_000, 10_000, 50_000];
const SHAPES: readonly Shape[] = ["routes", "upstreams", "callers"];
/** Of the gateway alone. */
const SIZE_OF_SHAPE = { upstreams: 10_000, callers: 100_000 };
const CHANGES: readonly Change[] = ["all", "one", "none"];
const PER_SECOND = 200;
const MAX_START_MS = 300_000;
const QUIET_MS = 1_000;
/** Of processor time in a tenth of a second, the requests included: the reload and what follows it are over. */
const QUIET_MICROS = 20_000;
const WARMING_MS = 2_000;

interface Reloaded {
  /** The longest request of the second before, and while it was under way, in milliseconds. */
  readonly usualMs: number;
  readonly longestMs: number;
  readonly p99Ms: number;
  /** From the signal until the new configuration answers; NaN: nothing tells. */
  readonly takenMs: number;
  /** Without what the requests cost in the second before. */
  readonly cpuMs: number;
  readonly lost: number;
}

interface Measured {
  readonly name: string;
  readonly size: number;
  readonly startMs: number;
  readonly rssMib: number;
  readonly rssAfterMib: number;
  readonly reloads: Readonly<Record<Change, Reloaded>>;
}

/** Prints its tables; true when the targets are met. */
export async function growth(words: readonly string[]): Promise<boolean> {
  const options = optionsOf(words);
  if (options === null) {
    console.log(USAGE);
    return false;
  }
  build();
  const verdicts: Verdict[] = [];
  for (const shape of options.shapes) {
    const sizes = shape === "routes" ? options.sizes : [SIZE_OF_SHAPE[shape]];
    for (const size of sizes) {
      const measured: Measured[] = [];
      for (const program of PROGRAMS.filter(({ name }) => options.only.includes(name))) {
        if (shape !== "routes" && program.name !== "ours") continue;
        const why = program.missing();
        if (why !== null) {
          console.log(`${program.name} is left out: ${why}`);
          continue;
        }
        measured.push(await withMachine((machine) => measure(machine, program, shape, size)));
        // After each of them: who ends a run early keeps what was measured.
        console.log(`\n${size} ${shape}\n\n${tableOf(measured)}\n`);
      }
      if (shape === "routes") verdicts.push(...verdictsOn(measured));
    }
  }
  if (verdicts.length > 0) console.log(verdictTable(verdicts));
  return verdicts.every(({ met }) => met !== false);
}

function optionsOf(words: readonly string[]) {
  let [sizes, only, shapes] = [SIZES, PROGRAMS.map(({ name }) => name), SHAPES];
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    if (word === "--only") only = words[++i]?.split(",") ?? [];
    else if (word === "--shapes") shapes = (words[++i]?.split(",") ?? []) as Shape[];
    else sizes = word.split(",").map(Number);
  }
  const isKnown =
    sizes.every((size) => Number.isInteger(size) && size >= ROUTES_OF_A_SERVICE && size <= 200_000) &&
    only.every((each) => PROGRAMS.some(({ name }) => name === each)) &&
    shapes.every((each) => SHAPES.includes(each)) &&
    only.length > 0;
  return isKnown ? { sizes, only, shapes } : null;
}

async function measure(machine: Machine, program: Program, shape: Shape, size: number): Promise<Measured> {
  const folder = join(machine.folder, program.name);
  mkdirSync(folder);
  const served = await program.prepare(folder, shape, size);
  served.write({ change: "all", generation: 0 });
  served.reload(null);
  const beganAt = performance.now();
  const running = machine.start(served.command, null);
  await answers(running, served.port, served.steady);
  const startMs = performance.now() - beganAt;
  await quiet(running);
  const { rssMib } = costsOf(running.pid);
  await warm(served.port, served.steady);
  const reloads = {} as Record<Change, Reloaded>;
  let generation = 0;
  // The first one is not counted: it compiles the code.
  for (const change of ["all", ...CHANGES] as const) {
    generation++;
    served.write({ change, generation });
    reloads[change] = await reloaded(running, served, change, generation);
  }
  const { rssMib: rssAfterMib } = costsOf(running.pid);
  await running.stop();
  return { name: program.name, size, startMs, rssMib, rssAfterMib, reloads };
}

async function reloaded(
  running: Running,
  { port, steady, marker, reload }: Awaited<ReturnType<Program["prepare"]>>,
  change: Change,
  generation: number,
): Promise<Reloaded> {
  const load = openLoop(port, steady, PER_SECOND);
  await pause(QUIET_MS / 2);
  const [first, firstAt] = [costsOf(running.pid), performance.now()];
  await pause(QUIET_MS);
  const [before, signalledAt] = [costsOf(running.pid), performance.now()];
  const usualMicrosPerMs = (before.cpuMicros - first.cpuMicros) / (signalledAt - firstAt);
  reload(running);
  let takenMs = NaN;
  if (change !== "none") {
    for (;;) {
      if ((await request(port, marker)) === String(statusOf(generation))) break;
      if (performance.now() - signalledAt > MAX_START_MS) throw new Error("the reload is not taken");
      await pause(20);
    }
    takenMs = performance.now() - signalledAt;
  }
  await quiet(running);
  const endedAt = performance.now();
  const after = costsOf(running.pid);
  await load.stop();
  const isLost = ({ said }: Outcome) => said !== "200";
  const longest = (some: readonly Outcome[]) => Math.max(...some.map(({ ms }) => ms));
  // The first requests open connections.
  const usual = load.outcomes.filter(({ due }) => due < signalledAt && due > signalledAt - QUIET_MS / 2);
  const during = load.outcomes.filter(({ due }) => due >= signalledAt - 50 && due < endedAt);
  return {
    usualMs: longest(usual),
    longestMs: longest(during),
    p99Ms: percentile(during, 0.99),
    takenMs,
    cpuMs: (after.cpuMicros - before.cpuMicros - usualMicrosPerMs * (endedAt - signalledAt)) / 1000,
    lost: load.outcomes.filter(isLost).length,
  };
}

async function answers(running: Running, port: number, path: string): Promise<void> {
  const deadline = performance.now() + MAX_START_MS;
  while ((await request(port, path)) !== "200") {
    if (running.over()) throw new Error(`it ended: ${running.errors()}`);
    if (performance.now() > deadline) throw new Error(`it does not answer: ${running.errors()}`);
    await pause(2);
  }
}

/** Resolves once it has had little to do for a while. */
async function quiet({ pid }: Running): Promise<void> {
  let [still, last] = [0, costsOf(pid).cpuMicros];
  await until(() => false, 100);
  for (const deadline = performance.now() + MAX_START_MS; still < 8 && performance.now() < deadline;) {
    await pause(100);
    const now = costsOf(pid).cpuMicros;
    still = now - last <= QUIET_MICROS ? still + 1 : 0;
    last = now;
  }
}

async function warm(port: number, path: string): Promise<void> {
  const load = openLoop(port, path, PER_SECOND * 5);
  await pause(WARMING_MS);
  await load.stop();
}

function tableOf(measured: readonly Measured[]): string {
  const heads = ["", "start, ms", "RSS, MiB", "RSS after reloads"];
  for (const change of CHANGES)
    heads.push(`${change}: longest (usual), ms`, "p99", "taken, ms", "processor, ms", "lost");
  const rows = measured.map(({ name, startMs, rssMib, rssAfterMib, reloads }) => [
    name,
    ...[startMs, rssMib, rssAfterMib].map(brief),
    ...CHANGES.flatMap((change) => {
      const { longestMs, usualMs, p99Ms, takenMs, cpuMs, lost } = reloads[change];
      return [`${brief(longestMs)} (${brief(usualMs)})`, brief(p99Ms), brief(takenMs), brief(cpuMs), lost];
    }),
  ]);
  return markdown(heads, rows);
}

/** SPEC F2. */
function verdictsOn(measured: readonly Measured[]): readonly Verdict[] {
  const [ours, nginx, caddy] = ["ours", "nginx", "caddy"].map((name) => measured.find((each) => each.name === name));
  if (ours === undefined || ours.size < 10_000) return [];
  const isLarge = ours.size >= 50_000;
  const verdicts: Verdict[] = [];
  const most = (what: string, is: number, target: number, unit: string) =>
    verdicts.push({
      what: `${ours.size} routes: ${what}`,
      figure: `${brief(is)} ${unit}`,
      target: `≤ ${brief(target)} ${unit}`,
      met: is <= target,
    });
  if (nginx !== undefined) most("start beside nginx", ours.startMs, nginx.startMs * (isLarge ? 0.4 : 2), "ms");
  if (caddy !== undefined) most("start beside Caddy", ours.startMs, caddy.startMs * 0.4, "ms");
  const { all, one } = ours.reloads;
  most("longest request above the usual one", all.longestMs - all.usualMs, isLarge ? 60 : 40, "ms");
  if (caddy !== undefined) most("longest request beside Caddy", all.longestMs, caddy.reloads.all.longestMs, "ms");
  most("one service changed, of the processor time of all", (100 * one.cpuMs) / all.cpuMs, 5, "%");
  const mib = isLarge ? 320 : 130;
  most("memory", ours.rssMib, mib, "MiB");
  most("memory after reloads", ours.rssAfterMib, mib * 1.5, "MiB");
  return verdicts;
}
