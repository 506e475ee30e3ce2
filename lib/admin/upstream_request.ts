/**
 * Answers `POST /gateway/upstreams/{service}/{id}`: takes an upstream out of traffic, or back.
 */
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { loadCode } from "../gateway/loaded_features.ts";
import { problem, type Reply } from "../http/reply.ts";
import { isObject } from "../json_schema/values.ts";
import type { Inbound } from "../server/inbound.ts";
import type { UpstreamState } from "../upstream/taken_out.ts";
import { logChange } from "./change_log.ts";
import { readJsonBody } from "./json_body.ts";
import { askedOf, json } from "./replies.ts";
import { view, type InterfaceOptions } from "./views.ts";

export interface UpstreamOptions extends Pick<InterfaceOptions, "refresh" | "log" | "audit"> {
  readonly gateway: ReportedGateway;
}

/** See `Who` of the endpoints. */
interface By {
  readonly user: string;
  readonly isLive: () => boolean;
}

const MAX_BYTES = 1024;
const STATES: readonly unknown[] = ["drain", "eject", "use"] satisfies UpstreamState["state"][];

export async function upstreamRequest(inbound: Inbound, who: By, options: UpstreamOptions): Promise<Reply> {
  const { gateway, refresh } = options;
  const { call, clientAddress } = inbound;
  const named = namedBy(inbound);
  if (named === null)
    return problem(call, "bad_request", { detail: "The names in the path are not percent-encoded UTF-8." });
  const body = await readJsonBody(inbound, MAX_BYTES, "the state");
  const state = stateIn(body);
  if (state === null)
    return problem(call, "request_invalid", {
      detail: 'Send {"state":"drain"}, {"state":"eject"} or {"state":"use"}, and nothing else.',
    });
  if (!who.isLive())
    return problem(call, "unauthenticated", { detail: "The session has ended meanwhile. Nothing has been changed." });
  const internals = GatewayCore.internalsOf(gateway);
  const { takenOutOf } = await loadCode(internals.features.onDemand.takenOut);
  const upstreams = takenOutOf(internals);
  const [service, id] = named;
  if (!upstreams.has({ service, id }))
    return problem(call, "route_not_found", { detail: "The configuration in force has no such upstream." });
  const out = internals.runtime.peer(service, id)?.takenOut ?? null;
  if (state === "use" && out !== null && out.as !== id)
    return problem(call, "conflict", {
      detail: `It is taken out with all endpoints of the upstream ${JSON.stringify(out.as)}: use that.`,
    });
  const before = upstreams.stateOf({ service, id });
  const isSet = upstreams.set({ service, id, state });
  await logChange(options, {
    user: who.user,
    address: clientAddress,
    action: "upstream",
    service,
    upstream: id,
    before,
    after: state,
    request_id: call.id,
  });
  await isSet;
  await refresh("counts");
  if (!upstreams.has({ service, id }))
    return problem(call, "route_not_found", { detail: "A reload has removed the upstream meanwhile." });
  const { upstreams: shown = [] } = gateway.health.services.find(({ name }) => name === service) ?? {};
  const own = shown.find((upstream) => upstream.id === id);
  if (own !== undefined) return json(200, view(own));
  const endpoints = shown.filter((each) => internals.runtime.peer(service, each.id)?.upstream === id);
  return json(200, { id, admin_state: state === "use" ? null : state, endpoints: view(endpoints) });
}

/** Null: they are not percent-encoded. */
function namedBy(inbound: Inbound): readonly [service: string, id: string] | null {
  const [service = "", id = ""] = (askedOf(inbound) as { readonly path: string }).path.split("/").slice(3);
  try {
    return [decodeURIComponent(service), decodeURIComponent(id)];
  } catch {
    return null;
  }
}

/** Null: the body is no object with a state alone. */
function stateIn(body: Buffer): UpstreamState["state"] | null {
  try {
    const value: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
    if (!isObject(value) || Object.keys(value).length !== 1 || !STATES.includes(value["state"])) return null;
    return value["state"] as UpstreamState["state"];
  } catch {
    return null;
  }
}
