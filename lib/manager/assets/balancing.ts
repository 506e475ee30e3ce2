/**
 * Describes how a service distributes its requests: strategy, sticky sessions, splits and groups.
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
const HASHED: Readonly<Record<string, string>> = {
  client_ip: "client address",
  credential: "credential",
  header: "header",
  cookie: "cookie",
  param: "path parameter",
};

type Balanced = Pick<
  ServiceConfig,
  "load_balancing_strategy" | "hash_on" | "hash_balance_factor" | "sticky" | "split" | "upstreams"
>;

/** "The same upstream for the same header X-Tenant"; "" for an unknown strategy. */
export function strategyText({
  load_balancing_strategy: strategy,
  hash_on: hashOn,
}: Pick<Balanced, "load_balancing_strategy" | "hash_on">): string {
  return hashOn === undefined ? (STRATEGIES[strategy] ?? "") : `The same upstream for the same ${hashedText(hashOn)}`;
}

/** "header:X-Tenant" → "header X-Tenant" */
export function hashedText(hashOn: string): string {
  const [kind = "", ...name] = hashOn.split(":");
  return [HASHED[kind] ?? kind, name.join(":")].filter((part) => part !== "").join(" ");
}

/**
 * What is decided before the strategy, and what limits it: "Sticky by the cookie route", "5 % to canary". Empty for
 * most services.
 */
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
  return (
    `${number(percent)} %, by ` +
    `${hashOn === undefined ? "request" : hashedText(hashOn)}${where === "" ? "" : `,${where}`}`
  );
}

/** One group of a service's upstreams. */
export interface Group {
  /** Null: the upstreams without a group. */
  readonly group: string | null;
  readonly upstreams: readonly UpstreamConfig[];
  /** What splits give it: "5 %, by credential". */
  readonly rules: readonly string[];
  /** What it gets besides, if the gateway gives it what no split takes. */
  readonly rest: string;
}

/** Those of the splits first, in their order. Empty where no upstream has a group. */
export function groupsOf({ upstreams, split = [] }: Pick<ServiceConfig, "upstreams" | "split">): readonly Group[] {
  const names = new Set([...split.map(({ group }) => group), ...upstreams.flatMap(({ group }) => group ?? [])]);
  if (names.size === 0) return [];
  const groupOf = (name: string | null): Group => {
    const rules = split.filter(({ group }) => group === name).map(shareText);
    return {
      group: name,
      upstreams: upstreams.filter(({ group = null }) => group === name),
      rules,
      rest: split.length === 0 ? "its share by weight" : "the rest, by weight",
    };
  };
  const groups = [...names].map(groupOf);
  return upstreams.some(({ group }) => group === undefined) ? [...groups, groupOf(null)] : groups;
}

/** A share of a service's traffic, 0 to 1: measured, or without traffic as the gateway plans it. */
export interface Share {
  readonly share: number;
  readonly how: "measured" | "planned";
}

/** By id. With `states` null nothing is known without traffic. */
export function sharesOf(
  upstreams: readonly Pick<UpstreamConfig, "id">[],
  states: readonly Pick<UpstreamHealth, "id" | "share">[] | null,
  rateOf: (id: string) => number,
): ReadonlyMap<string, Share> {
  const rates = upstreams.map(({ id }) => rateOf(id));
  const rate = rates.reduce((a, b) => a + b, 0);
  if (rate > 0) return new Map(upstreams.map(({ id }, i) => [id, { share: rates[i]! / rate, how: "measured" }]));
  return new Map((states ?? []).map(({ id, share }) => [id, { share, how: "planned" }]));
}
