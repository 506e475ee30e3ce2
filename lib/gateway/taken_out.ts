/**
 * The upstreams that an administrator has taken out, in the main thread: keeps them over restarts where there is a
 * place for it, and reports those that a configuration has no longer.
 */
import { takenOut, takeOut, type TakenOut, type UpstreamState } from "../upstream/taken_out.ts";
import type { UpstreamSet } from "../upstream/upstream_set.ts";
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
   * `applied`, once the start has not failed; endpoints of records and names are not known yet, and are out once they
   * are.
   */
  restore(kept: readonly TakenOut[]): void {
    const { runtime, log } = this.#internals;
    for (const upstream of kept) {
      const { service, id, state } = upstream;
      const plan = runtime.upstreamsOf(service);
      if (plan !== undefined) takeOut(plan.upstreamSet, upstream, runtime.healthTools.changes);
      if (this.has(upstream)) log.warn("upstream stays taken out after a restart", { service, upstream: id, state });
    }
    this.#known = kept;
  }

  /** Whether the configuration in force has such an upstream, or it has such an endpoint now. */
  has({ service, id }: Pick<UpstreamState, "service" | "id">): boolean {
    const plan = this.#internals.runtime.upstreamsOf(service);
    return (
      plan !== undefined &&
      (plan.upstreamSet.withId(id) ?? plan.following?.service.upstreams.find((each) => each.id === id)) !== undefined
    );
  }

  /** What was said of it by this id. `service`: one that there is. */
  stateOf({ service, id }: Pick<UpstreamState, "service" | "id">): UpstreamState["state"] {
    return this.#setOf(service).takenOut.get(id)?.state ?? "use";
  }

  /**
   * Of the configuration in force, in all threads, in the order of the calls. For an upstream with several endpoints
   * what was said of these ends. Resolves when all know it, and it is kept.
   */
  async set({ service, id, state }: Omit<UpstreamState, "since">): Promise<void> {
    const { runtime, configuration, clock } = this.#internals;
    const upstreamSet = this.#setOf(service);
    const before = upstreamSet.takenOut.get(id);
    const since = before?.state === state ? before.since : clock.wall();
    const isEndpoint = (each: string) => each.startsWith(`${id}/`) && upstreamSet.withId(each)?.upstream !== each;
    const ended = [...upstreamSet.takenOut.keys()].filter(isEndpoint);
    const changes: readonly UpstreamState[] = [
      ...ended.map((endpoint) => ({ service, id: endpoint, state: "use" as const })),
      { service, id, state, since },
    ];
    for (const change of changes) takeOut(upstreamSet, change, runtime.healthTools.changes);
    this.#known = takenOut(runtime.upstreamSets);
    await Promise.all([...changes.map((change) => configuration.followers?.setUpstream(change)), this.#keep()]);
  }

  /** Another configuration is in force, or other endpoints of a service. */
  applied(): void {
    if (this.#known.length === 0) return;
    const { runtime, log, audit, configuration } = this.#internals;
    const gone = this.#known.filter((each) => !this.has(each) && !this.#isAwaited(each));
    for (const { service, id: upstream, state: was } of gone) {
      runtime.upstreamsOf(service)?.upstreamSet.takenOut.delete(upstream);
      void configuration.followers?.setUpstream({ service, id: upstream, state: "use" });
      log.warn("upstream is no longer taken out: the configuration has it no longer", { service, upstream, was });
      audit?.sink.add("upstream_returned", { service, upstream, was });
    }
    this.#known = takenOut(runtime.upstreamSets);
    if (gone.length > 0) void this.#keep();
  }

  /** Whether it may be an endpoint of a record or a name that has had no answer since the start. */
  #isAwaited({ service }: TakenOut): boolean {
    const { records = [], names = [] } = this.#internals.runtime.upstreamsOf(service)?.following ?? {};
    return records.some(({ state }) => state !== "current") || names.some(({ addresses }) => addresses.length === 0);
  }

  #setOf(service: string): UpstreamSet {
    return this.#internals.runtime.upstreamsOf(service)!.upstreamSet;
  }

  #keep(): Promise<void> | void {
    return this.#internals.configuration.options.takenOut?.write(this.#known);
  }
}
