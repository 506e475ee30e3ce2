/**
 * The types of what a configuration is compiled with, and of the plugin instances and chains that come of it.
 */
import type { Egress } from "../base/egress.ts";
import type { Log } from "../base/log.ts";
import type { Client } from "../client/client.ts";
import type { LoadResult } from "../config/load.ts";
import type { Config, Service, Upstream } from "../config/model.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import type { ErrorText, OwnBodyOf } from "../http/own_body.ts";
import type { Reply } from "../http/reply.ts";
import type { Metrics, MetricsPlan } from "../observe/metrics_plan.ts";
import type { Tracer } from "../observe/trace.ts";
import type {
  AnyPlugin,
  ForeignKinds,
  FurtherLimits,
  Link,
  OnFault,
  ProtectedResource,
  Scope,
  Tools,
} from "../plugins/plugin.ts";
import type { Matching, UpstreamPaths } from "../route/contracts.ts";
import type { DefaultCertificate } from "../server/certificates.ts";
import type { Inbound, ProxyTrust } from "../server/inbound.ts";
import type { Watch } from "./bundle.ts";
import type { UpstreamEndpoint, UpstreamPlan, UpstreamSet } from "../upstream/upstream_set.ts";
import type { InUse, PlannedPools, Runtime, UpstreamSetPlan } from "./runtime.ts";

/** Makes a handler that forwards a request to one of the upstreams, for routes with these timeouts. */
export type HandlerFor = (timeouts: Service["timeouts"]) => Handler;

/** Makes what a service has of its endpoints: once, or whenever they are others. */
export interface UpstreamsMaker {
  readonly upstreamSet: UpstreamSet;
  /** Whether the servers of an upstream are others with time. */
  follows(upstream: Upstream): boolean;
  /** `pools`: gets its pool. Throws when its TLS settings cannot be used. */
  plan(endpoint: UpstreamEndpoint, pools: PlannedPools): UpstreamPlan;
  set(plans: readonly UpstreamPlan[]): { readonly set: UpstreamSetPlan; readonly handlerFor: HandlerFor };
}

/** Where plugins are configured. */
export type PluginOwner = Pick<Scope, "level" | "service" | "route">;

/**
 * Answers a request before its route is looked up; null: it goes on to its route. `authority`: the host that it names,
 * which has been checked.
 */
export type EarlyAnswer = (inbound: Inbound, authority: string) => Reply | null;

/** Completes what is answered before a route is known. */
export type BeforeRoutes = (inbound: Inbound, reply: Reply) => Reply | Promise<Reply>;

/** Own bodies for errors. */
export interface UseOwnErrors {
  /** Has the errors of a request answered with them. */
  readonly ofRequest: (inbound: Inbound) => void;
  /** For requests that cannot be read. */
  readonly ofUnread: OwnBodyOf;
}

/** An item of `errors`: which errors it is for, of which requests. */
export interface ErrorEntry {
  /** Null: every error. */
  readonly fits: ((error: Pick<ErrorText, "code" | "status">) => boolean) | null;
  /** Null: all. */
  readonly methods: ReadonlySet<string> | null;
  /** Which requests have to accept, unless `always`. */
  readonly type: MediaType;
  readonly always: boolean;
}

export interface MediaType {
  /** "text/html", in lower case. */
  readonly name: string;
  /** In lower case, but for `charset`: "level=1". */
  readonly parameters: readonly string[];
}

export interface ErrorEntries {
  /** Of `global`, or of a service. */
  errorEntries(list: Config["global"]["errors"]): readonly ErrorEntry[];
}

/** A configuration without errors, with what it refers to. It is not compiled yet: `Snapshot`. */
export interface ValidConfig extends Omit<Extract<LoadResult<AnyPlugin>, { readonly ok: true }>, "ok"> {
  /** Null: no part of the configuration needs it. */
  readonly routing: (Matching & UpstreamPaths & ProxyTrust & ErrorEntries) | null;
  /** Null: it has none. */
  readonly callers: Tools["callers"];
}

/** What a configuration is compiled with. */
export interface CompileTools {
  /** Null: nobody can ask for them. */
  readonly metrics: Metrics | null;
  readonly runtime: Runtime;
  readonly log: Log;
  /** Null: requests are not traced. */
  readonly tracer: Tracer | null;
  /** Called for every plugin that is at fault for a request. */
  readonly onFault: OnFault;
  /** See `Following`. */
  readonly watched?: Watch | undefined;
  /** Wraps the middleware of every plugin. */
  readonly observed?: StandIns["observed"] | undefined;
  /** Of the HTTPS listeners; null, the default: there are none. */
  readonly defaultCertificate?: () => DefaultCertificate | null;
  /** Default: plugins send requests of their own over the network, and verify tokens. */
  readonly standIns?: StandIns;
}

/** What plugin instances get in place of the network, where a configuration is tried out (see `proof/scratch.ts`). */
export interface StandIns {
  /** Undefined: they ask over the network. */
  readonly client: ((plugin: PluginRef) => Client) | undefined;
  /** Wraps the middleware of a plugin. */
  observed(plugin: PluginRef, middleware: Middleware): Middleware;
  /** As `Tools.verifiedClaims`. */
  readonly verifiedClaims: Tools["verifiedClaims"];
  /**
   * The middleware in place of a plugin that would identify somebody; undefined: its own. Default: of all their own.
   */
  readonly identified?: ((kind: AnyPlugin, config: unknown, id: string | null) => Middleware | undefined) | undefined;
  /** As `Tools.verifyPassword`. Default: as the gateway does. */
  readonly verifyPassword?: Tools["verifyPassword"] | undefined;
  /** As `Tools.isTrial`. */
  readonly isTrial: boolean;
}

/** A plugin instance: its kind, and where it is configured. */
export type PluginRef = Pick<Link, "name" | "scope">;

/** The objects shared by the plugin instances of one configuration. */
export interface PluginContext extends CompileTools {
  /** Whether a kind is built in. */
  readonly isBuiltIn: (kind: AnyPlugin) => boolean;
  /** Default: all kinds are built in. */
  readonly foreign: ForeignKinds | null;
  /** For instances that name one of them; throws where none does. */
  readonly limits: () => FurtherLimits;
  readonly gatewayName: string;
  readonly kinds: readonly AnyPlugin[];
  /** Null: there are none. */
  readonly callers: Tools["callers"];
  readonly egress: Egress;
  readonly inUse: InUse;
  readonly plan: MetricsPlan | null;
  /** The headers that `match` of any route reads, see `dashed`; absent: no route has it. */
  readonly matched?: ReadonlySet<string> | undefined;
  /** Gets the keys of all instances that are created. */
  readonly instances: Set<string>;
}

export interface PluginLink extends Link {
  readonly kind: AnyPlugin;
  /** The output of the kind's schema. */
  readonly config: unknown;
  /** See `Plugin`. */
  readonly ownHeaders: readonly string[];
  /** Undefined: the instance describes none. */
  readonly resource: ProtectedResource | undefined;
  /** Of the instance among the plugins of its place. */
  readonly index: number;
}

export interface RouteChain {
  readonly handler: Handler;
  /** See `RouteName`. */
  readonly audience: string;
  readonly ownHeaders: ReadonlySet<string> | undefined;
  readonly callers?: NonNullable<Tools["callers"]> | undefined;
  readonly takesPreflights: boolean;
}
