/**
 * Issues, checks and revokes the token of a logged-in user, the administrator or the viewer, and its cookie (RFC 6265).
 */
import { createHmac, randomBytes } from "node:crypto";
import { signJwt, verifyJwt, type JwtClaims, type JwtVerdict } from "../base/jwt.ts";
import { SESSION_AUDIENCE, SESSION_ISSUER, unquoted } from "../operator/admin_cookie.ts";
import { findCookie } from "../http/cookies.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import type { InterfaceOptions } from "./views.ts";

export type SessionOptions = Accounts & Pick<InterfaceOptions, "jwtSecret" | "sessionTtlS" | "cookie" | "clock">;

/** A viewer reads, with secrets masked. */
export type Role = "admin" | "viewer";

export interface Account {
  readonly role: Role;
  readonly user: string;
  /** As configured: plain, or a hash. */
  readonly password: string;
}

export type Accounts = Pick<InterfaceOptions, "user" | "password"> & Partial<Pick<InterfaceOptions, "viewer">>;

export function accountsOf({ user, password, viewer }: Accounts): readonly Account[] {
  return [{ role: "admin", user, password }, ...(viewer ? [{ role: "viewer" as const, ...viewer }] : [])];
}

export interface AdminSession extends Pick<Account, "role" | "user"> {
  /** In milliseconds since 1970. */
  readonly expiresAt: number;
}

type SessionClaims = JwtClaims & {
  readonly sub: string;
  readonly jti: string;
  readonly iat: number;
  readonly exp: number;
};

const BEARER = /^bearer +([\w.-]+) *$/i;
const MAX_REVOKED = 10_000;

export class Sessions {
  /** The Set-Cookie header that removes the token from the client. */
  readonly clearing: string;
  readonly #options: SessionOptions;
  readonly #maxRevoked: number;
  /** Each has a key of its own, so that a token shows its role, and another password ends the sessions of its user. */
  readonly #accounts: readonly (Account & { readonly key: Buffer })[];
  /** `jti` of revoked tokens, with the second in which they expire. */
  readonly #revoked = new Map<string, number>();
  /** Tokens issued in this second or before it are refused. */
  #refusedUpTo = -1;

  constructor(options: SessionOptions, maxRevoked = MAX_REVOKED) {
    const secret = options.jwtSecret ?? randomBytes(32);
    this.#options = options;
    this.clearing = cookieOf(options.cookie, "", 0);
    this.#maxRevoked = maxRevoked;
    this.#accounts = accountsOf(options).map(({ role, user, password }) => {
      const content = role === "admin" ? [user, password] : [user, password, role];
      return { role, user, password, key: createHmac("sha256", secret).update(JSON.stringify(content)).digest() };
    });
  }

  /** A new session: the value of its Set-Cookie header, and its end. */
  issue(role: Role = "admin", jti = randomBytes(16).toString("base64url")): AdminSession & { readonly cookie: string } {
    const { sessionTtlS, cookie, clock } = this.#options;
    const { user, key } = this.#accounts.find((account) => account.role === role)!;
    const iat = Math.floor(clock.wall() / 1000);
    const exp = iat + sessionTtlS;
    const token = signJwt({ sub: user, iat, exp, jti, iss: SESSION_ISSUER, aud: SESSION_AUDIENCE }, key);
    return { role, user, expiresAt: exp * 1000, cookie: cookieOf(cookie, token, sessionTtlS) };
  }

  /**
   * The same session with a later end. Its `jti` stays: a logout ends it whichever of its tokens it has. Null: it has
   * ended meanwhile.
   */
  renew(headers: HeaderList): (AdminSession & { readonly cookie: string }) | null {
    const found = this.#found(headers);
    return found && this.issue(found.role, found.claims.jti);
  }

  /**
   * The live session whose token a cookie contains. Browsers send several of one name when another host of the same
   * domain, or another path, has set one, in an order that does not show which is ours (RFC 6265 §5.4).
   */
  of(headers: HeaderList): AdminSession | null {
    const found = this.#found(headers);
    return found && { role: found.role, user: found.claims.sub, expiresAt: found.claims.exp * 1000 };
  }

  hasCookie(headers: HeaderList): boolean {
    return this.#found(headers) !== null;
  }

  /**
   * The name of the session cookie if the request has one that this gateway, since its start, has not issued; otherwise
   * null.
   */
  foreignCookie(headers: HeaderList): string | null {
    const { cookie } = this.#options;
    return findCookie(headers, cookie, (value) =>
      value === "" || this.#accounts.some(({ key }) => this.#verified(unquoted(value), key, 0).ok) ? null : cookie,
    );
  }

  /** Whether the Authorization header contains the token of a live session (RFC 6750). */
  hasBearer(headers: HeaderList): boolean {
    return this.#sessionOf(BEARER.exec(headerValue(headers, "authorization") ?? "")?.[1] ?? "") !== null;
  }

  /** Ends the sessions whose tokens are in the cookies. */
  revoke(headers: HeaderList): void {
    findCookie(headers, this.#options.cookie, (value) => {
      const found = this.#sessionOf(unquoted(value));
      if (found !== null) this.#remember(found.claims);
      return null;
    });
  }

  #found(headers: HeaderList): Found | null {
    return findCookie(headers, this.#options.cookie, (value) => this.#sessionOf(unquoted(value)));
  }

  #verified(token: string, key: Buffer, now: number): JwtVerdict {
    return verifyJwt(token, key, { now, issuer: SESSION_ISSUER, audience: SESSION_AUDIENCE });
  }

  #sessionOf(token: string): Found | null {
    for (const { role, user, key } of this.#accounts) {
      const verdict = this.#verified(token, key, this.#options.clock.wall());
      if (!verdict.ok || !isSession(verdict.claims) || verdict.claims.sub !== user) continue;
      return verdict.claims.iat <= this.#refusedUpTo || this.#revoked.has(verdict.claims.jti)
        ? null
        : { role, claims: verdict.claims };
    }
    return null;
  }

  #remember({ jti }: SessionClaims): void {
    const second = this.#options.clock.wall() / 1000;
    if (this.#revoked.size >= this.#maxRevoked)
      for (const [old, end] of this.#revoked) if (end <= second) this.#revoked.delete(old);
    if (this.#revoked.size >= this.#maxRevoked) {
      // Forgetting a revocation would revive a logged-out session, so end all sessions instead.
      this.#revoked.clear();
      this.#refusedUpTo = Math.floor(second);
    }
    // It may have been renewed until now.
    this.#revoked.set(jti, second + this.#options.sessionTtlS);
  }
}

interface Found {
  readonly role: Role;
  readonly claims: SessionClaims;
}

function isSession(claims: JwtClaims): claims is SessionClaims {
  return typeof claims.sub === "string" && typeof claims.jti === "string" && typeof claims.iat === "number";
}

/** A cookie is replaced or removed only by one with the same attributes. */
function cookieOf(name: string, token: string, maxAgeS: number): string {
  return `${name}=${token}; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=${maxAgeS}`;
}
