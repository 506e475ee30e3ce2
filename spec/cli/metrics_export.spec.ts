import { expect, it } from "vitest";
import { backend } from "../support/gateway.ts";
import { readMetrics, type ReadMetric } from "../support/otlp_metrics.ts";
import { otlpReceiver } from "../support/otlp_receiver.ts";
import { runningProgram } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";

it(
  "with OTEL_METRICS_EXPORTER=otlp a gateway without an admin interface sends all " + "metrics, and durations by route",
  async () => {
    let latest: readonly ReadMetric[] = [];
    const to = await otlpReceiver(({ text }) => void (latest = readMetrics(text)));
    const origin = await backend();
    const upstreams = [{ host: "127.0.0.1", port: origin.port }];
    const config = { services: [{ name: "s", base_path: "/a", upstreams, routes: [{ path: "/{id}" }] }] };
    const { port } = await runningProgram(config, [], {
      OTEL_METRICS_EXPORTER: "otlp",
      OTEL_METRIC_EXPORT_INTERVAL: "50",
      OTEL_EXPORTER_OTLP_ENDPOINT: to.origin,
      OTEL_TRACES_EXPORTER: "none",
    });
    expect((await fetch(`http://127.0.0.1:${port}/a/7`)).status).toBe(200);
    expect((await fetch(`http://127.0.0.1:${port}/nowhere`)).status).toBe(404);
    const points = (name: string) => latest.find((metric) => metric.name === name)?.points ?? [];
    await eventually(() => points("http.server.request.duration").length === 2);
    expect(points("http.server.request.duration").map(({ attributes }) => attributes["http.route"])).toEqual([
      "/a/{id}",
      undefined,
    ]);
    expect(points("edge_gateway.http.requests").map(({ attributes }) => attributes)).toContainEqual({
      service: "s",
      route: "/{id}",
      method: "GET",
      code: "200",
    });
    expect(points("edge_gateway.otlp.lost")).toMatchObject([{ attributes: { signal: "metrics" }, value: 0 }]);
  },
);
