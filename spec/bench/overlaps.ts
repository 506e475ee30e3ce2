/**
 * Proves what 10,000 routes do, in shapes that are hard to prove: processor time in all, and the longest time that
 * other work has to wait.
 */
import { proveRoutes } from "../../lib/route/overlaps.ts";
import type { TableEntry } from "../../lib/route/table.ts";
import type { RouteDestination } from "../../lib/route/upstream_overlaps.ts";
import { markdown, median, verdictTable } from "./figures.ts";

const COUNT = 10_000;
const MAX_MS = 2_000;
const SLICE_MS = 10;
const ROUNDS = 3;

interface Target {
  readonly guards: ReadonlySet<string>;
  readonly to: RouteDestination;
}

type Entry = TableEntry<Target>;

const KEY: ReadonlySet<string> = new Set(["key"]);
const OPEN: ReadonlySet<string> = new Set();
/** Of all services that say nothing else. */
const COMMON: RouteDestination = { addresses: ["10.0.0.1:80"], preservesHost: false };
const DESTINATIONS: readonly RouteDestination[] = Array.from({ length: COUNT }, () => ({ ...COMMON }));

/** Of the i-th of 10,000 routes. */
const SHAPES: Readonly<Record<string, (i: number) => Entry>> = {
  "a thousand services": (i) => entry(`/s${Math.floor(i / 10)}/r${i % 10}/{id}`, i % 3 === 0 ? OPEN : KEY),
  "one guarded catch-all over everything": (i) =>
    i === 0 ? entry("/{rest*}", KEY) : entry(`/s${i % 100}/r${i}/{id}`, OPEN),
  "half accept %2F": (i) => entry(`/s${i % 100}/r${i}/{id}`, i % 3 === 0 ? OPEN : KEY, { encodedSlashes: i % 2 === 0 }),
  "all share placeholders": (i) => entry(`/{a}/{b}/r${i}`, i % 2 === 0 ? OPEN : KEY),
  "all share placeholders, half accept %2F": (i) =>
    entry(`/{a}/r${i}/{b}`, i % 3 === 0 ? OPEN : KEY, { encodedSlashes: i % 2 === 0 }),
  "every open route takes requests of every guarded one": (i) =>
    i % 2 === 0 ? entry(`/r${i}/{b}/{c}`, OPEN) : entry(`/{a}/{b}/r${i}`, KEY),
  "five thousand hosts": (i) =>
    entry(i % 2 === 0 ? "/public/{x*}" : "/{x*}", i % 2 === 0 ? OPEN : KEY, { hosts: [`t${i >> 1}.example.com`] }),
  "ten thousand services, half of them open, with one upstream": (i) =>
    entry("/{x*}", i % 2 === 0 ? OPEN : KEY, { basePath: `/s${i}` }, DESTINATIONS[i]),
  "ten thousand services with guards of their own and one upstream": (i) =>
    entry("/{x*}", new Set([`key ${i}`]), { basePath: `/s${i}` }, DESTINATIONS[i]),
  "a thousand services with different routes and one upstream": (i) =>
    entry(
      `/r${i}/{id}`,
      i % 3 === 0 ? OPEN : KEY,
      { basePath: `/s${Math.floor(i / 10)}` },
      DESTINATIONS[Math.floor(i / 10)],
    ),
};

function entry(path: string, guards: ReadonlySet<string>, more: Partial<Entry> = {}, to = COMMON): Entry {
  return {
    basePath: "/",
    hosts: [],
    path,
    methods: ["GET"],
    encodedSlashes: false,
    pathParameters: false,
    target: { guards, to },
    ...more,
  };
}

/** Prints its figures; true when every shape is proved within two seconds of processor time. */
export async function overlaps(): Promise<boolean> {
  const figures = Object.entries(SHAPES).map(([name, entryOf]) => {
    const entries = Array.from({ length: COUNT }, (_, i) => entryOf(i));
    const rounds = Array.from({ length: ROUNDS }, () => proved(entries));
    return {
      name,
      ...rounds[0]!,
      ms: median(rounds.map(({ ms }) => ms)),
      longestMs: median(rounds.map(({ longestMs }) => longestMs)),
    };
  });
  console.log(`${COUNT} routes, medians of ${ROUNDS} rounds\n`);
  const rows = figures.map(({ name, ms, longestMs, bypassed, takers }) => [
    name,
    ms.toFixed(0),
    longestMs.toFixed(0),
    String(bypassed),
    String(takers),
  ]);
  console.log(
    markdown(["shape", "processor ms", "longest slice, ms", "guarded routes that are bypassed", "by routes"], rows),
  );
  const verdicts = figures.map(({ name, ms }) => ({
    what: name,
    figure: `${ms.toFixed(0)} ms`,
    target: `${MAX_MS} ms`,
    met: ms <= MAX_MS,
  }));
  console.log(verdictTable(verdicts));
  return verdicts.every(({ met }) => met);
}

function proved(entries: readonly Entry[]) {
  const before = process.cpuUsage();
  const steps = proveRoutes(entries, { guardsOf: ({ guards }) => guards, destinationOf: ({ to }) => to });
  let longestMs = 0;
  for (let sliceAt = performance.now(); ;) {
    const { done, value } = steps.next();
    const now = performance.now();
    if (done || now - sliceAt >= SLICE_MS) {
      longestMs = Math.max(longestMs, now - sliceAt);
      sliceAt = now;
    }
    if (!done) continue;
    const takers = value.bypasses.reduce((sum, { takers }) => sum + takers.length, 0);
    const { user, system } = process.cpuUsage(before);
    return { ms: (user + system) / 1000, longestMs, bypassed: value.bypasses.length, takers };
  }
}
