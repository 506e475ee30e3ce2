import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually, type Ask } from "../support/raw_client.ts";
import { backend, gate, restartableBackend } from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;

/** Backends that answer with their ids, and a gateway in front of them. */
async function several(n: number, parts: Parts) {
  const backends = await Promise.all(Array.from({ length: n }, () => restartableBackend()));
  const ids = backends.map((_, i) => `u${i}`);
  backends.forEach((each, i) => (each.answer = (_request, response) => void response.end(ids[i])));
  const upstreams = backends.map(({ port }, i) => ({ id: ids[i]!, host: "127.0.0.1", port }));
  const config = (more: Parts = {}) =>
    oneService([], { upstreams, load_balancing_strategy: "hash", ...parts, ...more });
  const started = await running(config());
  const homes = async (requests: readonly Ask[]) => {
    const found: string[] = [];
    for (const request of requests) found.push((await ask(started.port, { path: "/a/x", ...request })).body.toString());
    return found;
  };
  return { backends, upstreams, config, homes, ...started };
}

const USERS = Array.from({ length: 40 }, (_, i) => `user-${i}`);

describe("the strategy hash", () => {
  it.each<[string, Parts, (user: string) => Ask]>([
    ["header:X-User", {}, (user) => ({ headers: { "x-user": user } })],
    ["cookie:user", {}, (user) => ({ headers: { Cookie: `a=b; user=${user}` } })],
    ["param:user", { routes: [{ path: "/users/{user}/{rest*}" }] }, (user) => ({ path: `/a/users/${user}/x` })],
    [
      "credential",
      { plugins: [{ name: "key_auth", config: { keys: USERS.map((id) => ({ id, key: `key of ${id}` })) } }] },
      (user) => ({ headers: { apiKey: `key of ${user}` } }),
    ],
  ])(
    "hash on %s sends equal values to one upstream and spreads others over all, also after a reload",
    async (hash_on, parts, requestOf) => {
      const { homes, gateway, config } = await several(3, { ...parts, hash_on: hash_on! });
      const requests = USERS.map(requestOf);
      const before = await homes(requests);
      expect(new Set(before)).toEqual(new Set(["u0", "u1", "u2"]));
      expect(await homes([...requests].reverse())).toEqual([...before].reverse());
      await gateway.reload(config({ timeouts: { total_ms: 60_000 } }));
      expect(await homes(requests)).toEqual(before);
    },
  );

  it(
    "hash moves only the values of an upstream that a reload removes, " + "and moves them back when it returns",
    async () => {
      const { homes, gateway, config, upstreams } = await several(4, { hash_on: "header:X-User" });
      const requests = USERS.map((user) => ({ headers: { "X-User": user } }));
      const before = await homes(requests);
      await gateway.reload(config({ upstreams: upstreams.slice(1) }));
      const without = await homes(requests);
      expect(without.every((home, i) => home === before[i] || before[i] === "u0")).toBe(true);
      expect(without).not.toContain("u0");
      await gateway.reload(config());
      expect(await homes(requests)).toEqual(before);
    },
  );

  it("hash sends requests without the value to each upstream in turn", async () => {
    const { homes } = await several(3, { hash_on: "header:X-User" });
    expect(await homes([{}, {}, {}, {}])).toEqual(["u0", "u1", "u2", "u0"]);
  });

  it.each([
    [undefined, [0, 0, 0, 20]],
    [150, [0, 4, 8, 8]],
  ])(
    "with hash_balance_factor %s one hot value loads the upstreams with %j requests in flight",
    async (factor, expected) => {
      const open = gate();
      const seen = [0, 0, 0, 0];
      const answer = (i: number) => async (_request: unknown, response: { end(): void }) => {
        seen[i]!++;
        await open.opened;
        response.end();
      };
      const backends = await Promise.all(seen.map((_, i) => backend(answer(i))));
      const config = oneService(
        backends.map(({ port }) => port),
        {
          load_balancing_strategy: "hash",
          hash_on: "header:X-User",
          ...(factor !== undefined && { hash_balance_factor: factor }),
        },
      );
      const { port } = await running(config);
      const pending: Promise<unknown>[] = [];
      for (let i = 1; i <= 20; i++) {
        pending.push(ask(port, { path: "/a/x", headers: { "X-User": "hot" } }));
        await eventually(() => seen.reduce((sum, each) => sum + each) === i, "the next request");
      }
      expect([...seen].sort((a, b) => a - b)).toEqual(expected);
      open.open();
      await Promise.all(pending);
    },
  );
});
