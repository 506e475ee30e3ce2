/**
 * The schema of `global.acme`: certificates that the gateway orders and renews itself (RFC 8555).
 */
import { isIP, SocketAddress } from "node:net";
import type { FeatureFields, Report } from "./feature_fields.ts";
import { choice, hostProblem } from "./fields.ts";
import * as s from "./whole_schema.ts";
import { certificatesProblem } from "../base/pem.ts";

/** What one order may name (Let's Encrypt). */
const MAX_HOSTS = 100;

const DIRECTORY = s.string({
  references: "address",
  hint: "an https:// URL",
  describe: "URL of the directory: where the certificate authority says what it offers.",
  check(text) {
    const url = URL.canParse(text) ? new URL(text) : null;
    if (url === null || url.hostname === "") return "";
    if (url.protocol !== "https:") return "RFC 8555 §6.1 needs TLS: write an https:// URL, and its own CA into acme.ca";
    if (url.username !== "" || url.password !== "") return "leave user and password out";
    return url.hash === "" ? undefined : "leave the fragment out";
  },
});

const EMAIL = s.string({
  references: "value",
  max: 254,
  hint: "an email address",
  describe: "Where the certificate authority may write to; default: nowhere.",
  check(text) {
    if (/^mailto:/i.test(text)) return 'write the address without "mailto:"';
    // RFC 8555 §7.3: one address, and no header fields.
    const [, domain] = /^[!#-'*+\--9=?A-Z^-~]+@([^@]+)$/.exec(text) ?? [];
    return domain !== undefined && hostProblem(domain) === undefined ? undefined : "";
  },
});

const HOST = s.string({
  references: "none",
  lowerCase: true,
  hint: "a host name or an IP address",
  describe: "A host name, or an IP address (RFC 8738).",
  check(text) {
    if (text.startsWith("*.")) return "wildcards need a challenge over DNS, which the gateway does not answer";
    const problem = hostProblem(text);
    if (problem !== undefined) return problem;
    if (isIP(text) === 0) return text.endsWith(".") ? "write it without the dot at its end" : undefined;
    const usual = usualAddress(text);
    return usual === text.toLowerCase() ? undefined : usual === "" ? "write it without a zone" : `write "${usual}"`;
  },
});

/** An IP address as sockets report it, and certificates name it (RFC 5952); "": it has a zone. */
function usualAddress(text: string): string {
  if (text.includes("%")) return "";
  const family = isIP(text) === 6 ? "ipv6" : "ipv4";
  return new SocketAddress({ address: text, family }).address.replace(/^::ffff:(?=.*\.)/, "");
}

const TERMS = s.boolean({
  describe: "That you agree to the terms of service of the certificate authority: true.",
});

/** RFC 4648 §5, without padding; a group of one character has no whole byte. */
const BASE64URL = /^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?$/;

const EAB = s.object(
  {
    kid: s.string({ references: "value", min: 1, max: 1000, describe: "The name of the key." }),
    hmac_key: s.string({
      secret: true,
      min: 1,
      max: 1000,
      hint: "the key in base64url",
      describe: "The key in base64url, as the certificate authority has given it.",
      check: (text) => (BASE64URL.test(text) ? undefined : ""),
    }),
  },
  { describe: "External account binding (RFC 8555 §7.3.4): an account that the certificate authority knows." },
);

const ALLOWED_HOST = s.string({
  references: "none",
  lowerCase: true,
  hint: "a host name or an IP address",
  describe: "A host besides the directory's own.",
  check: (text) => (text.startsWith("*") ? "write each host by itself" : hostProblem(text)),
});

export const ACME = s.object(
  {
    directory: DIRECTORY,
    email: s.optional(EMAIL),
    hosts: s.array(HOST, {
      min: 1,
      max: MAX_HOSTS,
      describe: "Hosts that certificates are ordered for; one certificate is for all of them.",
    }),
    ca: s.optional(
      s.file({
        describe: "CA certificates that sign the directory's certificate, a PEM file; default: the system's.",
        check: certificatesProblem,
      }),
    ),
    terms_agreed: TERMS,
    challenge: choice(["http-01", "tls-alpn-01"], "How the gateway proves that it serves a host."),
    eab: s.optional(EAB),
    profile: s.optional(
      s.string({
        references: "none",
        min: 1,
        max: 200,
        pattern: /^[!-~]+$/,
        hint: "the name of a profile",
        describe: "The profile that is asked for, if the directory lists it.",
      }),
    ),
    hosts_allowed: s.withDefault(
      s.array(ALLOWED_HOST, { describe: "Hosts that the directory's URLs may name, besides its own." }),
      [],
    ),
  },
  {
    describe: "Certificates that the gateway orders from a certificate authority, and renews (ACME).",
    refine({ termsAgreed, hosts }, report) {
      if (!termsAgreed)
        report("expected true: certificates are ordered once you agree to the terms of service", "terms_agreed");
      hosts.forEach((host, i) => {
        const first = hosts.indexOf(host);
        if (first < i) report(`is the same host as global.acme.hosts[${first}]`, "hosts", i);
      });
    },
  },
);

interface Certificates {
  readonly acme?: { readonly hosts: readonly string[] };
  readonly certificates: readonly { readonly hosts: readonly string[] }[];
}

/** Reports a host that has a configured certificate. */
function checkGlobal({ acme, certificates }: Certificates, report: Report): void {
  acme?.hosts.forEach((host, i) => {
    const other = certificates.findIndex(({ hosts }) => hosts.includes(host));
    if (other !== -1)
      report(`has a certificate already, global.certificates[${other}]: name it in one of them`, "acme", "hosts", i);
  });
}

export const fields: FeatureFields = { schemas: { acme: ACME }, checkGlobal };
