/**
 * The plugin kind `jwt`: admits requests with a valid signed token (RFC 7519, RFC 7515) of the required issuer and
 * audience.
 *
 * Only the configuration decides about algorithms and keys, and `crit` is refused (RFC 8725): the token does not
 * influence how it is verified. A refusal is a 401 with WWW-Authenticate: Bearer (RFC 6750 §3), without `error` when
 * there was no token.
 */
import type { Clock } from "../base/clock.ts";
import { isTime, type JwtClaims } from "../base/jwt.ts";
import { SharedMemory } from "../base/shared_memory.ts";
import { isLoopback } from "../base/url_destination.ts";
import { HttpClient } from "../client/client.ts";
import { anyOf, array, file, integer, object, oneOf, optional, string, withDefault } from "../config/whole_schema.ts";
import { INVALID, report, type Infer, type Schema } from "../config/schema.ts";
import { CLIENT_TLS } from "../config/tls_fields.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
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
  listOf,
  SCOPES,
  TOKEN_REFUSALS,
  tokenRefusals,
} from "./access_token.ts";
import type { Admitted, UnfitClaims } from "./access_token.ts";
import { claimReader } from "./claims.ts";
import { JwksSource } from "./jwks_source.ts";
import { ALGORITHM_NAMES, isHmac, keysOf, publicKey, secretKey, unfitness } from "./jwt_keys.ts";
import type { Algorithm, KeySet } from "./jwt_keys.ts";
import { checkTls, clientTls, httpUrl } from "./endpoint.ts";
import type { Plugin, Tools } from "./plugin.ts";
import { audiencesOf, protectedResource, RESOURCE_METADATA } from "./resource_metadata.ts";
import { NO_KEYS, signedClaims, typeCheck } from "./signed_token.ts";
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

const algorithm = oneOf(ALGORITHM_NAMES, { describe: "The algorithm tokens must be signed with." });
const text = string({ min: 1 });
const texts = [text, array(text, { min: 1 })] as const;
const type = string({
  pattern: /^[!#$&^_.+0-9A-Za-z-]+(\/[!#$&^_.+0-9A-Za-z-]+)?$/,
  hint: 'a media type such as "at+jwt", or "absent"',
});
const pem = string({
  min: 1,
  references: "value",
  describe: "The public key or certificate of the issuer, in PEM form.",
});

const fields = object(
  {
    alg: optional(algorithm),
    algs: optional(array(algorithm, { min: 1, describe: "Algorithms tokens may be signed with." })),
    secret: optional(
      string({ min: 1, secret: true, describe: "The secret that the issuer signs with, for HS256, HS384 and HS512." }),
    ),
    public_key: optional(pem),
    publicKey: optional(pem),
    jwks_file: optional(
      file({ describe: "The issuer's keys, read with the configuration and again when the file changes." }),
    ),
    jwks_uri: optional(
      httpUrl("Where the issuer's keys are fetched, and fetched again when they are old or a token names another."),
    ),
    tls: optional(CLIENT_TLS),
    iss: optional(anyOf(texts, { describe: "The required iss, or a list of accepted ones." })),
    aud: optional(anyOf(texts, { describe: "The required aud, or a list of which aud must contain one." })),
    leeway_s: withDefault(integer({ min: 0, max: 3600, describe: "Allowed clock difference, in seconds." }), 60),
    scopes: SCOPES,
    resource_metadata: optional(RESOURCE_METADATA),
    exp: withDefault(
      oneOf(["required", "optional"], {
        describe: "Whether tokens must have exp. An exp that is present is always checked.",
      }),
      "required",
    ),
    require: withDefault(array(text, { describe: "Claims that are required besides exp." }), []),
    typ: withDefault(
      anyOf([type, array(type, { min: 1 })], {
        describe: 'Accepted values of typ in the token header; "absent" accepts tokens without typ.',
      }),
      ["at+jwt", "JWT", "absent"],
    ),
    from: TOKEN_PLACES,
    dpop: DPOP,
    ...CLAIM_FIELDS,
  },
  {
    describe: "Requires a signed JSON Web Token.",
    refine(value, complain) {
      if ((value.alg === undefined) === (value.algs === undefined)) return complain('needs either "alg" or "algs"');
      const given = [value.secret, value.publicKey, value.jwksFile, value.jwksUri].filter((each) => each !== undefined);
      if (given.length !== 1)
        return complain('needs exactly one of "secret", "public_key", "jwks_file" and "jwks_uri"');
      const algorithms = algorithmsOf(value);
      const odd = algorithms.find((name) => isHmac(name) !== (value.secret !== undefined));
      if (odd !== undefined) {
        const needs = isHmac(odd)
          ? 'needs "secret": public keys are no secrets'
          : 'needs "public_key", "jwks_file" or "jwks_uri"';
        return complain(`${odd} ${needs}`, value.alg === undefined ? "algs" : "alg");
      }
      if (value.jwksUri !== undefined) checkTls(value.jwksUri, value.tls, complain);
      else if (value.tls !== undefined) complain('is for "jwks_uri"', "tls");
      const keys = value.jwksUri === undefined ? keysIn(value, algorithms) : [];
      if ("wrong" in keys) complain(keys.wrong, keys.field);
      if (value.exp === "optional" && value.require.includes("exp"))
        complain('is in "require": leave it out of one of them', "exp");
      checkClaimHeaders(value, complain);
      checkDpop(value.dpop, value.from, complain);
    },
  },
);

/** `publicKey` is an alias of `public_key`; both at once are an error. */
const schema: typeof fields = {
  ...fields,
  check(node, at, context) {
    const both = node.kind === "object" && node.members.has("public_key") && node.members.has("publicKey");
    if (both) report(context, [...at, "publicKey"], node, 'is another name of "public_key": give one of them');
    return both ? INVALID : fields.check(node, at, context);
  },
};

type Config = Infer<typeof fields>;

function algorithmsOf({ alg, algs }: Pick<Config, "alg" | "algs">): readonly Algorithm[] {
  return algs ?? [alg!];
}

type Wrong = { readonly field: string; readonly wrong: string };

/** The keys of a configuration that has no `jwks_uri`, or what is wrong with them. */
function keysIn({ secret, publicKey: pem, jwksFile }: Config, algorithms: readonly Algorithm[]): KeySet | Wrong {
  if (jwksFile !== undefined) {
    const keys = keysOf(jwksFile.content.toString(), algorithms);
    return typeof keys === "string" ? { field: "jwks_file", wrong: `${jwksFile.path} ${keys}` } : keys;
  }
  const key = secret === undefined ? publicKey(pem!) : secretKey(secret);
  const wrong =
    typeof key === "string" ? key : algorithms.map((name) => unfitness(key, name)).find((why) => why !== undefined);
  if (typeof key !== "string" && wrong === undefined) return [{ id: null, algorithms, key }];
  return { field: secret === undefined ? "public_key" : "secret", wrong: wrong! };
}

export const jwt: Plugin<Schema<Config>> = {
  name: "jwt",
  schema: schema as Schema<Config>,
  guards: true,
  identifies: true,
  ownHeaders: ({ claimsToHeaders, dpop }) => [...Object.values(claimsToHeaders ?? {}), ...proofHeaders(dpop)],
  secretParameters: ({ from, dpop }) => [...queryPlaces(from), ...proofHeaders(dpop)],
  dials: { why: "jwks", urls: ({ jwksUri }) => (jwksUri === undefined ? [] : [jwksUri]) },
  resource: ({ resourceMetadata, scopes, dpop }) =>
    protectedResource(resourceMetadata, { scopes, members: dpopMembers(dpop) }),
  code: { HttpClient, memoryCounters, SharedMemory },
  create(config, tools) {
    const algorithms = algorithmsOf(config);
    const source = keySource(config, algorithms, tools);
    const check = verifier(config, algorithms, tools);
    const { dpop, scopes } = config;
    const readToken = tokenReader(config.from, dpop);
    const algorithm = [...REFUSALS.algorithm, config.alg === undefined ? "algs" : "alg"] as const;
    const [code, detail] = REFUSALS.audience;
    const audience = [code, detail, config.aud === undefined ? "resource_metadata" : "aud"] as const;
    const refusals = { ...REFUSALS, algorithm, audience };
    const refuse = tokenRefusals("jwt", refusals, { challenges: challengesBy(dpop, tools.gatewayName), scopes });
    const admitting = boundAdmission({ check: bindingCheck(dpop, tools), admit: admission(config), refuse });
    const assumed = tools.verifiedClaims === null ? null : assumedVerdict(config, tools.verifiedClaims, tools.clock);
    return (next) => {
      const admit = admitting(next);
      const settle = (exchange: Exchange, verdict: Verdict, token: string | null): Reply | Promise<Reply> => {
        return typeof verdict === "string" ? refuse(exchange, verdict) : admit(exchange, verdict, token);
      };
      if (assumed !== null) return (exchange) => settle(exchange, assumed(), null);
      return (exchange) => {
        const token = readToken(exchange);
        if (token === undefined) return refuse(exchange, "missing");
        if (token === null) return refuse(exchange, "ambiguous");
        const keys = source.current();
        const verdict = check(token, keys);
        if (verdict !== NO_KEYS && verdict !== "unknown key") return settle(exchange, verdict, token);
        const more = source.more(exchange.call);
        if (more === null) return settle(exchange, verdict, token);
        return more.then((later) => settle(exchange, later === keys ? verdict : check(token, later), token));
      };
    };
  },
};

function keySource(
  config: Config,
  algorithms: readonly Algorithm[],
  tools: Tools,
): Pick<JwksSource, "current" | "more"> {
  const { jwksUri } = config;
  if (jwksUri !== undefined) {
    const { clock, log, scope } = tools;
    const { protocol, hostname, host } = new URL(jwksUri);
    if (protocol === "http:" && !isLoopback(hostname)) {
      log.warn("jwt fetches keys over plain HTTP: an attacker on the network can replace them", {
        plugin: scope.path,
        host,
      });
    }
    const tls = clientTls(config.tls);
    const made = () =>
      new JwksSource({
        kind: "jwt",
        url: jwksUri,
        algorithms,
        clock,
        log,
        scope,
        client: tools.client({ maxConnections: 1, tls }),
      });
    return tools.keep("keys", { jwksUri, algorithms, tls }, made);
  }
  // The schema has found nothing wrong with them.
  const keys = keysIn(config, algorithms) as KeySet;
  return { current: () => keys, more: (_call: Call) => null };
}

/** The result for a valid token. */
interface Verified extends Admitted {
  /** Milliseconds since 1970; Infinity when it never ends. */
  readonly expiresAt: number;
  /** The key set that verified it. */
  readonly keys: KeySet;
}

type Verdict = Verified | Exclude<keyof typeof REFUSALS, "claims"> | UnfitClaims;

/**
 * Verifying a signature is expensive, and clients send one token many times: valid tokens are cached while the keys
 * stay the same.
 * The token's header is checked before keys are fetched: a token that is refused in any case causes no fetch.
 */
function verifier(
  config: Config,
  algorithms: readonly Algorithm[],
  { clock, keep, verdicts }: Tools,
): (token: string, keys: KeySet | null) => Verdict {
  const remembered = keep("verdicts", config, () => verdicts.part<Verified>());
  const examine = examiner(config);
  const isAcceptedType = typeCheck(typeof config.typ === "string" ? [config.typ] : config.typ);
  return (token, keys) => {
    const now = clock.wall();
    const known = remembered.get(token);
    if (known !== undefined) {
      if (known.keys === keys && now < known.expiresAt) return known;
      remembered.delete(token);
    }
    const claims = signedClaims(token, algorithms, isAcceptedType, keys);
    if (typeof claims === "string") return claims;
    const bytes = freezeClaims(claims) + token.length * BYTES_PER_CHARACTER;
    const verdict = examine(claims, now, keys!);
    if (typeof verdict !== "string" && token.length <= MAX_REMEMBERED_TOKEN) remembered.set(token, verdict, bytes);
    return verdict;
  };
}

/** For tests of a configuration: checks these claims instead of a token, with an `exp` where they have none. */
function assumedVerdict(config: Config, given: JwtClaims, clock: Clock): () => Verdict {
  const examine = examiner(config);
  return () => {
    const now = clock.wall();
    return examine({ exp: Math.floor(now / 1000) + ASSUMED_LIFETIME_S, ...given }, now, []);
  };
}

const ASSUMED_LIFETIME_S = 3600;

/** In characters. */
const MAX_REMEMBERED_TOKEN = 4 * 1024;

/** Checks the claims of a token whose signature is valid. */
function examiner(config: Config): (claims: JwtClaims, now: number, keys: KeySet) => Verdict {
  const leewayMs = config.leewayS * 1000;
  const issuers = listOf(config.iss);
  const audiences = audiencesOf(config.resourceMetadata, listOf(config.aud), config.claims);
  const judge = claimsCheck(config);
  const required = config.require.map(claimReader);
  return (claims, now, keys) => {
    const { exp, nbf, iat } = claims;
    if (![exp, nbf, iat].every((time) => time === undefined || isTime(time))) return "malformed";
    const expiresAt = isTime(exp) ? exp * 1000 + leewayMs : Infinity;
    if (now >= expiresAt) return "expired";
    if ((isTime(nbf) && now < nbf * 1000 - leewayMs) || (isTime(iat) && now < iat * 1000 - leewayMs)) return "early";
    if (exp === undefined && config.exp === "required") return "no exp";
    if (required.some((read) => read(claims) === undefined)) return "incomplete";
    if (issuers !== null && !issuers.includes(claims.iss as string)) return "issuer";
    if (audiences !== null && !holdsOne(claims.aud, audiences)) return "audience";
    if (!holdsAll(claims.scope, config.scopes, "scope")) return "scope";
    const admitted = judge(claims);
    return typeof admitted === "string" ? admitted : { ...admitted, expiresAt, keys };
  };
}

/** Error code and detail of each refusal. */
const REFUSALS = {
  ...TOKEN_REFUSALS,
  ...BINDING_REFUSALS,
  critical: ["token_invalid", "The access token asks for extensions that are not known here."],
  algorithm: ["token_invalid", "The access token is signed with an algorithm that is not accepted here."],
  type: ["token_invalid", "The access token is of a type that is not accepted here.", "typ"],
  "unknown key": ["token_invalid", "The access token is not signed with a key that is known here."],
  signature: ["token_invalid", "The signature of the access token is not right."],
  expired: ["token_expired", "The access token has expired."],
  "no exp": ["token_invalid", "The access token lacks a claim that is required here.", "exp"],
  incomplete: ["token_invalid", "The access token lacks a claim that is required here.", "require"],
  issuer: ["token_invalid", "The access token is not from the issuer that is trusted here.", "iss"],
  [NO_KEYS]: ["auth_unavailable", "The access token cannot be verified at the moment."],
} as const;
