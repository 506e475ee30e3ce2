/**
 * What the route table and its checks see of `match` and `upstream_path`. The code behind it is loaded where a
 * configuration has one of them.
 */
import type { Route, Service } from "../config/model.ts";
import type { Condition, Conditions, Holds } from "../http/condition_types.ts";
import type { Segment } from "./pattern.ts";

/** What the route table needs of the conditions of a route. */
export interface RouteConditions {
  readonly written: Conditions;
  readonly list: readonly PlacedCondition[];
  /** Whether a request fulfils all of them. */
  readonly holds: Holds;
}

/** One condition of a route. */
export interface PlacedCondition {
  /** Of place and name: equal for conditions on the same values of a request. */
  readonly key: string;
  readonly place: keyof Conditions;
  /** Of a header in lower case; of the scheme what it has to be. */
  readonly name: string;
  readonly wanted: Condition;
  /**
   * What its name may have in a request that fulfils all of `together`, conditions on the same name (none: any
   * request), so that, as far as can be found, none of `rivals` holds that need not hold.
   */
  readonly statesAgainst: (rivals: readonly Condition[], together: readonly Condition[]) => SampleStates;
}

export interface SampleStates {
  /**
   * The values of the name, the simplest first; none: the name is absent. Without a state nothing can fulfil all of
   * them.
   */
  readonly states: readonly (readonly string[])[];
  /** Whether everything else that the name may have fulfils the same rivals as one of these, or more. */
  readonly isComplete: boolean;
}

export interface UpstreamPath {
  /** `below`: the path below base_path; "" if it ends with base_path. Parameters are inserted as they were matched. */
  readonly of: (params: Readonly<Record<string, string>>, below: string) => string;
  /** What upstreams are asked for, with the names of the route's parameters. */
  readonly segments: readonly Segment[];
  /** Whether it is a route's: then routes of one service may lead to one path. */
  readonly isOfRoute: boolean;
}

/** `conditions.ts` */
export interface Matching {
  placedConditions(conditions: Conditions): readonly PlacedCondition[];
  /** Whether one request can fulfil both, as far as that can be told. */
  canMeet(a: readonly PlacedCondition[], b: readonly PlacedCondition[]): boolean;
  /** Throws an Error for a pattern that `linearPattern` refuses. */
  routeConditions(written: Conditions): RouteConditions;
  /** The headers by which routes are selected, see `dashed`; undefined: none is. */
  matchedHeaders(services: readonly Service[]): ReadonlySet<string> | undefined;
}

/** `upstream_path.ts` */
export interface UpstreamPaths {
  /** Undefined: the path below base_path. */
  upstreamPath(service: Service, route: Route): UpstreamPath | undefined;
}
