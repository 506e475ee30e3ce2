/**
 * Answers the challenges over plain HTTP of a certificate authority (http-01, RFC 8555 §8.3), before routes, plugins
 * and the redirect to HTTPS. Those over TLS are answered in `lib/server/tls.ts`.
 */
import type { IssuedCertificates } from "../server/issued_certificates.ts";
import type { EarlyAnswer } from "./compile_types.ts";

/** GET /.well-known/acme-challenge/<token> of an open challenge is answered; all else goes on. */
export function challengesOf(
  issued: Pick<IssuedCertificates, "isChallengedOverHttp" | "keyAuthorization">,
): EarlyAnswer {
  return ({ call, method, target }) => {
    if (!issued.isChallengedOverHttp) return null;
    const token = PATH.exec(target)?.[1];
    if (token === undefined || call.tlsVersion !== null || (method !== "GET" && method !== "HEAD")) return null;
    const content = issued.keyAuthorization(token);
    if (content === undefined) return null;
    const body = Buffer.from(content);
    const headers = [...HEADERS, "Content-Length", String(body.length)];
    return { status: 200, headers, body: method === "HEAD" ? null : body };
  };
}

const HEADERS = [
  "Content-Type",
  "application/octet-stream",
  "Cache-Control",
  "no-store",
  "X-Content-Type-Options",
  "nosniff",
];
/** The target may be in absolute-form (RFC 9112 §3.2.2); a token has the characters of base64url. */
const PATH = /^(?:[a-zA-Z]+:\/\/[^/?]*)?\/\.well-known\/acme-challenge\/([\w-]{1,512})$/;
