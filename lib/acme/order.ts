/**
 * Orders one certificate (RFC 8555 §7.4): the order, its proofs, its key, and the chain. An order that was interrupted
 * is continued.
 *
 * ```
 * newOrder ─► order.json ─► prove each host ─► finalize ─► (processing) ─► valid ─► the chain
 *              URL and key, on disk before anything is asked for them
 * ```
 */
import type { KeyObject } from "node:crypto";
import { isIP } from "node:net";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { AcmeFiles } from "./contracts.ts";
import { chainOf, chainProblem, type CertificateChain } from "./chain.ts";
import { jsonObject, problemFailure, type DirectoryAnswer } from "./directory.ts";
import { AcmeFailure, shownText } from "./failure.ts";
import { isJsonObject, textIn, type JsonObject } from "./json_members.ts";
import { prove, type ProofContext } from "./proof.ts";
import { keyFrom, newKey, pemOf, signingRequest } from "./signing_request.ts";
import { pause } from "./waits.ts";

/** Once the signal gives an order up, it is there for the next one to continue. */
export interface OrderContext extends ProofContext {
  readonly files: AcmeFiles;
}

interface Wanted {
  readonly hosts: readonly string[];
  /** Asked for in the order; null: the default. */
  readonly profile: string | null;
  /** The certificate that it replaces, see `renewalId`; null: none. */
  readonly replaces: string | null;
}

export interface Obtained {
  readonly chain: CertificateChain;
  readonly key: KeyObject;
}

interface Order {
  readonly url: string;
  readonly hosts: readonly string[];
  readonly key: KeyObject;
}

/** Rejects with an `AcmeFailure` or the signal's reason. The caller removes the order once the chain is stored. */
export async function orderCertificate(wanted: Wanted, context: OrderContext): Promise<Obtained> {
  const kept = await keptOrder(wanted, context);
  if (kept !== null) {
    try {
      return await finish(kept, context);
    } catch (error) {
      // Nobody answered for it while the program was stopped: that says nothing of a new order.
      if (!(error instanceof AcmeFailure) || error.isPassing) throw error;
      await removeOrder(context.files);
    }
  }
  const order = await begin(wanted, context);
  try {
    return await finish(order, context);
  } catch (error) {
    if (error instanceof AcmeFailure && !error.isPassing) await removeOrder(context.files);
    throw error;
  }
}

export async function removeOrder(files: AcmeFiles): Promise<void> {
  await files.remove(FILE).catch((error: unknown) => {
    throw new AcmeFailure(`${FILE} cannot be removed: ${messageOf(error)}`);
  });
}

const FILE = "order.json";

async function begin({ hosts, profile, replaces }: Wanted, context: OrderContext): Promise<Order> {
  const { directory, signer, settings, files, clock } = context;
  const identifiers = hosts.map(identifierOf);
  const payload = { identifiers, ...(profile !== null && { profile }), ...(replaces !== null && { replaces }) };
  const { location } = await directory.post(directory.urlOf("newOrder"), payload, signer);
  if (location === null) throw new AcmeFailure("the directory does not name the URL of the order");
  const key = newKey();
  const { directory: from } = settings;
  const kept = { directory: from, url: location, hosts, profile, at: clock.wall(), key: String(pemOf(key)) };
  await files.write(FILE, Buffer.from(JSON.stringify(kept))).catch((error: unknown) => {
    throw new AcmeFailure(`${FILE} cannot be written: ${messageOf(error)}`);
  });
  return { url: location, hosts, key };
}

/** RFC 8738 §3: an IPv6 address in the form of RFC 5952, which is that of URLs. */
function identifierOf(host: string): { readonly type: "dns" | "ip"; readonly value: string } {
  if (isIP(host) !== 6) return { type: isIP(host) === 0 ? "dns" : "ip", value: host };
  return { type: "ip", value: new URL(`https://[${host}]`).hostname.slice(1, -1) };
}

/** An order for these hosts, with this profile, that is not done yet; null: there is none, and another one is gone. */
async function keptOrder(
  { hosts, profile }: Pick<Wanted, "hosts" | "profile">,
  { settings, files, clock, directory }: OrderContext,
): Promise<Order | null> {
  try {
    const content = files.read(FILE);
    if (content === null) return null;
    const kept = jsonObject(content);
    const age = clock.wall() - Number(kept.at);
    const isFit =
      kept.directory === settings.directory &&
      textIn(kept, "profile") === profile &&
      // Another gateway's clock may be ahead of this one's.
      Math.abs(age) <= LONGEST_ORDER_MS &&
      JSON.stringify(kept.hosts) === JSON.stringify(hosts);
    if (isFit) return { url: directory.checked(String(kept.url)), hosts, key: keyFrom(Buffer.from(String(kept.key))) };
  } catch {
    // Another order costs less than an operator's time.
  }
  await removeOrder(files);
  return null;
}

async function finish(order: Order, context: OrderContext): Promise<Obtained> {
  const { directory, signer } = context;
  const asked = await directory.post(order.url, null, signer);
  let state = jsonObject(asked.body);
  if (textIn(state, "status") === "pending") {
    await prove(state, order.hosts, context);
    state = await settled(order, PENDING, context);
  }
  if (textIn(state, "status") === "ready") {
    const csr = signingRequest(order.key, order.hosts).toString("base64url");
    await directory.post(urlIn(state, "finalize"), { csr }, signer);
    state = await settled(order, IN_PROGRESS, context);
  } else if (textIn(state, "status") === "processing") state = await settled(order, IN_PROGRESS, context);
  if (textIn(state, "status") !== "valid") throw invalidOrder(state);
  const url = urlIn(state, "certificate");
  const answer = await directory.post(url, null, signer, "application/pem-certificate-chain");
  return { chain: fittingChain(answer, order, context.clock), key: order.key };
}

const PENDING = new Set(["pending"]);
/** Ready: the order may be as it was a moment after it was finalized. */
const IN_PROGRESS = new Set(["ready", "processing"]);

/** The order once its status is none of these. */
async function settled(order: Order, unsettled: ReadonlySet<string>, context: OrderContext): Promise<JsonObject> {
  const { directory, signer, clock, signal } = context;
  const end = clock.now() + LONGEST_PROCESSING_MS;
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LAST_WAIT_MS)) {
    const { body, retryAfterMs } = await directory.post(order.url, null, signer);
    const state = jsonObject(body);
    if (!unsettled.has(textIn(state, "status") ?? "")) return state;
    const nextMs = Math.max(FIRST_WAIT_MS, retryAfterMs ?? waitMs);
    if (clock.now() + nextMs > end)
      throw new AcmeFailure("the directory still works on the order", { isPassing: true, retryAfterMs: nextMs });
    await pause(nextMs, clock, signal);
  }
}

function invalidOrder(state: JsonObject): AcmeFailure {
  if (isJsonObject(state.error)) return problemFailure(state.error);
  return new AcmeFailure(`the order is ${shownText(textIn(state, "status") ?? "without a status")}`);
}

function urlIn(state: JsonObject, name: string): string {
  const url = textIn(state, name);
  if (url === null) throw new AcmeFailure(`the order has no ${name}`);
  return url;
}

function fittingChain({ body }: DirectoryAnswer, order: Order, clock: Clock): CertificateChain {
  let chain: CertificateChain;
  try {
    chain = chainOf(body.toString("latin1"));
  } catch (error) {
    throw new AcmeFailure(`the directory's certificate cannot be used: ${messageOf(error)}`);
  }
  const problem = chainProblem(chain, order.key, order.hosts);
  if (problem !== undefined) throw new AcmeFailure(`the directory's certificate ${problem}`);
  const now = clock.wall();
  if (now > chain.notAfter)
    throw new AcmeFailure("the directory's certificate has expired: look at this machine's clock");
  // Kept: the same certificate is valid later.
  if (now < chain.notBefore)
    throw new AcmeFailure("the directory's certificate is not valid yet: look at this machine's clock", {
      isPassing: true,
    });
  return chain;
}

const FIRST_WAIT_MS = 1_000;
const LAST_WAIT_MS = 10_000;
const LONGEST_PROCESSING_MS = 10 * 60_000;
/** An order that a directory has not finished by then is not continued. */
const LONGEST_ORDER_MS = 86_400_000;
