/**
 * The route table: finds the route of a request by host, path, method and conditions, its parameters, and the path that
 * the upstream is asked for.
 */
import { atOnce } from "../base/time_slices.ts";
import type { Holds, Scheme } from "../http/condition_types.ts";
import type { HeaderList } from "../http/headers.ts";
import type { PlacedCondition, RouteConditions, UpstreamPath } from "./contracts.ts";
import { comparable, ENCODED_SLASH, PATH_PARAMETERS, type PathRefusal } from "./path.ts";
import { parsePattern, type Segment } from "./pattern.ts";
import { endOf, HostTrees } from "./tree.ts";

/** One route of one service. */
export interface TableEntry<T> {
  readonly basePath: string;
  /** `api.example.com`, `*.example.com`; empty: every host. */
  readonly hosts: readonly string[];
  /** Below basePath. */
  readonly path: string;
  /** In upper case; empty: all methods. */
  readonly methods: readonly string[];
  /** What the request has to fulfil besides; undefined: nothing. */
  readonly match?: RouteConditions | undefined;
  /** The path that the upstream is asked for; undefined: the path below basePath. */
  readonly upstreamPath?: UpstreamPath | undefined;
  /** Whether `%2F` is accepted inside placeholders. */
  readonly encodedSlashes: boolean;
  /**
   * Whether a path that this entry matches without its parameters (`/a` for `/a;x`) may go to a less specific pattern
   * with them.
   */
  readonly pathParameters: boolean;
  readonly target: T;
}

export type Found<T> =
  | {
      readonly kind: "route";
      readonly target: T;
      /** Values of the placeholders, percent-encoded as they are forwarded. */
      readonly params: Readonly<Record<string, string>>;
      /** The path below base_path, "/" at least, a trailing "/" kept; or what `upstream_path` makes of it. */
      readonly upstreamPath: string;
    }
  /** The pattern does not accept the method; `allow` is the value of the Allow header (RFC 9110 §10.2.1). */
  | { readonly kind: "method"; readonly allow: string; readonly routes: readonly T[] }
  /** Routes of the pattern accept the method, and the request does not fulfil their conditions. */
  | { readonly kind: "conditions"; readonly routes: readonly T[] }
  /**
   * The path must not be forwarded as it is spelt. `routes` do not accept the spelling; none where nothing matches the
   * path.
   */
  | { readonly kind: "refused"; readonly refusal: PathRefusal; readonly routes: readonly T[] }
  | { readonly kind: "none" };

export interface RouteTable<T> {
  /**
   * Host and path alone select the pattern; then its routes decide whether they accept the method, the spelling,
   * headers and query. A refused request never falls through to a less specific pattern, which may have fewer guards.
   * `authority` is the Host, with or without port, in any case; `path`, `encodedSlash` and `query` come from
   * `readTarget`. Default: no headers, no query, http.
   */
  find(
    authority: string,
    method: string,
    path: string,
    encodedSlash: boolean,
    headers?: HeaderList,
    query?: string,
    scheme?: Scheme,
  ): Found<T>;
  readonly trees: HostTrees<TableRoute<T>>;
}

/** An entry with its patterns read. */
export interface TableRoute<T> {
  readonly entry: TableEntry<T>;
  /**
   * The entry's. Equal lists are one list: with ten thousand routes, each object that a look-up visits is a cache miss.
   */
  readonly methods: readonly string[];
  readonly conditions: readonly PlacedCondition[];
  /** Whether a request fulfils the conditions; null: there are none. */
  readonly holds: Holds | null;
  readonly target: T;
  readonly upstreamPath: UpstreamPath | undefined;
  /** Of base_path and path together. */
  readonly segments: readonly Segment[];
  /** How many of the segments are the base_path's. */
  readonly baseLength: number;
  readonly isLiteral: boolean;
}

/** Compiles entries whose patterns `checkRoutes` has passed; throws on a broken one. */
export function compileTable<T>(entries: readonly TableEntry<T>[]): RouteTable<T> {
  return atOnce(tableSteps([readEntries(entries)]));
}

/** The same of entries that have been read, in steps. */
export function* tableSteps<T>(lists: Iterable<readonly TableRoute<T>[]>): Generator<void, RouteTable<T>> {
  const trees = new HostTrees<TableRoute<T>>();
  let count = 0;
  for (const routes of lists)
    for (const route of routes) {
      for (const list of trees.routesAt(route.entry.hosts, route.segments)) insert(list, route);
      if (++count % ROUTES_OF_A_STEP === 0) yield;
    }
  return tableOf(trees);
}

/** Less than a millisecond of work. */
const ROUTES_OF_A_STEP = 100;

/** Behind those that come before it, see `routeSteps`, and those of the same order. */
function insert<T>(list: TableRoute<T>[], route: TableRoute<T>): void {
  let at = list.length;
  while (at > 0 && inOrder(list[at - 1]!, route) > 0) at--;
  if (at === list.length) list.push(route);
  else list.splice(at, 0, route);
}

function tableOf<T>(trees: HostTrees<TableRoute<T>>): RouteTable<T> {
  return {
    trees,
    find(authority, method, path, encodedSlash, headers = NO_HEADERS, query = "", scheme: Scheme = "http") {
      const compared = comparable(path);
      const matched = trees.find(authority, compared);
      if (matched === null) return encodedSlash ? { kind: "refused", refusal: ENCODED_SLASH, routes: [] } : NOTHING;
      if (compared.includes(";")) {
        const others = otherReading(trees, authority, compared, matched);
        if (others.length > 0) return { kind: "refused", refusal: PATH_PARAMETERS, routes: targetsOf(others) };
      }
      const route = routeFor(matched, method, headers, query, scheme);
      if (encodedSlash) {
        const others =
          route?.entry.encodedSlashes === true
            ? decodedReading(trees, authority, compared, matched)
            : reachable(matched);
        if (others.length > 0) return { kind: "refused", refusal: ENCODED_SLASH, routes: targetsOf(others) };
      }
      if (route !== undefined) return bind(route, path);
      const accepting = contenders(matched, method);
      if (accepting.length > 0) return { kind: "conditions", routes: targetsOf(accepting) };
      return { kind: "method", allow: methodsOf(matched).sort().join(", "), routes: targetsOf(reachable(matched)) };
    },
  };
}

/**
 * The entries with their patterns read. Of routes that share a pattern, the one with the longer base_path comes first,
 * then the one with more conditions.
 */
export function* routeSteps<T>(entries: readonly TableEntry<T>[]): Generator<undefined, TableRoute<T>[], undefined> {
  const lists = new Map<string, readonly string[]>();
  const routes: TableRoute<T>[] = [];
  for (let i = 0; i < entries.length; i += ROUTES_OF_A_STEP) {
    yield;
    routes.push(...readEntries(entries.slice(i, i + ROUTES_OF_A_STEP), lists));
  }
  return routes.sort(inOrder);
}

function inOrder<T>(a: TableRoute<T>, b: TableRoute<T>): number {
  return b.baseLength - a.baseLength || b.conditions.length - a.conditions.length;
}

/** In their order. `lists`: of methods, see `Route`. */
export function readEntries<T>(
  entries: readonly TableEntry<T>[],
  lists = new Map<string, readonly string[]>(),
): TableRoute<T>[] {
  let base: readonly Segment[] = [];
  return entries.map((entry, i) => {
    const names = entry.methods.join();
    const methods = lists.get(names) ?? entry.methods;
    lists.set(names, methods);
    // Mostly those of one service: they share it.
    if (entry.basePath !== entries[i - 1]?.basePath) base = segmentsOf(entry.basePath, "base_path", []);
    const segments = base.concat(segmentsOf(entry.path, "path", base));
    const { list: conditions, holds } = entry.match ?? UNCONDITIONAL;
    const isLiteral = segments.every(({ kind }) => kind === "literal");
    const { target, upstreamPath } = entry;
    return { entry, methods, conditions, holds, target, upstreamPath, segments, baseLength: base.length, isLiteral };
  });
}

const UNCONDITIONAL = { list: [], holds: null };

function segmentsOf(text: string, field: "base_path" | "path", base: readonly Segment[]): readonly Segment[] {
  const parsed = parsePattern(text, field, base);
  if ("error" in parsed) throw new Error(`${field} ${JSON.stringify(text)}: ${parsed.error}`);
  return parsed.segments;
}

/**
 * The first route of a pattern that accepts the method and whose conditions hold. HEAD goes to one that declares it,
 * else to the route of GET.
 */
export function routeFor<T>(
  routes: readonly TableRoute<T>[],
  method: string,
  headers: HeaderList,
  query: string,
  scheme: Scheme,
): TableRoute<T> | undefined {
  for (const route of routes) {
    const { methods, holds } = route;
    if (methods.length > 0 && !methods.includes(method)) continue;
    if (holds !== null && !holds(headers, query, scheme)) continue;
    return methods.length === 0 && method === "HEAD" ? routeFor(routes, "GET", headers, query, scheme) : route;
  }
  return method === "HEAD" ? routeFor(routes, "GET", headers, query, scheme) : undefined;
}

/** The methods that the routes of a pattern name. */
export function methodsOf<T>(routes: readonly TableRoute<T>[]): string[] {
  const methods = new Set(routes.flatMap((route) => route.methods));
  return [...(methods.has("GET") ? methods.add("HEAD") : methods)];
}

/**
 * The routes that requests can reach: routes of a service with a longer base_path may hide a route entirely. Of some
 * with conditions, all.
 */
export function reachable<T>(routes: readonly TableRoute<T>[]): readonly TableRoute<T>[] {
  return [...new Set([...methodsOf(routes), ANY_OTHER_METHOD].flatMap((method) => contenders(routes, method)))];
}

/** The routes that accept the method, up to the first without conditions, which takes all that is left. */
export function contenders<R extends Pick<TableRoute<unknown>, "methods" | "holds">>(
  routes: readonly R[],
  method: string,
): readonly R[] {
  const accepting = routes.filter(({ methods }) => methods.length === 0 || methods.includes(method));
  const last = accepting.findIndex(({ holds }) => holds === null);
  const asked = last < 0 ? accepting : accepting.slice(0, last + 1);
  if (method !== "HEAD") return asked;
  const named = asked.filter(({ methods }) => methods.length > 0);
  return last >= 0 && named.length === asked.length ? named : [...named, ...contenders(routes, "GET")];
}

const ANY_OTHER_METHOD = "";

function targetsOf<T>(routes: readonly TableRoute<T>[]): readonly T[] {
  return routes.map(({ target }) => target);
}

/**
 * The routes that match the path as a backend reads it that strips the parameters of each segment (RFC 3986 §3.3):
 * `/admin;x/users` is `/admin/users`. None if they are the matched routes, or if all of them accept path parameters.
 */
export function otherReading<T>(
  trees: HostTrees<TableRoute<T>>,
  authority: string,
  path: string,
  matched: readonly TableRoute<T>[],
): readonly TableRoute<T>[] {
  const others = trees.find(authority, withoutParameters(path, matched[0]!.segments));
  if (others === null || others === matched) return [];
  const reached = reachable(others);
  return reached.some(({ entry }) => !entry.pathParameters) ? reached : [];
}

/**
 * Strips parameters, except from literal segments of the pattern, whose ";" is configured. A segment of parameters only
 * is removed.
 */
function withoutParameters(path: string, segments: readonly Segment[]): string {
  // Segments are counted from 1 in a path: the text before its first "/" is empty. {name*} is the whole rest.
  const isLiteral = (i: number) => segments[Math.min(i, segments.length) - 1]?.kind === "literal";
  const bare = path.split("/").map((part, i) => (isLiteral(i) ? part : part.replace(/;.*$/s, "")));
  return bare.join("/").replace(/\/\/+/g, "/");
}

/** The same for a backend that decodes `%2F` as "/"; only routes at least as specific as the matched ones count. */
function decodedReading<T>(
  trees: HostTrees<TableRoute<T>>,
  authority: string,
  path: string,
  matched: readonly TableRoute<T>[],
): readonly TableRoute<T>[] {
  const decoded = path.replaceAll("%2F", "/").replace(/\/\/+/g, "/");
  const others = trees.find(authority, decoded);
  if (others === null) return [];
  const reached = reachable(others);
  const isRefused = others !== matched && reached.some(({ entry }) => !entry.encodedSlashes);
  if (isRefused && rankOf(others[0]!) >= rankOf(matched[0]!)) return reached;
  return decoded.includes(";") ? otherReading(trees, authority, decoded, others) : [];
}

/** Compares as text: the greater of two is more specific. `/a/{x}/{rest*}` is "210". */
export function rankOf<T>({ segments }: TableRoute<T>): string {
  return segments.map(({ kind }) => (kind === "literal" ? "2" : kind === "one" ? "1" : "0")).join("");
}

/**
 * Cuts parameters and the upstream's path out of a path that matches. Segment by segment, so that the spelling does not
 * matter.
 */
function bind<T>({ target, upstreamPath, segments, baseLength, isLiteral }: TableRoute<T>, path: string): Found<T> {
  const params: Record<string, string> = isLiteral ? NO_PARAMS : new Params();
  const last = isLiteral ? baseLength : segments.length;
  let start = 0;
  for (let i = 0, at = 0; i < last; i++) {
    const segment = segments[i]!;
    const slash = segment.kind === "rest" ? endOf(path) : path.indexOf("/", at + 1);
    const end = slash < 0 ? path.length : slash;
    if (segment.kind !== "literal") params[segment.name] = path.slice(at + 1, end);
    at = end;
    if (i + 1 === baseLength) start = at;
  }
  const below = start === 0 ? path : path.slice(start);
  return {
    kind: "route",
    target,
    params,
    upstreamPath: upstreamPath === undefined ? below || "/" : upstreamPath.of(params, below),
  };
}

/**
 * Objects without a prototype worth the name, so that `__proto__` is a name like any other; faster than
 * `Object.create(null)`.
 */
const Params = function () {} as unknown as { new (): Record<string, string>; prototype: object };
Params.prototype = Object.freeze(Object.create(null) as object);

const NO_HEADERS: HeaderList = [];
const NO_PARAMS = Object.freeze(new Params());
const NOTHING = Object.freeze({ kind: "none" });
