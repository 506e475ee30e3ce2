/**
 * Lets a limited number of tasks run at once and a limited number wait.
 */

export interface TaskQueue {
  /** Whether a task may run or wait. */
  readonly room: boolean;
  /** Runs `task` in its turn. To be called only while there is room. */
  take<T>(task: () => Promise<T>): Promise<T>;
}

export function createTaskQueue(mostRunning: number, mostWaiting: number): TaskQueue {
  const waiting: (() => void)[] = [];
  let running = 0;
  return {
    get room() {
      return running < mostRunning || waiting.length < mostWaiting;
    },
    async take(task) {
      // A task from the queue inherits the place of the task that ends, so no other task can take it in between.
      if (running < mostRunning) running += 1;
      else await new Promise<void>((start) => waiting.push(start));
      try {
        return await task();
      } finally {
        const next = waiting.shift();
        if (next === undefined) running -= 1;
        else next();
      }
    },
  };
}
