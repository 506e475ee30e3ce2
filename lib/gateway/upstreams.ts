/**
 * Compiles the upstreams of a service into the innermost handler of its routes.
 */
import { statusRanges } from "../config/resilience.ts";
import type { Service } from "../config/model.ts";
import type { Handler } from "../http/handler.ts";
import type { ServiceMeter } from "../observe/metrics.ts";
import { attempts } from "../upstream/attempts.ts";
import { BREAKER_BYTES } from "../upstream/breaker.ts";
import { balancer } from "../upstream/balance.ts";
import type { HealthSettings } from "../upstream/health.ts";
import type { RetryPolicy } from "../upstream/faults.ts";
import { upstreamTls } from "../upstream/connect.ts";
import { hashKey } from "../upstream/hash_key.ts";
import { COUNTER_BYTES, SplitPicker, type SplitOptions } from "../upstream/split.ts";
import type { ForwardOptions } from "../upstream/upstream_request.ts";
import type { Member } from "../upstream/upstream_set.ts";
import type { PluginContext } from "./plugin_instances.ts";
import type { CheckSettings, Runtime } from "./runtime.ts";

/** The handler forwards a request to one of the upstreams. */
export function compileUpstreams(service: Service, meter: ServiceMeter, { runtime, log, egress, inUse, gatewayName }: PluginContext): Handler {
  const { name, protocol, pool, retries, circuitBreaker } = service;
  const tls = service.tls === undefined ? undefined : upstreamTls(service.tls);
  if (tls?.verify === false) log.warn("upstream certificates are not verified: traffic can be intercepted and modified", { service: name });
  const upstreamSet = runtime.upstreamSet(name);
  const members = service.upstreams.map(({ id, host, port, weight, group }): Member => {
    const options = { protocol, host, port, why: "upstream", egress, keepaliveIdleMs: pool.keepaliveIdleMs, ...(tls === undefined ? {} : { tls }) };
    const memory = runtime.healthMemory(name, id, options, inUse);
    const peer = upstreamSet.peer(id, runtime.pool(name, options, pool.maxConnections, inUse), memory);
    return { peer, weight, group, health: healthSettings(service) };
  });
  const breaker = circuitBreaker === undefined ? null : upstreamSet.breaker(circuitBreaker, runtime.memory(`breaker ${name}`, BREAKER_BYTES, inUse));
  const settings = breaker === null ? null : { breaker, settings: circuitBreaker! };
  const strategy = balancer(service);
  const pickerOf: SplitOptions["picker"] = (peers, choosable) => upstreamSet.picker(peers, strategy, choosable);
  const split = service.split === undefined ? null : splitPicker(service, members, pickerOf, (counter) => runtime.memory(counter, COUNTER_BYTES, inUse));
  inUse.upstreamSets.set(name, { upstreamSet, members, breaker: settings, checks: checkSettings(service), split });
  const isRetried = retries !== undefined && retries.attempts > 0;
  return attempts({
    picker: split ?? pickerOf(members.map(({ peer }) => peer)),
    forwarding: forwardOptions(service, viaNameOf(gatewayName), runtime),
    totalMs: service.timeouts.totalMs,
    breaker,
    meter,
    log,
    retries: isRetried ? { policy: retryPolicy(retries), budget: upstreamSet.budget, memory: runtime.replayMemory } : null,
  });
}

function splitPicker({ name, split = [] }: Service, members: readonly Member[], picker: SplitOptions["picker"], memory: (name: string) => ArrayBufferLike): SplitPicker {
  const shares = split.map(({ group, percent, hashOn }) => ({ group, percent, hash: hashOn === undefined ? null : hashKey(hashOn), match: null }));
  return new SplitPicker({ shares, members, picker, counter: (counter) => new Int32Array(memory(`split ${JSON.stringify([name, counter])}`)) });
}

/** The gateway's pseudonym in Via (RFC 9110 §7.6.3: a token). */
export function viaNameOf(gatewayName: string): string {
  return gatewayName.replace(NOT_TOKEN, "-");
}

const NOT_TOKEN = /[^!#$%&'*+.^_`|~0-9A-Za-z-]+/g;

function forwardOptions({ timeouts, preserveHost, retries, upstreamClient }: Service, viaName: string, { clock }: Runtime): ForwardOptions {
  const { connectMs, responseMs, idleMs } = timeouts;
  return { clock, client: upstreamClient, viaName, preserveHost, connectMs, responseMs, idleMs, tryMs: retries?.perTryMs ?? 0 };
}

function healthSettings({ health: { enabled, healthyThreshold, unhealthyThreshold, passive } }: Service): HealthSettings {
  return { active: enabled ? { healthyThreshold, unhealthyThreshold } : null, passive };
}

/** Null: the upstreams are not probed. */
function checkSettings({ health: { enabled, path, intervalMs, timeoutMs, expectStatus } }: Service): CheckSettings | null {
  if (!enabled) return null;
  const ranges = statusRanges(expectStatus);
  const expects = (status: number) => ranges.some(({ from, to }) => status >= from && status <= to);
  return { path, intervalMs, timeoutMs, expects, expectStatus: String(expectStatus) };
}

function retryPolicy({ on, ...rest }: NonNullable<Service["retries"]>): RetryPolicy {
  return { ...rest, on: new Set(on.filter((item) => typeof item === "string")), statuses: new Set(on.filter((item) => typeof item === "number")) };
}
