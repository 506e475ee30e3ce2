/**
 * A lock over memory that threads share: one word, which holds the id of its owner, so that the lock of a dead thread
 * can be freed.
 */

const FREE = 0;
/**
 * Added to the owner: other threads may sleep until the lock is free. Nobody has to be woken otherwise, which would
 * cost more than the lock.
 */
const CONTENDED = 2 ** 30;
/** Tries before the thread sleeps: what a lock protects takes about a microsecond. */
const SPINS = 100;
/** The owner may be dead: then nothing wakes this thread but time. In milliseconds. */
const WAIT_MS = 2;

/**
 * Waits until the lock, the word at `place`, is free. `owner` is `Threads.id`. Never for the main thread: it has to
 * free the locks of dead threads.
 */
export function acquire(words: Int32Array, place: number, owner: number): void {
  for (let tries = 0; tries < SPINS; tries++) if (tryAcquire(words, place, owner)) return;
  // A thread that has slept cannot know whether others sleep, too.
  for (let holder = FREE; (holder = Atomics.compareExchange(words, place, FREE, owner | CONTENDED)) !== FREE;) {
    const contended = holder | CONTENDED;
    if (holder === contended || Atomics.compareExchange(words, place, holder, contended) === holder)
      Atomics.wait(words, place, contended, WAIT_MS);
  }
}

/** Takes the lock if it is free at this moment. */
export function tryAcquire(words: Int32Array, place: number, owner: number): boolean {
  return Atomics.compareExchange(words, place, FREE, owner) === FREE;
}

export function release(words: Int32Array, place: number): void {
  if (Atomics.exchange(words, place, FREE) >= CONTENDED) Atomics.notify(words, place, 1);
}

export function isLockedBy(owner: number, words: Int32Array, place: number): boolean {
  return (Atomics.load(words, place) & ~CONTENDED) === owner;
}
