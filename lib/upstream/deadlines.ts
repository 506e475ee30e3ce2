/**
 * The deadlines beside those of each phase: of a try up to the head of its response, and of the request as a whole. The phases are
 * the forwarders' affair.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { Fault } from "../base/errors.ts";

export interface Deadlines {
  /** The head of the response is there. */
  headArrived(): void;
  /** The exchange has ended. */
  over(): void;
}

/** Both are moments of the monotonic clock; 0: no such deadline. Calls `expired` once at most. */
export function deadlines(clock: Clock, tryEndsAt: number, endsAt: number, expired: (fault: Fault) => void): Deadlines {
  if (tryEndsAt === 0 && endsAt === 0) return NONE;
  const at = (moment: number, why: string): Timer | null =>
    moment === 0 ? null : clock.after(Math.max(0, moment - clock.now()), () => expired(new Fault("upstream_timeout", why)));
  const tried = at(tryEndsAt, "no response within the time of one try");
  const whole = at(endsAt, "the time for the whole exchange is over");
  return {
    headArrived: () => tried?.cancel(),
    over() {
      tried?.cancel();
      whole?.cancel();
    },
  };
}

/** How long a step may take that begins now: `ms`, or less where either deadline comes before. */
export function timeLeft(clock: Clock, ms: number, tryEndsAt: number, endsAt: number): number {
  if (tryEndsAt === 0 && endsAt === 0) return ms;
  const end = Math.min(tryEndsAt === 0 ? Infinity : tryEndsAt, endsAt === 0 ? Infinity : endsAt);
  return Math.min(ms, Math.max(0, Math.ceil(end - clock.now())));
}

const NONE: Deadlines = { headArrived() {}, over() {} };
