/** Whether work grows with its input or faster, by processor time: other load on the machine does not count, and the least of several runs does. */

/** How much more processor time `work` takes for an input eight times as large: about 8 if linear, 64 if quadratic. */
export function growth(work: (size: number) => void, size: number): number {
  return least(() => work(size * 8)) / least(() => work(size));
}

/** What `growth` gives for linear work, with room for caches and the garbage collector. */
export const LINEAR = 24;

function least(work: () => void): number {
  let micros = Infinity;
  for (let round = 0; round < 7; round++) {
    const before = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(before);
    micros = Math.min(micros, user + system);
  }
  return Math.max(micros, 1);
}
