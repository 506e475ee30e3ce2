/**
 * The plugin kind `response_cache`: a shared cache in memory (RFC 9111), which answers GET and HEAD from stored replies
 * and reports hits and misses in Cache-Status (RFC 9211).
 *
 * Evaluates the target, the headers in Vary, Cache-Control, Pragma, If-None-Match, If-Modified-Since, Range, If-Range
 * and credentials of a request. Answers with a stored reply and its Age, 206 with ranges of it or 416, 304 to a client
 * that has it, 504 to `only-if-cached` if nothing is stored, else with the upstream's reply. Upstreams may use
 * CDN-Cache-Control (RFC 9213) in place of Cache-Control. Also from RFC 5861: stale-while-revalidate, stale-if-error.
 */
import { TOKEN_CHARACTERS } from "../../base/http_grammar.ts";
import { droppedProblem } from "../../config/dropped_names.ts";
import { array, integer, object, string, withDefault } from "../../config/schema.ts";
import type { KeptState, Plugin } from "../plugin.ts";
import { Cache, type CacheState } from "./cache.ts";
import { Changes, CHANGES_BYTES } from "./changes.ts";
import type { Fetch } from "./fetches.ts";
import { CacheStore, type AllStores } from "./store.ts";
import { nameShown, varyingBy } from "./target.ts";

const MIB = 1024 * 1024;

const PLACE = string({
  references: "none",
  pattern: new RegExp(`^(?:cookie|header):[${TOKEN_CHARACTERS}]+$`),
  hint: '"cookie:<name>" or "header:<name>"',
  describe: "A cookie or a header.",
  check: (text, context) => (text.startsWith("header:") ? droppedProblem(text, context) : undefined),
});

/** In the key of every request, or of a meaning to caches. */
const UNVARYING =
  /^header:(?:host|cache-control|pragma|range|if-[a-z-]+|connection|te|transfer-encoding|upgrade|keep-alive|expect)$/i;

const schema = object(
  {
    max_bytes: withDefault(
      integer({ min: 65_536, describe: "Memory for all stored replies, bodies and headers, in bytes." }),
      64 * MIB,
    ),
    max_object_bytes: withDefault(integer({ min: 1, describe: "The longest body that is stored, in bytes." }), MIB),
    default_ttl_s: withDefault(
      integer({
        min: 0,
        max: 31_536_000,
        describe:
          "Freshness lifetime of replies without one; 0: a tenth of their age since Last-Modified. " +
          "Neither applies to credentials outside of vary_by.",
      }),
      0,
    ),
    vary_by: withDefault(array(PLACE, { describe: "Cookies and headers whose values are part of the key." }), []),
  },
  {
    describe: "Answers from memory what RFC 9111 allows a shared cache to store.",
    refine(value, report) {
      value.varyBy.forEach((place, i) => {
        const first = value.varyBy.findIndex((other) => samePlace(other, place));
        if (UNVARYING.test(place)) report("is evaluated by the cache itself", "vary_by", i);
        if (first < i) report(`is the same as vary_by[${first}]`, "vary_by", i);
      });
      if (value.maxObjectBytes > value.maxBytes)
        report('must not be more than "max_bytes", and is 1048576 by default', "max_object_bytes");
    },
  },
);

/** Names of cookies compare with case, of headers without. */
function samePlace(one: string, other: string): boolean {
  return one === other || (one.startsWith("header:") && one.toLowerCase() === other.toLowerCase());
}

export const responseCache: Plugin<typeof schema> = {
  name: "response_cache",
  schema,
  stores: true,
  create(
    { maxBytes, maxObjectBytes, defaultTtlS, varyBy: places },
    { clock, gatewayName, keep, shared, common, scope },
  ) {
    // Asked for each time: memory that a configuration does not ask for is released.
    const memory = shared("changes", CHANGES_BYTES);
    const changes =
      memory ?? keep("changes", null, () => ({ memory: new ArrayBuffer(CHANGES_BYTES), close: () => {} })).memory;
    const stores = common("stores", (): AllStores => new Map());
    const state = keep("cache", { maxBytes, defaultTtlS, places }, () => stateOf(maxBytes, changes, stores, scope.key));
    const settings = {
      clock,
      name: nameShown(gatewayName),
      maxObjectBytes,
      defaultTtl: defaultTtlS * 1_000,
      varyBy: varyingBy(places),
    };
    return (next) => {
      const cache = new Cache(next, state, settings);
      return (exchange) => cache.handle(exchange);
    };
  },
};

/** The state that survives reloads. */
function stateOf(maxBytes: number, changes: ArrayBufferLike, all: AllStores, key: string): KeptState & CacheState {
  const own = all.get(key) ?? { stores: new Set(), evictions: 0 };
  const store = new CacheStore(maxBytes, new Changes(changes), own);
  all.set(key, own);
  own.stores.add(store);
  const fetches = new Map<string, Fetch>();
  const close = () => {
    store.close();
    own.stores.delete(store);
    if (own.stores.size === 0) all.delete(key);
    for (const fetch of fetches.values()) fetch.close();
    fetches.clear();
  };
  return { store, fetches, close };
}
