/**
 * Drops header and trailer lines of a client on arrival, in every protocol, that could pose as the gateway's own.
 */
import { isHopByHop, type HeaderList } from "../http/headers.ts";

/**
 * Dropped are: names with "_", unless the configuration allows them; `Proxy`, which CGI programs take for the setting HTTP_PROXY
 * (CVE-2016-5385); and `X-Client-Cert-…`, in which the gateway tells upstreams about certificates (`plugins/mtls.ts`).
 *
 * CGI and many servers read `_` as `-`, so `X_Forwarded_For` poses as a header that the gateway sets. Even where underscores are allowed, a
 * name is dropped that becomes a header of the gateway's own or of the message's framing that way.
 */
export function isDropped(name: string, underscores: Underscores): boolean {
  if (name.indexOf("_") >= 0) return underscores !== "allow" || isReserved(name.replaceAll("_", "-"));
  return isForged(name);
}

/** As `global.underscore_headers` says; undefined is "drop". */
export type Underscores = "drop" | "allow" | undefined;

/** The same list when nothing is dropped. */
export function withoutDropped(list: HeaderList, underscores: Underscores): HeaderList {
  const names = list.filter((_text, i) => i % 2 === 0);
  return names.some((name) => isDropped(name, underscores)) ? list.filter((_text, i) => !isDropped(names[i >> 1]!, underscores)) : list;
}

function isForged(name: string): boolean {
  if (name.length === 5) return name.toLowerCase() === "proxy";
  return name.length > 13 && name.charCodeAt(13) === DASH && name.charCodeAt(8) === DASH && CERTIFICATE_HEADER.test(name);
}

function isReserved(name: string): boolean {
  return isForged(name) || isHopByHop(name) || RESERVED.test(name);
}

const DASH = 0x2d;
const CERTIFICATE_HEADER = /^x-client-cert-/i;
const RESERVED = /^(?:content-length|x-forwarded-.*|x-real-ip|x-request-id)$/i;
