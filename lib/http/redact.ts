/**
 * Removes credentials that can be recognised by their place or form from texts of a request that are logged or displayed.
 */

export const REDACTED = "[redacted]";

/** Headers that hold API keys and tokens by custom, in lower case; those of the standard are Authorization, Proxy-Authorization and Cookie. */
export const CREDENTIAL_HEADERS = [
  ...["apikey", "api-key", "x-api-key", "x-auth-token", "x-access-token", "x-csrf-token", "x-amz-security-token", "x-goog-api-key"],
  ...["x-auth-key", "x-authorization", "x-session-token", "x-session-id", "x-user-token", "private-token", "x-gitlab-token", "x-vault-token"],
];

/**
 * A query, or a header with URLs (Referer, Location, Link, …), without the values of parameters that hold credentials, in a fragment
 * too (RFC 6749 §4.2.2), without user names and passwords, and without JWTs. `also`: further parameters that hold credentials, in lower case.
 */
export function redacted(text: string, also?: ReadonlySet<string>): string {
  let shown = "";
  let from = 0;
  PARAMETER.lastIndex = 0;
  for (let found = PARAMETER.exec(text); found !== null; found = PARAMETER.exec(text)) {
    const start = PARAMETER.lastIndex;
    VALUE.lastIndex = ENCODED_JWT.lastIndex = start;
    const name = decoded(found[1]!).toLowerCase();
    if (!SECRET_PARAMETERS.has(name) && also?.has(name) !== true && !ENCODED_JWT.test(text)) continue;
    shown += text.slice(from, start) + REDACTED;
    from = PARAMETER.lastIndex = start + VALUE.exec(text)![0].length;
  }
  return withoutTokens((shown + text.slice(from)).replace(USER, `//${REDACTED}@`), JWT);
}

/**
 * Removes JWTs from the segments of a path (links that confirm an e-mail address contain them), and credentials from parameters of
 * segments (`/a;token=…/b`), or in a query that a client has encoded as if it were path (`/a%3Ftoken=…`).
 */
export function redactedPath(path: string): string {
  const shown = path.includes("=") ? path.replace(PATH_PARAMETER, withoutSecret) : path;
  return withoutTokens(shown, JWT_IN_PATH);
}

function withoutSecret(whole: string, before: string, name: string): string {
  return SECRET_PARAMETERS.has(decoded(name).toLowerCase()) ? `${before}${name}=${REDACTED}` : whole;
}

/** Names are bounded: otherwise the search for a name's end would start again behind each of many separators. */
const PATH_PARAMETER = /([;&]|%(?:3[BbFf]|26))([^=;&/]{1,64})=(?:(?!%26|%3[Bb])[^;&/])*/g;

/** Shared: every use sets its position first. A value may contain another URL, so the search for the next name begins in it. */
const PARAMETER = /[?&#;]([^=?&#;\s]+)=/g;
const VALUE = /[^&#\s"'<>]*/y;
const ENCODED_JWT = /(?:e|%65)(?:y|%79)(?:J|%4[Aa])/y;
const USER = /\/\/[^/?#@\s]*@/g;

const SECRET_PARAMETERS = new Set([
  ...["apikey", "api_key", "access_token", "id_token", "refresh_token", "auth_token", "token", "jwt", "authorization"],
  ...["client_secret", "secret", "password", "passwd", "pwd", "sig", "signature", "x-amz-signature", "x-amz-security-token", "x-goog-signature"],
  "jsessionid", // servlets write it behind a path
]);

/** A JWT begins with `{"` in base64url, whatever the name and the text before it. */
function withoutTokens(text: string, token: RegExp): string {
  return text.includes(JWT_START) ? text.replace(token, REDACTED) : text;
}

const JWT_START = "eyJ";
const JWT = /(?<=^|[^A-Za-z0-9]|%[0-9A-Fa-f]{2})eyJ[^\s,;&"'<>]*/g;
const JWT_IN_PATH = /(?<=^|[^A-Za-z0-9]|%[0-9A-Fa-f]{2})eyJ[^/]*/g;

function decoded(text: string): string {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
