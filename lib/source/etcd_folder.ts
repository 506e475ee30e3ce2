/**
 * The keys of etcd below one key: their states at one moment, and changes that only the holder of a lock may make.
 */
import { isObject } from "../json_schema/values.ts";
import type { EtcdCallOptions, EtcdClient } from "./etcd_client.ts";
import { base64, keyValues, rangeBelow, revisionOf, type KeyState } from "./etcd_keys.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import type { EtcdMessage } from "./json_lines.ts";
import type { Moment } from "./etcd_watch.ts";

export interface FolderState extends Moment {
  /** By their names without the prefix. */
  readonly keys: ReadonlyMap<string, KeyState>;
}

/** `prefix` ends with "/". Linearizable. Rejects with an `EtcdFailure`, also for more than 1,000 keys. */
export async function folderState(
  client: EtcdClient,
  prefix: string,
  what: "revisions" | "texts",
  options: EtcdCallOptions = {},
): Promise<FolderState> {
  const range = { ...rangeBelow(prefix), keys_only: what === "revisions", limit: MAX_KEYS };
  const answer = await client.call("/v3/kv/range", range, { maxBytes: MAX_BYTES, ...options });
  const { header } = answer;
  if (!isObject(header) || typeof header.cluster_id !== "string")
    throw new EtcdFailure("unreachable", "etcd: its answer names no cluster");
  // Which of them are missing in the answer cannot be known.
  if (answer.more === true)
    throw new EtcdFailure("refused", `etcd has more than ${MAX_KEYS} keys that begin with ${prefix}`);
  const keys = new Map(keyValues(answer).map(({ key, state }) => [key.slice(prefix.length), state(what)]));
  return { cluster: header.cluster_id, revision: revisionOf(header), keys };
}

/** Whether nothing was written in between. */
export function isSameFolder(one: FolderState, other: FolderState): boolean {
  return (
    one.cluster === other.cluster &&
    one.keys.size === other.keys.size &&
    [...one.keys].every(([name, { modRevision }]) => other.keys.get(name)?.modRevision === modRevision)
  );
}

/** What is to be written: a value, perhaps under a lease; null removes the key. */
export type FolderChange = readonly [name: string, put: { readonly value: Buffer; readonly lease?: string } | null];

/**
 * Makes all changes, if `condition` holds: "a compare of a transaction". Resolves with the revision of the change;
 * null: it does not hold, and nothing was changed. May be carried out twice. Rejects with an `EtcdFailure`.
 */
export async function changeFolder(
  client: EtcdClient,
  prefix: string,
  { changes, condition }: { readonly changes: readonly FolderChange[]; readonly condition: EtcdMessage },
  options: EtcdCallOptions = {},
): Promise<number | null> {
  const success = changes.map(([name, put]) => {
    const key = base64(`${prefix}${name}`);
    if (put === null) return { request_delete_range: { key } };
    const { value, lease } = put;
    return { request_put: { key, value: base64(value), ...(lease !== undefined && { lease }) } };
  });
  const answer = await client.call("/v3/kv/txn", { compare: [condition], success }, options);
  if (answer.succeeded !== true) return null;
  if (!isObject(answer.header)) throw new EtcdFailure("unreachable", "etcd: its answer has no revision");
  return revisionOf(answer.header);
}

const MAX_KEYS = "1000";
const MAX_BYTES = 16 * 1024 * 1024;
