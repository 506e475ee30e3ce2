/**
 * The plugin kind `rate_limit`: admits each caller so many requests per second, minute and hour.
 * Where the counts are kept, and how exactly, is `store/`.
 *
 * A caller is counted under a key that begins with its kind, so that no header value can pose as an address.
 */
import { callerAddress } from "../base/cidr.ts";
import { integer, object, oneOf, optional, string, withDefault, type Infer } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue, quotedString } from "../http/headers.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Decision, Window } from "../store/counters.ts";
import { bytesOfCaller } from "../store/callers.ts";
import { definePlugin, type Tools } from "./plugin.ts";

/** The largest integer of a structured field (RFC 9651 §3.3.1), in which limits are told to clients. */
const MOST = 999_999_999_999_999;
/** What the callers of one instance may take at most, in bytes. */
const MOST_BYTES = 2_000_000_000;

const schema = object(
  {
    limit_second: optional(integer({ min: 1, max: MOST, describe: "Allowed requests in any second." })),
    limit_min: optional(integer({ min: 1, max: MOST, describe: "Allowed requests in any minute." })),
    limit_hour: optional(integer({ min: 1, max: MOST, describe: "Allowed requests in any hour." })),
    limit_by: withDefault(
      string({
        pattern: /^(client_ip|credential|all|header:[!#$%&'*+.^_`|~0-9A-Za-z-]+)$/,
        hint: '"client_ip", "credential", "all" or "header:<name>"',
        describe: "Whose requests are counted together: by address (IPv6 by /64), by identity, by a header's value, or all.",
      }),
      "client_ip",
    ),
    mode: withDefault(
      oneOf(["enforce", "shadow"], { describe: "shadow counts and logs, but refuses nothing and tells clients nothing." }),
      "enforce",
    ),
    max_callers: withDefault(
      integer({ min: 1, max: 10_000_000, describe: "How many callers are remembered; beyond that, new ones start with less of their limits." }),
      100_000,
    ),
  },
  {
    describe: "Limits request counts per time window.",
    refine(value, report) {
      const windows = windowsOf(value);
      if (windows.length === 0) report('needs "limit_second", "limit_min" or "limit_hour"');
      const each = bytesOfCaller(windows);
      if (each * value.maxCallers <= MOST_BYTES) return;
      const reckoning = `${value.maxCallers} callers of up to ${each} bytes each could take ${((each * value.maxCallers) / 1e9).toFixed(1)} GB`;
      report(`${reckoning}, more than ${MOST_BYTES / 1e9} GB: with these limits at most ${Math.floor(MOST_BYTES / each)}`, "max_callers");
    },
  },
);

type Config = Infer<typeof schema>;

/**
 * Every reply of an enforcing instance tells the limits and what is left of them (draft-ietf-httpapi-ratelimit-headers-10), beside
 * what other instances or the upstream tell. In shadow mode nothing is told: clients need not heed a limit that is not in force.
 */
export const rateLimit = definePlugin({
  name: "rate_limit",
  schema,
  create(config, tools) {
    const windows = windowsOf(config);
    const limiter = tools.counters.limiter(tools.scope.key, { windows, maxCallers: config.maxCallers });
    const callerOf = callerBy(config.limitBy);
    const answer = config.mode === "shadow" ? shadowing(tools) : enforcing(windows, tools.scope.id);
    return (next) => {
      const settle = answer(next);
      return (exchange) => {
        const decision = limiter.decide(callerOf(exchange));
        return decision instanceof Promise ? decision.then((later) => settle(exchange, later)) : settle(exchange, decision);
      };
    };
  },
});

function windowsOf(config: Pick<Config, "limitSecond" | "limitMin" | "limitHour">): Window[] {
  const windows: Window[] = [];
  if (config.limitSecond !== undefined) windows.push({ name: "second", limit: config.limitSecond, ms: 1_000 });
  if (config.limitMin !== undefined) windows.push({ name: "minute", limit: config.limitMin, ms: 60_000 });
  if (config.limitHour !== undefined) windows.push({ name: "hour", limit: config.limitHour, ms: 3_600_000 });
  return windows;
}

function callerBy(limitBy: string): (exchange: Exchange) => string {
  if (limitBy === "all") return () => "all";
  if (limitBy === "credential") return (exchange) => (exchange.identity === null ? byAddress(exchange) : "c:" + exchange.identity);
  if (limitBy === "client_ip") return byAddress;
  const lower = limitBy.slice("header:".length).toLowerCase();
  return (exchange) => {
    const value = headerValue(exchange.headers, lower);
    return value === undefined ? byAddress(exchange) : "h:" + value;
  };
}

function byAddress(exchange: Exchange): string {
  return "ip:" + callerAddress(exchange.clientAddress);
}

type Next = (exchange: Exchange) => Reply | Promise<Reply>;
/** What becomes of an exchange once it is counted. Reads the decision before it calls `next`: it holds until the next is made. */
type Settle = (exchange: Exchange, decision: Decision) => Reply | Promise<Reply>;

function enforcing(windows: readonly Window[], id: string | null): (next: Next) => Settle {
  const names = windows.map((window) => quotedString(id === null ? window.name : `${id}-${window.name}`));
  const policy = windows.map((window, i) => `${names[i]};q=${window.limit};w=${window.ms / 1000}`).join(", ");
  const left = (decision: Decision) => {
    let text = "";
    for (let i = 0; i < names.length; i++) {
      text += `${i === 0 ? "" : ", "}${names[i]};r=${decision.remaining[i]};t=${Math.ceil(decision.resetMs[i]! / 1000)}`;
    }
    return text;
  };
  const told = (reply: Reply, limits: string): Reply => ({
    ...reply,
    headers: [...reply.headers, "RateLimit-Policy", policy, "RateLimit", limits],
  });
  return (next) => (exchange, decision) => {
    const limits = left(decision);
    if (!decision.admitted) {
      const seconds = Math.max(1, Math.ceil(decision.retryMs / 1000));
      const detail = `Try again in ${seconds} ${seconds === 1 ? "second" : "seconds"}.`;
      return told(problem(exchange.call, "rate_limited", { detail, headers: ["Retry-After", String(seconds)] }), limits);
    }
    const reply = next(exchange);
    return reply instanceof Promise ? reply.then((later) => told(later, limits)) : told(reply, limits);
  };
}

/** Logs at most one line a second, with how many would have been refused since the last; never the caller, who may be a credential. */
function shadowing({ clock, log, scope }: Tools): (next: Next) => Settle {
  let refused = 0;
  let quietUntil = -Infinity;
  return (next) => (exchange, decision) => {
    if (!decision.admitted) {
      refused++;
      const now = clock.now();
      if (now >= quietUntil) {
        log.warn("rate_limit in shadow mode would have refused", { plugin: scope.key, requests: refused });
        quietUntil = now + 1_000;
        refused = 0;
      }
    }
    return next(exchange);
  };
}
