import { copyFileSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { StateFolder } from "../../lib/base/state_folder.ts";
import { ALONE } from "../../lib/base/threads.ts";
import type { LocalCosted } from "../../lib/store/counters.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { QuotaFile } from "../../lib/store/quota_file.ts";
import { quotaLimiter, type QuotaOptions } from "../../lib/store/quotas.ts";
import { workerCounters } from "../../lib/store/shared_callers.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpTools } from "../support/exercise.ts";
import { emptyFolder } from "../support/process.ts";
import { random } from "../support/random.ts";

const DAY = 86_400_000;
const START = Date.parse("2026-01-31T12:00:00Z");
const DEFAULTS: QuotaOptions = { limit: 100, per: "month", timeZone: "UTC", maxCallers: 1_000, isCosted: false };

/** A program with a state folder, started at this moment; with workers, the memory is shared by them. */
async function started(path: string, { wall = START, workers = 1 } = {}) {
  const clock = manualClock(wall);
  const { log, lines } = madeUpTools();
  const folder = await StateFolder.open(path);
  const file = new QuotaFile(folder, clock, log);
  let isClosed = false;
  const close = async () => {
    if (isClosed) return;
    isClosed = true;
    await file.close();
    await folder.close();
  };
  onTestFinished(close);
  const buffers = new Map<string, SharedArrayBuffer>();
  const memory = (name: string, bytes: number) => {
    if (!buffers.has(name)) buffers.set(name, new SharedArrayBuffer(bytes));
    return buffers.get(name)!;
  };
  const local =
    workers === 1
      ? memoryCounters(clock, file.secret)
      : workerCounters(clock, { ...ALONE, count: workers, worker: -1 }, file.secret);
  const quota = (key: string, options: Partial<QuotaOptions> = {}) =>
    quotaLimiter({ clock, local, shared: null, quotas: file, memory: workers === 1 ? undefined : memory }, key, {
      ...DEFAULTS,
      ...options,
    }) as LocalCosted;
  return { clock, folder, file, lines, local, quota, close };
}

describe("quotas in a file", () => {
  it.each([
    [1, 1],
    [4, 4],
    [1, 4],
    [4, 1],
  ])("survive the end of the program (%i workers, then %i)", async (before, after) => {
    const path = emptyFolder();
    const first = await started(path, { workers: before });
    const from = random(1);
    const used = new Map<string, number>();
    for (let i = 0; i < 5_000; i++) {
      const name = `caller ${from.int(0, 300)}`;
      if (first.quota("k").decide(name).admitted) used.set(name, (used.get(name) ?? 0) + 1);
    }
    first.quota("other").book("x", 130);
    await first.close();
    const second = await started(path, { workers: after, wall: START + 1_000 });
    for (const [name, count] of used)
      expect(second.quota("k", { isCosted: true }).decide(name).remaining[0]).toBe(100 - count);
    expect(second.quota("other").decide("x").admitted).toBe(false);
    expect(second.quota("k").decide("new").remaining[0]).toBe(99);
  });

  it("are written, too, where only callers without a place of their own have been counted", async () => {
    const path = emptyFolder();
    const first = await started(path);
    const full = { limit: 4, maxCallers: 1 };
    for (let i = 0; i < 4; i++) first.quota("k", full).decide("a");
    await first.file.save();
    first.clock.advance(1);
    for (let i = 0; i < 4; i++) first.quota("k", full).decide(`other ${i}`);
    expect(first.quota("k", full).decide("one more").admitted).toBe(false);
    await first.close();
    const second = await started(path);
    expect(second.quota("k", full).decide("one more").admitted).toBe(false);
  });

  it("are written half a second after a change, and not without one", async () => {
    const path = emptyFolder();
    const { clock, quota, file } = await started(path);
    const read = () => {
      try {
        return readFileSync(join(path, "quotas"));
      } catch {
        return null;
      }
    };
    clock.advance(500);
    await file.save();
    const empty = read();
    quota("k").decide("a");
    clock.advance(500);
    await file.save();
    expect(read()).not.toEqual(empty);
    const inode = () => String(read());
    const last = inode();
    clock.advance(5_000);
    await file.save();
    expect(inode()).toBe(last);
  });

  it("begin anew in the next period, with what was overdrawn, also while the program did not run", async () => {
    const path = emptyFolder();
    const first = await started(path);
    first.quota("k", { isCosted: true }).book("a", 250);
    first.quota("k", { isCosted: true }).book("b", 50);
    await first.close();
    const second = await started(path, { wall: START + 2 * DAY });
    expect(second.quota("k", { isCosted: true }).decide("a").admitted).toBe(false);
    expect(second.quota("k", { isCosted: true }).decide("b").remaining[0]).toBe(100);
    await second.close();
    const third = await started(path, { wall: START + 200 * DAY });
    expect(third.quota("k", { isCosted: true }).decide("a").remaining[0]).toBe(100);
  });

  it(
    "that are configured no longer are in the file for two periods after their last " + "request, and then leave it",
    async () => {
      const path = emptyFolder();
      const first = await started(path);
      first.quota("daily", { per: "day" }).decide("a");
      first.quota("monthly").decide("a");
      await first.close();
      const keys = () => {
        const [, header] = readFileSync(join(path, "quotas"), "latin1").split("\n");
        return (JSON.parse(header!) as { tables: { key: string }[] }).tables.map(({ key }) => key).sort();
      };
      const second = await started(path, { wall: START + DAY });
      second.quota("other").decide("a");
      await second.file.save();
      expect(keys()).toEqual(["daily", "monthly", "other"]);
      second.clock.advance(2 * DAY);
      second.quota("other").decide("a");
      await second.file.save();
      expect(keys()).toEqual(["monthly", "other"]);
      // Those of this process, too, once a reload has dropped them.
      second.quota("new", { per: "day" }).decide("a");
      second.clock.advance(3 * DAY);
      second.quota("other").decide("a");
      await second.close();
      expect(keys()).toEqual(["monthly", "other"]);
    },
  );

  it(
    "stay what they are when a reload with another period is refused, " +
      "and those of callers of the period before are not taken for the new one's",
    async () => {
      const path = emptyFolder();
      const first = await started(path);
      const daily = first.quota("k", { per: "day" });
      for (let i = 0; i < 3; i++) daily.decide("a");
      const weekly = first.quota("k", { per: "week" });
      daily.decide("a");
      weekly.decide("b");
      await first.close();
      const second = await started(path, { wall: START + 1_000 });
      expect(second.quota("k", { per: "day", isCosted: true }).decide("a").remaining[0]).toBe(96);
      await second.close();
      const third = await started(path, { wall: START + 2_000 });
      const again = third.quota("k", { per: "week", isCosted: true });
      expect([again.decide("a").remaining[0], again.decide("b").remaining[0]]).toEqual([100, 99]);
    },
  );

  it.each([1, 4])(
    "of callers who send requests while the file is written are in it, as they were before or later, " +
      "also when many new ones arrive (%i workers)",
    async (workers) => {
      const [path, other] = [emptyFolder(), emptyFolder()];
      const first = await started(path, { workers });
      const options = { maxCallers: 200_000 };
      const quota = first.quota("k", options);
      for (let i = 0; i < 20_000; i++) quota.book(`caller ${i}`, 40);
      let isSaved = false;
      const saved = first.file.save().then(() => (isSaved = true));
      for (let i = 0; !isSaved; i++) {
        for (let k = 0; k < 500 && i < 80; k++) {
          quota.book(`caller ${(i * 7 + k * 41) % 20_000}`, 1);
          quota.book(`new ${i * 500 + k}`, 1);
        }
        await new Promise((resolve) => setImmediate(resolve));
      }
      await saved;
      copyFileSync(join(path, "quotas"), join(other, "quotas"));
      const second = await started(other, { workers: 5 - workers, wall: START + 1_000 });
      const before = second.quota("k", { ...options, isCosted: true });
      const now = first.quota("k", { ...options, isCosted: true });
      for (let i = 0; i < 20_000; i++) {
        const left = before.decide(`caller ${i}`).remaining[0]!;
        expect(left).toBeLessThanOrEqual(60);
        expect(left).toBeGreaterThanOrEqual(now.decide(`caller ${i}`).remaining[0]!);
      }
    },
  );

  it("of a quota that the configuration has no more are kept for when it comes back", async () => {
    const path = emptyFolder();
    const first = await started(path);
    first.quota("gone").book("a", 30);
    await first.close();
    const second = await started(path);
    second.quota("k").decide("a");
    await second.close();
    const third = await started(path);
    expect(third.quota("gone", { isCosted: true }).decide("a").remaining[0]).toBe(70);
  });

  it("of more callers than max_callers: nobody gets more than its quota", async () => {
    const path = emptyFolder();
    const first = await started(path);
    for (let i = 0; i < 100; i++) first.quota("k").book(`caller ${i}`, 40);
    await first.close();
    const second = await started(path);
    const quota = second.quota("k", { maxCallers: 10, isCosted: true });
    for (let i = 0; i < 100; i++) expect(quota.decide(`caller ${i}`).remaining[0]).toBeLessThanOrEqual(60);
  });

  it("the file has no name of a caller, and a record of 32 bytes for each", async () => {
    const path = emptyFolder();
    const { quota, close } = await started(path);
    for (let i = 0; i < 500; i++) quota("k").decide(`h:secret-header-${i}`);
    await close();
    const content = readFileSync(join(path, "quotas"));
    expect(content.includes("secret")).toBe(true); // the key of the hashes
    expect(content.includes("secret-header")).toBe(false);
    expect(content.length).toBeLessThan(500 * 32 + 300);
  });

  it.each<[string, (content: Buffer) => Buffer, RegExp]>([
    ["a changed byte", (content) => (content.writeUInt8(content[200]! ^ 1, 200), content), /is damaged/],
    ["a missing end", (content) => content.subarray(0, -5), /is damaged/],
    ["nothing", () => Buffer.alloc(0), /is damaged/],
    ["other text", () => Buffer.from("hello\n"), /is damaged/],
  ])("the start is refused, with what to do, where the file has %s", async (_what, change, expected) => {
    const path = emptyFolder();
    const first = await started(path);
    first.quota("k").decide("a");
    await first.close();
    writeFileSync(join(path, "quotas"), change(readFileSync(join(path, "quotas"))));
    const folder = await StateFolder.open(path);
    onTestFinished(() => folder.close());
    expect(() => new QuotaFile(folder, manualClock(), madeUpTools().log)).toThrow(expected);
    expect(() => new QuotaFile(folder, manualClock(), madeUpTools().log)).toThrow(
      /put a copy in its place, or move it away/,
    );
  });

  it(
    "a write that fails is counted each time and logged once a minute; counting goes on, " +
      "and all is written once it can be",
    async () => {
      const path = emptyFolder();
      const { clock, folder, file, lines, quota, close } = await started(path);
      mkdirSync(join(path, "quotas.new"));
      for (let i = 1; i <= 10; i++) {
        quota("k").decide("a");
        clock.advance(1);
        await file.save();
        expect(folder.failures).toBe(i);
      }
      expect(lines.map(({ level, message }) => `${level}: ${message}`)).toEqual([
        "error: quotas cannot be written, and are counted in memory alone",
      ]);
      clock.advance(60_000);
      quota("k").decide("a");
      await file.save();
      expect(lines).toHaveLength(2);
      rmdirSync(join(path, "quotas.new"));
      await file.save();
      expect(lines.at(-1)).toMatchObject({ level: "info", message: "quotas are written again" });
      await close();
      const second = await started(path);
      expect(second.quota("k", { isCosted: true }).decide("a").remaining[0]).toBe(89);
    },
  );
});
