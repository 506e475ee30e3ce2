/**
 * The sessions of the plugin kind `oidc`: what the cookie says, and the refresh of tokens before their end.
 *
 * Sessions are in cookies alone, and most providers accept a refresh token once. So the requests of a browser that
 * arrive together share one refresh, in all workers of the program, and those that still come with the old cookie get
 * the outcome of that refresh.
 */
import { hash } from "node:crypto";
import { messageOf } from "../base/errors.ts";
import type { JwtClaims } from "../base/jwt.ts";
import type { MemoryPart } from "../base/shared_memory.ts";
import { BYTES_PER_CHARACTER, freezeClaims, type Admitted, type UnfitClaims } from "./access_token.ts";
import { joinedText, MAX_SEALED, type Seal } from "./oidc_cookies.ts";
import { ProviderFailure, type Provider, type Tokens } from "./oidc_provider.ts";
import type { Tools } from "./plugin.ts";
import { SingleFlight } from "./single_flight.ts";

/** What the cookie contains. Times in seconds since 1970. */
interface Written {
  /** When the person logged in. */
  readonly from: number;
  readonly idToken: string;
  readonly refreshToken: string | null;
  /** From when on the access token is refreshed, and when it ends; null: it is not refreshed. */
  readonly refresh: { readonly from: number; readonly end: number } | null;
}

export interface LoginSession extends Written {
  /** Of its cookie. */
  readonly text: string;
  readonly claims: JwtClaims;
  /** What the claims say of the request: see `claimsCheck`. */
  readonly verdict: Admitted | UnfitClaims;
}

/** The session to be used now: the one that the browser has, or a later one. "over": the provider has ended it. */
export type Current = LoginSession | "over" | ProviderFailure;

interface SessionOptions {
  readonly tools: Pick<Tools, "clock" | "verdicts" | "keep" | "common" | "shared">;
  readonly provider: Provider;
  readonly seal: Seal;
  readonly ttlS: number;
  readonly judge: (claims: JwtClaims) => LoginSession["verdict"];
  /** All that `judge` and the seal depend on. */
  readonly settings: unknown;
}

/** Of all instances, since services may share a session. By digests of cookies: a refresh token may stay the same. */
interface Refreshes {
  /**
   * The text of the cookie that came of a refresh; "": the provider has refused. Each instance judges its claims by
   * itself.
   */
  readonly outcomes: MemoryPart<string>;
  readonly running: SingleFlight<string | ProviderFailure>;
  readonly claim: ReturnType<typeof refreshClaims>;
}

export class LoginSessions {
  readonly #options: SessionOptions;
  /** By the text of the cookie; decrypting and reading it takes some 20 µs. */
  readonly #known: MemoryPart<LoginSession>;
  readonly #refreshes: Refreshes;

  constructor(options: SessionOptions) {
    const { tools, settings } = options;
    this.#options = options;
    this.#known = tools.keep("sessions", settings, () => tools.verdicts.part());
    const memory = tools.shared("refreshes", CLAIMS * 8);
    this.#refreshes = tools.common("refreshes", () => ({
      outcomes: tools.verdicts.part(),
      running: new SingleFlight(),
      claim: refreshClaims(memory),
    }));
  }

  /** The session of the cookies, also one that is over; null without one that this gateway has sealed. */
  found(cookies: ReadonlyMap<string, string>): LoginSession | null {
    const text = joinedText(cookies);
    return text === null || text.length > MAX_SEALED ? null : this.#opened(text);
  }

  secondsLeft({ from }: LoginSession): number {
    return Math.floor(from + this.#options.ttlS - this.#now());
  }

  /** The text of a cookie; null if no cookies can hold it. */
  sealed(from: number, { refreshToken, expiresIn }: Tokens, idToken: string): string | null {
    const end = this.#now() + (expiresIn ?? 0);
    const refresh =
      refreshToken === null || expiresIn === null ? null : { from: end - Math.min(MOST_EARLY_S, expiresIn / 4), end };
    const text = this.#options.seal.seal("session", { from, idToken, refreshToken, refresh } satisfies Written);
    return text.length <= MAX_SEALED ? text : null;
  }

  /** The session as it is to be used now: at once, unless its tokens have to be refreshed. */
  current(session: LoginSession): Current | Promise<Current> {
    const { refresh, refreshToken, text } = session;
    if (refresh === null || refreshToken === null || this.#now() < refresh.from) return session;
    const { outcomes, running, claim } = this.#refreshes;
    const key = hash("sha256", text, "base64url");
    const known = outcomes.get(key);
    if (known === "") return "over";
    if (known !== undefined) {
      const later = this.current(this.#opened(known)!);
      // The way from a cookie that stays old does not become longer with each refresh.
      if ("text" in Object(later)) outcomes.set(key, (later as LoginSession).text, known.length);
      return later;
    }
    if (running.current(key) === undefined && !claim(key, Math.floor(this.#now()))) return session;
    const renewal = running.join(key, () => this.#renewal(session, refreshToken, key));
    return renewal.then((found) => {
      if (typeof found === "string") return found === "" ? "over" : this.#opened(found)!;
      // What has not ended yet stays good while the provider cannot be asked.
      return this.#now() < refresh.end ? session : found;
    });
  }

  /** In seconds since 1970. */
  #now(): number {
    return this.#options.tools.clock.wall() / 1000;
  }

  #opened(text: string): LoginSession | null {
    const known = this.#known.get(text);
    if (known !== undefined) return known;
    const written = this.#options.seal.open<Written>("session", text);
    if (written === null) return null;
    // Verified when it arrived, and nobody else can seal.
    const claims = JSON.parse(Buffer.from(written.idToken.split(".")[1]!, "base64url").toString()) as JwtClaims;
    const bytes = freezeClaims(claims) + text.length * BYTES_PER_CHARACTER;
    // A copy: a part of a header would keep all of it in memory.
    const session = { ...written, text: Buffer.from(text).toString(), claims, verdict: this.#options.judge(claims) };
    this.#known.set(text, session, bytes);
    return session;
  }

  /** Resolves with the text of the new cookie; "": the session is over. Never rejects. */
  async #renewal(session: LoginSession, refreshToken: string, key: string): Promise<string | ProviderFailure> {
    const { provider } = this.#options;
    const { outcomes } = this.#refreshes;
    try {
      const tokens = await provider.tokens({ grant_type: "refresh_token", refresh_token: refreshToken });
      const claims =
        tokens.idToken === null
          ? session.claims
          : await provider.verified(tokens.idToken, session.claims.nonce, "refresh");
      // A session does not become that of somebody else (OpenID Connect Core §12.2).
      if (typeof claims === "string" || claims.sub !== session.claims.sub) return "";
      const text = this.sealed(
        session.from,
        { ...tokens, refreshToken: tokens.refreshToken ?? refreshToken },
        tokens.idToken ?? session.idToken,
      );
      if (text !== null) outcomes.set(key, text, text.length);
      return text ?? "";
    } catch (error) {
      if (!(error instanceof ProviderFailure)) return new ProviderFailure(messageOf(error));
      if (error.refusal === null) return error;
      outcomes.set(key, "", 0);
      return "";
    }
  }
}

/** How long before the end of an access token it is refreshed at most, in seconds. */
const MOST_EARLY_S = 60;

/**
 * Returns a function that claims a refresh for this worker: false if another one has claimed it within the last minute.
 * A worker cannot see what came of it there: until the browser has the new cookie, its requests go on with the old
 * session.
 */
function refreshClaims(memory: ArrayBufferLike | null): (key: string, second: number) => boolean {
  if (memory === null) return () => true;
  const slots = new BigUint64Array(memory);
  const own = new Set<string>();
  return (key, second) => {
    if (own.has(key)) return true;
    const bits = Buffer.from(key, "base64url");
    const at = bits.readUInt32LE(0) % CLAIMS;
    const known = Atomics.load(slots, at);
    const mark = BigInt(bits.readUInt32LE(4));
    if (known >> 32n === mark && BigInt(second) - (known & 0xffffffffn) < CLAIM_S) return false;
    if (Atomics.compareExchange(slots, at, known, (mark << 32n) | BigInt(second)) !== known) return false;
    if (own.size >= CLAIMS) own.clear();
    own.add(key);
    return true;
  };
}

const CLAIMS = 4_096;
const CLAIM_S = 60n;
