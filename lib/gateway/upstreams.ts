/**
 * Compiles the upstreams of a service into the innermost handlers of its routes.
 */
import type { DialTo, Egress } from "../base/egress.ts";
import { isForeignName } from "../base/ip_address.ts";
import type { RecordUpstream, ServerUpstream, Service, Upstream } from "../config/model.ts";
import type { Handler } from "../http/handler.ts";
import { attempts, onlyPicker, type AttemptsMeter, type AttemptsOptions } from "../upstream/attempts.ts";
import { isSecure } from "../upstream/connect.ts";
import type { ForwardOptions } from "../upstream/try.ts";
import type { UpstreamEndpoint, UpstreamSet } from "../upstream/upstream_set.ts";
import type { FeatureContext } from "./features.ts";
import type { HandlerFor, UpstreamsMaker } from "./compile_types.ts";
import type { PlannedPools } from "./runtime.ts";

export function* compileUpstreams(
  service: Service,
  meter: AttemptsMeter | null,
  context: FeatureContext,
): Generator<void, HandlerFor> {
  const { name, upstreams, tls } = service;
  const { log, inUse, features } = context;
  if (tls?.verify === false)
    log.warn("upstream certificates are not verified: traffic can be intercepted and modified", { service: name });
  const maker = upstreamsMaker(service, meter, context);
  if (upstreams.some(maker.follows)) return yield* features.balancing.followedUpstreams(service, maker, context);
  const pools: PlannedPools = new Map();
  const plans = upstreams.filter(isServer).map((upstream) => maker.plan(serverEndpoint(upstream), pools));
  const { set, handlerFor } = maker.set(plans);
  inUse.pools.set(name, pools);
  inUse.upstreamSets.set(name, set);
  return handlerFor;
}

function isRecord(upstream: Upstream): upstream is RecordUpstream {
  return "srv" in upstream;
}

function isServer(upstream: Upstream): upstream is ServerUpstream {
  return !isRecord(upstream);
}

export function serverEndpoint({ backup = false, ...server }: ServerUpstream): UpstreamEndpoint {
  return { ...server, rank: backup ? 1 : 0 };
}

function upstreamsMaker(service: Service, meter: AttemptsMeter | null, context: FeatureContext): UpstreamsMaker {
  const { features, runtime, log, egress, inUse, gatewayName } = context;
  const { name, protocol, pool, proxyProtocol } = service;
  const tls = isSecure(protocol)
    ? new features.outbound.UpstreamTls(service.tls, { clock: runtime.clock, handshakes: context.metrics })
    : undefined;
  const hasRecords = service.upstreams.some(isRecord);
  const follows = (upstream: Upstream) => isRecord(upstream) || hasAddresses(upstream, service, egress);
  const followed = service.upstreams.filter(follows).length;
  const hasOneServer = service.upstreams.length === 1 && followed === 0;
  const dialTo: DialTo = (to) => {
    const dial = (hasRecords ? egress.with(to) : egress).dialer(to);
    return proxyProtocol === undefined ? dial : features.outbound.proxiedDial(dial, proxyProtocol, to);
  };
  const upstreamSet = runtime.upstreamSet(name);
  const memory = (key: string, bytes: number) => runtime.memory(key, bytes, inUse);
  const tools = { ...runtime.healthTools, log, dialTo, memory, lasting: runtime.lasting, followed };
  const balanced = hasOneServer && isPlain(service) ? null : features.balancing.balancedBy(service, upstreamSet, tools);
  return {
    upstreamSet,
    follows,
    plan(endpoint, pools) {
      const { id, host, port, address } = endpoint;
      const destination = { host, port, why: "upstream" };
      const dial = dialTo(destination);
      const proxy = egress.proxyTo(destination);
      const options = {
        protocol,
        host,
        port,
        dial,
        keepaliveIdleMs: pool.keepaliveIdleMs,
        ...(address && { address }),
        ...(proxyProtocol && { proxyProtocol }),
        ...(tls === undefined ? {} : { tls }),
        ...(proxy === null ? {} : { proxy: proxy.identity }),
      };
      const peer = upstreamSet.peer(id, runtime.pool(name, options, pool.maxConnections, pools));
      return { ...endpoint, peer, health: null };
    },
    set(plans) {
      const { picker, guarded, ...set } =
        balanced === null ? { ...PLAIN, plans, picker: onlyPicker(plans[0]!.peer) } : balanced(plans);
      const handlerFor: HandlerFor = (timeouts) => {
        const forwarding = forwardOptions(service, timeouts, viaNameOf(gatewayName), context);
        const options = { picker, forwarding, totalMs: timeouts.totalMs, meter, log };
        const isTriedOnce = service.retries === undefined ? hasOneServer : service.retries.attempts === 0;
        const tries = isTriedOnce ? attempts(options) : triesOf(service, options, upstreamSet, context);
        return guarded === null ? tries : guarded(tries);
      };
      return { set: { upstreamSet, ...set }, handlerFor };
    },
  };
}

/** Whether each address of its name is a server. A proxy looks names up itself. */
function hasAddresses({ host, port }: ServerUpstream, { health }: Service, egress: Egress): boolean {
  if (health.addresses === "one" || !isForeignName(host)) return false;
  return egress.proxyTo({ host, port, why: "upstream" }) === null;
}

/** Whether its one server gets every request, whatever it has done with those before. */
function isPlain({ health, split, sticky, circuitBreaker }: Service): boolean {
  return !health.enabled && (split ?? sticky ?? circuitBreaker) === undefined;
}

const PLAIN = { guarded: null, breaker: null, checks: null };

function triesOf(
  service: Service,
  options: AttemptsOptions,
  upstreamSet: UpstreamSet,
  { features, runtime }: FeatureContext,
): Handler {
  const common = <T>(name: string, make: () => T) => runtime.common(name, make);
  return features.balancing.triesOf(service.retries, options, upstreamSet, common);
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
