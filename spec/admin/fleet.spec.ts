import { describe, expect, it } from "vitest";
import type { ListedEntry } from "../../lib/source/fleet_entries.ts";
import { startAdmin } from "./harness.ts";
import { ENTRY } from "../support/fleet_entry.ts";

const NAME = "etcd://10.0.0.1:2379/edge/gw.json";

async function fleetOf(list: () => Promise<readonly ListedEntry[]>) {
  const { ask, session } = await startAdmin({ fleet: { name: NAME, ownId: "1", list } });
  return (await ask("GET", "/gateway/fleet", { headers: { cookie: await session() } })).json as unknown;
}

describe("GET /gateway/fleet", () => {
  it("has the entries of all gateways, also of such that no gateway has written", async () => {
    const refused = { digest: null, at: "2026-05-04T03:02:01.000Z", reason: "no" };
    const listed = [
      { id: "1", entry: { ...ENTRY, refused } },
      { id: "2", entry: null },
    ];
    expect(await fleetOf(() => Promise.resolve(listed))).toEqual({
      key: NAME,
      own_id: "1",
      problem: null,
      count: 2,
      gateways: [{ id: "1", ...ENTRY, refused }, { id: "2" }],
    });
  });

  it("has at most 1,000, and their number", async () => {
    const listed = Array.from({ length: 1_500 }, (_none, i) => ({ id: String(i), entry: ENTRY }));
    const view = (await fleetOf(() => Promise.resolve(listed))) as { count: number; gateways: unknown[] };
    expect([view.count, view.gateways.length]).toEqual([1_500, 1_000]);
  });

  it("says why they are not known", async () => {
    expect(await fleetOf(() => Promise.reject(new Error("etcd at 10.0.0.1:2379: connection refused")))).toEqual({
      key: NAME,
      own_id: "1",
      problem: "etcd at 10.0.0.1:2379: connection refused",
      count: 0,
      gateways: [],
    });
  });

  it("names no key where the configuration is not in etcd, and is for a session alone", async () => {
    const { ask, session } = await startAdmin({});
    const headers = { cookie: await session() };
    expect((await ask("GET", "/gateway/fleet", { headers })).json).toEqual({
      ...{ key: null, own_id: null, problem: null, count: 0, gateways: [] },
    });
    expect((await ask("GET", "/gateway/fleet")).status).toBe(401);
  });
});
