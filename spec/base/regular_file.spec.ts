import { appendFileSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
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

  it("that grows or shrinks meanwhile has what is there in the end", () => {
    const read = (between: () => void) => {
      writeFileSync(path, Buffer.alloc(1_200_000, "a"));
      const steps = readFileSteps(path);
      steps.next();
      between();
      for (;;) {
        const { done, value } = steps.next();
        if (done) return value;
      }
    };
    expect(
      read(() => appendFileSync(path, "bc"))
        .subarray(1_199_999)
        .toString(),
    ).toBe("abc");
    expect(read(() => truncateSync(path, 700_000)).length).toBe(700_000);
  });
});
