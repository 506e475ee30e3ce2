import { describe, expect, test } from "vitest";
import { headerValues } from "../../lib/http/headers.ts";
import { madeUpTools } from "../support/exercise.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";

const KEYS = { name: "key_auth", config: { keys: [{ id: "ann", key: "k-ann" }, { id: "bob", key: "k-bob" }] } };
const limit = (config: object) => ({ name: "rate_limit", config: { limit_hour: 2, ...config } });

describe("what one plugin does for the next", () => {
  test("a limit by credential counts each caller that authentication has named, wherever the two stand", async () => {
    const origin = await backend();
    const { port } = await running(oneService(origin.port, { routes: [{ path: "/{rest*}", plugins: [limit({ limit_by: "credential" })] }] }, { plugins: [KEYS] }));
    const statuses = async (apiKey: string, times: number) => {
      const all: number[] = [];
      for (let i = 0; i < times; i++) all.push((await ask(port, { path: "/a/x", headers: { apiKey } })).status);
      return all;
    };
    expect(await statuses("k-ann", 3)).toEqual([200, 200, 429]);
    expect(await statuses("k-bob", 3)).toEqual([200, 200, 429]);
    // Refused before it is counted.
    expect(await statuses("wrong", 3)).toEqual([401, 401, 401]);
    expect(origin.seen).toHaveLength(4);
  });

  test("a limit in shadow mode looks and tells, and neither refuses nor takes from the one beside it", async () => {
    const origin = await backend();
    const { log, lines } = madeUpTools();
    const shadow = { ...limit({ limit_hour: 1, mode: "shadow" }), id: "trial" };
    const { port } = await running(oneService(origin.port, { plugins: [shadow, limit({})] }), { log });
    const replies = [];
    for (let i = 0; i < 3; i++) replies.push(await ask(port, { path: "/a/x" }));
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 429]);
    expect(replies.map(({ headers }) => String(headers["ratelimit-policy"]).includes("q=1;"))).toEqual([false, false, false]);
    expect(lines.filter(({ message }) => message.includes("shadow") || message.includes("would")).length).toBeGreaterThan(0);
  });

  test("global, service, route on the way in, the reverse on the way out", async () => {
    const origin = await backend();
    const adding = (name: string, value: string) => ({ name, config: { add: { "X-Way": value } } });
    const both = (level: string) => [adding("request_headers", level), adding("response_headers", level)];
    const config = oneService(origin.port, { plugins: both("service"), routes: [{ path: "/{rest*}", plugins: both("route") }] }, { plugins: both("global") });
    const { port } = await running(config);
    const { headers } = await ask(port, { path: "/a/x" });
    expect(headers["x-way"]).toBe("route, service, global");
    expect(headerValues(origin.seen[0]!.headers, "x-way").join(", ")).toBe("global, service, route");
  });
});
