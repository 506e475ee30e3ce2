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

export function tokenReader(places: string | readonly string[]): TokenReader {
  const [only, ...others] = [places].flat().map(readerOf);
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

function readerOf(place: string): TokenReader {
  if (place === "header") return ({ headers }) => bearerToken(headers);
  const name = place.slice(place.indexOf(":") + 1);
  if (place.startsWith("cookie:")) return ({ headers }) => onlyOne(cookieValues(headers, name));
  return ({ query }) => onlyOne(queryValues(query, name));
}

/** With several tokens, upstream and gateway could read different ones. */
function onlyOne(found: readonly string[]): string | undefined | null {
  if (found.length === 0 || found[0] === "") return found.length > 1 ? null : undefined;
  return found.length === 1 || found.every((each) => each === found[0]) ? found[0] : null;
}

function bearerToken(headers: HeaderList): string | undefined | null {
  const value = onlyOne(headerValues(headers, "authorization"));
  if (value === undefined || value === null) return value;
  if (value.length < 8 || value.slice(0, 7).toLowerCase() !== "bearer ") return undefined;
  return value.slice(7).trim() || undefined;
}
