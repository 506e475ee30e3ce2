/**
 * The plugin kind `rate_limit`: admits each caller at most N requests per second, minute, hour and day.
 */
import { callerAddress } from "../base/ip_address.ts";
import { TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { droppedProblem } from "../config/dropped_names.ts";
import type { COST } from "../config/cost.ts";
import { NO_WINDOW, WINDOW_FIELDS, windowsOf, type WindowLimits } from "../config/fields.ts";
import { fieldsOf } from "../config/feature_fields.ts";
import type { FeatureField, FeatureSchemas } from "../config/feature_schemas.ts";
import { integer, object, oneOf, optional, string, withDefault, type Infer } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { headerValue, quotedString } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Decision, Undecided, Window } from "../store/counters.ts";
import { bytesOfCaller } from "../store/callers.ts";
import { memoryCounters } from "../store/memory.ts";
import type { Plugin, Settle, Tools } from "./plugin.ts";

/** Most memory for the callers of one instance, in bytes. */
const MAX_BYTES = 2_000_000_000;
const REMEMBERED = "How many callers are remembered; beyond that, new ones start with less of their limits.";

export const LIMIT_BY = string({
  references: "none",
  pattern: new RegExp(`^(client_ip|credential|all|header:[${TOKEN_CHARACTERS}]+)$`),
  hint: '"client_ip", "credential", "all" or "header:<name>"',
  check: (text, context) => (text.startsWith("header:") ? droppedProblem(text, context) : undefined),
  describe: "Whose requests are counted together: by address (IPv6 by /64), by identity, by a header's value, or all.",
});

const schemaWith = (field: FeatureField) =>
  object(
    {
      ...WINDOW_FIELDS,
      limits_by_group: optional(field("limits_by_group")),
      limit_by: withDefault(LIMIT_BY, "client_ip"),
      mode: withDefault(
        oneOf(["enforce", "shadow"], {
          describe: "shadow counts and logs, but refuses no request and adds no headers.",
        }),
        "enforce",
      ),
      max_callers: withDefault(integer({ min: 1, max: 10_000_000, describe: REMEMBERED }), 100_000),
      counters: optional(oneOf(["memory"], { describe: "Counts in this process alone, also with global.counters." })),
      cost: optional(field("cost")),
    },
    {
      describe: "Limits request counts per time window.",
      refine(value, report) {
        const windows = windowsOf(value);
        if (windows.length === 0) report(NO_WINDOW);
        const ofGroups = value.limitsByGroup?.map(({ limits }) => windowsOf(limits)) ?? [];
        const each = [windows, ...ofGroups].reduce((sum, own) => sum + bytesOfCaller(own), 0);
        const all = each * value.maxCallers;
        if (all <= MAX_BYTES) return;
        const reckoning =
          `${value.maxCallers} callers of up to ${each} bytes each could take ` + `${(all / 1e9).toFixed(1)} GB`;
        report(
          `${reckoning}, more than ${MAX_BYTES / 1e9} GB: with these limits at most ${Math.floor(MAX_BYTES / each)}`,
          "max_callers",
        );
      },
    },
  );

const schema = schemaWith(fieldsOf<FeatureSchemas>([]));

export const rateLimit: Plugin<typeof schema> = {
  name: "rate_limit",
  schema,
  schemaWith,
  ownHeaders: headerOf,
  code: { memoryCounters },
  create(config, tools) {
    const usual = limiting(config, config, tools);
    const { limitsByGroup } = config;
    if (limitsByGroup === undefined) return usual;
    return tools.limits.chosenByGroup(limitsByGroup, usual, tools, (limits, key, path) =>
      limiting(limits, config, tools, key, path),
    );
  },
};

/** `key` names the limiter; `path`: of `limits` in the configuration, with a dot at its end. */
function limiting(
  limits: WindowLimits,
  { limitBy, maxCallers, mode, counters, cost }: Infer<typeof schema>,
  tools: Tools,
  key = tools.scope.key,
  path = "",
): Middleware {
  const windows = windowsOf(limits);
  const options = { windows, maxCallers, callers: limitBy === "all" ? 1 : undefined, counters };
  const reserve = cost && reserveOf(cost, tools);
  const costed =
    cost &&
    tools.limiterBy((limiterTools, costKey) => {
      return tools.limits.costedLimiter(limiterTools, costKey, options, reserve);
    }, key);
  const limiter = costed ?? tools.counters.limiter(key, options);
  const callerOf = callerBy(limitBy);
  const plain = mode === "shadow" ? tools.limits.shadowing(tools) : enforcing(windows, tools.scope.id, path);
  const costing = costed && tools.limits.costing(costed, cost!, tools, callerOf, plain);
  const settle = costing?.settle ?? plain;
  const settleLater = (next: Handler, exchange: Exchange, decision: Decision | Undecided) => {
    if (decision === "deny" && mode === "enforce") return problem(exchange.call, "limiter_unavailable", UNCOUNTED);
    return typeof decision === "string" ? next(exchange) : settle(next, exchange, decision);
  };
  const counting: Middleware = (next) => (exchange) => {
    const decision = limiter.decide(callerOf(exchange));
    return decision instanceof Promise
      ? decision.then((later) => settleLater(next, exchange, later))
      : settle(next, exchange, decision);
  };
  return costing === undefined ? counting : (next) => counting(costing.around(next));
}

/** What each request in progress holds of a limit of costs; undefined: nothing. */
export function reserveOf({ reserve }: Pick<Infer<typeof COST>, "reserve">, { counts }: Pick<Tools, "counts">) {
  return reserve === 0 ? undefined : { amount: reserve, held: counts("reserves") };
}

export const UNCOUNTED = { detail: "The request could not be counted. Try again shortly." };

/** The header that `callerBy` reads, for `ownHeaders`. */
export function headerOf({ limitBy }: { readonly limitBy: string }): readonly string[] {
  return limitBy.startsWith(HEADER) ? [limitBy.slice(HEADER.length)] : [];
}

const HEADER = "header:";

/** Names begin with their kind, so that no header value can pose as an address. */
export function callerBy(limitBy: string): (exchange: Exchange) => string {
  if (limitBy === "all") return () => "all";
  if (limitBy === "credential")
    return (exchange) => (exchange.identity === null ? byAddress(exchange) : "c:" + exchange.identity);
  if (limitBy === "client_ip") return byAddress;
  const lower = limitBy.slice(HEADER.length).toLowerCase();
  return (exchange) => {
    const value = headerValue(exchange.headers, lower);
    return value === undefined ? byAddress(exchange) : "h:" + value;
  };
}

function byAddress({ clientAddress }: Exchange): string {
  // IPv4 addresses are counted as they are.
  return "ip:" + (clientAddress.includes(":") ? callerAddress(clientAddress) : clientAddress);
}

/**
 * Refuses requests beyond the limit, and adds the limits and the remaining quota to every reply
 * (draft-ietf-httpapi-ratelimit-headers-10).
 * Such headers of other instances or of the upstream are kept.
 */
function enforcing(windows: readonly Window[], id: string | null, path: string): Settle {
  const names = windows.map((window) => quotedString(id === null ? window.name : `${id}-${window.name}`));
  const policy = windows.map((window, i) => `${names[i]};q=${window.limit};w=${window.ms / 1000}`).join(", ");
  return (next, exchange, decision) => {
    const limits = limitsOf(names, decision);
    if (!decision.admitted) {
      const seconds = Math.max(1, Math.ceil(decision.retryMs / 1000));
      const { remaining, resetMs } = decision;
      const reached = windows.filter((_window, i) => remaining[i] === 0);
      // If no window is full, requests in progress hold what is left (`cost.reserve`).
      const held = reached.length === 0 ? "What is left is reserved for requests in progress. " : "";
      const detail = `${held}Try again in ${seconds} ${seconds === 1 ? "second" : "seconds"}.`;
      const full = reached.map(({ name, limit }) => `${limit} per ${name}`).join(", ") || "reserved";
      // Of several the one that is the last to give a request back: it says when the next one is admitted.
      let last = -1;
      for (let i = 0; i < windows.length; i++)
        if (remaining[i] === 0 && (last < 0 || resetMs[i]! >= resetMs[last]!)) last = i;
      const longest = windows[last]?.name;
      const rule = longest && `${path}limit_${longest === "minute" ? "min" : longest}`;
      const why = `rate_limit: ${full}`;
      return withLimits(
        problem(exchange.call, "rate_limited", { detail, headers: ["Retry-After", String(seconds)], why, rule }),
        policy,
        limits,
      );
    }
    const reply = next(exchange);
    return reply instanceof Promise
      ? reply.then((later) => withLimits(later, policy, limits))
      : withLimits(reply, policy, limits);
  };
}

function limitsOf(names: readonly string[], { remaining, resetMs }: Decision): string {
  let text = "";
  for (let i = 0; i < names.length; i++)
    text += `${i === 0 ? "" : ", "}${names[i]};r=${remaining[i]};t=${Math.ceil(resetMs[i]! / 1000)}`;
  return text;
}

function withLimits(reply: Reply, policy: string, limits: string): Reply {
  return { ...reply, headers: [...reply.headers, "RateLimit-Policy", policy, "RateLimit", limits] };
}
