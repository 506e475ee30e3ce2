/**
 * Reads the plain connections of clients into memory that all of them share: memory of its own for each read costs 2 µs of processor time, a
 * fifteenth of a small request.
 */
import { Socket } from "node:net";

/** As much as Node reads at a time. */
const READ_BYTES = 64 * 1024;

export class ReadMemory {
  #memory: Buffer | null = null;

  /**
   * Moves the connection of a socket that was accepted in this turn to one that reads into this memory: its "data" events bring bytes that the next
   * read overwrites, until `ownReads` is called. Returns the same socket where Node has no handle to give.
   */
  adopt(accepted: Socket): Socket {
    const holder = accepted as unknown as { _handle: unknown };
    const handle = holder._handle;
    if (handle === null || handle === undefined) return accepted;
    holder._handle = null;
    const buffer = (this.#memory ??= Buffer.allocUnsafeSlow(READ_BYTES));
    // Node's documentation has `onread`, and not `handle`: `spec/node_assumptions.spec.ts`.
    const callback = (bytes: number) => socket.arrived(buffer.subarray(0, bytes));
    const socket = new SharingSocket({ handle, allowHalfOpen: true, readable: true, writable: true, onread: { buffer, callback } } as object, buffer.buffer);
    // An idle connection would cost a quarter more memory with it.
    accepted.destroy();
    return socket;
  }
}

export class SharingSocket extends Socket {
  /** Where the bytes of "data" events lie; null: in their own memory. */
  memory: ArrayBufferLike | null;

  constructor(options: object, memory: ArrayBufferLike) {
    super(options);
    this.memory = memory;
  }

  /** Returns false if nothing more is to be read for now. */
  arrived(bytes: Buffer): boolean {
    if (this.memory === null) return this.push(Buffer.from(bytes));
    this.emit("data", bytes);
    return true;
  }
}

/** The bytes of a "data" event, to be kept: copied if the next read would overwrite them, or if they would hold many times as much memory. */
export function kept(bytes: Buffer, socket: Socket): Buffer {
  const isShared = socket instanceof SharingSocket && bytes.buffer === socket.memory;
  return isShared || bytes.buffer.byteLength > Math.max(READ_BYTES, 8 * bytes.length) ? Buffer.from(bytes) : bytes;
}

/** From now on it is a stream as any other. */
export function ownReads(socket: Socket): Socket {
  if (socket instanceof SharingSocket) socket.memory = null;
  return socket;
}
