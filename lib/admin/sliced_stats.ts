/**
 * The statistics of a gateway, made service by service in slices of time: those of 10 000 routes take 40 ms.
 */
import type { NextTimeSlice } from "../base/time_slices.ts";
import { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { GatewayStats, StatsExtent } from "../observe/stats.ts";
import { eachInSlices } from "./large_answers.ts";
import type { ShownGateway } from "./views.ts";

export async function statsInSlices(
  gateway: Pick<ShownGateway, "recentStats">,
  extent: StatsExtent,
  slice: NextTimeSlice,
): Promise<GatewayStats> {
  if (!(gateway instanceof ReportedGateway) || extent === "total" || typeof extent === "object")
    return gateway.recentStats(extent);
  const stats = gateway.recentStats("total");
  const reporting = ReportedGateway.reportingOf(gateway);
  const { metrics } = GatewayCore.internalsOf(gateway);
  return {
    ...stats,
    services: await eachInSlices(
      [...metrics!.services],
      slice,
      (each) => reporting.services(extent, [each])[0] ?? null,
    ),
  };
}
