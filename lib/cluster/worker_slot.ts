/**
 * One slot for each worker that the program shall have: its worker, what that was asked, and how long the slot waits
 * for the next one.
 */
import type { Worker } from "node:worker_threads";
import { refusal, type WorkerTask, type ToWorker } from "./messages.ts";

/** After so many looks a worker that ends is replaced at once again. */
const STEADY_LOOKS = 60;
/** Pauses before a worker is replaced that ends again and again; the last one repeats. In milliseconds. */
const PAUSES_MS = [0, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000];

/** "ended": the worker, before it answered. */
export type WorkerAnswer = "done" | "ended" | number;

interface Waiting {
  readonly resolve: (answer: WorkerAnswer) => void;
  readonly reject: (error: Error) => void;
}

/** One of the workers, and after it those that replace it. */
export class WorkerSlot {
  readonly index: number;
  worker: Worker | null = null;
  /** See `Threads.id`. */
  id = 0;
  /** "asked": to listen. */
  state: "none" | "starting" | "compiled" | "asked" | "serving" | "hanging" = "none";
  /** Its requests in flight, see `InFlight`. */
  inFlight = new SharedArrayBuffer(0);
  /** Whether the worker listens, or did as it ended. */
  hasServed = false;
  /** Why the worker is about to end, if that is known. */
  reason: string | null = null;
  /** How often the main thread has looked at this worker, in all and since its last beat. */
  looks = 0;
  silentLooks = 0;
  beats = 0;
  /** How many workers in a row did not last. */
  shortLives = 0;
  respawn: NodeJS.Timeout | null = null;
  outcome: "drained" | "cut" | null = null;
  /** What its worker was asked and has not answered, by the number of the question. */
  readonly #asked = new Map<number, Waiting>();
  #lastAsk = 0;

  constructor(index: number) {
    this.index = index;
  }

  /** Rejects with a `ConfigError` if the worker refuses. */
  ask(task: WorkerTask): Promise<WorkerAnswer> {
    const ask = ++this.#lastAsk;
    this.worker!.postMessage({ ask, ...task } satisfies ToWorker);
    return new Promise((resolve, reject) => this.#asked.set(ask, { resolve, reject }));
  }

  /** `reason`: why it refuses; null: it does not. `count`: where a number was asked for. */
  answered(ask: number, reason: string | null, count?: number): void {
    const asked = this.#asked.get(ask);
    this.#asked.delete(ask);
    if (reason === null) asked?.resolve(count ?? "done");
    else asked?.reject(refusal(this.index, reason));
  }

  /** Its worker has ended. */
  endAsked(): void {
    for (const { resolve } of this.#asked.values()) resolve("ended");
    this.#asked.clear();
  }
}

/** Whether the worker listens, or is about to. */
export function takesRequests({ state }: WorkerSlot): boolean {
  return state === "asked" || state === "serving";
}

/**
 * How long the worker of this slot, which has ended, is not replaced, in milliseconds. If it has served, then a
 * request may have ended it, and may end the others as well: one slot at a time waits, and only while another worker
 * serves.
 */
export function pauseBefore(slot: WorkerSlot, slots: readonly WorkerSlot[]): number {
  if (slot.hasServed && slot.looks >= STEADY_LOOKS) slot.shortLives = 0;
  const pauseMs = PAUSES_MS[Math.min(slot.shortLives++, PAUSES_MS.length - 1)]!;
  const isNeeded = slots.some(({ respawn }) => respawn !== null) || !slots.some(({ state }) => state === "serving");
  return slot.hasServed && isNeeded ? 0 : pauseMs;
}
