/**
 * Finds where a value ends in a JSON text, without reading it, and names its text by a digest.
 */
import { createHash } from "node:crypto";

/** Less than a millisecond of work. */
const CHARACTERS_OF_A_STEP = 500_000;

/** Behind the value that begins at `offset`. A text with errors has some end, too. */
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
    else if (depth === 0) {
      while (at < text.length && !DELIMITERS.includes(text[at]!)) at++;
      return at;
    }
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

/** The digest of the text between two offsets. Values whose texts are equal are equal, or both have errors. */
export function* digestSteps(text: string, from: number, to: number): Generator<void, string> {
  const sum = createHash("sha256");
  for (let at = from; at < to; at += CHARACTERS_OF_A_STEP) {
    // In UTF-16 a surrogate pair may be divided.
    sum.update(text.slice(at, Math.min(to, at + CHARACTERS_OF_A_STEP)), "utf16le");
    if (to - at > CHARACTERS_OF_A_STEP) yield;
  }
  return sum.digest("base64");
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const [BRACKET, END_BRACKET, BRACE, END_BRACE] = [0x5b, 0x5d, 0x7b, 0x7d];
const DELIMITERS = ",]} \n\r\t";
