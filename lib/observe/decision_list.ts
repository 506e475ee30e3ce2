/**
 * Lists remembered decisions, the newest first, and counts those that fit a filter by their members and over time. One
 * list looks at a bounded number of them, in slices; the next goes on behind it.
 */
import { firstsOf } from "../base/firsts.ts";
import { copied, decisionOf, remembered, slotWithId, type RequestDecision } from "./decision_reader.ts";
import { idText, type DecisionRing } from "./decisions.ts";
import type { Metrics } from "./metrics_plan.ts";
import { fieldTests, statusClass, type FilteredFacts, type RequestFilter } from "./request_filter.ts";

/** Decisions that one list looks at: with the default of `global.decisions` all, in some 30 ms. */
export const MAX_LOOKED = 10_000;
/**
 * Requests before the time that is asked for, behind which none of it is looked for: workers end theirs in any order.
 */
const MAX_OLDER = 1_000;
/** Values of a facet, the most frequent; the others are counted together. */
const MAX_VALUES = 20;
const MAX_BARS = 60;
/** Of a bar of the histogram, in seconds. */
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400] as const;
const FACETS = ["status", "code", "service", "route", "upstream", "caller", "client", "method", "by"] as const;

type Facet = (typeof FACETS)[number];

export interface ListQuestion {
  readonly filter: RequestFilter;
  /** When they ended, in milliseconds since 1970: `until` itself is excluded. */
  readonly since: number;
  readonly until: number;
  /** An id, or the `before` of a list; null: from the newest. */
  readonly before: string | null;
  /** Decisions of the list. */
  readonly limit: number;
}

export interface DecisionList {
  /** Those that fit, the newest first. */
  readonly requests: readonly RequestDecision[];
  /** How many decisions were looked at, and how many of them fit. */
  readonly looked: number;
  readonly matching: number;
  /** When the oldest of those that were looked at ended (RFC 3339); null: there was none. */
  readonly since: string | null;
  /** Where to go on; null: nothing else is remembered. */
  readonly before: string | null;
  /** Of those that fit all that is asked of their other members. `status` is by class. */
  readonly facets: Readonly<Record<Facet, FacetCounts>>;
  readonly histogram: DecisionHistogram;
}

export interface FacetCounts {
  readonly values: readonly { readonly value: string; readonly count: number }[];
  /** Requests with values that are not among them. */
  readonly others: number;
}

/** Of those that fit. Bars without any are left out. */
export interface DecisionHistogram {
  readonly step_s: number;
  readonly bars: readonly { readonly at: string; readonly count: number; readonly status: Record<string, number> }[];
}

/** Null: none with the id of `before` is remembered. `each` gets those that fit. */
export async function listDecisions(
  metrics: Pick<Metrics, "decisions" | "inForce">,
  { filter, since, until, before, limit }: ListQuestion,
  each?: (decision: RequestDecision) => void,
): Promise<DecisionList | null> {
  const known = await remembered(metrics);
  const tally = new Tally(filter);
  if (known === null) return before === null ? tally.listOf([], null) : null;
  const { ring, names, slice } = known;
  const newest = ring.last;
  const first = before === null ? 0 : await ageBehind(ring, newest, before);
  if (first === null) return null;
  const listed: RequestDecision[] = [];
  let afterListed: string | null = null;
  let afterLooked: string | null = null;
  let age = first;
  let older = 0;
  for (; age < ring.count && tally.looked < MAX_LOOKED && older < MAX_OLDER; age++) {
    const next = slice();
    if (next !== undefined) await next;
    const number = ring.before(newest, age);
    const endedAt = ring.timeOf(number);
    if (endedAt < since) older++;
    if (endedAt < since || endedAt >= until) continue;
    const slot = copied(ring, number);
    if (slot === null) continue;
    const decision = decisionOf(slot, null, names);
    afterLooked = `${decision.id}~${number}`;
    if (!tally.add(decision)) continue;
    each?.(decision);
    if (listed.length === limit) continue;
    listed.push(decision);
    afterListed = afterLooked;
  }
  if (tally.matching > listed.length) return tally.listOf(listed, afterListed);
  return tally.listOf(listed, age < ring.count && older < MAX_OLDER ? afterLooked : null);
}

/** How many are newer than the first behind that of `before`; null: it is not remembered. */
async function ageBehind(ring: DecisionRing, newest: number, before: string): Promise<number | null> {
  const [id = "", place = ""] = before.split("~", 2);
  // An id may have been used twice: the number says which of them.
  const number = Number(place);
  if (/^\d{1,10}$/.test(place) && number >= 1 && number <= ring.lap) {
    const slot = copied(ring, number);
    const age = (newest - number + ring.lap) % ring.lap;
    if (slot !== null && age < ring.count && decisionOf(slot, null, new Map()).id === idText(id)) return age + 1;
  }
  const found = await slotWithId(ring, id, newest);
  return found && found.age + 1;
}

/** Counts what a list looks at. */
class Tally {
  looked = 0;
  matching = 0;
  readonly #tests: ReturnType<typeof fieldTests>;
  readonly #counts = FACETS.map(() => new Map<string, number>());
  /** Of those that fit. */
  readonly #ends: { readonly at: number; readonly status: string }[] = [];
  #oldest = Infinity;
  #newest = -Infinity;

  constructor(filter: RequestFilter) {
    this.#tests = fieldTests(filter);
  }

  /** Whether it fits. */
  add(decision: RequestDecision): boolean {
    this.looked++;
    const at = Date.parse(decision.time);
    this.#oldest = Math.min(this.#oldest, at);
    this.#newest = Math.max(this.#newest, at);
    const facts: FilteredFacts = { ...decision, upstreams: decision.tries.map(({ upstream }) => upstream) };
    const failed = this.#tests.filter(([, fits]) => !fits(facts)).map(([field]) => field);
    if (failed.length > 1) return false;
    for (const [i, facet] of FACETS.entries()) {
      // What fits but for this member is counted: one sees what another choice would give.
      if (failed.length === 0 || failed[0] === facet) count(this.#counts[i]!, valuesOf(facts, facet));
    }
    if (failed.length > 0) return false;
    this.matching++;
    this.#ends.push({ at, status: statusClass(decision.status) });
    return true;
  }

  listOf(requests: readonly RequestDecision[], before: string | null): DecisionList {
    const facets = Object.fromEntries(FACETS.map((facet, i) => [facet, mostFrequent(this.#counts[i]!)]));
    return {
      requests,
      looked: this.looked,
      matching: this.matching,
      since: this.looked === 0 ? null : new Date(this.#oldest).toISOString(),
      before,
      facets: facets as DecisionList["facets"],
      histogram: this.#histogram(),
    };
  }

  #histogram(): DecisionHistogram {
    const lengthS = Math.max(0, this.#newest - this.#oldest) / 1000;
    const stepS = STEPS_S.find((step) => lengthS / step < MAX_BARS) ?? Math.ceil(lengthS / MAX_BARS);
    const bars = new Map<number, Record<string, number>>();
    for (const { at, status } of this.#ends) {
      const begin = Math.floor(at / 1000 / stepS) * stepS;
      const bar = bars.get(begin) ?? {};
      bar[status] = (bar[status] ?? 0) + 1;
      bars.set(begin, bar);
    }
    const inOrder = Array.from(bars).sort(([a], [b]) => a - b);
    return {
      step_s: stepS,
      bars: inOrder.map(([begin, status]) => ({
        at: new Date(begin * 1000).toISOString(),
        count: Object.values(status).reduce((sum, each) => sum + each),
        status,
      })),
    };
  }
}

function valuesOf(facts: FilteredFacts, facet: Facet): readonly (string | null)[] {
  if (facet === "upstream") return facts.upstreams.length > 1 ? [...new Set(facts.upstreams)] : facts.upstreams;
  return [facet === "status" ? statusClass(facts.status) : facts[facet]];
}

function count(counts: Map<string, number>, values: readonly (string | null)[]): void {
  for (const value of values) if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
}

function mostFrequent(counts: ReadonlyMap<string, number>): FacetCounts {
  const most = firstsOf(counts, MAX_VALUES, ([a, ofA], [b, ofB]) => ofB - ofA || (a < b ? -1 : 1));
  const values = most.map(([value, count]) => ({ value, count }));
  const sumOf = (each: Iterable<number>) => Array.from(each).reduce((sum, count) => sum + count, 0);
  return { values, others: sumOf(counts.values()) - sumOf(values.map(({ count }) => count)) };
}
