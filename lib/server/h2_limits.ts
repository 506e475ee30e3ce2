/**
 * Limits of one HTTP/2 connection in addition to `global.limits`, with the reason for each value.
 *
 * nghttp2 and node enforce further ones. Connection errors: frames larger than 16 KiB, more than 32 entries in a
 * SETTINGS frame, more than 8 CONTINUATION frames (CVE-2024-28182), a window beyond 2^31-1, a WINDOW_UPDATE of 0, DATA
 * or HEADERS on a stream that has ended, more than 1000 acknowledgements that a client does not read (CVE-2019-9512,
 * -9515), more than 1000 resets at once, 33 a second. An empty DATA frame counts as invalid (CVE-2019-9518). From Node
 * 22 on also a body longer than its Content-Length, and more than some 10,000 PRIORITY frames or frames of unknown
 * types.
 *
 * Nothing counts frames that nghttp2 processes without reporting them: a valid WINDOW_UPDATE, few PRIORITY and unknown
 * frames, DATA with padding only, frames for streams that have ended. A WINDOW_UPDATE costs 0.05 µs, 15 to 30 times
 * less than as many bytes of DATA (measured with Node 20 to 26), retains no memory (MAX_STREAMS bounds the idle streams
 * that PRIORITY creates), and runs no code of ours.
 */

/** Concurrent requests of one connection; more are refused unprocessed. As nginx, and as browsers expect. */
export const MAX_STREAMS = 128;

/**
 * Megabytes for one connection, its streams' buffers included: MAX_STREAMS full windows of 64 KiB, and some for heads.
 */
export const MAX_SESSION_MEGABYTES = 10;

/**
 * Consecutive streams refused beyond MAX_STREAMS: from Node 22 on one that is cancelled keeps its place until the whole
 * read is processed.
 */
export const MAX_REJECTED_STREAMS = 512;

/** Empty or invalid frames in the life of one connection. */
export const MAX_INVALID_FRAMES = 100;

/** A token bucket: `burst` at once, `perSecond` in the long run. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

/**
 * How far a head may exceed `max_header_bytes` and `max_headers` and is answered with 431; beyond that its stream is
 * reset without a reply.
 */
export const SURPLUS_HEAD_BYTES = 64 * 1024;
export const SURPLUS_LINES = 256;

/**
 * Requests that the client resets before they are answered (CVE-2023-44487). A browser that moves a map resets all its
 * streams several times in a row.
 */
export const RESETS: Rate = { burst: 512, perSecond: 64 };

/** Clients send SETTINGS once, and again when a user changes something. */
export const SETTINGS_FRAMES: Rate = { burst: 32, perSecond: 1 };

/** gRPC clients ping once a round trip while they measure the bandwidth: hundreds a second on a near network. */
export const PINGS: Rate = { burst: 2_000, perSecond: 1_000 };

/**
 * Requests of one connection that node refuses without reporting them, and never frees their places (Node 20); then it
 * is drained.
 */
export const MAX_UNREPORTED = 64;

/**
 * After a connection error nghttp2 stops reading and writing, and node reports nothing: open streams would stay for
 * ever. Unsent data shows it at the second check; else a connection that is silent for SILENCE_MS is sent a PING, and
 * ended ANSWER_MS later.
 */
export const SILENCE_MS = 60_000;
export const ANSWER_MS = 60_000;

/** How long a drained connection without streams may take to close. */
export const MAX_LINGER_MS = 5_000;

/** The smallest request: a HEADERS frame with one byte. */
export const LEAST_REQUEST_BYTES = 10;

/** The state of one token bucket. */
export class Allowance {
  readonly #rate: Rate;
  #left: number;
  #at: number;

  /** `now` in milliseconds, monotonic. */
  constructor(rate: Rate, now: number) {
    this.#rate = rate;
    this.#left = rate.burst;
    this.#at = now;
  }

  /** Takes one token; returns false when none is left. */
  spend(now: number): boolean {
    const { burst, perSecond } = this.#rate;
    this.#left = Math.min(burst, this.#left + ((now - this.#at) * perSecond) / 1000);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}
