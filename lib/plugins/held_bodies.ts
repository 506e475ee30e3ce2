/**
 * Reads requests' bodies as a whole for plugins that parse them: bounds the length of each, the bytes of all, and the
 * memory that their values take once they are parsed.
 */
import type { Readable } from "node:stream";
import type { Exchange } from "../http/exchange.ts";
import { hasToken, headerValue } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import { wholeRequest } from "../http/whole_body.ts";
import { LONG_MEMORY, SHORT_BODY, SHORT_MEMORY, sizeOfValues, type ValueMemory } from "../json_schema/value_memory.ts";
import type { Count, Tools } from "./plugin.ts";

/** Bytes of bodies that all instances of a kind hold at a time, in all workers. */
export const MAX_HELD = 268_435_456;

export interface HeldBody {
  readonly pieces: readonly Buffer[];
  /** In bytes. */
  readonly length: number;
  /** Runs `parse` as soon as there is memory for the values of the body. */
  readonly withRoom: <T>(parse: () => T | Promise<T>) => Promise<T>;
}

export interface HeldBodies {
  /** Counts the bytes of all bodies. */
  readonly held: Count;
  /**
   * Reads the body, and calls `answer` with it: it counts until that has a reply. A body that is too long is refused
   * with 413, one beyond the memory for all of them with 503. Rejects as `wholeRequest` does. A client that waits for
   * 100 (Continue) gets it here (RFC 9110 §10.1.1).
   */
  whole(exchange: Exchange, body: Readable, answer: (body: HeldBody) => Promise<Reply>): Promise<Reply>;
}

/** `use` completes "are being …". `room`: the memory that is taken, as a multiple of that of the parsed values. */
export function heldBodies({
  clock,
  count,
  maxBytes,
  use,
  room = 1,
}: Pick<Tools, "clock" | "count"> & {
  readonly maxBytes: number;
  readonly use: string;
  readonly room?: number;
}): HeldBodies {
  const held = count("bytes of bodies");
  const whole: HeldBodies["whole"] = async (exchange, body, answer) => {
    const { call } = exchange;
    const tooLarge = () =>
      problem(call, "body_too_large", { detail: `The request body may have at most ${maxBytes} bytes.` });
    const tooMany = () =>
      problem(call, "body_too_large", { detail: "The request body has more values than fit in memory." });
    const busy = () =>
      problem(call, "overloaded", {
        detail: `Too many request bodies are being ${use} at the moment. Try again shortly.`,
      });
    const length = Number(headerValue(exchange.headers, "content-length") ?? 0);
    if (length > maxBytes) return tooLarge();
    if (held.total + length > MAX_HELD) return busy();
    if (hasToken(headerValue(exchange.headers, "expect"), "100-continue")) call.inform(100, []);
    let received = 0;
    let memory = 0;
    try {
      const read = await wholeRequest(body, clock, (chunk) => {
        if (received + chunk.length > maxBytes) return tooLarge;
        if (!held.take(MAX_HELD, chunk.length)) return busy;
        received += chunk.length;
        memory += sizeOfValues(chunk, received) * room;
        return memory > LONG_MEMORY.most ? tooMany : null;
      });
      if (typeof read === "function") return read();
      const values = memoryFor(received);
      return await answer({ pieces: read, length: received, withRoom: (parse) => values.take(memory, parse) });
    } finally {
      held.give(received);
    }
  };
  return { held, whole };
}

/** The memory that values of a body of so many bytes are counted in. */
export function memoryFor(length: number): ValueMemory {
  return length > SHORT_BODY ? LONG_MEMORY : SHORT_MEMORY;
}
