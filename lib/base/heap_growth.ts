/**
 * Settings of V8 while a configuration is read and compiled: the heap stays as small as it is, and code of a start is
 * not optimized.
 */
import { setFlagsFromString } from "node:v8";
import { entry } from "./event_loop.ts";

// Node warns of flags that change later in general. V8 reads these wherever it enlarges the heap or optimizes code.

/** How many runs are under way. */
let running = 0;

/**
 * For work whose results stay. V8 doubles its young generation wherever much of it stays, to two halves of 16 MiB, and
 * copies what stays at a time: with 10,000 routes each pause takes 40 ms of processor time in place of 5, and the
 * process 30 MiB more. And it lets the heap grow to a multiple of what is in use before it collects all garbage: after
 * a reload of 10,000 routes the process would keep 110 MiB more. Behind `run` both grow as before, with traffic, too:
 * V8 makes the young generation smaller at its own time alone.
 */
export async function withoutGrowth<T>(run: () => Promise<T>): Promise<T> {
  if (running++ === 0) setFlagsFromString(HELD);
  try {
    return await run();
  } finally {
    if (--running === 0) setFlagsFromString(V8_DEFAULT);
  }
}

/** With 20 percent, a reload would take 15 % more processor time, and the process 10 MiB less. */
const HELD = "--semi-space-growth-factor=1 --heap-growing-percent=50";
/** 0: V8 chooses. */
const V8_DEFAULT = "--semi-space-growth-factor=2 --heap-growing-percent=0";

/**
 * For a start. With 10,000 routes a third of its processor time would go into faster code for functions that are hardly
 * called again. One that takes longer needs that code: half a second does not suffice to read 50,000 routes.
 */
export async function withoutOptimizing<T>(run: () => Promise<T>): Promise<T> {
  setFlagsFromString("--no-opt");
  const optimize = () => setFlagsFromString("--opt");
  const timer = setTimeout(entry("the end of a short start", optimize), 500);
  try {
    return await run();
  } finally {
    clearTimeout(timer);
    optimize();
  }
}
