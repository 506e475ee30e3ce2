/**
 * Turns Kong's `rate-limiting`, and `rate-limiting-advanced` with the limits of consumer groups, into `rate_limit`.
 */
import type { DraftPlugin } from "./draft.ts";
import type { SourceValue } from "./source_value.ts";

/** A `rate-limiting-advanced` for the consumers of a group. */
export interface GroupLimit {
  readonly group: string;
  readonly place: SourceValue;
  isUsed: boolean;
}

/** Fields that name or describe. */
export const LABELS = ["id", "tags", "created_at", "updated_at", "ws_id"];

/** The names of the groups that a consumer is in. */
export function groupNames(consumer: SourceValue): readonly string[] {
  return consumer.items("groups").flatMap((group) => groupName(group) ?? []);
}

/** It is named, or an object with a name. */
function groupName(group: SourceValue): string | undefined {
  return typeof group.value === "string" ? group.value : group.ignore(...LABELS).text("name");
}

/** The limit that a plugin is for the consumers of a group, wherever they ask. */
export function limitOf(group: SourceValue, plugin: SourceValue): GroupLimit[] {
  const name = groupName(group);
  const isForAll = ["service", "route", "consumer"].every((field) => !plugin.has(field));
  if (
    name === undefined ||
    !isForAll ||
    plugin.text("name") !== "rate-limiting-advanced" ||
    plugin.flag("enabled") === false
  )
    return [];
  return [{ group: name, place: plugin.ignore(...LABELS, "protocols", "instance_name"), isUsed: false }];
}

const LIMITED = "refused requests get 429 and the gateway's own body";
/** Settings of `rate-limiting` without a counterpart, with Kong's default. */
const OF_LIMITS = {
  error_code: [429, LIMITED],
  error_message: ["API rate limit exceeded", LIMITED],
  hide_client_headers: [false, "replies have the headers RateLimit and RateLimit-Policy"],
  fault_tolerant: [true, '"on_error" of global.counters says what happens without the counters'],
} as const;
const OF_ADVANCED = {
  ...OF_LIMITS,
  strategy: ["local", "counts are shared by global.counters, not by each plugin"],
  window_type: ["sliding", "windows slide here: at most so many requests are in any of them"],
} as const;

export function plainLimit(config: SourceValue): readonly DraftPlugin[] {
  const shorter = { limit_second: config.number("second"), limit_min: config.number("minute") };
  const limits = { ...shorter, limit_hour: config.number("hour"), limit_day: config.number("day") };
  config.ignore("sync_rate").noteUnusual(OF_LIMITS);
  for (const name of ["month", "year"]) if (config.has(name)) config.get(name).note(`there is no limit for a ${name}`);
  if (config.text("policy") === "redis")
    config.get("policy").note("counts are shared by global.counters, not by each plugin");
  config.ignore(
    "redis",
    ...["host", "port", "password", "username", "ssl", "ssl_verify", "server_name", "timeout", "database"].map(
      (name) => `redis_${name}`,
    ),
  );
  const counted = countedBy(config, "limit_by");
  if (Object.values(limits).every((limit) => limit === undefined)) return [];
  return [{ name: "rate_limit", config: { ...limits, limit_by: counted } }];
}

/** `field`: names what Kong counts by. */
function countedBy(config: SourceValue, field: string): string {
  const by = config.text(field) ?? "consumer";
  const header = config.text("header_name");
  const known: Readonly<Record<string, string>> = {
    consumer: "credential",
    credential: "credential",
    ip: "client_ip",
    service: "all",
    ...(header !== undefined && { header: `header:${header}` }),
  };
  if (Object.hasOwn(known, by)) return known[by]!;
  config.get(field).note(`"${by}" is not carried over: the limit counts by address`);
  return "client_ip";
}

/** Windows in seconds. */
const WINDOWS: Readonly<Record<number, string>> = {
  1: "limit_second",
  60: "limit_min",
  3600: "limit_hour",
  86_400: "limit_day",
};
/** How Kong stores and shares counts. */
const STORAGE = ["namespace", "dictionary_name", "lock_dictionary_name", "sync_rate", "redis"];

/** Each consumer group counts with its own limits, if it has some, in place of the others. */
export function advancedLimit(config: SourceValue, groups: readonly GroupLimit[]): readonly DraftPlugin[] {
  const limits = windowsOf(config);
  const by = countedBy(config, "identifier");
  const named = config.texts("consumer_groups");
  const isEnforced = config.flag("enforce_consumer_groups") === true;
  // Up to Kong 3.3 the first group of the list counts.
  const chosen = isEnforced ? named.flatMap((name) => groups.filter(({ group }) => group === name)) : groups;
  const byGroup = chosen.flatMap((limit) => {
    const { group, place } = limit;
    limit.isUsed = true;
    const own = place.get("config");
    const isSame = !own.has("identifier") || countedBy(own, "identifier") === by;
    if (!isSame)
      own.get("identifier").note("is not carried over: the limits of groups count by what the others count by");
    const windows = isSame ? windowsOf(own) : {};
    return Object.keys(windows).length === 0 ? [] : [[group, windows] as const];
  });
  // `limits_by_group` has to have limits for the others.
  if (Object.keys(limits).length === 0) return [];
  const ofGroups = byGroup.length === 0 ? undefined : Object.fromEntries(byGroup);
  return [{ name: "rate_limit", config: { ...limits, limits_by_group: ofGroups, limit_by: by } }];
}

function windowsOf(config: SourceValue): Readonly<Record<string, number>> {
  config.ignore(...STORAGE, "retry_after_jitter_max", "disable_penalty", "header_name").noteUnusual(OF_ADVANCED);
  const [sizes, limits] = [config.items("window_size"), config.items("limit")];
  if (sizes.length !== limits.length) return (config.note("needs a limit for each window_size"), {});
  const windows: Record<string, number> = {};
  for (const [i, size] of sizes.entries()) {
    const [name, limit] = [WINDOWS[size.number() ?? 0], limits[i]!.number()];
    if (name === undefined) size.note("is not carried over: limits are for 1, 60, 3600 and 86400 seconds here");
    else if (limit !== undefined) windows[name] = Math.min(limit, windows[name] ?? limit);
  }
  return windows;
}
