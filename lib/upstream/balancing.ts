/**
 * What the kernel sees of balancing: services that have several upstreams, or say how one is chosen, judged or asked
 * again. The code behind it is `gateway/balancing.ts`.
 */
import type { Clock } from "../base/clock.ts";
import type { Dial, DialTo } from "../base/egress.ts";
import type { Threads } from "../base/threads.ts";
import type { Service } from "../config/model.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { AttemptsOptions, Picker } from "./attempts.ts";
import type { BreakerSettings, CircuitBreaker, FailureCounts, HealthMemory, HealthOptions } from "./contracts.ts";
import type { HealthTools, UpstreamHealth } from "./contracts.ts";
import type { UpstreamPlan, Peer, UpstreamSet } from "./upstream_set.ts";

/** Makes a picker for some upstreams. `choosable`: those of them that may be chosen. */
export type MakePicker = (peers: readonly Peer[], choosable?: (peers: readonly Peer[]) => readonly Peer[]) => Picker;

/** Upstreams, and their share of requests: above 0, at most 1. */
export interface SplitDestination {
  readonly peers: readonly Peer[];
  readonly share: number;
}

/** Divides requests among groups of upstreams. */
export interface RequestSplit extends Picker {
  /** Those without a group, healthy or not. */
  readonly rest: readonly Peer[];
  /** Where a request can go; null: any request. */
  destinations(exchange: Exchange | null): readonly SplitDestination[];
}

/** Sticky sessions of one service. */
export interface StickySessions {
  /** Asks `next` for requests without a session, and for retries. */
  picker(next: Picker): Picker;
  /** The upstream of the request's session; null: it has none, or not one that can be used. */
  session(exchange: Exchange): Peer | null;
  /** Adds the cookie to replies. */
  handler(next: Handler): Handler;
}

/** The upstreams of one service that are probed, and what is connected to for it. */
export interface Probes {
  readonly settings: object;
  readonly dials: ReadonlyMap<Peer, Dial>;
}

/** What a service is compiled with. */
export interface BalancingTools extends HealthTools {
  readonly dialTo: DialTo;
  /** Memory of the configuration that all threads share. */
  readonly memory: (name: string, bytes: number) => ArrayBufferLike;
  readonly lasting: Threads;
  /** How many of its upstreams have servers that are others with time. */
  readonly followed: number;
}

/** The upstreams of one service as a configuration has them. */
export interface BalancedService {
  readonly plans: readonly UpstreamPlan[];
  readonly breaker: { readonly breaker: CircuitBreaker; readonly settings: BreakerSettings } | null;
  /** Null: they are not probed. */
  readonly checks: Probes | null;
  /** Default: requests are not divided among groups. */
  readonly split?: RequestSplit | null;
  /** Default: there are no sticky sessions. */
  readonly sticky?: StickySessions | null;
}

export interface Balancing {
  /** `memory`: null: there is one thread. `failures`: in a worker, where those are reported; null elsewhere. */
  healthOf(options: HealthOptions, memory: HealthMemory | null, failures: FailureCounts | null): UpstreamHealth;
  /** As `UpstreamSet.apply`, with the health of upstreams. `isLogging`: whether this thread logs which are back. */
  applyPlans(
    upstreamSet: UpstreamSet,
    plan: Pick<BalancedService, "plans" | "breaker">,
    tools: HealthTools,
    isLogging: boolean,
  ): void;
  activeChecks(clock: Clock): { apply(service: object, checks: Probes | null): void };
  /**
   * Makes what a service has of its upstreams, once or for each set of them. `plans`: without their health. `guarded`:
   * adds the circuit breaker and sticky sessions.
   */
  balancedBy(
    service: Service,
    upstreamSet: UpstreamSet,
    tools: BalancingTools,
  ): (
    plans: readonly UpstreamPlan[],
  ) => BalancedService & { readonly picker: Picker; readonly guarded: (tries: Handler) => Handler };
  /**
   * The tries of a request to a service with several upstreams, or with `retries` that are not 0. `common`: see
   * `Runtime.common`.
   */
  triesOf(
    retries: Service["retries"],
    options: AttemptsOptions,
    upstreamSet: UpstreamSet,
    common: <T>(name: string, make: () => T) => T,
  ): Handler;
}
