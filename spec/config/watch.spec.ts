import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, unlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../lib/base/clock.ts";
import { watchFile } from "../../lib/config/watch.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";

let folder: string;
let path: string;
let clock: ManualClock;
let changes: number;
let watching: { close(): void };

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "watch-"));
  path = join(folder, "gw.json");
  writeFileSync(path, "{}");
  clock = manualClock();
  changes = 0;
});

afterEach(() => {
  watching.close();
  rmSync(folder, { recursive: true });
});

const start = () => void (watching = watchFile(path, { clock, pollMs: 1000, onChange: () => changes++ }));

/** Long enough for a poll to notice and for the change to settle. The event loop does not turn, so no file event comes in. */
const look = () => {
  clock.advance(1000);
  clock.advance(100);
};

describe("watchFile, polling", () => {
  it("tells of a file written in place, once", () => {
    start();
    writeFileSync(path, '{"a":1}');
    look();
    expect(changes).toBe(1);
    look();
    expect(changes).toBe(1);
  });

  it("tells of a file that was renamed over it, also when size and time agree", () => {
    utimesSync(path, 1, 1);
    start();
    writeFileSync(`${path}.new`, "[]");
    utimesSync(`${path}.new`, 1, 1);
    renameSync(`${path}.new`, path);
    look();
    expect(changes).toBe(1);
  });

  it("tells of a Kubernetes swap: the folder behind ..data changes, the link to the file does not", () => {
    unlinkSync(path);
    for (const version of ["..1", "..2"]) {
      mkdirSync(join(folder, version));
      writeFileSync(join(folder, version, "gw.json"), "{}");
    }
    symlinkSync("..1", join(folder, "..data"));
    symlinkSync("..data/gw.json", path);
    start();
    symlinkSync("..2", join(folder, "..data_tmp"));
    renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
    look();
    expect(changes).toBe(1);
  });

  it("waits until the file has rested", () => {
    start();
    writeFileSync(path, "{");
    clock.advance(1000);
    clock.advance(99);
    expect(changes).toBe(0);
    clock.advance(1);
    expect(changes).toBe(1);
  });

  it("bears a file that is away for a moment, and tells when another stands there", () => {
    start();
    unlinkSync(path);
    look();
    expect(changes).toBe(0);
    writeFileSync(path, '{"back":true}');
    look();
    expect(changes).toBe(1);
  });

  it("bears a folder that is not there yet", () => {
    path = join(folder, "later", "gw.json");
    start();
    look();
    mkdirSync(join(folder, "later"));
    writeFileSync(path, "{}");
    look();
    expect(changes).toBe(1);
  });

  it("says nothing while nothing changes, and nothing once closed", () => {
    start();
    clock.advance(1000);
    expect(clock.pending).toBe(1); // the next poll
    writeFileSync(path, '{"a":1}');
    clock.advance(1000);
    expect(clock.pending).toBe(2); // and the change that is settling
    watching.close();
    clock.advance(10_000);
    expect(changes).toBe(0);
    expect(clock.pending).toBe(0);
  });
});

describe("watchFile, by file events", () => {
  const changed = (change: () => void) =>
    new Promise<void>((resolve) => {
      watching = watchFile(path, { clock: systemClock, debounceMs: 5, pollMs: 3_600_000, onChange: resolve });
      change();
    });

  it("hears of a rename-save long before the next poll", async () => {
    await changed(() => {
      writeFileSync(`${path}.new`, "[]");
      renameSync(`${path}.new`, path);
    });
  });

  it("hears of a file written in place", async () => {
    await changed(() => writeFileSync(path, '{"a":1}'));
  });

  it("hears of a swapped ..data link", async () => {
    unlinkSync(path);
    for (const version of ["..1", "..2"]) {
      mkdirSync(join(folder, version));
      writeFileSync(join(folder, version, "gw.json"), "{}");
    }
    symlinkSync("..1", join(folder, "..data"));
    symlinkSync("..data/gw.json", path);
    await changed(() => {
      symlinkSync("..2", join(folder, "..data_tmp"));
      renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
    });
  });
});
