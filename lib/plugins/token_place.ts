/**
 * Reads an access token from the configured places: the header Authorization (RFC 6750 §2.1), a cookie or the query.
 */
import { TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { anyOf, array, string, withDefault } from "../config/whole_schema.ts";
import { cookieValues } from "../http/cookies.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValues, type HeaderList } from "../http/headers.ts";
import { queryValues } from "../http/query.ts";

const PLACE = string({
  references: "none",
  pattern: new RegExp(`^(header|(cookie|query):[${TOKEN_CHARACTERS}]+)$`),
  hint: '"header", "cookie:<name>" or "query:<name>"',
  describe: "A place to look for the token.",
});
const SEVERAL = { describe: "Where the token is read; different tokens in several places are refused." };

export const TOKEN_PLACES = withDefault(anyOf([PLACE, array(PLACE, { min: 1 })], SEVERAL), "header");

/** Returns the token; undefined when there is none, null when there are different ones, in one place or in several. */
type TokenReader = (exchange: Exchange) => string | undefined | null;

/** `dpop`: which schemes of the header Authorization have tokens. */
export function tokenReader(places: string | readonly string[], dpop?: "accept" | "require"): TokenReader {
  const schemes: AccessTokenScheme[] = dpop === undefined ? ["bearer"] : ["dpop"];
  if (dpop === "accept") schemes.push("bearer");
  const [only, ...others] = [places].flat().map((place) => readerOf(place, schemes));
  if (others.length === 0) return only!;
  return (exchange) => {
    let token = only!(exchange);
    for (const read of others) {
      if (token === null) return null;
      const found = read(exchange);
      if (found !== undefined) token = token === undefined || token === found ? found : null;
    }
    return token;
  };
}

/** The names of those places that are query parameters. */
export function queryPlaces(places: string | readonly string[]): string[] {
  return [places].flat().flatMap((place) => (place.startsWith("query:") ? [place.slice("query:".length)] : []));
}

/** RFC 6750 §2.1, RFC 9449 §7.1. */
type AccessTokenScheme = "bearer" | "dpop";

/** Whether the access token in Authorization comes with a proof. */
export function isDpopRequest({ headers }: Pick<Exchange, "headers">): boolean {
  return headerToken(headers, ["dpop"]) !== undefined;
}

function readerOf(place: string, schemes: readonly AccessTokenScheme[]): TokenReader {
  if (place === "header") return ({ headers }) => headerToken(headers, schemes);
  const name = place.slice(place.indexOf(":") + 1);
  if (place.startsWith("cookie:")) return ({ headers }) => onlyOne(cookieValues(headers, name));
  return ({ query }) => onlyOne(queryValues(query, name));
}

/** With several tokens, upstream and gateway could read different ones. */
function onlyOne(found: readonly string[]): string | undefined | null {
  if (found.length === 0 || found[0] === "") return found.length > 1 ? null : undefined;
  return found.length === 1 || found.every((each) => each === found[0]) ? found[0] : null;
}

function headerToken(headers: HeaderList, schemes: readonly AccessTokenScheme[]): string | undefined | null {
  const value = onlyOne(headerValues(headers, "authorization"));
  if (value === undefined || value === null) return value;
  for (const scheme of schemes)
    if (value.charCodeAt(scheme.length) === SPACE && value.slice(0, scheme.length).toLowerCase() === scheme)
      return value.slice(scheme.length).trim() || undefined;
  return undefined;
}

const SPACE = 0x20;
