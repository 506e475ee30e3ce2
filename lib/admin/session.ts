/**
 * Issues, checks and revokes the token of a logged-in administrator, and its cookie (RFC 6265).
 */
import { createHmac, randomBytes } from "node:crypto";
import { signJwt, verifyJwt, type JwtClaims, type JwtVerdict } from "../base/jwt.ts";
import { SESSION_AUDIENCE, SESSION_ISSUER, unquoted } from "../operator/admin_cookie.ts";
import { findCookie } from "../http/cookies.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import type { InterfaceOptions } from "./views.ts";

export type SessionOptions = Pick<InterfaceOptions, "user" | "password" | "jwtSecret" | "sessionTtlS" | "cookie" | "clock">;

type SessionClaims = JwtClaims & { readonly sub: string; readonly jti: string; readonly iat: number; readonly exp: number };

const BEARER = /^bearer +([\w.-]+) *$/i;
const MAX_REVOKED = 10_000;

export class Sessions {
  /** The Set-Cookie header that removes the token from the client. */
  readonly clearing: string;
  readonly #options: SessionOptions;
  readonly #maxRevoked: number;
  readonly #key: Buffer;
  /** `jti` of revoked tokens, with the second in which they expire. */
  readonly #revoked = new Map<string, number>();
  /** Tokens issued in this second or before it are refused. */
  #refusedUpTo = -1;

  constructor(options: SessionOptions, maxRevoked = MAX_REVOKED) {
    const { user, password, jwtSecret } = options;
    this.#options = options;
    this.clearing = cookieOf(options.cookie, "", 0);
    this.#maxRevoked = maxRevoked;
    this.#key = createHmac("sha256", jwtSecret ?? randomBytes(32)).update(JSON.stringify([user, password])).digest();
  }

  /** A new session: the value of its Set-Cookie header, and its end in milliseconds since 1970. */
  issue(): { cookie: string; expiresAt: number } {
    const { user, sessionTtlS, cookie, clock } = this.#options;
    const iat = Math.floor(clock.wall() / 1000);
    const exp = iat + sessionTtlS;
    const jti = randomBytes(16).toString("base64url");
    const token = signJwt({ sub: user, iat, exp, jti, iss: SESSION_ISSUER, aud: SESSION_AUDIENCE }, this.#key);
    return { cookie: cookieOf(cookie, token, sessionTtlS), expiresAt: exp * 1000 };
  }

  /**
   * Whether a cookie contains the token of a live session. Browsers send several of one name when another host of the same domain, or another
   * path, has set one, in an order that does not show which is ours (RFC 6265 §5.4).
   */
  hasCookie(headers: HeaderList): boolean {
    return findCookie(headers, this.#options.cookie, (value) => this.#claimsOf(unquoted(value))) !== null;
  }

  /** The name of the session cookie if the request has one that this gateway, since its start, has not issued; otherwise null. */
  foreignCookie(headers: HeaderList): string | null {
    const { cookie } = this.#options;
    return findCookie(headers, cookie, (value) => (value === "" || this.#verified(unquoted(value), 0).ok ? null : cookie));
  }

  /** Whether the Authorization header contains the token of a live session (RFC 6750). */
  hasBearer(headers: HeaderList): boolean {
    return this.#claimsOf(BEARER.exec(headerValue(headers, "authorization") ?? "")?.[1] ?? "") !== null;
  }

  /** Ends the sessions whose tokens are in the cookies. */
  revoke(headers: HeaderList): void {
    findCookie(headers, this.#options.cookie, (value) => {
      const claims = this.#claimsOf(unquoted(value));
      if (claims !== null) this.#remember(claims);
      return null;
    });
  }

  #verified(token: string, now: number): JwtVerdict {
    return verifyJwt(token, this.#key, { now, issuer: SESSION_ISSUER, audience: SESSION_AUDIENCE });
  }

  #claimsOf(token: string): SessionClaims | null {
    const verdict = this.#verified(token, this.#options.clock.wall());
    if (!verdict.ok || !isSession(verdict.claims) || verdict.claims.sub !== this.#options.user) return null;
    return verdict.claims.iat <= this.#refusedUpTo || this.#revoked.has(verdict.claims.jti) ? null : verdict.claims;
  }

  #remember({ jti, exp }: SessionClaims): void {
    const second = this.#options.clock.wall() / 1000;
    if (this.#revoked.size >= this.#maxRevoked) for (const [old, end] of this.#revoked) if (end <= second) this.#revoked.delete(old);
    if (this.#revoked.size >= this.#maxRevoked) {
      // Forgetting a revocation would revive a logged-out session, so end all sessions instead.
      this.#revoked.clear();
      this.#refusedUpTo = Math.floor(second);
    }
    this.#revoked.set(jti, exp);
  }
}

function isSession(claims: JwtClaims): claims is SessionClaims {
  return typeof claims.sub === "string" && typeof claims.jti === "string" && typeof claims.iat === "number";
}

/** A cookie is replaced or removed only by one with the same attributes. */
function cookieOf(name: string, token: string, maxAgeS: number): string {
  return `${name}=${token}; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=${maxAgeS}`;
}
