/**
 * The one signature of the data path: an exchange goes in, a reply comes out.
 */
import type { Exchange } from "./exchange.ts";
import type { Reply } from "./reply.ts";

/** Answers an exchange. Returns without a promise where nothing has to be waited for: a chain of such handlers costs none. */
export type Handler = (exchange: Exchange) => Reply | Promise<Reply>;

/** What wraps a handler: looks at the exchange, answers itself or calls `next`, and may look at the reply. */
export type Middleware = (next: Handler) => Handler;
