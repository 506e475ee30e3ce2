/**
 * Answers `POST /gateway/acme/rollover`: replaces the key of the account that certificates are ordered with.
 */
import { messageOf } from "../base/errors.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import { logChange } from "./change_log.ts";
import { json } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

interface RolloverOptions extends Pick<InterfaceOptions, "log" | "audit"> {
  readonly gateway: ReportedGateway;
}

export async function rolloverRequest(
  { call, clientAddress }: Inbound,
  { user }: { readonly user: string },
  options: RolloverOptions,
): Promise<Reply> {
  const { certificates, configuration } = GatewayCore.internalsOf(options.gateway);
  const { acme } = configuration.snapshot.global;
  if (certificates === null || acme === undefined)
    return problem(call, "conflict", { detail: "The configuration in force does not have global.acme." });
  try {
    await certificates.rollover();
  } catch (error) {
    return problem(call, "conflict", { detail: `The replacement has failed: ${messageOf(error)}` });
  }
  const { directory } = acme;
  await logChange(options, { user, address: clientAddress, action: "rollover", directory, request_id: call.id });
  return json(200, { directory });
}
