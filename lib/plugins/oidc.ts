/**
 * The plugin kind `oidc`: admits people who have logged in at an OpenID provider with their browser, by the
 * authorization code flow with PKCE (OpenID Connect Core §3.1, RFC 7636, RFC 9700).
 *
 * A login begins with a cookie that binds `state`, `nonce` and the PKCE verifier to the browser, one for each tab; it
 * ends with a cookie that holds the session. Both are encrypted: nothing is kept here, so any gateway with the same
 * secret can serve the next request.
 */
import { TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { SharedMemory } from "../base/shared_memory.ts";
import { HttpClient } from "../client/client.ts";
import { array, integer, object, optional, string, withDefault } from "../config/whole_schema.ts";
import { CLIENT_TLS } from "../config/tls_fields.ts";
import type { Exchange } from "../http/exchange.ts";
import { MAX_PLAIN_PATH, PLAIN_PATH } from "../http/given_origin.ts";
import {
  hasHeader,
  headerValues,
  quotedString,
  tokens,
  withHeader,
  withoutHeader,
  type HeaderList,
} from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { checkClaimHeaders, CLAIM_FIELDS, claimsCheck, TOKEN_REFUSALS, withoutName } from "./access_token.ts";
import { checkClient, CLIENT_FIELDS } from "./client_credentials.ts";
import { checkTls, clientTls, headerReplacer, httpUrl, timeoutField } from "./endpoint.ts";
import { sealBy, splitCookie, takeCookies, type Taken } from "./oidc_cookies.ts";
import { LoginFlow } from "./oidc_login.ts";
import { refused } from "./oidc_pages.ts";
import { Provider, ProviderFailure } from "./oidc_provider.ts";
import { LoginSessions, type Current, type LoginSession } from "./oidc_sessions.ts";
import type { Plugin } from "./plugin.ts";

const path = (describe: string) =>
  string({
    references: "none",
    pattern: PLAIN_PATH,
    max: MAX_PLAIN_PATH,
    hint: 'a path such as "/shop/.oidc/callback"',
    describe,
  });
const scope = string({ pattern: /^[\x21\x23-\x5b\x5d-\x7e]+$/, hint: "one scope, without spaces and quotes" });

const schema = object(
  {
    issuer: httpUrl("The provider, exactly as its metadata and ID tokens name it."),
    ...CLIENT_FIELDS,
    redirect_path: optional(
      path("The path to which the provider returns; default: /.oidc/callback below the service's base_path."),
    ),
    logout_path: optional(path("The path that ends a session; default: /.oidc/logout below the service's base_path.")),
    after_logout_path: optional(
      path("Where the provider leads after a logout; registered there. Default: the provider's own page."),
    ),
    scopes: withDefault(array(scope, { describe: "Scopes that are requested." }), ["openid"]),
    session: object({
      secret: string({
        min: 32,
        secret: true,
        describe: "Encrypts cookies; the same in all gateways that share sessions. At least 32 characters.",
      }),
      ttl_s: withDefault(
        integer({ min: 60, max: 31 * 86_400, describe: "How long a login lasts, in seconds." }),
        28_800,
      ),
      cookie: withDefault(
        string({
          references: "none",
          pattern: new RegExp(`^[${TOKEN_CHARACTERS}]+$`),
          max: 100,
          hint: "the name of a cookie",
          describe: "The name of the session's cookie.",
        }),
        "__Host-session",
      ),
    }),
    ...CLAIM_FIELDS,
    origins: withDefault(
      array(httpUrl("An origin."), {
        describe: "Origins beside the issuer's on which the provider has its token endpoint and keys.",
      }),
      [],
    ),
    leeway_s: withDefault(
      integer({ min: 0, max: 3600, describe: "Allowed clock difference for ID tokens, in seconds." }),
      60,
    ),
    timeout_ms: timeoutField("each answer of the provider", 5_000),
    tls: optional(CLIENT_TLS),
  },
  {
    describe: "Requires a login at an OpenID provider with a browser.",
    refine(value, complain) {
      checkClient(value, complain);
      checkClaimHeaders(value, complain);
      checkTls(value.issuer, value.tls, complain);
      if (/[?#]/.test(value.issuer)) complain("is an issuer, which has no query and no fragment", "issuer");
      if (!value.scopes.includes("openid"))
        complain('needs "openid": without it the provider sends no ID token', "scopes");
      if (value.redirectPath !== undefined && value.redirectPath === value.logoutPath)
        complain('is also the "redirect_path"', "logout_path");
      const odd = value.origins.findIndex((url) => !/^https?:\/\/[^/?#]+\/?$/i.test(url));
      if (odd >= 0) complain("is no origin: leave out everything behind the host and port", "origins", odd);
    },
  },
);

export const oidc: Plugin<typeof schema> = {
  name: "oidc",
  schema,
  guards: true,
  identifies: true,
  ownHeaders: ({ claimsToHeaders }) => Object.values(claimsToHeaders ?? {}),
  secretParameters: () => ["code", "id_token_hint"],
  dials: { why: "oidc", urls: ({ issuer, origins }) => [issuer, ...origins] },
  code: { HttpClient, SharedMemory },
  create(config, tools) {
    const { issuer, clientId, session: own } = config;
    const tls = clientTls(config.tls);
    const {
      session: _session,
      claims: _claims,
      claimsToHeaders: _headers,
      groupsClaim: _groups,
      ...ofProvider
    } = config;
    const provider = tools.keep(
      "provider",
      ofProvider,
      () => new Provider(config, tools, tools.client({ maxConnections: 16, tls })),
    );
    const seal = sealBy(own.secret, [issuer, clientId, own.cookie]);
    const judge = claimsCheck(config);
    const sessions = new LoginSessions({ tools, provider, seal, ttlS: own.ttlS, judge, settings: config });
    const challenge = `OpenIDConnect realm=${quotedString(tools.gatewayName)}`;
    const used = tools.keep("logins", null, () => tools.verdicts.part<true>());
    const flow = new LoginFlow({
      config,
      provider,
      seal,
      sessions,
      used,
      challenge,
      now: () => tools.clock.wall() / 1000,
    });
    const withClaims = headerReplacer(Object.values(config.claimsToHeaders ?? {}));
    const assumed = tools.verifiedClaims === null ? null : judge(tools.verifiedClaims);

    return (next) => {
      const pass = (
        exchange: Exchange,
        { headers }: Taken,
        verdict: LoginSession["verdict"],
        cookies: HeaderList,
      ): Reply | Promise<Reply> => {
        if (typeof verdict === "string") {
          return refused(exchange, {
            code: "forbidden",
            detail: REFUSED_CLAIMS[withoutName(verdict)],
            why: `oidc: ${withoutName(verdict)}`,
            rule: verdict === "unfit" ? "claims_to_headers" : verdict,
            headers: cookies,
          });
        }
        const { identity, claims, groups } = verdict;
        const replies = next(exchange.with({ identity, claims, groups, ...withClaims({ headers }, verdict.headers) }));
        return replies instanceof Promise
          ? replies.then((reply) => unshared(reply, cookies))
          : unshared(replies, cookies);
      };
      const settle = (
        exchange: Exchange,
        taken: Taken,
        given: LoginSession,
        current: Current,
      ): Reply | Promise<Reply> => {
        if (current === "over") return flow.begin(exchange, taken, "ended");
        if (current instanceof ProviderFailure) return flow.unavailable(exchange, current);
        const cookies =
          current === given ? [] : splitCookie(flow.cookieOf(exchange), current.text, sessions.secondsLeft(current));
        return pass(exchange, taken, current.verdict, cookies);
      };
      return (exchange) => {
        const taken = takeCookies(exchange.headers, own.cookie);
        const { redirect, logout } = flow.pathsOf(exchange);
        if (exchange.path === redirect) return flow.complete(exchange, taken);
        if (exchange.path === logout) return flow.logout(exchange, taken);
        if (assumed !== null) return pass(exchange, taken, assumed, []);
        const session = sessions.found(taken.cookies);
        if (session === null || sessions.secondsLeft(session) <= 0)
          return flow.begin(exchange, taken, session === null ? "none" : "ended");
        const current = sessions.current(session);
        return current instanceof Promise
          ? current.then((late) => settle(exchange, taken, session, late))
          : settle(exchange, taken, session, current);
      };
    };
  },
};

const REFUSED_CLAIMS = {
  claims: "You are logged in, but this is not for you.",
  unfit: TOKEN_REFUSALS.unfit[1],
};

/** Shared caches do not know that a cookie admits somebody, as they know it of Authorization (RFC 9111 §3.5). */
function unshared(reply: Reply, cookies: HeaderList): Reply {
  if (reply.tunnel !== undefined && cookies.length === 0) return reply;
  let { headers } = reply;
  if (cookies.length > 0) headers = [...withoutHeader(headers, "cache-control"), "Cache-Control", "no-store"];
  else if (!hasHeader(headers, "cache-control")) headers = [...headers, "Cache-Control", "private"];
  const vary = tokens(headers, "vary");
  if (!vary.includes("cookie") && !vary.includes("*"))
    headers = withHeader(headers, "Vary", [...headerValues(headers, "vary"), "Cookie"].join(", "));
  return { ...reply, headers: [...headers, ...cookies] };
}
