/**
 * Limiters of plugins that count otherwise than in sliding windows of requests.
 */
import type { LimiterTools } from "../store/costs.ts";
import type { PluginContext } from "./compile_types.ts";

/** See `Tools.limiterBy`; `key`: of the limiter. */
export function limiterBy<L>(make: (tools: LimiterTools, key: string) => L, key: string, context: PluginContext): L {
  const { runtime, inUse } = context;
  const { clock, counters: local, state, threads, parts } = runtime;
  inUse.limiters.add(key);
  const memory = threads.count === 1 ? undefined : parts.part("sharedCallers").memoryOf(`limiter ${key}`, context);
  return make({ clock, local, shared: inUse.shared, state, memory }, key);
}
