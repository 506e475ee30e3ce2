/**
 * Finds the most specific pattern that matches a host and a path.
 *
 * A request's host is tried first, then the wildcards that cover it, then the patterns for all hosts. At each segment
 * of a path a literal is tried before {name}, and {name} before {name*}; where a branch fails further down, the next
 * one is tried, so the order of declaration does not matter.
 */
import type { Segment } from "./pattern.ts";

/** Hosts are keys: "api.example.com", "*.example.com" as ".example.com", all hosts as "". */
export class HostTrees<R> {
  readonly roots = new Map<string, Node<R>>([["", newNode()]]);

  /** The lists of routes that share a pattern, one for each of `hostKeys`. The caller fills them. */
  routesAt(hosts: readonly string[], segments: readonly Segment[]): R[][] {
    return hostKeys(hosts).map((key) => routesAt(childOf(this.roots, key), segments));
  }

  /**
   * The routes of the most specific pattern that matches the path, on the most specific host that has one. A "/" at the
   * path's end is ignored.
   */
  find(authority: string, path: string): readonly R[] | null {
    const end = endOf(path);
    for (let host = this.firstKey(authority); ; host = nextKey(host)) {
      const root = this.roots.get(host);
      const routes = root === undefined ? null : walk(root, path, 0, end);
      if (routes !== null || host === "") return routes;
    }
  }

  firstKey(authority: string): string {
    if (this.roots.size === 1) return "";
    const host = hostOf(authority);
    // "*.example.com" needs a name before the dot; and no name is longer than 253 (RFC 1035), so a Host full of dots
    // costs nothing.
    return host.startsWith(".") || host.length > 253 ? "" : host;
  }
}

/** The keys of a service's hosts, each once; no hosts stand for all. */
export function hostKeys(hosts: readonly string[]): readonly string[] {
  return hosts.length === 0
    ? [""]
    : [...new Set(hosts.map((host) => hostOf(host.startsWith("*.") ? host.slice(1) : host)))];
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

/** A place in the patterns of a host: what can follow, and what ends there. */
export interface Node<R> {
  /** Null: none. Most nodes of a large configuration are the ends of patterns. */
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
 * The list of routes that share a pattern, whatever its placeholders are called; empty at first, for the caller to
 * fill.
 */
export function routesAt<R>(root: Node<R>, segments: readonly Segment[]): R[] {
  let node = root;
  for (const segment of segments) {
    if (segment.kind === "rest") return (node.rest ??= []);
    node = segment.kind === "one" ? (node.one ??= newNode()) : childOf((node.literals ??= new Map()), segment.text);
  }
  return (node.ends ??= []);
}

/** `at` is the index of the "/" before the next segment, or the end. It visits every node at most once. */
function walk<R>(node: Node<R>, path: string, at: number, end: number): R[] | null {
  if (at === end) return node.ends;
  const slash = path.indexOf("/", at + 1);
  const next = slash < 0 ? end : slash;
  const literal = node.literals?.get(path.slice(at + 1, next));
  // /a/{x}/b/z fails under /a/{x}/b, try /a/{x}/{y}/z
  return (literal && walk(literal, path, next, end)) ?? (node.one && walk(node.one, path, next, end)) ?? node.rest;
}

/** The length of the path without a "/" at its end. */
export function endOf(path: string): number {
  return path.endsWith("/") ? path.length - 1 : path.length;
}
