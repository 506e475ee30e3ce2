/**
 * Lists the differences of two configurations part by part. Gives names and no values, which may be secrets.
 */
import { isDeepStrictEqual } from "node:util";
import { atOnce } from "../base/time_slices.ts";
import type { Json } from "../config/json.ts";

export interface Change {
  readonly kind: "global" | "service" | "route" | "upstream" | "plugin";
  /**
   * The path to the part: `service "shop" / route "items" / plugin rate_limit`; `global` for the settings of the whole
   * gateway.
   */
  readonly name: string;
  readonly change: "added" | "removed" | "altered";
  /**
   * What is another in an altered part: names of fields, down to "timeouts.connect_ms", and "order of plugins". Else
   * empty.
   */
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
 * From `before` to `after`, both as `shownConfig` gives them; empty exactly when they are the same. An added or removed
 * part is listed with all parts in it. An altered part does not alter the parts around it; another order in a list
 * alters the part that has the list.
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

/** The same with places, a step for each part, so that others can run in between. */
export function placedChanges(before: Json, after: Json): Iterable<readonly PlacedChange[]> {
  return changesOf(rootOf(before), rootOf(after));
}

/** A part as it is displayed. */
export type ShownPart = { readonly [key: string]: Json };

interface Part {
  readonly place: Place;
  /** With the parts in it. */
  readonly fields: ShownPart;
}

function rootOf(shown: Json): Part {
  const { global, ...rest } = shown as ShownPart;
  return {
    place: { kind: "global", name: "global", label: "global", service: null, route: null },
    fields: { ...(global as ShownPart), ...rest },
  };
}

/** The change of a part, if there is one, and those of the parts in it. */
function* changesOf(before: Part | null, after: Part | null, isInner = false): Iterable<readonly PlacedChange[]> {
  // A service that has not changed is one object in both.
  if (before !== null && before.fields === after?.fields) return;
  const [old, next] = [partsOf(before), partsOf(after)];
  const change = before === null ? "added" : after === null ? "removed" : "altered";
  const fields =
    before === null || after === null
      ? []
      : [...differingFields(before.fields, after.fields), ...LISTS.flatMap((list) => orderOf(list, old, next))];
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
  for (const name of new Map([...next, ...old]).keys())
    yield* changesOf(old.get(name) ?? null, next.get(name) ?? null, change !== "altered");
}

/** Fields whose values differ; where both values are objects, the fields in them. */
function differingFields(before: ShownPart, after: ShownPart): string[] {
  const names = Object.keys({ ...before, ...after }).filter(
    (name) => !LISTS.includes(name) && !isDeepStrictEqual(before[name], after[name]),
  );
  return names.flatMap((name) => {
    const [was, is] = [before[name], after[name]];
    if (!isObject(was) || !isObject(is)) return [name];
    return Object.keys({ ...was, ...is }).flatMap((inner) =>
      isDeepStrictEqual(was[inner], is[inner]) ? [] : [`${name}.${inner}`],
    );
  });
}

function isObject(value: Json | undefined): value is ShownPart {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The fields with inner parts. */
const LISTS: readonly string[] = ["upstreams", "plugins", "routes", "services"];

/** By their names, which are unique. */
function partsOf(part: Part | null): ReadonlyMap<string, Part> {
  const parts = new Map<string, Part>();
  if (part === null) return parts;
  const {
    place,
    fields: { upstreams, plugins, routes, services },
  } = part;
  const add = (fields: ShownPart, kind: Change["kind"], label: string, own: Partial<Place> = {}) => {
    const name = kind === "service" ? label : `${place.name} / ${label}`;
    parts.set(name, { place: { ...place, kind, name, label, ...own }, fields });
  };
  for (const upstream of listOf(upstreams)) add(upstream, "upstream", `upstream ${quoted(upstream.id)}`);
  const labels = pluginLabels(listOf(plugins));
  listOf(plugins).forEach((plugin, i) => add(plugin, "plugin", labels[i]!));
  for (const route of listOf(routes)) add(route, "route", `route ${quoted(route.name)}`, { route: String(route.name) });
  for (const service of listOf(services))
    add(service, "service", `service ${quoted(service.name)}`, { service: String(service.name) });
  return parts;
}

/** "order of routes", if those that both have follow each other in another order. */
function orderOf(list: string, before: ReadonlyMap<string, Part>, after: ReadonlyMap<string, Part>): string[] {
  const shared = (parts: typeof before, others: typeof before) =>
    [...parts].flatMap(([name, { place }]) => (`${place.kind}s` === list && others.has(name) ? [name] : []));
  return isDeepStrictEqual(shared(before, after), shared(after, before)) ? [] : [`order of ${list}`];
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
