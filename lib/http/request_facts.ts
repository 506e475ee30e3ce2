/**
 * The facts about a request that its head gives, in every protocol, before a route is matched.
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
