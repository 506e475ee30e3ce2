/**
 * Finds the most specific pattern that matches a host and a path, or lists all that match them.
 *
 * A request's host is tried first, then the wildcards that cover it, then the patterns for all hosts. At each segment of a path a literal is
 * tried before {name}, and {name} before {name*}; where a branch fails further down, the next one is tried, so the order of declaration does
 * not matter.
 */
import type { Segment } from "./pattern.ts";

/** Hosts are keys: "api.example.com", "*.example.com" as ".example.com", all hosts as "". */
export class HostTrees<R> {
  readonly #trees = new Map<string, PatternTree<R>>([["", new PatternTree()]]);

  /** The lists of routes that share a pattern, one for each host; no hosts stand for all. The caller fills them. */
  routesAt(hosts: readonly string[], segments: readonly Segment[]): R[][] {
    // A host may be written twice.
    const keys = new Set(hosts.length === 0 ? [""] : hosts.map((host) => hostOf(host.startsWith("*.") ? host.slice(1) : host)));
    return Array.from(keys, (key) => {
      let tree = this.#trees.get(key);
      if (tree === undefined) this.#trees.set(key, (tree = new PatternTree()));
      return tree.routesAt(segments);
    });
  }

  /** The routes of the most specific pattern that matches the path, on the most specific host that has one. */
  find(authority: string, path: string): readonly R[] | null {
    for (let host = this.#firstKey(authority); ; host = nextKey(host)) {
      const routes = this.#trees.get(host)?.find(path) ?? null;
      if (routes !== null || host === "") return routes;
    }
  }

  /** The routes of all patterns that match the path, in the order in which `find` tries them. `authority` null: on every host. */
  findAll(authority: string | null, path: string): readonly { readonly host: string; readonly routes: readonly R[] }[] {
    const keys = authority === null ? [...this.#trees.keys()] : [this.#firstKey(authority)];
    if (authority !== null) while (keys.at(-1) !== "") keys.push(nextKey(keys.at(-1)!));
    return keys.flatMap((host) => (this.#trees.get(host)?.findAll(path) ?? []).map((routes) => ({ host, routes })));
  }

  #firstKey(authority: string): string {
    if (this.#trees.size === 1) return "";
    const host = hostOf(authority);
    // "*.example.com" needs a name before the dot; and no name is longer than 253 (RFC 1035), so a Host full of dots costs nothing.
    return host.startsWith(".") || host.length > 253 ? "" : host;
  }
}

/** a.b.c -> .b.c -> .c -> "" */
function nextKey(key: string): string {
  const dot = key.indexOf(".", 1);
  return dot < 0 ? "" : key.slice(dot);
}

/** The host of an authority: lower case, without port and trailing dot. `API.example.com.:8008` -> `api.example.com` */
function hostOf(authority: string): string {
  let end = authority.indexOf(":", authority.startsWith("[") ? authority.indexOf("]") : 0);
  if (end < 0) end = authority.length;
  if (end > 1 && authority[end - 1] === ".") end--;
  return authority.slice(0, end).toLowerCase();
}

/** The patterns of one host: those without placeholders by their whole paths, the others in a tree with a level for each segment. */
export class PatternTree<R> {
  readonly #literal = new Map<string, R[]>();
  readonly #root: Node<R> = newNode();

  /** The list of routes that share a pattern, whatever its placeholders are called; empty at first, for the caller to fill. */
  routesAt(segments: readonly Segment[]): R[] {
    if (segments.every(({ kind }) => kind === "literal")) {
      const path = segments.map((segment) => "/" + (segment as { text: string }).text).join("");
      let routes = this.#literal.get(path);
      if (routes === undefined) this.#literal.set(path, (routes = []));
      return routes;
    }
    let node = this.#root;
    for (const segment of segments) {
      if (segment.kind === "rest") return (node.rest ??= []);
      if (segment.kind === "one") node = node.one ??= newNode();
      else {
        node.literals ??= new Map<string, Node<R>>();
        let child = node.literals.get(segment.text);
        if (child === undefined) node.literals.set(segment.text, (child = newNode()));
        node = child;
      }
    }
    return (node.ends ??= []);
  }

  /** The routes of the most specific pattern that matches; `path` as `comparable` gives it, a "/" at its end is ignored. */
  find(path: string): readonly R[] | null {
    const end = endOf(path);
    return this.#literal.get(end === path.length ? path : path.slice(0, end)) ?? walk(this.#root, path, 0, end, null);
  }

  /** The same for all patterns that match, the most specific one first. */
  findAll(path: string): readonly (readonly R[])[] {
    const end = endOf(path);
    const literal = this.#literal.get(path.slice(0, end));
    const all: R[][] = literal === undefined ? [] : [literal];
    walk(this.#root, path, 0, end, all);
    return all;
  }
}

interface Node<R> {
  literals: Map<string, Node<R>> | null;
  one: Node<R> | null;
  /** The routes of the pattern that ends in {name*} here, and of the one that ends here. */
  rest: R[] | null;
  ends: R[] | null;
}

function newNode<R>(): Node<R> {
  return { literals: null, one: null, rest: null, ends: null };
}

/**
 * `at` is the index of the "/" before the next segment, or the end. With `all`, the search notes what it finds and goes on. It visits every
 * node at most once.
 */
function walk<R>(node: Node<R>, path: string, at: number, end: number, all: R[][] | null): R[] | null {
  if (at === end) return found(node.ends, all);
  const slash = path.indexOf("/", at + 1);
  const next = slash < 0 ? end : slash;
  const literal = node.literals?.get(path.slice(at + 1, next));
  if (literal !== undefined) {
    const routes = walk(literal, path, next, end, all);
    if (routes !== null) return routes;
  }
  if (node.one !== null) {
    // /a/b/z fails under /a/b, try /a/{x}/z
    const routes = walk(node.one, path, next, end, all);
    if (routes !== null) return routes;
  }
  return found(node.rest, all);
}

function found<R>(routes: R[] | null, all: R[][] | null): R[] | null {
  if (all === null || routes === null) return routes;
  all.push(routes);
  return null;
}

/** The length of the path without a "/" at its end. */
export function endOf(path: string): number {
  return path.endsWith("/") ? path.length - 1 : path.length;
}
