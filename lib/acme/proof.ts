/**
 * Proves to a directory that the gateway serves the hosts of an order (RFC 8555 §7.5): challenges are answered before
 * the directory looks, and no longer afterwards.
 */
import { isIP } from "node:net";
import type { Clock } from "../base/clock.ts";
import { ignore } from "../base/errors.ts";
import { addressBytes } from "./asn1.ts";
import { alpnCertificate, servernameOf } from "./alpn_certificate.ts";
import type { AcmeSettings, Challenge, ChallengeAnswers } from "./contracts.ts";
import { jsonObject, problemFailure, type Directory, type Signer } from "./directory.ts";
import { AcmeFailure, hostsFailure, shownText } from "./failure.ts";
import { isJsonObject, objectsIn, textIn, textsIn, type JsonObject } from "./json_members.ts";
import { pause, unlessAborted } from "./waits.ts";

export interface ProofContext {
  readonly settings: AcmeSettings;
  readonly directory: Directory;
  readonly signer: Signer;
  readonly answers: ChallengeAnswers;
  readonly clock: Clock;
  /** Gives up what is asked and waited for. */
  readonly signal: AbortSignal;
}

interface Authorization {
  readonly url: string;
  readonly host: string;
  readonly state: JsonObject;
}

interface Asked {
  readonly authorization: Authorization;
  readonly challenge: Challenge;
  /** Of the challenge. */
  readonly url: string;
  /** Whether the directory waits to be told that it is answered. */
  readonly isPending: boolean;
}

/**
 * Resolves once the directory has validated every host. Rejects with an `AcmeFailure` that has all hosts that it could
 * not validate, or with the signal's reason.
 */
export async function prove(order: JsonObject, hosts: readonly string[], context: ProofContext): Promise<void> {
  const failed = new Map<string, string>();
  const asked: Asked[] = [];
  try {
    for (const each of await authorizations(order, hosts, context)) {
      const status = textIn(each.state, "status");
      if (status === "valid") continue;
      const found = status === "pending" ? challengeIn(each, context) : failureIn(each.state);
      if (typeof found === "string") failed.set(each.host, found);
      else asked.push(found);
    }
    if (asked.length > 0) await unlessAborted(context.answers.present(challengesOf(asked)), context.signal);
    const pending: Authorization[] = [];
    for (const each of asked) {
      const problem = await haveItLookedAt(each, context);
      if (problem === null) pending.push(each.authorization);
      else failed.set(each.authorization.host, problem);
    }
    await validated(pending, failed, context);
  } finally {
    if (asked.length > 0)
      await unlessAborted(context.answers.remove(challengesOf(asked)), context.signal).catch(ignore);
  }
  if (failed.size > 0) throw hostsFailure(failed);
}

const challengesOf = (asked: readonly Asked[]) => asked.map(({ challenge }) => challenge);

async function authorizations(
  order: JsonObject,
  hosts: readonly string[],
  { directory, signer }: ProofContext,
): Promise<Authorization[]> {
  const urls = textsIn(order, "authorizations");
  if (urls.length > hosts.length) throw new AcmeFailure("the order has more authorizations than hosts");
  const ours = new Map(hosts.map((host) => [hostKey(host), host]));
  const found: Authorization[] = [];
  for (const url of urls) {
    const state = jsonObject((await directory.post(url, null, signer)).body);
    const { identifier } = state;
    const value = (isJsonObject(identifier) ? textIn(identifier, "value") : null) ?? "";
    const host = ours.get(hostKey(value));
    if (host === undefined)
      throw new AcmeFailure(`the directory asks for a proof of a host that was not ordered: ${shownText(value)}`);
    found.push({ url, host, state });
  }
  return found;
}

/** An IPv6 address has several spellings. */
export function hostKey(host: string): string {
  return isIP(host) === 0 ? host.toLowerCase() : addressBytes(host).toString("hex");
}

/** The challenge that is to be answered, or what stands against it. */
function challengeIn(authorization: Authorization, { settings, signer, clock }: ProofContext): Asked | string {
  const { host, state } = authorization;
  const type = settings.challenge;
  const asked = objectsIn(state, "challenges").find((each) => textIn(each, "type") === type);
  if (asked === undefined) return `the directory offers no challenge of the type ${type}`;
  const token = textIn(asked, "token") ?? "";
  const url = textIn(asked, "url");
  // RFC 8555 §8: base64url, of at least 128 bits. It becomes part of a path and of an answer.
  if (!TOKEN.test(token) || url === null) return "the directory's challenge is malformed";
  const keyAuthorization = `${token}.${signer.key.thumbprint}`;
  const challenge: Challenge =
    type === "http-01"
      ? { type, host, token, keyAuthorization }
      : { type, host, servername: servernameOf(host), pair: alpnCertificate(host, keyAuthorization, clock.wall()) };
  return { authorization, challenge, url, isPending: textIn(asked, "status") === "pending" };
}

/** Has the directory look at what is answered. Returns what stands against it; null: nothing. */
async function haveItLookedAt({ url, isPending }: Asked, { directory, signer }: ProofContext): Promise<string | null> {
  // The directory looks already where the program was restarted meanwhile.
  if (!isPending) return null;
  try {
    await directory.post(url, {}, signer);
    return null;
  } catch (error) {
    // Of this host alone, unless the whole order could not go on either.
    if (!(error instanceof AcmeFailure) || error.isPassing || OF_ALL.has(error.type ?? "")) throw error;
    return error.message;
  }
}

/** Types of problems that are not about a host. */
const OF_ALL: ReadonlySet<string> = new Set(["accountDoesNotExist", "unauthorized", "userActionRequired", "badNonce"]);

const TOKEN = /^[\w-]{16,256}$/;

/** Resolves once no authorization is pending; those that fail are added to `failed`. */
async function validated(
  authorizations: readonly Authorization[],
  failed: Map<string, string>,
  { directory, signer, clock, signal }: ProofContext,
): Promise<void> {
  const end = clock.now() + LONGEST_VALIDATION_MS;
  let pending = authorizations;
  for (let waitMs = FIRST_WAIT_MS; pending.length > 0; waitMs = Math.min(2 * waitMs, LAST_WAIT_MS)) {
    let askedMs = waitMs;
    const still: Authorization[] = [];
    for (const each of pending) {
      const { body, retryAfterMs } = await directory.post(each.url, null, signer);
      const state = jsonObject(body);
      const status = textIn(state, "status");
      askedMs = Math.max(askedMs, retryAfterMs ?? 0);
      if (status === "pending") still.push(each);
      else if (status !== "valid") failed.set(each.host, failureIn(state));
    }
    pending = still;
    if (pending.length === 0) return;
    const leftMs = end - clock.now();
    if (leftMs <= 0) break;
    // The last look is at the end, also where the directory asks for more patience.
    await pause(Math.min(askedMs, leftMs), clock, signal);
  }
  const minutes = LONGEST_VALIDATION_MS / 60_000;
  for (const { host } of pending) failed.set(host, `the directory has not looked within ${minutes} minutes`);
}

/** Of an authorization that is invalid, expired, deactivated or revoked. */
function failureIn(state: JsonObject): string {
  for (const { error } of objectsIn(state, "challenges")) if (isJsonObject(error)) return problemFailure(error).message;
  return `the authorization is ${shownText(textIn(state, "status") ?? "without a status")}`;
}

const FIRST_WAIT_MS = 1_000;
const LAST_WAIT_MS = 10_000;
const LONGEST_VALIDATION_MS = 10 * 60_000;
