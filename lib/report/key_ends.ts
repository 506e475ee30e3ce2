/**
 * Finds the API keys that end soon or have ended lately: those of `key_auth`, and those of callers.
 */
import type { CallerRegistry } from "../plugins/callers.ts";
import { timeOf } from "../config/validity_fields.ts";
import { pluginPlaces, type DisplayedConfig } from "../gateway/displayed_config.ts";
import type { DisplayedPlugin, PluginPlace } from "../gateway/displayed_config.ts";
import { pluginPath } from "../config/plugin_place.ts";

export interface KeyEnd {
  /** Of the caller, or of the key in `key_auth`. */
  readonly id: string;
  /** Null: it is in a file of `caller_files`. */
  readonly path: string | null;
  readonly service: string | null;
  readonly route: string | null;
  /** In milliseconds since 1970. */
  readonly end: number;
}

export interface KeyEnds {
  /** Ten: the first that end within 14 days, then those that have ended within the last 14. */
  readonly near: readonly KeyEnd[];
  /** How many further ones there are of these. */
  readonly more: number;
  /** When the next key ends, in milliseconds since 1970; null: none does. */
  readonly next: number | null;
}

export const SOON_MS = 14 * 86_400_000;
const HOUR_MS = 3_600_000;
const MAX_NEAR = 10;

/** By the displayed configuration that was looked at. */
const KNOWN = new WeakMap<DisplayedConfig, { readonly hour: number; readonly ends: KeyEnds }>();

/** Looks again once an hour: 100,000 callers take some milliseconds. `wall`: in milliseconds since 1970. */
export function keyEnds(shown: DisplayedConfig, callers: CallerRegistry | null, wall: number): KeyEnds {
  const hour = Math.floor(wall / HOUR_MS);
  const known = KNOWN.get(shown);
  if (known?.hour === hour && (known.ends.next === null || known.ends.next > wall)) return known.ends;
  const near: KeyEnd[] = [];
  let count = 0;
  let next = Infinity;
  // What has ended comes behind all that will: of that somebody can still be warned.
  const order = (end: number) => (end > wall ? end : end + 3 * SOON_MS);
  const note = (end: number, describe: () => Omit<KeyEnd, "end">) => {
    if (end > wall) next = Math.min(next, end);
    if (Math.abs(end - wall) >= SOON_MS) return;
    count++;
    // Only those that are named are described and sorted: all keys of a year may end on one day.
    if (near.length === MAX_NEAR && order(end) >= order(near.at(-1)!.end)) return;
    near.push({ ...describe(), end });
    near.sort((a, b) => order(a.end) - order(b.end));
    near.length = Math.min(near.length, MAX_NEAR);
  };
  for (const place of pluginPlaces(shown)) for (const plugin of place.plugins) ofPlugin(plugin, place, note);
  for (const list of callers?.lists ?? []) {
    for (const [number, end] of list.ends)
      note(end, () => {
        const { index, key } = list.placeOfKey(number);
        const path = list.file === undefined ? `callers[${index}].keys[${key}]` : null;
        return { id: list.ownerOf(number).id, path, service: null, route: null };
      });
  }
  const ends = { near, more: count - near.length, next: next === Infinity ? null : next };
  KNOWN.set(shown, { hour, ends });
  return ends;
}

function ofPlugin(
  { name, id = name, enabled, config }: DisplayedPlugin,
  { service, route }: PluginPlace,
  note: (end: number, describe: () => Omit<KeyEnd, "end">) => void,
): void {
  if (name !== "key_auth" || !enabled) return;
  const keys = (config.keys ?? []) as readonly { readonly id: string; readonly expires_at?: string }[];
  for (const key of keys) {
    if (typeof key.expires_at !== "string") continue;
    note(timeOf(key.expires_at)!, () => ({ id: key.id, path: pluginPath({ service, route }, id), service, route }));
  }
}
