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
}

/**
 * From `before` to `after`, both as `shownConfig` gives them; empty exactly when they are the same. An added or removed part is listed
 * with all parts in it. An altered part does not alter the parts around it; another order in a list alters the part that has the list.
 */
export function changesBetween(before: Json, after: Json): Change[] {
  return compare(rootPart(before), rootPart(after));
}

/** A named piece of the configuration. `own` is its content without its inner parts. */
interface Part {
  readonly kind: Change["kind"];
  readonly name: string;
  readonly own: Json;
  /** By name, which is unique. */
  readonly parts: ReadonlyMap<string, Part>;
}

function compare(before: Part, after: Part): Change[] {
  const { kind, name } = after;
  const isSame = isDeepStrictEqual(before.own, after.own) && sameOrder(before.parts, after.parts);
  const inside = [...after.parts.values()].flatMap((part) => {
    const old = before.parts.get(part.name);
    return old === undefined ? whole(part, "added") : compare(old, part);
  });
  const removed = [...before.parts.values()].filter((part) => !after.parts.has(part.name)).flatMap((part) => whole(part, "removed"));
  return [...(isSame ? [] : [{ kind, name, change: "altered" as const }]), ...inside, ...removed];
}

/** Whether the parts that both have follow each other in the same order. */
function sameOrder(before: Part["parts"], after: Part["parts"]): boolean {
  const stayed = [...before.keys()].filter((name) => after.has(name));
  const kept = [...after.keys()].filter((name) => before.has(name));
  return isDeepStrictEqual(stayed, kept);
}

function whole({ kind, name, parts }: Part, change: "added" | "removed"): Change[] {
  return [{ kind, name, change }, ...[...parts.values()].flatMap((part) => whole(part, change))];
}

type Fields = { readonly [key: string]: Json };

function rootPart(shown: Json): Part {
  const { global, ...rest } = shown as Fields;
  return partOf("global", "global", { ...(global as Fields), ...rest });
}

function partOf(kind: Change["kind"], name: string, { upstreams, plugins, routes, services, ...own }: Fields): Part {
  const inside = `${name} / `;
  const parts = [
    ...listOf(upstreams).map((upstream) => partOf("upstream", `${inside}upstream ${quoted(upstream.id)}`, upstream)),
    ...pluginParts(inside, listOf(plugins)),
    ...listOf(routes).map((route) => partOf("route", `${inside}route ${quoted(route.name)}`, route)),
    ...listOf(services).map((service) => partOf("service", `service ${quoted(service.name)}`, service)),
  ];
  return { kind, name, own, parts: new Map(parts.map((part) => [part.name, part])) };
}

/** Named as rate counters are: by kind and `id`, without an `id` by its place among its kind in the list. */
function pluginParts(inside: string, plugins: readonly Fields[]): Part[] {
  const seen = new Map<string, number>();
  return plugins.map((plugin) => {
    const kind = String(plugin.name);
    const nth = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, nth);
    const which = plugin.id !== undefined ? ` ${quoted(plugin.id)}` : nth > 1 ? ` #${nth}` : "";
    return partOf("plugin", `${inside}plugin ${kind}${which}`, plugin);
  });
}

function listOf(value: Json | undefined): readonly Fields[] {
  return (value ?? []) as readonly Fields[];
}

/** Quoted as in JSON, so that no name can look like the path to another part. */
function quoted(name: Json | undefined): string {
  return JSON.stringify(name ?? null);
}
