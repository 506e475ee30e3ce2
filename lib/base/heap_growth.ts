/**
 * Keeps V8's heap as small as it is while a configuration is read and compiled.
 */
import { setFlagsFromString } from "node:v8";

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
  if (running++ === 0) setGrowth(HELD);
  try {
    return await run();
  } finally {
    if (--running === 0) setGrowth(V8_DEFAULT);
  }
}

interface Growth {
  readonly semiSpaceFactor: number;
  /** By how many percent of what is in use the heap may grow until all garbage is collected. 0: V8 chooses. */
  readonly heapPercent: number;
}

/** With 20 percent, a reload would take 15 % more processor time, and the process 10 MiB less. */
const HELD: Growth = { semiSpaceFactor: 1, heapPercent: 50 };
const V8_DEFAULT: Growth = { semiSpaceFactor: 2, heapPercent: 0 };

/** Node warns of flags that change later in general. V8 reads these wherever it enlarges the heap. */
function setGrowth({ semiSpaceFactor, heapPercent }: Growth): void {
  setFlagsFromString(`--semi-space-growth-factor=${semiSpaceFactor}`);
  setFlagsFromString(`--heap-growing-percent=${heapPercent}`);
}
