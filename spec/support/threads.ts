/** Runs the built program's modules in several real threads that share memory. */
import { Worker } from "node:worker_threads";
import type { Threads } from "../../lib/base/threads.ts";

/** What a thread has: itself among the others, and a word of its own for each use. */
export interface Inside<Module> {
  readonly module: Module;
  readonly threads: Threads;
  /** Waits until all threads have come here; call it as often in each of them. */
  readonly meet: () => void;
  /** Memory of the test itself, the same in all threads, all zero at first. */
  readonly words: Int32Array;
}

/** Threads of one program: by name, the same memory for all of them. `worker` -1 is the main thread. */
export function threadsOf(count: number, memories = new Map<string, SharedArrayBuffer>()): (worker: number) => Threads {
  const memory = (name: string, bytes: number) => {
    if (!memories.has(name)) memories.set(name, new SharedArrayBuffer(bytes));
    return memories.get(name)!;
  };
  return (worker) => ({ id: 2 + worker, worker, count, memory });
}

/**
 * Runs `work` in `count` threads at the same time and resolves with what each returned. `work` may use nothing but its
 * argument: its source text is what the threads get. `file`, below lib/ without its ending, is the module; the memory
 * by name has to be in `memories`.
 */
export async function inThreads<Module, Result>(
  count: number,
  file: string,
  memories: ReadonlyMap<string, SharedArrayBuffer>,
  work: (inside: Inside<Module>) => Result,
): Promise<Result[]> {
  const url = new URL(`../../dist/lib/${file}.js`, import.meta.url);
  const [meeting, words] = [new SharedArrayBuffer(8), new SharedArrayBuffer(4096)];
  const started = Array.from({ length: count }, (_, index) => {
    const worker = new Worker(`${IMPORTS}.then((imported) => (${String(inside)})(imported, ${String(work)}))`, {
      eval: true,
      workerData: { url: String(url), worker: index, count, memories, meeting, words },
    });
    return new Promise<Result>((resolve, reject) => worker.once("message", resolve).once("error", reject));
  });
  return Promise.all(started);
}

/** As text, since the runner of the specs rewrites imports. */
const IMPORTS = 'Promise.all([import("node:worker_threads"), import(require("node:worker_threads").workerData.url)])';

/** In the thread. */
function inside(
  [{ workerData, parentPort }, module]: [typeof import("node:worker_threads"), unknown],
  work: (inside: Inside<unknown>) => unknown,
): void {
  const { worker, count, memories, meeting, words } = workerData;
  const [WAITING, ROUND] = [0, 1];
  const board = new Int32Array(meeting);
  const meet = () => {
    const round = Atomics.load(board, ROUND);
    if (Atomics.add(board, WAITING, 1) === count - 1) {
      Atomics.store(board, WAITING, 0);
      Atomics.add(board, ROUND, 1);
      Atomics.notify(board, ROUND);
      return;
    }
    // Threads that spin go on at the same moment; threads that wait go on one after the other.
    for (let spins = 0; Atomics.load(board, ROUND) === round; spins++)
      if (spins > 30_000) Atomics.wait(board, ROUND, round, 100);
  };
  const threads = { id: 2 + worker, worker, count, memory: (name: string) => memories.get(name) };
  meet();
  parentPort!.postMessage(work({ module, threads, meet, words: new Int32Array(words) }));
}
