import { describe, expect, it } from "vitest";
import { pauseBefore, WorkerSlot } from "../../lib/cluster/worker_slot.ts";

const timer = setTimeout(() => {}, 0);

/** Places of which the first has ended for the fourth time in a row; the others are as given. */
function pauseOf(hasServed: boolean, ...others: readonly (WorkerSlot["state"] | "waiting")[]): number {
  const own = Object.assign(new WorkerSlot(0), { shortLives: 3, hasServed });
  const rest = others.map((state, i) =>
    Object.assign(new WorkerSlot(i + 1), state === "waiting" ? { respawn: timer } : { state }),
  );
  return pauseBefore(own, [own, ...rest]);
}

describe("a worker that ends again and again", () => {
  it(
    "is replaced after a pause, which grows, while another serves, " + "and at once where it has served for a minute",
    () => {
      const own = Object.assign(new WorkerSlot(0), { hasServed: true });
      const slots = [own, Object.assign(new WorkerSlot(1), { state: "serving" as const })];
      expect(Array.from({ length: 8 }, () => pauseBefore(own, slots))).toEqual([
        0, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000,
      ]);
      expect(pauseBefore(Object.assign(own, { looks: 60 }), slots)).toBe(0);
    },
  );

  it("is replaced at once while another slot waits, or none serves", () => {
    expect(pauseOf(true, "serving", "waiting")).toBe(0);
    expect(pauseOf(true, "starting", "none")).toBe(0);
    expect(pauseOf(true, "hanging")).toBe(0);
    expect(pauseOf(true, "serving", "none")).toBe(4_000);
  });

  it("is replaced after a pause in any case if it has not served", () => {
    expect(pauseOf(false, "waiting", "none")).toBe(4_000);
    expect(pauseOf(false, "none")).toBe(4_000);
  });
});
