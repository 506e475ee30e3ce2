/**
 * Answers `POST /gateway/cache/purge`: drops stored replies in all workers.
 */
import { inSlices, paced } from "../base/time_slices.ts";
import type { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { loadCode } from "../gateway/loaded_features.ts";
import { problem, type Reply } from "../http/reply.ts";
import { isObject } from "../json_schema/values.ts";
import type { Purge } from "../plugins/cache/purge.ts";
import { cacheStoresOf } from "../report/cache_figures.ts";
import { readTarget } from "../route/path.ts";
import type { Inbound } from "../server/inbound.ts";
import { logChange } from "./change_log.ts";
import { readJsonBody } from "./json_body.ts";
import { json } from "./replies.ts";
import type { InterfaceOptions } from "./views.ts";

interface By {
  readonly user: string;
  readonly isLive: () => boolean;
}

const MAX_BYTES = 16 * 1024;
const FIELDS: readonly string[] = ["service", "route", "url", "prefix", "tag"] satisfies (keyof Purge)[];

export async function purgeRequest(
  inbound: Inbound,
  { user, isLive }: By,
  options: Pick<InterfaceOptions, "gateway" | "log" | "audit">,
): Promise<Reply> {
  const { call, clientAddress } = inbound;
  const asked = inbound.body === null ? {} : purgeIn(await readJsonBody(inbound, MAX_BYTES, "what is purged"));
  if (typeof asked === "string") return problem(call, "request_invalid", { detail: asked });
  if (!isLive())
    return problem(call, "unauthenticated", { detail: "The session has ended meanwhile. Nothing has been changed." });
  const { configuration, features, runtime } = GatewayCore.internalsOf(options.gateway as ReportedGateway);
  const { services } = configuration.snapshot.config;
  const known = services.filter(({ name }) => asked.service === undefined || name === asked.service);
  const { route } = asked;
  if (!known.some(({ routes }) => route === undefined || routes.some(({ name }) => name === route)))
    return problem(call, "route_not_found", { detail: "The configuration in force has no such service or route." });
  const { purgeSteps } = await loadCode(features.onDemand.purge);
  const here = await inSlices(purgeSteps(cacheStoresOf(runtime), asked), paced());
  const purged = here + ((await configuration.followers?.purge(asked)) ?? 0);
  await logChange(options, { user, address: clientAddress, action: "purge", ...asked, purged, request_id: call.id });
  return json(200, { purged });
}

/** What is asked for, or what is wrong with it. */
function purgeIn(body: Buffer): Purge | string {
  let value: unknown;
  try {
    value = body.length === 0 ? {} : JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return "The body is no JSON.";
  }
  if (!isObject(value)) return "The body is no object.";
  for (const [name, text] of Object.entries(value)) {
    if (!FIELDS.includes(name)) return `There is no field "${name.slice(0, 40)}": use ${FIELDS.join(", ")}.`;
    if (typeof text !== "string" || text === "") return `"${name}" must be a text that is not empty.`;
  }
  const { url, prefix, ...others } = value as Purge;
  const [whole, begin] = [url, prefix].map((text) => (text === undefined ? undefined : asKeyed(text)));
  if (whole === null) return '"url" must be a path, or a URL with http or https, as a request may have it.';
  if (begin === null) return '"prefix" must begin with a path, or with a URL with http or https.';
  return { ...others, ...(whole !== undefined && { url: whole }), ...(begin !== undefined && { prefix: begin }) };
}

/** As the cache writes the target of a request; null: no request has it. */
function asKeyed(text: string): string | null {
  const [, origin = "", rest = ""] = /^(https?:\/\/[^/?#]+)?(.*)$/is.exec(text)!;
  const target = readTarget(rest === "" ? "/" : rest);
  if ("code" in target || target.authority !== null) return null;
  const lower = origin.toLowerCase();
  const defaultPort = lower.startsWith("https:") ? /:443$/ : /:80$/;
  return lower.replace(defaultPort, "") + target.path + target.query;
}
