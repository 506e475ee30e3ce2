/**
 * Makes the ids of traces and spans from the system's randomness, drawn in stock: one draw for each id would cost more than all else that
 * is done with it. What they name is `trace.ts`.
 */
import { randomFillSync } from "node:crypto";

export interface Ids {
  /** 32 hexadecimal digits, not all of them 0. */
  trace(): string;
  /** 16 hexadecimal digits, not all of them 0. */
  span(): string;
}

/** `fill` fills a buffer with random bytes; default: `randomFillSync`. */
export function createIds(fill: (buffer: Buffer) => unknown = randomFillSync): Ids {
  const bytes = Buffer.alloc(STOCK_BYTES);
  let stock = "";
  let next = 0;
  const take = (digits: number): string => {
    for (;;) {
      if (next + digits > stock.length) {
        fill(bytes);
        stock = bytes.toString("hex");
        next = 0;
      }
      const id = stock.slice(next, (next += digits));
      if (!ZEROS.startsWith(id)) return id;
    }
  };
  return { trace: () => take(32), span: () => take(16) };
}

const STOCK_BYTES = 2048;
/** Neither kind of id may be it (W3C Trace Context §3.2.2). */
const ZEROS = "0".repeat(32);
