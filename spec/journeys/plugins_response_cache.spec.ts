import { createHmac } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { ClientHttp2Session } from "node:http2";
import { describe, expect, it, onTestFinished } from "vitest";
import { definePlugin, schema } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { rawOrigin } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { client, gate, get, PROTOCOLS, restartableBackend, speaking } from "./harness.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";

const CACHE = { name: "response_cache" };
const H2C = { h2c: true };

const MIB = 1024 * 1024;
const SECRET = "0123456789abcdef0123456789abcdef";

/** A token that names its owner in `name` and has no `sub`. */
function token(name: string): string {
  const signed = [{ alg: "HS256" }, { exp: 4_000_000_000, name }]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

function credentialsIn(headers: IncomingHttpHeaders): string {
  return String(headers.apikey ?? headers.cookie ?? headers["x-session"]);
}

interface Response {
  readonly status: number;
  readonly body: string;
  readonly cacheStatus: string;
}

async function overHttp1(port: number, headers: Record<string, string> = {}, method = "GET"): Promise<Response> {
  const {
    status,
    body,
    headers: got,
  } = await ask(port, { path: "/a/x", headers: { Host: "gw.example", ...headers }, method });
  return { status, body: body.toString(), cacheStatus: String(got["cache-status"]) };
}

async function overHttp2(
  session: ClientHttp2Session,
  headers: Record<string, string> = {},
  method = "GET",
): Promise<Response> {
  const reply = await h2Ask(session, { method, headers: { ":authority": "gw.example", ...headers } });
  return { status: reply.status, body: reply.body, cacheStatus: String(reply.headers["cache-status"]) };
}

describe("the plugin response_cache", () => {
  it.each(PROTOCOLS)(
    "the plugin response_cache stores responses of an upstream over %s and serves them over HTTP/1.1 and " +
      "HTTP/2: bodies, HEAD, 304, Age and validation",
    async (protocol) => {
      const clock = manualClock();
      const origin = await restartableBackend(protocol);
      origin.answer = (request, response) => {
        if (request.headers["if-none-match"] === '"1"')
          response.writeHead(304, { "cache-control": "max-age=60" }).end();
        else
          response
            .writeHead(200, { "cache-control": "max-age=60", etag: '"1"', "content-type": "text/plain" })
            .end("x".repeat(200_000));
      };
      const { port } = await running(oneService(origin.port, { ...speaking(protocol), plugins: [CACHE] }, H2C), {
        clock,
      });
      const session = h2Session(port);
      const first = await overHttp1(port);
      expect([first.body.length, first.cacheStatus]).toEqual([200_000, expect.stringContaining("fwd=uri-miss")]);
      clock.advance(20_000);
      expect(await overHttp2(session)).toEqual({
        status: 200,
        body: first.body,
        cacheStatus: expect.stringContaining("; hit; ttl=40;"),
      });
      expect(await overHttp1(port)).toEqual({
        status: 200,
        body: first.body,
        cacheStatus: expect.stringContaining("; hit; ttl=40;"),
      });
      for (const head of [await overHttp1(port, {}, "HEAD"), await overHttp2(session, {}, "HEAD")])
        expect(head).toMatchObject({ status: 200, body: "" });
      for (const same of [
        await overHttp1(port, { "If-None-Match": '"1"' }),
        await overHttp2(session, { "if-none-match": '"1"' }),
      ]) {
        expect(same).toMatchObject({ status: 304, body: "", cacheStatus: expect.stringContaining("hit") });
      }
      expect(origin.requests).toBe(1);
      clock.advance(50_000);
      expect((await overHttp2(session)).cacheStatus).toContain("fwd=stale; fwd-status=304");
      expect((await overHttp1(port)).cacheStatus).toContain("hit; ttl=60");
      expect(origin.requests).toBe(2);
    },
  );

  it.each(PROTOCOLS)(
    "the plugin response_cache serves ranges of a response of an upstream over %s, one or several, " +
      "over HTTP/1.1 and HTTP/2",
    async (protocol) => {
      const origin = await restartableBackend(protocol);
      const content = Array.from({ length: 50_000 }, (_each, i) => String(i % 10)).join("");
      origin.answer = (_request, response) =>
        void response.writeHead(200, { "cache-control": "max-age=60", etag: '"1"' }).end(content);
      const compress = { name: "compress" };
      const { port } = await running(
        oneService(origin.port, { ...speaking(protocol), plugins: [compress, CACHE] }, H2C),
      );
      const session = h2Session(port);
      await overHttp1(port);
      for (const get of [
        (headers: Record<string, string>) => overHttp1(port, headers),
        (headers: Record<string, string>) => overHttp2(session, headers),
      ]) {
        expect(await get({ range: "bytes=20005-40004", "accept-encoding": "gzip" })).toEqual({
          status: 206,
          body: content.slice(20_005, 40_005),
          cacheStatus: expect.stringContaining("; hit;"),
        });
        const several = await get({ range: "bytes=0-19999, -20000", "if-range": '"1"' });
        expect([several.status, several.body.split("\r\n\r\n").length]).toEqual([206, 3]);
        for (const part of [content.slice(0, 20_000), content.slice(-20_000)])
          expect(several.body).toContain(`\r\n\r\n${part}\r\n--`);
        expect(await get({ range: "bytes=50000-" })).toMatchObject({
          status: 416,
          body: expect.stringContaining("range_not_satisfiable"),
        });
        expect(await get({ range: "bytes=0-1", "if-range": '"0"' })).toMatchObject({ status: 200, body: content });
      }
      expect(origin.requests).toBe(1);
    },
  );

  it(
    "the plugin response_cache works at any level, behind authentication, " + "and keeps stored responses over reloads",
    async () => {
      const origin = await backend(
        (_request, response) => void response.writeHead(200, { "cache-control": "public, max-age=60" }).end("ok"),
      );
      const key = { name: "key_auth", config: { key: "k" } };
      const levels = [
        oneService(origin.port, {}, { plugins: [key, CACHE] }),
        oneService(origin.port, { plugins: [key, CACHE] }),
        oneService(origin.port, { routes: [{ path: "/{rest*}", plugins: [key, CACHE] }] }),
      ];
      for (const config of levels) {
        const before = origin.seen.length;
        const { gateway, port } = await running(config);
        await overHttp1(port, { apiKey: "k" });
        expect((await overHttp1(port, { apiKey: "k" })).cacheStatus).toContain("; hit;");
        expect((await overHttp1(port)).status).toBe(401);
        await gateway.reload({ ...config, global: { ...config.global, name: "other" } });
        expect((await overHttp1(port, { apiKey: "k" })).cacheStatus).toMatch(/^other; hit;/);
        expect(origin.seen.length).toBe(before + 1);
      }
    },
  );

  it(
    "the plugin response_cache drops what a request has changed that a reload with another max_bytes or " +
      "default_ttl_s found on its way",
    async () => {
      const [arrived, held] = [gate(), gate()];
      let version = 1;
      const origin = await backend(async (request, response) => {
        if (request.method === "POST") {
          arrived.open();
          await held.opened;
          version++;
        }
        response.writeHead(200, { "cache-control": "max-age=60" }).end(String(version));
      });
      const withTtl = (seconds: number) =>
        oneService(origin.port, { plugins: [{ ...CACHE, config: { default_ttl_s: seconds } }] });
      const { gateway, port } = await running(withTtl(1));
      const change = overHttp1(port, {}, "POST");
      await arrived.opened;
      await gateway.reload(withTtl(2));
      expect((await overHttp1(port)).body).toBe("1");
      held.open();
      await change;
      expect((await overHttp1(port)).body).toBe("2");
    },
  );

  it.each<[string, { name: string; config?: object }, (who: string) => Record<string, string>]>([
    [
      "key_auth",
      {
        name: "key_auth",
        config: {
          keys: [
            { id: "ann", key: "k-ann" },
            { id: "bob", key: "k-bob" },
          ],
        },
      },
      (who) => ({ apiKey: `k-${who}` }),
    ],
    [
      "jwt in a cookie, without sub",
      { name: "jwt", config: { alg: "HS256", secret: SECRET, from: "cookie:t" } },
      (who) => ({ Cookie: `t=${token(who)}` }),
    ],
    ["forward_auth by a cookie", { name: "forward_auth" }, (who) => ({ Cookie: `session=${who}` })],
    [
      "forward_auth that identifies the caller",
      { name: "forward_auth", config: { request_headers: ["X-Session"], response_headers: ["X-User"] } },
      (who) => ({ "X-Session": who }),
    ],
  ])(
    "never serves one caller the response of another: %s, outside and inside the cache",
    async (_title, kind, credentials) => {
      const authServer = await backend(
        (request, response) =>
          void response
            .writeHead(credentialsIn(request.headers) === "undefined" ? 401 : 204, { "X-User": "somebody" })
            .end(),
      );
      const auth =
        kind.name === "forward_auth"
          ? { ...kind, config: { url: `http://127.0.0.1:${authServer.port}/`, ...kind.config } }
          : kind;
      const origin = await backend(
        (request, response) =>
          void response.writeHead(200, { "cache-control": "max-age=60" }).end(`for ${credentialsIn(request.headers)}`),
      );
      for (const plugins of [
        [auth, CACHE],
        [CACHE, auth],
      ]) {
        const { port } = await running(oneService(origin.port, { plugins }));
        for (const who of ["ann", "bob"])
          expect((await overHttp1(port, credentials(who))).body).toBe(`for ${Object.values(credentials(who))[0]}`);
        expect((await overHttp1(port)).status).toBe(401);
        expect((await overHttp1(port, credentials("ann"))).cacheStatus).not.toContain("hit");
      }
    },
  );

  it(
    "the plugin response_cache never stores a reply with Set-Cookie, not even a public one, " +
      "so no client gets the session of another",
    async () => {
      const origin = await backend(
        (_request, response) =>
          void response
            .writeHead(200, { "cache-control": "public, max-age=60", "set-cookie": `session=${origin.seen.length}` })
            .end("ok"),
      );
      const { port } = await running(oneService(origin.port, { plugins: [CACHE] }));
      const sessions = [];
      for (let i = 0; i < 3; i++) sessions.push((await ask(port, { path: "/a/x" })).headers["set-cookie"]);
      expect(sessions).toEqual([["session=1"], ["session=2"], ["session=3"]]);
    },
  );

  it("the plugin response_cache lets WebSockets, uploads and unsafe requests pass", async () => {
    const origin = await backend(
      (_request, response, body) => void response.writeHead(200, { "cache-control": "max-age=60" }).end(`got ${body}`),
    );
    origin.server.on("upgrade", (_request, socket) => {
      socket.on("error", () => {});
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
      socket.pipe(socket);
    });
    const { port } = await running(oneService(origin.port, { plugins: [CACHE] }));
    const websocket = await client(port);
    websocket.send(HANDSHAKE.replace(/^GET \S+/, "GET /a/x"));
    await websocket.until(/101 [^]*\r\n\r\n/);
    websocket.send("echo");
    await websocket.until("echo");
    await overHttp1(port);
    expect(
      (await ask(port, { path: "/a/x", method: "PUT", body: "new", headers: { Host: "gw.example" } })).body.toString(),
    ).toBe("got new");
    expect((await overHttp1(port)).cacheStatus).toContain("uri-miss");
  });

  it(
    "the plugin response_cache fetches once for many clients, streams to the first one, " +
      "and continues when that one disconnects",
    async () => {
      const [head, rest] = [gate(), gate()];
      let requests = 0;
      const origin = await rawOrigin(async (_request, response) => {
        requests++;
        await head.opened;
        response.writeHead(200, { "cache-control": "max-age=60" });
        response.write("first, ");
        await rest.opened;
        response.end("then the rest");
      });
      onTestFinished(() => origin.close());
      let arrived = 0;
      const counting = definePlugin({
        name: "counting",
        schema: schema.object({}),
        create: () => (next) => (exchange) => {
          arrived++;
          return next(exchange);
        },
      });
      const { port } = await running(oneService(origin.port, { plugins: [{ name: "counting" }, CACHE] }, H2C), {
        plugins: [counting],
      });
      const leaving = await client(port);
      leaving.send(get());
      await eventually(() => requests === 1, "the first request");
      const session = h2Session(port);
      const others = [overHttp1(port), overHttp2(session), overHttp2(session)];
      head.open();
      await leaving.until("first, ");
      await eventually(() => arrived === 4, "the other requests");
      leaving.socket.destroy();
      rest.open();
      for (const got of await Promise.all(others))
        expect(got).toMatchObject({ status: 200, body: "first, then the rest" });
      expect(requests).toBe(1);
    },
  );

  it(
    "the plugin response_cache does not store a response that breaks off, " +
      "and the client sees that it is incomplete",
    async () => {
      let requests = 0;
      const origin = await rawOrigin((_request, response) => {
        requests++;
        response.writeHead(200, { "cache-control": "max-age=60" });
        if (requests > 1) return void response.end("whole");
        response.write("half", () => response.destroy());
      });
      onTestFinished(() => origin.close());
      const { port } = await running(oneService(origin.port, { plugins: [CACHE] }, H2C));
      await expect(overHttp1(port)).rejects.toThrow();
      expect((await overHttp2(h2Session(port))).body).toBe("whole");
      expect((await overHttp1(port)).body).toBe("whole");
      expect(requests).toBe(2);
    },
  );

  it("the plugin response_cache cuts off a client that stops reading a stored response", async () => {
    const clock = manualClock();
    const origin = await rawOrigin((_request, response) => {
      response.writeHead(200, { "cache-control": "max-age=60" });
      // Of no stated length, and more than sockets take.
      response.end(Buffer.alloc(16 * MIB));
    });
    onTestFinished(() => origin.close());
    const { gateway, port } = await running(
      oneService(origin.port, { plugins: [{ ...CACHE, config: { max_object_bytes: 20 * MIB } }] }),
      { clock },
    );
    const stalled = await client(port);
    stalled.socket.pause();
    stalled.send(get());
    for (let cacheStatus = ""; !cacheStatus.includes("hit");) ({ cacheStatus } = await overHttp1(port, {}, "HEAD"));
    expect(gateway.inFlight).toBe(1);
    clock.advance(60_000);
    await eventually(() => gateway.inFlight === 0, "the end of the request");
  });

  it(
    "the plugin response_cache serves a stale response when the upstream is down " + "and the response allows it",
    async () => {
      const clock = manualClock();
      const origin = await restartableBackend();
      origin.answer = (_request, response) =>
        void response.writeHead(200, { "cache-control": "max-age=1, stale-if-error=600" }).end("kept");
      const { port } = await running(oneService(origin.port, { plugins: [CACHE] }, H2C), { clock });
      await overHttp1(port);
      await origin.kill();
      clock.advance(5_000);
      expect(await overHttp1(port)).toMatchObject({
        status: 200,
        body: "kept",
        cacheStatus: expect.stringContaining("stale-if-error"),
      });
      expect(await overHttp2(h2Session(port))).toMatchObject({ status: 200, body: "kept" });
    },
  );
});
