/**
 * Finds the requests that one route gets in a table and another one in a changed table, for each pair of routes that
 * the caller asks about.
 *
 * No requests are tried out. As in `overlaps.ts`, one look-up in both tables decides for two patterns on a host and a
 * length of the path, with texts that occur in neither table where no pattern asks for one. Spellings with `%2F` need
 * no search: where one leads to both routes, so does such a text in its place.
 */
import { isOpen, keysFrom } from "./pattern_index.ts";
import { PlacedRoutes, type Pattern, type Placed } from "./placed_routes.ts";
import { sharedChoice, type SampleRequest } from "./sample_requests.ts";
import { routeSteps, type TableEntry } from "./table.ts";

export interface Takeover<T> {
  readonly before: T;
  readonly after: T;
  readonly request: SampleRequest;
}

export interface TakeoverQuestion<T> {
  /** Whether it matters that the second route gets requests that the first one had. May change with what was found. */
  readonly isAsked: (before: T, after: T) => boolean;
  /** Two routes that get the same requests with equal names are the same to `isAsked`. */
  readonly nameOf: (target: T) => string;
}

/** How many look-ups and choices are made at most: 10 s on a slow machine. */
export const MAX_LOOKUPS = 500_000;

/**
 * Yields often, and what it finds. Asks first about the two routes that a pattern had and has with the same methods and
 * conditions. Returns false if there was more to try than `MAX_LOOKUPS`.
 *
 * Two routes that both tables have need no look-up, unless they share a pattern with HEAD: which of them gets a request
 * that both match does not depend on other routes.
 */
export function* takeovers<T>(
  entries: { readonly before: readonly TableEntry<T>[]; readonly after: readonly TableEntry<T>[] },
  { isAsked, nameOf }: TakeoverQuestion<T>,
  most = MAX_LOOKUPS,
): Generator<undefined | Takeover<T>, boolean, undefined> {
  const [olds, news] = [yield* routeSteps(entries.before), yield* routeSteps(entries.after)];
  yield;
  const before = yield* PlacedRoutes.of<T>(olds, () => NO_GUARDS, news);
  const after = yield* PlacedRoutes.of<T>(news, () => NO_GUARDS, olds);
  const isKept = yield* keptIn(before, after, nameOf);
  const areKept = (pattern: Pattern<T>) => pattern.routes.every(isKept);
  const changed = new Set([...before.patterns.values()].filter((pattern) => !areKept(pattern)));
  let lookups = 0;
  for (const pattern of after.patterns.values()) {
    yield;
    const met = new Set<Pattern<T>>();
    const isUnchanged = areKept(pattern) && !namesHead(pattern);
    before.index.meeting([pattern.key], pattern.segments, "whole", (other) => {
      if (!isUnchanged || changed.has(other)) met.add(other);
      return true;
    });
    const isSame = (other: Pattern<T>) => other.key === pattern.key && other.rank === pattern.rank;
    for (const other of [...met].sort((a, b) => Number(isSame(b)) - Number(isSame(a)))) {
      const canSkip = !isSame(other) || !(namesHead(pattern) || namesHead(other));
      let place: HostAndPath | null | undefined;
      for (const [was, is] of pairs(other, pattern)) {
        if ((canSkip && isKept(was) && isKept(is)) || !isAsked(was.target, is.target)) continue;
        lookups += place === undefined ? 1 : pattern.routes.length + other.routes.length;
        if (lookups > most) return false;
        place ??= placeOf(before, after, [other, pattern]);
        if (place === null) break;
        yield;
        const choice = sharedChoice({ route: was, routes: other.routes }, { route: is, routes: pattern.routes });
        if (choice !== null) yield { before: was.target, after: is.target, request: { ...choice, ...place } };
      }
    }
  }
  return true;
}

const NO_GUARDS: ReadonlySet<string> = new Set();

type HostAndPath = Pick<SampleRequest, "host" | "path">;

/** Whether the other table has a route that gets the same requests and has the same name. */
function* keptIn<T>(
  before: PlacedRoutes<T>,
  after: PlacedRoutes<T>,
  nameOf: (target: T) => string,
): Generator<undefined, (route: Placed<T>) => boolean, undefined> {
  const [names, others] = [new Set<string>(), new Set<string>()];
  const known = new Map<Placed<T>, string>();
  for (const [placed, set] of [
    [before, names],
    [after, others],
  ] as const) {
    for (const route of placed.routes) {
      yield;
      const name = JSON.stringify([nameOf(route.target), ...requestsOf(route)]);
      known.set(route, name);
      set.add(name);
    }
  }
  return (route) => names.has(known.get(route)!) && others.has(known.get(route)!);
}

/** Equal for routes that get the same requests. */
function requestsOf<T>({ keys, segments, baseLength, methods, entry }: Placed<T>): readonly unknown[] {
  const pattern = segments.map((segment) => (segment.kind === "literal" ? segment.text : `{${segment.kind}}`));
  return [[...keys].sort(), pattern, baseLength, [...methods].sort(), entry.match?.written, entry.pathParameters];
}

function namesHead<T>({ routes }: Pattern<T>): boolean {
  return routes.some(({ methods }) => methods.includes("HEAD"));
}

/** The pairs of their routes, for each of the new ones that with the same methods and conditions first. */
function* pairs<T>(old: Pattern<T>, next: Pattern<T>): Generator<readonly [was: Placed<T>, is: Placed<T>]> {
  const known = new Map(old.routes.map((route) => [JSON.stringify(requestsOf(route)), route]));
  for (const is of next.routes) {
    const same = next.routes.length === 1 ? undefined : known.get(JSON.stringify(requestsOf(is)));
    if (same !== undefined) yield [same, is];
    for (const was of old.routes) if (was !== same) yield [was, is];
  }
}

/** A host and a path that the first pattern wins in the table before and the second in that after; null: none. */
function placeOf<T>(
  before: PlacedRoutes<T>,
  after: PlacedRoutes<T>,
  [old, next]: readonly [Pattern<T>, Pattern<T>],
): HostAndPath | null {
  const host = before.hostOf(keysFrom(old.key).includes(next.key) ? old.key : next.key);
  for (const length of before.lengthsOf(old.segments, next.segments)) {
    const path = before.sharedPath(old.segments, next.segments, length);
    const winners = [before.trees.find(host, path)!, after.trees.find(host, path)!] as const;
    const isWon = winners[0] === old.routes && winners[1] === next.routes;
    const isRefused = before.isRefused(host, path, winners[0]) || after.isRefused(host, path, winners[1]);
    if (isWon && !isRefused) return { host, path };
    // An open pattern wins all longer paths, too.
    if (winners.some((routes, i) => routes !== [old, next][i]!.routes && isOpen(routes[0]!.segments))) break;
  }
  return null;
}
