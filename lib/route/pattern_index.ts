/**
 * An index of route patterns that finds all patterns that share a path with a given one.
 */
import type { Segment } from "./pattern.ts";
import { nextKey } from "./tree.ts";

/** A pattern on one host. */
export interface Indexed {
  /** See `hostKeys`. */
  readonly key: string;
  readonly segments: readonly Segment[];
  /** See `rankOf`: of two patterns that share a path, the one with the greater rank wins it. */
  readonly rank: string;
}

interface Node<P> {
  readonly literals: Map<string, Node<P>>;
  one: Node<P> | null;
  /** The patterns that end here, and those that end in {name*} here: one for each host. */
  readonly ends: P[];
  readonly rest: P[];
  /** The patterns whose first placeholder is here. */
  readonly heads: P[];
}

export interface Sharing<P> {
  /** Patterns that share a path, the most specific first. */
  readonly patterns: P[];
  /** Patterns with a placeholder, of which the literals before the first one fit the given pattern. */
  readonly heads: P[];
}

export class PatternIndex<P extends Indexed> {
  /** The patterns of each host, and those of each host with all hosts below it: the same index where there are none. */
  readonly #at = new Map<string, Node<P>>();
  readonly #within = new Map<string, Node<P>>();

  constructor(patterns: readonly P[]) {
    const keys = new Set(patterns.map(({ key }) => key));
    for (const key of keys) this.#at.set(key, newNode());
    for (const key of keys) for (const above of keysFrom(key).slice(1)) if (keys.has(above)) this.#within.set(above, newNode());
    for (const pattern of patterns) {
      insert(this.#at.get(pattern.key)!, pattern);
      for (const key of keysFrom(pattern.key)) {
        const node = this.#within.get(key);
        if (node !== undefined) insert(node, pattern);
      }
    }
  }

  /** Whether patterns of other hosts are below this one. */
  hasBelow(key: string): boolean {
    return this.#within.has(key);
  }

  /** On exactly this host. `leastRank` is "" or the rank of the given pattern: patterns of a lower rank are left out. */
  on(key: string, segments: readonly Segment[], leastRank = ""): Sharing<P> {
    return sharing([this.#at.get(key)], segments, leastRank);
  }

  /** On this host and all below it. */
  within(key: string, segments: readonly Segment[]): Sharing<P> {
    return sharing([this.#within.get(key) ?? this.#at.get(key)], segments, "");
  }

  /** On all hosts that share a host name with one of these. */
  meeting(keys: readonly string[], segments: readonly Segment[], leastRank: string): Sharing<P> {
    const nodes = new Set(keys.map((key) => this.#within.get(key) ?? this.#at.get(key)));
    for (const key of keys) for (const above of keysFrom(key).slice(1)) nodes.add(this.#at.get(above));
    return sharing(nodes, segments, leastRank);
  }
}

/** The keys under which a host is looked up: itself, the wildcards that cover it, all hosts. */
export function keysFrom(key: string): readonly string[] {
  const keys = [key];
  while (keys.at(-1) !== "") keys.push(nextKey(keys.at(-1)!));
  return keys;
}

function newNode<P>(): Node<P> {
  return { literals: new Map(), one: null, ends: [], rest: [], heads: [] };
}

function insert<P extends Indexed>(root: Node<P>, pattern: P): void {
  let node = root;
  const head = pattern.segments.findIndex(({ kind }) => kind !== "literal");
  for (const [i, segment] of pattern.segments.entries()) {
    if (i === head) node.heads.push(pattern);
    if (segment.kind === "rest") {
      node.rest.push(pattern);
      return;
    }
    if (segment.kind === "one") node = node.one ??= newNode();
    else {
      let child = node.literals.get(segment.text);
      if (child === undefined) node.literals.set(segment.text, (child = newNode()));
      node = child;
    }
  }
  node.ends.push(pattern);
}

function sharing<P extends Indexed>(roots: Iterable<Node<P> | undefined>, segments: readonly Segment[], leastRank: string): Sharing<P> {
  const found: Sharing<P> = { patterns: [], heads: [] };
  for (const root of roots) if (root !== undefined) walk(root, segments, 0, leastRank, found);
  return found;
}

/**
 * `at` is the index of the next segment; behind {name*} any number may follow. Literals first, then {name}, then {name*}: once a pattern has
 * a lower rank than the given one, all further patterns have, and the walk returns false.
 */
function walk<P extends Indexed>(node: Node<P>, segments: readonly Segment[], at: number, leastRank: string, found: Sharing<P>): boolean {
  for (const pattern of node.heads) found.heads.push(pattern);
  const segment = segments[at];
  const isOpen = segments.at(-1)?.kind === "rest";
  if (segment === undefined && !collect(node.ends, leastRank, found)) return false;
  if (segment === undefined && !isOpen) return true;
  const next = segment === undefined || segment.kind === "rest" ? segments.length : at + 1;
  const children = segment?.kind === "literal" ? [node.literals.get(segment.text)] : node.literals.values();
  for (const child of children) if (child !== undefined && !walk(child, segments, next, leastRank, found)) return false;
  if (node.one !== null && !walk(node.one, segments, next, leastRank, found)) return false;
  return collect(node.rest, leastRank, found);
}

/** False if the patterns have a lower rank. */
function collect<P extends Indexed>(patterns: readonly P[], leastRank: string, found: Sharing<P>): boolean {
  if (patterns.length === 0) return true;
  if (patterns[0]!.rank < leastRank) return false;
  for (const pattern of patterns) found.patterns.push(pattern);
  return true;
}
