/**
 * The routes of a table in their places: each on each of its hosts, with the routes that share its pattern there, and
 * with look-ups of the paths that the fewest other patterns match.
 */
import type { Segment } from "./pattern.ts";
import { firstState, isOpen, keysFrom, literalAt, PatternIndex, type PathState, type Ranked } from "./pattern_index.ts";
import { choiceFor, unused, type Choice } from "./sample_requests.ts";
import { otherReading, rankOf, reachable, type TableRoute } from "./table.ts";
import { hostKeys, HostTrees } from "./tree.ts";

/** A route with its place on each of its hosts. */
export interface Placed<T> extends TableRoute<T> {
  readonly keys: readonly string[];
  readonly guards: ReadonlySet<string>;
  readonly rank: string;
  readonly patterns: Pattern<T>[];
}

/**
 * A pattern on one host: the routes are the very list that `HostTrees.find` returns. Of two patterns that share a path,
 * the one with the greater rank wins it.
 */
export interface Pattern<T> extends Ranked {
  readonly routes: readonly Placed<T>[];
  /** All hosts of its routes; null where they differ. */
  keys: readonly string[] | null;
  /** Whether all its routes accept %2F; found out when it is needed first. */
  acceptsSlashes: boolean | undefined;
  /** See `choiceFor`; found out when they are needed first. */
  readonly choices: Map<Placed<T>, Choice | null>;
}

/** Field by field: of ten thousand routes, copies by `...` take a tenth of a second. */
function placedRoute<T>(route: TableRoute<T>, keys: Placed<T>["keys"], guards: Placed<T>["guards"]): Placed<T> {
  const { entry, methods, conditions, holds, target, upstreamPath, segments, baseLength, isLiteral } = route;
  const rank = rankOf(route);
  const patterns: Pattern<T>[] = [];
  return {
    entry,
    methods,
    conditions,
    holds,
    target,
    upstreamPath,
    segments,
    baseLength,
    isLiteral,
    keys,
    guards,
    rank,
    patterns,
  };
}

export class PlacedRoutes<T> {
  readonly routes: readonly Placed<T>[];
  readonly trees = new HostTrees<Placed<T>>();
  readonly patterns = new Map<readonly Placed<T>[], Pattern<T>>();
  readonly index: PatternIndex<Pattern<T>>;
  /** All hosts, also those of the other table. */
  readonly keys: ReadonlySet<string>;
  /** Of the longest pattern of both tables, in segments. */
  readonly longest: number;
  /** The guards that every route has. */
  readonly commonGuards: ReadonlySet<string>;
  readonly haveSameHosts: boolean;
  /** A segment, a host, and the first label of a host, that occur nowhere. */
  segment = "";
  readonly #host: string;
  readonly #label: string;
  readonly #starts = new Map<string, PathState<Pattern<T>>>();

  private constructor(
    routes: readonly Placed<T>[],
    keysOf: ReadonlyMap<string, readonly string[]>,
    { longest, commonGuards }: Pick<PlacedRoutes<T>, "longest" | "commonGuards">,
  ) {
    this.routes = routes;
    this.keys = new Set([...keysOf.values()].flat());
    this.index = new PatternIndex(this.keys);
    this.haveSameHosts = keysOf.size === 1;
    this.#host = unused("localhost", this.keys);
    // As short as possible: no name is longer than 253.
    this.#label = unused("x", new Set([...this.keys].map((key) => key.split(".", 1)[0]!)));
    this.longest = longest;
    this.commonGuards = commonGuards;
  }

  /**
   * In steps. `others` are the routes of another table: hosts, lengths and texts that occur nowhere are those of both.
   */
  static *of<T>(
    given: readonly TableRoute<T>[],
    guardsOf: (target: T) => ReadonlySet<string>,
    others: readonly TableRoute<T>[] = [],
  ): Generator<undefined, PlacedRoutes<T>, undefined> {
    const keysOf = new Map<string, readonly string[]>();
    const keysOn = (list: readonly string[]) => {
      const hosts = list.join();
      const keys = keysOf.get(hosts) ?? hostKeys(list);
      keysOf.set(hosts, keys);
      return keys;
    };
    const routes: Placed<T>[] = [];
    const literals = new Set<string>();
    let [longest, common] = [0, null as Set<string> | null];
    for (const route of given) {
      yield;
      const guards = guardsOf(route.target);
      routes.push(placedRoute(route, keysOn(route.entry.hosts), guards));
      common ??= new Set(guards);
      for (const guard of common) if (!guards.has(guard)) common.delete(guard);
    }
    for (const { entry, segments } of others) {
      yield;
      keysOn(entry.hosts);
      longest = Math.max(longest, segments.length);
    }
    for (const { segments } of [...routes, ...others]) {
      yield;
      longest = Math.max(longest, segments.length);
      for (const segment of segments) if (segment.kind === "literal") literals.add(segment.text);
    }
    const placed = new PlacedRoutes<T>(routes, keysOf, { longest, commonGuards: common ?? new Set() });
    placed.segment = unused("x", literals);
    yield* placed.#fill();
    return placed;
  }

  *#fill(): Generator<undefined, void, undefined> {
    for (const route of this.routes) {
      yield;
      this.trees.routesAt(route.entry.hosts, route.segments).forEach((routes, i) => {
        routes.push(route);
        let pattern = this.patterns.get(routes);
        if (pattern === undefined) {
          pattern = {
            key: route.keys[i]!,
            segments: route.segments,
            rank: route.rank,
            routes,
            keys: route.keys,
            acceptsSlashes: undefined,
            choices: new Map(),
          };
          this.patterns.set(routes, pattern);
          this.index.add(pattern);
        }
        if (pattern.keys !== route.keys) pattern.keys = null;
        route.patterns.push(pattern);
      });
    }
  }

  /** In front of a path, for a name that is found under this key first. */
  pathsOn(key: string): PathState<Pattern<T>> {
    let state = this.#starts.get(key);
    if (state === undefined) this.#starts.set(key, (state = firstState(keysFrom(key), this.index.rootsFrom(key))));
    return state;
  }

  /**
   * The least length at which the first of two patterns wins their shared path, for this host, in segments; null if it
   * wins none.
   */
  lengthWonBy({ routes, segments }: Pattern<T>, other: readonly Segment[], host: string): number | null {
    for (const length of this.lengthsOf(segments, other)) {
      const path = this.sharedPath(segments, other, length);
      const winners = this.trees.find(host, path)!;
      if (winners === routes && !this.isRefused(host, path, routes)) return length;
      // It wins all longer paths, too.
      if (winners !== routes && isOpen(winners[0]!.segments)) break;
    }
    return null;
  }

  /** The lengths of the paths that both patterns match, up to one from which on nothing changes. */
  *lengthsOf(a: readonly Segment[], b: readonly Segment[]): Generator<number, void, undefined> {
    const areOpen = isOpen(a) && isOpen(b);
    const closed = isOpen(a) ? b.length : a.length;
    const least = areOpen ? Math.max(a.length, b.length) : closed;
    const most = areOpen ? this.longest + 1 : least;
    for (let length = least; length <= most; length++) yield length;
  }

  acceptsSlashes(pattern: Pattern<T>): boolean {
    return (pattern.acceptsSlashes ??= reachable(pattern.routes).every(({ entry }) => entry.encodedSlashes));
  }

  /** Whether `find` refuses the path because it has another reading without its path parameters. */
  isRefused(host: string, path: string, winners: readonly Placed<T>[]): boolean {
    return path.includes(";") && otherReading(this.trees, host, path, winners).length > 0;
  }

  /** The path of this length that both patterns match, with unused texts where neither has a literal. */
  sharedPath(a: readonly Segment[], b: readonly Segment[], length: number): string {
    let path = "";
    for (let i = 0; i < length; i++) path += "/" + (literalAt(a, i) ?? literalAt(b, i) ?? this.segment);
    return path === "" ? "/" : path;
  }

  /** A name that is found under this key first. */
  hostOf(key: string): string {
    return key === "" ? this.#host : key.startsWith(".") ? this.#label + key : key;
  }
}

/** See `choiceFor`. */
export function choiceOf<T>(route: Placed<T>, { routes, choices }: Pattern<T>): Choice | null {
  let choice = choices.get(route);
  if (choice === undefined) choices.set(route, (choice = choiceFor(route, routes)));
  return choice;
}

/** Whether a route with these guards lacks one of the others. */
export function lacks(guards: ReadonlySet<string>, needed: ReadonlySet<string>): boolean {
  if (guards !== needed) for (const guard of needed) if (!guards.has(guard)) return true;
  return false;
}
