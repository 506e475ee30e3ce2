/**
 * Lists the routes whose patterns match a path.
 */
import type { RouteConditions } from "./contracts.ts";
import { comparable } from "./path.ts";
import { keysFrom, visitMeeting } from "./pattern_index.ts";
import { contenders, type TableRoute, type RouteTable } from "./table.ts";
import { endOf } from "./tree.ts";

/**
 * A route whose pattern matches a path, whether or not it accepts the method, its conditions hold, and it gets the
 * request.
 */
export interface RouteCandidate<T> {
  readonly target: T;
  /**
   * The most specific host under which it was found; "*.example.com" as ".example.com", "" where its service is for all
   * hosts.
   */
  readonly host: string;
  readonly takes: (method: string) => boolean;
  readonly match: RouteConditions | undefined;
}

/** Every route whose pattern matches the path, once, the most specific first. `authority` null: whatever the host. */
export function candidatesOf<T>(
  { trees }: RouteTable<T>,
  authority: string | null,
  path: string,
): readonly RouteCandidate<T>[] {
  const compared = comparable(path);
  const texts = compared.slice(1, endOf(compared));
  const segments = texts === "" ? [] : texts.split("/").map((text) => ({ kind: "literal", text }) as const);
  const found = new Map<TableRoute<T>, RouteCandidate<T>>();
  for (const host of authority === null ? trees.roots.keys() : keysFrom(trees.firstKey(authority))) {
    const root = trees.roots.get(host);
    if (root === undefined) continue;
    visitMeeting(root, segments, 0, "whole", (route) => {
      const takes = (method: string) => contenders([route], method).length > 0;
      if (!found.has(route)) found.set(route, { target: route.target, host, takes, match: route.entry.match });
      return true;
    });
  }
  return [...found.values()];
}
