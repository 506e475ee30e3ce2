/**
 * The shadow mode of rate limits: requests beyond a limit are counted and logged, and none is refused.
 */
import type { Settle, Tools } from "./plugin.ts";
import { sparseCount } from "./sparse_count.ts";

/** Logs how many requests would have been refused, once a second; never the caller, whose name may be a credential. */
export function shadowing({ clock, log, scope }: Pick<Tools, "clock" | "log" | "scope">): Settle {
  const refused = sparseCount(clock, (requests) =>
    log.warn("rate_limit in shadow mode would have refused", { plugin: scope.path, requests }),
  );
  return (next, exchange, decision) => {
    if (!decision.admitted) refused();
    return next(exchange);
  };
}
