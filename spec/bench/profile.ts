/**
 * Takes a CPU profile of the built gateway under load on its own processor, and prints the functions and files with the
 * most self time.
 * The profile is left in `results/` for the DevTools of Chromium.
 */
import { mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { brief, markdown } from "./figures.ts";
import { pause, until } from "./load.ts";
import { backend, competitors, piecesBackend } from "./peers/competitors.ts";
import { faultOf, fullLoad, missingFor } from "./peers/gauge.ts";
import { costsOf, freePort, MEASURED, OTHERS, withMachine, type Command, type Running } from "./peers/machine.ts";
import { SCENARIOS, type Scenario } from "./peers/scenarios.ts";
import { build, install, ROOT } from "./ready.ts";

const LOADS = SCENARIOS.filter(({ load }) => load === "full");
const USAGE = `usage: npm run bench -- profile [SCENARIO] [--seconds N] [--top N] [--of NAME]
  SCENARIO   ${LOADS.map(({ name }) => name).join(", ")}; guarded by default
  --seconds  1–60 whole seconds; 5 by default
  --top      how many functions are printed; 30 by default
  --of       ours, ours-log, ours-node or ours-plain; ours by default`;

const PROFILER = fileURLToPath(new URL("./peers/profiler.mjs", import.meta.url));
const WARM_UP_S = 3;
const WAIT_MS = 15_000;

/** Prints its tables. True unless something failed: a profile has no target. */
export async function profile(words: readonly string[]): Promise<boolean> {
  const options = optionsOf(words);
  if (typeof options === "string") {
    console.log(options);
    return options === USAGE;
  }
  const { scenario, seconds, of } = options;
  build();
  install();
  const competitor = competitors().find(({ name }) => name === of);
  const inTheWay =
    competitor === undefined || !competitor.takesPart(scenario)
      ? `${of} has no part in ${scenario.name}`
      : missingFor(scenario);
  if (competitor === undefined || inTheWay !== null) {
    console.log(`nothing is profiled: ${inTheWay}`);
    return false;
  }
  const results = new URL("results/", import.meta.url);
  mkdirSync(results, { recursive: true });
  const file = fileURLToPath(new URL(`${of}-${scenario.name}.cpuprofile`, results));
  return withMachine(async (machine) => {
    const [port, backendPort] = [await freePort(), await freePort()];
    const folders = ["backend-", "gateway-"].map((name) => mkdtempSync(join(machine.folder, name)));
    machine.start(
      scenario.pieces ? piecesBackend(backendPort) : backend({ folder: folders[0]!, port: backendPort }),
      OTHERS,
    );
    const running = machine.start(
      preloaded(competitor.command(scenario, { folder: folders[1]!, port, backendPort })),
      MEASURED,
    );
    let fault: string | null = "it was not asked";
    for (
      const end = performance.now() + WAIT_MS;
      fault !== null && performance.now() < end && !running.over();
      await pause(50)
    ) {
      fault = await faultOf(competitor, scenario, port).catch((error: Error) => error.message);
    }
    if (fault !== null) throw new Error(`the gateway is not ready: ${fault} ${running.errors()}`);
    await fullLoad(machine, scenario, port, WARM_UP_S);
    await said(running, "begin", "begun");
    const before = costsOf(running.pid).cpuMicros;
    const { requests, rps, failures } = await fullLoad(machine, scenario, port, seconds);
    const cpuMicros = (costsOf(running.pid).cpuMicros - before) / requests;
    await said(running, `end ${file}`, "written");
    console.log(
      `${scenario.title}: ${brief(rps)} requests a second, ${brief(cpuMicros)} µs of CPU each, ` +
        `the profiler's own included\n`,
    );
    print(JSON.parse(readFileSync(file, "utf8")) as Profile, { cpuMicros, top: options.top });
    console.log(`\n${file}`);
    return failures === 0;
  });
}

interface Options {
  readonly scenario: Scenario;
  readonly seconds: number;
  readonly top: number;
  readonly of: string;
}

function optionsOf(words: readonly string[]): Options | string {
  const flags = {
    seconds: { type: "string" },
    top: { type: "string" },
    of: { type: "string" },
    help: { type: "boolean" },
  } as const;
  try {
    const { values, positionals } = parseArgs({ args: [...words], options: flags, allowPositionals: true });
    if (values.help === true) return USAGE;
    const scenario = LOADS.find(({ name }) => name === (positionals[0] ?? "guarded"));
    if (scenario === undefined || positionals.length > 1)
      throw new Error(`there is no scenario ${JSON.stringify(positionals.join(" "))} to profile`);
    const [seconds, top] = [Number(values.seconds ?? 5), Number(values.top ?? 30)];
    if (!(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60))
      throw new Error("--seconds is a number from 1 to 60");
    if (!(Number.isInteger(top) && top >= 1 && top <= 1_000)) throw new Error("--top is a number from 1 to 1000");
    return { scenario, seconds, top, of: values.of ?? "ours" };
  } catch (error) {
    return `${(error as Error).message}\n${USAGE}`;
  }
}

function preloaded(command: Command): Command {
  return { ...command, words: ["--import", pathToFileURL(PROFILER).href, ...command.words] };
}

async function said(running: Running, line: string, answer: string): Promise<void> {
  running.child.stdin!.write(`${line}\n`);
  if (!(await until(() => running.output().includes(answer) || running.over(), WAIT_MS)) || running.over()) {
    throw new Error(`the profiler did not say ${answer}: ${running.errors()}`);
  }
}

/** The result of the inspector's Profiler.stop. */
interface Profile {
  readonly nodes: readonly ProfileNode[];
  /** Ids of nodes. */
  readonly samples: readonly number[];
  /** Microseconds since the sample before. */
  readonly timeDeltas: readonly number[];
}

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
}

function print(profile: Profile, { cpuMicros, top }: { cpuMicros: number; top: number }): void {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const [groups, files, functions] = [new Map<string, number>(), new Map<string, number>(), new Map<string, number>()];
  const add = (to: Map<string, number>, key: string, micros: number) => to.set(key, (to.get(key) ?? 0) + micros);
  let busy = 0;
  let idle = 0;
  profile.samples.forEach((id, i) => {
    const { callFrame } = nodes.get(id)!;
    // A sample stands for the time until the next one.
    const micros = Math.max(0, profile.timeDeltas[i + 1] ?? 0);
    if (callFrame.functionName === "(idle)") {
      idle += micros;
      return;
    }
    busy += micros;
    const file = fileOf(callFrame.url);
    add(groups, groupOf(callFrame), micros);
    if (file !== "") add(files, file, micros);
    add(
      functions,
      `${callFrame.functionName || "(anonymous)"} ${file === "" ? "" : `${file}:${callFrame.lineNumber + 1}`}`.trim(),
      micros,
    );
  });
  // Shares of the processor time: what a sample stands for includes time in which another process had the processor.
  const rows = (of: Map<string, number>, most: number) =>
    [...of]
      .sort(([, a], [, b]) => b - a)
      .slice(0, most)
      .map(([what, micros]) => [what, `${((100 * micros) / busy).toFixed(1)} %`, brief((micros / busy) * cpuMicros)]);
  const heads = (what: string) => [what, "own time", "µs a request"];
  console.log(`${((100 * busy) / (busy + idle)).toFixed(0)} % of the time busy; shares are of that\n`);
  console.log(`${markdown(heads("whose"), rows(groups, groups.size))}\n`);
  console.log(`${markdown(heads("file"), rows(files, Math.ceil(top / 2)))}\n`);
  console.log(markdown(heads("function"), rows(functions, top)));
}

function groupOf({ functionName, url }: ProfileNode["callFrame"]): string {
  if (functionName === "(garbage collector)") return "garbage collector";
  if (functionName === "(program)") return "native code outside of functions (libuv, system calls)";
  if (url.startsWith("node:")) return "node";
  return url.startsWith("file:") ? "ours" : "built into V8 and node's bindings";
}

function fileOf(url: string): string {
  return url.startsWith("file:") ? fileURLToPath(url).replace(ROOT, "") : url;
}
