/**
 * Describes how a service distributes its requests: strategy, sticky sessions, splits and groups; and computes the share of each upstream.
 */
import { whereText } from "./conditions.ts";
import type { ServiceConfig, SplitConfig, UpstreamConfig, UpstreamHealth } from "./api.ts";
import { number } from "./format.ts";

const STRATEGIES: Readonly<Record<string, string>> = {
  round_robin: "In turn, by weight",
  weighted: "In turn, by weight",
  least_connections: "The fewest requests in flight, by weight",
  random_two_choices: "The less busy of two random upstreams",
  ip_hash: "The same upstream for the same client address",
};

/** The parts of `hash_on` before the colon. */
const HASHED: Readonly<Record<string, string>> = { client_ip: "client address", credential: "credential", header: "header", cookie: "cookie", param: "path parameter" };

type Balanced = Pick<ServiceConfig, "load_balancing_strategy" | "hash_on" | "hash_balance_factor" | "sticky" | "split" | "upstreams">;

/** "The same upstream for the same header X-Tenant"; "" for an unknown strategy. */
export function strategyText({ load_balancing_strategy: strategy, hash_on: hashOn }: Pick<Balanced, "load_balancing_strategy" | "hash_on">): string {
  return hashOn === undefined ? (STRATEGIES[strategy] ?? "") : `The same upstream for the same ${hashedText(hashOn)}`;
}

/** "header:X-Tenant" → "header X-Tenant" */
export function hashedText(hashOn: string): string {
  const [kind = "", ...name] = hashOn.split(":");
  return [HASHED[kind] ?? kind, name.join(":")].filter((part) => part !== "").join(" ");
}

/** What is decided before the strategy, and what limits it: "Sticky by the cookie route", "5 % to canary". Empty for most services. */
export function balancingNotes({ sticky, split = [], hash_balance_factor: factor = 0 }: Balanced): readonly string[] {
  return [
    ...(sticky === undefined ? [] : [`Sticky by the cookie ${sticky.cookie}`]),
    ...split.map(splitText),
    ...(factor === 0 ? [] : [`At most ${factor} % of the mean load`]),
  ];
}

/** "5 % to canary", "100 % to beta where header X-Beta = 1" */
export function splitText({ group, percent, match }: SplitConfig): string {
  return `${number(percent)} % to ${group}${whereText(match)}`;
}

/** "5 %, by credential", "100 %, by request, where header X-Beta = 1" */
function shareText({ percent, hash_on: hashOn, match }: SplitConfig): string {
  const where = whereText(match);
  return `${number(percent)} %, by ${hashOn === undefined ? "request" : hashedText(hashOn)}${where === "" ? "" : `,${where}`}`;
}

/** One group of a service's upstreams. */
export interface Group {
  /** Null: the upstreams without a group. */
  readonly group: string | null;
  readonly upstreams: readonly UpstreamConfig[];
  /** What it gets: "5 %, by credential", "the rest". */
  readonly rules: readonly string[];
}

/** Those of the splits first, in their order. Empty where no upstream has a group. */
export function groupsOf(service: Distributed): readonly Group[] {
  const { upstreams, split = [] } = service;
  const names = new Set([...split.map(({ group }) => group), ...upstreams.flatMap(({ group }) => group ?? [])]);
  if (names.size === 0) return [];
  const rest = restOf(service);
  const groupOf = (name: string | null): Group => {
    const own = upstreams.filter(({ group = null }) => group === name);
    const shares = split.filter(({ group }) => group === name).map(shareText);
    return { group: name, upstreams: own, rules: own.some((upstream) => rest.includes(upstream)) ? [...shares, split.length === 0 ? "its share by weight" : "the rest, by weight"] : shares };
  };
  const groups = [...names].map(groupOf);
  return upstreams.some(({ group }) => group === undefined) ? [...groups, groupOf(null)] : groups;
}

type Distributed = { readonly upstreams: readonly UpstreamConfig[] } & Pick<ServiceConfig, "split">;

/** The upstreams that get what no split takes: those without a group; if every one has a group, those in groups without a split, or all. */
function restOf({ upstreams, split = [] }: Distributed): readonly UpstreamConfig[] {
  if (split.length === 0) return upstreams;
  const ungrouped = upstreams.filter(({ group }) => group === undefined);
  const others = upstreams.filter((upstream) => split.every(({ group }) => group !== upstream.group));
  return ungrouped.length > 0 ? ungrouped : others.length > 0 ? others : upstreams;
}

/** A share of a service's traffic, 0 to 1: measured, or without traffic by the splits and the weights of usable upstreams. */
export interface Share {
  readonly share: number;
  readonly how: "measured" | "planned";
}

/** By id. With `states` null all upstreams are usable. */
export function sharesOf(service: Distributed, states: readonly Pick<UpstreamHealth, "id" | "usable">[] | null, rateOf: (id: string) => number): ReadonlyMap<string, Share> {
  const { upstreams } = service;
  const rates = upstreams.map(({ id }) => rateOf(id));
  const rate = rates.reduce((a, b) => a + b, 0);
  if (rate > 0) return new Map(upstreams.map(({ id }, i) => [id, { share: rates[i]! / rate, how: "measured" }]));
  const unusable = new Set((states ?? []).filter(({ usable }) => !usable).map(({ id }) => id));
  const planned = plannedShares(service, (id) => !unusable.has(id));
  return new Map(upstreams.map(({ id }) => [id, { share: planned.get(id) ?? 0, how: "planned" }]));
}

/** By id. How many requests meet the conditions of a split is not known, so such splits are left out. */
function plannedShares(service: Distributed, usable: (id: string) => boolean): ReadonlyMap<string, number> {
  const { upstreams, split = [] } = service;
  const shares = new Map<string, number>();
  /** False: none of them can be used. */
  const spread = (share: number, to: readonly UpstreamConfig[]): boolean => {
    const targets = to.filter(({ id }) => usable(id));
    const weight = targets.reduce((sum, each) => sum + each.weight, 0);
    if (weight > 0) for (const each of targets) shares.set(each.id, (shares.get(each.id) ?? 0) + (share * each.weight) / weight);
    return weight > 0;
  };
  let left = 1;
  for (const { group: name, percent, match } of split) {
    if (match === undefined && spread(percent / 100, upstreams.filter(({ group }) => group === name))) left -= percent / 100;
  }
  if (left > 0 && !spread(left, restOf(service))) spread(left, upstreams);
  return shares;
}
