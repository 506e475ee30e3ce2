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

  /** The lists of routes that share a pattern, one for each of `hostKeys`. The caller fills them. */
  routesAt(hosts: readonly string[], segments: readonly Segment[]): R[][] {
    return hostKeys(hosts).map((key) => {
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

/** The keys of a service's hosts, each once; no hosts stand for all. */
export function hostKeys(hosts: readonly string[]): readonly string[] {
  return hosts.length === 0 ? [""] : [...new Set(hosts.map((host) => hostOf(host.startsWith("*.") ? host.slice(1) : host)))];
}

/** a.b.c -> .b.c -> .c -> "" */
export function nextKey(key: string): string {
  const dot = key.indexOf(".", 1);
  return dot < 0 ? "" : key.slice(dot);
}

/** The host of an authority: lower case, without port and trailing dot. `API.example.com.:8008` -> `api.example.com` */
export function hostOf(authority: string): string {
  let end = authority.indexOf(":", authority.startsWith("[") ? authority.indexOf("]") : 0);
  if (end < 0) end = authority.length;
  if (end > 1 && authority[end - 1] === ".") end--;
  return authority.slice(0, end).toLowerCase();
}

/** The patterns of one host. */
export class PatternTree<R> {
  /** By the literals before the first placeholder: "/a/b" for /a/b/{x}/c, the whole of a pattern without placeholders. */
  readonly #heads = new Map<string, Node<R>>();
  /** True at the numbers of segments that heads have. */
  readonly #lengths: boolean[] = [];

  /** The list of routes that share a pattern, whatever its placeholders are called; empty at first, for the caller to fill. */
  routesAt(segments: readonly Segment[]): R[] {
    let head = "";
    let length = 0;
    for (let first = segments[0]; first?.kind === "literal"; first = segments[++length]) head += "/" + first.text;
    while (this.#lengths.length <= length) this.#lengths.push(false);
    this.#lengths[length] = true;
    let node = childOf(this.#heads, head);
    for (let i = length; i < segments.length; i++) {
      const segment = segments[i]!;
      if (segment.kind === "rest") return (node.rest ??= []);
      node = segment.kind === "one" ? (node.one ??= newNode()) : childOf((node.literals ??= new Map<string, Node<R>>()), segment.text);
    }
    return (node.ends ??= []);
  }

  /** The routes of the most specific pattern that matches; `path` as `comparable` gives it, a "/" at its end is ignored. */
  find(path: string): readonly R[] | null {
    return this.#search(path, 0, endOf(path), 0, null);
  }

  /** The same for all patterns that match, the most specific one first. */
  findAll(path: string): readonly (readonly R[])[] {
    const all: R[][] = [];
    this.#search(path, 0, endOf(path), 0, all);
    return all;
  }

  /** Tries the longest head first. `at` is the index of the "/" behind the first `length` segments, or the end. */
  #search(path: string, at: number, end: number, length: number, all: R[][] | null): R[] | null {
    if (at < end && length + 1 < this.#lengths.length) {
      const routes = this.#search(path, nextSlash(path, at, end), end, length + 1, all);
      if (routes !== null) return routes;
    }
    const node = this.#lengths[length] === true ? this.#heads.get(path.slice(0, at)) : undefined;
    return node === undefined ? null : walk(node, path, at, end, all);
  }
}

/** A node: the alternatives after a head or a placeholder. */
export interface Node<R> {
  literals: Map<string, Node<R>> | null;
  one: Node<R> | null;
  /** The routes of the pattern that ends in {name*} here, and of the one that ends here. */
  rest: R[] | null;
  ends: R[] | null;
}

export function newNode<R>(): Node<R> {
  return { literals: null, one: null, rest: null, ends: null };
}

export function childOf<R>(children: Map<string, Node<R>>, text: string): Node<R> {
  let child = children.get(text);
  if (child === undefined) children.set(text, (child = newNode()));
  return child;
}

/**
 * `at` is the index of the "/" before the next segment, or the end. With `all`, the search notes what it finds and goes on. It visits every
 * node at most once.
 */
function walk<R>(node: Node<R>, path: string, at: number, end: number, all: R[][] | null): R[] | null {
  if (at === end) return found(node.ends, all);
  const next = nextSlash(path, at, end);
  const literal = node.literals?.get(path.slice(at + 1, next));
  if (literal !== undefined) {
    const routes = walk(literal, path, next, end, all);
    if (routes !== null) return routes;
  }
  if (node.one !== null) {
    // /a/{x}/b/z fails under /a/{x}/b, try /a/{x}/{y}/z
    const routes = walk(node.one, path, next, end, all);
    if (routes !== null) return routes;
  }
  return found(node.rest, all);
}

function nextSlash(path: string, at: number, end: number): number {
  const slash = path.indexOf("/", at + 1);
  return slash < 0 ? end : slash;
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
