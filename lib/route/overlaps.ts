/**
 * Proves which routes of a table no request reaches, which routes take requests that the path of a guarded route
 * matches, and which routes lead to the same path of the same upstream as a guarded one.
 *
 * No paths are tried out. Of all paths that two patterns share at one length, the one whose placeholders hold texts
 * that occur in no pattern is matched by the fewest other patterns: if another pattern wins it, that pattern wins all
 * of them. The same holds for a host name that occurs in no service. So one look-up decides each pair of patterns on
 * each host, for each length up to that of the longest pattern.
 */
import { DecodedOverlaps } from "./decoded_overlaps.ts";
import type { Segment } from "./pattern.ts";
import { isOpen } from "./pattern_index.ts";
import { choiceOf, lacks, PlacedRoutes, type Pattern, type Placed } from "./placed_routes.ts";
import { choiceFor, COMMON_METHODS, fulfilling, requestFor, type SampleRequest } from "./sample_requests.ts";
import { contenders, methodsOf, routeFor, routeSteps, type TableRoute, type TableEntry } from "./table.ts";
import { UpstreamOverlaps, type RouteDestination } from "./upstream_overlaps.ts";

export interface Unreachable<T> {
  readonly target: T;
  /** Routes that take requests which its path matches. */
  readonly takers: readonly T[];
  /** One that the first of them takes; null where there are none. */
  readonly request: SampleRequest | null;
}

/**
 * With the same pattern "method", a longer "base_path", or conditions ("match") of one of the two; "specificity": a
 * more specific pattern; "host":
 * another or a more specific host; "upstream": another path that leads to the same path of the same upstream.
 */
export type BypassReason = "method" | "base_path" | "match" | "host" | "specificity" | "%2F" | "upstream";

export interface Taker<T> {
  readonly target: T;
  readonly reason: BypassReason;
  /** Null: there are more ways to spell such a request than are tried (`MAX_STEPS`), and none was found. */
  readonly request: SampleRequest | null;
}

export interface Bypass<T> {
  /** The guarded route. */
  readonly target: T;
  /** At least one; `MAX_TAKERS` at most. Without those that are accepted. */
  readonly takers: readonly Taker<T>[];
}

/** How many takers of one guarded route are looked for. */
export const MAX_TAKERS = 10;

export interface Proof<T> {
  /** For each route that is reached, a request that it takes. */
  readonly samples: ReadonlyMap<T, SampleRequest>;
  readonly unreachable: readonly Unreachable<T>[];
  readonly bypasses: readonly Bypass<T>[];
  /** How many spellings with `%2F` have been tried: `MAX_STEPS_IN_ALL` at most. */
  readonly steps: number;
}

export interface ProofQuestion<T> {
  /** The guards of a route: equal names are equal guards. */
  readonly guardsOf: (target: T) => ReadonlySet<string>;
  /** Where a route leads; routes of one service have one object. Default: no two routes lead to the same upstream. */
  readonly destinationOf?: (target: T) => RouteDestination | null;
  /** Whether the guarded route may be bypassed by the other one. Asked for bypasses only. Default: none may. */
  readonly isAccepted?: (guarded: T, taker: T) => boolean;
}

/**
 * Checks entries whose patterns `checkRoutes` has passed. Yields often, so that the caller can let other work run.
 *
 * A route is unreachable if `RouteTable.find` gives it no request. A guarded route is bypassed by a route that lacks
 * one of its guards if there is a host name for both, and `find` gives the other one a request, for whatever host,
 * whose path matches the guarded route's pattern, as it is spelt or with each `%2F` read as "/"; or if `find` gives
 * both of them a request with the same method that leads to the same path of the same upstream. Two routes of one
 * pattern that name different methods and have a guard each that the other one lacks do not bypass each other. Path
 * parameters (`;`) are not tried: `find` refuses them where they matter.
 */
export function* proveRoutes<T>(
  entries: readonly TableEntry<T>[],
  { guardsOf, destinationOf, isAccepted = () => false }: ProofQuestion<T>,
): Generator<undefined, Proof<T>, undefined> {
  const placed = yield* PlacedRoutes.of<T>(yield* routeSteps(entries), guardsOf);
  const decoded = new DecodedOverlaps(placed);
  yield* decoded.prepare();
  const upstreams = new UpstreamOverlaps(placed, destinationOf ?? (() => null));
  yield* upstreams.prepare();
  const places = new Map<TableEntry<T>, Placed<T>>();
  for (const route of placed.routes) {
    yield;
    places.set(route.entry, route);
  }
  const samples = new Map<T, SampleRequest>();
  const unreachable: Unreachable<T>[] = [];
  const bypasses: Bypass<T>[] = [];
  for (const entry of entries) {
    yield;
    const route = places.get(entry)!;
    const sample = sampleOf(placed, route);
    if (sample === null) unreachable.push(hiding(placed, route));
    else samples.set(route.target, sample);
    // Nothing is missing where all routes have the guards of this one.
    const takers = lacks(placed.commonGuards, route.guards)
      ? yield* takersOf({ placed, decoded, upstreams, isAccepted }, route)
      : [];
    if (takers.length > 0) bypasses.push({ target: route.target, takers });
  }
  return { samples, unreachable, bypasses, steps: decoded.steps.taken };
}

interface Prover<T> {
  readonly placed: PlacedRoutes<T>;
  readonly decoded: DecodedOverlaps<T>;
  readonly upstreams: UpstreamOverlaps<T>;
  readonly isAccepted: (guarded: T, taker: T) => boolean;
}

/** A request that the route takes; null if there is none. */
function sampleOf<T>(placed: PlacedRoutes<T>, route: Placed<T>): SampleRequest | null {
  for (const pattern of route.patterns) {
    const request = requestTo(placed, route, pattern, pattern.segments);
    if (request !== null) return request;
  }
  return null;
}

/** Why a route is unreachable. */
function hiding<T>(placed: PlacedRoutes<T>, route: Placed<T>): Unreachable<T> {
  const { target, patterns, methods, segments } = route;
  const own = fulfilling(route.conditions);
  const takers = new Set<T>();
  let request: SampleRequest | null = null;
  for (const { key } of patterns) {
    const host = placed.hostOf(key);
    for (let length = segments.length; length <= placed.longest + 1; length++) {
      const path = placed.sharedPath(segments, segments, length);
      const winners = placed.trees.find(host, path)!;
      const method =
        [...methods, ...COMMON_METHODS].find((each) => contenders(winners, each).length > 0) ?? methodsOf(winners)[0]!;
      const taker = routeFor(winners, method, own.headers, own.query, own.scheme);
      const other = taker ?? contenders(winners, method)[0]!;
      takers.add(other.target);
      request ??= { method, ...own, ...(taker === undefined ? choiceFor(other, winners) : null), host, path };
      if (!isOpen(segments) || isOpen(winners[0]!.segments)) break;
    }
  }
  return { target, takers: [...takers], request };
}

/** The routes that take requests of a guarded one. */
function* takersOf<T>(
  { placed, decoded, upstreams, isAccepted }: Prover<T>,
  guarded: Placed<T>,
): Generator<undefined, readonly Taker<T>[], undefined> {
  const { keys, segments, rank, guards } = guarded;
  const takers: Taker<T>[] = [];
  const settled = new Set<Placed<T>>();
  const isSettled = (route: Placed<T>) => settled.has(route) || haveOwnMethods(guarded, route);
  const isFull = () => takers.length === MAX_TAKERS;
  const add = (route: Placed<T>, reason: BypassReason, request: SampleRequest | null) => {
    settled.add(route);
    if (!isAccepted(guarded.target, route.target)) takers.push({ target: route.target, reason, request });
  };
  // Of the patterns that can win a path of this one.
  let acceptsSlashes = false;
  let leastRank = rank;
  placed.index.meeting(keys, segments, "whole", (pattern) => {
    const isLess = pattern.rank < rank;
    if (isLess && placed.haveSameHosts) return false;
    if (!isLess || !keys.includes(pattern.key)) {
      acceptsSlashes ||= placed.acceptsSlashes(pattern);
      if (isLess && pattern.rank < leastRank) leastRank = pattern.rank;
    }
    // On the same hosts the more specific pattern wins every path that both match.
    if (isLess && (pattern.keys === keys || pattern.keys?.every((key) => keys.includes(key)))) return true;
    for (const route of pattern.routes) {
      if (isFull()) return false;
      if (route === guarded || !lacks(route.guards, guards) || isSettled(route)) continue;
      const taker = spelt(placed, guarded, route);
      if (taker !== null) add(route, taker.reason, taker.request);
    }
    return true;
  });
  for (const found of isFull() ? [] : decoded.takers(guarded, { leastRank, acceptsSlashes, isKnown: isSettled })) {
    yield;
    if (found !== undefined) add(found.route, "%2F", found.request);
    if (isFull()) break;
  }
  for (const found of isFull() ? [] : upstreams.takers(guarded)) {
    yield;
    if (found !== undefined && !isSettled(found.route)) add(found.route, "upstream", found.request);
    if (isFull()) break;
  }
  return takers;
}

/**
 * Whether two routes of one pattern divide its methods and both have a guard that the other one lacks: then each method
 * has the guards that are meant for it. HEAD goes with GET.
 */
function haveOwnMethods<T>(guarded: Placed<T>, route: Placed<T>): boolean {
  if (guarded.methods.length === 0 || route.methods.length === 0 || !lacks(guarded.guards, route.guards)) return false;
  if (!guarded.patterns.some(({ routes }) => routes.includes(route))) return false;
  const methods = methodsOf([guarded]);
  return !methodsOf([route]).some((method) => methods.includes(method));
}

/**
 * A request for the other route that the path of the guarded one matches as it is spelt; for one of its hosts, if there
 * is such a request.
 */
function spelt<T>(
  placed: PlacedRoutes<T>,
  guarded: Placed<T>,
  route: Placed<T>,
): Pick<Taker<T>, "reason" | "request"> | null {
  let found: Pick<Taker<T>, "reason" | "request"> | null = null;
  for (const pattern of route.patterns) {
    const isShared = guarded.keys.includes(pattern.key);
    if (found !== null && !isShared) continue;
    const request = requestTo(placed, route, pattern, guarded.segments);
    if (request === null) continue;
    const reason = !isShared
      ? "host"
      : pattern.routes.includes(guarded)
        ? reasonOf(guarded, route, request)
        : "specificity";
    found = { reason, request };
    if (isShared) break;
  }
  return found;
}

/**
 * A request for a route of the first of two patterns whose path both match; null if the pattern wins none for this
 * route.
 */
function requestTo<T>(
  placed: PlacedRoutes<T>,
  route: Placed<T>,
  pattern: Pattern<T>,
  other: readonly Segment[],
): SampleRequest | null {
  const host = placed.hostOf(pattern.key);
  const length = placed.lengthWonBy(pattern, other, host);
  const choice = length === null ? null : choiceOf(route, pattern);
  return length === null || choice === null
    ? null
    : requestFor(choice, host, placed.sharedPath(pattern.segments, other, length));
}

/** Why a route of the same pattern takes a request, and not the guarded one. */
function reasonOf<T>(guarded: TableRoute<T>, taker: TableRoute<T>, { method }: SampleRequest): BypassReason {
  if (guarded.methods.length > 0 && !guarded.methods.includes(method)) return "method";
  return taker.baseLength > guarded.baseLength ? "base_path" : "match";
}
