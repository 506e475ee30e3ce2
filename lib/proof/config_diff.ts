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
export interface PlacedChange extends Change {
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
  const more = fields.length - MOST_FIELDS;
  const shown = [...fields.slice(0, MOST_FIELDS), ...(more > 0 ? [`${more} more`] : [])];
  return `${change.padEnd(8)} ${name}${shown.length === 0 ? "" : ` (${shown.join(", ")})`}`;
}

const MOST_FIELDS = 10;

/** The same with places, in steps: first what is no service, then service by service. */
export function* placedChanges(before: Json, after: Json): Iterable<readonly PlacedChange[]> {
  const [old, next] = [servicesOf(before), servicesOf(after)];
  yield compare(rootPart(before), rootPart(after), isReordered(old, next) ? ["order of services"] : []);
  for (const [name, service] of next) {
    const was = old.get(name);
    yield was === undefined ? whole(servicePart(service), "added") : compare(servicePart(was), servicePart(service));
  }
  for (const [name, service] of old) if (!next.has(name)) yield whole(servicePart(service), "removed");
}

type Place = Omit<PlacedChange, "change" | "fields">;

/** A named piece of the configuration. */
interface Part {
  readonly place: Place;
  /** Its content without its inner parts. */
  readonly own: Fields;
  /** By name, which is unique. */
  readonly parts: ReadonlyMap<string, Part>;
}

function compare(before: Part, after: Part, orders: readonly string[] = []): PlacedChange[] {
  const moved = INNER.filter((kind) => isReordered(partsOf(before, kind), partsOf(after, kind)));
  const fields = [...differingFields(before.own, after.own), ...moved.map((kind) => `order of ${kind}s`), ...orders];
  const inside = [...after.parts].flatMap(([name, part]) => {
    const old = before.parts.get(name);
    return old === undefined ? whole(part, "added") : compare(old, part);
  });
  const removed = [...before.parts].filter(([name]) => !after.parts.has(name)).flatMap(([, part]) => whole(part, "removed"));
  return [...(fields.length === 0 ? [] : [{ ...after.place, change: "altered" as const, fields }]), ...inside, ...removed];
}

/** Fields whose values differ; where both values are objects, the fields in them. */
function differingFields(before: Fields, after: Fields): string[] {
  const names = Object.keys({ ...before, ...after }).filter((name) => !isDeepStrictEqual(before[name], after[name]));
  return names.flatMap((name) => {
    const [was, is] = [before[name], after[name]];
    if (!isObject(was) || !isObject(is)) return [name];
    return Object.keys({ ...was, ...is }).flatMap((inner) => (isDeepStrictEqual(was[inner], is[inner]) ? [] : [`${name}.${inner}`]));
  });
}

function isObject(value: Json | undefined): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const INNER = ["upstream", "plugin", "route"] as const;

function partsOf({ parts }: Part, kind: Change["kind"]): ReadonlyMap<string, Part> {
  return new Map([...parts].filter(([, { place }]) => place.kind === kind));
}

/** Whether the names that both have follow each other in another order. */
function isReordered(before: ReadonlyMap<string, unknown>, after: ReadonlyMap<string, unknown>): boolean {
  const shared = (names: ReadonlyMap<string, unknown>, others: ReadonlyMap<string, unknown>) => [...names.keys()].filter((name) => others.has(name));
  return !isDeepStrictEqual(shared(before, after), shared(after, before));
}

function whole({ place, parts }: Part, change: "added" | "removed"): PlacedChange[] {
  return [{ ...place, change, fields: [] }, ...[...parts.values()].flatMap((part) => whole(part, change))];
}

type Fields = { readonly [key: string]: Json };

const ROOT: Place = { kind: "global", name: "global", label: "global", service: null, route: null };

function rootPart(shown: Json): Part {
  const { global, services: _, ...rest } = shown as Fields;
  return partOf(ROOT, { ...(global as Fields), ...rest });
}

function servicesOf(shown: Json): ReadonlyMap<string, Fields> {
  return new Map(listOf((shown as Fields).services).map((service) => [String(service.name), service]));
}

function servicePart(service: Fields): Part {
  const name = `service ${quoted(service.name)}`;
  return partOf({ kind: "service", name, label: name, service: String(service.name), route: null }, service);
}

function partOf(place: Place, { upstreams, plugins, routes, ...own }: Fields): Part {
  const inside = (kind: Change["kind"], label: string, route = place.route): Place => {
    return { kind, label, name: `${place.name} / ${label}`, service: place.service, route };
  };
  const labels = pluginLabels(listOf(plugins));
  const parts = [
    ...listOf(upstreams).map((upstream) => partOf(inside("upstream", `upstream ${quoted(upstream.id)}`), upstream)),
    ...listOf(plugins).map((plugin, i) => partOf(inside("plugin", labels[i]!), plugin)),
    ...listOf(routes).map((route) => partOf(inside("route", `route ${quoted(route.name)}`, String(route.name)), route)),
  ];
  return { place, own, parts: new Map(parts.map((part) => [part.place.name, part])) };
}

/** Named as rate counters are: by kind and `id`, without an `id` by its place among its kind in the list. */
function pluginLabels(plugins: readonly Fields[]): string[] {
  const seen = new Map<string, number>();
  return plugins.map(({ name, id }) => {
    const kind = String(name);
    const nth = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, nth);
    return `plugin ${kind}${id !== undefined ? ` ${quoted(id)}` : nth > 1 ? ` #${nth}` : ""}`;
  });
}

function listOf(value: Json | undefined): readonly Fields[] {
  return (value ?? []) as readonly Fields[];
}

/** Quoted as in JSON, so that no name can look like the path to another part. */
function quoted(name: Json | undefined): string {
  return JSON.stringify(name ?? null);
}
