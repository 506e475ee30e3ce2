/**
 * Reads a stream of JSON objects, one a line, as the JSON gateway of etcd sends them.
 */
import { isObject } from "../json_schema/values.ts";

export type EtcdMessage = Readonly<Record<string, unknown>>;

/** What a line is: its object, or that it has more bytes than are kept of one. */
export type JsonLine = { readonly object: EtcdMessage } | "long";

export class JsonLines {
  readonly #maxBytes: number;
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** The line that is being read has been reported as "long"; the rest of it is skipped. */
  #isSkipped = false;

  /** `maxBytes`: of one line, without its end. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The lines that end in these bytes, and one that has become too long. Throws a `SyntaxError` for another line. */
  read(chunk: Buffer): JsonLine[] {
    const lines: JsonLine[] = [];
    let from = 0;
    while (from < chunk.length) {
      const end = chunk.indexOf(LINE_END, from);
      const piece = chunk.subarray(from, end < 0 ? chunk.length : end);
      const line = this.#add(piece, end >= 0);
      if (line !== null) lines.push(line);
      if (end < 0) break;
      from = end + 1;
    }
    return lines;
  }

  #add(piece: Buffer, isEnd: boolean): JsonLine | null {
    let line: JsonLine | null = null;
    if (!this.#isSkipped) {
      this.#pieces.push(piece);
      this.#bytes += piece.length;
      if (this.#bytes > this.#maxBytes) {
        this.#isSkipped = true;
        this.#forget();
        line = "long";
      } else if (isEnd && this.#bytes > 0) line = { object: objectOf(Buffer.concat(this.#pieces)) };
    }
    if (isEnd) {
      this.#isSkipped = false;
      this.#forget();
    }
    return line;
  }

  #forget(): void {
    this.#pieces = [];
    this.#bytes = 0;
  }
}

function objectOf(line: Buffer): EtcdMessage {
  const value: unknown = JSON.parse(line.toString());
  if (isObject(value)) return value;
  throw new SyntaxError("the line is no JSON object");
}

const LINE_END = 0x0a;
