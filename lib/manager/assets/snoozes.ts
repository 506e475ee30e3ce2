/**
 * Warnings that are not shown for a while, in this browser alone.
 */
import type { Warning } from "./api.ts";

const KEY = "edge-gateway-snoozed";

/** "upstream_down:services.shop.upstreams.till", as `global.accept_warnings` names it. */
export function nameOf({ code, path }: Pick<Warning, "code" | "path">): string {
  return path === null ? code : `${code}:${path}`;
}

/** Until when, in ms since 1970; by name, without those that are over. */
export function snoozed(): ReadonlyMap<string, number> {
  try {
    const stored = Object.entries(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Record<string, number>);
    return new Map(stored.filter(([, until]) => until > Date.now()));
  } catch {
    return new Map();
  }
}

/** 0 ends it. */
export function snooze(name: string, ms: number): void {
  const all = { ...Object.fromEntries(snoozed()), [name]: Date.now() + ms };
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
  } catch {
    // Storage is disabled: it stays in the list.
  }
}
