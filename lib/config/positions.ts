/**
 * Finds lines and columns in texts: a column is a character (code point), whatever it is encoded in.
 */
import type { Position, PositionOf } from "./json.ts";

export function withoutMark(input: Buffer | string): string {
  return String(input).replace(/^\uFEFF/, "");
}

/** Of offsets in UTF-16 code units behind a byte order mark. Looks through a text once somebody asks for a position. */
export function positionsIn(input: Buffer | string): PositionOf {
  return positionsBy(() => {
    const text = withoutMark(input);
    return { begin: 0, end: text.length, pass: (from, to, place) => passUnits(text, from, to, place) };
  });
}

/** Of offsets in bytes. Those before `begin`, a byte order mark, are in no column. */
export function positionsInBytes(bytes: Buffer, begin: number): PositionOf {
  return positionsBy(() => ({
    begin,
    end: bytes.length,
    pass: (from, to, place) => passBytes(bytes, from, to, place),
  }));
}

type Place = { -readonly [K in keyof Position]: Position[K] };

interface PassedText {
  readonly begin: number;
  readonly end: number;
  /** Moves the place of `from` to `to`. */
  readonly pass: (from: number, to: number, place: Place) => void;
}

function positionsBy(read: () => PassedText): PositionOf {
  let found: { readonly text: PassedText; readonly marks: Uint32Array } | null = null;
  return (offset) => {
    if (offset < 0) return null;
    found ??= marksIn(read());
    const { text, marks } = found;
    const mark = Math.floor((offset - text.begin) / MARK_DISTANCE);
    const place = { line: marks[2 * mark]!, column: marks[2 * mark + 1]! };
    text.pass(text.begin + mark * MARK_DISTANCE, offset, place);
    return place;
  };
}

/** A text of 16 MiB that is all line feeds has as many marks as any other. */
const MARK_DISTANCE = 512;

/** The line and the column of each so many offsets of the text. */
function marksIn(text: PassedText) {
  const { begin, end } = text;
  const marks = new Uint32Array(2 * (Math.floor((end - begin) / MARK_DISTANCE) + 1));
  const place = { line: 1, column: 1 };
  for (let from = begin, i = 0; i < marks.length; from += MARK_DISTANCE) {
    marks[i++] = place.line;
    marks[i++] = place.column;
    text.pass(from, Math.min(from + MARK_DISTANCE, end), place);
  }
  return { text, marks };
}

function passUnits(text: string, from: number, to: number, place: Place): void {
  for (let at = from; at < to; at++) {
    const code = text.charCodeAt(at);
    if (code === 10) newLine(place);
    else if (code < SECOND_SURROGATE || code > LAST_SURROGATE) place.column++;
  }
}

/** Moves the place of the byte at `from` to that at `to`, in UTF-8. */
export function passBytes(bytes: Buffer, from: number, to: number, place: Place): void {
  for (let at = from; at < to; at++) {
    const code = bytes[at]!;
    if (code === 10) newLine(place);
    else if ((code & 0xc0) !== CONTINUATION) place.column++;
  }
}

function newLine(place: Place): void {
  place.line++;
  place.column = 1;
}

const [SECOND_SURROGATE, LAST_SURROGATE] = [0xdc00, 0xdfff];
/** The two highest bits of a byte that does not begin a character. */
const CONTINUATION = 0x80;
