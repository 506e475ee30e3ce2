/**
 * The stream of events (the HTML standard's server-sent events): tells every reader the status, the health and the figures of the gateway
 * as they change. Who may read is decided in `endpoints.ts`; what is said is `views.ts`.
 */
import type { ServerResponse } from "node:http";
import type { Clock, Timer } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { healthView, statsView, statusView, type AdminSource } from "./views.ts";

export interface Events {
  /** "full" and "ended": there can be no further stream. */
  readonly state: "open" | "full" | "ended";
  /** Writes events to a response whose head has been written, until `mayRead` says no, the reader goes, or all ends. */
  open(response: ServerResponse, mayRead: () => boolean): void;
  /** Looks at once whether every reader may still read. */
  review(): void;
  /** Ends all streams; there will be no further ones. */
  close(): void;
}

export interface EventsOptions {
  readonly source: Pick<AdminSource, "status" | "health" | "stats">;
  readonly clock: Clock;
  readonly log: Log;
  /** Default 32. */
  readonly mostStreams?: number;
}

const MOST_STREAMS = 32;
const TICK_MS = 1_000;
/** After which a browser connects anew when a stream breaks. */
const RETRY_MS = 2_000;
/** A reader that reads nothing for so long is gone, or might as well be. */
const MOST_BLOCKED_MS = 30_000;

interface Reader {
  readonly response: ServerResponse;
  readonly mayRead: () => boolean;
  /** When its connection was first found full; null while it takes what is written. */
  blockedAt: number | null;
  /** Whether it has missed changes of status and health. */
  isBehind: boolean;
}

export function createEvents({ source, clock, log, mostStreams = MOST_STREAMS }: EventsOptions): Events {
  const readers = new Set<Reader>();
  let timer: Timer | null = null;
  let isClosed = false;
  /** What readers were last told of status and health, without what changes with every request. */
  let toldStatus = "";
  let toldHealth = "";

  return {
    get state() {
      return isClosed || isEnding(source.status().state) ? "ended" : readers.size >= mostStreams ? "full" : "open";
    },
    open,
    review() {
      for (const reader of readers) if (!reader.mayRead()) end(reader);
    },
    close() {
      isClosed = true;
      // The last second may have brought what the end is for: that the gateway drains, or has drained.
      tryToTell();
      for (const reader of readers) end(reader);
    },
  };

  function open(response: ServerResponse, mayRead: () => boolean): void {
    const reader: Reader = { response, mayRead, blockedAt: null, isBehind: false };
    const { status, health, stats } = look();
    // Nobody has looked for a while: what comes next is compared with what the first reader is told.
    if (readers.size === 0) {
      toldStatus = steady(status);
      toldHealth = steady(health);
      timer = clock.after(TICK_MS, tick);
    }
    readers.add(reader);
    response.once("close", () => leave(reader));
    response.write(`retry: ${RETRY_MS}\n\n${status}${health}${stats}`);
  }

  /** Only while there are readers. What is told is made once for all of them. */
  function tick(): void {
    tryToTell();
    if (readers.size > 0) timer = clock.after(TICK_MS, tick);
  }

  function tryToTell(): void {
    for (const reader of readers) if (!reader.mayRead()) end(reader);
    if (readers.size === 0) return;
    try {
      tell();
    } catch (fault) {
      log.error("events cannot be told", { error: fault instanceof Error ? fault.stack : String(fault) });
      for (const reader of readers) end(reader);
    }
  }

  function tell(): void {
    const { status, health, stats, isEnd } = look();
    const [nowStatus, nowHealth] = [steady(status), steady(health)];
    const news = (nowStatus === toldStatus ? "" : status) + (nowHealth === toldHealth ? "" : health);
    toldStatus = nowStatus;
    toldHealth = nowHealth;
    for (const reader of readers) {
      if (isBlocked(reader)) {
        reader.isBehind ||= news !== "";
        continue;
      }
      reader.response.write((reader.isBehind ? status + health : news) + stats);
      reader.isBehind = false;
    }
    if (isEnd) for (const reader of readers) end(reader);
  }

  /** The events as text: with thousands of upstreams it takes a while, so each is made once. */
  function look() {
    const status = source.status();
    return {
      status: event("status", statusView(status)),
      health: event("health", healthView(source.health())),
      stats: event("stats", statsView(source.stats("active"))),
      isEnd: isEnding(status.state),
    };
  }

  /** A full connection gets nothing more until it has drained, and is cut when that does not happen: nothing piles up. */
  function isBlocked(reader: Reader): boolean {
    if (!reader.response.writableNeedDrain) {
      reader.blockedAt = null;
      return false;
    }
    reader.blockedAt ??= clock.now();
    if (clock.now() - reader.blockedAt >= MOST_BLOCKED_MS) {
      reader.response.destroy();
      leave(reader);
    }
    return true;
  }

  /** What was written is still sent, where there is somebody to read it. */
  function end(reader: Reader): void {
    leave(reader);
    if (reader.response.writableNeedDrain) reader.response.destroy();
    else reader.response.end();
  }

  function leave(reader: Reader): void {
    if (!readers.delete(reader) || readers.size > 0) return;
    timer?.cancel();
    timer = null;
  }
}

/** JSON has no line breaks of its own, so one line of data holds it. */
function event(name: string, value: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`;
}

/** Without what is different each time: it would make news of nothing. No name passes for it: in a string of JSON each `"` follows a `\`. */
function steady(told: string): string {
  return told.replace(CHANGING, "");
}

const CHANGING = /"(?:in_flight|uptime_s)":\d+/g;

function isEnding(state: string): boolean {
  return state === "draining" || state === "closed";
}
