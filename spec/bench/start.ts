/**
 * Measures the start of the built gateway: from exec to listening and to the first byte of a proxied response, with the
 * quickstart configuration and with a thousand routes, beside a Node process that does nothing.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import net, { type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { brief, markdown, median, verdictTable, type Verdict } from "./figures.ts";
import { costsOf } from "./peers/machine.ts";
import { build, PROGRAM, ROOT } from "./ready.ts";

const ROUTES = 1_000;
const MAX_MS = 250;
const MAX_RSS_MIB = 70;
const MAX_START_MS = 20_000;

interface Begun {
  readonly listeningMs: number;
  readonly proxiedMs: number;
  /** Processor time until it listened, threads of the collector and the compiler included. */
  readonly cpuMs: number;
  /** When it listened. */
  readonly rssMib: number;
}

/** Takes the number of starts as its first word, 10 by default. Prints its figures; true when the targets are met. */
export async function start([given = "10"]: readonly string[]): Promise<boolean> {
  const starts = Number(given);
  if (!(Number.isInteger(starts) && starts >= 1 && starts <= 100)) throw new RangeError("there are 1 to 100 starts");
  build();
  const upstream = http.createServer((_request, response) => void response.end("ok")).listen(0, "127.0.0.1");
  await once(upstream, "listening");
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-bench-"));
  try {
    const { port } = upstream.address() as AddressInfo;
    const few = join(folder, "quickstart.json");
    writeFileSync(
      few,
      JSON.stringify(
        pointedAt(port, JSON.parse(readFileSync(join(ROOT, "examples/quickstart.json"), "utf8")) as AnyConfigInput),
      ),
    );
    const many = join(folder, "many.json");
    writeFileSync(many, JSON.stringify(manyRoutes(port)));
    const measured = { nothing: [] as number[], few: [] as Begun[], many: [] as Begun[] };
    for (let i = 0; i < starts; i++) {
      measured.nothing.push(await nothing());
      measured.few.push(await begun(few, "/orders/42"));
      measured.many.push(await begun(many, `/service9/r${ROUTES - 1}/42`));
    }
    const listening = (rounds: readonly Begun[]) => median(rounds.map((each) => each.listeningMs));
    const proxied = (rounds: readonly Begun[]) => median(rounds.map((each) => each.proxiedMs));
    const cpu = (rounds: readonly Begun[]) => median(rounds.map((each) => each.cpuMs));
    const rss = (rounds: readonly Begun[]) => median(rounds.map((each) => each.rssMib));
    const row = (what: string, rounds: readonly Begun[]) => [
      what,
      ...[listening, proxied, cpu, rss].map((of) => brief(of(rounds))),
    ];
    console.log(`milliseconds since exec, medians of ${starts}; Node ${process.versions.node}\n`);
    const bare = ["node -e 0, to its end", brief(median(measured.nothing)), "–", "–", "–"];
    const rows = [bare, row("quickstart", measured.few), row(`${ROUTES} routes`, measured.many)];
    console.log(
      `${markdown(["start", "listening", "first proxied byte", "CPU until it listened", "RSS then, MiB"], rows)}\n`,
    );
    const [ms, mib] = [listening(measured.many), rss(measured.few)];
    const verdicts: Verdict[] = [
      {
        what: `${ROUTES} routes, exec to listening`,
        figure: `${brief(ms)} ms`,
        target: `≤ ${MAX_MS} ms`,
        met: ms <= MAX_MS,
      },
      { what: "quickstart, RSS", figure: `${brief(mib)} MiB`, target: `≤ ${MAX_RSS_MIB} MiB`, met: mib <= MAX_RSS_MIB },
    ];
    console.log(verdictTable(verdicts));
    return verdicts.every(({ met }) => met);
  } finally {
    rmSync(folder, { recursive: true, force: true });
    upstream.close();
    upstream.closeAllConnections();
  }
}

function pointedAt(port: number, config: AnyConfigInput): AnyConfigInput {
  return {
    ...config,
    services: config.services.map((service) => ({ ...service, upstreams: [{ host: "127.0.0.1", port }] })),
  };
}

/** Ten services of a hundred routes each, with the plugins that a gateway mostly has. */
function manyRoutes(port: number): AnyConfigInput {
  return {
    services: Array.from({ length: 10 }, (_none, s) => ({
      name: `service${s}`,
      base_path: `/service${s}`,
      upstreams: [{ host: "127.0.0.1", port }],
      plugins: [{ name: "rate_limit", config: { limit_min: 1_000_000 } }],
      routes: Array.from({ length: ROUTES / 10 }, (_none, r) => ({
        path: `/r${s * (ROUTES / 10) + r}/{id}`,
        methods: ["GET", "POST"],
      })),
    })),
  };
}

async function nothing(): Promise<number> {
  const began = performance.now();
  await once(spawn(process.execPath, ["-e", "0"], { stdio: "ignore" }), "exit");
  return performance.now() - began;
}

async function begun(file: string, path: string): Promise<Begun> {
  const words = [PROGRAM, "--config", file, "--http-port", "0", "--listen-host", "127.0.0.1"];
  const began = performance.now();
  const child = spawn(process.execPath, words, {
    env: { PATH: process.env.PATH },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const kill = () => void child.kill("SIGKILL");
  process.once("exit", kill);
  const closed = once(child, "close");
  try {
    const port = await portOf(child.stderr!, closed);
    const listeningMs = performance.now() - began;
    const { cpuMicros, rssMib } = costsOf(child.pid!);
    const asked = performance.now();
    await firstByte(port, path);
    // Without the time that reading its costs took.
    return { listeningMs, proxiedMs: listeningMs + performance.now() - asked, cpuMs: cpuMicros / 1_000, rssMib };
  } finally {
    kill();
    await closed;
    process.removeListener("exit", kill);
  }
}

/** Resolves with the port when the gateway says that it serves. */
async function portOf(log: NodeJS.ReadableStream, closed: Promise<unknown>): Promise<number> {
  let text = "";
  const said = new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`the gateway did not start: ${text}`)), MAX_START_MS);
    log.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
      const found = /"http":\["http:\/\/127\.0\.0\.1:(\d+)"/.exec(text);
      if (found !== null) resolve(Number(found[1]));
    });
    void closed.then(() => {
      clearTimeout(timer);
      reject(new Error(`the gateway ended: ${text}`));
    });
  });
  return said;
}

async function firstByte(port: number, path: string): Promise<void> {
  const socket = net.connect(port, "127.0.0.1");
  try {
    socket.write(`GET ${path} HTTP/1.1\r\nHost: shop.example.com\r\n\r\n`);
    const [piece] = (await once(socket, "data")) as [Buffer];
    const [line = ""] = piece.toString("latin1").split("\r\n", 1);
    if (!line.startsWith("HTTP/1.1 200 ")) throw new Error(`the gateway answered ${line}`);
  } finally {
    socket.destroy();
  }
}
