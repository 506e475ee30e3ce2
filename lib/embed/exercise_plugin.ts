/**
 * Runs one plugin without sockets and without a gateway, for its author's tests: with a checked configuration, made-up
 * requests, an upstream that is a value or a function, and a clock that the test moves.
 */
import { Egress } from "../base/egress.ts";
import type { LogFields } from "../base/log.ts";
import { manualClock, type ManualClock } from "../base/manual_clock.ts";
import type { OptionNames } from "../base/option_names.ts";
import { loadConfig } from "../config/load.ts";
import * as references from "../config/references.ts";
import type { Config, PluginInstance } from "../config/model.ts";
import type { InputOf, Schema } from "../config/schema.ts";
import { Exchange, type Call } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { faultReply, isForeignFault, type Reply } from "../http/reply.ts";
import { isReply } from "../plugins/chain.ts";
import * as foreignKinds from "../plugins/foreign_kind.ts";
import type { AnyPlugin, Plugin, Scope, Tools } from "../plugins/plugin.ts";
import { readTarget } from "../route/path.ts";
import { statedLength } from "../server/client_reply.ts";
import type { Inbound } from "../server/inbound.ts";
import * as costs from "../plugins/costs.ts";
import * as groupLimits from "../plugins/group_limits.ts";
import * as shadow from "../plugins/shadow.ts";
import { ConfigError } from "../gateway/config_error.ts";
import { createLink } from "../gateway/plugin_instances.ts";
import type { StandIns } from "../gateway/compile_types.ts";
import { Runtime } from "../gateway/runtime.ts";
import { serversOf, type Answer } from "../proof/stand_ins.ts";
import {
  checkRequest,
  collected,
  headerListOf,
  injected,
  REQUEST_NAMES,
  type InjectRequest,
  type InjectResponse,
} from "../proof/made_request.ts";

export interface ExerciseOptions {
  /**
   * The upstream behind the plugin. Default: 200 with the text "from upstream", once the body of the request has been
   * read.
   */
  readonly upstream?:
    | Handler
    | { readonly status?: number; readonly headers?: InjectRequest["headers"]; readonly body?: string | Buffer };
  /** The instance's `id`. */
  readonly id?: string;
  /** The level of the instance. Default "route". */
  readonly level?: Scope["level"];
  /** Default "edge-gateway". */
  readonly gatewayName?: string;
  /** The variables that `${env:NAME}` in the configuration refers to. Default: none is set. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly clock?: ManualClock;
  /**
   * What other servers answer to `tools.client`, by their exact URLs; others cannot be reached. Default: requests are
   * sent over the network.
   */
  readonly answers?: readonly (Partial<Answer> & Pick<Answer, "url">)[];
  /** Default null. */
  readonly verifiedClaims?: Tools["verifiedClaims"];
}

/**
 * As for `gateway.inject`, with what a route and plugins before this one would have added. The service's base_path is
 * "".
 */
export interface ExerciseRequest extends Omit<InjectRequest, "url"> {
  /** Default "/". */
  readonly url?: string;
  readonly params?: Readonly<Record<string, string>>;
  readonly identity?: string;
  readonly claims?: Readonly<Record<string, unknown>>;
  /** Those that the caller's token names. */
  readonly groups?: readonly string[];
  readonly upgrade?: "websocket";
}

const SENT_NAMES: OptionNames<ExerciseRequest> = {
  ...REQUEST_NAMES,
  params: true,
  identity: true,
  claims: true,
  groups: true,
  upgrade: true,
};

export interface LogLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: LogFields;
}

/** The reply as the client would get it, and the request as the upstream got it. */
export interface Exercised extends InjectResponse {
  /** The request that reached the upstream; null when the plugin answered by itself. */
  readonly forwarded: Exchange | null;
  /** The body that the default upstream has read. */
  readonly forwardedBody: Buffer;
  /** The error's code, where the plugin refused with `problem` or `problemReply`. */
  readonly code: string | null;
  /**
   * Whether the plugin returned its reply without a promise. It can where the upstream is a value or default and the
   * request has no body.
   */
  readonly atOnce: boolean;
}

export interface Exercise {
  readonly clock: ManualClock;
  /** The plugin's log entries so far. */
  readonly lines: readonly LogLine[];
  /**
   * Rejects with what the plugin throws other than a `Fault`, and with a TypeError when it gives no Reply: in a
   * gateway, a 500.
   */
  send(request?: ExerciseRequest): Promise<Exercised>;
  /** Closes what the plugin holds by `tools.keep`. */
  close(): Promise<void>;
}

/**
 * Creates one instance of a plugin. `config` is its `config` in a configuration; throws a `ConfigError` that lists the
 * errors in it.
 */
export function exercisePlugin<S extends Schema<any>>(
  plugin: Plugin<S>,
  config: InputOf<S>,
  options: ExerciseOptions = {},
): Exercise {
  const problem = foreignKinds.kindProblem(plugin);
  if (problem !== undefined) throw new TypeError(problem);
  const { clock = manualClock() } = options;
  const lines: LogLine[] = [];
  const { plugins, limits } = loadGlobal(plugin, config, options.environment);
  const { runtime, middleware } = created(plugin, plugins[0]!, options, clock, lines);
  const tracks = new WeakMap<Call, Track>();
  const answer = upstreamOf(options.upstream);
  const handler = middleware((exchange) => {
    const track = tracks.get(exchange.call)!;
    track.forwarded = exchange;
    const reply = answer(exchange, track);
    return reply instanceof Promise ? reply.then(frozen) : frozen(reply);
  });
  return {
    clock,
    lines,
    async send(request = {}) {
      const asked = { ...request, url: request.url ?? "/" };
      checkRequest("send", asked, SENT_NAMES);
      const inbound = injected(asked, { clock, proxies: null, limits });
      const { call } = inbound;
      const track: Track = { forwarded: null, forwardedBody: Buffer.alloc(0) };
      tracks.set(call, track);
      try {
        const returned = handler(exchangeOf(request, frozen(inbound)));
        const reply = await Promise.resolve(returned).catch((error: unknown) => {
          if (isForeignFault(error)) return faultReply(call, error);
          throw error;
        });
        if (!isReply(reply))
          throw new TypeError(
            "the plugin returned no Reply: it gives back what next(exchange) does, or a Reply of its own",
          );
        const response = await collected(inbound, reply);
        checkLength(inbound.method, reply, response.body.length);
        return { ...response, ...track, code: call.notes.code, atOnce: returned === reply };
      } finally {
        call.close();
        inbound.body?.destroy();
      }
    },
    close: () => runtime.closePluginState(),
  };
}

type Track = { -readonly [Key in "forwarded" | "forwardedBody"]: Exercised[Key] };

const SERVICE = { name: "exercise", basePath: "" };
const ROUTE = { name: "route", path: "/{rest*}" };

/** The global settings of a configuration with this plugin only. Issues begin at the plugin. */
function loadGlobal(
  plugin: Plugin<Schema<any>>,
  config: unknown,
  environment: ExerciseOptions["environment"] = {},
): Config["global"] {
  const plugins = [{ name: plugin.name, config }];
  const loaded = loadConfig(
    { value: { global: { plugins }, services: [] } },
    { kinds: [plugin], references, environment },
  );
  if (!loaded.ok)
    throw new ConfigError(
      loaded.issues.map((issue) => ({ ...issue, at: issue.at.slice(PLUGIN_AT.length) })),
      undefined,
    );
  return loaded.config.global;
}

const PLUGIN_AT = ["global", "plugins", 0];

const LIMITS = { ...costs, ...groupLimits, ...shadow };

/** One instance of the plugin, as a gateway creates it. Throws what the plugin throws. */
function created(
  plugin: AnyPlugin,
  instance: PluginInstance,
  options: ExerciseOptions,
  clock: ManualClock,
  lines: LogLine[],
) {
  const { id, level = "route", gatewayName = "edge-gateway", answers, verifiedClaims = null } = options;
  const ask = answers && serversOf(answers.map((answer) => ({ status: 200, headers: {}, body: "", ...answer })));
  const to =
    (at: LogLine["level"]) =>
    (message: string, fields: LogFields = {}) =>
      void lines.push({ level: at, message, fields });
  const log = { debug: to("debug"), info: to("info"), warn: to("warn"), error: to("error") };
  const runtime = new Runtime(clock, log);
  const inUse = runtime.inUse(0);
  const standIns: StandIns = {
    client: ask && (() => ({ ask, close() {} })),
    observed: (_, middleware) => middleware,
    verifiedClaims,
    isTrial: false,
  };
  const none = {
    metrics: null,
    plan: null,
    callers: null,
    isBuiltIn: () => false,
    foreign: foreignKinds,
    limits: () => LIMITS,
    tracer: null,
    onFault() {},
    instances: new Set<string>(),
    egress: new Egress([]),
  };
  const place = {
    level,
    service: level === "global" ? null : SERVICE.name,
    route: level === "route" ? ROUTE.name : null,
  };
  const context = { ...none, runtime, inUse, log, gatewayName, kinds: [plugin], standIns };
  const { middleware } = createLink({ ...instance, ...(id !== undefined && { id }) }, [0, 0], place, context);
  runtime.apply(inUse);
  return { runtime, middleware };
}

/** Throws a TypeError for a request that a gateway refuses before any plugin. */
function exchangeOf(
  { params = {}, identity, claims, groups = [], upgrade }: ExerciseRequest,
  inbound: Inbound,
): Exchange {
  const target = readTarget(inbound.target);
  const refusal = inbound.refusal ?? ("code" in target ? target : null);
  if (refusal !== null || "code" in target)
    throw new TypeError(`the gateway itself would refuse this request: ${refusal!.detail}`);
  const { path, query } = target;
  const added = {
    params,
    service: SERVICE,
    route: ROUTE,
    identity: identity ?? null,
    claims: claims ?? null,
    groups,
    upgrade: upgrade ?? null,
  };
  return new Exchange({ ...inbound, path, upstreamPath: path, query, ...added });
}

/** A plugin that changes a list in place, which is another plugin's as well, gets a TypeError. */
function frozen<T extends { readonly headers: HeaderList }>(message: T): T {
  return { ...message, headers: Object.freeze([...message.headers]) };
}

/** Throws a TypeError for a Content-Length that is not the length of the body: a plugin has changed the body only. */
function checkLength(method: string, { status, headers }: Reply, bytes: number): void {
  const stated = statedLength(headers);
  if (stated === Infinity || stated === bytes || method === "HEAD" || status === 304) return;
  throw new TypeError(
    `the reply has ${bytes} bytes, and its Content-Length is ${JSON.stringify(headerValue(headers, "content-length"))}`,
  );
}

function upstreamOf(
  given: ExerciseOptions["upstream"] = {},
): (exchange: Exchange, track: Track) => Reply | Promise<Reply> {
  if (typeof given === "function") return given;
  const { status = 200, headers = { "Content-Type": "text/plain" }, body = "from upstream" } = given;
  const reply = { status, headers: headerListOf(headers), body: Buffer.from(body) };
  return (exchange, track) => {
    if (exchange.body === null) return reply;
    return exchange.body.toArray().then((chunks) => {
      track.forwardedBody = Buffer.concat(chunks as Buffer[]);
      return reply;
    });
  };
}
