/**
 * The one signature of the data path: an exchange goes in, a reply comes out.
 */
import type { Exchange } from "./exchange.ts";
import type { Reply } from "./reply.ts";

/**
 * Answers an exchange. Returns a plain Reply when it does not need to wait: a chain of such handlers creates no
 * promises.
 */
export type Handler = (exchange: Exchange) => Reply | Promise<Reply>;

/** Wraps a handler: reads the exchange, answers it or calls `next`, and may change the reply. */
export type Middleware = (next: Handler) => Handler;
