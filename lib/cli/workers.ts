/**
 * Decides how many workers there are, whether this machine can have them, and in which folder they start.
 */
import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Log } from "../base/log.ts";
import type { Supervisor } from "../cluster/supervisor.ts";
import type { Settings } from "../config/settings.ts";
import { ON_DEMAND } from "./commands.ts";
import { Failure } from "./failure.ts";
import { partsNamedBy } from "./named_parts.ts";

/** Systems on which several threads can listen on one port, and the kernel spreads the connections over them. */
const SYSTEMS: readonly string[] = ["linux", "freebsd", "dragonfly", "sunos", "aix"];
const MOST_WORKERS = 64;

export interface Machine {
  /** "22.12.0" */
  readonly node: string;
  readonly platform: string;
  readonly cores: number;
}

/** Null: this thread serves the requests. Rejects with a `Failure` where there cannot be as many workers as the settings ask for. */
export async function openWorkers(settings: Settings, log: Log): Promise<Supervisor | null> {
  const { workers, logLevel, logFormat, tracing, admin } = settings;
  const count = workerCount(workers, log, { node: process.versions.node, platform: process.platform, cores: availableParallelism() });
  if (count === 1) return null;
  const { Supervisor } = await ON_DEMAND.workers();
  const write = (line: string) => void process.stderr.write(line);
  return new Supervisor({
    ...{ count, log: { level: logLevel, format: logFormat }, tracing, adminCookie: admin?.cookie ?? null },
    ...{ parts: partsNamedBy(settings), logger: log, write },
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

/**
 * Under its permission model Node lets every worker read the working directory, as it has no script in its arguments. So with workers, or
 * with dry runs, which have a thread, the program moves to its own folder, which it may read anyhow. The result has the paths of the settings as they were before, absolute.
 */
export function inOwnFolder(settings: Settings): Settings {
  if ((settings.workers === 1 && settings.admin === null) || process.permission === undefined) return settings;
  const isPath = (name: string, value: unknown): value is string => name.endsWith("Path") && typeof value === "string";
  const absolute = <T extends object>(part: T) => Object.fromEntries(Object.entries(part).map(([name, value]) => [name, isPath(name, value) ? resolve(value) : value])) as T;
  const resolved = absolute({ ...settings, manager: settings.manager && absolute(settings.manager) });
  process.chdir(fileURLToPath(new URL(".", import.meta.url)));
  return resolved;
}

/** `reusePort` is in Node 22.12 and 23.1; older versions ignore it. */
function hasSharedPorts(node: string): boolean {
  const [major = 0, minor = 0] = node.split(".").map(Number);
  return major > 23 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}
