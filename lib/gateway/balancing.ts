/**
 * Balancing, as the kernel asks for it: health, choice, splits, sticky sessions, circuit breakers and retries.
 */
import { fields as breakerFields } from "../config/circuit_breaker.ts";
import { fields as hashFields } from "../config/hash_on.ts";
import { fields as healthFields } from "../config/health.ts";
import { fields as retryFields } from "../config/retries.ts";
import { fields as splitFields } from "../config/split.ts";
import { fields as stickyFields } from "../config/sticky.ts";
import { attempts } from "../upstream/attempts.ts";
import { balancerOf } from "../upstream/balance.ts";
import type { Balancing } from "../upstream/balancing.ts";
import { Breaker } from "../upstream/breaker.ts";
import { elsewhere, pickerAmong } from "../upstream/choice.ts";
import { hashing, hashKey } from "../upstream/hash.ts";
import { Health, PublishedHealth } from "../upstream/health.ts";
import { repeatedly, ReplayMemory, RetryBudget, retryPolicy } from "../upstream/retries.ts";
import { splitPicker } from "../upstream/split.ts";
import { drawnKey, KEY_BYTES, Sticky } from "../upstream/sticky.ts";
import { ActiveChecks } from "./active_checks.ts";

export { BREAKER_BYTES, guarded } from "../upstream/breaker.ts";
export { applyHealth } from "../upstream/choice.ts";
export { HEALTH_BYTES } from "../upstream/health.ts";
export { checksOf } from "./active_checks.ts";

export const fields = [healthFields, hashFields, stickyFields, splitFields, breakerFields, retryFields];

export const healthOf: Balancing["healthOf"] = (options, memory, failures) =>
  failures === null ? new Health(options, memory) : new PublishedHealth(options, memory!, failures);

export const activeChecks: Balancing["activeChecks"] = (clock) => new ActiveChecks(clock);

export const pickersOf: Balancing["pickersOf"] = (service, changes) => (peers, choosable) =>
  pickerAmong(changes, peers, balancerOf(service, hashing), choosable);

export const splitOf: Balancing["splitOf"] = (split, plans, picker) => splitPicker(split, { plans, picker }, hashKey);

export const stickyOf: Balancing["stickyOf"] = ({ secret, ...settings }, service, peers, { clock, memory }) =>
  new Sticky({ ...settings, service, peers, key: secret ?? drawnKey(memory(KEY_BYTES)), clock });

export const breakerOf: Balancing["breakerOf"] = (settings, options) => new Breaker(options, settings);

export const triesOf: Balancing["triesOf"] = (retries, options, upstreamSet, common) => {
  if (retries === undefined) return attempts({ ...options, afterFailure: elsewhere(options) });
  const memory = common("bodies for retries", () => new ReplayMemory());
  upstreamSet.budget ??= new RetryBudget(options.forwarding.clock);
  return repeatedly(options, { policy: retryPolicy(retries), budget: upstreamSet.budget, memory });
};
