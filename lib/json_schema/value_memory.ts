/**
 * The memory that values of JSON from clients take together: a body of 1 MiB can become 30 MiB of objects, so bodies
 * wait as bytes until there is room.
 */
import { getHeapStatistics } from "node:v8";

/** Memory of which all tasks get their part in order of arrival. */
export class ValueMemory {
  /** Bytes of all tasks together, and of one. */
  readonly most: number;
  readonly #waiting: { readonly bytes: number; readonly start: () => void }[] = [];
  #free: number;

  constructor(most: number) {
    this.most = most;
    this.#free = most;
  }

  /** Runs `task` as soon as `bytes`, at most `most`, are free. */
  async take<T>(bytes: number, task: () => T | Promise<T>): Promise<T> {
    if (this.#waiting.length === 0 && bytes <= this.#free) this.#free -= bytes;
    else await new Promise<void>((start) => this.#waiting.push({ bytes, start }));
    try {
      return await task();
    } finally {
      this.#free += bytes;
      // A task that waited has its part before any other can take it.
      for (let next = this.#waiting[0]; next !== undefined && next.bytes <= this.#free; next = this.#waiting[0]) {
        this.#waiting.shift();
        this.#free -= next.bytes;
        next.start();
      }
    }
  }
}

const HEAP = getHeapStatistics().heap_size_limit;
/** Bytes of a short body, whose value is not counted but taken for the largest that there can be. */
export const SHORT_BODY = 65_536;
/** Of short bodies, which do not wait for long ones. */
export const SHORT_MEMORY = new ValueMemory(HEAP / 8);
/** Of longer bodies. Their sizes are right within a factor of two. */
export const LONG_MEMORY = new ValueMemory(HEAP / 4);

/** The most memory that a chunk of a body can need once it is parsed; `received` is the length of the body so far. */
export function sizeOfValues(chunk: Buffer, received: number): number {
  if (received <= SHORT_BODY) return chunk.length * MOST_FOR_BYTE;
  let size = 0;
  for (let i = 0; i < chunk.length; i++) size += FOR_BYTE[chunk[i]!]!;
  return size;
}

/**
 * Measured, in bytes: an array takes 56, an object 56 and 50 more in the form of a table, a property
 * 80 with its name, an item 8 and 8 more for a number or the head of a text, whose characters take one byte or two.
 */
const FOR_BYTE = new Uint8Array(256).fill(2);
FOR_BYTE["[".charCodeAt(0)] = 56;
FOR_BYTE["{".charCodeAt(0)] = 112;
FOR_BYTE[":".charCodeAt(0)] = 80;
FOR_BYTE[",".charCodeAt(0)] = 16;
/** For `[[[]]]`; nothing takes more. */
const MOST_FOR_BYTE = 32;
