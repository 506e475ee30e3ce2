/**
 * Every family of metrics that the gateway tells of itself, from what it has counted and how it is at this moment.
 * Counting is `observe/metrics.ts`, the text `observe/exposition.ts`.
 */
import type { Family, Labels } from "../observe/exposition.ts";
import type { Histogram, Metrics, RouteMeter } from "../observe/metrics.ts";
import { gauge } from "../observe/process.ts";
import type { Fleet } from "../upstream/fleet.ts";
import type { Snapshot } from "./snapshot.ts";

export interface MetricsSource {
  readonly status: {
    readonly version: string;
    readonly inFlight: number;
    readonly loadedAt: number;
    readonly lastReload: { readonly outcome: "taken" | "refused" } | null;
  };
  readonly metrics: Metrics;
  /** Null: requests are not traced. */
  readonly spans: { readonly exported: number; readonly dropped: number } | null;
  readonly fleets: Iterable<Fleet>;
  readonly files: Snapshot["shownCertificates"];
  /** Of listeners, for all names that `files` does not have: its end in milliseconds since 1970; null: there is no HTTPS. */
  readonly own: { readonly notAfter: number } | null;
}

type Samples<T> = (readonly [labels: Labels, value: T])[];

export function families({ status, metrics, spans, fleets, files, own }: MetricsSource): readonly Family[] {
  const requests: Samples<number> = [];
  const durations: Samples<Histogram> = [];
  const limited: Samples<number> = [];
  const refusals: Samples<number> = [];
  const tries: Samples<Histogram> = [];
  const retries: Samples<number> = [];
  const route = (meter: RouteMeter, labels: Labels) => {
    meter.eachRequest((method, code, count) => requests.push([[...labels, "method", method, "code", code], count]));
    // Most routes of a large configuration are quiet, and a histogram is long.
    if (isUsed(meter.duration)) durations.push([labels, meter.duration]);
    for (const [code, { count }] of meter.refusals) refusals.push([[...labels, "code", code], count]);
  };
  for (const [service, { meter, routes }] of metrics.services) {
    retries.push([["service", service], meter.retries]);
    for (const [upstream, { duration }] of meter.upstreams) if (isUsed(duration)) tries.push([["service", service, "upstream", upstream], duration]);
    for (const [name, each] of routes) {
      const labels = ["service", service, "route", name];
      route(each, labels);
      limited.push([labels, each.rateLimited]);
    }
  }
  route(metrics.unrouted, ["service", "", "route", ""]);

  const healthy: Samples<number> = [];
  const connections: Samples<number> = [];
  for (const { service, peers } of fleets) {
    for (const { id, health, pool } of peers) {
      const labels = ["service", service, "upstream", id];
      healthy.push([labels, health.usable ? 1 : 0]);
      connections.push([labels, pool.open]);
    }
  }

  const { version, inFlight, lastReload, loadedAt } = status;
  const certificates: Samples<number> = files.flatMap(({ path, hosts, notAfter }) =>
    hosts.map((host) => [["file", path, "host", host], notAfter / 1000] as const),
  );
  if (own !== null) certificates.push([["file", "", "host", ""], own.notAfter / 1000]);
  const help = HELP;
  return [
    { name: "edge_gateway_http_requests_total", type: "counter", help: help.requests, samples: requests },
    { name: "edge_gateway_http_request_duration_seconds", type: "histogram", help: help.durations, samples: durations },
    gauge("edge_gateway_http_requests_in_flight", "Requests that are being answered, and open WebSockets.", inFlight),
    { name: "edge_gateway_rate_limited_total", type: "counter", help: "Requests refused by rate_limit.", samples: limited },
    { name: "edge_gateway_plugin_refusals_total", type: "counter", help: help.refusals, samples: refusals },
    { name: "edge_gateway_upstream_duration_seconds", type: "histogram", help: help.tries, samples: tries },
    { name: "edge_gateway_retries_total", type: "counter", help: "Tries beyond the first one of a request.", samples: retries },
    { name: "edge_gateway_upstream_healthy", type: "gauge", help: help.healthy, samples: healthy },
    { name: "edge_gateway_upstream_connections", type: "gauge", help: "Open connections, idle ones included.", samples: connections },
    gauge("edge_gateway_config_last_reload_successful", help.reloaded, lastReload?.outcome === "refused" ? 0 : 1),
    gauge("edge_gateway_config_last_reload_success_timestamp_seconds", help.loadedAt, loadedAt / 1000),
    { name: "edge_gateway_tls_certificate_expiry_timestamp_seconds", type: "gauge", help: help.certificates, samples: certificates },
    ...(spans === null ? [] : spanFamilies(spans)),
    { name: "edge_gateway_build_info", type: "info", help: "What runs.", samples: [[["version", version, "node_version", process.version], 1]] },
  ];
}

function spanFamilies({ exported, dropped }: NonNullable<MetricsSource["spans"]>): readonly Family[] {
  return [
    { name: "edge_gateway_trace_spans_exported_total", type: "counter", help: "Spans of traces that the collector has taken.", samples: [[[], exported]] },
    { name: "edge_gateway_trace_spans_dropped_total", type: "counter", help: "Spans of traces that were lost.", samples: [[[], dropped]] },
  ];
}

const HELP = {
  requests: "Requests that are over. code is the status; none: the client was gone before there was one.",
  durations: "From the head of the request to the end of the reply, without WebSockets.",
  refusals: "Requests that a plugin refused, by the code of its error.",
  tries: "From the beginning of a try to the head of the upstream's response, or to its failure.",
  healthy: "Whether the upstream is thought to be well: 0 when checks fail or it has been ejected.",
  reloaded: "Whether the last reload was taken; 1 before the first.",
  loadedAt: "When the configuration in force was taken, in seconds since 1970.",
  certificates: "When a certificate that clients are shown ends, in seconds since 1970; without file and host: that of all other names.",
};

function isUsed({ counts }: Histogram): boolean {
  return counts.some((count) => count > 0);
}
