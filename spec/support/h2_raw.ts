/**
 * An HTTP/2 client at the level of frames, over a plain socket (h2c) or TLS, for what Node's client does not send.
 * Header blocks are HPACK literals without Huffman coding; of the peer's blocks nothing is decoded.
 */
import net from "node:net";
import tls from "node:tls";

export const DATA = 0;
export const HEADERS = 1;
export const PRIORITY = 2;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW_UPDATE = 8;
export const CONTINUATION = 9;

export const END_STREAM = 1;
export const ACK = 1;
export const END_HEADERS = 4;

/** Codes of RFC 9113 §7. */
export const CODES = {
  NO_ERROR: 0,
  PROTOCOL_ERROR: 1,
  INTERNAL_ERROR: 2,
  FLOW_CONTROL_ERROR: 3,
  REFUSED_STREAM: 7,
  CANCEL: 8,
  COMPRESSION_ERROR: 9,
  ENHANCE_YOUR_CALM: 11,
} as const;

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

export function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

export function number32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** `[[name, value], …]` as HPACK literals that are not indexed (RFC 7541 §6.2.2). */
export function block(fields: readonly (readonly [string, string])[]): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), literal(name), literal(value)]));
}

function literal(text: string): Buffer {
  const bytes = Buffer.from(text, "latin1");
  const length: number[] = [];
  if (bytes.length < 127) {
    length.push(bytes.length);
  } else {
    length.push(127);
    let rest = bytes.length - 127;
    for (; rest >= 128; rest >>= 7) length.push((rest & 127) | 128);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

export const GET: readonly (readonly [string, string])[] = [
  [":method", "GET"],
  [":scheme", "http"],
  [":authority", "gw.example"],
  [":path", "/a/x"],
];

export const POST = GET.map(([name, value]) =>
  name === ":method" ? ([name, "POST"] as const) : ([name, value] as const),
);

/**
 * Returns a function that reads bytes and calls `take` with each frame; `skipped` bytes come before the first frame.
 */
export function frameReader(take: (frame: Frame) => void, skipped = 0): (chunk: Buffer) => void {
  let buffered = Buffer.alloc(0);
  let before = skipped;
  return (chunk) => {
    buffered = Buffer.concat([buffered, chunk]);
    if (buffered.length < before) return;
    buffered = buffered.subarray(before);
    before = 0;
    while (buffered.length >= 9 && buffered.length >= 9 + buffered.readUIntBE(0, 3)) {
      const end = 9 + buffered.readUIntBE(0, 3);
      const next = {
        type: buffered[3]!,
        flags: buffered[4]!,
        stream: buffered.readUInt32BE(5) & 0x7fffffff,
        payload: buffered.subarray(9, end),
      };
      buffered = buffered.subarray(end);
      take(next);
    }
  };
}

export interface RawSession {
  readonly socket: net.Socket;
  /** Every frame received, in order. */
  readonly frames: readonly Frame[];
  readonly isClosed: () => boolean;
  send(...frames: Buffer[]): void;
  /** Sends one HEADERS frame with the whole block. */
  headers(stream: number, fields: readonly (readonly [string, string])[], flags?: number): void;
  /**
   * Resolves with the first frame, received or to come, for which `fits` is true; rejects when the connection ends
   * before.
   */
  until(fits: (frame: Frame) => boolean): Promise<Frame>;
  /** Resolves with the code of the stream's RST_STREAM. */
  reset(stream: number): Promise<number>;
  /** Resolves with the code of the first GOAWAY. */
  goaway(): Promise<number>;
  closed(): Promise<void>;
}

export interface RawOptions {
  /** Send neither preface nor SETTINGS. */
  readonly bare?: boolean;
  /** Answer the peer's SETTINGS and PING. Default true. */
  readonly acknowledge?: boolean;
  readonly settings?: Buffer;
  readonly secure?: boolean;
}

export async function rawSession(
  port: number,
  { bare = false, acknowledge = true, settings = Buffer.alloc(0), secure = false }: RawOptions = {},
): Promise<RawSession> {
  const socket = secure
    ? tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false, ALPNProtocols: ["h2"] })
    : net.connect(port, "127.0.0.1");
  await new Promise<void>((resolve, reject) =>
    socket.once(secure ? "secureConnect" : "connect", resolve).once("error", reject),
  );
  const frames: Frame[] = [];
  let ended = false;
  const waiting = new Set<() => void>();
  const notify = () => [...waiting].forEach((look) => look());
  const send = (...parts: Buffer[]) => {
    if (!socket.destroyed) socket.write(Buffer.concat(parts));
  };
  socket.on("error", () => {});
  socket.on("close", () => {
    ended = true;
    notify();
  });
  const read = frameReader((received) => {
    frames.push(received);
    if (acknowledge && (received.type === SETTINGS || received.type === PING) && (received.flags & ACK) === 0) {
      send(frame(received.type, ACK, 0, received.type === PING ? received.payload : undefined));
    }
  });
  socket.on("data", (chunk: Buffer) => {
    read(chunk);
    notify();
  });
  const until = (fits: (frame: Frame) => boolean) =>
    new Promise<Frame>((resolve, reject) => {
      const look = () => {
        const found = frames.find(fits);
        if (found === undefined && !ended) return;
        waiting.delete(look);
        if (found !== undefined) resolve(found);
        else
          reject(
            new Error(`the connection ended after ${frames.map(({ type, stream }) => `${type}@${stream}`).join(" ")}`),
          );
      };
      waiting.add(look);
      look();
    });
  if (!bare) send(PREFACE, frame(SETTINGS, 0, 0, settings));
  return {
    socket,
    frames,
    isClosed: () => ended,
    send,
    headers: (stream, fields, flags = END_STREAM) => send(frame(HEADERS, END_HEADERS | flags, stream, block(fields))),
    until,
    reset: async (stream) =>
      (await until((received) => received.type === RST_STREAM && received.stream === stream)).payload.readUInt32BE(0),
    goaway: async () => (await until((received) => received.type === GOAWAY)).payload.readUInt32BE(4),
    closed: () =>
      new Promise((resolve) => {
        const look = () => {
          if (!ended) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      }),
  };
}
