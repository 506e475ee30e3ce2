/**
 * Decides how many workers there are, and whether this machine can have them.
 */
import { availableParallelism } from "node:os";
import { addressOf } from "../base/ip_address.ts";
import { stderrLines, type Log } from "../base/log.ts";
import type { WorkerStart } from "../cluster/messages.ts";
import { Supervisor } from "../cluster/supervisor.ts";
import type { Settings } from "../config/settings_types.ts";
import type { GatewayCore } from "../gateway/gateway.ts";
import type { BoundAddress } from "../gateway/options.ts";
import type { TlsFiles } from "../server/certificates.ts";
import { Failure, listenFailure } from "./failure.ts";

/** Systems on which several threads can listen on one port, and the kernel spreads the connections over them. */
const SYSTEMS: readonly string[] = ["linux", "freebsd", "dragonfly", "sunos", "aix"];
const MAX_WORKERS = 64;

export interface Machine {
  /** "22.12.0" */
  readonly node: string;
  readonly platform: string;
  readonly cores: number;
}

/**
 * Null: this thread serves the requests. Throws a `Failure` where there cannot be as many workers as the settings ask
 * for.
 */
export function openWorkers(
  settings: Settings,
  { features, asked }: Pick<WorkerStart, "features" | "asked">,
  log: Log,
): Supervisor | null {
  const { workers, logLevel, logFormat, tracing, admin, metricsExport, logsExport } = settings;
  const count = workerCount(workers, log, {
    node: process.versions.node,
    platform: process.platform,
    cores: availableParallelism(),
  });
  if (count === 1) return null;
  const lines = stderrLines();
  const isSent = logsExport !== null;
  const write = isSent ? (line: string) => writeAgain(line, log) : (line: string) => lines.add(line, log);
  return new Supervisor({
    count,
    log: { level: logLevel, format: isSent ? "json" : logFormat },
    tracing,
    adminCookie: admin?.cookie ?? null,
    features,
    asked,
    areDurationsSent: metricsExport !== null,
    logger: log,
    write,
  });
}

/** A line of a worker, in JSON, becomes one of the main thread, whose lines are sent to a collector. */
function writeAgain(line: string, log: Log): void {
  const parsed = JSON.parse(line) as { readonly time: string; readonly level: keyof Log; readonly message: string };
  const { time: _time, level, message, ...fields } = parsed;
  log[level](message, fields);
}

/** Throws a `Failure` where a worker cannot listen on the same port. */
export async function startWorkers(
  supervisor: Supervisor,
  gateway: GatewayCore,
  plain: readonly BoundAddress[],
  secure: readonly BoundAddress[],
  tls: TlsFiles | null,
): Promise<void> {
  try {
    await supervisor.start(gateway, [...plain, ...secure], tls);
  } catch (error) {
    const { code, message, address, port } = error as NodeJS.ErrnoException & {
      readonly address?: string;
      readonly port?: number;
    };
    if (code !== "EADDRINUSE") throw new Failure(message, 1);
    throw listenFailure(
      error as NodeJS.ErrnoException,
      addressOf({ host: address!, port: port! }),
      plain[0]?.port === port ? "HTTP_PORT" : "HTTPS_PORT",
      "LISTEN_HOST",
    );
  }
}

export function workerCount(asked: number | "auto", log: Log, { node, platform, cores }: Machine): number {
  if (asked === 1) return 1;
  const lack = !hasSharedPorts(node)
    ? `needs Node 22.12 or newer, and this is Node ${node}`
    : !SYSTEMS.includes(platform)
      ? `needs a system where threads can share a port (Linux, FreeBSD, DragonFly BSD, Solaris, ` +
        `AIX), and this is ${platform}`
      : null;
  if (asked === "auto") {
    if (lack !== null && cores > 1) log.info(`WORKERS is auto, and there is one worker: more than one ${lack}`);
    return lack === null ? Math.min(cores, MAX_WORKERS) : 1;
  }
  if (lack !== null)
    throw new Failure(`WORKERS (--workers) is ${asked}: more than one worker ${lack}; set WORKERS=1`, 2);
  return asked;
}

/** `reusePort` is in Node 22.12 and 23.1; older versions ignore it. */
function hasSharedPorts(node: string): boolean {
  const [major = 0, minor = 0] = node.split(".").map(Number);
  return major > 23 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}
