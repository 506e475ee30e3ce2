/**
 * Checks what an access token is bound to (`cnf`, RFC 7800): the key of the client, which it proves with DPoP (RFC
 * 9449), or its certificate (RFC 8705). A token that somebody has stolen is of no use then.
 */
import type { KeyObject } from "node:crypto";
import type { JwtClaims } from "../base/jwt.ts";
import { oneOf, optional } from "../config/schema.ts";
import type { Call, Exchange } from "../http/exchange.ts";
import { quotedString, type HeaderList } from "../http/headers.ts";
import type { Handler } from "../http/handler.ts";
import type { Reply } from "../http/reply.ts";
import type { Decision, LimiterOptions, Undecided } from "../store/counters.ts";
import type { Admitted } from "./access_token.ts";
import { costedLimiter } from "../store/costs.ts";
import { PROOF_AGE_MS, PROOF_ALGORITHMS, PROOF_REFUSALS, verifyProof } from "./dpop.ts";
import type { Tools } from "./plugin.ts";
import { isDpopRequest } from "./token_place.ts";

export const DPOP = optional(
  oneOf(["accept", "require"], {
    describe:
      "Whether tokens may, or must, be sent with the scheme DPoP and a proof of the client's key. " +
      "Default: with Bearer alone.",
  }),
);

export type Dpop = "accept" | "require" | undefined;

/** Error code, and what the client is told. */
export const BINDING_REFUSALS = {
  ...PROOF_REFUSALS,
  "proof replay": ["token_invalid", "The DPoP proof has been used before. Make a new one for each request."],
  "proof flood": ["rate_limited", "Too many DPoP proofs by one key. Try again shortly."],
  "proof store": ["auth_unavailable", "The DPoP proof could not be checked. Try again shortly."],
  bearer: ["token_invalid", "Send the access token with the scheme DPoP, and a proof of the key that it is bound to."],
  binding: ["token_invalid", "The access token is bound to another key than that of the DPoP proof."],
  unbound: ["token_invalid", "The access token is not bound to a key: the scheme DPoP is for tokens with cnf.jkt."],
  certificate: ["token_invalid", "The access token is bound to a client certificate, which was not shown here."],
  confirmation: ["token_invalid", "The access token has a cnf that cannot be read."],
} as const;

export type BindingRefusal = keyof typeof BINDING_REFUSALS;

/**
 * Returns the challenges of a refusal, one for each scheme that is accepted (RFC 6750 §3, RFC 9449 §7.1). The one for
 * the scheme of the request has the parameters `error`: `, error="invalid_token"`, or none.
 */
export function challengesBy(dpop: Dpop, realm: string): (exchange: Exchange, error: string) => HeaderList {
  const bearer = `Bearer realm=${quotedString(realm)}`;
  const proven = `DPoP realm=${quotedString(realm)}`;
  const algorithms = `, algs="${PROOF_ALGORITHMS.join(" ")}"`;
  return (exchange, error) => {
    if (dpop === undefined) return ["WWW-Authenticate", bearer + error];
    if (dpop === "require") return ["WWW-Authenticate", proven + error + algorithms];
    const [ofBearer, ofProven] = isDpopRequest(exchange) ? ["", error] : [error, ""];
    return ["WWW-Authenticate", bearer + ofBearer, "WWW-Authenticate", proven + ofProven + algorithms];
  };
}

/** The headers that have proofs. */
export function proofHeaders(dpop: Dpop): readonly string[] {
  return dpop === undefined ? [] : ["DPoP"];
}

/** What the metadata of a protected resource says of DPoP (RFC 9728 §2). */
export function dpopMembers(dpop: Dpop): object {
  if (dpop === undefined) return {};
  const algorithms = { dpop_signing_alg_values_supported: PROOF_ALGORITHMS };
  return dpop === "require" ? { ...algorithms, dpop_bound_access_tokens_required: true } : algorithms;
}

/** Reports `dpop` beside places of the token in which no request with a proof has it. */
export function checkDpop(
  dpop: Dpop,
  places: string | readonly string[],
  complain: (message: string, field: string) => void,
): void {
  if (dpop !== undefined && ![places].flat().includes("header"))
    complain('needs "header" among the places of the token: proofs come with Authorization: DPoP', "dpop");
}

/** Null: the request may use its token, which is valid and has these claims. The promise never rejects. */
type CheckBinding = (
  exchange: Exchange,
  token: string,
  claims: JwtClaims,
) => BindingRefusal | null | Promise<BindingRefusal | null>;

/** To be called in `create`: workers share what has been seen. */
export function bindingCheck(dpop: Dpop, tools: Tools): CheckBinding {
  const proving = dpop === undefined ? null : proofCheck(tools);
  return (exchange, token, { cnf }) => {
    const hasProof = proving !== null && isDpopRequest(exchange);
    if (dpop === "require" && !hasProof) return "bearer";
    if (cnf === undefined || cnf === null) return hasProof ? "unbound" : null;
    if (typeof cnf !== "object" || Array.isArray(cnf)) return "confirmation";
    const { jkt, "x5t#S256": thumbprint } = cnf as Readonly<Record<string, unknown>>;
    if (![jkt, thumbprint].every((each) => each === undefined || typeof each === "string")) return "confirmation";
    if (thumbprint !== undefined && thumbprint !== certificateOf(exchange)) return "certificate";
    if (jkt === undefined) return hasProof ? "unbound" : null;
    return hasProof ? proving(exchange, token, jkt as string) : "bearer";
  };
}

interface BoundAdmission {
  readonly check: CheckBinding;
  readonly admit: (next: Handler, exchange: Exchange, admitted: Admitted) => Reply | Promise<Reply>;
  readonly refuse: (exchange: Exchange, why: BindingRefusal) => Reply;
}

/** Admits a request whose token is valid if it may use it. `token` null: as one whose token is not bound. */
export function boundAdmission({ check, admit, refuse }: BoundAdmission) {
  return (next: Handler) =>
    (exchange: Exchange, admitted: Admitted, token: string | null): Reply | Promise<Reply> => {
      const found = token === null ? null : check(exchange, token, admitted.claims ?? {});
      if (found === null) return admit(next, exchange, admitted);
      if (typeof found === "string") return refuse(exchange, found);
      return found.then((late) => (late === null ? admit(next, exchange, admitted) : refuse(exchange, late)));
    };
}

/** RFC 8705 §3.1: SHA-256 of the certificate, as the plugin kind `mtls` accepts it; null without one. */
function certificateOf({ call }: Exchange): string | null {
  const certificate = call.certificate();
  return certificate?.verified === true ? Buffer.from(certificate.fingerprint, "hex").toString("base64url") : null;
}

/** Accepts each proof once, in all workers, and with `global.counters` in all gateways. */
function proofCheck(tools: Tools) {
  const { clock } = tools;
  const keys = tools.keep("proof keys", null, () => tools.verdicts.part<KeyObject>());
  const { limiter } = tools.counters;
  const seen = limiter(SEEN, SEEN_PROOFS);
  const seenHere = limiter(SEEN, { ...SEEN_PROOFS, counters: "memory" });
  const ofKey = tools.limiterBy((limiterTools, key) => costedLimiter(limiterTools, key, PROOFS_BY_KEY), BY_KEY);
  const settled = ({ admitted }: Decision, name: string, jkt: string, call: Call): BindingRefusal | null => {
    if (!admitted) return "proof replay";
    call.proof = name;
    // Here, and not for each request: whoever repeats a proof of somebody else must not use up what that one may send.
    ofKey.book(jkt, 1);
    return null;
  };
  const settledLate = (
    decision: Decision | Undecided,
    name: string,
    jkt: string,
    call: Call,
  ): BindingRefusal | null => {
    if (decision === "deny") return "proof store";
    // While the server does not answer, this gateway remembers by itself.
    return settled(decision === "allow" ? (seenHere.decide(name) as Decision) : decision, name, jkt, call);
  };
  return (exchange: Exchange, token: string, jkt: string): ReturnType<CheckBinding> => {
    const proof = verifyProof(exchange, token, jkt, { now: clock.wall(), keys });
    if (typeof proof === "string") return proof;
    // As JSON: what two of these texts are made of cannot be mistaken.
    const name = JSON.stringify([jkt, proof.jti]);
    // An instance before this one has accepted it. Another route of the same URL must not accept it once more.
    if (exchange.call.proof === name) return null;
    if (!(ofKey.decide(jkt) as Decision).admitted) return "proof flood";
    const decision = seen.decide(name);
    if (!(decision instanceof Promise)) return settled(decision, name, jkt, exchange.call);
    return decision.then((late) => settledLate(late, name, jkt, exchange.call));
  };
}

/** What has been seen is common to all instances: one bound for a gateway. */
const SEEN = "DPoP proofs";
const BY_KEY = "DPoP keys";

/** A proof is accepted for two minutes from the first moment on; the third is for clocks of gateways that differ. */
const WINDOW_MS = 3 * PROOF_AGE_MS;

/**
 * At most 120 MB, in a gateway that gets 5,500 proofs a second. Further proofs are refused as if they had been seen: to
 * forget one too early would let it pass twice.
 */
const MAX_PROOFS = 1_000_000;
const SEEN_PROOFS: LimiterOptions = { windows: [{ name: "proof", limit: 1, ms: WINDOW_MS }], maxCallers: MAX_PROOFS };

/** One client cannot take the places of all others: 1,300 proofs a second by one key. */
const PROOFS_BY_KEY: LimiterOptions = {
  windows: [{ name: "key", limit: MAX_PROOFS / 4, ms: WINDOW_MS }],
  maxCallers: 10_000,
  counters: "memory",
};
