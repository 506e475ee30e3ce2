/**
 * One upstream of one service as it is at run time: its identity and its connections. Which peer gets a request is `balance.ts`.
 */
import type { Pool } from "./pool.ts";

export interface Peer {
  /** `upstream.id`: unique within its service. */
  readonly id: string;
  readonly host: string;
  readonly port: number;
  /** What stands in the Host header: the port is left out where it is the scheme's own (RFC 9110 §4.2.1). */
  readonly authority: string;
  readonly pool: Pool;
}

export function createPeer(id: string, pool: Pool): Peer {
  const { host, port, protocol } = pool.options;
  const name = host.includes(":") ? `[${host}]` : host;
  const authority = port === (protocol === "https" ? 443 : 80) ? name : `${name}:${port}`;
  return { id, host, port, authority, pool };
}
