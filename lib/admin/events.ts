/**
 * Event streams (server-sent events, HTML standard §9.2): every reader gets the status, health and statistics of the
 * gateway as they change.
 */
import { Readable } from "node:stream";
import type { Timer } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Account } from "./session.ts";
import { placedStatus } from "./placed_status.ts";
import { event, RETRY_MS, StreamReaders, type StreamReader } from "./stream_readers.ts";
import { statsView, steady, view, type InterfaceOptions } from "./views.ts";

export interface EventsOptions extends Pick<InterfaceOptions, "clock" | "log" | "gateway" | "refresh"> {
  /** Default 32. */
  readonly maxStreams?: number;
}

const TICK_MS = 1_000;

interface Reader extends StreamReader {
  /** Whether it has missed changes of status and health. */
  isBehind: boolean;
}

export class EventStreams {
  readonly #options: EventsOptions;
  readonly #readers: StreamReaders<Reader>;
  #timer: Timer | null = null;
  #isClosed = false;
  /** The last status and health sent, without the fields that change all the time. */
  #sentStatus = "";
  #sentHealth = "";

  constructor(options: EventsOptions) {
    this.#options = options;
    this.#readers = new StreamReaders(options.clock, () => this.#readers.size === 0 && this.#stopTicking());
  }

  /** "full" and "ended": `open` must not be called for this user. Viewers leave places to the administrator. */
  stateFor({ user, role }: Pick<Account, "user" | "role">): "open" | "full" | "ended" {
    if (this.#isClosed || isEnding(this.#options.gateway.status.state)) return "ended";
    const { maxStreams } = this.#options;
    return this.#readers.hasRoomFor(user, maxStreams, role === "admin" ? Infinity : undefined) ? "open" : "full";
  }

  /** A reply body that yields events until `mayRead` returns false, the reader disconnects, or `close` is called. */
  open(mayRead: () => boolean, _target: string, user: string): Readable {
    const body = new Readable({ read() {} });
    const { status, health, stats } = this.#snapshot();
    if (this.#readers.size === 0) {
      // Without readers, changes were not tracked.
      this.#sentStatus = steady(status);
      this.#sentHealth = steady(health);
      this.#timer = this.#options.clock.after(TICK_MS, this.#tick);
    }
    const reader: Reader = { body, user, mayRead, blockedAt: null, isBehind: false };
    this.#readers.add(reader);
    body.push(`retry: ${RETRY_MS}\n\n${status}${health}${stats}`);
    return body;
  }

  /** Ends the streams of readers that may no longer read. */
  review(): void {
    this.#readers.review();
  }

  /** Ends all streams and refuses new ones. */
  close(): void {
    this.#isClosed = true;
    // The last event reports that the gateway is draining or closed.
    this.#update();
    for (const reader of this.#readers) this.#readers.end(reader);
  }

  readonly #tick = (): void => {
    const refreshed = this.#options.refresh("counts");
    if (refreshed === null) return this.#sendNext();
    const timer = this.#timer;
    void refreshed.then(() => {
      // Without readers since then, or with the timer of a new one.
      if (this.#timer === timer) this.#sendNext();
    });
  };

  #sendNext(): void {
    this.#update();
    if (this.#readers.size > 0) this.#timer = this.#options.clock.after(TICK_MS, this.#tick);
  }

  #update(): void {
    this.review();
    if (this.#readers.size === 0) return;
    try {
      this.#send();
    } catch (error) {
      this.#options.log.error("events could not be sent", { error: messageOf(error, "stack") });
      for (const reader of this.#readers) this.#readers.end(reader);
    }
  }

  #send(): void {
    const { status, health, stats, isEnd } = this.#snapshot();
    const [newStatus, newHealth] = [steady(status), steady(health)];
    const changes = (newStatus === this.#sentStatus ? "" : status) + (newHealth === this.#sentHealth ? "" : health);
    this.#sentStatus = newStatus;
    this.#sentHealth = newHealth;
    for (const reader of this.#readers) {
      if (this.#readers.isBlocked(reader)) {
        reader.isBehind ||= changes !== "";
        continue;
      }
      reader.body.push((reader.isBehind ? status + health : changes) + stats);
      reader.isBehind = false;
    }
    if (isEnd) for (const reader of this.#readers) this.#readers.end(reader);
  }

  /** The events as text, created once for all readers: with thousands of upstreams this is expensive. */
  #snapshot() {
    const { gateway } = this.#options;
    const status = placedStatus(gateway);
    return {
      status: event("status", JSON.stringify(status)),
      health: event("health", JSON.stringify(view(gateway.health))),
      stats: event("stats", JSON.stringify(statsView(gateway.recentStats("active")))),
      isEnd: isEnding(status.state),
    };
  }

  #stopTicking(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }
}

function isEnding(state: string): boolean {
  return state === "draining" || state === "closed";
}
