/**
 * Compiles the upstreams of a service into the innermost handler of its routes.
 */
import type { Service } from "../config/model.ts";
import type { Handler } from "../http/handler.ts";
import { attempts, type AttemptsMeter, type AttemptsOptions } from "../upstream/attempts.ts";
import type { HealthSettings } from "../upstream/contracts.ts";
import { isSecure } from "../upstream/connect.ts";
import type { ForwardOptions } from "../upstream/try.ts";
import { onlyPicker, type MakePicker, type Member, type Peer } from "../upstream/upstream_set.ts";
import type { StickySessions, UpstreamSet } from "../upstream/upstream_set.ts";
import type { PluginContext } from "./compile_types.ts";
import type { Runtime, UpstreamSetPlan } from "./runtime.ts";

/** The handler forwards a request to one of the upstreams. */
export function compileUpstreams(
  service: Service,
  meter: AttemptsMeter | null,
  { runtime, log, egress, inUse, gatewayName }: PluginContext,
): Handler {
  const { name, protocol, pool } = service;
  const { parts } = runtime;
  const tls = isSecure(protocol) ? new (parts.part("upstreamTls").UpstreamTls)(service.tls) : undefined;
  if (service.tls?.verify === false)
    log.warn("upstream certificates are not verified: traffic can be intercepted and modified", { service: name });
  const upstreamSet = runtime.upstreamSet(name);
  const health = healthSettings(service);
  const members = service.upstreams.map(({ id, host, port, weight, group }): Member => {
    const dial = egress.dialer({ host, port, why: "upstream" });
    const options = {
      protocol,
      host,
      port,
      dial,
      keepaliveIdleMs: pool.keepaliveIdleMs,
      ...(tls === undefined ? {} : { tls }),
    };
    const isShared = health !== null && runtime.threads.count > 1;
    const memory = isShared
      ? runtime.memory(
          `health ${JSON.stringify([name, id, protocol, host, port])}`,
          parts.part("health").HEALTH_BYTES,
          inUse,
        )
      : null;
    const peer = upstreamSet.peer(id, runtime.pool(name, options, pool.maxConnections, inUse));
    return { peer, weight, group, health, memory };
  });
  const breaker = breakerOf(service, upstreamSet, { runtime, log, inUse });
  const peers = members.map(({ peer }) => peer);
  const pickerOf: MakePicker = (some, choosable) => {
    const { pickerAmong, balancerOf } = parts.part("choice");
    return pickerAmong(
      runtime.healthTools.changes,
      some,
      balancerOf(service, (...hashed) => parts.part("hash").hashing(...hashed)),
      choosable,
    );
  };
  const hashKey = (hashOn: string) => parts.part("hash").hashKey(hashOn);
  const split =
    service.split === undefined
      ? null
      : parts.part("split").splitPicker(service.split, { members, picker: pickerOf }, hashKey);
  const sticky = stickyOf(service, peers, runtime);
  const checks = service.health.enabled ? parts.part("healthChecks").checksOf(service.health, peers, egress) : null;
  inUse.upstreamSets.set(name, { upstreamSet, members, breaker, checks, split, sticky });
  const picker = split ?? (health === null ? onlyPicker(peers[0]!) : pickerOf(peers));
  const options = {
    picker: sticky === null ? picker : sticky.picker(picker),
    forwarding: forwardOptions(service, viaNameOf(gatewayName), runtime),
    totalMs: service.timeouts.totalMs,
    meter,
    log,
  };
  const tries = triesOf(service, options, upstreamSet, runtime);
  const handler = breaker === null ? tries : parts.part("breaker").guarded(tries, breaker.breaker);
  return sticky === null ? handler : sticky.handler(handler);
}

function triesOf(
  { retries, upstreams }: Service,
  options: AttemptsOptions,
  upstreamSet: UpstreamSet,
  runtime: Runtime,
): Handler {
  if (retries === undefined && upstreams.length > 1)
    return attempts({ ...options, failed: runtime.parts.part("choice").elsewhere(options) });
  if (retries === undefined || retries.attempts === 0) return attempts(options);
  const { ReplayMemory, RetryBudget, repeatedly, retryPolicy } = runtime.parts.part("retries");
  const memory = runtime.common("bodies for retries", () => new ReplayMemory());
  upstreamSet.budget ??= new RetryBudget(runtime.clock);
  return repeatedly(options, { policy: retryPolicy(retries), budget: upstreamSet.budget, memory });
}

/** Null: the service has no circuit breaker. */
function breakerOf(
  { name, circuitBreaker: settings }: Service,
  { breaker }: UpstreamSet,
  { runtime, log, inUse }: Pick<PluginContext, "runtime" | "log" | "inUse">,
): UpstreamSetPlan["breaker"] {
  if (settings === undefined) return null;
  const { Breaker, BREAKER_BYTES } = runtime.parts.part("breaker");
  const memory = runtime.memory(`breaker ${name}`, BREAKER_BYTES, inUse);
  return { breaker: breaker ?? new Breaker({ clock: runtime.clock, log, service: name, memory }, settings), settings };
}

/** Null: the service has no sticky sessions. */
function stickyOf(service: Service, peers: readonly Peer[], runtime: Runtime): StickySessions | null {
  if (service.sticky === undefined) return null;
  const { secret, ...rest } = service.sticky;
  const { Sticky, KEY_BYTES, drawnKey } = runtime.parts.part("sticky");
  const key = secret ?? drawnKey(runtime.lasting.memory("key of sticky sessions", KEY_BYTES));
  return new Sticky({ ...rest, service, peers, key, clock: runtime.clock });
}

/** The gateway's pseudonym in Via (RFC 9110 §7.6.3: a token). */
export function viaNameOf(gatewayName: string): string {
  return gatewayName.replace(NOT_TOKEN, "-");
}

const NOT_TOKEN = /[^!#$%&'*+.^_`|~0-9A-Za-z-]+/g;

function forwardOptions(
  { timeouts, preserveHost, retries, upstreamClient }: Service,
  viaName: string,
  { clock, parts }: Runtime,
): ForwardOptions {
  const { connectMs, responseMs, idleMs } = timeouts;
  const parser = upstreamClient === "node" && { parser: parts.part("nodeParser").NodeResponseParser };
  return { clock, viaName, preserveHost, connectMs, responseMs, idleMs, tryMs: retries?.perTryMs ?? 0, ...parser };
}

/** Null: the only upstream is never ejected, and its failures need not be counted. */
function healthSettings({
  health: { enabled, healthyThreshold, unhealthyThreshold, passive },
  upstreams,
}: Service): HealthSettings | null {
  if (!enabled && upstreams.length === 1) return null;
  return { active: enabled ? { healthyThreshold, unhealthyThreshold } : null, passive };
}
