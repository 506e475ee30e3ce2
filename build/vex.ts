/**
 * The VEX document of a release, as OpenVEX 0.2.0 (https://github.com/openvex/spec): which published vulnerabilities of
 * Node, OpenSSL and nghttp2, which the gateway runs on and does not ship, matter to it. What is not listed here has not
 * been assessed.
 */
import type { Facts } from "./facts.ts";

type Part = "node" | "openssl" | "nghttp2";

interface Statement {
  readonly names: readonly string[];
  readonly part: Part;
  readonly status: "not_affected" | "affected";
  /** Of `not_affected`. */
  readonly justification?: "vulnerable_code_not_in_execute_path" | "inline_mitigations_already_exist";
  /** Why; of `affected` what to do. */
  readonly text: string;
  /** What the sources do not name, if that is the reason: a spec looks for it. */
  readonly unused?: readonly string[];
}

const unused = (part: Part, names: readonly string[], text: string, words: readonly string[] = []): Statement => ({
  names,
  part,
  status: "not_affected",
  justification: "vulnerable_code_not_in_execute_path",
  text,
  unused: words,
});
const affected = (part: Part, names: readonly string[], text: string): Statement => ({
  names,
  part,
  status: "affected",
  text,
});
const mitigated = (names: readonly string[], text: string): Statement => ({
  names,
  part: "nghttp2",
  status: "not_affected",
  justification: "inline_mitigations_already_exist",
  text,
});

const UPDATE_NOVEMBER = "Run Node 22.23.5, 24.22.3, 26.13.1 or newer.";
const UPDATE_OCTOBER = "Run Node 22.23.4, 24.22.1, 26.12.1 or newer.";
const UPDATE_JULY = "Run Node 22.23.2, 24.18.1, 26.5.1 or newer; Node 20 has no fix.";

export const STATEMENTS: readonly Statement[] = [
  affected(
    "node",
    ["CVE-2026-123866"],
    `HTTP/2 streams that end while a write waits: the gateway serves HTTP/2. ` +
      `${UPDATE_NOVEMBER} Or serve HTTP/1.1 alone.`,
  ),
  affected(
    "node",
    ["CVE-2026-123864"],
    `HTTPS over HTTP/1.1: the head of a reply may be sent before the body of its request ends. ${UPDATE_NOVEMBER}`,
  ),
  affected(
    "node",
    ["CVE-2026-105481"],
    `Connections of plugins, health checks and the management UI are those of Node's agent. ${UPDATE_OCTOBER}`,
  ),
  affected("node", ["CVE-2026-56848"], `Memory of an HTTP/2 session. ${UPDATE_JULY}`),
  affected("node", ["CVE-2026-56846"], `Header blocks that HTTP/2 keeps. ${UPDATE_JULY}`),
  affected(
    "nghttp2",
    ["CVE-2026-27135"],
    "Run a Node with nghttp2 1.68.1 or newer (node -p process.versions.nghttp2); " +
      "a start with an older one and HTTP/2 logs a warning.",
  ),
  mitigated(
    ["CVE-2023-44487"],
    "Each connection has an allowance of resets, then gets GOAWAY: spec/journeys/h2.spec.ts.",
  ),
  mitigated(
    ["CVE-2025-8671"],
    "Streams that the gateway resets for a client's errors count against the same allowance: spec/journeys/h2.spec.ts.",
  ),
  mitigated(
    ["CVE-2024-28182"],
    "A connection that sends CONTINUATION frames without end is closed: spec/journeys/h2.spec.ts.",
  ),
  unused("node", ["CVE-2026-123874"], "No file is sent with respondWithFile or respondWithFD.", [
    "respondWithFile",
    "respondWithFD",
  ]),
  unused(
    "node",
    ["CVE-2026-123872"],
    "TLS servers refuse renegotiation (SSL_OP_NO_RENEGOTIATION), and have one rule for client certificates.",
  ),
  unused(
    "node",
    ["CVE-2026-111497"],
    "The Brotli decoder is not used: replies are compressed with Brotli, and nothing is decompressed from it.",
    ["createBrotliDecompress", "brotliDecompress"],
  ),
  unused("node", ["CVE-2026-56850"], "No client certificate is given as PFX.", ["pfx"]),
  unused("node", ["CVE-2026-58041"], "node:sqlite is not loaded.", ["node:sqlite"]),
  unused("node", ["CVE-2026-58042"], "No name is looked up with resolveAny.", ["resolveAny"]),
  unused("node", ["CVE-2026-105482"], "Names are looked up with lookup alone, not with the resolve functions.", [
    "dns.resolve",
    "resolve4",
    "resolve6",
    "new Resolver",
  ]),
  unused("node", ["CVE-2026-48933", "CVE-2026-21713"], "Web Cryptography is not used.", ["subtle", "webcrypto"]),
  unused(
    "node",
    ["CVE-2026-48928"],
    "Certificates of several hosts come from an SNICallback of the gateway, not from addContext.",
    ["addContext"],
  ),
  unused(
    "node",
    ["CVE-2026-123867"],
    "Certificates of several hosts come from an SNICallback of the gateway, not from addContext, " +
      "and have one CA for clients.",
    ["addContext"],
  ),
  unused("node", ["CVE-2026-21710"], "headersDistinct and trailersDistinct are not read.", [
    "headersDistinct",
    "trailersDistinct",
  ]),
  unused(
    "node",
    ["CVE-2024-27980", "CVE-2024-36138"],
    "The only program that is started is Node itself (compare), without a shell: never a batch file.",
    ["shell:", "execFile", "execSync"],
  ),
  unused("openssl", ["CVE-2026-35190"], "The certificate flags of Suite B cannot be set through Node."),
  unused("openssl", ["CVE-2026-18798", "CVE-2026-14456", "CVE-2026-63075"], "QUIC is not used.", ["node:quic"]),
  unused(
    "openssl",
    ["CVE-2026-63072", "CVE-2026-28389", "CVE-2026-28390"],
    "CMS messages are not read: Node has no function for them.",
  ),
  unused(
    "openssl",
    ["CVE-2026-63076", "CVE-2026-63073", "CVE-2026-63074", "CVE-2026-42769"],
    "CMP is not used: Node has no function for it.",
  ),
  unused("openssl", ["CVE-2026-54874"], "DTLS is not used: Node has no function for it."),
  unused("openssl", ["CVE-2026-28387"], "DANE is not used: Node has no function for it."),
  unused("openssl", ["CVE-2026-14457"], "Raw public keys are not used in TLS: certificates are X.509."),
];

export function vex({ name, version, epoch }: Pick<Facts, "name" | "version" | "epoch">): unknown {
  const timestamp = new Date(epoch * 1000).toISOString();
  const purl = `pkg:npm/${name}@${version}`;
  return {
    "@context": "https://openvex.dev/ns/v0.2.0",
    "@id": `urn:${name}:vex:${version}`,
    author: `${name} maintainers`,
    role: "Document Creator",
    timestamp,
    version: 1,
    statements: STATEMENTS.flatMap(({ names, part, status, justification, text }) =>
      names.map((vulnerability) => ({
        vulnerability: { name: vulnerability },
        products: [{ "@id": purl, identifiers: { purl }, subcomponents: [{ "@id": `pkg:generic/${part}` }] }],
        status,
        ...(justification === undefined ? { action_statement: text } : { justification, impact_statement: text }),
      })),
    ),
  };
}
