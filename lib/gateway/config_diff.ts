/**
 * Lists the differences of two configurations resource by resource. Gives names and no values, which may be secrets.
 */
import { atOnce } from "../base/time_slices.ts";
import type { Json } from "../config/json.ts";

export interface Change {
  readonly kind: "global" | "service" | "route" | "upstream" | "plugin";
  /**
   * The path to the resource: `service "shop" / route "items" / plugin rate_limit`; `global` for the settings of the
   * whole gateway.
   */
  readonly name: string;
  readonly change: "added" | "removed" | "altered";
  /**
   * What is another in an altered resource: names of fields, down to "timeouts.connect_ms", and "order of plugins".
   * Else empty.
   */
  readonly fields: readonly string[];
}

/** A change, with the place to which it belongs. */
export interface PlacedChange extends Change, ResourceName {
  /** The resource before and after, with all resources in it; null where there is none. */
  readonly before: ShownResource | null;
  readonly after: ShownResource | null;
  /** Whether the resource around it is added or removed as a whole. */
  readonly isInner: boolean;
}

interface ResourceName extends Pick<Change, "kind" | "name"> {
  /** The resource's own name: `plugin rate_limit`; `name` without the resources around it. */
  readonly label: string;
  /** Null: it is of the whole gateway. */
  readonly service: string | null;
  /** Null: it is of the whole service or gateway. */
  readonly route: string | null;
}

/**
 * From `before` to `after`, both as `shownConfig` gives them; empty exactly when they are the same. An added or removed
 * resource is listed with all resources in it. An altered resource does not alter the resources around it; another
 * order in a list alters the resource that has the list.
 */
export function changesBetween(before: Json, after: Json): Change[] {
  return atOnce(changeSteps(before, after));
}

/** The same in steps, for `inSlices`. */
export function* changeSteps(before: Json, after: Json): Generator<void, Change[]> {
  const changes: Change[] = [];
  for (const some of placedChanges(before, after)) {
    for (const { kind, name, change, fields } of some) changes.push({ kind, name, change, fields });
    yield;
  }
  return changes;
}

/** "altered  service "orders" (split, timeouts.connect_ms)" */
export function changeLine({
  change,
  name,
  fields,
}: Pick<Change, "name" | "fields"> & { readonly change: string }): string {
  const more = fields.length - MAX_FIELDS;
  const shown = [...fields.slice(0, MAX_FIELDS), ...(more > 0 ? [`${more} more`] : [])];
  return `${change.padEnd(8)} ${name}${shown.length === 0 ? "" : ` (${shown.join(", ")})`}`;
}

const MAX_FIELDS = 10;

/** The same with places, a step for each resource, so that others can run in between. */
export function placedChanges(before: Json, after: Json): Iterable<readonly PlacedChange[]> {
  return changesOf(rootOf(before), rootOf(after));
}

/** A resource as it is displayed. */
export type ShownResource = { readonly [key: string]: Json };

interface Resource {
  readonly place: ResourceName;
  /** With the resources in it. */
  readonly fields: ShownResource;
}

function rootOf(shown: Json): Resource {
  const { global, ...rest } = shown as ShownResource;
  return {
    place: { kind: "global", name: "global", label: "global", service: null, route: null },
    fields: { ...(global as ShownResource), ...rest },
  };
}

/** The change of a resource, if there is one, and those of the resources in it. */
function* changesOf(
  before: Resource | null,
  after: Resource | null,
  isInner = false,
): Iterable<readonly PlacedChange[]> {
  // A service that has not changed is one object in both. The whole is compared resource by resource, in steps.
  if (before?.fields === after?.fields) return;
  if (before !== null && before.place.service !== null && isSame(before.fields, after?.fields)) return;
  const [old, next] = [resourcesOf(before), resourcesOf(after)];
  const change = before === null ? "added" : after === null ? "removed" : "altered";
  const fields =
    before === null || after === null ? [] : [...differingFields(before.fields, after.fields), ...ordersOf(old, next)];
  if (change !== "altered" || fields.length > 0)
    yield [
      {
        ...(after ?? before)!.place,
        change,
        fields,
        before: before?.fields ?? null,
        after: after?.fields ?? null,
        isInner,
      },
    ];
  else yield [];
  for (const [name, resource] of next) yield* changesOf(old.get(name) ?? null, resource, change !== "altered");
  for (const [name, resource] of old) if (!next.has(name)) yield* changesOf(resource, null, change !== "altered");
}

/** Fields whose values differ; where both values are objects, the fields in them. */
function differingFields(before: ShownResource, after: ShownResource): string[] {
  const names = Object.keys({ ...before, ...after }).filter(
    (name) => !LISTS.includes(name) && !isSame(before[name], after[name]),
  );
  return names.flatMap((name) => {
    const [was, is] = [before[name], after[name]];
    if (!isObject(was) || !isObject(is)) return [name];
    return Object.keys({ ...was, ...is }).flatMap((inner) =>
      isSame(was[inner], is[inner]) ? [] : [`${name}.${inner}`],
    );
  });
}

/** Whatever the order of the keys is. */
function isSame(a: Json | undefined, b: Json | undefined): boolean {
  const isSimple = typeof a !== "object" || typeof b !== "object" || a === null || b === null || a === b;
  if (isSimple || Array.isArray(a) !== Array.isArray(b)) return Object.is(a, b);
  const [some, others] = [a as ShownResource, b as ShownResource];
  const keys = Object.keys(some);
  return keys.length === Object.keys(others).length && keys.every((key) => isSame(some[key], others[key]));
}

function isObject(value: Json | undefined): value is ShownResource {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The fields with lists of resources. */
const LISTS: readonly string[] = ["upstreams", "plugins", "routes", "services"];

/** By their names, which are unique. */
function resourcesOf(resource: Resource | null): ReadonlyMap<string, Resource> {
  const resources = new Map<string, Resource>();
  if (resource === null) return resources;
  const {
    place,
    fields: { upstreams, plugins, routes, services },
  } = resource;
  const add = (fields: ShownResource, kind: Change["kind"], label: string, own: Partial<ResourceName> = {}) => {
    const name = kind === "service" ? label : `${place.name} / ${label}`;
    resources.set(name, { place: { ...place, kind, name, label, ...own }, fields });
  };
  for (const upstream of listOf(upstreams)) add(upstream, "upstream", `upstream ${quoted(upstream.id)}`);
  const labels = pluginLabels(listOf(plugins));
  listOf(plugins).forEach((plugin, i) => add(plugin, "plugin", labels[i]!));
  for (const route of listOf(routes)) add(route, "route", `route ${quoted(route.name)}`, { route: String(route.name) });
  for (const service of listOf(services))
    add(service, "service", `service ${quoted(service.name)}`, { service: String(service.name) });
  return resources;
}

type Resources = ReadonlyMap<string, Resource>;

/** Mostly all of them are the same, in one order: then nothing is made of them. */
function ordersOf(before: Resources, after: Resources): string[] {
  const names = before.keys();
  let isSameOrder = before.size === after.size;
  for (const name of after.keys()) isSameOrder &&= name === names.next().value;
  return isSameOrder ? [] : LISTS.flatMap((list) => orderOf(list, before, after));
}

/** "order of routes", if those that both have follow each other in another order. */
function orderOf(list: string, before: Resources, after: Resources): string[] {
  const shared = (resources: Resources, others: Resources) =>
    [...resources].flatMap(([name, { place }]) => (`${place.kind}s` === list && others.has(name) ? [name] : []));
  return isSame(shared(before, after), shared(after, before)) ? [] : [`order of ${list}`];
}

/** Named as rate counters are: by kind and `id`, without an `id` by its place among its kind in the list. */
function pluginLabels(plugins: readonly ShownResource[]): string[] {
  const seen = new Map<string, number>();
  return plugins.map(({ name, id }) => {
    const kind = String(name);
    const nth = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, nth);
    return `plugin ${kind}${id !== undefined ? ` ${quoted(id)}` : nth > 1 ? ` #${nth}` : ""}`;
  });
}

function listOf(value: Json | undefined): readonly ShownResource[] {
  return (value ?? []) as readonly ShownResource[];
}

/** Quoted as in JSON, so that no name can look like the path to another resource. */
function quoted(name: Json | undefined): string {
  return JSON.stringify(name ?? null);
}
