/**
 * Shared by plugins that admit requests by an access token: the claims it must have, the headers made of them, and
 * refusals (RFC 6750 §3).
 */
import type { ErrorCode } from "../base/errors.ts";
import type { JwtClaims } from "../base/jwt.ts";
import {
  anyOf,
  array,
  boolean,
  number,
  optional,
  record,
  string,
  withDefault,
  type ObjectOut,
} from "../config/whole_schema.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { quotedString, type HeaderList } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { claimReader, claimText, claimValues, groupsIn, utf8 } from "./claims.ts";
import { headerName, headerReplacer } from "./endpoint.ts";
import { SCOPE } from "./resource_metadata.ts";

const scalar = anyOf([string(), number(), boolean()]);

export const CLAIM_FIELDS = {
  claims: optional(
    record(anyOf([scalar, array(scalar, { min: 1 })]), {
      describe:
        "Values that claims must equal, or contain if they are lists; " +
        "a configured list requires all its members. scope is read as a space-separated list.",
    }),
  ),
  claims_to_headers: optional(
    record(headerName("The header for the claim."), {
      describe: "Claims that are sent to the upstream, each with its header.",
    }),
  ),
  groups_claim: optional(
    string({
      min: 1,
      max: 200,
      references: "none",
      describe: "The claim that names the caller's groups: a list of texts, or one text.",
    }),
  ),
};

export const SCOPES = withDefault(array(SCOPE, { describe: "Scopes that a token must have, all of them." }), []);

type ClaimSettings = ObjectOut<typeof CLAIM_FIELDS>;

/** Reports two claims with one header. */
export function checkClaimHeaders(
  { claimsToHeaders }: ClaimSettings,
  complain: (message: string, ...under: string[]) => void,
): void {
  const claimOf = new Map<string, string>();
  for (const [claim, header] of Object.entries(claimsToHeaders ?? {})) {
    const other = claimOf.get(header.toLowerCase());
    if (other !== undefined)
      complain(
        `is the header of ${other} already: the upstream could not distinguish them`,
        "claims_to_headers",
        claim,
      );
    claimOf.set(header.toLowerCase(), claim);
  }
}

/** The claim that has not the required value, as the configuration names it, or one that no header can carry. */
export type UnfitClaims = `claims.${string}` | "unfit";

/**
 * Returns a function that says what a valid token admits to, or why its claims are refused. `named`: the claims that
 * name the caller, of which the first that is there counts.
 */
export function claimsCheck(
  { claims: required, claimsToHeaders, groupsClaim }: ClaimSettings,
  named: readonly string[] = ["sub"],
): (claims: JwtClaims) => Admitted | UnfitClaims {
  const demands = Object.entries(required ?? {}).map(([name, wanted]) => ({
    name,
    read: claimReader(name),
    wanted: listOf(wanted)!,
  }));
  const forwarded = Object.entries(claimsToHeaders ?? {}).map(([name, header]) => ({
    read: claimReader(name),
    header,
  }));
  const readGroups = groupsClaim === undefined ? null : claimReader(groupsClaim);
  return (claims) => {
    for (const { name, read, wanted } of demands) if (!holdsAll(read(claims), wanted, name)) return `claims.${name}`;
    const headers: string[] = [];
    for (const { read, header } of forwarded) {
      const value = headerText(read(claims));
      if (value === null) return "unfit";
      if (value !== undefined) headers.push(header, value);
    }
    const identity = named.map((name) => claims[name]).find((name) => typeof name === "string" && name !== "");
    const groups = readGroups === null ? NO_GROUPS : groupsIn(readGroups(claims));
    return { claims, identity: (identity as string | undefined) ?? null, groups, headers };
  };
}

const NO_GROUPS: readonly string[] = Object.freeze([]);

export function listOf<T>(value: T | readonly T[] | undefined): readonly T[] | null {
  return value === undefined ? null : Array.isArray(value) ? (value as readonly T[]) : [value as T];
}

export function holdsAll(claim: unknown, wanted: readonly unknown[], name: string): boolean {
  const held = claimValues(claim, name);
  return wanted.every((each) => held.includes(each));
}

export function holdsOne(claim: unknown, wanted: readonly string[]): boolean {
  return wanted.some((each) => (Array.isArray(claim) ? claim.includes(each) : claim === each));
}

/** A claim as the value of a header, in UTF-8; undefined without the claim, null for objects and control characters. */
function headerText(claim: unknown): string | null | undefined {
  if (claim === undefined) return undefined;
  if (![claim].flat().every((item) => ["string", "number", "boolean"].includes(typeof item))) return null;
  const written = claimText(claim);
  return CONTROL.test(written) ? null : utf8(written);
}

const CONTROL = /[\x00-\x1f\x7f]/;

/** The result for a token that is accepted. */
export interface Admitted {
  readonly claims: JwtClaims | null;
  readonly identity: string | null;
  readonly groups: readonly string[];
  /** For the upstream. */
  readonly headers: HeaderList;
}

/**
 * Returns a function that passes a request on as one of the caller whose token it has, and of nobody whom an earlier
 * plugin has identified: identity, claims and groups are those of one credential.
 */
export function admission({
  claimsToHeaders,
}: ClaimSettings): (next: Handler, exchange: Exchange, admitted: Admitted) => Reply | Promise<Reply> {
  const withClaims = headerReplacer(Object.values(claimsToHeaders ?? {}));
  return (next, exchange, { identity, claims, groups, headers }) => {
    if (identity === null) exchange.call.personal = true;
    return next(exchange.with({ identity, claims, groups, ...withClaims(exchange, headers) }));
  };
}

/**
 * Freezes claims deeply, since all requests with one token share them; returns an estimate of the bytes that they take
 * beside their texts.
 */
export function freezeClaims(claims: JwtClaims): number {
  const found: unknown[] = [claims];
  for (const value of found)
    if (typeof value === "object" && value !== null)
      for (const each of Object.values(Object.freeze(value))) found.push(each);
  return found.length * BYTES_PER_VALUE;
}

const BYTES_PER_VALUE = 48;
/** An estimate of the memory that texts of claims and headers take, by the length of the JSON that has them. */
export const BYTES_PER_CHARACTER = 4;

/** In characters. */
export const MAX_TOKEN = 16 * 1024;

/** Error code, detail, and the member of the `config` that decides. */
type Refusal = readonly [ErrorCode, string, string?];

/** Refusals that do not depend on the kind of token. */
export const TOKEN_REFUSALS = {
  missing: ["token_missing", "Send an access token."],
  ambiguous: ["token_invalid", "There is more than one access token.", "from"],
  malformed: ["token_invalid", "The access token is malformed."],
  early: ["token_invalid", "The access token is not valid yet."],
  claims: ["token_invalid", "The access token has a claim with a value that is not accepted here."],
  unfit: ["token_invalid", "The access token has a claim that cannot be passed on.", "claims_to_headers"],
  audience: ["token_invalid", "The access token is not for here.", "resource_metadata"],
  scope: ["forbidden", "The access token lacks a scope that is required here.", "scopes"],
} as const;

/** A refusal without the name of its claim. */
export function withoutName<Why extends string>(why: Why): Exclude<Why, UnfitClaims> | "claims" | "unfit" {
  return why.startsWith("claims.") ? "claims" : (why as Exclude<Why, UnfitClaims>);
}

interface ChallengeOptions {
  /** The challenges of a refusal, of which one has the parameters `error`: see `challengesBy`. */
  readonly challenges: (exchange: Exchange, error: string) => HeaderList;
  /** For `forbidden`. */
  readonly scopes: readonly string[];
}

/** Returns a function that refuses with challenges (RFC 6750 §3), without `error` if there was no token. */
export function tokenRefusals<Why extends "claims" | "unfit" | (string & {})>(
  plugin: string,
  refusals: Readonly<Record<Why, Refusal>>,
  { challenges, scopes }: ChallengeOptions,
): (exchange: Exchange, why: Exclude<Why, "claims"> | UnfitClaims) => Reply {
  return (exchange, verdict) => {
    const { call } = exchange;
    const why = withoutName(verdict) as Why;
    const [code, detail, rule = why === "claims" ? verdict : undefined] = refusals[why];
    if (code === "token_missing") return problem(call, code, { detail, headers: challenges(exchange, "") });
    if (code === "auth_unavailable" || code === "rate_limited")
      return problem(call, code, { detail, headers: ["Retry-After", "5"], why: `${plugin}: ${why}` });
    const kind = why.startsWith("proof ") ? "invalid_dpop_proof" : "invalid_token";
    const error =
      code === "forbidden" ? `error="insufficient_scope", scope=${quotedString(scopes.join(" "))}` : `error="${kind}"`;
    const headers = challenges(exchange, `, ${error}, error_description=${quotedString(detail)}`);
    return problem(call, code, { detail, headers, why: `${plugin}: ${why}`, rule });
  };
}
