import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { withoutGrowth, withoutOptimizing } from "../../lib/base/heap_growth.ts";

const { setFlagsFromString } = vi.hoisted(() => ({ setFlagsFromString: vi.fn() }));
vi.mock("node:v8", () => ({ setFlagsFromString }));

const HELD = "--semi-space-growth-factor=1 --heap-growing-percent=50";
const FREE = "--semi-space-growth-factor=2 --heap-growing-percent=0";

describe("withoutGrowth", () => {
  const flags = () => setFlagsFromString.mock.calls.flat();
  beforeEach(() => setFlagsFromString.mockClear());

  it("keeps V8 from enlarging its heap until the last of several runs has ended", async () => {
    const ends: (() => void)[] = [];
    const runs = [1, 2].map(() => withoutGrowth(() => new Promise<void>((resolve) => ends.push(resolve))));
    ends[0]!();
    await runs[0];
    expect(flags()).toEqual([HELD]);
    ends[1]!();
    await runs[1];
    expect(flags()).toEqual([HELD, FREE]);
  });

  it("lets V8 enlarge it again when a run fails, and passes the error on", async () => {
    const error = new Error("refused");
    await expect(withoutGrowth(() => Promise.reject(error))).rejects.toBe(error);
    expect(flags()).toEqual([HELD, FREE]);
  });
});

describe("withoutOptimizing", () => {
  const flags = () => setFlagsFromString.mock.calls.flat();
  beforeEach(() => setFlagsFromString.mockClear());

  it("keeps V8 from optimizing code until the run has ended, also where it fails", async () => {
    const error = new Error("refused");
    await expect(withoutOptimizing(() => Promise.reject(error))).rejects.toBe(error);
    expect(flags()).toEqual(["--no-opt", "--opt"]);
    expect(await withoutOptimizing(() => Promise.resolve(flags().length))).toBe(3);
    expect(flags()).toEqual(["--no-opt", "--opt", "--no-opt", "--opt"]);
  });

  it("lets V8 optimize code before that once half a second is over", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    let end = () => {};
    const run = withoutOptimizing(() => new Promise<void>((resolve) => (end = resolve)));
    vi.advanceTimersByTime(499);
    expect(flags()).toEqual(["--no-opt"]);
    vi.advanceTimersByTime(1);
    expect(flags()).toEqual(["--no-opt", "--opt"]);
    end();
    await run;
    expect(vi.getTimerCount()).toBe(0);
  });
});
