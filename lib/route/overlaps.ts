/**
 * Proves which routes of a table no request reaches, and which routes take requests that the path of a guarded route matches.
 *
 * No paths are tried out. Of all paths that two patterns share at one length, the one whose placeholders hold texts that occur in no pattern
 * is matched by the fewest other patterns: if another pattern wins it, that pattern wins all of them. The same holds for a host name that
 * occurs in no service. So one look-up decides each pair of patterns on each host, for each length up to that of the longest pattern.
 */
import { isOpen, literalAt, type Segment } from "./pattern.ts";
import { isCovered, keysFrom, PatternIndex, type Indexed } from "./pattern_index.ts";
import { choiceFor, COMMON_METHODS, fulfilling, unused, type Choice, type SampleRequest } from "./sample_requests.ts";
import { spellings } from "./spellings.ts";
import { contenders, methodsOf, otherReading, rankOf, reachable, routeFor, routesOf, type Route, type TableEntry } from "./table.ts";
import { hostKeys, HostTrees } from "./tree.ts";

export interface Unreachable<T> {
  readonly target: T;
  /** Routes that take requests which its path matches. */
  readonly takers: readonly T[];
  /** One that the first of them takes; null where there are none. */
  readonly request: SampleRequest | null;
}

/**
 * With the same pattern "method", a longer "base_path", or conditions ("match") of one of the two; "specificity": a more specific pattern; "host":
 * another or a more specific host.
 */
export type BypassReason = "method" | "base_path" | "match" | "host" | "specificity" | "%2F";

export interface Taker<T> {
  readonly target: T;
  readonly reason: BypassReason;
  readonly request: SampleRequest;
}

export interface Bypass<T> {
  /** The guarded route. */
  readonly target: T;
  /** At least one; `MOST_TAKERS` at most. */
  readonly takers: readonly Taker<T>[];
}

/** How many takers of one guarded route are looked for. */
export const MOST_TAKERS = 10;

export interface Proof<T> {
  /** For each route that is reached, a request that it takes. */
  readonly samples: ReadonlyMap<T, SampleRequest>;
  readonly unreachable: readonly Unreachable<T>[];
  readonly bypasses: readonly Bypass<T>[];
}

/**
 * Checks entries whose patterns `checkRoutes` has passed. `guardsOf` names the guards of a route: equal names are equal guards. Yields often,
 * so that the caller can let other work run.
 *
 * A route is unreachable if `RouteTable.find` gives it no request. A guarded route is bypassed by a route that lacks one of its guards if
 * there is a host name for both, and `find` gives the other one a request, for whatever host, whose path matches the guarded route's pattern,
 * as it is spelt or with each `%2F` read as "/". Path parameters (`;`) are not tried: `find` refuses them where they matter.
 */
export function* proveRoutes<T>(entries: readonly TableEntry<T>[], guardsOf: (target: T) => ReadonlySet<string>): Generator<undefined, Proof<T>, undefined> {
  const routes = routesOf(entries);
  yield;
  const prover = new Prover<T>(routes, guardsOf);
  yield* prover.prepare();
  const order = new Map(entries.map((entry, i) => [entry, i]));
  const samples = new Map<T, SampleRequest>();
  const unreachable: Unreachable<T>[] = [];
  const bypasses: Bypass<T>[] = [];
  for (const route of prover.routes.toSorted((a, b) => order.get(a.entry)! - order.get(b.entry)!)) {
    yield;
    const sample = prover.sample(route);
    if (sample === null) unreachable.push(prover.hiding(route));
    else samples.set(route.target, sample);
    const takers = prover.isBypassable(route) ? yield* prover.takers(route) : [];
    if (takers.length > 0) bypasses.push({ target: route.target, takers });
  }
  return { samples, unreachable, bypasses };
}

/** A route with its place on each of its hosts. */
interface Placed<T> extends Route<T> {
  readonly keys: readonly string[];
  readonly guards: ReadonlySet<string>;
  readonly rank: string;
  readonly patterns: Pattern<T>[];
}

/** A pattern on one host: the routes are the very list that `HostTrees.find` returns. */
interface Pattern<T> extends Indexed {
  /** See `rankOf`: of two patterns that share a path, the one with the greater rank wins it. */
  readonly rank: string;
  readonly routes: readonly Placed<T>[];
  /** All hosts of its routes; null where they differ. */
  keys: readonly string[] | null;
  /** Whether all its routes accept %2F; found out when it is needed first. */
  acceptsSlashes: boolean | undefined;
  /** See `choiceFor`; found out when they are needed first. */
  readonly choices: Map<Placed<T>, Choice | null>;
}

/** Patterns with `%2F` on one host that begin with the same literals. */
interface Heads<T> extends Indexed {
  /** All hosts of the routes. */
  readonly keys: readonly string[];
  readonly rank: string;
  /** By the literal at the end; "": other ends. */
  readonly byTail: Map<string, Set<Pattern<T>>>;
}

class Prover<T> {
  readonly routes: readonly Placed<T>[];
  readonly #trees = new HostTrees<Placed<T>>();
  readonly #patterns = new Map<readonly Placed<T>[], Pattern<T>>();
  readonly #index: PatternIndex<Pattern<T>>;
  readonly #heads: PatternIndex<Heads<T>>;
  /** In segments. */
  readonly #longest: number;
  /** A segment, a host, and the first label of a host, that occur nowhere. */
  #segment = "";
  readonly #host: string;
  readonly #label: string;
  /** The guards that every route has. */
  readonly #common: ReadonlySet<string>;
  readonly #haveSameHosts: boolean;

  constructor(routes: readonly Route<T>[], guardsOf: (target: T) => ReadonlySet<string>) {
    const keysOf = new Map<string, readonly string[]>();
    this.routes = routes.map((route) => {
      const hosts = route.entry.hosts.join();
      const keys = keysOf.get(hosts) ?? hostKeys(route.entry.hosts);
      keysOf.set(hosts, keys);
      return { ...route, keys, guards: guardsOf(route.target), rank: rankOf(route), patterns: [] };
    });
    const keys = new Set([...keysOf.values()].flat());
    this.#index = new PatternIndex(keys);
    this.#heads = new PatternIndex(keys);
    this.#haveSameHosts = keysOf.size === 1;
    this.#host = unused("localhost", keys);
    // As short as possible: no name is longer than 253.
    this.#label = unused("x", new Set([...keys].map((key) => key.split(".", 1)[0]!)));
    this.#longest = routes.reduce((longest, { segments }) => Math.max(longest, segments.length), 0);
    const common = new Set(this.routes[0]?.guards);
    for (const { guards } of this.routes) for (const guard of common) if (!guards.has(guard)) common.delete(guard);
    this.#common = common;
  }

  /** To be run before anything is asked. */
  *prepare(): Generator<undefined, void, undefined> {
    const heads = new Map<string, Heads<T>>();
    const literals = new Set<string>();
    for (const route of this.routes) {
      yield;
      for (const segment of route.segments) if (segment.kind === "literal") literals.add(segment.text);
      this.#trees.routesAt(route.entry.hosts, route.segments).forEach((routes, i) => {
        routes.push(route);
        let pattern = this.#patterns.get(routes);
        if (pattern === undefined) {
          pattern = { key: route.keys[i]!, segments: route.segments, rank: route.rank, routes, keys: route.keys, acceptsSlashes: undefined, choices: new Map() };
          this.#patterns.set(routes, pattern);
          this.#index.add(pattern);
        }
        if (pattern.keys !== route.keys) pattern.keys = null;
        route.patterns.push(pattern);
        if (route.entry.encodedSlashes) this.#addHead(heads, route, pattern);
      });
    }
    this.#segment = unused("x", literals);
  }

  #addHead(heads: Map<string, Heads<T>>, { keys, rank }: Placed<T>, pattern: Pattern<T>): void {
    const { key, segments } = pattern;
    const end = segments.findIndex(({ kind }) => kind !== "literal");
    if (end < 0) return;
    const literals = segments.slice(0, end);
    const name = JSON.stringify([key, keys, rank, literals]);
    let head = heads.get(name);
    if (head === undefined) {
      heads.set(name, (head = { key, keys, rank, segments: literals, byTail: new Map<string, Set<Pattern<T>>>() }));
      this.#heads.add(head);
    }
    const tail = literalAt(segments, segments.length - 1) ?? "";
    const patterns = head.byTail.get(tail) ?? new Set();
    head.byTail.set(tail, patterns.add(pattern));
  }

  /** A request that the route takes; null if there is none. */
  sample(route: Placed<T>): SampleRequest | null {
    for (const pattern of route.patterns) {
      const request = this.#requestTo(route, pattern, pattern.segments);
      if (request !== null) return request;
    }
    return null;
  }

  /** Why a route is unreachable. */
  hiding(route: Placed<T>): Unreachable<T> {
    const { target, patterns, methods, segments } = route;
    const own = fulfilling(route.conditions);
    const takers = new Set<T>();
    let request: SampleRequest | null = null;
    for (const { key } of patterns) {
      const host = this.#hostOf(key);
      for (let length = segments.length; length <= this.#longest + 1; length++) {
        const path = this.#sharedPath(segments, segments, length);
        const winners = this.#trees.find(host, path)!;
        const method = [...methods, ...COMMON_METHODS].find((each) => contenders(winners, each).length > 0) ?? methodsOf(winners)[0]!;
        const taker = routeFor(winners, method, own.headers, own.query);
        const other = taker ?? contenders(winners, method)[0]!;
        takers.add(other.target);
        request ??= { method, ...own, ...(taker === undefined ? choiceFor(other, winners) : null), host, path };
        if (!isOpen(segments) || isOpen(winners[0]!.segments)) break;
      }
    }
    return { target, takers: [...takers], request };
  }

  /** False if every route has the guards of this one. */
  isBypassable({ guards }: Placed<T>): boolean {
    return lacks(this.#common, guards);
  }

  /** The routes that take requests of a guarded one. */
  *takers(guarded: Placed<T>): Generator<undefined, readonly Taker<T>[], undefined> {
    const { keys, segments, rank, guards } = guarded;
    const takers = new Map<Placed<T>, Taker<T>>();
    // Of the patterns that can win a path of this one.
    let acceptsSlashes = false;
    let leastRank = rank;
    this.#index.meeting(keys, segments, "whole", (pattern) => {
      const isLess = pattern.rank < rank;
      if (isLess && this.#haveSameHosts) return false;
      if (!isLess || !keys.includes(pattern.key)) {
        acceptsSlashes ||= this.#acceptsSlashes(pattern);
        if (isLess && pattern.rank < leastRank) leastRank = pattern.rank;
      }
      // On the same hosts the more specific pattern wins every path that both match.
      if (isLess && (pattern.keys === keys || pattern.keys?.every((key) => keys.includes(key)))) return true;
      for (const route of pattern.routes) {
        if (takers.size === MOST_TAKERS) return false;
        if (route === guarded || !lacks(route.guards, guards) || takers.has(route)) continue;
        const taker = this.#spelt(guarded, route);
        if (taker !== null) takers.set(route, taker);
      }
      return true;
    });
    const heads: Heads<T>[] = [];
    if (takers.size < MOST_TAKERS) this.#heads.meeting(keys, segments, "prefixes", (head) => heads.push(head) > 0);
    const openers = new Map<string, readonly (Pattern<T> | null)[]>();
    for (const head of heads) {
      yield;
      // Where the guarded route is for all hosts of the head, a pattern that can win has been visited above.
      if (!acceptsSlashes && leastRank >= head.rank && head.keys.every((key) => isCovered(key, keys))) continue;
      for (const route of endingLike(segments, head)) {
        if (takers.size === MOST_TAKERS) return [...takers.values()];
        if (route === guarded || !route.entry.encodedSlashes || !lacks(route.guards, guards) || takers.has(route)) continue;
        const request = this.#decoded(guarded, route, openers);
        if (request !== null) takers.set(route, { target: route.target, reason: "%2F", request });
      }
    }
    return [...takers.values()];
  }

  /** A request for the other route that the path of the guarded one matches as it is spelt; for one of its hosts, if there is such a request. */
  #spelt(guarded: Placed<T>, route: Placed<T>): Taker<T> | null {
    let found: Taker<T> | null = null;
    for (const pattern of route.patterns) {
      const isShared = guarded.keys.includes(pattern.key);
      if (found !== null && !isShared) continue;
      const request = this.#requestTo(route, pattern, guarded.segments);
      if (request === null) continue;
      const reason = !isShared ? "host" : pattern.routes.includes(guarded) ? reasonOf(guarded, route, request) : "specificity";
      found = { target: route.target, reason, request };
      if (isShared) break;
    }
    return found;
  }

  /**
   * The same for paths that match only with each `%2F` read as "/". `find` refuses most of them (see `decodedReading` in `table.ts`): the
   * pattern that wins the decoded path has to accept `%2F` or be less specific than the other route's, or none may match it. `openers` has
   * the patterns that can win, by host.
   */
  #decoded(guarded: Placed<T>, route: Placed<T>, openers: Map<string, readonly (Pattern<T> | null)[]>): SampleRequest | null {
    for (const pattern of route.patterns) {
      const { key } = pattern;
      let list = openers.get(key);
      if (list === undefined) openers.set(key, (list = this.#openers(guarded, key)));
      for (const opener of list) {
        if (opener !== null && !this.#isOpener(opener, pattern)) break;
        const host = this.#hostOf(opener !== null && keysFrom(opener.key).includes(key) ? opener.key : key);
        const choice = choiceOf(route, pattern);
        // With `%2F` in all its placeholders, which no literal equals.
        const length = choice === null ? null : this.#lengthWonBy(pattern, pattern.segments, host);
        if (choice === null || length === null) continue;
        const both = opener === null ? [guarded.segments] : [guarded.segments, opener.segments];
        for (const { path, decoded } of spellings(pattern.segments, both, { length, longest: this.#longest, unused: this.#segment })) {
          const winners = this.#trees.find(host, decoded);
          if (winners !== null && (!this.#isOpener(this.#patterns.get(winners)!, pattern) || this.#isRefused(host, decoded, winners))) continue;
          if (!this.#isRefused(host, path, pattern.routes)) return { ...choice, host, path };
        }
      }
    }
    return null;
  }

  #isOpener(winner: Pattern<T>, pattern: Pattern<T>): boolean {
    return winner === pattern || winner.rank < pattern.rank || this.#acceptsSlashes(winner);
  }

  #acceptsSlashes(pattern: Pattern<T>): boolean {
    return (pattern.acceptsSlashes ??= reachable(pattern.routes).every(({ entry }) => entry.encodedSlashes));
  }

  /**
   * The patterns that may win a path of the guarded route for a request whose own path is found on the host `key`: first those that accept
   * `%2F`, then the others by rank. Null stands for none.
   */
  #openers(guarded: Placed<T>, key: string): readonly (Pattern<T> | null)[] {
    const { keys, segments, rank } = guarded;
    const found: Pattern<T>[] = [];
    const chain = keysFrom(key);
    const own = chain.find((each) => keys.includes(each));
    for (const each of chain) {
      this.#index.on(each, segments, (pattern) => (each !== own || pattern.rank >= rank) && found.push(pattern) > 0);
      if (each === own) break;
    }
    this.#index.below(key, segments, (pattern) => (pattern.rank < rank && keys.includes(pattern.key)) || found.push(pattern) > 0);
    const [accepting, others] = [true, false].map((accepts) => found.filter((each) => this.#acceptsSlashes(each) === accepts));
    others!.sort((a, b) => (a.rank < b.rank ? -1 : 1));
    return [...(own === undefined ? [null] : []), ...accepting!, ...others!];
  }

  /** A request for a route of the first of two patterns whose path both match; null if the pattern wins none for this route. */
  #requestTo(route: Placed<T>, pattern: Pattern<T>, other: readonly Segment[]): SampleRequest | null {
    const host = this.#hostOf(pattern.key);
    const length = this.#lengthWonBy(pattern, other, host);
    const choice = length === null ? null : choiceOf(route, pattern);
    return length === null || choice === null ? null : { ...choice, host, path: this.#sharedPath(pattern.segments, other, length) };
  }

  /** The least length at which the first of two patterns wins their shared path, for this host, in segments; null if it wins none. */
  #lengthWonBy({ routes, segments }: Pattern<T>, other: readonly Segment[], host: string): number | null {
    const areOpen = isOpen(segments) && isOpen(other);
    const least = areOpen ? Math.max(segments.length, other.length) : isOpen(segments) ? other.length : segments.length;
    const most = areOpen ? this.#longest + 1 : least;
    for (let length = least; length <= most; length++) {
      const path = this.#sharedPath(segments, other, length);
      const winners = this.#trees.find(host, path)!;
      if (winners === routes && !this.#isRefused(host, path, routes)) return length;
      // It wins all longer paths, too.
      if (winners !== routes && isOpen(winners[0]!.segments)) break;
    }
    return null;
  }

  /** Whether `find` refuses the path because it has another reading without its path parameters. */
  #isRefused(host: string, path: string, winners: readonly Placed<T>[]): boolean {
    return path.includes(";") && otherReading(this.#trees, host, path, winners).length > 0;
  }

  /** The path of this length that both patterns match, with unused texts where neither has a literal. */
  #sharedPath(a: readonly Segment[], b: readonly Segment[], length: number): string {
    let path = "";
    for (let i = 0; i < length; i++) path += "/" + (literalAt(a, i) ?? literalAt(b, i) ?? this.#segment);
    return path === "" ? "/" : path;
  }

  /** A name that is found under this key first. */
  #hostOf(key: string): string {
    return key === "" ? this.#host : key.startsWith(".") ? this.#label + key : key;
  }
}

/** The routes whose patterns can end in the same segment as the given one. */
function* endingLike<T>(segments: readonly Segment[], { byTail }: Heads<T>): Generator<Placed<T>> {
  const tail = literalAt(segments, segments.length - 1);
  const lists = tail === undefined ? byTail.values() : [byTail.get(tail) ?? [], byTail.get("") ?? []];
  for (const patterns of lists) for (const { routes } of patterns) yield* routes;
}

function choiceOf<T>(route: Placed<T>, { routes, choices }: Pattern<T>): Choice | null {
  let choice = choices.get(route);
  if (choice === undefined) choices.set(route, (choice = choiceFor(route, routes)));
  return choice;
}

/** Why a route of the same pattern takes a request, and not the guarded one. */
function reasonOf<T>(guarded: Route<T>, taker: Route<T>, { method }: SampleRequest): BypassReason {
  if (guarded.methods.length > 0 && !guarded.methods.includes(method)) return "method";
  return taker.baseLength > guarded.baseLength ? "base_path" : "match";
}

function lacks(guards: ReadonlySet<string>, needed: ReadonlySet<string>): boolean {
  if (guards !== needed) for (const guard of needed) if (!guards.has(guard)) return true;
  return false;
}
