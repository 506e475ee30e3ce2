/**
 * The gateway in Node's event loop: guards the entries, so that what a timer, an event or a later turn throws is
 * reported, ends at most what it belongs to, such as a connection, and never the process; joins what is read in pieces,
 * and sends what was written in one round together at its end.
 */
import { channel } from "node:diagnostics_channel";
import type { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
// Node's own function: the tests of an embedder may replace the global one to stop time, and nothing would be sent.
import { setImmediate } from "node:timers";
import { getSystemErrorName } from "node:util";
import { Fault } from "./errors.ts";

/** What was thrown at an entry. */
export interface EntryFault {
  readonly error: unknown;
  /** "a timer", "the event data of a Socket" */
  readonly entry: string;
  /** Set by the first subscriber: the others need not answer for it. */
  isAnswered: boolean;
}

/**
 * Gets every `EntryFault` of the process. While nobody subscribes, the error is thrown on, and ends the process as any
 * uncaught error.
 */
export const ENTRY_FAULTS = channel("edge-gateway.entry_faults");

/** `run` as a callback for Node. `name` is for the log. */
export function entry<A extends readonly unknown[]>(name: string, run: (...args: A) => void): (...args: A) => void {
  return (...args) => runEntry(name, () => run(...args));
}

/** Calls `run`; what it throws is reported. */
export function runEntry(name: string, run: () => void): void {
  try {
    run();
  } catch (error) {
    reportEntryFault(error, name);
  }
}

/**
 * What a listener of the emitter throws destroys it or, if it cannot be destroyed, as a server, the connection that the
 * event is about.
 */
export function guardedEmitter<E extends EventEmitter>(emitter: E): E {
  const { emit } = emitter;
  emitter.emit = function (this: E, ...event: Parameters<E["emit"]>) {
    try {
      return emit.apply(this, event);
    } catch (error) {
      return listenerFailed([emitter, ...(event as readonly unknown[])], error);
    }
  };
  return emitter;
}

/** For an own `emit`: the emitter, the name of the event and its arguments, and what was thrown. */
export function listenerFailed([emitter, event, ...about]: readonly unknown[], error: unknown): true {
  reportEntryFault(error, `the event ${String(event)} of a ${emitter!.constructor.name}`);
  const involved = [emitter, ...about] as readonly ({ destroy?: unknown } | null | undefined)[];
  (involved.find((each) => typeof each?.destroy === "function") as { destroy(): void } | undefined)?.destroy();
  return true;
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

/**
 * Joins the bytes of a message whose end has not arrived with those that follow. Memory doubles as it fills: a head in
 * single bytes would otherwise be copied for each of them.
 */
export class Pieces {
  /** The bytes, and room behind them; null while they are in the buffer of the last read. */
  #memory: Buffer | null = null;

  /** `rest`, of which nothing else writes to the memory behind it, and then `chunk`. */
  joined(rest: Buffer, chunk: Buffer): Buffer {
    const length = rest.length + chunk.length;
    let memory = this.#memory;
    let start = rest.byteOffset;
    if (memory === null || rest.buffer !== memory.buffer || start + length > memory.length) {
      memory = Buffer.allocUnsafeSlow(rest.length > chunk.length ? 2 * length : length);
      memory.set(rest);
      start = 0;
      this.#memory = memory;
    }
    memory.set(chunk, start + rest.length);
    return memory.subarray(start, start + length);
  }

  /** `bytes` for the next `joined`: a copy where they are in memory that the next read overwrites. */
  owned(bytes: Buffer): Buffer {
    return bytes.buffer === this.#memory?.buffer ? bytes : Buffer.from(bytes);
  }

  forget(): void {
    this.#memory = null;
  }
}

const MAX_READY = 64;

/** A write that waits for the end of the round. */
export interface ReadyWrite {
  writeNow(): void;
}

/**
 * Collects the writes of one round of the event loop and sends them together at its end. A write to a sleeping reader
 * has to wake it, which costs more than the write itself. Writes that follow each other find their reader awake: this
 * saves 30 % of the processor time of a small request.
 */
export class WriteBatch {
  #ready: ReadyWrite[] = [];

  /** Writes at the end of this round, or when 64 writes are ready. */
  add(write: ReadyWrite): void {
    const ready = this.#ready.push(write);
    if (ready >= MAX_READY) this.now();
    else if (ready === 1) setImmediate(this.#endRound);
  }

  readonly #endRound = entry("the end of a round", () => this.now());

  /**
   * Sends all that is ready, before the caller ends the connections. Sending may add more; writes are for different
   * connections, so each may fail.
   */
  now(): void {
    const batch = this.#ready;
    this.#ready = [];
    for (const write of batch) {
      try {
        write.writeNow();
      } catch (error) {
        reportEntryFault(error, "a write");
      }
    }
  }
}

/** Its asynchronous id is negative while no write uses it. */
type WriteRequest = { oncomplete: (status: number) => void; getAsyncId(): number };

/** What Node's streams write to. It documents none of this: `spec/node_assumptions.spec.ts`. */
interface Handle {
  /**
   * 0 or the system's error. What the system leaves at its first try is copied, and uses `request`; given null, Node 26
   * then returns one.
   */
  writeLatin1String?(request: WriteRequest | null, text: string): number | WriteRequest;
}

/** For the next write: null where Node makes requests itself; undefined until a stream has shown which. */
let unused: WriteRequest | null | undefined;

/**
 * `socket.write(text, "latin1")` for a plain connection, past its stream, whose work for the two writes of a small
 * request was 4 % of all. What the system does not take at once counts, and delays what follows, as any write of the
 * stream.
 */
export function writeText(socket: Socket, text: string): void {
  const handle = (socket as { _handle?: Handle | null })._handle ?? null;
  const isFree = socket.writableLength === 0 && socket.writableCorked === 0 && socket.writable && !socket.connecting;
  if (!isFree || handle === null || unused === undefined) {
    if (unused === undefined && handle?.writeLatin1String !== undefined) learn(handle);
    return void socket.write(text, "latin1");
  }
  const result = handle.writeLatin1String!(unused, text);
  if (typeof result === "object") wait(socket, text, result);
  // After an error nothing was sent: the stream meets it again, and tells of it.
  else if (result !== 0) socket.write(text, "latin1");
  else if (unused !== null && unused.getAsyncId() >= 0) {
    wait(socket, text, unused);
    // Used twice at a time, it would end the process.
    unused = another(unused);
  }
}

const another = (request: WriteRequest) => new (request.constructor as new () => WriteRequest)();

/** Has the next write of the stream show its request. */
function learn(handle: Handle): void {
  const write = handle.writeLatin1String!;
  handle.writeLatin1String = (request, text) => {
    handle.writeLatin1String = write;
    unused = request && another(request);
    return write.call(handle, request, text);
  };
}

/** The stream takes the text for one that it has just written. */
function wait(socket: Socket, text: string, request: WriteRequest): void {
  const { _write } = socket;
  let isTaken = false;
  socket._write = (_text, _encoding, done) => {
    isTaken = true;
    request.oncomplete = (status) =>
      done(status < 0 && !socket.destroyed ? failedWrite(getSystemErrorName(status)) : null);
  };
  socket.write(text, "latin1");
  socket._write = _write;
  // Else it would send the text once more.
  if (!isTaken) socket.destroy();
}

const failedWrite = (code: string) => Object.assign(new Error(`write ${code}`), { code });
