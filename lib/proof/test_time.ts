/**
 * Measures how long tests take by what they use themselves, so that a busy machine does not fail them.
 */
import { performance } from "node:perf_hooks";
import { entry } from "../base/event_loop.ts";
import { verifyPassword } from "../base/password.ts";
import { createTaskQueue } from "../base/task_queue.ts";

/** Of this thread, in milliseconds, from any start. */
export interface Usage {
  /** In which it has computed. */
  readonly busy: number;
  /** In which it had nothing to do but wait. */
  readonly idle: number;
}

/**
 * Processor time, which does not pass while other programs have the processors; that of other threads does not count.
 */
export function threadUsage(): Usage {
  const { active, idle } = performance.eventLoopUtilization();
  const { user, system } = process.cpuUsage();
  return { busy: Math.min(active, (user + system) / 1000), idle };
}

export interface TestLimits {
  /** For one test, and for all together, in milliseconds. */
  readonly maxTestMs: number;
  readonly maxTotalMs: number;
}

/** The time of a test that is under way. */
export class TestTime {
  spent = 0;
  /** Results of other threads for which the test waits; that time does not count. */
  waits = 0;
  over = () => {};
  readonly isOver = new Promise<void>((resolve) => (this.over = resolve));
}

export class TestTimes {
  readonly limits: TestLimits;
  /** Tests under way. */
  readonly running = new Set<TestTime>();
  readonly #usage: () => Usage;
  readonly #timer: NodeJS.Timeout;
  readonly #tickMs: number;
  #last: Usage;
  #total = 0;

  constructor(limits: TestLimits, usage: () => Usage) {
    this.limits = limits;
    this.#usage = usage;
    this.#last = usage();
    this.#tickMs = Math.min(TICK_MS, limits.maxTestMs, limits.maxTotalMs);
    this.#timer = setInterval(
      entry("the time of tests", () => this.#tick()),
      this.#tickMs,
    );
  }

  /** Whether the time of all tests together is over. */
  get areOver(): boolean {
    return this.#total >= this.limits.maxTotalMs;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /**
   * Tests that are under way at once share what the thread has computed; each of them that waits has waited as long as
   * the thread.
   */
  #tick(): void {
    const usage = this.#usage();
    const busy = usage.busy - this.#last.busy;
    // A timer that is late has not been waited for.
    const idle = Math.min(usage.idle - this.#last.idle, 2 * this.#tickMs);
    this.#last = usage;
    const running = [...this.running];
    this.#total += busy + (running.some(({ waits }) => waits === 0) ? idle : 0);
    for (const each of running) {
      each.spent += busy / running.length + (each.waits === 0 ? idle : 0);
      if (each.spent >= this.limits.maxTestMs || this.areOver) each.over();
    }
  }
}

const TICK_MS = 50;

/** Half of the thread pool. */
const MAX_HASHING = 2;

/** Verifies each pair of a password and its hash once. */
export function passwordsOnce(verify = verifyPassword): typeof verifyPassword {
  const known = new Map<string, Promise<boolean>>();
  const queue = createTaskQueue(MAX_HASHING, Infinity);
  return (given, stored) => {
    const pair = JSON.stringify([given, stored]);
    let verified = known.get(pair);
    if (verified === undefined) known.set(pair, (verified = queue.take(() => verify(given, stored))));
    return verified;
  };
}
