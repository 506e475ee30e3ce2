/**
 * The host and the prefix by which a client has reached the gateway, for URLs that the gateway writes itself: those in
 * X-Forwarded-Host and X-Forwarded-Prefix of a proxy in `global.trusted_proxies`. A header that is there twice, or has
 * another value than one host or one plain path, counts as absent.
 */
import type { Call, ExchangeParts } from "./exchange.ts";
import { headerValues, isHost, type HeaderList } from "./headers.ts";

export interface ForwardedRequest extends Pick<ExchangeParts, "headers" | "authority"> {
  readonly call: Pick<Call, "trustedRemote">;
}

/** Host and port of the client's URL; "" where none is named. The host itself is never empty beside a port. */
export function givenAuthority({ call, headers, authority }: ForwardedRequest): string {
  const given = call.trustedRemote ? only(headers, "x-forwarded-host") : "";
  if (given.length <= MAX_HOST && namesHost(given) && isHost(given)) return given;
  return namesHost(authority) ? authority : "";
}

/** What the proxy has taken from the front of the path: "/edge"; "" where it has taken nothing. */
export function givenPrefix({ call, headers }: Pick<ForwardedRequest, "call" | "headers">): string {
  if (!call.trustedRemote) return "";
  const given = only(headers, "x-forwarded-prefix").replace(/\/$/, "");
  return given.length <= MAX_PLAIN_PATH && PLAIN_PATH.test(given) ? given : "";
}

/** For a reply that caches may store and that depends on the two: they may be a client's own (RFC 9110 §12.5.5). */
export function givenVary({ trustedRemote }: ForwardedRequest["call"]): HeaderList {
  return trustedRemote ? VARY : NO_HEADERS;
}

function only(headers: HeaderList, lower: string): string {
  const [value = "", second] = headerValues(headers, lower);
  return second === undefined ? value : "";
}

function namesHost(authority: string): boolean {
  return authority !== "" && !authority.startsWith(":");
}

/** Segments that all clients write in one way, in a URL and in the attributes of a cookie: none is "." or "..". */
export const PLAIN_PATH = /^(?:\/(?!\.{1,2}(?:\/|$))[\w.~-]+)+$/;
export const MAX_PLAIN_PATH = 200;
/** 253 characters of a name (RFC 1035 §2.3.4), and a port. */
const MAX_HOST = 259;
const VARY: HeaderList = ["Vary", "X-Forwarded-Host, X-Forwarded-Prefix"];
const NO_HEADERS: HeaderList = [];
