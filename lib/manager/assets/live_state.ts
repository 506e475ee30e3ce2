/**
 * Keeps the state of the gateway up to date: requests it once, then follows the event stream, and reconnects after a loss.
 */
import { ApiError, type ask, type Health, type ProxyConfig, type Stats, type StatsWithHistory, type Status } from "./api.ts";
import { mergedHistory, withPoint } from "./history.ts";
import type { Known } from "./page.ts";

/** The part of EventSource that is used. */
export interface EventStream {
  addEventListener(type: string, listener: (event: { readonly data?: unknown }) => void): void;
  close(): void;
}

export interface LiveOptions {
  readonly ask: typeof ask;
  /** Opens /api/gateway/events. */
  readonly open: () => EventStream;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Calls `run` after `ms` milliseconds; returns a function that cancels it. */
  readonly after: (ms: number, run: () => void) => () => void;
  /** The state or the connection has changed. */
  readonly changed: () => void;
  /** 401: the session has ended. No request is sent until `start`. */
  readonly ended: () => void;
}

export interface ConnectionLoss {
  /** A sentence. */
  readonly why: string;
  /** When the next attempt begins (ms since 1970); null during one. */
  readonly retryAt: number | null;
}

const NOTHING: Known = { config: null, status: null, uptimeS: null, health: null, stats: null, history: [], stepS: 5, connection: "connecting" };
const MAX_RETRY_WAIT_MS = 15_000;
/** Limit for a reply: a machine that went to sleep sends no reset. */
const REPLY_TIMEOUT_MS = 12_000;
/** Statistics arrive each second. A stream that is silent for this long is dead. */
const MAX_SILENCE_MS = 10_000;

export class LiveState {
  readonly #options: LiveOptions;
  #known = NOTHING;
  #loss: ConnectionLoss | null = null;
  #stream: EventStream | null = null;
  #cancel = (): void => {};
  /** Counts attempts to connect: replies to an earlier one are ignored. */
  #attempt = 0;
  #failures = 0;
  /** Counts calls of `refresh`: a slow earlier reply must not overwrite a later one. */
  #lastRefresh = 0;
  /** When the gateway was started, by the local clock. */
  #startedAt = 0;

  constructor(options: LiveOptions) {
    this.#options = options;
  }

  get known(): Known {
    return this.#known;
  }

  /** Null while connected, and during the first attempt after a loss. */
  get loss(): ConnectionLoss | null {
    return this.#loss;
  }

  /** Starts, or tries again at once. */
  start(): void {
    void this.#connect();
  }

  /** Ends the stream and keeps the state, as for a hidden page; `start` continues. */
  pause(): void {
    this.#endAttempt();
  }

  async #connect(): Promise<void> {
    const own = this.#endAttempt();
    if (this.#loss !== null) this.#setState({}, { why: this.#loss.why, retryAt: null });
    this.#cancel = this.#options.after(REPLY_TIMEOUT_MS, () => this.#connectionLost(own, "The gateway's admin interface takes too long to answer."));
    try {
      const status = await this.#options.ask<Status>("GET", "/gateway/status");
      if (own !== this.#attempt) return;
      this.#setState({ status });
      this.#listen(own);
      await this.refresh();
    } catch (error) {
      if (own !== this.#attempt) return;
      if (error instanceof ApiError && error.status === 401) this.#sessionEnded();
      else this.#connectionLost(own, sentence(error));
    }
  }

  #listen(own: number): void {
    const opened = this.#options.open();
    this.#stream = opened;
    opened.addEventListener("status", ({ data }) => this.#onEvent(own, data, (status: Status) => ({ status })));
    opened.addEventListener("health", ({ data }) => this.#onEvent(own, data, (health: Health) => ({ health })));
    opened.addEventListener("stats", ({ data }) => this.#onEvent(own, data, (stats: Stats) => ({ stats, history: withPoint(this.#known.history, stats.point) })));
    opened.addEventListener("error", () => this.#connectionLost(own, "The event stream was interrupted."));
  }

  #onEvent<T extends object>(own: number, data: unknown, change: (value: T) => Partial<Known>): void {
    if (own !== this.#attempt) return;
    const value = parsed<T>(data);
    if (value === null) return;
    this.#cancel();
    this.#cancel = this.#options.after(MAX_SILENCE_MS, () => this.#connectionLost(own, "The gateway has sent nothing for 10 seconds."));
    this.#failures = 0;
    const before = this.#known.status;
    this.#setState({ ...change(value), connection: "live" }, null);
    // After a reload the configuration that was read is outdated.
    if (before !== null && this.#known.status !== null && this.#known.status.digest !== before.digest) this.refresh().catch(() => {});
  }

  /** Requests everything again. Rejects with an `ApiError`. */
  async refresh(): Promise<void> {
    const own = ++this.#lastRefresh;
    const startAttempt = this.#attempt;
    try {
      const [config, status, health, stats] = await Promise.all([
        this.#options.ask<ProxyConfig>("GET", "/gateway"),
        this.#options.ask<Status>("GET", "/gateway/status"),
        this.#options.ask<Health>("GET", "/gateway/health"),
        this.#options.ask<StatsWithHistory>("GET", "/gateway/stats"),
      ]);
      if (own === this.#lastRefresh && startAttempt === this.#attempt) this.#setState({ config, status, health, stats, history: mergedHistory(stats, this.#known.history), stepS: stats.step_s });
    } catch (error) {
      if (startAttempt === this.#attempt && error instanceof ApiError && error.status === 401) this.#sessionEnded();
      throw error;
    }
  }

  /** The first attempt after a loss begins at once; its reply shows whether the session has ended. */
  #connectionLost(own: number, why: string): void {
    if (own !== this.#attempt) return;
    this.#endAttempt();
    this.#failures += 1;
    if (this.#failures === 1 && this.#known.connection === "live") {
      this.#setState({ connection: "lost" });
      void this.#connect();
      return;
    }
    const wait = Math.min(1000 * 2 ** Math.max(this.#failures - 2, 0), MAX_RETRY_WAIT_MS);
    this.#cancel = this.#options.after(wait, () => void this.#connect());
    this.#setState({ connection: "lost" }, { why, retryAt: this.#options.now() + wait });
  }

  #sessionEnded(): void {
    this.stop();
    this.#options.ended();
  }

  #endAttempt(): number {
    this.#cancel();
    this.#cancel = () => {};
    this.#stream?.close();
    this.#stream = null;
    return ++this.#attempt;
  }

  /** Ends the stream and forgets everything. */
  stop(): void {
    this.#endAttempt();
    this.#failures = 0;
    this.#known = NOTHING;
    this.#loss = null;
  }

  #setState(change: Partial<Known>, newLoss: ConnectionLoss | null = this.#loss): void {
    if (change.status) this.#startedAt = this.#options.now() - change.status.uptime_s * 1000;
    this.#known = { ...this.#known, ...change };
    if (change.status ?? change.stats ?? change.health) this.#known = { ...this.#known, uptimeS: Math.floor((this.#options.now() - this.#startedAt) / 1000) };
    this.#loss = newLoss;
    this.#options.changed();
  }
}

function parsed<T>(data: unknown): T | null {
  try {
    return typeof data === "string" ? (JSON.parse(data) as T) : null;
  } catch {
    return null;
  }
}

function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
