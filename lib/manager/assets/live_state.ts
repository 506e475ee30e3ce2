/**
 * Keeps the state of the gateway up to date: asks each second for what the page shows, and more rarely while there is
 * no answer. No request stays open, since all pages of a browser share six connections to one origin.
 */
import { isSessionEnd, messageOf, type ApiError, type ask, type Now, type ProxyConfig } from "./api.ts";
import { mergedHistory, withPoint } from "./history.ts";
import { queryOf, type Known, type Shown } from "./page.ts";

interface LiveOptions {
  readonly ask: typeof ask;
  /** What the page shows. */
  readonly shown: () => Shown;
  /** Milliseconds since 1970, by this browser's clock. */
  readonly now: () => number;
  /** Calls `run` after `ms` milliseconds; returns a function that cancels it. */
  readonly after: (ms: number, run: () => void) => () => void;
  /** The state or the connection has changed. */
  readonly changed: () => void;
  /** 401: the session has ended. No request is sent until `start`. */
  readonly ended: (error: ApiError) => void;
}

export interface ConnectionLoss {
  /** A sentence. */
  readonly why: string;
  /** When the next attempt begins (ms since 1970); null during one. */
  readonly retryAt: number | null;
}

const NOTHING = {
  config: null,
  status: null,
  uptimeS: null,
  health: null,
  stats: null,
  history: [],
  stepS: 5,
  connection: "connecting",
} as const;
const TURN_MS = 1000;
const MAX_RETRY_WAIT_MS = 15_000;
/** An answer about thousands of services costs the gateway some time: of that a page takes no more than a fifth. */
const PAUSE_PER_MS = 4;
const MAX_PAUSE_MS = 5_000;

export class LiveState {
  readonly #options: LiveOptions;
  #known: Omit<Known, "now"> = NOTHING;
  #loss: ConnectionLoss | null = null;
  #isPaused = true;
  #cancel = (): void => {};
  /** Counts requests: replies to an earlier one are ignored. */
  #turn = 0;
  #failures = 0;
  /** Tags of the status and the health that are known; null: the next reply has everything. */
  #tags: string | null = null;
  /** What the statistics were asked for. */
  #statsFor = "";
  /** The digest of the configuration that was read. */
  #digest = "";
  /** The gateway's clock less this browser's. */
  #offset = 0;
  /** When the gateway was started, by its clock. */
  #startedAt = 0;

  constructor(options: LiveOptions) {
    this.#options = options;
  }

  get known(): Known {
    const { stats } = this.#known;
    const isOfPage = this.#statsFor === queryOf(this.#options.shown());
    return {
      ...this.#known,
      stats: stats === null || isOfPage ? stats : { ...stats, services: null },
      now: this.#options.now() + this.#offset,
    };
  }

  /** Null while connected, and during the first attempt after a loss. */
  get loss(): ConnectionLoss | null {
    return this.#loss;
  }

  /** Asks now, and then each second. */
  start(): void {
    this.#isPaused = false;
    this.refresh().catch(() => {});
  }

  /** Asks nothing by itself until `start`, as for a hidden page. Everything may have changed by then. */
  pause(): void {
    this.#isPaused = true;
    this.#endTurn();
    this.#tags = null;
  }

  /** Asks now; rejects with the error of this request. */
  async refresh(): Promise<void> {
    const own = this.#endTurn();
    const askedAt = this.#options.now();
    if (this.#loss !== null) this.#setState({}, { why: this.#loss.why, retryAt: null });
    try {
      await this.#load(own);
      if (own === this.#turn) this.#startAfter(pauseMs(TURN_MS, this.#options.now() - askedAt));
    } catch (error) {
      if (own === this.#turn) {
        if (isSessionEnd(error)) this.#sessionEnded(error);
        else this.#connectionLost(messageOf(error));
      }
      throw error;
    }
  }

  async #load(own: number): Promise<void> {
    const { ask, now, shown } = this.#options;
    const [query, tags] = [queryOf(shown()), this.#tags];
    const reply = await ask<Now>("GET", `/gateway/now?${query}${tags === null ? "" : `&known=${tags}`}`);
    if (own !== this.#turn) return;
    const { status = this.#known.status, health = this.#known.health, stats } = reply;
    const at = Date.parse(stats.at);
    this.#offset = at - now();
    if (reply.status !== undefined) this.#startedAt = at - reply.status.uptime_s * 1000;
    this.#tags = reply.known;
    this.#statsFor = query;
    this.#failures = 0;
    const earlier = this.#known.history;
    const past =
      stats.history === undefined
        ? { history: withPoint(earlier, stats.point) }
        : { history: mergedHistory(stats, earlier), stepS: stats.step_s };
    this.#setState(
      { status, health, stats, ...past, uptimeS: Math.floor((at - this.#startedAt) / 1000), connection: "live" },
      null,
    );
    // After a reload the configuration that was read is outdated.
    if (status === null || status.digest === this.#digest) return;
    const config = await ask<ProxyConfig>("GET", "/gateway?secrets=masked");
    if (own !== this.#turn) return;
    this.#digest = status.digest;
    this.#setState({ config });
  }

  /** The first attempt after a loss begins at once. */
  #connectionLost(why: string): void {
    this.#failures += 1;
    this.#tags = null;
    if (this.#failures === 1 && this.#known.connection === "live" && !this.#isPaused) {
      this.#setState({ connection: "lost" });
      return this.start();
    }
    const wait = Math.min(1000 * 2 ** Math.max(this.#failures - 2, 0), MAX_RETRY_WAIT_MS);
    this.#startAfter(wait);
    this.#setState({ connection: "lost" }, { why, retryAt: this.#options.now() + wait });
  }

  #sessionEnded(error: ApiError): void {
    this.stop();
    this.#options.ended(error);
  }

  #startAfter(ms: number): void {
    if (!this.#isPaused) this.#cancel = this.#options.after(ms, () => this.start());
  }

  #endTurn(): number {
    this.#cancel();
    this.#cancel = () => {};
    return ++this.#turn;
  }

  /** As `pause`, and forgets everything. */
  stop(): void {
    this.pause();
    this.#failures = 0;
    this.#known = NOTHING;
    this.#loss = null;
    this.#digest = "";
  }

  #setState(change: Partial<Known>, newLoss: ConnectionLoss | null = this.#loss): void {
    this.#known = { ...this.#known, ...change };
    this.#loss = newLoss;
    this.#options.changed();
  }
}

/** How long nothing is asked after an answer that took so long. */
export function pauseMs(leastMs: number, tookMs: number): number {
  return Math.max(leastMs, Math.min(PAUSE_PER_MS * tookMs, MAX_PAUSE_MS));
}
