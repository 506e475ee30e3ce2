/**
 * The plugin kind `mtls`: admits requests whose client has presented a certificate signed by CA_CERT_PATH, and sends
 * its subject to the upstream. The client's own X-Client-Cert-… headers are removed before any plugin runs.
 */
import { array, boolean, object, oneOf, optional, string, withDefault } from "../config/schema.ts";
import type { ClientCertificate } from "../http/client_certificate.ts";
import { nameSet, quotedString, withoutHeaders, type HeaderList } from "../http/headers.ts";
import type { Log } from "../base/log.ts";
import { callerNamed } from "../http/exchange.ts";
import { problem, type ProblemOptions } from "../http/reply.ts";
import type { Plugin } from "./plugin.ts";

const schema = object(
  {
    allow: optional(
      array(
        string({
          min: 1,
          describe: 'A CN, a whole subject ("CN=a,O=b"), or a SAN with or without its type ("DNS:a.example.com").',
        }),
        {
          min: 1,
          describe: "Accepted certificates; default: all that the CA has signed.",
        },
      ),
    ),
    client_cert_header: optional(
      oneOf(["rfc9440"], { describe: 'Whether upstreams get the whole certificate: "rfc9440", in Client-Cert.' }),
    ),
    client_cert_chain: withDefault(
      boolean({ describe: "Whether they also get the certificates behind it, in Client-Cert-Chain." }),
      false,
    ),
  },
  {
    describe: "Requires a client certificate that CA_CERT_PATH has signed.",
    refine({ clientCertHeader, clientCertChain }, report) {
      if (clientCertChain && clientCertHeader === undefined)
        report('needs "client_cert_header": "rfc9440"', "client_cert_chain");
    },
  },
);

export const mtls: Plugin<typeof schema> = {
  name: "mtls",
  schema,
  guards: true,
  identifies: true,
  ownHeaders: ({ clientCertHeader }) => (clientCertHeader === undefined ? [] : ["Client-Cert", "Client-Cert-Chain"]),
  create(config, tools) {
    const isAllowed = config.allow === undefined ? () => true : allowing(config.allow);
    // Runs once per connection.
    const verdicts = new WeakMap<ClientCertificate, Verdict>();
    const headers = ["WWW-Authenticate", `ClientCertificate realm=${quotedString(tools.gatewayName)}`];
    const missing = { headers, detail: "Show a client certificate in the TLS handshake." };
    const detail = "The client certificate that was shown is not accepted here.";
    const own = config.clientCertHeader === undefined ? OWN : OWN_WITH_WHOLE;
    const chainTo = config.clientCertChain ? tools.log : null;
    return (next) => (exchange) => {
      const certificate = exchange.call.certificate();
      if (certificate === null) return problem(exchange.call, "client_certificate_missing", missing);
      let verdict = verdicts.get(certificate);
      if (verdict === undefined) {
        const why = whyRefused(certificate, isAllowed);
        const refusal = why && { headers, detail, ...why };
        const whole = why === null && config.clientCertHeader !== undefined ? rfc9440Headers(certificate, chainTo) : [];
        verdict = { refusal, headers: [...headersFor(certificate), ...whole] };
        verdicts.set(certificate, verdict);
      }
      if (verdict.refusal !== null) return problem(exchange.call, "client_certificate_invalid", verdict.refusal);
      const identity = certificate.commonName ?? certificate.fingerprint;
      const replaced = withoutHeaders(exchange.headers, own);
      replaced.push(...verdict.headers);
      return next(exchange.with({ ...callerNamed(identity), headers: replaced }));
    };
  },
};

interface Verdict {
  /** Null: the certificate is accepted. */
  readonly refusal: ProblemOptions | null;
  readonly headers: HeaderList;
}

/** For the log; null when the certificate is accepted. */
function whyRefused(
  certificate: ClientCertificate,
  isAllowed: (certificate: ClientCertificate) => boolean,
): Pick<ProblemOptions, "why" | "rule"> | null {
  const { verified, reason, keyUses, subject, fingerprint } = certificate;
  if (!verified) return { why: `the client certificate is not verified: ${reason ?? "no reason is known"}` };
  if (keyUses.length > 0 && !keyUses.includes(CLIENT_AUTH))
    return { why: "the client certificate is not for authenticating clients (extended key use)" };
  return isAllowed(certificate)
    ? null
    : { why: `the client certificate of ${subject || fingerprint} is not among those allowed`, rule: "allow" };
}

/** id-kp-clientAuth (RFC 5280 §4.2.1.12). */
const CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";

/**
 * The form of an entry decides with which name it is compared, never the content of a certificate: a CN
 * "DNS:a.example.com" must not match that alternative name, nor a CN "CN=a,O=b" that subject.
 */
function allowing(entries: readonly string[]): (certificate: ClientCertificate) => boolean {
  const subjects = new Set<string>();
  const typed = new Set<string>();
  const bare = new Set<string>();
  for (const entry of entries) (SUBJECT.test(entry) ? subjects : TYPED.test(entry) ? typed : bare).add(entry);
  return ({ subject, commonName, names }) =>
    subjects.has(subject) ||
    (commonName !== null && bare.has(commonName)) ||
    names.some((name) => typed.has(name) || bare.has(name.slice(name.indexOf(":") + 1)));
}

const SUBJECT = /^[A-Za-z][\w.-]*=/;
const TYPED = /^(DNS|URI|IP|email|DirName|Registered ID|othername):/;

function headersFor({ subject, names, fingerprint }: ClientCertificate): HeaderList {
  const headers: string[] = [];
  if (subject !== "") headers.push("X-Client-Cert-Subject", escaped(subject, /[^\x20-\x7e]/gu, "\\"));
  if (names.length > 0)
    headers.push("X-Client-Cert-SAN", names.map((name) => escaped(name, /[^\x21-\x7e]|[,"\\%]/gu, "%")).join(","));
  headers.push("X-Client-Cert-Fingerprint", fingerprint);
  return headers;
}

/** `log`: gets what is left out of the chain; null: the chain is not sent. */
function rfc9440Headers({ subject, chain = () => [] }: ClientCertificate, log: Log | null): HeaderList {
  // RFC 9440 §2.2, §2.3: Byte Sequences of RFC 8941.
  const [own, ...others] = chain().map((der) => `:${der.toString("base64")}:`);
  if (own === undefined) return [];
  const behind = others.join(", ");
  if (log === null || behind === "") return ["Client-Cert", own];
  if (behind.length <= MAX_CHAIN_BYTES) return ["Client-Cert", own, "Client-Cert-Chain", behind];
  log.warn(`mtls: a chain of certificates is longer than ${MAX_CHAIN_BYTES} bytes: Client-Cert-Chain is left out`, {
    subject,
    bytes: behind.length,
  });
  return ["Client-Cert", own];
}

const MAX_CHAIN_BYTES = 16 * 1024;

/** Writes characters that are not safe in a header as their bytes in hex: `\C3\A9` as in RFC 4514, `%2C`. */
function escaped(text: string, unsafe: RegExp, mark: string): string {
  return text.replace(unsafe, (character) =>
    Buffer.from(character).toString("hex").toUpperCase().replace(/../g, `${mark}$&`),
  );
}

/** Those of an earlier instance would occur twice. */
const OWN_NAMES = ["x-client-cert-subject", "x-client-cert-san", "x-client-cert-fingerprint"];
const OWN = nameSet(OWN_NAMES);
/** Many upstreams read "_" as "-". */
const OWN_WITH_WHOLE = nameSet([
  ...OWN_NAMES,
  ...["client-cert", "client_cert"],
  ...["client-cert-chain", "client_cert-chain", "client-cert_chain", "client_cert_chain"],
]);
