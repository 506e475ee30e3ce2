/**
 * The facts about a request that its head gives, in every protocol, before a route is matched.
 */
import type { ExchangeParts } from "./exchange.ts";

export interface RequestFacts extends Pick<
  ExchangeParts,
  "call" | "method" | "target" | "httpVersion" | "scheme" | "authority" | "clientAddress" | "headers"
> {}
