/**
 * One upstream of one service at run time, across reloads: its identity, connections and health, and how requests are sent to it.
 */
import type { Fault } from "../base/errors.ts";
import type { Exchange } from "../http/exchange.ts";
import type { Reply } from "../http/reply.ts";
import type { Candidate } from "./balance.ts";
import { isUpstreams } from "./faults.ts";
import type { Health } from "./health.ts";
import { forwardHttp1 } from "./http1_request.ts";
import { forwardHttp2 } from "./http2_request.ts";
import { Pool } from "./pool.ts";
import type { Sessions } from "./sessions.ts";
import type { Destination, ForwardOptions } from "./try.ts";

/** The connections to one upstream: HTTP/1.1 or HTTP/2. */
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

  /** As `forwardHttp1` of `http1_request.ts`. */
  forward(exchange: Exchange, options: ForwardOptions, endsAt: number): Promise<Reply> {
    if (this.pool instanceof Pool) return forwardHttp1(exchange, this as Destination<Pool>, options, endsAt);
    return forwardHttp2(exchange, this as Destination<Sessions>, options, endsAt);
  }

  broken(fault: Fault): void {
    // A timeout in the middle of a body may be the client's fault, if it does not read.
    if (isUpstreams(fault) && fault.code !== "upstream_timeout") this.health.failed(fault.message);
  }
}
