import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { ClientFailure, type ClientAnswer } from "../../lib/client/client.ts";
import { injected } from "../../lib/proof/made_request.ts";
import { matchingTable, Scratch, type ScratchOptions } from "../../lib/proof/scratch.ts";
import { receivingBy } from "../../lib/gateway/snapshot.ts";
import { definePlugin, schema, type AnyPlugin, type InjectRequest } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { oneService } from "../support/gateway.ts";
import { validFrom } from "../support/valid_config.ts";

const KEY = { name: "key_auth", config: { keys: [{ id: "web", key: "a-key-of-the-web" }] } };
const LIMIT = { name: "rate_limit", config: { limit_min: 1 } };
const ASKS = { name: "forward_auth", config: { url: "http://127.0.0.1:1/check" } };

const answer = (status: number): ClientAnswer => ({ status, headers: [], body: Buffer.alloc(0) });

/** A scratch of a configuration, and what its plugins did, as lines. */
function scratchOf(config: AnyConfigInput, options: Partial<ScratchOptions> = {}, own: readonly AnyPlugin[] = []) {
  const loaded = validFrom(config, own);
  const events: string[] = [];
  const clock = manualClock();
  const scratch = new Scratch(loaded, matchingTable(loaded), {
    clock,
    upstream:
      ({ name }) =>
      () => ({ status: 200, headers: ["X-From", name], body: null }),
    ask({ url }, { name }) {
      events.push(`${name} asks ${url}`);
      return Promise.reject(new ClientFailure("unreachable", "nothing is dialled"));
    },
    wrap:
      ({ name, scope }, middleware) =>
      (next) => {
        const handler = middleware(next);
        return (exchange) => {
          events.push(`${scope.level} ${name}`);
          return handler(exchange);
        };
      },
    ...options,
  });
  onTestFinished(() => scratch.close());
  const send = async (path: string, request: Partial<InjectRequest> = {}) => {
    const inbound = injected({ url: path, ...request }, receivingBy(loaded, clock));
    const reply = await scratch.serve(inbound);
    inbound.call.close();
    return { status: reply.status, headers: reply.headers, code: inbound.call.notes.code };
  };
  return { scratch, send, events, clock };
}

describe("a scratch of a configuration", () => {
  it(
    "a request is matched and runs through the plugins of all levels in their order, " +
      "up to a handler in place of the upstream",
    async () => {
      const config = oneService(
        9,
        { plugins: [KEY], routes: [{ path: "/{rest*}", plugins: [LIMIT] }] },
        { plugins: [{ name: "cors", config: { allow_origins: ["*"] } }] },
      );
      const { send, events, scratch } = scratchOf(config);
      const reply = await send("/a/x", { headers: { apiKey: "a-key-of-the-web" } });
      expect(reply).toMatchObject({ status: 200, headers: expect.arrayContaining(["X-From", "s"]) as unknown });
      expect(scratch.found).toMatchObject({ kind: "route", upstreamPath: "/x" });
      expect(events).toEqual(["global cors", "service key_auth", "route rate_limit"]);
    },
  );

  it("the refusal of a plugin keeps the request from the plugins behind it", async () => {
    const { send, events } = scratchOf(oneService(9, { plugins: [KEY, LIMIT] }));
    expect(await send("/a/x")).toMatchObject({ status: 401, code: "key_missing" });
    expect(events).toEqual(["service key_auth"]);
  });

  it("requests without a route get the gateway's own error, and no plugin runs", async () => {
    const { send, events, scratch } = scratchOf(
      oneService(9, { plugins: [KEY], routes: [{ path: "/x", methods: ["GET"] }] }),
    );
    expect(await send("/b")).toMatchObject({ status: 404, code: "route_not_found" });
    expect(scratch.found).toEqual({ kind: "none" });
    expect(await send("/a/x", { method: "POST" })).toMatchObject({ status: 405, code: "method_not_allowed" });
    expect(await send("/a/../x%2e%2e/")).toMatchObject({ status: 400 });
    expect(scratch.found).toBeNull();
    expect(events).toEqual([]);
  });

  it("plugins that ask other servers get the answers of the scratch", async () => {
    const { send, events } = scratchOf(oneService(9, { plugins: [ASKS] }));
    expect(await send("/a/x")).toMatchObject({ status: 503, code: "auth_unavailable" });
    expect(events).toEqual(["service forward_auth", "forward_auth asks http://127.0.0.1:1/check"]);
    const answered = scratchOf(oneService(9, { plugins: [ASKS] }), { ask: () => Promise.resolve(answer(204)) });
    expect(await answered.send("/a/x")).toMatchObject({ status: 200 });
  });

  it(
    "limits and their clock belong to one scratch: they count over its requests, " + "and begin anew in the next one",
    async () => {
      const config = oneService(9, { plugins: [LIMIT] });
      const { send, clock } = scratchOf(config);
      expect([(await send("/a/x")).status, (await send("/a/x")).status]).toEqual([200, 429]);
      clock.advance(60_000);
      expect((await send("/a/x")).status).toBe(200);
      expect((await scratchOf(config).send("/a/x")).status).toBe(200);
    },
  );

  it("verified claims stand for a token whose signature is valid, and are checked like those of a token", async () => {
    const jwt = { name: "jwt", config: { alg: "HS256", secret: "a-secret-of-32-bytes-for-the-spec", aud: "orders" } };
    const config = oneService(9, { plugins: [jwt] });
    expect(await scratchOf(config).send("/a/x")).toMatchObject({ status: 401, code: "token_missing" });
    expect(await scratchOf(config, { verifiedClaims: { sub: "ada", aud: "orders" } }).send("/a/x")).toMatchObject({
      status: 200,
    });
    expect(await scratchOf(config, { verifiedClaims: { sub: "ada", aud: "other" } }).send("/a/x")).toMatchObject({
      status: 401,
      code: "token_invalid",
    });
    expect(await scratchOf(config, { verifiedClaims: { aud: "orders", exp: 1 } }).send("/a/x")).toMatchObject({
      status: 401,
      code: "token_expired",
    });
  });

  it("a CORS preflight goes to the route that it asks about where one of its plugins handles preflights", async () => {
    const cors = { name: "cors", config: { allow_origins: ["https://a.example"] } };
    const headers = { Origin: "https://a.example", "Access-Control-Request-Method": "POST" };
    const routes = [{ path: "/x", methods: ["POST" as const], plugins: [cors] }];
    const { send } = scratchOf(oneService(9, { routes }));
    expect((await send("/a/x", { method: "OPTIONS", headers })).status).toBe(204);
    expect(
      (
        await scratchOf(oneService(9, { routes: [{ path: "/x", methods: ["POST"] }] })).send("/a/x", {
          method: "OPTIONS",
          headers,
        })
      ).status,
    ).toBe(405);
  });

  it("a plugin that throws gets 500; what plugins hold is closed with the scratch", async () => {
    const events: string[] = [];
    const broken = definePlugin({
      name: "broken",
      schema: schema.object({}),
      create(_config, { keep }) {
        keep("thing", {}, () => ({ close: () => void events.push("closed") }));
        return () => () => {
          throw new Error("it is broken");
        };
      },
    });
    const tried = scratchOf(oneService(9, { plugins: [{ name: "broken" }] }), {}, [broken]);
    expect(await tried.send("/a/x")).toMatchObject({ status: 500, code: "internal" });
    expect(events).toEqual([]);
    tried.scratch.close();
    expect(events).toEqual(["closed"]);
  });
});
