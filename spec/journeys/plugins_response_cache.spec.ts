import { createHmac } from "node:crypto";
import { once } from "node:events";
import type { IncomingHttpHeaders } from "node:http";
import http2, { type ClientHttp2Session } from "node:http2";
import { describe, expect, it, onTestFinished } from "vitest";
import { definePlugin, schema } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { rawOrigin } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { client, gate, get, PROTOCOLS, mortalBackend, speaking } from "./harness.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";

const CACHE = { name: "response_cache" };
const H2C = { h2c: true };

const MIB = 1024 * 1024;
const SECRET = "0123456789abcdef0123456789abcdef";

/** Says whose it is, but not in `sub`. */
function token(name: string): string {
  const signed = [{ alg: "HS256" }, { exp: 4_000_000_000, name }].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

function credentialsIn(headers: IncomingHttpHeaders): string {
  return String(headers.apikey ?? headers.cookie ?? headers["x-session"]);
}

interface Got {
  readonly status: number;
  readonly body: string;
  readonly told: string;
}

async function over1(port: number, headers: Record<string, string> = {}, method = "GET"): Promise<Got> {
  const { status, body, headers: got } = await ask(port, { path: "/a/x", headers: { Host: "gw.example", ...headers }, method });
  return { status, body: body.toString(), told: String(got["cache-status"]) };
}

async function session(port: number): Promise<ClientHttp2Session> {
  const opened = http2.connect(`http://127.0.0.1:${port}`);
  opened.on("error", () => {});
  onTestFinished(() => opened.destroy());
  await once(opened, "connect");
  return opened;
}

function over2(opened: ClientHttp2Session, headers: Record<string, string> = {}, method = "GET"): Promise<Got> {
  return new Promise((resolve, reject) => {
    const stream = opened.request({ ":path": "/a/x", ":authority": "gw.example", ":method": method, ...headers });
    let [status, told, text] = [0, "", ""];
    stream.on("response", (fields) => {
      status = fields[":status"]!;
      told = String(fields["cache-status"]);
    });
    stream.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
    stream.on("error", reject).on("close", () => resolve({ status, body: text, told }));
  });
}

describe("the plugin response_cache", () => {
  it.each(PROTOCOLS)("stores what comes over %s, and answers HTTP/1.1 and HTTP/2 with it: bodies, HEAD, 304, Age, validation", async (protocol) => {
    const clock = manualClock();
    const origin = await mortalBackend(protocol);
    origin.answer = (request, response) => {
      if (request.headers["if-none-match"] === '"1"') response.writeHead(304, { "cache-control": "max-age=60" }).end();
      else response.writeHead(200, { "cache-control": "max-age=60", etag: '"1"', "content-type": "text/plain" }).end("x".repeat(200_000));
    };
    const { port } = await running(oneService(origin.port, { ...speaking(protocol), plugins: [CACHE] }, H2C), { clock });
    const opened = await session(port);
    const first = await over1(port);
    expect([first.body.length, first.told]).toEqual([200_000, expect.stringContaining("fwd=uri-miss")]);
    clock.advance(20_000);
    expect(await over2(opened)).toEqual({ status: 200, body: first.body, told: expect.stringContaining("; hit; ttl=40;") });
    expect(await over1(port)).toEqual({ status: 200, body: first.body, told: expect.stringContaining("; hit; ttl=40;") });
    for (const head of [await over1(port, {}, "HEAD"), await over2(opened, {}, "HEAD")]) expect(head).toMatchObject({ status: 200, body: "" });
    for (const same of [await over1(port, { "If-None-Match": '"1"' }), await over2(opened, { "if-none-match": '"1"' })]) {
      expect(same).toMatchObject({ status: 304, body: "", told: expect.stringContaining("hit") });
    }
    expect(origin.requests).toBe(1);
    clock.advance(50_000);
    expect((await over2(opened)).told).toContain("fwd=stale; fwd-status=304");
    expect((await over1(port)).told).toContain("hit; ttl=60");
    expect(origin.requests).toBe(2);
  });

  it("stands at any level, behind authentication, and what it stores stays over reloads", async () => {
    const origin = await backend((_request, response) => void response.writeHead(200, { "cache-control": "public, max-age=60" }).end("ok"));
    const key = { name: "key_auth", config: { key: "k" } };
    const levels = [
      oneService(origin.port, {}, { plugins: [key, CACHE] }),
      oneService(origin.port, { plugins: [key, CACHE] }),
      oneService(origin.port, { routes: [{ path: "/{rest*}", plugins: [key, CACHE] }] }),
    ];
    for (const config of levels) {
      const before = origin.seen.length;
      const { gateway, port } = await running(config);
      await over1(port, { apiKey: "k" });
      expect((await over1(port, { apiKey: "k" })).told).toContain("; hit;");
      expect((await over1(port)).status).toBe(401);
      gateway.reload({ ...config, global: { ...config.global, name: "other" } });
      expect((await over1(port, { apiKey: "k" })).told).toMatch(/^other; hit;/);
      expect(origin.seen.length).toBe(before + 1);
    }
  });

  it.each<[string, { name: string; config?: object }, (who: string) => Record<string, string>]>([
    ["key_auth", { name: "key_auth", config: { keys: [{ id: "ann", key: "k-ann" }, { id: "bob", key: "k-bob" }] } }, (who) => ({ apiKey: `k-${who}` })],
    ["jwt in a cookie, without sub", { name: "jwt", config: { alg: "HS256", secret: SECRET, from: "cookie:t" } }, (who) => ({ Cookie: `t=${token(who)}` })],
    ["forward_auth by a cookie", { name: "forward_auth" }, (who) => ({ Cookie: `session=${who}` })],
    ["forward_auth that tells who it is", { name: "forward_auth", config: { request_headers: ["X-Session"], response_headers: ["X-User"] } }, (who) => ({ "X-Session": who })],
  ])("never gives one caller what another got: %s, further out and further in", async (_title, kind, credentials) => {
    const judge = await backend((request, response) => void response.writeHead(credentialsIn(request.headers) === "undefined" ? 401 : 204, { "X-User": "somebody" }).end());
    const auth = kind.name === "forward_auth" ? { ...kind, config: { url: `http://127.0.0.1:${judge.port}/`, ...kind.config } } : kind;
    const origin = await backend((request, response) => void response.writeHead(200, { "cache-control": "max-age=60" }).end(`for ${credentialsIn(request.headers)}`));
    for (const plugins of [[auth, CACHE], [CACHE, auth]]) {
      const { port } = await running(oneService(origin.port, { plugins }));
      for (const who of ["ann", "bob"]) expect((await over1(port, credentials(who))).body).toBe(`for ${Object.values(credentials(who))[0]}`);
      expect((await over1(port)).status).toBe(401);
      expect((await over1(port, credentials("ann"))).told).not.toContain("hit");
    }
  });

  it("never stores a reply with Set-Cookie, not even a public one, and so gives no client the session of another", async () => {
    const origin = await backend((_request, response) => void response.writeHead(200, { "cache-control": "public, max-age=60", "set-cookie": `session=${origin.seen.length}` }).end("ok"));
    const { port } = await running(oneService(origin.port, { plugins: [CACHE] }));
    const sessions = [];
    for (let i = 0; i < 3; i++) sessions.push((await ask(port, { path: "/a/x" })).headers["set-cookie"]);
    expect(sessions).toEqual([["session=1"], ["session=2"], ["session=3"]]);
  });

  it("lets WebSockets, uploads and changes pass", async () => {
    const origin = await backend((_request, response, body) => void response.writeHead(200, { "cache-control": "max-age=60" }).end(`got ${body}`));
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
    await over1(port);
    expect((await ask(port, { path: "/a/x", method: "PUT", body: "new", headers: { Host: "gw.example" } })).body.toString()).toBe("got new");
    expect((await over1(port)).told).toContain("uri-miss");
  });

  it("asks once for many clients, streams to the first one, and goes on when that one leaves", async () => {
    const [head, rest] = [gate(), gate()];
    let asked = 0;
    const origin = await rawOrigin(async (_request, response) => {
      asked++;
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
    const { port } = await running(oneService(origin.port, { plugins: [{ name: "counting" }, CACHE] }, H2C), { plugins: [counting] });
    const leaving = await client(port);
    leaving.send(get());
    await eventually(() => asked === 1, "the first request");
    const opened = await session(port);
    const others = [over1(port), over2(opened), over2(opened)];
    head.open();
    await leaving.until("first, ");
    await eventually(() => arrived === 4, "the other requests");
    leaving.socket.destroy();
    rest.open();
    for (const got of await Promise.all(others)) expect(got).toMatchObject({ status: 200, body: "first, then the rest" });
    expect(asked).toBe(1);
  });

  it("does not store what breaks off; the client sees that it is not whole", async () => {
    let asked = 0;
    const origin = await rawOrigin((_request, response) => {
      asked++;
      response.writeHead(200, { "cache-control": "max-age=60" });
      if (asked > 1) return void response.end("whole");
      response.write("half", () => response.destroy());
    });
    onTestFinished(() => origin.close());
    const { port } = await running(oneService(origin.port, { plugins: [CACHE] }, H2C));
    await expect(over1(port)).rejects.toThrow();
    expect((await over2(await session(port))).body).toBe("whole");
    expect((await over1(port)).body).toBe("whole");
    expect(asked).toBe(2);
  });

  it("cuts off a client that stops reading what has come long since", async () => {
    const clock = manualClock();
    const origin = await rawOrigin((_request, response) => {
      response.writeHead(200, { "cache-control": "max-age=60" });
      // Of no stated length, and more than sockets take.
      response.end(Buffer.alloc(16 * MIB));
    });
    onTestFinished(() => origin.close());
    const { gateway, port } = await running(oneService(origin.port, { plugins: [{ ...CACHE, config: { max_object_bytes: 20 * MIB } }] }), { clock });
    const stalled = await client(port);
    stalled.socket.pause();
    stalled.send(get());
    for (let told = ""; !told.includes("hit"); ) ({ told } = await over1(port, {}, "HEAD"));
    expect(gateway.inFlight).toBe(1);
    clock.advance(60_000);
    await eventually(() => gateway.inFlight === 0, "the end of the request");
  });

  it("stands in for an upstream that is gone, where it may", async () => {
    const clock = manualClock();
    const origin = await mortalBackend();
    origin.answer = (_request, response) => void response.writeHead(200, { "cache-control": "max-age=1, stale-if-error=600" }).end("kept");
    const { port } = await running(oneService(origin.port, { plugins: [CACHE] }, H2C), { clock });
    await over1(port);
    await origin.kill();
    clock.advance(5_000);
    expect(await over1(port)).toMatchObject({ status: 200, body: "kept", told: expect.stringContaining("stale-if-error") });
    expect(await over2(await session(port))).toMatchObject({ status: 200, body: "kept" });
  });
});
