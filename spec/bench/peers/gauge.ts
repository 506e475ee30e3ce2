/**
 * Checks the response of a proxy to one request of each kind, then puts it under load with wrk or h2load if they are
 * installed, or else with `loader.mjs`.
 */
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { CA } from "../../support/certs.ts";
import type { Competitor } from "./competitors.ts";
import { find, OTHERS, type Machine, type Running } from "./machine.ts";
import { KEY, type Scenario } from "./scenarios.ts";

export interface Gauged {
  readonly requests: number;
  readonly rps: number;
  readonly p50: number | null;
  readonly p99: number | null;
  /** Responses other than 200, and broken connections. */
  readonly failures: number;
  /**
   * For a paced load: the longest gap between the loader's own timers, in milliseconds. Much more than one means that
   * the loader was slow.
   */
  readonly timerP99?: number;
}

/** Resolves with what is wrong with the responses of a proxy, which is then not measured, or null. */
export async function faultOf(competitor: Competitor, scenario: Scenario, port: number): Promise<string | null> {
  for (const path of [scenario.paths[0]!, scenario.paths.at(-1)!]) {
    const answer = await ask(scenario, port, path, true);
    if (answer.status !== 200) return `${scenario.method} ${path} gave ${answer.status}`;
    const whole = answer.body.length === scenario.answerBytes && answer.body.every((byte) => byte === X);
    if (!whole) return `${path} came with another body, of ${answer.body.length} bytes`;
  }
  if (scenario.guarded && competitor.guards) {
    const { status } = await ask(scenario, port, scenario.paths[0]!, false);
    if (status !== 401) return `a request without the key gave ${status}`;
  }
  if (scenario.routes > 0) {
    const { status } = await ask(scenario, port, "/nowhere/42", true);
    if (status !== 404) return `a path of no route gave ${status}`;
  }
  return null;
}

/** The reason why the load of a scenario cannot run, or null. */
export function missingFor({ protocol }: Scenario): string | null {
  return protocol === "h2" && find("h2load") === null ? "h2load is not installed" : null;
}

/** A load without pauses. */
export function fullLoad(machine: Machine, scenario: Scenario, port: number, seconds: number): Promise<Gauged> {
  if (scenario.protocol === "h2") return byH2load(machine, scenario, port, seconds);
  if (find("wrk") !== null) return byWrk(machine, scenario, port, seconds);
  return byLoader(machine, scenario, port, { mode: "closed", seconds, rate: 0 });
}

/** A load of `rate` requests a second, each with its own due time. */
export function pacedLoad(
  machine: Machine,
  scenario: Scenario,
  port: number,
  seconds: number,
  rate: number,
): Promise<Gauged> {
  return byLoader(machine, scenario, port, { mode: "paced", seconds, rate });
}

/** Opens the scenario's connections, sends one request on each, and keeps them until it is stopped. */
export async function holdConnections(machine: Machine, scenario: Scenario, port: number): Promise<Running> {
  const holder = loader(machine, scenario, port, { mode: "hold", seconds: 0, rate: 0 });
  while (!holder.output().includes("\n")) {
    if (holder.over()) throw new Error(`the connections could not be opened: ${holder.errors()}`);
    await Promise.race([once(holder.child.stdout!, "data"), holder.ended]);
  }
  const { failures } = JSON.parse(holder.output()) as { failures: number };
  if (failures > 0) throw new Error(`${failures} of ${scenario.connections} connections were not answered`);
  return holder;
}

const X = "x".charCodeAt(0);
const ASK_MS = 2_000;
/** The time that a load may take beyond its duration. */
const GRACE_MS = 15_000;

interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

function ask(scenario: Scenario, port: number, path: string, withKey: boolean): Promise<Answer> {
  const headers: Record<string, string> = withKey ? { apiKey: KEY } : {};
  const body = Buffer.alloc(scenario.bodyBytes, "x");
  if (scenario.protocol === "h2") return askOverHttp2(port, path, headers);
  const options = {
    host: "127.0.0.1",
    port,
    path,
    method: scenario.method,
    agent: false,
    headers,
    ca: CA.cert,
    servername: "localhost",
  };
  return new Promise((resolve, reject) => {
    const asked = (scenario.protocol === "https" ? https : http).request(options, (response) => {
      const pieces: Buffer[] = [];
      response.on("data", (piece: Buffer) => pieces.push(piece));
      response.on("error", reject);
      response.on("end", () => resolve({ status: response.statusCode!, body: Buffer.concat(pieces) }));
    });
    asked.setTimeout(ASK_MS, () => asked.destroy(new Error("no answer")));
    asked.on("error", reject);
    if (body.length > 0) asked.setHeader("Content-Length", body.length);
    asked.end(body);
  });
}

async function askOverHttp2(port: number, path: string, headers: Record<string, string>): Promise<Answer> {
  const session = http2.connect(`https://localhost:${port}`, {
    ca: CA.cert,
    host: "127.0.0.1",
  } as http2.SecureClientSessionOptions);
  try {
    return await new Promise((resolve, reject) => {
      session.on("error", reject);
      session.setTimeout(ASK_MS, () => session.destroy(new Error("no answer")));
      const stream = session.request({ ":path": path, ...headers });
      const pieces: Buffer[] = [];
      let status = 0;
      stream.on("response", (fields) => (status = fields[":status"] ?? 0));
      stream.on("data", (piece: Buffer) => pieces.push(piece));
      stream.on("error", reject);
      stream.on("end", () => resolve({ status, body: Buffer.concat(pieces) }));
    });
  } finally {
    session.destroy();
  }
}

async function byWrk(machine: Machine, scenario: Scenario, port: number, seconds: number): Promise<Gauged> {
  const script = join(machine.folder, `${scenario.name}.lua`);
  writeFileSync(script, luaOf(scenario));
  const url = `${scenario.protocol}://127.0.0.1:${port}${scenario.paths[0]!}`;
  // wrk counts in whole seconds and does not cut a longer run off.
  const words = [
    "-t",
    "1",
    "-c",
    String(scenario.connections),
    "-d",
    `${Math.max(1, Math.round(seconds))}s`,
    "--latency",
    "-s",
    script,
    url,
  ];
  const output = await outputOf(machine.start({ program: find("wrk")!, words }, OTHERS), seconds);
  const [, requests, took] = /(\d+) requests in ([\d.]+\w+)/.exec(output) ?? [];
  if (requests === undefined) throw new Error(`wrk said: ${output}`);
  const latency = (percent: number) => msOf(new RegExp(`^\\s+${percent}%\\s+([\\d.]+\\w+)`, "m").exec(output)?.[1]);
  const broken = /Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/.exec(output)?.slice(1) ?? [];
  const others = Number(/Non-2xx or 3xx responses: (\d+)/.exec(output)?.[1] ?? 0);
  const failures = broken.reduce((sum, each) => sum + Number(each), others);
  return {
    requests: Number(requests),
    rps: (Number(requests) / msOf(took)!) * 1000,
    p50: latency(50),
    p99: latency(99),
    failures,
  };
}

/** The key, the method and the body; and the paths in turn when there are several. */
function luaOf({ method, bodyBytes, paths }: Scenario): string {
  const common =
    `wrk.method = "${method}"\nwrk.headers["apiKey"] = ` +
    `"${KEY}"\n${bodyBytes > 0 ? `wrk.body = string.rep("x", ${bodyBytes})\n` : ""}`;
  if (paths.length === 1) return common;
  return `${common}local texts, turn = {}, 0
function init(args)
  for i, path in ipairs({${paths.map((path) => `"${path}"`).join(",")}}) do texts[i] = wrk.format(nil, path) end
end
function request()
  turn = turn % #texts + 1
  return texts[turn]
end
`;
}

/** wrk's "1.23ms", "45.6us", "2.01s", "1.00m". */
function msOf(text: string | undefined): number | null {
  const [, value, unit] = /^([\d.]+)(us|ms|s|m)$/.exec(text ?? "") ?? [];
  if (value === undefined) return null;
  return Number(value) * { us: 0.001, ms: 1, s: 1000, m: 60_000 }[unit as "us" | "ms" | "s" | "m"];
}

/** So many requests as are answered in that time: told to stop by the clock, h2load 1.52 does not always end. */
async function byH2load(machine: Machine, scenario: Scenario, port: number, seconds: number): Promise<Gauged> {
  const probe = await h2loadOf(machine, scenario, port, H2_PROBE, seconds);
  const run = await h2loadOf(machine, scenario, port, Math.max(H2_PROBE, Math.round(probe.rps * seconds)), seconds);
  // The costs of the proxy cover both.
  return { ...run, requests: probe.requests + run.requests, failures: probe.failures + run.failures };
}

const H2_PROBE = 1_000;

async function h2loadOf(
  machine: Machine,
  scenario: Scenario,
  port: number,
  requests: number,
  seconds: number,
): Promise<Gauged> {
  const log = join(machine.folder, "h2load.log");
  writeFileSync(log, "");
  const words = [
    "-t",
    "1",
    "-c",
    String(scenario.connections),
    "-m",
    "16",
    "-n",
    String(requests),
    "--log-file",
    log,
    "-H",
    `apiKey: ${KEY}`,
  ];
  const command = { program: find("h2load")!, words: [...words, `https://127.0.0.1:${port}${scenario.paths[0]!}`] };
  const output = await outputOf(machine.start(command, OTHERS), seconds);
  const rps = /finished in [\d.]+\w+, ([\d.]+) req\/s/.exec(output)?.[1];
  const fine = Number(/status codes: (\d+) 2xx/.exec(output)?.[1] ?? NaN);
  if (rps === undefined || Number.isNaN(fine)) throw new Error(`h2load said: ${output}`);
  const ms = readFileSync(log, "utf8")
    .split("\n")
    .map((line) => line.split("\t"))
    .filter(([, status]) => status === "200")
    .map(([, , micros]) => Number(micros) / 1000)
    .sort((a, b) => a - b);
  const share = (part: number) => ms[Math.floor(ms.length * part)] ?? null;
  return { requests: fine, rps: Number(rps), p50: share(0.5), p99: share(0.99), failures: requests - fine };
}

interface Loading {
  readonly mode: "closed" | "paced" | "hold";
  readonly seconds: number;
  /** Requests a second. */
  readonly rate: number;
}

async function byLoader(machine: Machine, scenario: Scenario, port: number, loading: Loading): Promise<Gauged> {
  return JSON.parse(await outputOf(loader(machine, scenario, port, loading), loading.seconds)) as Gauged;
}

function loader(machine: Machine, scenario: Scenario, port: number, loading: Loading): Running {
  const { method, bodyBytes, connections, protocol } = scenario;
  const length = bodyBytes > 0 ? `Content-Length: ${bodyBytes}\r\n` : "";
  // A command line is limited to 128 KiB, so only some of many paths are used.
  const paths = scenario.paths.slice(0, bodyBytes > 0 ? 1 : 500);
  const rest = `Host: 127.0.0.1:${port}\r\napiKey: ${KEY}\r\n${length}\r\n${"x".repeat(bodyBytes)}`;
  const requests = paths.map((path) => `${method} ${path} HTTP/1.1\r\n${rest}`);
  const words = [LOADER, JSON.stringify({ ...loading, port, connections, secure: protocol === "https", requests })];
  return machine.start({ program: process.execPath, words }, OTHERS);
}

const LOADER = fileURLToPath(new URL("loader.mjs", import.meta.url));

async function outputOf(running: Running, seconds: number): Promise<string> {
  const timer = setTimeout(() => void running.stop(), seconds * 1000 + GRACE_MS);
  const code = await running.ended;
  clearTimeout(timer);
  if (code !== 0) throw new Error(`the load ended with ${code}: ${running.errors()}${running.output()}`);
  return running.output();
}
