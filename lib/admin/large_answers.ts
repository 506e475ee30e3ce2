/**
 * Answers that may be large: made in slices, between which the event loop serves requests, and once for all who ask
 * while it has not begun.
 */
import { ignore } from "../base/errors.ts";
import { paced, type NextTimeSlice } from "../base/time_slices.ts";
import { acceptsGzip, compressed } from "../http/content_coding.ts";
import type { HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { jsonReply } from "./replies.ts";

/** Of one gateway: the end of the answers so far, and those that have not begun, by their questions. */
interface Queue {
  ended: Promise<unknown>;
  readonly waiting: Map<string, Promise<Reply>>;
}

const queues = new WeakMap<object, Queue>();
/** Parts of a text between two looks at the clock. */
const STRIDE = 32;
/** Of lists in what an answer consists of. */
const DEPTH = 3;
const CHUNK_CHARACTERS = 64 * 1024;

/**
 * The answer to a question, as JSON, in gzip where it is accepted. `make` begins after the request has come. One is
 * made at a time: many viewers take the memory of one.
 */
export function largeAnswer(
  gateway: object,
  question: string,
  headers: HeaderList,
  make: (slice: NextTimeSlice) => Promise<object>,
): Promise<Reply> {
  const queue = queues.get(gateway) ?? { ended: Promise.resolve(), waiting: new Map<string, Promise<Reply>>() };
  queues.set(gateway, queue);
  const key = `${acceptsGzip(headers)} ${question}`;
  const other = queue.waiting.get(key);
  if (other !== undefined) return other;
  const answer = queue.ended.then(async () => {
    queue.waiting.delete(key);
    const slice = paced();
    return compressed(jsonReply(await jsonInSlices(await make(slice), slice)), headers);
  });
  queue.waiting.set(key, answer);
  queue.ended = answer.catch(ignore);
  return answer;
}

/** What `make` gives for each, without null. */
export async function eachInSlices<T, Made>(
  all: Iterable<T>,
  slice: NextTimeSlice,
  make: (each: T) => Made | null,
): Promise<Made[]> {
  const made: Made[] = [];
  for (const each of all) {
    const one = make(each);
    if (one !== null) made.push(one);
    await slice();
  }
  return made;
}

/** The text of `JSON.stringify`, for values with long arrays in them. */
async function jsonInSlices(value: object, slice: NextTimeSlice): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let text = "";
  let pieces = 0;
  for (const piece of jsonPieces(value)) {
    text += piece;
    if (text.length >= CHUNK_CHARACTERS) {
      chunks.push(Buffer.from(text));
      text = "";
    }
    if (++pieces % STRIDE === 0) await slice();
  }
  return Buffer.concat([...chunks, Buffer.from(`${text}\n`)]);
}

/** Of the root and of what is in it down to the third level, the parts; of all else the whole text. */
function* jsonPieces(value: unknown, depth = 0): Generator<string, void, undefined> {
  if (typeof value !== "object" || value === null || depth === DEPTH) return yield JSON.stringify(value);
  const isArray = Array.isArray(value);
  let before = isArray ? "[" : "{";
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    yield isArray ? before : `${before}${JSON.stringify(name)}:`;
    yield* jsonPieces(member, depth + 1);
    before = ",";
  }
  yield (before === "," ? "" : before) + (isArray ? "]" : "}");
}
