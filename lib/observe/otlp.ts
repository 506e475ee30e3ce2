/**
 * Sends spans to a collector by OTLP/HTTP in JSON, in batches: whatever becomes of them, requests neither wait for it nor fail by it. How
 * spans are spelt is `span_json.ts`, which there are `trace.ts`.
 */
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { DEFAULT_TIMEOUT_MS, type TracingSettings } from "../config/tracing.ts";
import { HttpClient, type ClientAnswer } from "../http/client.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { batchWriter } from "./span_json.ts";
import type { SpanSink } from "./trace.ts";

export interface OtlpOptions {
  readonly settings: TracingSettings;
  readonly clock: Clock;
  readonly log: Log;
  /** Numbers from 0 to below 1, for pauses that differ between gateways. Default `Math.random`. */
  readonly random?: () => number;
}

/** Most spans in a batch, which is sent as soon as there are so many. */
const BATCH_SPANS = 512;
/** How long a span waits for others at most. */
const BATCH_MS = 1_000;
/** Most that wait; what is more is dropped, the newest first: those before them are about to go. */
const MAX_SPANS = 8_192;
const MAX_CHARACTERS = 16 * 1024 * 1024;
const MAX_TRIES = 5;
const FIRST_PAUSE_MS = 1_000;
/** What a collector asks for in Retry-After is held to, between these. */
const SHORTEST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 30_000;
const MAX_ANSWER_BYTES = 64 * 1024;
const QUIET_MS = 60_000;
/** The end of the gateway waits for a second at most. */
const CLOSE_MS = 900;

export class OtlpExporter implements SpanSink {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #random: () => number;
  readonly #client: HttpClient;
  readonly #url: URL;
  readonly #headers: HeaderList;
  readonly #timeoutMs: number;
  readonly #write: (spans: readonly string[]) => Buffer;
  #spans: string[] = [];
  #characters = 0;
  #timer: Timer | null = null;
  #sending: Promise<void> | null = null;
  #isClosing = false;
  readonly #cut = new AbortController();
  /** Ends the pause before another try. */
  #hurry = () => {};
  #exported = 0;
  #dropped = 0;
  /** Of those: which the log has not told of. */
  #untold = 0;
  #why = "";
  #quietUntil = -Infinity;

  constructor({ settings, clock, log, random = Math.random }: OtlpOptions) {
    const { url, headers = {}, timeoutMs = DEFAULT_TIMEOUT_MS, resource = {}, serviceName = "edge-gateway" } = settings;
    this.#clock = clock;
    this.#log = log;
    this.#random = random;
    this.#client = new HttpClient({ clock, maxConnections: 1 });
    this.#url = new URL(url);
    this.#headers = ["Content-Type", "application/json", ...Object.entries(headers).flat()];
    this.#timeoutMs = timeoutMs;
    this.#write = batchWriter({ "service.name": serviceName, ...resource });
  }

  /** Spans that the collector has taken. */
  get exported(): number {
    return this.#exported;
  }

  /** Spans that were lost: there was no room, or the collector did not take them. */
  get dropped(): number {
    return this.#dropped;
  }

  get isFull(): boolean {
    return this.#spans.length >= MAX_SPANS || this.#characters >= MAX_CHARACTERS || this.#cut.signal.aborted;
  }

  add(text: string): void {
    if (text === "" || this.isFull) return this.#drop(1, "there is no room for more: the collector does not take them as fast as they come");
    this.#spans.push(text);
    this.#characters += text.length;
    if (this.#spans.length >= BATCH_SPANS || this.#isClosing) this.#send();
    else this.#timer ??= this.#clock.after(BATCH_MS, this.#onTime);
  }

  /** Sends what there is, within a second; what is left then is lost, and so is what comes later. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#hurry();
    const deadline = this.#clock.after(CLOSE_MS, () => {
      this.#cut.abort();
      this.#hurry();
    });
    if (this.#spans.length > 0) this.#send();
    while (this.#sending !== null) await this.#sending;
    deadline.cancel();
    this.#cut.abort();
    this.#timer?.cancel();
    this.#client.close();
    this.#tell("now");
  }

  readonly #onTime = (): void => {
    this.#timer = null;
    this.#send();
  };

  /** One batch after the other; those that wait until one has gone give the collector time. */
  #send(): void {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
      if (this.#spans.length > 0) this.#timer ??= this.#clock.after(BATCH_MS, this.#onTime);
    });
  }

  /** What had come when it was called, and all that has filled a batch since. */
  async #sendAll(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    do {
      const batch = this.#spans.splice(0, BATCH_SPANS);
      for (const span of batch) this.#characters -= span.length;
      await this.#deliver(batch);
    } while (this.#spans.length >= BATCH_SPANS || (this.#isClosing && this.#spans.length > 0));
  }

  async #deliver(batch: readonly string[]): Promise<void> {
    const body = this.#write(batch);
    for (let tries = 1; ; tries++) {
      const sent = await this.#try(body);
      if (sent.outcome === "taken") return this.#taken(batch.length, sent.answer);
      const isLast = sent.outcome === "refused" || tries === MAX_TRIES || this.#cut.signal.aborted;
      if (isLast) return this.#drop(batch.length, sent.why);
      await this.#pause(sent.pauseMs ?? FIRST_PAUSE_MS * 2 ** (tries - 1) * (0.5 + this.#random()));
      if (this.#cut.signal.aborted) return this.#drop(batch.length, sent.why);
    }
  }

  async #try(body: Buffer): Promise<Sent> {
    if (this.#cut.signal.aborted) return { outcome: "refused", why: "the gateway has ended" };
    const options = { url: this.#url, method: "POST", headers: this.#headers, body, timeoutMs: this.#timeoutMs, signal: this.#cut.signal };
    try {
      const answer = await this.#client.ask({ ...options, maxBytes: MAX_ANSWER_BYTES });
      const { status } = answer;
      if (status < 300) return { outcome: "taken", answer };
      const why = `the collector answered with status ${status}`;
      if (!AGAIN.has(status)) return { outcome: "refused", why };
      return { outcome: "again", why, pauseMs: retryAfter(answer.headers, this.#clock.wall()) };
    } catch (error) {
      return { outcome: "again", why: (error as Error).message, pauseMs: null };
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      // Once the gateway ends there is no time for patience.
      const timer = this.#clock.after(this.#isClosing ? Math.min(ms, CLOSE_MS / 4) : ms, resolve);
      this.#hurry = () => {
        timer.cancel();
        resolve();
      };
    });
  }

  #taken(spans: number, answer: ClientAnswer): void {
    const { rejected, why } = partialSuccess(answer.body);
    const lost = Math.min(rejected, spans);
    this.#exported += spans - lost;
    if (lost > 0) this.#drop(lost, why);
    else this.#tell("if due");
  }

  #drop(spans: number, why: string): void {
    this.#dropped += spans;
    this.#untold += spans;
    this.#why = why;
    this.#tell("if due");
  }

  #tell(when: "now" | "if due"): void {
    const now = this.#clock.now();
    if (this.#untold === 0 || (when === "if due" && now < this.#quietUntil)) return;
    this.#quietUntil = now + QUIET_MS;
    this.#log.warn("spans of traces were lost", { spans: this.#untold, collector: this.#url.host, error: this.#why });
    this.#untold = 0;
  }
}

type Sent =
  | { readonly outcome: "taken"; readonly answer: ClientAnswer }
  | { readonly outcome: "refused"; readonly why: string }
  /** `pauseMs` is what the collector asks for; null: it does not. */
  | { readonly outcome: "again"; readonly why: string; readonly pauseMs: number | null };

/** OTLP §"Failures": all other statuses would be the same the next time. */
const AGAIN = new Set([429, 502, 503, 504]);

/** Seconds, or a date (RFC 9110 §10.2.3); null where it says neither. */
function retryAfter(headers: HeaderList, wall: number): number | null {
  const text = headerValue(headers, "retry-after");
  if (text === undefined) return null;
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - wall;
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS);
}

/** What a collector did not take of a batch that it took otherwise (OTLP §"Partial Success"). */
function partialSuccess(body: Buffer): { readonly rejected: number; readonly why: string } {
  const text = body.toString();
  if (!text.includes("rejectedSpans") && !text.includes("rejected_spans")) return { rejected: 0, why: "" };
  try {
    const { partialSuccess: said = {} } = JSON.parse(text) as { partialSuccess?: { rejectedSpans?: unknown; errorMessage?: unknown } };
    const rejected = Number(said.rejectedSpans);
    const why = typeof said.errorMessage === "string" ? `: ${said.errorMessage.slice(0, 200)}` : "";
    return { rejected: Number.isInteger(rejected) && rejected > 0 ? rejected : 0, why: `the collector rejected them${why}` };
  } catch {
    return { rejected: 0, why: "" };
  }
}
