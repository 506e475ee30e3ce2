/**
 * Lets a limited number of tasks run at once and a limited number wait.
 */

export interface TaskQueue {
  /** Whether a task may run or wait. */
  readonly room: boolean;
  /** Runs `task` when its turn comes. Call only while there is room. */
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
      // A queued task inherits the slot of the finished task, so that no new task can use it first.
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
