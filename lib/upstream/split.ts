/**
 * Divides the requests of a service among groups of its upstreams, by exact percentages.
 */
import { mix, textHash } from "../base/mix.ts";
import type { Holds } from "../http/conditions.ts";
import type { Exchange } from "../http/exchange.ts";
import type { HashKey } from "./hash_key.ts";
import { healthyOf, usableOf, type Member, type Peer, type Picker } from "./upstream_set.ts";

export { fields } from "../config/split.ts";

/** One entry of `split`. */
export interface Share {
  readonly group: string;
  /** 0–100, with at most two decimals. */
  readonly percent: number;
  /** A caller is always on the same side: its key decides. Null, or a request without a key: requests are counted. */
  readonly hash: HashKey | null;
  /** Whether a request is among those that the share divides. Null: the share divides all requests that no share with a `match` takes. */
  readonly match: Holds | null;
}

export interface SplitOptions {
  /** In their configured order. Those without `match` have the same `hash` and are at most 100 % together. */
  readonly shares: readonly Share[];
  /** All upstreams of the service. */
  readonly members: readonly Pick<Member, "peer" | "group">[];
  /** Makes a picker for these upstreams, see `UpstreamSet`. */
  readonly picker: (peers: readonly Peer[], choosable?: (peers: readonly Peer[]) => readonly Peer[]) => Picker;
  /** One word under this name, which all threads share and a reload keeps; zero at first. */
  readonly counter: (name: string) => Int32Array;
}

export const COUNTER_BYTES = Int32Array.BYTES_PER_ELEMENT;

/** Upstreams, and their share of requests: above 0, at most 1. */
export interface SplitDestination {
  readonly peers: readonly Peer[];
  readonly share: number;
}

interface Group {
  readonly peers: readonly Peer[];
  readonly picker: Picker;
}

/** Chooses a group by the shares, and an upstream within it. */
export class SplitPicker implements Picker {
  readonly #divisions: readonly Division[];
  readonly #groups = new Map<string, Group>();
  /** Of each upstream. */
  readonly #homes = new Map<Peer, Group>();
  readonly #rest: Group;
  /** All upstreams, for when neither the chosen group nor the rest has a healthy one. */
  readonly #all: Group;

  constructor({ shares, members, picker, counter }: SplitOptions) {
    const matched = shares.filter(({ match }) => match !== null);
    const common = shares.filter(({ match }) => match === null);
    const divisions = matched.map((share, i) => {
      const before = matched.slice(0, i).filter(({ group }) => group === share.group).length;
      return new Division([{ ...share, hash: share.hash && independentHash(share.hash, `${share.group} ${before}`) }], counter(`match ${i}`));
    });
    this.#divisions = common.length === 0 ? divisions : [...divisions, new Division(common, counter("common"))];
    const groupOf = (list: SplitOptions["members"], choosable = healthyOf): Group => {
      const peers = list.map(({ peer }) => peer);
      return { peers, picker: picker(peers, choosable) };
    };
    this.#all = groupOf(members, usableOf);
    this.#rest = groupOf(restOf(members, shares));
    for (const { peer, group } of members) {
      if (group !== undefined && !this.#groups.has(group)) this.#groups.set(group, groupOf(members.filter((each) => each.group === group)));
      this.#homes.set(peer, group === undefined ? this.#rest : this.#groups.get(group)!);
    }
  }

  /** A retry stays in the group of the first try while that has other upstreams, and goes to the rest then. */
  pick(exchange: Exchange, tried: readonly Peer[]): Peer | null {
    const group = tried.length === 0 ? this.#choose(exchange) : this.#homes.get(tried[0]!)!;
    const peer = group.picker.pick(exchange, tried) ?? this.#rest.picker.pick(exchange, tried);
    return peer === null && tried.length === 0 ? this.#all.picker.pick(exchange, tried) : peer;
  }

  /** Where such requests go as things stand. Null: requests that fit no `match`, of any callers. */
  destinations(exchange: Exchange | null): readonly SplitDestination[] {
    const found: SplitDestination[] = [];
    let left = 1;
    for (const division of this.#divisions) {
      if (!division.isFor(exchange)) continue;
      const parts = division.parts(exchange);
      for (const { group, part } of parts) if (group !== null) found.push({ peers: this.#healthy(this.#groups.get(group)!), share: left * part });
      left *= parts.at(-1)!.part;
    }
    return [...found, { peers: this.#healthy(this.#rest), share: left }].filter(({ share }) => share > 0);
  }

  #choose(exchange: Exchange): Group {
    for (const division of this.#divisions) {
      const group = division.isFor(exchange) ? division.next(exchange) : null;
      if (group !== null) return this.#groups.get(group)!;
    }
    return this.#rest;
  }

  #healthy({ peers }: Group): readonly Peer[] {
    const [own, rest] = [healthyOf(peers), healthyOf(this.#rest.peers)];
    return own.length > 0 ? own : rest.length > 0 ? rest : usableOf(this.#all.peers);
  }
}

/** A hash that each name turns into another one. With one hash for all, a later share would only see callers outside its places: none of its own. */
function independentHash(hash: HashKey, name: string): HashKey {
  const salt = textHash(name);
  return (exchange) => {
    const key = hash(exchange);
    return key === null ? null : mix(key ^ salt);
  };
}

/** The upstreams without a group. If every one has a group: those in groups without a share, and if there are none either, all. */
function restOf(members: SplitOptions["members"], shares: readonly Share[]): SplitOptions["members"] {
  const ungrouped = members.filter(({ group }) => group === undefined);
  const others = members.filter(({ group }) => !shares.some((share) => share.group === group));
  return ungrouped.length > 0 ? ungrouped : others.length > 0 ? others : members;
}

/** 100 % in the smallest part that a percentage can have. */
const WHOLE = 10_000;

/** Shares that divide the same requests, and the rest. */
class Division {
  readonly #match: Share["match"];
  readonly #hash: Share["hash"];
  /** By their numbers in the tables; the last is null: the rest. */
  readonly #groups: readonly (string | null)[];
  readonly #sizes: readonly number[];
  readonly #turns: Uint8Array;
  readonly #sides: Uint8Array;
  readonly #counter: Int32Array;

  constructor(shares: readonly Share[], counter: Int32Array) {
    const { match, hash } = shares[0]!;
    this.#match = match;
    this.#hash = hash;
    this.#groups = [...shares.map(({ group }) => group), null];
    const sizes = shares.map(({ percent }) => Math.round((percent * WHOLE) / 100));
    this.#sizes = [...sizes, WHOLE - sizes.reduce((sum, size) => sum + size, 0)];
    this.#turns = turnsOf(this.#sizes);
    this.#sides = hash === null ? NO_SIDES : sidesOf(this.#sizes);
    this.#counter = counter;
  }

  /** Whether it divides such a request. */
  isFor(exchange: Exchange | null): boolean {
    return this.#match === null || (exchange !== null && this.#match(exchange.headers, exchange.query));
  }

  /** The group of a request; null: the rest. */
  next(exchange: Exchange): string | null {
    const side = this.#sideOf(exchange);
    return this.#groups[side ?? this.#turns[nextOf(this.#counter) % this.#turns.length]!]!;
  }

  /** How much of such requests each group gets, 0 to 1, and last the rest. */
  parts(exchange: Exchange | null): readonly { readonly group: string | null; readonly part: number }[] {
    const side = exchange === null ? null : this.#sideOf(exchange);
    return this.#groups.map((group, i) => ({ group, part: side === null ? this.#sizes[i]! / WHOLE : side === i ? 1 : 0 }));
  }

  #sideOf(exchange: Exchange): number | null {
    const key = this.#hash === null ? null : this.#hash(exchange);
    return key === null ? null : this.#sides[Math.floor((key / 0x1_0000_0000) * WHOLE)]!;
  }
}

const NO_SIDES = new Uint8Array(0);

/**
 * Whose turn it is, as numbers of shares with these sizes, which are `WHOLE` together. Any `length` turns in a row, around the end too, contain
 * each share exactly, spread by smooth weighted rotation. `length` divides 1000 where all percentages have at most one decimal, and else 10,000.
 */
export function turnsOf(sizes: readonly number[]): Uint8Array {
  const turns = new Uint8Array(WHOLE / sizes.reduce(commonDivisor));
  const gained = sizes.map(() => 0);
  for (let place = 0; place < turns.length; place++) {
    let foremost = 0;
    for (let i = 0; i < sizes.length; i++) {
      gained[i]! += sizes[i]!;
      if (gained[i]! > gained[foremost]!) foremost = i;
    }
    gained[foremost]! -= WHOLE;
    turns[place] = foremost;
  }
  return turns;
}

/**
 * The sides of callers, as numbers of shares with these sizes, the rest last. The first share grows from the start, the second from the end, and
 * further ones from the middle on, through the places that are free: of two shares only the callers whose share has changed change sides.
 */
export function sidesOf(sizes: readonly number[]): Uint8Array {
  const rest = sizes.length - 1;
  const sides = new Uint8Array(WHOLE).fill(rest);
  for (let share = 0; share < rest; share++) {
    const step = share === 1 ? -1 : 1;
    let place = share === 0 ? 0 : share === 1 ? WHOLE - 1 : WHOLE / 2;
    for (let left = sizes[share]!; left > 0; place = (place + step + WHOLE) % WHOLE) {
      if (sides[place] !== rest) continue;
      sides[place] = share;
      left--;
    }
  }
  return sides;
}

function commonDivisor(a: number, b: number): number {
  return b === 0 ? a : commonDivisor(b, a % b);
}

/** The counter starts again here: a multiple of the length of every table, so that the turns go on without a seam. */
const ROUND = 2_000_000_000;

/** The number of a request among those of all threads. */
function nextOf(counter: Int32Array): number {
  const number = Atomics.add(counter, 0, 1);
  // Exactly one thread sees this number. Until it has subtracted, the others count on above it.
  if (number === ROUND) Atomics.sub(counter, 0, ROUND);
  return number >>> 0;
}
