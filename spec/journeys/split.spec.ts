import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { together } from "../support/following.ts";
import { oneService, running } from "../support/gateway.ts";
import { keptClient } from "../support/kept_client.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { closedPort } from "../support/origin.ts";
import { ask } from "../support/raw_client.ts";
import { backend } from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;
type Split = NonNullable<Parts["split"]>;

/** An upstream that answers with its name. */
const named = (name: string) => backend((_request, response) => void response.end(name));

/** Upstreams v1, without a group, and v2, of the group canary; the configuration with this split. */
async function two() {
  const [v1, v2] = [await named("v1"), await named("v2")];
  const upstreams = [
    { id: "v1", host: "127.0.0.1", port: v1.port },
    { id: "v2", host: "127.0.0.1", port: v2.port, group: "canary" },
  ];
  const config = (split: Split, parts: Parts = {}) => oneService([], { upstreams, split, ...parts });
  return { config };
}

/** Sends GET requests over one connection; resolves with the names of the upstreams that answered. */
async function clientOf(port: number) {
  const { ask: send, close } = await keptClient(port);
  onTestFinished(close);
  return (all: readonly Readonly<Record<string, string>>[]) =>
    Promise.all(all.map(async (headers) => (await send("/a/x", headers)).body));
}

const plain = (n: number) => Array.from({ length: n }, () => ({}));
const users = Array.from({ length: 300 }, (_, i) => ({ "X-User": `user ${i}` }));
const count = (names: readonly string[], name: string) => names.filter((each) => each === name).length;

/**
 * Fails for independent draws once in 10^9 runs at most: 6.5 standard deviations, and 8 for percentages near 0 and 100.
 */
function expectShare(names: readonly string[], percent: number): void {
  const [n, p] = [names.length, percent / 100];
  expect(Math.abs(count(names, "v2") - n * p), `${count(names, "v2")} of ${n} for ${percent} %`).toBeLessThan(
    6.5 * Math.sqrt(n * p * (1 - p)) + 8,
  );
}

describe("a canary release", () => {
  it(
    "gets its percentage of the requests, within what independent draws allow, " +
      "before and after reloads that change it",
    async () => {
      const { config } = await two();
      const { gateway, port } = await running(config([{ group: "canary", percent: 5 }]));
      const send = await clientOf(port);
      expectShare(await send(plain(1000)), 5);
      for (const percent of [50, 0.1]) {
        await gateway.reload(config([{ group: "canary", percent }]));
        expectShare(await send(plain(1000)), percent);
      }
      for (const [percent, name] of [
        [100, "v2"],
        [0, "v1"],
      ] as const) {
        await gateway.reload(config([{ group: "canary", percent }]));
        expect(new Set(await send(plain(500)))).toEqual(new Set([name]));
      }
    },
  );

  it("gets its percentage of the requests of each worker, also after a reload", async () => {
    const { config } = await two();
    const { main, ports } = await together({ config: config([{ group: "canary", percent: 5 }]) });
    const [one, other] = [await clientOf(ports[0]!), await clientOf(ports[1]!)];
    for (const send of [one, other]) expectShare(await send(plain(500)), 5);
    await main.reload(config([{ group: "canary", percent: 25 }]));
    for (const send of [one, other]) expectShare(await send(plain(500)), 25);
  });

  it(
    "with hash_on, each caller stays on its side while the percentage stays, " +
      "and only moves to the canary when it rises",
    async () => {
      const { config } = await two();
      const by = (percent: number) => config([{ group: "canary", percent, hash_on: "header:X-User" }]);
      const { gateway, port } = await running(by(5));
      const send = await clientOf(port);
      let before = await send(users);
      expect(await send(users)).toEqual(before);
      for (const percent of [50, 100]) {
        await gateway.reload(by(percent));
        const now = await send(users);
        before.forEach((name, i) => expect(name === "v2" && now[i] !== "v2").toBe(false));
        expect(count(now, "v2")).toBeGreaterThan(count(before, "v2"));
        before = now;
      }
      expect(count(before, "v2")).toBe(users.length);
    },
  );

  it("with hash_on credential, a caller is known by the identity that a plugin has found", async () => {
    const { config } = await two();
    const keys = Array.from({ length: 40 }, (_, i) => ({ id: `caller ${i}`, key: `key ${i}` }));
    const by = config([{ group: "canary", percent: 50, hash_on: "credential" }], {
      plugins: [{ name: "key_auth", config: { keys } }],
    });
    const [one, other] = [await running(by), await running(by)];
    const ofEach = async (port: number) => (await clientOf(port))(keys.map(({ key }) => ({ apiKey: key })));
    const sides = await ofEach(one.port);
    expect(new Set(sides)).toEqual(new Set(["v1", "v2"]));
    expect(await ofEach(other.port)).toEqual(sides);
  });
});

describe("a share with a match", () => {
  it(
    "sends requests with the header, the parameter or the cookie to its group, " + "and the others by the other shares",
    async () => {
      const { config } = await two();
      const matches = [
        { headers: { "X-Canary": "on" } },
        { query: { canary: true as const } },
        { cookies: { stage: { matches: "^canary$" } } },
      ];
      const { port } = await running(
        config([
          { group: "canary", percent: 10 },
          ...matches.map((match) => ({ group: "canary", percent: 100, match })),
        ]),
      );
      const send = await clientOf(port);
      expect(new Set(await send(Array.from({ length: 50 }, () => ({ "x-canary": "on" }))))).toEqual(new Set(["v2"]));
      expect(new Set(await send(Array.from({ length: 50 }, () => ({ Cookie: "a=b; stage=canary" }))))).toEqual(
        new Set(["v2"]),
      );
      expect((await ask(port, { path: "/a/x?canary" })).body.toString()).toBe("v2");
      expectShare(await send([...plain(500), ...Array.from({ length: 500 }, () => ({ "X-Canary": "off" }))]), 10);
    },
  );

  it("looks at the headers as the plugins of the route leave them", async () => {
    const { config } = await two();
    const plugins = [{ name: "request_headers", config: { set: { "X-Canary": "on" } } }];
    const { port } = await running(
      config([{ group: "canary", percent: 100, match: { headers: { "X-Canary": "on" } } }], { plugins }),
    );
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("v2");
  });
});

describe("a group without a usable upstream", () => {
  it("loses no request: they go to the rest", async () => {
    const [v1, v2] = [await named("v1"), await closedPort()];
    const upstreams = [
      { host: "127.0.0.1", port: v1.port },
      { host: "127.0.0.1", port: v2, group: "canary" },
    ];
    const health = { passive: { max_failures: 1, eject_ms: 60_000 } };
    const { port } = await running(
      oneService([], { upstreams, health, retries: {}, split: [{ group: "canary", percent: 50 }] }),
    );
    expect(new Set(await (await clientOf(port))(plain(100)))).toEqual(new Set(["v1"]));
  });

  it("is retried within the group first, then at the rest", async () => {
    const [v1, v2, v3] = [await named("v1"), await closedPort(), await named("v3")];
    const upstreams = [
      { host: "127.0.0.1", port: v1.port },
      { host: "127.0.0.1", port: v2, group: "canary" },
      { host: "127.0.0.1", port: v3.port, group: "canary" },
    ];
    const health = { passive: { max_failures: 0 } };
    const split = [{ group: "canary", percent: 100 }];
    const { gateway, port } = await running(oneService([], { upstreams, health, retries: { budget_ratio: 1 }, split }));
    const send = await clientOf(port);
    expect(new Set(await send(plain(20)))).toEqual(new Set(["v3"]));
    await gateway.reload(
      oneService([], { upstreams: upstreams.slice(0, 2), health, retries: { budget_ratio: 1 }, split }),
    );
    expect(new Set(await send(plain(20)))).toEqual(new Set(["v1"]));
  });

  it("gets its requests again when it is back", async () => {
    const { config } = await two();
    const { gateway, port } = await running(config([{ group: "canary", percent: 100 }]));
    const send = await clientOf(port);
    const drained = config([{ group: "canary", percent: 100 }]);
    const upstreams = drained.services[0]!.upstreams.map((each) =>
      each.group === undefined ? each : { ...each, weight: 0 },
    );
    await gateway.reload(oneService([], { ...drained.services[0]!, upstreams }));
    expect(new Set(await send(plain(10)))).toEqual(new Set(["v1"]));
    await gateway.reload(drained);
    expect(new Set(await send(plain(10)))).toEqual(new Set(["v2"]));
  });
});

it(
  "metrics and health of an upstream carry its group, and follow a reload; " + "those of others have no such label",
  async () => {
    const { config } = await two();
    const split = [{ group: "canary", percent: 100, match: { query: { canary: true as const } } }];
    const { gateway, port } = await running(config(split));
    await ask(port, { path: "/a/x" });
    await ask(port, { path: "/a/x?canary" });
    const families = [
      "edge_gateway_upstream_duration_seconds_count",
      "edge_gateway_upstream_healthy",
      "edge_gateway_upstream_connections",
    ];
    const labelled = () =>
      families.map((name) =>
        readMetrics(gateway.metrics())
          .all(name)
          .map(({ labels, value }) => [labels, value]),
      );
    const [v1, v2] = [
      { service: "s", upstream: "v1" },
      { service: "s", upstream: "v2" },
    ];
    const samples = [
      [v1, 1],
      [{ ...v2, group: "canary" }, 1],
    ];
    expect(labelled()).toEqual([samples, samples, samples]);
    expect(gateway.health.services[0]!.upstreams.map(({ group }) => group)).toEqual([null, "canary"]);
    const next = config(split).services[0]!;
    const upstreams = next.upstreams.map(({ group: _group, ...each }) => each);
    const { split: _split, ...whole } = next;
    await gateway.reload(oneService([], { ...whole, upstreams }));
    expect(labelled()).toEqual(
      families.map(() => [
        [v1, 1],
        [v2, 1],
      ]),
    );
    expect(gateway.health.services[0]!.upstreams.map(({ group }) => group)).toEqual([null, null]);
  },
);
