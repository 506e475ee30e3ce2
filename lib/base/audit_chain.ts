/**
 * The chain of an audit log: each line has its number, and the SHA-256 of the line before. `observe/audit_log.ts`
 * writes it, `cli/verify_log.ts` checks it.
 */
import { createHash, hash, type Hash } from "node:crypto";

/** No line that is written has more. */
export const MAX_LINE_BYTES = 64 * 1024;
export const LINE_FEED = 0x0a;

export interface ChainedLine {
  readonly seq: number;
  /** SHA-256 of the line before, in hexadecimal, without its newline. */
  readonly prev: string;
  /** Of the first whole line behind torn ones: see `Chain.torn`. */
  readonly torn?: string;
}

/** Null: it is torn, or no line of an audit log. */
export function chainedLine(line: Buffer): ChainedLine | null {
  try {
    const { seq, prev, torn } = JSON.parse(line.toString()) as ChainedLine;
    return Number.isSafeInteger(seq) && seq > 0 && typeof prev === "string"
      ? ({ seq, prev, torn } as ChainedLine)
      : null;
  } catch {
    return null;
  }
}

export class Chain {
  /** Of the last whole line; 0: there was none. */
  seq = 0;
  /** Of the last line. */
  prev = "0".repeat(64);
  #whole: Buffer = Buffer.alloc(0);
  #torn: Hash | null = null;

  /** Takes this as the last line. `seq`: null: it is torn. */
  follow(line: Buffer, seq: number | null): void {
    this.prev = hash("sha256", line);
    if (seq === null) {
      this.#torn = (this.#torn ?? createHash("sha256").update(this.#whole)).update("\n").update(line);
      return;
    }
    [this.seq, this.#whole, this.#torn] = [seq, line, null];
  }

  /**
   * Takes the end of a log, of which the first line may lack its beginning. Returns whether the newline of the last
   * line is missing.
   */
  followEnd(bytes: Buffer): boolean {
    const isCut = bytes.length > 0 && bytes.at(-1) !== LINE_FEED;
    const torn: Buffer[] = [];
    for (let end = isCut ? bytes.length : bytes.length - 1; end > 0;) {
      const from = bytes.lastIndexOf(LINE_FEED, end - 1) + 1;
      const line = bytes.subarray(from, end);
      const found = chainedLine(line);
      if (found !== null) this.follow(line, found.seq);
      if (found !== null) break;
      torn.unshift(line);
      end = from - 1;
    }
    for (const line of torn) this.follow(line, null);
    return isCut;
  }

  /**
   * SHA-256 of the last whole line and the torn ones behind it, each with a newline before it: what is torn may lack
   * its `prev`, and the line before it could be changed otherwise. Undefined: the last line is whole.
   */
  get torn(): string | undefined {
    return this.#torn?.copy().digest("hex");
  }
}
