/**
 * Runs requests through a configuration with state of its own: nothing is dialled, logged, counted or stored outside of
 * it.
 */
import type { Clock } from "../base/clock.ts";
import { Egress } from "../base/egress.ts";
import { silentLog } from "../base/log.ts";
import type { Route, Service } from "../config/model.ts";
import type { ClientAnswer, ClientRequestOptions } from "../client/client.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { documentReply, type Reply } from "../http/reply.ts";
import * as foreignKinds from "../plugins/foreign_kind.ts";
import type { Tools } from "../plugins/plugin.ts";
import * as costs from "../plugins/costs.ts";
import * as groupLimits from "../plugins/group_limits.ts";
import * as shadow from "../plugins/shadow.ts";
import { compileTable, type Found, type RouteTable } from "../route/table.ts";
import type { Inbound } from "../server/inbound.ts";
import { chain, createLinks } from "../gateway/plugin_instances.ts";
import type { EarlyAnswer, UseOwnErrors, ValidConfig, PluginContext, PluginRef } from "../gateway/compile_types.ts";
import { Runtime, type InUse } from "../gateway/runtime.ts";
import { serve } from "../gateway/serve.ts";
import { asCaller } from "./as_caller.ts";
import { compileOwnErrors } from "../gateway/own_errors.ts";
import { entryOf, serviceName, targetOf, type RouteTarget } from "../gateway/snapshot.ts";

export interface ScratchOptions {
  readonly clock: Clock;
  /** Returns the handler in place of the upstreams of a service. */
  readonly upstream: (service: Service) => Handler;
  /** Answers what plugins ask of other servers; rejects with a `ClientFailure`. */
  readonly ask: (request: ClientRequestOptions, plugin: PluginRef) => Promise<ClientAnswer>;
  /** As `Tools.verifiedClaims`. Default null. */
  readonly verifiedClaims?: Tools["verifiedClaims"];
  /** The caller whose credentials every plugin finds that would identify somebody. Default: requests have their own. */
  readonly caller?: string | undefined;
  /** See `ownAnswers`. Default: every request goes to its route. */
  readonly early?: EarlyAnswer | null;
  /** As `Tools.verifyPassword`. Default: as the gateway does. */
  readonly verifyPassword?: Tools["verifyPassword"];
  /** Wraps the middleware of each plugin, after its creation. Default: none is wrapped. */
  readonly wrap?: (plugin: PluginRef, middleware: Middleware) => Middleware;
  /**
   * Whether errors are problem documents, and `errors` of the configuration says only which status is sent. Default:
   * false.
   */
  readonly plainErrors?: boolean;
}

type Tried = Pick<ValidConfig, "config" | "kinds" | "callers" | "routing">;

/** The route table of a configuration, with targets that cannot be called: to be shared by many scratches. */
export function matchingTable({
  config: { global, services },
  kinds,
  callers: _,
  ...parts
}: Tried): RouteTable<RouteTarget> {
  const takers = new Set(kinds.filter(({ takes }) => takes === "preflights").map(({ name }) => name));
  const takes = ({ plugins }: Pick<Service, "plugins">) =>
    plugins.some(({ name, enabled }) => enabled && takers.has(name));
  const entries = services.flatMap((service) => {
    const name = serviceName(service);
    const outer = takes(global) || takes(service);
    return service.routes.map((route) => {
      const chained = {
        handler: uncalled,
        audience: "",
        ownHeaders: undefined,
        takesPreflights: outer || takes(route),
      };
      return entryOf(service, route, targetOf(name, route, chained, null), parts);
    });
  });
  return compileTable(entries);
}

function uncalled(): never {
  throw new Error("a target of the matching table was called");
}

const LIMITS = { ...costs, ...groupLimits, ...shadow };

export class Scratch {
  readonly #tried: Tried;
  readonly #table: RouteTable<RouteTarget>;
  readonly #options: ScratchOptions;
  readonly #runtime: Runtime;
  readonly #inUse: InUse;
  readonly #context: PluginContext;
  readonly #targets = new Map<Route, RouteTarget>();
  readonly #errors: UseOwnErrors | null;
  /** The answer of the route table to the last request; null: it was not asked. */
  found: Found<RouteTarget> | null = null;

  /** `table` is that of a snapshot of the same configuration, or a `matchingTable`. */
  constructor(tried: Tried, table: RouteTable<RouteTarget>, options: ScratchOptions) {
    this.#tried = tried;
    this.#table = table;
    this.#options = options;
    this.#errors = this.#asAsked(compileOwnErrors(tried.config.global.errors));
    this.#runtime = new Runtime(options.clock, silentLog);
    this.#inUse = this.#runtime.inUse(0);
    this.#context = {
      runtime: this.#runtime,
      inUse: this.#inUse,
      metrics: null,
      plan: null,
      instances: new Set(),
      log: silentLog,
      tracer: null,
      gatewayName: tried.config.global.name,
      kinds: tried.kinds,
      callers: tried.callers,
      isBuiltIn: () => false,
      foreign: foreignKinds,
      limits: () => LIMITS,
      egress: new Egress([]),
      onFault: () => {},
      standIns: {
        client: (plugin) => ({ ask: (request) => options.ask(request, plugin), close() {} }),
        observed: options.wrap ?? ((_, middleware) => middleware),
        verifiedClaims: options.verifiedClaims ?? null,
        verifyPassword: options.verifyPassword,
        identified: options.caller === undefined ? undefined : asCaller(options.caller, tried.callers),
        isTrial: true,
      },
    };
  }

  /** As the gateway's data path. Throws when a plugin of the route cannot be created. */
  serve(inbound: Inbound): Reply | Promise<Reply> {
    const table: RouteTable<RouteTarget> = {
      ...this.#table,
      find: (...request) => {
        const found = (this.found = this.#table.find(...request));
        return found.kind === "route" ? { ...found, target: this.#compiled(found.target) } : found;
      },
    };
    this.found = null;
    return serve(
      inbound,
      { table, early: this.#options.early ?? null, errors: this.#errors },
      { clock: this.#options.clock, log: silentLog },
    );
  }

  /** Closes what the plugins hold. */
  close(): void {
    this.#runtime.abandon(this.#inUse);
    this.#runtime.destroy();
  }

  #compiled({ service: { name }, route: { name: routeName } }: RouteTarget): RouteTarget {
    const { global, services } = this.#tried.config;
    const service = services.find((each) => each.name === name)!;
    const route = service.routes.find((each) => each.name === routeName)!;
    const known = this.#targets.get(route);
    if (known !== undefined) return known;
    const links = [
      ...createLinks(global.plugins, { level: "global", service: null, route: null }, this.#context),
      ...createLinks(service.plugins, { level: "service", service: name, route: null }, this.#context),
      ...createLinks(route.plugins, { level: "route", service: name, route: routeName }, this.#context),
    ];
    const chained = chain(links, this.#options.upstream(service), { service: name, route: routeName }, this.#context);
    const errors = service.errors === undefined ? null : this.#asAsked(compileOwnErrors(service.errors, global.errors));
    const target = targetOf(serviceName(service), route, chained, null, errors);
    this.#targets.set(route, target);
    return target;
  }

  #asAsked(errors: UseOwnErrors | null): UseOwnErrors | null {
    return errors === null || this.#options.plainErrors !== true ? errors : withDocuments(errors);
  }
}

/** With problem documents in place of the bodies. */
function withDocuments(errors: UseOwnErrors): UseOwnErrors {
  return {
    ...errors,
    ofRequest(inbound) {
      errors.ofRequest(inbound);
      const { call } = inbound;
      const replyTo = call.ownBody!;
      call.ownBody = (error, id, options) => {
        const sentAs = replyTo(error, id, options)?.sentAs;
        return sentAs === undefined ? null : { ...documentReply(error, id, options), sentAs };
      };
    },
  };
}
