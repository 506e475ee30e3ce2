import { HttpClient } from "../../lib/client/client.ts";
import { suggest } from "../../lib/base/suggest.ts";
import { Call, groupsOf, Exchange, type ExchangeParts } from "../../lib/http/exchange.ts";
import type { Handler, Middleware } from "../../lib/http/handler.ts";
import type { Reply } from "../../lib/http/reply.ts";
import type { LogFields } from "../../lib/base/log.ts";
import { verifyPassword } from "../../lib/base/password.ts";
import { SharedCount } from "../../lib/base/shared_counts.ts";
import { SharedMemory } from "../../lib/base/shared_memory.ts";
import { ALONE } from "../../lib/base/threads.ts";
import * as references from "../../lib/config/references.ts";
import { formatPath, INVALID, type Schema } from "../../lib/config/schema.ts";
import type { FeatureSchemas } from "../../lib/config/feature_schemas.ts";
import { fieldsOf } from "../../lib/config/feature_fields.ts";
import { ALL_FIELDS } from "../../lib/features/all.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import type { AnyPlugin, Tools } from "../../lib/plugins/plugin.ts";
import * as costs from "../../lib/plugins/costs.ts";
import * as groupLimits from "../../lib/plugins/group_limits.ts";
import * as shadow from "../../lib/plugins/shadow.ts";
import { HeldCounts } from "../../lib/store/held_counts.ts";
import { memoryCounters } from "../../lib/store/memory.ts";
import { manualClock } from "./clock.ts";
import { ANYWHERE } from "./anywhere.ts";

/** An exchange without a socket: GET /a/b of service "a", from 192.0.2.1. */
export function madeUpExchange(parts: Partial<ExchangeParts> = {}): Exchange {
  return new Exchange({
    call: new Call({
      id: "request-1",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    }),
    method: "GET",
    target: "/a/b",
    httpVersion: "1.1",
    scheme: "http",
    authority: "gateway.example",
    path: "/a/b",
    upstreamPath: "/b",
    query: "",
    headers: ["Host", "gateway.example"],
    params: {},
    clientAddress: "192.0.2.1",
    service: { name: "a", basePath: "/a" },
    route: { name: "b", path: "/b" },
    identity: null,
    claims: null,
    groups: [],
    body: null,
    trailers: () => [],
    upgrade: null,
    ...parts,
  });
}

export interface MadeUpTools extends Tools {
  readonly lines: { readonly level: string; readonly message: string; readonly fields: LogFields | undefined }[];
}

/** Tools with counters in memory on a manual clock, and a log that keeps its lines. */
export function madeUpTools(
  parts: Partial<Omit<Tools, "scope">> & { readonly id?: string; readonly key?: string } = {},
): MadeUpTools {
  const { id = null, key = "route:a:b:plugin:0", ...rest } = parts;
  const clock = rest.clock ?? manualClock();
  const lines: MadeUpTools["lines"] = [];
  const at = (level: string) => (message: string, fields?: LogFields) => void lines.push({ level, message, fields });
  const counters = memoryCounters(clock);
  return {
    clock,
    counters,
    limiterBy: (make, limiterKey = key) =>
      make({ clock, local: counters, shared: null, quotas: null, memory: undefined }, limiterKey),
    limits: { ...costs, ...groupLimits, ...shadow },
    keep: (_name, _settings, make) => make(),
    shared: () => null,
    common: (_name, make) => make(),
    count: (name) => new SharedCount(ALONE, name),
    counts: (name) => new HeldCounts(ALONE, name),
    verdicts: new SharedMemory(1024 * 1024),
    client: (options) => new HttpClient({ clock, ...ANYWHERE, ...options }),
    verifiedClaims: null,
    callers: null,
    groupsOf,
    secretParameters: new Set(),
    verifyPassword,
    isTrial: false,
    gatewaySecrets: null,
    tally: () => {},
    gatewayName: "edge-gateway",
    scope: { level: "route", key, path: key, id, service: "a", route: "b" },
    log: { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") },
    lines,
    ...rest,
  };
}

/** The value of a configuration by a schema, or every error in it as "path: message". */
export function checked<T>(
  schema: Schema<T>,
  input: unknown,
): { readonly value: T | null; readonly issues: readonly string[] } {
  const context = {
    issues: [],
    sources: { references, suggest, environment: {}, readFile: () => "", folder: "/" },
  } as Parameters<typeof schema.check>[2];
  const value = schema.check(nodeFrom(input), [], context);
  return {
    value: value === INVALID ? null : value,
    issues: context.issues.map((issue) => `${formatPath(issue.at)}: ${issue.message}`),
  };
}

/** An instance of a plugin kind, from its JSON configuration. */
export function instance(plugin: AnyPlugin, config: unknown, tools: Tools = madeUpTools()): Middleware {
  const { value, issues } = checked(plugin.schemaWith?.(fieldsOf<FeatureSchemas>(ALL_FIELDS)) ?? plugin.schema, config);
  if (issues.length > 0) throw new Error(issues.join("\n"));
  return plugin.create(value, tools);
}

export const plainReply: Reply = {
  status: 200,
  headers: ["Content-Type", "text/plain"],
  body: Buffer.from("from upstream"),
};

export interface Exercised {
  /** The return value of the middleware: a promise only if it made one. */
  readonly returned: Reply | Promise<Reply>;
  /** The exchange that reached the inner handler; null when the middleware answered by itself. */
  readonly forwarded: Exchange | null;
}

/** Runs one exchange through a middleware around the handler `answer`. */
export function exercise(middleware: Middleware, exchange: Exchange, answer: Handler = () => plainReply): Exercised {
  let forwarded: Exchange | null = null;
  const returned = middleware((inner) => {
    forwarded = inner;
    return answer(inner);
  })(exchange);
  return { returned, forwarded };
}

/** Returns a reply that must not be a promise. */
export function atOnce(returned: Reply | Promise<Reply>): Reply {
  if (returned instanceof Promise) throw new Error("the middleware made a promise");
  return returned;
}

/** The problem document of a reply. */
export function problemOf(reply: Reply): Record<string, unknown> {
  if (!Buffer.isBuffer(reply.body)) throw new Error("the reply has no document");
  return JSON.parse(reply.body.toString()) as Record<string, unknown>;
}
