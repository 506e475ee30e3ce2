/**
 * Measures the gateway with one and two workers on Node 24, runs fifty rounds of exact limits, and computes from
 * measured times which lock or shared word many processors would wait for first.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeOf } from "../peers/nodes.ts";
import { brief, markdown, median, verdictTable, type Verdict } from "./figures.ts";
import { simulate, type LockFigures } from "./lock_model.ts";
import { pause } from "./load.ts";
import { backend, competitors, type Place } from "./peers/competitors.ts";
import { faultOf, fullLoad } from "./peers/gauge.ts";
import { costsOf, freePort, OTHERS, withMachine, type Machine, type Running } from "./peers/machine.ts";
import { KEY, SCENARIOS, SMALL_BYTES } from "./peers/scenarios.ts";
import { build, install, ROOT, run } from "./ready.ts";

const ROUNDS = 50;
const WORKERS = [1, 2];
/** So many that no worker has far fewer than another. */
const CONNECTIONS = 128;
const SCENARIO = { ...SCENARIOS.find(({ name }) => name === "guarded")!, connections: CONNECTIONS };
/** In a burst: so many that they, and the replies, fit into the memory of the sockets. */
const BURST = { connections: 256, requests: 200 };
const BURST_CLIENT = fileURLToPath(new URL("scale_burst.mjs", import.meta.url));
const READY_MS = 10_000;
const PROCESSORS = [4, 16, 64];
const HERE = availableParallelism();
/**
 * What a thread needs until it runs again after `Atomics.wait`, and how long it tries before, in microseconds: see
 * `lib/base/lock.ts`.
 */
const WAKE_MICROS = 50;
const SPIN_MICROS = 5;
const MIN_TIMES = 1.8;
const MAX_SHARED_MICROS = 1;

interface Gateway {
  readonly workers: number;
  readonly running: Running;
  readonly port: number;
  readonly restMib: number;
  readonly rounds: {
    readonly rps: number;
    readonly cpuMicros: number;
    readonly mainMicros: number;
    readonly p99: number | null;
  }[];
}

/**
 * Takes the number of turns of a second as its first word, 5 by default. True when no limit was exceeded, and the
 * targets are met.
 */
export async function scale([given = "5"]: readonly string[]): Promise<boolean> {
  const turns = Number(given);
  if (!(Number.isInteger(turns) && turns >= 1 && turns <= 50)) throw new RangeError("there are 1 to 50 turns");
  if (!existsSync(new URL("../peers/node_modules", import.meta.url)))
    run("npm", ["ci", "--prefix", "spec/peers", "--no-audit", "--no-fund", "--silent"]);
  build();
  install();
  // Before `withMachine`, which leaves this process one processor.
  const figures = JSON.parse(
    run(nodeOf(24), [fileURLToPath(new URL("scale_threads.mjs", import.meta.url))]),
  ) as Figures;
  const alone = await bursts(turns);
  const together = await throughput(turns);
  waiting(figures, together[0]!);
  const verdicts = judged(figures, alone, together);
  console.log(`${verdictTable(verdicts)}\n`);
  return rounds() && verdicts.every(({ met }) => met !== false);
}

/**
 * Prints what requests with key and limit cost that the gateway answers itself, when nobody but it has the processors:
 * it is stopped, gets a burst of requests into its sockets, and goes on while everybody else sleeps. Resolves with the
 * processor time of a request by `WORKERS`.
 */
async function bursts(turns: number): Promise<readonly number[]> {
  return withMachine(async (machine) => {
    const gateways = [];
    for (const workers of WORKERS)
      gateways.push({ ...(await started(machine, workers, 9, true)), micros: [] as number[], wallMs: [] as number[] });
    const count = BURST.connections * BURST.requests;
    for (let turn = 0; turn <= turns + 1; turn++) {
      for (const { running, port, micros, wallMs } of gateways) {
        const words = [
          BURST_CLIENT,
          port,
          running.pid,
          BURST.connections,
          BURST.requests,
          `GET /small HTTP/1.1\r\nHost: 127.0.0.1\r\napiKey: ${KEY}\r\n\r\n`,
        ];
        const burst = JSON.parse(run(process.execPath, words.map(String))) as {
          replies: number;
          wallMs: number;
          threads: readonly number[];
        };
        if (burst.replies !== count) throw new Error(`${burst.replies} of ${count} requests were answered`);
        // The first two turns warm up.
        if (turn < 2) continue;
        micros.push(burst.threads.reduce((sum, each) => sum + each, 0) / 1_000 / count);
        wallMs.push(burst.wallMs);
      }
    }
    const rows = gateways.map(({ workers, micros, wallMs }) => [workers, brief(median(micros)), brief(median(wallMs))]);
    console.log(`bursts of ${count} requests with key and limit, answered by the gateway; medians of ${turns}\n`);
    console.log(`${markdown(["workers", "CPU µs of a request", "ms for all"], rows)}\n`);
    return gateways.map(({ micros }) => median(micros));
  });
}

/**
 * Prints requests a second, processor time and memory of whole requests, where load and backend share the processors.
 * Resolves as `bursts` does.
 */
async function throughput(turns: number): Promise<readonly number[]> {
  return withMachine(async (machine) => {
    const backendPort = await freePort();
    machine.start(backend({ folder: mkdtempSync(join(machine.folder, "backend-")), port: backendPort }), OTHERS);
    const gateways: Gateway[] = [];
    for (const workers of WORKERS) gateways.push(await started(machine, workers, backendPort));
    for (let turn = 0; turn <= turns; turn++) {
      for (const { running, port, rounds: figures } of gateways) {
        const [before, mainBefore] = [costsOf(running.pid).cpuMicros, mainCpuMicros(running.pid)];
        const { rps, requests, failures, p99 } = await fullLoad(machine, SCENARIO, port, 1);
        if (failures > 0) throw new Error(`${failures} requests failed`);
        const [after, mainAfter] = [costsOf(running.pid).cpuMicros, mainCpuMicros(running.pid)];
        // The first turn warms up.
        if (turn > 0)
          figures.push({
            rps,
            cpuMicros: (after - before) / requests,
            mainMicros: (mainAfter - mainBefore) / requests,
            p99,
          });
      }
    }
    const cpu = ({ rounds: figures }: Gateway) => median(figures.map(({ cpuMicros }) => cpuMicros));
    console.log(
      `${SCENARIO.title}, ${CONNECTIONS} connections; load, backend and gateway share ${HERE} processors; ` +
        `medians of ${turns} turns\n`,
    );
    const rows = gateways.map((gateway) => {
      const { workers, running, restMib, rounds: figures } = gateway;
      const mainMicros = workers === 1 ? "" : brief(median(figures.map((each) => each.mainMicros)));
      const tail = brief(median(figures.map(({ p99 }) => p99 ?? NaN)));
      return [
        workers,
        brief(median(figures.map(({ rps }) => rps))),
        brief(cpu(gateway)),
        mainMicros,
        tail,
        brief(restMib),
        brief(costsOf(running.pid).rssMib),
      ];
    });
    const costs = ["requests/s", "CPU µs of a request", "main thread's", "p99 ms", "MiB at rest", "MiB under load"];
    console.log(`${markdown(["workers", ...costs], rows)}\n`);
    return gateways.map(cpu);
  });
}

/**
 * Processor time of the thread that has the process's id, in microseconds: with several workers it serves no requests.
 */
function mainCpuMicros(pid: number): number {
  const text = readFileSync(`/proc/${pid}/task/${pid}/stat`, "utf8");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

function judged(figures: Figures, alone: readonly number[], together: readonly number[]): Verdict[] {
  const times = (2 * alone[0]!) / alone[1]!;
  const here = (2 * together[0]!) / together[1]!;
  const spent = SHARED.reduce((sum, name) => sum + figures[name]!.both, 0) / 1_000;
  return [
    {
      what: "requests of two workers on two processors, of those of one, in bursts",
      ...{
        figure: `${brief(times)}× (2 × ${brief(alone[0])} : ${brief(alone[1])} µs)`,
        target: `≥ ${MIN_TIMES}×`,
        met: times >= MIN_TIMES,
      },
    },
    {
      what: "the same of whole requests, beside load and backend",
      figure: `${brief(here)}×`,
      target: "told only",
      met: null,
    },
    {
      what: "all shared operations of a request with key and limit, while another thread does the same without pause",
      ...{ figure: `${brief(spent)} µs`, target: `≤ ${MAX_SHARED_MICROS} µs`, met: spent <= MAX_SHARED_MICROS },
    },
  ];
}

/**
 * On Node 24, on all processors, with a configuration as in `npm run bench -- peers guarded`. `answers`: itself, behind
 * key and limit.
 */
async function started(machine: Machine, workers: number, backendPort: number, answers = false): Promise<Gateway> {
  const ours = competitors().find(({ name }) => name === "ours")!;
  const place: Place = {
    folder: mkdtempSync(join(machine.folder, `workers-${workers}-`)),
    port: await freePort(),
    backendPort,
  };
  const { words, environment } = ours.command(SCENARIO, place);
  if (answers) answerItself(join(place.folder, "gw.json"));
  const everywhere = machine.notPinned === null ? ["taskset", "-c", `0-${HERE - 1}`] : ["env"];
  const [program = "", ...before] = everywhere;
  const running = machine.start(
    {
      program,
      words: [...before, nodeOf(24), ...words, "--workers", String(workers)],
      ...(environment && { environment }),
    },
    OTHERS,
  );
  const deadline = performance.now() + READY_MS;
  for (let fault: string | null = ""; fault !== null; await pause(50)) {
    fault = await faultOf(ours, SCENARIO, place.port).catch((error: Error) => error.message);
    if (fault !== null && (running.over() || performance.now() > deadline))
      throw new Error(`${fault}: ${running.errors()}`);
  }
  return { workers, running, port: place.port, restMib: costsOf(running.pid).rssMib, rounds: [] };
}

function answerItself(file: string): void {
  const config = JSON.parse(readFileSync(file, "utf8")) as { services: { plugins: object[] }[] };
  config.services[0]!.plugins.push({
    name: "request_termination",
    config: { status: 200, body: "x".repeat(SMALL_BYTES) },
  });
  writeFileSync(file, JSON.stringify(config));
}

/** Nanoseconds of one operation of one thread alone, and of each of two threads at the same time. */
type Figures = Readonly<Record<string, { readonly alone: number; readonly both: number }>>;

/**
 * The shared operations of a request with a key and a limit. Everything else is a worker's own, or is read and hardly
 * ever written.
 */
const SHARED = ["limiter, other callers", "circuit breaker", "requests in flight"];

/** Threads that count side by side in one cache line: see `SharedCount`. */
const WORDS_PER_LINE = 16;

/**
 * Prints what shared memory costs, and what many processors would lose by waiting for it. `cpuMicros` is the processor
 * time of a request.
 */
function waiting(figures: Figures, cpuMicros: number): void {
  console.log("shared memory: one operation, ns\n");
  console.log(
    `${markdown(
      ["", "one thread", "each of two threads"],
      Object.entries(figures).map(([what, { alone, both }]) => [what, brief(alone), brief(both)]),
    )}\n`,
  );
  const model = (name: string, shards: (processors: number) => number, spinMicros = SPIN_MICROS) => {
    const { alone, both } = figures[name]!;
    const holdMicros = alone / 1_000;
    // Two threads at the same lock make two operations in the time of `both`.
    const times = {
      workMicros: cpuMicros,
      holdMicros,
      movedMicros: Math.max(holdMicros, both / 2_000),
      spinMicros,
      wakeMicros: WAKE_MICROS,
    };
    return (processors: number, requests: number) =>
      simulate({ ...times, processors, shards: shards(processors), requests });
  };
  // A cache line that several processors write is a lock that never sleeps: the next one gets it when the one before
  // has written.
  const models = [
    ["limiter, one caller: one lock", model("limiter, one caller", () => 1)],
    ["limiter, many callers: locks for parts", model("limiter, other callers", shardsOf)],
    ["circuit breaker: one cache line", model("circuit breaker", () => 1, Infinity)],
    [
      "requests in flight: a cache line for 16 workers",
      model("requests in flight", (workers) => Math.ceil((workers + 1) / WORDS_PER_LINE), Infinity),
    ],
  ] as const;
  console.log(
    `model: every processor answers requests of ${brief(cpuMicros)} µs without pause, ` +
      `each of which takes each of these once\n`,
  );
  const rows = models.flatMap(([what, each]) =>
    PROCESSORS.map((processors) => {
      const { share, meanWait, p99Wait, slept, busy } = each(processors, 200_000);
      const figures = [
        `${(busy * 100).toFixed(1)} %`,
        brief(meanWait),
        brief(p99Wait),
        `${(slept * 100).toFixed(2)} %`,
        `${(share * 100).toFixed(1)} %`,
      ];
      return [what, processors, ...figures, thousands((share * processors * 1e6) / cpuMicros)];
    }),
  );
  const heads = [
    "what is shared",
    "processors",
    "held",
    "mean wait µs",
    "p99 µs",
    "slept",
    "of the ideal rate",
    "requests/s",
  ];
  console.log(`${markdown(heads, rows)}\n`);
  for (const [what, each] of models) console.log(`${what}: ${firstToLose(each, cpuMicros)}`);
  console.log("");
}

function thousands(requests: number): string {
  return `${Math.round(requests / 1_000)},000`.replace(/(\d)(\d{3}),000$/, "$1,$2,000");
}

/** The locks of a limiter with 100,000 callers, see `sharedTable` in `lib/store/memory.ts`. */
function shardsOf(workers: number): number {
  return Math.min(256, 2 ** Math.ceil(Math.log2(8 * workers)));
}

/** The fewest processors that lose a twentieth to waiting, and the most requests a second that pass there. */
function firstToLose(model: (processors: number, requests: number) => LockFigures, cpuMicros: number): string {
  for (let processors = 2; processors <= 512; processors = Math.ceil(processors * 1.1)) {
    const { share } = model(processors, 50_000);
    if (share < 0.95)
      return (
        `a twentieth is lost from ${processors} processors on, ` +
        `at ${thousands((share * processors * 1e6) / cpuMicros)} requests/s`
      );
  }
  return "less than a twentieth is lost up to 512 processors";
}

/** The specs of exact limits, with more rounds. */
function rounds(): boolean {
  const words = [
    "node_modules/vitest/vitest.mjs",
    "run",
    "--config",
    "spec/peers/vitest.config.ts",
    "spec/peers/workers_limits.spec.ts",
  ];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, {
    cwd: ROOT,
    encoding: "utf8",
    env: { ...process.env, WORKERS_ROUNDS: String(ROUNDS) },
  });
  console.log(
    `${ROUNDS} rounds of N of N over workers, with kills and controls: ` +
      `${status === 0 ? "exact" : `FAILED\n${stdout}${stderr}`}`,
  );
  return status === 0;
}
