import { describe, expect, it } from "vitest";
import { createTaskQueue } from "../../lib/base/task_queue.ts";

/** A task that ends when told to. */
function task() {
  const { promise, resolve, reject } = deferred();
  const state = { started: false, resolve, reject, run: () => ((state.started = true), promise) };
  return state;
}

function deferred() {
  let resolve!: () => void;
  let reject!: (fault: Error) => void;
  const promise = new Promise<void>((yes, no) => ((resolve = yes), (reject = no)));
  return { promise, resolve, reject };
}

describe("a task queue", () => {
  it(
    "a task queue runs at most the allowed number of tasks at once, the others in their order, " +
      "even after a failed task",
    async () => {
      const turns = createTaskQueue(2, 3);
      const tasks = Array.from({ length: 5 }, task);
      const ends = tasks.map(({ run }) => turns.take(run));
      const started = () => tasks.map((each) => (each.started ? "x" : ".")).join("");
      expect(started()).toBe("xx...");
      tasks[1]!.resolve();
      await ends[1];
      expect(started()).toBe("xxx..");
      tasks[0]!.reject(new Error("no"));
      await expect(ends[0]).rejects.toThrow("no");
      expect(started()).toBe("xxxx.");
      for (const each of tasks.slice(2)) each.resolve();
      await Promise.all(ends.slice(1));
      expect(started()).toBe("xxxxx");
    },
  );

  it("a task queue has room until the limits of running and waiting tasks are reached", async () => {
    const turns = createTaskQueue(1, 1);
    const [first, second] = [task(), task()];
    const ends = [turns.take(first.run)];
    expect(turns.room).toBe(true);
    ends.push(turns.take(second.run));
    expect(turns.room).toBe(false);
    first.resolve();
    await ends[0];
    expect(turns.room).toBe(true);
    second.resolve();
    await Promise.all(ends);
    expect(turns.room).toBe(true);
  });
});
