/**
 * The upstreams that an administrator has taken out, in the main thread: keeps them over restarts where there is a
 * place for it, and reports those that a configuration has no longer.
 */
import { takenOut, takeOut, type TakenOut, type UpstreamState } from "../upstream/taken_out.ts";
import type { GatewayInternals } from "./internals.ts";

export { takeOut };

/** Those of a gateway. */
export function takenOutOf(internals: GatewayInternals): TakenOutUpstreams {
  return (internals.runtime.takenOut ??= new TakenOutUpstreams(internals)) as TakenOutUpstreams;
}

class TakenOutUpstreams {
  readonly #internals: GatewayInternals;
  /** Under the configuration in force, or as it was kept. */
  #known: readonly TakenOut[] = [];

  constructor(internals: GatewayInternals) {
    this.#internals = internals;
  }

  /**
   * Before the gateway serves: those that were out when the program ended stay out. Those that are gone are reported by
   * `applied`, once the start has not failed.
   */
  restore(kept: readonly TakenOut[]): void {
    const { runtime, log } = this.#internals;
    for (const { service, id, state, since = null } of kept) {
      const peer = runtime.peer(service, id);
      if (peer === undefined) continue;
      takeOut(peer, { state, since }, runtime.healthTools.changes);
      log.warn("upstream stays taken out after a restart", { service, upstream: id, state });
    }
    this.#known = kept;
  }

  /**
   * An upstream of the configuration in force, in all threads, in the order of the calls. Resolves when all know it,
   * and it is kept.
   */
  async set({ service, id, state }: Omit<UpstreamState, "since">): Promise<void> {
    const { runtime, configuration, clock } = this.#internals;
    const peer = runtime.peer(service, id)!;
    const since = peer.takenOut?.state === state ? peer.takenOut.since : clock.wall();
    const upstream = { service, id, state, since };
    takeOut(peer, upstream, runtime.healthTools.changes);
    this.#known = takenOut(runtime.upstreamSets);
    await Promise.all([configuration.followers?.setUpstream(upstream), this.#keep()]);
  }

  /** Another configuration is in force. */
  applied(): void {
    const { runtime, log, audit } = this.#internals;
    const before = this.#known;
    this.#known = takenOut(runtime.upstreamSets);
    const gone = before.filter(({ service, id }) => runtime.peer(service, id) === undefined);
    for (const { service, id: upstream, state: was } of gone) {
      log.warn("upstream is no longer taken out: the configuration has it no longer", { service, upstream, was });
      audit?.sink.add("upstream_returned", { service, upstream, was });
    }
    if (gone.length > 0) void this.#keep();
  }

  #keep(): Promise<void> | void {
    return this.#internals.configuration.options.takenOut?.write(this.#known);
  }
}
