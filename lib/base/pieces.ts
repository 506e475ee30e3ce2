/**
 * Joins the bytes of a message whose end has not arrived with those that follow.
 */

/** Memory doubles as it fills: a head in single bytes would otherwise be copied for each of them. */
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
  kept(bytes: Buffer): Buffer {
    return bytes.buffer === this.#memory?.buffer ? bytes : Buffer.from(bytes);
  }

  forget(): void {
    this.#memory = null;
  }
}
