/**
 * Divides the requests of a service among groups of its upstreams: by the hash of the caller, or by a draw for each
 * request.
 */
import { mix, textHash } from "../base/mix.ts";
import type { Service } from "../config/model.ts";
import type { Holds } from "../http/condition_types.ts";
import { compileConditions } from "../http/conditions.ts";
import type { Exchange } from "../http/exchange.ts";
import type { HashKey } from "./hash.ts";
import type { Picker } from "./attempts.ts";
import type { MakePicker, RequestSplit, SplitDestination } from "./balancing.ts";
import type { UpstreamPlan, Peer } from "./upstream_set.ts";
import { healthyOf, servingOf, usableOf } from "./usable.ts";

export { fields } from "../config/split.ts";

/** One entry of `split`. */
export interface Share {
  readonly group: string;
  /** 0–100, with at most two decimals. */
  readonly percent: number;
  /** A caller is always on the same side: its key decides. Null, or a request without a key: each request is drawn. */
  readonly hash: HashKey | null;
  /**
   * Whether a request is among those that the share divides. Null: the share divides all requests that no share with a
   * `match` takes.
   */
  readonly match: Holds | null;
}

export interface SplitOptions {
  /** In their configured order. Those without `match` have the same `hash` and are at most 100 % together. */
  readonly shares: readonly Share[];
  /** All upstreams of the service. */
  readonly plans: readonly Pick<UpstreamPlan, "peer" | "group" | "rank">[];
  /** Makes a picker for these upstreams, see `UpstreamSet`. */
  readonly picker: MakePicker;
  /** Numbers from 0 to below 1. Default `Math.random`. */
  readonly random?: () => number;
}

interface Group {
  readonly peers: readonly Peer[];
  readonly picker: Picker;
}

/** `hashKey`: that of `hash.ts`, which is loaded for services that hash. */
export function splitPicker(
  split: NonNullable<Service["split"]>,
  options: Omit<SplitOptions, "shares">,
  hashKey: (hashOn: string) => HashKey,
): SplitPicker {
  const shares = split.map(({ group, percent, hashOn, match }) => {
    return {
      group,
      percent,
      hash: hashOn === undefined ? null : hashKey(hashOn),
      match: match === undefined ? null : compileConditions(match),
    };
  });
  return new SplitPicker({ ...options, shares });
}

/** Chooses a group by the shares, and an upstream within it. */
export class SplitPicker implements RequestSplit {
  readonly #divisions: readonly Division[];
  readonly #groups = new Map<string, Group>();
  /** Of each upstream. */
  readonly #homes = new Map<Peer, Group>();
  readonly #rest: Group;
  /** All upstreams, for when neither the chosen group nor the rest has a healthy one. */
  readonly #all: Group;
  readonly #hasBackups: boolean;
  readonly #random: () => number;

  constructor({ shares, plans, picker, random = Math.random }: SplitOptions) {
    this.#random = random;
    const matched = shares.filter(({ match }) => match !== null);
    const common = shares.filter(({ match }) => match === null);
    const divisions = matched.map((share, i) => {
      const before = matched.slice(0, i).filter(({ group }) => group === share.group).length;
      return new Division([{ ...share, hash: share.hash && independentHash(share.hash, `${share.group} ${before}`) }]);
    });
    this.#divisions = common.length === 0 ? divisions : [...divisions, new Division(common)];
    const groupOf = (list: SplitOptions["plans"], choosable = healthyOf): Group => {
      const peers = list.map(({ peer }) => peer);
      return { peers, picker: picker(peers, choosable) };
    };
    this.#all = groupOf(plans, usableOf);
    const primaries = plans.filter(({ rank = 0 }) => rank === 0);
    this.#hasBackups = primaries.length < plans.length;
    this.#rest = groupOf(restOf(primaries, shares));
    // Of those of shares, too, that have no upstream now: an SRV record without targets.
    for (const group of new Set([...plans, ...shares].map((each) => each.group)))
      if (group !== undefined) this.#groups.set(group, groupOf(primaries.filter((each) => each.group === group)));
    for (const { peer, group, rank = 0 } of plans)
      this.#homes.set(peer, group === undefined || rank > 0 ? this.#rest : this.#groups.get(group)!);
  }

  /**
   * A retry stays in the group of the first try while that has other upstreams, and goes to the rest then; where there
   * are backups, to those of other groups behind that, and to backups last.
   */
  pick(exchange: Exchange, tried: readonly Peer[]): Peer | null {
    const group = tried.length === 0 ? this.#choose(exchange) : this.#homes.get(tried[0]!)!;
    const peer = group.picker.pick(exchange, tried) ?? this.#rest.picker.pick(exchange, tried);
    return peer === null && (tried.length === 0 || this.#hasBackups) ? this.#all.picker.pick(exchange, tried) : peer;
  }

  /** Healthy or not. */
  get rest(): readonly Peer[] {
    return this.#rest.peers;
  }

  /** Where such requests go as things stand. Null: requests that fit no `match`, of any callers. */
  destinations(exchange: Exchange | null): readonly SplitDestination[] {
    const found: SplitDestination[] = [];
    let left = 1;
    for (const division of this.#divisions) {
      if (!division.isFor(exchange)) continue;
      const parts = division.parts(exchange);
      for (const { group, part } of parts)
        if (group !== null) found.push({ peers: this.#healthy(this.#groups.get(group)!), share: left * part });
      left *= parts.at(-1)!.part;
    }
    return [...found, { peers: this.#healthy(this.#rest), share: left }].filter(({ share }) => share > 0);
  }

  #choose(exchange: Exchange): Group {
    for (const division of this.#divisions) {
      const group = division.isFor(exchange) ? division.next(exchange, this.#random) : null;
      if (group !== null) return this.#groups.get(group)!;
    }
    return this.#rest;
  }

  #healthy({ peers }: Group): readonly Peer[] {
    const [own, rest] = [healthyOf(peers), healthyOf(this.#rest.peers)];
    if (own.length > 0) return own;
    return rest.length > 0 ? rest : servingOf(usableOf(this.#all.peers));
  }
}

/**
 * A hash that each name turns into another one. With one hash for all, a later share would only see callers outside its
 * places: none of its own.
 */
function independentHash(hash: HashKey, name: string): HashKey {
  const salt = textHash(name);
  return (exchange) => {
    const key = hash(exchange);
    return key === null ? null : mix(key ^ salt);
  };
}

/**
 * The upstreams without a group. If every one has a group: those in groups without a share, and if there are none
 * either, all.
 */
function restOf(plans: SplitOptions["plans"], shares: readonly Share[]): SplitOptions["plans"] {
  const ungrouped = plans.filter(({ group }) => group === undefined);
  const others = plans.filter(({ group }) => !shares.some((share) => share.group === group));
  return ungrouped.length > 0 ? ungrouped : others.length > 0 ? others : plans;
}

/** 100 % in the smallest part that a percentage can have. */
const WHOLE = 10_000;

/** Shares that divide the same requests, and the rest. */
class Division {
  readonly #match: Share["match"];
  readonly #hash: Share["hash"];
  /** Null is the rest. */
  readonly #groups: readonly (string | null)[];
  readonly #sizes: readonly number[];

  constructor(shares: readonly Share[]) {
    const { match, hash } = shares[0]!;
    this.#match = match;
    this.#hash = hash;
    this.#groups = [...shares.map(({ group }) => group), null];
    const sizes = shares.map(({ percent }) => Math.round((percent * WHOLE) / 100));
    this.#sizes = [...sizes, WHOLE - sizes.reduce((sum, size) => sum + size, 0)];
  }

  /** Whether it divides such a request. */
  isFor(exchange: Exchange | null): boolean {
    return (
      this.#match === null || (exchange !== null && this.#match(exchange.headers, exchange.query, exchange.scheme))
    );
  }

  /** The group of a request; null: the rest. `random` is the draw of a request without a key. */
  next(exchange: Exchange, random: () => number): string | null {
    return this.#groups[this.#sideOf(exchange) ?? sideAt(random() * WHOLE, this.#sizes)]!;
  }

  /** How much of such requests each group gets, 0 to 1, and last the rest. */
  parts(exchange: Exchange | null): readonly { readonly group: string | null; readonly part: number }[] {
    const side = exchange === null ? null : this.#sideOf(exchange);
    return this.#groups.map((group, i) => ({
      group,
      part: side === null ? this.#sizes[i]! / WHOLE : side === i ? 1 : 0,
    }));
  }

  #sideOf(exchange: Exchange): number | null {
    const key = this.#hash === null ? null : this.#hash(exchange);
    return key === null ? null : sideAt((key / 0x1_0000_0000) * WHOLE, this.#sizes);
  }
}

/**
 * The share that a place belongs to, by its number. `place` is from 0 to below `WHOLE`; `sizes` are `WHOLE` together,
 * the last is the rest.
 * The first share grows from the start, the second from the end, and further ones from the middle on, through the
 * places that are free: of two shares only the callers whose share has changed change sides.
 */
export function sideAt(place: number, sizes: readonly number[]): number {
  const rest = sizes.length - 1;
  const [from, to] = [sizes[0]!, WHOLE - (rest > 1 ? sizes[1]! : 0)];
  if (place < from) return 0;
  if (place >= to) return 1;
  const middle = from <= WHOLE / 2 && WHOLE / 2 < to ? WHOLE / 2 : from;
  let left = place < middle ? place - middle + to - from : place - middle;
  let share = 2;
  while (share < rest && left >= sizes[share]!) left -= sizes[share++]!;
  return Math.min(share, rest);
}
