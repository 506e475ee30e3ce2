/**
 * Compares what two configurations do with requests: routes that are added, removed and changed, and requests that pass fewer guards.
 */
import { paced, type NextTimeSlice } from "../base/time_slices.ts";
import type { Json } from "../config/json.ts";
import { namesOf, placesOf } from "../route/conditions.ts";
import { placedChanges, type PlacedChange } from "./config_diff.ts";
import type { DisplayedConfig, DisplayedRoute, DisplayedService } from "../gateway/displayed_config.ts";
import { guardsLost, type Compared, type GuardsLost, type RoutePlace } from "./guards_lost.ts";

export interface RouteDiff {
  readonly guardsLost: readonly GuardsLost[];
  readonly added: readonly RoutePlace[];
  readonly removed: readonly RoutePlace[];
  /** Also by changes of the service and of global plugins. `changes` has one phrase each: "plugin jwt removed", "service plugin cors added". */
  readonly changed: readonly (RoutePlace & { readonly changes: readonly string[] })[];
  /** Changes that belong to no route: "global altered (limits.max_uri_bytes)". */
  readonly other: readonly string[];
}

/** From `before` to `after`. Empty exactly when both are the same, except for `guardsLost`, which also compares the content of files. */
export async function routeDiff(before: Compared, after: Compared, slice: NextTimeSlice = paced()): Promise<RouteDiff> {
  return { guardsLost: await guardsLost(before, after, slice), ...(await changesOfRoutes(before.shown, after.shown, slice)) };
}

/** In the spelling of JSON. */
export function routeDiffView({ guardsLost: lost, added, removed, changed, other }: RouteDiff) {
  return { guards_lost: lost, added, removed, changed, other };
}

async function changesOfRoutes(before: Json, after: Json, slice: NextTimeSlice): Promise<Omit<RouteDiff, "guardsLost">> {
  const sides: Sides = [servicesIn(before), servicesIn(after)];
  const list = { added: [] as RoutePlace[], removed: [] as RoutePlace[] };
  const changed = new Map<string, RoutePlace & { readonly changes: string[] }>();
  const other: string[] = [];
  const note = (change: PlacedChange) => {
    const { kind, service, route } = change;
    if (kind === "route" && change.change !== "altered") list[change.change].push({ service: service!, route: route! });
    // The routes of an added or removed service are listed one by one.
    if (isInWhole(change, sides)) return;
    const places = concerned(change, sides);
    if (places.length === 0) other.push(`${change.name} ${outcomeOf(change)}`);
    const phrases = places.length === 0 ? [] : phrasesOf(change, sides);
    for (const place of places) {
      const key = JSON.stringify([place.service, place.route]);
      if (!changed.has(key)) changed.set(key, { ...place, changes: [] });
      changed.get(key)!.changes.push(...phrases);
    }
  };
  for (const changes of placedChanges(before, after)) {
    changes.flatMap(withoutRouteOrder).forEach(note);
    await slice();
  }
  return { ...list, changed: [...changed.values()], other };
}

/** The order of routes decides only where a request has several values of one header, so it is no change of the routes of a service. */
function withoutRouteOrder(change: PlacedChange): PlacedChange[] {
  const [order, fields] = [[ORDER_OF_ROUTES], change.fields.filter((field) => field !== ORDER_OF_ROUTES)];
  if (fields.length === change.fields.length) return [change];
  return [{ ...change, fields: order }, ...(fields.length === 0 ? [] : [{ ...change, fields }])];
}

const ORDER_OF_ROUTES = "order of routes";

/** The services of the old and of the new configuration, by name. */
type Sides = readonly [ReadonlyMap<string, Side>, ReadonlyMap<string, Side>];

interface Side {
  readonly service: DisplayedService;
  readonly routes: ReadonlyMap<string, DisplayedRoute>;
}

function servicesIn(shown: Json): ReadonlyMap<string, Side> {
  const { services } = shown as unknown as DisplayedConfig;
  return new Map(services.map((service) => [service.name, { service, routes: new Map(service.routes.map((route) => [route.name, route])) }]));
}

/** Whether a part of it, or the whole service or route around it, is listed as added or removed already. */
function isInWhole({ kind, service, route }: PlacedChange, [old, next]: Sides): boolean {
  if (service === null) return false;
  const [was, is] = [old.get(service), next.get(service)];
  if (was === undefined || is === undefined) return kind !== "service" || (was ?? is)!.routes.size > 0;
  return route !== null && was.routes.has(route) !== is.routes.has(route);
}

/** The routes of both configurations whose requests a change concerns. */
function concerned({ kind, service, route, fields }: PlacedChange, [old, next]: Sides): RoutePlace[] {
  if (kind === "global" || fields[0] === ORDER_OF_ROUTES) return [];
  const services = service === null ? [...next.keys()] : [service];
  return services.flatMap((name) => {
    const [was, is] = [old.get(name)?.routes, next.get(name)?.routes];
    if (was === undefined || is === undefined) return [];
    return (route === null ? [...is.keys()] : [route]).flatMap((each) => (was.has(each) ? { service: name, route: each } : []));
  });
}

/** "removed", "altered (weight)" */
function outcomeOf({ change, fields }: PlacedChange): string {
  return fields.length === 0 ? change : `${change} (${fields.join(", ")})`;
}

/** What a change means for a route that it concerns. */
function phrasesOf(change: PlacedChange, sides: Sides): string[] {
  const { kind, label, service, route, fields } = change;
  const level = route !== null ? "" : service !== null ? "service " : "global ";
  if (kind === "plugin") return [`${level}${label} ${outcomeOf(change)}`];
  if (kind === "upstream") return [`${label} ${outcomeOf(change)}`];
  return fields.map((field) => {
    const [was, is] = sides.map((side) => addressField(side.get(service!)!, route, field));
    return was === undefined || was === is ? `${level}${field} altered` : `${field} ${was} is now ${is}`;
  });
}

/** The value of a field that says which requests a route gets; undefined for all others, which may hold secrets. */
function addressField({ service, routes }: Side, route: string | null, field: string): string | undefined {
  const list = (values: readonly string[] = []) => (values.length === 0 ? "(all)" : values.join(", "));
  if (route === null) return field === "base_path" ? service.base_path : field === "hosts" ? list(service.hosts) : undefined;
  const { path, methods, match } = routes.get(route)!;
  const [, place] = /^match\.(headers|query|cookies)$/.exec(field) ?? [];
  if (place !== undefined) return Object.keys(match?.[place as keyof typeof match] ?? {}).join(", ") || "(none)";
  if (field === "match") return match === undefined ? "(none)" : namesOf(placesOf(match));
  return field === "path" ? path : field === "methods" ? list(methods) : undefined;
}
