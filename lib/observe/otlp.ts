/**
 * Sends spans or lines of logs to a collector in batches (OTLP/HTTP in JSON). Requests never wait for the collector,
 * nor fail because of it.
 */
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { Clock } from "../base/clock.ts";
import { Egress, type EgressProxy } from "../base/egress.ts";
import { destinationOf } from "../base/url_destination.ts";
import type { Log } from "../base/log.ts";
import type { ExportSettings } from "../config/settings_types.ts";
import { DEFAULT_TIMEOUT_MS } from "../config/tracing.ts";
import { HttpClient } from "../client/client.ts";
import { DeliveryQueue, type Rejected } from "../client/delivery_queue.ts";
import { scopeWriter } from "./span_json.ts";
import type { SpanSink } from "./trace.ts";

export interface OtlpOptions {
  readonly settings: ExportSettings;
  /** Default "Spans". */
  readonly signal?: keyof typeof SIGNALS;
  readonly clock: Clock;
  readonly log: Log;
  /** The one of the configuration in force, asked for each connection. Default: there is none. */
  readonly proxy?: () => EgressProxy | null;
  /** Numbers from 0 to below 1, for pauses that differ between gateways. Default `Math.random`. */
  readonly random?: () => number;
}

const SIGNALS = {
  Spans: {
    rejected: "rejectedSpans",
    lost: (log: Log, spans: number, more: object) => log.warn("spans of traces were lost", { spans, ...more }),
  },
  Logs: {
    rejected: "rejectedLogRecords",
    lost: (log: Log, lines: number, more: object) =>
      log.warn("log lines for the collector were lost", { lines, ...more }),
  },
} as const;

export class OtlpExporter implements SpanSink {
  readonly #queue: DeliveryQueue;
  readonly #clock: Clock;
  #isOver = false;

  constructor({ settings, signal = "Spans", clock, log, proxy, random = Math.random }: OtlpOptions) {
    const {
      headers = {},
      timeoutMs = DEFAULT_TIMEOUT_MS,
      ca,
      compression = "none",
      resource = {},
      serviceName = "edge-gateway",
    } = settings;
    const encode = scopeWriter({ "service.name": serviceName, ...resource }, signal);
    const names = SIGNALS[signal];
    this.#clock = clock;
    const coding = compression === "gzip" ? ["Content-Encoding", "gzip"] : [];
    const url = new URL(settings.url);
    this.#queue = new DeliveryQueue({
      clock,
      request: {
        url,
        method: "POST",
        headers: ["Content-Type", "application/json", ...coding, ...Object.entries(headers).flat()],
        timeoutMs,
      },
      client: new HttpClient({
        clock,
        egress: new Egress([destinationOf(url, "otlp")], proxy),
        why: "otlp",
        maxConnections: 1,
        tls: { ca },
      }),
      receiver: "the collector",
      // Asynchronous, on Node's threads: a batch may have megabytes.
      encode: compression === "gzip" ? (texts) => promisify(gzip)(encode(texts)) : encode,
      batchSize: 512,
      batchMs: 1_000,
      maxTexts: 8_192,
      maxCharacters: 16 * 1024 * 1024,
      // Those that wait are about to be sent.
      whenFull: "lose newest",
      isTransient: (status) => TRANSIENT.has(status),
      pausesMs: [1_000, 2_000, 4_000, 8_000],
      random,
      rejectedBy: (body) => rejectedIn(body, names.rejected),
      report: (lost, why) => names.lost(log, lost, { collector: url.host, error: why }),
      quietMs: 60_000,
    });
  }

  /** Those that the collector accepted. */
  get exported(): number {
    return this.#queue.sent;
  }

  /** Those that were lost for lack of room, or that the collector did not accept. */
  get dropped(): number {
    return this.#queue.lost;
  }

  get isFull(): boolean {
    return this.#isOver || this.#queue.isFull;
  }

  add(text: string): void {
    if (this.#isOver) this.#queue.lose(1, "the gateway has ended");
    else this.#queue.add(text);
  }

  /**
   * Sends those that wait, within a second; the rest is lost. Those added later are sent at once, unless this took so
   * long that they would wait for a second again.
   */
  async drain(): Promise<void> {
    const until = this.#clock.now() + LONG_DRAIN_MS;
    await this.#queue.close();
    this.#isOver = this.#clock.now() >= until;
  }

  /** As `drain`; those added later are lost. */
  async close(): Promise<void> {
    await this.#queue.close();
    this.#isOver = true;
  }
}

const LONG_DRAIN_MS = 500;

/** Statuses after which a retry may help (OTLP §"Failures"). */
const TRANSIENT = new Set([429, 502, 503, 504]);

/** What a collector rejected of a batch that it accepted (OTLP §"Partial Success"). */
export function rejectedIn(
  body: Buffer,
  name: (typeof SIGNALS)[keyof typeof SIGNALS]["rejected"] | "rejectedDataPoints",
): Rejected {
  const text = body.toString();
  if (!text.includes(name)) return { count: 0, why: "" };
  try {
    const { partialSuccess: said = {} } = JSON.parse(text) as {
      partialSuccess?: { readonly [rejected in typeof name]?: unknown } & { readonly errorMessage?: unknown };
    };
    const count = Number(said[name]);
    const why = typeof said.errorMessage === "string" ? `: ${said.errorMessage.slice(0, 200)}` : "";
    return { count: Number.isInteger(count) && count > 0 ? count : 0, why: `the collector rejected them${why}` };
  } catch {
    return { count: 0, why: "" };
  }
}
