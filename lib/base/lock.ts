/**
 * A lock over memory that threads share: one word, which holds the id of its owner, so that the lock of a dead thread can be freed.
 */

const FREE = 0;
/** Tries before the thread waits: what a lock protects takes about a microsecond. */
const SPINS = 100;
/** The owner may be dead: then nothing wakes this thread but time. In milliseconds. */
const WAIT_MS = 2;

export interface Lock {
  /** Waits until the lock is free. Never for the main thread: it has to free the locks of dead threads. */
  acquire(): void;
  /** Takes the lock if it is free at this moment. */
  tryAcquire(): boolean;
  release(): void;
}

/** `owner` is `Threads.id`. The lock is the word at `place`, in shared memory. */
export function createLock(words: Int32Array, place: number, owner: number): Lock {
  const tryAcquire = () => Atomics.compareExchange(words, place, FREE, owner) === FREE;
  return {
    tryAcquire,
    acquire() {
      for (let tries = 1; !tryAcquire(); tries++) {
        if (tries < SPINS) continue;
        const holder = Atomics.load(words, place);
        if (holder !== FREE) Atomics.wait(words, place, holder, WAIT_MS);
      }
    },
    release() {
      Atomics.store(words, place, FREE);
      Atomics.notify(words, place, 1);
    },
  };
}

/** Frees the lock if a dead thread holds it. Returns whether it did: what the lock protects may be half written. */
export function freeLockOf(dead: number, words: Int32Array, place: number): boolean {
  if (Atomics.compareExchange(words, place, dead, FREE) !== dead) return false;
  Atomics.notify(words, place, 1);
  return true;
}
