/** Compares the cost of work by processor time, which does not depend on other load of the machine. */

/**
 * How much more processor time `work` takes for an input eight times as large: about 8 if linear, 64 if quadratic. The
 * small input is worked on eight times, so that both times are of one size: what interrupts the longer one interrupts
 * the other as often. Where that seems to be more than linear, the least of three: the system counts processor time in
 * jumps, and short work can seem to take none.
 */
export function growth(work: (size: number) => void, size: number): number {
  const eightTimes = () => {
    for (let i = 0; i < 8; i++) work(size);
  };
  let least = Infinity;
  for (let round = 0; round < 3 && least >= LINEAR; round++) {
    least = Math.min(least, (8 * processorTime(() => work(size * 8))) / processorTime(eightTimes));
  }
  return least;
}

/** What `growth` gives for linear work, with room for caches and the garbage collector. */
export const LINEAR = 24;

/** Microseconds of processor time, user and system, of the fastest of seven runs; at least 1. */
export function processorTime(work: () => void): number {
  let micros = Infinity;
  for (let round = 0; round < 7; round++) {
    const before = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(before);
    micros = Math.min(micros, user + system);
  }
  return Math.max(micros, 1);
}

/** As `processorTime`, for work that waits. */
export async function processorTimeOf(work: () => Promise<void>): Promise<number> {
  let micros = Infinity;
  for (let round = 0; round < 7; round++) {
    const before = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(before);
    micros = Math.min(micros, user + system);
  }
  return Math.max(micros, 1);
}
