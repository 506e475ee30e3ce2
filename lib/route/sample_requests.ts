/**
 * Finds requests for one of the routes that share a pattern: a method, headers and a query with which the route table
 * selects it.
 */
import { METHODS } from "node:http";
import type { Condition, Scheme } from "../http/condition_types.ts";
import type { HeaderList } from "../http/headers.ts";
import type { PlacedCondition, SampleStates } from "./contracts.ts";
import { contenders, methodsOf, routeFor, type TableRoute } from "./table.ts";

export interface SampleRequest {
  readonly method: string;
  readonly host: string;
  /** Without a query. */
  readonly path: string;
  /** "", or with "?". */
  readonly query: string;
  readonly headers: HeaderList;
  readonly scheme: Scheme;
}

export type Choice = Pick<SampleRequest, "method" | "query" | "headers" | "scheme">;

/** Field by field: many are kept, and after `...choice` Node 20 gives each of them a hidden class of its own. */
export function requestFor({ method, query, headers, scheme }: Choice, host: string, path: string): SampleRequest {
  return { method, host, path, query, headers, scheme };
}

export const COMMON_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** A route and all routes of its pattern. */
interface Asked<T> {
  readonly route: TableRoute<T>;
  readonly routes: readonly TableRoute<T>[];
}

/**
 * A choice with which the route of a pattern gets the request; null if the others take all that it could get. `routes`
 * are all routes of the pattern. Where patterns of values overlap, that cannot always be told: then it may be one that
 * another route takes. CONNECT is served to nobody.
 */
export function choiceFor<T>(
  route: TableRoute<T>,
  routes: readonly TableRoute<T>[],
  methods = methodsFor(route, routes),
): Choice | null {
  return choiceOfAll([{ route, routes }], methods);
}

/** The same for two routes, each of which gets the request from the routes of its own pattern in its own table. */
export function sharedChoice<T>(a: Asked<T>, b: Asked<T>): Choice | null {
  const all = [...a.routes, ...b.routes];
  return choiceOfAll([a, b], new Set([...methodsFor(a.route, all), ...methodsFor(b.route, all)]));
}

function choiceOfAll<T>(asked: readonly Asked<T>[], methods: Iterable<string>): Choice | null {
  for (const method of methods) {
    const rivals = asked.map(({ routes }) => contenders(routes, method));
    if (!asked.every(({ route }, i) => rivals[i]!.includes(route))) continue;
    const isPlain = asked.every(({ route }, i) => rivals[i]!.length === 1 && route.holds === null);
    const found = isPlain ? NO_CONDITIONS : conditionsFor(asked, method, rivals.flat());
    if (found !== null) return { method, ...found };
  }
  return null;
}

/** One of these methods is a choice's if there is a choice at all. */
export function methodsFor<T>(route: TableRoute<T>, routes: readonly TableRoute<T>[]): readonly string[] {
  const named = route.methods.filter((each) => each !== "CONNECT");
  if (route.methods.length > 0) return [...COMMON_METHODS, ...named];
  // Servers refuse all other methods.
  const taken = new Set(methodsOf(routes));
  return [...COMMON_METHODS, ...METHODS.filter((each) => each !== "CONNECT" && !taken.has(each)).slice(0, 1)];
}

/** Headers, query and scheme that fulfil the conditions of a route, whatever other routes do. */
export function fulfilling(conditions: readonly PlacedCondition[]): Omit<Choice, "method"> {
  return written(conditions.map((each) => ({ ...each, values: each.statesAgainst([], [each.wanted]).states[0]! })));
}

const NO_CONDITIONS = { headers: [], query: "", scheme: "http" } as const;

/** How many requests are tried for one route and method. */
const MAX_TRIED = 1024;

function conditionsFor<T>(
  asked: readonly Asked<T>[],
  method: string,
  rivals: readonly TableRoute<T>[],
): Omit<Choice, "method"> | null {
  const routes = asked.map(({ route }) => route);
  const wanted = namesOf(routes);
  const isTaken = ({ headers, query, scheme }: Omit<Choice, "method">) =>
    asked.every(({ route, routes }) => routeFor(routes, method, headers, query, scheme) === route);
  const own = Array.from(wanted.values(), ({ place, conditions }) => {
    const [values] = place.statesAgainst([], conditions).states;
    return values && { ...place, values };
  });
  if (own.includes(undefined)) return null;
  // Mostly that is enough. What a thousand rivals want costs more to look at.
  const simplest = written(own.flatMap((each) => each ?? []));
  if (isTaken(simplest)) return simplest;
  const others = namesOf(rivals.filter((each) => !routes.includes(each)));
  const names: Sampled[] = [];
  for (const [key, { place, conditions }] of new Map([...others, ...wanted])) {
    const found = place.statesAgainst(others.get(key)?.conditions ?? [], wanted.has(key) ? conditions : []);
    if (found.states.length === 0) return null;
    names.push({ ...place, ...found });
  }
  const count = names.reduce((product, { states }) => Math.min(product * states.length, MAX_TRIED + 1), 1);
  for (let n = 0; n < Math.min(count, MAX_TRIED); n++) {
    const found = written(combination(names, n));
    if (isTaken(found)) return found;
  }
  if (count <= MAX_TRIED && names.every(({ isComplete }) => isComplete)) return null;
  return simplest;
}

/** A name of conditions, and what it may have. */
type Sampled = PlacedCondition & SampleStates;

/** The `n`th choice of a state for each name. */
function combination(names: readonly Sampled[], n: number): readonly Values[] {
  let left = n;
  return names.map(({ place, name, states }) => {
    const values = states[left % states.length]!;
    left = Math.floor(left / states.length);
    return { place, name, values };
  });
}

/** All conditions of routes on each name, and the first of them, by their keys. */
function namesOf<T>(
  routes: readonly TableRoute<T>[],
): ReadonlyMap<string, { readonly place: PlacedCondition; readonly conditions: readonly Condition[] }> {
  const names = new Map<string, { readonly place: PlacedCondition; readonly conditions: Condition[] }>();
  for (const { conditions } of routes) {
    for (const place of conditions) {
      const known = names.get(place.key);
      if (known === undefined) names.set(place.key, { place, conditions: [place.wanted] });
      else known.conditions.push(place.wanted);
    }
  }
  return names;
}

interface Values extends Pick<PlacedCondition, "place" | "name"> {
  /** None: the name is absent. */
  readonly values: readonly string[];
}

/** Values as a request has them. */
function written(names: readonly Values[]): Omit<Choice, "method"> {
  const at = (wanted: PlacedCondition["place"]) =>
    names.flatMap(({ place, name, values }) => (place === wanted ? values.map((value) => [name, value] as const) : []));
  const cookies = at("cookies").map(([name, value]) => `${name}=${value}`);
  const parameters = at("query").map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return {
    headers: [...at("headers").flat(), ...(cookies.length === 0 ? [] : ["cookie", cookies.join("; ")])],
    query: parameters.length === 0 ? "" : `?${parameters.join("&")}`,
    scheme: at("scheme").length === 0 ? "http" : "https",
  };
}

/** The text, or with a number behind it, that is not used. */
export function unused(text: string, used: ReadonlySet<string>): string {
  for (let i = 1, found = text; ; found = text + ++i) if (!used.has(found)) return found;
}
