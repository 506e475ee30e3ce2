/**
 * The history of all requests, and of each service, route and upstream: 15 minutes in steps of 10 seconds, a day in
 * steps of 5 minutes. It is made of what is counted anyway, at the end of each step of the statistics. What has had no
 * request takes no memory, and what has had some 12 KB, also after a reload that removed it. Where the admin interface
 * is on, the first step with a request has this loaded.
 */
import { Counts, type Recent } from "../observe/metrics.ts";
import type { GatewayInternals } from "../gateway/internals.ts";

export const SPANS = { "15m": { stepMs: 10_000, steps: 90 }, "1d": { stepMs: 300_000, steps: 288 } } as const;
export type SpanName = keyof typeof SPANS;
const NAMES = Object.keys(SPANS) as SpanName[];

/**
 * Numbers of one step in a ring: which step since 1970 it is, requests, errors, limited, and the times p50, p95 and p99
 * in µs (0: none).
 */
export const FIELDS = 7;
export const SHARES = [0.5, 0.95, 0.99];
/**
 * Further services, routes and upstreams have no history until one of these has had no request for 15 minutes: 24 MB at
 * most.
 */
const MAX_SERIES = 2_000;
const IDLE_MS = 900_000;
/** Of the statistics. */
const TURN_MS = 5_000;
const DAY_MS = 86_400_000;
const MAX_RELOADS = 200;

/** Of all, or of one service, route or upstream. */
interface Series {
  /** From when on it was counted. */
  readonly since: number;
  lastAt: number;
  readonly rings: Readonly<Record<SpanName, { readonly slots: Uint32Array; sum: Counts }>>;
}

/** The key of a service's series, or of one of its routes or upstreams; nothing: of all requests. */
export function seriesKey(service?: string, what?: "route" | "upstream", name?: string): string {
  return JSON.stringify([service, what, name]);
}

export class FigureHistory {
  /** The longest without a request first. */
  readonly series = new Map<string, Series>();
  /** When it began; null before the end of its first step. */
  since: number | null = null;
  /** The last step of each span that has ended, since 1970. */
  readonly ended: Record<SpanName, number> = { "15m": 0, "1d": 0 };
  /** When another configuration came into force, within the last day. */
  reloads: { readonly at: number; readonly digest: string }[] = [];
  readonly #gateway: Pick<GatewayInternals, "metrics" | "configuration">;
  readonly #most: number;
  /** Of the configuration in force; null before the end of the first step. */
  #digest: string | null = null;

  constructor(gateway: Pick<GatewayInternals, "metrics" | "configuration">, most = MAX_SERIES) {
    this.#gateway = gateway;
    this.#most = most;
  }

  /** Whether a further service, route or upstream finds no place. */
  get isFull(): boolean {
    return this.series.size >= this.#most;
  }

  /** A step of the statistics that began at `at` ends. */
  step(at: number): void {
    const { total, services } = this.#gateway.metrics!;
    if (this.since === null) for (const span of NAMES) this.ended[span] = Math.floor(at / SPANS[span].stepMs) - 1;
    this.since ??= at;
    this.#count(at, total);
    for (const [service, { routes, meter }] of services) {
      for (const [route, { recent }] of routes)
        if (this.#count(at, recent, service, "route", route)) this.#count(at, recent, service);
      for (const [id, recent] of meter.upstreams) this.#count(at, recent, service, "upstream", id);
    }
    for (const span of NAMES) this.#endStep(span, at + TURN_MS);
    const {
      loadedAt,
      lastChange,
      snapshot: { digest },
    } = this.#gateway.configuration;
    // The first step may have had a reload before this was loaded.
    const isReload = this.#digest === null ? lastChange !== null && loadedAt >= at : digest !== this.#digest;
    if (isReload) this.reloads.push({ at: loadedAt, digest });
    this.#digest = digest;
    this.reloads = this.reloads.filter((reload) => reload.at > at - DAY_MS).slice(-MAX_RELOADS);
  }

  /** False: it had no request in this step. */
  #count(at: number, recent: Recent, ...of: Parameters<typeof seriesKey>): boolean {
    if (!recent.isActive || recent.requests === 0) return false;
    const series = this.#seriesFor(seriesKey(...of), at);
    if (series !== null) recent.addTo(series.rings["15m"].sum, "step");
    return true;
  }

  /** Null: there is no place for one more. */
  #seriesFor(key: string, at: number): Series | null {
    let series = this.series.get(key);
    if (series === undefined) {
      const { isFull } = this;
      for (const [idle, { lastAt }] of this.series) {
        if (!this.isFull) break;
        if (at - lastAt < IDLE_MS) return null;
        this.series.delete(idle);
      }
      const ring = (span: SpanName) => ({ slots: new Uint32Array(SPANS[span].steps * FIELDS), sum: new Counts() });
      series = { since: isFull ? at : this.since!, lastAt: at, rings: { "15m": ring("15m"), "1d": ring("1d") } };
    }
    series.lastAt = at;
    this.series.delete(key);
    this.series.set(key, series);
    return series;
  }

  /** Writes what was counted in the step of a span that `end` ends, if it ends one. */
  #endStep(span: SpanName, end: number): void {
    const { stepMs, steps } = SPANS[span];
    const step = Math.floor(end / stepMs) - 1;
    if (step === this.ended[span]) return;
    this.ended[span] = step;
    for (const {
      rings: { [span]: ring, "1d": day },
    } of this.series.values()) {
      const { sum } = ring;
      if (sum.requests === 0) continue;
      // A step of the day is the sum of those of ten seconds, which end before it.
      if (ring !== day) day.sum.addAll(sum);
      const times = SHARES.map((share) => (sum.quantile(share) ?? 0) * 1_000);
      ring.slots.set([step, sum.requests, sum.errors, sum.limited, ...times], (step % steps) * FIELDS);
      ring.sum = new Counts();
    }
  }
}
