/**
 * `GET /gateway/tail`: lines of the access log as server-sent events, as requests end, of all workers. While nobody
 * reads, nothing is done for it.
 */
import { Readable } from "node:stream";
import type { Timer } from "../base/clock.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { readRequestFilter, type RequestFilter } from "../observe/request_filter.ts";
import { Tail, TURN_MS, type TailBatch } from "../observe/tail.ts";
import { queryOf } from "./replies.ts";
import type { Account } from "./session.ts";
import { event, RETRY_MS, StreamReaders, type StreamReader } from "./stream_readers.ts";
import type { InterfaceOptions } from "./views.ts";
import { workerReportsOf } from "../report/worker_reports.ts";

/** Lines that a reader gets of each turn, from all threads. */
const MAX_LINES = 25;

interface Reader extends StreamReader {
  readonly id: number;
  readonly filter: RequestFilter;
  /** Requests whose lines it did not get, because it was blocked. */
  missed: number;
}

export class TailStreams {
  readonly #options: Pick<InterfaceOptions, "clock" | "gateway">;
  readonly #readers: StreamReaders<Reader>;
  /** Of this thread; null: nobody has read, or workers serve. */
  #tail: Tail | null = null;
  #timer: Timer | null = null;
  #lastId = 0;
  #isClosed = false;

  constructor(options: Pick<InterfaceOptions, "clock" | "gateway">) {
    this.#options = options;
    this.#readers = new StreamReaders(options.clock, () => this.#follow());
  }

  /** "full" and "ended": `open` must not be called for this user. */
  stateFor({ user }: Pick<Account, "user">): "open" | "full" | "ended" {
    if (this.#isClosed) return "ended";
    return this.#readers.hasRoomFor(user) ? "open" : "full";
  }

  /** A sentence if the query of `target` cannot be used. */
  open(mayRead: () => boolean, target: string, user: string): Readable | string {
    const filter = readRequestFilter(queryOf(target));
    if (typeof filter === "string") return filter;
    const body = new Readable({ read() {} });
    body.push(`retry: ${RETRY_MS}\n\n`);
    this.#readers.add({ body, user, mayRead, blockedAt: null, id: ++this.#lastId, filter, missed: 0 });
    return body;
  }

  review(): void {
    this.#readers.review();
  }

  /** Ends all streams and refuses new ones. */
  close(): void {
    this.#isClosed = true;
    for (const reader of this.#readers) this.#readers.end(reader);
  }

  /** Tells all threads who reads. */
  #follow(): void {
    const { clock, gateway } = this.#options;
    const internals = GatewayCore.internalsOf(gateway as ReportedGateway);
    const { accessLog, configuration, runtime } = internals;
    const readers = Array.from(this.#readers, ({ id, filter }) => ({
      id,
      filter,
      most: Math.ceil(MAX_LINES / runtime.threads.count),
    }));
    const reports = workerReportsOf(internals);
    if (reports !== null) reports.tail?.(readers, this.#receive);
    else
      (this.#tail ??= new Tail(
        clock,
        accessLog,
        () => configuration.snapshot.global.accessLog,
        this.#receive,
      )).readers = readers;
    if (readers.length > 0) this.#timer ??= clock.after(TURN_MS, this.#look);
  }

  /** Ends streams whose session is over, or that nobody reads. */
  readonly #look = (): void => {
    this.review();
    for (const reader of this.#readers) this.#readers.isBlocked(reader);
    this.#timer = this.#readers.size === 0 ? null : this.#options.clock.after(TURN_MS, this.#look);
  };

  readonly #receive = (batches: readonly TailBatch[]): void => {
    this.review();
    const byId = new Map(batches.map((batch) => [batch.id, batch]));
    for (const reader of this.#readers) {
      const batch = byId.get(reader.id);
      if (batch === undefined) continue;
      const matched = batch.matched + reader.missed;
      const isBlocked = this.#readers.isBlocked(reader);
      reader.missed = isBlocked ? matched : 0;
      if (!isBlocked) reader.body.push(event("lines", `{"matched":${matched},"lines":[${batch.lines.join(",")}]}`));
    }
  };
}
