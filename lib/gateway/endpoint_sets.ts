/**
 * The upstreams of a service whose servers are others with time: follows the targets of SRV records and the addresses
 * of names, and puts each other set of endpoints behind the handlers of its routes. Plugins, table and other services
 * are not touched, and what the endpoints that stay have, they keep.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { atOnce, createTimeSlices, inSlices, paced, type NextTimeSlice } from "../base/time_slices.ts";
import type { Service, Upstream } from "../config/model.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { Reply } from "../http/reply.ts";
import type { RequestSplit, StickySessions } from "../upstream/balancing.ts";
import type { HostName, TargetsRecord } from "../upstream/contracts.ts";
import { addressEndpoints, recordEndpoints } from "../upstream/endpoints.ts";
import {
  OTHERS,
  type UpstreamEndpoint,
  type Peer,
  type UpstreamPlan,
  type UpstreamSet,
} from "../upstream/upstream_set.ts";
import type { HandlerFor, UpstreamsMaker } from "./compile_types.ts";
import type { FeatureContext } from "./features.ts";
import type { EndpointsFollowing, InUse, PlannedPools, Runtime, UpstreamSetPlan } from "./runtime.ts";
import { serverEndpoint } from "./upstreams.ts";

/** Changes within this time are put into force together, in milliseconds. */
const TOGETHER_MS = 10;
/** Endpoints with figures of their own in metrics; further ones share a name. */
const MAX_LABELLED = 64;
/** How long figures of an endpoint that is gone can be asked for, in milliseconds. */
const GONE_MS = 60_000;
/** Less than a millisecond of work, where all are new. */
const ENDPOINTS_OF_A_STEP = 20;
/** Milliseconds of work for those that come, and as many that leave, to be in force. */
const CHANGES_OF_A_TURN = 200;

export function* followedUpstreams(
  service: Service,
  maker: UpstreamsMaker,
  context: FeatureContext,
): Generator<void, HandlerFor> {
  const followed = new FollowedUpstreams(service, maker, context);
  yield* followed.begin(context.inUse);
  return followed.handlerFor;
}

/** A set of endpoints, made and not yet in force. */
interface MadeSet extends ReturnType<UpstreamsMaker["set"]> {
  readonly pools: PlannedPools;
}

class FollowedUpstreams implements UpstreamSetPlan {
  readonly upstreamSet: UpstreamSet;
  readonly following: EndpointsFollowing;
  readonly #service: Service;
  readonly #maker: UpstreamsMaker;
  readonly #runtime: Runtime;
  readonly #clock: Clock;
  readonly #context: Pick<FeatureContext, "log" | "plan">;
  readonly #records: ReadonlyMap<string, TargetsRecord>;
  /** Those of which each address is an endpoint, by host. */
  readonly #names: ReadonlyMap<string, HostName>;
  /** Of the unit that it belongs to; every snapshot with that unit has this object. */
  readonly #pools: PlannedPools = new Map();
  readonly #handlers: { readonly timeouts: Service["timeouts"]; now: Handler }[] = [];
  readonly #expanded = new Map<
    Upstream,
    { readonly answer: object; readonly endpoints: readonly UpstreamEndpoint[] }
  >();
  /** Set by `begin`. */
  #now!: MadeSet;
  /** What `#now` was made of. */
  #endpoints: readonly UpstreamEndpoint[];
  /** By id, the endpoints that were in force when it was compiled; null: it has been in force itself. */
  #beside: ReadonlyMap<string, Peer> | null;
  #unfollow: (() => void)[] = [];
  /** Null: it is not in force. */
  #state: "waiting" | "due" | "making" | null = null;
  #due: Timer | null = null;
  #gone: Timer | null = null;
  /** Of all services: those of one name change together. */
  readonly #nextTurn: NextTimeSlice;
  /** Called when the first answer of every record is in force. */
  readonly #awaiting = new Set<() => void>();

  constructor(service: Service, maker: UpstreamsMaker, { runtime, log, plan }: FeatureContext) {
    this.#service = service;
    this.#maker = maker;
    this.#runtime = runtime;
    this.#clock = runtime.clock;
    this.#nextTurn = runtime.common("turns of changed endpoints", createTimeSlices);
    this.#context = { log, plan };
    this.upstreamSet = maker.upstreamSet;
    const names = service.upstreams.flatMap((upstream) => ("srv" in upstream ? upstream.srv : []));
    this.#records = new Map(names.map((name) => [name, runtime.record(name)]));
    const hosts = service.upstreams.flatMap((each) => ("srv" in each || !maker.follows(each) ? [] : each.host));
    this.#names = new Map(hosts.map((host) => [host, runtime.hostName(host)]));
    this.#endpoints = this.#wanted();
    this.#beside = new Map(this.upstreamSet.peers.map((peer) => [peer.id, peer]));
    this.following = {
      service,
      records: [...this.#records.values()],
      names: [...this.#names.values()],
      refresh: () => this.#refresh(),
      follow: () => this.#follow(),
      leave: () => this.#leave(),
      afterFirst: (listeners) => this.#addAwaiting(listeners),
    };
  }

  /** Makes its first set. */
  *begin(inUse: InUse): Generator<void, void> {
    this.#now = yield* this.#made(this.#endpoints, []);
    this.#use(inUse);
  }

  get plans(): UpstreamSetPlan["plans"] {
    return this.#now.set.plans;
  }

  get breaker(): UpstreamSetPlan["breaker"] {
    return this.#now.set.breaker;
  }

  get checks(): UpstreamSetPlan["checks"] {
    return this.#now.set.checks;
  }

  get split(): RequestSplit | null {
    return this.#now.set.split ?? null;
  }

  get sticky(): StickySessions | null {
    return this.#now.set.sticky ?? null;
  }

  readonly handlerFor: HandlerFor = (timeouts) => {
    const handler = { timeouts, now: this.#now.handlerFor(timeouts) };
    this.#handlers.push(handler);
    return (exchange) => (this.#isAwaited ? this.#afterFirst(exchange, handler) : handler.now(exchange));
  };

  #use(inUse: InUse): void {
    for (const [key, pool] of this.#now.pools) this.#pools.set(key, pool);
    inUse.pools.set(this.#service.name, this.#pools);
    inUse.upstreamSets.set(this.#service.name, this);
    this.#nameEndpoints();
  }

  /** Whether there is nobody to ask but those whom a record or a name that has not been looked up yet may have. */
  get #isAwaited(): boolean {
    if (this.#state === null || !this.#endpoints.every((each) => this.#isLate(each))) return false;
    if (this.#state !== "waiting") return true;
    const { records, names } = this.following;
    return records.some(({ state }) => state === "unknown") || names.some(({ isAwaited }) => isAwaited);
  }

  /**
   * Whether others come before it. A name that is not known yet is an endpoint, too, with which a request need not wait
   * unless it belongs to one of the addresses.
   */
  #isLate({ rank = 0, host, address }: UpstreamEndpoint): boolean {
    if (rank > 0) return true;
    if (!this.#hasAffinity || address !== undefined) return false;
    const name = this.#names.get(host);
    // With several its addresses are known, and not in force yet.
    return name !== undefined && (name.isAwaited || name.hasHadSeveral);
  }

  get #hasAffinity(): boolean {
    const { sticky, loadBalancingStrategy: strategy } = this.#service;
    return sticky !== undefined || strategy === "hash" || strategy === "ip_hash";
  }

  /** As with a name that has not been looked up yet: at most as long as a connection may take. */
  async #afterFirst(exchange: Exchange, handler: { readonly now: Handler }): Promise<Reply> {
    const { connectMs } = this.#service.timeouts;
    await new Promise<void>((resolve) => {
      const end = () => {
        this.#awaiting.delete(end);
        late.cancel();
        resolve();
      };
      const late = this.#clock.after(connectMs, end);
      this.#awaiting.add(end);
      exchange.call.onEnd(end);
    });
    return handler.now(exchange);
  }

  #wanted(): readonly UpstreamEndpoint[] {
    return this.#service.upstreams.flatMap((upstream) => {
      if ("srv" in upstream) {
        const { targets } = this.#records.get(upstream.srv)!;
        return this.#latest(upstream, targets, () => recordEndpoints(upstream, targets));
      }
      const name = this.#names.get(upstream.host);
      if (name === undefined) return serverEndpoint(upstream);
      return this.#latest(upstream, name.addresses, () => addressEndpoints(upstream, name));
    });
  }

  /** The endpoints of an upstream are the same objects while `answer` is. */
  #latest(upstream: Upstream, answer: object, make: () => readonly UpstreamEndpoint[]): readonly UpstreamEndpoint[] {
    let known = this.#expanded.get(upstream);
    if (known?.answer !== answer) this.#expanded.set(upstream, (known = { answer, endpoints: make() }));
    return known.endpoints;
  }

  /** `staying`: those of its own that are taken over as they are. */
  *#made(endpoints: readonly UpstreamEndpoint[], staying: readonly Peer[]): Generator<void, MadeSet> {
    const known = new Map(staying.map((peer) => [peer.id, peer]));
    const poolKeys = new Map(Array.from(this.#pools, ([key, planned]) => [planned.pool, [key, planned] as const]));
    const pools: PlannedPools = new Map();
    const plans: UpstreamPlan[] = [];
    for (const endpoint of endpoints) {
      const peer = known.get(endpoint.id);
      if (peer === undefined) plans.push(this.#maker.plan(endpoint, pools));
      else {
        const [key, planned] = poolKeys.get(peer.pool)!;
        pools.set(key, planned);
        plans.push({ ...endpoint, peer, health: null });
      }
      if (plans.length % ENDPOINTS_OF_A_STEP === 0) yield;
    }
    return { ...this.#maker.set(plans), pools };
  }

  #refresh(): void {
    const wanted = this.#wanted();
    const peers = this.#peers;
    const staying = peers.filter((peer) => this.#isAsCompiled(peer));
    this.#beside = null;
    if (staying.length === peers.length && areSame(wanted, this.#endpoints)) return;
    const made = atOnce(this.#made(wanted, staying));
    this.#pools.clear();
    for (const [key, pool] of made.pools) this.#pools.set(key, pool);
    this.#take(made, wanted);
  }

  /**
   * Whether the endpoint in force is the same as when it was compiled. If it has left since, its connections and health
   * are closed; if it has left and come back, or come, those in force have the connections and the health.
   */
  #isAsCompiled(peer: Peer): boolean {
    const before = this.#beside === null ? peer : this.#beside.get(peer.id);
    return peer.pool.keepsIdle && this.upstreamSet.withId(peer.id) === before;
  }

  get #peers(): readonly Peer[] {
    return this.#now.set.plans.map(({ peer }) => peer);
  }

  #take(made: MadeSet, endpoints: readonly UpstreamEndpoint[]): void {
    this.#serve(made, endpoints);
    this.#nameEndpoints();
  }

  #serve(made: MadeSet, endpoints: readonly UpstreamEndpoint[]): void {
    this.#now = made;
    this.#endpoints = endpoints;
    for (const handler of this.#handlers) handler.now = made.handlerFor(handler.timeouts);
  }

  #follow(): void {
    this.#state = "waiting";
    this.#gone = null;
    const sources = [...this.#records.values(), ...this.#names.values()];
    this.#unfollow = sources.map((source) => source.onChange(() => this.#changed()));
    if (!this.#isAwaited) this.#release();
  }

  #leave(): void {
    this.#state = null;
    for (const end of this.#unfollow) end();
    this.#unfollow = [];
    this.#due?.cancel();
    this.#gone?.cancel();
    if (this.#awaiting.size === 0) return;
    const successor = this.#runtime.upstreamsOf(this.#service.name);
    if (successor?.following === undefined || successor === this) this.#release();
    else successor.following.afterFirst([() => this.#followSuccessor(), ...this.#awaiting]);
  }

  /**
   * After a reload, for requests that wait through it: of what its records name, it has those endpoints that the
   * configuration in force has, too, with the same connections. There may be none.
   */
  #followSuccessor(): void {
    const isInForce = (endpoint: UpstreamEndpoint) =>
      this.#maker.plan(endpoint, new Map()).peer === this.upstreamSet.withId(endpoint.id);
    try {
      const endpoints = this.#wanted().filter(isInForce);
      this.#serve(atOnce(this.#made(endpoints, [])), endpoints);
    } catch (error) {
      this.#logUnchanged(error);
    }
  }

  #addAwaiting(listeners: Iterable<() => void>): void {
    for (const each of listeners) this.#awaiting.add(each);
  }

  #changed(): void {
    if (this.#state !== "waiting") return;
    this.#state = "due";
    this.#due = this.#clock.after(TOGETHER_MS, () => void this.#change());
  }

  async #change(): Promise<void> {
    this.#state = "making";
    const before = this.#endpoints;
    const wanted = this.#wanted();
    try {
      for (const endpoints of setsBetween(before, wanted)) {
        await this.#nextTurn();
        const made = await inSlices(this.#made(endpoints, this.#peers), paced());
        // A slice of its own.
        await this.#nextTurn();
        // A reload may have put another configuration into force.
        if (this.#state !== "making") return;
        this.#inForce(made, endpoints);
      }
      this.#logChange(before);
      // The first answer may say that one that was taken out before a restart is no endpoint any more.
      if (this.#endpoints === before) this.#runtime.takenOut?.applied();
    } catch (error) {
      this.#logUnchanged(error);
    }
    if (this.#state !== "making") return;
    this.#state = "waiting";
    // Meanwhile a record or a name may have changed again.
    if (!areSame(this.#wanted(), wanted)) this.#changed();
    else if (!this.#isAwaited) this.#release();
  }

  #logUnchanged(error: unknown): void {
    this.#context.log.error("the endpoints of a service stay as they are", {
      service: this.#service.name,
      error: messageOf(error, "stack"),
    });
  }

  #inForce(made: MadeSet, endpoints: readonly UpstreamEndpoint[]): void {
    this.#take(made, endpoints);
    this.#runtime.replace(this, made.pools);
    this.#gone ??= this.#clock.after(GONE_MS, () => this.#dropGone());
  }

  #logChange(before: readonly UpstreamEndpoint[]): void {
    const gone = new Set(before.map(({ id }) => id));
    const added = this.#endpoints.filter(({ id }) => !gone.delete(id)).length;
    if (added + gone.size === 0) return;
    this.#context.log.info("the endpoints of a service have changed", {
      service: this.#service.name,
      endpoints: this.#endpoints.length,
      new: added,
      gone: gone.size,
    });
  }

  /** Each after its own time: a record may change more often than that. */
  #dropGone(): void {
    const now = this.#clock.now();
    const next = this.#context.plan?.dropGone(this.#service.name, now - GONE_MS) ?? null;
    this.#gone = next === null ? null : this.#clock.after(next + GONE_MS - now, () => this.#dropGone());
  }

  #release(): void {
    const ended = [...this.#awaiting];
    this.#awaiting.clear();
    for (const end of ended) end();
  }

  /** Gives those that have no name in metrics one of their own, while there are any, or the common one. */
  #nameEndpoints(): void {
    const peers = this.#now.set.plans.map(({ peer }) => peer);
    const isCommon = (peer: Peer) => peer.label !== peer.id;
    let left =
      MAX_LABELLED - peers.filter((peer) => this.upstreamSet.withId(peer.id) === peer && !isCommon(peer)).length;
    for (const peer of peers) if (this.upstreamSet.withId(peer.id) !== peer) peer.label = left-- > 0 ? peer.id : OTHERS;
    this.#context.plan?.setUpstreams(this.#service.name, peers, this.#clock.now());
  }
}

/**
 * The sets on the way from one to another, whose last is the other: too many changes at once would hold up requests.
 * None: they are the same.
 */
function* setsBetween(
  before: readonly UpstreamEndpoint[],
  wanted: readonly UpstreamEndpoint[],
): Generator<readonly UpstreamEndpoint[], void> {
  if (areSame(before, wanted)) return;
  const known = new Set(before.map(({ id }) => id));
  const staying = new Set(wanted.map(({ id }) => id));
  const gone = before.filter(({ id }) => !staying.has(id));
  for (let most = CHANGES_OF_A_TURN; ; most += CHANGES_OF_A_TURN) {
    let left = most;
    const come = wanted.filter(({ id }) => known.has(id) || left-- > 0);
    const isLast = come.length === wanted.length && gone.length <= most;
    yield isLast ? wanted : [...come, ...gone.slice(most)];
    if (isLast) return;
  }
}

function areSame(some: readonly UpstreamEndpoint[], others: readonly UpstreamEndpoint[]): boolean {
  return (
    some.length === others.length &&
    some.every((one, i) => {
      const other = others[i]!;
      return one === other || (other.id === one.id && other.weight === one.weight && other.rank === one.rank);
    })
  );
}
