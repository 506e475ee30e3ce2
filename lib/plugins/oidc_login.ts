/**
 * The steps of the plugin kind `oidc` that a person sees: the way to the provider, the way back, and the logout.
 */
import { createHash, randomBytes } from "node:crypto";
import type { MemoryPart } from "../base/shared_memory.ts";
import { isLoopback } from "../base/url_destination.ts";
import type { Exchange } from "../http/exchange.ts";
import { givenAuthority, givenPrefix } from "../http/given_origin.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { isForeign } from "../http/own_pages.ts";
import { problem, type Reply } from "../http/reply.ts";
import { setCookie, splitCookie, type CookieAttributes, type Seal, type Taken } from "./oidc_cookies.ts";
import { isForPage, led, page, paragraph, refused, UNSTORED, type PageLink } from "./oidc_pages.ts";
import { CODE, ProviderFailure, type Provider } from "./oidc_provider.ts";
import type { LoginSessions } from "./oidc_sessions.ts";
import { escapedUri } from "./template.ts";

interface LoginFlowOptions {
  readonly config: {
    readonly issuer: string;
    readonly clientId: string;
    readonly redirectPath?: string | undefined;
    readonly logoutPath?: string | undefined;
    readonly afterLogoutPath?: string | undefined;
    readonly scopes: readonly string[];
    readonly session: { readonly ttlS: number; readonly cookie: string };
  };
  readonly provider: Provider;
  readonly seal: Seal;
  readonly sessions: LoginSessions;
  /**
   * The states of logins whose code was sent to the provider: a copy of the cookie must not cause more requests to it.
   */
  readonly used: MemoryPart<true>;
  /** For WWW-Authenticate. */
  readonly challenge: string;
  /** In seconds since 1970. */
  readonly now: () => number;
}

/** What binds a login to the browser in which it began. */
interface Pending {
  readonly state: string;
  readonly nonce: string;
  /** RFC 7636 §4.1. */
  readonly verifier: string;
  /** The path and query, as browsers ask for them, to which the person returns. */
  readonly to: string;
  /** In seconds since 1970. */
  readonly until: number;
}

export class LoginFlow {
  readonly #options: LoginFlowOptions;

  constructor(options: LoginFlowOptions) {
    this.#options = options;
  }

  cookieOf({ scheme }: Exchange): CookieAttributes {
    return { name: this.#options.config.session.cookie, isSecure: scheme === "https" };
  }

  /** As requests have them here: browsers may have to write a prefix before them. */
  pathsOf({ service: { basePath } }: Exchange): { readonly redirect: string; readonly logout: string } {
    const { redirectPath, logoutPath } = this.#options.config;
    const below = basePath === "/" ? "" : basePath;
    return { redirect: redirectPath ?? `${below}/.oidc/callback`, logout: logoutPath ?? `${below}/.oidc/logout` };
  }

  /**
   * Leads a person to the provider; other requests learn that they need a session. `why`: there was none, or it has
   * ended.
   */
  begin(exchange: Exchange, { cookies }: Taken, why: "none" | "ended"): Reply | Promise<Reply> {
    const { method } = exchange;
    const isRead = method === "GET" || method === "HEAD";
    const isPage = isForPage(exchange);
    if (isRead && isPage) {
      const insecure = this.#whyInsecure(exchange);
      return insecure === null
        ? this.#lead(exchange, cookies)
        : refused(exchange, { code: "bad_request", detail: insecure, why: "oidc: plain HTTP" });
    }
    const said = `${why === "ended" ? "The session has ended." : "There is no session."} Log in with a browser first.`;
    const remedy = "Log in with the link, which opens a new window; then send the form again here.";
    const unsent = `This ${method} was not carried out, and nothing was changed. ${remedy}`;
    const headers = ["WWW-Authenticate", this.#options.challenge];
    const detail = isPage ? `${said}\n${unsent}` : said;
    return refused(exchange, {
      code: "session_required",
      detail,
      why: `oidc: ${why}`,
      headers,
      link: loginLink(exchange),
    });
  }

  /** The provider has sent the browser back. */
  async complete(exchange: Exchange, { cookies }: Taken): Promise<Reply> {
    const { call, method, query, service } = exchange;
    if (method !== "GET")
      return problem(call, "method_not_allowed", {
        detail: "This path accepts GET.",
        headers: ["Allow", "GET", ...UNSTORED],
      });
    const answer = new URLSearchParams(query);
    const state = answer.get("state") ?? "";
    const name = loginName(state);
    const found = STATE.test(state) ? this.#options.seal.open<Pending>("login", cookies.get(name) ?? "") : null;
    const pending = found?.state === state ? found : null;
    // Each login ends here, whatever comes of it: its code and state are of no further use.
    const done = cookies.has(name) ? this.#removed(exchange, name) : [];
    const to = pending?.to ?? givenPrefix(exchange) + service.basePath;
    try {
      const outcome = await this.#outcome(exchange, answer, pending);
      if ("why" in outcome)
        return refused(exchange, {
          code: "login_failed",
          ...outcome,
          headers: done,
          link: { href: to, label: "Log in again" },
        });
      return led(303, to, [
        ...done,
        ...splitCookie(this.cookieOf(exchange), outcome.text, this.#options.config.session.ttlS),
      ]);
    } catch (error) {
      if (!(error instanceof ProviderFailure)) throw error;
      return this.unavailable(exchange, error, done, to);
    }
  }

  /** Ends the session here and at the provider (OpenID Connect RP-Initiated Logout 1.0). */
  async logout(exchange: Exchange, { cookies }: Taken): Promise<Reply> {
    const { call, method } = exchange;
    const { provider, sessions, config } = this.#options;
    if (method !== "GET" && method !== "POST") {
      return problem(call, "method_not_allowed", {
        detail: "This path accepts GET, POST.",
        headers: ["Allow", "GET, POST", ...UNSTORED],
      });
    }
    if (isForeign(exchange, givenAuthority(exchange))) {
      if (method === "POST")
        return refused(exchange, {
          code: "forbidden",
          detail: "Another site has asked for this logout.",
          why: "oidc: logout from elsewhere",
        });
      return page(
        200,
        "Log out?",
        [paragraph("Another site has led you here."), '<form method="post"><button>Log out</button></form>'],
        UNSTORED,
      );
    }
    const gone = [...cookies.keys()].flatMap((rest) => this.#removed(exchange, rest));
    const session = sessions.found(cookies);
    const metadata = session === null ? null : await provider.metadata().catch((error: Error) => error);
    if (session === null || metadata === null || metadata instanceof Error || metadata.endSession === null) {
      const note =
        metadata instanceof Error ? ["The login provider could not be asked: you may still be logged in there."] : [];
      return page(200, "Logged out", ["You are logged out here.", ...note].map(paragraph), [...gone, ...UNSTORED]);
    }
    const url = new URL(metadata.endSession);
    url.searchParams.set("id_token_hint", session.idToken);
    url.searchParams.set("client_id", config.clientId);
    if (config.afterLogoutPath !== undefined)
      url.searchParams.set("post_logout_redirect_uri", rootOf(exchange) + config.afterLogoutPath);
    return led(303, url.href, gone);
  }

  /** `headers` and `to` of a login that was under way. */
  unavailable(
    exchange: Exchange,
    { message }: ProviderFailure,
    headers: HeaderList = [],
    to = returnPath(exchange),
  ): Reply {
    const detail = "The login provider could not be asked. Try again shortly.";
    const link = { href: to, label: "Try again" };
    return refused(exchange, {
      code: "auth_unavailable",
      detail,
      why: `oidc: ${message}`,
      headers: ["Retry-After", "2", ...headers],
      link,
    });
  }

  async #lead(exchange: Exchange, cookies: Taken["cookies"]): Promise<Reply> {
    const { provider, seal, now, config } = this.#options;
    let url: URL;
    try {
      url = new URL((await provider.metadata()).authorization);
    } catch (error) {
      if (error instanceof ProviderFailure) return this.unavailable(exchange, error);
      throw error;
    }
    const to = returnPath(exchange);
    const pending: Pending = { state: random(16), nonce: random(16), verifier: random(32), to, until: now() + LOGIN_S };
    const asked = {
      response_type: "code",
      client_id: config.clientId,
      redirect_uri: this.#redirectUri(exchange),
      scope: config.scopes.join(" "),
      state: pending.state,
      nonce: pending.nonce,
      code_challenge_method: "S256",
      code_challenge: createHash("sha256").update(pending.verifier).digest("base64url"),
    };
    for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
    // Browsers send older cookies first (RFC 6265 §5.4). A page that opens many windows must not fill the head of
    // requests.
    const old = [...cookies.keys()].filter((rest) => LOGIN_NAME.test(rest)).slice(0, 1 - MAX_LOGINS);
    const cookie = setCookie(
      { ...this.cookieOf(exchange), name: config.session.cookie + loginName(pending.state) },
      seal.seal("login", pending),
      LOGIN_S,
    );
    return led(302, url.href, [...cookie, ...old.flatMap((rest) => this.#removed(exchange, rest))]);
  }

  /**
   * The text of the session's cookie, or why the login fails. Rejects with a `ProviderFailure` when the provider cannot
   * be asked.
   */
  async #outcome(
    exchange: Exchange,
    answer: URLSearchParams,
    pending: Pending | null,
  ): Promise<{ readonly text: string } | Failure> {
    const { provider, sessions, used, now, config } = this.#options;
    if (pending === null || used.get(pending.state) === true)
      return failure("This login was not begun in this browser, or it has been completed already.", "state");
    if (now() >= pending.until) return failure("This login took more than ten minutes.", "late");
    if (["code", "state", "iss", "error"].some((each) => answer.getAll(each).length > 1))
      return failure("The answer of the login provider is ambiguous.", "ambiguous");
    const { namesItself } = await provider.metadata();
    // The answer of another provider (RFC 9207 §2.4).
    if (answer.has("iss") ? answer.get("iss") !== config.issuer : namesItself)
      return failure("The answer is not from the login provider.", "iss");
    const error = answer.get("error");
    if (error !== null) return failure(REFUSED, CODE.test(error) ? `the provider says ${error}` : "error");
    const code = answer.get("code") ?? "";
    if (code === "") return failure("The answer of the login provider has no code.", "no code");
    used.set(pending.state, true, 0);
    const from = now();
    const form = {
      grant_type: "authorization_code",
      code,
      redirect_uri: this.#redirectUri(exchange),
      code_verifier: pending.verifier,
    };
    const tokens = await provider.tokens(form).catch((thrown: unknown) => {
      if (thrown instanceof ProviderFailure && thrown.refusal !== null) return failure(REFUSED, thrown.message);
      throw thrown;
    });
    if ("why" in tokens) return tokens;
    if (tokens.idToken === null) return failure("The login provider has sent no ID token.", "no ID token");
    const claims = await provider.verified(tokens.idToken, pending.nonce, "login");
    if (typeof claims === "string")
      return failure("The ID token of the login provider is not valid.", `ID token: ${claims}`);
    const text = sessions.sealed(from, tokens, tokens.idToken);
    return text === null
      ? failure(
          "What the login provider says of you is too long for cookies. Ask for fewer claims or scopes.",
          "tokens too long for cookies",
        )
      : { text };
  }

  #removed(exchange: Exchange, rest: string): HeaderList {
    return setCookie({ ...this.cookieOf(exchange), name: this.#options.config.session.cookie + rest }, "", 0);
  }

  #redirectUri(exchange: Exchange): string {
    return rootOf(exchange) + this.pathsOf(exchange).redirect;
  }

  /** Why browsers would not keep the cookie: a login would lead in a circle. */
  #whyInsecure(exchange: Exchange): string | null {
    const host = givenAuthority(exchange).replace(/:\d*$/, "");
    if (host === "") return "Send a Host header: the provider leads back to the same host.";
    if (exchange.scheme === "https") return null;
    if (!isLoopback(host)) return "Use HTTPS: sessions are not sent in the clear.";
    if (!this.#options.config.session.cookie.startsWith("__")) return null;
    return (
      "Use HTTPS: browsers keep a cookie with this name only then. For a trial on this machine, " +
      "give it a name without underscores in front."
    );
  }
}

interface Failure {
  readonly detail: string;
  readonly why: string;
}

function failure(detail: string, why: string): Failure {
  return { detail, why: `oidc: ${why}` };
}

const REFUSED = "The login provider has refused the login.";
const LOGIN_S = 600;
/** Of one browser at a time. */
const MAX_LOGINS = 5;
const STATE = /^[\w-]{22}$/;
const LOGIN_NAME = /^\.[\w-]{8}$/;
/** A longer query is left out: the cookie has to hold it. */
const MAX_RETURN = 1_500;

/** What browsers write before the paths of this gateway: "https://shop.example/edge". */
function rootOf(exchange: Exchange): string {
  return `${exchange.scheme}://${givenAuthority(exchange)}${givenPrefix(exchange)}`;
}

function random(bytes: number): string {
  return randomBytes(bytes).toString("base64url");
}

/** A part of `state` names the cookie, so that logins of several tabs do not replace each other. */
function loginName(state: string): string {
  return `.${state.slice(0, 8)}`;
}

/** The page itself, or another one by its path and query behind the root. */
function returnPath(exchange: Exchange, path = exchange.path, query = exchange.query): string {
  const prefix = givenPrefix(exchange);
  // Two slashes in front, or a backslash, would lead to another host.
  const own = prefix + escapedUri(path.replace(/^\/+/, "/"));
  const whole = own + escapedUri(query);
  if (whole.length <= MAX_RETURN) return whole;
  return own.length <= MAX_RETURN ? own : `${prefix}/`;
}

/** To the page that has sent a form, where a GET begins a login; else to the page itself. */
function loginLink(exchange: Exchange): PageLink {
  const root = rootOf(exchange);
  const referer = headerValue(exchange.headers, "referer") ?? "";
  const href = referer.startsWith(`${root}/`)
    ? returnPath(exchange, referer.slice(root.length), "")
    : returnPath(exchange);
  return { href, label: "Log in", opensWindow: true };
}
