/**
 * Describes how a service distributes its requests: strategy, sticky sessions, splits and groups; and computes the share of each upstream.
 */
import { conditionTexts } from "./conditions.ts";
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
    ...split.map((entry) => `${splitShare(entry)} to ${entry.group}`),
    ...(factor === 0 ? [] : [`At most ${factor} % of the mean load`]),
  ];
}

/** "5 %", "5 % where header X-Beta = 1" */
export function splitShare({ percent, match }: SplitConfig): string {
  const conditions = conditionTexts(match).join(", ");
  return `${number(percent)} %${conditions === "" ? "" : ` where ${conditions}`}`;
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
export function groupsOf({ upstreams, split = [] }: Pick<ServiceConfig, "upstreams" | "split">): readonly Group[] {
  const ofSplits = split.map(({ group }) => group);
  const names = new Set([...ofSplits, ...upstreams.flatMap(({ group }) => (group === undefined ? [] : [group]))]);
  if (names.size === 0) return [];
  const rest = upstreams.filter(({ group }) => group === undefined);
  const rulesOf = (name: string): readonly string[] => {
    const own = split.filter(({ group }) => group === name).map((entry) => `${splitShare(entry)}, by ${entry.hash_on === undefined ? "request" : hashedText(entry.hash_on)}`);
    return rest.length === 0 || split.length === 0 ? [...own, THE_REST] : own;
  };
  const groups = [...names].map((name): Group => ({ group: name, upstreams: upstreams.filter(({ group }) => group === name), rules: rulesOf(name) }));
  return rest.length === 0 ? groups : [...groups, { group: null, upstreams: rest, rules: [THE_REST] }];
}

const THE_REST = "the rest, by weight";

/** A share of a service's traffic, 0 to 1: measured, or without traffic by the splits and the weights of usable upstreams. */
export interface Share {
  readonly share: number;
  readonly how: "measured" | "planned";
}

/** By id. With `states` null all upstreams are usable. */
export function sharesOf(
  service: { readonly upstreams: readonly Pick<UpstreamConfig, "id" | "weight" | "group">[] } & Pick<ServiceConfig, "split">,
  states: readonly Pick<UpstreamHealth, "id" | "usable">[] | null,
  rateOf: (id: string) => number,
): ReadonlyMap<string, Share> {
  const { upstreams } = service;
  const rates = upstreams.map(({ id }) => rateOf(id));
  const rate = rates.reduce((a, b) => a + b, 0);
  if (rate > 0) return new Map(upstreams.map(({ id }, i) => [id, { share: rates[i]! / rate, how: "measured" }]));
  const unusable = new Set((states ?? []).filter(({ usable }) => !usable).map(({ id }) => id));
  const shares = plannedShares(service, (id) => !unusable.has(id));
  return new Map(upstreams.map(({ id }, i) => [id, { share: shares[i]!, how: "planned" }]));
}

/** How many requests meet the conditions of a split is not known: such entries count for nothing. */
function plannedShares({ upstreams, split = [] }: Parameters<typeof sharesOf>[0], usable: (id: string) => boolean): readonly number[] {
  const weights = upstreams.map(({ id, weight }) => (usable(id) ? weight : 0));
  const shares = upstreams.map(() => 0);
  const spread = (share: number, to: (group: string | undefined) => boolean): boolean => {
    const sum = weights.reduce((all, weight, i) => (to(upstreams[i]!.group) ? all + weight : all), 0);
    if (sum > 0) for (const [i, weight] of weights.entries()) if (to(upstreams[i]!.group)) shares[i]! += (share * weight) / sum;
    return sum > 0;
  };
  let rest = 1;
  for (const { group: name, percent, match } of split) if (match === undefined && spread(percent / 100, (group) => group === name)) rest -= percent / 100;
  const isRest = (group: string | undefined) => group === undefined || split.length === 0 || upstreams.every((upstream) => upstream.group !== undefined);
  if (rest > 0 && !spread(rest, isRest)) spread(rest, () => true);
  return shares;
}
