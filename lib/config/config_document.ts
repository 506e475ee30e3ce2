/**
 * The document of a configuration's text: read in parts, so that what is as it was before is not read, and none of the
 * work takes long at once.
 *
 * The offset of a value in a part is that of the part, in bytes, and what is before it within the part, in UTF-16 code
 * units: of which there are never more than bytes. So offsets are in order, and each belongs to one part.
 */
import { isUtf8 } from "node:buffer";
import { atOnce } from "../base/time_slices.ts";
import { HALF_PAIR, type JsonDocument, type JsonNode, type PositionOf } from "./json.ts";
import { parseSteps, partSteps } from "./json_parser.ts";
import { outlineSteps, type Outline, type OutlinedMember, type OutlinedValue } from "./outline.ts";
import { positionsInBytes } from "./positions.ts";
import { afterMark, BRACKET } from "./value_text.ts";

export interface ConfigDocument extends JsonDocument {
  /** Undefined: it did not come from text, or that has errors. */
  readonly outline?: Outline;
}

/** A configuration without errors whose values may be the same. */
export interface Known {
  readonly outline: Outline;
  /** By the digests of their texts. */
  readonly services: { has(digest: string): boolean };
}

/**
 * In steps of about a millisecond, for `inSlices`. What of it is `known` is read when somebody asks for what is in it.
 */
export function* documentSteps(input: Buffer | string, known: Known | null): Generator<void, ConfigDocument> {
  // Bytes cannot express half a surrogate pair.
  if (typeof input === "string" && HALF_PAIR.test(input)) return yield* parseSteps(input);
  const bytes = typeof input === "string" ? Buffer.from(input) : input;
  const outline = yield* outlineSteps(bytes, known?.outline ?? null);
  const node = outline === null ? null : yield* rootSteps(outline, known);
  // Where something is wrong, the text as a whole says what and where.
  if (outline === null || node === null) return yield* parseSteps(input);
  return { node, issues: [], positionOf: positionsInParts(outline), outline };
}

/** Null: there is an error in one of the parts. */
function* rootSteps({ bytes, offset, members }: Outline, known: Known | null): Generator<void, JsonNode | null> {
  const nodes = new Map<string, JsonNode>();
  for (const { key, keyOffset, value } of members) {
    const node =
      value.items === undefined
        ? yield* valueSteps(bytes, value, { keyOffset, depth: 1 }, known)
        : yield* servicesSteps(bytes, value.items, { offset: value.offset, keyOffset }, known);
    if (node === null) return null;
    nodes.set(key, node);
  }
  return { kind: "object", offset, keyOffset: -1, members: nodes };
}

function* servicesSteps(
  bytes: Buffer,
  services: readonly OutlinedValue[],
  place: { readonly offset: number; readonly keyOffset: number },
  known: Known | null,
): Generator<void, JsonNode | null> {
  const items: JsonNode[] = [];
  for (const service of services) {
    const item = yield* valueSteps(bytes, service, { keyOffset: -1, depth: 2 }, known);
    if (item === null) return null;
    if (items.push(item) % VALUES_OF_A_STEP === 0) yield;
  }
  return { kind: "array", ...place, items };
}

interface ValuePlace extends Pick<OutlinedMember, "keyOffset"> {
  readonly depth: number;
}

function* valueSteps(
  bytes: Buffer,
  value: OutlinedValue,
  place: ValuePlace,
  known: Known | null,
): Generator<void, JsonNode | null> {
  const { offset, digest } = value;
  const read = function* () {
    const text = yield* textSteps(bytes, value);
    return text === null ? null : yield* partSteps(text, { offset, ...place });
  };
  if (digest !== undefined && known?.services.has(digest) === true)
    return knownNode(bytes[offset] === BRACKET ? "array" : "object", { offset, ...place, digest }, read);
  const node = yield* read();
  return node === null || digest === undefined ? node : { ...node, digest };
}

/** An array or object whose text has no errors. */
function knownNode(
  kind: "array" | "object",
  { offset, keyOffset, digest }: Required<Pick<JsonNode, "offset" | "keyOffset" | "digest">>,
  read: () => Generator<void, JsonNode | null>,
): JsonNode {
  let node: JsonNode | null = null;
  const readSteps = function* () {
    node ??= yield* read();
  };
  return {
    kind,
    offset,
    keyOffset,
    digest,
    readSteps,
    get members() {
      atOnce(readSteps());
      return node?.kind === "object" ? node.members : NO_MEMBERS;
    },
    get items() {
      atOnce(readSteps());
      return node?.kind === "array" ? node.items : [];
    },
  };
}

const NO_MEMBERS: ReadonlyMap<string, JsonNode> = new Map();

/** Less than a millisecond of work, where they are as they were. */
const VALUES_OF_A_STEP = 64;
/** Less than a millisecond of work. */
const BYTES_OF_A_STEP = 250_000;

/** The text of a part; null: it is not UTF-8. */
function* textSteps(bytes: Buffer, { offset, end }: OutlinedValue): Generator<void, string | null> {
  let text = "";
  for (let from = offset, to = offset; from < end; from = to) {
    to = Math.min(end, from + BYTES_OF_A_STEP);
    // Not in the middle of a character.
    while (to < end && (bytes[to]! & 0xc0) === 0x80) to++;
    const part = bytes.subarray(from, to);
    if (!isUtf8(part)) return null;
    text += part.toString();
    yield;
  }
  return text;
}

function positionsInParts({ bytes, named }: Outline): PositionOf {
  const positionOf = positionsInBytes(bytes, afterMark(bytes));
  const byteOf = bytesBehind(bytes, named);
  return (offset) => positionOf(byteOf(offset));
}

/** Returns a function from the offset of a value to its place among the bytes. */
function bytesBehind(bytes: Buffer, parts: readonly OutlinedValue[]): (offset: number) => number {
  let read: { readonly part: OutlinedValue; readonly text: string } | null = null;
  return (offset) => {
    const part = parts[lastAt(parts, offset)];
    if (part === undefined || offset >= part.end) return offset;
    if (read?.part !== part) read = { part, text: bytes.toString("utf8", part.offset, part.end) };
    const { text } = read;
    // All of it is ASCII, as nearly always.
    if (text.length === part.end - part.offset) return offset;
    return part.offset + Buffer.byteLength(text.slice(0, offset - part.offset));
  };
}

/** The index of the last part that begins at the offset or before; -1: there is none. */
function lastAt(parts: readonly OutlinedValue[], offset: number): number {
  let [low, high] = [0, parts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (parts[middle]!.offset <= offset) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
