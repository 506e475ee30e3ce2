import { appendFileSync, mkdtempSync, rmSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { readFileSteps, readRegularFile } from "../../lib/base/regular_file.ts";

const folder = mkdtempSync(join(tmpdir(), "edge-gateway-"));
afterAll(() => rmSync(folder, { recursive: true }));
const path = join(folder, "file");

describe("a regular file", () => {
  it.each([0, 1, 500_000, 1_234_567])("of %d bytes is read as it is, in steps", (size) => {
    const content = Buffer.alloc(size, "0123456789");
    writeFileSync(path, content);
    const steps = readFileSteps(path);
    let count = 0;
    let next = steps.next();
    for (; next.done !== true; next = steps.next()) count++;
    expect(next.value.equals(content)).toBe(true);
    expect(count).toBe(Math.ceil(size / 500_000));
  });

  it("of the system, which tells no size, is read to its end", () => {
    expect(readRegularFile("/proc/self/status").toString()).toMatch(/^Name:[^]*\nThreads:/);
  });

  it.each<readonly [how: string, change: () => void, expected: () => Buffer]>([
    ["is written", () => writeFileSync(path, Buffer.alloc(1_200_000, "b")), () => Buffer.alloc(1_200_000, "b")],
    ["grows", () => appendFileSync(path, "bc"), () => Buffer.from(`${"a".repeat(1_200_000)}bc`)],
    ["shrinks", () => truncateSync(path, 700_000), () => Buffer.alloc(700_000, "a")],
    ["is emptied", () => truncateSync(path, 0), () => Buffer.alloc(0)],
  ])("that %s meanwhile is read again, as it is then", (_how, change, expected) => {
    writeFileSync(path, Buffer.alloc(1_200_000, "a"));
    // The time of a change may be that of a moment before.
    utimesSync(path, 1, 1);
    const steps = readFileSteps(path);
    steps.next();
    change();
    let next = steps.next();
    while (next.done !== true) next = steps.next();
    expect(next.value.equals(expected())).toBe(true);
  });

  it("that is written again and again is read in the end", () => {
    writeFileSync(path, Buffer.alloc(1_200_000, "a"));
    const steps = readFileSteps(path);
    let next = steps.next();
    for (let time = 1; next.done !== true; time++) {
      utimesSync(path, time, time);
      next = steps.next();
    }
    expect(next.value.length).toBe(1_200_000);
  });
});
