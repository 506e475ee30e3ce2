/**
 * Reads a configuration as its warnings need it: each plugin instance and each route with the path that names it.
 */
import { hash } from "node:crypto";
import { ROUTES_OF_A_STEP } from "../config/declarations.ts";
import { inKeyOrder, type Path } from "../config/json.ts";
import type { Config, PluginInstance, Route, Service, Upstream } from "../config/model.ts";
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
  /** A new object each time. */
  readonly guards: ReadonlySet<string>;
  /** Equal for equal sets. */
  readonly guardNames: string;
  /** The plugins that may answer in place of the upstream: "t" for request_termination, "r" for redirect. */
  readonly answering: string;
}

/** What a service was read to, for the next configuration that has it. */
export interface WrittenService {
  readonly service: Service;
  readonly outermost: readonly WrittenPlugin[];
  readonly index: number;
  readonly plugins: readonly WrittenPlugin[];
  readonly routes: readonly WrittenRoute[];
}

const services = new WeakMap<Service, WrittenService>();
const globals = new WeakMap<Config["global"], readonly WrittenPlugin[]>();

/** All enabled plugin instances, and all routes with theirs. Services that have not changed are not read again. */
export function* written({ config, kinds, shown }: ValidConfig) {
  const byName = new Map(kinds.map((kind) => [kind.name, kind]));
  const displayed = shown as unknown as DisplayedConfig;
  const list = (owner: WrittenOwner, instances: readonly PluginInstance[], shown: readonly DisplayedPlugin[]) =>
    instances.flatMap((instance, i): readonly WrittenPlugin[] => {
      if (!instance.enabled) return [];
      const kind = byName.get(instance.name)!;
      return [new Instance(owner, i, instance, kind, kind.guards === true ? guardOf(shown[i]!) : null)];
    });
  const outermost =
    globals.get(config.global) ?? list(new WrittenOwner(null, null), config.global.plugins, displayed.global.plugins);
  globals.set(config.global, outermost);
  const all: WrittenService[] = [];
  for (const [index, service] of config.services.entries()) {
    yield;
    const known = services.get(service);
    if (known?.index === index && known.outermost === outermost) {
      all.push(known);
      continue;
    }
    const shown = displayed.services[index]!;
    const outer = list(new WrittenOwner(service, null, index), service.plugins, shown.plugins);
    const outside = outermost.concat(outer);
    const [plugins, routes] = [[...outer], [] as WrittenRoute[]];
    for (const [i, route] of service.routes.entries()) {
      if (i % ROUTES_OF_A_STEP === 0) yield;
      const owner = new WrittenOwner(service, route, index, i);
      const inner = list(owner, route.plugins, shown.routes[i]!.plugins);
      plugins.push(...inner);
      routes.push(new WrittenAt(owner, service, route, outside.concat(inner)));
    }
    const read = { service, outermost, index, plugins, routes };
    services.set(service, read);
    all.push(read);
  }
  return {
    services: all,
    routes: all.flatMap(({ routes }) => routes),
    plugins: [...outermost, ...all.flatMap(({ plugins }) => plugins)],
  };
}

/** Where plugins are: names and paths are made for those alone that a warning is about. */
class WrittenOwner {
  readonly service: string | null;
  readonly route: string | null;
  readonly #index: number;
  readonly #routeIndex: number;

  constructor(service: Service | null, route: Route | null, index = -1, routeIndex = -1) {
    this.service = service === null ? null : service.name;
    this.route = route === null ? null : route.name;
    this.#index = index;
    this.#routeIndex = routeIndex;
  }

  get path(): string {
    if (this.service === null) return "global";
    return `services.${this.service}${this.route === null ? "" : `.routes.${this.route}`}`;
  }

  get at(): Path {
    if (this.#index < 0) return ["global"];
    const service = ["services", this.#index];
    return this.#routeIndex < 0 ? service : [...service, "routes", this.#routeIndex];
  }
}

class Instance implements WrittenPlugin {
  readonly kind: AnyPlugin;
  readonly guard: string | null;
  readonly #owner: WrittenOwner;
  readonly #index: number;
  readonly #instance: PluginInstance;

  constructor(owner: WrittenOwner, index: number, instance: PluginInstance, kind: AnyPlugin, guard: string | null) {
    this.kind = kind;
    this.guard = guard;
    this.#owner = owner;
    this.#index = index;
    this.#instance = instance;
  }

  get config() {
    return this.#instance.config as WrittenPlugin["config"];
  }
  get service(): string | null {
    return this.#owner.service;
  }
  get route(): string | null {
    return this.#owner.route;
  }
  get id(): string | null {
    return this.#instance.id ?? null;
  }
  get path(): string {
    return `${this.#owner.path}.plugins.${this.#instance.id ?? this.#instance.name}`;
  }
  get at(): Path {
    return [...this.#owner.at, "plugins", this.#index];
  }
}

class WrittenAt implements WrittenRoute {
  readonly service: Service;
  readonly route: Route;
  readonly plugins: readonly WrittenPlugin[];
  readonly guardNames: string;
  readonly answering: string;
  readonly #owner: WrittenOwner;

  constructor(owner: WrittenOwner, service: Service, route: Route, plugins: readonly WrittenPlugin[]) {
    this.#owner = owner;
    this.service = service;
    this.route = route;
    this.plugins = plugins;
    this.guardNames = [...new Set(guardsIn(plugins))].sort().join();
    this.answering = plugins.map(({ kind }) => ANSWERING.get(kind.name) ?? "").join("");
  }

  get guards(): ReadonlySet<string> {
    const isClosed = this.plugins.some(({ kind }) => kind.name === "request_termination");
    return isClosed ? new AllGuards(guardsIn(this.plugins)) : new Set(guardsIn(this.plugins));
  }
  get path(): string {
    return this.#owner.path;
  }
  get at(): Path {
    return this.#owner.at;
  }
}

export function guardsIn(plugins: readonly WrittenPlugin[]): readonly string[] {
  return plugins.flatMap(({ guard }) => guard ?? []);
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
  return ({ service, answering }) => {
    if (answering !== "") return null;
    const { upstreams, preserveHost } = service;
    const found = known.get(service) ?? { addresses: upstreams.map(spelt), preservesHost: preserveHost };
    known.set(service, found);
    return found;
  };
}

const ANSWERING: ReadonlyMap<string, string> = new Map([
  ["redirect", "r"],
  ["request_termination", "t"],
]);

/** The targets of an SRV record are not known here: records are compared by their names. */
function spelt(upstream: Upstream): string {
  if ("srv" in upstream) return upstream.srv.replace(/\.$/, "");
  const { host, port } = upstream;
  const name = new URL(`http://${host.includes(":") ? `[${host}]` : host}`).hostname.replace(/\.$/, "");
  return `${/^(127\.0\.0\.1|\[::1\])$/.test(name) ? "localhost" : name}:${port}`;
}

/** "GET http://shop.example.com/items/x?a=1 (x-version: 2)" */
export function exampleOf({ method, scheme, host, path, query, headers }: SampleRequest): string {
  const lines = pairs(headers).map(([name, value]) => `${name}: ${value}`);
  return `${method} ${scheme}://${host}${path}${query}${lines.length === 0 ? "" : ` (${lines.join(", ")})`}`;
}
