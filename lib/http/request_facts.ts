/**
 * A request as its head told of it, before anything was matched: what is known once it has come, whichever protocol it came by.
 * Who reads it off a connection, and what of its body, is `server/receive*.ts`; what it becomes with a route is `exchange.ts`.
 */
import type { Call } from "./exchange.ts";
import type { HeaderList } from "./headers.ts";

export interface RequestFacts {
  readonly call: Call;
  readonly method: string;
  /** The request target as sent. */
  readonly target: string;
  readonly httpVersion: string;
  readonly scheme: "http" | "https";
  /** Value of Host or `:authority`; "" when there is none. */
  readonly authority: string;
  readonly clientAddress: string;
  readonly headers: HeaderList;
}
