/**
 * Measures the memory of the built gateway: at rest, of a connection that asks for nothing, of HTTP/2 sessions and
 * streams, and under load on the newer releases of Node beside this one, without and with the setting that
 * docs/performance.md names for them.
 */
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { nodeOf } from "../peers/nodes.ts";
import { brief, markdown, median, verdictTable, type Verdict } from "./figures.ts";
import { pause } from "./load.ts";
import { backend, competitors } from "./peers/competitors.ts";
import { faultOf, fullLoad } from "./peers/gauge.ts";
import { costsOf, freePort, MEASURED, OTHERS, withMachine, type Machine, type Running } from "./peers/machine.ts";
import { SCENARIOS, SMALL_BYTES, type Scenario } from "./peers/scenarios.ts";
import { build, run } from "./ready.ts";

const USAGE = `usage: npm run bench -- memory [rest,connections,load] [--nodes PATH,…]: all by default
  --nodes  programs of further releases of Node to measure under load, beside this one and Node 24`;
const PARTS = ["rest", "connections", "load"] as const;
const HOLDER = fileURLToPath(new URL("./memory_holder.mjs", import.meta.url));

const BACKEND = fileURLToPath(new URL("./peers/backend.mjs", import.meta.url));

const MAX_REST_MIB = 55;
const MAX_CONNECTION_KIB = 8;
const MAX_OF_THIS_NODE = 1.2;
const STARTS = 7;
const READY_MS = 10_000;
/** As many as fit into 20,000 descriptors, which the gateway and the process that holds them have each. */
const CONNECTIONS = 10_000;
const TLS_CONNECTIONS = 2_000;
const SESSIONS = 100;
const STREAMS = 20;
/** For what is closed to be gone, and what is idle to be so. */
const SETTLE_MS = 1_500;
const SAMPLE_MS = 100;
/** The setting for newer releases; see docs/performance.md. */
const SETTING = "--max-semi-space-size=4";
/**
 * Key and limit from 128 connections; 64 KiB; and 1000 connections. So long that every release collects its old objects
 * once.
 */
const LOADS: readonly (readonly [scenario: string, connections: number])[] = [
  ["guarded", 128],
  ["large", 64],
  ["connections", 1_000],
];
const LOAD_S = 4;
const LOAD_TURNS = 2;

/** Prints its tables; true when the targets are met. */
export async function memory(words: readonly string[]): Promise<boolean> {
  const at = words.indexOf("--nodes");
  const [others, names] = at < 0 ? [[], words] : [words[at + 1]?.split(",") ?? [], words.toSpliced(at, 2)];
  const parts = names.length === 0 ? PARTS : names.flatMap((each) => each.split(","));
  if (!parts.every((each) => (PARTS as readonly string[]).includes(each))) {
    console.log(USAGE);
    return false;
  }
  build();
  const verdicts: Verdict[] = [];
  if (parts.includes("rest")) verdicts.push(await withMachine(rest));
  if (parts.includes("connections")) verdicts.push(await withMachine(connections));
  if (parts.includes("load"))
    for (const load of LOADS) verdicts.push(...(await withMachine((machine) => underLoad(machine, others, load))));
  console.log(verdictTable(verdicts));
  return verdicts.every(({ met }) => met !== false);
}

interface Gateway {
  readonly running: Running;
  readonly port: number;
}

/** A gateway that has answered; `flags` are those of Node. */
async function started(
  machine: Machine,
  scenario: Scenario,
  backendPort: number,
  node = process.execPath,
  flags: readonly string[] = [],
): Promise<Gateway> {
  const ours = competitors().find(({ name }) => name === "ours")!;
  const port = await freePort();
  const { words, environment } = ours.command(scenario, {
    folder: mkdtempSync(join(machine.folder, "gateway-")),
    port,
    backendPort,
  });
  const running = machine.start(
    { program: node, words: [...flags, ...words], ...(environment && { environment }) },
    MEASURED,
  );
  const deadline = performance.now() + READY_MS;
  for (let fault: string | null = ""; fault !== null; await pause(50)) {
    fault = await faultOf(ours, scenario, port).catch((error: Error) => error.message);
    if (fault !== null && (running.over() || performance.now() > deadline))
      throw new Error(`${fault}: ${running.errors()}`);
  }
  return { running, port };
}

/** When it listens, before its first request. */
async function rest(machine: Machine): Promise<Verdict> {
  const ours = competitors().find(({ name }) => name === "ours")!;
  const figures: number[] = [];
  for (let i = 0; i < STARTS; i++) {
    const place = { folder: mkdtempSync(join(machine.folder, "rest-")), port: await freePort(), backendPort: 9 };
    const { words } = ours.command(scenarioOf("small"), place);
    const running = machine.start({ program: process.execPath, words }, MEASURED);
    const deadline = performance.now() + READY_MS;
    while (!running.errors().includes(" started")) {
      if (running.over() || performance.now() > deadline)
        throw new Error(`the gateway did not start: ${running.errors()}`);
      await pause(10);
    }
    figures.push(costsOf(running.pid).rssMib);
    await running.stop();
  }
  const mib = median(figures);
  return {
    what: `RSS at rest, Node ${process.versions.node}, median of ${STARTS} starts`,
    figure: `${brief(mib)} MiB`,
    target: `≤ ${MAX_REST_MIB} MiB`,
    met: mib <= MAX_REST_MIB,
  };
}

/** What one of many adds to the memory of a process in which a tenth of them have come and gone before. */
async function connections(machine: Machine): Promise<Verdict> {
  const port = await freePort();
  machine.start({ program: process.execPath, words: [BACKEND, String(port), String(SMALL_BYTES), "0"] }, OTHERS);
  const rows: string[][] = [];
  const grown = async (what: string, scenario: Scenario, holding: Holding) => {
    const gateway = await started(machine, scenario, port);
    await (await held(machine, gateway, { ...holding, count: holding.count / 10, streams: 0 })).stop();
    await pause(SETTLE_MS);
    const before = costsOf(gateway.running.pid).rssMib;
    const holder = await held(machine, gateway, holding);
    await pause(SETTLE_MS);
    const each = ((costsOf(gateway.running.pid).rssMib - before) * 1024) / holding.count;
    rows.push([what, String(holding.count), brief(before), brief(each)]);
    await holder.stop();
    await gateway.running.stop();
    return each;
  };
  const plain = await grown("HTTP/1.1 connection, idle", scenarioOf("small"), {
    kind: "http",
    count: CONNECTIONS,
    streams: 0,
  });
  await grown("HTTP/1.1 connection over TLS, idle", scenarioOf("https"), {
    kind: "https",
    count: TLS_CONNECTIONS,
    streams: 0,
  });
  const session = await grown("HTTP/2 session, idle", scenarioOf("http2"), { kind: "h2", count: SESSIONS, streams: 0 });
  const busy = await grown(`HTTP/2 session with ${STREAMS} streams`, scenarioOf("http2"), {
    kind: "h2",
    count: SESSIONS,
    streams: STREAMS,
  });
  rows.push([
    "HTTP/2 stream that waits for an upstream, the request to it included",
    String(SESSIONS * STREAMS),
    "",
    brief((busy - session) / STREAMS),
  ]);
  console.log(`${markdown(["what is held", "how many", "RSS before, MiB", "KiB each"], rows)}\n`);
  return {
    what: `an idle kept connection, of ${CONNECTIONS}`,
    figure: `${brief(plain)} KiB`,
    target: `≤ ${MAX_CONNECTION_KIB} KiB`,
    met: plain <= MAX_CONNECTION_KIB,
  };
}

interface Holding {
  readonly kind: "http" | "https" | "h2";
  readonly count: number;
  /** Of each session. */
  readonly streams: number;
}

/** Resolves when all are open, and have been answered once. */
async function held(machine: Machine, { port }: Gateway, holding: Holding): Promise<Running> {
  const holder = machine.start(
    { program: process.execPath, words: [HOLDER, JSON.stringify({ ...holding, port })] },
    OTHERS,
  );
  while (!holder.output().includes("\n")) {
    if (holder.over()) throw new Error(`the connections could not be opened: ${holder.errors()}`);
    await Promise.race([once(holder.child.stdout!, "data"), holder.ended]);
  }
  return holder;
}

interface Candidate extends Gateway {
  readonly node: string;
  readonly setting: string;
  readonly freshMib: number;
  readonly turns: { readonly rssMib: number; readonly cpuMicros: number }[];
}

/**
 * This Node, and newer ones with and without the setting, in turns. Their most memory is compared: it falls only when
 * old objects are collected.
 */
async function underLoad(
  machine: Machine,
  others: readonly string[],
  [name, connections]: (typeof LOADS)[number],
): Promise<Verdict[]> {
  const scenario = { ...scenarioOf(name), connections };
  const port = await freePort();
  machine.start(backend({ folder: mkdtempSync(join(machine.folder, "backend-")), port }), OTHERS);
  const candidates: Candidate[] = [];
  const add = async (node: string, flags: readonly string[]) => {
    const gateway = await started(machine, scenario, port, node, flags);
    const version = run(node, ["--version"]).trim();
    candidates.push({
      ...gateway,
      node: version,
      setting: flags.join(" "),
      freshMib: costsOf(gateway.running.pid).rssMib,
      turns: [],
    });
  };
  await add(process.execPath, []);
  for (const node of [nodeOf(24), ...others]) {
    await add(node, []);
    await add(node, [SETTING]);
  }
  for (let turn = 0; turn <= LOAD_TURNS; turn++) {
    for (const { running, port: at, turns } of candidates) {
      const before = costsOf(running.pid).cpuMicros;
      let rssMib = 0;
      const sampling = setInterval(() => (rssMib = Math.max(rssMib, costsOf(running.pid).rssMib)), SAMPLE_MS);
      const { requests, failures } = await fullLoad(machine, scenario, at, LOAD_S);
      clearInterval(sampling);
      // wrk counts a request of more than two seconds as failed, of which there are some where 1000 connections share
      // one processor.
      if (failures > requests / 100) throw new Error(`${failures} requests failed`);
      // The first turn warms up.
      if (turn > 0) turns.push({ rssMib, cpuMicros: (costsOf(running.pid).cpuMicros - before) / requests });
    }
  }
  const most = ({ turns }: Candidate) => Math.max(...turns.map(({ rssMib }) => rssMib));
  const cpu = ({ turns }: Candidate) => median(turns.map(({ cpuMicros }) => cpuMicros));
  const [own, ...newer] = candidates as [Candidate, ...Candidate[]];
  const rows = candidates.map((each) => {
    const figures = [each.freshMib, most(each), most(each) / most(own), cpu(each)].map(brief);
    return [`${each.node} ${each.setting}`.trim(), ...figures];
  });
  console.log(`${scenario.title}, ${connections} connections, ${LOAD_TURNS} turns of ${LOAD_S} s\n`);
  console.log(
    `${markdown(["Node", "RSS fresh, MiB", "most under load, MiB", `× ${own.node}`, "CPU µs of a request"], rows)}\n`,
  );
  return newer
    .filter(({ setting }) => setting !== "")
    .map((each) => {
      const times = most(each) / most(own);
      const what = `RSS under load, ${name}, ${each.node} with ${SETTING}, against ${own.node}`;
      return {
        what,
        figure: `${brief(times)}× (${brief(most(each))} : ${brief(most(own))} MiB)`,
        target: `≤ ${MAX_OF_THIS_NODE}×`,
        met: times <= MAX_OF_THIS_NODE,
      };
    });
}

function scenarioOf(name: string): Scenario {
  return SCENARIOS.find((each) => each.name === name)!;
}
