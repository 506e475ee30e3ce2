import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock, type Clock } from "../../lib/base/clock.ts";
import { signature, watchFile } from "../../lib/config/watch.ts";
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

/** Looks at once, so that the clock alone decides when. */
const atOnce = (file: string, found: (signature: string | null) => void) => found(signature(file));
const start = () => void (watching = watchFile(path, { clock, onChange: () => changes++, look: atOnce }));

/**
 * Long enough for a poll to notice and for the change to settle. The event loop does not turn, so no file event comes
 * in.
 */
const look = () => {
  clock.advance(1500);
  clock.advance(100);
};

describe("watchFile, polling", () => {
  it("reports a file written in place once", () => {
    start();
    writeFileSync(path, '{"a":1}');
    look();
    expect(changes).toBe(1);
    look();
    expect(changes).toBe(1);
  });

  it("reports a file that another user may read by now, whose content is the same: it may have been refused", () => {
    chmodSync(path, 0o600);
    start();
    chmodSync(path, 0o644);
    look();
    expect(changes).toBe(1);
  });

  it("reports a file that was renamed over it, even with the same size and time", () => {
    utimesSync(path, 1, 1);
    start();
    writeFileSync(`${path}.new`, "[]");
    utimesSync(`${path}.new`, 1, 1);
    renameSync(`${path}.new`, path);
    look();
    expect(changes).toBe(1);
  });

  it("reports a Kubernetes swap: the folder behind ..data changes, the link to the file does not", () => {
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

  it("waits until the file stays the same", () => {
    start();
    writeFileSync(path, "{");
    clock.advance(1500);
    clock.advance(99);
    expect(changes).toBe(0);
    clock.advance(1);
    expect(changes).toBe(1);
  });

  it("tolerates a file that disappears for a moment, and reports the file that replaces it", () => {
    start();
    unlinkSync(path);
    look();
    expect(changes).toBe(0);
    writeFileSync(path, '{"back":true}');
    look();
    expect(changes).toBe(1);
  });

  it("tolerates a folder that does not exist yet", () => {
    path = join(folder, "later", "gw.json");
    start();
    look();
    mkdirSync(join(folder, "later"));
    writeFileSync(path, "{}");
    look();
    expect(changes).toBe(1);
  });

  it("reports nothing while nothing changes, and nothing once closed", () => {
    start();
    clock.advance(1500);
    expect(clock.pending).toBe(1); // the next poll
    writeFileSync(path, '{"a":1}');
    clock.advance(1500);
    expect(clock.pending).toBe(2); // and the change that is settling
    watching.close();
    clock.advance(10_000);
    expect(changes).toBe(0);
    expect(clock.pending).toBe(0);
  });
});

describe("watchFile, where a look at the file does not end", () => {
  it("looks once, goes on when the look ends, and closes meanwhile", () => {
    const waiting: (() => void)[] = [];
    const look = (file: string, found: (signature: string | null) => void) =>
      void waiting.push(() => found(signature(file)));
    watching = watchFile(path, { clock, onChange: () => changes++, look });
    writeFileSync(path, '{"a":1}');
    for (let i = 0; i < 5; i++) clock.advance(1500);
    expect(waiting).toHaveLength(1);
    waiting.pop()!();
    clock.advance(100);
    expect([waiting.length, changes]).toEqual([1, 0]);
    waiting.pop()!();
    expect(changes).toBe(1);
    writeFileSync(path, '{"a":12}');
    clock.advance(1500);
    watching.close();
    waiting.pop()!();
    clock.advance(10_000);
    expect([changes, clock.pending, waiting.length]).toEqual([1, 0, 0]);
  });
});

describe("watchFile, by file events", () => {
  /** Polls once an hour. */
  const eventClock: Clock = {
    ...systemClock,
    after: (ms, run) => systemClock.after(ms === 1500 ? 3_600_000 : ms, run),
  };
  const changed = (change: () => void) =>
    new Promise<void>((resolve) => {
      watching = watchFile(path, { clock: eventClock, onChange: resolve });
      change();
    });

  it("reports a rename-save long before the next poll", async () => {
    await changed(() => {
      writeFileSync(`${path}.new`, "[]");
      renameSync(`${path}.new`, path);
    });
  });

  it("reports a file written in place", async () => {
    await changed(() => writeFileSync(path, '{"a":1}'));
  });

  it("reports a swapped ..data link", async () => {
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
