/**
 * Holds a part of a caller's limit for each request in progress whose cost is not known yet, so that many at once do
 * not overdraw it.
 */
import type { Decision, LocalCosted } from "./counters.ts";

export interface Reserve {
  /** What each request holds. From 1 on. */
  readonly amount: number;
  /** Requests in progress by the name of the limiter and the caller, over all workers. */
  readonly held: { take(key: string, most: number): (() => void) | null };
}

/** The limiter with a reserve in the memory of this program; the same one where there is none. */
export function reserving<L extends LocalCosted>(
  limiter: L,
  key: string,
  reserve: Reserve | undefined,
): L | LocalCosted {
  return reserve === undefined ? limiter : new ReservingLimiter(limiter, key, reserve);
}

class ReservingLimiter implements LocalCosted {
  readonly #limiter: LocalCosted;
  readonly #key: string;
  readonly #reserve: Reserve;

  constructor(limiter: LocalCosted, key: string, reserve: Reserve) {
    this.#limiter = limiter;
    this.#key = key;
    this.#reserve = reserve;
  }

  /**
   * Admits while anything is left besides what requests in progress hold: the last one may overdraw. A request that
   * ends is booked before it gives back what it holds, and the limit is looked at once more behind `take`: no thread
   * sees neither.
   */
  decide(caller: string): Decision {
    const { amount, held } = this.#reserve;
    for (let decision = this.#limiter.decide(caller); ;) {
      if (!decision.admitted) return decision;
      const left = Math.min(...decision.remaining);
      const give = held.take(`${this.#key} ${caller}`, Math.ceil(left / amount));
      if (give === null) return { ...decision, admitted: false };
      decision = this.#limiter.decide(caller);
      if (Math.min(...decision.remaining) < left) {
        give();
        continue;
      }
      const book = (cost: number) => {
        this.book(caller, cost);
        give();
      };
      return { ...decision, remaining: afterReserve(decision.remaining, amount), reservation: book };
    }
  }

  book(caller: string, cost: number): void {
    this.#limiter.book(caller, cost);
  }
}

function afterReserve(remaining: readonly number[], amount: number): number[] {
  return remaining.map((left) => Math.max(0, left - amount));
}
