/**
 * Threads that ask limiters of the built program as fast as they can, by a clock that all of them share: each question
 * is a tick of it.
 */
import { Worker } from "node:worker_threads";
import type { LimiterOptions } from "../../lib/store/counters.ts";

export const MS_OF_TICK = 0.25;

export interface Work {
  readonly options: LimiterOptions;
  /** How many callers there are, and how many questions are asked. */
  readonly callers: number;
  readonly ticks: number;
  /** Default: all threads decide in one memory, with locks. */
  readonly fault?: "private memory" | "no locks";
}

/**
 * What was decided at each tick: 0, nothing is known; 1 + 2 × the caller's number, and 1 more if the request was
 * admitted.
 */
export type Journal = Int32Array;

const PROGRAM = `
const { workerData: { shared, names, clock, journal, id, work, seed } } = require("node:worker_threads");
import(shared).then(({ workerCounters }) => {
  const now = new Int32Array(clock);
  const decided = new Int32Array(journal);
  let tick = 0;
  const counters = workerCounters({ now: () => (tick = Atomics.add(now, 0, 1)) * ${MS_OF_TICK} }, { id, count: 2 });
  const memory = work.fault === "private memory" ? (name, bytes) => new SharedArrayBuffer(bytes) : (name) => \
names.get(name);
  const limiter = counters.limiter("k", work.options, memory);
  Atomics.add(now, 1, 1);
  Atomics.notify(now, 1);
  for (let ready; (ready = Atomics.load(now, 1)) < 3; ) Atomics.wait(now, 1, ready);
  for (let dice = seed; now[0] < work.ticks; ) {
    dice = (Math.imul(dice, 1664525) + 1013904223) | 0;
    const caller = Math.floor((dice >>> 0) / 2 ** 32 * work.callers);
    const { admitted } = limiter.decide("c" + caller);
    if (tick < work.ticks) decided[tick] = 1 + 2 * caller + (admitted ? 1 : 0);
  }
});
`;

/** Starts and ends threads, which begin once there are three of them; `memory` is what they share. */
export class LimiterThreads {
  readonly names = new Map<string, SharedArrayBuffer>();
  /** Ticks, and threads that were ever ready. */
  readonly #clock = new SharedArrayBuffer(8);
  readonly #journal: SharedArrayBuffer;
  readonly #work: Work;
  readonly #ended = new Map<Worker, Promise<void>>();
  #lastId = 1;

  constructor(work: Work) {
    this.#work = work;
    this.#journal = new SharedArrayBuffer(4 * work.ticks);
  }

  get journal(): Journal {
    return new Int32Array(this.#journal);
  }

  get ticks(): number {
    return Atomics.load(new Int32Array(this.#clock), 0);
  }

  /** As the main thread does. */
  readonly memory = (name: string, bytes: number): ArrayBufferLike => {
    if (!this.names.has(name)) this.names.set(name, new SharedArrayBuffer(bytes));
    return this.names.get(name)!;
  };

  /** Returns the thread's id. */
  start(): { readonly id: number; readonly end: () => Promise<void> } {
    const id = ++this.#lastId;
    const shared = new URL("../../dist/lib/store/shared_callers.js", import.meta.url).href;
    const workerData = {
      shared,
      names: this.names,
      clock: this.#clock,
      journal: this.#journal,
      id: this.#work.fault === "no locks" ? 0 : id,
      work: this.#work,
      seed: id,
    };
    const worker = new Worker(PROGRAM, { eval: true, workerData });
    const ended = new Promise<void>((resolve, reject) => {
      worker.once("error", reject);
      worker.once("exit", () => resolve());
    });
    this.#ended.set(worker, ended);
    return { id, end: async () => void (await worker.terminate()) };
  }

  /**
   * Resolves when all threads have ended by themselves. Those without locks may go in circles for ever: they are ended
   * after two seconds without a tick.
   */
  async ended(): Promise<void> {
    let before = -1;
    const watch = setInterval(() => {
      if (before === this.ticks) for (const worker of this.#ended.keys()) void worker.terminate();
      before = this.ticks;
    }, 2_000);
    if (this.#work.fault !== "no locks") clearInterval(watch);
    await Promise.all(this.#ended.values());
    clearInterval(watch);
  }

  /** Resolves when so many questions have been asked. */
  async reached(ticks: number): Promise<void> {
    while (this.ticks < Math.min(ticks, this.#work.ticks)) await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
