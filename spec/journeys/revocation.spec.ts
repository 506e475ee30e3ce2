/** Lists of revoked certificates: of clients, and of upstreams. */
import { sign, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import tls, { type TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { Der, TAG } from "../../lib/base/der.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { TlsFiles } from "../../lib/index.ts";
import { CA as SERVER_CA, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { httpsOrigin } from "../support/https_origin.ts";
import { authority, der, pem, type Issued } from "../support/pki.ts";
import { fileWith } from "../support/process.ts";
import { ask, eventually, overSocket } from "../support/raw_client.ts";
import { codeIn } from "./harness.ts";

const DAY_MS = 86_400_000;
/** Servers of Node 24 are not told what a client shows beside its own certificate. */
const KNOWS_SHOWN = Number.parseInt(process.versions.node) < 24;
const ROOT = authority("root");
const BELOW = ROOT.below("below");
/** Another one that calls itself so. */
const NAMESAKE = authority("root");
const HOSTS = { hosts: ["localhost"] };
const [GOOD, BAD] = [ROOT.issue("good", HOSTS), ROOT.issue("bad", HOSTS)];
const DEEP = BELOW.issue("deep", HOSTS);
const withChain = ({ cert, ...others }: Issued): Issued => ({ cert: cert + BELOW.cert, ...others });

/** The same certificate, where one length of what is signed takes more bytes than it needs: OpenSSL accepts that. */
function notInDer({ cert, ...others }: Issued): Issued {
  const parts = new Der(new X509Certificate(cert).raw).enter(TAG.sequence);
  const version = new Der(parts.whole(TAG.sequence)).content(TAG.sequence);
  const algorithm = parts.whole(TAG.sequence);
  const body = der(0x30, Buffer.from([0xa0, 0x81, 3]), version.subarray(2));
  const signature = der(0x03, Buffer.from([0]), sign("sha256", body, ROOT.key));
  return { cert: pem("CERTIFICATE", der(0x30, body, algorithm, signature)), ...others };
}

const now = Date.now();
const NONE = ROOT.list();
const FIRST = ROOT.list({ revoked: [BAD], from: now - 2 * DAY_MS });
const OTHERS = Array.from({ length: 20_000 }, (_none, i) => ({
  ...GOOD,
  serial: Buffer.from(`7${1_000_001 + i}`, "hex"),
}));
const LONG = ROOT.list({ revoked: [BAD, ...OTHERS] });
const EXPIRED = ROOT.list({ revoked: [BAD], from: now - 2 * DAY_MS, to: now - DAY_MS });

type Row = readonly [what: string, lists: string, shown: Issued, code: string | null, expired?: "allow" | undefined];

/** What becomes of a certificate, by the lists that are named. Null: it is accepted. */
const ROWS: readonly Row[] = [
  ["that no list has", FIRST, GOOD, null],
  ["that the list of its issuer has", FIRST, BAD, "CERT_REVOKED"],
  ["that an older list has, and the newest not", FIRST + NONE, BAD, null],
  [
    "that the newest list has, and an older one not",
    ROOT.list({ from: now - 3 * DAY_MS }) + FIRST,
    BAD,
    "CERT_REVOKED",
  ],
  ["whose issuer has no list", BELOW.list(), GOOD, "UNABLE_TO_GET_CRL"],
  ["whose list has expired", EXPIRED, GOOD, "CRL_HAS_EXPIRED"],
  ["whose list has expired, which is allowed", EXPIRED, GOOD, null, "allow"],
  ["that a list has which has expired, which is allowed", EXPIRED, BAD, "CERT_REVOKED", "allow"],
  ["whose list is not valid yet", ROOT.list({ from: now + DAY_MS }), GOOD, "CRL_NOT_YET_VALID"],
  [
    "whose list is not valid yet, also where an expired one is allowed",
    ROOT.list({ from: now + DAY_MS }),
    GOOD,
    "CRL_NOT_YET_VALID",
    "allow",
  ],
  ["whose list is of another CA of the same name", NAMESAKE.list(), GOOD, "CRL_SIGNATURE_FAILURE"],
  ["that a list has which another CA of the same name has signed", NAMESAKE.list({ revoked: [BAD] }) + NONE, BAD, null],
  ["of a CA between", NONE + BELOW.list(), withChain(DEEP), null],
  ["of a CA between, which has revoked it", NONE + BELOW.list({ revoked: [DEEP] }), withChain(DEEP), "CERT_REVOKED"],
  [
    "of a CA between, which is revoked",
    ROOT.list({ revoked: [BELOW] }) + BELOW.list(),
    withChain(DEEP),
    "CERT_REVOKED",
  ],
  ["of a CA between, which has no list", NONE, withChain(DEEP), "UNABLE_TO_GET_CRL"],
  ["of a CA between, whose own issuer has none", BELOW.list(), withChain(DEEP), "UNABLE_TO_GET_CRL"],
];

const CASES = ROWS.map(([what, lists, shown, code, expired]) => ({ what, lists, shown, code, expired }));

interface Logged {
  readonly message: string;
  readonly fields: object | undefined;
}

function recordingLog(logged: Logged[]) {
  const warn = (message: string, fields?: object) => void logged.push({ message, fields });
  return { debug() {}, info() {}, warn, error() {} };
}

describe("a client certificate", () => {
  interface Options {
    readonly expired?: "allow" | undefined;
    readonly clock?: ReturnType<typeof manualClock>;
    readonly mtls?: object;
    readonly ca?: string;
  }
  const WHOLE_CA = KNOWS_SHOWN ? ROOT.cert : ROOT.cert + BELOW.cert;

  async function secure(
    lists: string,
    client: "request" | "require",
    { expired, clock, mtls = {}, ca = WHOLE_CA }: Options = {},
  ) {
    const upstream = await backend();
    const file = fileWith(lists);
    const configWith = (rules: object): AnyConfigInput => ({
      ...oneService(upstream.port, client === "request" ? { plugins: [{ name: "mtls", config: mtls }] } : {}),
      global: { tls: rules },
    });
    const config = configWith({ client_crl: file, ...(expired && { crl_expired: expired }) });
    const logged: Logged[] = [];
    const { gateway } = await running(config, { log: recordingLog(logged), ...(clock && { clock }) });
    const files: TlsFiles = {
      ...{ cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key) },
      ...{ ca: Buffer.from(ca), requireClientCert: client === "require" },
    };
    const { port } = await gateway.listen({ port: 0, tls: files });
    const without = () => gateway.reload(configWith({}));
    return { gateway, upstream, port, logged, file, without, withLists: () => gateway.reload(config) };
  }

  async function handshake(port: number, { cert, key }: Issued, session?: Buffer) {
    const socket = tls.connect({
      ...{ host: "127.0.0.1", port, servername: "localhost", ca: SERVER_CA.cert, cert, key },
      ...(session && { session }),
    });
    onTestFinished(() => void socket.destroy());
    const ticket = new Promise<Buffer>((resolve) => socket.once("session", resolve));
    await once(socket, "secureConnect");
    return { socket, ticket };
  }

  /** The status of a request and the code of its error; null: the connection was closed. */
  async function answer(socket: TLSSocket): Promise<readonly [status: number, code: string | undefined] | null> {
    const connection = overSocket(socket);
    connection.send("GET /a/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const text = await connection.closed().catch(() => "");
    return text === "" ? null : [Number(text.slice(9, 12)), codeIn(text.slice(text.indexOf("\r\n\r\n")))];
  }

  const asked = async (port: number, shown: Issued) => answer((await handshake(port, shown)).socket);
  const INVALID = [401, "client_certificate_invalid"];

  describe.each(["request", "require"] as const)("with CLIENT_AUTH=%s", (client) => {
    it.each(CASES)("$what", async ({ lists, shown, code, expired }) => {
      const { gateway, port, logged } = await secure(lists, client, { expired });
      const refused = client === "require" ? null : INVALID;
      expect(await asked(port, shown)).toEqual(code === null ? [200, undefined] : refused);
      const refusals = logged.filter(({ message }) => message.startsWith("a client certificate"));
      expect(refusals.map(({ message }) => message)).toEqual(
        code === null ? [] : [`a client certificate is refused: ${code}`],
      );
      const counted = `handshakes_refused_total{side="client",reason="${code?.toLowerCase()}"} 1`;
      expect(gateway.metrics().includes(counted)).toBe(code !== null && client === "require");
    });

    it("that is not in DER, and so cannot be looked up, is refused", async () => {
      const { gateway, port, logged } = await secure(FIRST, client);
      expect(await asked(port, notInDer(GOOD))).toEqual(client === "require" ? null : INVALID);
      expect(logged.map(({ message }) => message)).toContain("a client certificate is refused: CERT_REJECTED");
      const counted = 'handshakes_refused_total{side="client",reason="cert_rejected"} 1';
      expect(gateway.metrics().includes(counted)).toBe(client === "require");
      expect(await asked(port, GOOD)).toEqual([200, undefined]);
    });

    it("is looked up in a list that has been replaced, while open connections stay", async () => {
      const { gateway, port, file } = await secure(NONE, client);
      const { socket, ticket } = await handshake(port, BAD);
      // The gateway has accepted it then.
      await ticket;
      writeFileSync(file, FIRST);
      expect(gateway.rereadFiles()).toBe(true);
      expect(await asked(port, BAD)).toEqual(client === "require" ? null : INVALID);
      expect(await asked(port, GOOD)).toEqual([200, undefined]);
      expect(await answer(socket)).toEqual([200, undefined]);
    });

    it("is looked up in a long list, which each reload reads beside the traffic before it is needed", async () => {
      const { gateway, port, file, withLists } = await secure(NONE, client);
      const { configuration, reloads } = Gateway.internalsOf(gateway as Gateway);
      const { outbound, serverTls } = configuration.features.loaded;
      const feature = (outbound ?? serverTls)!;
      const { readRevocationListsAhead } = feature;
      const read: string[] = [];
      Object.assign(feature, {
        readRevocationListsAhead(...[files, readFile]: Parameters<typeof readRevocationListsAhead>) {
          return readRevocationListsAhead(files, (path) => {
            read.push(path);
            return readFile(path);
          });
        },
      });
      onTestFinished(() => void Object.assign(feature, { readRevocationListsAhead }));
      writeFileSync(file, LONG);
      expect(await reloads.rereadFilesInAll()).toBe(true);
      expect(read).toEqual([file]);
      expect(await asked(port, BAD)).toEqual(client === "require" ? null : INVALID);
      writeFileSync(file, NONE + LONG);
      await withLists();
      expect(read).toEqual([file, file]);
      expect(await asked(port, GOOD)).toEqual([200, undefined]);
    });

    it.each(["TLSv1.2", "TLSv1.3"] as const)(
      "is looked up in each handshake of %s: neither a session of before nor one of then is resumed",
      async (version) => {
        const { port, without, withLists } = await secure(FIRST, client);
        const of = { ...BAD, minVersion: version, maxVersion: version };
        await without();
        const before = await handshake(port, of);
        const session = await before.ticket;
        expect((await handshake(port, of, session)).socket.isSessionReused()).toBe(true);
        await withLists();
        const after = await handshake(port, of, session);
        expect(after.socket.isSessionReused()).toBe(false);
        expect(await answer(after.socket)).toEqual(client === "require" ? null : INVALID);
        const good = await handshake(port, { ...GOOD, minVersion: version, maxVersion: version } as Issued);
        const own = await good.ticket;
        expect((await handshake(port, { ...GOOD }, own)).socket.isSessionReused()).toBe(false);
      },
    );
  });

  it("is logged once a minute where it is refused, by its subject and the reason, and counted each time", async () => {
    const clock = manualClock(now);
    const other = ROOT.issue("other");
    const { gateway, port, logged } = await secure(ROOT.list({ revoked: [BAD, other] }), "require", { clock });
    const subjects = () => logged.map(({ fields }) => (fields as { readonly subject?: string }).subject);
    for (const shown of [BAD, BAD, other, BAD]) expect(await asked(port, shown)).toBeNull();
    expect(subjects()).toEqual(["CN=bad", "CN=other"]);
    clock.advance(60_000);
    for (let i = 0; i < 2; i++) expect(await asked(port, BAD)).toBeNull();
    expect(subjects()).toEqual(["CN=bad", "CN=other", "CN=bad"]);
    expect(gateway.metrics()).toContain('handshakes_refused_total{side="client",reason="cert_revoked"} 6');
  });

  it.skipIf(KNOWS_SHOWN)("is refused where a CA between is not in the file of CAs", async () => {
    const { port, logged } = await secure(NONE + BELOW.list(), "require", { ca: ROOT.cert });
    expect(await asked(port, withChain(DEEP))).toBeNull();
    expect(logged.map(({ message }) => message)).toEqual([
      "a client certificate is refused: UNABLE_TO_GET_ISSUER_CERT",
    ]);
  });

  it.runIf(KNOWS_SHOWN)("goes to the upstream with its chain", async () => {
    const mtls = { client_cert_header: "rfc9440", client_cert_chain: true };
    const { port, upstream } = await secure(NONE + BELOW.list(), "request", { mtls });
    expect(await asked(port, withChain(DEEP))).toEqual([200, undefined]);
    const between = new X509Certificate(BELOW.cert).raw.toString("base64");
    const { headers } = upstream.seen[0]!;
    expect(headers[headers.indexOf("Client-Cert-Chain") + 1]).toBe(`:${between}:`);
  });

  it("is no matter where the client shows none", async () => {
    const { port } = await secure(FIRST, "request");
    const socket = tls.connect({ host: "127.0.0.1", port, servername: "localhost", ca: SERVER_CA.cert });
    onTestFinished(() => void socket.destroy());
    await once(socket, "secureConnect");
    expect(await answer(socket)).toEqual([401, "client_certificate_missing"]);
  });

  it("stays as it was judged where a new list cannot be used", async () => {
    const { gateway, port, file } = await secure(FIRST, "require");
    writeFileSync(file, FIRST.slice(0, 100));
    expect(() => gateway.rereadFiles()).toThrow("global.tls.client_crl");
    expect(await asked(port, BAD)).toBeNull();
    expect(await asked(port, GOOD)).toEqual([200, undefined]);
  });
});

describe("the certificate of an upstream", () => {
  async function upstreamWith({ cert, key }: Issued, lists: string, more: object = {}, options: object = {}) {
    const { port: upstream, sockets } = await httpsOrigin({ cert, key });
    const file = fileWith(lists);
    const tlsFields = { ca: fileWith(ROOT.cert), servername: "localhost", crl: file, ...more };
    const lines: string[] = [];
    const config = oneService(upstream, { protocol: "https", tls: tlsFields });
    const { gateway, port } = await running(config, { accessLog: (text) => void lines.push(text), ...options });
    const status = async () => (await ask(port, { path: "/a/x" })).status;
    return { gateway, status, lines, file, sockets };
  }

  it.each(CASES)("$what", async ({ lists, shown, code, expired }) => {
    const { status, lines } = await upstreamWith(shown, lists, expired && { crl_expired: expired });
    expect(await status()).toBe(code === null ? 200 : 502);
    await eventually(() => lines.length > 0);
    const { fault, code: error } = JSON.parse(lines[0]!) as { readonly fault?: string; readonly code: string | null };
    expect(error).toBe(code === null ? null : "upstream_connect_failed");
    if (code !== null) expect(fault).toMatch(new RegExp(`^the certificate of CN=\\w+ is refused: ${code}$`));
  });

  it("is looked up in a list that has been replaced, and idle connections end", async () => {
    const { gateway, status, file, sockets } = await upstreamWith(BAD, NONE);
    expect(await status()).toBe(200);
    expect(sockets.size).toBe(1);
    writeFileSync(file, FIRST);
    expect(gateway.rereadFiles()).toBe(true);
    expect(await status()).toBe(502);
    await eventually(() => sockets.size === 0);
  });

  it("is looked up by the clock of the gateway, in each handshake", async () => {
    const clock = manualClock(now);
    const list = ROOT.list({ to: now + DAY_MS });
    const { gateway, status, sockets } = await upstreamWith(GOOD, list, {}, { clock });
    expect(await status()).toBe(200);
    clock.advance(2 * DAY_MS);
    for (const socket of sockets) socket.destroy();
    await eventually(() => sockets.size === 0);
    expect(await status()).toBe(502);
    expect(gateway.status.warnings.map(({ code, path }) => [code, path])).toContainEqual([
      "crl_expired",
      "services.s.tls.crl",
    ]);
  });

  it("is not looked up where it is not verified: that is an error", async () => {
    const tlsFields = { verify: false, crl: fileWith(NONE) };
    await expect(running(oneService(9, { protocol: "https", tls: tlsFields }))).rejects.toThrow(
      '"crl" refuses nothing while "verify" is false',
    );
  });
});

describe("what is reported of lists", () => {
  const statusOf = ({ status }: Gateway) => ({
    lists: status.revocationLists,
    warnings: status.warnings.map(({ code, path, message }) => ({ code, path, message })),
  });

  it("has each list with its end in the status and in metrics, and a warning from three days before it", async () => {
    const clock = manualClock(Math.floor(now / 1000) * 1000);
    const to = clock.wall() + 5 * DAY_MS;
    const path = fileWith(ROOT.list({ to, from: now - DAY_MS }) + BELOW.list() + EXPIRED);
    const { gateway } = await running({ global: { tls: { client_crl: path } }, services: [] }, { clock });
    const files = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key) };
    await gateway.listen({ port: 0, tls: { ...files, ca: Buffer.from(ROOT.cert), requireClientCert: true } });
    expect(statusOf(gateway)).toEqual({
      lists: [
        { where: "global.tls.client_crl", path, issuer: "root", notAfter: to },
        { where: "global.tls.client_crl", path, issuer: "below", notAfter: expect.any(Number) as number },
      ],
      warnings: [],
    });
    expect(gateway.metrics()).toContain(
      `edge_gateway_tls_crl_expiry_timestamp_seconds{file="${path}",issuer="root"} ${to / 1000}\n`,
    );
    clock.advance(2 * DAY_MS + 1);
    const which = `The revocation list ${path} (global.tls.client_crl) of root`;
    const at = new Date(to).toISOString();
    const place = { path: "global.tls.client_crl" };
    expect(statusOf(gateway).warnings).toEqual([
      { code: "crl_expires", ...place, message: `${which} expires at ${at}.` },
    ]);
    clock.advance(3 * DAY_MS);
    expect(statusOf(gateway).warnings).toEqual([
      { code: "crl_expired", ...place, message: `${which} expired at ${at}: crl_expired decides what it does.` },
    ]);
  });

  it("is a warning where no listener asks clients for a certificate", async () => {
    const path = fileWith(NONE);
    const { gateway } = await running({ global: { tls: { client_crl: path } }, services: [] });
    expect(statusOf(gateway).warnings.map(({ code }) => code)).toEqual(["crl_unused"]);
  });

  it("is a line of the log where a list has expired, or is not valid yet", async () => {
    const logged: Logged[] = [];
    const path = fileWith(EXPIRED + BELOW.list({ from: now + DAY_MS }));
    await running({ global: { tls: { client_crl: path } }, services: [] }, { log: recordingLog(logged) });
    expect(logged).toEqual([
      { message: "a revocation list has expired", fields: { file: path, issuer: "root" } },
      { message: "a revocation list is not valid yet", fields: { file: path, issuer: "below" } },
    ]);
  });
});
