/**
 * Waits that end at once when what they belong to is given up.
 */
import type { Clock } from "../base/clock.ts";

/** Resolves or rejects as `outcome`, or rejects with the signal's reason, whatever is first. */
export function unlessAborted<T>(outcome: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    outcome.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** In milliseconds. Rejects with the signal's reason. */
export async function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  let cancel = () => {};
  try {
    await unlessAborted(new Promise<void>((resolve) => (cancel = clock.after(ms, resolve).cancel)), signal);
  } finally {
    cancel();
  }
}
