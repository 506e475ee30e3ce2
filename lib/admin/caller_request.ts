/**
 * Answers `GET /gateway/caller?id=…`: one caller, when it was here last, and what it has used of its limits.
 */
import { calendar } from "../base/calendar.ts";
import type { Clock } from "../base/clock.ts";
import { firstsOf } from "../base/firsts.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import type { Caller } from "../config/caller_list.ts";
import { windowsOf } from "../config/fields.ts";
import type { Config, PluginInstance } from "../config/model.ts";
import type { Infer } from "../config/schema.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { GatewayInternals } from "../gateway/internals.ts";
import { problem, type Reply } from "../http/reply.ts";
import { minuteOfCaller } from "../observe/caller_figures.ts";
import type { quota } from "../plugins/quota.ts";
import type { rateLimit } from "../plugins/rate_limit.ts";
import type { CallerTable } from "../store/caller_tables.ts";
import { OVERFLOW } from "../store/cells.ts";
import { CostedMemoryLimiter } from "../store/costs.ts";
import type { CostedLimiter, Decision } from "../store/counters.ts";
import { QuotaLimiter, tableOptions } from "../store/quotas.ts";
import type { Inbound } from "../server/inbound.ts";
import { shownCallers } from "./callers_request.ts";
import { json, queryOf } from "./replies.ts";
import { view, type InterfaceOptions } from "./views.ts";

export { callersRequest } from "./callers_request.ts";

/** Limits of one reply: those of which most is used. */
const MAX_LIMITS = 100;
/** Tables that are looked into without a pause. */
const TABLES_OF_STEP = 256;

interface Window {
  /** "second", "minute", "hour", "day", "week" or "month". */
  readonly per: string;
  readonly limit: number;
  readonly left: number;
  /** Seconds until something is given back, or the period ends. */
  readonly reset_s: number;
}

/** What a limiter has counted of the caller. */
interface Used {
  readonly kind: string;
  readonly service: string | null;
  readonly route: string | null;
  readonly level: string;
  readonly id: string | null;
  /** The group whose limits count; null: those for all others. */
  readonly group: string | null;
  readonly windows: readonly Window[];
}

export async function callerRequest(
  { call, target }: Inbound,
  { gateway, clock }: Pick<InterfaceOptions, "gateway" | "clock">,
): Promise<Reply> {
  const id = queryOf(target).get("id");
  if (id === null) return problem(call, "request_invalid", { detail: "Name the caller: ?id=…" });
  const internals = GatewayCore.internalsOf(gateway as ReportedGateway);
  const { callers } = internals.configuration.snapshot;
  const list = callers?.lists.find((each) => each.withId(id) !== undefined);
  if (callers === null || list === undefined)
    return problem(call, "route_not_found", {
      detail: "The configuration in force has no such caller.",
      members: { id },
    });
  const caller = list.withId(id)!;
  const [shown] = shownCallers([{ caller, list }], internals, clock);
  const used = await inSlices(limitsOf(caller, internals, clock), paced());
  const last = callers.lastSeen(list, caller);
  const uptimeMs = clock.now() - internals.startedAt;
  return json(200, {
    ...shown,
    keys: caller.keys,
    figures: view(await minuteOfCaller(internals.metrics!, id, { now: clock.wall(), uptimeMs })),
    last_seen: last === 0 ? null : new Date(last * 1000).toISOString(),
    counters: internals.runtime.shared === null ? "memory" : "redis",
    limits: firstsOf(used, MAX_LIMITS, (a, b) => shareOf(b) - shareOf(a)),
    limits_total: used.length,
  });
}

/** Of the window of which most is used. */
function shareOf({ windows }: Used): number {
  return windows.reduce((most, { left, limit }) => Math.max(most, 1 - left / limit), 0);
}

/** Those that have counted the caller. */
function* limitsOf(
  caller: Caller,
  { configuration, runtime }: GatewayInternals,
  clock: Clock,
): Generator<void, readonly Used[]> {
  const { config } = configuration.snapshot;
  const services = new Map(config.services.map((service) => [service.name, service]));
  const found: Used[] = [];
  let looked = 0;
  for (const [key, table] of runtime.limits?.all ?? []) {
    if (++looked % TABLES_OF_STEP === 0) yield;
    if (!hasCounted(table, nameOf(caller))) continue;
    const owner = ownerOf(key, config, services);
    const used = owner && usedOf(owner, table, caller, clock);
    if (used) found.push(used);
  }
  return found;
}

/** As `callerBy` names callers by their credential. */
const nameOf = ({ id }: Caller) => `c:${id}`;

function hasCounted(table: CallerTable, name: string): boolean {
  const callers = table.enter(name);
  try {
    return callers.find() !== OVERFLOW;
  } finally {
    callers.leave();
  }
}

interface Owner extends Pick<Used, "level" | "service" | "route"> {
  readonly instance: PluginInstance;
  readonly group: string | null;
}

/** Whose limiter has this key, see `Scope.key`; null: no configured plugin's. */
function ownerOf(
  key: string,
  { global }: Config,
  services: ReadonlyMap<string, Config["services"][number]>,
): Owner | null {
  type Key = [
    level: "global" | "service" | "route",
    service: string | null,
    route: string | null,
    kind: string,
    at: string | number,
  ];
  const [level, service, route, kind, at, group = null] = JSON.parse(key) as [...Key, group?: string];
  const ofService = service === null ? undefined : services.get(service);
  const owners = { global, service: ofService, route: ofService?.routes.find(({ name }) => name === route) };
  const plugins = owners[level]?.plugins;
  const ofKind = plugins?.filter(({ name }) => name === kind) ?? [];
  const instance = typeof at === "number" ? ofKind[at] : ofKind.find(({ id }) => id === at);
  return instance === undefined ? null : { level, service, route, instance, group };
}

/** Null: the plugin does not count by caller, or by the limits of another group. */
function usedOf(owner: Owner, table: CallerTable, caller: Caller, clock: Clock): Used | null {
  const { instance, level, service, route } = owner;
  const { name: kind, id = null, enabled } = instance;
  const config = instance.config as QuotaConfig | RateConfig;
  if (!enabled || config.limitBy !== "credential") return null;
  const ofGroup = (config.limitsByGroup as Groups)?.find(({ group }) => caller.groups.includes(group));
  const group = ofGroup?.group ?? null;
  const counted = kind === "quota" ? quotaOf : rateOf;
  if (counted === rateOf && group !== owner.group) return null;
  const { limits, limiter } = counted(config as QuotaConfig & RateConfig, ofGroup?.limits, table, clock);
  // Such a limiter leaves the counting to another call: it only looks.
  const { remaining, resetMs } = limiter.decide(nameOf(caller)) as Decision;
  const windows = limits.map(({ per, limit }, i) => {
    return { per, limit, left: remaining[i]!, reset_s: Math.ceil(resetMs[i]! / 1000) };
  });
  return { kind, service, route, level, id, group, windows };
}

type QuotaConfig = Infer<typeof quota.schema>;
type RateConfig = Infer<typeof rateLimit.schema>;
type Groups = readonly { readonly group: string; readonly limits: object }[] | undefined;

interface Counted {
  readonly limits: readonly Pick<Window, "per" | "limit">[];
  readonly limiter: CostedLimiter;
}

function quotaOf(config: QuotaConfig, ofGroup: object | undefined, table: CallerTable, clock: Clock): Counted {
  const { per, timeZone, maxCallers } = config;
  const { limit } = (ofGroup as Pick<QuotaConfig, "limit"> | undefined) ?? config;
  const options = { limit, per, timeZone, maxCallers, isCosted: true };
  const periodAt = calendar(per, timeZone);
  return {
    limits: [{ per, limit }],
    limiter: new QuotaLimiter(clock, table, tableOptions(options), { ...options, periodAt }),
  };
}

function rateOf(config: RateConfig, ofGroup: object | undefined, table: CallerTable, clock: Clock): Counted {
  const windows = windowsOf((ofGroup as RateConfig | undefined) ?? config);
  const { maxCallers } = config;
  return {
    limits: windows.map(({ name, limit }) => ({ per: name, limit })),
    limiter: new CostedMemoryLimiter(clock, table, { windows, maxCallers }),
  };
}
