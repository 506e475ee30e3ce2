import { spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import type {
  AcmeSettings,
  CertificateKeeper,
  Challenge,
  ChallengeAnswers,
  IssuedCertificate,
} from "../../lib/acme/contracts.ts";
import { alpnCertificate } from "../../lib/acme/alpn_certificate.ts";
import { keepCertificates } from "../../lib/acme/keeper.ts";
import { newKey, signingRequest } from "../../lib/acme/signing_request.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { createLog } from "../../lib/base/log.ts";
import { memoryFiles, type MemoryFiles } from "../support/acme_files.ts";
import { CA } from "../support/certs.ts";
import { soon } from "./browser.ts";
import { pebble } from "./pebble.ts";

interface Responder {
  readonly port: number;
  readonly answers: ChallengeAnswers;
  /** Challenges that are answered now. */
  readonly challenges: Set<Challenge>;
  /** The hosts that were answered for, in order. */
  readonly answered: readonly string[];
}

async function listening(server: http.Server | tls.Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

function answersIn(challenges: Set<Challenge>, answered: string[]): ChallengeAnswers {
  return {
    async present(open) {
      for (const challenge of open) {
        answered.push(challenge.host);
        challenges.add(challenge);
      }
    },
    async remove(over) {
      for (const challenge of over) challenges.delete(challenge);
    },
  };
}

/** Answers http-01, but for the hosts in `mute`. */
async function httpResponder(mute: ReadonlySet<string> = new Set()): Promise<Responder> {
  const challenges = new Set<Challenge>();
  const answered: string[] = [];
  const server = http.createServer((request, response) => {
    for (const each of challenges) {
      if (each.type !== "http-01" || request.url !== `/.well-known/acme-challenge/${each.token}`) continue;
      return void response.end(mute.has(each.host) ? "another" : each.keyAuthorization);
    }
    response.writeHead(404).end();
  });
  return { port: await listening(server), answers: answersIn(challenges, answered), challenges, answered };
}

/** Answers tls-alpn-01. */
async function tlsResponder(): Promise<Responder> {
  const challenges = new Set<Challenge>();
  const answered: string[] = [];
  const server = tls.createServer({
    ALPNProtocols: ["acme-tls/1"],
    SNICallback(servername, done) {
      for (const each of challenges)
        if (each.type === "tls-alpn-01" && each.servername === servername)
          return done(null, tls.createSecureContext(each.pair));
      done(new Error("unknown"));
    },
  });
  server.on("secureConnection", (socket) => socket.on("error", () => {}).end());
  return { port: await listening(server), answers: answersIn(challenges, answered), challenges, answered };
}

interface Kept {
  readonly keeper: CertificateKeeper;
  readonly files: MemoryFiles;
  readonly presented: () => readonly IssuedCertificate[];
  readonly lines: string[];
}

function keeperOf(
  settings: Partial<AcmeSettings> & Pick<AcmeSettings, "directory" | "hosts">,
  { answers }: Responder,
  files = memoryFiles(),
): Kept {
  let presented: readonly IssuedCertificate[] = [];
  const lines: string[] = [];
  const keeper = keepCertificates(
    {
      email: "ops@example.com",
      ca: Buffer.from(CA.cert),
      challenge: "http-01",
      eab: null,
      profile: null,
      hostsAllowed: [],
      ...settings,
    },
    {
      files,
      answers,
      clock: systemClock,
      log: createLog({ write: (line) => void lines.push(line) }),
      proxy: null,
      present: (certificates) => void (presented = certificates),
    },
  );
  onTestFinished(() => keeper.close());
  return { keeper, files, presented: () => presented, lines };
}

async function valid({ keeper }: Kept): Promise<void> {
  await soon(async () => keeper.state.state).toBe("valid");
}

describe("certificates of pebble", () => {
  it("a certificate for several hosts by http-01 is stored and presented, and its challenges are gone", async () => {
    const responder = await httpResponder();
    const { directory, root } = await pebble({ httpPort: responder.port });
    const kept = keeperOf({ directory, hosts: ["a.example", "b.example"] }, responder);
    kept.keeper.start();
    await valid(kept);
    const [issued, ...others] = kept.presented();
    expect(others).toEqual([]);
    expect(issued!.hosts).toEqual(["a.example", "b.example"]);
    const certificate = new X509Certificate(issued!.cert);
    expect(certificate.subjectAltName).toBe("DNS:a.example, DNS:b.example");
    const chain = String(issued!.cert).split(/(?<=-----END CERTIFICATE-----\n)/);
    expect(new X509Certificate(chain.at(-1)!).verify(new X509Certificate(await root()).publicKey)).toBe(true);
    expect([...responder.challenges]).toEqual([]);
    expect([...kept.files.content.keys()].sort()).toEqual(["account.key", "certificates.pem"]);
  });

  it("a certificate for a name and addresses by tls-alpn-01 is issued", async () => {
    const responder = await tlsResponder();
    const { directory } = await pebble({ tlsPort: responder.port });
    const hosts = ["a.example", "127.0.0.1"];
    const kept = keeperOf({ directory, hosts, challenge: "tls-alpn-01" }, responder);
    kept.keeper.start();
    await valid(kept);
    expect(new X509Certificate(kept.presented()[0]!.cert).subjectAltName).toBe("DNS:a.example, IP Address:127.0.0.1");
  });

  it("a directory that refuses half of all nonces issues the certificate all the same", async () => {
    const responder = await httpResponder();
    const { directory } = await pebble({ httpPort: responder.port, env: { PEBBLE_WFE_NONCEREJECT: "50" } });
    const kept = keeperOf({ directory, hosts: ["a.example", "127.0.0.1"] }, responder);
    kept.keeper.start();
    await valid(kept);
    expect(kept.keeper.state.orders).toEqual({ succeeded: 1, failed: 0 });
  });

  it("a host whose validation fails is left out, with its reason, and the others get their certificate", async () => {
    const responder = await httpResponder(new Set(["b.example"]));
    const { directory } = await pebble({ httpPort: responder.port });
    const kept = keeperOf({ directory, hosts: ["a.example", "b.example", "c.example"] }, responder);
    kept.keeper.start();
    await soon(async () => kept.presented().length).toBe(1);
    await soon(async () => kept.keeper.state.state).toBe("waiting");
    expect(kept.presented()[0]!.hosts).toEqual(["a.example", "c.example"]);
    const { hosts, orders } = kept.keeper.state;
    expect(hosts.map(({ error }) => error !== null)).toEqual([false, true, false]);
    expect(hosts[1]!.error).toContain("unauthorized");
    expect(orders).toEqual({ succeeded: 1, failed: 1 });
    expect([...responder.challenges]).toEqual([]);
  });

  it("hosts that the directory remembers as proved are not proved again, and a new host joins them", async () => {
    const responder = await httpResponder();
    const { directory } = await pebble({ httpPort: responder.port, env: { PEBBLE_AUTHZREUSE: "100" } });
    const kept = keeperOf({ directory, hosts: ["a.example"] }, responder);
    kept.keeper.start();
    await valid(kept);
    await kept.keeper.close();
    const again = keeperOf({ directory, hosts: ["a.example", "b.example"] }, responder, kept.files);
    again.keeper.start();
    await valid(again);
    expect(again.presented().map(({ hosts }) => hosts)).toEqual([["a.example", "b.example"]]);
    expect(responder.answered).toEqual(["a.example", "b.example"]);
  });

  it("a host that the directory issues nothing for is left out", async () => {
    const responder = await httpResponder();
    const { directory } = await pebble({ httpPort: responder.port, config: { domainBlocklist: ["bad.example"] } });
    const kept = keeperOf({ directory, hosts: ["bad.example", "good.example"] }, responder);
    kept.keeper.start();
    await soon(async () => kept.presented().length).toBe(1);
    await soon(async () => kept.keeper.state.state).toBe("waiting");
    expect(kept.presented()[0]!.hosts).toEqual(["good.example"]);
    expect(kept.keeper.state.hosts[0]!.error).toContain("rejectedIdentifier");
  });

  it("an account is bound to an external one; without it the error says what to configure", async () => {
    const responder = await httpResponder();
    const hmacKey = Buffer.from("zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W", "base64url");
    const config = {
      externalAccountBindingRequired: true,
      externalAccountMACKeys: { "kid-1": hmacKey.toString("base64url") },
    };
    const { directory } = await pebble({ httpPort: responder.port, config });
    const without = keeperOf({ directory, hosts: ["a.example"] }, responder);
    without.keeper.start();
    await soon(async () => without.keeper.state.error).toContain("configure eab");
    const kept = keeperOf({ directory, hosts: ["a.example"], eab: { kid: "kid-1", hmacKey } }, responder);
    kept.keeper.start();
    await valid(kept);
    expect(kept.lines.join("")).not.toContain(hmacKey.toString("base64url"));
  });

  it("the account's key is replaced, and the account goes on with the new one after a restart", async () => {
    const responder = await httpResponder();
    const { directory } = await pebble({ httpPort: responder.port });
    const kept = keeperOf({ directory, hosts: ["a.example"] }, responder);
    kept.keeper.start();
    await valid(kept);
    const former = kept.files.content.get("account.key")!;
    await kept.keeper.rollover();
    const key = kept.files.content.get("account.key")!;
    expect(key.equals(former)).toBe(false);
    expect(kept.files.content.has("account-next.key")).toBe(false);
    await kept.keeper.close();
    kept.files.content.delete("certificates.pem");
    const again = keeperOf({ directory, hosts: ["a.example"] }, responder, kept.files);
    again.keeper.start();
    await valid(again);
    expect(kept.files.content.get("account.key")).toEqual(key);
    // The directory refuses the former one.
    const old = memoryFiles();
    old.content.set("account-next.key", Buffer.concat([Buffer.from(`Directory: ${directory}\n`), former]));
    old.content.set("account.key", key);
    await keeperOf({ directory, hosts: ["a.example"] }, responder, old).keeper.rollover();
    expect(old.content.get("account.key")!.equals(key)).toBe(false);
  });
});

describe("what openssl reads", () => {
  const openssl = (input: Buffer, ...args: string[]) => {
    const { stdout, stderr } = spawnSync("openssl", args, { input });
    return `${String(stdout)}${String(stderr)}`;
  };

  it("a request for names and addresses has them, and its signature is verified", () => {
    const request = signingRequest(newKey(), ["a.example", "192.0.2.1", "2001:db8::1"]);
    const text = openssl(request, "req", "-inform", "DER", "-verify", "-noout", "-text");
    expect(text).toContain("verify OK");
    expect(text).toContain("DNS:a.example, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1");
  });

  it("a certificate for tls-alpn-01 has the extension of RFC 8737, which is critical", () => {
    const { cert } = alpnCertificate("a.example", "token.thumbprint", Date.now());
    const text = openssl(cert, "x509", "-noout", "-text");
    expect(text).toContain("Version: 3 (0x2)");
    expect(text).toContain("DNS:a.example");
    expect(text).toMatch(/1\.3\.6\.1\.5\.5\.7\.1\.31: critical/);
  });
});
