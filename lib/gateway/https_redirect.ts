/**
 * Redirects requests that arrive over plain HTTP to HTTPS, before a route is looked up (`global.https_redirect`).
 */
import type { Config } from "../config/model.ts";
import { givenAuthority, givenPrefix, givenVary } from "../http/given_origin.ts";
import { problem } from "../http/reply.ts";
import type { EarlyAnswer } from "./compile_types.ts";

export { fields } from "../config/https_redirect.ts";
export { httpsWith } from "./https_port.ts";

export function httpsRedirect({ status, port }: NonNullable<Config["global"]["httpsRedirect"]>): EarlyAnswer {
  const suffix = port === 443 ? "" : `:${port}`;
  return ({ call, scheme, headers, target }, authority) => {
    // Over TLS a trusted proxy may report plain HTTP: the client would get the same redirect again.
    if (scheme === "https" || call.tlsVersion !== null) return null;
    const path = target.replace(ABSOLUTE, "");
    if (path.startsWith(ACME)) return null;
    const asked = { call, headers, authority };
    const host = givenAuthority(asked).replace(PORT, "");
    if (host === "") return problem(call, "bad_request", NO_HOST);
    const location = `https://${host}${suffix}${givenPrefix(asked)}${path.startsWith("/") ? "" : "/"}${path}`;
    return { status, headers: ["Location", location, "Content-Length", "0", ...givenVary(call)], body: null };
  };
}

/** Of a target in absolute-form (RFC 9112 §3.2.2). */
const ABSOLUTE = /^https?:\/\/[^/?]*/i;
const PORT = /:\d*$/;
/** RFC 8555 §8.3: the servers that check it need not follow redirects. */
const ACME = "/.well-known/acme-challenge/";
const NO_HOST = { detail: "Send a Host header: the redirect to HTTPS leads to the same host." };
