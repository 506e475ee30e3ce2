/**
 * What went wrong with one try, in the words of retries and health: whether there was no connection, whether it broke, or whether
 * nothing came in time. What a client is told of it is `base/errors.ts`.
 */
import { Fault } from "../base/errors.ts";

/** The upstream cannot have seen the request: whatever the method, it may be sent again. */
export class Unsent extends Fault {}

/** "connect": no connection could be had, nothing was sent. "reset": it broke before an answer. "timeout": no answer in time. */
export type TryFailure = "connect" | "reset" | "timeout";

/** Null for what another try would not mend: the client's own faults, and answers that are no HTTP. */
export function tryFailure(fault: Fault): TryFailure | null {
  switch (fault.code) {
    case "upstream_connect_failed":
    case "upstream_saturated":
      return "connect";
    case "upstream_reset":
      return "reset";
    case "upstream_timeout":
      return fault instanceof Unsent ? "connect" : "timeout";
    default:
      return null;
  }
}

/** Whether nothing of the request can have been looked at. */
export function isUnsent(fault: Fault): boolean {
  return fault instanceof Unsent || fault.code === "upstream_connect_failed" || fault.code === "upstream_saturated";
}

/** Whether the fault speaks against the upstream: not one of the client's, and not that we have no more connections for it. */
export function isUpstreams(fault: Fault): boolean {
  switch (fault.code) {
    case "upstream_connect_failed":
    case "upstream_reset":
    case "upstream_timeout":
    case "upstream_invalid":
      return true;
    default:
      return false;
  }
}
