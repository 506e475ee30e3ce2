/**
 * Answers `GET /gateway/callers`: who is in the configuration, and which plugins know them. No key, and no hash of one,
 * is told.
 */
import { atOnce } from "../base/time_slices.ts";
import type { Caller, CallerList } from "../config/caller_list.ts";
import type { Clock } from "../base/clock.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { GatewayInternals } from "../gateway/internals.ts";
import { compressed } from "../http/content_coding.ts";
import type { Reply } from "../http/reply.ts";
import { identifying, knows } from "../proof/known_callers.ts";
import { written } from "../proof/written.ts";
import type { Inbound } from "../server/inbound.ts";
import { json, queryOf } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

/** Callers of one reply: who looks for others searches. */
const MAX_CALLERS = 200;
/** Plugins of one caller. */
const MAX_PLUGINS = 10;

export function callersRequest(
  { target, headers }: Inbound,
  { gateway, clock }: Pick<InterfaceOptions, "gateway" | "clock">,
): Reply | Promise<Reply> {
  const search = (queryOf(target).get("search") ?? "").toLowerCase();
  const internals = GatewayCore.internalsOf(gateway as ReportedGateway);
  const { callers } = internals.configuration.snapshot;
  const fits = ({ id, groups }: Caller) =>
    search === "" || [id, ...groups].some((text) => text.toLowerCase().includes(search));
  const found: Listed[] = [];
  let total = 0;
  let matching = 0;
  for (const list of callers?.lists ?? []) {
    total += list.callers.length;
    for (const caller of list.callers) if (fits(caller) && ++matching <= MAX_CALLERS) found.push({ caller, list });
  }
  return compressed(json(200, { total, matching, callers: shownCallers(found, internals, clock) }), headers);
}

/** A caller, and the list that has it. */
interface Listed {
  readonly caller: Caller;
  readonly list: CallerList;
}

/** Of the configuration in force. */
export function shownCallers(found: readonly Listed[], { configuration }: GatewayInternals, clock: Clock) {
  const { snapshot } = configuration;
  const plugins = found.length === 0 ? [] : identifying(atOnce(written(snapshot)).plugins);
  const ends = nextEnds(new Set(found.map(({ list }) => list)), clock.wall());
  const nowS = Math.floor(clock.wall() / 1000);
  return found.map(({ caller, list }) => ({
    id: caller.id,
    groups: caller.groups,
    enabled: caller.enabled,
    file: list.file ?? null,
    plugins: plugins
      .filter((each) => knows(each, caller))
      .slice(0, MAX_PLUGINS)
      .map(({ plugin }) => plugin),
    key_ends: ends.get(caller) ?? null,
    used: nowS - snapshot.callers!.lastSeen(list, caller) < 60,
  }));
}

/** When the next key of a caller ends, as RFC 3339 has times. */
function nextEnds(lists: ReadonlySet<CallerList>, wall: number): ReadonlyMap<Caller, string> {
  const next = new Map<Caller, number>();
  for (const list of lists) {
    for (const [key, end] of list.ends) {
      const owner = list.ownerOf(key);
      if (end > wall && end < (next.get(owner) ?? Infinity)) next.set(owner, end);
    }
  }
  return new Map(Array.from(next, ([owner, end]) => [owner, new Date(end).toISOString()]));
}
