/**
 * The upstreams that an administrator has taken out, in the main thread: keeps them over restarts where there is a
 * place for it, and reports those that a configuration has no longer.
 */
import { takenOut, takeOut, takeOutNamed, type TakenOut, type UpstreamState } from "../upstream/taken_out.ts";
import type { GatewayInternals } from "./internals.ts";

export { takeOutNamed };

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
   * `applied`, once the start has not failed; endpoints of records and names are not known yet, and taken out once they
   * are.
   */
  restore(kept: readonly TakenOut[]): void {
    const { runtime, log } = this.#internals;
    for (const { service, id, state, since = null } of kept) {
      const peer = runtime.peer(service, id);
      if (peer === undefined) {
        const upstreams = runtime.upstreamsOf(service);
        if (upstreams?.following !== undefined) upstreams.upstreamSet.awaited.set(id, { state, since });
        continue;
      }
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

  /** Another configuration is in force, or other endpoints of a service. */
  applied(): void {
    if (this.#known.length === 0) return;
    const { runtime, log, audit, configuration } = this.#internals;
    const before = this.#known;
    const out = takenOut(runtime.upstreamSets);
    const missing = before.filter(({ service, id }) => runtime.peer(service, id) === undefined);
    const awaited = missing.filter((each) => this.#isAwaited(each));
    const gone = missing.filter((each) => !awaited.includes(each));
    this.#known = [...out, ...awaited];
    // Workers learn of those that have come, and forget those that are gone.
    for (const upstream of out)
      if (runtime.upstreamsOf(upstream.service)!.upstreamSet.awaited.delete(upstream.id))
        void configuration.followers?.setUpstream(upstream);
    for (const { service, id: upstream, state: was } of gone) {
      runtime.upstreamsOf(service)?.upstreamSet.awaited.delete(upstream);
      void configuration.followers?.setUpstream({ service, id: upstream, state: "use" });
      log.warn("upstream is no longer taken out: the configuration has it no longer", { service, upstream, was });
      audit?.sink.add("upstream_returned", { service, upstream, was });
    }
    if (gone.length > 0) void this.#keep();
  }

  /** Whether it may be an endpoint of a record or a name that has had no answer since the start. */
  #isAwaited({ service, id }: TakenOut): boolean {
    const plan = this.#internals.runtime.upstreamsOf(service);
    if (plan?.following === undefined || !plan.upstreamSet.awaited.has(id)) return false;
    const { records, names } = plan.following;
    return records.some(({ state }) => state !== "current") || names.some(({ addresses }) => addresses.length === 0);
  }

  #keep(): Promise<void> | void {
    return this.#internals.configuration.options.takenOut?.write(this.#known);
  }
}
