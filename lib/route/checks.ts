/**
 * Checks the routes of a configuration: reports broken patterns, and routes that match the same requests.
 */
import {
  declarations,
  ROUTES_OF_A_STEP,
  type RouteDeclaration,
  type RouteIssue,
  type RoutesRead,
} from "../config/declarations.ts";
import { itemsOf, nodeAt, type JsonNode } from "../config/json.ts";
import type { Service } from "../config/model.ts";
import type { FeatureFields } from "../config/feature_fields.ts";
import type { Sources } from "../config/schema_core.ts";
import type { Matching, PlacedCondition } from "./contracts.ts";
import { HostTrees } from "./tree.ts";
import { parsePattern, type Segment } from "./pattern.ts";

export interface RoutesToRead {
  readonly root: JsonNode;
  readonly sources: Sources;
  readonly fields: readonly FeatureFields[];
  /** Null where no route has conditions. */
  readonly matching: Matching | null;
  /** Valid services that are as they were: no routes of theirs are in conflict with each other. */
  readonly kept: ReadonlyMap<JsonNode, Service>;
}

/** See `LoadOptions.readRoutes`. Routes are left out that can be in no conflict. */
export function* readRoutes({ root, sources, fields, matching, kept }: RoutesToRead): Generator<void, RoutesRead> {
  const all = kept.size === 0 ? [] : itemsOf(nodeAt(root, ["services"]));
  const changed = all.filter((service) => !kept.has(service));
  const written = changed.map((service) => nodeAt(service, ["base_path"]));
  const bases = new Set(written.flatMap((node) => (node?.kind === "string" ? patternOf(node.value) : [])));
  const known = Array.from(kept).flatMap(([node, { basePath }]) => (bases.has(patternOf(basePath)) ? [] : node));
  const declared = yield* declarations(root, sources, fields, new Set(known));
  return { declared, issues: yield* checkRoutes(declared, matching) };
}

/** Equal for base_paths that match the same, whatever their placeholders are called. */
function patternOf(basePath: string): string {
  return JSON.stringify(parsePattern(basePath, "base_path"), ["segments", "kind", "text"]);
}

/**
 * Every broken pattern, and every route that matches the same method and pattern as an earlier one: in the same
 * service, or in two services with the same base_path that share a host or both have none. Below different base_paths
 * the longer one wins, and with more conditions than another a route is asked before it: no errors. With as many, two
 * routes conflict if a request can fulfil both. `matching` is null where no route has conditions.
 */
export function* checkRoutes(
  declarations: readonly RouteDeclaration[],
  matching: Matching | null,
): Generator<void, RouteIssue[]> {
  const issues: RouteIssue[] = [];
  const bases = new Map<RouteDeclaration["service"], readonly Segment[] | null>();
  const trees = new HostTrees<Declared>();
  let count = 0;
  for (const declaration of declarations) {
    if (count++ % ROUTES_OF_A_STEP === 0) yield;
    const { service, route } = declaration;
    if (!bases.has(service)) bases.set(service, checkBase(service, issues));
    const base = bases.get(service)!;
    const parsed = parsePattern(route.path, "path", base ?? []);
    if ("error" in parsed) issues.push({ at: [...route.at, "path"], message: parsed.error });
    else if (base !== null) {
      const lists = trees.routesAt(service.hosts, base.concat(parsed.segments));
      const declared = {
        declaration,
        baseLength: base.length,
        conditions: route.match === undefined ? NONE : matching!.placedConditions(route.match),
      };
      let earlier: RouteDeclaration | undefined;
      for (const list of lists) {
        const rivals = rivalsIn(list, declared, matching);
        earlier ??= firstConflict(rivals, route);
        if (declared.conditions.length > 0 || !covers(rivals, route)) list.push(declared);
      }
      if (earlier === undefined) continue;
      const at = [...route.at, route.match === undefined ? "path" : "match"];
      issues.push({ at, message: conflict(declaration, earlier) });
    }
  }
  return issues;
}

const NONE: readonly PlacedCondition[] = [];

interface Declared {
  readonly declaration: RouteDeclaration;
  /** In segments. If two patterns are equal, base_paths of equal length are equal too. */
  readonly baseLength: number;
  readonly conditions: readonly PlacedCondition[];
}

/** Null where the base_path cannot be read: the routes below it match nothing. */
function checkBase({ basePath, at }: RouteDeclaration["service"], issues: RouteIssue[]): readonly Segment[] | null {
  if (basePath === null) return null;
  const parsed = parsePattern(basePath, "base_path");
  if (!("error" in parsed)) return parsed.segments;
  issues.push({ at: [...at, "base_path"], message: parsed.error });
  return null;
}

/** The earlier routes at which a request can be meant for the later one, too. */
function rivalsIn(
  list: readonly Declared[],
  { baseLength, conditions }: Declared,
  matching: Matching | null,
): readonly RouteDeclaration[] {
  if (list.length === 0) return [];
  const canMeet = (others: readonly PlacedCondition[]) =>
    others.length === conditions.length && (others.length === 0 || matching!.canMeet(others, conditions));
  const isRival = (each: Declared) => each.baseLength === baseLength && canMeet(each.conditions);
  return list.filter(isRival).map(({ declaration }) => declaration);
}

type Route = RouteDeclaration["route"];

/** The first that accepts the method; "": all methods. */
function taker(rivals: readonly RouteDeclaration[], method: string): RouteDeclaration | undefined {
  return rivals.find(({ route: { methods } }) => (method === "" ? methods.length === 0 : methods.includes(method)));
}

/** The rival that accepts a method of the later route, whose methods are checked in their order. */
function firstConflict(rivals: readonly RouteDeclaration[], { methods }: Route): RouteDeclaration | undefined {
  const first = taker(rivals, "");
  if (first !== undefined || methods.length === 0) return first ?? rivals[0];
  return methods.map((method) => taker(rivals, method)).find((found) => found !== undefined);
}

/** Whether every route that conflicts with this one conflicts with an earlier one: thousands of them are not kept. */
function covers(rivals: readonly RouteDeclaration[], { methods }: Route): boolean {
  if (rivals.length === 0) return false;
  return !!taker(rivals, "") || (methods.length > 0 && methods.every((method) => taker(rivals, method)));
}

function conflict(later: RouteDeclaration, earlier: RouteDeclaration): string {
  const shared = later.route.methods.filter(
    (method) => earlier.route.methods.length === 0 || earlier.route.methods.includes(method),
  );
  const methods = shared.length > 0 ? shared : earlier.route.methods;
  const where = (of: RouteDeclaration) => `route "${of.route.name}" of service "${of.service.name}"`;
  const isMatched = later.route.match !== undefined;
  return (
    `${where(later)} and ${where(earlier)} both match ` +
    `${methods.length === 0 ? "all methods" : [...new Set(methods)].join(", ")}` +
    ` of "${later.route.path}" below "${later.service.basePath}"` +
    (isMatched
      ? ", with the same number of conditions, and one request can fulfil all of them: " +
        "add a condition to the route that is to come first, or give the two different values of one name"
      : ": give them different paths, methods or hosts")
  );
}
