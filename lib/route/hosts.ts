/**
 * Patterns of paths by host: a request's host is tried first, then the wildcards that cover it, then the patterns for all hosts.
 */
import type { Segment } from "./pattern.ts";
import { PatternTree } from "./tree.ts";

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
