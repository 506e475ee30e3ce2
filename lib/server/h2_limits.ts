/**
 * What one HTTP/2 connection may ask of us beside requests, and why so much. Counting is `h2_sessions.ts`; what one request may have
 * is `global.limits`.
 *
 * nghttp2 and node bound the rest: frames larger than 16 KiB, more than 32 entries in a SETTINGS frame and more than 8 CONTINUATION
 * frames are connection errors (CVE-2024-28182); so are a window beyond 2^31-1 and a WINDOW_UPDATE of 0, and one that is valid costs
 * less than the bytes it came in; more than 1000 acknowledgements that a client does not read end the connection (CVE-2019-9512,
 * -9515); PRIORITY frames change nothing, and idle streams kept for them are bounded by MAX_STREAMS.
 */

/** Requests of one connection at a time; more are refused unprocessed. What nginx and browsers are used to. */
export const MAX_STREAMS = 128;

/** Megabytes for one connection, its streams' buffers included: MAX_STREAMS full windows of 64 KiB, and something for heads. */
export const MAX_SESSION_MEGABYTES = 10;

/** Streams refused beyond MAX_STREAMS, and frames that are empty or make no sense, in the life of one connection. */
export const MAX_REJECTED_STREAMS = 100;
export const MAX_INVALID_FRAMES = 100;

/** A budget that refills: `burst` at once, `perSecond` for ever. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

/**
 * Requests that the client takes back before they are answered, or breaks (CVE-2023-44487, "rapid reset"). A page that is left, or a
 * map that is moved, takes back all its streams at once, some times over; a flood does so thousands of times a second.
 */
export const RESETS: Rate = { burst: 512, perSecond: 64 };

/** Clients send SETTINGS once, and again when a user changes something. */
export const SETTINGS: Rate = { burst: 32, perSecond: 1 };

/** gRPC clients ping once in a round trip while they measure the bandwidth: hundreds a second, nearby. */
export const PINGS: Rate = { burst: 2_000, perSecond: 1_000 };

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
