/**
 * What a page shows of the gateway at this moment: the figures that it asks for, and status and health where they have changed since its last
 * request. A page that asks each second holds no connection, as it does with an event stream, and a browser has few of them.
 */
import { hash } from "node:crypto";
import type { Figures, GatewayStats, StatsExtent } from "../observe/stats.ts";
import { compressed } from "../http/content_coding.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Inbound } from "../server/inbound.ts";
import { placedStatus } from "./placed_status.ts";
import { json, queryOf } from "./replies.ts";
import { statsView, steady, view, type InterfaceOptions, type ShownGateway } from "./views.ts";

/** `known`: the tags of what the client has; without it the reply has everything, the history included. */
export interface NowQuestion {
  /** "top": as "busy", of the first routes by requests, duration and errors alone. */
  readonly figures: StatsExtent | "top";
  readonly known: readonly string[] | null;
}

const FIGURES = ["total", "top", "services", "busy"] as const;
/** Routes in each of the orders of "top". */
const TOP = 5;
const ORDERS: readonly ((route: Figures) => number | null)[] = [({ requestsPerS }) => requestsPerS, ({ p95Ms }) => p95Ms, ({ errorsPerS }) => errorsPerS];

export async function nowRequest({ call, target, headers }: Inbound, { gateway, refresh }: Pick<InterfaceOptions, "gateway" | "refresh">): Promise<Reply> {
  const question = readNowQuestion(target);
  if (typeof question === "string") return problem(call, "request_invalid", { detail: question });
  await refresh("counts");
  return compressed(json(200, nowView(gateway, question)), headers);
}

/** Reads the query; a sentence if it asks for something unknown. */
export function readNowQuestion(target: string): NowQuestion | string {
  const query = queryOf(target);
  const [figures, service] = [query.get("figures") ?? "total", query.get("service")];
  const wide = FIGURES.find((each) => each === figures);
  if (wide === undefined) return `"figures" must be one of ${FIGURES.join(", ")}.`;
  return { figures: service === null ? wide : { service }, known: query.get("known")?.split(".") ?? null };
}

export function nowView(gateway: Pick<ShownGateway, "status" | "health" | "recentStats">, { figures, known }: NowQuestion) {
  const [status, health] = [placedStatus(gateway), view(gateway.health)];
  const tags = [status, health].map((view) => hash("sha1", steady(JSON.stringify(view)), "base64url").slice(0, 12));
  const stats = figures === "top" ? withTopRoutes(gateway.recentStats("busy")) : gateway.recentStats(figures);
  return {
    known: tags.join("."),
    ...(known?.[0] !== tags[0] && { status }),
    ...(known?.[1] !== tags[1] && { health }),
    stats: known === null ? view(stats) : statsView(stats),
  };
}

/** Thousands of routes would be much to send each second. */
function withTopRoutes(stats: GatewayStats): GatewayStats {
  const routes = stats.services.flatMap((service) => service.routes);
  const top = new Set(ORDERS.flatMap((by) => routes.filter((route) => (by(route) ?? 0) > 0).sort((a, b) => by(b)! - by(a)!).slice(0, TOP)));
  const services = stats.services.map((service) => ({ ...service, routes: service.routes.filter((route) => top.has(route)), upstreams: [], groups: [] }));
  return { ...stats, services: services.filter((service) => service.routes.length > 0) };
}
