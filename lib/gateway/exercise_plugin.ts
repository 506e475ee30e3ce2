/**
 * Runs one plugin without sockets and without a gateway, for its author's tests: checked configuration, made-up requests, an upstream
 * that is a value or a function, a clock that the test moves. How plugins do together is tested with `createGateway` and `inject`.
 */
import { readFileSync } from "node:fs";
import type { LogFields } from "../base/log.ts";
import { manualClock, type ManualClock } from "../base/manual_clock.ts";
import { SharedMemory } from "../base/shared_memory.ts";
import { nodeFrom } from "../config/json.ts";
import { loadConfig, type ConfigIssue } from "../config/load.ts";
import { INVALID, type InputOf, type Schema } from "../config/schema.ts";
import { Exchange, type Call } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import type { HeaderList } from "../http/headers.ts";
import { isReply, type Reply } from "../http/reply.ts";
import { kindProblem } from "../plugins/kit.ts";
import type { KeptState, Plugin, Scope } from "../plugins/plugin.ts";
import { readTarget } from "../route/path.ts";
import { memoryCounters } from "../store/memory.ts";
import { ConfigError } from "./gateway.ts";
import { collected, injected, type InjectRequest, type InjectResponse } from "./inject.ts";

export interface ExerciseOptions {
  /** What answers behind the plugin. Default: 200 with the text "from upstream", once the body of the request has come in. */
  readonly upstream?: Handler | { readonly status?: number; readonly headers?: Readonly<Record<string, string>> | HeaderList; readonly body?: string | Buffer };
  /** The instance's `id`. */
  readonly id?: string;
  /** Where the instance stands. Default "route". */
  readonly level?: Scope["level"];
  /** Default "edge-gateway". */
  readonly gatewayName?: string;
  /** What `${env:NAME}` in the configuration refers to. Default: nothing is set. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly clock?: ManualClock;
}

/** As for `gateway.inject`, and what a route and plugins before this one would have added. The service's base_path is "". */
export interface ExerciseRequest extends Omit<InjectRequest, "path"> {
  /** Default "/". */
  readonly path?: string;
  readonly params?: Readonly<Record<string, string>>;
  readonly identity?: string;
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly upgrade?: "websocket";
}

export interface LogLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: LogFields;
}

/** The reply as its client would get it, and what became of the request. */
export interface Exercised extends InjectResponse {
  /** What reached the upstream; null when the plugin answered by itself. */
  readonly forwarded: Exchange | null;
  /** What the default upstream has read. */
  readonly forwardedBody: Buffer;
  /** The error's code, where the plugin has refused with `problem` or `problemReply`. */
  readonly code: string | null;
  /** Whether the plugin gave its reply without a promise. Where the upstream's is a value or default, without a body in the request, it can. */
  readonly atOnce: boolean;
}

export interface Exercise {
  readonly clock: ManualClock;
  /** What the plugin has logged so far. */
  readonly lines: readonly LogLine[];
  /** Rejects with what the plugin throws, and with a TypeError when it gives no Reply: in a gateway, a 500. */
  send(request?: ExerciseRequest): Promise<Exercised>;
  /** Closes what the plugin holds by `tools.keep`. */
  close(): Promise<void>;
}

/**
 * One instance of a plugin. `config` is what would stand in a configuration's `config`; throws a `ConfigError` that lists what is wrong
 * with it.
 */
export function exercisePlugin<S extends Schema<any>>(plugin: Plugin<S>, config: InputOf<S>, options: ExerciseOptions = {}): Exercise {
  const problem = kindProblem(plugin);
  if (problem !== undefined) throw new TypeError(problem);
  const { clock = manualClock(), id = null, level = "route", gatewayName = "edge-gateway" } = options;
  const lines: LogLine[] = [];
  const at = (to: LogLine["level"]) => (message: string, fields: LogFields = {}) => void lines.push({ level: to, message, fields });
  const kept = new Map<string, KeptState>();
  const middleware = plugin.create(checkedConfig(plugin, config, options), {
    clock,
    log: { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") },
    counters: memoryCounters(clock),
    gatewayName,
    scope: { level, key: "exercised", id, service: level === "global" ? null : SERVICE.name, route: level === "route" ? ROUTE.name : null },
    keep<T extends KeptState>(name: string, settings: unknown, make: () => T): T {
      const key = JSON.stringify([name, settings]);
      if (!kept.has(key)) kept.set(key, make());
      return kept.get(key) as T;
    },
    verdicts: new SharedMemory(MOST_VERDICT_BYTES),
  });
  const tracks = new WeakMap<Call, { forwarded: Exchange | null; body: Buffer }>();
  const answer = upstreamOf(options.upstream);
  const handler = middleware((exchange) => {
    const track = tracks.get(exchange.call)!;
    track.forwarded = exchange;
    return answer(exchange, (body) => (track.body = body));
  });
  return {
    clock,
    lines,
    async send(request = {}) {
      const inbound = injected({ ...request, path: request.path ?? "/" }, { clock, isTrusted: () => false, limits: LIMITS });
      const target = readTarget(inbound.target);
      const wrong = inbound.refusal ?? ("code" in target ? target : null);
      if (wrong !== null || "code" in target) throw new TypeError(`the gateway itself would refuse this request: ${wrong!.detail}`);
      const exchange = new Exchange({
        ...inbound,
        path: target.path,
        upstreamPath: target.path,
        query: target.query,
        params: request.params ?? {},
        service: SERVICE,
        route: ROUTE,
        identity: request.identity ?? null,
        claims: request.claims ?? null,
        upgrade: request.upgrade ?? null,
      });
      const { call } = inbound;
      const track = { forwarded: null as Exchange | null, body: Buffer.alloc(0) };
      tracks.set(call, track);
      try {
        const returned = handler(exchange);
        const reply = await returned;
        if (!isReply(reply)) throw new TypeError("the plugin returned no Reply: it gives back what next(exchange) does, or a Reply of its own");
        const response = await collected(inbound, reply);
        return { ...response, forwarded: track.forwarded, forwardedBody: track.body, code: call.notes.code, atOnce: returned === reply };
      } finally {
        call.close();
        inbound.body?.destroy();
      }
    },
    async close() {
      await Promise.all([...kept.values()].map((each) => each.close()));
      kept.clear();
    },
  };
}

const SERVICE = { name: "exercise", basePath: "" };
const ROUTE = { name: "route", path: "/{rest*}" };

const LIMITS = defaultLimits();
const MOST_VERDICT_BYTES = 1024 * 1024;

function defaultLimits() {
  const loaded = loadConfig({ value: { services: [] } }, { kinds: [], environment: {} });
  if (!loaded.ok) throw new Error("the empty configuration is not valid");
  return loaded.config.global.limits;
}

function checkedConfig<S extends Schema<any>>({ schema }: Plugin<S>, config: unknown, { environment = {} }: ExerciseOptions): any {
  const issues: ConfigIssue[] = [];
  const sources = { environment, readFile: (path: string) => readFileSync(path), folder: process.cwd() };
  const value = schema.check(nodeFrom(config), ["config"], { issues, sources });
  if (value === INVALID || issues.length > 0) throw new ConfigError(issues, undefined);
  return value;
}

type Upstream = (exchange: Exchange, took: (body: Buffer) => void) => Reply | Promise<Reply>;

function upstreamOf(given: ExerciseOptions["upstream"] = {}): Upstream {
  if (typeof given === "function") return given;
  const { status = 200, headers = { "Content-Type": "text/plain" }, body = "from upstream" } = given;
  const list: HeaderList = Array.isArray(headers) ? (headers as HeaderList) : Object.entries(headers as Record<string, string>).flat();
  const reply = { status, headers: list, body: Buffer.from(body) };
  return (exchange, took) => {
    if (exchange.body === null) return reply;
    return exchange.body.toArray().then((chunks) => {
      took(Buffer.concat(chunks as Buffer[]));
      return reply;
    });
  };
}
