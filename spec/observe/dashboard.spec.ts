import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { ReportedGateway } from "../../lib/embed/reported_gateway.ts";
import { pointsOf } from "../../lib/observe/otlp_metrics.ts";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { closedPort } from "../support/origin.ts";
import { emptyFolder } from "../support/process.ts";
import { prometheusName } from "../support/prometheus_name.ts";
import { ask } from "../support/raw_client.ts";

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly { readonly expr: string; readonly datasource: { readonly uid: string } }[];
}

interface Dashboard {
  readonly panels: readonly Panel[];
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly type: string; readonly definition?: string }[];
  };
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
}

const dashboard = JSON.parse(
  readFileSync(fileURLToPath(new URL("../../examples/grafana/dashboard.json", import.meta.url)), "utf8"),
) as Dashboard;
const variables = dashboard.templating.list;
const expressions = [
  ...dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
  ...dashboard.annotations.list.map(({ expr }) => expr),
  ...variables.flatMap(({ definition }) => definition ?? []),
];
const metricsIn = (text: string) => text.match(/\b(?:edge_gateway|process)_\w+/g) ?? [];

/** Names of all samples of a gateway in which everything has happened, and those that they have by OTLP. */
async function exposed(): Promise<{ names: Set<string>; labels: Map<string, Set<string>>; sent: Map<string, string> }> {
  const [bad, good] = [await closedPort(), await backend()];
  const routes = [
    { path: "/limited", plugins: [{ name: "rate_limit", config: { limit_min: 1 } }] },
    { path: "/{rest*}", plugins: [{ name: "response_cache" }] },
  ];
  const { gateway, port } = await running(oneService([bad, good.port], { retries: {}, circuit_breaker: {}, routes }));
  await gateway.listen({
    port: 0,
    tls: {
      cert: Buffer.from(SERVER.cert),
      key: Buffer.from(SERVER.key),
      ca: Buffer.from(CA.cert),
      requireClientCert: false,
    },
  });
  for (const path of ["/a/limited", "/a/limited", "/a/x"]) await ask(port, { method: "POST", path, body: "x" });
  await ask(port, { path: "/a/x" });
  const names = new Set<string>();
  const labels = new Map<string, Set<string>>();
  for (const { samples } of readMetrics(gateway.metrics()).families.values()) {
    for (const sample of samples) {
      names.add(sample.name);
      labels.set(sample.name, new Set(Object.keys(sample.labels)));
    }
  }
  const sent = new Map<string, string>();
  for (const { metric } of pointsOf(ReportedGateway.reportingOf(gateway).families())) {
    const { name, unit, type } = metric;
    sent.set(name, prometheusName({ name, unit, kind: type === "counter" ? "sum" : type }));
  }
  return { names, labels, sent };
}

describe("the dashboard for Grafana", () => {
  it("the dashboard for Grafana uses only metrics and labels that GET /metrics has", async () => {
    const { names, labels } = await exposed();
    const asked = new Set(expressions.flatMap(metricsIn));
    expect(asked.size).toBeGreaterThan(15);
    expect(
      [...asked].filter((name) => !names.has(name) && !(name === "process_open_fds" && process.platform !== "linux")),
    ).toEqual([]);
    const ofPrometheus = ["job", "instance"];
    for (const [, name, matchers] of expressions.join("\n").matchAll(/\b(edge_gateway_\w+)\{([^}]*)\}/g)) {
      const used = [...matchers!.matchAll(/(\w+)=/g)].map(([, label]) => label!);
      expect([name, used.filter((label) => !ofPrometheus.includes(label) && !labels.get(name!)!.has(label))]).toEqual([
        name,
        [],
      ]);
    }
  });

  it("the dashboard for Grafana has the same names where Prometheus gets the metrics by OTLP", async () => {
    const { names, sent } = await exposed();
    const arrived = new Set(
      [...sent.values()].flatMap((name) => [name, `${name}_bucket`, `${name}_sum`, `${name}_count`]),
    );
    expect([...names].filter((name) => !arrived.has(name))).toEqual([]);
    expect(expressions.flatMap(metricsIn).filter((name) => !arrived.has(name))).toEqual([]);
    expect(prometheusName({ name: "http.server.request.duration", unit: "s", kind: "histogram" })).toBe(
      "http_server_request_duration_seconds",
    );
  });

  it(
    "the dashboard for Grafana shows every subject: requests, errors, times, upstreams, limits, bytes, caches, " +
      "plugins, connections, circuits, retries, reloads, certificates, the event loop",
    () => {
      const all = expressions.join("\n");
      for (const name of [
        "http_requests_total",
        "http_request_duration_seconds_bucket",
        "http_requests_in_flight",
        "upstream_duration_seconds_bucket",
        "upstream_healthy",
        "upstream_connections",
        "retries_total",
        "rate_limited_total",
        "plugin_refusals_total",
        "http_received_bytes_total",
        "http_sent_bytes_total",
        "client_connections",
        "client_connections_refused_total",
        "cache_requests_total",
        "plugin_seconds_total",
        "rate_limit_shared_total",
        "circuit_state",
        "config_last_reload_successful",
        "tls_certificate_expiry_timestamp_seconds",
        "event_loop_lag_p99_seconds",
      ]) {
        expect(all).toContain(`edge_gateway_${name}`);
      }
      for (const share of ["0.5", "0.95", "0.99"]) expect(all).toContain(`histogram_quantile(${share}, `);
    },
  );

  const panel = (title: string) =>
    dashboard.panels.find((each) => each.title === title)!.targets!.map(({ expr }) => expr);

  it("the dashboard for Grafana draws a service without a 5xx with an error share of zero, not with a gap", () => {
    const shares = expressions.filter((text) => text.includes('code=~"5.."'));
    expect(shares).toHaveLength(2);
    for (const text of shares)
      expect(text).toMatch(/^\(sum.* or (vector\(0\)|sum by \(service\) \(.*\) \* 0)\) \/ sum/);
  });

  it(
    "the dashboard for Grafana draws each refused request once: the codes exclude rate_limited, " +
      "which has lines by route",
    () => {
      const [limited, others] = panel("Refused by rate limits and other plugins");
      expect(limited).toContain("edge_gateway_rate_limited_total");
      expect(others).toMatch(/edge_gateway_plugin_refusals_total\{[^}]*code!="rate_limited"\}/);
    },
  );

  it("reads its data from the selected source in every panel, and defines every variable that it uses", () => {
    const panels = dashboard.panels.filter(({ type }) => type !== "row");
    for (const { datasource, targets } of panels)
      for (const each of [datasource, ...targets!.map((target) => target.datasource)])
        expect(each?.uid).toBe("${datasource}");
    expect(variables[0]).toMatchObject({ name: "datasource", type: "datasource" });
    const used = new Set([...JSON.stringify(dashboard).matchAll(/\$\{?(\w+)/g)].map(([, name]) => name!));
    const ofGrafana = ["__rate_interval", "__all"];
    expect([...used].filter((name) => !ofGrafana.includes(name)).sort()).toEqual(
      variables.map(({ name }) => name).sort(),
    );
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  });

  const promtool = spawnSync("promtool", ["--version"]).error === undefined;
  it.skipIf(!promtool)(
    "the dashboard has expressions that promtool can parse (skipped without promtool: " +
      "Debian's package prometheus has it)",
    () => {
      const rules = expressions
        .filter((text) => !text.startsWith("label_values("))
        .map((text, i) => ({
          record: `panel:${i}`,
          expr: text.replaceAll("$__rate_interval", "5m").replace(/\$\w+/g, ".*"),
        }));
      const file = join(emptyFolder(), "rules.yml");
      writeFileSync(file, JSON.stringify({ groups: [{ name: "dashboard", rules }] }));
      const { status, stdout, stderr } = spawnSync("promtool", ["check", "rules", "--lint=none", file]);
      expect([status, String(stdout) + (status === 0 ? "" : String(stderr))]).toEqual([
        0,
        expect.stringContaining(`${rules.length} rules found`),
      ]);
    },
  );
});
