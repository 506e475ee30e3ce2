/**
 * Removes credentials that can be recognised by their place or form from paths that are logged or displayed.
 */

import { isSecretName } from "../base/secret_names.ts";

export const REDACTED = "[redacted]";

/**
 * Removes JWTs from the segments of a path (links that confirm an e-mail address contain them), user name and password
 * of a URL in it (`/fetch/http://user:password@host/`), and credentials from parameters of segments (`/a;token=…/b`),
 * or in a query that a client has encoded as if it were path (`/a%3Ftoken=…`).
 */
export function redactedPath(path: string): string {
  const bare = path.includes("@") ? path.replace(USER_IN_PATH, REDACTED) : path;
  const shown = bare.includes("=") ? bare.replace(PATH_PARAMETER, withoutSecret) : bare;
  return withoutTokens(shown, JWT_IN_PATH);
}

/** Behind two slashes, which are one in a path that is normalised: then behind a scheme alone. */
const USER_IN_PATH = /(?<=\/\/|:\/)[^/@]+(?=@)/g;

function withoutSecret(whole: string, before: string, name: string): string {
  return isSecretName(decoded(name)) ? `${before}${name}=${REDACTED}` : whole;
}

/** Names are bounded: otherwise the search for a name's end would start again behind each of many separators. */
const PATH_PARAMETER = /([;&]|%(?:3[BbFf]|26))([^=;&/]{1,64})=(?:(?!%26|%3[Bb])[^;&/])*/g;

/** A JWT begins with `{"` in base64url, whatever the name and the text before it. */
export function withoutTokens(text: string, token: RegExp): string {
  return text.includes(JWT_START) ? text.replace(token, REDACTED) : text;
}

const JWT_START = "eyJ";
const JWT_IN_PATH = /(?<=^|[^A-Za-z0-9]|%[0-9A-Fa-f]{2})eyJ[^/]*/g;

export function decoded(text: string): string {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
