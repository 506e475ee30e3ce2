/**
 * Reads a configuration as its warnings need it: each plugin instance and each route with the path that names it.
 */
import { hash } from "node:crypto";
import { inKeyOrder, type Path } from "../config/json.ts";
import type { PluginInstance, Route, Service, Upstream } from "../config/model.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { SampleRequest } from "../route/sample_requests.ts";
import type { RouteDestination } from "../route/upstream_overlaps.ts";
import type { DisplayedConfig, DisplayedPlugin } from "../gateway/displayed_config.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import { pairs } from "../server/reply_headers.ts";

/** An enabled plugin instance. */
export interface WrittenPlugin {
  readonly kind: AnyPlugin;
  readonly config: Readonly<Record<string, unknown>>;
  /** Null: at the global level. */
  readonly service: string | null;
  readonly route: string | null;
  readonly id: string | null;
  readonly path: string;
  readonly at: Path;
  /** For guards: equal for equal guards. Null for other plugins. */
  readonly guard: string | null;
}

export interface WrittenRoute {
  readonly service: Service;
  readonly route: Route;
  readonly path: string;
  readonly at: Path;
  /** From the outermost to the innermost, as written. */
  readonly plugins: readonly WrittenPlugin[];
  /** Equal sets are one object. */
  readonly guards: ReadonlySet<string>;
}

/** All enabled plugin instances, and all routes with theirs. */
export function* written({ config: { global, services }, kinds, shown }: ValidConfig) {
  const byName = new Map(kinds.map((kind) => [kind.name, kind]));
  const { global: globalShown, services: servicesShown } = shown as unknown as DisplayedConfig;
  const list = (
    instances: readonly PluginInstance[],
    displayed: readonly DisplayedPlugin[],
    path: string,
    at: Path,
    service: string | null,
    route: string | null,
  ) =>
    instances.flatMap(({ id, name, enabled, config }, i): readonly WrittenPlugin[] => {
      if (!enabled) return [];
      const kind = byName.get(name)!;
      const guard = kind.guards === true ? guardOf(displayed[i]!) : null;
      return [
        {
          kind,
          config: config as WrittenPlugin["config"],
          service,
          route,
          id: id ?? null,
          path: `${path}.plugins.${id ?? name}`,
          at: [...at, "plugins", i],
          guard,
        },
      ];
    });
  const outermost = list(global.plugins, globalShown.plugins, "global", ["global"], null, null);
  const lists = [outermost];
  const routes: WrittenRoute[] = [];
  const sets = new Map<string, ReadonlySet<string>>();
  for (const [i, service] of services.entries()) {
    const at = ["services", i];
    const path = `services.${service.name}`;
    const outer = list(service.plugins, servicesShown[i]!.plugins, path, at, service.name, null);
    lists.push(outer);
    for (const [j, route] of service.routes.entries()) {
      yield;
      const place = { path: `${path}.routes.${route.name}`, at: [...at, "routes", j] };
      const inner = list(
        route.plugins,
        servicesShown[i]!.routes[j]!.plugins,
        place.path,
        place.at,
        service.name,
        route.name,
      );
      lists.push(inner);
      const all = [...outermost, ...outer, ...inner];
      const found = all.flatMap(({ guard }) => guard ?? []);
      const guards = all.some(({ kind }) => kind.name === "request_termination")
        ? new AllGuards(found)
        : new Set(found);
      const name = [...guards].sort().join();
      if (!sets.has(name)) sets.set(name, guards);
      routes.push({ ...place, service, route, plugins: all, guards: sets.get(name)! });
    }
  }
  return { routes, plugins: lists.flat() };
}

/** A plugin of a service that has not changed is displayed as the same object. */
const guards = new WeakMap<DisplayedPlugin, string>();

function guardOf(displayed: DisplayedPlugin): string {
  const known = guards.get(displayed);
  if (known !== undefined) return known;
  const guard = `${displayed.name} ${hash("sha256", JSON.stringify(inKeyOrder(displayed.config)))}`;
  guards.set(displayed, guard);
  return guard;
}

/** Of a route that refuses all requests: it lacks no guard. Lists only its own. */
class AllGuards extends Set<string> {
  override has(): boolean {
    return true;
  }
}

/**
 * Where the services lead, addresses in one spelling, names not resolved. Routes that answer every request themselves
 * lead nowhere.
 */
export function destinations(): (route: WrittenRoute) => RouteDestination | null {
  const known = new Map<Service, RouteDestination>();
  return ({ service, plugins }) => {
    if (plugins.some(({ kind }) => ANSWERING.has(kind.name))) return null;
    const { upstreams, preserveHost } = service;
    const found = known.get(service) ?? { addresses: upstreams.map(spelt), preservesHost: preserveHost };
    known.set(service, found);
    return found;
  };
}

const ANSWERING: ReadonlySet<string> = new Set(["redirect", "request_termination"]);

function spelt({ host, port }: Upstream): string {
  const name = new URL(`http://${host.includes(":") ? `[${host}]` : host}`).hostname.replace(/\.$/, "");
  return `${/^(127\.0\.0\.1|\[::1\])$/.test(name) ? "localhost" : name}:${port}`;
}

/** "GET http://shop.example.com/items/x?a=1 (x-version: 2)" */
export function exampleOf({ method, scheme, host, path, query, headers }: SampleRequest): string {
  const lines = pairs(headers).map(([name, value]) => `${name}: ${value}`);
  return `${method} ${scheme}://${host}${path}${query}${lines.length === 0 ? "" : ` (${lines.join(", ")})`}`;
}
