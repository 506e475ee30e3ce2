/**
 * What the caches of plugin instances hold and have dropped, in this thread or in all workers.
 */
import type { Runtime } from "../gateway/runtime.ts";
import type { AllStores } from "../plugins/cache/store.ts";

export interface CacheFigures {
  bytes: number;
  readonly maxBytes: number;
  entries: number;
  readonly evictions: number;
}

/** With the keys of their plugin instances. */
export type AllCacheFigures = readonly (readonly [key: string, figures: Readonly<CacheFigures>])[];

/** In a worker, for its report: those that hold something, or have dropped something since the last one. */
export function takeCaches(runtime: Runtime): AllCacheFigures {
  const taken = cachesOf(runtime).filter(([, { bytes, evictions }]) => bytes > 0 || evictions > 0);
  for (const own of cacheStoresOf(runtime).values()) own.evictions = 0;
  return taken;
}

/** In the main thread: counts the evictions of a report. */
export function addEvictions(runtime: Runtime, caches: AllCacheFigures): void {
  for (const [key, { evictions }] of caches) {
    const own = cacheStoresOf(runtime).get(key);
    if (own !== undefined) own.evictions += evictions;
  }
}

/**
 * `ofWorkers`: what those hold that serve, each with caches of its own; the result has the sums. Default: this thread
 * serves.
 */
export function cachesOf(runtime: Runtime, ofWorkers: AllCacheFigures = []): AllCacheFigures {
  const { worker, count } = runtime.threads;
  const all = new Map(
    Array.from(
      cacheStoresOf(runtime),
      ([
        key,
        {
          stores: [store],
          evictions,
        },
      ]): [string, CacheFigures] => {
        const { used, maxBytes, entries } = store!;
        return [key, { bytes: used, maxBytes: maxBytes * (worker < 0 ? count : 1), entries, evictions }];
      },
    ),
  );
  for (const [key, { bytes, entries }] of ofWorkers) {
    const sum = all.get(key);
    if (sum === undefined) continue;
    sum.bytes += bytes;
    sum.entries += entries;
  }
  return [...all];
}

/** Of this thread. */
export function cacheStoresOf(runtime: Runtime): AllStores {
  return runtime.common("response_cache: stores", () => new Map());
}
