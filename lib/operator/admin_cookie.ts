/**
 * Keeps sessions and device cookies of the admin interface away from upstreams. Browsers send cookies to every port of
 * a host (RFC 6265
 * §8.5), so that an upstream behind a traffic port could use the session of an administrator.
 */
import { withoutCookies } from "../http/cookies.ts";
import type { HeaderList } from "../http/headers.ts";

/** `iss` and `aud` of sessions. */
export const SESSION_ISSUER = "edge-gateway";
export const SESSION_AUDIENCE = "edge-gateway-admin";
/** `aud` of device cookies, which are no sessions. */
export const DEVICE_AUDIENCE = "edge-gateway-device";

/** The name of the device cookie beside the session cookie of this name. */
export function deviceCookie(cookie: string): string {
  return `${cookie}-device`;
}

/** RFC 6265 §4.1.1 */
export function unquoted(value: string): string {
  return value.length > 1 && value.startsWith('"') && value.endsWith('"') ? value.slice(1, -1) : value;
}

/**
 * Whether it has the form of a session or a device cookie, of this gateway or of another one on the host, live or not:
 * a JWT of our issuer and audiences. The signature is not verified: a token that is forged is no loss to an upstream.
 */
export function isAdminToken(token: string): boolean {
  // `{"` in base64url: a cheap sign of a JWT.
  if (!token.startsWith("eyJ")) return false;
  const [, body, signature, more] = token.split(".", 4);
  if (body === undefined || signature === undefined || more !== undefined) return false;
  try {
    const { iss, aud } = JSON.parse(Buffer.from(body, "base64url").toString("utf8")) as {
      readonly iss?: unknown;
      readonly aud?: unknown;
    };
    return iss === SESSION_ISSUER && (aud === SESSION_AUDIENCE || aud === DEVICE_AUDIENCE);
  } catch {
    return false;
  }
}

/**
 * Returns a function that removes cookies with this name that are sessions, and device cookies, and gives the same list
 * if there is none.
 */
export function sessionRemover(cookie: string): (headers: HeaderList) => HeaderList {
  const device = deviceCookie(cookie);
  const isOurs = (value: string) => isAdminToken(unquoted(value));
  return (headers) => withoutCookies(withoutCookies(headers, cookie, isOurs), device, isOurs);
}
