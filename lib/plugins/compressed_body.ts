/**
 * Compresses bodies: streams with back-pressure, and small buffers at once.
 */
import { pipeline, type Readable, type Transform } from "node:stream";
import zlib from "node:zlib";
import { entry } from "../base/event_loop.ts";
import { ignore } from "../base/errors.ts";

export type Coding = "zstd" | "br" | "gzip";

interface Encoder extends Transform {
  flush(kind: number, done?: () => void): void;
}

interface Algorithm {
  readonly stream: () => Encoder;
  readonly sync: (bytes: Buffer) => Buffer;
  /** The kind of flush that emits everything received so far. */
  readonly flush: number;
}

const { constants } = zlib;

/** Node has had zstd since 22.15. */
const zstd = zlib as unknown as {
  readonly createZstdCompress?: () => Encoder;
  readonly zstdCompressSync?: (bytes: Buffer) => Buffer;
  readonly constants: { readonly ZSTD_e_flush: number };
};

/** Brotli's default quality 11 is for static files; a window of 256 KiB keeps the memory of a connection small. */
const BROTLI = {
  params: {
    [constants.BROTLI_PARAM_QUALITY]: 4,
    [constants.BROTLI_PARAM_LGWIN]: 18,
    [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
  },
};

const ALGORITHMS: { readonly [coding in Coding]?: Algorithm } = {
  ...(zstd.createZstdCompress && zstd.zstdCompressSync
    ? { zstd: { stream: zstd.createZstdCompress, sync: zstd.zstdCompressSync, flush: zstd.constants.ZSTD_e_flush } }
    : {}),
  br: {
    stream: () => zlib.createBrotliCompress(BROTLI),
    sync: (bytes) => zlib.brotliCompressSync(bytes, BROTLI),
    flush: constants.BROTLI_OPERATION_FLUSH,
  },
  gzip: { stream: () => zlib.createGzip(), sync: (bytes) => zlib.gzipSync(bytes), flush: constants.Z_SYNC_FLUSH },
};

/** The codings that this Node supports, the best first. */
export const CODINGS = Object.keys(ALGORITHMS) as readonly Coding[];

/** Longer buffers are compressed as a stream on Node's threads: they would block the event loop. */
export const MAX_SYNC_BYTES = 16 * 1024;

export function compressBuffer(bytes: Buffer, coding: Coding): Buffer {
  return ALGORITHMS[coding]!.sync(bytes);
}

/**
 * Compresses the source with back-pressure. With `flushes`, received bytes are emitted as soon as the source pauses.
 * If either end is aborted, the other end is destroyed and the memory of the encoder freed.
 */
export function compressStream(source: Readable | Buffer, coding: Coding, flushes = false): Readable {
  const { stream, flush } = ALGORITHMS[coding]!;
  const encoder = stream();
  // It may be aborted before the server listens; the server checks its state.
  encoder.on("error", ignore);
  if (Buffer.isBuffer(source)) {
    encoder.end(source);
    return encoder;
  }
  if (flushes) flushPauses(source, encoder, flush);
  pipeline(source, encoder, ignore);
  return encoder;
}

/**
 * Flushes after a turn of the event loop without further bytes, and never while the encoder has more to do in any case.
 */
function flushPauses(source: Readable, encoder: Encoder, kind: number): void {
  let hasUnflushed = false;
  let scheduled = false;
  const look = entry("a pause of a body", () => {
    scheduled = false;
    if (!hasUnflushed || encoder.writableNeedDrain || encoder.writableEnded || encoder.destroyed) return;
    hasUnflushed = false;
    encoder.flush(kind);
  });
  const schedule = () => {
    if (scheduled) return;
    scheduled = true;
    setImmediate(look);
  };
  source.on("data", () => {
    hasUnflushed = true;
    schedule();
  });
  encoder.on("drain", schedule);
}
