/**
 * The key by which a gateway knows the ids of MCP sessions that it has given out: the same in all its workers, and
 * across reloads.
 */
import { randomBytes } from "node:crypto";
import type { Tools } from "../plugin.ts";

const KEY_BYTES = 32;

export function sessionKey({ shared, keep }: Pick<Tools, "shared" | "keep">): Buffer {
  const memory = shared("session key", KEY_BYTES);
  if (memory === null) return keep("session key", null, () => ({ key: randomBytes(KEY_BYTES), close() {} })).key;
  return commonKey(memory);
}

/** Each word is written once, by whichever thread comes first: when a thread has tried all, all are there. */
function commonKey(memory: ArrayBufferLike): Buffer {
  const words = new Int32Array(memory);
  for (let i = 0; i < words.length; i++) {
    const random = randomBytes(4).readInt32LE() || 1;
    Atomics.compareExchange(words, i, 0, random);
  }
  const key = Buffer.alloc(KEY_BYTES);
  for (let i = 0; i < words.length; i++) key.writeInt32LE(Atomics.load(words, i), 4 * i);
  return key;
}
