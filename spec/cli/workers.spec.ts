import { describe, expect, it } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { workerCount, type Machine } from "../../lib/cli/workers.ts";
import { oneService } from "../support/gateway.ts";
import { fileWith, program, runningProgram } from "../support/process.ts";

const FIT: Machine = { node: "24.1.0", platform: "linux", cores: 6 };

function count(asked: number | "auto", machine: Partial<Machine> = {}) {
  const lines: string[] = [];
  const found = workerCount(asked, createLog({ write: (line) => lines.push(line.slice(25)) }), { ...FIT, ...machine });
  return { found, lines };
}

describe("the number of workers", () => {
  it("is what is asked for, or the number of cores, at most 64", () => {
    expect(count(4)).toEqual({ found: 4, lines: [] });
    expect(count(64)).toEqual({ found: 64, lines: [] });
    expect(count("auto")).toEqual({ found: 6, lines: [] });
    expect(count("auto", { cores: 1 })).toEqual({ found: 1, lines: [] });
    expect(count("auto", { cores: 192 })).toEqual({ found: 64, lines: [] });
  });

  it("needs Node 22.12 or 23.1 where it is above one", () => {
    for (const node of ["22.12.0", "22.23.3", "23.1.0", "24.0.0", "26.0.0"]) expect(count(2, { node }).found).toBe(2);
    for (const node of ["20.12.0", "20.20.2", "21.7.3", "22.11.0", "22.2.0", "23.0.1"]) {
      expect(() => count(2, { node })).toThrow(
        `WORKERS (--workers) is 2: more than one worker needs Node 22.12 or newer, ` +
          `and this is Node ${node}; set WORKERS=1`,
      );
      expect(count(1, { node })).toEqual({ found: 1, lines: [] });
    }
  });

  it("needs a system on which threads can share a port where it is above one", () => {
    for (const platform of ["linux", "freebsd"]) expect(count(2, { platform }).found).toBe(2);
    for (const platform of ["darwin", "win32", "openbsd"]) {
      expect(() => count(3, { platform })).toThrow(
        new RegExp(
          String.raw`^WORKERS \(--workers\) is 3: more than one worker needs a system where ` +
            String.raw`threads can share a port \(Linux, .*\), and this is \w+; set WORKERS=1$`,
        ),
      );
    }
  });

  it("is one by auto where there cannot be more, and one line says why", () => {
    const old = count("auto", { node: "20.20.2" });
    expect(old).toEqual({
      found: 1,
      lines: [
        "info  WORKERS is auto, and there is one worker: more than one needs Node 22.12 or newer, " +
          "and this is Node 20.20.2\n",
      ],
    });
    const { found, lines } = count("auto", { platform: "darwin" });
    expect([found, lines]).toEqual([
      1,
      [expect.stringMatching(/^info {2}WORKERS is auto, and there is one worker: .* and this is darwin\n$/)],
    ]);
    expect(count("auto", { node: "20.20.2", cores: 1 }).lines).toEqual([]);
  });
});

describe("a program on a Node that cannot have several workers", () => {
  const cannot = Number(process.versions.node.split(".")[0]) < 22;

  it.runIf(cannot)("exits 2 with --workers 2, and nothing was started", async () => {
    const { code, stderr } = await program(["--config", fileWith(oneService(9)), "--workers", "2"]).ended;
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(
        /^edge-gateway: WORKERS \(--workers\) is 2: more than one worker needs Node 22\.12 or newer/,
      ),
    ]);
  });

  it.runIf(cannot)("starts with --workers auto, in one thread", async () => {
    const { started, stderr } = await runningProgram(oneService(9), ["--workers", "auto"]);
    expect(started).not.toHaveProperty("workers");
    if (stderr().split("\n").length > 2) expect(stderr()).toContain("WORKERS is auto, and there is one worker");
  });
});
