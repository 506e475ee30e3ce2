/**
 * The chain of an audit log: each line has its number, and the SHA-256 of the line before. `observe/audit_log.ts` writes it, `cli/verify_log.ts`
 * checks it.
 */
import { createHash, hash, type Hash } from "node:crypto";

/** No line that is written has more. */
export const MAX_LINE_BYTES = 64 * 1024;

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
    return Number.isSafeInteger(seq) && seq > 0 && typeof prev === "string" ? { seq, prev, torn } as ChainedLine : null;
  } catch {
    return null;
  }
}

export class Chain {
  /** Of the last whole line; 0: there was none. */
  seq = 0;
  /** Of the last line. */
  prev = "0".repeat(64);
  #whole: Buffer | string = "";
  #torn: Hash | null = null;

  /** Takes this as the last line. `seq`: null: it is torn. */
  follow(line: Buffer | string, seq: number | null): void {
    this.prev = hash("sha256", line);
    if (seq === null) {
      this.#torn = (this.#torn ?? createHash("sha256").update(this.#whole)).update("\n").update(line);
      return;
    }
    [this.seq, this.#whole, this.#torn] = [seq, line, null];
  }

  /**
   * SHA-256 of the last whole line and the torn ones behind it, each with a newline before it: what is torn may lack its `prev`, and the line
   * before it could be changed otherwise. Undefined: the last line is whole.
   */
  get torn(): string | undefined {
    return this.#torn?.copy().digest("hex");
  }

  copy(): Chain {
    const copy = new Chain();
    [copy.seq, copy.prev, copy.#whole, copy.#torn] = [this.seq, this.prev, this.#whole, this.#torn?.copy() ?? null];
    return copy;
  }
}
