/**
 * Issues, checks and revokes the token of a logged-in user and its cookie (RFC 6265), and the cookie by which the
 * user's browser is known at the next login.
 */
import { createHmac, randomBytes } from "node:crypto";
import { isTime, MAX_LENGTH, signJwt, splitJwt, verifyJwt, type JwtClaims } from "../base/jwt.ts";
import { sameText } from "../base/password.ts";
import { DEVICE_AUDIENCE, deviceCookie, SESSION_AUDIENCE, SESSION_ISSUER, unquoted } from "../operator/admin_cookie.ts";
import { findCookie } from "../http/cookies.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import type { Account, InterfaceOptions, KeptSessions } from "./views.ts";

export type { Account, Role } from "./views.ts";

export type SessionOptions = Accounts &
  Pick<InterfaceOptions, "jwtSecret" | "sessionTtlS" | "cookie" | "clock" | "keptSessions">;

export interface Accounts extends Pick<InterfaceOptions, "user" | "password"> {
  readonly viewer?: InterfaceOptions["viewer"];
  readonly users?: InterfaceOptions["users"];
}

/** Those of the settings and of ADMIN_USERS_FILE at this moment: an account that stays is the same object. */
export function accountsOf({ user, password, viewer, users }: Accounts): () => readonly Account[] {
  const fixed: Account[] = [];
  if (user !== null && password !== null) fixed.push({ role: "admin", user, password });
  if (viewer) fixed.push({ role: "viewer", ...viewer });
  return () => (users ? [...fixed, ...users.accounts] : fixed);
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
  /** The second of the login (OpenID Connect Core §2); renewals keep it. */
  readonly auth_time: number;
};

const BEARER = /^bearer +([\w.-]+) *$/i;
/** Of each account. */
const MAX_REVOKED = 10_000;
/** After its login a session ends, however often it is renewed (NIST SP 800-63B §4.2.3), or after its lifetime. */
const MAX_SESSION_S = 12 * 60 * 60;
const NONE_KEPT: KeptSessions = { secret: null, revoked: [], refused: [] };
const SECRET_BYTES = 32;
/** Each login begins it anew. */
const DEVICE_S = 90 * 24 * 60 * 60;

export class AdminSessions {
  /** The Set-Cookie header that removes the token from the client. */
  readonly clearing: string;
  readonly #options: SessionOptions;
  readonly #maxRevoked: number;
  readonly #secret: string | Buffer;
  /** Of the program before; those of users who are not there now are kept for when they are. */
  readonly #former: KeptSessions;
  readonly #accounts: () => readonly Account[];
  readonly #states = new WeakMap<Account, SessionAccount>();
  /** Stands for unknown users, who cost the same time: its key has signed nothing. */
  readonly #nobody = stateOf({ role: "viewer", user: "", password: "" }, randomBytes(32));

  constructor(options: SessionOptions, maxRevoked = MAX_REVOKED) {
    const kept = options.keptSessions?.read() ?? NONE_KEPT;
    this.#former = { ...kept, secret: kept.secret ?? randomBytes(SECRET_BYTES).toString("base64url") };
    this.#secret = options.jwtSecret ?? Buffer.from(this.#former.secret!, "base64url");
    this.#options = options;
    this.clearing = cookieOf(options.cookie, "", 0);
    this.#maxRevoked = maxRevoked;
    this.#accounts = accountsOf(options);
    if (kept.secret === null) void this.#keep();
  }

  /** A new session: the value of its Set-Cookie header, and its end. Null: there is no such user any more. */
  issue(name: string, former?: SessionClaims): (AdminSession & { readonly cookie: string }) | null {
    const { sessionTtlS, cookie, clock } = this.#options;
    const account = this.#named(name);
    if (account === this.#nobody) return null;
    const { role, user, key } = account;
    const iat = Math.floor(clock.wall() / 1000);
    const { jti, auth_time } = former ?? { jti: newId(), auth_time: iat };
    const exp = Math.min(iat + sessionTtlS, auth_time + Math.max(sessionTtlS, MAX_SESSION_S));
    const claims = { sub: user, iat, exp, auth_time, jti, iss: SESSION_ISSUER, aud: SESSION_AUDIENCE };
    return { role, user, expiresAt: exp * 1000, cookie: cookieOf(cookie, signJwt(claims, key), exp - iat) };
  }

  /**
   * The same session with a later end, 12 hours after its login at most. Its `jti` stays: a logout ends it whichever of
   * its tokens it has. Null: it has ended meanwhile.
   */
  renew(headers: HeaderList): (AdminSession & { readonly cookie: string }) | null {
    const found = this.#found(headers);
    return found && this.issue(found.account.user, found.claims);
  }

  /**
   * The live session whose token a cookie contains. Browsers send several of one name when another host of the same
   * domain, or another path, has set one, in an order that does not show which is ours (RFC 6265 §5.4).
   */
  of(headers: HeaderList): AdminSession | null {
    const found = this.#found(headers);
    return found && { role: found.account.role, user: found.claims.sub, expiresAt: found.claims.exp * 1000 };
  }

  /**
   * The Set-Cookie header that marks the browser of a user who has logged in (OWASP, "Device cookies"). The browser
   * keeps its id, and with it the count of its failures.
   */
  deviceCookie(user: string, headers: HeaderList): string {
    const { cookie, clock } = this.#options;
    const { key } = this.#named(user);
    const jti = this.deviceOf(headers, user) ?? newId();
    const exp = Math.floor(clock.wall() / 1000) + DEVICE_S;
    const claims = { sub: user, exp, jti, iss: SESSION_ISSUER, aud: DEVICE_AUDIENCE };
    return cookieOf(deviceCookie(cookie), signJwt(claims, key), DEVICE_S);
  }

  /** The id in a valid device cookie of this user, or null. */
  deviceOf(headers: HeaderList, user: string): string | null {
    const now = this.#options.clock.wall();
    return findCookie(headers, deviceCookie(this.#options.cookie), (value) => {
      const found = this.#verified(unquoted(value), now, DEVICE_AUDIENCE);
      const jti = found?.claims["jti"];
      return found !== null && typeof jti === "string" && sameText(found.account.user, user) ? jti : null;
    });
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
      value === "" || this.#verified(unquoted(value), 0) !== null ? null : cookie,
    );
  }

  /** Whether the Authorization header contains the token of a live session (RFC 6750). */
  hasBearer(headers: HeaderList): boolean {
    return this.#sessionOf(BEARER.exec(headerValue(headers, "authorization") ?? "")?.[1] ?? "") !== null;
  }

  /** Ends the sessions whose tokens are in the cookies. Resolves when that outlives the program, where they do. */
  async revoke(headers: HeaderList): Promise<void> {
    let isNews = false;
    findCookie(headers, this.#options.cookie, (value) => {
      const found = this.#sessionOf(unquoted(value));
      if (found !== null) this.#remember(found);
      isNews ||= found !== null;
      return null;
    });
    if (isNews) await this.#keep();
  }

  async #keep(): Promise<void> {
    const { keptSessions, clock } = this.#options;
    const second = clock.wall() / 1000;
    const states = this.#accounts().map(({ user }) => this.#named(user));
    const isGone = ([user]: readonly [string, ...unknown[]]) => !states.some((each) => each.user === user);
    const revoked = states.flatMap((state) =>
      Array.from(state.revoked, ([jti, end]) => [state.user, jti, end] as const),
    );
    await keptSessions?.write({
      secret: this.#former.secret,
      revoked: [...this.#former.revoked.filter(isGone), ...revoked].filter(([, , end]) => end > second),
      refused: [
        ...this.#former.refused.filter(isGone),
        ...states.flatMap(({ user, refusedUpTo: second }) => (second < 0 ? [] : [[user, second] as const])),
      ],
    });
  }

  #found(headers: HeaderList): Found | null {
    return findCookie(headers, this.#options.cookie, (value) => this.#sessionOf(unquoted(value)));
  }

  /** One signature is verified, whether or not there is the user whom the token names. */
  #verified(token: string, now: number, audience = SESSION_AUDIENCE) {
    const sub = splitJwt(token, MAX_LENGTH)?.claims()?.["sub"];
    const account = this.#named(typeof sub === "string" ? sub : "");
    const verdict = verifyJwt(token, account.key, { now, issuer: SESSION_ISSUER, audience });
    return verdict.ok ? { account, claims: verdict.claims } : null;
  }

  #sessionOf(token: string): Found | null {
    const found = this.#verified(token, this.#options.clock.wall());
    if (found === null) return null;
    const { account, claims } = found;
    if (!isSession(claims) || claims.iat <= account.refusedUpTo || account.revoked.has(claims.jti)) return null;
    return { account, claims };
  }

  #named(user: string): SessionAccount {
    const account = this.#accounts().find((each) => each.user === user);
    if (account === undefined) return this.#nobody;
    const known = this.#states.get(account);
    if (known !== undefined) return known;
    const { role, password } = account;
    const content = role === "admin" ? [user, password] : [user, password, role];
    const key = createHmac("sha256", this.#secret).update(JSON.stringify(content)).digest();
    const state = stateOf(account, key, this.#former);
    this.#states.set(account, state);
    return state;
  }

  #remember({ account, claims: { jti } }: Found): void {
    const { revoked } = account;
    const second = this.#options.clock.wall() / 1000;
    if (revoked.size >= this.#maxRevoked) for (const [old, end] of revoked) if (end <= second) revoked.delete(old);
    if (revoked.size >= this.#maxRevoked) {
      // Forgetting a revocation would revive a logged-out session, so end all sessions of the account instead.
      revoked.clear();
      account.refusedUpTo = Math.floor(second);
    }
    // It may have been renewed until now.
    revoked.set(jti, second + this.#options.sessionTtlS);
  }
}

/** Its key is its own, so that a token shows its role, and another password ends the sessions of its user. */
interface SessionAccount extends Account {
  readonly key: Buffer;
  /** `jti` of revoked tokens, with the second in which they expire. */
  readonly revoked: Map<string, number>;
  /** Tokens issued in this second or before it are refused. */
  refusedUpTo: number;
}

function stateOf(account: Account, key: Buffer, { revoked, refused }: KeptSessions = NONE_KEPT): SessionAccount {
  const { user, since = 0 } = account;
  const isOwn = ([owner]: readonly [string, ...unknown[]]) => owner === user;
  const before = refused.filter(isOwn).map(([, second]) => second);
  return {
    ...account,
    key,
    revoked: new Map(revoked.filter(isOwn).map(([, jti, end]) => [jti, end])),
    // A login in that very second is a new one.
    refusedUpTo: Math.max(Math.floor(since / 1000) - 1, ...before),
  };
}

interface Found {
  readonly account: SessionAccount;
  readonly claims: SessionClaims;
}

function isSession(claims: JwtClaims): claims is SessionClaims {
  const { sub, jti, iat, auth_time } = claims;
  return typeof sub === "string" && typeof jti === "string" && isTime(iat) && isTime(auth_time);
}

function newId(): string {
  return randomBytes(16).toString("base64url");
}

/** A cookie is replaced or removed only by one with the same attributes. */
function cookieOf(name: string, token: string, maxAgeS: number): string {
  return `${name}=${token}; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=${maxAgeS}`;
}
