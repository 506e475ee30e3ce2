import { createHmac, generateKeyPairSync, sign } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http2 from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Open, h2Session } from "../support/h2_client.ts";
import type { Origin } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, gate, rawBackend, recordedLog } from "./harness.ts";

interface Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

type Send = (port: number, path: string, headers?: Readonly<Record<string, string>>) => Promise<Response>;

const overHttp1: Send = async (port, path, headers = {}) => {
  const response = await ask(port, { path, headers });
  return { ...response, body: response.body.toString() };
};

const overHttp2: Send = async (port, path, headers = {}) => {
  const session = h2Session(port);
  const reply = await h2Ask(session, { path, headers });
  session.close();
  return reply;
};

const CLIENTS: readonly (readonly [string, Send])[] = [
  ["HTTP/1.1", overHttp1],
  ["HTTP/2", overHttp2],
];
const H2C = { h2c: true };

const SECRET = "a secret of at least thirty-two bytes";
const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
const inAnHour = () => Math.floor(Date.now() / 1000) + 3_600;

function token(claims: object = {}, secret = SECRET): string {
  const text = `${encode({ alg: "HS256" })}.${encode({ sub: "ann", exp: inAnHour(), ...claims })}`;
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}

const bearer = (text = token()) => ({ authorization: `Bearer ${text}` });
const valuesOf = (origin: Origin, name: string) =>
  origin.seen.map(({ headers }) => headers.filter((_text, i) => i % 2 === 1 && headers[i - 1]!.toLowerCase() === name));

/** A backend that accepts WebSockets and records the heads of their requests. */
async function webSocketBackend() {
  const heads: string[] = [];
  const made = await byteBackend((socket) => {
    socket.once("data", (chunk: Buffer) => {
      heads.push(chunk.toString("latin1"));
      const accept =
        /sec-websocket-key: (\S+)/i.exec(heads.at(-1)!)![1] === "dGhlIHNhbXBsZSBub25jZQ=="
          ? "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
          : "";
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ` +
          `websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
      );
    });
  });
  return { port: made.port, heads };
}

const handshake = (...lines: string[]) =>
  HANDSHAKE.replace("\r\n\r\n", "\r\n" + lines.map((line) => line + "\r\n").join("") + "\r\n");

describe("jwt", () => {
  const JWT = { name: "jwt", config: { alg: "HS256", secret: SECRET, claims_to_headers: { sub: "X-User" } } };

  it.each(CLIENTS)(
    "jwt over %s lets valid tokens pass, adds their claims to the request, and refuses others with a challenge",
    async (_protocol, send) => {
      const origin = await backend();
      const lines: string[] = [];
      const { port } = await running(oneService(origin.port, { plugins: [JWT] }, H2C), {
        accessLog: (text) => void lines.push(text),
      });
      expect((await send(port, "/a/x", { ...bearer(), "x-user": "root" })).status).toBe(200);
      expect(valuesOf(origin, "x-user")).toEqual([["ann"]]);
      const none = await send(port, "/a/x");
      expect([none.status, codeIn(none.body), none.headers["www-authenticate"]]).toEqual([
        401,
        "token_missing",
        'Bearer realm="edge-gateway"',
      ]);
      const expired = await send(port, "/a/x", bearer(token({ exp: 1 })));
      expect([expired.status, codeIn(expired.body)]).toEqual([401, "token_expired"]);
      expect(expired.headers["www-authenticate"]).toBe(
        'Bearer realm="edge-gateway", error="invalid_token", error_description="The access token has expired."',
      );
      expect(origin.seen).toHaveLength(1);
      await eventually(() => lines.join("").split("\n").length === 4, "the lines of the access log");
      expect(lines.join("")).toContain('"caller":"ann"');
    },
  );

  it("guards WebSockets with tokens from headers, cookies and the query", async () => {
    const origin = await webSocketBackend();
    const config = { ...JWT.config, from: ["header", "cookie:t", "query:t"] };
    const { port } = await running(oneService(origin.port, { plugins: [{ name: "jwt", config }] }));
    const refused = await client(port);
    refused.send(HANDSHAKE);
    expect(codeIn(await refused.closed())).toBe("token_missing");
    const opened = await client(port);
    opened.send(handshake(`Cookie: t=${token()}`, "X-User: root"));
    expect(await opened.until("\r\n\r\n")).toMatch(/^HTTP\/1\.1 101 /);
    expect(origin.heads).toHaveLength(1);
    expect(origin.heads[0]!.match(/x-user: .*/gi)).toEqual(["X-User: ann"]);
  });

  it("keeps the header that it has set when the client names it in Connection", async () => {
    const origin = await backend();
    const { port } = await running(oneService(origin.port, { plugins: [JWT] }));
    await overHttp1(port, "/a/x", { ...bearer(), Connection: "close, X-User" });
    expect(valuesOf(origin, "x-user")).toEqual([["ann"]]);
  });

  it(
    "drops the header that it sets from trailers, over HTTP/1.1 and HTTP/2, " + "and lets other trailers pass",
    async () => {
      const origin = await backend();
      const { port } = await running(oneService(origin.port, { plugins: [JWT] }, H2C));
      const one = await client(port);
      one.send(
        `POST /a/x HTTP/1.1\r\nHost: gw\r\nConnection: close\r\nAuthorization: ` +
          `Bearer ${token()}\r\nTransfer-Encoding: chunked\r\n\r\n`,
      );
      one.send("1\r\na\r\n0\r\nX-User: root\r\nx_user: root\r\nX-Sum: 1\r\n\r\n");
      await one.closed();
      await h2Ask(h2Session(port), {
        method: "POST",
        headers: bearer(),
        body: "a",
        trailers: { "x-user": "root", "x-sum": "1" },
      });
      expect(origin.seen.map(({ trailers }) => trailers)).toEqual([
        ["X-Sum", "1"],
        ["x-sum", "1"],
      ]);
    },
  );

  it("works at every level, and rate_limit counts its sub as the caller", async () => {
    const origin = await backend();
    const limit = { name: "rate_limit", config: { limit_hour: 1, limit_by: "credential" } };
    const strict = { name: "jwt", config: { alg: "HS256", secret: SECRET, claims: { role: "admin" } } };
    const config = oneService(
      origin.port,
      { plugins: [limit], routes: [{ path: "/open" }, { path: "/admin", plugins: [strict] }] },
      { plugins: [JWT] },
    );
    const { port } = await running(config);
    expect((await overHttp1(port, "/a/open", bearer())).status).toBe(200);
    expect((await overHttp1(port, "/a/open", bearer())).status).toBe(429);
    expect((await overHttp1(port, "/a/admin", bearer(token({ sub: "bob" })))).status).toBe(401);
    expect((await overHttp1(port, "/a/admin", bearer(token({ sub: "eve", role: "admin" })))).status).toBe(200);
  });

  it("uses the new secret and the new content of jwks_file after a reload", async () => {
    const origin = await backend();
    const folder = mkdtempSync(join(tmpdir(), "edge-gateway-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "keys.json");
    const [old, fresh] = [generateKeyPairSync("ed25519"), generateKeyPairSync("ed25519")];
    const write = (pair: typeof old) =>
      writeFileSync(file, JSON.stringify({ keys: [pair.publicKey.export({ format: "jwk" })] }));
    const signedBy = (pair: typeof old) => {
      const text = `${encode({ alg: "EdDSA" })}.${encode({ exp: inAnHour() })}`;
      return `${text}.${sign(null, Buffer.from(text), pair.privateKey).toString("base64url")}`;
    };
    write(old);
    const { gateway, port } = await running(
      oneService(origin.port, { plugins: [{ name: "jwt", config: { alg: "EdDSA", jwks_file: file } }] }),
    );
    expect((await overHttp1(port, "/a/x", bearer(signedBy(old)))).status).toBe(200);
    write(fresh);
    await gateway.reload();
    expect((await overHttp1(port, "/a/x", bearer(signedBy(old)))).status).toBe(401);
    expect((await overHttp1(port, "/a/x", bearer(signedBy(fresh)))).status).toBe(200);
    await gateway.reload(oneService(origin.port, { plugins: [JWT] }));
    expect((await overHttp1(port, "/a/x", bearer())).status).toBe(200);
  });

  it("keeps the keys of a jwks_uri over reloads, and fetches none before the first request", async () => {
    const origin = await backend();
    const pair = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const issuer = await backend(
      (_request, response) => void response.end(JSON.stringify({ keys: [pair.publicKey.export({ format: "jwk" })] })),
    );
    const text = `${encode({ alg: "ES256" })}.${encode({ exp: inAnHour() })}`;
    const signed =
      `${text}.` +
      `${sign("sha256", Buffer.from(text), { key: pair.privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
    const config = (leeway_s: number) =>
      oneService(origin.port, {
        plugins: [{ name: "jwt", config: { alg: "ES256", jwks_uri: `http://127.0.0.1:${issuer.port}/`, leeway_s } }],
      });
    const { gateway, port } = await running(config(1));
    await gateway.reload(config(2));
    expect(issuer.connections.total).toBe(0);
    expect((await overHttp1(port, "/a/x", bearer(signed))).status).toBe(200);
    await gateway.reload(config(3));
    expect((await overHttp1(port, "/a/x", bearer(signed))).status).toBe(200);
    expect(issuer.seen).toHaveLength(1);
    await gateway.close(0);
    await eventually(() => issuer.connections.open === 0, "the connections to the issuer closing");
  });
});

describe("forward_auth", () => {
  const plugin = (port: number, config: object = {}) => ({
    name: "forward_auth",
    config: { url: `http://127.0.0.1:${port}/check`, response_headers: ["X-User"], timeout_ms: 60_000, ...config },
  });

  it.each(CLIENTS)(
    "forward_auth over %s asks about each request, and returns every response other than 2xx",
    async (_protocol, send) => {
      const origin = await backend();
      const authServer = await backend(({ headers }, response) => {
        if (headers.authorization === "Bearer ann") response.writeHead(200, { "X-User": "ann" }).end();
        else
          response.writeHead(302, { Location: "https://login.example/", "Set-Cookie": ["a=1", "b=2"] }).end("log in");
      });
      const { port } = await running(oneService(origin.port, { plugins: [plugin(authServer.port)] }, H2C));
      expect((await send(port, "/a/x?q=1", { authorization: "Bearer ann", "x-user": "root" })).body).toBe("ok");
      expect(valuesOf(origin, "x-user")).toEqual([["ann"]]);
      expect(valuesOf(authServer, "x-forwarded-uri")).toEqual([["/a/x?q=1"]]);
      expect(valuesOf(authServer, "x-forwarded-host")).toEqual([[`127.0.0.1:${port}`]]);
      const refused = await send(port, "/a/x");
      expect(refused).toMatchObject({
        status: 302,
        body: "log in",
        headers: { location: "https://login.example/", "set-cookie": ["a=1", "b=2"], "content-length": "6" },
      });
      expect(origin.seen).toHaveLength(1);
      expect(authServer.connections.total).toBe(1);
    },
  );

  it("holds a body back until the authorization server has answered, and forwards it whole", async () => {
    const origin = await backend((_request, response, body) => void response.end(String(body.length)));
    const authServer = await backend();
    const { port } = await running(oneService(origin.port, { plugins: [plugin(authServer.port)] }));
    const { body } = await ask(port, { method: "POST", path: "/a/x", body: Buffer.alloc(1024 * 1024, 1) });
    expect(body.toString()).toBe(String(1024 * 1024));
    expect(authServer.seen[0]!.body).toHaveLength(0);
  });

  it("guards WebSockets", async () => {
    const origin = await webSocketBackend();
    let status = 403;
    const authServer = await backend(
      (_request, response) => void response.writeHead(status, { "X-User": "ann" }).end("no"),
    );
    const { port } = await running(oneService(origin.port, { plugins: [plugin(authServer.port)] }));
    const refused = await client(port);
    refused.send(HANDSHAKE);
    expect(await refused.closed()).toMatch(/^HTTP\/1\.1 403 [^]*no$/);
    status = 200;
    const opened = await client(port);
    opened.send(HANDSHAKE);
    expect(await opened.until("\r\n\r\n")).toMatch(/^HTTP\/1\.1 101 /);
    expect(origin.heads[0]).toContain("X-User: ann");
  });

  it("cancels its request when the client disconnects, over HTTP/1.1 and HTTP/2", async () => {
    const origin = await backend();
    let requested = gate();
    const authServer = await rawBackend(() => requested.open());
    const { gateway, port } = await running(oneService(origin.port, { plugins: [plugin(authServer.port)] }, H2C));
    const leaving = await client(port);
    leaving.send("GET /a/x HTTP/1.1\r\nHost: gw\r\n\r\n");
    await requested.opened;
    leaving.socket.destroy();
    await eventually(
      () => authServer.connections.open === 0 && gateway.inFlight === 0,
      "the connections to the authorization server closing and no request being in flight",
    );
    requested = gate();
    const { stream } = h2Open(h2Session(port), {}, true);
    await requested.opened;
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await eventually(
      () => authServer.connections.open === 0 && gateway.inFlight === 0,
      "the connections to the authorization server closing and no request being in flight",
    );
    expect(origin.seen).toEqual([]);
  });

  it("finishes a request that waits for its answer although a reload removes the plugin", async () => {
    const origin = await backend();
    const held = gate<() => void>();
    const authServer = await rawBackend((_request, response) => held.open(() => void response.end()));
    const { gateway, port } = await running(oneService(origin.port, { plugins: [plugin(authServer.port)] }));
    const waiting = overHttp1(port, "/a/x");
    const answer = await held.opened;
    await gateway.reload(oneService(origin.port));
    answer();
    expect((await waiting).status).toBe(200);
    await eventually(() => authServer.connections.open === 0, "the connections to the authorization server closing");
  });
});

describe("http_log", () => {
  const plugin = (port: number, config: object = {}) => ({
    name: "http_log",
    config: { http_endpoint: `http://127.0.0.1:${port}/`, flush_ms: 20, ...config },
  });
  type Entry = { request: Record<string, unknown>; response: Record<string, unknown>; caller: string | null };
  const entries = ({ seen }: Origin) => seen.flatMap(({ body }) => JSON.parse(body.toString()) as Entry[]);

  it.each(CLIENTS)(
    "http_log over %s logs replies, refusals and streams, with the bytes that were sent",
    async (_protocol, send) => {
      const origin = await backend((request, response) => {
        if (request.url!.includes("stream")) response.write("abc");
        response.end("de");
      });
      const server = await backend();
      const plugins = [plugin(server.port), { name: "key_auth", config: { keys: [{ id: "web", key: "geheim" }] } }];
      const { port } = await running(oneService(origin.port, { plugins }, H2C));
      await send(port, "/a/x?apiKey=geheim");
      await send(port, "/a/stream", { apikey: "geheim" });
      await send(port, "/a/x");
      await eventually(() => entries(server).length === 3, "three log entries at the log server");
      const logged = entries(server).map(({ request, response, caller }) => [
        request["query"],
        response["status"],
        response["bytes"],
        response["code"],
        caller,
      ]);
      expect(logged).toEqual([
        ["?apiKey=[redacted]", 200, 2, null, "web"],
        ["", 200, 5, null, "web"],
        ["", 401, expect.any(Number), "key_missing", null],
      ]);
      expect(JSON.stringify(entries(server))).not.toContain("geheim");
    },
  );

  it(
    "http_log leaves out a token in a query parameter that some plugin looks for, " +
      "on routes without that plugin and without a route of it too",
    async () => {
      const server = await backend();
      const introspecting = {
        name: "introspection",
        config: { url: "http://127.0.0.1:9/", client_id: "a", client_secret: "s", token_from: ["header", "query:Sid"] },
      };
      const config = oneService((await backend()).port, {
        plugins: [plugin(server.port)],
        routes: [{ path: "/{rest*}" }, { path: "/guarded", plugins: [introspecting] }],
      });
      const { port } = await running(config);
      for (const path of ["/a/guarded?Sid=geheim&x=1", "/a/other?x=1&s%69d=geheim"])
        await overHttp1(port, path, { referer: "https://shop.example/?sid=geheim&y=2" });
      await eventually(() => entries(server).length === 2, "both log entries at the log server");
      expect(entries(server).map(({ request }) => request["query"])).toEqual([
        "?Sid=[redacted]&x=1",
        "?x=1&s%69d=[redacted]",
      ]);
      expect(JSON.stringify(entries(server))).not.toContain("geheim");
    },
  );

  it("sends the waiting entries when the gateway closes", async () => {
    const origin = await backend();
    const server = await backend();
    const { gateway, port } = await running(
      oneService(origin.port, {}, { plugins: [plugin(server.port, { flush_ms: 600_000 })] }),
    );
    for (let i = 0; i < 3; i++) await overHttp1(port, "/a/x");
    await gateway.close(1_000);
    expect(entries(server)).toHaveLength(3);
    await eventually(() => server.connections.open === 0, "the connections to the server closing");
  });

  it(
    "keeps waiting entries over a reload that does not change it, " + "and sends them at once when it is removed",
    async () => {
      const origin = await backend();
      const server = await backend();
      const config = oneService(origin.port, { plugins: [plugin(server.port, { flush_ms: 600_000 })] });
      const { gateway, port } = await running(config);
      await overHttp1(port, "/a/x");
      await gateway.reload({ ...config, global: { name: "other" } });
      await overHttp1(port, "/a/x");
      expect(server.seen).toEqual([]);
      await gateway.reload(oneService(origin.port));
      await eventually(() => entries(server).length === 2, "two log entries at the log server");
    },
  );

  it("never breaks or delays a response while its server is down, and reports the lost entries", async () => {
    const origin = await backend();
    const stuck = await rawBackend(() => {});
    const { log, lines } = recordedLog();
    const { gateway, port } = await running(
      oneService(origin.port, { plugins: [plugin(stuck.port, { batch_size: 1, max_queue: 2, timeout_ms: 60_000 })] }),
      { log },
    );
    for (let i = 0; i < 10; i++) expect((await overHttp1(port, "/a/x")).status).toBe(200);
    await gateway.close(0);
    await eventually(() => stuck.connections.open === 0, "the connections to the log server closing");
    const lost = lines
      .filter(({ message }) => message === "http_log has lost entries")
      .map(({ entries: count }) => Number(count));
    expect(lost.reduce((sum, count) => sum + count, 0)).toBe(10);
  });

  it("logs a WebSocket when it ends", async () => {
    const origin = await webSocketBackend();
    const server = await backend();
    const { port } = await running(oneService(origin.port, { plugins: [plugin(server.port)] }));
    const opened = await client(port);
    opened.send(HANDSHAKE);
    await opened.until("\r\n\r\n");
    opened.socket.destroy();
    await eventually(() => entries(server).length === 1, "a log entry at the log server");
    expect(entries(server)[0]!.response).toMatchObject({ status: 101, bytes: null, code: null });
  });
});
