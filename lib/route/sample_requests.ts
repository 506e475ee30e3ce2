/**
 * Finds requests for one of the routes that share a pattern: a method, headers and a query with which the route table
 * selects it.
 */
import { METHODS } from "node:http";
import type { Condition, Scheme } from "../http/conditions.ts";
import type { HeaderList } from "../http/headers.ts";
import type { PlacedCondition } from "./conditions.ts";
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
  for (const method of methods) {
    const rivals = contenders(routes, method);
    if (!rivals.includes(route)) continue;
    const found =
      rivals.length === 1 && route.holds === null ? NO_CONDITIONS : conditionsFor(route, routes, method, rivals);
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
    conditions.flatMap((each) => (each.wanted === null ? [] : { ...each, value: each.valueAgainst([]).value })),
  );
}

const NO_CONDITIONS = { headers: [], query: "", scheme: "http" } as const;

/** How many values are tried for one route and method. */
const MAX_TRIED = 1024;

function conditionsFor<T>(
  route: Route<T>,
  routes: readonly Route<T>[],
  method: string,
  rivals: readonly Route<T>[],
): Omit<Choice, "method"> | null {
  const others = rivals.filter((each) => each !== route).flatMap(({ conditions }) => conditions);
  const wishes = new Map<string, Condition[]>();
  for (const { key, wanted } of others) {
    const list = wishes.get(key);
    if (list === undefined) wishes.set(key, [wanted]);
    else list.push(wanted);
  }
  const withValue = (each: PlacedCondition) => ({ ...each, ...each.valueAgainst(wishes.get(each.key) ?? []) });
  const own = route.conditions.filter(({ wanted }) => wanted !== null).map(withValue);
  // A condition of another route fails without its name, unless it wants the name to be absent.
  const taken = new Set(route.conditions.map(({ key }) => key));
  const free = new Map(
    others.filter(({ key, wanted }) => wanted === null && !taken.has(key)).map((each) => [each.key, each]),
  );
  const added = [...free.values()].map(withValue);
  const isComplete = [...own, ...added].every(({ isPlain }) => isPlain) && 2 ** added.length <= MAX_TRIED;
  for (let bits = 0; bits < Math.min(2 ** added.length, MAX_TRIED); bits++) {
    const tried = written([...own, ...added.filter((_each, i) => ((bits >> i) & 1) === 1)]);
    if (routeFor(routes, method, tried.headers, tried.query, tried.scheme) === route) return tried;
  }
  return isComplete ? null : written(own);
}

interface Value extends PlacedCondition {
  readonly value: string;
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
