/**
 * Finds the requests that pass fewer guards under a new configuration than under the old one.
 */
import { hash } from "node:crypto";
import { inKeyOrder } from "../../config/load.ts";
import type { Json } from "../../config/json.ts";
import type { PluginInstance } from "../../config/model.ts";
import { parsePattern } from "../../route/pattern.ts";
import { compileTable, type RouteTable, type TableEntry } from "../../route/table.ts";
import type { DisplayedConfig, DisplayedPlugin } from "../displayed_config.ts";
import type { Loaded } from "../snapshot.ts";
import type { RoutePlace } from "./route_diff.ts";

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

interface Guard {
  readonly kind: string;
  /** Equal for the same kind with the same configuration, files and secrets included. */
  readonly identity: string;
}

interface Guarded extends RoutePlace {
  readonly guards: readonly Guard[];
}

interface Request {
  readonly method: string;
  readonly host: string;
  readonly path: string;
}

/**
 * Asks both route tables for requests that stand for all requests of each route of both configurations, so that a guarded path which
 * another route takes over is found too; then compares the routes that have the same names.
 */
export function guardsLost(before: Loaded, after: Loaded): GuardsLost[] {
  const [old, next] = [guardedRoutes(before), guardedRoutes(after)];
  const found = new Map<Guarded, GuardsLost>();
  const compare = (was: Guarded, is: Guarded, request: Request | null) => {
    const known = found.get(is);
    const missing = was.guards.filter(({ identity }) => is.guards.every((guard) => guard.identity !== identity));
    const guards = [...new Set([...(known?.guards ?? []), ...missing.map(({ kind }) => kind)])];
    if (guards.length === (known?.guards.length ?? 0)) return;
    const altered = guards.filter((kind) => is.guards.some((guard) => guard.kind === kind));
    const example = request === null ? null : `${request.method} http://${request.host}${request.path}`;
    const { service, route } = was;
    found.set(is, { service: is.service, route: is.route, guards, altered, before: known?.before ?? { service, route }, example: known?.example ?? example });
  };
  const [oldTable, nextTable] = [compileTable(old), compileTable(next)];
  for (const request of requestsFor([...old, ...next])) {
    const was = routeOf(oldTable, request);
    const is = was === null || was.guards.length === 0 ? null : routeOf(nextTable, request);
    if (was !== null && is !== null) compare(was, is, request);
  }
  const named = new Map(old.map(({ target }) => [JSON.stringify([target.service, target.route]), target]));
  for (const { target } of next) {
    const was = named.get(JSON.stringify([target.service, target.route]));
    if (was !== undefined) compare(was, target, null);
  }
  return next.flatMap(({ target }) => found.get(target) ?? []);
}

function routeOf(table: RouteTable<Guarded>, { host, method, path }: Request): Guarded | null {
  const found = table.find(host, method, path, false);
  return found.kind === "route" ? found.target : null;
}

function guardedRoutes({ config: { global, services }, shown, kinds }: Loaded): TableEntry<Guarded>[] {
  const guarding = new Set(kinds.filter((kind) => kind.guards === true).map(({ name }) => name));
  const guardsOf = (plugins: readonly PluginInstance[], displayed: readonly DisplayedPlugin[]): Guard[] =>
    plugins.flatMap((plugin, i) => (plugin.enabled && guarding.has(plugin.name) ? guardOf(plugin, displayed[i]!) : []));
  const { global: shownGlobal, services: shownServices } = shown as unknown as DisplayedConfig;
  const globals = guardsOf(global.plugins, shownGlobal.plugins);
  return services.flatMap((service, i) => {
    const outer = [...globals, ...guardsOf(service.plugins, shownServices[i]!.plugins)];
    return service.routes.map((route, j) => ({
      basePath: service.basePath,
      hosts: service.hosts,
      path: route.path,
      methods: route.methods,
      encodedSlashes: service.encodedSlashes === "allow",
      pathParameters: service.pathParameters === "allow",
      target: { service: service.name, route: route.name, guards: [...outer, ...guardsOf(route.plugins, shownServices[i]!.routes[j]!.plugins)] },
    }));
  });
}

/** What is written is compared too: JSON does not express all that a checked configuration may hold, such as patterns. */
function guardOf({ name, config }: PluginInstance, displayed: DisplayedPlugin): Guard {
  return { kind: name, identity: hash("sha256", JSON.stringify([name, inKeyOrder(displayed.config as Json), config])) };
}

/** For each route requests that fit its pattern and, if possible, nothing more specific. */
function* requestsFor(entries: readonly TableEntry<Guarded>[]): Iterable<Request> {
  const segments = new Map(entries.map((entry) => [entry, segmentsOf(entry)]));
  const longest = Math.max(0, ...[...segments.values()].map(({ length }) => length));
  const methods = [...new Set(["GET", ...entries.flatMap((entry) => entry.methods), ANY_METHOD])];
  for (const [entry, pattern] of segments) {
    const texts = pattern.map((segment) => (segment.kind === "literal" ? segment.text : `any-${segment.name}`));
    const isOpen = pattern.at(-1)?.kind === "rest";
    const paths = isOpen ? [texts, [...texts, ...Array.from({ length: longest }, () => texts.at(-1)!)]] : [texts];
    for (const host of entry.hosts.length === 0 ? ["any-host"] : entry.hosts.map((each) => each.replace(/^\*/, "any-name"))) {
      for (const path of paths) for (const method of entry.methods.length === 0 ? methods : entry.methods) yield { method, host, path: `/${path.join("/")}` };
    }
  }
}

/** Stands for the methods that no route names. */
const ANY_METHOD = "ANY";

function segmentsOf({ basePath, path }: TableEntry<Guarded>) {
  const [base, own] = [parsePattern(basePath, "base_path"), parsePattern(path, "path")];
  return "error" in base || "error" in own ? [] : [...base.segments, ...own.segments];
}
