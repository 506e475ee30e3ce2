/** The promises of every store of quotas, asked through gateways. */
import { expect, it } from "vitest";

export type Per = "day" | "week" | "month";

/**
 * `make` gives an empty store; its result configures a quota of one request in each period, all callers together, and
 * resolves with the status of a request.
 */
export function countingPeriods(make: () => Promise<(per: Per) => Promise<() => Promise<number>>>): void {
  it.each([
    ["month", "day"],
    ["day", "month"],
    ["week", "day"],
  ] as const)(
    "a quota that is used up by the %s begins anew where it is by the %s, and counts there",
    async (one, other) => {
      const configure = await make();
      const before = await configure(one);
      expect([await before(), await before()]).toEqual([200, 429]);
      const after = await configure(other);
      expect([await after(), await after()]).toEqual([200, 429]);
    },
  );
}
