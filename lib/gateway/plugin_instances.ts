/**
 * Creates the plugin instances of a configuration, each under a key that names it across reloads, and chains the
 * instances of a route.
 */
import { hash, randomUUID } from "node:crypto";
import { Egress, type Destination } from "../base/egress.ts";
import type { PluginInstance } from "../config/model.ts";
import { pluginPath } from "../config/plugin_place.ts";
import { groupsOf, type Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { dashed } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { composeChain, runningOrder } from "../plugins/chain.ts";
import type { AnyPlugin, ProtectedResource, Scope, ToolCode, Tools } from "../plugins/plugin.ts";
import type { Counters } from "../store/counters.ts";
import type { LimiterTools } from "../store/costs.ts";
import type { WatchedRoute } from "./bundle.ts";
import type { PluginOwner, PluginContext, PluginLink, RouteChain } from "./compile_types.ts";
import { dialledBy } from "./plugin_destinations.ts";
import { creating } from "./plugin_error.ts";
import { memoryOf, sharedBy } from "./plugin_memory.ts";

export { beforeRoutes } from "./before_routes.ts";
export { destinationsOfPlugins } from "./plugin_destinations.ts";
export { placed } from "./plugin_error.ts";
export { resourceAnswers } from "./protected_resources.ts";

/** Creates the enabled instances of one list of plugins. Throws a `PluginError` when one of them cannot be created. */
export function createLinks(
  instances: readonly PluginInstance[],
  place: PluginOwner,
  context: PluginContext,
): readonly PluginLink[] {
  const links: PluginLink[] = [];
  const seen = new Map<string, number>();
  instances.forEach((instance, index) => {
    // Instances without an id are identified by their place among their kind. Disabled ones count, so that disabling
    // one does not give its counters to the next.
    const nth = seen.get(instance.name) ?? 0;
    seen.set(instance.name, nth + 1);
    if (!instance.enabled) return;
    links.push(creating(() => createLink(instance, [index, nth], place, context), instance.name, place, index));
  });
  return links;
}

/** Throws a `PluginError` for a middleware that throws, or makes no handler. */
function handlerBy({ middleware, name, scope, index }: PluginLink, next: Handler): Handler {
  const make = (): Handler => {
    const handler: unknown = middleware(next);
    if (typeof handler === "function") return handler as Handler;
    throw new TypeError('what "create" returns has to give a handler: (next) => (exchange) => next(exchange)');
  };
  return creating(make, name, scope, index);
}

/** Of all verdicts together that plugins remember: some ten thousand tokens. */
const MAX_VERDICT_BYTES = 32 * 1024 * 1024;

const NO_EGRESS = new Egress([]);
const NO_HEADERS: ReadonlySet<string> = new Set();

type Meter = ReturnType<NonNullable<PluginContext["plan"]>["plugin"]> | null;

/**
 * The tools of one instance. What is made is made when it is asked for: ten thousand instances would hold twenty
 * functions each.
 */
class InstanceTools implements Tools {
  readonly scope: Scope;
  readonly #context: PluginContext;
  readonly #kind: AnyPlugin;
  /** URLs of servers that the instance may ask, see `dialledBy`. */
  readonly #destinations: readonly Destination[];
  readonly #meter: Meter;

  constructor(
    scope: Scope,
    kind: AnyPlugin,
    destinations: readonly Destination[],
    meter: Meter,
    context: PluginContext,
  ) {
    this.scope = scope;
    this.#context = context;
    this.#kind = kind;
    this.#destinations = destinations;
    this.#meter = meter;
  }

  get clock() {
    return this.#context.runtime.clock;
  }

  get log() {
    return this.#context.log;
  }

  get callers() {
    return this.#context.callers;
  }

  get groupsOf() {
    return groupsOf;
  }

  get gatewayName() {
    return this.#context.gatewayName;
  }

  get secretParameters() {
    return this.#context.runtime.secretParameters;
  }

  get verifiedClaims() {
    return this.#context.standIns?.verifiedClaims ?? null;
  }

  get isTrial() {
    return this.#context.standIns?.isTrial === true;
  }

  get gatewaySecrets() {
    return this.#context.inUse.shared;
  }

  get limits() {
    return this.#context.limits();
  }

  get verdicts() {
    const SharedMemory = this.#code("SharedMemory");
    return this.#context.runtime.common("verdicts", () => new SharedMemory(MAX_VERDICT_BYTES));
  }

  get verifyPassword() {
    return this.#context.standIns?.verifyPassword ?? this.#code("verifyPassword");
  }

  get counters(): Counters {
    return {
      limiter: (limiterKey, options) => {
        const { runtime, inUse } = this.#context;
        inUse.limiters.add(limiterKey);
        const store = options.counters === "memory" ? null : inUse.shared;
        const memory = this.#isAlone ? undefined : memoryOf(`limiter ${limiterKey}`, this.#context);
        return (store ?? runtime.counters(this.#code("memoryCounters"))).limiter(limiterKey, options, memory);
      },
    };
  }

  get limiterBy(): Tools["limiterBy"] {
    return (make, limiterKey = this.scope.key) => {
      const local = this.#context.runtime.counters(this.#code("memoryCounters"));
      return make(limiterTools(limiterKey, local, this.#context), limiterKey);
    };
  }

  get keep(): Tools["keep"] {
    return (what, settings, make) => {
      const { runtime, inUse } = this.#context;
      // Compared by digest: settings may hold whole files. A client that is kept may ask the servers of its own
      // configuration only.
      const ways = this.#destinations.map((to) => [to, this.#context.egress.proxyTo(to)?.identity]);
      const digest = hash("sha256", JSON.stringify([settings, ways]));
      return runtime.keep(JSON.stringify([this.scope.key, what]), digest, make, inUse);
    };
  }

  get common(): Tools["common"] {
    return (what, make) => this.#context.runtime.common(`${this.#kind.name}: ${what}`, make);
  }

  get count(): Tools["count"] {
    return (what) => this.#context.runtime.count(`count of ${this.#kind.name}: ${what}`, this.#code("SharedCount"));
  }

  get counts(): Tools["counts"] {
    // A limiter counts only with `cost.reserve`, which brings the code.
    const isLimiter = this.#kind.code?.memoryCounters !== undefined;
    return (what) =>
      this.#context.runtime.count(
        `${this.#kind.name}: ${what}`,
        isLimiter ? this.limits.HeldCounts : this.#code("HeldCounts"),
      );
  }

  get shared(): Tools["shared"] {
    return (what, bytes) => {
      if (!Number.isSafeInteger(bytes) || bytes < 1)
        throw new RangeError(`the memory "${what}" cannot have ${bytes} bytes: ask for a whole number, at least 1`);
      return this.#isAlone ? null : sharedBy(this.scope.key, what, bytes, this.#context);
    };
  }

  get client(): Tools["client"] {
    return (options) => {
      const { standIns, runtime } = this.#context;
      const { name, dials } = this.#kind;
      const why = dials?.why ?? `plugin ${name}, whose kind has no "dials"`;
      const standIn = standIns?.client?.({ name, scope: this.scope });
      if (standIn !== undefined) return standIn;
      const { proxy } = this.#context.egress;
      const egress = this.#destinations.length === 0 ? NO_EGRESS : new Egress(this.#destinations, proxy);
      return new (this.#code("HttpClient"))({ clock: runtime.clock, ...options, egress, why });
    };
  }

  get tally(): Tools["tally"] {
    // A plugin in JavaScript may count statuses: a number would fail each report of the metrics.
    return (result) => this.#meter?.tally(String(result));
  }

  get #isAlone(): boolean {
    return this.#context.runtime.threads.count === 1;
  }

  /** What an instance of the kind uses. Throws where its kind has not brought it. */
  #code<Name extends keyof ToolCode>(what: Name): NonNullable<ToolCode[Name]> {
    const { isBuiltIn, foreign } = this.#context;
    const given = this.#kind.code ?? (isBuiltIn(this.#kind) ? undefined : foreign?.TOOL_CODE);
    const code = given?.[what];
    if (code === undefined)
      throw new Error(`the plugin kind ${this.#kind.name} uses ${what}, and has no "code" for it`);
    return code;
  }
}

/** The same as properties of a plain object: plugins that are not ours may spread it. */
function ownTools(tools: InstanceTools): Tools {
  const own = { scope: tools.scope };
  for (const [name, { get }] of Object.entries(Object.getOwnPropertyDescriptors(InstanceTools.prototype)))
    if (get !== undefined)
      Object.defineProperty(own, name, { get: get.bind(tools), enumerable: !MAY_BE_ABSENT.includes(name) });
  return own as Tools;
}

/** To ask for one that nothing has brought throws. */
const MAY_BE_ABSENT = ["limits", "verdicts", "verifyPassword"];

/** Throws what the plugin throws. `nth`: of the instances of its kind in one place, `index`: of all instances there. */
export function createLink(
  { name, id, config }: PluginInstance,
  [index, nth]: readonly [index: number, nth: number],
  place: PluginOwner,
  context: PluginContext,
): PluginLink {
  const { runtime, plan, tracer, inUse, standIns, callers, observed: observe } = context;
  const key = JSON.stringify([place.level, place.service, place.route, name, id ?? nth]);
  // Not `...place`: Node 20 gives each object a hidden class of its own then, and there are many.
  const scope: Scope = {
    level: place.level,
    service: place.service,
    route: place.route,
    key,
    path: pluginPath(place, id ?? name, id === undefined ? nth : 0),
    id: id ?? null,
  };
  const kind = context.kinds.find((each) => each.name === name)!;
  const isBuiltIn = context.isBuiltIn(kind);
  const destinations = dialledBy(kind, config);
  const meter = plan?.plugin({ ...scope, name, id: id ?? String(nth + 1) }) ?? null;
  for (const parameter of kind.secretParameters?.(config) ?? []) runtime.secretParameters.add(parameter.toLowerCase());
  const tools = new InstanceTools(scope, kind, destinations, meter, context);
  const created =
    standIns?.identified?.(kind, config, scope.id) ?? kind.create(config, isBuiltIn ? tools : ownTools(tools));
  if (typeof created !== "function") throw new TypeError('"create" gave no function');
  if (!isBuiltIn) inUse.hasForeignPlugins = true;
  // Ours send nothing else, and the check of every header of a reply costs half a microsecond.
  const middleware = isBuiltIn ? created : context.foreign!.sendingValid(created);
  const admitting =
    kind.identifies === true && callers !== null
      ? callers.admitting(middleware, standIns === undefined ? runtime.clock : null)
      : middleware;
  context.instances.add(key);
  const observed = (standIns ?? { observed: observe }).observed?.({ name, scope }, admitting) ?? admitting;
  return {
    name,
    scope,
    middleware: tracer === null ? observed : tracer.spanned({ name, scope }, observed),
    meter,
    kind,
    config,
    ownHeaders: kind.ownHeaders?.(config) ?? [],
    resource: kind.resource?.(config),
    index,
  };
}

/** See `Tools.limiterBy`; `key`: of the limiter. */
function limiterTools(key: string, local: LimiterTools["local"], context: PluginContext): LimiterTools {
  const { runtime, inUse } = context;
  const { clock, state, threads } = runtime;
  inUse.limiters.add(key);
  const memory = threads.count === 1 ? undefined : memoryOf(`limiter ${key}`, context);
  return { clock, local, shared: inUse.shared, quotas: state?.quotas ?? null, memory };
}

/**
 * Of a guard: a digest that differs where its configuration does. One that JSON cannot express gets a new one at each
 * reload, so that no stored reply is used under it.
 */
function identityOf({ scope, config }: PluginLink): string {
  try {
    return hash("sha256", JSON.stringify([scope.key, config]));
  } catch {
    return randomUUID();
  }
}

/**
 * Chains the instances of a route, written from the outermost to the innermost, around the handler that asks the
 * upstreams.
 */
export function chain(
  written: readonly PluginLink[],
  innermost: Handler,
  place: Omit<WatchedRoute, "plugins">,
  { runtime, onFault, watched, callers, matched, isBuiltIn }: PluginContext,
): RouteChain {
  const links = runningOrder(written);
  const own = links.flatMap(({ ownHeaders }) => ownHeaders.map(dashed));
  const stores = links.some(({ kind }) => kind.stores);
  const resource = links.findLast((link) => link.resource !== undefined)?.resource;
  const composed = composeChain(links, innermost, runtime.clock, onFault, handlerBy);
  const handler = resource === undefined ? composed : challenging(composed, resource);
  const guards = () => links.filter(({ kind }) => kind.guards === true).map(identityOf);
  const modules = () => links.flatMap(({ kind, name }) => (isBuiltIn(kind) ? [] : name));
  return {
    handler: watched?.(handler, { ...place, plugins: [...new Set(modules())] }) ?? handler,
    audience: stores ? hash("sha256", JSON.stringify([place.service, place.route, guards()]), "base64url") : "",
    ownHeaders: own.length === 0 ? (matched ?? NO_HEADERS) : new Set([...own, ...(matched ?? [])]),
    callers: callers ?? undefined,
    takesPreflights: links.some(({ kind }) => kind.takes === "preflights"),
  };
}

/** What any plugin of the route refuses leads clients to the metadata; replies of upstreams stay as they are. */
function challenging(handler: Handler, resource: ProtectedResource): Handler {
  const completed = ({ call }: Exchange, reply: Reply) =>
    (reply.status === 401 || reply.status === 403) && call.notes.by !== null ? resource.challenged(reply) : reply;
  return (exchange) => {
    const reply = handler(exchange);
    return reply instanceof Promise ? reply.then((late) => completed(exchange, late)) : completed(exchange, reply);
  };
}
