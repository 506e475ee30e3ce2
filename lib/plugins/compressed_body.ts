/**
 * Bodies that are compressed on their way: streams with back-pressure both ways, and small buffers at once.
 * Which bodies are, and what their headers say, is `compress.ts`.
 */
import type { Readable, Transform } from "node:stream";
import zlib from "node:zlib";
import { pump, sinkOf } from "../http/body.ts";

export type Coding = "zstd" | "br" | "gzip";

interface Encoder extends Transform {
  flush(kind: number, done?: () => void): void;
}

interface Algorithm {
  readonly stream: () => Encoder;
  readonly sync: (bytes: Buffer) => Buffer;
  /** Lets everything out that has come so far. */
  readonly flush: number;
}

const { constants } = zlib;

/** Node has had zstd since 22.15. */
const zstd = zlib as unknown as {
  readonly createZstdCompress?: () => Encoder;
  readonly zstdCompressSync?: (bytes: Buffer) => Buffer;
  readonly constants: { readonly ZSTD_e_flush: number };
};

/** Quality 11, Brotli's own default, is for what is compressed once; windows of 256 KiB keep what a connection holds small. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 4, [constants.BROTLI_PARAM_LGWIN]: 18, [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT } };

const ALGORITHMS: { readonly [coding in Coding]?: Algorithm } = {
  ...(zstd.createZstdCompress && zstd.zstdCompressSync
    ? { zstd: { stream: zstd.createZstdCompress, sync: zstd.zstdCompressSync, flush: zstd.constants.ZSTD_e_flush } }
    : {}),
  br: { stream: () => zlib.createBrotliCompress(BROTLI), sync: (bytes) => zlib.brotliCompressSync(bytes, BROTLI), flush: constants.BROTLI_OPERATION_FLUSH },
  gzip: { stream: () => zlib.createGzip(), sync: (bytes) => zlib.gzipSync(bytes), flush: constants.Z_SYNC_FLUSH },
};

/** Those that this Node has, the best first. */
export const CODINGS = Object.keys(ALGORITHMS) as readonly Coding[];

/** Longer buffers go through a stream, on Node's own threads: here they would hold up everybody else. */
export const MAX_SYNC_BYTES = 16 * 1024;

export function compressBuffer(bytes: Buffer, coding: Coding): Buffer {
  return ALGORITHMS[coding]!.sync(bytes);
}

/**
 * The source compressed, read no faster than it is taken. With `flushes`, whatever has come is let out as soon as the source pauses. When
 * either end breaks off, so does the other, and the encoder's memory is freed.
 */
export function compressStream(source: Readable | Buffer, coding: Coding, flushes = false): Readable {
  const { stream, flush } = ALGORITHMS[coding]!;
  const encoder = stream();
  // It may break off before anybody listens: whoever sends it looks at its state.
  encoder.on("error", ignore);
  if (Buffer.isBuffer(source)) {
    encoder.end(source);
    return encoder;
  }
  if (flushes) flushPauses(source, encoder, flush);
  pump(source, sinkOf(encoder), {
    done: () => encoder.end(),
    broken: (cause) => void encoder.destroy(cause ?? new Error("the body broke off")),
  });
  encoder.once("close", () => {
    if (!source.readableEnded) source.destroy();
  });
  return encoder;
}

/** Flushes once a turn of the event loop has brought no more, and never while the encoder is behind: then more is there already. */
function flushPauses(source: Readable, encoder: Encoder, kind: number): void {
  let held = false;
  let scheduled = false;
  const look = () => {
    scheduled = false;
    if (!held || encoder.writableNeedDrain || encoder.writableEnded || encoder.destroyed) return;
    held = false;
    encoder.flush(kind);
  };
  const schedule = () => {
    if (scheduled) return;
    scheduled = true;
    setImmediate(look);
  };
  source.on("data", () => {
    held = true;
    schedule();
  });
  encoder.on("drain", schedule);
}

function ignore(): void {}
