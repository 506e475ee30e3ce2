/**
 * Finds requests for one of the routes that share a pattern: a method, headers and a query with which the route table
 * selects it.
 */
import { METHODS } from "node:http";
import type { Condition, Scheme } from "../http/condition_types.ts";
import type { HeaderList } from "../http/headers.ts";
import type { PlacedCondition } from "./contracts.ts";
import { contenders, methodsOf, routeFor, type Route } from "./table.ts";

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

export const COMMON_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** A route and all routes of its pattern. */
interface Asked<T> {
  readonly route: Route<T>;
  readonly routes: readonly Route<T>[];
}

/**
 * A choice with which the route of a pattern gets the request; null if the others take all that it could get. `routes`
 * are all routes of the pattern. Where patterns of values overlap, that cannot always be told: then it may be one that
 * another route takes. CONNECT is served to nobody.
 */
export function choiceFor<T>(
  route: Route<T>,
  routes: readonly Route<T>[],
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
export function methodsFor<T>(route: Route<T>, routes: readonly Route<T>[]): readonly string[] {
  const named = route.methods.filter((each) => each !== "CONNECT");
  if (route.methods.length > 0) return [...COMMON_METHODS, ...named];
  // Servers refuse all other methods.
  const taken = new Set(methodsOf(routes));
  return [...COMMON_METHODS, ...METHODS.filter((each) => each !== "CONNECT" && !taken.has(each)).slice(0, 1)];
}

/** Headers, query and scheme that fulfil the conditions of a route, whatever other routes do. */
export function fulfilling(conditions: readonly PlacedCondition[]): Omit<Choice, "method"> {
  return written(
    conditions.flatMap((each) => (each.wanted === null ? [] : { ...each, ...each.valueAgainst([], [each.wanted])! })),
  );
}

const NO_CONDITIONS = { headers: [], query: "", scheme: "http" } as const;

/** How many values are tried for one route and method. */
const MAX_TRIED = 1024;

function conditionsFor<T>(
  asked: readonly Asked<T>[],
  method: string,
  rivals: readonly Route<T>[],
): Omit<Choice, "method"> | null {
  const routes = asked.map(({ route }) => route);
  const wanted = routes.flatMap(({ conditions }) => conditions);
  const others = rivals.filter((each) => !routes.includes(each)).flatMap(({ conditions }) => conditions);
  const wishes = wishesOf(others);
  const withValue = (each: PlacedCondition, together: readonly Condition[]): Value | null => {
    const found = each.valueAgainst(wishes.get(each.key) ?? [], together);
    return found && { ...each, ...found };
  };
  const own: Value[] = [];
  for (const [key, together] of wishesOf(wanted)) {
    const found = withValue(
      wanted.find((each) => each.key === key)!,
      together,
    );
    if (found === null) return null;
    if (found.wanted !== null) own.push(found);
  }
  // A condition of another route fails without its name, unless it wants the name to be absent.
  const taken = new Set(wanted.map(({ key }) => key));
  const free = new Map(
    others.filter((each) => each.wanted === null && !taken.has(each.key)).map((each) => [each.key, each]),
  );
  const added = [...free.values()].flatMap((each) => withValue(each, []) ?? []);
  const isComplete = [...own, ...added].every(({ isPlain }) => isPlain) && 2 ** added.length <= MAX_TRIED;
  for (let bits = 0; bits < Math.min(2 ** added.length, MAX_TRIED); bits++) {
    const { headers, query, scheme } = written([...own, ...added.filter((_each, i) => ((bits >> i) & 1) === 1)]);
    if (asked.every(({ route, routes }) => routeFor(routes, method, headers, query, scheme) === route))
      return { headers, query, scheme };
  }
  return isComplete ? null : written(own);
}

/** All conditions on each name, by their keys. */
function wishesOf(conditions: readonly PlacedCondition[]): ReadonlyMap<string, readonly Condition[]> {
  const wishes = new Map<string, Condition[]>();
  for (const { key, wanted } of conditions) {
    const list = wishes.get(key);
    if (list === undefined) wishes.set(key, [wanted]);
    else list.push(wanted);
  }
  return wishes;
}

interface Value extends PlacedCondition {
  readonly value: string;
  readonly isPlain: boolean;
}

/** Conditions with values, as a request has them. */
function written(values: readonly Value[]): Omit<Choice, "method"> {
  const at = (place: PlacedCondition["place"]) => values.filter((each) => each.place === place);
  const cookies = at("cookies").map(({ name, value }) => `${name}=${value}`);
  const parameters = at("query").map(({ name, value }) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  return {
    headers: [
      ...at("headers").flatMap(({ name, value }) => [name, value]),
      ...(cookies.length === 0 ? [] : ["cookie", cookies.join("; ")]),
    ],
    query: parameters.length === 0 ? "" : `?${parameters.join("&")}`,
    scheme: at("scheme").length === 0 ? "http" : "https",
  };
}

/** The text, or with a number behind it, that is not used. */
export function unused(text: string, used: ReadonlySet<string>): string {
  for (let i = 1, found = text; ; found = text + ++i) if (!used.has(found)) return found;
}
