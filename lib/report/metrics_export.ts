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
import type { MetricsExport } from "../config/settings_types.ts";
import type { Family } from "../observe/exposition.ts";
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
  /** With "delta": what the collector has of each series, and until when. */
  readonly #accepted = new Map<string, { readonly value: MetricPoint["value"]; readonly ns: string }>();
  #timer: Timer | null = null;
  #sending: Promise<void> | null = null;
  #isFailing = false;

  constructor(options: MetricsExporterOptions) {
    const { settings, clock, proxy } = options;
    const { ca } = settings;
    this.#options = options;
    this.#startNs = nanoseconds(clock.wall());
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
      let points: MetricPoint[] = [];
      for (const all of [durationPoints(durations()), pointsOf(families())]) {
        for (const point of all) {
          if (points.push(point) < POINTS_OF_A_REQUEST) continue;
          await this.#deliver(points, ns);
          points = [];
        }
      }
      if (points.length > 0) await this.#deliver(points, ns);
    } catch (error) {
      this.#report(messageOf(error), settings);
    }
  }

  async #deliver(points: readonly MetricPoint[], ns: string): Promise<void> {
    const { settings } = this.#options;
    const { url, headers = {}, timeoutMs = 10_000, compression } = settings;
    // A piece of work in each turn of the event loop.
    await new Promise<void>((resolve) => setImmediate(entry("an export of metrics", resolve)));
    const text = this.#text(points, ns);
    const isZipped = compression === "gzip";
    const body = isZipped ? await promisify(gzip)(text) : text;
    const coding = isZipped ? ["Content-Encoding", "gzip"] : [];
    let why: string;
    try {
      const { status } = await this.#client.ask({
        url: new URL(url),
        method: "POST",
        headers: ["Content-Type", "application/json", ...coding, ...Object.entries(headers).flat()],
        body,
        timeoutMs,
        maxBytes: MAX_ANSWER_BYTES,
        signal: this.#cut.signal,
      });
      if (status < 300) {
        this.#isFailing = false;
        if (settings.temporality === "delta")
          for (const point of points) this.#accepted.set(keyOf(point), { value: copyOf(point.value), ns });
        return;
      }
      why = `the collector answered with status ${status}`;
    } catch (error) {
      why = messageOf(error);
    }
    this.lost += points.length;
    this.#report(why, settings);
  }

  #text(points: readonly MetricPoint[], ns: string): Buffer {
    const { settings } = this.#options;
    const { resource, serviceName = "edge-gateway", temporality } = settings;
    const byMetric = new Map<MetricPoint["metric"], string[]>();
    for (const point of points) {
      const before = point.metric.type === "gauge" ? undefined : this.#accepted.get(keyOf(point));
      const texts = byMetric.get(point.metric) ?? [];
      const changed = before === undefined ? point : { ...point, value: gained(point.value, before.value) };
      texts.push(pointText(changed, before?.ns ?? this.#startNs, ns));
      byMetric.set(point.metric, texts);
    }
    const metrics = Array.from(byMetric, ([metric, texts]) => metricText(metric, texts, temporality));
    return scopeWriter({ "service.name": serviceName, ...resource }, "Metrics")(metrics);
  }

  /** The first failure of several. */
  #report(why: string, { url }: MetricsExport): void {
    if (!this.#isFailing)
      this.#options.log.warn("metrics could not be sent", { collector: new URL(url).host, error: why });
    this.#isFailing = true;
  }
}

function keyOf({ metric, attributes }: MetricPoint): string {
  return `${metric.name} ${attributes}`;
}

/** Counts go on where they are. */
function copyOf(value: MetricPoint["value"]): MetricPoint["value"] {
  return typeof value === "number" ? value : { ...value, counts: [...value.counts] };
}

/** The end of the gateway waits for a second at most. */
const LAST_MS = 1_000;
/** Some 300 bytes each. */
const POINTS_OF_A_REQUEST = 2_000;
const MAX_ANSWER_BYTES = 64 * 1024;
