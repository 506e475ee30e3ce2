/**
 * Creates the plugin instances of a configuration, each under a key that names it across reloads, and chains the
 * instances of a route.
 */
import { hash, randomUUID } from "node:crypto";
import { Egress } from "../base/egress.ts";
import type { PluginInstance } from "../config/model.ts";
import { groupsOf } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { dashed } from "../http/headers.ts";
import { composeChain, runningOrder } from "../plugins/chain.ts";
import type { Scope, ToolCode, Tools } from "../plugins/plugin.ts";
import type { Counters } from "../store/counters.ts";
import type { LimiterTools } from "../store/costs.ts";
import type { WatchedRoute } from "./bundle.ts";
import type { PluginOwner, PluginContext, PluginLink, RouteChain } from "./compile_types.ts";
import { dialledBy } from "./plugin_destinations.ts";
import { creating, pluginPath } from "./plugin_error.ts";
import { memoryOf, sharedBy } from "./plugin_memory.ts";

export { beforeRoutes } from "./before_routes.ts";
export { destinationsOfPlugins } from "./plugin_destinations.ts";
export { placed } from "./plugin_error.ts";

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
    const inPlace = <T>(run: () => T) => creating(run, instance.name, place, index);
    const link = inPlace(() => createLink(instance, nth, place, context));
    links.push({ ...link, middleware: (next) => inPlace(() => handlerBy(link.middleware, next)) });
  });
  return links;
}

/** Throws a TypeError for a middleware that makes no handler. */
function handlerBy(middleware: Middleware, next: Handler): Handler {
  const handler: unknown = middleware(next);
  if (typeof handler === "function") return handler as Handler;
  throw new TypeError('what "create" returns has to give a handler: (next) => (exchange) => next(exchange)');
}

/** Of all verdicts together that plugins remember: some ten thousand tokens. */
const MAX_VERDICT_BYTES = 32 * 1024 * 1024;

const NO_EGRESS = new Egress([]);

/** What is made when it is asked for. Getters of ten thousand objects cost each of them a hidden class of its own. */
class CommonTools implements Pick<Tools, "limits" | "verdicts" | "verifyPassword"> {
  readonly #context: PluginContext;
  readonly #code: CodeOf;

  constructor(context: PluginContext, code: CodeOf) {
    this.#context = context;
    this.#code = code;
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
}

/** What an instance of a kind uses. Throws where its kind has not brought it. */
type CodeOf = <Name extends keyof ToolCode>(what: Name) => NonNullable<ToolCode[Name]>;

function codeOf(given: ToolCode | undefined, kind: string): CodeOf {
  return (what) => {
    const code = given?.[what];
    if (code === undefined) throw new Error(`the plugin kind ${kind} uses ${what}, and has no "code" for it`);
    return code;
  };
}

/** Throws what the plugin throws. `nth`: of the instances of its kind in one place. */
export function createLink(
  { name, id, config }: PluginInstance,
  nth: number,
  place: PluginOwner,
  context: PluginContext,
): PluginLink {
  const { runtime, plan, tracer, inUse, standIns, callers, observed: observe } = context;
  const key = JSON.stringify([place.level, place.service, place.route, name, id ?? nth]);
  const scope: Scope = { ...place, key, path: pluginPath(place, id ?? name), id: id ?? null };
  const kind = context.kinds.find((each) => each.name === name)!;
  const isBuiltIn = context.isBuiltIn(kind);
  const code = codeOf(kind.code ?? (isBuiltIn ? undefined : context.foreign?.TOOL_CODE), name);
  const isAlone = runtime.threads.count === 1;
  const counters: Counters = {
    limiter(limiterKey, options) {
      inUse.limiters.add(limiterKey);
      const store = options.counters === "memory" ? null : inUse.shared;
      const memory = isAlone ? undefined : memoryOf(`limiter ${limiterKey}`, context);
      return (store ?? runtime.counters(code("memoryCounters"))).limiter(limiterKey, options, memory);
    },
  };
  const destinations = dialledBy(kind, config);
  const egress = destinations.length === 0 ? NO_EGRESS : new Egress(destinations);
  const keep: Tools["keep"] = (what, settings, make) =>
    // Compared by digest: settings may hold whole files. A client that is kept may ask the servers of its own
    // configuration only.
    runtime.keep(JSON.stringify([key, what]), hash("sha256", JSON.stringify([settings, destinations])), make, inUse);
  const meter = plan?.plugin({ ...scope, name, id: id ?? String(nth + 1) }) ?? null;
  const { clock, secretParameters } = runtime;
  for (const parameter of kind.secretParameters?.(config) ?? []) secretParameters.add(parameter.toLowerCase());
  const { log, gatewayName } = context;
  const own: Omit<Tools, keyof CommonTools> = {
    ...{ callers, groupsOf, clock, log, gatewayName, scope, keep, secretParameters, counters },
    limiterBy: (make, limiterKey = key) =>
      make(limiterTools(limiterKey, runtime.counters(code("memoryCounters")), context), limiterKey),
    common: (what, make) => runtime.common(`${name}: ${what}`, make),
    count: (what) => runtime.count(`count of ${name}: ${what}`, code("SharedCount")),
    counts: (what) => runtime.count(`${name}: ${what}`, code("HeldCounts")),
    shared(what, bytes) {
      if (!Number.isSafeInteger(bytes) || bytes < 1)
        throw new RangeError(`the memory "${what}" cannot have ${bytes} bytes: ask for a whole number, at least 1`);
      return isAlone ? null : sharedBy(key, what, bytes, context);
    },
    client(options) {
      const why = kind.dials?.why ?? `plugin ${name}, whose kind has no "dials"`;
      const standIn = standIns?.client?.({ name, scope });
      return standIn ?? new (code("HttpClient"))({ clock, ...options, egress, why });
    },
    verifiedClaims: standIns?.verifiedClaims ?? null,
    isTrial: standIns?.isTrial === true,
    // A plugin in JavaScript may count statuses: a number would fail each report of the metrics.
    tally: (result) => meter?.tally(String(result)),
  };
  const tools: Tools = Object.assign(new CommonTools(context, code), own);
  const created = standIns?.identified?.(kind, config, scope.id) ?? kind.create(config, tools);
  if (typeof created !== "function") throw new TypeError('"create" gave no function');
  if (!isBuiltIn) inUse.hasForeignPlugins = true;
  // Ours send nothing else, and the check of every header of a reply costs half a microsecond.
  const middleware = isBuiltIn ? created : context.foreign!.sendingValid(created);
  const admitting =
    kind.identifies === true && callers !== null
      ? callers.admitting(middleware, standIns === undefined ? clock : null)
      : middleware;
  context.instances.add(key);
  const identity = kind.guards === true ? identityOf(key, config) : "";
  const observed = (standIns ?? { observed: observe }).observed?.({ name, scope }, admitting) ?? admitting;
  return {
    name,
    scope,
    middleware: tracer === null ? observed : tracer.spanned({ name, scope }, observed),
    meter,
    kind,
    identity,
    ownHeaders: kind.ownHeaders?.(config) ?? [],
  };
}

/** See `Tools.limiterBy`; `key`: of the limiter. */
function limiterTools(key: string, local: LimiterTools["local"], context: PluginContext): LimiterTools {
  const { runtime, inUse } = context;
  const { clock, state, threads } = runtime;
  inUse.limiters.add(key);
  const memory = threads.count === 1 ? undefined : memoryOf(`limiter ${key}`, context);
  return { clock, local, shared: inUse.shared, state, memory };
}

/**
 * A configuration that JSON cannot express gets a new identity at each reload, so that no stored reply is used under
 * it.
 */
function identityOf(key: string, config: unknown): string {
  try {
    return hash("sha256", JSON.stringify([key, config]));
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
  const guards = links.filter(({ kind }) => kind.guards).map(({ identity }) => identity);
  const own = links.flatMap(({ ownHeaders }) => ownHeaders.map(dashed));
  const stores = links.some(({ kind }) => kind.stores);
  const handler = composeChain(links, innermost, runtime.clock, onFault);
  const modules = () => [...new Set(links.filter(({ kind }) => !isBuiltIn(kind)).map(({ name }) => name))];
  return {
    handler: watched?.(handler, { ...place, plugins: modules() }) ?? handler,
    audience: stores ? hash("sha256", JSON.stringify([place.service, place.route, guards]), "base64url") : "",
    ownHeaders: new Set([...own, ...(matched ?? [])]),
    callers: callers ?? undefined,
    takesPreflights: links.some(({ kind }) => kind.takes === "preflights"),
  };
}
