/**
 * Finds the requests with `%2F` in their paths by which a route takes what a guarded route is for, once a backend reads
 * each `%2F` as "/".
 */
import { isCovered, keysFrom, literalAt, PatternIndex, type Indexed } from "./pattern_index.ts";
import { choiceOf, lacks, type Pattern, type Placed, type PlacedRoutes } from "./placed_routes.ts";
import { requestFor, type SampleRequest } from "./sample_requests.ts";
import { findSpelling, type Steps } from "./spellings.ts";

/** A pattern of a service that accepts `%2F`, in the index by the literals that it begins with. */
interface Head<T> extends Indexed {
  readonly pattern: Pattern<T>;
}

export interface DecodedSearch<T> {
  /**
   * Of the patterns that can win a path of the guarded route: the least rank, and whether one of them accepts `%2F`.
   */
  readonly leastRank: string;
  readonly acceptsSlashes: boolean;
  /** Routes that are known to take requests of the guarded one need not be looked at. */
  readonly isKnown: (route: Placed<T>) => boolean;
}

export interface FoundTaker<T> {
  readonly route: Placed<T>;
  /** Null: a bound was reached before one was found. */
  readonly request: SampleRequest | null;
}

export class DecodedOverlaps<T> {
  readonly steps: Steps = { taken: 0 };
  readonly #placed: PlacedRoutes<T>;
  readonly #heads: PatternIndex<Head<T>>;

  constructor(placed: PlacedRoutes<T>) {
    this.#placed = placed;
    this.#heads = new PatternIndex(placed.keys);
  }

  /** To be run before anything is asked. */
  *prepare(): Generator<undefined, void, undefined> {
    for (const pattern of this.#placed.patterns.values()) {
      yield;
      const { key, segments, routes } = pattern;
      const end = segments.findIndex(({ kind }) => kind !== "literal");
      if (end >= 0 && routes.some(({ entry }) => entry.encodedSlashes))
        this.#heads.add({ key, segments: segments.slice(0, end), pattern });
    }
  }

  /** The routes that lack a guard of this one and take such a request. */
  *takers(
    guarded: Placed<T>,
    { leastRank, acceptsSlashes, isKnown }: DecodedSearch<T>,
  ): Generator<undefined | FoundTaker<T>, void, undefined> {
    const { keys, segments, guards } = guarded;
    const tail = literalAt(segments, segments.length - 1);
    const patterns: Pattern<T>[] = [];
    this.#heads.meeting(keys, segments, "prefixes", ({ pattern }) => {
      const last = literalAt(pattern.segments, pattern.segments.length - 1);
      const canEndAlike = tail === undefined || last === undefined || tail === last;
      // Where the guarded route is for all hosts of the pattern, `acceptsSlashes` and `leastRank` are of all patterns
      // that can win.
      const canWin =
        acceptsSlashes || leastRank < pattern.rank || pattern.keys?.every((key) => isCovered(key, keys)) !== true;
      if (canEndAlike && canWin) patterns.push(pattern);
      return true;
    });
    const openers = new Map<string, readonly (Pattern<T> | null)[]>();
    for (const { routes } of patterns) {
      for (const route of routes) {
        if (route === guarded || !route.entry.encodedSlashes || !lacks(route.guards, guards) || isKnown(route))
          continue;
        yield;
        const request = yield* this.#request(guarded, route, openers);
        if (request !== undefined) yield { route, request };
      }
    }
  }

  /**
   * A request for the route; undefined if there is none. `find` refuses most paths (see `decodedReading` in
   * `table.ts`): the pattern that wins the decoded path has to accept `%2F` or be less specific than the route's, or
   * none may match it. `openers` has the patterns that can win, by host.
   */
  *#request(
    guarded: Placed<T>,
    route: Placed<T>,
    openers: Map<string, readonly (Pattern<T> | null)[]>,
  ): Generator<undefined, SampleRequest | null | undefined, undefined> {
    const placed = this.#placed;
    let isUndecided = false;
    for (const pattern of route.patterns) {
      const { key, segments, routes } = pattern;
      let list = openers.get(key);
      if (list === undefined) openers.set(key, (list = this.#openers(guarded, key)));
      const choice = choiceOf(route, pattern);
      if (choice === null) continue;
      for (const opener of list) {
        if (opener !== null && !this.#isOpener(opener, pattern)) break;
        yield;
        const from = opener !== null && keysFrom(opener.key).includes(key) ? opener.key : key;
        const host = placed.hostOf(from);
        // With `%2F` in all its placeholders, which no literal equals.
        const length = placed.lengthWonBy(pattern, segments, host);
        if (length === null) continue;
        const found = findSpelling<Pattern<T>>(
          segments,
          opener === null ? [guarded.segments] : [guarded.segments, opener.segments],
          {
            length,
            longest: placed.longest,
            unused: placed.segment,
            start: placed.pathsOn(from),
            steps: this.steps,
            accepts: (winner, { path, decoded }) => {
              if (winner !== null && !this.#isOpener(winner, pattern)) return false;
              return (winner === null || !placed.isRefused(host, decoded, winner.routes)) &&
                !placed.isRefused(host, path, routes)
                ? true
                : "refused";
            },
          },
        );
        if (found === "undecided") isUndecided = true;
        else if (found !== null) return requestFor(choice, host, found.path);
      }
    }
    return isUndecided ? null : undefined;
  }

  #isOpener(winner: Pattern<T>, pattern: Pattern<T>): boolean {
    return winner === pattern || winner.rank < pattern.rank || this.#placed.acceptsSlashes(winner);
  }

  /**
   * The patterns that may win a path of the guarded route for a request whose own path is found on the host `key`:
   * first those that accept `%2F`, then the others by rank. Null stands for none.
   */
  #openers(guarded: Placed<T>, key: string): readonly (Pattern<T> | null)[] {
    const { keys, segments, rank } = guarded;
    const { index } = this.#placed;
    const found: Pattern<T>[] = [];
    const chain = keysFrom(key);
    const own = chain.find((each) => keys.includes(each));
    for (const each of chain) {
      index.on(each, segments, (pattern) => (each !== own || pattern.rank >= rank) && found.push(pattern) > 0);
      if (each === own) break;
    }
    index.below(
      key,
      segments,
      (pattern) => (pattern.rank < rank && keys.includes(pattern.key)) || found.push(pattern) > 0,
    );
    const [accepting, others] = [true, false].map((accepts) =>
      found.filter((each) => this.#placed.acceptsSlashes(each) === accepts),
    );
    others!.sort((a, b) => (a.rank < b.rank ? -1 : 1));
    return [...(own === undefined ? [null] : []), ...accepting!, ...others!];
  }
}
