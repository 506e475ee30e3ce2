/**
 * Names the request headers by which many upstreams choose a reply without saying so in Vary: the means of web cache
 * poisoning.
 *
 * Sources: the word list of Param Miner (github.com/PortSwigger/param-miner, resources/headers) and of the Web Cache
 * Vulnerability Scanner (github.com/Hackmanit/Web-Cache-Vulnerability-Scanner, wordlists/top-headers); J. Kettle,
 * "Practical Web Cache Poisoning" (2018) and "Web Cache Entanglement" (2020); Fastly, "Preventing cache poisoning via
 * HTTP X-headers"; R. Allam, research on the cache of Next.js (2024).
 */
import { FORWARDING } from "../../base/http_grammar.ts";

/**
 * "bypass": the request is neither answered from the store nor is its reply stored. "key": the values are part of the
 * key. "target" and "client" state for whom a proxy asks: from a trusted proxy, the first is part of the key and the
 * second is ignored; from others, bypass.
 */
export type Influence = "bypass" | "key" | "target" | "client";

/** Another method, or another path. */
const OTHER_RESOURCE = [
  "x-http-method",
  "x-http-method-override",
  "x-method",
  "x-method-override",
  "x-original-method",
  "x-original-http-command",
  "x-ajax-real-method",
  "real-method",
  "request-method",
  "x-original-url",
  "x-original-uri",
  "x-original-path",
  "x-rewrite-url",
  "x-rewrite-uri",
  "x-rewrite-path",
  "x-override-url",
  "x-url-override",
  "x-path-override",
  "x-http-path-override",
  "x-http-destinationurl",
  "x-envoy-original-path",
  "x-envoy-original-url",
  "x-request-uri",
  "x-request-url",
  "x-real-url",
  "x-real-uri",
  "x-cf-url",
  "x-proxy-url",
  "x-ning-request-uri",
  "x-accel-mapping",
  "request-uri",
  "path-info",
  "orig-path-info",
  "script-name",
  "unencoded-url",
  "query-string",
  "base-url",
  "x-matched-path",
  "x-invoke-path",
  "x-invoke-query",
  "x-invoke-status",
  "x-invoke-error",
  "x-now-route-matches",
  "x-middleware-rewrite",
  "x-middleware-prefetch",
  "x-middleware-subrequest",
];

/** Another host, port or scheme. */
const OTHER_ORIGIN = [
  "x-host",
  "x-host-override",
  "x-http-host-override",
  "x-original-host",
  "x-real-host",
  "x-client-host",
  "x-server-name",
  "x-server-port",
  "x-amzn-remapped-host",
  "x-subdomain",
  "x-backend-host",
  "host-name",
  "http-host",
  "proxy-host",
  "sp-host",
  "server-name",
  "server-port",
  "x-scheme",
  "x-url-scheme",
  "x-original-scheme",
  "x-original-proto",
  "x-original-port",
  "x-real-scheme",
  "x-remote-protocol",
  "x-forward-proto",
  "x-forward-host",
  "x-https",
  "x-ssl",
  "x-arr-ssl",
  "front-end-https",
  "ssl-offloaded",
  "https",
  "https-from-lb",
  "cf-visitor",
  "cloudfront-forwarded-proto",
  "forwarded-proto",
  "forwarded-host",
  "x-orchestra-scheme",
  "x-originally-forwarded-proto",
];

/** Another client. */
const OTHER_CLIENT = [
  "client-ip",
  "clientip",
  "x-client-ip",
  "x-clientip",
  "x-cluster-client-ip",
  "x-remote-ip",
  "x-remote-addr",
  "x-originating-ip",
  "x-ip",
  "x-proxyuser-ip",
  "true-client-ip",
  "cf-connecting-ip",
  "fastly-client-ip",
  "incap-client-ip",
  "x-azure-clientip",
  "x-custom-ip-authorization",
  "forwarded-for",
  "forwarded-for-ip",
  "x-forward-for",
  "x-forwarder-for",
  "x-forwarded-for-original",
  "x-original-forwarded-for",
  "x-originally-forwarded-for",
  "x-original-remote-addr",
  "real-ip",
  "proxy-client-ip",
  "wl-proxy-client-ip",
  "remote-addr",
  "remote-host",
  "client-address",
  "x-forwarded-by",
  "cf-ipcountry",
  "cloudfront-viewer-country",
  "x-geoip-country",
];

/** Another form of the same page, or a page that repeats the value. */
const OTHER_FORM = [
  "origin",
  "x-requested-with",
  "x-pjax",
  "x-pjax-container",
  "x-xmlhttprequest",
  "x-render-partial",
  "turbo-frame",
  "hx-request",
  "hx-target",
  "rsc",
  "next-url",
  "next-router-state-tree",
  "next-router-prefetch",
  "next-action",
  "x-nextjs-data",
  "x-wap-profile",
  "x-ua-device",
  "x-user-agent",
  "device-stock-ua",
  "x-operamini-phone-ua",
  "x-device-user-agent",
  "x-original-user-agent",
  "x-environment-override",
  "accept-version",
  "x-experience-api-version",
];

const NAMES: ReadonlyMap<string, Influence> = new Map([
  ...OTHER_FORM.map((name) => [name, "key"] as const),
  ...OTHER_ORIGIN.map((name) => [name, "target"] as const),
  ...OTHER_CLIENT.map((name) => [name, "client"] as const),
  ...OTHER_RESOURCE.map((name) => [name, "bypass"] as const),
]);

/**
 * Those of a client that is no trusted proxy are dropped on arrival; of a trusted one, the key has what upstreams get.
 */
const OF_THE_GATEWAY: ReadonlySet<string> = new Set(FORWARDING);

/** How a header in lower case influences replies; undefined if it is not known to. */
export function influenceOf(lower: string): Influence | undefined {
  // To CGI and its successors "_" and "-" are one character. With its plain name such a header would be another one to
  // Vary.
  if (lower.includes("_")) return "bypass";
  const known = NAMES.get(lower);
  if (known !== undefined || OF_THE_GATEWAY.has(lower)) return known;
  return FAMILIES.test(lower) ? "target" : undefined;
}

const FAMILIES = /^x-(?:forwarded|original|rewrite)-/;
