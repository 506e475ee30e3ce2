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

/** Both monotonic, 0: no such deadline. Calls `expired` once at most. */
export function deadlines(clock: Clock, tryEndsAt: number, endsAt: number, expired: (fault: Fault) => void): Deadlines {
  if (tryEndsAt === 0 && endsAt === 0) return NONE;
  const at = (moment: number, why: string): Timer | null =>
    moment === 0 ? null : clock.after(Math.max(0, moment - clock.now()), () => expired(new Fault("upstream_timeout", why)));
  const tried = at(tryEndsAt, "no response within the time for one try");
  const whole = at(endsAt, "the time for the whole exchange is over");
  return {
    headArrived: () => tried?.cancel(),
    over() {
      tried?.cancel();
      whole?.cancel();
    },
  };
}

/** `ms`, or less where a deadline comes before. */
export function atMost(ms: number, clock: Clock, tryEndsAt: number, endsAt: number): number {
  if (tryEndsAt === 0 && endsAt === 0) return ms;
  return Math.max(0, Math.min(ms, ...[tryEndsAt, endsAt].filter((moment) => moment !== 0).map((moment) => moment - clock.now())));
}

const NONE: Deadlines = { headArrived() {}, over() {} };
