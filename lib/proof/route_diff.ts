/**
 * Compares what two configurations do with requests: routes that are added, removed and changed, and requests that pass
 * fewer guards.
 */
import { paced, type NextTimeSlice } from "../base/time_slices.ts";
import type { Json } from "../config/json.ts";
import type { Conditions } from "../http/condition_types.ts";
import { schemeOf } from "../http/conditions.ts";
import { namesOf, placesOf } from "../route/conditions.ts";
import { placedChanges, type PlacedChange, type ShownResource } from "../gateway/config_diff.ts";
import type { DisplayedConfig } from "../gateway/displayed_config.ts";
import { guardsLost, type ComparedConfig, type GuardsLost, type RoutePlace } from "./guards_lost.ts";

export interface RouteDiff {
  readonly guardsLost: readonly GuardsLost[];
  readonly added: readonly RoutePlace[];
  readonly removed: readonly RoutePlace[];
  /**
   * Also by changes of the service and of global plugins. `changes` has one phrase each: "plugin jwt removed", "service
   * plugin cors added".
   */
  readonly changed: readonly (RoutePlace & { readonly changes: readonly string[] })[];
  /** Changes that belong to no route: "global altered (limits.max_uri_bytes)". */
  readonly other: readonly string[];
}

/**
 * From `before` to `after`. Empty exactly when both are the same, except for `guardsLost`, which also compares the
 * content of files.
 */
export async function routeDiff(
  before: ComparedConfig,
  after: ComparedConfig,
  slice: NextTimeSlice = paced(),
): Promise<RouteDiff> {
  const { found, isComplete } = await guardsLost(before, after, slice);
  const { other, ...changes } = await changesOfRoutes(before.shown, after.shown, slice);
  return { guardsLost: found, ...changes, other: isComplete ? other : [...other, INCOMPLETE] };
}

const INCOMPLETE = "more routes share paths than could be compared: guards may be lost that are not listed";

async function changesOfRoutes(
  before: Json,
  after: Json,
  slice: NextTimeSlice,
): Promise<Omit<RouteDiff, "guardsLost">> {
  const list = { added: [] as RoutePlace[], removed: [] as RoutePlace[] };
  const changed = new Map<string, RoutePlace & { readonly changes: string[] }>();
  const other: string[] = [];
  const shared = sharedRoutes(before, after);
  for (const changes of placedChanges(before, after)) {
    for (const change of changes.flatMap(withoutRouteOrder)) {
      const { kind, service, route } = change;
      if (kind === "route" && change.change !== "altered")
        list[change.change].push({ service: service!, route: route! });
      if (change.isInner || isListed(change)) continue;
      const places = concerned(change, shared);
      if (places.length === 0) other.push(`${change.name} ${outcomeOf(change)}`);
      for (const place of places) {
        const key = JSON.stringify([place.service, place.route]);
        if (!changed.has(key)) changed.set(key, { ...place, changes: [] });
        changed.get(key)!.changes.push(...phrasesOf(change));
      }
    }
    await slice();
  }
  return { ...list, changed: [...changed.values()], other };
}

/** Whether it is an added or removed route, or service, whose routes are listed one by one. */
function isListed({ kind, change, before, after }: PlacedChange): boolean {
  return (
    change !== "altered" &&
    (kind === "route" || (kind === "service" && ((before ?? after)!["routes"] as readonly Json[]).length > 0))
  );
}

/**
 * The order of routes decides only where a request has several values of one header, so it is no change of the routes
 * of a service.
 */
function withoutRouteOrder(change: PlacedChange): PlacedChange[] {
  const [order, fields] = [[ORDER_OF_ROUTES], change.fields.filter((field) => field !== ORDER_OF_ROUTES)];
  if (fields.length === change.fields.length) return [change];
  return [{ ...change, fields: order }, ...(fields.length === 0 ? [] : [{ ...change, fields }])];
}

const ORDER_OF_ROUTES = "order of routes";

/** The routes that both configurations have, by service. */
function sharedRoutes(before: Json, after: Json): ReadonlyMap<string, readonly RoutePlace[]> {
  const [old, next] = [before, after].map((shown) => (shown as unknown as DisplayedConfig).services);
  const known = new Map(old!.map(({ name, routes }) => [name, new Set(routes.map((route) => route.name))]));
  return new Map(
    next!.map(({ name: service, routes }) => [
      service,
      routes.flatMap(({ name: route }) => (known.get(service)?.has(route) ? { service, route } : [])),
    ]),
  );
}

/** The routes of both configurations whose requests a change concerns. */
function concerned(
  { kind, service, route, fields }: PlacedChange,
  shared: ReadonlyMap<string, readonly RoutePlace[]>,
): readonly RoutePlace[] {
  if (kind === "global" || fields[0] === ORDER_OF_ROUTES) return [];
  if (service === null) return [...shared.values()].flat();
  return route === null ? (shared.get(service) ?? []) : [{ service, route }];
}

/** "removed", "altered (weight)" */
function outcomeOf({ change, fields }: PlacedChange): string {
  return fields.length === 0 ? change : `${change} (${fields.join(", ")})`;
}

/** What a change means for a route that it concerns. */
function phrasesOf(change: PlacedChange): string[] {
  const { kind, label, service, route, fields, before, after } = change;
  const level = route !== null ? "" : service !== null ? "service " : "global ";
  if (kind === "plugin") return [`${level}${label} ${outcomeOf(change)}`];
  if (kind === "upstream") return [`${label} ${outcomeOf(change)}`];
  return fields.map((field) => {
    const [was, is] = [addressField(before!, field), addressField(after!, field)];
    return was === undefined || was === is ? `${level}${field} altered` : `${field} ${was} is now ${is}`;
  });
}

/** The value of a field that says which requests a route gets; undefined for all others, which may hold secrets. */
function addressField(resource: ShownResource, field: string): string | undefined {
  const [name, place] = field.split(".") as [string, keyof Conditions | undefined];
  const value = resource[name];
  if (name === "match") {
    const match = (value ?? {}) as Parameters<typeof placesOf>[0];
    if (place === "scheme") return match.scheme === undefined ? "(none)" : schemeOf(match.scheme);
    return (place === undefined ? namesOf(placesOf(match)) : Object.keys(match[place] ?? {}).join(", ")) || "(none)";
  }
  if (name === "hosts" || name === "methods") return ((value ?? []) as readonly string[]).join(", ") || "(all)";
  return name === "base_path" || name === "path" ? String(value) : undefined;
}
