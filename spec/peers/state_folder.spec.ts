/**
 * STATE_DIR on a disk that is full or read-only, and used by processes that do not see each other. Skipped where the
 * system allows no mount or no namespace.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, type TestContext } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { emptyFolder, fileWith, logLines, program, PROGRAM, runningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";

const runs = (command: string, ...words: readonly string[]) => spawnSync(command, words).status === 0;

/** A disk of 64 KiB, which goes with the test. */
function smallDisk({ skip }: TestContext): string {
  const path = emptyFolder();
  if (!runs("mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", path)) skip("the system allows no mount");
  onTestFinished(() => void spawnSync("umount", ["-l", path]));
  return path;
}

async function quota() {
  const { port } = await backend();
  return oneService(port, { plugins: [{ name: "quota", config: { limit: 10, per: "month", limit_by: "all" } }] });
}

const admitted = async (port: number, times: number) =>
  (await Promise.all(Array.from({ length: times }, () => ask(port, { path: "/a/x" })))).filter(
    ({ status }) => status === 200,
  ).length;

/** What the only caller in the file has used. */
function written(folder: string): number {
  if (!existsSync(join(folder, "quotas"))) return 0;
  const content = readFileSync(join(folder, "quotas"));
  return content.includes('"callers":1') ? content.readDoubleLE(content.length - 16) : 0;
}

const FAILED = "quotas cannot be written, and are counted in memory alone";

describe("STATE_DIR", () => {
  it.for<[string, (disk: string) => void, (disk: string) => void, RegExp]>([
    [
      "full",
      (disk) => {
        // As much as there is room for.
        expect(() => {
          for (let i = 0; ; i++) writeFileSync(join(disk, `filler-${i}`), Buffer.alloc(4_096));
        }).toThrow(/ENOSPC/);
      },
      (disk) => {
        for (let i = 0; i < 16; i++) rmSync(join(disk, `filler-${i}`), { force: true });
      },
      /ENOSPC/,
    ],
    [
      "read-only",
      (disk) => expect(runs("mount", "-o", "remount,ro", disk)).toBe(true),
      (disk) => expect(runs("mount", "-o", "remount,rw", disk)).toBe(true),
      /EROFS/,
    ],
  ])(
    "on a disk that becomes %s: the good file stays, quotas hold in memory, and all is written once it can be",
    async ([, spoil, mend, reason], context) => {
      const disk = smallDisk(context);
      const folder = join(disk, "state");
      mkdirSync(folder);
      const { port, stderr, child, ended } = await runningProgram(await quota(), [], { STATE_DIR: folder });
      expect(await admitted(port, 4)).toBe(4);
      await eventually(() => written(folder) === 4, "the first counts");
      spoil(disk);
      expect(await admitted(port, 3)).toBe(3);
      const lines = (message: string) => logLines(stderr()).filter((line) => line.message === message);
      await eventually(() => lines(FAILED).length === 1, "the failure in the log");
      expect(String(lines(FAILED)[0]!.error)).toMatch(reason);
      expect(written(folder)).toBe(4);
      expect(await admitted(port, 9)).toBe(3);
      mend(disk);
      await eventually(() => written(folder) === 10, "all counts");
      await eventually(() => lines("quotas are written again").length === 1, "the end of it in the log");
      child.kill("SIGTERM");
      expect((await ended).code).toBe(0);
    },
  );

  it("on a disk that is read-only at the start is refused with exit code 2 and the reason", async (context) => {
    const disk = smallDisk(context);
    expect(runs("mount", "-o", "remount,ro", disk)).toBe(true);
    const start = (STATE_DIR: string) =>
      program(["--config", fileWith(oneService(9)), "--http-port", "0"], { environment: { STATE_DIR } }).ended;
    expect(await start(disk)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/STATE_DIR .*a socket in .* cannot be opened, which marks it as used: /) as string,
    });
    expect(await start(join(disk, "below"))).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/STATE_DIR .*cannot be made: /) as string,
    });
  });

  it("of a process in another pid namespace, as containers have them, is refused to a second one", async ({ skip }) => {
    if (!runs("unshare", "--pid", "--fork", "true")) skip("the system allows no namespace");
    const [config, folder] = [await quota(), emptyFolder()];
    const first = await runningProgram(config, [], { STATE_DIR: folder });
    const words = ["--pid", "--fork", process.execPath, PROGRAM, "--config", fileWith(config), "--http-port", "0"];
    const second = spawnSync("unshare", words, { env: { PATH: process.env.PATH, STATE_DIR: folder }, timeout: 30_000 });
    expect([second.status, String(second.stderr)]).toEqual([
      2,
      expect.stringContaining(`another process uses ${folder}`) as string,
    ]);
    expect(await admitted(first.port, 1)).toBe(1);
    await eventually(() => written(folder) === 1, "its counts");
  });
});
