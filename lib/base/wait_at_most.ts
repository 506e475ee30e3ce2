/**
 * Waits for something that may never come, but not for ever. Nothing is cancelled: what comes later comes unheard.
 */

/** Resolves with `done`, or when it takes longer than `mostMs`. The wait keeps the process alive. */
export async function waitAtMost(done: Promise<void>, mostMs: number): Promise<void> {
  let stop = () => {};
  const longEnough = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, mostMs);
    stop = () => clearTimeout(timer);
  });
  await Promise.race([done, longEnough]);
  stop();
}
