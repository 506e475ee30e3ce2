/**
 * Compares the built gateway with other proxies on one machine: requests a second, processor time, latency and memory.
 * The proxy has one processor to itself; load and backend have another.
 */
import { mkdirSync, mkdtempSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { median } from "./figures.ts";
import { pause } from "./load.ts";
import { backend, competitors, piecesBackend, type Competitor } from "./peers/competitors.ts";
import { faultOf, fullLoad, holdConnections, missingFor, pacedLoad } from "./peers/gauge.ts";
import { costsOf, find, freePort, MEASURED, OTHERS, withMachine, type Machine, type Running } from "./peers/machine.ts";
import { report, type Measured, type Round, type Run } from "./peers/report.ts";
import { PACE, PIECES, SCENARIOS, type Scenario } from "./peers/scenarios.ts";
import { build, install } from "./ready.ts";

const USAGE = `usage: npm run bench -- peers [SCENARIO,…] [--rounds N] [--seconds N] [--only NAME,…]
  SCENARIO   ${SCENARIOS.map(({ name }) => name).join(", ")}; all by default
  --rounds   1–50 rounds of each scenario, in which every proxy has its turn; 5 by default
  --seconds  1–60 whole seconds of load in a turn; 1 by default
  --only     the proxies that take part: ours, ours-log, ours-node24, ours-http1-node, ours-plain, nginx, \
nginx-default, haproxy, caddy, bare,
             undici, http-proxy; and those that take no part otherwise: ours-node, fastify, fast-gateway
It ends within ten minutes: what has not been measured by then is left out.`;

/** Work under way at that time may take some seconds more; the limit after it ends a run that hangs. */
const MAX_MS = 570_000;
const LIMIT_MS = 600_000;
const READY_MS = 15_000;
const WARM_UP_S = 1;
const WARM_REQUESTS = 5_000;
const MAX_WARM_UPS = 4;

/** Prints its tables and leaves them in `results/`; true when all targets that could be measured are met. */
export async function peers(words: readonly string[]): Promise<boolean> {
  const options = optionsOf(words);
  if (typeof options === "string") {
    console.log(options);
    return options === USAGE;
  }
  const end = performance.now() + MAX_MS;
  const limit = setTimeout(() => {
    console.error("ten minutes are over");
    process.exit(1); // ends everything under way
  }, LIMIT_MS);
  build();
  install();
  const all = competitors();
  const unknown = options.only?.find((name) => !all.some((each) => each.name === name));
  if (unknown !== undefined) console.log(`there is no ${unknown} here`);
  const chosen = all.filter(({ name, onlyIfNamed = false }) => options.only?.includes(name) ?? !onlyIfNamed);
  const missing = chosen.filter(({ version }) => version === null).map(({ name }) => name);
  const notes: string[] = [];
  if (missing.length > 0) notes.push(`not installed, and not measured: ${missing.join(", ")}`);
  for (const tool of ["nginx", "wrk", "h2load"])
    if (find(tool) === null) notes.push(`${tool} is not installed: ${INSTEAD[tool]!}`);
  const measured = await withMachine(async (machine) => {
    if (machine.notPinned !== null)
      notes.push(`the proxies share their processor with load and backend: ${machine.notPinned}`);
    const backendPort = await freePort();
    const folder = mkdtempSync(join(machine.folder, "backend-"));
    const origin = machine.start(backend({ folder, port: backendPort }), OTHERS);
    const piecesPort = await freePort();
    if (options.scenarios.some(({ pieces }) => pieces)) machine.start(piecesBackend(piecesPort), OTHERS);
    const results: Measured[] = [];
    const parts = options.scenarios.map((scenario) => ({
      scenario,
      part: chosen.filter((each) => joins(each, scenario)),
    }));
    for (const [i, { scenario, part }] of parts.entries()) {
      const left = parts.slice(i).map(({ scenario: { load }, part: { length } }) => length * WEIGHTS[load]);
      // A share of the time that is left: where it does not last for all rounds, every scenario has fewer, and none has
      // none.
      const share = ((end - performance.now()) * left[0]!) / left.reduce((sum, each) => sum + each, 0);
      const task = {
        machine,
        scenario,
        part,
        backendPort: scenario.pieces ? piecesPort : backendPort,
        deadline: performance.now() + share,
        end,
        notes,
      };
      results.push(...(await measureAll({ ...task, ...options })));
      if (origin.over()) throw new Error(`the backend has ended: ${origin.errors()}`);
    }
    return results;
  }).finally(() => clearTimeout(limit));
  const run: Run = {
    ...options,
    measured,
    notes,
    versions: Object.fromEntries(chosen.map(({ name, version }) => [name, version])),
  };
  const results = new URL("results/", import.meta.url);
  mkdirSync(results, { recursive: true });
  return report(run, results);
}

/** The duration of one proxy's part of a scenario. */
const WEIGHTS = { full: 1, paced: 1.2, idle: 0.15 };

function joins({ name, version, takesPart }: Competitor, scenario: Scenario): boolean {
  return version !== null && (scenario.among === null || scenario.among.includes(name)) && takesPart(scenario);
}

const INSTEAD: Readonly<Record<string, string>> = {
  nginx: "a backend of our own takes its place",
  wrk: "a loader of our own takes its place, which is slower than the fastest proxies",
  h2load: "HTTP/2 is not measured",
};

interface Options {
  readonly scenarios: readonly Scenario[];
  readonly rounds: number;
  readonly seconds: number;
  readonly only: readonly string[] | null;
}

/** The options; or what is wrong with them, or the usage if that was asked for. */
function optionsOf(words: readonly string[]): Options | string {
  const flags = {
    rounds: { type: "string" },
    seconds: { type: "string" },
    only: { type: "string" },
    help: { type: "boolean" },
  } as const;
  try {
    const { values, positionals } = parseArgs({ args: [...words], options: flags, allowPositionals: true });
    if (values.help === true) return USAGE;
    const names = positionals.flatMap((each) => each.split(","));
    const unknown = names.find((name) => !SCENARIOS.some((scenario) => scenario.name === name));
    if (unknown !== undefined) throw new Error(`there is no scenario ${JSON.stringify(unknown)}`);
    const rounds = Number(values.rounds ?? 5);
    const seconds = Number(values.seconds ?? 1);
    if (!(Number.isInteger(rounds) && rounds >= 1 && rounds <= 50))
      throw new Error("--rounds is a number from 1 to 50");
    if (!(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60))
      throw new Error("--seconds is a number from 1 to 60");
    const scenarios = names.length === 0 ? SCENARIOS : SCENARIOS.filter(({ name }) => names.includes(name));
    return { scenarios, rounds, seconds, only: values.only?.split(",") ?? null };
  } catch (error) {
    return `${(error as Error).message}\n${USAGE}`;
  }
}

interface Task {
  readonly machine: Machine;
  readonly scenario: Scenario;
  readonly part: readonly Competitor[];
  readonly backendPort: number;
  readonly rounds: number;
  readonly seconds: number;
  /** In milliseconds of `performance.now()`; after it only the first round continues. */
  readonly deadline: number;
  /** After it nothing is started. */
  readonly end: number;
  readonly notes: string[];
}

/** One proxy that is up, and what has been measured of it. */
interface Contestant {
  readonly competitor: Competitor;
  readonly running: Running;
  readonly port: number;
  readonly freshRssMib: number;
  /** Requests a second that a paced load is paced at; 0 where the load is not paced. */
  rate: number;
  readonly rounds: Round[];
}

/** All proxies run at once; only the one being measured gets requests. */
async function measureAll(task: Task): Promise<Measured[]> {
  const { scenario, rounds, deadline, end, notes } = task;
  const inTheWay = missingFor(scenario);
  if (inTheWay !== null) {
    notes.push(`${scenario.name} was not measured: ${inTheWay}`);
    return [];
  }
  console.log(`${scenario.title}: ${task.part.map(({ name }) => name).join(", ")}`);
  const up: Contestant[] = [];
  try {
    for (const competitor of task.part) {
      if (performance.now() > end) {
        notes.push(`time was over before ${competitor.name} could begin with ${scenario.name}`);
        break;
      }
      const contestant = await begin(task, competitor);
      if (contestant !== null) up.push(contestant);
    }
    for (let round = 0; round < rounds; round++) {
      for (const contestant of up) {
        if (performance.now() > (round === 0 ? end : deadline)) {
          notes.push(
            `time was over in round ${round + 1} of ${rounds} of ${scenario.name}, at ${contestant.competitor.name}`,
          );
          return measuredOf(scenario, up);
        }
        await turn(task, contestant);
      }
    }
    return measuredOf(scenario, up);
  } finally {
    await Promise.all(up.map(({ running }) => running.stop()));
  }
}

/** Starts it, checks its responses and warms it up. Null, with a note, when a check fails. */
async function begin(task: Task, competitor: Competitor): Promise<Contestant | null> {
  const { machine, scenario, backendPort, notes } = task;
  const port = await freePort();
  const folder = mkdtempSync(join(machine.folder, `${competitor.name}-`));
  const running = machine.start(competitor.command(scenario, { folder, port, backendPort }), MEASURED);
  let fault: string | null = "it was not asked";
  for (const until = performance.now() + READY_MS; performance.now() < until && fault !== null && !running.over();) {
    fault = await faultOf(competitor, scenario, port).catch((error: Error) => error.message);
    if (fault !== null) await pause(50);
  }
  if (fault !== null) {
    notes.push(
      `${scenario.name}: ${competitor.name} was left out: ` +
        `${running.over() ? `it ended: ${running.errors().trim()}` : fault}`,
    );
    await running.stop();
    return null;
  }
  const freshRssMib = costsOf(running.pid).rssMib;
  const contestant: Contestant = { competitor, running, port, freshRssMib, rate: 0, rounds: [] };
  if (scenario.load === "idle") return contestant;
  try {
    // What is compiled while it runs is so after some thousand requests, which on a busy machine take longer than a
    // second.
    const few = { ...scenario, connections: Math.min(scenario.connections, 64) };
    const warmEnough = scenario.pieces ? WARM_REQUESTS / PIECES : WARM_REQUESTS;
    for (let i = 0, asked = 0; i < MAX_WARM_UPS && asked < warmEnough; i++)
      asked += (await fullLoad(machine, few, port, WARM_UP_S)).requests;
    if (scenario.load === "paced") contestant.rate = PACE * (await fullLoad(machine, few, port, WARM_UP_S)).rps;
    return contestant;
  } catch (error) {
    notes.push(`${scenario.name}: ${competitor.name} was left out: ${(error as Error).message}`);
    await running.stop();
    return null;
  }
}

async function turn(
  { machine, scenario, seconds: asked, notes }: Task,
  { competitor, running, port, rate, rounds }: Contestant,
): Promise<void> {
  // Opening a thousand connections is a good part of one second, and a paced stream costs few of the hundredths that
  // are counted.
  const seconds = scenario.connections >= 1_000 || scenario.pieces ? Math.max(2, asked) : asked;
  try {
    if (scenario.load === "idle") {
      const holder = await holdConnections(machine, scenario, port);
      await pause(200);
      const { rssMib } = costsOf(running.pid);
      await holder.stop();
      rounds.push({ rps: null, cpuMicros: null, p50: null, p99: null, rssMib });
      return;
    }
    const before = costsOf(running.pid);
    let rssMib = 0;
    const half = setTimeout(() => (rssMib = costsOf(running.pid).rssMib), seconds * 500);
    const gauged = await (scenario.load === "paced"
      ? pacedLoad(machine, scenario, port, seconds, rate)
      : fullLoad(machine, scenario, port, seconds));
    clearTimeout(half);
    const after = costsOf(running.pid);
    if (gauged.failures > 0)
      notes.push(`${scenario.name}: a turn of ${competitor.name} does not count: ${gauged.failures} requests failed`);
    else if (gauged.requests === 0)
      notes.push(`${scenario.name}: a turn of ${competitor.name} does not count: nothing was answered`);
    else if (running.over()) notes.push(`${scenario.name}: ${competitor.name} has ended: ${running.errors().trim()}`);
    else {
      const cpuMicros = (after.cpuMicros - before.cpuMicros) / gauged.requests;
      const { rps, p50, p99, timerP99 } = gauged;
      rounds.push({
        rps,
        cpuMicros,
        p50,
        p99,
        rssMib: Math.max(rssMib, after.rssMib),
        ...(timerP99 === undefined ? {} : { timerP99 }),
      });
    }
  } catch (error) {
    notes.push(`${scenario.name}: ${competitor.name}: ${(error as Error).message}`);
  }
}

function measuredOf(scenario: Scenario, up: readonly Contestant[]): Measured[] {
  return up
    .filter(({ rounds }) => rounds.length > 0)
    .map(({ competitor: { name, kind, guards }, rounds, freshRssMib, rate }) => {
      const of = (pick: (round: Round) => number | null | undefined) => {
        const values = rounds.map(pick).filter((value) => typeof value === "number");
        return values.length === 0 ? null : median(values);
      };
      const costs = { rps: of((each) => each.rps), cpuMicros: of((each) => each.cpuMicros) };
      const latencies = {
        p50: of((each) => each.p50),
        p99: of((each) => each.p99),
        timerP99: of((each) => each.timerP99),
      };
      const memory = { rssMib: of((each) => each.rssMib), freshRssMib };
      return {
        scenario: scenario.name,
        name,
        kind,
        plain: scenario.guarded && !guards,
        rate,
        ...costs,
        ...latencies,
        ...memory,
        rounds,
      };
    });
}
