/** Starts the built gateway with several workers on a Node release that can, and ends it with the test. */
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { keptClient, type Answered, type KeptClient } from "../support/kept_client.ts";
import { emptyFolder, fileWith, runningFile, type RunningProgram } from "../support/process.ts";
import { CREDENTIALS } from "./built.ts";
import { nodeOf, type Release } from "./nodes.ts";

export interface Workers extends RunningProgram {
  readonly adminUrl: string;
  /** The Cookie header of a session of the admin interface. */
  session(): Promise<string>;
  /** Asks the admin interface, with that session; resolves with the body as text. */
  admin(path: string, method?: string): Promise<string>;
}

export interface WorkersOptions {
  /** Default 24. */
  readonly release?: Release;
  /** Default 2. */
  readonly workers?: number;
  /** Further arguments of the program. */
  readonly words?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  /** Called with the configuration's file before the start. */
  readonly before?: (file: string) => void;
}

/** Resolves when the program has logged its start: all workers listen. Its log is JSON, on `stderr()`. */
export async function withWorkers(
  config: unknown,
  { release = 24, workers = 2, words = [], environment = {}, before = () => {} }: WorkersOptions = {},
): Promise<Workers> {
  const settings = { ADMIN_USER: CREDENTIALS.user, ADMIN_PASSWORD: CREDENTIALS.password, ...environment };
  const file = fileWith(config);
  before(file);
  const running = await runningFile(file, ["--workers", String(workers), ...words], settings, nodeOf(release));
  const adminUrl = running.started.admin as string;
  let cookie: Promise<string> | null = null;
  const session = () => (cookie ??= login(adminUrl));
  return {
    ...running,
    adminUrl,
    session,
    async admin(path, method = "GET") {
      const answer = await fetch(adminUrl + path, { method, headers: { cookie: await session() } });
      return answer.text();
    },
  };
}

async function login(adminUrl: string): Promise<string> {
  const authorization = `Basic ${Buffer.from(`${CREDENTIALS.user}:${CREDENTIALS.password}`).toString("base64")}`;
  const answer = await fetch(`${adminUrl}/login`, { method: "POST", headers: { authorization } });
  if (answer.status !== 200) throw new Error(`the login was answered with ${answer.status}`);
  return answer.headers.getSetCookie()[0]!.split(";", 1)[0]!;
}

/**
 * A plugin module for every worker: its replies say which thread answered (`X-Worker`) and by which configuration
 * (`X-Set`) at which time (`X-At`, see `monotonic`), and a query makes the thread fail. `refused_in` is a thread that
 * refuses the configuration; the main thread is 0.
 */
const PROBE = `import { parentPort, threadId } from "node:worker_threads";
const kept = [];
const FAULTS = {
  "?exit": () => process.exit(3),
  "?throw": () => setImmediate(() => { throw "thrown by the probe"; }),
  "?fault": () => setImmediate(() => { throw new Error("a fault of the probe"); }),
  "?hang": () => { for (;;); },
  "?busy": () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300),
  // Numbers that the garbage collector need not look through, and an event loop that turns: the thread has to be full \
before it seems to hang.
  "?memory": async () => { for (;;) { kept.push(new Array(10_000).fill(0.5)); await new Promise(setImmediate); } },
  "?post": () => [null, undefined, 1, "text", {}, { type: "unknown" }, { type: "log" }, { type: "access", lines: 1 }, \
{ type: "report" }, { type: "failures" }, { type: "failed" }, { type: "compiled" }].forEach((message) => \
parentPort.postMessage(message)),
};
export default ({ definePlugin, schema, withHeader }) => definePlugin({
  name: "probe",
  schema: schema.object({
    set: schema.withDefault(schema.integer({ describe: "The number of the configuration." }), 0),
    refused_in: schema.withDefault(schema.integer({ describe: "A thread." }), -1),
  }),
  create({ set, refusedIn }) {
    if (threadId === refusedIn) throw new Error("thread " + threadId + " refuses " + set);
    return (next) => async (exchange) => {
      const at = Number(process.hrtime.bigint()) / 1e6;
      await FAULTS[exchange.query]?.();
      const reply = await next(exchange);
      const marks = { "X-Worker": threadId, "X-Set": set, "X-At": at };
      return { ...reply, headers: Object.entries(marks).reduce((headers, [name, value]) => withHeader(headers, name, \
String(value)), reply.headers) };
    };
  },
});
`;

/** Writes the module of the plugin kind "probe" to a file; its entry of `global.plugin_modules`. */
export function probeModule(): { readonly path: string; readonly sha256: string } {
  const path = join(emptyFolder(), "probe.mjs");
  writeFileSync(path, PROBE);
  return { path, sha256: createHash("sha256").update(PROBE).digest("hex") };
}

/** Of an answer that passed the plugin "probe". */
export const workerOf = ({ headers }: Answered) => Number(headers["x-worker"]);

/** Connects until the connection is with a worker that fits; the other connections are closed. */
export async function clientOn(port: number, fits: (worker: number) => boolean): Promise<KeptClient> {
  const deadline = performance.now() + 30_000;
  for (;;) {
    const client = await keptClient(port);
    const worker = await client.ask("/a/which", { "X-Tenant": `scout ${scouts++}` }).then(workerOf, () => NaN);
    if (fits(worker)) {
      onTestFinished(client.close);
      return client;
    }
    client.close();
    if (performance.now() > deadline) throw new Error("no connection reached the worker within half a minute");
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

let scouts = 0;

/** The threads of all workers, in the order in which connections reached them. */
export async function workersOn(port: number, count: number): Promise<number[]> {
  const found: number[] = [];
  while (found.length < count) {
    await clientOn(port, (worker) => worker > 0 && !found.includes(worker) && found.push(worker) > 0);
  }
  return found;
}
