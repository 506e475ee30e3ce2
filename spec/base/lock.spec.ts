import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { describe, expect, it } from "vitest";
import { acquire, isLockedBy, release, tryAcquire } from "../../lib/base/lock.ts";

const words = () => new Int32Array(new SharedArrayBuffer(16));

/**
 * A thread that acquires the lock at place 1 as thread 3, says so, adds 1 to the word at place 2, releases the lock,
 * and so on.
 */
function thread(memory: Int32Array, times: number): Worker {
  const program = `
    const { workerData: { lock, memory, times } } = require("node:worker_threads");
    import(lock).then(({ acquire, release }) => {
      Atomics.store(memory, 3, 1);
      Atomics.notify(memory, 3);
      for (let i = 0; i < times; i++) {
        acquire(memory, 1, 3);
        memory[2]++;
        release(memory, 1);
      }
    });
  `;
  return new Worker(program, {
    eval: true,
    workerData: { lock: new URL("../../dist/lib/base/lock.js", import.meta.url).href, memory, times },
  });
}

describe("a lock", () => {
  it("a lock is free at first, held by one owner at a time, and free again once it is released", () => {
    const memory = words();
    expect([5, 6, 5].map((owner) => tryAcquire(memory, 1, owner))).toEqual([true, false, false]);
    expect([isLockedBy(5, memory, 1), isLockedBy(6, memory, 1)]).toEqual([true, false]);
    release(memory, 1);
    acquire(memory, 1, 6);
    expect(isLockedBy(6, memory, 1)).toBe(true);
    expect([...memory].filter((word) => word !== 0).length).toBe(1); // no word but its own is touched
  });

  it("a lock lets a thread that sleeps go on once it is released", { timeout: 30_000 }, async () => {
    const memory = words();
    acquire(memory, 1, 5);
    const worker = thread(memory, 1);
    // The thread has marked the lock before it sleeps.
    while (memory[1] === 5) await new Promise((resolve) => setImmediate(resolve));
    expect([isLockedBy(5, memory, 1), memory[2]]).toEqual([true, 0]);
    release(memory, 1);
    await once(worker, "exit");
    expect([...memory]).toEqual([0, 0, 1, 1]);
  });

  it("a lock excludes threads from each other", { timeout: 30_000 }, async () => {
    const memory = words();
    const workers = [thread(memory, 200_000), thread(memory, 200_000)];
    await Promise.all(workers.map((worker) => once(worker, "exit")));
    expect([...memory]).toEqual([0, 0, 400_000, 1]);
  });
});
