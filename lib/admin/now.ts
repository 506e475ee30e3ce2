/**
 * What a page shows of the gateway at this moment: the figures that it asks for, and status and health where they have
 * changed since its last request. A page that asks each second holds no connection, as it does with an event stream,
 * and a browser has few of them.
 */
import { createHash, hash } from "node:crypto";
import { firstsOf } from "../base/firsts.ts";
import type { NextTimeSlice } from "../base/time_slices.ts";
import { problem, type Reply } from "../http/reply.ts";
import type { Figures, GatewayStats, StatsExtent } from "../observe/stats.ts";
import type { Inbound } from "../server/inbound.ts";
import { eachInSlices, largeAnswer } from "./large_answers.ts";
import { placedStatus } from "./placed_status.ts";
import { queryOf } from "./replies.ts";
import { statsInSlices } from "./sliced_stats.ts";
import { steady, view, type InterfaceOptions, type ShownGateway } from "./views.ts";

/** `known`: the tags of what the client has; without it the reply has everything, the history included. */
export interface NowQuestion {
  /** "top": as "busy", of the first routes by requests, duration and errors alone. */
  readonly figures: StatsExtent | "top";
  readonly known: readonly string[] | null;
}

const FIGURES = ["total", "top", "services", "busy"] as const;
/** Routes in each of the orders of "top". */
const TOP = 5;
const ORDERS: readonly ((route: Figures) => number | null)[] = [
  ({ requestsPerS }) => requestsPerS,
  ({ p95Ms }) => p95Ms,
  ({ errorsPerS }) => errorsPerS,
];

export async function nowRequest(
  { call, target, headers }: Inbound,
  { gateway, refresh }: Pick<InterfaceOptions, "gateway" | "refresh">,
): Promise<Reply> {
  const question = readNowQuestion(target);
  if (typeof question === "string") return problem(call, "request_invalid", { detail: question });
  await refresh("counts");
  return largeAnswer(gateway, `now ${JSON.stringify(question)}`, headers, (slice) => nowView(gateway, question, slice));
}

/** Reads the query; a sentence if it asks for something unknown. */
export function readNowQuestion(target: string): NowQuestion | string {
  const query = queryOf(target);
  const figures = query.get("figures") ?? "total";
  const service = query.get("service");
  const wide = FIGURES.find((each) => each === figures);
  if (wide === undefined) return `"figures" must be one of ${FIGURES.join(", ")}.`;
  return { figures: service === null ? wide : { service }, known: query.get("known")?.split(".") ?? null };
}

export async function nowView(
  gateway: Pick<ShownGateway, "status" | "health" | "recentStats">,
  { figures, known }: NowQuestion,
  slice: NextTimeSlice,
) {
  const status = placedStatus(gateway);
  const mark = createHash("sha1");
  const health = await eachInSlices(gateway.health.services, slice, (service) => {
    const seen = view(service);
    mark.update(steady(JSON.stringify(seen)));
    return seen;
  });
  const tags = [hash("sha1", steady(JSON.stringify(status)), "base64url"), mark.digest("base64url")].map((tag) =>
    tag.slice(0, 12),
  );
  await slice();
  const stats = await statsInSlices(gateway, figures === "top" ? "busy" : figures, slice);
  const { services, history, stepS, ...others } = figures === "top" ? withTopRoutes(stats) : stats;
  return {
    known: tags.join("."),
    ...(known?.[0] !== tags[0] && { status }),
    ...(known?.[1] !== tags[1] && { health: { services: health } }),
    stats: {
      ...view(known === null ? { ...others, history, stepS } : others),
      services: await eachInSlices(services, slice, (each) => view(each)),
    },
  };
}

/** Thousands of routes would be much to send each second. */
function withTopRoutes(stats: GatewayStats): GatewayStats {
  const routes = stats.services.flatMap((service) => service.routes);
  const top = new Set(
    ORDERS.flatMap((by) => {
      const counted = routes.filter((route) => (by(route) ?? 0) > 0);
      return firstsOf(counted, TOP, (a, b) => by(b)! - by(a)!);
    }),
  );
  const services = stats.services.map((service) => ({
    ...service,
    routes: service.routes.filter((route) => top.has(route)),
    upstreams: [],
    groups: [],
  }));
  return { ...stats, services: services.filter((service) => service.routes.length > 0) };
}
