/**
 * Reads lists of revoked certificates (CRLs, RFC 5280 §5), complete ones alone: a list that says less than "all of this
 * issuer's that are revoked" is refused, since a certificate that it does not have could be revoked nevertheless.
 */
import { constants, verify, type KeyObject } from "node:crypto";
import { Der, TAG } from "./der.ts";
import { ignore } from "./errors.ts";
import { atOnce, inSlices, paced } from "./time_slices.ts";

export interface RevocationList {
  /** Its name in DER, as certificates have it. */
  readonly issuer: Buffer;
  /** Its common name, for people; null: it has none. */
  readonly issuerName: string | null;
  /** From when to when it counts, in milliseconds since 1970. */
  readonly thisUpdate: number;
  readonly nextUpdate: number;
  /** See `serialOf`. */
  readonly revoked: ReadonlySet<string>;
  /** Whether this key has signed it. */
  isSignedBy(key: KeyObject): boolean;
}

const known = new WeakMap<Buffer, readonly RevocationList[]>();
/** The keys of `known`. */
let contents: readonly WeakRef<Buffer>[] = [];

/** The lists of a PEM file, one or more. Throws an error that completes "the file …". */
export function revocationListsIn(content: Buffer): readonly RevocationList[] {
  return atOnce(listsSteps(content));
}

/**
 * Reads a file in slices, beside the traffic: 100,000 certificates take 0.1 s. Afterwards `revocationListsIn` knows
 * this content while the buffer is held. What is wrong with it is left to that.
 */
export async function readListsAhead(content: Buffer): Promise<void> {
  await inSlices(listsSteps(content), paced()).catch(ignore);
}

/** Whether a file may have lists. */
export function mayHaveLists(content: Buffer): boolean {
  return content.includes("-----BEGIN X509 CRL-----");
}

function* listsSteps(content: Buffer): Generator<void, readonly RevocationList[]> {
  const found = known.get(content);
  if (found !== undefined) return found;
  // Each reload reads files anew, most of them as they were, while the former configuration is still in use.
  const inUse = contents.map((each) => each.deref()).filter((each) => each !== undefined);
  const same = inUse.find((each) => each.equals(content));
  const lists = same === undefined ? yield* readLists(content) : known.get(same)!;
  known.set(content, lists);
  contents = [...contents.map((each) => each.deref()).filter((each) => each !== undefined), content].map(
    (each) => new WeakRef(each),
  );
  return lists;
}

/** Completes "the file …": undefined when it contains lists that can be used, whatever the time is. */
export function revocationListsProblem(content: Buffer): string | undefined {
  try {
    revocationListsIn(content);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

function* readLists(content: Buffer): Generator<void, readonly RevocationList[]> {
  const blocks = content.toString("latin1").match(BLOCK) ?? [];
  if (blocks.length === 0) {
    const isDer = content[0] === TAG.sequence;
    const remedy = isDer ? ": convert it (openssl crl -inform DER -in FILE -out NEW)" : "";
    throw new Error(`has no line -----BEGIN X509 CRL-----${remedy}`);
  }
  const lists: RevocationList[] = [];
  for (const [i, block] of blocks.entries()) {
    const which = blocks.length === 1 ? "" : ` (number ${i + 1} of ${blocks.length} in it)`;
    // What is no base64 is passed over: the structure of the list and its signature tell.
    const list = Buffer.from(BODY.exec(block)?.[1] ?? "", "base64");
    if (list.length === 0)
      throw new Error(`is not a revocation list in PEM form${which}: it is no base64 up to -----END X509 CRL-----`);
    try {
      lists.push(yield* readList(list));
    } catch (error) {
      throw new Error(`has a revocation list that cannot be used${which}: ${(error as Error).message}`);
    }
  }
  return lists;
}

const BLOCK = /-----BEGIN X509 CRL-----[^]*?(?:-----END X509 CRL-----|$)/g;
const BODY = /^-----BEGIN X509 CRL-----([^]*)-----END X509 CRL-----$/;

/** §5.1 */
function* readList(bytes: Buffer): Generator<void, RevocationList> {
  const outer = new Der(bytes);
  const list = outer.enter(TAG.sequence);
  outer.end();
  const signed = list.whole(TAG.sequence);
  const algorithm = list.whole(TAG.sequence);
  const signature = list.content(TAG.bitString);
  list.end();
  if (signature[0] !== 0) throw new Error("its signature is not of whole bytes");
  const check = signatureCheck(algorithm);
  const parts = new Der(signed).enter(TAG.sequence);
  if (parts.has(TAG.integer) && !parts.content(TAG.integer).equals(VERSION_2)) throw new Error("its version is not 2");
  if (!parts.whole(TAG.sequence).equals(algorithm)) throw new Error("it names two algorithms (RFC 5280 §5.1.1.2)");
  const issuer = parts.whole(TAG.sequence);
  const thisUpdate = parts.time();
  if (!parts.has(TAG.utcTime) && !parts.has(TAG.generalizedTime))
    throw new Error("it has no end, nextUpdate (RFC 5280 §5.1.2.5)");
  const nextUpdate = parts.time();
  const revoked = new Set<string>();
  if (parts.has(TAG.sequence)) yield* readRevoked(parts.enter(TAG.sequence), revoked);
  if (parts.has(TAG.context0)) checkExtensions(parts.enter(TAG.context0));
  parts.end();
  return {
    issuer,
    issuerName: commonNameIn(issuer),
    thisUpdate,
    nextUpdate,
    revoked,
    isSignedBy: (key) => check(signed, key, signature.subarray(1)),
  };
}

/** A millisecond of work. */
const ENTRIES_OF_A_STEP = 500;

/** v2 is written as 1. */
const VERSION_2 = Buffer.from([1]);

/** §5.1.2.6 */
function* readRevoked(entries: Der, revoked: Set<string>): Generator<void> {
  for (let count = 1; entries.has(); count++) {
    if (count % ENTRIES_OF_A_STEP === 0) yield;
    const entry = entries.enter(TAG.sequence);
    revoked.add(serialOf(entry.latin1(TAG.integer)));
    // When it was revoked: to read each of 100,000 times took half of the time.
    entry.skip(entry.has(TAG.utcTime) ? TAG.utcTime : TAG.generalizedTime);
    if (entry.has()) for (const { oid, isCritical } of extensionsIn(entry)) refuseUnknown(oid, isCritical, OF_ENTRIES);
    entry.end();
  }
}

/** A serial number, from the content of its INTEGER as latin1, so that texts can be compared. */
export function serialOf(content: string): string {
  let from = 0;
  while (from < content.length - 1 && content.charCodeAt(from) === 0) from++;
  return content.slice(from);
}

const DELTA = "2.5.29.27";
const DISTRIBUTION_POINT = "2.5.29.28";
/** Authority key identifier, issuer alternative name, number, freshest CRL, authority information. */
const OF_LISTS = ["2.5.29.35", "2.5.29.18", "2.5.29.20", "2.5.29.46", "1.3.6.1.5.5.7.1.1"];
/** Reason, invalidity date. */
const OF_ENTRIES = ["2.5.29.21", "2.5.29.24"];

/** §5.2 */
function checkExtensions(explicit: Der): void {
  for (const { oid, isCritical } of extensionsIn(explicit)) {
    if (oid === DELTA) throw new Error("it is a delta CRL, which has changes alone: name the complete list");
    if (oid === DISTRIBUTION_POINT)
      throw new Error("it is for a part of the certificates (issuing distribution point): name the complete list");
    refuseUnknown(oid, isCritical, OF_LISTS);
  }
  explicit.end();
}

function* extensionsIn(owner: Der): Iterable<{ readonly oid: string; readonly isCritical: boolean }> {
  const all = owner.enter(TAG.sequence);
  while (all.has()) {
    const extension = all.enter(TAG.sequence);
    const oid = extension.oid();
    const isCritical = extension.has(TAG.boolean) && extension.content(TAG.boolean)[0] !== 0;
    extension.content(TAG.octetString);
    extension.end();
    yield { oid, isCritical };
  }
}

/** §5.2, §5.3: a list with a critical extension that is not understood must not be used. */
function refuseUnknown(oid: string, isCritical: boolean, understood: readonly string[]): void {
  if (isCritical && !understood.includes(oid)) throw new Error(`it has an unknown critical extension, ${oid}`);
}

type Check = (signed: Buffer, key: KeyObject, signature: Buffer) => boolean;

/** Of an AlgorithmIdentifier. MD5 and SHA-1 are not accepted: lists could be forged. */
function signatureCheck(algorithm: Buffer): Check {
  const parts = new Der(algorithm).enter(TAG.sequence);
  const oid = parts.oid();
  if (oid === RSA_PSS) {
    const hash = HASHES.get(parts.enter(TAG.sequence).enter(TAG.context0).enter(TAG.sequence).oid());
    if (hash === undefined) throw new Error("its signature (RSA-PSS) has no hash that is accepted");
    const padding = { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_AUTO };
    return (signed, key, signature) => succeeds(() => verify(hash, signed, { key, ...padding }, signature));
  }
  const hash = SIGNATURES.get(oid);
  if (hash === undefined) throw new Error(`it is signed by an algorithm that is not accepted, ${oid}`);
  return (signed, key, signature) => succeeds(() => verify(hash, signed, key, signature));
}

/** A key of another type than the signature's throws. */
function succeeds(verified: () => boolean): boolean {
  try {
    return verified();
  } catch {
    return false;
  }
}

const RSA_PSS = "1.2.840.113549.1.1.10";
/** RSA, ECDSA, Ed25519, Ed448; ML-DSA, which Node 24 verifies. Null: the key has the hash. */
const SIGNATURES = new Map<string, string | null>([
  ["1.2.840.113549.1.1.11", "sha256"],
  ["1.2.840.113549.1.1.12", "sha384"],
  ["1.2.840.113549.1.1.13", "sha512"],
  ["1.2.840.10045.4.3.2", "sha256"],
  ["1.2.840.10045.4.3.3", "sha384"],
  ["1.2.840.10045.4.3.4", "sha512"],
  ["1.3.101.112", null],
  ["1.3.101.113", null],
  ["2.16.840.1.101.3.4.3.17", null],
  ["2.16.840.1.101.3.4.3.18", null],
  ["2.16.840.1.101.3.4.3.19", null],
]);
const HASHES = new Map([
  ["2.16.840.1.101.3.4.2.1", "sha256"],
  ["2.16.840.1.101.3.4.2.2", "sha384"],
  ["2.16.840.1.101.3.4.2.3", "sha512"],
]);

const COMMON_NAME = "2.5.4.3";

/** The last one, which is the most specific; as if it were UTF-8, which almost all are. */
function commonNameIn(name: Buffer): string | null {
  let found: string | null = null;
  const sets = new Der(name).enter(TAG.sequence);
  while (sets.has()) {
    const attributes = sets.enter(TAG.set);
    while (attributes.has()) {
      const attribute = attributes.enter(TAG.sequence);
      const isCommonName = attribute.oid() === COMMON_NAME;
      const value = attribute.whole();
      if (isCommonName)
        found = new Der(value)
          .content(value[0]!)
          .toString()
          .replace(/\p{Cc}/gu, "");
    }
  }
  return found;
}
