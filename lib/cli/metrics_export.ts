/**
 * Sends the metrics of a gateway to a collector, where OTEL_METRICS_EXPORTER asks for it.
 */
import type { Log } from "../base/log.ts";
import type { MetricsExport } from "../config/settings_types.ts";
import { ReportedGateway } from "../embed/reported_gateway.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { MetricsExporter } from "../report/metrics_export.ts";
import { refresh } from "./operators.ts";

/** It ends with the gateway. */
export function exportMetrics(settings: MetricsExport, gateway: ReportedGateway, log: Log): void {
  const { clock, metrics, configuration } = GatewayCore.internalsOf(gateway);
  const reporting = ReportedGateway.reportingOf(gateway);
  reporting.exporter = new MetricsExporter({
    settings,
    clock,
    log,
    proxy: () => configuration.snapshot.egressProxy,
    refresh: () => refresh(gateway, "all"),
    families: () => reporting.families(),
    durations: () => metrics?.durations?.series ?? new Map(),
  });
}
