/**
 * Drops stored replies that an administrator names, from all caches of this thread.
 */
import { headerValues } from "../../http/headers.ts";
import { END_OF_TARGET, type AllStores, type Entry } from "./store.ts";

/** What replies have in common that are dropped; of several, all hold. None: every reply. */
export interface Purge {
  readonly service?: string;
  readonly route?: string;
  /** The target: `https://shop.example.com/items/7?x=1`, or without its origin `/items/7?x=1`, of all hosts. */
  readonly url?: string;
  /** The beginning of the target, likewise. */
  readonly prefix?: string;
  /** One of the values of `Cache-Tag` or `Surrogate-Key` of the reply. */
  readonly tag?: string;
}

/**
 * Returns how many were dropped. Replies that were asked for before are not stored; those that are stored during the
 * steps are newer, and stay. A step is one reply, which may have thousands of tags.
 */
export function* purgeSteps(all: AllStores, purge: Purge): Generator<void, number> {
  const stores = Array.from(all.values(), ({ stores }) => [...stores]).flat();
  const found = stores.map((store) => ({ store, ...store.beginPurge() }));
  let purged = 0;
  for (const { store, groups, before } of found)
    for (const group of groups)
      for (const entry of [...group]) {
        yield;
        if (entry.changes >= before || !store.holds(entry) || !isNamed(entry, purge)) continue;
        store.remove(entry);
        purged++;
      }
  return purged;
}

function isNamed(entry: Entry, { service, route, url, prefix, tag }: Purge): boolean {
  return (
    (service === undefined || entry.service === service) &&
    (route === undefined || entry.route === route) &&
    (url === undefined || targetOf(entry, url) === url) &&
    (prefix === undefined || targetOf(entry, prefix).startsWith(prefix)) &&
    (tag === undefined || hasTag(entry, tag))
  );
}

/** With its origin where `like` has one; without what trusted proxies have said of it. */
function targetOf({ key }: Entry, like: string): string {
  const target = /^[^\n\0]*/.exec(key.slice(0, key.indexOf(END_OF_TARGET)))![0];
  return like.startsWith("/") ? target.slice(target.indexOf("/", "https://".length)) : target;
}

function hasTag({ headers }: Entry, tag: string): boolean {
  const isIn = (name: string, separator: RegExp | string) =>
    headerValues(headers, name).some(
      (line) => line.includes(tag) && line.split(separator).some((each) => each.trim() === tag),
    );
  return isIn("cache-tag", ",") || isIn("surrogate-key", /[ \t]+/);
}
