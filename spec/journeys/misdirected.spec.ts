import { once } from "node:events";
import type { OutgoingHttpHeaders } from "node:http2";
import https from "node:https";
import tls, { type ConnectionOptions } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGateway, type ConfigInput, type TlsFiles } from "../../lib/index.ts";
import { pem } from "../cli/pem.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { backend, hosted, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2TlsSession } from "../support/h2_client.ts";
import { RENEWED, SHOP, WILDCARD } from "../support/more_certs.ts";
import { logLines } from "../support/process.ts";
import { overSocket } from "../support/raw_client.ts";

/** For localhost and 127.0.0.1. */
const FILES: TlsFiles = {
  cert: Buffer.from(SERVER.cert),
  key: Buffer.from(SERVER.key),
  ca: null,
  requireClientCert: false,
};

const paths = () =>
  pem({
    shop_cert: SHOP.cert,
    shop_key: SHOP.key,
    wild_cert: WILDCARD.cert,
    wild_key: WILDCARD.key,
    other_cert: RENEWED.cert,
    other_key: RENEWED.key,
  });
type Entry = readonly [which: "shop" | "wild" | "other", ...hosts: string[]];

function configured(port: number, entries: readonly Entry[], global: ConfigInput["global"] = {}): ConfigInput {
  const files = paths();
  const certificates = entries.map(([which, ...hosts]) => ({
    hosts,
    cert: files[`${which}_cert`]!,
    key: files[`${which}_key`]!,
  }));
  return oneService(port, {}, { ...global, certificates });
}

async function secure(
  entries: readonly Entry[],
  { global = {}, files = FILES }: { readonly global?: ConfigInput["global"]; readonly files?: TlsFiles } = {},
) {
  const origin = await backend();
  const config = (now: readonly Entry[]) => configured(origin.port, now, global);
  const { gateway } = await running(config(entries));
  const { port } = await gateway.listen({ port: 0, tls: files });
  return { gateway, origin, port, config };
}

/** SNI `servername` ("": none), and the requests of one connection for these hosts in turn. */
type Client = (
  port: number,
  servername: string,
  hosts: readonly string[],
  options?: ConnectionOptions,
) => Promise<number[]>;

const http1: Client = async (port, servername, hosts, options = {}) => {
  const socket = tls.connect({
    host: "127.0.0.1",
    port,
    servername,
    rejectUnauthorized: false,
    ALPNProtocols: ["http/1.1"],
    ...options,
  });
  onTestFinished(() => void socket.destroy());
  const connection = overSocket(socket);
  await once(socket, "secureConnect");
  for (const host of hosts)
    connection.send(
      `GET /a/x HTTP/1.1\r\nHost: ${host}\r\n${host === hosts.at(-1) ? "Connection: close\r\n" : ""}\r\n`,
    );
  return [...(await connection.closed()).matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
};

const http2: Client = async (port, servername, hosts, options = {}) => {
  // By itself the session would name the host of its URL where `servername` is "".
  const socket = () =>
    tls.connect({ host: "127.0.0.1", port, servername, rejectUnauthorized: false, ALPNProtocols: ["h2"], ...options });
  const session = await h2TlsSession(port, { createConnection: socket } as ConnectionOptions);
  const replies = await Promise.all(
    hosts.map((host) => h2Ask(session, { path: "/a/x", headers: { ":authority": host } as OutgoingHttpHeaders })),
  );
  return replies.map(({ status }) => status);
};

/** A session that can be resumed, which has been. */
async function sessionOf(port: number, options: ConnectionOptions): Promise<Buffer> {
  const all = { host: "127.0.0.1", port, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"], ...options };
  const first = tls.connect(all).resume();
  const [session] = (await once(first, "session")) as [Buffer];
  const again = tls.connect({ ...all, session });
  await once(again, "secureConnect");
  expect(again.isSessionReused()).toBe(true);
  for (const socket of [first, again]) socket.destroy();
  return session;
}

const TWO: readonly Entry[] = [
  ["shop", "shop.example.com"],
  ["other", "pay.example.net"],
];

describe.each([
  ["HTTP/1.1", http1],
  ["HTTP/2", http2],
] as const)("a host over the TLS connection of another host, %s", (_protocol, ask) => {
  it(
    "gets 421 where another certificate is configured for it, " + "and the next request of the connection is served",
    async () => {
      const { port, origin } = await secure(TWO);
      expect(
        await ask(port, "shop.example.com", [
          "pay.example.net",
          "shop.example.com",
          "PAY.example.net.:8443",
          "shop.example.com:8443",
        ]),
      ).toEqual([421, 200, 421, 200]);
      expect(await ask(port, "pay.example.net", ["shop.example.com", "pay.example.net"])).toEqual([421, 200]);
      expect(origin.seen).toHaveLength(3);
    },
  );

  it("gets 421 where the certificate of all other names covers it and that of the connection does not", async () => {
    const { port } = await secure(TWO);
    expect(await ask(port, "shop.example.com", ["localhost", "127.0.0.1", "shop.example.com"])).toEqual([
      421, 421, 200,
    ]);
    expect(await ask(port, "localhost", ["shop.example.com", "localhost"])).toEqual([421, 200]);
  });

  it("without a certificate for all other names gets 421 where another one is for it, else is served", async () => {
    const { port } = await secure(TWO, { files: { ...FILES, cert: null, key: null } });
    const asked = await ask(port, "shop.example.com", ["pay.example.net", "localhost", "shop.example.com"]);
    expect(asked).toEqual([421, 200, 200]);
  });

  it(
    "is served where the certificate of the connection covers it, " + "although another one is configured for it",
    async () => {
      const { port } = await secure([
        ["wild", "*.example.com"],
        ["shop", "shop.example.com"],
      ]);
      expect(await ask(port, "a.example.com", ["shop.example.com", "b.example.com", "a.example.com"])).toEqual([
        200, 200, 200,
      ]);
      // shop.example.com alone.
      expect(await ask(port, "shop.example.com", ["a.example.com"])).toEqual([421]);
    },
  );

  it("is served where one entry names both, whatever its certificate says", async () => {
    const { port } = await secure([["shop", "a.example.org", "b.example.org"]]);
    expect(await ask(port, "a.example.org", ["b.example.org"])).toEqual([200]);
  });

  it("is served where no certificate is for it: addresses, names inside a network", async () => {
    const { port } = await secure(TWO);
    expect(await ask(port, "shop.example.com", ["10.0.0.5", "[::1]:8443", "internal", "h."])).toEqual([
      200, 200, 200, 200,
    ]);
    expect(await ask(port, "unknown.example", ["10.0.0.5", "internal", "localhost"])).toEqual([200, 200, 200]);
  });

  it("is served with one certificate, and for a client that names no host in its handshake", async () => {
    const { port } = await secure([]);
    expect(await ask(port, "shop.example.com", ["pay.example.net", "localhost"])).toEqual([200, 200]);
    const several = await secure(TWO);
    expect(await ask(several.port, "", ["shop.example.com", "pay.example.net", "localhost"])).toEqual([200, 200, 200]);
  });

  it("is served over the connection of a trusted proxy", async () => {
    const { port } = await secure(TWO, { global: { trusted_proxies: ["127.0.0.0/8"] } });
    expect(await ask(port, "shop.example.com", ["pay.example.net", "localhost"])).toEqual([200, 200]);
  });

  it("gets 421 whether or not the client has presented a certificate", async () => {
    const { port } = await secure(TWO, { files: { ...FILES, ca: Buffer.from(CA.cert), requireClientCert: true } });
    expect(await ask(port, "shop.example.com", ["pay.example.net", "shop.example.com"], CLIENT)).toEqual([421, 200]);
  });

  it(
    "is judged in a resumed TLS 1.3 session as in a new one, and served in one of TLS 1.2, " +
      "whose host Node does not report",
    async () => {
      const { port } = await secure([
        ["wild", "*.example.com"],
        ["shop", "shop.example.com"],
        ["other", "pay.example.net"],
      ]);
      for (const [maxVersion, statuses] of [
        ["TLSv1.2", [200, 200, 200]],
        ["TLSv1.3", [421, 200, 200]],
      ] as const) {
        const session = await sessionOf(port, { servername: "a.example.com", maxVersion });
        expect([
          maxVersion,
          await ask(port, "a.example.com", ["pay.example.net", "a.example.com", "shop.example.com"], {
            session,
            maxVersion,
          }),
        ]).toEqual([maxVersion, statuses]);
      }
    },
  );
});

describe("a host over the TLS connection of another host", () => {
  it("is judged by the certificates in force", async () => {
    const { gateway, port, config } = await secure([["wild", "*.example.com"]]);
    const session = await h2TlsSession(port, { servername: "a.example.com", rejectUnauthorized: false });
    const statuses = async (...hosts: string[]) =>
      (await Promise.all(hosts.map((host) => h2Ask(session, { headers: { ":authority": host } })))).map(
        ({ status }) => status,
      );
    expect(await statuses("a.example.com", "shop.example.com", "pay.example.net")).toEqual([200, 200, 200]);
    // One certificate is for both, and pay.example.net has one of its own.
    await gateway.reload(
      config([
        ["shop", "shop.example.com", "a.example.com"],
        ["other", "pay.example.net"],
      ]),
    );
    expect(await statuses("a.example.com", "shop.example.com", "pay.example.net")).toEqual([200, 200, 421]);
    await gateway.reload(config([]));
    expect(await statuses("a.example.com", "pay.example.net", "localhost")).toEqual([200, 200, 200]);
  });

  it("follows a new certificate of the server", async () => {
    const { gateway, port } = await secure([["shop", "shop.example.com"]]);
    expect(await http2(port, "shop.example.com", ["pay.example.com", "localhost"])).toEqual([200, 421]);
    gateway.renewTls({ ...FILES, cert: Buffer.from(WILDCARD.cert), key: Buffer.from(WILDCARD.key) });
    expect(await http2(port, "shop.example.com", ["pay.example.com", "localhost"])).toEqual([421, 200]);
  });

  it("counts as the host that an absolute target names", async () => {
    const { port } = await secure(TWO);
    const socket = tls.connect({
      host: "127.0.0.1",
      port,
      servername: "shop.example.com",
      rejectUnauthorized: false,
      ALPNProtocols: ["http/1.1"],
    });
    onTestFinished(() => void socket.destroy());
    const connection = overSocket(socket);
    await once(socket, "secureConnect");
    connection.send("GET https://pay.example.net/a/x HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n");
    expect(await connection.closed()).toMatch(/^HTTP\/1\.1 421 /);
  });

  it("gets a problem document that says what to do, and the log names both", async () => {
    const lines: string[] = [];
    const origin = await backend();
    const { gateway } = await running(configured(origin.port, TWO), { accessLog: (text) => void lines.push(text) });
    const { port } = await gateway.listen({ port: 0, tls: FILES });
    const session = await h2TlsSession(port, { servername: "shop.example.com", rejectUnauthorized: false });
    const { status, headers, body } = await h2Ask(session, { headers: { ":authority": "pay.example.net" } });
    expect([status, headers["content-type"], JSON.parse(body)]).toEqual([
      421,
      "application/problem+json",
      expect.objectContaining({
        code: "misdirected",
        detail: "The certificate of this connection is not for this host. Send the request on another connection.",
      }),
    ]);
    await gateway.close(0);
    expect(logLines(lines.join(""))).toContainEqual(
      expect.objectContaining({
        status: 421,
        code: "misdirected",
        fault: "the connection was opened for shop.example.com, the request is for pay.example.net",
      }),
    );
  });

  it("is served over plain HTTP, with HTTPS redirected to or not, and in a host's own TLS server", async () => {
    const origin = await backend();
    const { port, gateway } = await running(configured(origin.port, TWO));
    await gateway.listen({ port: 0, tls: FILES });
    expect((await fetch(`http://127.0.0.1:${port}/a/x`)).status).toBe(200);
    const mounted = createGateway({ config: configured(origin.port, TWO) });
    const own = await hosted(mounted, https.createServer({ cert: SHOP.cert, key: SHOP.key }, mounted.handler));
    expect(await http1(own, "shop.example.com", ["pay.example.net"])).toEqual([200]);
  });

  it("does not keep a redirect to HTTPS from plain requests", async () => {
    const origin = await backend();
    const { port, gateway } = await running(configured(origin.port, TWO, { https_redirect: {} }));
    const { port: secured } = await gateway.listen({ port: 0, tls: FILES });
    expect((await fetch(`http://127.0.0.1:${port}/a/x`, { redirect: "manual" })).status).toBe(308);
    expect(await http1(secured, "shop.example.com", ["pay.example.net", "shop.example.com"])).toEqual([421, 200]);
  });
});
