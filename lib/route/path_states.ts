/**
 * Follows paths segment by segment through the patterns of a host. Beginnings of paths that match the same patterns, whatever follows, are one
 * state, so that a search over many paths tries what follows only once.
 */
import type { Indexed, Node } from "./pattern_index.ts";

export interface Ranked extends Indexed {
  /** See `rankOf`. */
  readonly rank: string;
}

export class PathState<P extends Ranked> {
  /** Of states of the same host. */
  readonly id: number;
  /** The pattern that wins a path that ends here; null: none matches it. */
  readonly winner: P | null;
  readonly #states: PathStates<P>;
  readonly #nodes: readonly Node<P>[];
  /** The best of the patterns that have matched with {name*}, whatever follows. */
  readonly #open: P | null;
  readonly #next = new Map<string, PathState<P>>();

  constructor(states: PathStates<P>, id: number, nodes: readonly Node<P>[], open: P | null) {
    this.#states = states;
    this.id = id;
    this.#nodes = nodes;
    this.#open = open;
    this.winner = nodes.reduce((best, { ends }) => states.better(best, ends), open);
  }

  after(text: string): PathState<P> {
    const isKnown = this.#nodes.some(({ literals }) => literals?.has(text));
    let next = this.#next.get(isKnown ? text : "");
    if (next === undefined) {
      const nodes = this.#nodes.flatMap(({ literals, one }) => [literals?.get(text) ?? [], one ?? []].flat());
      next = this.#states.at(nodes, this.#nodes.reduce((best, { rest }) => this.#states.better(best, rest), this.#open));
      this.#next.set(isKnown ? text : "", next);
    }
    return next;
  }
}

/** The states of one host. */
export class PathStates<P extends Ranked> {
  /** In front of the first segment. */
  readonly start: PathState<P>;
  readonly #keys: readonly string[];
  readonly #known = new Map<string, PathState<P>>();
  readonly #ids = new Map<Node<P> | P, number>();

  /** `keys` are those of the host (`keysFrom`), `roots` their patterns. */
  constructor(keys: readonly string[], roots: readonly Node<P>[]) {
    this.#keys = keys;
    this.start = this.at(roots, null);
  }

  at(nodes: readonly Node<P>[], open: P | null): PathState<P> {
    const name = [open, ...nodes].map((each) => (each === null ? "" : this.#idOf(each))).join();
    let state = this.#known.get(name);
    if (state === undefined) this.#known.set(name, (state = new PathState(this, this.#known.size, nodes, open)));
    return state;
  }

  /** As the route table chooses: the more specific host, then the more specific pattern. */
  better(best: P | null, patterns: readonly P[] | null): P | null {
    const other = patterns?.[0];
    if (other === undefined || best === null) return other ?? best;
    if (other.key === best.key) return other.rank > best.rank ? other : best;
    return this.#keys.indexOf(other.key) < this.#keys.indexOf(best.key) ? other : best;
  }

  #idOf(each: Node<P> | P): number {
    const id = this.#ids.get(each) ?? this.#ids.size;
    this.#ids.set(each, id);
    return id;
  }
}
