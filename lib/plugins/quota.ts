/**
 * The plugin kind `quota`: admits each caller to so many requests, or so high costs, in a day, a week or a month of a
 * time zone.
 */
import { PERIODS, timeZoneProblem } from "../base/calendar.ts";
import type { FeatureField, FeatureSchemas } from "../config/feature_schemas.ts";
import { fieldsOf } from "../config/feature_fields.ts";
import { integer, object, oneOf, optional, string, withDefault, type Infer } from "../config/schema.ts";
import { MAX_LIMIT } from "../config/fields.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler, Middleware } from "../http/handler.ts";
import { quotedString } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Decision, Undecided } from "../store/counters.ts";
import { memoryCounters } from "../store/memory.ts";
import { quotaLimiter } from "../store/quotas.ts";
import type { Plugin, Settle, Tools } from "./plugin.ts";
import { callerBy, headerOf, LIMIT_BY, reserveOf, UNCOUNTED } from "./rate_limit.ts";

const schemaWith = (field: FeatureField) =>
  object(
    {
      limit: integer({ min: 1, max: MAX_LIMIT, describe: "Allowed requests, or costs, in each period." }),
      per: oneOf(PERIODS, { describe: "The period: a day, a week from Monday, or a month, by the calendar." }),
      limits_by_group: optional(field("quotas_by_group")),
      limit_by: withDefault(LIMIT_BY, "credential"),
      time_zone: withDefault(
        string({
          references: "none",
          check: timeZoneProblem,
          hint: "a time zone of the IANA database",
          describe: "Where the period begins at midnight.",
        }),
        "UTC",
      ),
      max_callers: withDefault(
        integer({
          min: 1,
          max: 1_000_000,
          describe: "How many callers are remembered; beyond that, new ones start with less of the quota.",
        }),
        100_000,
      ),
      cost: optional(field("cost")),
    },
    { describe: "Limits what a caller uses in a calendar period." },
  );
const schema = schemaWith(fieldsOf<FeatureSchemas>([]));

export const quota: Plugin<typeof schema> = {
  name: "quota",
  schema,
  schemaWith,
  ownHeaders: headerOf,
  code: { memoryCounters },
  create(config, tools) {
    const usual = limiting(config.limit, "limit", config, tools);
    // All count in one table: a caller who gets another group keeps what has been counted.
    const { limitsByGroup } = config;
    if (limitsByGroup === undefined) return usual;
    return tools.limits.chosenByGroup(limitsByGroup, usual, tools, ({ limit }, _key, path) =>
      limiting(limit, `${path}limit`, config, tools),
    );
  },
};

/** `rule`: see `Notes.rule`. */
function limiting(
  limit: number,
  rule: string,
  { per, limitBy, timeZone, maxCallers, cost }: Infer<typeof schema>,
  tools: Tools,
): Middleware {
  const options = {
    limit,
    per,
    timeZone,
    maxCallers,
    callers: limitBy === "all" ? 1 : undefined,
    isCosted: cost !== undefined,
  };
  const reserve = cost && reserveOf(cost, tools);
  const limiter = tools.limiterBy((limiterTools, key) => quotaLimiter(limiterTools, key, options, reserve));
  const callerOf = callerBy(limitBy);
  const name = quotedString(`${tools.scope.id ?? "quota"}-${per}`);
  const policy = `${name};q=${limit};w=${NOMINAL_S[per]}`;
  const why = `quota: ${limit} per ${per}`;
  /** The headers of `rate_limit`. */
  const withQuota = (reply: Reply, left: string): Reply => ({
    ...reply,
    headers: [...reply.headers, "RateLimit-Policy", policy, "RateLimit", left],
  });
  const plain: Settle = (next, exchange, { admitted, remaining, resetMs }) => {
    const seconds = Math.max(1, Math.ceil(resetMs[0]! / 1000));
    const left = `${name};r=${remaining[0]};t=${seconds}`;
    if (!admitted && remaining[0]! > 0) {
      const detail = `What is left of this ${per} is reserved for requests in progress. Try again in 1 second.`;
      return withQuota(
        problem(exchange.call, "quota_exceeded", {
          detail,
          headers: ["Retry-After", "1"],
          why: `${why}, reserved`,
          rule,
        }),
        left,
      );
    }
    if (!admitted) {
      const detail =
        `The quota of this ${per} is used up. The next ${per} begins in ${seconds} ` +
        `${seconds === 1 ? "second" : "seconds"}.`;
      return withQuota(
        problem(exchange.call, "quota_exceeded", { detail, headers: ["Retry-After", String(seconds)], why, rule }),
        left,
      );
    }
    const reply = next(exchange);
    return reply instanceof Promise ? reply.then((later) => withQuota(later, left)) : withQuota(reply, left);
  };
  const costing = cost && tools.limits.costing(limiter, cost, tools, callerOf, plain);
  const settle = costing?.settle ?? plain;
  const settleLater = (next: Handler, exchange: Exchange, decision: Decision | Undecided) => {
    if (decision === "deny") return problem(exchange.call, "limiter_unavailable", UNCOUNTED);
    return decision === "allow" ? next(exchange) : settle(next, exchange, decision);
  };
  return (inner) => {
    const next = costing === undefined ? inner : costing.around(inner);
    return (exchange) => {
      const decision = limiter.decide(callerOf(exchange));
      return decision instanceof Promise
        ? decision.then((later) => settleLater(next, exchange, later))
        : settle(next, exchange, decision);
    };
  };
}

/**
 * Of the policy; `t` of `RateLimit` says when this period ends. A month has 28 to 31 days, and a day with a change of
 * clocks 23 to 25 hours.
 */
const NOMINAL_S = { day: 86_400, week: 604_800, month: 2_592_000 };
