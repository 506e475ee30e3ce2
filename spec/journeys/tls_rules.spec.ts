/** `global.tls` and `tls` of services: versions, ciphers and groups of handshakes with clients and upstreams. */
import { once } from "node:events";
import tls, { type ConnectionOptions } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { Gateway, TlsFiles } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { h2Ask, h2TlsSession } from "../support/h2_client.ts";
import { httpsOrigin } from "../support/https_origin.ts";
import { SHOP } from "../support/more_certs.ts";
import { fileWith } from "../support/process.ts";
import { ask, connect, eventually, overSocket } from "../support/raw_client.ts";

const FILES: TlsFiles = {
  cert: Buffer.from(SERVER.cert),
  key: Buffer.from(SERVER.key),
  ca: null,
  requireClientCert: false,
};
const IS_POST_QUANTUM = !process.versions.openssl.startsWith("3.0.");

type Rules = NonNullable<NonNullable<AnyConfigInput["global"]>["tls"]>;

interface Secure {
  readonly gateway: Gateway;
  readonly port: number;
  /** Puts other rules into force. */
  readonly use: (rules: Rules) => Promise<unknown>;
}

/** A gateway with these rules, whose certificates are for localhost and for shop.example.com. */
async function secureWith(rules: Rules): Promise<Secure> {
  const upstream = await backend();
  const shop = { hosts: ["shop.example.com"], cert: fileWith(SHOP.cert), key: fileWith(SHOP.key) };
  const configWith = (tls: Rules) => oneService(upstream.port, {}, { tls, certificates: [shop] });
  const { gateway } = await running(configWith(rules));
  const { port } = await gateway.listen({ port: 0, tls: FILES });
  return { gateway, port, use: (next) => gateway.reload(configWith(next)) };
}

/** A handshake that the gateway has finished, too, with the ticket that it gave. */
async function handshake(port: number, options: ConnectionOptions = {}) {
  const socket = tls.connect({
    ...{ host: "127.0.0.1", port, servername: "localhost", rejectUnauthorized: false },
    ...options,
  });
  onTestFinished(() => void socket.destroy());
  const ticket = new Promise<Buffer>((resolve) => socket.once("session", resolve));
  await once(socket, "secureConnect");
  const resumed = socket.isSessionReused();
  const version = socket.getProtocol();
  const cipher = socket.getCipher().name;
  const { name: group } = socket.getEphemeralKeyInfo() as { readonly name?: string };
  return { socket, ticket, resumed, version, cipher, group };
}

const outcome = (port: number, options: ConnectionOptions = {}) =>
  handshake(port, options).then(
    ({ version, cipher }) => `${version} ${cipher}`,
    (error: NodeJS.ErrnoException) => error.code,
  );

const ONLY_12 = { maxVersion: "TLSv1.2" } as const;
const OTHER_VERSION = "ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION";
/** OpenSSL 3.5 has another name for the alert handshake_failure. */
const NOTHING_IN_COMMON = expect.stringMatching(/^ERR_SSL_SSL.*_ALERT_HANDSHAKE_FAILURE$/) as string;

describe.each(["localhost", "shop.example.com"])("rules of TLS, for a client that asks for %s", (servername) => {
  it("refuses a client that has no version which global.tls.min_version allows", async () => {
    const { port } = await secureWith({ min_version: "1.3" });
    expect(await outcome(port, { servername, ...ONLY_12 })).toBe(OTHER_VERSION);
    expect(await outcome(port, { servername })).toMatch(/^TLSv1\.3 /);
    const lenient = await secureWith({});
    expect(await outcome(lenient.port, { servername, ...ONLY_12 })).toMatch(/^TLSv1\.2 /);
  });

  it("accepts the ciphers of TLS 1.2 that are named, in their order; those of TLS 1.3 stay", async () => {
    const [strong, weaker] = ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"];
    const { port } = await secureWith({ ciphers: [strong, weaker] });
    const all = `${weaker}:${strong}:ECDHE-ECDSA-AES128-GCM-SHA256`;
    expect(await outcome(port, { servername, ...ONLY_12, ciphers: all })).toBe(`TLSv1.2 ${strong}`);
    const other = { ...ONLY_12, ciphers: "ECDHE-ECDSA-AES128-GCM-SHA256" };
    expect(await outcome(port, { servername, ...other })).toEqual(NOTHING_IN_COMMON);
    expect(await outcome(port, { servername })).toBe("TLSv1.3 TLS_AES_256_GCM_SHA384");
  });

  it("accepts the ciphers of TLS 1.3 that are named; those of TLS 1.2 stay", async () => {
    const { port } = await secureWith({ ciphers: ["TLS_AES_128_GCM_SHA256"] });
    expect(await outcome(port, { servername })).toBe("TLSv1.3 TLS_AES_128_GCM_SHA256");
    expect(await outcome(port, { servername, ...ONLY_12 })).toMatch(/^TLSv1\.2 ECDHE-ECDSA-/);
  });

  it("accepts the groups that are named, the first of them in TLS 1.2 whatever the client prefers", async () => {
    const { port } = await secureWith({ groups: ["P-384", "P-256"] });
    const group = async (options: ConnectionOptions) => (await handshake(port, { servername, ...options })).group;
    expect(await group({ ...ONLY_12, ecdhCurve: "P-256:P-384" })).toBe("secp384r1");
    expect(await group({ ecdhCurve: "X25519:P-256" })).toBe("prime256v1");
    expect(await outcome(port, { servername, ecdhCurve: "X25519" })).toEqual(NOTHING_IN_COMMON);
    expect(await outcome(port, { servername, ...ONLY_12, ecdhCurve: "X25519" })).toEqual(NOTHING_IN_COMMON);
  });

  it.runIf(IS_POST_QUANTUM)("prefers the first group in TLS 1.3 to the one that the client has guessed", async () => {
    const { port } = await secureWith({ groups: ["X25519MLKEM768", "X25519"] });
    const group = async (ecdhCurve: string) => (await handshake(port, { servername, ecdhCurve })).group;
    expect(await group("X25519:X25519MLKEM768")).toBe("X25519MLKEM768");
    expect(await group("X25519")).toBe("X25519");
  });

  it("uses rules of a reload from the next handshake on, and leaves open connections", async () => {
    const { port, use } = await secureWith({});
    const { socket } = await handshake(port, { servername, ...ONLY_12 });
    await use({ min_version: "1.3" });
    expect(await outcome(port, { servername, ...ONLY_12 })).toBe(OTHER_VERSION);
    const connection = overSocket(socket);
    connection.send(`GET /a/x HTTP/1.1\r\nHost: ${servername}\r\nConnection: close\r\n\r\n`);
    expect(await connection.closed()).toMatch(/^HTTP\/1\.1 200 /);
    await use({});
    expect(await outcome(port, { servername, ...ONLY_12 })).toMatch(/^TLSv1\.2 /);
  });

  it.each(["TLSv1.2", "TLSv1.3"] as const)(
    "resumes a session of %s under the same rules, and none that began under others",
    async (version) => {
      const of = { servername, minVersion: version, maxVersion: version };
      const { port, use } = await secureWith({});
      const session = await (await handshake(port, of)).ticket;
      expect((await handshake(port, { ...of, session })).resumed).toBe(true);
      await use({ groups: ["X25519", "P-256"] });
      expect((await handshake(port, { ...of, session })).resumed).toBe(false);
      await use({});
      expect((await handshake(port, { ...of, session })).resumed).toBe(true);
    },
  );
});

describe("rules of TLS towards upstreams", () => {
  /** The status, version and cipher of a request to an upstream with these options, by a service with these rules. */
  async function met(options: tls.TlsOptions, rules: object) {
    const { port: upstream, sockets } = await httpsOrigin({ ...options, ...SERVER });
    const { port } = await running(
      oneService(upstream, { protocol: "https", tls: { ca: fileWith(CA.cert), ...rules } }),
    );
    const { status } = await ask(port, { path: "/a/x" });
    const [socket] = sockets;
    return [status, socket?.getProtocol(), socket?.getCipher().name];
  }

  it("refuses an upstream that has no version which tls.min_version allows", async () => {
    expect(await met({ ...ONLY_12 }, { min_version: "1.3" })).toEqual([502, undefined, undefined]);
    expect((await met({}, { min_version: "1.3" })).slice(0, 2)).toEqual([200, "TLSv1.3"]);
    expect((await met({ ...ONLY_12 }, {})).slice(0, 2)).toEqual([200, "TLSv1.2"]);
  });

  it("offers the ciphers that are named", async () => {
    const [one, other] = ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    expect(await met({ ...ONLY_12 }, { ciphers: [one] })).toEqual([200, "TLSv1.2", one]);
    expect(await met({ ...ONLY_12, ciphers: other }, { ciphers: [one] })).toEqual([502, undefined, undefined]);
    const newest = "TLS_AES_128_GCM_SHA256";
    expect(await met({}, { ciphers: [newest] })).toEqual([200, "TLSv1.3", newest]);
  });

  it("offers the groups that are named", async () => {
    expect(await met({ ecdhCurve: "P-384" }, { groups: ["X25519"] })).toEqual([502, undefined, undefined]);
    expect(await met({ ecdhCurve: "P-384" }, { groups: ["X25519", "P-384"] })).toContain(200);
  });
});

describe("what was negotiated", () => {
  it("has version, cipher and the only group in the access log, over HTTP/1.1 and HTTP/2, and in metrics", async () => {
    const lines: string[] = [];
    const upstream = await httpsOrigin(SERVER);
    const tlsFields = { ca: fileWith(CA.cert), servername: "localhost", groups: ["P-384"] };
    const { gateway } = await running(
      oneService(upstream.port, { protocol: "https", tls: tlsFields }, { tls: { groups: ["P-256"] } }),
      { accessLog: (text) => void lines.push(text) },
    );
    const { port } = await gateway.listen({ port: 0, tls: FILES });
    const { socket } = await handshake(port, ONLY_12);
    const connection = overSocket(socket);
    connection.send("GET /a/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    expect(await connection.closed()).toMatch(/^HTTP\/1\.1 200 /);
    expect((await h2Ask(await h2TlsSession(port))).status).toBe(200);
    await eventually(() => lines.length === 2);
    const seen = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(seen.map(({ tls, tls_cipher, tls_group }) => [tls, tls_cipher, tls_group])).toEqual([
      ["TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256", "P-256"],
      ["TLSv1.3", "TLS_AES_256_GCM_SHA384", "P-256"],
    ]);
    const count = (labels: string) =>
      Number(new RegExp(`^edge_gateway_tls_handshakes_total{${labels}} (\\d+)$`, "m").exec(gateway.metrics())?.[1]);
    expect(count('side="client",version="TLSv1.2",group="P-256"')).toBe(1);
    expect(count('side="client",version="TLSv1.3",group="P-256"')).toBe(1);
    expect(count('side="upstream",version="TLSv1.3",group="P-384"')).toBeGreaterThan(0);
  });

  it("has no group in the access log where Node does not say it, and nothing of TLS without it", async () => {
    const lines: string[] = [];
    const upstream = await backend();
    const { gateway, port } = await running(oneService(upstream.port), { accessLog: (text) => void lines.push(text) });
    const secure = await gateway.listen({ port: 0, tls: FILES });
    expect((await h2Ask(await h2TlsSession(secure.port))).status).toBe(200);
    await ask(port, { path: "/a/x" });
    await eventually(() => lines.length === 2);
    const seen = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(seen[0]).toMatchObject({ tls: "TLSv1.3", tls_cipher: "TLS_AES_256_GCM_SHA384" });
    expect(seen[0]).not.toHaveProperty("tls_group");
    expect(Object.keys(seen[1]!).filter((name) => name.startsWith("tls_"))).toEqual([]);
    expect(gateway.metrics()).toMatch(
      /^edge_gateway_tls_handshakes_total{side="client",version="TLSv1\.3",group=""} 1$/m,
    );
  });

  it.each<[reason: string, rules: Rules, options: ConnectionOptions]>([
    ["version", { min_version: "1.3" }, ONLY_12],
    [
      "cipher",
      { ciphers: ["ECDHE-ECDSA-AES256-GCM-SHA384"] },
      { ...ONLY_12, ciphers: "ECDHE-ECDSA-AES128-GCM-SHA256" },
    ],
    ["group", { groups: ["P-384"] }, { ecdhCurve: "X25519" }],
    ["protocol", {}, { ALPNProtocols: ["spdy/3"] }],
  ])("counts a handshake that was refused: %s", async (reason, rules, options) => {
    const { gateway, port } = await secureWith(rules);
    await outcome(port, options);
    const line = new RegExp(`^edge_gateway_tls_handshakes_refused_total{side="client",reason="(\\w+)"} 1$`, "m");
    await eventually(() => line.test(gateway.metrics()));
    expect(line.exec(gateway.metrics())?.[1]).toBe(reason);
  });

  it("counts a client that does not begin a handshake", async () => {
    const { gateway, port } = await secureWith({});
    const { send } = await connect(port);
    send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const line = 'edge_gateway_tls_handshakes_refused_total{side="client",reason="not_tls"} 1';
    await eventually(() => gateway.metrics().includes(line));
  });
});
