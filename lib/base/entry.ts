/**
 * Guards the entries from Node's event loop into the gateway: what a timer, an event or a later turn throws is reported, and ends at most what
 * the entry belongs to, such as a connection. It never ends the process.
 */
import { channel } from "node:diagnostics_channel";
import type { EventEmitter } from "node:events";
import { Readable } from "node:stream";
import { Fault } from "./errors.ts";

/** What was thrown at an entry. */
export interface EntryFault {
  readonly error: unknown;
  /** "a timer", "the event data of a Socket" */
  readonly entry: string;
  /** Set by the first subscriber: the others need not answer for it. */
  isAnswered: boolean;
}

/** Gets every `EntryFault` of the process. While nobody subscribes, the error is thrown on, and ends the process as any uncaught error. */
export const ENTRY_FAULTS = channel("edge-gateway.entry_faults");

/** `run` as a callback for Node. `entry` is for the log. */
export function entry<A extends readonly unknown[]>(name: string, run: (...args: A) => void): (...args: A) => void {
  return (...args) => {
    try {
      run(...args);
    } catch (error) {
      reportEntryFault(error, name);
    }
  };
}

/** What a listener of the emitter throws destroys it or, if it cannot be destroyed, as a server, the connection that the event is about. */
export function guarded<E extends EventEmitter>(emitter: E): E {
  const { emit } = emitter;
  emitter.emit = function (this: E, ...event: Parameters<E["emit"]>) {
    try {
      return emit.apply(this, event);
    } catch (error) {
      reportEntryFault(error, `the event ${String(event[0])} of a ${emitter.constructor.name}`);
      [emitter, ...(event as readonly unknown[])].find(isDestroyable)?.destroy();
      return true;
    }
  };
  return emitter;
}

/** A stream whose listeners may be a plugin's: what one of them throws destroys it. */
export class GuardedReadable extends Readable {
  override emit(...event: Parameters<Readable["emit"]>): boolean {
    try {
      return super.emit(...event);
    } catch (error) {
      reportEntryFault(error, `the event ${String(event[0])} of a ${this.constructor.name}`);
      this.destroy(new Fault("internal", "a listener of the body failed", error));
      return true;
    }
  }
}

export function reportEntryFault(error: unknown, name: string): void {
  if (!ENTRY_FAULTS.hasSubscribers) throw error;
  ENTRY_FAULTS.publish({ error, entry: name, isAnswered: false } satisfies EntryFault);
}

function isDestroyable(value: unknown): value is { destroy(): void } {
  return typeof (value as { destroy?: unknown } | null | undefined)?.destroy === "function";
}
