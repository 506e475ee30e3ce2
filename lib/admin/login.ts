/**
 * Decides whether the bearer of HTTP Basic credentials is the administrator (RFC 7617), and how often that may be asked. The right pair
 * is known again by a hash with a key of this process: whoever sends it with each request, as scrapers do, is not verified each time.
 * What a successful login gives is `session.ts`.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { callerAddress } from "../base/cidr.ts";
import { sameText, verifyPassword } from "../base/password.ts";
import { createTaskQueue } from "../base/task_queue.ts";
import { basicCredentials, type Credentials } from "../http/basic.ts";
import { createThrottle } from "./throttle.ts";

export type LoginOutcome =
  /** "missing" also stands for what is not Basic credentials at all; it does not count as a guess. */
  | { readonly kind: "accepted" | "missing" | "wrong" | "overloaded" }
  | { readonly kind: "paused"; readonly retryMs: number };

export interface Login {
  /** `authorization` is the value of that header, `remoteAddress` the other end of the connection. */
  attempt(authorization: string | undefined, remoteAddress: string): Promise<LoginOutcome>;
}

export interface LoginOptions {
  readonly user: string;
  /** Plain text, or a hash as `base/password.ts` makes them. */
  readonly password: string;
  readonly clock: Clock;
}

export function createLogin({ user, password, clock }: LoginOptions, verify: typeof verifyPassword = verifyPassword): Login {
  const throttle = createThrottle(clock);
  const turns = createTaskQueue(MOST_VERIFYING, MOST_WAITING);
  /** The last attempt under way of each address, and how many wait behind others. */
  const lastOf = new Map<string, Promise<LoginOutcome>>();
  let inLine = 0;
  const secret = randomBytes(32);
  let right: Buffer | null = null;

  return {
    async attempt(authorization, remoteAddress) {
      const given = basicCredentials(authorization);
      if (given === null) return { kind: "missing" };
      const address = callerAddress(remoteAddress);
      const retryMs = throttle.pausedFor(address);
      const before = lastOf.get(address);
      if (retryMs > 0 && before === undefined) return { kind: "paused", retryMs };
      if (before !== undefined && inLine >= MOST_WAITING) return { kind: "overloaded" };
      const own = before === undefined ? decide(given, address) : afterOthers(before, given, address);
      lastOf.set(address, own);
      try {
        return await own;
      } finally {
        if (lastOf.get(address) === own) lastOf.delete(address);
      }
    },
  };

  /** One address is judged one attempt at a time: what it did before has then been counted as what it was. */
  async function afterOthers(before: Promise<unknown>, given: Credentials, address: string): Promise<LoginOutcome> {
    inLine += 1;
    await before.catch(() => {}).finally(() => (inLine -= 1));
    const retryMs = throttle.pausedFor(address);
    return retryMs > 0 ? { kind: "paused", retryMs } : decide(given, address);
  }

  async function decide(given: Credentials, address: string): Promise<LoginOutcome> {
    // Not before the throttle and the line were passed: an address that is paused must not learn whether it has guessed right.
    const pair = createHmac("sha256", secret).update(JSON.stringify([given.user, given.password])).digest();
    if (right !== null && timingSafeEqual(pair, right)) return { kind: "accepted" };
    if (!turns.room) return { kind: "overloaded" };
    const takeBack = throttle.begin(address);
    // The password is verified whatever the user name, so that the time taken does not tell which of the two was wrong.
    const userRight = sameText(given.user, user);
    const passwordRight = await turns.take(() => verify(given.password, password));
    if (!userRight || !passwordRight) return { kind: "wrong" };
    right = pair;
    takeBack();
    return { kind: "accepted" };
  }
}

/** Half of the thread pool, which also looks up the names of upstreams and reads files. */
const MOST_VERIFYING = 2;
/** At some 60 ms each, nobody waits much longer than a second. */
const MOST_WAITING = 32;
