/**
 * The probes of the upstreams of a configuration, which go on across reloads.
 */
import type { Clock } from "../base/clock.ts";
import type { Dial, DialTo } from "../base/egress.ts";
import type { Service } from "../config/model.ts";
import type { HeaderList } from "../http/headers.ts";
import { checkSettings, startHealthCheck, type CheckSettings } from "../upstream/health_checks.ts";
import type { Peer } from "../upstream/upstream_set.ts";

export interface Checks {
  readonly settings: CheckSettings;
  /** What may be connected to is this configuration's, as the pool of a peer may be an older one's. */
  readonly dials: ReadonlyMap<Peer, Dial>;
}

export function checksOf(health: Service["health"], peers: readonly Peer[], dialTo: DialTo): Checks {
  const dials = new Map(peers.map((peer) => [peer, dialTo({ host: peer.host, port: peer.port, why: "health" })]));
  return { settings: checkSettings(health), dials };
}

export class ActiveChecks {
  readonly #clock: Clock;
  readonly #running = new Map<Peer, { readonly settings: string; readonly stop: () => void }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends all others. Those that are unchanged go on: their results so far, and when the next is due, stay. */
  apply(all: readonly Checks[]): void {
    const wanted = new Map(all.flatMap((checks) => Array.from(checks.dials.keys(), (peer) => [peer, checks] as const)));
    for (const [peer, { stop, settings }] of this.#running) {
      const now = wanted.get(peer);
      if (now !== undefined && keyOf(now.settings, peer) === settings) wanted.delete(peer);
      else {
        stop();
        this.#running.delete(peer);
      }
    }
    for (const [peer, { settings, dials }] of wanted) {
      const headers = headersOf(settings, peer);
      const target = { ...peer.pool.options, dial: dials.get(peer)!, authority: peer.authority, headers };
      const stop = startHealthCheck({
        target,
        settings,
        clock: this.#clock,
        random: Math.random,
        report: (failure) => peer.health.checked?.(failure),
      });
      this.#running.set(peer, { settings: keyOf(settings, peer), stop });
    }
  }
}

function headersOf({ hasHeaders = false }: CheckSettings, { ownHeaders }: Peer): HeaderList {
  return hasHeaders ? (ownHeaders?.list ?? []) : [];
}

function keyOf(settings: CheckSettings, peer: Peer): string {
  return JSON.stringify([settings, headersOf(settings, peer)]);
}
