/**
 * Keeps what is known of the gateway up to date: asks once, listens to the stream of events, and begins anew after a loss.
 * How a loss is shown, and what the end of a session leads to, is decided by `main.ts`.
 */
import { ApiError, type ask, type Health, type ProxyConfig, type Stats, type StatsWithHistory, type Status } from "./api.ts";
import { joined, withPoint } from "./history.ts";
import type { Known } from "./page.ts";

/** What is needed of an EventSource. */
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
  /** Calls `run` after `ms` milliseconds; gives what cancels it. */
  readonly after: (ms: number, run: () => void) => () => void;
  /** Something new is known, or the connection is another. */
  readonly changed: () => void;
  /** 401: there is no session, or no longer one. Nothing more is asked until `start`. */
  readonly ended: () => void;
}

export interface Loss {
  /** A sentence. */
  readonly why: string;
  /** When the next attempt begins (ms since 1970); null while one is under way. */
  readonly retryAt: number | null;
}

export interface Live {
  known(): Known;
  /** Null while there is nothing to say about it: connected, or the first attempt after a loss is under way. */
  loss(): Loss | null;
  /** Begins, or tries again at once. */
  start(): void;
  /** Asks for everything anew. Rejects with an `ApiError`. */
  refresh(): Promise<void>;
  /** Ends the stream and keeps what is known, as for a page nobody looks at; `start` goes on. */
  pause(): void;
  /** Ends the stream and forgets everything. */
  stop(): void;
}

const NOTHING: Known = { config: null, status: null, uptimeS: null, health: null, stats: null, history: [], stepS: 5, connection: "connecting" };
const LONGEST_WAIT_MS = 15_000;
/** An answer that takes longer is none: a machine that has gone to sleep sends no reset. */
const MOST_ANSWERING_MS = 12_000;
/** Figures come each second. A stream that says nothing for this long is dead, whatever the socket says. */
const MOST_SILENCE_MS = 10_000;

export function createLive(options: LiveOptions): Live {
  const { after, now } = options;
  let known = NOTHING;
  let loss: Loss | null = null;
  let stream: EventStream | null = null;
  let cancel = (): void => {};
  /** Counts beginnings: what belongs to an earlier one no longer matters. */
  let turn = 0;
  let failures = 0;
  /** Of the newest question for all of it: a slow earlier answer does not undo a later one. */
  let asked = 0;
  /** Of the gateway, by the clock here. */
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
    // After a reload what was read of the configuration is of yesterday.
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

  /** The first attempt after a loss begins at once, and says with its answer whether it is the session that has ended. */
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
