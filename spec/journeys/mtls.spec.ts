import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import type { ClientHttp2Session, IncomingHttpHeaders } from "node:http2";
import https from "node:https";
import type { Duplex } from "node:stream";
import tls, { type ConnectionOptions, type TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import type { ConfigInput, TlsFiles } from "../../lib/index.ts";
import { CA, CLIENT, SERVER, STRANGER } from "../support/certs.ts";
import { h2Ask, h2TlsSession } from "../support/h2_client.ts";
import { ALICE, LATE, OTHER_CA, SERVER_ONLY, SHOP } from "../support/more_certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import type { Seen } from "../support/origin.ts";
import { ask, connect, eventually, overSocket } from "../support/raw_client.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { codeIn } from "./harness.ts";

/** The CA file holds two CAs; both sign client certificates. */
const FILES: TlsFiles = {
  cert: Buffer.from(SERVER.cert),
  key: Buffer.from(SERVER.key),
  ca: Buffer.from(CA.cert + OTHER_CA.cert),
  requireClientCert: false,
};
const MTLS = { name: "mtls" };
const FORGED = [
  "X-Client-Cert-Subject",
  "CN=root",
  "x-client-cert-san",
  "DNS:root",
  "X-CLIENT-CERT-FINGERPRINT",
  "00",
  "X_Client_Cert_Subject",
  "CN=root",
  "X-Client-Cert-Verify",
  "SUCCESS",
];

async function secure(config: ConfigInput, lines?: string[]) {
  const { gateway, port: plain } = await running(
    config,
    lines === undefined ? {} : { accessLog: (text) => void lines.push(text) },
  );
  const { port } = await gateway.listen({ port: 0, tls: FILES });
  return { gateway, plain, port };
}

interface Response {
  readonly status: number;
  readonly code: string | undefined;
}

function requestHttp1(
  port: number,
  options: https.RequestOptions & { readonly session?: Buffer } = {},
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = https.request(
      { host: "127.0.0.1", port, path: "/a/x", servername: "localhost", ca: CA.cert, agent: false, ...options },
      (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
        response.on("end", () => resolve({ status: response.statusCode!, code: codeIn(text) }));
      },
    );
    request.on("error", reject).end();
  });
}

async function requestHttp2(session: ClientHttp2Session, headers: IncomingHttpHeaders = {}): Promise<Response> {
  const { status, body } = await h2Ask(session, { headers });
  return { status, code: codeIn(body) };
}

function handshake(port: number, options: ConnectionOptions): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: "127.0.0.1", port, servername: "localhost", ca: CA.cert, ...options });
    onTestFinished(() => void socket.destroy());
    socket.once("error", reject).once("secureConnect", () => resolve(socket));
  });
}

/** Name and value of every header about client certificates, names in lower case. */
const certificateHeaders = ({ headers }: Seen) =>
  headers.flatMap((name, i) =>
    i % 2 === 0 && /^x[-_]client[-_]cert/i.test(name) ? [[name.toLowerCase(), headers[i + 1]!]] : [],
  );
const aliceHeaders = [
  ["x-client-cert-subject", "CN=alice,O=S\\C3\\B6hne\\, Inc.,C=DE"],
  ["x-client-cert-san", "DNS:alice.example.com,URI:spiffe://example/alice,email:alice@example.com,IP:192.0.2.1"],
  ["x-client-cert-fingerprint", expect.stringMatching(/^[0-9a-f]{64}$/) as string],
];

describe("the plugin mtls", () => {
  it(
    "the plugin mtls lets a client with a certificate pass and describes the certificate to the upstream, " +
      "over HTTP/1.1 and HTTP/2",
    async () => {
      const origin = await backend();
      const { port } = await secure(oneService(origin.port, { plugins: [MTLS] }));
      expect((await requestHttp1(port, ALICE)).status).toBe(200);
      const opened = await h2TlsSession(port, ALICE);
      for (let i = 0; i < 2; i++) expect((await requestHttp2(opened)).status).toBe(200);
      expect(origin.seen.map(certificateHeaders)).toEqual([aliceHeaders, aliceHeaders, aliceHeaders]);
    },
  );

  it.each([
    ["no certificate", {}, "client_certificate_missing"],
    ["a certificate of another CA", STRANGER, "client_certificate_invalid"],
    ["an expired certificate", LATE, "client_certificate_invalid"],
    ["a certificate for servers", SERVER_ONLY, "client_certificate_invalid"],
  ])(
    "the plugin mtls answers 401 to a client with %s, over HTTP/1.1 and HTTP/2, without asking the upstream",
    async (_what, identity, code) => {
      const origin = await backend();
      const { port } = await secure(oneService(origin.port, { plugins: [MTLS] }));
      expect(await requestHttp1(port, identity)).toEqual({ status: 401, code });
      expect(await requestHttp2(await h2TlsSession(port, identity))).toEqual({ status: 401, code });
      expect(origin.seen).toEqual([]);
    },
  );

  it("the plugin mtls answers 401 on a plain port, where no client can present a certificate", async () => {
    const { plain } = await secure(oneService(9, { plugins: [MTLS] }));
    const { status, body } = await ask(plain, { path: "/a/x" });
    expect([status, codeIn(body.toString())]).toEqual([401, "client_certificate_missing"]);
  });

  it("the plugin mtls works at any level, and asks for no certificate on other routes", async () => {
    const origin = await backend();
    const allowing = (name: string) => ({ ...MTLS, config: { allow: [name] } });
    const config = oneService(origin.port, {
      routes: [
        { path: "/open" },
        { path: "/alice", plugins: [allowing("spiffe://example/alice")] },
        { path: "/client", plugins: [allowing("a client")] },
      ],
    });
    const { gateway, port } = await secure(config);
    const statuses = async (identity: object) =>
      Promise.all(
        ["/a/open", "/a/alice", "/a/client"].map(
          async (path) => (await requestHttp1(port, { path, ...identity })).status,
        ),
      );
    expect(await statuses({})).toEqual([200, 401, 401]);
    expect(await statuses(ALICE)).toEqual([200, 200, 401]);
    expect(await statuses(CLIENT)).toEqual([200, 401, 200]);
    await gateway.reload({ ...config, global: { plugins: [allowing("alice")] } });
    expect(await statuses({})).toEqual([401, 401, 401]);
    expect(await statuses(ALICE)).toEqual([200, 200, 401]);
    expect(await statuses(CLIENT)).toEqual([401, 401, 401]);
  });

  it("the plugin mtls guards WebSockets", async () => {
    const { port: upstream, server } = await backend();
    const upgrades: (readonly string[])[] = [];
    server.on("upgrade", (request, socket: Duplex) => {
      upgrades.push(request.rawHeaders);
      socket.end("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    });
    const { gateway, port } = await secure(oneService(upstream, { plugins: [MTLS] }));
    const knock = async (identity: object) => {
      const client = overSocket(await handshake(port, { ALPNProtocols: ["http/1.1"], ...identity }));
      client.send(
        HANDSHAKE.replace("\r\n\r\n", "\r\nX-Client-Cert-Subject: CN=root\r\nX_CLIENT_CERT_SAN: DNS:root\r\n\r\n"),
      );
      const head = await client.until("\r\n\r\n");
      client.socket.destroy();
      return head.slice(9, 12);
    };
    expect(await knock(ALICE)).toBe("101");
    expect(await knock({})).toBe("401");
    expect(upgrades.map((headers) => certificateHeaders({ headers } as Seen))).toEqual([aliceHeaders]);
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
  });

  it("the plugin mtls identifies the client for rate limits and for the access log", async () => {
    const origin = await backend();
    const lines: string[] = [];
    const { port } = await secure(
      oneService(origin.port, {
        plugins: [MTLS, { name: "rate_limit", config: { limit_hour: 1, limit_by: "credential" } }],
      }),
      lines,
    );
    const statuses = [];
    for (const identity of [ALICE, ALICE, CLIENT]) statuses.push((await requestHttp1(port, identity)).status);
    expect(statuses).toEqual([200, 429, 200]);
    await eventually(() => lines.join("").split("\n").length === 4, "the lines of the access log");
    expect(
      lines
        .join("")
        .trim()
        .split("\n")
        .map((line) => (JSON.parse(line) as { caller: string }).caller),
    ).toEqual(["alice", "alice", "a client"]);
  });

  it.each(["TLSv1.2", "TLSv1.3"] as const)(
    "the plugin mtls treats a resumed session of %s like the session it resumes",
    async (version) => {
      const origin = await backend();
      const { port } = await secure(oneService(origin.port, { plugins: [MTLS] }));
      const only = { minVersion: version, maxVersion: version };
      for (const [identity, expected] of [
        [ALICE, 200],
        [{}, 401],
        [STRANGER, 401],
        [LATE, 401],
      ] as const) {
        const first = await handshake(port, { ...only, ...identity });
        const ticket =
          first.getSession() !== undefined && version === "TLSv1.2"
            ? first.getSession()!
            : ((await once(first, "session")) as [Buffer])[0];
        const again = await handshake(port, { ...only, session: ticket });
        expect(again.isSessionReused()).toBe(true);
        const connection = overSocket(again);
        connection.send("GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        expect((await connection.closed()).slice(9, 12)).toBe(String(expected));
      }
      expect(origin.seen.map(certificateHeaders)).toEqual([aliceHeaders]);
    },
  );
});

describe("X-Client-Cert-… headers from a client", () => {
  it("never reach the upstream, on plain HTTP and on TLS, with the plugin and without", async () => {
    const origin = await backend();
    const { plain, port } = await secure(
      oneService(origin.port, { routes: [{ path: "/open" }, { path: "/guarded", plugins: [MTLS] }] }),
    );
    expect((await ask(plain, { path: "/a/open", headers: ["X-Before", "1", ...FORGED, "X-After", "2"] })).status).toBe(
      200,
    );
    const headers = Object.fromEntries(FORGED.flatMap((name, i) => (i % 2 === 0 ? [[name, FORGED[i + 1]!]] : [])));
    expect((await requestHttp1(port, { ...ALICE, path: "/a/guarded", headers })).status).toBe(200);
    const opened = await h2TlsSession(port, ALICE);
    const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    expect((await requestHttp2(opened, { ":path": "/a/open", ...lower })).status).toBe(200);
    expect((await requestHttp2(opened, { ":path": "/a/guarded", ...lower })).status).toBe(200);
    expect(origin.seen.map(certificateHeaders)).toEqual([[], aliceHeaders, [], aliceHeaders]);
    expect(origin.seen[0]!.headers).toEqual(expect.arrayContaining(["X-Before", "1", "X-After", "2"]));
  });

  it.each([
    "X-Client-Cert-Subject",
    "X-Client-Cert-SAN",
    "X-Client-Cert-Fingerprint",
    "x_client_cert_san",
    "X-Client_Cert-Chain",
  ])("drops %s alone too, and keeps the headers beside it", async (name) => {
    const origin = await backend();
    const { plain } = await secure(oneService(origin.port));
    const near = ["X-Client-Certs", "1", "X-Client-Certificate", "2", "X-Client-Cart-Subject", "3"];
    expect((await ask(plain, { path: "/a/x", headers: [name, "CN=root", ...near] })).status).toBe(200);
    expect(origin.seen[0]!.headers).not.toContain(name);
    expect(origin.seen[0]!.headers).toEqual(expect.arrayContaining(near));
  });

  it("X-Client-Cert-… headers from a client are dropped from a trusted proxy too, and in front of a body", async () => {
    const origin = await backend();
    const { plain } = await secure(oneService(origin.port, {}, { trusted_proxies: ["127.0.0.1"] }));
    const connection = await connect(plain);
    onTestFinished(() => void connection.socket.destroy());
    connection.send(
      "POST /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Client-Cert-Subject: CN=root\r\nTrailer: " +
        "X-Client-Cert-SAN\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    connection.send("1\r\nx\r\n0\r\nX-Client-Cert-SAN: DNS:root\r\nX-Sum: 7\r\n\r\n");
    await connection.closed();
    expect(certificateHeaders(origin.seen[0]!)).toEqual([]);
    expect(origin.seen[0]!.trailers).toEqual(["X-Sum", "7"]);
  });

  it("does not let Connection remove the gateway's own certificate headers", async () => {
    const origin = await backend();
    const { port } = await secure(oneService(origin.port, { plugins: [MTLS] }));
    const connection = overSocket(await handshake(port, ALICE));
    connection.send(
      "GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close, X-Client-Cert-Subject, x-client-cert-san, " +
        "X-CLIENT-CERT-FINGERPRINT\r\n\r\n",
    );
    expect((await connection.closed()).slice(9, 12)).toBe("200");
    expect(certificateHeaders(origin.seen[0]!)).toEqual(aliceHeaders);
  });
});

it("inject presents a certificate, and accepts headers, as a client does", async () => {
  const origin = await backend();
  const { gateway } = await running(oneService(origin.port, { plugins: [MTLS] }));
  const certificate = { subject: "CN=a", fingerprint: "ab".repeat(32) };
  expect((await gateway.inject({ url: "/a/x", headers: FORGED })).status).toBe(401);
  expect(
    (
      await gateway.inject({
        url: "/a/x",
        headers: FORGED,
        certificate: { ...certificate, verified: false, reason: "CERT_HAS_EXPIRED" },
      })
    ).status,
  ).toBe(401);
  expect((await gateway.inject({ url: "/a/x", headers: FORGED, certificate })).status).toBe(200);
  expect(certificateHeaders(origin.seen[0]!)).toEqual([
    ["x-client-cert-subject", "CN=a"],
    ["x-client-cert-fingerprint", "ab".repeat(32)],
  ]);
});

describe("mtls with client_cert_header", () => {
  const der = ({ cert }: { readonly cert: string }) => new X509Certificate(cert).raw.toString("base64");
  const asRfc9440 = (config: object = {}) => ({ name: "mtls", config: { client_cert_header: "rfc9440", ...config } });
  const client = { cert: ALICE.cert + SHOP.cert + OTHER_CA.cert, key: ALICE.key };
  const FORGED_WHOLE = ["Client-Cert", "client_cert", "CLIENT-CERT-CHAIN", "Client_Cert-Chain", "client_cert_chain"];
  const ofClientCert = ({ headers: rawHeaders }: Pick<Seen, "headers">) => {
    const found = rawHeaders.flatMap((name, i) =>
      i % 2 === 0 && /^client/i.test(name) ? [name, rawHeaders[i + 1]!] : [],
    );
    return found;
  };

  it.each([false, true])(
    "sends the certificate, and with client_cert_chain (%s) those behind it",
    async (withChain) => {
      const upstream = await backend();
      const { port } = await secure(
        oneService(upstream.port, { plugins: [asRfc9440({ client_cert_chain: withChain })] }),
      );
      expect(await requestHttp1(port, client)).toMatchObject({ status: 200 });
      const own = ["Client-Cert", `:${der(ALICE)}:`];
      const behind = ["Client-Cert-Chain", `:${der(SHOP)}:`];
      expect(ofClientCert(upstream.seen[0]!)).toEqual(withChain ? [...own, ...behind] : own);
    },
  );

  it(
    "drops these names of clients, also with _, over HTTP/1 and HTTP/2, " + "and although Connection names them",
    async () => {
      const upstream = await backend();
      const config = oneService(upstream.port, { plugins: [asRfc9440()] }, { underscore_headers: "allow" });
      const { port } = await secure(config);
      const forged = Object.fromEntries(FORGED_WHOLE.map((name) => [name, ":AAAA:"]));
      await requestHttp1(port, { ...client, headers: { ...forged, Connection: "close, Client-Cert" } });
      const session = await h2TlsSession(port, { ...client, ca: CA.cert, servername: "localhost" });
      await requestHttp2(session, { ":path": "/a/x", ...forged });
      expect(upstream.seen.map(ofClientCert)).toEqual([1, 2].map(() => ["Client-Cert", `:${der(ALICE)}:`]));
    },
  );

  it("drops them from trailers", async () => {
    const upstream = await backend();
    const { port } = await secure(
      oneService(upstream.port, { plugins: [asRfc9440()] }, { underscore_headers: "allow" }),
    );
    const connection = overSocket(await handshake(port, client));
    const trailers = `${FORGED_WHOLE.map((name) => `${name}: :AAAA:\r\n`).join("")}Other: 1\r\n`;
    connection.send(
      `POST /a/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: ` +
        `close\r\n\r\n1\r\na\r\n0\r\n${trailers}\r\n`,
    );
    await connection.closed();
    expect(upstream.seen[0]!.trailers).toEqual(["Other", "1"]);
  });

  it("passes them on routes without it", async () => {
    const upstream = await backend();
    const { port } = await secure(oneService(upstream.port, { plugins: [MTLS] }));
    await requestHttp1(port, { ...client, headers: { "Client-Cert": ":AAAA:" } });
    expect(ofClientCert(upstream.seen[0]!)).toEqual(["Client-Cert", ":AAAA:"]);
  });
});
