/**
 * Decides how many workers there are, and whether this machine can have them.
 */
import { availableParallelism } from "node:os";
import type { Log } from "../base/log.ts";
import { Supervisor } from "../cluster/supervisor.ts";
import type { Settings } from "../config/settings.ts";
import type { PartName } from "../gateway/parts.ts";
import { Failure } from "./failure.ts";

/** Systems on which several threads can listen on one port, and the kernel spreads the connections over them. */
const SYSTEMS: readonly string[] = ["linux", "freebsd", "dragonfly", "sunos", "aix"];
const MOST_WORKERS = 64;

export interface Machine {
  /** "22.12.0" */
  readonly node: string;
  readonly platform: string;
  readonly cores: number;
}

/** Null: this thread serves the requests. Throws a `Failure` where there cannot be as many workers as the settings ask for. */
export function openWorkers(settings: Settings, parts: readonly PartName[], log: Log): Supervisor | null {
  const { workers, logLevel, logFormat, tracing, admin } = settings;
  const count = workerCount(workers, log, { node: process.versions.node, platform: process.platform, cores: availableParallelism() });
  if (count === 1) return null;
  const write = (line: string) => void process.stderr.write(line);
  return new Supervisor({
    ...{ count, log: { level: logLevel, format: logFormat }, tracing, adminCookie: admin?.cookie ?? null },
    ...{ parts, logger: log, write },
  });
}

export function workerCount(asked: number | "auto", log: Log, { node, platform, cores }: Machine): number {
  if (asked === 1) return 1;
  const lack =
    !hasSharedPorts(node) ? `needs Node 22.12 or newer, and this is Node ${node}`
    : !SYSTEMS.includes(platform) ? `needs a system where threads can share a port (Linux, FreeBSD, DragonFly BSD, Solaris, AIX), and this is ${platform}`
    : null;
  if (asked === "auto") {
    if (lack !== null && cores > 1) log.info(`WORKERS is auto, and there is one worker: more than one ${lack}`);
    return lack === null ? Math.min(cores, MOST_WORKERS) : 1;
  }
  if (lack !== null) throw new Failure(`WORKERS (--workers) is ${asked}: more than one worker ${lack}; set WORKERS=1`, 2);
  return asked;
}

/** `reusePort` is in Node 22.12 and 23.1; older versions ignore it. */
function hasSharedPorts(node: string): boolean {
  const [major = 0, minor = 0] = node.split(".").map(Number);
  return major > 23 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}
