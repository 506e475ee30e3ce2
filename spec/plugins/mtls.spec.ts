import { X509Certificate } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { ClientCertificate } from "../../lib/http/client_certificate.ts";
import { Call } from "../../lib/http/exchange.ts";
import { headerValue, headerValues } from "../../lib/http/headers.ts";
import { silentLog } from "../../lib/base/log.ts";
import { mtls } from "../../lib/plugins/mtls.ts";
import { clientCertificate } from "../../lib/server/client_certificate.ts";
import { ALICE, NAMELESS, POSING, SERVER_ONLY, UNRESTRICTED } from "../support/more_certs.ts";
import {
  atOnce,
  checked,
  exercise,
  instance,
  madeUpExchange,
  madeUpTools,
  plainReply,
  problemOf,
} from "../support/exercise.ts";

const read = ({ cert }: { cert: string }, reason: string | null = null) =>
  clientCertificate(new X509Certificate(cert), reason);
const alice = read(ALICE);

function exchangeOf(certificate: ClientCertificate | null, headers: string[] = ["Host", "h"]) {
  const call = new Call({
    id: "request-1",
    remoteAddress: "192.0.2.1",
    trustedRemote: false,
    startedAt: 0,
    inform: () => {},
    certificate: () => certificate,
  });
  return madeUpExchange({ call, headers });
}

function ask(certificate: ClientCertificate | null, config: object = {}, middleware = instance(mtls, config)) {
  const exchange = exchangeOf(certificate);
  const { returned, forwarded } = exercise(middleware, exchange);
  const reply = atOnce(returned);
  return {
    status: reply.status,
    code: reply.status === 200 ? null : problemOf(reply)["code"],
    reply,
    forwarded,
    notes: exchange.call.notes,
  };
}

describe("who passes", () => {
  it("mtls admits every client whose certificate the CA has signed", () => {
    for (const certificate of [alice, read(NAMELESS), read(UNRESTRICTED)]) expect(ask(certificate).status).toBe(200);
  });

  it("mtls answers 401 client_certificate_missing without a certificate", () => {
    expect(ask(null)).toMatchObject({ status: 401, code: "client_certificate_missing", forwarded: null });
  });

  it(
    "mtls answers 401 client_certificate_invalid to an unverified certificate, " + "with the reason in the log only",
    () => {
      const { status, code, forwarded, notes, reply } = ask(read(ALICE, "CERT_HAS_EXPIRED"));
      expect([status, code, forwarded]).toEqual([401, "client_certificate_invalid", null]);
      expect(notes).toMatchObject({
        identity: null,
        fault: "the client certificate is not verified: CERT_HAS_EXPIRED",
      });
      expect(String(reply.body)).not.toMatch(/EXPIRED|alice/);
    },
  );

  it("mtls answers 401 client_certificate_invalid to a certificate that is not for authenticating clients", () => {
    expect(ask(read(SERVER_ONLY))).toMatchObject({
      status: 401,
      code: "client_certificate_invalid",
      notes: { fault: /extended key use/ } as unknown,
    });
  });

  it("mtls names scheme and realm in both refusals", () => {
    const middleware = instance(mtls, {}, madeUpTools({ gatewayName: "the gateway" }));
    for (const certificate of [null, read(SERVER_ONLY)]) {
      expect(headerValue(ask(certificate, {}, middleware).reply.headers, "www-authenticate")).toBe(
        'ClientCertificate realm="the gateway"',
      );
    }
  });
});

describe("allow", () => {
  const passes = (entry: string, certificate = alice) =>
    ask(certificate, { allow: ["someone else", entry] }).status === 200;

  it.each([
    "alice",
    "CN=alice,O=Söhne\\, Inc.,C=DE",
    "DNS:alice.example.com",
    "alice.example.com",
    "URI:spiffe://example/alice",
    "spiffe://example/alice",
    "email:alice@example.com",
    "alice@example.com",
    "IP:192.0.2.1",
    "192.0.2.1",
  ])("mtls accepts %s", (entry) => expect(passes(entry)).toBe(true));

  it.each([
    "Alice",
    "alic",
    "alice ",
    "CN=alice",
    "cn=alice,O=Söhne\\, Inc.,C=DE",
    "C=DE,O=Söhne\\, Inc.,CN=alice",
    "DNS:alice",
    "example.com",
    "*.example.com",
    "URI:alice.example.com",
    "DE",
  ])("mtls does not accept %s", (entry) =>
    expect(ask(alice, { allow: [entry] })).toMatchObject({ status: 401, code: "client_certificate_invalid" }),
  );

  it("mtls does not accept a name as one of another kind, nor one name as two", () => {
    for (const entry of ["DNS:alice.example.com", "alice.example.com", "URI:x:a"])
      expect(passes(entry, read(POSING))).toBe(false);
    expect(passes("x:a, DNS:alice.example.com", read(POSING))).toBe(true);
    expect(passes("CN=root,O=x", { ...alice, commonName: "CN=root,O=x" })).toBe(false);
  });

  it("mtls accepts a client without a subject by its alternative name, and never by an empty name", () => {
    expect(passes("nameless.example.com", read(NAMELESS))).toBe(true);
    expect(passes("alice", read(NAMELESS))).toBe(false);
  });

  it("mtls does not accept an unverified certificate", () => {
    expect(ask(read(ALICE, "DEPTH_ZERO_SELF_SIGNED_CERT"), { allow: ["alice"] }).status).toBe(401);
  });

  it("mtls checks a certificate once per connection", () => {
    let asked = 0;
    const watched = {
      ...alice,
      get names() {
        asked++;
        return alice.names;
      },
    };
    const middleware = instance(mtls, { allow: ["spiffe://example/alice"] });
    for (let i = 0; i < 5; i++) expect(ask(watched, {}, middleware).status).toBe(200);
    expect(asked).toBeLessThanOrEqual(3);
    const before = asked;
    ask(watched, {}, middleware);
    expect(asked).toBe(before);
  });
});

describe("what is passed on", () => {
  it("mtls adds subject, alternative names and fingerprint behind the client's headers", () => {
    expect(ask(alice).forwarded?.headers).toEqual([
      "Host",
      "h",
      "X-Client-Cert-Subject",
      "CN=alice,O=S\\C3\\B6hne\\, Inc.,C=DE",
      "X-Client-Cert-SAN",
      "DNS:alice.example.com,URI:spiffe://example/alice,email:alice@example.com,IP:192.0.2.1",
      "X-Client-Cert-Fingerprint",
      alice.fingerprint,
    ]);
  });

  it("mtls adds no headers for parts that the certificate does not contain", () => {
    expect(ask(read(NAMELESS)).forwarded?.headers).not.toContain("X-Client-Cert-Subject");
    expect(ask(read(UNRESTRICTED)).forwarded?.headers).not.toContain("X-Client-Cert-SAN");
  });

  it("mtls escapes characters that a header cannot carry, and commas in names", () => {
    const { forwarded } = ask({
      ...alice,
      subject: "CN=a\r\nX: y\u0000\u{1F600}",
      names: ["URI:a,DNS:b", 'DNS:ü "%\n'],
    });
    expect(headerValue(forwarded!.headers, "x-client-cert-subject")).toBe("CN=a\\0D\\0AX: y\\00\\F0\\9F\\98\\80");
    expect(headerValue(forwarded!.headers, "x-client-cert-san")).toBe("URI:a%2CDNS:b,DNS:%C3%BC%20%22%25%0A");
    expect(ask(read(POSING)).forwarded!.headers).toContain("URI:x:a%2C%20DNS:alice.example.com");
  });

  it("mtls sends each header once, also with two instances", () => {
    const { forwarded } = exercise(
      instance(mtls, {}),
      exchangeOf(alice, ["Host", "h", ...ask(alice).forwarded!.headers.slice(2), "X-Later", "1"]),
    );
    for (const name of ["x-client-cert-subject", "x-client-cert-san", "x-client-cert-fingerprint"])
      expect(headerValues(forwarded!.headers, name)).toHaveLength(1);
    expect(headerValue(forwarded!.headers, "x-later")).toBe("1");
  });

  it("mtls uses the CN, or else the fingerprint, as the caller's identity", () => {
    expect(ask(alice)).toMatchObject({ forwarded: { identity: "alice" }, notes: { identity: "alice" } });
    const nameless = read(NAMELESS);
    expect(ask(nameless).forwarded?.identity).toBe(nameless.fingerprint);
  });

  it("mtls returns the same reply or promise that the next handler returned", () => {
    const promise = Promise.resolve(plainReply);
    expect(exercise(instance(mtls, {}), exchangeOf(alice)).returned).toBe(plainReply);
    expect(exercise(instance(mtls, {}), exchangeOf(alice), () => promise).returned).toBe(promise);
  });
});

describe("configuration", () => {
  it("the configuration of mtls may be empty", () =>
    expect(checked(mtls.schema, {})).toEqual({ value: { clientCertChain: false }, issues: [] }));

  it.each<[object, string]>([
    [{ allow: [] }, "allow: expected at least 1 item, found none"],
    [{ allow: [""] }, 'allow[0]: expected a non-empty string, found ""'],
    [{ allow: "alice" }, 'allow: expected an array, found "alice"'],
    [{ alow: ["alice"] }, 'alow: is not a known field; did you mean "allow"?'],
  ])("mtls refuses the configuration %j: %s", (config, issue) =>
    expect(checked(mtls.schema, config).issues).toEqual([issue]),
  );
});

describe("Client-Cert", () => {
  const whole = (chain: readonly Buffer[], client_cert_chain = true) => {
    const said: string[] = [];
    const log = { ...silentLog, warn: (message: string) => void said.push(message) };
    const config = { clientCertHeader: "rfc9440", clientCertChain: client_cert_chain } as const;
    const middleware = mtls.create(config, { ...madeUpTools(), log });
    const { forwarded } = ask({ ...alice, chain: () => chain }, {}, middleware);
    return { said, header: (name: string) => headerValue(forwarded!.headers, name) };
  };

  it("mtls leaves out a chain of more than 16 KiB, with a line in the log", () => {
    const [fits, long] = [
      whole([Buffer.from("a"), Buffer.alloc(12_285)]),
      whole([Buffer.from("a"), Buffer.alloc(12_288)]),
    ];
    expect([fits.header("client-cert"), fits.header("client-cert-chain")!.length]).toEqual([":YQ==:", 16_382]);
    expect(fits.said).toEqual([]);
    expect([long.header("client-cert"), long.header("client-cert-chain")]).toEqual([":YQ==:", undefined]);
    expect(long.said).toEqual([
      "mtls: a chain of certificates is longer than 16384 bytes: Client-Cert-Chain is left out",
    ]);
  });

  it("mtls separates several certificates of a chain with commas", () => {
    expect(whole(["a", "b", "c"].map((text) => Buffer.from(text))).header("client-cert-chain")).toBe(":Yg==:, :Yw==:");
  });

  it("mtls sends none where the certificate itself is not known, as in tests", () => {
    expect(whole([]).header("client-cert")).toBeUndefined();
  });

  it("client_cert_chain needs client_cert_header, which has one value", () => {
    const issues = (config: object) => checked(mtls.schema, config).issues.join();
    expect(issues({ client_cert_chain: true })).toContain('needs "client_cert_header": "rfc9440"');
    expect(issues({ client_cert_header: "nginx" })).toContain('expected "rfc9440"');
  });
});
