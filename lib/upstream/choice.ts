/**
 * The choice among the upstreams of a service: of those that can be used, by its strategy; and of another one after a
 * try that has sent nothing.
 */
import { Fault } from "../base/errors.ts";
import {
  LEAST_TRY_MS,
  rethrow,
  tryPeer,
  upstreamFaultReply,
  type AttemptsOptions,
  type Picker,
  type Tries,
} from "./attempts.ts";
import type { Balancer } from "./balance.ts";
import type { BalancedService } from "./balancing.ts";
import type { HealthMemory, HealthTools, LatePlace } from "./contracts.ts";
import { exactly } from "./endpoints.ts";
import { Unsent } from "./faults.ts";
import { OwnHeaders } from "./own_headers.ts";
import { isUntouched } from "./try.ts";
import { ALWAYS_USABLE, type UpstreamPlan, type Peer, type UpstreamSet } from "./upstream_set.ts";
import { servingOf, usableOf } from "./usable.ts";

/**
 * Chooses by `balancer` among `peers`, upstreams of one snapshot: those of a higher rank only if no others are left.
 * `changes`: see `HealthTools`. `choosable` says which of them can be used now.
 */
export function pickerAmong(
  changes: Int32Array,
  peers: readonly Peer[],
  balancer: Balancer,
  choosable = usableOf,
): Picker {
  let usable: readonly Peer[] = [];
  let serving: readonly Peer[] = [];
  let version = -1;
  return {
    pick: (exchange, tried) => {
      const latest = Atomics.load(changes, 0);
      if (version !== latest) {
        version = latest;
        usable = choosable(peers);
        serving = servingOf(usable);
      }
      const left = tried.length === 0 ? serving : servingOf(usable.filter((peer) => !tried.includes(peer)));
      return left.length === 1 ? left[0]! : balancer.pick(left, exchange);
    },
  };
}

/** Gives an upstream that has none a health, with the settings of the plan. */
export function giveHealth(
  { peer, memory = null, health: settings }: UpstreamPlan,
  upstreamSet: UpstreamSet,
  { clock, log, changes, make }: HealthTools,
): void {
  if (peer.health !== ALWAYS_USABLE) return;
  const { service } = upstreamSet;
  const changed = () => void Atomics.add(changes, 0, 1);
  const mayEject = () =>
    upstreamSet.peers.some((other) => other.health !== health && other.weight > 0 && other.health.usable);
  const health = make({ clock, log, service, upstream: peer.id, mayEject, changed }, placeIn(memory));
  health.configure(settings!);
  peer.health = health;
}

/** As `UpstreamSet.apply`, with the health of upstreams. `isLogging`: whether this thread logs which are back. */
export function applyPlans(
  upstreamSet: UpstreamSet,
  { plans, breaker }: Pick<BalancedService, "plans" | "breaker">,
  tools: HealthTools,
  isLogging: boolean,
): void {
  const out = upstreamSet.peers.filter(({ health }) => !health.usable);
  const states = out.map(({ health }) => health.report.state);
  const scale = turnScale(upstreamSet, plans);
  if (scale !== 1) for (const { peer } of plans) peer.turn = exactly(peer.turn * scale);
  upstreamSet.apply(plans, breaker);
  applyHealth(upstreamSet, plans, tools);
  for (const [i, { id: upstream }] of isLogging ? out.entries() : []) {
    const now = upstreamSet.withId(upstream);
    if (now?.health.usable === true && now.takenOut === null)
      tools.log.warn("upstream back with a reload", { service: upstreamSet.service, upstream, was: states[i]! });
  }
}

/**
 * What turns shrink by, which those under other weights have accumulated: used in a row, from 100:1 to 1:1, they would
 * be a hundred times the same upstream. Where all weights change alike, as they do with the number of addresses of a
 * name, the order goes on as it was. A new upstream has no turns yet, and takes none from those that stay.
 */
function turnScale(upstreamSet: UpstreamSet, plans: readonly UpstreamPlan[]): number {
  let scale = Infinity;
  for (const { peer, weight } of plans) {
    if (upstreamSet.withId(peer.id) !== peer) continue;
    const was = peer.takenOut?.weight ?? peer.weight;
    const ratio = was === 0 ? 0 : weight / was;
    scale = Math.min(scale, was === weight ? 1 : ratio);
  }
  return scale === Infinity ? 1 : scale;
}

/**
 * Puts the settings of a configuration for the health of its upstreams into force, after `UpstreamSet.apply`; and which
 * are backups, and what only one of them gets.
 */
export function applyHealth(upstreamSet: UpstreamSet, plans: readonly UpstreamPlan[], tools: HealthTools): void {
  for (const plan of plans) {
    const { peer, health, rank = 0, requestHeaders } = plan;
    peer.rank = rank;
    // Other endpoints of a service leave those of its configuration as they are.
    if (peer.ownHeaders?.values !== requestHeaders)
      peer.ownHeaders = requestHeaders === undefined ? null : new OwnHeaders(requestHeaders);
    if (health === null) continue;
    giveHealth(plan, upstreamSet, tools);
    moveHealth(plan);
    peer.health.configure(health);
  }
  Atomics.add(tools.changes, 0, 1);
}

/** A worker that begins now looks in the memory of this configuration for what was decided under those before. */
function moveHealth({ peer: { health }, memory = null }: UpstreamPlan): void {
  if (memory === null || health.memory === ("memory" in memory ? memory.memory : memory)) return;
  const place = placeIn(memory);
  if (place !== null) health.moveTo?.(place);
}

function placeIn(memory: HealthMemory | LatePlace | null): HealthMemory | null {
  return memory !== null && "take" in memory ? memory.take() : memory;
}

/** A try that sent nothing is followed at once by one at another upstream, each of them once. */
export function elsewhere(options: AttemptsOptions): Tries["afterFailure"] {
  const { picker, forwarding, meter, log } = options;
  const tries: Tries = { ...options, afterFailure: rethrow };
  return async (exchange, firstError, first, endsAt) => {
    const { call, body } = exchange;
    const tried = [first];
    for (let error = firstError; ;) {
      const now = forwarding.clock.now();
      const isOver = call.aborted || now > endsAt - LEAST_TRY_MS;
      const mayFollow = !isOver && error instanceof Fault && isUnopened(error) && (body === null || isUntouched(body));
      const next = mayFollow ? picker.pick(exchange, tried) : null;
      if (next === null) return upstreamFaultReply(exchange, error, log);
      tried.push(next);
      meter?.retried();
      try {
        return await tryPeer(tries, exchange, next, now, endsAt);
      } catch (later) {
        error = later;
      }
    }
  };
}

/**
 * Nothing was sent because the connection was refused, timed out, could not be opened or had been closed. A lack of
 * free ones is another thing.
 */
function isUnopened(fault: Fault): boolean {
  return fault.code === "upstream_connect_failed" || fault instanceof Unsent;
}
