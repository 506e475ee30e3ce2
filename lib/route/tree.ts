/**
 * A tree of path patterns, one level a segment: finds the most specific pattern that matches a path, or lists all that match it.
 *
 * At each segment a literal is tried before {name}, and {name} before {name*}; where a branch fails further down, the next one is
 * tried, so the order of declaration does not matter. A search visits every node at most once.
 */
import type { Segment } from "./pattern.ts";

export class PatternTree<R> {
  #literals: Map<string, PatternTree<R>> | null = null;
  #one: PatternTree<R> | null = null;
  /** The routes of the pattern that ends in {name*} here, and of the one that ends here. */
  #rest: R[] | null = null;
  #ends: R[] | null = null;

  /** The list of routes that share a pattern, whatever its placeholders are called; empty at first, for the caller to fill. */
  routesAt(segments: readonly Segment[]): R[] {
    let node: PatternTree<R> = this;
    for (const segment of segments) {
      if (segment.kind === "rest") return (node.#rest ??= []);
      if (segment.kind === "one") node = node.#one ??= new PatternTree();
      else {
        node.#literals ??= new Map<string, PatternTree<R>>();
        let child = node.#literals.get(segment.text);
        if (child === undefined) node.#literals.set(segment.text, (child = new PatternTree()));
        node = child;
      }
    }
    return (node.#ends ??= []);
  }

  /** The routes of the most specific pattern that matches; `path` as `comparable` gives it, a "/" at its end is ignored. */
  find(path: string): readonly R[] | null {
    return this.#walk(path, 0, endOf(path), null);
  }

  /** The same for all patterns that match, the most specific one first. */
  findAll(path: string): readonly (readonly R[])[] {
    const all: R[][] = [];
    this.#walk(path, 0, endOf(path), all);
    return all;
  }

  /** `at` is the index of the "/" before the next segment, or the end. With `all`, the search notes what it finds and goes on. */
  #walk(path: string, at: number, end: number, all: R[][] | null): R[] | null {
    if (at === end) return found(this.#ends, all);
    const slash = path.indexOf("/", at + 1);
    const next = slash < 0 ? end : slash;
    const literal = this.#literals?.get(path.slice(at + 1, next));
    if (literal !== undefined) {
      const routes = literal.#walk(path, next, end, all);
      if (routes !== null) return routes;
    }
    if (this.#one !== null) {
      // /a/b/z fails under /a/b, try /a/{x}/z
      const routes = this.#one.#walk(path, next, end, all);
      if (routes !== null) return routes;
    }
    return found(this.#rest, all);
  }
}

function found<R>(routes: R[] | null, all: R[][] | null): R[] | null {
  if (all === null || routes === null) return routes;
  all.push(routes);
  return null;
}

function endOf(path: string): number {
  return path.endsWith("/") ? path.length - 1 : path.length;
}
