/**
 * Finds where a value ends in a JSON text, without reading it, and names its text by a digest.
 */
import { createHash } from "node:crypto";

/** Less than a millisecond of work. */
const CHARACTERS_OF_A_STEP = 500_000;

/** Behind the array, object or string that begins at `offset`. Any other text has some end, too. */
export function* endSteps(text: string, offset: number): Generator<void, number> {
  let depth = 0;
  let pause = offset + CHARACTERS_OF_A_STEP;
  for (let at = offset; at < text.length; at++) {
    if (at > pause) {
      yield;
      pause = at + CHARACTERS_OF_A_STEP;
    }
    const code = text.charCodeAt(at);
    if (code === BRACE || code === BRACKET) depth++;
    else if (code === END_BRACE || code === END_BRACKET) depth--;
    else if (code === QUOTE) at = endOfString(text, at);
    if (depth === 0) return at + 1;
  }
  return text.length;
}

/** The offset of the closing quote. */
function endOfString(text: string, offset: number): number {
  for (let at = offset + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at;
    if (code === BACKSLASH) at++;
  }
  return text.length;
}

/** The digest of what is between two offsets. Values whose texts are equal are equal, or both have errors. */
export function* digestSteps(text: Buffer | string, from: number, to: number): Generator<void, string> {
  const sum = createHash("sha256");
  for (let at = from; at < to; at += CHARACTERS_OF_A_STEP) {
    const end = Math.min(to, at + CHARACTERS_OF_A_STEP);
    // In UTF-16 a surrogate pair may be divided.
    if (typeof text === "string") sum.update(text.slice(at, end), "utf16le");
    else sum.update(text.subarray(at, end));
    if (to - at > CHARACTERS_OF_A_STEP) yield;
  }
  return sum.digest("hex");
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const [BRACKET, END_BRACKET, BRACE, END_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d];
