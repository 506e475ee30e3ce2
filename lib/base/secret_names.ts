/**
 * Says by its name whether a header, a parameter, a cookie or a member of a document holds a credential: everything
 * that logs or displays such values asks here.
 */

/**
 * In any case and at the end of a word of the name: `access_token`, `clientSecret`, `X-Api-Key`, `PHPSESSID`. Not what
 * says who somebody is (`X-Auth-Request-User`), and no key that opens nothing (`Idempotency-Key`).
 */
const SECRET = new RegExp(
  "(?:authorization|cookies?|tokens?|secrets?|passw(?:or)?ds?|passphrase|credentials?|session(?:id)?|sessid|" +
    "signature|jwt|(?:access|api|auth|private|secret)keys?|" +
    "(?<![a-z])(?:auth(?!-(?:request|user|email|groups?))|(?<!idempotency-|websocket-)keys?|pass|pwd|sid|sig))" +
    "(?![a-z])",
  "i",
);

export function isSecretName(name: string): boolean {
  return SECRET.test(name);
}

/** Whether a text gives such a name a value, as forms, JSON, YAML and XML do. */
export function hasSecretField(text: string): boolean {
  return FIELD.test(text);
}

const FIELD = new RegExp(`${SECRET.source}["']?\\s*[=:>]`, "i");

/**
 * Headers that hold API keys and tokens by custom, in lower case, for what looks up each header of each request; those
 * of the standard are Authorization, Proxy-Authorization and Cookie.
 */
export const CREDENTIAL_HEADERS = [
  "apikey",
  "api-key",
  "x-api-key",
  "x-goog-api-key",
  "x-auth-key",
  "x-auth-token",
  "x-access-token",
  "x-csrf-token",
  "x-amz-security-token",
  "x-session-token",
  "x-user-token",
  "private-token",
  "x-gitlab-token",
  "x-vault-token",
  "x-authorization",
  "x-session-id",
];
