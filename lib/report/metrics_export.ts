/**
 * Sends the metrics to a collector at intervals (OTLP/HTTP in JSON). Nothing waits for the collector: what it does not
 * accept is counted, and the next export has it as well.
 */
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { Clock, Timer } from "../base/clock.ts";
import { Egress, type EgressProxy } from "../base/egress.ts";
import { messageOf } from "../base/errors.ts";
import { entry } from "../base/event_loop.ts";
import type { Log } from "../base/log.ts";
import { destinationOf } from "../base/url_destination.ts";
import { HttpClient } from "../client/client.ts";
import { answerTo } from "../client/delivery_queue.ts";
import type { MetricsExport } from "../config/settings_types.ts";
import { DEFAULT_TIMEOUT_MS } from "../config/tracing.ts";
import type { Family } from "../observe/exposition.ts";
import { rejectedIn } from "../observe/otlp.ts";
import { durationPoints, gained, metricText, pointsOf, pointText, type MetricPoint } from "../observe/otlp_metrics.ts";
import type { Durations } from "../observe/server_durations.ts";
import { nanoseconds, scopeWriter } from "../observe/span_json.ts";

export interface MetricsExporterOptions {
  readonly settings: MetricsExport;
  readonly clock: Clock;
  readonly log: Log;
  /** The one of the configuration in force. */
  readonly proxy: () => EgressProxy | null;
  /** Has the workers report; null: there are none. */
  readonly refresh: () => Promise<void> | null;
  readonly families: () => readonly Family[];
  readonly durations: () => ReadonlyMap<string, Durations>;
}

export class MetricsExporter {
  /** Data points that the collector has not accepted. */
  lost = 0;
  readonly #options: MetricsExporterOptions;
  readonly #client: HttpClient;
  readonly #cut = new AbortController();
  readonly #startNs: string;
  /** With "delta": what the collector has of each series, null if nothing, and until when. */
  readonly #known = new Map<string, { readonly value: MetricPoint["value"] | null; readonly ns: string }>();
  /** When a series that was not in the last export has begun at the earliest. */
  #lastNs: string;
  #timer: Timer | null = null;
  #sending: Promise<void> | null = null;
  #isFailing = false;

  constructor(options: MetricsExporterOptions) {
    const { settings, clock, proxy } = options;
    const { ca } = settings;
    this.#options = options;
    this.#startNs = nanoseconds(clock.wall());
    this.#lastNs = this.#startNs;
    this.#client = new HttpClient({
      clock,
      egress: new Egress([destinationOf(new URL(settings.url), "otlp")], proxy),
      why: "otlp",
      maxConnections: 1,
      ...(ca && { tls: { ca } }),
    });
    this.#wait();
  }

  /** One more export, for which it waits a second at most. */
  async close(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    const limit = this.#options.clock.after(LAST_MS, () => this.#cut.abort());
    await this.#sending;
    await this.#send();
    limit.cancel();
    this.#cut.abort();
    this.#client.close();
  }

  #wait(): void {
    const { clock, settings } = this.#options;
    this.#timer = clock.after(settings.intervalMs, () => {
      this.#wait();
      this.#sending ??= this.#send().finally(() => {
        this.#sending = null;
      });
    });
  }

  /** Never rejects. */
  async #send(): Promise<void> {
    const { settings, clock, families, durations, refresh } = this.#options;
    try {
      await refresh();
      const ns = nanoseconds(clock.wall());
      const seen = new Set<string>();
      let points: MetricPoint[] = [];
      for (const all of [durationPoints(durations()), pointsOf(families())]) {
        for (const point of all) {
          if (settings.temporality === "delta") seen.add(keyOf(point));
          if (points.push(point) < POINTS_OF_A_REQUEST) continue;
          await this.#deliver(points, ns);
          points = [];
        }
      }
      if (points.length > 0) await this.#deliver(points, ns);
      for (const key of this.#known.keys()) if (!seen.has(key)) this.#known.delete(key);
      this.#lastNs = ns;
    } catch (error) {
      this.#lose(0, messageOf(error));
    }
  }

  async #deliver(points: readonly MetricPoint[], ns: string): Promise<void> {
    const { url, headers = {}, timeoutMs = DEFAULT_TIMEOUT_MS, compression } = this.#options.settings;
    // A piece of work in each turn of the event loop.
    await new Promise<void>((resolve) => setImmediate(entry("an export of metrics", resolve)));
    const text = this.#text(points, ns);
    const isZipped = compression === "gzip";
    const answer = await answerTo(this.#client, {
      url: new URL(url),
      method: "POST",
      headers: [
        ...["Content-Type", "application/json"],
        ...(isZipped ? ["Content-Encoding", "gzip"] : []),
        ...Object.entries(headers).flat(),
      ],
      body: isZipped ? await promisify(gzip)(text) : text,
      timeoutMs,
      signal: this.#cut.signal,
    });
    if (answer instanceof Error) return this.#lose(points.length, answer.message);
    const { status, body } = answer;
    if (status >= 300) return this.#lose(points.length, `the collector answered with status ${status}`);
    for (const point of points)
      if (this.#known.has(keyOf(point))) this.#known.set(keyOf(point), { value: point.value, ns });
    const { count, why } = rejectedIn(body, "rejectedDataPoints");
    if (count > 0) return this.#lose(Math.min(count, points.length), why);
    this.#isFailing = false;
  }

  #text(points: readonly MetricPoint[], ns: string): Buffer {
    const { resource, serviceName = "edge-gateway", temporality } = this.#options.settings;
    const byMetric = new Map<MetricPoint["metric"], string[]>();
    for (const point of points) {
      const texts = byMetric.get(point.metric) ?? [];
      if (temporality === "cumulative" || point.metric.type === "gauge")
        texts.push(pointText(point, this.#startNs, ns));
      else texts.push(this.#gainText(point, ns));
      byMetric.set(point.metric, texts);
    }
    const metrics = Array.from(byMetric, ([metric, texts]) => metricText(metric, texts, temporality));
    return scopeWriter({ "service.name": serviceName, ...resource }, "Metrics")(metrics);
  }

  #gainText(point: MetricPoint, ns: string): string {
    const key = keyOf(point);
    const known = this.#known.get(key) ?? { value: null, ns: this.#lastNs };
    this.#known.set(key, known);
    const value = known.value === null ? point.value : gained(point.value, known.value);
    return pointText({ ...point, value }, known.ns, ns);
  }

  /** Says the first failure of several. */
  #lose(count: number, why: string): void {
    const { settings, log } = this.#options;
    this.lost += count;
    if (!this.#isFailing) log.warn("metrics could not be sent", { collector: new URL(settings.url).host, error: why });
    this.#isFailing = true;
  }
}

function keyOf({ metric, attributes }: MetricPoint): string {
  return `${metric.name} ${attributes}`;
}

/** The end of the gateway waits for a second at most. */
const LAST_MS = 1_000;
/** Some 300 bytes each. */
const POINTS_OF_A_REQUEST = 2_000;
