/**
 * Watches a body that others read.
 */
import type { Readable } from "node:stream";
import { ignore } from "../base/errors.ts";

/**
 * Calls `read` with each chunk that is read from the body, however it is read, and `returned` with the length in bytes
 * of what is put back.
 * Not by a listener for "data": it would begin to read, read on where the reader stops, and get text where the reader
 * asks for text.
 */
export function tapBody(
  body: Readable,
  read: (chunk: Buffer) => void,
  returned: (bytes: number) => void = ignore,
): void {
  const { emit, unshift } = body;
  const bytes = (chunk: unknown, encoding = body.readableEncoding ?? undefined) => {
    if (typeof chunk === "string") return Buffer.from(chunk, encoding);
    return Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk as Uint8Array);
  };
  body.emit = (event: string | symbol, ...values: unknown[]) => {
    // The sender reports a chunk of another kind.
    if (event === "data" && (typeof values[0] === "string" || values[0] instanceof Uint8Array)) read(bytes(values[0]));
    return emit.call(body, event, ...values);
  };
  body.unshift = (chunk: Buffer | string | null, encoding?: BufferEncoding) => {
    if (chunk !== null) returned(bytes(chunk, encoding).length);
    return unshift.call(body, chunk, encoding);
  };
}
