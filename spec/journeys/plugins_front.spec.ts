/** Plugins for access, CORS, headers and compression, through a whole gateway. */
import { createHash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http2";
import type { Duplex } from "node:stream";
import { gunzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Open, h2Session, h2WebSocketSession } from "../support/h2_client.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, client, codeIn, gate, get, rawBackend, statusesIn } from "./harness.ts";

/** scrypt of "quick" with N = 1024, which takes a millisecond. */
const QUICK = "scrypt$1024$8$1$BwcHBwcHBwcHBwcHBwcHBw$Dj4MCJX6B5OKDIzJjNvQXdnTIySlUIIoys9kE_3K7cQ";
const basic = (user: string, password: string) => `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;

type Parts = NonNullable<Parameters<typeof oneService>[1]>;
type Global = NonNullable<AnyConfigInput["global"]>;

const withPlugins = (port: number, plugins: NonNullable<Parts["plugins"]>, parts: Parts = {}, global: Global = {}) =>
  oneService(port, { ...parts, plugins }, { h2c: true, ...global });

interface Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}
type Request = {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
};

/** One request over each protocol, one after the other. */
async function both(port: number, request: Request = {}): Promise<[Response, Response]> {
  const first = await ask(port, { path: "/a/x", ...request });
  const { stream, reply } = h2Open(h2Session(port), request, request.body === undefined);
  if (request.body !== undefined) stream.end(request.body);
  return [{ ...first, body: first.body.toString() }, await reply];
}

const outcome = ({ status, body }: Response) => `${status} ${codeIn(body) ?? body}`;
const outcomes = async (port: number, request?: Request) => (await both(port, request)).map(outcome);
const twice = (text: string) => [text, text];

/** The statuses of requests for a WebSocket, over HTTP/1.1 and HTTP/2. */
async function openWebSockets(port: number, headers: Record<string, string> = {}): Promise<string[]> {
  const connection = await client(port);
  connection.send(
    HANDSHAKE.replace(
      "\r\n\r\n",
      `\r\n${Object.entries(headers)
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join("")}\r\n`,
    ),
  );
  const first = (await connection.until("\r\n\r\n")).slice(9, 12);
  connection.socket.destroy();
  const session = await h2WebSocketSession(port);
  const { stream } = h2Open(
    session,
    { method: "CONNECT", headers: { ":protocol": "websocket", "sec-websocket-version": "13", ...headers } },
    false,
  );
  const status = await new Promise<number>((resolve) =>
    stream.on("response", (fields) => resolve(Number(fields[":status"]))),
  );
  stream.destroy();
  return [first, String(status)];
}

/** Accepts every WebSocket and keeps it open. */
async function socketBackend() {
  const origin = await backend();
  origin.server.on("upgrade", (request, socket: Duplex) => {
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => {});
    const accept = "Sec-WebSocket-Accept: " + acceptOf(request.headers["sec-websocket-key"]!);
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: ` +
        `Upgrade\r\n${accept}\r\nAccess-Control-Allow-Origin: kept\r\n\r\n`,
    );
  });
  return origin;
}

function acceptOf(key: string): string {
  return createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
}

const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
const post = (...lines: string[]) => ["POST /a/x HTTP/1.1", "Host: h", ...lines, "", ""].join("\r\n");

describe("basic_auth", () => {
  const plugin = {
    name: "basic_auth",
    config: { username: "ada", password: QUICK, users: [{ username: "bob", password: "plain" }] },
  };

  it("lets clients with the right password pass, over HTTP/1.1, HTTP/2 and for WebSockets", async () => {
    const origin = await socketBackend();
    const { port } = await running(withPlugins(origin.port, [plugin]));
    for (const [user, password, expected] of [
      ["ada", "quick", "200 ok"],
      ["bob", "plain", "200 ok"],
      ["ada", "plain", "401 credentials_invalid"],
    ] as const) {
      expect(await outcomes(port, { headers: { authorization: basic(user, password) } })).toEqual(twice(expected));
    }
    const refused = await both(port);
    expect(refused.map(outcome)).toEqual(twice("401 credentials_missing"));
    for (const { headers } of refused)
      expect(headers["www-authenticate"]).toBe('Basic realm="edge-gateway", charset="UTF-8"');
    expect(await openWebSockets(port, { authorization: basic("ada", "quick") })).toEqual(["101", "200"]);
    expect(await openWebSockets(port)).toEqual(twice("401"));
    expect(origin.seen).toHaveLength(4);
  });

  it(
    "identifies the caller for rate limits and the log, which hold no password, " + "and hides it from the upstream",
    async () => {
      const origin = await backend();
      const lines: string[] = [];
      const limit = { name: "rate_limit", config: { limit_hour: 2, limit_by: "credential" } };
      const config = withPlugins(origin.port, [
        { ...plugin, config: { ...plugin.config, hide_credentials: true } },
        limit,
      ]);
      const { port, gateway } = await running(config, { accessLog: (text) => void lines.push(text) });
      expect(await outcomes(port, { headers: { authorization: basic("ada", "quick") } })).toEqual(twice("200 ok"));
      await gateway.reload({ ...config, global: { h2c: true, name: "other" } });
      expect(await outcomes(port, { headers: { authorization: basic("ada", "quick") } })).toEqual(
        twice("429 rate_limited"),
      );
      expect(await outcomes(port, { headers: { authorization: basic("bob", "plain") } })).toEqual(twice("200 ok"));
      expect(origin.seen.flatMap(({ headers }) => headers.filter((name) => /^authorization$/i.test(name)))).toEqual([]);
      await eventually(() => lines.join("").trim().split("\n").length === 6, "the lines of the access log");
      const logged = lines
        .join("")
        .trim()
        .split("\n")
        .map((line) => (JSON.parse(line) as { caller: string }).caller);
      expect(logged).toEqual(["ada", "ada", "ada", "ada", "bob", "bob"]);
      expect(lines.join("")).not.toMatch(/quick|plain|Basic|QmFz/);
    },
  );
});

describe("acl", () => {
  it("uses the client's address, which only a trusted proxy can forward", async () => {
    const origin = await socketBackend();
    const only = (address: string) => [{ name: "acl", config: { whitelist: [address] } }];
    const from = (address: string) => ({ headers: { "x-forwarded-for": `203.0.113.1, ${address}` } });
    const { port, gateway } = await running(withPlugins(origin.port, only("198.51.100.0/24")));
    expect(await outcomes(port, from("198.51.100.7"))).toEqual(twice("403 forbidden"));
    expect(await openWebSockets(port)).toEqual(twice("403"));
    await gateway.reload(withPlugins(origin.port, only("198.51.100.0/24"), {}, { trusted_proxies: ["127.0.0.1"] }));
    expect(await outcomes(port, from("198.51.100.7"))).toEqual(twice("200 ok"));
    expect(await outcomes(port, from("::ffff:198.51.100.7"))).toEqual(twice("200 ok"));
    expect(await outcomes(port, from("198.51.101.7"))).toEqual(twice("403 forbidden"));
    await gateway.reload(withPlugins(origin.port, only("127.0.0.0/8")));
    expect(await outcomes(port)).toEqual(twice("200 ok"));
    expect(await openWebSockets(port)).toEqual(["101", "200"]);
  });
});

describe("bot_protection", () => {
  it("refuses clients whose User-Agent is listed, on every level", async () => {
    const origin = await socketBackend();
    const plugin = (part: string) => [{ name: "bot_protection", config: { blacklist: [part] } }];
    const routes = [{ path: "/{rest*}" }, { path: "/guarded", plugins: plugin("route-bot") }];
    const { port } = await running(
      withPlugins(origin.port, plugin("service-bot"), { routes }, { plugins: plugin("global-bot") }),
    );
    const as = (agent: string, path = "/a/x") => outcomes(port, { path, headers: { "user-agent": agent } });
    for (const agent of ["Global-Bot/1", "a service-bot"]) expect(await as(agent)).toEqual(twice("403 bot_detected"));
    expect(await as("route-bot")).toEqual(twice("200 ok"));
    expect(await as("route-bot", "/a/guarded")).toEqual(twice("403 bot_detected"));
    expect(await outcomes(port)).toEqual(twice("403 bot_detected"));
    expect(await openWebSockets(port, { "user-agent": "global-bot" })).toEqual(twice("403"));
    expect(await openWebSockets(port, { "user-agent": "a browser" })).toEqual(["101", "200"]);
  });
});

describe("request_size_limit", () => {
  const plugins = (most: number) => [{ name: "request_size_limit", config: { max_payload_size: most } }];
  /** An upstream that records the pieces of every body, and never answers. */
  async function gathering() {
    const got: string[] = [];
    const upstream = await rawBackend((request) => {
      request.on("error", () => {});
      request.on("data", (piece: Buffer) => got.push(piece.toString()));
    });
    return { upstream, got };
  }

  it("answers 413 to a longer Content-Length at once, without asking the upstream", async () => {
    const origin = await socketBackend();
    const { port } = await running(withPlugins(origin.port, plugins(10)));
    expect(await outcomes(port, { method: "POST", body: "0123456789", headers: { "content-length": "10" } })).toEqual(
      twice("200 ok"),
    );
    expect(await outcomes(port, { method: "POST", body: "01234567890", headers: { "content-length": "11" } })).toEqual(
      twice("413 body_too_large"),
    );
    expect(origin.seen).toHaveLength(2);
    expect(await openWebSockets(port)).toEqual(["101", "200"]);
  });

  it(
    "sends no 100 Continue to a client whose body is too long, " +
      "and keeps the connection of one that has sent it all",
    async () => {
      const origin = await backend();
      const { port } = await running(withPlugins(origin.port, plugins(10)));
      const first = await client(port);
      first.send(post("Content-Length: 11", "Expect: 100-continue"));
      expect(statusesIn(await first.closed())).toEqual([413]);
      const second = await client(port);
      second.send(post("Content-Length: 11") + "01234567890");
      await second.until('"code"');
      second.send(post("Transfer-Encoding: chunked") + chunk("01234567890") + "0\r\n\r\n");
      await eventually(() => statusesIn(second.text()).length === 2, "the second response");
      second.send(get());
      await second.until(/ok$/);
      expect(statusesIn(second.text())).toEqual([413, 413, 200]);
      expect(origin.seen.map(({ method }) => method)).toEqual(["GET"]);
    },
  );

  it("answers 413 when any other body passes the limit, and cancels the upstream request", async () => {
    const { upstream, got } = await gathering();
    const { port, gateway } = await running(withPlugins(upstream.port, plugins(10)));
    const connection = await client(port);
    connection.send(post("Transfer-Encoding: chunked") + chunk("fits"));
    await eventually(() => got.join("") === "fits", "the bytes 'fits'");
    connection.send(chunk("but not this"));
    expect(codeIn(await connection.until('"code"'))).toBe("body_too_large");
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
    const { stream, reply } = h2Open(h2Session(port), { method: "POST" }, false);
    stream.write("fits");
    await eventually(() => got.join("") === "fitsfits", "the bytes 'fitsfits'");
    stream.write("but not this");
    expect(outcome(await reply)).toBe("413 body_too_large");
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
    expect(got.join("")).toBe("fitsfits");
    connection.socket.destroy();
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
  });

  it("applies the smaller of its own limit and the gateway's, with retries and without", async () => {
    for (const [own, whole] of [
      [10, 1000],
      [1000, 10],
    ] as const) {
      for (const parts of [{}, { retries: { attempts: 2 } }]) {
        const { upstream, got } = await gathering();
        const { port } = await running(
          withPlugins(upstream.port, plugins(own), parts, { limits: { max_body_bytes: whole } }),
        );
        const connection = await client(port);
        connection.send(post("Transfer-Encoding: chunked") + chunk("fits"));
        await eventually(() => got.join("") === "fits", "the bytes 'fits'");
        connection.send(chunk("but not this"));
        expect(codeIn(await connection.until('"code"'))).toBe("body_too_large");
        await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
      }
    }
  });

  it("breaks off a reply in progress when the body passes the limit", async () => {
    const upstream = await rawBackend((request, response) => {
      request.on("error", () => {});
      response.on("error", () => {});
      response.write("begun");
    });
    const { port } = await running(withPlugins(upstream.port, plugins(10)));
    const connection = await client(port);
    connection.send(post("Transfer-Encoding: chunked") + chunk("fits"));
    await connection.until("begun");
    connection.send(chunk("but not this"));
    const received = await connection.closed();
    expect(statusesIn(received)).toEqual([200]);
    expect(received).not.toMatch(/0\r\n\r\n$/);
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
  });

  it.each<[string, Parts]>([
    ["with the plugin", { plugins: plugins(1e9) }],
    ["with retries too", { plugins: plugins(1e9), retries: { attempts: 2, max_replay_bytes: 1024 } }],
    ["without either", {}],
  ])("keeps neither connection nor stream when an upstream answers without reading the rest, %s", async (_, parts) => {
    const answering = gate();
    const upstream = await rawBackend((request, response) => {
      request.on("error", () => {});
      request.pause();
      void answering.opened.then(() => response.end("early"));
    });
    const { port, gateway } = await running(oneService(upstream.port, parts, { h2c: true }));
    const size = 600_000;
    const connection = await client(port);
    connection.send(post("Transfer-Encoding: chunked") + chunk("x".repeat(size)));
    const { stream, reply } = h2Open(h2Session(port), { method: "POST" }, false);
    stream.write("x".repeat(size));
    await eventually(
      () => gateway.inFlight === 2 && upstream.connections.open === 2,
      "two requests in flight and two connections to the upstream",
    );
    answering.open();
    await connection.until("early");
    connection.send("0\r\n\r\n");
    connection.send(get());
    await eventually(() => statusesIn(connection.text()).length === 2, "the second answer");
    expect(statusesIn(connection.text())).toEqual([200, 200]);
    expect((await reply).body).toBe("early");
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
  });
});

describe("request_termination", () => {
  it("answers in place of the upstream, and keeps the connection open", async () => {
    const origin = await backend();
    const config = { status: 503, body: "back soon\n", headers: { "Retry-After": "3600" } };
    const { port, gateway } = await running(withPlugins(origin.port, [{ name: "request_termination", config }]));
    for (const { status, headers, body } of await both(port)) {
      expect([status, headers["retry-after"], headers["content-type"], headers["content-length"], body]).toEqual([
        503,
        "3600",
        "text/plain; charset=utf-8",
        "10",
        "back soon\n",
      ]);
    }
    for (const { status, headers, body } of await both(port, { method: "HEAD" }))
      expect([status, headers["content-length"], body]).toEqual([503, "10", ""]);
    expect(await openWebSockets(port)).toEqual(twice("503"));
    const connection = await client(port);
    connection.send(post("Transfer-Encoding: chunked") + chunk("x".repeat(100_000)) + "0\r\n\r\n" + get());
    await eventually(() => statusesIn(connection.text()).length === 2, "the second answer");
    await gateway.reload(withPlugins(origin.port, [{ name: "request_termination", config: { status: 204 } }]));
    for (const { status, headers, body } of await both(port))
      expect([status, headers["content-length"], headers["content-type"], body]).toEqual([
        204,
        undefined,
        undefined,
        "",
      ]);
    await gateway.reload(withPlugins(origin.port, [{ name: "request_termination", enabled: false, config }]));
    expect(await outcomes(port)).toEqual(twice("200 ok"));
    expect(origin.seen).toHaveLength(2);
  });
});

describe("cors", () => {
  const APP = "https://app.example.com";
  const cors = (config: object = {}) => ({ name: "cors", config: { allow_origins: [APP], ...config } });
  const preflight = { origin: APP, "access-control-request-method": "PUT" };
  const auth = { name: "key_auth", config: { key: "k1" } };
  const origin = async () =>
    backend((_request, response) => {
      response.setHeader("Access-Control-Allow-Origin", "https://other.example");
      response.setHeader("Vary", "Accept-Encoding");
      response.end("ok");
    });

  it("answers the preflight of a route that does not list OPTIONS, whatever guards the route", async () => {
    const upstream = await origin();
    const routes = [{ path: "/x", methods: ["PUT"], plugins: [auth] }];
    const { port } = await running(
      withPlugins(upstream.port, [cors({ allow_credentials: true, max_age: 60 })], { routes }),
    );
    for (const { status, headers, body } of await both(port, { method: "OPTIONS", headers: preflight })) {
      expect([status, body]).toEqual([204, ""]);
      expect(headers).toMatchObject({
        "access-control-allow-origin": APP,
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": "GET, HEAD, QUERY, POST, PUT, PATCH, DELETE",
        "access-control-max-age": "60",
      });
    }
    for (const { status, headers } of await both(port, {
      method: "OPTIONS",
      headers: { ...preflight, origin: "https://evil.example" },
    })) {
      expect([status, Object.keys(headers).filter((name) => name.startsWith("access-control-"))]).toEqual([204, []]);
      expect(headers.vary).toMatch(/^Origin\b/);
    }
    expect(await outcomes(port, { method: "OPTIONS" })).toEqual(twice("405 method_not_allowed"));
    expect(upstream.seen).toEqual([]);
  });

  it("lets a page read the refusal of a plugin behind it, and replaces the upstream's CORS headers", async () => {
    const upstream = await origin();
    const { port } = await running(withPlugins(upstream.port, [cors(), auth]));
    for (const { status, headers, body } of await both(port, { headers: { origin: APP } })) {
      expect([status, codeIn(body), headers["access-control-allow-origin"], headers.vary]).toEqual([
        401,
        "key_missing",
        APP,
        "Origin",
      ]);
    }
    for (const { status, headers } of await both(port, { headers: { origin: APP, apikey: "k1" } })) {
      expect([status, headers["access-control-allow-origin"], headers.vary]).toEqual([
        200,
        APP,
        "Accept-Encoding, Origin",
      ]);
    }
    for (const { status, headers } of await both(port, { headers: { apikey: "k1" } })) {
      expect([status, headers["access-control-allow-origin"], headers.vary]).toEqual([
        200,
        undefined,
        "Accept-Encoding, Origin",
      ]);
    }
  });

  it.each<[string, Request, string]>([
    ["a path without a route", { path: "/b" }, "404 route_not_found"],
    ["a method that the path does not accept", { method: "DELETE" }, "405 method_not_allowed"],
    ["an ambiguous path", { path: "/a/%2e%2e/x" }, "400 path_ambiguous"],
    ["a long target", { path: `/a/x?${"x".repeat(9_000)}` }, "414 uri_too_long"],
    ["a body that is announced as too long", { method: "POST", body: "xxxx" }, "413 body_too_large"],
  ])("of all services lets a page read why the request was refused before a route was known: %s", async (...row) => {
    const [, request, outcome] = row;
    const upstream = await origin();
    const routes = [{ path: "/x", methods: ["GET", "POST"] }];
    const { port } = await running({
      ...oneService(upstream.port, { routes }),
      global: { h2c: true, limits: { max_body_bytes: 3, max_uri_bytes: 8_192 }, plugins: [cors()] },
    });
    for (const { status, headers, body } of await both(port, { ...request, headers: { origin: APP } })) {
      expect(`${status} ${codeIn(body)}`).toBe(outcome);
      expect([headers["access-control-allow-origin"], headers.vary]).toEqual([APP, "Origin"]);
    }
    for (const { headers } of await both(port, { ...request, headers: { origin: "https://evil.example" } }))
      expect([headers["access-control-allow-origin"], headers.vary]).toEqual([undefined, "Origin"]);
    // The request itself says why, then.
    const asking = { ...preflight, "access-control-request-method": "DELETE" };
    for (const { status } of await both(port, { ...request, method: "OPTIONS", body: undefined!, headers: asking }))
      expect(status).toBe(204);
  });

  it("of one service adds nothing to what is answered before a route is known", async () => {
    const { port } = await running(withPlugins((await origin()).port, [cors()]));
    for (const { status, headers } of await both(port, { path: "/b", headers: { origin: APP } }))
      expect([status, headers["access-control-allow-origin"]]).toEqual([404, undefined]);
  });

  it.each<[string, Record<string, unknown>, number, string]>([
    ["basic_auth", { username: "ada", password: QUICK }, 401, "credentials_missing"],
    ["jwt", { alg: "HS256", secret: "0123456789abcdef0123456789abcdef" }, 401, "token_missing"],
    ["mtls", {}, 401, "client_certificate_missing"],
    ["acl", { blacklist: ["127.0.0.1"] }, 403, "forbidden"],
    ["bot_protection", {}, 403, "bot_detected"],
    ["request_size_limit", { max_payload_size: 1 }, 413, "body_too_large"],
    ["request_termination", { status: 503 }, 503, ""],
  ])("in front of %s makes its refusal readable, and answers preflights itself", async (name, config, status, code) => {
    const upstream = await origin();
    const { port } = await running(withPlugins(upstream.port, [cors(), { name, config }]));
    const refused = { method: "POST", headers: { origin: APP, "content-length": "2" }, body: "ab" };
    for (const got of await both(port, refused)) {
      expect([
        got.status,
        codeIn(got.body) ?? got.body,
        got.headers["access-control-allow-origin"],
        got.headers.vary,
      ]).toEqual([status, code, APP, "Origin"]);
    }
    for (const got of await both(port, { method: "OPTIONS", headers: preflight }))
      expect([got.status, got.headers["access-control-allow-origin"]]).toEqual([204, APP]);
    expect(upstream.seen).toEqual([]);
  });

  it(
    "cors in front of request_size_limit makes the 413 readable for a body that turns out " +
      "too long while it streams",
    async () => {
      const { port } = await running(
        withPlugins((await origin()).port, [cors(), { name: "request_size_limit", config: { max_payload_size: 3 } }]),
      );
      const asking = { method: "POST", path: "/a/x", headers: { origin: APP } };
      const first = await ask(port, {
        ...asking,
        headers: { ...asking.headers, "transfer-encoding": "chunked" },
        body: "four",
      });
      const { stream, reply } = h2Open(h2Session(port), asking, false);
      stream.end("four");
      for (const { status, headers } of [first, await reply])
        expect([status, headers["access-control-allow-origin"]]).toEqual([413, APP]);
    },
  );

  it("lets the outer one decide when there are two", async () => {
    const upstream = await origin();
    const strict = [cors()];
    const open = [cors({ allow_origins: ["*"] })];
    const { port, gateway } = await running(withPlugins(upstream.port, open, {}, { plugins: strict }));
    const allowed = async (method: string) =>
      (await both(port, { method, headers: { ...preflight, origin: "https://else.example" } })).map(
        ({ headers }) => headers["access-control-allow-origin"],
      );
    for (const method of ["GET", "OPTIONS"]) expect(await allowed(method)).toEqual([undefined, undefined]);
    await gateway.reload(withPlugins(upstream.port, strict, {}, { plugins: open }));
    for (const method of ["GET", "OPTIONS"]) expect(await allowed(method)).toEqual(twice("*"));
  });

  it("cors behind the plugin that refuses makes neither the preflight nor the refusal readable", async () => {
    const { port } = await running(withPlugins((await origin()).port, [auth, cors()]));
    for (const { status, headers } of await both(port, { method: "OPTIONS", headers: preflight })) {
      expect([status, headers["access-control-allow-origin"]]).toEqual([401, undefined]);
    }
  });

  it(
    "sends preflights to the upstream with preflight_continue, on every level, " +
      "and makes the upstream's errors readable",
    async () => {
      const upstream = await origin();
      const plugin = cors({ preflight_continue: true });
      const config = withPlugins(upstream.port, [], { routes: [{ path: "/x", methods: ["PUT"], plugins: [plugin] }] });
      const { port, gateway } = await running(config);
      for (const next of [
        withPlugins(upstream.port, [plugin]),
        withPlugins(upstream.port, [], {}, { plugins: [plugin] }),
        config,
      ]) {
        await gateway.reload(next);
        for (const { status, headers, body } of await both(port, { method: "OPTIONS", headers: preflight })) {
          expect([status, headers["access-control-allow-origin"], body]).toEqual([200, APP, "ok"]);
        }
      }
      expect(upstream.seen.map(({ method }) => method)).toEqual(Array(6).fill("OPTIONS"));
      await upstream.close();
      for (const { status, headers } of await both(port, { method: "PUT", headers: { origin: APP } }))
        expect([status, headers["access-control-allow-origin"]]).toEqual([502, APP]);
    },
  );

  it("leaves WebSocket handshakes unchanged, from any origin", async () => {
    const { port } = await running(withPlugins((await socketBackend()).port, [cors()]));
    const headers = { origin: "https://evil.example" };
    expect(await openWebSockets(port, headers)).toEqual(["101", "200"]);
    const connection = await client(port);
    connection.send(HANDSHAKE);
    expect(await connection.until("\r\n\r\n")).toContain("Access-Control-Allow-Origin: kept");
  });
});

describe("redirect", () => {
  it("fills its location from the path, on every level, without asking the upstream", async () => {
    const origin = await backend();
    const to = (location: string) => [{ name: "redirect", config: { location } }];
    const routes = [
      { path: "/old/{id}", plugins: to("https://new.example/items/{id}?from=old") },
      { path: "/{rest*}" },
    ];
    const { port, gateway } = await running(withPlugins(origin.port, [], { routes }));
    const places = async (path: string) =>
      (await both(port, { method: "POST", path, body: "x" })).map(
        ({ status, headers, body }) => `${status} ${headers.location ?? body}`,
      );
    expect(await places("/a/old/a%20b?c=d")).toEqual(twice("308 https://new.example/items/a%20b?from=old&c=d"));
    expect(await places("/a/x")).toEqual(twice("200 ok"));
    await gateway.reload(withPlugins(origin.port, to("https://${request.host}${request.path}")));
    expect(await places("/a//evil.example?")).toEqual(twice("308 https://127.0.0.1/a/evil.example"));
    expect(await openWebSockets(port)).toEqual(twice("308"));
    const old = await client(port);
    old.send("GET /a/evil.example HTTP/1.0\r\n\r\n");
    const received = await old.closed();
    expect([statusesIn(received), codeIn(received)]).toEqual([[400], "bad_request"]);
    await gateway.reload(withPlugins(origin.port, [], {}, { plugins: to("/{rest}") }));
    expect(await places("/a//evil.example")).toEqual(twice("308 /evil.example"));
    expect(origin.seen).toHaveLength(2);
  });
});

describe("request_headers and response_headers", () => {
  const seenBy = (headers: readonly string[], name: string) =>
    headers.filter((_, i) => i % 2 === 1 && headers[i - 1]!.toLowerCase() === name);

  it(
    "request_headers and response_headers change requests and replies, level after level, " +
      "errors and WebSockets included",
    async () => {
      const origin = await socketBackend();
      const requestHeaders = {
        name: "request_headers",
        config: { set: { "X-User": "${caller.id}", "X-Rest": "{rest}" }, remove: ["Authorization"] },
      };
      const responseHeaders = (level: string) => ({
        name: "response_headers",
        config: { add: { "X-Level": level }, set: { "X-Last": level } },
      });
      const plugins = [
        { name: "basic_auth", config: { username: "ada", password: "p" } },
        requestHeaders,
        responseHeaders("service"),
      ];
      const routes = [{ path: "/{rest*}", plugins: [responseHeaders("route")] }];
      const { port } = await running(
        withPlugins(origin.port, plugins, { routes }, { plugins: [responseHeaders("global")] }),
      );
      const forged = { authorization: basic("ada", "p"), "x-user": "root", "x-rest": "/etc" };
      const [first, second] = [
        await ask(port, { path: "/a/x/y", headers: { ...forged, connection: "close, x-user" } }),
        await h2Open(h2Session(port), { path: "/a/x/y", headers: forged }, true).reply,
      ];
      for (const { status, headers } of [first, second])
        expect([status, headers["x-level"], headers["x-last"]]).toEqual([200, "route, service, global", "global"]);
      for (const { headers } of origin.seen)
        expect(["x-user", "x-rest", "authorization"].map((name) => seenBy(headers, name))).toEqual([
          ["ada"],
          ["x/y"],
          [],
        ]);
      expect(origin.seen).toHaveLength(2);
      for (const { status, headers } of await both(port)) expect([status, headers["x-level"]]).toEqual([401, "global"]);
      const connection = await client(port);
      connection.send(HANDSHAKE.replace("\r\n\r\n", `\r\nAuthorization: ${basic("ada", "p")}\r\n\r\n`));
      const opened = await connection.until("\r\n\r\n");
      expect([statusesIn(opened), /x-last: (\w+)/i.exec(opened)?.[1]]).toEqual([[101], "global"]);
      expect(await openWebSockets(port, { authorization: basic("ada", "p") })).toEqual(["101", "200"]);
    },
  );
});

describe("compress", () => {
  const TEXT = "a line of text that repeats itself\n".repeat(200);
  const ACCEPT = { "accept-encoding": "gzip" };
  const upstream = async () =>
    backend((request, response) => {
      response
        .setHeader("ETag", '"v1"')
        .setHeader("Content-Type", "text/plain")
        .setHeader("Cache-Control", "max-age=60");
      if (request.headers["if-none-match"] !== undefined) return void response.writeHead(304).end();
      if (request.url === "/broken") return void response.write(TEXT, () => response.destroy());
      response.setHeader("Content-Length", TEXT.length).end(request.method === "HEAD" ? undefined : TEXT);
    });

  /** Each body, decoded, after the name of its coding. */
  async function texts(port: number, headers: Record<string, string>): Promise<string[]> {
    const first = await ask(port, { path: "/a/x", headers });
    const second = await h2Ask(h2Session(port), { headers });
    const decoded = (body: Buffer, by: string | undefined) =>
      `${by ?? "plain"} ${(by === "gzip" ? gunzipSync(body) : body).toString()}`;
    return [
      decoded(first.body, first.headers["content-encoding"]),
      decoded(second.bytes, second.headers["content-encoding"]),
    ];
  }

  it(
    "compresses for clients that accept it, with the same headers for GET, HEAD and 304, " +
      "around a cache and inside it",
    async () => {
      const origin = await upstream();
      const pair = [{ name: "compress" }, { name: "response_cache" }];
      for (const plugins of [[{ name: "compress" }], pair, [...pair].reverse()]) {
        const { port } = await running(withPlugins(origin.port, plugins));
        for (let round = 0; round < 2; round++) {
          expect(await texts(port, ACCEPT)).toEqual(twice(`gzip ${TEXT}`));
          expect(await texts(port, {})).toEqual(twice(`plain ${TEXT}`));
          const got = (method: string, headers: Record<string, string>) =>
            both(port, { method, headers: { ...ACCEPT, ...headers } });
          for (const { status, headers } of await got("HEAD", {})) {
            expect([
              status,
              headers["content-encoding"],
              headers.etag,
              headers["content-length"] === String(TEXT.length),
              headers.vary,
            ]).toEqual([200, "gzip", 'W/"v1"', false, "Accept-Encoding"]);
          }
          for (const { status, headers } of await got("GET", { "if-none-match": 'W/"v1"' }))
            expect([status, headers.etag, headers.vary]).toEqual([304, 'W/"v1"', "Accept-Encoding"]);
        }
      }
    },
  );

  it("breaks off its reply when the upstream does, so that it never looks complete", async () => {
    const origin = await upstream();
    const { port, gateway } = await running(withPlugins(origin.port, [{ name: "compress" }]));
    await expect(ask(port, { path: "/a/broken", headers: ACCEPT })).rejects.toThrow();
    const { stream, reply } = h2Open(h2Session(port), { path: "/a/broken", headers: ACCEPT }, true);
    await reply;
    expect(stream.rstCode).not.toBe(0);
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
  });

  it("leaves WebSockets alone", async () => {
    const { port } = await running(
      withPlugins((await socketBackend()).port, [{ name: "compress", config: { min_bytes: 0 } }]),
    );
    expect(await openWebSockets(port, ACCEPT)).toEqual(["101", "200"]);
  });
});
