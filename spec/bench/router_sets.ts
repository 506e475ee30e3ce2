/** The routes and paths that routers are compared with. */
import { random, type Random } from "../support/random.ts";

export const SETS = ["literal", "placeholder", "mixed"] as const;
export type SetName = (typeof SETS)[number];

export interface RouteOf {
  readonly method: string;
  /** Placeholders in braces. */
  readonly path: string;
}

export interface Asked {
  readonly method: string;
  readonly path: string;
}

/** `count` routes: literal paths, paths with one placeholder, or resources with their collections, items and parts. */
export function routesOf(set: SetName, count: number): RouteOf[] {
  return Array.from({ length: count }, (_none, i) => {
    if (set === "literal") return { method: "GET", path: `/api/group${i % 37}/thing${i}/list` };
    if (set === "placeholder") return { method: "GET", path: `/api/group${i % 37}/thing${i}/{id}` };
    const base = `/service${Math.trunc(i / 5) % 23}/resource${Math.trunc(i / 5)}`;
    return { method: METHODS[i % 5]!, path: base + BELOW[i % 5]! };
  });
}

const METHODS = ["GET", "POST", "GET", "DELETE", "GET"];
const BELOW = ["", "", "/{id}", "/{id}", "/{id}/parts/{part}"];

/** Random paths that match routes. */
export function hits(routes: readonly RouteOf[], count: number): Asked[] {
  const dice = random(7);
  return Array.from({ length: count }, () => {
    const { method, path } = dice.pick(routes);
    return { method, path: path.replace(/\{\w+\}/g, () => String(dice.int(1, 999_999))) };
  });
}

/** Paths that match no route: unknown in the first segment, or the last, or one segment too long. */
export function misses(routes: readonly RouteOf[], count: number): Asked[] {
  const dice = random(8);
  return hits(routes, count).map(({ method, path }) => ({ method, path: strange(path, dice) }));
}

function strange(path: string, dice: Random): string {
  const kind = dice.int(0, 2);
  if (kind === 0) return `/nowhere${path}`;
  // As many segments as before in sets whose last one is literal; one too many in the others.
  if (kind === 1) return `${path.slice(0, path.lastIndexOf("/"))}/strange/${dice.int(1, 999)}/x`;
  return `${path}/x/y/z`;
}
