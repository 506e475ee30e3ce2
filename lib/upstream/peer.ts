/**
 * One upstream of one service as it is at run time, over reloads: its identity, its connections, its health, and how requests are
 * sent to it. Which peer gets a request is `upstream_set.ts` and `balance.ts`.
 */
import type { Fault } from "../base/errors.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import type { Candidate } from "./balance.ts";
import type { Destination } from "./destination.ts";
import { isUpstreams } from "./faults.ts";
import { forward } from "./forward.ts";
import { forwardH2 } from "./forward_h2.ts";
import { forwardWire } from "./forward_wire.ts";
import type { Health } from "./health.ts";
import { Pool } from "./pool.ts";
import type { Sessions } from "./sessions.ts";
import type { ForwardOptions } from "./try.ts";

/** The connections to one upstream, of either kind. */
export type Connections = Pool | Sessions;

export class Peer implements Destination<Connections>, Candidate {
  readonly id: string;
  readonly host: string;
  readonly port: number;
  readonly authority: string;
  readonly pool: Connections;
  readonly health: Health;
  /** As configured; 0: no new requests. A reload may change it. */
  weight = 1;
  turn = 0;

  constructor(id: string, pool: Connections, health: Health) {
    const { host, port, protocol } = pool.options;
    const name = host.includes(":") ? `[${host}]` : host;
    this.id = id;
    this.host = host;
    this.port = port;
    this.authority = port === (protocol === "https" || protocol === "h2" ? 443 : 80) ? name : `${name}:${port}`;
    this.pool = pool;
    this.health = health;
  }

  get weightNow(): number {
    return this.weight * this.health.share;
  }

  get load(): number {
    return this.pool.leased + this.pool.waiting;
  }

  /** Sends an exchange there: see `forward` of `forward.ts` for what it promises. */
  forward(exchange: Exchange, options: ForwardOptions, endsAt: number): Promise<Reply> {
    if (!(this.pool instanceof Pool)) return forwardH2(exchange, this as Destination<Sessions>, options, endsAt);
    return (options.client === "node" ? forward : forwardWire)(exchange, this as Destination<Pool>, options, endsAt);
  }

  broken(fault: Fault): void {
    // Silence in the middle of a body may be the client's, who does not read.
    if (isUpstreams(fault) && fault.code !== "upstream_timeout") this.health.failed(fault.message);
  }
}
