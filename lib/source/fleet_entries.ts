/**
 * Who runs what: the entries that gateways keep in etcd below the key of their configuration.
 */
import { isObject } from "../json_schema/values.ts";
import type { EtcdCallOptions, EtcdClient } from "./etcd_client.ts";
import { entriesBelow, keyValues, rangeBelow } from "./etcd_keys.ts";

/** As JSON in its entry. Whoever may write there can lie. */
export interface FleetEntry {
  /** The host and the first port for traffic: "web-1:8008". */
  readonly name: string;
  readonly host: string;
  readonly version: string;
  /** Of the configuration in force. */
  readonly digest: string;
  /** When it came into force: "2026-05-04T03:02:01.000Z". */
  readonly since: string;
  readonly ready: boolean;
  /** The revision of etcd up to which it serves what the fleet shares of `global.acme`; absent: it shares nothing. */
  readonly acme?: number;
  /** The text that is published, where the gateway has refused it. */
  readonly refused?: { readonly digest: string | null; readonly at: string; readonly reason: string };
}

/** `id`: its first 100 characters. `entry`: null: it is not of the form. */
export interface ListedEntry {
  readonly id: string;
  readonly entry: FleetEntry | null;
}

/** The fleet that a gateway belongs to. */
export interface Fleet {
  /** Of its configuration, without secrets: "etcd://10.0.0.1:2379/edge/gw.json". */
  readonly name: string;
  /** The id of this gateway's own entry; null: it has none. */
  readonly ownId: string | null;
  /** Asks etcd. Rejects with an `Error` in words. */
  list(): Promise<readonly ListedEntry[]>;
}

/** In the order of names. At most 10,000. Rejects with an `EtcdFailure`. */
export async function fleetEntries(
  client: EtcdClient,
  key: string,
  options: EtcdCallOptions = {},
): Promise<ListedEntry[]> {
  const prefix = entriesBelow(key);
  const range = { ...rangeBelow(prefix), limit: String(MAX_ENTRIES) };
  const answer = await client.call("/v3/kv/range", range, { maxBytes: MAX_BYTES, ...options });
  const listed = keyValues(answer).map(({ key: name, state }) => ({
    id: name.slice(prefix.length, prefix.length + MAX_ID),
    entry: entryIn(state("texts").value!),
  }));
  return listed.sort((a, b) => order(a.entry?.name ?? "", b.entry?.name ?? "") || order(a.id, b.id));
}

function order(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** With the members of an entry alone: others may be of any size, or take the place of what is known of it. */
function entryIn(content: Buffer): FleetEntry | null {
  try {
    const value: unknown = JSON.parse(content.toString());
    if (!isEntry(value)) return null;
    const { name, host, version, digest, since, ready, acme, refused } = value;
    const entry = { name, host, version, digest, since, ready, ...(acme !== undefined && { acme }) };
    if (refused === undefined) return entry;
    return { ...entry, refused: { digest: refused.digest, at: refused.at, reason: refused.reason } };
  } catch {
    return null;
  }
}

function isEntry(value: unknown): value is FleetEntry {
  if (!isObject(value)) return false;
  const { name, host, version, digest, since, ready, acme, refused } = value;
  const hasTexts = [name, host, version, digest, since].every((text) => isText(text));
  if (!hasTexts || typeof ready !== "boolean") return false;
  if (acme !== undefined && !Number.isSafeInteger(acme)) return false;
  if (refused === undefined) return true;
  if (!isObject(refused)) return false;
  return isText(refused.at) && isText(refused.reason) && (refused.digest === null || isText(refused.digest));
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value.length <= MAX_TEXT;
}

const MAX_ENTRIES = 10_000;
const MAX_BYTES = 16 * 1024 * 1024;
const MAX_TEXT = 2_000;
/** A gateway's own has 16. */
const MAX_ID = 100;
