import { beforeEach, describe, expect, it, vi } from "vitest";
import { withoutGrowth } from "../../lib/base/heap_growth.ts";

const { setFlagsFromString } = vi.hoisted(() => ({ setFlagsFromString: vi.fn() }));
vi.mock("node:v8", () => ({ setFlagsFromString }));

const HELD = ["--semi-space-growth-factor=1", "--heap-growing-percent=50"];
const FREE = ["--semi-space-growth-factor=2", "--heap-growing-percent=0"];

describe("withoutGrowth", () => {
  const flags = () => setFlagsFromString.mock.calls.flat();
  beforeEach(() => setFlagsFromString.mockClear());

  it("keeps V8 from enlarging its heap until the last of several runs has ended", async () => {
    const ends: (() => void)[] = [];
    const runs = [1, 2].map(() => withoutGrowth(() => new Promise<void>((resolve) => ends.push(resolve))));
    ends[0]!();
    await runs[0];
    expect(flags()).toEqual(HELD);
    ends[1]!();
    await runs[1];
    expect(flags()).toEqual([...HELD, ...FREE]);
  });

  it("lets V8 enlarge it again when a run fails, and passes the error on", async () => {
    const error = new Error("refused");
    await expect(withoutGrowth(() => Promise.reject(error))).rejects.toBe(error);
    expect(flags()).toEqual([...HELD, ...FREE]);
  });
});
