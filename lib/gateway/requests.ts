/**
 * Admits, counts, logs and traces the requests that a gateway is answering. The answers come from `serve.ts`.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { AccessLog } from "../observe/access_log.ts";
import type { Metrics } from "../observe/metrics.ts";
import { stopPluginTime } from "../observe/plugin_meter.ts";
import { withServerTiming } from "../observe/server_timing.ts";
import type { Tracer } from "../observe/trace.ts";
import type { Inbound } from "../server/receive.ts";
import { serve } from "./serve.ts";
import type { Snapshot } from "./snapshot.ts";

export interface RequestsTools {
  readonly clock: Clock;
  readonly log: Log;
  readonly accessLog: AccessLog;
  readonly metrics: Metrics;
  /** Null: requests are not traced. */
  readonly tracer: Tracer | null;
}

export class Requests {
  readonly #tools: RequestsTools;
  #inFlight = 0;
  /** Those of them that are refused because there are too many: they do not count, however slowly their clients read. */
  readonly #shed = new Set<Inbound>();
  #noneInFlight: (() => void) | null = null;
  #isClosed = false;

  constructor(tools: RequestsTools) {
    this.#tools = tools;
  }

  /** Requests that are being answered, and open WebSockets. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Answers a request; `ended` is called when its reply is out. */
  serve(inbound: Inbound, snapshot: Snapshot): Reply | Promise<Reply> {
    this.#inFlight++;
    const reply = this.#answer(inbound, snapshot);
    if (!snapshot.global.serverTiming) return reply;
    const timed = (given: Reply) => withServerTiming(given, inbound.call, this.#tools.clock.now());
    return reply instanceof Promise ? reply.then(timed) : timed(reply);
  }

  #answer(inbound: Inbound, snapshot: Snapshot): Reply | Promise<Reply> {
    const { accessLog, tracer } = this.#tools;
    accessLog.begin(inbound);
    tracer?.begin(inbound);
    if (this.#isClosed) return problem(inbound.call, "overloaded", { detail: "The gateway has been shut down." });
    const most = snapshot.global.limits.maxRequestsInFlight;
    if (most > 0 && this.#inFlight - this.#shed.size > most) {
      this.#shed.add(inbound);
      return problem(inbound.call, "overloaded", { detail: "Too many requests are under way. Try again shortly.", headers: ["Retry-After", "1"] });
    }
    return serve(inbound, snapshot, this.#tools);
  }

  /** The reply of a request is out, or its client is gone. */
  ended(inbound: Inbound): void {
    const { clock, accessLog, metrics, tracer } = this.#tools;
    const { call, method } = inbound;
    const now = clock.now();
    stopPluginTime(call.notes, call.notes.answeredAt ?? now);
    (call.notes.meter ?? metrics.unrouted).ended(method, call.notes, now - call.startedAt);
    accessLog.write(inbound, now);
    tracer?.end(call.notes);
    if (this.#shed.size > 0) this.#shed.delete(inbound);
    if (--this.#inFlight === 0) this.#noneInFlight?.();
  }

  /** Resolves when no request is being answered. */
  untilNone(): Promise<void> {
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#noneInFlight = resolve;
    });
  }

  /** From now on every request is refused. */
  close(): void {
    this.#isClosed = true;
  }
}
