/**
 * The probes of the upstreams of a configuration, which go on across reloads.
 */
import type { Clock } from "../base/clock.ts";
import type { Dial, DialTo } from "../base/egress.ts";
import type { Service } from "../config/model.ts";
import type { HeaderList } from "../http/headers.ts";
import { checkSettings, startHealthCheck, type CheckSettings } from "../upstream/health_checks.ts";
import type { Peer } from "../upstream/upstream_set.ts";

interface Running {
  readonly checks: CheckSettings;
  readonly headers: HeaderList;
  readonly settings: string;
  readonly stop: () => void;
}

export interface Checks {
  readonly settings: CheckSettings;
  /** What may be connected to is this configuration's, as the pool of a peer may be an older one's. */
  readonly dials: ReadonlyMap<Peer, Dial>;
}

/** For each set of upstreams that the service has under one configuration. */
export function checksOf(health: Service["health"], dialTo: DialTo): (peers: readonly Peer[]) => Checks {
  const settings = checkSettings(health);
  return (peers) => {
    const dials = new Map(peers.map((peer) => [peer, dialTo({ host: peer.host, port: peer.port, why: "health" })]));
    return { settings, dials };
  };
}

export class ActiveChecks {
  readonly #clock: Clock;
  readonly #running = new Map<Peer, Running>();
  /** Those of each service. */
  readonly #peers = new Map<object, readonly Peer[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * The checks of one service from now on: ends all others that it had. Those that are unchanged go on: their results
   * so far, and when the next is due, stay. `service`: whose they are. Null: it has none.
   */
  apply(service: object, checks: Checks | null): void {
    for (const peer of this.#peers.get(service) ?? []) {
      const running = this.#running.get(peer)!;
      if (checks?.dials.has(peer) && isSame(running, checks.settings, peer)) continue;
      running.stop();
      this.#running.delete(peer);
    }
    if (checks === null) return void this.#peers.delete(service);
    const { settings, dials } = checks;
    this.#peers.set(service, [...dials.keys()]);
    for (const [peer, dial] of dials) if (!this.#running.has(peer)) this.#begin(peer, dial, settings);
  }

  #begin(peer: Peer, dial: Dial, settings: CheckSettings): void {
    const headers = headersOf(settings, peer);
    const stop = startHealthCheck({
      target: { ...peer.pool.options, dial, authority: peer.authority, headers },
      settings,
      clock: this.#clock,
      random: Math.random,
      report: (failure) => peer.health.checked?.(failure),
    });
    this.#running.set(peer, { checks: settings, headers, settings: keyOf(settings, headers), stop });
  }
}

/** Among a thousand endpoints mostly all are: what is the same object need not be compared. */
function isSame({ checks, headers, settings }: Running, next: CheckSettings, peer: Peer): boolean {
  const wanted = headersOf(next, peer);
  return (checks === next && headers === wanted) || settings === keyOf(next, wanted);
}

function headersOf({ hasHeaders = false }: CheckSettings, { ownHeaders }: Peer): HeaderList {
  return hasHeaders ? (ownHeaders?.list ?? NO_HEADERS) : NO_HEADERS;
}

const NO_HEADERS: HeaderList = [];

function keyOf(settings: CheckSettings, headers: HeaderList): string {
  return JSON.stringify([settings, headers]);
}
