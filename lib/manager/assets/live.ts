/**
 * What is known of the gateway at this moment, by names. The frame renews it before a page is updated; what a page
 * draws again reads it.
 */
import type { ServiceConfig, ServiceHealth, UpstreamHealth, Warning } from "./api.ts";
import { sharesOf, type Share } from "./balancing.ts";
import { figuresByName, warningCounts, type FiguresByName, type WarningCounts } from "./inventory.ts";
import type { Known } from "./page.ts";

class Live {
  readonly known: Known | null;
  readonly figures: FiguresByName;
  readonly #services: ReadonlyMap<string, ServiceHealth>;
  readonly #states = new Map<string, ReadonlyMap<string, UpstreamHealth>>();
  readonly #shares = new Map<string, ReadonlyMap<string, Share>>();
  #counts: WarningCounts | null = null;

  constructor(known: Known | null) {
    this.known = known;
    this.figures = figuresByName(known?.stats ?? null);
    this.#services = new Map(known?.health?.services.map((each) => [each.name, each]));
  }

  /** How many warnings there are. */
  get warnings(): WarningCounts {
    return (this.#counts ??= warningCounts(this.known?.status ?? null));
  }

  /** Of a service and its routes, or of one route. */
  warningsOf(service: string, route?: string): readonly Warning[] {
    return (this.known?.status?.warnings ?? []).filter(
      (warning) => warning.service === service && (route === undefined || warning.route === route),
    );
  }

  /** Null: not known. */
  health(service: string): ServiceHealth | null {
    return this.#services.get(service) ?? null;
  }

  upstream(service: string, id: string): UpstreamHealth | null {
    const states = kept(
      this.#states,
      service,
      () => new Map(this.health(service)?.upstreams.map((one) => [one.id, one])),
    );
    return states.get(id) ?? null;
  }

  share({ name, upstreams }: Pick<ServiceConfig, "name" | "upstreams">, id: string): Share | null {
    const rateOf = (each: string) => this.figures.upstream(name, each)?.requests_per_s ?? 0;
    return (
      kept(this.#shares, name, () => sharesOf(upstreams, this.health(name)?.upstreams ?? null, rateOf)).get(id) ?? null
    );
  }
}

export let live = new Live(null);

/** Null: nothing, as after a sign-out. */
export function setLive(known: Known | null): void {
  live = new Live(known);
}

function kept<Value>(all: Map<string, Value>, key: string, make: () => Value): Value {
  if (!all.has(key)) all.set(key, make());
  return all.get(key)!;
}
