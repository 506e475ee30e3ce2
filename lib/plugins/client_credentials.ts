/**
 * How a plugin authenticates to an authorization server as its client: by a secret (RFC 6749 §2.3.1) or a signed
 * assertion (RFC 7523 §2.2).
 */
import { createPrivateKey, randomUUID } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { keyProblem } from "../base/pem.ts";
import { file, optional, string, type ObjectOut } from "../config/whole_schema.ts";
import type { HeaderList } from "../http/headers.ts";
import { signedJwt, signingAlgorithm } from "./jwt_keys.ts";

export const CLIENT_FIELDS = {
  client_id: string({ min: 1, describe: "The gateway's own name at the server." }),
  client_secret: optional(string({ min: 1, secret: true, describe: "Its secret, sent by HTTP Basic authentication." })),
  client_key: optional(
    file({
      describe: "Its private key, a PEM file, which signs an assertion for each request.",
      check: clientKeyProblem,
    }),
  ),
  client_key_id: optional(string({ min: 1, describe: "The kid of the key at the server." })),
  assertion_audience: optional(string({ min: 1, describe: "The aud of assertions; default: the URL that is asked." })),
};

type ClientSettings = ObjectOut<typeof CLIENT_FIELDS>;

/** Completes "the file …". */
function clientKeyProblem(content: Buffer): string | undefined {
  const problem = keyProblem(content);
  if (problem !== undefined || signingAlgorithm(createPrivateKey(content)) !== undefined) return problem;
  return (
    "is a key that cannot sign assertions: use RSA with at least 2048 bits, EC on P-256, " +
    "P-384 or P-521, or Ed25519"
  );
}

/** Reports credentials that are missing, given twice, or of no use. */
export function checkClient(settings: ClientSettings, complain: (message: string, ...under: string[]) => void): void {
  const { clientSecret, clientKey, clientKeyId, assertionAudience } = settings;
  if ((clientSecret === undefined) === (clientKey === undefined))
    complain('needs either "client_secret" or "client_key"');
  if (clientKey !== undefined) return;
  if (clientKeyId !== undefined) complain('is for "client_key"', "client_key_id");
  if (assertionAudience !== undefined) complain('is for "client_key"', "assertion_audience");
}

/** For one request. */
interface ClientCredentials {
  readonly headers: HeaderList;
  /** Further fields of the form. */
  readonly fields: Readonly<Record<string, string>>;
}

/** Returns a function that makes the credentials of a request to `url`. */
export function clientCredentials(settings: ClientSettings, url: string, clock: Clock): () => ClientCredentials {
  const { clientId, clientSecret, clientKey, clientKeyId, assertionAudience: aud = url } = settings;
  if (clientKey === undefined) {
    const pair = Buffer.from(`${formEncoded(clientId)}:${formEncoded(clientSecret!)}`).toString("base64");
    const fixed = { headers: ["Authorization", `Basic ${pair}`], fields: {} };
    return () => fixed;
  }
  const key = createPrivateKey(clientKey.content);
  const algorithm = signingAlgorithm(key)!;
  return () => {
    const iat = Math.floor(clock.wall() / 1000);
    const claims = { iss: clientId, sub: clientId, aud, jti: randomUUID(), iat, exp: iat + ASSERTION_LIFETIME_S };
    return {
      headers: [],
      fields: {
        client_assertion_type: ASSERTION_TYPE,
        client_assertion: signedJwt(claims, key, algorithm, clientKeyId),
      },
    };
  };
}

/** As in a form (RFC 6749 §2.3.1): a ":" in the name would end it. */
function formEncoded(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

const ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const ASSERTION_LIFETIME_S = 60;
