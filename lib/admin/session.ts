/**
 * Issues, checks and revokes the token that stands for a logged-in administrator, and its cookie (RFC 6265).
 * Who gets one is `login.ts`.
 */
import { createHmac, randomBytes } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { signJwt, verifyJwt, type JwtClaims } from "../base/jwt.ts";

export interface Sessions {
  /** A new session: the value of its Set-Cookie header, and its end in milliseconds since 1970. */
  issue(): { cookie: string; expiresAt: number };
  /** Whether the Cookie header carries the token of a live session. Of several cookies named `token` any may. */
  live(cookieHeader: string | undefined): boolean;
  /** Whether the Authorization header carries one, as a bearer's (RFC 6750). */
  borne(authorization: string | undefined): boolean;
  /** Ends the sessions of the Cookie header, if there are any. */
  revoke(cookieHeader: string | undefined): void;
  /** The Set-Cookie header that removes the token from the client. */
  readonly clearing: string;
}

export interface SessionOptions {
  readonly user: string;
  /** As configured. A session lives no longer than both are the same. */
  readonly password: string;
  /** Null: a random one, and no session outlives the process. Instances that share secret, user and password share sessions, but not revocations. */
  readonly secret: string | null;
  readonly ttlS: number;
  readonly clock: Clock;
  /** How many revoked tokens are remembered. */
  readonly mostRevoked?: number;
}

export function createSessions({ user, password, secret, ttlS, clock, mostRevoked = 10_000 }: SessionOptions): Sessions {
  // Whoever changes the password wants nobody to stay logged in by the old one.
  const key = createHmac("sha256", secret ?? randomBytes(32)).update(JSON.stringify([user, password])).digest();
  /** `jti` of revoked tokens, with the second they expire in. */
  const revoked = new Map<string, number>();
  /** Tokens issued in this second or before it are refused. */
  let refusedUpTo = -1;

  return {
    issue() {
      const iat = Math.floor(clock.wall() / 1000);
      const exp = iat + ttlS;
      const jti = randomBytes(16).toString("base64url");
      const token = signJwt({ sub: user, iat, exp, jti, iss: ISSUER, aud: AUDIENCE }, key);
      return { cookie: cookieOf(token, ttlS), expiresAt: exp * 1000 };
    },
    live: (cookieHeader) => tokensOf(cookieHeader).some((token) => claimsOf(token) !== null),
    borne: (authorization) => claimsOf(BEARER.exec(authorization ?? "")?.[1] ?? "") !== null,
    revoke(cookieHeader) {
      for (const token of tokensOf(cookieHeader)) {
        const claims = claimsOf(token);
        if (claims !== null) remember(claims.jti, claims.exp);
      }
    },
    clearing: cookieOf("", 0),
  };

  function claimsOf(token: string): SessionClaims | null {
    const verdict = verifyJwt(token, key, { now: clock.wall(), issuer: ISSUER, audience: AUDIENCE });
    if (!verdict.ok || !isSession(verdict.claims) || verdict.claims.sub !== user) return null;
    return verdict.claims.iat <= refusedUpTo || revoked.has(verdict.claims.jti) ? null : verdict.claims;
  }

  function remember(jti: string, exp: number): void {
    const second = clock.wall() / 1000;
    if (revoked.size >= mostRevoked) for (const [old, end] of revoked) if (end <= second) revoked.delete(old);
    if (revoked.size >= mostRevoked) {
      // To forget a revocation would bring a logged-out session back. Ending all sessions is the safe way out.
      revoked.clear();
      refusedUpTo = Math.floor(second);
    }
    revoked.set(jti, exp);
  }
}

interface SessionClaims {
  readonly sub: string;
  readonly jti: string;
  readonly iat: number;
  readonly exp: number;
}

const BEARER = /^bearer +([\w.-]+) *$/i;
const ISSUER = "edge-gateway";
const AUDIENCE = "edge-gateway-admin";

function isSession(claims: JwtClaims): claims is JwtClaims & SessionClaims {
  return typeof claims.sub === "string" && typeof claims.jti === "string" && typeof claims.iat === "number";
}

/** A cookie is only replaced or removed by one with the same attributes, so they are written in one place. */
function cookieOf(token: string, maxAgeS: number): string {
  return `token=${token}; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=${maxAgeS}`;
}

/**
 * The values of all cookies named `token`; quotes around one are allowed (RFC 6265 §4.1.1). Browsers send several when another host of the
 * same domain, or another path, has set one, and the order says nothing of which is ours (§5.4).
 */
function tokensOf(cookieHeader: string | undefined): readonly string[] {
  const values: string[] = [];
  for (const pair of cookieHeader?.split(";") ?? []) {
    const equals = pair.indexOf("=");
    if (equals < 0 || pair.slice(0, equals).trim() !== "token") continue;
    const value = pair.slice(equals + 1).trim();
    values.push(value.startsWith('"') && value.endsWith('"') ? value.slice(1, -1) : value);
  }
  return values;
}
