/**
 * The schemas of certificates and TLS settings.
 */
import { certificatesProblem, keyProblem, pairProblem } from "../base/pem.ts";
import { revocationListsProblem } from "../base/crl.ts";
import { cipherProblem, groupProblem, rulesProblem, type TlsRules } from "../base/tls_rules.ts";
import { choice, flag, HOST_PATTERN, hostProblem } from "./fields.ts";
import type { Path } from "./json.ts";
import type { FeatureFields } from "./feature_fields.ts";
import * as s from "./whole_schema.ts";

export const CERTIFICATE = s.object(
  {
    hosts: s.array(HOST_PATTERN, { min: 1, describe: "Host names for which it is used; *. matches one label." }),
    cert: s.file({ describe: "Certificate chain, a PEM file.", check: certificatesProblem }),
    key: s.file({ describe: "Its private key, a PEM file.", check: keyProblem }),
  },
  { refine: ({ cert, key }, report) => checkPair(cert, key, report) },
);

type Report = (message: string, ...under: Path) => void;

/** Reports why a certificate and a key cannot be used together. */
function checkPair(cert: s.NamedFile, key: s.NamedFile, report: Report): void {
  const problem = pairProblem(cert.content, key.content);
  if (problem === "mismatch") report(`${key.path}: the key does not belong to the certificate ${cert.path}`, "key");
  else if (problem !== undefined)
    report(`${cert.path}: the certificate cannot be used for TLS: ${problem.unusable}`, "cert");
}

const TLS_FIELDS = {
  ca: s.optional(
    s.file({
      describe: "CA certificates that sign the server's certificate, a PEM file; default: the system's.",
      check: certificatesProblem,
    }),
  ),
  cert: s.optional(s.file({ describe: "Client certificate chain, a PEM file.", check: certificatesProblem })),
  key: s.optional(s.file({ describe: "Private key of the client certificate, a PEM file.", check: keyProblem })),
  servername: s.optional(
    s.string({
      references: "value",
      describe: "Name that is sent (SNI) and verified; default: the server's host.",
      check: hostProblem,
    }),
  ),
};

/** How a plugin reaches a server over TLS, which it always verifies. */
export const CLIENT_TLS = s.object(TLS_FIELDS, {
  describe: "TLS settings for https:// URLs.",
  refine: checkClientCertificate,
});

function checkClientCertificate(
  { cert, key }: { readonly cert?: s.NamedFile; readonly key?: s.NamedFile },
  report: Report,
): void {
  if (cert !== undefined && key === undefined) report('needs "key" beside "cert"');
  if (key !== undefined && cert === undefined) report('needs "cert" beside "key"');
  if (cert !== undefined && key !== undefined) checkPair(cert, key, report);
}

const RULES = {
  min_version: choice(["1.2", "1.3"], "The oldest version of TLS."),
  ciphers: s.optional(
    s.array(s.string({ references: "none", hint: "the name that OpenSSL has for a cipher", check: cipherProblem }), {
      min: 1,
      describe:
        "Ciphers by OpenSSL's names. Names that begin with TLS_ replace the defaults of TLS 1.3, others those of 1.2.",
    }),
  ),
  groups: s.optional(
    s.array(
      s.string({
        references: "none",
        hint: "the name of a group for key exchange, such as X25519",
        check: groupProblem,
      }),
      {
        min: 1,
        describe: "Groups for key exchange, the preferred one first.",
      },
    ),
  ),
};

function revocationLists(whose: string) {
  return s.optional(
    s.file({ describe: `Lists of revoked certificates of ${whose}, a PEM file.`, check: revocationListsProblem }),
  );
}

const CRL_EXPIRED = s.optional(
  s.oneOf(["refuse", "allow"], {
    describe: 'Whether an expired list refuses all certificates of its issuer; "allow": only those that it has.',
  }),
);

function checkRules(rules: TlsRules, report: Report): void {
  const wrong = rulesProblem(rules);
  if (wrong !== undefined) report(wrong.why, wrong.at);
}

/** `global.tls` */
export const SERVER_TLS = s.object(
  { ...RULES, client_crl: revocationLists("clients and of the CAs above them"), crl_expired: CRL_EXPIRED },
  {
    describe: "TLS settings of the HTTPS listeners.",
    refine(value, report) {
      checkRules(value, report);
      if (value.crlExpired !== undefined && value.clientCrl === undefined)
        report('needs "client_crl" beside it', "crl_expired");
    },
  },
);

export const UPSTREAM_TLS = s.object(
  {
    ...TLS_FIELDS,
    verify: flag("Whether the upstreams' certificates are verified.", true),
    ...RULES,
    crl: revocationLists("the upstreams and of the CAs above them"),
    crl_expired: CRL_EXPIRED,
  },
  {
    describe: 'TLS settings for upstreams; for protocol "https" and "h2".',
    refine(value, report) {
      checkClientCertificate(value, report);
      checkRules(value, report);
      if (!value.verify && value.ca !== undefined)
        report('"ca" verifies nothing while "verify" is false: leave one of them out');
      if (!value.verify && value.crl !== undefined)
        report('"crl" refuses nothing while "verify" is false: leave one of them out');
      if (value.crlExpired !== undefined && value.crl === undefined) report('needs "crl" beside it', "crl_expired");
    },
  },
);

/** Reports a host with two certificates. */
function checkGlobal(
  { certificates }: { readonly certificates: readonly { readonly hosts: readonly string[] }[] },
  report: Report,
): void {
  const places = new Map<string, string>();
  certificates.forEach(({ hosts }, i) =>
    hosts.forEach((host, j) => {
      const first = places.get(host);
      if (first !== undefined) report(`is the same host as ${first}`, "certificates", i, "hosts", j);
      else places.set(host, `global.certificates[${i}].hosts[${j}]`);
    }),
  );
}

function checkService({ protocol, tls }: { readonly protocol: string; readonly tls?: unknown }, report: Report): void {
  if (tls !== undefined && protocol !== "https" && protocol !== "h2")
    report(`is for protocol "https" and "h2"; this service has "${protocol}"`, "tls");
}

export const fields: FeatureFields = {
  schemas: { certificate: CERTIFICATE, server_tls: SERVER_TLS, tls: UPSTREAM_TLS },
  checkGlobal,
  checkService,
};
