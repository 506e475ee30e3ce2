/**
 * Measures one router with one set of routes in its own process, so that no other router influences the compiler, and
 * prints the figures as JSON.
 */
import { createRequire } from "node:module";
import { builtModule } from "./ready.ts";
import { hits, misses, routesOf, type Asked, type RouteOf, type SetName } from "./router_sets.ts";
import { median } from "./figures.ts";

export interface RouterFigures {
  /** From the list of routes to a ready router, in a new process. */
  readonly compileMs: number;
  readonly hit: LookupFigures;
  readonly miss: LookupFigures;
}

export interface LookupFigures {
  readonly ns: number;
  /** Bytes allocated by one lookup, its result included. */
  readonly bytes: number;
}

type Find = (method: string, path: string) => unknown;
interface Candidate {
  /** Loads modules before the measurement. */
  readonly load: () => Promise<(routes: readonly RouteOf[]) => Find>;
  readonly isHit: (answer: unknown) => boolean;
}

/** By their names in the tables. */
export const CANDIDATES: Readonly<Record<string, Candidate>> = {
  "edge-gateway": {
    async load() {
      const { compileTable } = await builtModule<typeof import("../../lib/route/table.ts")>("route/table");
      return (routes) => {
        const table = compileTable(entries(routes));
        return (method, path) => table.find(HOST, method, path, false);
      };
    },
    isHit: (answer) => (answer as { kind: string }).kind === "route",
  },
  // Other routers check and decode the path in their lookups; here that is a step of its own.
  "edge-gateway, target read": {
    async load() {
      const { compileTable } = await builtModule<typeof import("../../lib/route/table.ts")>("route/table");
      const { readTarget } = await builtModule<typeof import("../../lib/route/path.ts")>("route/path");
      return (routes) => {
        const table = compileTable(entries(routes));
        return (method, target) => {
          const read = readTarget(target);
          return "code" in read ? read : table.find(HOST, method, read.path, read.encodedSlash);
        };
      };
    },
    isHit: (answer) => (answer as { kind: string }).kind === "route",
  },
  "find-my-way": {
    async load() {
      type Router = {
        on(method: string, path: string, handler: () => void): void;
        find(method: string, path: string): unknown;
      };
      const make = createRequire(import.meta.url)("find-my-way") as () => Router;
      return (routes) => {
        const router = make();
        for (const { method, path } of routes) router.on(method, colons(path), () => {});
        return (method, path) => router.find(method, path);
      };
    },
    isHit: (answer) => answer !== null,
  },
  rou3: {
    async load() {
      type Rou3 = {
        createRouter(): object;
        addRoute(router: object, method: string, path: string, data: object): void;
        findRoute(router: object, method: string, path: string): unknown;
      };
      const name: string = "rou3"; // no types: it is not installed where types are checked
      const { createRouter, addRoute, findRoute } = (await import(name)) as Rou3;
      return (routes) => {
        const router = createRouter();
        for (const route of routes) addRoute(router, route.method, colons(route.path), route);
        return (method, path) => findRoute(router, method, path);
      };
    },
    isHit: (answer) => answer !== undefined,
  },
};

const HOST = "shop.example.com";
const BATCH = 10_000;
/** Less than half a millisecond: most slices end before another process gets the processor. */
const SLICE = 250;
const WARM_UP = 8;
const BYTE_ROUNDS = 5;
const LEAST_SLICES = (5 * BATCH) / SLICE;

function entries(routes: readonly RouteOf[]) {
  return routes.map((route) => ({
    basePath: "/",
    hosts: [],
    path: route.path,
    methods: [route.method],
    encodedSlashes: false,
    pathParameters: false,
    target: route,
  }));
}

function colons(path: string): string {
  return path.replace(/\{(\w+)\}/g, ":$1");
}

/**
 * In slices of a batch, for as long as asked: the median of the slices, which pauses do not move: of the collector, or
 * on a busy machine.
 */
async function measure(name: string, set: SetName, count: number, ms: number): Promise<RouterFigures> {
  const { load, isHit } = CANDIDATES[name]!;
  const compile = await load();
  const routes = routesOf(set, count);
  const began = performance.now();
  const find = compile(routes);
  const compileMs = performance.now() - began;
  const [hit, miss] = [hits(routes, BATCH), misses(routes, BATCH)];
  for (const [asked, expected] of [
    [hit, true],
    [miss, false],
  ] as const) {
    const wrong = asked.find(({ method, path }) => isHit(find(method, path)) !== expected);
    if (wrong !== undefined)
      throw new Error(`${name} ${expected ? "finds no route for" : "finds a route for"} ${wrong.method} ${wrong.path}`);
  }
  // Interleaved while warming up, because in a gateway the same code sees both.
  for (let i = 0; i < WARM_UP; i++) for (const asked of [hit, miss]) timed(find, fresh(asked));
  return { compileMs, hit: looked(find, hit, ms / 2), miss: looked(find, miss, ms / 2) };
}

function looked(find: Find, asked: readonly Asked[], ms: number): LookupFigures {
  const bytes: number[] = [];
  for (let i = 0; i < BYTE_ROUNDS; i++) {
    const batch = fresh(asked);
    globalThis.gc!();
    const before = process.memoryUsage().heapUsed;
    timed(find, batch);
    bytes.push((process.memoryUsage().heapUsed - before) / batch.length);
  }
  const ns: number[] = [];
  for (const until = performance.now() + ms; performance.now() < until || ns.length < LEAST_SLICES;)
    ns.push(...timed(find, fresh(asked)));
  return { ns: median(ns), bytes: Math.max(0, median(bytes)) };
}

/** New strings, because text from a socket has no hash yet. */
function fresh(asked: readonly Asked[]): Asked[] {
  const bytes = Buffer.from(asked.map(({ path }) => path).join(""), "latin1");
  let at = 0;
  return asked.map(({ method, path }) => ({ method, path: bytes.toString("latin1", at, (at += path.length)) }));
}

/** Nanoseconds of a lookup, slice by slice. */
function timed(find: Find, batch: readonly Asked[]): number[] {
  const ns: number[] = [];
  let found = 0;
  for (let from = 0; from < batch.length; from += SLICE) {
    const to = Math.min(batch.length, from + SLICE);
    const began = process.hrtime.bigint();
    for (let i = from; i < to; i++) {
      const { method, path } = batch[i]!;
      if (find(method, path) !== HOST) found++;
    }
    ns.push(Number(process.hrtime.bigint() - began) / (to - from));
  }
  if (found !== batch.length) throw new Error("a lookup gave nothing");
  return ns;
}

const [name, set, count, ms] = process.argv.slice(2);
if (process.send !== undefined) {
  process.once("disconnect", () => process.exit());
  process.send(await measure(name!, set as SetName, Number(count), Number(ms)));
  process.disconnect();
}
