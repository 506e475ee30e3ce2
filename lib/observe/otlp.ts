/**
 * Sends spans to a collector by OTLP/HTTP in JSON, in batches: whatever becomes of them, requests neither wait for it nor fail by it. How
 * spans are spelt is `span_json.ts`, which there are `trace.ts`, waiting and trying again `http/delivery_queue.ts`.
 */
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { DEFAULT_TIMEOUT_MS, type TracingSettings } from "../config/tracing.ts";
import { DeliveryQueue, type Rejected } from "../http/delivery_queue.ts";
import { batchWriter } from "./span_json.ts";
import type { SpanSink } from "./trace.ts";

export interface OtlpOptions {
  readonly settings: TracingSettings;
  readonly clock: Clock;
  readonly log: Log;
  /** Numbers from 0 to below 1, for pauses that differ between gateways. Default `Math.random`. */
  readonly random?: () => number;
}

export class OtlpExporter implements SpanSink {
  readonly #outbox: DeliveryQueue;
  #isOver = false;

  constructor({ settings, clock, log, random = Math.random }: OtlpOptions) {
    const { headers = {}, timeoutMs = DEFAULT_TIMEOUT_MS, ca, compression = "none", resource = {}, serviceName = "edge-gateway" } = settings;
    const encode = batchWriter({ "service.name": serviceName, ...resource });
    const coding = compression === "gzip" ? ["Content-Encoding", "gzip"] : [];
    const url = new URL(settings.url);
    this.#outbox = new DeliveryQueue({
      clock,
      request: { url, method: "POST", headers: ["Content-Type", "application/json", ...coding, ...Object.entries(headers).flat()], timeoutMs },
      tls: { ca },
      receiver: "the collector",
      // In a thread of node's pool: a batch may have megabytes.
      encode: compression === "gzip" ? (texts) => promisify(gzip)(encode(texts)) : encode,
      batchSize: 512,
      batchMs: 1_000,
      maxTexts: 8_192,
      maxCharacters: 16 * 1024 * 1024,
      // Those that wait are about to go.
      whenFull: "lose newest",
      isTransient: (status) => TRANSIENT.has(status),
      pausesMs: [1_000, 2_000, 4_000, 8_000],
      random,
      rejectedBy: partialSuccess,
      report: (lost, why) => log.warn("spans of traces were lost", { spans: lost, collector: url.host, error: why }),
      quietMs: 60_000,
    });
  }

  /** Spans that the collector has taken. */
  get exported(): number {
    return this.#outbox.sent;
  }

  /** Spans that were lost: there was no room, or the collector did not take them. */
  get dropped(): number {
    return this.#outbox.lost;
  }

  get isFull(): boolean {
    return this.#isOver || this.#outbox.isFull;
  }

  add(text: string): void {
    if (this.#isOver) this.#outbox.lose(1, "the gateway has ended");
    else this.#outbox.add(text);
  }

  /** Sends what there is, within a second; what is left then is lost, and so is what comes later. */
  async close(): Promise<void> {
    await this.#outbox.close();
    this.#isOver = true;
  }
}

/** OTLP §"Failures": all other statuses would be the same the next time. */
const TRANSIENT = new Set([429, 502, 503, 504]);

/** What a collector did not take of a batch that it took otherwise (OTLP §"Partial Success"). */
function partialSuccess(body: Buffer): Rejected {
  const text = body.toString();
  if (!text.includes("rejectedSpans") && !text.includes("rejected_spans")) return { count: 0, why: "" };
  try {
    const { partialSuccess: said = {} } = JSON.parse(text) as { partialSuccess?: { rejectedSpans?: unknown; errorMessage?: unknown } };
    const count = Number(said.rejectedSpans);
    const why = typeof said.errorMessage === "string" ? `: ${said.errorMessage.slice(0, 200)}` : "";
    return { count: Number.isInteger(count) && count > 0 ? count : 0, why: `the collector rejected them${why}` };
  } catch {
    return { count: 0, why: "" };
  }
}
