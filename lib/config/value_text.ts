/**
 * Finds where a value ends in the bytes of a JSON text, without reading it, and names its text by a digest. All that
 * divides values is ASCII, whose bytes are in no other character of UTF-8.
 */
import { createHash } from "node:crypto";

/** Less than a millisecond of work. */
const BYTES_OF_A_STEP = 500_000;

export const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
export const [BRACKET, END_BRACKET, BRACE, END_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d];

/** Behind the value that begins at `offset`. Any other text has some end, too. */
export function* endSteps(bytes: Buffer, offset: number): Generator<void, number> {
  const first = bytes[offset];
  if (first === QUOTE) return Math.min(endOfString(bytes, offset) + 1, bytes.length);
  if (first !== BRACE && first !== BRACKET) return endOfWord(bytes, offset);
  let depth = 0;
  let pause = offset + BYTES_OF_A_STEP;
  for (let at = offset; at < bytes.length; at++) {
    if (at > pause) {
      yield;
      pause = at + BYTES_OF_A_STEP;
    }
    const code = bytes[at];
    if (code === BRACE || code === BRACKET) depth++;
    else if (code === END_BRACE || code === END_BRACKET) depth--;
    else if (code === QUOTE) at = endOfString(bytes, at);
    if (depth === 0) return at + 1;
  }
  return bytes.length;
}

/** The offset of the closing quote. */
function endOfString(bytes: Buffer, offset: number): number {
  for (let at = offset + 1; at < bytes.length; at++) {
    const code = bytes[at];
    if (code === QUOTE) return at;
    if (code === BACKSLASH) at++;
  }
  return bytes.length;
}

/** Behind a number, true, false or null. */
function endOfWord(bytes: Buffer, offset: number): number {
  let at = offset;
  while (at < bytes.length && !isSpace(bytes[at]!) && !ENDS_OF_WORDS.includes(bytes[at]!)) at++;
  return at;
}

const ENDS_OF_WORDS = [COMMA, END_BRACKET, END_BRACE, BRACKET, BRACE, COLON, QUOTE];

/** The offset of what is behind the space that begins at `offset`, or the end. */
export function afterSpace(bytes: Buffer, offset: number): number {
  let at = offset;
  while (at < bytes.length && isSpace(bytes[at]!)) at++;
  return at;
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 10 || code === 13 || code === 9;
}

/** Behind a byte order mark. */
export function afterMark(bytes: Buffer): number {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
}

/** The digest of what is between two offsets. Values whose texts are equal are equal, or both have errors. */
export function* digestSteps(bytes: Buffer, from: number, to: number): Generator<void, string> {
  const sum = createHash("sha256");
  for (let at = from; at < to; at += BYTES_OF_A_STEP) {
    sum.update(bytes.subarray(at, Math.min(to, at + BYTES_OF_A_STEP)));
    if (to - at > BYTES_OF_A_STEP) yield;
  }
  return sum.digest("hex");
}
