/**
 * Finds the requests that pass fewer guards under a new configuration than under the old one.
 */
import { inSlices, type NextTimeSlice } from "../base/time_slices.ts";
import type { Config } from "../config/model.ts";
import { concealerOf } from "../config/secrets.ts";
import { candidatesOf } from "../route/candidates.ts";
import type { PlacedCondition } from "../route/conditions.ts";
import { parsePattern, type Segment } from "../route/pattern.ts";
import { fulfilling, type SampleRequest } from "../route/sample_requests.ts";
import type { Loaded, Snapshot } from "../gateway/snapshot.ts";
import { exampleOf, written, type WrittenRoute } from "./written.ts";

export interface RoutePlace {
  readonly service: string;
  readonly route: string;
}

/** A route of the new configuration that lacks guards which the route that had such a request before has. */
export interface GuardsLost extends RoutePlace {
  /** The kinds of the guards that are missing. A guard with another configuration is another guard. */
  readonly guards: readonly string[];
  /** Those of `guards` that the route has with another configuration. */
  readonly altered: readonly string[];
  /** The route of the old configuration; often the same. */
  readonly before: RoutePlace;
  /** "GET http://any-host/items/any-id"; null if no request reaches the route. */
  readonly example: string | null;
}

/** A configuration with its route table. */
export type Compared = Pick<Snapshot, keyof Loaded | "table">;

/**
 * Asks both route tables for requests that stand for all requests of each route of both configurations, so that a
 * guarded path which another route takes over is found too; then compares the routes that have the same names.
 */
export async function guardsLost(before: Compared, after: Compared, slice: NextTimeSlice): Promise<GuardsLost[]> {
  const found = new Map<WrittenRoute, GuardsLost>();
  const old = await routesByName(before, slice);
  const next = await routesByName(after, slice);
  let asked = 0;
  const conceal = (text: string) => concealerOf(before)(concealerOf(after)(text));
  const seen = new Set<string>();
  for (const place of requestsFor([before.config, after.config])) {
    const name = `${place.method} ${place.host}${place.path}`;
    if (seen.has(name)) continue;
    seen.add(name);
    for (const choice of choicesFor(place, before, after)) {
      if (++asked % STEP === 0) await slice();
      const request = { ...place, ...choice };
      const was = routeOf(before, old, request);
      const is = was === null || was.guards.size === 0 ? null : routeOf(after, next, request);
      if (was !== null && is !== null)
        compare(was, is, () => (choice === PLAIN ? exampleOf(request) : conceal(exampleOf(request))), found);
    }
  }
  for (const [key, is] of next) {
    const was = old.get(key);
    if (was !== undefined) compare(was, is, () => null, found);
  }
  return [...next.values()].flatMap((each) => found.get(each) ?? []);
}

/** How many requests are asked about between two looks at the time. */
const STEP = 64;

/**
 * Notes in `found` which guards of `was` are not in `is`. A guard with other files or secrets is another guard, too.
 */
function compare(
  was: WrittenRoute,
  is: WrittenRoute,
  exampleFor: () => string | null,
  found: Map<WrittenRoute, GuardsLost>,
): void {
  const known = found.get(is);
  const missing = was.plugins.flatMap(({ kind, guard }) => (guard === null || is.guards.has(guard) ? [] : kind.name));
  const guards = [...new Set([...(known?.guards ?? []), ...missing])];
  if (guards.length === (known?.guards.length ?? 0)) return;
  const altered = guards.filter((name) => is.plugins.some(({ kind, guard }) => guard !== null && kind.name === name));
  const example = known?.example ?? exampleFor();
  found.set(is, { ...placeOf(is), guards, altered, before: known?.before ?? placeOf(was), example });
}

function placeOf({ service, route }: WrittenRoute): RoutePlace {
  return { service: service.name, route: route.name };
}

/** By `keyOf`, in the order of the configuration. */
type Routes = ReadonlyMap<string, WrittenRoute>;

function keyOf(service: string, route: string): string {
  return JSON.stringify([service, route]);
}

function routeOf(
  { table }: Compared,
  routes: Routes,
  { host, method, path, headers, query, scheme }: SampleRequest,
): WrittenRoute | null {
  const found = table.find(host, method, path, false, headers, query, scheme);
  return found.kind === "route" ? routes.get(keyOf(found.target.service.name, found.target.route.name))! : null;
}

async function routesByName(compared: Compared, slice: NextTimeSlice): Promise<Routes> {
  const { routes } = await inSlices(written(compared), slice);
  return new Map(routes.map((each) => [keyOf(each.service.name, each.route.name), each]));
}

type Place = Pick<SampleRequest, "method" | "host" | "path">;
type Choice = Pick<SampleRequest, "headers" | "query" | "scheme">;

const PLAIN: Choice = { headers: [], query: "", scheme: "http" };

/**
 * Nothing; what fulfils the conditions of each route that the path may go to; and of two routes, one of each
 * configuration.
 */
function* choicesFor({ method, host, path }: Place, before: Compared, after: Compared): Iterable<Choice> {
  yield PLAIN;
  const [olds = [], nexts = []] = [before, after].map(({ table }) =>
    candidatesOf(table, host, path).flatMap(({ match, takes }) =>
      match === undefined || !takes(method) ? [] : [match.list],
    ),
  );
  for (const conditions of [...olds, ...nexts]) yield fulfilling(conditions);
  let pairs = 0;
  for (const old of olds) for (const next of nexts) if (++pairs <= MAX_PAIRS) yield fulfilling(merged(old, next));
}

/** More conditions than that for one path are not combined. */
const MAX_PAIRS = 1000;

/** Of two conditions on one name the stricter one: the value of the other might not fulfil both. */
function merged(
  conditions: readonly PlacedCondition[],
  others: readonly PlacedCondition[],
): readonly PlacedCondition[] {
  const found = new Map(conditions.map((each) => [each.key, each]));
  for (const each of others) {
    const same = found.get(each.key);
    if (same === undefined || strictness(each) > strictness(same)) found.set(each.key, each);
  }
  return [...found.values()];
}

function strictness({ wanted }: PlacedCondition): number {
  return typeof wanted === "string" ? 2 : wanted === true ? 0 : 1;
}

/** For each route requests that fit its pattern and, if possible, nothing more specific. */
function* requestsFor(configs: readonly Config[]): Iterable<Place> {
  const routes = configs.flatMap(({ services }) =>
    services.flatMap((service) => service.routes.map((route) => ({ service, route }))),
  );
  const methods = [...new Set(["GET", ...routes.flatMap(({ route }) => route.methods), ANY_METHOD])];
  // Longer than every pattern: each "/" of a pattern begins a segment.
  const longest = routes.reduce(
    (most, { service, route }) => Math.max(most, `${service.basePath}${route.path}`.split("/").length),
    0,
  );
  for (const { service, route } of routes) {
    const pattern = segmentsOf(service.basePath, route.path);
    const texts = pattern.map((segment) => (segment.kind === "literal" ? segment.text : `any-${segment.name}`));
    const isOpen = pattern.at(-1)?.kind === "rest";
    const paths = isOpen ? [texts, [...texts, ...Array.from({ length: longest }, () => texts.at(-1)!)]] : [texts];
    for (const host of service.hosts.length === 0
      ? ["any-host"]
      : service.hosts.map((each) => each.replace(/^\*/, "any-name"))) {
      for (const path of paths)
        for (const method of route.methods.length === 0 ? methods : route.methods)
          yield { method, host, path: `/${path.join("/")}` };
    }
  }
}

/** Stands for the methods that no route names. */
const ANY_METHOD = "ANY";

function segmentsOf(basePath: string, path: string): readonly Segment[] {
  const [base, own] = [parsePattern(basePath, "base_path"), parsePattern(path, "path")];
  return "error" in base || "error" in own ? [] : [...base.segments, ...own.segments];
}
