/**
 * Sends a request through a gateway without a socket, for hosts that have it as values.
 */
import { LONGEST_TIMER_MS } from "../base/clock.ts";
import { ignore } from "../base/errors.ts";
import { countReceived } from "../http/limited_body.ts";
import type { Requests } from "../gateway/serve.ts";
import { checkRequest, collected, injected, type InjectRequest, type InjectResponse } from "../proof/made_request.ts";
import type { ReceiveOptions } from "../server/inbound.ts";

/** Rejects when the reply breaks off. */
export async function injectInto(
  requests: Pick<Requests, "serve" | "ended">,
  request: InjectRequest,
  receiving: ReceiveOptions,
): Promise<InjectResponse> {
  checkRequest("inject", request);
  const inbound = injected(request, receiving);
  inbound.call.notes.received = 0;
  if (inbound.body !== null) countReceived(inbound.body, inbound.call.notes);
  // No client's connection keeps the process alive, as for other requests.
  const held = setInterval(ignore, LONGEST_TIMER_MS);
  try {
    return await collected(inbound, await requests.serve(inbound));
  } catch (error) {
    inbound.call.fail("upstream_reset", (error as Error).message);
    throw error;
  } finally {
    clearInterval(held);
    inbound.call.close();
    inbound.body?.destroy();
    requests.ended(inbound);
  }
}
