/**
 * Compiles the upstreams of a service into the innermost handler of its routes.
 */
import type { Service } from "../config/model.ts";
import type { Handler } from "../http/handler.ts";
import { attempts, onlyPicker, type AttemptsMeter, type AttemptsOptions } from "../upstream/attempts.ts";
import type { MakePicker, StickySessions } from "../upstream/balancing.ts";
import type { HealthSettings } from "../upstream/contracts.ts";
import { isSecure } from "../upstream/connect.ts";
import type { ForwardOptions } from "../upstream/try.ts";
import type { UpstreamPlan, Peer, UpstreamSet } from "../upstream/upstream_set.ts";
import type { FeatureContext } from "./features.ts";
import type { UpstreamSetPlan } from "./runtime.ts";

/** The handler forwards a request to one of the upstreams. */
export function compileUpstreams(service: Service, meter: AttemptsMeter | null, context: FeatureContext): Handler {
  const { features, runtime, log, egress, inUse, gatewayName } = context;
  const { name, protocol, pool } = service;
  const tls = isSecure(protocol) ? new features.upstreamTls.UpstreamTls(service.tls) : undefined;
  if (service.tls?.verify === false)
    log.warn("upstream certificates are not verified: traffic can be intercepted and modified", { service: name });
  const upstreamSet = runtime.upstreamSet(name);
  const health = healthSettings(service);
  const plans = service.upstreams.map(({ id, host, port, weight, group }): UpstreamPlan => {
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
          features.balancing.HEALTH_BYTES,
          inUse,
        )
      : null;
    const peer = upstreamSet.peer(id, runtime.pool(name, options, pool.maxConnections, inUse));
    return { peer, weight, group, health, memory };
  });
  const breaker = breakerOf(service, upstreamSet, context);
  const peers = plans.map(({ peer }) => peer);
  const pickerOf: MakePicker = (some, choosable) =>
    features.balancing.pickersOf(service, runtime.healthTools.changes)(some, choosable);
  const split = service.split === undefined ? null : features.balancing.splitOf(service.split, plans, pickerOf);
  const sticky = stickyOf(service, peers, context);
  const checks = service.health.enabled ? features.balancing.checksOf(service.health, peers, egress) : null;
  inUse.upstreamSets.set(name, { upstreamSet, plans, breaker, checks, split, sticky });
  const picker = split ?? (health === null ? onlyPicker(peers[0]!) : pickerOf(peers));
  const options = {
    picker: sticky === null ? picker : sticky.picker(picker),
    forwarding: forwardOptions(service, viaNameOf(gatewayName), context),
    totalMs: service.timeouts.totalMs,
    meter,
    log,
  };
  const tries = triesOf(service, options, upstreamSet, context);
  const handler = breaker === null ? tries : features.balancing.guarded(tries, breaker.breaker);
  return sticky === null ? handler : sticky.handler(handler);
}

function triesOf(
  { retries, upstreams }: Service,
  options: AttemptsOptions,
  upstreamSet: UpstreamSet,
  { features, runtime }: FeatureContext,
): Handler {
  const isTriedOnce = retries === undefined ? upstreams.length === 1 : retries.attempts === 0;
  return isTriedOnce
    ? attempts(options)
    : features.balancing.triesOf(retries, options, upstreamSet, (name, make) => runtime.common(name, make));
}

/** Null: the service has no circuit breaker. */
function breakerOf(
  { name, circuitBreaker: settings }: Service,
  { breaker }: UpstreamSet,
  { features, runtime, log, inUse }: FeatureContext,
): UpstreamSetPlan["breaker"] {
  if (settings === undefined) return null;
  const { balancing } = features;
  const memory = runtime.memory(`breaker ${name}`, balancing.BREAKER_BYTES, inUse);
  const options = { clock: runtime.clock, log, service: name, memory };
  return { breaker: breaker ?? balancing.breakerOf(settings, options), settings };
}

/** Null: the service has no sticky sessions. */
function stickyOf(
  service: Service,
  peers: readonly Peer[],
  { features, runtime }: FeatureContext,
): StickySessions | null {
  if (service.sticky === undefined) return null;
  const memory = (bytes: number) => runtime.lasting.memory("key of sticky sessions", bytes);
  return features.balancing.stickyOf(service.sticky, service, peers, { clock: runtime.clock, memory });
}

/** The gateway's pseudonym in Via (RFC 9110 §7.6.3: a token). */
export function viaNameOf(gatewayName: string): string {
  return gatewayName.replace(NOT_TOKEN, "-");
}

const NOT_TOKEN = /[^!#$%&'*+.^_`|~0-9A-Za-z-]+/g;

function forwardOptions(
  { timeouts, preserveHost, retries, upstreamClient }: Service,
  viaName: string,
  { features, runtime: { clock } }: FeatureContext,
): ForwardOptions {
  const { connectMs, responseMs, idleMs } = timeouts;
  const parser = upstreamClient === "node" && { parser: features.nodeHttp1.NodeResponseParser };
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
