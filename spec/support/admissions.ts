/** Whether admitted requests prove that a limit was exceeded, by the times between which each of them was decided. */
import type { Answered } from "./kept_client.ts";

type Times = Pick<Answered, "sent" | "received">;

/**
 * The shortest time, in milliseconds, within which `count` of the requests were certainly admitted: from the sending of
 * the first to the answer of the last. Infinity if there are fewer. A limit of N in a window is proved to be exceeded
 * if N + 1 took less than the window.
 */
export function shortestSpan(admitted: readonly Times[], count: number): number {
  const bySent = [...admitted].sort((a, b) => a.sent - b.sent);
  let least = Infinity;
  for (let first = 0; first + count <= bySent.length; first++) {
    // Of all that were sent no earlier, those that were answered first.
    const last = bySent
      .slice(first)
      .map(({ received }) => received)
      .sort((a, b) => a - b)[count - 1]!;
    least = Math.min(least, last - bySent[first]!.sent);
  }
  return least;
}

export interface Versioned {
  readonly sent: number;
  /** When the configuration was in force in the thread that answered. */
  readonly at: number;
  /** The number of the configuration that answered; later ones have greater numbers. */
  readonly version: number;
}

/** The answers of an older configuration to requests that were sent after a newer one had been in force. */
export function stale(answers: readonly Versioned[]): Versioned[] {
  const byTime = [...answers].sort((a, b) => a.at - b.at);
  const bySent = [...answers].sort((a, b) => a.sent - b.sent);
  let [newest, next] = [-Infinity, 0];
  return bySent.filter(({ sent, version }) => {
    while (next < byTime.length && byTime[next]!.at < sent) newest = Math.max(newest, byTime[next++]!.version);
    return version < newest;
  });
}
