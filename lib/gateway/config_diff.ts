/**
 * Says what differs between two configurations, part by part, under the names that the configuration itself tells them apart by.
 * No values are told: what stands in a part may be a secret. Taking a configuration is `gateway.ts`.
 */
import { isDeepStrictEqual } from "node:util";
import type { Json } from "../config/json.ts";

export interface Change {
  readonly kind: "global" | "service" | "route" | "upstream" | "plugin";
  /** The way to it: `service "shop" / route "items" / plugin rate_limit`; `global` for the settings of the whole gateway. */
  readonly name: string;
  readonly change: "added" | "removed" | "altered";
}

/**
 * From `before` to `after`, both as `shownConfig` gives them. Empty exactly when they show the same. What is new or gone is told with
 * all that it holds; an altered part does not make those around it altered. The order within a list is a matter of the list's owner.
 */
export function changesBetween(before: Json, after: Json): Change[] {
  const changes: Change[] = [];
  compare(rootPart(before), rootPart(after), changes);
  return changes;
}

/** A piece of the configuration that has a name, without the parts in it. */
interface Part {
  readonly kind: Change["kind"];
  readonly name: string;
  readonly own: Json;
  /** By name, which is unique. */
  readonly parts: ReadonlyMap<string, Part>;
}

function compare(before: Part, after: Part, changes: Change[]): void {
  if (!isDeepStrictEqual(before.own, after.own) || !sameOrder(before.parts, after.parts)) tell(after, "altered", changes);
  for (const [name, part] of after.parts) {
    const old = before.parts.get(name);
    if (old === undefined) tellAll(part, "added", changes);
    else compare(old, part, changes);
  }
  for (const [name, part] of before.parts) if (!after.parts.has(name)) tellAll(part, "removed", changes);
}

/** Whether the parts that both have follow each other in the same way. */
function sameOrder(before: Part["parts"], after: Part["parts"]): boolean {
  const stayed = [...before.keys()].filter((name) => after.has(name));
  const kept = [...after.keys()].filter((name) => before.has(name));
  return stayed.every((name, i) => kept[i] === name);
}

function tell({ kind, name }: Part, change: Change["change"], changes: Change[]): void {
  changes.push({ kind, name, change });
}

function tellAll(part: Part, change: Change["change"], changes: Change[]): void {
  tell(part, change, changes);
  for (const inner of part.parts.values()) tellAll(inner, change, changes);
}

type Fields = { readonly [key: string]: Json };

function rootPart(shown: Json): Part {
  const { global, services, ...rest } = shown as Fields;
  const { plugins, ...own } = global as Fields;
  const parts = [...pluginParts("global / ", plugins), ...listOf(services).map(servicePart)];
  return { kind: "global", name: "global", own: { ...own, ...rest }, parts: byName(parts) };
}

function servicePart(service: Fields): Part {
  const { upstreams, routes, plugins, ...own } = service;
  const name = `service ${quoted(service.name)}`;
  const inside = `${name} / `;
  const parts = [
    ...listOf(upstreams).map((upstream): Part => ({ kind: "upstream", name: `${inside}upstream ${quoted(upstream.id)}`, own: upstream, parts: NONE })),
    ...pluginParts(inside, plugins),
    ...listOf(routes).map((route) => routePart(inside, route)),
  ];
  return { kind: "service", name, own, parts: byName(parts) };
}

function routePart(inside: string, route: Fields): Part {
  const { plugins, ...own } = route;
  const name = `${inside}route ${quoted(route.name)}`;
  return { kind: "route", name, own, parts: byName(pluginParts(`${name} / `, plugins)) };
}

/** As rate counters are kept: by kind and `id`, without an `id` by its place among its kind in that list. */
function pluginParts(inside: string, plugins: Json | undefined): Part[] {
  const seen = new Map<string, number>();
  return listOf(plugins).map((plugin) => {
    const kind = String(plugin.name);
    const nth = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, nth);
    const which = plugin.id !== undefined ? ` ${quoted(plugin.id)}` : nth > 1 ? ` #${nth}` : "";
    return { kind: "plugin", name: `${inside}plugin ${kind}${which}`, own: plugin, parts: NONE };
  });
}

const NONE: Part["parts"] = new Map();

function byName(parts: readonly Part[]): Part["parts"] {
  return new Map(parts.map((part) => [part.name, part]));
}

function listOf(value: Json | undefined): readonly Fields[] {
  return (value ?? []) as readonly Fields[];
}

/** Quoted as in JSON, so that no name can pass for the way to something else. */
function quoted(name: Json | undefined): string {
  return JSON.stringify(name ?? null);
}
