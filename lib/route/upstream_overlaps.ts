/**
 * Finds the routes that lead to the same path of the same upstream as a guarded route, by a path of their own.
 */
import type { FoundTaker } from "./decoded_overlaps.ts";
import type { Segment } from "./pattern.ts";
import { isOpen, visitMeeting } from "./pattern_index.ts";
import { lacks, type Placed, type PlacedRoutes } from "./placed_routes.ts";
import { choiceFor, methodsFor, requestFor, type SampleRequest } from "./sample_requests.ts";
import { childOf, routesAt, type Node } from "./tree.ts";

/** Where the routes of a service lead. */
export interface RouteDestination {
  /** Host and port of each upstream, in one spelling. */
  readonly addresses: readonly string[];
  /** Whether upstreams get the Host of the client. */
  readonly preservesHost: boolean;
}

/** The routes that lead to the same paths. */
type ByGuards<T> = Map<ReadonlySet<string>, Placed<T>[]>;

export class UpstreamOverlaps<T> {
  readonly #placed: PlacedRoutes<T>;
  readonly #destinationOf: (target: T) => RouteDestination | null;
  readonly #destinations = new Map<Placed<T>, RouteDestination>();
  /** Services of which a route has an `upstream_path`. */
  readonly #replacing = new Set<RouteDestination>();
  /** Of each address. */
  readonly #services = new Map<string, Set<RouteDestination>>();
  /** Of each address that several services have, by the paths that are asked for. */
  readonly #at = new Map<string, Node<ByGuards<T>>>();

  constructor(placed: PlacedRoutes<T>, destinationOf: (target: T) => RouteDestination | null) {
    this.#placed = placed;
    this.#destinationOf = destinationOf;
  }

  /** To be run before anything is asked. */
  *prepare(): Generator<undefined, void, undefined> {
    for (const route of this.#placed.routes) {
      yield;
      const to = this.#destinationOf(route.target);
      if (to === null) continue;
      this.#destinations.set(route, to);
      if (route.upstreamPath?.isOfRoute) this.#replacing.add(to);
      for (const address of to.addresses)
        this.#services.set(address, (this.#services.get(address) ?? new Set()).add(to));
    }
    for (const [route, to] of this.#destinations) {
      yield;
      for (const address of this.#shared(to)) {
        const found = routesAt(childOf(this.#at, address), leadsTo(route));
        const byGuards = (found[0] ??= new Map<ReadonlySet<string>, Placed<T>[]>());
        const routes = byGuards.get(route.guards);
        if (routes === undefined) byGuards.set(route.guards, [route]);
        else routes.push(route);
      }
    }
  }

  /** The routes that lack a guard of this one, and by which a request reaches what this one leads to. */
  *takers(guarded: Placed<T>): Generator<undefined | FoundTaker<T>, void, undefined> {
    const to = this.#destinations.get(guarded);
    const found: ByGuards<T>[] = [];
    for (const address of to === undefined ? [] : this.#shared(to))
      visitMeeting(this.#at.get(address)!, leadsTo(guarded), 0, "whole", (each) => found.push(each) > 0);
    const tried = new Set([guarded]);
    for (const byGuards of found) {
      for (const [guards, routes] of byGuards) {
        for (const route of lacks(guards, guarded.guards) ? routes : []) {
          yield;
          // Of one service, what leads to the same path matches the same path, unless routes have an upstream_path of
          // their own.
          const isSame = tried.has(route) || (this.#destinations.get(route) === to && !this.#replacing.has(to!));
          const request = isSame ? null : this.#request(guarded, route);
          tried.add(route);
          if (request !== null) yield { route, request };
        }
      }
    }
  }

  /** The addresses that another service has, too; all of one where a route replaces its path. */
  #shared(to: RouteDestination): readonly string[] {
    return [...new Set(to.addresses)].filter(
      (address) => this.#replacing.has(to) || this.#services.get(address)!.size > 1,
    );
  }

  /** A request for the other route that leads where one for the guarded route leads, with the same method. */
  #request(guarded: Placed<T>, route: Placed<T>): SampleRequest | null {
    const [wanted, own] = [leadsTo(guarded), leadsTo(route)];
    const areOpen = isOpen(wanted) && isOpen(own);
    const least = areOpen ? Math.max(wanted.length, own.length) : isOpen(own) ? wanted.length : own.length;
    // So long that the path below what is put before it is longer than all patterns.
    const most = areOpen ? this.#placed.longest + least + 1 : least;
    const isSameHost = [guarded, route].every((each) => this.#destinations.get(each)!.preservesHost);
    const [hosts, guardedHosts] = isSameHost
      ? [
          [...route.keys, ...guarded.keys],
          [...route.keys, ...guarded.keys],
        ]
      : [route.keys, guarded.keys];
    for (let length = least; length <= most; length++) {
      const path = this.#placed.sharedPath(wanted, own, length);
      const guardedWays = this.#ways(guarded, path, guardedHosts);
      for (const way of guardedWays.length === 0 ? [] : this.#ways(route, path, hosts)) {
        for (const guardedWay of guardedWays) {
          if (isSameHost && way.host !== guardedWay.host) continue;
          const methods = new Set([...methodsFor(route, way.routes), ...methodsFor(guarded, guardedWay.routes)]);
          for (const method of methods) {
            const choice = choiceFor(route, way.routes, [method]);
            if (choice !== null && choiceFor(guarded, guardedWay.routes, [method]) !== null)
              return requestFor(choice, way.host, way.path);
          }
        }
      }
    }
    return null;
  }

  /** On which of the hosts a pattern of the route wins the path that leads to this one. */
  #ways(route: Placed<T>, upstreamPath: string, keys: readonly string[]): readonly Way<T>[] {
    const path = this.#pathTo(route, upstreamPath.split("/").slice(1));
    return keys.flatMap((key) => {
      const host = this.#placed.hostOf(key);
      const routes = this.#placed.trees.find(host, path);
      return routes?.includes(route) === true && !this.#placed.isRefused(host, path, routes)
        ? [{ host, path, routes }]
        : [];
    });
  }

  /** A path for which the route asks its upstream for this one. */
  #pathTo(route: Placed<T>, wanted: readonly string[]): string {
    const values = new Map<string, string>();
    for (const [i, segment] of leadsTo(route).entries()) {
      if (segment.kind !== "literal")
        values.set(segment.name, segment.kind === "rest" ? wanted.slice(i).join("/") : wanted[i]!);
    }
    const path = route.segments
      .map(
        (segment) =>
          `/${segment.kind === "literal" ? segment.text : (values.get(segment.name) ?? this.#placed.segment)}`,
      )
      .join("");
    return path === "" ? "/" : path;
  }
}

interface Way<T> {
  readonly host: string;
  readonly path: string;
  /** All routes of the pattern. */
  readonly routes: readonly Placed<T>[];
}

/** The pattern of what upstreams are asked for. */
function leadsTo<T>({ segments, baseLength, upstreamPath }: Placed<T>): readonly Segment[] {
  return upstreamPath?.segments ?? segments.slice(baseLength);
}
