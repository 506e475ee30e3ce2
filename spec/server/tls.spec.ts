import { once } from "node:events";
import type { AddressInfo } from "node:net";
import tls, { type ConnectionOptions, type TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { HostCertificates, Pair, TlsFiles } from "../../lib/server/certificates.ts";
import { TlsServers } from "../../lib/server/tls.ts";
import { CA, CLIENT, SERVER, STRANGER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { expectEntryFaults } from "../support/entry_faults.ts";
import { OTHER_CA, RENEWED, SHOP } from "../support/more_certs.ts";

const pair = ({ cert, key }: { cert: string; key: string }): Pair => ({
  cert: Buffer.from(cert),
  key: Buffer.from(key),
});
const FILES: TlsFiles = { ...pair(SERVER), ca: null, requireClientCert: false };
const ASKING: TlsFiles = { ...FILES, ca: Buffer.from(CA.cert) };

interface Met {
  readonly resumed: boolean;
  /** CN of what the client has shown, as the server knows it. */
  readonly client: string | undefined;
  /** CN of what the server has shown; undefined on a resumed session. */
  readonly server: string | undefined;
  readonly fingerprint: string | undefined;
  readonly session: Buffer;
}

const log = { debug() {}, info() {}, warn() {}, error() {} };

function family(certificates: () => HostCertificates = () => ({ find: () => undefined })) {
  const clock = manualClock();
  const servers = new TlsServers({ certificates, clock, log });
  return {
    clock,
    renew: (files: TlsFiles) => servers.renew(files),
    useTicketKey: (key: Buffer) => servers.useTicketKey(key),
    async open(files: TlsFiles): Promise<number> {
      const sockets = new Set<TLSSocket>();
      const serve = (socket: TLSSocket) => {
        sockets.add(socket);
        socket.write(JSON.stringify([socket.isSessionReused(), socket.getPeerX509Certificate()?.subject]));
        socket.on("data", (chunk) => socket.write(chunk));
      };
      const server = servers.create(files, { accept: (_, begin) => begin(), serve });
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      onTestFinished(async () => {
        for (const socket of sockets) socket.destroy();
        await new Promise((resolve) => server.close(resolve));
      });
      return (server.address() as AddressInfo).port;
    },
  };
}

function connected(port: number, options: ConnectionOptions = {}): Promise<{ socket: TLSSocket; met: Met }> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({
      host: "127.0.0.1",
      port,
      servername: "localhost",
      rejectUnauthorized: false,
      ...options,
    });
    onTestFinished(() => void socket.destroy());
    let session: Buffer | undefined;
    let said: string | undefined;
    const look = () => {
      if (session === undefined || said === undefined) return;
      const [resumed, client] = JSON.parse(said) as [boolean, string | undefined];
      const shown = socket.getPeerX509Certificate();
      resolve({
        socket,
        met: { resumed, client, server: shown?.subject, fingerprint: shown?.fingerprint256, session },
      });
    };
    // With TLS 1.2 a resumed session brings no new ticket: the old one is kept.
    socket.on("secureConnect", () => {
      if (socket.isSessionReused()) session ??= options.session as Buffer;
      look();
    });
    socket.on("session", (ticket) => {
      session = ticket;
      look();
    });
    socket.once("data", (chunk: Buffer) => {
      said = chunk.toString();
      look();
    });
    socket.once("error", reject);
    socket.once("close", () => reject(new Error("closed")));
  });
}

const meet = async (port: number, options?: ConnectionOptions) => (await connected(port, options)).met;

const VERSIONS = ["TLSv1.2", "TLSv1.3"] as const;
const only = (version: (typeof VERSIONS)[number]) => ({ minVersion: version, maxVersion: version });

describe.each(VERSIONS)("a session of %s", (version) => {
  it("a TLS session resumes by its ticket, even at another server of the same object", async () => {
    const { open } = family();
    const [one, two] = [await open(FILES), await open(FILES)];
    const { resumed, session } = await meet(one, only(version));
    expect(resumed).toBe(false);
    expect((await meet(one, { ...only(version), session })).resumed).toBe(true);
    expect((await meet(two, { ...only(version), session })).resumed).toBe(true);
  });

  it("a TLS session does not resume at servers of another object", async () => {
    const { session } = await meet(await family().open(FILES), only(version));
    expect((await meet(await family().open(FILES), { ...only(version), session })).resumed).toBe(false);
  });

  it(
    "a TLS session resumes at servers of another object that were given the same key, " +
      "until they are given another; neither makes keys of its own",
    async () => {
      const [one, two] = [family(), family()];
      for (const { useTicketKey } of [one, two]) useTicketKey(Buffer.alloc(48, 1));
      const ports = [await one.open(FILES), await one.open(FILES), await two.open(FILES)];
      const { session } = await meet(ports[0]!, only(version));
      for (const each of [one, two]) each.clock.advance(3_600_000);
      for (const port of ports) expect((await meet(port, { ...only(version), session })).resumed).toBe(true);
      two.useTicketKey(Buffer.alloc(48, 2));
      expect((await meet(ports[2]!, { ...only(version), session })).resumed).toBe(false);
      expect((await meet(ports[1]!, { ...only(version), session })).resumed).toBe(true);
    },
  );

  it("a TLS session resumes after the certificate was replaced, even for a host with its own certificate", async () => {
    const certificates = { find: (host: string) => (host === "shop.example.com" ? shop : undefined) };
    const shop = pair(SHOP);
    const { open, renew } = family(() => certificates);
    const port = await open(FILES);
    for (const servername of ["localhost", "shop.example.com"]) {
      const { session, server } = await meet(port, { ...only(version), servername });
      expect(server).toBe(`CN=${servername}`);
      renew({ ...FILES, ...pair(RENEWED) });
      expect((await meet(port, { ...only(version), servername, session })).resumed).toBe(true);
      renew(FILES);
    }
  });

  it(
    "a TLS session does not resume once the ticket key has been replaced after an hour, " +
      "at any server, for any host",
    async () => {
      const certificates = { find: (host: string) => (host === "shop.example.com" ? shop : undefined) };
      const shop = pair(SHOP);
      const { open, renew, clock } = family(() => certificates);
      const ports = [await open(FILES), await open(FILES)];
      for (const servername of ["localhost", "shop.example.com"]) {
        const { session } = await meet(ports[0]!, { ...only(version), servername });
        clock.advance(3_599_999);
        renew({ ...FILES, ...pair(RENEWED) });
        for (const port of ports)
          expect((await meet(port, { ...only(version), servername, session })).resumed).toBe(true);
        clock.advance(1);
        for (const port of ports)
          expect((await meet(port, { ...only(version), servername, session })).resumed).toBe(false);
        const next = await meet(ports[0]!, { ...only(version), servername });
        expect((await meet(ports[1]!, { ...only(version), servername, session: next.session })).resumed).toBe(true);
      }
    },
  );

  it("a TLS session keeps the client's certificate, or its absence, when it is resumed", async () => {
    const port = await family().open(ASKING);
    for (const [identity, subject] of [
      [CLIENT, "CN=a client"],
      [STRANGER, "CN=a stranger"],
      [{}, undefined],
    ] as const) {
      const { session, client } = await meet(port, { ...only(version), ...identity });
      expect(client ?? undefined).toBe(subject);
      const again = await meet(port, { ...only(version), session });
      expect([again.resumed, again.client ?? undefined]).toEqual([true, subject]);
    }
  });

  it("a TLS session does not resume under another CA: the old CA verified the client's certificate", async () => {
    const { open, renew } = family();
    const port = await open(ASKING);
    const { session } = await meet(port, { ...only(version), ...CLIENT });
    renew({ ...ASKING, ca: Buffer.from(OTHER_CA.cert) });
    expect((await meet(port, { ...only(version), ...CLIENT, session })).resumed).toBe(false);
    renew(ASKING);
    expect((await meet(port, { ...only(version), ...CLIENT, session })).resumed).toBe(true);
  });

  it("a TLS session does not resume without a client certificate at a server that requires a certificate", async () => {
    const { open } = family();
    const { session } = await meet(await open(ASKING), only(version));
    const strict = await open({ ...ASKING, requireClientCert: true });
    await expect(meet(strict, { ...only(version), session })).rejects.toThrow();
  });
});

it("leaves no timer when the last server has closed", async () => {
  const clock = manualClock();
  const servers = new TlsServers({ clock, log });
  const made = [1, 2].map(() => servers.create(FILES, { accept: (_, begin) => begin(), serve: () => {} }));
  for (const server of made) await once(server.listen(0, "127.0.0.1"), "listening");
  expect(clock.pending).toBe(1);
  for (const server of made) await once(server.close(), "close");
  expect(clock.pending).toBe(0);
});

describe("servers for one address, and for challenges", () => {
  /** With one pair for all addresses or, with "challenge", for all challenges. `debug`: of the log. */
  async function opened(kind: "address" | "challenge", debug: () => void = () => {}): Promise<number> {
    const own = pair(SHOP);
    const issued = {
      isChallengedOverTls: kind === "challenge",
      pairFor: () => undefined,
      challengePair: () => own,
    };
    const certificates = () => ({ issued, find: () => undefined, atAddress: () => own });
    const servers = new TlsServers({ certificates, clock: manualClock(), log: { ...log, debug } });
    const server = servers.create(FILES, { accept: (_, begin) => begin(), serve: (socket) => void socket.end() });
    await once(server.listen(0, "127.0.0.1"), "listening");
    onTestFinished(async () => {
      servers.endIdle();
      await new Promise((resolve) => server.close(resolve));
    });
    return (server.address() as AddressInfo).port;
  }

  const shaken = (port: number, options: ConnectionOptions): Promise<string> => {
    const socket = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false, ...options });
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => {}).resume();
    return new Promise((resolve) => {
      for (const event of ["secureConnect", "close"]) socket.once(event, () => resolve(event));
    });
  };
  const VALIDATOR = { servername: "localhost", ALPNProtocols: ["acme-tls/1"] };

  it.each([
    ["address", {}],
    ["challenge", VALIDATOR],
  ] as const)("what a listener of one (%s) throws ends that connection alone", async (kind, asked) => {
    const faults = expectEntryFaults();
    // Once: the end of the connection is logged, too, perhaps when this is over.
    let isFull = true;
    const port = await opened(kind, () => {
      if (!isFull) return;
      isFull = false;
      throw new Error("the log is full");
    });
    // Its certificate has another type of key.
    const refused = { ...asked, ciphers: "ECDHE-RSA-AES128-GCM-SHA256", maxVersion: "TLSv1.2" } as const;
    expect(await shaken(port, refused)).toBe("close");
    expect(faults.map(({ error }) => (error as Error).message)).toEqual(["the log is full"]);
    expect(await shaken(port, asked)).toBe("secureConnect");
  });

  it("are made once for each certificate", async () => {
    const port = await opened("challenge");
    const made = vi.spyOn(tls, "createServer");
    onTestFinished(() => made.mockRestore());
    for (let i = 0; i < 3; i++) expect(await shaken(port, VALIDATOR)).toBe("secureConnect");
    expect(made).toHaveBeenCalledTimes(1);
  });
});

describe("renew", () => {
  it("shows the new certificate to new connections of every server, and keeps open connections", async () => {
    const { open, renew } = family();
    const ports = [await open(FILES), await open(FILES)];
    const { socket, met } = await connected(ports[0]!);
    renew({ ...FILES, ...pair(RENEWED) });
    for (const port of ports) expect((await meet(port)).fingerprint).not.toBe(met.fingerprint);
    const echoed = once(socket, "data");
    socket.write("still here");
    expect(String((await echoed)[0])).toBe("still here");
  });

  it("verifies clients by the new CA, on every host", async () => {
    const shop = pair(SHOP);
    const { open, renew } = family(() => ({ find: (host) => (host === "shop.example.com" ? shop : undefined) }));
    const port = await open({ ...ASKING, requireClientCert: true });
    for (const servername of ["localhost", "shop.example.com"]) await meet(port, { servername, ...CLIENT });
    renew({ ...ASKING, ca: Buffer.from(OTHER_CA.cert), requireClientCert: true });
    for (const servername of ["localhost", "shop.example.com"])
      await expect(meet(port, { servername, ...CLIENT })).rejects.toThrow();
  });

  it.each<[string, TlsFiles]>([
    ["a key of another certificate", { ...FILES, key: Buffer.from(RENEWED.key) }],
    ["garbage", { ...FILES, cert: Buffer.from("none") }],
    ["a CA where there was none", ASKING],
    ["certificates required where they were not", { ...FILES, requireClientCert: true }],
  ])("throws for %s, and keeps the old certificate", async (_what, files) => {
    const { open, renew } = family();
    const port = await open(FILES);
    const before = await meet(port);
    expect(() => renew(files)).toThrow();
    const after = await meet(port);
    expect(after.fingerprint).toBe(before.fingerprint);
    expect((await meet(port, { session: before.session })).resumed).toBe(true);
  });
});

describe("a host with its own certificate", () => {
  it(
    "a host with its own certificate gets its certificate looked up at each handshake; " +
      "a handshake without a name, or with an unknown name, gets the default",
    async () => {
      const shop = pair(SHOP);
      let known = true;
      const port = await family(() => ({
        find: (host) => (known && host === "shop.example.com" ? shop : undefined),
      })).open(FILES);
      expect((await meet(port, { servername: "shop.example.com" })).server).toBe("CN=shop.example.com");
      expect((await meet(port, { servername: "other.example.com" })).server).toBe("CN=localhost");
      expect((await meet(port, { servername: "" })).server).toBe("CN=localhost");
      known = false;
      expect((await meet(port, { servername: "shop.example.com" })).server).toBe("CN=localhost");
    },
  );

  it("a host with its own certificate fails only its own handshakes when its certificate cannot be used", async () => {
    const broken = { ...pair(SHOP), key: Buffer.from(SERVER.key) };
    const port = await family(() => ({ find: (host) => (host === "shop.example.com" ? broken : undefined) })).open(
      FILES,
    );
    await expect(meet(port, { servername: "shop.example.com" })).rejects.toThrow();
    expect((await meet(port)).server).toBe("CN=localhost");
  });
});

it("refuses renegotiation", async () => {
  const port = await family().open(FILES);
  const { socket } = await connected(port, only("TLSv1.2"));
  const outcome = await new Promise<string>((resolve) => {
    socket.once("error", () => resolve("refused"));
    socket.once("close", () => resolve("refused"));
    socket.renegotiate({ rejectUnauthorized: false }, (error) => resolve(error === null ? "done" : "refused"));
  });
  expect(outcome).toBe("refused");
});
