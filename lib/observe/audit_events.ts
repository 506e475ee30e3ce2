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

export class AuditEvents implements AuditSink {
  readonly #send: (events: readonly AuditEvent[], lost: number) => void;
  #held: AuditEvent[] = [];
  #lost = 0;
  #timer: NodeJS.Timeout | null = null;
  /** Of each batch that was sent and not answered: how many events it has, and who waits for them. */
  readonly #sent: { readonly count: number; readonly done: ((isWritten: boolean) => void)[] }[] = [];
  #done: ((isWritten: boolean) => void)[] = [];
  #waiting = 0;

  constructor(send: (events: readonly AuditEvent[], lost: number) => void) {
    this.#send = send;
  }

  add(event: string, fields: object): void {
    if (this.#waiting >= MAX_WAITING) {
      this.#lost++;
      return;
    }
    this.#waiting++;
    this.#held.push(auditEvent(event, fields, systemClock.wall()));
    this.#timer ??= setTimeout(entry("events for the audit log", () => this.flush()), HOLD_MS);
  }

  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#held.length === 0 && this.#lost === 0) return;
    this.#sent.push({ count: this.#held.length, done: this.#done });
    this.#send(this.#held, this.#lost);
    [this.#held, this.#done, this.#lost] = [[], [], 0];
  }

  /** The main thread has dealt with the oldest batch. */
  answered(isWritten: boolean): void {
    const { count = 0, done = [] } = this.#sent.shift() ?? {};
    this.#waiting -= count;
    for (const each of done) each(isWritten);
  }

  async written(): Promise<boolean> {
    if (this.#waiting >= MAX_WAITING) return false;
    let isWritten = false;
    await waitAtMost(new Promise<void>((resolve) => this.#done.push((known) => resolve(void (isWritten = known)))), MAX_WAIT_MS);
    return isWritten;
  }
}
