/**
 * `http.server.request.duration` of OpenTelemetry's semantic conventions: how long requests take, by method, scheme,
 * route, status and version of HTTP.
 */
import type { RequestFacts } from "../http/request_facts.ts";
import { knownMethod } from "./trace.ts";

/** Upper bounds in seconds, as the conventions advise. */
export const SERVER_BUCKETS: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
];
/**
 * Series; further ones are counted in one, which has `otel.metric.overflow` (OpenTelemetry's limit, and its default).
 */
const MAX_SERIES = 2_000;
const OVERFLOW = JSON.stringify(["otel.metric.overflow", true]);

export interface Durations {
  /** In each bucket, and above them. */
  readonly counts: number[];
  sumMs: number;
}

export class ServerDurations {
  /** By names and values of attributes in turn, as JSON. */
  readonly #series = new Map<string, Durations>();

  /**
   * `ms`: of the whole request. WebSockets and event streams, which last as long as people keep them open, are left
   * out.
   */
  ended({ call, method, scheme, httpVersion }: RequestFacts, ms: number): void {
    const { status, code, pattern, isTimed } = call.notes;
    if (status === 101 || !isTimed) return;
    const attributes: (string | number)[] = [
      "http.request.method",
      knownMethod(method) ?? "_OTHER",
      "url.scheme",
      scheme,
      "network.protocol.version",
      httpVersion === "2.0" ? "2" : httpVersion,
    ];
    if (status !== null) attributes.push("http.response.status_code", status);
    if (pattern !== null) attributes.push("http.route", pattern);
    if (status === null) attributes.push("error.type", code ?? "_OTHER");
    else if (status >= 500) attributes.push("error.type", code ?? String(status));
    const durations = this.#of(JSON.stringify(attributes));
    const bucket = SERVER_BUCKETS.findIndex((seconds) => ms <= seconds * 1000);
    durations.counts[bucket < 0 ? SERVER_BUCKETS.length : bucket]!++;
    durations.sumMs += ms;
  }

  get series(): ReadonlyMap<string, Durations> {
    return this.#series;
  }

  /** Moves all into a report: it has what was counted since the last one. */
  take(): readonly (readonly [attributes: string, durations: Durations])[] {
    const all = [...this.#series];
    this.#series.clear();
    return all;
  }

  /** Adds what a report has. */
  add(report: readonly (readonly [attributes: string, durations: Durations])[]): void {
    for (const [attributes, { counts, sumMs }] of report) {
      const durations = this.#of(attributes);
      counts.forEach((count, i) => (durations.counts[i]! += count));
      durations.sumMs += sumMs;
    }
  }

  #of(attributes: string): Durations {
    const known = this.#series.get(attributes);
    if (known !== undefined) return known;
    if (this.#series.size >= MAX_SERIES && attributes !== OVERFLOW) return this.#of(OVERFLOW);
    const durations: Durations = { counts: new Array<number>(SERVER_BUCKETS.length + 1).fill(0), sumMs: 0 };
    this.#series.set(attributes, durations);
    return durations;
  }
}
