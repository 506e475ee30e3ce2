/**
 * Measures the built gateway's shared memory, on the Node that runs this file: one thread, then two threads that do the
 * same without pause.
 * Prints JSON: by case, nanoseconds of one operation alone, and of one operation of either while both run.
 */
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { workerCounters } from "../../dist/lib/store/shared_callers.js";
import { SharedCount } from "../../dist/lib/base/shared_counts.js";
import { Breaker, BREAKER_BYTES } from "../../dist/lib/upstream/breaker.js";
import { silentLog } from "../../dist/lib/base/log.js";
import { systemClock } from "../../dist/lib/base/clock.js";

const MS = 1_000;
const WARM_UP_MS = 500;
/**
 * Less than half a millisecond: most slices end before another process gets the processor. Figures are medians of them.
 */
const SLICE = 200;
const WINDOWS = [
  { name: "second", limit: 1_000_000, ms: 1_000 },
  { name: "minute", limit: 10_000_000, ms: 60_000 },
];
const CASES = ["limiter, one caller", "limiter, other callers", "circuit breaker", "requests in flight"];

function operation(what, threads) {
  if (what === "circuit breaker") {
    const settings = { errorRatio: 0.5, minRequests: 20, windowMs: 10_000, openMs: 10_000, probes: 1 };
    const breaker = new Breaker(
      { clock: systemClock, log: silentLog, service: "s", memory: threads.memory("breaker", BREAKER_BYTES), threads },
      settings,
    );
    return () => breaker.settle(breaker.admit(), "passed");
  }
  if (what === "requests in flight") {
    const count = new SharedCount(threads, "count");
    return () => {
      count.take(1_000);
      count.give();
    };
  }
  const limiter = limiterOf(threads);
  const own = what === "limiter, one caller" ? "ip:" : `ip:${threads.place}.`;
  let next = 0;
  // A new string each time, as the plugin makes it.
  return () =>
    limiter.decide(own + (what === "limiter, one caller" ? "192.0.2.1" : String((next = (next + 7) & 8191))));
}

function limiterOf(threads) {
  const counters = workerCounters(systemClock, threads);
  return counters.limiter("k", { windows: WINDOWS, maxCallers: 100_000 }, (name, bytes) => threads.memory(name, bytes));
}

function measured({ what, place, count, id, memory, words }) {
  const shared = new Map(memory);
  const operate = operation(what, { id, place, count, memory: (name) => shared.get(name) });
  const run = (ms) => {
    const slices = [];
    for (const end = performance.now() + ms; performance.now() < end;) {
      const from = process.hrtime.bigint();
      for (let i = 0; i < SLICE; i++) operate();
      slices.push(Number(process.hrtime.bigint() - from) / SLICE);
    }
    return slices.sort((a, b) => a - b)[slices.length >> 1];
  };
  run(WARM_UP_MS);
  Atomics.add(words, 0, 1);
  while (Atomics.load(words, 0) < workerData.running);
  return run(MS);
}

async function together(what, running) {
  const memory = new Map();
  const main = {
    ...{ id: 1, place: -1, count: 2 },
    memory(name, bytes) {
      if (!memory.has(name)) memory.set(name, new SharedArrayBuffer(bytes));
      return memory.get(name);
    },
  };
  operation(what, main);
  const words = new Int32Array(new SharedArrayBuffer(4));
  const threads = Array.from(
    { length: running },
    (_, place) =>
      new Worker(new URL(import.meta.url), {
        workerData: { what, running, place, count: 2, id: place + 2, memory, words },
      }),
  );
  return Promise.all(
    threads.map((thread) => new Promise((resolve, reject) => thread.once("message", resolve).once("error", reject))),
  );
}

if (isMainThread) {
  const figures = {};
  for (const what of CASES) {
    const [alone] = await together(what, 1);
    const both = await together(what, 2);
    figures[what] = { alone, both: both.reduce((sum, each) => sum + each, 0) / both.length };
  }
  console.log(JSON.stringify(figures));
} else {
  parentPort.postMessage(measured(workerData));
}
