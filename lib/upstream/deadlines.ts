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

/** `tryMs` 0 and `endsAt` 0 (monotonic): no such deadline. Calls `expired` once at most. */
export function deadlines(clock: Clock, tryMs: number, endsAt: number, expired: (fault: Fault) => void): Deadlines {
  if (tryMs === 0 && endsAt === 0) return NONE;
  const tried = tryMs === 0 ? null : clock.after(tryMs, () => expired(new Fault("upstream_timeout", `no response within the ${tryMs} ms of one try`)));
  const whole: Timer | null =
    endsAt === 0 ? null : clock.after(Math.max(0, endsAt - clock.now()), () => expired(new Fault("upstream_timeout", "the time for the whole exchange is over")));
  return {
    headArrived: () => tried?.cancel(),
    over() {
      tried?.cancel();
      whole?.cancel();
    },
  };
}

const NONE: Deadlines = { headArrived() {}, over() {} };
