/** A request as logs and decisions get it when it has ended. */
import type { Call } from "../../lib/http/exchange.ts";
import type { RequestFacts } from "../../lib/http/request_facts.ts";

export function requestFacts(call: Call, changes: Partial<RequestFacts> = {}): RequestFacts {
  return {
    call,
    method: "GET",
    target: "/a/b",
    httpVersion: "1.1",
    scheme: "http",
    authority: "shop.example",
    clientAddress: "192.0.2.1",
    headers: [],
    ...changes,
  };
}
