/**
 * Balancing, as the kernel asks for it: health, choice, splits, sticky sessions, circuit breakers and retries.
 */
import { fields as backupFields } from "../config/backup.ts";
import { fields as breakerFields } from "../config/circuit_breaker.ts";
import { fields as hashFields } from "../config/hash_on.ts";
import { fields as healthFields } from "../config/health.ts";
import { fields as retryFields } from "../config/retries.ts";
import { fields as headerFields } from "../config/sent_headers.ts";
import { fields as splitFields } from "../config/split.ts";
import { fields as recordFields } from "../config/srv.ts";
import { fields as stickyFields } from "../config/sticky.ts";
import { isWorker, type Threads } from "../base/threads.ts";
import type { Service } from "../config/model.ts";
import { attempts, onlyPicker } from "../upstream/attempts.ts";
import { balancerOf } from "../upstream/balance.ts";
import type { Balancing, BalancingTools, MakePicker } from "../upstream/balancing.ts";
import { Breaker, BREAKER_BYTES, guarded } from "../upstream/breaker.ts";
import { elsewhere, giveHealth, pickerAmong } from "../upstream/choice.ts";
import type { LatePlace } from "../upstream/contracts.ts";
import { hashing, hashKey } from "../upstream/hash.ts";
import { endpointHash, HealthTable, healthTableBytes } from "../upstream/endpoint_health.ts";
import { Health, HEALTH_BYTES, PublishedHealth } from "../upstream/health.ts";
import { repeatedly, ReplayMemory, RetryBudget, retryPolicy } from "../upstream/retries.ts";
import { MAX_TARGETS } from "../upstream/endpoints.ts";
import { splitPicker } from "../upstream/split.ts";
import { drawnKey, KEY_BYTES, type SignedNames, Sticky, type StickyOptions } from "../upstream/sticky.ts";
import type { Peer, UpstreamPlan, UpstreamSet } from "../upstream/upstream_set.ts";
import { ActiveChecks, checksOf } from "./active_checks.ts";

export { applyPlans } from "../upstream/choice.ts";
export { followedUpstreams } from "./endpoint_sets.ts";

export const fields = [
  healthFields,
  hashFields,
  stickyFields,
  splitFields,
  backupFields,
  headerFields,
  recordFields,
  breakerFields,
  retryFields,
];

export const healthOf: Balancing["healthOf"] = (options, memory, failures) =>
  failures === null ? new Health(options, memory) : new PublishedHealth(options, memory!, failures);

export const activeChecks: Balancing["activeChecks"] = (clock) => new ActiveChecks(clock);

export const balancedBy: Balancing["balancedBy"] = (service, upstreamSet, tools) => {
  const { name, health, split: shares, circuitBreaker: settings } = service;
  const { clock, log, changes, dialTo, memory, lasting } = tools;
  const planned = healthPlans(service, upstreamSet, tools);
  const picker: MakePicker = (some, choosable) => pickerAmong(changes, some, balancerOf(service, hashing), choosable);
  const made = () =>
    new Breaker({ clock, log, service: name, memory: memory(`breaker ${name}`, BREAKER_BYTES) }, settings!);
  const breaker = settings === undefined ? null : { breaker: upstreamSet.breaker ?? made(), settings };
  const checks = health.enabled ? checksOf(health, dialTo) : null;
  const signed: SignedNames = new Map();
  return (given) => {
    const plans = planned(given);
    const peers = plans.map(({ peer }) => peer);
    const split = shares === undefined ? null : splitPicker(shares, { plans, picker }, hashKey);
    const isAlone = hasOneServer(service, tools) && plans[0]!.health === null;
    const chosen = split ?? (isAlone ? onlyPicker(peers[0]!) : picker(peers));
    const sticky = stickyOf(service, { peers, former: formerIds(plans), signed, clock }, lasting);
    return {
      plans,
      split,
      sticky,
      breaker,
      checks: checks && checks(peers),
      picker: sticky === null ? chosen : sticky.picker(chosen),
      guarded(tries) {
        const behind = breaker === null ? tries : guarded(tries, breaker.breaker);
        return sticky === null ? behind : sticky.handler(behind);
      },
    };
  };
};

/** Whether it has never another upstream. */
function hasOneServer({ upstreams }: Service, { followed }: Pick<BalancingTools, "followed">): boolean {
  return upstreams.length === 1 && followed === 0;
}

/** The only upstream of a service without active checks is never ejected, and its failures need not be counted. */
function healthPlans(
  service: Service,
  upstreamSet: UpstreamSet,
  tools: BalancingTools,
): (plans: readonly UpstreamPlan[]) => readonly UpstreamPlan[] {
  const { name, protocol, health, upstreams } = service;
  const { memory, lasting, followed } = tools;
  const { enabled, healthyThreshold, unhealthyThreshold, passive } = health;
  if (!enabled && hasOneServer(service, tools)) return (plans) => plans;
  const settings = { active: enabled ? { healthyThreshold, unhealthyThreshold } : null, passive };
  if (followed > 0) {
    const places = followed * MAX_TARGETS + upstreams.length;
    const key = `health ${JSON.stringify([name, places])}`;
    const table = lasting.count > 1 ? new HealthTable(memory(key, healthTableBytes(places))) : null;
    const placeOf = ({ id, host, port, health: known }: Peer): LatePlace | null => {
      if (table === null || known.memory === table.memory) return null;
      const hash = endpointHash([id, protocol, host, port]);
      return { memory: table.memory, take: () => (isWorker(lasting) ? table.find(hash) : table.give(hash)) };
    };
    // Health is made when the set is in force: what a set holds in the table is given back then.
    return (plans) => plans.map((plan) => ({ ...plan, health: settings, memory: placeOf(plan.peer) }));
  }
  return (plans) =>
    plans.map((plan) => {
      const { id, host, port } = plan.peer;
      const key = `health ${JSON.stringify([name, id, protocol, host, port])}`;
      const planned = { ...plan, health: settings, memory: lasting.count > 1 ? memory(key, HEALTH_BYTES) : null };
      // What of a new one is ready need not be made in the turn in which all of them come into force.
      if (upstreamSet.withId(id) !== plan.peer) giveHealth(planned, upstreamSet, tools);
      return planned;
    });
}

function formerIds(plans: readonly UpstreamPlan[]): StickyOptions["former"] {
  return new Map(plans.flatMap(({ peer, formerId }) => (formerId === undefined ? [] : [[formerId, peer] as const])));
}

/** Null: the service has no sticky sessions. */
function stickyOf(
  service: Service,
  given: Pick<StickyOptions, "peers" | "former" | "signed" | "clock">,
  lasting: Threads,
): Sticky | null {
  if (service.sticky === undefined) return null;
  const { secret, ...settings } = service.sticky;
  const key = secret ?? drawnKey(lasting.memory("key of sticky sessions", KEY_BYTES));
  return new Sticky({ ...settings, ...given, service, key });
}

export const triesOf: Balancing["triesOf"] = (retries, options, upstreamSet, common) => {
  if (retries === undefined) return attempts({ ...options, afterFailure: elsewhere(options) });
  const memory = common("bodies for retries", () => new ReplayMemory());
  upstreamSet.budget ??= new RetryBudget(options.forwarding.clock);
  return repeatedly(options, { policy: retryPolicy(retries), budget: upstreamSet.budget, memory });
};
