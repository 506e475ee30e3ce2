/**
 * What one HTTP/2 connection may ask of us beside requests, and why so much. Counting is `h2_sessions.ts`; what one request may have
 * is `global.limits`.
 *
 * nghttp2 and node bound the rest, some with codes of their own: frames larger than 16 KiB, more than 32 entries in a SETTINGS frame
 * and more than 8 CONTINUATION frames are connection errors (CVE-2024-28182); so are a window beyond 2^31-1 and a WINDOW_UPDATE of 0, and
 * DATA or HEADERS on a stream that has ended; more than 1000 acknowledgements that a client does not read end the connection
 * (CVE-2019-9512, -9515), and so do more than 1000 resets at once, 33 a second. An empty DATA frame is an invalid one (CVE-2019-9518).
 * From Node 22 on a body longer than its Content-Length is a connection error, too, and so are more than some 10,000 PRIORITY frames or
 * frames of unknown types.
 *
 * Nothing counts frames that nghttp2 processes without reporting them: a valid WINDOW_UPDATE, few PRIORITY and unknown frames, DATA of
 * padding only, frames for streams that have ended. A WINDOW_UPDATE costs 0.05 µs, 15 to 30 times less than as many bytes of DATA
 * (measured with Node 20 to 26), keeps nothing (idle streams that PRIORITY makes are bounded by MAX_STREAMS), and calls no line of ours.
 */

/** Requests of one connection at a time; more are refused unprocessed. What nginx and browsers are used to. */
export const MAX_STREAMS = 128;

/** Megabytes for one connection, its streams' buffers included: MAX_STREAMS full windows of 64 KiB, and something for heads. */
export const MAX_SESSION_MEGABYTES = 10;

/**
 * Streams refused beyond MAX_STREAMS, one after the other. From Node 22 on a stream keeps its place until everything has been looked at that
 * came in the same read: who takes back all requests and makes as many new ones in one breath is refused some, but keeps the connection.
 */
export const MAX_REJECTED_STREAMS = 512;

/** Frames that are empty or make no sense, in the life of one connection. */
export const MAX_INVALID_FRAMES = 100;

/** A budget that refills: `burst` at once, `perSecond` for ever. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

/**
 * What a head may have beyond `max_header_bytes` and `max_headers` before its stream is reset without a word: up to there it is read,
 * and answered with a 431.
 */
export const SURPLUS_HEAD_BYTES = 64 * 1024;
export const SURPLUS_LINES = 256;

/**
 * Requests that the client takes back before they are answered, or breaks (CVE-2023-44487, "rapid reset"). A page that is left, or a
 * map that is moved, takes back all its streams at once, some times over; a flood does so thousands of times a second.
 */
export const RESETS: Rate = { burst: 512, perSecond: 64 };

/** Clients send SETTINGS once, and again when a user changes something. */
export const SETTINGS: Rate = { burst: 32, perSecond: 1 };

/** gRPC clients ping once in a round trip while they measure the bandwidth: hundreds a second, nearby. */
export const PINGS: Rate = { burst: 2_000, perSecond: 1_000 };

/**
 * Requests of one connection, in its life, that node refuses before we hear of them: it never frees their places among MAX_STREAMS (probed
 * with Node 20). Beyond that its client is sent to a new connection, and nghttp2 looks at none of the requests that still come.
 */
export const MAX_UNHEARD = 64;

/** How often each connection is looked at for what no event tells, in milliseconds. */
export const LOOK_MS = 1_000;

/**
 * After a connection error nghttp2 sends its GOAWAY and neither reads nor writes any more, and node tells nobody: streams under way would
 * stay for ever. With an answer that is not sent it shows, and the second look ends the connection. Else one of which nothing has come
 * for so long is asked for a sign of life (PING), and ended without one.
 */
export const SILENCE_MS = 60_000;
export const ANSWER_MS = 60_000;

/** How long a connection that was told to go, and has no stream, may take to go. */
export const MAX_LINGER_MS = 5_000;

/** The least that a request can have: a HEADERS frame with one byte. */
export const LEAST_REQUEST_BYTES = 10;

/** A rate being used up: a token bucket. */
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

  /** Takes one; false when there is none left. */
  spend(now: number): boolean {
    const { burst, perSecond } = this.#rate;
    this.#left = Math.min(burst, this.#left + ((now - this.#at) * perSecond) / 1000);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}
