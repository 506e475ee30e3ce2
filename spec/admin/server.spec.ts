import { once } from "node:events";
import { Agent } from "node:http";
import http2 from "node:http2";
import { connect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { createAdmin } from "../../lib/admin/server.ts";
import { hashPassword } from "../../lib/base/password.ts";
import { MAX_DISCARD_MS, MAX_DISCARDED_PER_S } from "../../lib/server/linger.ts";
import { CERT, KEY } from "./certificate.ts";
import { optionsWith, PASSWORD, RIGHT, startAdmin } from "./harness.ts";

const sockets: Socket[] = [];
afterEach(() => sockets.splice(0).forEach((socket) => socket.destroy()));

async function connected(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

/** The end of a connection, whether by FIN or by a reset. */
const end = (socket: Socket) => new Promise<void>((ended) => socket.once("close", () => ended()));

const statuses = (raw: string) => [...raw.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => Number(status));

describe("the endpoints of the admin interface", () => {
  it.each([
    "/",
    "/gateway/",
    "/Gateway",
    "/gateway/config/x",
    "/login/",
    "//gateway",
    "/__proto__",
    "/toString",
    "/%67ateway",
  ])("the endpoints of the admin interface give 404 route_not_found for %s with every method", async (path) => {
    const { ask } = await startAdmin();
    for (const method of ["GET", "POST", "OPTIONS"]) {
      const got = await ask(method, path);
      expect([got.status, got.json.code]).toEqual([404, "route_not_found"]);
    }
  });

  it.each([
    ["GET", "/login", "POST, OPTIONS"],
    ["HEAD", "/login", "POST, OPTIONS"],
    ["POST", "/logout", "DELETE, OPTIONS"],
    ["POST", "/gateway", "GET, HEAD, OPTIONS"],
    ["DELETE", "/gateway/config", "GET, HEAD, OPTIONS"],
    ["PUT", "/healthz", "GET, HEAD, OPTIONS"],
    ["TRACE", "/readyz", "GET, HEAD, OPTIONS"],
  ])("the endpoints of the admin interface give 405 with Allow for %s %s", async (method, path, allow) => {
    const { ask } = await startAdmin();
    const got = await ask(method, path);
    expect([got.status, got.headers.allow, got.json?.code]).toEqual([
      405,
      allow,
      method === "HEAD" ? undefined : "method_not_allowed",
    ]);
  });

  it(
    "the endpoints of the admin interface forbid storing and sniffing of every reply, " +
      "and give each a request id of its own",
    async () => {
      const { ask, login, session } = await startAdmin();
      const cookie = await session();
      const got = [
        await login(),
        await login("Basic !"),
        await ask("DELETE", "/logout"),
        await ask("GET", "/gateway"),
        await ask("GET", "/gateway", { headers: { cookie } }),
        await ask("GET", "/gateway/config", { headers: { cookie } }),
        await ask("HEAD", "/healthz"),
        await ask("GET", "/readyz"),
        await ask("OPTIONS", "/login"),
        await ask("GET", "/nowhere"),
        await ask("POST", "/login", { headers: { origin: "http://evil.example" } }),
        await ask("GET", "/healthz", { headers: { expect: "a miracle" } }),
      ];
      const common = { "cache-control": "no-store", "x-content-type-options": "nosniff", vary: "Origin" };
      for (const { headers } of got) expect(headers).toMatchObject(common);
      const ids = got.map(({ headers }) => headers["x-request-id"]);
      for (const id of ids) expect(id).toMatch(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
      expect(new Set(ids).size).toBe(got.length);
    },
  );

  it("the endpoints of the admin interface answer errors with problem documents", async () => {
    const { ask } = await startAdmin();
    const got = await ask("GET", "/nowhere");
    expect(got.headers["content-type"]).toBe("application/problem+json");
    expect(got.json).toEqual({
      type: "about:blank",
      title: "No route matches the request",
      status: 404,
      detail: "The admin interface has no such path.",
      code: "route_not_found",
      request_id: got.headers["x-request-id"],
    });
  });

  it("the endpoints of the admin interface give HEAD the headers of GET and no body, errors included", async () => {
    const { ask, session } = await startAdmin();
    const cookie = await session();
    for (const path of ["/gateway", "/gateway/config", "/healthz", "/readyz", "/nowhere"]) {
      const [get, head] = [
        await ask("GET", path, { headers: { cookie } }),
        await ask("HEAD", path, { headers: { cookie } }),
      ];
      expect([head.status, head.text]).toEqual([get.status, ""]);
      for (const name of ["content-type", "content-length"]) expect(head.headers[name]).toBe(get.headers[name]);
    }
  });

  it("the endpoints of the admin interface ignore the query, and accept absolute-form targets", async () => {
    const { ask } = await startAdmin();
    for (const target of ["/healthz?a=/b?c", "http://127.0.0.1/healthz?x", "HTTPS://LOCALHOST:1/healthz"]) {
      expect((await ask("GET", target)).status).toBe(200);
    }
  });

  it(
    "the endpoints of the admin interface give 400 for a target that is no path, " +
      "and for an HTTP/1.1 request without Host",
    async () => {
      const { raw } = await startAdmin();
      for (const head of [
        "OPTIONS * HTTP/1.1\r\nHost: localhost",
        "GET http:// HTTP/1.1\r\nHost: localhost",
        "GET /healthz HTTP/1.1",
      ]) {
        const received = await raw(`${head}\r\nConnection: close\r\n\r\n`);
        expect(statuses(received)).toEqual([400]);
        expect(received).toContain('"code":"bad_request"');
      }
      expect(statuses(await raw("GET /healthz HTTP/1.0\r\n\r\n"))).toEqual([200]);
    },
  );

  it("the endpoints of the admin interface give 417 for an unknown expectation, and honour 100-continue", async () => {
    const { ask } = await startAdmin();
    const got = await ask("GET", "/healthz", { headers: { expect: "a miracle" } });
    expect([got.status, got.json.code]).toEqual([417, "expectation_failed"]);
    expect(
      (await ask("POST", "/login", { headers: { expect: "100-continue", authorization: RIGHT }, body: "x" })).status,
    ).toBe(200);
  });
});

describe("a request body", () => {
  const post = `POST /login HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${RIGHT}\r\n`;

  it("a request body is not waited for: the reply comes before it", async () => {
    const { port } = await startAdmin();
    const socket = await connected(port);
    socket.write(`${post}Content-Length: 10\r\n\r\n12345`);
    const [answer] = (await once(socket, "data")) as [Buffer];
    expect(statuses(answer.toString())).toEqual([200]);
  });

  it("a request body is discarded up to 64 KiB, and the connection serves the next request", async () => {
    const { raw } = await startAdmin();
    const body = "x".repeat(64 * 1024);
    const received = await raw(
      `${post}Content-Length: ${body.length}\r\n\r\n${body}`,
      "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    expect(statuses(received)).toEqual([200, 200]);
  });

  const ENDLESS = ["Content-Length: 1000000000", "Transfer-Encoding: chunked"];
  it.each(ENDLESS)("a request body ends the connection when it is endless (%s)", async (framing) => {
    const { port, clock } = await startAdmin();
    const socket = await connected(port);
    let received = "";
    socket.on("data", (part) => (received += part.toString()));
    socket.write(`${post}${framing}\r\n\r\n`);
    await once(socket, "data");
    const closed = end(socket);
    const part = framing.startsWith("T") ? `1000\r\n${"x".repeat(0x1000)}\r\n` : "x".repeat(0x1000);
    const more = () => void (socket.writable && socket.write(part, more));
    more();
    // A body is discarded for a time; that of a connection that is kept alive, which would end it too, is longer.
    for (let ms = 0; ms <= MAX_DISCARD_MS; ms += 500) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(500);
    }
    await closed;
    expect(statuses(received)).toEqual([200]);
    expect(socket.bytesWritten).toBeLessThan(((MAX_DISCARD_MS + 2_000) * MAX_DISCARDED_PER_S) / 1_000);
  });

  it(
    "a request body ends the connection after the login's reply if it exceeds 64 " + "KiB during the verification",
    async () => {
      const { port, inTime } = await startAdmin({ password: await hashPassword(PASSWORD) });
      const socket = await connected(port);
      socket.write(`${post}Transfer-Encoding: chunked\r\n\r\n20000\r\n${"x".repeat(0x20000)}\r\n`);
      const [reply] = (await once(socket, "data")) as [Buffer];
      expect(statuses(reply.toString())).toEqual([200]);
      await inTime(end(socket));
    },
  );
});

describe("bytes that are no request", () => {
  it.each([
    ["rubbish", "rubbish\r\n\r\n", 400, "bad_request"],
    ["a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "bad_request"],
    [
      "two lengths",
      "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
      400,
      "bad_request",
    ],
    [
      "length and chunks",
      "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      400,
      "bad_request",
    ],
    ["a NUL in a header", "GET / HTTP/1.1\r\nHost: localhost\r\nCookie: token=\0\r\n\r\n", 400, "bad_request"],
    [
      "an oversized cookie",
      `GET / HTTP/1.1\r\nHost: localhost\r\nCookie: token=${"x".repeat(20_000)}\r\n\r\n`,
      431,
      "headers_too_large",
    ],
    ["an oversized target", `GET /${"x".repeat(20_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`, 414, "uri_too_long"],
  ])(
    "bytes that are no request get one problem document and the end of the connection: %s",
    async (_, text, status, code) => {
      const { raw, ask } = await startAdmin();
      const received = await raw(text);
      expect(statuses(received)).toEqual([status]);
      const [head, body] = received.split("\r\n\r\n") as [string, string];
      expect(head).toMatch(/\r\nConnection: close$/);
      expect(JSON.parse(body)).toMatchObject({ status, code, request_id: /X-Request-Id: (.*)\r/.exec(head)![1] });
      expect(Number(/Content-Length: (\d+)/.exec(head)![1])).toBe(Buffer.byteLength(body));
      expect((await ask("GET", "/healthz")).status).toBe(200);
    },
  );

  it("invalid bytes are refused after the reply to the request before them", async () => {
    const { raw, ask } = await startAdmin({ password: await hashPassword(PASSWORD) });
    const login = `POST /login HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${RIGHT}\r\nContent-Length: 0\r\n\r\n`;
    const received = await raw(`${login}rubbish rubbish\r\n\r\n`, "more rubbish");
    expect(statuses(received)).toEqual([200, 400]);
    expect(received).toContain("Connection: close");
    expect((await ask("GET", "/healthz")).status).toBe(200);
  });

  it("bytes that are no request do not stop pipelined requests from being answered in order", async () => {
    const { raw } = await startAdmin({ password: await hashPassword(PASSWORD) });
    const login = `POST /login HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${RIGHT}\r\n\r\n`;
    const others =
      "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\nGET /gateway HTTP/1.1\r\nHost: " +
      "localhost\r\nConnection: close\r\n\r\n";
    const received = await raw(login + others);
    expect(statuses(received)).toEqual([200, 404, 401]);
  });

  const OTHER_PROTOCOLS = ["CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
  it.each(OTHER_PROTOCOLS)("bytes that are no request end the connection, not the process: %j", async (text) => {
    const { raw, ask } = await startAdmin();
    await raw(text);
    expect((await ask("GET", "/healthz")).status).toBe(200);
  });

  it("bytes that are no request get an ordinary reply if they ask for an upgrade", async () => {
    const { raw } = await startAdmin();
    const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    expect(statuses(await raw(`GET /healthz HTTP/1.0\r\nHost: localhost\r\n${upgrade}\r\n`))).toEqual([200]);
  });
});

describe("time limits", () => {
  it.each([
    ["a head", "GET /healthz HTTP/1.1\r\nHost:", [408]],
    [
      "a body, though its request was answered",
      `POST /logout HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1`,
      [405],
    ],
  ])("time limits end the connection when %s does not arrive in time", async (_, text, expected) => {
    const { raw, inTime } = await startAdmin();
    expect(statuses(await inTime(raw(text)))).toEqual(expected);
  });
});

describe("a client that disconnects", () => {
  it("a client that disconnects does no harm if it leaves before the reply to its login", async () => {
    const { port, ask, login } = await startAdmin({ password: await hashPassword(PASSWORD) });
    const socket = await connected(port);
    socket.write(`POST /login HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${RIGHT}\r\n\r\n`);
    await ask("GET", "/healthz");
    socket.resetAndDestroy();
    expect((await login()).status).toBe(200);
  });
});

describe("listen", () => {
  it("returns the address and the port chosen for port 0", async () => {
    const admin = createAdmin(optionsWith());
    const where = await admin.listen({ host: "127.0.0.1", port: 0 });
    expect(where).toMatchObject({ address: "127.0.0.1", port: expect.any(Number) });
    expect(where.port).toBeGreaterThan(0);
    await admin.close();
  });

  it("rejects with the error of the listener, and can be closed afterwards", async () => {
    const { port } = await startAdmin();
    const admin = createAdmin(optionsWith());
    await expect(admin.listen({ host: "127.0.0.1", port })).rejects.toMatchObject({ code: "EADDRINUSE" });
    await admin.close();
  });
});

describe("close", () => {
  it(
    "ends connections that are idle or never spoke at once, " + "and those in the middle of a head after two seconds",
    async () => {
      const { admin, port, ask, clock } = await startAdmin();
      const agent = new Agent({ keepAlive: true });
      await ask("GET", "/healthz", { agent });
      const [silent, half] = [await connected(port), await connected(port)];
      half.write("GET /healthz HTTP/1.1\r\nHo");
      await ask("GET", "/healthz");
      const ends = [end(silent), end(half)];
      silent.resume();
      half.resume();
      const closed = [admin.close(), admin.close()];
      await ends[0];
      clock.advance(2_000);
      await Promise.all([...closed, ...ends]);
      await expect(ask("GET", "/healthz")).rejects.toMatchObject({ code: "ECONNREFUSED" });
      agent.destroy();
    },
  );

  it("waits for a pending reply, and ends its connection then", async () => {
    const { admin, port, ask } = await startAdmin({ password: await hashPassword(PASSWORD) });
    const socket = await connected(port);
    let received = "";
    socket.on("data", (part) => (received += part.toString()));
    socket.write(`POST /login HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${RIGHT}\r\n\r\n`);
    await ask("GET", "/healthz");
    const ended = end(socket);
    await admin.close();
    await ended;
    expect(statuses(received)).toEqual([200]);
    expect(received).toContain("Connection: close");
  });
});

describe("HTTPS", () => {
  const tls = { cert: CERT, key: KEY };

  it("opens no WebSocket over HTTP/2, where any 2xx would open one", async () => {
    const { port, session } = await startAdmin({ tls });
    const client = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
    onTestFinished(() => client.destroy());
    await once(client, "remoteSettings");
    for (const path of ["/healthz", "/gateway", "/gateway/tail"]) {
      const fields = { ":method": "CONNECT", ":protocol": "websocket", ":path": path, cookie: await session() };
      const stream = client.request(fields, { endStream: false });
      const [head] = (await once(stream.resume(), "response")) as [
        http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader,
      ];
      expect(head[":status"], path).toBe(400);
      stream.close();
    }
  });

  it("serves over TLS, and accepts the cookie that was issued there", async () => {
    const { ask, session, port } = await startAdmin({ tls });
    expect((await ask("GET", "/gateway", { headers: { cookie: await session() } })).status).toBe(200);
    const headers = { host: `127.0.0.1:${port}`, origin: `https://127.0.0.1:${port}`, authorization: RIGHT };
    expect((await ask("POST", "/login", { headers })).status).toBe(200);
  });

  it("refuses TLS 1.1, and survives bytes that are no TLS", async () => {
    const { ask, port, raw } = await startAdmin({ tls });
    const old = tlsConnect({
      port,
      host: "127.0.0.1",
      minVersion: "TLSv1",
      maxVersion: "TLSv1.1",
      ciphers: "ALL:@SECLEVEL=0",
    });
    sockets.push(old);
    const [fault] = (await once(old, "error")) as [NodeJS.ErrnoException];
    expect(fault.code).toMatch(/PROTOCOL|ALERT/);
    expect(statuses(await raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))).toEqual([]);
    expect((await ask("GET", "/healthz")).status).toBe(200);
  });

  it("ends idle connections and incomplete handshakes at once on close", async () => {
    const { admin, port, ask } = await startAdmin({ tls });
    const idle = tlsConnect({ port, host: "127.0.0.1", rejectUnauthorized: false });
    sockets.push(idle.resume());
    await once(idle, "secureConnect");
    const half = (await connected(port)).resume();
    await ask("GET", "/healthz");
    const ends = [end(idle), end(half)];
    await Promise.all([admin.close(), ...ends]);
    // Well before the time limit of a handshake, which would end it too.
  }, 5000);
});

describe("createAdmin", () => {
  it.each([
    ["an empty password", { password: "" }, /password is empty/],
    ["a malformed hash", { password: "scrypt$1$2" }, /six fields/],
    ["a certificate that is none", { tls: { cert: Buffer.from("x"), key: Buffer.from("y") } }, /PEM|no start line/i],
  ])("throws for %s", (_, changes, problem) => {
    expect(() => createAdmin(optionsWith(changes))).toThrow(problem);
  });
});
