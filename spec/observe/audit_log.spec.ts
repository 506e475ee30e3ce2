/**
 * The audit log: its file, its chain over failures and restarts, and what the next line says of events that were lost.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { chainedLine, Chain } from "../../lib/base/audit_chain.ts";
import { systemClock, type Clock } from "../../lib/base/clock.ts";
import { createLog, silentLog } from "../../lib/base/log.ts";
import { AuditLog, type AuditLogOptions, type Disk } from "../../lib/observe/audit_log.ts";
import { emptyFolder } from "../support/process.ts";

type Line = Readonly<Record<string, unknown>> & { readonly seq: number; readonly prev: string };

const SYSTEM: Disk = async (fd, bytes, from) => writeSync(fd, bytes, from);

const pathIn = (folder = emptyFolder()) => join(folder, "audit.log");
const sha256 = (bytes: Buffer | string) => createHash("sha256").update(bytes).digest("hex");

async function opened(path: string, options: Partial<AuditLogOptions> = {}): Promise<AuditLog> {
  const log = new AuditLog({ path, fail: "open", clock: systemClock, log: silentLog, ...options });
  try {
    await log.start();
  } catch (error) {
    await log.close();
    throw error;
  }
  return log;
}

async function written(path: string, names: readonly string[], options: Partial<AuditLogOptions> = {}): Promise<void> {
  const log = await opened(path, options);
  for (const name of names) log.add(name, {});
  await log.close();
}

const textsOf = (path: string) => readFileSync(path, "latin1").replace(/\n$/, "").split("\n");
const linesOf = (path: string) => textsOf(path).map((text) => JSON.parse(text) as Line);

describe("the audit log", () => {
  it("numbers its lines from 1, and each has the SHA-256 of the line before, the first 64 zeros", async () => {
    const path = pathIn();
    await written(path, ["start", "login", "stop"]);
    const lines = linesOf(path);
    expect(lines.map(({ seq, event }) => [seq, event])).toEqual([
      [1, "start"],
      [2, "login"],
      [3, "stop"],
    ]);
    expect(lines.map(({ prev }) => prev)).toEqual(["0".repeat(64), ...textsOf(path).slice(0, 2).map(sha256)]);
    expect(Object.keys(lines[0]!)).toEqual(["seq", "time", "event", "prev"]);
  });

  it("is a file for its owner alone, also if it was there with another mode", async () => {
    const [made, found] = [pathIn(), pathIn()];
    writeFileSync(found, "");
    chmodSync(found, 0o664);
    await Promise.all([made, found].map((path) => written(path, ["start"])));
    expect([made, found].map((path) => statSync(path).mode & 0o777)).toEqual([0o600, 0o600]);
  });

  it("continues the chain of its file at the next start", async () => {
    const path = pathIn();
    await written(path, ["start", "stop"]);
    await written(path, ["start"]);
    expect(linesOf(path)[2]).toMatchObject({ seq: 3, prev: sha256(textsOf(path)[1]!) });
  });

  it.each(["{", '{"seq":3,"time":"2026', "\u0000\u0000", "x".repeat(500)])(
    "keeps a torn last line %j, ends it, and goes on behind it",
    async (torn) => {
      const path = pathIn();
      await written(path, ["start", "stop"]);
      writeFileSync(path, torn, { flag: "a" });
      const before = readFileSync(path, "latin1");
      await written(path, ["start"]);
      const texts = textsOf(path);
      expect(readFileSync(path, "latin1").startsWith(`${before}\n`)).toBe(true);
      expect(JSON.parse(texts[3]!)).toMatchObject({
        seq: 3,
        prev: sha256(torn),
        torn: sha256(`${texts[1]!}\n${torn}`),
      });
    },
  );

  it("begins with seq 1 behind a first line that is torn", async () => {
    const path = pathIn();
    writeFileSync(path, '{"seq":1');
    await written(path, ["start"]);
    expect(JSON.parse(textsOf(path)[1]!)).toMatchObject({ seq: 1, prev: sha256('{"seq":1') });
  });

  it("counts a last line that lacks nothing but its newline", async () => {
    const path = pathIn();
    await written(path, ["start", "stop"]);
    truncateSync(path, statSync(path).size - 1);
    await written(path, ["start"]);
    const [, , last] = linesOf(path);
    expect(last).toMatchObject({ seq: 3, prev: sha256(textsOf(path)[1]!) });
    expect(last).not.toHaveProperty("torn");
  });

  it.each<[string, (path: string) => void, RegExp]>([
    ["a folder", (path) => mkdirSync(path), /it is a folder/],
    ["a symbolic link", (path) => symlinkSync("/dev/null", path), /it is a symbolic link: name the file itself/],
    ["a file in no folder", () => {}, /there is no such folder/],
    ["a file with something else", (path) => writeFileSync(path, "a\nb\n"), /something else than an audit log/],
    ["a link to a device", (path) => symlinkSync("/dev/full", path), /it is a symbolic link/],
    ["a device", () => {}, /it is a device, not a file/],
    ["a FIFO", (path) => execFileSync("mkfifo", [path]), /it is a FIFO, not a file/],
    [
      "a file of one line without its newline",
      (path) => writeFileSync(path, "a token"),
      /something else than an audit log/,
    ],
  ])("with closed does not open %s", async (what, make, why) => {
    const path =
      what === "a file in no folder" ? join(pathIn(), "below") : what === "a device" ? "/dev/full" : pathIn();
    make(path);
    await expect(opened(path, { fail: "closed" })).rejects.toThrow(why);
  });

  it.each(["a\nb\n", "a token"])(
    "leaves a file with something else as it is, when it starts and when it is reopened: %j",
    async (text) => {
      const foreign = pathIn();
      writeFileSync(foreign, text, { mode: 0o644 });
      await expect(opened(foreign, { fail: "closed" })).rejects.toThrow();
      const path = pathIn();
      const log = await opened(path);
      log.add("start", {});
      renameSync(foreign, path);
      log.reopen();
      await log.close();
      expect([readFileSync(path, "utf8"), statSync(path).mode & 0o777]).toEqual([text, 0o644]);
    },
  );

  it(
    "is held by one at a time: with closed a second one is refused, " + "and the next one goes on with the chain",
    async () => {
      const path = pathIn();
      const first = await opened(path);
      first.add("start", {});
      await expect(opened(path, { fail: "closed" })).rejects.toThrow("another process writes it: name a file for each");
      await first.close();
      await written(path, ["start"], { fail: "closed" });
      expect(linesOf(path).map(({ seq }) => seq)).toEqual([1, 2]);
    },
  );

  it("is written, with a warning, where a socket cannot be made that shows others that it is held", async () => {
    const path = join(emptyFolder(), "x".repeat(100));
    const said: string[] = [];
    await written(path, ["start"], {
      log: createLog({ level: "info", format: "json", write: (line) => void said.push(line) }),
      fail: "closed",
    });
    expect(linesOf(path)).toHaveLength(1);
    expect(said.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      {
        level: "warn",
        message: "it cannot be seen whether another process writes the audit log",
        file: path,
        error: expect.stringContaining("more than 80 bytes") as string,
      },
    ]);
  });

  it("leaves nothing beside a file that it does not write", async () => {
    const path = pathIn();
    mkdirSync(path);
    await expect(opened(path, { fail: "closed" })).rejects.toThrow();
    expect(readdirSync(join(path, ".."))).toEqual(["audit.log"]);
  });

  it("writes no more than one line for an event, whatever its texts have, and cuts them", async () => {
    const path = pathIn();
    const log = await opened(path);
    const user = '\n{"seq":1}\r\u2028\u0085\u001b[2J\ud800"\\' + "x".repeat(1000);
    log.add("login_failed", { user });
    await log.close();
    const text = readFileSync(path, "utf8");
    expect(text.slice(0, -1)).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
    expect((JSON.parse(text) as { user: string }).user).toBe(user.slice(0, 256));
  });

  it("goes on in a new file after it was renamed, and in the same one after it was truncated", async () => {
    const path = pathIn();
    const log = await opened(path, { fail: "closed" });
    log.add("start", {});
    await log.written();
    const first = textsOf(path)[0]!;
    renameSync(path, `${path}.1`);
    log.reopen();
    log.add("login", {});
    await log.written();
    expect(linesOf(path)).toEqual([expect.objectContaining({ seq: 2, prev: sha256(first) })]);
    const second = textsOf(path)[0]!;
    writeFileSync(path, "");
    log.reopen();
    log.add("stop", {});
    await log.close();
    expect(linesOf(path)).toEqual([expect.objectContaining({ seq: 3, prev: sha256(second) })]);
  });
});

/** Writes `room` bytes, and then fails until there is room. */
function smallDisk(room: number) {
  const disk = async (fd: number, bytes: Buffer, from: number) => {
    if (disk.room === 0) throw new Error("ENOSPC: no space left on device");
    const most = Math.min(disk.room, bytes.length - from);
    disk.room -= most;
    return SYSTEM(fd, bytes.subarray(0, from + most), from);
  };
  disk.room = room;
  return disk;
}

/** Whether a whole chain is in the file, as an independent reader sees it. */
function isWhole(path: string): boolean {
  const chain = new Chain();
  return textsOf(path).every((text) => {
    const line = chainedLine(Buffer.from(text, "latin1"));
    const fits = line === null || (line.seq === chain.seq + 1 && line.prev === chain.prev && line.torn === chain.torn);
    chain.follow(Buffer.from(text, "latin1"), line?.seq ?? null);
    return fits;
  });
}

/** Turns of the event loop, until it is so. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}

/** Its timers run at once. */
const HASTY: Clock = { ...systemClock, after: (_ms, run) => systemClock.after(0, run) };

/** The same, but for a second: a log whose disk is slow at this moment fails as well. */
const PATIENT: Clock = { ...systemClock, after: (ms, run) => systemClock.after(ms === 1_000 ? ms : 0, run) };

/** A disk of its own with room for 64 KiB; null: it needs Linux, and the right to mount. */
const TINY_DISK = (() => {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-disk-"));
  if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]).status === 0) return folder;
  rmSync(folder, { recursive: true });
  return null;
})();
afterAll(() => {
  if (TINY_DISK === null) return;
  spawnSync("umount", [TINY_DISK]);
  rmSync(TINY_DISK, { recursive: true });
});

describe("the audit log on a full disk", () => {
  it.skipIf(TINY_DISK === null).each(["open", "closed"] as const)(
    "of the system goes on once there is room, with %s (skipped without the right to mount)",
    async (fail) => {
      const [path, filler] = [join(TINY_DISK!, `${fail}.log`), join(TINY_DISK!, "filler")];
      const log = await opened(path, { fail, clock: PATIENT });
      log.add("start", {});
      await until(() => existsSync(path) && readFileSync(path).length > 0);
      expect(() => writeFileSync(filler, Buffer.alloc(100_000))).toThrow(/ENOSPC/);
      for (let i = 0; i < 100; i++) log.add("login", { user: "x".repeat(200), i });
      await until(() => log.isFailing);
      rmSync(filler);
      log.add("stop", {});
      await log.close();
      const lines = textsOf(path)
        .filter((text) => chainedLine(Buffer.from(text)) !== null)
        .map((text) => JSON.parse(text) as Line);
      const lost = lines.reduce((sum, line) => sum + Number(line.lost ?? 0), 0);
      expect([isWhole(path), lines.at(-1)!.event, lines.length + lost]).toEqual([true, "stop", 102]);
      if (fail === "closed") expect(lost).toBe(0);
      else expect(lost).toBeGreaterThan(0);
    },
  );

  it.each([0, 1, 50, 150, 179, 180, 181, 400])(
    "with open counts the events that could not be written in the next line; %i bytes fit",
    async (room) => {
      const [path, disk] = [pathIn(), smallDisk(room)];
      const log = await opened(path, { disk });
      for (let i = 0; i < 5; i++) log.add("login", { i });
      await until(() => log.isFailing);
      disk.room = Infinity;
      log.add("login", { i: 5 });
      await log.close();
      const lines = textsOf(path).flatMap((text) =>
        chainedLine(Buffer.from(text)) === null ? [] : [JSON.parse(text) as Line & { i: number; lost?: number }],
      );
      expect(isWhole(path)).toBe(true);
      expect(lines.at(-1)).toMatchObject({ i: 5, lost: 6 - lines.length });
    },
  );

  it.each([0, 1, 150, 400])(
    "with closed keeps them, and says that it fails until they are written; %i bytes fit",
    async (room) => {
      const [path, disk] = [pathIn(), smallDisk(room)];
      const log = await opened(path, {
        disk,
        fail: "closed",
        clock: { ...HASTY, after: (ms, run) => systemClock.after(ms === 1_000 ? 5 : 0, run) },
      });
      for (let i = 0; i < 5; i++) log.add("login", { i });
      expect(await log.written()).toBe(false);
      expect([log.isFailing, await log.written()]).toEqual([true, false]);
      disk.room = Infinity;
      await until(() => !log.isFailing);
      expect(await log.written()).toBe(true);
      await log.close();
      expect(isWhole(path)).toBe(true);
      expect(
        textsOf(path).flatMap((text) =>
          chainedLine(Buffer.from(text)) === null ? [] : [(JSON.parse(text) as { i: number }).i],
        ),
      ).toEqual([0, 1, 2, 3, 4]);
    },
  );

  it.each([
    ["open", Infinity],
    ["closed", Infinity],
    ["open", 400],
    ["closed", 400],
    ["open", 1],
    ["closed", 1],
  ] as const)(
    "with %s gives no number and no event twice where %d bytes are in the file although their write " +
      "has failed, as with O_DSYNC",
    async (fail, most) => {
      const path = pathIn();
      let isBroken = false;
      const disk: Disk = async (fd, bytes, from) => {
        if (!isBroken) return SYSTEM(fd, bytes, from);
        await SYSTEM(fd, bytes.subarray(0, from + most), from);
        throw new Error("EIO: i/o error, write");
      };
      const log = await opened(path, { disk, fail, clock: PATIENT });
      log.add("start", {});
      await until(() => existsSync(path) && readFileSync(path).length > 0);
      isBroken = true;
      for (let i = 0; i < 5; i++) log.add("login", { user: '{"seq":', i });
      await until(() => log.isFailing);
      isBroken = false;
      log.add("stop", {});
      await log.close();
      const lines = textsOf(path).flatMap((text) =>
        chainedLine(Buffer.from(text)) === null ? [] : [JSON.parse(text) as Line & { i?: number; lost?: number }],
      );
      const lost = lines.reduce((sum, line) => sum + (line.lost ?? 0), 0);
      expect([isWhole(path), new Set(lines.map(({ i, event }) => i ?? event)).size, lines.length + lost]).toEqual([
        true,
        lines.length,
        7,
      ]);
      if (fail === "closed" || most === Infinity) expect(lost).toBe(0);
    },
  );

  it("is whole over the copy and the file that was truncated to make room, behind a torn line", async () => {
    const [path, disk] = [pathIn(), smallDisk(250)];
    const log = await opened(path, { disk, clock: PATIENT });
    for (let i = 0; i < 3; i++) log.add("login", { i });
    await until(() => log.isFailing);
    copyFileSync(path, `${path}.1`);
    truncateSync(path);
    disk.room = Infinity;
    log.add("stop", {});
    await log.close();
    const both = pathIn();
    writeFileSync(both, [`${path}.1`, path].map((each) => readFileSync(each, "utf8")).join("\n"));
    expect([isWhole(both), linesOf(path).map(({ event, lost }) => [event, lost])]).toEqual([true, [["stop", 2]]]);
  });

  it("with closed fails while a write takes longer than a second, and no longer once it is over", async () => {
    let go = () => {};
    const slow = new Promise<void>((resolve) => (go = resolve));
    const log = await opened(pathIn(), {
      fail: "closed",
      clock: HASTY,
      disk: async (...of) => (await slow, SYSTEM(...of)),
    });
    log.add("login", {});
    expect(await log.written()).toBe(false);
    go();
    await until(() => !log.isFailing);
    expect(await log.written()).toBe(true);
    await log.close();
  });

  it("holds 8 MiB of events at most, and counts the others", async () => {
    let go = () => {};
    const slow = new Promise<void>((resolve) => (go = resolve));
    const path = pathIn();
    const log = await opened(path, { disk: async (...of) => (await slow, SYSTEM(...of)) });
    const event = { time: "", event: "login", fields: `"text":"${"x".repeat(10_000)}"` };
    log.addEvents(
      Array.from({ length: 1_000 }, () => event),
      7,
    );
    go();
    await log.close();
    log.add("login", {});
    const lines = linesOf(path);
    expect(lines.length).toBe(Math.floor((8 * 1024 * 1024) / (event.event.length + event.fields.length)));
    expect(lines[0]).toMatchObject({ lost: 1_007 - lines.length });
  });

  it("has room for other events while refusals fill theirs", async () => {
    const path = pathIn();
    const log = await opened(path, { clock: HASTY });
    const events = (count: number, event: string) =>
      Array.from({ length: count }, () => ({ time: "", event, fields: `"text":"${"x".repeat(10_000)}"` }));
    log.addEvents(events(1_000, "request_refused"), 0);
    log.addEvents(events(50, "login"), 0);
    await log.close();
    const lines = linesOf(path);
    expect([lines.filter(({ event }) => event === "login").length, lines[0]!.lost]).toEqual([50, 1_050 - lines.length]);
  });
});
