import { X509Certificate } from "node:crypto";
import type { TLSSocket } from "node:tls";
import { describe, expect, it } from "vitest";
import { tlsFactsOf, clientCertificate } from "../../lib/server/client_certificate.ts";
import { CLIENT, STRANGER } from "../support/certs.ts";
import { ALICE, NAMELESS, POSING, SERVER_ONLY, UNRESTRICTED } from "../support/more_certs.ts";

const read = ({ cert }: { cert: string }) => clientCertificate(new X509Certificate(cert), null);

describe("clientCertificate", () => {
  it(
    "reads the subject as in RFC 4514, the most specific name, all alternative names, " + "the key uses and SHA-256",
    () => {
      const { chain, ...facts } = read(ALICE);
      expect(chain?.()).toEqual([new X509Certificate(ALICE.cert).raw]);
      expect(facts).toEqual({
        verified: true,
        reason: null,
        subject: "CN=alice,O=Söhne\\, Inc.,C=DE",
        commonName: "alice",
        names: ["DNS:alice.example.com", "URI:spiffe://example/alice", "email:alice@example.com", "IP:192.0.2.1"],
        fingerprint: new X509Certificate(ALICE.cert).fingerprint256.replaceAll(":", "").toLowerCase(),
        keyUses: ["1.3.6.1.5.5.7.3.2"],
      });
      expect(facts.fingerprint).toMatch(/^[0-9a-f]{64}$/);
    },
  );

  it("reads a certificate without a subject, alternative names or key uses", () => {
    expect(read(NAMELESS)).toMatchObject({ subject: "", commonName: null, names: ["DNS:nameless.example.com"] });
    expect(read(UNRESTRICTED)).toMatchObject({
      subject: "CN=unrestricted",
      commonName: "unrestricted",
      names: [],
      keyUses: [],
    });
    expect(read(SERVER_ONLY).keyUses).toEqual(["1.3.6.1.5.5.7.3.1"]);
  });

  it("reads one alternative name that imitates two as one", () => {
    expect(read(POSING)).toMatchObject({
      commonName: "DNS:alice.example.com",
      names: ["URI:x:a, DNS:alice.example.com"],
    });
  });

  it("orders several attributes and parts, the most specific first", () => {
    const made = (subject: string | undefined, CN: unknown) => {
      const certificate = { subject, fingerprint256: "AA:BB", toLegacyObject: () => ({ subject: { CN } }) };
      const { subject: written, commonName } = clientCertificate(certificate as unknown as X509Certificate, "WHY");
      return [written, commonName];
    };
    expect(made("C=DE\nCN=outer\nCN=a + UID=b", ["outer", "a"])).toEqual(["CN=a+UID=b,CN=outer,C=DE", "a"]);
    expect(made("CN=a \\+ b\\0ACN=c", "a + b\nCN=c")).toEqual(["CN=a \\+ b\\0ACN=c", "a + b\nCN=c"]);
    expect(made(undefined, undefined)).toEqual(["", null]);
    expect(made("CN=", "")).toEqual(["CN=", null]);
  });

  it("gives the reason why it is not verified", () => {
    expect(clientCertificate(new X509Certificate(STRANGER.cert), "DEPTH_ZERO_SELF_SIGNED_CERT")).toMatchObject({
      verified: false,
      reason: "DEPTH_ZERO_SELF_SIGNED_CERT",
    });
  });
});

describe("tlsFactsOf", () => {
  function socket(cert: string | null, parts: object = {}) {
    let reads = 0;
    const getPeerX509Certificate = () => {
      reads++;
      return cert === null ? undefined : new X509Certificate(cert);
    };
    return {
      socket: { getPeerX509Certificate, authorized: true, authorizationError: null, ...parts } as unknown as TLSSocket,
      reads: () => reads,
    };
  }

  it("reads the certificate once a connection, when it is first needed", () => {
    for (const cert of [CLIENT.cert, null]) {
      const { socket: one, reads } = socket(cert);
      const reader = tlsFactsOf(one).certificate;
      expect(reads()).toBe(0);
      expect(tlsFactsOf(one).certificate).toBe(reader);
      expect(reader()).toBe(tlsFactsOf(one).certificate());
      expect(reads()).toBe(1);
    }
  });

  it("ignores socket.authorized if there is no certificate", () => {
    expect(tlsFactsOf(socket(null).socket).certificate()).toBeNull();
  });

  it("gives the reason why a certificate is not verified", () => {
    const { socket: one } = socket(STRANGER.cert, { authorized: false, authorizationError: "CERT_HAS_EXPIRED" });
    expect(tlsFactsOf(one).certificate()).toMatchObject({ verified: false, reason: "CERT_HAS_EXPIRED" });
    expect(tlsFactsOf(socket(STRANGER.cert, { authorized: false }).socket).certificate()).toMatchObject({
      verified: false,
      reason: "UNVERIFIED",
    });
  });

  it("returns null for a closed connection", () => {
    const unbound = () => {
      throw new Error("unbound");
    };
    const gone = { getPeerX509Certificate: unbound, getProtocol: unbound } as unknown as TLSSocket;
    expect([tlsFactsOf(gone).certificate(), tlsFactsOf(gone).version]).toEqual([null, null]);
  });
});
