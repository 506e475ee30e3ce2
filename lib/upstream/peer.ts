/**
 * One upstream of one service as it is at run time: its identity, its connections, and how requests are sent over them. Which peer
 * gets a request is `balance.ts`.
 */
import type { Exchange } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import type { Destination } from "./destination.ts";
import { forward, type ForwardOptions } from "./forward.ts";
import { forwardH2 } from "./forward_h2.ts";
import { Pool } from "./pool.ts";
import type { Sessions } from "./sessions.ts";

/** The connections to one upstream, of either kind. */
export type Connections = Pool | Sessions;

export interface Peer extends Destination<Connections> {
  /** Sends an exchange there: see `forward` of `forward.ts` for what it promises. */
  readonly forward: (exchange: Exchange, options: ForwardOptions) => Promise<Reply>;
}

export function createPeer(id: string, pool: Connections): Peer {
  const { host, port, protocol } = pool.options;
  const name = host.includes(":") ? `[${host}]` : host;
  const authority = port === (protocol === "https" || protocol === "h2" ? 443 : 80) ? name : `${name}:${port}`;
  const at = { id, host, port, authority };
  if (pool instanceof Pool) {
    const to = { ...at, pool };
    return { ...to, forward: (exchange, options) => forward(exchange, to, options) };
  }
  const to = { ...at, pool };
  return { ...to, forward: (exchange, options) => forwardH2(exchange, to, options) };
}
