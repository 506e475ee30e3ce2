/**
 * Where a request goes: one upstream and the connections to it, of the kind that its forwarder uses. What may be sent there is
 * `peer.ts`'s affair.
 */
import type { Fault } from "../base/errors.ts";

export interface Destination<Connections> {
  /** `upstream.id`: unique within its service. */
  readonly id: string;
  readonly host: string;
  readonly port: number;
  /** What stands in the Host header: the port is left out where it is the scheme's own (RFC 9110 §4.2.1). */
  readonly authority: string;
  readonly pool: Connections;
  /** Told when a response has broken off in the middle, and not by the client: whoever asked for it has gone on by then. */
  broken(fault: Fault): void;
}
