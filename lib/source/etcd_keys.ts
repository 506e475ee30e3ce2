/**
 * What a configuration is in etcd: a key with the whole text, beside it its signature, and below it who runs what; and
 * how their states are read from answers.
 */
import { isObject } from "../json_schema/values.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import type { EtcdMessage } from "./json_lines.ts";

/** A key of etcd at one moment. */
export interface KeyState {
  /** The revision of the cluster that has written it last; 0: there is no such key. */
  readonly modRevision: number;
  /** Null: it was not asked for. Empty where there is no such key. */
  readonly value: Buffer | null;
}

/** Both keys of a configuration, as one transaction has read them. */
export interface ConfigState {
  /** uint64 as text. Another one: the cluster was made anew, perhaps of a backup, and its revisions count anew. */
  readonly cluster: string;
  /** Of the whole cluster, at the moment of the answer. */
  readonly revision: number;
  readonly text: KeyState;
  readonly signature: KeyState;
}

/** Where the signature of a key is. */
export function signatureKey(key: string): string {
  return `${key}.sig`;
}

/** What the keys of all entries begin with. */
export function entriesBelow(key: string): string {
  return `${key}/gateways/`;
}

/** What the keys begin with that the certificates of a fleet are in. */
export function acmeBelow(key: string): string {
  return `${key}/acme/`;
}

/** The members of a range, or of a watch, for every key that begins with the prefix, which ends with "/". */
export function rangeBelow(prefix: string): EtcdMessage {
  // Up to the prefix whose last byte is the next one: "/" is below "0".
  return { key: base64(prefix), range_end: base64(`${prefix.slice(0, -1)}0`) };
}

/** As etcd takes and gives keys and values: protobuf's `bytes` in JSON. */
export function base64(text: string | Buffer): string {
  return Buffer.from(text as string).toString("base64");
}

/** A transaction that reads both keys: linearizable, since it is not "serializable". */
export function readBoth(key: string, what: "revisions" | "texts"): EtcdMessage {
  const range = (name: string) => ({ request_range: { key: base64(name), keys_only: what === "revisions" } });
  return { success: [range(key), range(signatureKey(key))] };
}

/** Of the answer to `readBoth`. Throws an `EtcdFailure`. */
export function configState(answer: EtcdMessage, what: "revisions" | "texts"): ConfigState {
  const { header, responses } = answer;
  if (!isObject(header) || !Array.isArray(responses) || responses.length !== 2)
    throw strange("its answer has no states");
  const [text, signature] = responses.map((response: unknown) => {
    const range = isObject(response) ? response.response_range : undefined;
    if (!isObject(range)) throw strange("its answer has no states");
    const [entry, more] = keyValues(range);
    if (more !== undefined) throw strange("its answer has several states of a key");
    return entry === undefined
      ? { modRevision: 0, value: what === "texts" ? Buffer.alloc(0) : null }
      : entry.state(what);
  }) as [KeyState, KeyState];
  if (typeof header.cluster_id !== "string") throw strange("its answer names no cluster");
  return { cluster: header.cluster_id, revision: revisionOf(header), text, signature };
}

/** Whether nothing was written in between. */
export function isSame(one: ConfigState, other: ConfigState): boolean {
  return (
    one.cluster === other.cluster &&
    one.text.modRevision === other.text.modRevision &&
    one.signature.modRevision === other.signature.modRevision
  );
}

/** The keys and values of a range; `state` throws an `EtcdFailure`. */
export function keyValues(range: EtcdMessage) {
  const { kvs = [] } = range;
  if (!Array.isArray(kvs)) throw strange("its answer has no list of keys");
  return kvs.map((kv: unknown) => {
    if (!isObject(kv) || typeof kv.key !== "string") throw strange("its answer has a key without a name");
    return {
      key: bytes(kv.key).toString(),
      /** int64 as text; undefined: it was written without one. */
      lease: typeof kv.lease === "string" ? kv.lease : undefined,
      /** The revision that has made it. Throws an `EtcdFailure`. */
      created: () => integer(kv.create_revision),
      state: (what: "revisions" | "texts"): KeyState => ({
        modRevision: integer(kv.mod_revision),
        // An empty value is left out, as protobuf's JSON does with defaults.
        value: what === "texts" ? bytes(kv.value ?? "") : null,
      }),
    };
  });
}

export function revisionOf(header: EtcdMessage): number {
  return integer(header.revision);
}

/** An int64 is text in protobuf's JSON. */
function integer(value: unknown): number {
  const number = typeof value === "string" && /^\d{1,16}$/.test(value) ? Number(value) : NaN;
  if (!Number.isSafeInteger(number)) throw strange("its answer has no valid revision");
  return number;
}

function bytes(value: unknown): Buffer {
  // Decoded already: see `long_values.ts`.
  if (Buffer.isBuffer(value)) return value;
  if (typeof value === "string") {
    const read = Buffer.from(value, "base64");
    // Node's decoder skips what is not of the alphabet, and ends at "=".
    if (read.length === base64Bytes(value)) return read;
  }
  throw strange("its answer has a value that is not base64");
}

function base64Bytes(text: string): number {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  return text.length % 4 === 0 ? (text.length / 4) * 3 - padding : -1;
}

function strange(what: string): EtcdFailure {
  return new EtcdFailure("unreachable", `etcd: ${what}`);
}
