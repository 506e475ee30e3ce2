/**
 * `edge-gateway verify-log`: checks that an audit log is whole: that no line of its files was changed, removed, put in
 * or moved.
 */
import { closeSync, constants, fstatSync, readSync } from "node:fs";
import { Chain, chainedLine, LINE_FEED, MAX_LINE_BYTES } from "../base/audit_chain.ts";
import { openRegularFile, whyUnreadable } from "../base/regular_file.ts";
import type { RunCommand } from "./arguments.ts";
import { counted } from "./counted.ts";
import { Failure } from "./failure.ts";
import { printable, withoutControls } from "./terminal.ts";

export const verifyLog: RunCommand = async ({ operands: files, flags: { partial } }) => {
  if (files.length === 0)
    throw new Failure("verify-log needs the files of an audit log, the oldest first: edge-gateway verify-log FILE…", 2);
  const reader = new LogReader(partial === true);
  for (const file of files) reader.read(file);
  const { first, last, hash, lines } = reader.end();
  process.stdout.write(
    printable([
      `audit log: first seq ${first}, last seq ${last}, SHA-256 of the last line ${hash}`,
      `${counted(lines, "line")} in ${counted(files.length, "file")}: whole`,
    ]),
  );
  return 0;
};

/** One chain through several files. */
class LogReader {
  readonly #isPartial: boolean;
  readonly #chain = new Chain();
  /** Seq of the first whole line; 0: there was none. */
  #first = 0;
  #lines = 0;
  /** The last line, as a place; null: there was none. */
  #last: { readonly place: string; readonly isTorn: boolean } | null = null;

  constructor(isPartial: boolean) {
    this.#isPartial = isPartial;
  }

  /** Throws a `Failure`. */
  read(file: string): void {
    let fd: number | null = null;
    const piece = Buffer.alloc(MAX_LINE_BYTES);
    let rest: Buffer = Buffer.alloc(0);
    let number = 0;
    try {
      fd = openRegularFile(file, constants.O_RDONLY);
      // What is written from now on is not read: a file that grows must have an end.
      for (let at = 0, { size } = fstatSync(fd); at < size;) {
        const read = readSync(fd, piece, 0, Math.min(piece.length, size - at), at);
        if (read === 0) break;
        at += read;
        let bytes: Buffer = Buffer.concat([rest, piece.subarray(0, read)]);
        for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED)) {
          this.#take(bytes.subarray(0, end), file, ++number);
          bytes = bytes.subarray(end + 1);
        }
        if (bytes.length > MAX_LINE_BYTES) throw broken(file, number + 1, `has more than ${MAX_LINE_BYTES} bytes`);
        rest = bytes;
      }
    } catch (error) {
      throw error instanceof Failure ? error : failure(`cannot read ${file}: ${whyUnreadable(error)}`, 2);
    } finally {
      if (fd !== null) closeSync(fd);
    }
    // Its newline is missing: the next file may go on behind it.
    if (rest.length > 0) this.#take(rest, file, number + 1, true);
  }

  end(): { readonly first: number; readonly last: number; readonly hash: string; readonly lines: number } {
    if (this.#last === null) throw new Failure("broken: there is no line", 1);
    if (this.#last.isTorn)
      throw failure(
        `${this.#last.place} is torn: the process has ended while it wrote it, or the end was cut off; ` +
          `a start of the gateway ends it`,
        1,
      );
    return { first: this.#first, last: this.#chain.seq, hash: this.#chain.prev, lines: this.#lines };
  }

  #take(line: Buffer, file: string, number: number, isCut = false): void {
    const chain = this.#chain;
    const found = chainedLine(line);
    this.#lines++;
    this.#last = { place: `broken: ${file} line ${number}`, isTorn: isCut || found === null };
    if (found === null) return chain.follow(Buffer.from(line), null);
    const { seq, prev, torn } = found;
    const isFirst = this.#first === 0;
    if (isFirst && seq !== 1 && !this.#isPartial)
      throw broken(file, number, `has seq ${seq}, and a log begins with 1: give the files before it, or --partial`);
    const isKnown = !isFirst || seq === 1;
    if (isKnown && seq !== chain.seq + 1)
      throw broken(file, number, `has seq ${seq}, and ${chain.seq + 1} must follow ${chain.seq}`);
    if ((isKnown || this.#lines > 1) && prev !== chain.prev)
      throw broken(
        file,
        number,
        `has a "prev" that is not the SHA-256 of the line before: one of the two was changed, ` +
          `or lines between them are missing`,
      );
    if (isKnown && chain.torn !== undefined && torn !== chain.torn)
      throw broken(file, number, 'has a "torn" that is not the SHA-256 of the torn lines before it');
    if (isFirst) this.#first = seq;
    chain.follow(Buffer.from(line), seq);
  }
}

function broken(file: string, number: number, what: string): Failure {
  return failure(`broken: ${file} line ${number} ${what}`, 1);
}

/** Whoever may put a file beside a log chooses its name, and `audit.log*` names it as well. */
function failure(message: string, exitCode: 1 | 2): Failure {
  return new Failure(withoutControls(message), exitCode);
}
