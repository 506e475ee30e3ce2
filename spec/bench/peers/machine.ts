/**
 * Starts processes on chosen processors, reads their costs from /proc, and ends them all, even when this process is
 * killed.
 */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import net, { type AddressInfo } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { delimiter, join } from "node:path";

/** The processor of the measured process, and that of all others. */
export const MEASURED = 0;
export const OTHERS = 1;

export interface Command {
  readonly program: string;
  readonly words: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

export interface Running {
  readonly child: ChildProcess;
  readonly pid: number;
  /** Its standard output so far. */
  readonly output: () => string;
  /** The last few kilobytes of its standard error. */
  readonly errors: () => string;
  readonly over: () => boolean;
  /** Resolves with the exit code when it has ended by itself or was stopped. */
  readonly ended: Promise<number | null>;
  stop(): Promise<void>;
}

export interface Machine {
  /** A folder that is removed at the end. */
  readonly folder: string;
  /** Whether processes are kept apart by processor; null, or why not. */
  readonly notPinned: string | null;
  /** `processor`: null: either. */
  start(command: Command, processor: number | null): Running;
}

/** Ends everything that `run` has started when `run` returns or this process ends. */
export async function withMachine<T>(run: (machine: Machine) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-bench-"));
  // The pipe closes however this process ends; then the guard ends the processes it knows.
  const guard = spawn("/bin/sh", ["-c", GUARD, "guard", folder], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  guard.stdin!.on("error", () => {});
  const guarded = once(guard, "close");
  const tell = (line: string) => void guard.stdin!.write(`${line}\n`);
  const running = new Set<Running>();
  const notPinned =
    availableParallelism() < 2
      ? "there is one processor"
      : find("taskset") === null
        ? "taskset is not installed"
        : null;
  if (notPinned === null) spawnSync("taskset", ["-acp", String(OTHERS), String(process.pid)]);
  try {
    return await run({
      folder,
      notPinned,
      start(command, processor) {
        const started = start(notPinned === null ? pinned(command, processor) : command, folder, tell);
        running.add(started);
        void started.ended.then(() => running.delete(started));
        return started;
      },
    });
  } finally {
    await Promise.all([...running].map((each) => each.stop()));
    rmSync(folder, { recursive: true, force: true });
    guard.stdin!.end();
    await guarded;
  }
}

const GUARD = `
live=" "
while read -r sign pid; do
  case "$sign" in
    +) live="$live$pid " ;;
    -) live="\${live%% $pid *} \${live#* $pid }" ;;
  esac
done
for pid in $live; do kill -s KILL -- "-$pid"; done
rm -rf -- "$1"
`;

/** Where a program is, or null when it is not installed. Servers are often outside of a user's path. */
export function find(program: string): string | null {
  for (const folder of [...(process.env.PATH ?? "").split(delimiter), "/usr/local/sbin", "/usr/sbin", "/sbin"]) {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return join(folder, program);
    } catch {
      // not there
    }
  }
  return null;
}

/** A free port of 127.0.0.1. */
export async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

export interface Costs {
  /** Processor time so far, user and system, in microseconds; accurate to a hundredth of a second. */
  readonly cpuMicros: number;
  readonly rssMib: number;
}

/** The costs of a process and all its descendants. */
export function costsOf(pid: number): Costs {
  const parents = new Map<number, number[]>();
  for (const name of readdirSync("/proc")) {
    const own = Number(name);
    const parent = Number.isInteger(own) ? Number(statOf(own)?.[PPID]) : NaN;
    if (!Number.isNaN(parent)) parents.set(parent, [...(parents.get(parent) ?? []), own]);
  }
  let ticks = 0;
  let kib = 0;
  for (const family = [pid]; family.length > 0;) {
    const each = family.pop()!;
    family.push(...(parents.get(each) ?? []));
    const stat = statOf(each);
    // Includes children that have ended.
    if (stat !== null) for (const field of [UTIME, STIME, CUTIME, CSTIME]) ticks += Number(stat[field]);
    kib += Number(/^VmRSS:\s+(\d+)/m.exec(textOf(`/proc/${each}/status`) ?? "")?.[1] ?? 0);
  }
  return { cpuMicros: ticks * MICROS_PER_TICK, rssMib: kib / 1024 };
}

/** Places in /proc/PID/stat behind the name, see proc(5). */
const [PPID, UTIME, STIME, CUTIME, CSTIME] = [1, 11, 12, 13, 14];
/** USER_HZ is 100 on every Linux that Node runs on. */
const MICROS_PER_TICK = 10_000;
const MAX_TEXT = 8_192;
/** The time a process may take to end after SIGTERM. */
const ASKED_MS = 500;

/** The name may contain anything, even spaces and brackets: the fields follow its last bracket. */
function statOf(pid: number): string[] | null {
  const text = textOf(`/proc/${pid}/stat`);
  return text === null ? null : text.slice(text.lastIndexOf(")") + 2).split(" ");
}

function textOf(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null; // it has ended in between
  }
}

function pinned({ program, words, environment }: Command, processor: number | null): Command {
  return {
    program: "taskset",
    words: ["-c", processor === null ? `${MEASURED},${OTHERS}` : String(processor), program, ...words],
    ...(environment === undefined ? {} : { environment }),
  };
}

/** In a process group of its own, so that it ends with all its children. */
function start({ program, words, environment = {} }: Command, folder: string, tell: (line: string) => void): Running {
  const child = spawn(program, words, {
    cwd: folder,
    env: { PATH: process.env.PATH, HOME: folder, NODE_ENV: "production", ...environment },
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  const pid = child.pid ?? 0;
  if (pid > 0) tell(`+ ${pid}`);
  const texts = { output: "", errors: "" };
  child.stdin!.on("error", () => {});
  child.stdout!.setEncoding("utf8").on("data", (text: string) => (texts.output += text));
  child
    .stderr!.setEncoding("utf8")
    .on("data", (text: string) => (texts.errors = (texts.errors + text).slice(-MAX_TEXT)));
  let over = false;
  const ended = new Promise<number | null>((resolve) => {
    child.once("error", (error) => {
      texts.errors += error.message;
      over = true;
      resolve(null);
    });
    child.once("close", (code) => {
      over = true;
      tell(`- ${pid}`);
      resolve(code);
    });
  });
  return {
    child,
    pid,
    output: () => texts.output,
    errors: () => texts.errors,
    over: () => over,
    ended,
    async stop() {
      if (!over && pid > 0) {
        // SIGTERM first, so that a process with children can end them and leaves no orphans.
        child.kill("SIGTERM");
        await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, ASKED_MS))]);
      }
      if (!over && pid > 0) {
        try {
          process.kill(-pid, "SIGKILL");
        } catch {
          // it has just ended
        }
      }
      await ended;
    },
  };
}
