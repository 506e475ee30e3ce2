/**
 * Lists the differences of two configurations part by part. Gives names and no values, which may be secrets.
 */
import { isDeepStrictEqual } from "node:util";
import type { Json } from "../config/json.ts";

export interface Change {
  readonly kind: "global" | "service" | "route" | "upstream" | "plugin";
  /** The path to the part: `service "shop" / route "items" / plugin rate_limit`; `global` for the settings of the whole gateway. */
  readonly name: string;
  readonly change: "added" | "removed" | "altered";
  /** What is another in an altered part: names of fields, down to "timeouts.connect_ms", and "order of plugins". Else empty. */
  readonly fields: readonly string[];
}

/** A change, with the place to which it belongs. */
export interface PlacedChange extends Change, Place {
  /** The part before and after, with all parts in it; null where there is none. */
  readonly before: ShownPart | null;
  readonly after: ShownPart | null;
  /** Whether the part around it is added or removed as a whole. */
  readonly isInner: boolean;
}

interface Place extends Pick<Change, "kind" | "name"> {
  /** The part's own name: `plugin rate_limit`; `name` without the parts around it. */
  readonly label: string;
  /** Null: a part of the whole gateway. */
  readonly service: string | null;
  /** Null: a part of the whole service or gateway. */
  readonly route: string | null;
}

/**
 * From `before` to `after`, both as `shownConfig` gives them; empty exactly when they are the same. An added or removed part is listed
 * with all parts in it. An altered part does not alter the parts around it; another order in a list alters the part that has the list.
 */
export function changesBetween(before: Json, after: Json): Change[] {
  return [...placedChanges(before, after)].flat().map(({ kind, name, change, fields }) => ({ kind, name, change, fields }));
}

/** "altered  service "orders" (split, timeouts.connect_ms)" */
export function changeLine({ change, name, fields }: Pick<Change, "name" | "fields"> & { readonly change: string }): string {
  const more = fields.length - MAX_FIELDS;
  const shown = [...fields.slice(0, MAX_FIELDS), ...(more > 0 ? [`${more} more`] : [])];
  return `${change.padEnd(8)} ${name}${shown.length === 0 ? "" : ` (${shown.join(", ")})`}`;
}

const MAX_FIELDS = 10;

/** The same with places, in steps: first what is no service, then service by service. */
export function* placedChanges(before: Json, after: Json): Iterable<readonly PlacedChange[]> {
  const [old, next] = [servicesOf(before), servicesOf(after)];
  yield changesOf(ROOT, rootOf(before), rootOf(after), { orders: isReordered([...old.keys()], [...next.keys()]) ? ["order of services"] : [] });
  for (const name of new Set([...next.keys(), ...old.keys()])) {
    const label = `service ${quoted(name)}`;
    yield changesOf({ kind: "service", name: label, label, service: name, route: null }, old.get(name) ?? null, next.get(name) ?? null);
  }
}

/** A part as it is displayed. */
export type ShownPart = { readonly [key: string]: Json };

const ROOT: Place = { kind: "global", name: "global", label: "global", service: null, route: null };

function rootOf(shown: Json): ShownPart {
  const { global, services: _, ...rest } = shown as ShownPart;
  return { ...(global as ShownPart), ...rest };
}

function servicesOf(shown: Json): ReadonlyMap<string, ShownPart> {
  return new Map(listOf((shown as ShownPart).services).map((service) => [String(service.name), service]));
}

/** The change of a part, null where there is none, and those of the parts in it. */
function changesOf(place: Place, before: ShownPart | null, after: ShownPart | null, { orders = [], isInner = false }: { orders?: readonly string[]; isInner?: boolean } = {}): PlacedChange[] {
  const change = before === null ? "added" : after === null ? "removed" : "altered";
  const [old, next] = [partsOf(place, before), partsOf(place, after)];
  const fields = before === null || after === null ? [] : [...differingFields(before, after), ...LISTS.flatMap((list) => orderOf(list, old, next)), ...orders];
  const own: PlacedChange[] = change === "altered" && fields.length === 0 ? [] : [{ ...place, change, fields, before, after, isInner }];
  const inner = [...new Map([...next, ...old]).keys()].flatMap((name) => {
    const [was, is] = [old.get(name), next.get(name)];
    return changesOf((is ?? was)!.place, was?.fields ?? null, is?.fields ?? null, { isInner: change !== "altered" });
  });
  return [...own, ...inner];
}

/** ShownPart whose values differ; where both values are objects, the fields in them. */
function differingFields(before: ShownPart, after: ShownPart): string[] {
  const names = Object.keys({ ...before, ...after }).filter((name) => !isList(name) && !isDeepStrictEqual(before[name], after[name]));
  return names.flatMap((name) => {
    const [was, is] = [before[name], after[name]];
    if (!isObject(was) || !isObject(is)) return [name];
    return Object.keys({ ...was, ...is }).flatMap((inner) => (isDeepStrictEqual(was[inner], is[inner]) ? [] : [`${name}.${inner}`]));
  });
}

function isObject(value: Json | undefined): value is ShownPart {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The fields with inner parts. */
const LISTS = ["upstreams", "plugins", "routes"] as const;

function isList(field: string): boolean {
  return (LISTS as readonly string[]).includes(field);
}

/** A part by its name, which is unique. */
type Parts = ReadonlyMap<string, { readonly place: Place; readonly fields: ShownPart }>;

function partsOf(place: Place, part: ShownPart | null): Parts {
  const { upstreams, plugins, routes } = part ?? {};
  const parts = new Map<string, { readonly place: Place; readonly fields: ShownPart }>();
  const add = (fields: ShownPart, kind: Change["kind"], label: string, route = place.route) => {
    const name = `${place.name} / ${label}`;
    parts.set(name, { place: { kind, name, label, service: place.service, route }, fields });
  };
  for (const upstream of listOf(upstreams)) add(upstream, "upstream", `upstream ${quoted(upstream.id)}`);
  const labels = pluginLabels(listOf(plugins));
  listOf(plugins).forEach((plugin, i) => add(plugin, "plugin", labels[i]!));
  for (const route of listOf(routes)) add(route, "route", `route ${quoted(route.name)}`, String(route.name));
  return parts;
}

/** "order of routes", if those that both have follow each other in another order. */
function orderOf(list: (typeof LISTS)[number], before: Parts, after: Parts): string[] {
  const names = (parts: Parts) => [...parts].flatMap(([name, { place }]) => (`${place.kind}s` === list ? [name] : []));
  return isReordered(names(before), names(after)) ? [`order of ${list}`] : [];
}

function isReordered(before: readonly string[], after: readonly string[]): boolean {
  const [old, next] = [new Set(before), new Set(after)];
  return !isDeepStrictEqual(before.filter((name) => next.has(name)), after.filter((name) => old.has(name)));
}

/** Named as rate counters are: by kind and `id`, without an `id` by its place among its kind in the list. */
function pluginLabels(plugins: readonly ShownPart[]): string[] {
  const seen = new Map<string, number>();
  return plugins.map(({ name, id }) => {
    const kind = String(name);
    const nth = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, nth);
    return `plugin ${kind}${id !== undefined ? ` ${quoted(id)}` : nth > 1 ? ` #${nth}` : ""}`;
  });
}

function listOf(value: Json | undefined): readonly ShownPart[] {
  return (value ?? []) as readonly ShownPart[];
}

/** Quoted as in JSON, so that no name can look like the path to another part. */
function quoted(name: Json | undefined): string {
  return JSON.stringify(name ?? null);
}
