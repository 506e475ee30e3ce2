/**
 * An index of route patterns: finds all patterns that share a path with a given one, and follows paths through them
 * segment by segment.
 */
import type { Segment } from "./pattern.ts";
import { newNode, nextKey, routesAt, type Node } from "./tree.ts";

/** A pattern on one host. */
export interface Indexed {
  /** See `hostKeys`. */
  readonly key: string;
  readonly segments: readonly Segment[];
}

/** Called for each pattern that is found; false ends the search. */
export type Visit<P> = (pattern: P) => boolean;

/** "prefixes": finds the patterns that share a path with any beginning of the given one. */
export type Extent = "whole" | "prefixes";

export class PatternIndex<P extends Indexed> {
  /** The patterns of each host. */
  readonly #at = new Map<string, Node<P>>();
  /** For each host that has others below it: its patterns and theirs. */
  readonly #within = new Map<string, Node<P>>();

  constructor(keys: ReadonlySet<string>) {
    for (const key of keys) {
      this.#at.set(key, newNode());
      for (const above of keysFrom(key).slice(1)) if (keys.has(above)) this.#within.set(above, newNode());
    }
  }

  add(pattern: P): void {
    routesAt(this.#at.get(pattern.key)!, pattern.segments).push(pattern);
    for (const key of keysFrom(pattern.key)) {
      const node = this.#within.get(key);
      if (node !== undefined) routesAt(node, pattern.segments).push(pattern);
    }
  }

  /**
   * On exactly this host. As all searches: of two patterns that share a path with each other, the more specific one
   * comes first.
   */
  on(key: string, segments: readonly Segment[], visit: Visit<P>): void {
    const node = this.#at.get(key);
    if (node !== undefined) visitMeeting(node, segments, 0, "whole", visit);
  }

  /** The patterns of the host and of the hosts above it, for each of `keysFrom(key)` that has some. */
  rootsFrom(key: string): readonly Node<P>[] {
    return keysFrom(key).flatMap((each) => this.#at.get(each) ?? []);
  }

  /** On all hosts below this one. */
  below(key: string, segments: readonly Segment[], visit: Visit<P>): void {
    const node = this.#within.get(key);
    if (node !== undefined)
      visitMeeting(node, segments, 0, "whole", (pattern) => pattern.key === key || visit(pattern));
  }

  /** On all hosts that share a host name with one of these. A pattern may be visited twice. */
  meeting(keys: readonly string[], segments: readonly Segment[], extent: Extent, visit: Visit<P>): void {
    const nodes = new Set(keys.map((key) => this.#within.get(key) ?? this.#at.get(key)));
    for (const key of keys) for (const above of keysFrom(key).slice(1)) nodes.add(this.#at.get(above));
    for (const node of nodes) if (node !== undefined && !visitMeeting(node, segments, 0, extent, visit)) return;
  }
}

/** The keys under which a host is looked up: itself, the wildcards that cover it, all hosts. */
export function keysFrom(key: string): readonly string[] {
  const keys = [key];
  for (let at = key; at !== ""; keys.push(at)) at = nextKey(at);
  return keys;
}

/** Whether a host is one of these or below one of them. */
export function isCovered(key: string, keys: readonly string[]): boolean {
  return keys.includes("") || keysFrom(key).some((each) => keys.includes(each));
}

/** Whether the pattern ends in {name*}. */
export function isOpen(segments: readonly Segment[]): boolean {
  return segments.at(-1)?.kind === "rest";
}

export function literalAt(segments: readonly Segment[], at: number): string | undefined {
  const segment = segments[at];
  return segment?.kind === "literal" ? segment.text : undefined;
}

/**
 * Visits the patterns below a node that share a path with these segments. `at` is the index of the next segment; behind
 * {name*} any number may follow. Literals come first, then {name}, then {name*}.
 */
export function visitMeeting<P>(
  node: Node<P>,
  segments: readonly Segment[],
  at: number,
  extent: Extent,
  visit: Visit<P>,
): boolean {
  const segment = segments[at];
  if ((segment === undefined || extent === "prefixes") && node.ends !== null && !node.ends.every(visit)) return false;
  if (segment === undefined && segments.at(-1)?.kind !== "rest") return true;
  const next = segment === undefined || segment.kind === "rest" ? segments.length : at + 1;
  if (segment?.kind === "literal") {
    const child = node.literals?.get(segment.text);
    if (child !== undefined && !visitMeeting(child, segments, next, extent, visit)) return false;
  } else {
    for (const child of node.literals?.values() ?? [])
      if (!visitMeeting(child, segments, next, extent, visit)) return false;
  }
  if (node.one !== null && !visitMeeting(node.one, segments, next, extent, visit)) return false;
  return node.rest === null || node.rest.every(visit);
}

export interface Ranked extends Indexed {
  /** See `rankOf`. */
  readonly rank: string;
}

/**
 * A place in the patterns of a host. Beginnings of paths that match the same patterns, whatever follows, lead to one
 * state, so that a search over many paths tries what follows only once.
 */
export interface PathState<P extends Ranked> {
  /** Of states of the same host. */
  readonly id: number;
  /** The pattern that wins a path that ends here; null: none matches it. */
  readonly winner: P | null;
  after(text: string): PathState<P>;
}

/** In front of the first segment. `keys` are those of the host (`keysFrom`), `roots` their patterns. */
export function firstState<P extends Ranked>(keys: readonly string[], roots: readonly Node<P>[]): PathState<P> {
  const known = new Map<string, PathState<P>>();
  const ids = new Map<Node<P> | P, number>();
  const idOf = (each: Node<P> | P) => {
    const id = ids.get(each) ?? ids.size;
    ids.set(each, id);
    return id;
  };
  /** As the route table chooses: the more specific host, then the more specific pattern. */
  const better = (best: P | null, patterns: readonly P[] | null): P | null => {
    const other = patterns?.[0];
    if (other === undefined || best === null) return other ?? best;
    if (other.key === best.key) return other.rank > best.rank ? other : best;
    return keys.indexOf(other.key) < keys.indexOf(best.key) ? other : best;
  };
  /** `open`: the best of the patterns that have matched with {name*}, whatever follows. */
  const stateAt = (nodes: readonly Node<P>[], open: P | null): PathState<P> => {
    const name = [open, ...nodes].map((each) => (each === null ? "" : idOf(each))).join();
    const found = known.get(name);
    if (found !== undefined) return found;
    const next = new Map<string, PathState<P>>();
    const after = (text: string) => {
      const asked = nodes.some(({ literals }) => literals?.has(text)) ? text : "";
      let state = next.get(asked);
      if (state === undefined) {
        const following = nodes.flatMap(({ literals, one }) => [literals?.get(text) ?? [], one ?? []].flat());
        next.set(
          asked,
          (state = stateAt(
            following,
            nodes.reduce((best, { rest }) => better(best, rest), open),
          )),
        );
      }
      return state;
    };
    const made = { id: known.size, winner: nodes.reduce((best, { ends }) => better(best, ends), open), after };
    known.set(name, made);
    return made;
  };
  return stateAt(roots, null);
}
