/**
 * Computes the cache key of a request (RFC 9111 §2).
 */
import { hash } from "node:crypto";
import { TOKEN_CHARACTERS } from "../../base/http_grammar.ts";
import { cookieValues } from "../../http/cookies.ts";
import type { Exchange } from "../../http/exchange.ts";
import { givenAuthority, givenPrefix } from "../../http/given_origin.ts";
import { headerValues, quotedString, trimmed, type HeaderList } from "../../http/headers.ts";
import { END_OF_TARGET } from "./store.ts";

/** The target as a URI, whatever the method. */
export function targetUri(exchange: Exchange): string {
  return originOf(exchange) + exchange.path + exchange.query + forwardedAs(exchange);
}

/**
 * The target, and behind `END_OF_TARGET` what else selects the reply: the audience (replies are for requests of the
 * same route with the same guards only), `keyed`, and the values of `vary_by`.
 */
export function keyOf(exchange: Exchange, keyed: string, varyBy: VaryBy): string {
  return (
    targetUri(exchange) + END_OF_TARGET + (exchange.route.audience ?? "") + keyed + varyBy.valuesOf(exchange.headers)
  );
}

/** The target as reported by a trusted proxy: upstreams use it in links. */
function forwardedAs({ call, headers }: Exchange): string {
  if (!call.trustedRemote) return "";
  let text = "";
  for (const name of ["x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"]) {
    for (const value of headerValues(headers, name)) text += `\n${name}: ${value}`;
  }
  // Without the members that name clients and proxies (RFC 7239 §5).
  for (const value of headerValues(headers, "forwarded")) text += `\nforwarded: ${value.replace(FOR_AND_BY, "")}`;
  return text;
}

const FOR_AND_BY = /(?<=^|[;,\s])(?:for|by)=(?:"(?:[^"\\]|\\.)*"|[^;,\s"]*)/gi;

/** What `vary_by` adds to the key. */
export interface VaryBy {
  /**
   * Whether all of a header line is in the key, by its name in lower case: a cookie that is not named would still tell
   * users apart.
   */
  covers(lower: string, line: string): boolean;
  valuesOf(headers: HeaderList): string;
}

/** `places`: "cookie:NAME" or "header:NAME". */
export function varyingBy(places: readonly string[]): VaryBy {
  const parts = places.map((place) => {
    const name = place.slice(place.indexOf(":") + 1);
    return place.startsWith("cookie:")
      ? { header: "cookie", cookie: name }
      : { header: name.toLowerCase(), cookie: null };
  });
  const valuesOf = (headers: HeaderList) => {
    let text = "";
    for (const { header, cookie } of parts) {
      for (const value of cookie === null ? headerValues(headers, header) : cookieValues(headers, cookie))
        text += `\n${header} ${cookie ?? ""}: ${value}`;
    }
    return text;
  };
  const covered = new Set(parts.map(({ header, cookie }) => (cookie === null ? header : `cookie ${cookie}`)));
  const isCovered = (pair: string) =>
    pair.includes("=") && covered.has(`cookie ${trimmed(pair, 0, pair.indexOf("="))}`);
  const covers = (lower: string, line: string) =>
    covered.has(lower) || (lower === "cookie" && line.split(";").every(isCovered));
  return { covers, valuesOf };
}

function originOf({ scheme, authority }: Pick<Exchange, "scheme" | "authority">): string {
  const defaultPort = scheme === "https" ? ":443" : ":80";
  const lower = authority.toLowerCase();
  return `${scheme}://${lower.endsWith(defaultPort) ? lower.slice(0, -defaultPort.length) : lower}`;
}

/**
 * The target of a URI in a reply; null unless there is one of the same origin: of the request's, or of that which the
 * client has asked by what a trusted proxy says, since upstreams write either.
 */
export function keyOfReference(exchange: Exchange, reference: string | undefined): string | null {
  const origin = originOf(exchange);
  const given = originOf({ scheme: exchange.scheme, authority: givenAuthority(exchange) });
  const prefix = givenPrefix(exchange);
  if (reference === undefined || !URL.canParse(prefix + exchange.path, given)) return null;
  const base = new URL(prefix + exchange.path, given);
  if (!URL.canParse(reference, base.href)) return null;
  const url = new URL(reference, base);
  const isGiven = url.origin === base.origin;
  if (!isGiven && !(URL.canParse(origin) && url.origin === new URL(origin).origin)) return null;
  const path = isGiven && url.pathname.startsWith(`${prefix}/`) ? url.pathname.slice(prefix.length) : url.pathname;
  return (
    origin + path.replace(/\/{2,}/g, "/").replace(/%[0-9a-f]{2}/gi, normalised) + url.search + forwardedAs(exchange)
  );
}

/** Normalised like the path of a request. */
function normalised(encoded: string): string {
  const character = String.fromCharCode(parseInt(encoded.slice(1), 16));
  return /[A-Za-z0-9._~-]/.test(character) ? character : encoded.toUpperCase();
}

/** The key for Cache-Status. The query is hashed: the header may be logged, and queries may contain API keys. */
export function keyShown(exchange: Exchange): string {
  const { path, query } = exchange;
  return quotedString(
    originOf(exchange) + path + (query === "" ? "" : `?${hash("sha256", query, "hex").slice(0, 12)}`),
  );
}

/** The gateway's name for Cache-Status: a token of structured fields (RFC 9651 §3.3.4), else a string. */
export function nameShown(gatewayName: string): string {
  return STRUCTURED_TOKEN.test(gatewayName) ? gatewayName : quotedString(gatewayName);
}

const STRUCTURED_TOKEN = new RegExp(`^[A-Za-z*][:/${TOKEN_CHARACTERS}]*$`);
