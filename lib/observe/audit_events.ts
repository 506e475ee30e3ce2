/**
 * Sends the events of a worker to the audit log of the main thread.
 */
import { systemClock, waitAtMost } from "../base/clock.ts";
import { entry } from "../base/event_loop.ts";
import { auditEvent, MAX_WAIT_MS, type AuditEvent, type AuditSink } from "./audit_log.ts";

/** Events that are sent and not written yet; further ones are lost. */
const MAX_WAITING = 10_000;
/** Events wait this long for others. In milliseconds. */
const HOLD_MS = 2;

interface Batch {
  readonly events: AuditEvent[];
  /** How many there were besides. */
  lost: number;
  /** Who waits for them. */
  readonly done: ((isWritten: boolean) => void)[];
}

export class AuditEvents implements AuditSink {
  readonly #send: (events: readonly AuditEvent[], lost: number) => void;
  #next: Batch = { events: [], lost: 0, done: [] };
  /** Those that were sent and not answered, the oldest first. */
  readonly #sent: Batch[] = [];
  #waiting = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(send: (events: readonly AuditEvent[], lost: number) => void) {
    this.#send = send;
  }

  add(event: string, fields: object): void {
    if (this.#waiting >= MAX_WAITING) {
      this.#next.lost++;
      return;
    }
    this.#waiting++;
    this.#next.events.push(auditEvent(event, fields, systemClock.wall()));
    this.#timer ??= setTimeout(
      entry("events for the audit log", () => this.flush()),
      HOLD_MS,
    );
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const batch = this.#next;
    if (batch.events.length === 0 && batch.lost === 0) return;
    this.#next = { events: [], lost: 0, done: [] };
    this.#sent.push(batch);
    this.#send(batch.events, batch.lost);
  }

  /** The main thread has dealt with the oldest batch. */
  answered(isWritten: boolean): void {
    const { events, done } = this.#sent.shift()!;
    this.#waiting -= events.length;
    for (const each of done) each(isWritten);
  }

  async written(): Promise<boolean> {
    if (this.#waiting >= MAX_WAITING) return false;
    let isWritten = false;
    await waitAtMost(
      new Promise<void>((resolve) => this.#next.done.push((known) => resolve(void (isWritten = known)))),
      MAX_WAIT_MS,
    );
    return isWritten;
  }
}
