/**
 * The pieces of a body that is read as a whole. Small ones are joined as they arrive: a piece of one byte takes a
 * hundred times its size in memory.
 */
export class JoinedPieces {
  readonly all: Buffer[] = [];
  #joined = 0;

  add(piece: Buffer): void {
    if (this.all.push(piece) - this.#joined >= MAX_LOOSE) this.all.push(Buffer.concat(this.all.splice(this.#joined++)));
  }
}

/** Pieces that are kept before they are joined. */
const MAX_LOOSE = 256;
