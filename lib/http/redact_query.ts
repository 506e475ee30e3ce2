/**
 * Removes credentials that can be recognised by their place or form from queries and headers that are logged or
 * displayed.
 */
import { isSecretName } from "../base/secret_names.ts";
import { decoded, REDACTED, withoutTokens } from "./redact.ts";

/**
 * A query, or a header with URLs (Referer, Location, Link, …), without the values of parameters that hold credentials,
 * in a fragment too (RFC 6749 §4.2.2), without user names and passwords, and without JWTs. `also`: further parameters
 * that hold credentials, in lower case.
 */
export function redacted(text: string, also?: ReadonlySet<string>): string {
  let shown = "";
  let from = 0;
  PARAMETER.lastIndex = 0;
  for (let found = PARAMETER.exec(text); found !== null; found = PARAMETER.exec(text)) {
    const start = PARAMETER.lastIndex;
    VALUE.lastIndex = ENCODED_JWT.lastIndex = start;
    const name = decoded(found[1]!).toLowerCase();
    if (!isSecretName(name) && also?.has(name) !== true && !ENCODED_JWT.test(text)) continue;
    shown += text.slice(from, start) + REDACTED;
    from = PARAMETER.lastIndex = start + VALUE.exec(text)![0].length;
  }
  return withoutTokens((shown + text.slice(from)).replace(USER, `//${REDACTED}@`), JWT);
}

/**
 * Shared: every use sets its position first. A value may contain another URL, so the search for the next name begins in
 * it.
 */
const PARAMETER = /[?&#;]([^=?&#;\s]+)=/g;
const VALUE = /[^&#\s"'<>]*/y;
const ENCODED_JWT = /(?:e|%65)(?:y|%79)(?:J|%4[Aa])/y;
const USER = /\/\/[^/?#@\s]*@/g;
const JWT = /(?<=^|[^A-Za-z0-9]|%[0-9A-Fa-f]{2})eyJ[^\s,;&"'<>]*/g;
