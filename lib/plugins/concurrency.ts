/**
 * The plugin kind `concurrency`: admits at most N requests of each caller at the same time, counted over all workers. A
 * WebSocket counts as long as it is open.
 */
import { hash } from "node:crypto";
import { integer, object, withDefault } from "../config/schema.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { problem, type Reply } from "../http/reply.ts";
import { HeldCounts } from "../store/held_counts.ts";
import type { Plugin } from "./plugin.ts";
import { callerBy, headerOf, LIMIT_BY } from "./rate_limit.ts";

const schema = object(
  {
    max_in_flight: integer({ min: 1, max: 1_000_000, describe: "Most requests of one caller at the same time." }),
    limit_by: withDefault(LIMIT_BY, "credential"),
  },
  { describe: "Limits the requests of each caller that are in progress at the same time." },
);

export const concurrency: Plugin<typeof schema> = {
  name: "concurrency",
  schema,
  ownHeaders: headerOf,
  code: { HeldCounts },
  create({ maxInFlight, limitBy }, { counts, scope }) {
    const held = counts("in flight");
    const callerOf = callerBy(limitBy);
    // Short, since the hash of a long key takes longer.
    const instance = hash("sha256", scope.key, "base64url").slice(0, 11);
    const requests =
      `${maxInFlight} request${maxInFlight === 1 ? "" : "s"}` + `${limitBy === "all" ? "" : " of one caller"}`;
    const tooMany = {
      detail: `At most ${requests} may be in progress at the same time. Try again when one has ended.`,
      rule: "max_in_flight",
    };
    return (next) => (exchange) => {
      const { call } = exchange;
      const give = held.take(instance + callerOf(exchange), maxInFlight);
      if (give === null) return problem(call, "concurrency_limited", tooMany);
      if (exchange.upgrade !== null) return untilTunnelEnds(exchange, give, next);
      call.onEnd(give);
      return next(exchange);
    };
  },
};

/** The call of an upgrade ends as its tunnel opens. */
function untilTunnelEnds(exchange: Exchange, give: () => void, next: Handler): Reply | Promise<Reply> {
  let state: "waiting" | "tunnel" | "over" = "waiting";
  const end = () => {
    if (state !== "over") give();
    state = "over";
  };
  exchange.call.onEnd(() => void (state === "waiting" && end()));
  const watched = (reply: Reply) => {
    const socket = reply.tunnel?.socket;
    if (socket === undefined || state === "over") return reply;
    state = "tunnel";
    if (socket.destroyed) end();
    else socket.once("close", end);
    return reply;
  };
  const reply = next(exchange);
  return reply instanceof Promise ? reply.then(watched) : watched(reply);
}
