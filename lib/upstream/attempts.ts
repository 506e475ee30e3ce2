/**
 * The innermost handler of a route: picks a peer, forwards, and turns faults into replies. How the bytes go is `forward.ts`.
 */
import { Fault, type ErrorCode } from "../base/errors.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Handler } from "../http/handler.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Balancer } from "./balance.ts";
import type { ForwardOptions } from "./forward.ts";

export function attempts(balancer: Balancer, options: ForwardOptions): Handler {
  return async (exchange) => {
    const peer = balancer.pick(exchange);
    if (peer === null) return problem(exchange.call, "upstream_unavailable");
    const { notes } = exchange.call;
    notes.upstream = peer.id;
    notes.attempts++;
    try {
      return await peer.forward(exchange, options);
    } catch (error) {
      return faultReply(exchange, error);
    }
  };
}

function faultReply(exchange: Exchange, error: unknown): Reply {
  if (!(error instanceof Fault)) throw error;
  const detail = DETAILS[error.code];
  return problem(exchange.call, error.code, { why: error.message, ...(detail === undefined ? {} : { detail }) });
}

const DETAILS: { readonly [code in ErrorCode]?: string } = {
  upstream_connect_failed: "No connection to the service behind this route could be made. Trying again later may help.",
  upstream_reset: "The service behind this route closed the connection before it had answered.",
  upstream_invalid: "What the service behind this route answered is not valid HTTP.",
  upstream_timeout: "The service behind this route did not answer in time.",
  upstream_saturated: "Every connection to the service behind this route was in use. Try again shortly.",
  request_timeout: "The request body stopped arriving.",
  body_too_large: "The request body is larger than this gateway takes.",
  bad_request: "The request body ended before its announced end.",
};
