/**
 * Answers `GET /gateway/requests/{id}`: what became of a request. Its id is percent-encoded.
 */
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import { askedOf, json } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

export async function decisionRequest(
  prefix: string,
  inbound: Inbound,
  { gateway }: Pick<InterfaceOptions, "gateway">,
): Promise<Reply> {
  const id = decoded((askedOf(inbound) as { readonly path: string }).path.slice(prefix.length));
  const decision = await gateway.decision(id);
  if (decision !== null) return json(200, decision);
  const detail = "No request with this id is remembered: it may be older than those that global.decisions keeps.";
  // The id tells this reply from that to an unknown path, which is what older versions give.
  return problem(inbound.call, "route_not_found", { detail, members: { id } });
}

/** "", which is no id, if it is not percent-encoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
