import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http2, { type ClientHttp2Session, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import https from "node:https";
import type { Duplex } from "node:stream";
import tls, { type ConnectionOptions, type TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGateway, type ConfigInput, type GatewayOptions, type TlsFiles } from "../../lib/index.ts";
import { pem } from "../cli/pem.ts";
import { CA, CLIENT, SERVER, STRANGER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2TlsSession } from "../support/h2_client.ts";
import { OTHER_CA, RENEWED, SHOP, WILDCARD } from "../support/more_certs.ts";
import { fileWith } from "../support/process.ts";
import type { Seen } from "../support/origin.ts";
import { connect, eventually, overSocket } from "../support/raw_client.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";

const FILES: TlsFiles = {
  cert: Buffer.from(SERVER.cert),
  key: Buffer.from(SERVER.key),
  ca: null,
  requireClientCert: false,
};
const asking = (which: "request" | "require"): TlsFiles => ({
  ...FILES,
  ca: Buffer.from(CA.cert),
  requireClientCert: which === "require",
});

async function secure(config: ConfigInput, files: TlsFiles = FILES, options: Partial<GatewayOptions> = {}) {
  const started = await running(config, options);
  const { port } = await started.gateway.listen({ port: 0, tls: files });
  return { gateway: started.gateway, port };
}

interface Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly trailers: IncomingHttpHeaders;
}

const get = (
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body?: string | Buffer,
  trailers?: OutgoingHttpHeaders,
) => h2Ask(session, { headers, body, trailers });

/** One HTTP/1.1 request over TLS. */
function get1(port: number, options: https.RequestOptions = {}, body?: string): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = https.request(
      { host: "127.0.0.1", port, servername: "localhost", ca: CA.cert, agent: false, ...options },
      (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
        response.on("error", reject);
        response.on("end", () =>
          resolve({ status: response.statusCode!, headers: response.headers, body: text, trailers: response.trailers }),
        );
      },
    );
    request.on("error", reject).end(body);
  });
}

const sent = ({ headers }: Seen, lower: string) =>
  headers.flatMap((name, i) => (i % 2 === 0 && name.toLowerCase() === lower ? [headers[i + 1]!] : []));

/**
 * Resolves with the socket when the handshake is done and the server has accepted it; rejects when the server refuses.
 */
function handshake(port: number, options: ConnectionOptions = {}): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: "127.0.0.1", port, servername: "localhost", ca: CA.cert, ...options });
    onTestFinished(() => void socket.destroy());
    socket.once("error", reject);
    socket.once("close", () => reject(new Error("closed")));
    socket.once("secureConnect", () => resolve(socket));
  });
}

describe("the HTTPS listener", () => {
  it("the HTTPS listener selects HTTP/2 or HTTP/1.1 by ALPN, and HTTP/1.1 without ALPN", async () => {
    const { port } = await secure(oneService(9));
    const chosen = async (protocols?: string[]) =>
      (await handshake(port, protocols === undefined ? {} : { ALPNProtocols: protocols })).alpnProtocol;
    expect(await chosen(["h2", "http/1.1"])).toBe("h2");
    expect(await chosen(["http/1.1"])).toBe("http/1.1");
    expect(await chosen()).toBe(false);
  });

  it(
    "the HTTPS listener does not offer HTTP/2 where global.http2 is false; " +
      "a reload asks open connections to leave, and offers it again",
    async () => {
      const origin = await backend();
      const { gateway, port } = await secure(oneService(origin.port));
      const chosen = async (...protocols: string[]) =>
        (await handshake(port, { ALPNProtocols: protocols })).alpnProtocol;
      const session = await h2TlsSession(port);
      expect((await get(session, { ":path": "/a/x" })).status).toBe(200);
      const left = once(session, "goaway");
      await gateway.reload(oneService(origin.port, {}, { http2: false }));
      await left;
      expect(await chosen("h2", "http/1.1")).toBe("http/1.1");
      await expect(chosen("h2")).rejects.toMatchObject({ code: "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL" });
      expect((await get1(port, { path: "/a/x" })).status).toBe(200);
      await gateway.reload(oneService(origin.port));
      expect(await chosen("h2", "http/1.1")).toBe("h2");
    },
  );

  it("the HTTPS listener presents the server certificate", async () => {
    const { port } = await secure(oneService(9));
    const socket = await handshake(port);
    expect(socket.authorized).toBe(true);
    expect(socket.getPeerCertificate().subject.CN).toBe("localhost");
  });

  it.each(["TLSv1", "TLSv1.1"] as const)("the HTTPS listener refuses %s", async (version) => {
    const { port } = await secure(oneService(9));
    // OpenSSL allows a client these versions only at security level 0; the server has to refuse them with an alert.
    const attempt = handshake(port, { minVersion: version, maxVersion: version, ciphers: "DEFAULT@SECLEVEL=0" });
    await expect(attempt).rejects.toMatchObject({ code: expect.stringMatching(/ALERT_PROTOCOL_VERSION/) as string });
  });

  it.each(["TLSv1.2", "TLSv1.3"] as const)("the HTTPS listener accepts %s", async (version) => {
    const { port } = await secure(oneService(9));
    expect((await handshake(port, { minVersion: version, maxVersion: version })).getProtocol()).toBe(version);
  });

  it("the HTTPS listener keeps serving after a connection that is no TLS handshake", async () => {
    const origin = await backend();
    const { port } = await secure(oneService(origin.port));
    const raw = overSocket(
      tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false, ALPNProtocols: ["bogus"] }),
    );
    await raw.closed();
    const plain = await connect(port);
    plain.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    await plain.closed();
    expect((await get1(port, { path: "/a/x" })).status).toBe(200);
  });
});

describe("HTTP/1.1 over TLS", () => {
  it("serves several requests on one connection, and names https as the scheme to the upstream", async () => {
    const origin = await backend((_request, response, body) => response.end(`got ${body.toString()}`));
    const { port } = await secure(oneService(origin.port));
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    expect(await get1(port, { path: "/a/x?q=1", agent })).toMatchObject({ status: 200, body: "got " });
    expect(await get1(port, { method: "POST", path: "/a/y", agent }, "body")).toMatchObject({
      status: 200,
      body: "got body",
    });
    expect(origin.seen.map(({ url }) => url)).toEqual(["/x?q=1", "/y"]);
    expect(sent(origin.seen[0]!, "x-forwarded-proto")).toEqual(["https"]);
    expect(sent(origin.seen[0]!, "x-forwarded-port")).toEqual([String(port)]);
    expect(sent(origin.seen[0]!, "x-forwarded-for")).toEqual(["127.0.0.1"]);
  });

  it("tunnels WebSockets", async () => {
    const { port: upstream, server } = await backend();
    server.on("upgrade", (_request, socket: Duplex) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
      socket.pipe(socket);
    });
    const { gateway, port } = await secure(oneService(upstream));
    const client = overSocket(await handshake(port, { ALPNProtocols: ["http/1.1"] }));
    client.send(HANDSHAKE);
    expect(await client.until("\r\n\r\n")).toMatch(/^HTTP\/1\.1 101 /);
    client.send("over TLS");
    await client.until("over TLS");
    client.socket.end();
    await client.closed();
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
  });

  it("answers a client that half-closes its connection with its request", async () => {
    const { port } = await secure(oneService(9));
    for (let i = 0; i < 10; i++) {
      const socket = tls.connect({
        port,
        host: "127.0.0.1",
        ca: CA.cert,
        servername: "localhost",
        allowHalfOpen: true,
      } as ConnectionOptions);
      onTestFinished(() => void socket.destroy());
      const connection = overSocket(socket);
      await once(socket, "secureConnect");
      socket.end("GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n");
      expect(await connection.closed()).toMatch(/^HTTP\/1\.1 404 /);
    }
  });

  it("closes the connection after its reply during a drain", async () => {
    let finish = () => {};
    const origin = await backend((_request, response) => (finish = () => void response.end("ok")));
    const { gateway, port } = await secure(oneService(origin.port));
    const answer = get1(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    const closing = gateway.close();
    finish();
    expect((await answer).headers.connection).toBe("close");
    expect(await closing).toBe("drained");
  });
});

describe("HTTP/2 over TLS", () => {
  it("forwards path, query and method as HTTP/1.1 to the upstream", async () => {
    const origin = await backend();
    const { port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const got = await get(session, { ":path": "/a/x/y?q=%20&q=2" });
    expect(got).toMatchObject({ status: 200, body: "ok" });
    expect(origin.seen[0]).toMatchObject({ method: "GET", url: "/x/y?q=%20&q=2" });
    expect(sent(origin.seen[0]!, "x-forwarded-proto")).toEqual(["https"]);
    expect(sent(origin.seen[0]!, "x-forwarded-host")).toEqual([`localhost:${port}`]);
    expect(sent(origin.seen[0]!, "via")).toEqual(["2.0 edge-gateway"]);
    expect(got.headers["x-request-id"]).toBe(sent(origin.seen[0]!, "x-request-id")[0]);
  });

  it("serves many concurrent requests on one connection", async () => {
    const origin = await backend((request, response) => response.end(request.url));
    const { port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const all = await Promise.all(Array.from({ length: 50 }, (_, i) => get(session, { ":path": `/a/${i}` })));
    expect(all.map(({ body }) => body)).toEqual(Array.from({ length: 50 }, (_, i) => `/${i}`));
  });

  it("keeps header values and duplicates, joins cookies into one line, and drops connection headers", async () => {
    const origin = await backend((_request, response) => {
      response.writeHead(200, [
        "X-Two",
        "1",
        "X-Two",
        "2",
        "Set-Cookie",
        "a=1",
        "Set-Cookie",
        "b=2",
        "Keep-Alive",
        "timeout=5",
        "Content-Length",
        "0",
      ]);
      response.end();
    });
    const { port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const { headers } = await get(session, {
      ":path": "/a/x",
      "x-mine": ["1", "2"],
      cookie: ["c=1", "d=2"],
      te: "trailers",
    });
    expect(headers["x-two"]).toBe("1, 2");
    expect(headers["set-cookie"]).toEqual(["a=1", "b=2"]);
    expect(headers).not.toHaveProperty("keep-alive");
    expect(headers).not.toHaveProperty("connection");
    expect(headers).not.toHaveProperty("transfer-encoding");
    expect(sent(origin.seen[0]!, "x-mine").join(", ")).toBe("1, 2");
    expect(sent(origin.seen[0]!, "cookie")).toEqual(["c=1; d=2"]);
    expect(origin.seen[0]!.headers.some((name) => name.startsWith(":"))).toBe(false);
    expect(sent(origin.seen[0]!, "host")).toEqual([`127.0.0.1:${origin.port}`]);
  });

  it("accepts bodies with a length and without", async () => {
    const origin = await backend((_request, response, body) => response.end(`${body.length}`));
    const { port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const body = Buffer.alloc(300_000, "x");
    expect((await get(session, { ":method": "POST", ":path": "/a/x" }, body)).body).toBe("300000");
    expect((await get(session, { ":method": "PUT", ":path": "/a/x", "content-length": "5" }, "hello")).body).toBe("5");
    expect(sent(origin.seen[0]!, "transfer-encoding")).toEqual(["chunked"]);
    expect(sent(origin.seen[1]!, "content-length")).toEqual(["5"]);
  });

  it("streams each part before the next is written", async () => {
    let write = (_text: string) => {};
    let end = () => {};
    const origin = await backend((_request, response) => {
      write = (text) => void response.write(text);
      end = () => void response.end();
      write("first ");
    });
    const { port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const stream = session.request({ ":path": "/a/x" });
    let text = "";
    stream.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
    await eventually(() => text === "first ", "the bytes 'first '");
    write("second");
    await eventually(() => text === "first second", "the bytes 'first second'");
    end();
    await once(stream, "close");
  });

  it("passes trailers both ways", async () => {
    const origin = await backend((_request, response) => {
      response.writeHead(200, { Trailer: "X-Sum" });
      response.write("body");
      response.addTrailers({ "X-Sum": "42" });
      response.end();
    });
    const { port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const got = await get(session, { ":method": "POST", ":path": "/a/x", trailer: "x-mine" }, "body", {
      "x-mine": "7",
    });
    expect(got).toMatchObject({ body: "body", trailers: { "x-sum": "42" } });
    expect(origin.seen[0]!.trailers).toEqual(["x-mine", "7"]);
  });

  it("answers errors with problem documents", async () => {
    const { port } = await secure(oneService(9, { routes: [{ path: "/x", methods: ["GET"] }] }));
    const session = await h2TlsSession(port);
    const none = await get(session, { ":path": "/none" });
    expect(none.headers["content-type"]).toBe("application/problem+json");
    expect([none.status, JSON.parse(none.body)]).toEqual([
      404,
      expect.objectContaining({ code: "route_not_found", request_id: none.headers["x-request-id"] }),
    ]);
    const wrong = await get(session, { ":method": "DELETE", ":path": "/a/x" });
    expect([wrong.status, wrong.headers.allow]).toEqual([405, "GET, HEAD"]);
    expect((await get(session, { ":path": "/a/%zz" })).status).toBe(400);
    expect((await get(session, { ":path": "/a/x" })).status).toBe(502);
    const head = await get(session, { ":method": "HEAD", ":path": "/none" });
    expect([head.status, head.body]).toEqual([404, ""]);
  });

  it("resets only the affected stream when the upstream breaks off its body", async () => {
    const origin = await backend((request, response) => {
      if (request.url === "/fine") return void response.end("fine");
      response.writeHead(200, { "Content-Length": "100" });
      response.write("part", () => response.destroy());
    });
    const { port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    await expect(get(session, { ":path": "/a/broken" })).rejects.toMatchObject({ code: "ERR_HTTP2_STREAM_ERROR" });
    expect((await get(session, { ":path": "/a/fine" })).body).toBe("fine");
  });

  it("cancels the upstream request when the client resets its stream", async () => {
    const origin = await backend((_request, response) => void response.write("begun"));
    const { gateway, port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const stream = session.request({ ":path": "/a/x" });
    stream.on("error", () => {});
    await once(stream, "data");
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await eventually(() => origin.connections.open === 0, "the connections to the upstream closing");
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
  });

  it("finishes open streams during a drain, accepts no new one, and ends the session", async () => {
    let finish = () => {};
    const origin = await backend((_request, response) => (finish = () => void response.end("whole")));
    const { gateway, port } = await secure(oneService(origin.port));
    const session = await h2TlsSession(port);
    const gone = once(session, "close");
    const answer = get(session, { ":path": "/a/x" });
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    const closing = gateway.close();
    finish();
    expect((await answer).body).toBe("whole");
    await gone;
    expect(await closing).toBe("drained");
  });
});

describe("client certificates", () => {
  const speak = async (port: number, identity: object) => {
    const first = await get1(port, { path: "/a/x", ...identity });
    const session = await h2TlsSession(port, identity);
    return [first.status, (await get(session, { ":path": "/a/x" })).status];
  };

  it(
    "client certificates are optional when requested and not required: requests pass with one, " +
      "without one and with one of another CA",
    async () => {
      const origin = await backend();
      const { port } = await secure(oneService(origin.port), asking("request"));
      for (const identity of [CLIENT, {}, STRANGER]) expect(await speak(port, identity)).toEqual([200, 200]);
    },
  );

  it("client certificates pass when they are required and signed by the configured CA", async () => {
    const origin = await backend();
    const { port } = await secure(oneService(origin.port), asking("require"));
    expect(await speak(port, CLIENT)).toEqual([200, 200]);
  });

  it.each([
    ["no certificate", {}],
    ["one of another CA", STRANGER],
  ])(
    "client certificates fail the handshake when they are required and the client presents %s",
    async (_what, identity) => {
      const origin = await backend();
      const { port } = await secure(oneService(origin.port), asking("require"));
      for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
        await expect(get1(port, { path: "/a/x", maxVersion, ...identity })).rejects.toThrow();
      }
      expect(origin.seen).toEqual([]);
    },
  );
});

/** The CN of the certificate that the gateway presents for a name. */
async function shownFor(
  port: number,
  servername: string,
  options: ConnectionOptions = {},
): Promise<string | undefined> {
  const socket = await handshake(port, { servername, rejectUnauthorized: false, ...options });
  const { subject } = socket.getPeerX509Certificate()!;
  socket.destroy();
  return subject;
}

describe("server certificates by host name (SNI)", () => {
  const files = () =>
    pem({ shop_cert: SHOP.cert, shop_key: SHOP.key, wild_cert: WILDCARD.cert, wild_key: WILDCARD.key });
  const entry = (paths: Record<string, string>, which: string, ...hosts: string[]) => ({
    hosts,
    cert: paths[`${which}_cert`]!,
    key: paths[`${which}_key`]!,
  });

  it(
    "server certificates by host name (SNI) are presented for their hosts, an exact name before a wildcard, " +
      "and the default for all others",
    async () => {
      const paths = files();
      const certificates = [entry(paths, "wild", "*.example.com"), entry(paths, "shop", "shop.example.com")];
      const { port } = await secure(oneService(9, {}, { certificates }));
      for (const [host, shown] of [
        ["shop.example.com", "CN=shop.example.com"],
        ["other.example.com", "CN=*.example.com"],
        ["a.other.example.com", "CN=localhost"],
        ["example.com", "CN=localhost"],
        ["localhost", "CN=localhost"],
        ["", "CN=localhost"],
      ] as const) {
        for (const ALPNProtocols of [["h2"], ["http/1.1"]])
          expect([host, await shownFor(port, host, { ALPNProtocols })]).toEqual([host, shown]);
      }
    },
  );

  it("server certificates by host name (SNI) satisfy a client that verifies, over HTTP/1.1 and HTTP/2", async () => {
    const origin = await backend();
    const paths = files();
    const { port } = await secure(
      oneService(origin.port, {}, { certificates: [entry(paths, "shop", "shop.example.com")] }),
    );
    const trusting = { ca: OTHER_CA.cert, servername: "shop.example.com" };
    expect((await get1(port, { path: "/a/x", headers: { Host: "shop.example.com" }, ...trusting })).status).toBe(200);
    expect(
      (await get(await h2TlsSession(port, trusting), { ":path": "/a/x", ":authority": "shop.example.com" })).status,
    ).toBe(200);
  });

  it("server certificates by host name (SNI) change with a reload, while connections stay open", async () => {
    const origin = await backend();
    const paths = files();
    const config = (...certificates: ReturnType<typeof entry>[]) => oneService(origin.port, {}, { certificates });
    const { gateway, port } = await secure(config());
    const session = await h2TlsSession(port);
    expect(await shownFor(port, "shop.example.com")).toBe("CN=localhost");
    await gateway.reload(config(entry(paths, "shop", "shop.example.com")));
    expect(await shownFor(port, "shop.example.com")).toBe("CN=shop.example.com");
    await gateway.reload(config(entry(paths, "wild", "shop.example.com")));
    expect(await shownFor(port, "shop.example.com")).toBe("CN=*.example.com");
    await gateway.reload(config());
    expect(await shownFor(port, "shop.example.com")).toBe("CN=localhost");
    expect((await get(session, { ":path": "/a/x" })).status).toBe(200);
  });

  it("server certificates by host name (SNI) do not change with a reload that is refused", async () => {
    const paths = files();
    const { gateway, port } = await secure(oneService(9));
    const mixed = { hosts: ["shop.example.com"], cert: paths.shop_cert!, key: paths.wild_key! };
    await expect(
      gateway.reload(oneService(9, {}, { certificates: [entry(paths, "wild", "a.example.com"), mixed] })),
    ).rejects.toThrow(/does not belong to the certificate/);
    expect(await shownFor(port, "a.example.com")).toBe("CN=localhost");
  });

  it("server certificates by host name (SNI) share one CA for client certificates", async () => {
    const origin = await backend();
    const paths = files();
    const config = oneService(origin.port, {}, { certificates: [entry(paths, "shop", "shop.example.com")] });
    const { port } = await secure(config, asking("require"));
    const trusting = {
      path: "/a/x",
      headers: { Host: "shop.example.com" },
      ca: OTHER_CA.cert,
      servername: "shop.example.com",
    };
    expect((await get1(port, { ...trusting, ...CLIENT })).status).toBe(200);
    await expect(get1(port, trusting)).rejects.toThrow();
    await expect(get1(port, { ...trusting, ...STRANGER })).rejects.toThrow();
  });

  it(
    "server certificates by host name (SNI) are reloaded from their files, " +
      "whatever the configuration file says by then",
    async () => {
      const paths = files();
      const certificates = [entry(paths, "shop", "shop.example.com")];
      const file = fileWith(oneService(9, {}, { certificates }));
      const gateway = createGateway({ configFile: file });
      onTestFinished(async () => void (await gateway.close(0)));
      await gateway.listen({ port: 0 });
      const { port } = await gateway.listen({ port: 0, tls: FILES });
      expect(gateway.files).toEqual([paths.shop_cert, paths.shop_key]);
      expect(gateway.rereadFiles()).toBe(false);
      writeFileSync(file, "{ broken");
      writeFileSync(paths.shop_cert!, WILDCARD.cert);
      expect(() => gateway.rereadFiles()).toThrow(/does not belong/);
      expect(await shownFor(port, "shop.example.com")).toBe("CN=shop.example.com");
      writeFileSync(paths.shop_key!, WILDCARD.key);
      expect(gateway.rereadFiles()).toBe(true);
      expect(await shownFor(port, "shop.example.com")).toBe("CN=*.example.com");
    },
  );
});

describe("renewTls", () => {
  const renewed: TlsFiles = { ...FILES, cert: Buffer.from(RENEWED.cert), key: Buffer.from(RENEWED.key) };
  const serial = async (port: number, options: ConnectionOptions = {}) => {
    const socket = await handshake(port, { rejectUnauthorized: false, ...options });
    const { serialNumber } = socket.getPeerX509Certificate()!;
    socket.destroy();
    return serialNumber;
  };

  it(
    "presents the new certificate on every HTTPS listener without disturbing open " + "connections and requests",
    async () => {
      let finish = () => {};
      const origin = await backend((request, response) => {
        if (request.url === "/slow") finish = () => void response.end("whole");
        else response.end("ok");
      });
      const { gateway, port } = await secure(oneService(origin.port));
      const other = await gateway.listen({ port: 0, tls: FILES });
      const session = await h2TlsSession(port);
      const answer = get(session, { ":path": "/a/slow" });
      await eventually(() => origin.seen.length === 1, "a request at the upstream");
      const before = await serial(port);
      gateway.renewTls(renewed);
      const after = await Promise.all([serial(port), serial(other.port)]);
      expect(after[0]).not.toBe(before);
      expect(after[1]).toBe(after[0]);
      finish();
      expect((await answer).body).toBe("whole");
      expect((await get(session, { ":path": "/a/x" })).status).toBe(200);
    },
  );

  it("throws for an unusable certificate, and keeps the old one", async () => {
    const { gateway, port } = await secure(oneService(9));
    const before = await serial(port);
    expect(() => gateway.renewTls({ ...renewed, key: FILES.key })).toThrow();
    expect(await serial(port)).toBe(before);
  });
});
