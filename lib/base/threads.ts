/**
 * What the threads of one program share: memory, by name. A program with one thread shares nothing, and has ordinary
 * memory.
 */

export interface Threads {
  /**
   * Marks the locks that this thread holds: an integer of at least 1, which no other thread of the program ever has,
   * also after its end.
   */
  readonly id: number;
  /**
   * Which worker this is, from 0 to `count` - 1. A new worker has the number of the one it replaces. -1: the main
   * thread, which serves no requests.
   */
  readonly worker: number;
  /** How many workers there are; 1: this thread is alone. */
  readonly count: number;
  /**
   * Memory that is all zero when it is first asked for, and the same for every thread that asks by the same name. The
   * name has to contain all that decides the size. In a worker it throws for a name that the main thread has not asked
   * for.
   */
  memory(name: string, bytes: number): ArrayBufferLike;
}

/** A number to which each worker adds its own share, which ends with it. */
export interface ThreadCount {
  readonly total: number;
  /** Of one worker. */
  of(worker: number): number;
  /** Counts `amount` more, default 1, unless there would be more than `most` then. */
  take(most: number, amount?: number): boolean;
  give(amount?: number): void;
  /** Gives back what a worker that has ended held. */
  clear(worker: number): void;
}

/** Whether the thread is one of several workers. */
export function isWorker({ worker, count }: Threads): boolean {
  return worker >= 0 && count > 1;
}

/** A program without workers. */
export const ALONE: Threads = { id: 1, worker: 0, count: 1, memory: (_name, bytes) => new ArrayBuffer(bytes) };

/** Ends the name of memory whose place other memory is to take. */
export const BEFORE = ", before";
