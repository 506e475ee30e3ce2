import { describe, expect, it } from "vitest";
import { simulate, type LockModel } from "./lock_model.ts";

const MODEL: LockModel = {
  processors: 8,
  shards: 64,
  workMicros: 50,
  holdMicros: 0.5,
  movedMicros: 1,
  spinMicros: 5,
  wakeMicros: 50,
  requests: 50_000,
};

describe("the model of the locks", () => {
  it("lets one processor alone never wait", () => {
    expect(simulate({ ...MODEL, processors: 1, shards: 1 })).toMatchObject({
      meanWait: 0,
      p99Wait: 0,
      slept: 0,
      share: expect.closeTo(1, 2),
    });
  });

  it("admits no more than one lock can decide: its holders follow each other without a gap", () => {
    const { share, busy } = simulate({ ...MODEL, processors: 64, shards: 1, movedMicros: 4, spinMicros: 1e6 });
    expect(busy).toBeCloseTo(1, 1);
    // One decision in 4 µs, of 64 processors that could make one in 50.5.
    expect(share).toBeCloseTo(50.5 / 4 / 64, 1);
  });

  it("waits as long as a queue with one server and requests that come at random, while few do", () => {
    // The lock is held for a share r of the time: the mean wait is r / (2 (1 - r)) times the hold (Pollaczek and
    // Khinchine).
    const { meanWait, busy } = simulate({ ...MODEL, processors: 16, shards: 1, spinMicros: 1e6, requests: 200_000 });
    expect(meanWait).toBeGreaterThan(0.6 * (busy / (2 * (1 - busy))));
    expect(meanWait).toBeLessThan(1.1 * (busy / (2 * (1 - busy))));
  });

  it("loses requests to sleeping only where the wait exceeds the time of spinning", () => {
    expect(simulate({ ...MODEL, processors: 4 }).slept).toBe(0);
    expect(simulate({ ...MODEL, processors: 64, shards: 1, spinMicros: 0.5 }).slept).toBeGreaterThan(0.01);
  });
});
