/**
 * The plugin kind `introspection`: admits requests with an access token that its authorization server calls active (RFC
 * 7662).
 *
 * Refusals are as in RFC 6750 §3: 401 for a token that is not active, 403 for a scope that is missing.
 */
import { hash } from "node:crypto";
import { messageOf } from "../base/errors.ts";
import { isTime, type JwtClaims } from "../base/jwt.ts";
import { SharedMemory } from "../base/shared_memory.ts";
import { CLIENT_TLS } from "../config/tls_fields.ts";
import { integer, object, oneOf, optional, withDefault, type Infer } from "../config/schema.ts";
import { HttpClient, type Client, type ClientFailure } from "../client/client.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import { problem, type Reply } from "../http/reply.ts";
import { memoryCounters } from "../store/memory.ts";
import {
  admission,
  BYTES_PER_CHARACTER,
  checkClaimHeaders,
  CLAIM_FIELDS,
  claimsCheck,
  freezeClaims,
  holdsAll,
  holdsOne,
  MAX_TOKEN,
  SCOPES,
  TOKEN_REFUSALS,
  tokenRefusals,
} from "./access_token.ts";
import type { Admitted, UnfitClaims } from "./access_token.ts";
import { checkClient, CLIENT_FIELDS, clientCredentials } from "./client_credentials.ts";
import { checkTls, clientTls, httpUrl, timeoutField, answerText } from "./endpoint.ts";
import type { Plugin, Tools } from "./plugin.ts";
import { audiencesOf, protectedResource, RESOURCE_METADATA } from "./resource_metadata.ts";
import { SingleFlight } from "./single_flight.ts";
import { sparseCount } from "./sparse_count.ts";
import {
  BINDING_REFUSALS,
  bindingCheck,
  boundAdmission,
  challengesBy,
  checkDpop,
  DPOP,
  dpopMembers,
  proofHeaders,
} from "./token_binding.ts";
import { queryPlaces, TOKEN_PLACES, tokenReader } from "./token_place.ts";

const seconds = (max: number, describe: string) => integer({ min: 0, max, describe });

const schema = object(
  {
    url: httpUrl("The introspection endpoint of the authorization server."),
    ...CLIENT_FIELDS,
    token_from: TOKEN_PLACES,
    dpop: DPOP,
    scopes: SCOPES,
    ...CLAIM_FIELDS,
    leeway_s: withDefault(seconds(3600, "Allowed clock difference for exp and nbf, in seconds."), 0),
    cache_s: withDefault(
      seconds(86_400, "How long a token that was accepted is not asked about again, in seconds; never beyond its exp."),
      60,
    ),
    negative_cache_s: withDefault(
      seconds(86_400, "How long a token that was refused is not asked about again, in seconds."),
      10,
    ),
    timeout_ms: timeoutField("the whole answer", 1_000),
    tls: optional(CLIENT_TLS),
    resource_metadata: optional(RESOURCE_METADATA),
    on_error: withDefault(
      oneOf(["deny", "allow"], {
        describe: "What happens to a request if the server cannot be asked about its token.",
      }),
      "deny",
    ),
  },
  {
    describe: "Asks an authorization server whether the access token is active.",
    refine(value, complain) {
      checkClient(value, complain);
      checkTls(value.url, value.tls, complain);
      checkClaimHeaders(value, complain);
      checkDpop(value.dpop, value.tokenFrom, complain);
    },
  },
);

type Config = Infer<typeof schema>;

export const introspection: Plugin<typeof schema> = {
  name: "introspection",
  schema,
  guards: true,
  identifies: true,
  ownHeaders: ({ claimsToHeaders, dpop }) => [...Object.values(claimsToHeaders ?? {}), ...proofHeaders(dpop)],
  secretParameters: ({ tokenFrom, dpop }) => [...queryPlaces(tokenFrom), ...proofHeaders(dpop)],
  dials: { why: "introspection", urls: ({ url }) => [url] },
  resource: ({ resourceMetadata, scopes, dpop }) =>
    protectedResource(resourceMetadata, { scopes, members: dpopMembers(dpop) }),
  code: { HttpClient, memoryCounters, SharedMemory },
  create(config, tools) {
    const tls = clientTls(config.tls);
    const client = tools.keep("client", { tls }, () => tools.client({ tls }));
    const tokens = tools.keep("tokens", config, () => introspector(config, tools, client));
    const { dpop, scopes } = config;
    const readToken = tokenReader(config.tokenFrom, dpop);
    const admit = admission(config);
    const refuse = tokenRefusals("introspection", REFUSALS, {
      challenges: challengesBy(dpop, tools.gatewayName),
      scopes,
    });
    const logPassed = sparseCount(tools.clock, (requests, error: string) => {
      const fields = { plugin: tools.scope.path, host: new URL(config.url).host, requests, error };
      tools.log.warn("introspection admits requests because its server cannot be asked", fields);
    });
    const assumed = tools.verifiedClaims === null ? null : { active: true, ...tools.verifiedClaims };
    const admitting = boundAdmission({ check: bindingCheck(dpop, tools), admit, refuse });
    return (next) => {
      const admitBound = admitting(next);
      const settle = (exchange: Exchange, verdict: Verdict, token: string | null): Reply | Promise<Reply> => {
        if (typeof verdict === "string") return refuse(exchange, verdict);
        if (!("error" in verdict)) return admitBound(exchange, verdict, token);
        const { error, isOfServer } = verdict;
        // A request whose client disconnected is not forwarded.
        if (config.onError === "deny" || !isOfServer || exchange.call.aborted) {
          const detail = "The access token could not be checked. Try again shortly.";
          return problem(exchange.call, "auth_unavailable", {
            detail,
            why: `introspection: ${error}`,
            headers: ["Retry-After", "1"],
          });
        }
        logPassed(error);
        const { identity, claims, groups } = exchange;
        exchange.call.personal = true;
        return admit(next, exchange, { identity, claims, groups, headers: [] });
      };
      if (assumed !== null) return (exchange) => settle(exchange, tokens.examine(assumed), null);
      return (exchange) => {
        const token = readToken(exchange);
        if (token === undefined) return refuse(exchange, "missing");
        if (token === null) return refuse(exchange, "ambiguous");
        const verdict = tokens.verdict(token, exchange.call);
        return verdict instanceof Promise
          ? verdict.then((late) => settle(exchange, late, token))
          : settle(exchange, verdict, token);
      };
    };
  },
};

/** Error code and detail of each refusal. */
const REFUSALS = {
  ...TOKEN_REFUSALS,
  ...BINDING_REFUSALS,
  inactive: ["token_invalid", "The access token is not active."],
  expired: ["token_invalid", "The access token has expired."],
} as const;

/** What an answer says of a token. */
type Finding = Admitted | Exclude<keyof typeof REFUSALS, "claims"> | UnfitClaims;

/**
 * `error`: why nothing is known of the token; `isOfServer`: whether the server has failed, and not this side or the
 * question.
 */
type Verdict = Finding | { readonly error: string; readonly isOfServer: boolean };

interface Remembered {
  readonly finding: Finding;
  /** By `clock.now()`. */
  readonly until: number;
  /** In milliseconds since 1970; Infinity when the token never expires. */
  readonly expiresAt: number;
}

/** Asks about tokens, about each of them once at a time, and remembers the answers. */
function introspector(config: Config, { clock, verdicts }: Tools, client: Client) {
  const examine = examiner(config, clock);
  const ask = asker(config, clock, client);
  /** By the SHA-256 of the token. */
  const remembered = verdicts.part<Remembered>();
  const questions = new SingleFlight<Verdict>("abort");

  async function learn(token: string, key: string, signal: AbortSignal): Promise<Verdict> {
    const answer = await ask(token, signal);
    if ("error" in answer) return answer;
    const { claims, bytes } = answer;
    const finding = examine(claims);
    const isAdmitted = typeof finding !== "string";
    // A token that is not valid yet may be soon.
    const lifetimeS = isAdmitted ? config.cacheS : finding === "early" ? 0 : config.negativeCacheS;
    if (lifetimeS > 0) {
      const expiresAt = isAdmitted && isTime(claims.exp) ? claims.exp * 1000 : Infinity;
      remembered.set(key, { finding, until: clock.now() + lifetimeS * 1000, expiresAt }, isAdmitted ? bytes : 0);
    }
    return finding;
  }

  return {
    examine,
    /** A promise where the server has to be asked. Requests with one token share its answer. */
    verdict(token: string, call: Call): Finding | Promise<Verdict> {
      const key = hash("sha256", token, "base64url");
      const known = remembered.get(key);
      if (known !== undefined) {
        if (clock.now() < known.until && clock.wall() < known.expiresAt) return known.finding;
        remembered.delete(key);
      }
      if (token.length > MAX_TOKEN || !VISIBLE.test(token)) return "malformed";
      return questions.wait(key, call, DISCONNECTED, (signal) => learn(token, key, signal));
    },
    /** Waiting requests still get their answers. */
    close: () => remembered.close(),
  };
}

const DISCONNECTED = { error: "the client has disconnected", isOfServer: false };

/** Returns a function that asks the server: the claims of its answer, and an estimate of the bytes that they take. */
function asker(config: Config, clock: Tools["clock"], client: Client) {
  const credentials = clientCredentials(config, config.url, clock);
  return async (
    token: string,
    signal: AbortSignal,
  ): Promise<{ readonly claims: JwtClaims; readonly bytes: number } | Exclude<Verdict, Finding>> => {
    const { headers, fields } = credentials();
    const form = new URLSearchParams({ token, token_type_hint: "access_token", ...fields });
    const request = {
      url: new URL(config.url),
      method: "POST",
      headers: [...FORM_HEADERS, ...headers],
      body: Buffer.from(form.toString()),
    };
    let isOfServer = true;
    try {
      const answer = await client.ask({
        ...request,
        isRepeatable: true,
        timeoutMs: config.timeoutMs,
        maxBytes: MAX_BYTES,
        signal,
      });
      isOfServer = !OF_THE_QUESTION.has(answer.status);
      if (answer.status !== 200) throw new Error(`it answered with status ${answer.status}`);
      const text = answerText(answer, MAX_BYTES);
      const claims = claimsOf(text);
      return { claims, bytes: freezeClaims(claims) + text.length * BYTES_PER_CHARACTER };
    } catch (error) {
      return { error: messageOf(error), isOfServer: (error as Partial<ClientFailure>).isOfServer ?? isOfServer };
    }
  };
}

/** RFC 6749 §A.12. */
const VISIBLE = /^[\x20-\x7e]+$/;
const FORM_HEADERS = ["Content-Type", "application/x-www-form-urlencoded", "Accept", "application/json"];
const MAX_BYTES = 64 * 1024;
/**
 * Statuses by which a server refuses the question for what is in it, since it came late (408) or after too many others
 * (429): a client must not be able to bring about that its token is not judged.
 */
const OF_THE_QUESTION = new Set([400, 408, 413, 414, 422, 429, 431]);

/** Throws for anything else than an answer of RFC 7662 §2.2. A member that is null counts as missing. */
function claimsOf(text: string): JwtClaims {
  let claims: JwtClaims | null;
  try {
    claims = JSON.parse(text) as JwtClaims | null;
  } catch {
    throw new Error("its answer is not JSON");
  }
  if (typeof claims?.active !== "boolean") throw new Error('its answer has no "active" that is true or false');
  const odd = ["exp", "nbf"].find((name) => !isTime(claims[name] ?? 0));
  if (odd !== undefined) throw new Error(`"${odd}" of its answer is not a number of seconds`);
  return claims;
}

/** The server has checked the times by its own clock; they are checked again, since answers are remembered. */
function examiner(config: Config, clock: Tools["clock"]): (claims: JwtClaims) => Finding {
  const { scopes, leewayS } = config;
  const audiences = audiencesOf(config.resourceMetadata, null, config.claims);
  const judge = claimsCheck(config, ["sub", "username", "client_id"]);
  return (claims) => {
    const { active, exp, nbf } = claims;
    const now = clock.wall();
    if (active !== true) return "inactive";
    if (isTime(exp) && now >= (exp + leewayS) * 1000) return "expired";
    if (isTime(nbf) && now < (nbf - leewayS) * 1000) return "early";
    if (audiences !== null && !holdsOne(claims.aud, audiences)) return "audience";
    if (!holdsAll(claims.scope, scopes, "scope")) return "scope";
    return judge(claims);
  };
}
