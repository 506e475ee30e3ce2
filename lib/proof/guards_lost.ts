/**
 * Finds the requests that pass fewer guards under a new configuration than under the old one.
 */
import { inSlices, type NextTimeSlice } from "../base/time_slices.ts";
import { concealerOf } from "../config/secrets.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import { entryOf, type Snapshot } from "../gateway/snapshot.ts";
import { lacks } from "../route/placed_routes.ts";
import { takeovers } from "../route/takeovers.ts";
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
  /** "GET http://localhost/items/x"; null if no request of the old route reaches the new one. */
  readonly example: string | null;
}

/** A configuration with its route table. */
export type ComparedConfig = Pick<Snapshot, keyof ValidConfig | "table">;

/**
 * Compares the routes that a request can have in both configurations, then those that have the same names.
 * `isComplete`: false if so many routes share paths that not all could be compared.
 */
export async function guardsLost(
  before: ComparedConfig,
  after: ComparedConfig,
  slice: NextTimeSlice,
): Promise<{ readonly found: readonly GuardsLost[]; readonly isComplete: boolean }> {
  const found = new Map<WrittenRoute, GuardsLost>();
  const [olds, news] = [await inSlices(written(before), slice), await inSlices(written(after), slice)];
  const entries = {
    before: olds.routes.map((each) => entryOf(each.service, each.route, each, before)),
    after: news.routes.map((each) => entryOf(each.service, each.route, each, after)),
  };
  const steps = takeovers(entries, {
    isAsked: (was, is) =>
      lacks(is.guards, was.guards) && missing(was, is).some((kind) => found.get(is)?.guards.includes(kind) !== true),
    nameOf: ({ guards }) => [guards.has(NO_GUARD) ? "closed" : "", ...[...guards].sort()].join(),
  });
  const conceal = (text: string) => concealerOf(before)(concealerOf(after)(text));
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) {
    const { value } = step;
    if (value !== undefined) {
      const { headers, query } = value.request;
      const example = exampleOf(value.request);
      // The values of conditions may be secret.
      compare(value.before, value.after, headers.length === 0 && query === "" ? example : conceal(example), found);
    }
    await slice();
  }
  const byName = new Map(olds.routes.map((each) => [keyOf(each), each]));
  for (const is of news.routes) {
    const was = byName.get(keyOf(is));
    if (was !== undefined) compare(was, is, null, found);
  }
  return { found: news.routes.flatMap((each) => found.get(each) ?? []), isComplete: step.value };
}

/** Only a route that refuses all requests lacks no guard of this name. */
const NO_GUARD = "";

/**
 * Notes in `found` which guards of `was` are not in `is`. A guard with other files or secrets is another guard, too.
 */
function compare(
  was: WrittenRoute,
  is: WrittenRoute,
  example: string | null,
  found: Map<WrittenRoute, GuardsLost>,
): void {
  const known = found.get(is);
  const guards = [...new Set([...(known?.guards ?? []), ...missing(was, is)])];
  if (guards.length === (known?.guards.length ?? 0)) return;
  const altered = guards.filter((name) => is.plugins.some(({ kind, guard }) => guard !== null && kind.name === name));
  found.set(is, {
    ...placeOf(is),
    guards,
    altered,
    before: known?.before ?? placeOf(was),
    example: known?.example ?? example,
  });
}

/** The kinds of the guards that the second route lacks. */
function missing(was: WrittenRoute, is: WrittenRoute): string[] {
  return was.plugins.flatMap(({ kind, guard }) => (guard === null || is.guards.has(guard) ? [] : kind.name));
}

function placeOf({ service, route }: WrittenRoute): RoutePlace {
  return { service: service.name, route: route.name };
}

function keyOf(route: WrittenRoute): string {
  return JSON.stringify(placeOf(route));
}
