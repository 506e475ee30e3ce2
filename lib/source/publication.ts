/**
 * Writes the text of a configuration and its signature to etcd, in one transaction that does nothing where somebody
 * else has written meanwhile.
 */
import { isObject } from "../json_schema/values.ts";
import type { EtcdClient } from "./etcd_client.ts";
import { EtcdFailure } from "./etcd_failure.ts";
import { base64, configState, readBoth, revisionOf, signatureKey, type ConfigState } from "./etcd_keys.ts";

export interface Published {
  readonly text: Buffer;
  /** Null: none is written, and there is none. */
  readonly signature: string | null;
}

/** The text that is there, with its revisions. Rejects with an `EtcdFailure`. */
export async function readPublished(client: EtcdClient, key: string): Promise<ConfigState> {
  const time = { limitMs: READ_MS, memberMs: READ_MS, maxBytes: MAX_ANSWER_BYTES };
  // With little first: a member that does not answer is left for the next.
  await client.call("/v3/kv/txn", readBoth(key, "revisions"));
  return configState(await client.call("/v3/kv/txn", readBoth(key, "texts"), time), "texts");
}

/**
 * Writes in place of `before`. Resolves with the revision of the new text, or with what somebody else has written since
 * `before`. Rejects with an `EtcdFailure`; the kind "unreachable": it is not known whether it was written.
 */
export async function writePublished(
  client: EtcdClient,
  key: string,
  published: Published,
  before: ConfigState,
): Promise<{ readonly revision: number } | { readonly other: ConfigState }> {
  const { text, signature } = published;
  const isAs = (name: string, { modRevision }: ConfigState["text"]) => ({
    key: base64(name),
    target: "MOD",
    result: "EQUAL",
    mod_revision: String(modRevision),
  });
  const put = (name: string, value: Buffer | string) => ({ request_put: { key: base64(name), value: base64(value) } });
  const transaction = {
    compare: [isAs(key, before.text), isAs(signatureKey(key), before.signature)],
    success: [put(key, text), ...(signature === null ? [] : [put(signatureKey(key), signature)])],
  };
  const time = { limitMs: WRITE_MS, memberMs: WRITE_MS / 2 };
  const answer = await client.call("/v3/kv/txn", transaction, time).catch(async (error: unknown) => {
    if (!(error instanceof EtcdFailure) || error.kind !== "unreachable") throw error;
    // The answer may have been lost alone.
    const there = await readPublished(client, key).catch(() => null);
    if (there === null || !isPublished(there, published, before)) throw error;
    return { succeeded: true, header: { revision: String(there.text.modRevision) } };
  });
  if (answer.succeeded === true && isObject(answer.header)) return { revision: revisionOf(answer.header) };
  const other = await readPublished(client, key);
  // A first try, at a member that has not answered, has succeeded.
  return isPublished(other, published, before) ? { revision: other.text.modRevision } : { other };
}

function isPublished(there: ConfigState, { text, signature }: Published, before: ConfigState): boolean {
  const hasText = there.text.modRevision > before.text.modRevision && there.text.value!.equals(text);
  return hasText && (signature === null || there.signature.value!.toString() === signature);
}

/** 64 MiB over a slow line. */
const READ_MS = 60_000;
const WRITE_MS = 60_000;
const MAX_ANSWER_BYTES = 90 * 1024 * 1024;
