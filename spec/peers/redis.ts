/** Starts Debian's redis-server on free ports, in temporary folders, and ends it with the test. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net, { type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { onTestFinished } from "vitest";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { freePort } from "../support/origin.ts";

export interface Redis {
  readonly port: number;
  /** Has ca.pem, server.pem, server.key, client.pem and client.key. */
  readonly folder: string;
  readonly process: ChildProcess;
  /** Runs redis-cli; its output without the last line break. */
  cli(...args: string[]): Promise<string>;
  /** What redis-server was started with. */
  readonly args: readonly string[];
  /** Ends the process and starts another one on the same port; resolves when its log has `said`. */
  restart(signal?: NodeJS.Signals, args?: readonly string[], said?: string): Promise<void>;
  stop(signal?: NodeJS.Signals): Promise<void>;
}

const run = promisify(execFile);

/** Is told what ends a server. */
type Keep = (end: () => Promise<void>) => void;

/**
 * `args` are redis-server's; with `tls` it has a TLS port only, and asks for client certificates. It ends with the test
 * unless `keep` is given.
 */
export async function redis(args: readonly string[] = [], tls = false, keep: Keep = onTestFinished): Promise<Redis> {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-redis-"));
  const files = {
    "ca.pem": CA.cert,
    "server.pem": SERVER.cert,
    "server.key": SERVER.key,
    "client.pem": CLIENT.cert,
    "client.key": CLIENT.key,
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  const port = await freePort();
  const ports = tls ? ["--port", "0", "--tls-port", String(port)] : ["--port", String(port)];
  const certificates = [
    "--tls-ca-cert-file",
    "ca.pem",
    "--tls-cert-file",
    "server.pem",
    "--tls-key-file",
    "server.key",
  ];
  const fixed = [
    "--bind",
    "127.0.0.1",
    "--dir",
    folder,
    "--save",
    "",
    "--daemonize",
    "no",
    "--repl-diskless-sync-delay",
    "0",
  ];
  const secure = tls
    ? [
        "--tls",
        "--cacert",
        join(folder, "ca.pem"),
        "--cert",
        join(folder, "client.pem"),
        "--key",
        join(folder, "client.key"),
      ]
    : [];
  const cli = async (...words: string[]) =>
    (
      await run("redis-cli", ["-h", "127.0.0.1", "-p", String(port), "--no-auth-warning", ...secure, ...words])
    ).stdout.trimEnd();
  const all = [...ports, ...(tls ? certificates : []), ...fixed, ...args];
  let child: ChildProcess;
  const start = async (args: readonly string[] = all, said = "Ready to accept connections") => {
    child = spawn("redis-server", args, { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    let log = "";
    await new Promise<void>((resolve, reject) => {
      child.stdout!.on("data", (chunk: Buffer) => {
        log += chunk.toString();
        if (log.includes(said)) resolve();
      });
      child.once("exit", (code) => reject(new Error(`redis-server ended with ${code}: ${log}`)));
    });
  };
  const stop = async (signal: NodeJS.Signals = "SIGKILL") => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    // Stopped processes do not end otherwise.
    child.kill("SIGCONT");
    await ended;
  };
  const started = start();
  // Before it is awaited: a test that fails while several servers start has to end all of them.
  keep(async () => {
    await stop();
    rmSync(folder, { recursive: true, force: true });
  });
  await started;
  return {
    port,
    folder,
    args: all,
    get process() {
      return child;
    },
    cli,
    stop,
    async restart(signal, args, said) {
      await stop(signal);
      await start(args, said);
    },
  };
}

/** A TCP proxy in front of a port that can swallow bytes: connections stay open and nothing arrives. */
export interface Proxy {
  readonly port: number;
  swallows: boolean;
  /** Pieces that clients sent, and connections. */
  chunks: number;
  accepted: number;
  cut(): void;
}

export async function proxy(to: number): Promise<Proxy> {
  const open = new Set<Socket>();
  const state = {
    port: 0,
    swallows: false,
    chunks: 0,
    accepted: 0,
    cut: () => open.forEach((socket) => socket.destroy()),
  };
  const server = net.createServer((client) => {
    const behind = net.connect(to, "127.0.0.1");
    state.accepted++;
    client.on("data", () => state.chunks++);
    for (const [from, other] of [
      [client, behind],
      [behind, client],
    ] as const) {
      open.add(from);
      from.on("data", (chunk: Buffer) => state.swallows || other.write(chunk));
      from.on("error", () => {});
      from.once("close", () => {
        open.delete(from);
        other.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    state.cut();
    server.close();
  });
  state.port = (server.address() as AddressInfo).port;
  return state;
}

/** Resolves when `holds()` is true; rejects after half a minute. */
export async function until(
  holds: () => boolean | Promise<boolean>,
  state: () => string = () => String(holds),
): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`waited half a minute: ${state()}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A Cluster on loopback: first the primaries, then `replicas` of each. */
export async function cluster(
  primaries: number,
  replicas = 0,
  args: readonly string[] = [],
  keep?: Keep,
): Promise<Redis[]> {
  const count = primaries * (1 + replicas);
  const fixed = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
  const nodes = await Promise.all(
    Array.from({ length: count }, async () =>
      redis([...fixed, "--cluster-port", String(await freePort()), ...args], false, keep),
    ),
  );
  const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
  await run("redis-cli", [
    "--cluster",
    "create",
    ...addresses,
    "--cluster-replicas",
    String(replicas),
    "--cluster-yes",
  ]);
  for (const node of nodes) await until(async () => (await node.cli("CLUSTER", "INFO")).includes("cluster_state:ok"));
  return nodes;
}
