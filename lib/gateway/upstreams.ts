/**
 * Compiles the upstreams of a service into the innermost handlers of its routes.
 */
import type { DialTo } from "../base/egress.ts";
import type { Service } from "../config/model.ts";
import type { Handler } from "../http/handler.ts";
import { attempts, onlyPicker, type AttemptsMeter, type AttemptsOptions } from "../upstream/attempts.ts";
import { isSecure } from "../upstream/connect.ts";
import type { ForwardOptions } from "../upstream/try.ts";
import type { UpstreamPlan, UpstreamSet } from "../upstream/upstream_set.ts";
import type { FeatureContext } from "./features.ts";

/** Makes a handler that forwards a request to one of the upstreams, for routes with these timeouts. */
export type HandlerFor = (timeouts: Service["timeouts"]) => Handler;

export function compileUpstreams(service: Service, meter: AttemptsMeter | null, context: FeatureContext): HandlerFor {
  const { features, runtime, log, egress, inUse, gatewayName } = context;
  const { name, protocol, pool, proxyProtocol } = service;
  const tls = isSecure(protocol) ? new features.outbound.UpstreamTls(service.tls) : undefined;
  if (service.tls?.verify === false)
    log.warn("upstream certificates are not verified: traffic can be intercepted and modified", { service: name });
  const dialTo: DialTo = (to) => {
    const dial = egress.dialer(to);
    return proxyProtocol === undefined ? dial : features.outbound.proxiedDial(dial, proxyProtocol, to);
  };
  const upstreamSet = runtime.upstreamSet(name);
  const plans = service.upstreams.map((upstream): UpstreamPlan => {
    const { id, host, port } = upstream;
    const destination = { host, port, why: "upstream" };
    const dial = dialTo(destination);
    const proxy = egress.proxyTo(destination);
    const options = {
      protocol,
      host,
      port,
      dial,
      keepaliveIdleMs: pool.keepaliveIdleMs,
      ...(proxyProtocol && { proxyProtocol }),
      ...(tls === undefined ? {} : { tls }),
      ...(proxy === null ? {} : { proxy: proxy.identity }),
    };
    const peer = upstreamSet.peer(id, runtime.pool(name, options, pool.maxConnections, inUse));
    return { ...upstream, peer, health: null };
  });
  const { healthTools, lasting } = runtime;
  const memory = (key: string, bytes: number) => runtime.memory(key, bytes, inUse);
  const tools = { ...healthTools, log, dialTo, memory, lasting };
  const { picker, guarded, ...balanced } = isPlain(service)
    ? { ...PLAIN, plans, picker: onlyPicker(plans[0]!.peer) }
    : features.balancing.balanced(service, plans, upstreamSet, tools);
  inUse.upstreamSets.set(name, { upstreamSet, ...balanced });
  return (timeouts) => {
    const forwarding = forwardOptions(service, timeouts, viaNameOf(gatewayName), context);
    const options = { picker, forwarding, totalMs: timeouts.totalMs, meter, log };
    const tries = triesOf(service, options, upstreamSet, context);
    return guarded === null ? tries : guarded(tries);
  };
}

/** Whether its one upstream gets every request, whatever it has done with those before. */
function isPlain({ upstreams, health, split, sticky, circuitBreaker }: Service): boolean {
  return upstreams.length === 1 && !health.enabled && (split ?? sticky ?? circuitBreaker) === undefined;
}

const PLAIN = { guarded: null, breaker: null, checks: null };

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

/** The gateway's pseudonym in Via (RFC 9110 §7.6.3: a token). */
export function viaNameOf(gatewayName: string): string {
  return gatewayName.replace(NOT_TOKEN, "-");
}

const NOT_TOKEN = /[^!#$%&'*+.^_`|~0-9A-Za-z-]+/g;

function forwardOptions(
  { preserveHost, retries, upstreamClient }: Service,
  { connectMs, responseMs, idleMs }: Service["timeouts"],
  viaName: string,
  { features, runtime: { clock } }: FeatureContext,
): ForwardOptions {
  const parser = upstreamClient === "node" && { parser: features.nodeHttp1.NodeResponseParser };
  return { clock, viaName, preserveHost, connectMs, responseMs, idleMs, tryMs: retries?.perTryMs ?? 0, ...parser };
}
