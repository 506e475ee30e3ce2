import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished, vi } from "vitest";

const MACHINE = fileURLToPath(new URL("./machine.ts", import.meta.url));
const LOADER = new URL("../../../node_modules/tsx/dist/loader.mjs", import.meta.url).href;

/** A shell with a child process, like a server with workers; prints the ids of both. */
const SHELL = "sleep 600 & echo $$ $!; wait";

/** A process that starts that shell on a machine and waits. */
async function busy(then: string) {
  const program = `
    import { once } from "node:events";
    import { withMachine, costsOf } from ${JSON.stringify(MACHINE)};
    await withMachine(async ({ folder, start }) => {
      const running = start({ program: "/bin/sh", words: ["-c", ${JSON.stringify(SHELL)}] }, 0);
      await once(running.child.stdout, "data");
      console.log(JSON.stringify({ folder, pids: running.output().trim().split(" ").map(Number), costs: \
costsOf(running.pid) }));
      ${then}
    });`;
  const child = spawn(process.execPath, ["--import", LOADER, "--input-type=module", "-e", program], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return {
    child,
    ...(JSON.parse(line.toString()) as {
      folder: string;
      pids: number[];
      costs: { cpuMicros: number; rssMib: number };
    }),
  };
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** A zombie process counts as ended. */
function gone(pid: number): boolean {
  return !alive(pid) || !existsSync(`/proc/${pid}/exe`);
}

describe.skipIf(process.platform !== "linux")("the machine of a benchmark", () => {
  it("the machine of a benchmark leaves no process and no folder behind when it is done", async () => {
    const { child, folder, pids } = await busy("");
    await once(child, "close");
    expect(pids.map(gone)).toEqual([true, true]);
    expect(existsSync(folder)).toBe(false);
  });

  it("the machine of a benchmark leaves none behind when it is killed itself", async () => {
    const { child, folder, pids } = await busy(`await once(process.stdin.resume(), "end");`);
    expect(pids.map(gone)).toEqual([false, false]);
    child.kill("SIGKILL");
    await vi.waitFor(() => expect([...pids.map(gone), existsSync(folder)]).toEqual([true, true, false]), {
      timeout: 10_000,
      interval: 20,
    });
  });

  it("the machine of a benchmark counts the memory of a process and all its children", async () => {
    const { costs } = await busy("");
    expect(costs.rssMib).toBeGreaterThan(0.5);
    expect(costs.cpuMicros).toBeGreaterThanOrEqual(0);
  });
});
