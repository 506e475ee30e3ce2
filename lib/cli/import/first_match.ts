/**
 * Turns rules of which the first that fits gets a request into routes, of which the most specific pattern gets it, and
 * among its routes the one with the most conditions.
 *
 * A rule for `/` is repeated at `/a` if the rules there do not take every request: `/a` never leaves one to `/`. Where
 * a rule comes before one with more conditions, it gets a further route for requests that fulfil both; where it comes
 * before one with as many, it is divided by a name of that one: a route for requests with it, a route for those
 * without.
 */
import type { Condition, PlainCondition, Scheme } from "../../http/condition_types.ts";
import { isNegated } from "../../http/conditions.ts";
import { canMeet, placedConditions } from "../../route/conditions.ts";
import type { PlacedCondition } from "../../route/contracts.ts";
import { oneOfTexts } from "./kong_conditions.ts";
import { ALL_METHODS, coveringNames } from "./prefixes.ts";

export interface OrderedRule<T> {
  /** In lower case; "*.example.com"; "": all hosts. */
  readonly host: string;
  /** Texts and placeholders such as "{id}". */
  readonly segments: readonly string[];
  /** Whether all paths below match, too. */
  readonly isPrefix: boolean;
  /** Whether its placeholders accept more than the source does: then it stands for its own pattern alone. */
  readonly isWider: boolean;
  /** Undefined: both. */
  readonly scheme: Scheme | undefined;
  /** Null: all. */
  readonly methods: readonly string[] | null;
  readonly wanted: readonly PlacedCondition[];
  readonly target: T;
}

export interface PatternPoint {
  readonly host: string;
  readonly segments: readonly string[];
  /** Whether it is everything below the segments, without them. */
  readonly isRest: boolean;
}

/** A route for a rule. */
export interface PlacedRule<T> extends PatternPoint {
  readonly rule: OrderedRule<T>;
  readonly methods: readonly string[] | null;
  readonly wanted: readonly PlacedCondition[];
  /** The rules here cannot be told apart by so few routes: nobody may pass. */
  readonly isLost: boolean;
}

/** Most routes that the rules of one pattern become. */
export const MAX_EXPANDED = 64;
/** Most pieces of a rule that are looked at. */
const MAX_STEPS = 4096;

/** `rules`: those of one host and path in the order in which they are asked. */
export function* firstMatch<T>(rules: readonly OrderedRule<T>[]): Generator<PlacedRule<T>> {
  const hosts = new Map<string, HostRules<T>>();
  const numbers = new Map(rules.map((rule, i) => [rule, i]));
  for (const rule of rules) {
    if (!hosts.has(rule.host)) hosts.set(rule.host, new HostRules());
    hosts.get(rule.host)!.add(rule);
  }
  for (const [host, own] of hosts) {
    const chain = [...new Set(coveringNames(host))].flatMap((name) => hosts.get(name) ?? []);
    const made = new Map<string, string>();
    for (const point of [...pointsOf(host, chain)].sort((a, b) => a.segments.length - b.segments.length)) {
      const ways = waysOf(candidatesAt(chain, point));
      const text = JSON.stringify(ways.map(({ scheme, list }) => [scheme, list.map(([rule]) => numbers.get(rule))]));
      if (!own.has(point) && isNeedless(point, made, text)) continue;
      made.set(keyOf(point), text);
      for (const way of ways) yield* placed(point, way);
    }
  }
}

type Reached<T> = readonly [rule: OrderedRule<T>, methods: readonly string[] | null];

/** The rules that requests of a scheme reach, in their order. */
interface Way<T> {
  readonly scheme: Scheme | undefined;
  readonly list: readonly Reached<T>[];
}

class HostRules<T> {
  readonly #byPath = new Map<string, OrderedRule<T>[]>();
  readonly #withPlaceholders: OrderedRule<T>[] = [];
  readonly all: OrderedRule<T>[] = [];

  add(rule: OrderedRule<T>): void {
    this.all.push(rule);
    if (hasPlaceholder(rule)) this.#withPlaceholders.push(rule);
    const key = keyOf({ ...rule, isRest: rule.isPrefix });
    this.#byPath.set(key, [...(this.#byPath.get(key) ?? []), rule]);
  }

  /** Whether a rule of this host ends there. */
  has({ segments, isRest }: PatternPoint): boolean {
    return [true, isRest].some((each) => this.#byPath.has(keyOf({ segments, isRest: each })));
  }

  at({ segments, isRest }: PatternPoint): OrderedRule<T>[] {
    const exact = isRest ? [] : (this.#byPath.get(keyOf({ segments, isRest })) ?? []);
    const prefixes = segments.concat("").flatMap((_, i) => {
      const before = segments.slice(0, segments.length - i);
      return this.#byPath.get(keyOf({ segments: before, isRest: true })) ?? [];
    });
    const others = this.#withPlaceholders.filter((rule) => coversPoint(rule, segments, isRest));
    return [...new Set([...exact, ...prefixes, ...others])].sort(byPath);
  }
}

function hasPlaceholder({ segments }: { readonly segments: readonly string[] }): boolean {
  return segments.some((segment) => segment.startsWith("{"));
}

/** Placeholders at one place are equal, whatever their names are. */
function keyOf({ segments, isRest }: Pick<PatternPoint, "segments" | "isRest">): string {
  return `${segments.map((segment) => (segment.startsWith("{") ? "{" : segment)).join("/")} ${isRest}`;
}

function coversPoint<T>(rule: OrderedRule<T>, segments: readonly string[], isRest: boolean): boolean {
  const { segments: own, isPrefix, isWider } = rule;
  if (isPrefix ? own.length > segments.length : isRest || own.length !== segments.length) return false;
  return own.every((segment, i) => {
    const other = segments[i]!;
    return segment === other || (segment.startsWith("{") && (!isWider || other.startsWith("{")));
  });
}

/** An exact path before a prefix, a text before a placeholder, a longer path before a shorter one. */
function byPath<T>(a: OrderedRule<T>, b: OrderedRule<T>): number {
  if (a.isPrefix !== b.isPrefix) return Number(a.isPrefix) - Number(b.isPrefix);
  const at = a.segments.findIndex(
    (segment, i) => segment.startsWith("{") !== (b.segments[i] ?? segment).startsWith("{"),
  );
  return at < 0 ? b.segments.length - a.segments.length : a.segments[at]!.startsWith("{") ? 1 : -1;
}

/** Where routes are needed: at each path of the rules, and where two patterns cross. */
function pointsOf<T>(host: string, [own, ...others]: readonly HostRules<T>[]): Iterable<PatternPoint> {
  const points = new Map<string, PatternPoint>();
  const add = (segments: readonly string[], isRest: boolean) =>
    points.set(keyOf({ segments, isRest }), { host, segments, isRest });
  // Requests that a host does not take by its own patterns go on to the next host anyway.
  const wide = own!.all.filter(({ isPrefix }) => isPrefix);
  const isPlain = ({ methods, wanted, scheme }: OrderedRule<T>) => !methods && wanted.length === 0 && !scheme;
  const needed = others
    .flatMap(({ all }) => all)
    .filter(({ segments, isPrefix }) => {
      const before = wide.filter((rule) => coversPoint(rule, segments, isPrefix));
      return before.length > 0 && !before.some(isPlain);
    });
  const all = [...own!.all, ...needed];
  for (const { segments, isPrefix } of all) {
    add(segments, false);
    if (isPrefix) add(segments, true);
  }
  const patterns = all.filter((rule) => hasPlaceholder(rule) && !rule.isWider && !rule.isPrefix).slice(0, 100);
  for (const one of patterns) {
    for (const other of patterns) {
      if (one.segments.length !== other.segments.length) continue;
      const both = one.segments.map((segment, i) => (segment.startsWith("{") ? other.segments[i]! : segment));
      if (both.every((segment, i) => segment === other.segments[i] || other.segments[i]!.startsWith("{")))
        add(both, false);
    }
  }
  return points.values();
}

function candidatesAt<T>(chain: readonly HostRules<T>[], point: PatternPoint): OrderedRule<T>[] {
  return chain.flatMap((rules) => rules.at(point));
}

/** Whether requests get the same rules without a route for this point. `made` has those of the host. */
function isNeedless({ segments }: PatternPoint, made: ReadonlyMap<string, string>, rules: string): boolean {
  for (let length = segments.length - 1; length >= 0; length--) {
    const shorter = made.get(keyOf({ segments: segments.slice(0, length), isRest: true }));
    if (shorter !== undefined) return shorter === rules;
  }
  return true;
}

/** One for both schemes if no rule is for one of them. */
function waysOf<T>(candidates: readonly OrderedRule<T>[]): Way<T>[] {
  const schemes = ["http", "https"] as const;
  const ways = schemes.map((scheme) => ({
    scheme,
    list: reached(candidates.filter((rule) => rule.scheme === undefined || rule.scheme === scheme)),
  }));
  const isOne = ways.every(({ list }) => list.every(([rule]) => rule.scheme === undefined));
  return isOne ? [{ scheme: undefined, list: ways[0]!.list }] : ways;
}

/** Without the requests that earlier ones take: all of those that fulfil no more conditions. */
function reached<T>(candidates: readonly OrderedRule<T>[]): Reached<T>[] {
  const list: Reached<T>[] = [];
  for (const rule of candidates) {
    let methods = rule.methods;
    const earlier = list.filter(([each]) => implies(rule.wanted, each.wanted)).map(([, taken]) => taken);
    if (earlier.includes(null)) continue;
    const taken = new Set(earlier.flatMap((each) => each ?? []));
    if (taken.size > 0) methods = (methods ?? ALL_METHODS).filter((method) => !taken.has(method));
    if (methods?.length !== 0) list.push([rule, methods]);
  }
  return list;
}

interface Variant<T> {
  readonly rule: OrderedRule<T>;
  readonly wanted: readonly PlacedCondition[];
  readonly methods: readonly string[] | null;
}

function* placed<T>(point: PatternPoint, { scheme, list }: Way<T>): Generator<PlacedRule<T>> {
  if (list.length === 0) return;
  const own = scheme === undefined ? [] : placedConditions({ headers: {}, query: {}, cookies: {}, scheme });
  const variants = separated(list);
  if (variants === null) {
    const [rule] = list[0]!;
    return yield { ...point, rule, methods: null, wanted: own, isLost: true };
  }
  for (const variant of variants) yield { ...point, ...variant, wanted: [...variant.wanted, ...own], isLost: false };
}

/**
 * Routes of which the one with the most conditions is for the first rule that fits. A rule that would be asked before
 * an earlier one, or at once, gets only requests that do not fulfil the earlier one. Null: too many.
 */
function separated<T>(list: readonly Reached<T>[]): Variant<T>[] | null {
  const made: Variant<T>[] = [];
  for (const [rule, methods] of list) {
    const waiting: Variant<T>[] = [{ rule, methods, wanted: rule.wanted }];
    let steps = 0;
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const { wanted } = next;
      const isBehind = (each: Variant<T>) => each.rule !== rule && each.wanted.length <= wanted.length;
      const earlier = made.find((each) => isBehind(each) && shareMethod(each, next!) && canMeet(each.wanted, wanted));
      if (made.length + waiting.length >= MAX_EXPANDED || ++steps > MAX_STEPS) return null;
      if (earlier === undefined) made.push(next);
      else {
        const pieces = remaining(next, earlier);
        if (pieces === null) return null;
        waiting.push(...pieces);
      }
    }
  }
  return made;
}

/** The requests of the first that are not for the second. Null: two conditions of one name would be needed. */
function remaining<T>(next: Variant<T>, earlier: Variant<T>): Variant<T>[] | null {
  const pieces: Variant<T>[] = [];
  let wanted = next.wanted;
  for (const condition of earlier.wanted) {
    const without = both(wanted, { ...condition, wanted: negated(condition.wanted) });
    const within = both(wanted, condition);
    if (without === null || within === null) return null;
    if (without.length > 0) pieces.push({ ...next, wanted: without });
    wanted = within;
  }
  // Of other methods they all are.
  const left =
    earlier.methods === null ? [] : (next.methods ?? ALL_METHODS).filter((each) => !earlier.methods!.includes(each));
  const shared = (next.methods ?? ALL_METHODS).filter((each) => !left.includes(each));
  const own = left.length === 0 ? [] : [{ ...next, methods: left }];
  return [...own, ...pieces.map((piece) => (left.length === 0 ? piece : { ...piece, methods: shared }))];
}

function shareMethod<T>({ methods: one }: Variant<T>, { methods: other }: Variant<T>): boolean {
  return one === null || other === null || one.some((method) => other.includes(method));
}

/** Whether a request that fulfils the first conditions, and can fulfil both, fulfils the second. */
function implies(one: readonly PlacedCondition[], other: readonly PlacedCondition[]): boolean {
  return other.every((more) =>
    one.some(
      (own) =>
        own.key === more.key &&
        (JSON.stringify(own.wanted) === JSON.stringify(more.wanted) ||
          !canMeet([own], [{ ...more, wanted: negated(more.wanted) }])),
    ),
  );
}

function negated(wanted: Condition): Condition {
  return isNegated(wanted) ? wanted.not : { not: wanted };
}

/** The conditions and one more: none if no request fulfils both, null if they cannot be said. */
function both(list: readonly PlacedCondition[], more: PlacedCondition): readonly PlacedCondition[] | null {
  const own = list.find(({ key }) => key === more.key);
  if (own === undefined) return [...list, more];
  if (implies([own], [more])) return list;
  if (!canMeet([own], [more])) return [];
  const [one, other] = [textsOf(own.wanted), textsOf(more.wanted)];
  if (one === null || other === null) return null;
  const wanted = common(one, other);
  if (wanted === undefined) return [];
  return list.map((each) => (each === own ? { ...own, wanted } : each));
}

/** Values that are listed, or all but these. */
interface Texts {
  readonly texts: readonly string[];
  readonly isNot: boolean;
}

/** Null: of a pattern. */
function textsOf(wanted: Condition): Texts | null {
  const isNot = isNegated(wanted);
  const plain = isNot ? wanted.not : wanted;
  if (typeof plain === "string") return { texts: [plain], isNot };
  const texts = LISTS.get(Object(plain));
  return texts === undefined ? null : { texts, isNot };
}

/** The texts of the patterns that this file makes. */
const LISTS = new WeakMap<object, readonly string[]>();

/** Undefined: no value is both. */
function common(one: Texts, other: Texts): Condition | undefined {
  if (one.isNot && other.isNot) return { not: listed([...new Set([...one.texts, ...other.texts])]) };
  const [few, rest] = one.isNot ? [other, one] : [one, other];
  const texts = few.texts.filter((text) => rest.texts.includes(text) !== rest.isNot);
  return texts.length === 0 ? undefined : listed(texts);
}

function listed(texts: readonly string[]): PlainCondition {
  if (texts.length === 1) return texts[0]!;
  const made = oneOfTexts(texts);
  LISTS.set(made, texts);
  return made;
}
