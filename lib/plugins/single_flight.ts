/**
 * Questions to a server that several requests wait for: one at a time about each key, and none for a while after a
 * failure.
 */
import { messageOf } from "../base/errors.ts";
import type { LogFields } from "../base/log.ts";
import type { Call } from "../http/exchange.ts";
import type { Tools } from "./plugin.ts";

interface Flight<T> {
  readonly outcome: Promise<T>;
  readonly controller: AbortController;
  waiting: number;
}

export class SingleFlight<T> {
  readonly #flights = new Map<string, Flight<T>>();
  #keepsUnawaited: boolean;

  /** `unawaited`: what becomes of a question when all clients that wait for it have disconnected. */
  constructor(unawaited: "finish" | "abort" = "finish") {
    this.#keepsUnawaited = unawaited === "finish";
  }

  /** The outcome of the question that is being asked. */
  current(key: string): Promise<T> | undefined {
    return this.#flights.get(key)?.outcome;
  }

  /** Asks, or shares the outcome of the question that is being asked. */
  join(key: string, ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return this.#flight(key, ask).outcome;
  }

  /** As `join`; resolves with `gone` when the client disconnects. */
  wait(key: string, call: Pick<Call, "onAbort">, gone: T, ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const flight = this.#flight(key, ask);
    flight.waiting++;
    const leave = () => void (--flight.waiting === 0 && !this.#keepsUnawaited && this.#abort(key, flight));
    return new Promise<T>((resolve, reject) => {
      flight.outcome.then(resolve, reject);
      call.onAbort(() => {
        resolve(gone);
        leave();
      });
    });
  }

  /** Ends the questions for which no client waits, from now on at once; those who wait still get the outcome. */
  close(): void {
    this.#keepsUnawaited = false;
    for (const [key, flight] of this.#flights) if (flight.waiting === 0) this.#abort(key, flight);
  }

  #flight(key: string, ask: (signal: AbortSignal) => Promise<T>): Flight<T> {
    const current = this.#flights.get(key);
    if (current !== undefined) return current;
    const controller = new AbortController();
    const outcome = ask(controller.signal).finally(() => this.#forget(key, flight));
    const flight: Flight<T> = { outcome, controller, waiting: 0 };
    this.#flights.set(key, flight);
    return flight;
  }

  #abort(key: string, flight: Flight<T>): void {
    this.#forget(key, flight);
    flight.controller.abort();
  }

  /** There may be another question about the key by then. */
  #forget(key: string, flight: Flight<T>): void {
    if (this.#flights.get(key) === flight) this.#flights.delete(key);
  }
}

/** Pauses after failures, each twice as long as the one before, up to a minute. */
export class BackOff {
  readonly #tools: Pick<Tools, "clock" | "log">;
  readonly #named: LogFields;
  readonly #firstMs: number;
  #failures = 0;
  #until = -Infinity;
  /** The last failure, as text. */
  why = "";

  /** `named`: fields of the log lines. */
  constructor(tools: Pick<Tools, "clock" | "log">, named: LogFields, firstMs: number) {
    this.#tools = tools;
    this.#named = named;
    this.#firstMs = firstMs;
  }

  get isPausing(): boolean {
    return this.#tools.clock.now() < this.#until;
  }

  /** A question has failed: logs `message`, unless another one that was asked at the same time has failed already. */
  warn(message: string, error: unknown): void {
    if (this.isPausing) return;
    this.why = messageOf(error);
    this.#until = this.#tools.clock.now() + Math.min(LONGEST_MS, this.#firstMs * 2 ** Math.min(this.#failures++, 10));
    this.#tools.log.warn(message, { ...this.#named, error: this.why });
  }

  /** Logs `message` if there was a failure before. No question for another `restMs` milliseconds. */
  worked(message: string, restMs: number): void {
    if (this.#failures > 0) this.#tools.log.info(message, this.#named);
    this.#failures = 0;
    this.#until = this.#tools.clock.now() + restMs;
  }
}

const LONGEST_MS = 60_000;
