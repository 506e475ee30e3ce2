/**
 * Keeps the state of the gateway up to date: asks once, listens to the stream of events, and starts again after a loss.
 */
import { ApiError, type ask, type Health, type ProxyConfig, type Stats, type StatsWithHistory, type Status } from "./api.ts";
import { joined, withPoint } from "./history.ts";
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
  /** 401: there is no session any more. Nothing is asked until `start`. */
  readonly ended: () => void;
}

export interface Loss {
  /** A sentence. */
  readonly why: string;
  /** When the next attempt begins (ms since 1970); null during one. */
  readonly retryAt: number | null;
}

export interface Live {
  known(): Known;
  /** Null while connected, and during the first attempt after a loss. */
  loss(): Loss | null;
  /** Starts, or tries again at once. */
  start(): void;
  /** Asks for everything again. Rejects with an `ApiError`. */
  refresh(): Promise<void>;
  /** Ends the stream and keeps the state, as for a hidden page; `start` continues. */
  pause(): void;
  /** Ends the stream and forgets everything. */
  stop(): void;
}

const NOTHING: Known = { config: null, status: null, uptimeS: null, health: null, stats: null, history: [], stepS: 5, connection: "connecting" };
const LONGEST_WAIT_MS = 15_000;
/** A slower reply counts as none: a machine that went to sleep sends no reset. */
const MOST_ANSWERING_MS = 12_000;
/** Statistics arrive each second. A stream that is silent for this long is dead. */
const MOST_SILENCE_MS = 10_000;

export function createLive(options: LiveOptions): Live {
  const { after, now } = options;
  let known = NOTHING;
  let loss: Loss | null = null;
  let stream: EventStream | null = null;
  let cancel = (): void => {};
  /** Counts starts: replies to an earlier one are ignored. */
  let turn = 0;
  let failures = 0;
  /** The latest request for everything: a slow earlier reply must not overwrite a later one. */
  let asked = 0;
  /** When the gateway was started, by the local clock. */
  let startedAt = 0;

  return { known: () => known, loss: () => loss, start: () => void connect(), refresh, pause: end, stop };

  async function connect(): Promise<void> {
    const mine = end();
    if (loss !== null) tell({}, { why: loss.why, retryAt: null });
    cancel = after(MOST_ANSWERING_MS, () => lose(mine, "The gateway's admin interface takes too long to answer."));
    try {
      const status = await options.ask<Status>("GET", "/gateway/status");
      if (mine !== turn) return;
      tell({ status });
      listen(mine);
      await refresh();
    } catch (error) {
      if (mine !== turn) return;
      if (error instanceof ApiError && error.status === 401) sessionEnded();
      else lose(mine, sentence(error));
    }
  }

  function listen(mine: number): void {
    const opened = options.open();
    stream = opened;
    opened.addEventListener("status", ({ data }) => heard(mine, data, (status: Status) => ({ status })));
    opened.addEventListener("health", ({ data }) => heard(mine, data, (health: Health) => ({ health })));
    opened.addEventListener("stats", ({ data }) => heard(mine, data, (stats: Stats) => ({ stats, history: withPoint(known.history, stats.point) })));
    opened.addEventListener("error", () => lose(mine, "The stream of live figures has broken off."));
  }

  function heard<T extends object>(mine: number, data: unknown, change: (value: T) => Partial<Known>): void {
    if (mine !== turn) return;
    const value = parsed<T>(data);
    if (value === null) return;
    cancel();
    cancel = after(MOST_SILENCE_MS, () => lose(mine, "The gateway has sent nothing for a while."));
    failures = 0;
    const before = known.status;
    tell({ ...change(value), connection: "live" }, null);
    // After a reload the configuration that was read is outdated.
    if (before !== null && known.status !== null && known.status.digest !== before.digest) refresh().catch(() => {});
  }

  async function refresh(): Promise<void> {
    const mine = ++asked;
    const during = turn;
    try {
      const [config, status, health, stats] = await Promise.all([
        options.ask<ProxyConfig>("GET", "/gateway"),
        options.ask<Status>("GET", "/gateway/status"),
        options.ask<Health>("GET", "/gateway/health"),
        options.ask<StatsWithHistory>("GET", "/gateway/stats"),
      ]);
      if (mine === asked && during === turn) tell({ config, status, health, stats, history: joined(stats, known.history), stepS: stats.step_s });
    } catch (error) {
      if (during === turn && error instanceof ApiError && error.status === 401) sessionEnded();
      throw error;
    }
  }

  /** The first attempt after a loss begins at once; its reply shows whether the session has ended. */
  function lose(mine: number, why: string): void {
    if (mine !== turn) return;
    end();
    failures += 1;
    if (failures === 1 && known.connection === "live") {
      tell({ connection: "lost" });
      void connect();
      return;
    }
    const wait = Math.min(1000 * 2 ** Math.max(failures - 2, 0), LONGEST_WAIT_MS);
    cancel = after(wait, () => void connect());
    tell({ connection: "lost" }, { why, retryAt: now() + wait });
  }

  function sessionEnded(): void {
    stop();
    options.ended();
  }

  function end(): number {
    cancel();
    cancel = () => {};
    stream?.close();
    stream = null;
    return ++turn;
  }

  function stop(): void {
    end();
    failures = 0;
    known = NOTHING;
    loss = null;
  }

  function tell(change: Partial<Known>, nowLost: Loss | null = loss): void {
    if (change.status) startedAt = now() - change.status.uptime_s * 1000;
    known = { ...known, ...change };
    if (change.status ?? change.stats ?? change.health) known = { ...known, uptimeS: Math.floor((now() - startedAt) / 1000) };
    loss = nowLost;
    options.changed();
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
