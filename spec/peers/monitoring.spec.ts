/**
 * Alert rules and Prometheus' configuration through Debian's Prometheus and promtool, the Compose example through
 * docker-compose.
 */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { readSettings } from "../../lib/config/settings.ts";
import { oneService } from "../support/gateway.ts";
import { freePort, origin } from "../support/origin.ts";
import { found, read, root } from "../support/documents.ts";
import { emptyFolder, startBuilt } from "./built.ts";
import { readYaml } from "./yaml.ts";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

const parse = (text: string) => readYaml(text)[0];
const ALERTS = read("examples/prometheus/alerts.yml");
const rules = (parse(ALERTS) as { groups: { rules: Rule[] }[] }).groups.flatMap((group) => group.rules);

function run(command: string, args: readonly string[], cwd: string, env = {}): { code: number | null; out: string } {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    env: { PATH: process.env.PATH, ...env },
  });
  return { code: status, out: stdout + stderr };
}

/** A copy of examples/prometheus, with the rules of `alerts`. */
function copied(alerts = ALERTS): string {
  const folder = emptyFolder();
  cpSync(`${root}/examples/prometheus`, folder, { recursive: true });
  writeFileSync(join(folder, "alerts.yml"), alerts);
  return folder;
}

/**
 * The alerts for which a test of the rules fails, when all expressions are replaced. With `only`, that test alone is
 * run.
 */
function alertsThatFail(replace: (expr: string) => string, only?: number): string[] {
  const groups = [{ name: "replaced", rules: rules.map((rule) => ({ ...rule, expr: replace(rule.expr) })) }];
  const folder = copied(JSON.stringify({ groups }));
  const file = join(folder, "alerts_test.yml");
  const tests = parse(readFileSync(file, "utf8")) as { tests: object[] };
  if (only !== undefined) writeFileSync(file, JSON.stringify({ ...tests, tests: [tests.tests[only]] }));
  const { out } = run("promtool", ["test", "rules", "alerts_test.yml"], folder);
  return [...new Set(found(out, /alertname: (\w+), time/g))];
}

describe("the alert rules for Prometheus", () => {
  it("promtool accepts the alert rules, and their tests pass", () => {
    const folder = copied();
    expect(run("promtool", ["check", "rules", "alerts.yml"], folder)).toMatchObject({
      code: 0,
      out: expect.stringContaining(`${rules.length} rules found`) as string,
    });
    expect(run("promtool", ["test", "rules", "alerts_test.yml"], folder)).toMatchObject({ code: 0 });
  });

  it("every alert is tested: a test fails if it never fires, and one if it fires for a healthy gateway", () => {
    const names = rules.map(({ alert }) => alert).sort();
    expect(alertsThatFail(() => "vector(0) > 1").sort()).toEqual(names);
    expect(alertsThatFail((expr) => `${expr} or vector(1)`, 0).sort()).toEqual(names);
  });

  it("every alert has a severity, a summary and a remedy", () => {
    expect(
      rules.filter(
        ({ labels, annotations: { summary, remedy } }) =>
          !/^(page|ticket)$/.test(labels.severity!) || !summary || !remedy,
      ),
    ).toEqual([]);
  });

  it("promtool accepts the configuration for Prometheus, which scrapes PROBE_PORT with METRICS_TOKEN", async () => {
    const folder = copied();
    const token = join(folder, "metrics_token");
    writeFileSync(token, "a-token-of-prometheus\n");
    const text = read("examples/prometheus/prometheus.yml");
    expect(text).toContain("/run/secrets/metrics_token");
    writeFileSync(join(folder, "prometheus.yml"), text.replace("/run/secrets/metrics_token", token));
    expect(run("promtool", ["check", "config", "prometheus.yml"], folder)).toMatchObject({ code: 0 });
    // What it scrapes is what promtool accepts, too.
    const { probeUrl } = await startBuilt(oneService(9), { PROBE_PORT: "0", METRICS_TOKEN_FILE: token });
    const metrics = await fetch(`${probeUrl}/metrics`, {
      headers: { Authorization: `Bearer ${readFileSync(token, "utf8").trim()}` },
    });
    const checked = spawnSync("promtool", ["check", "metrics"], { input: await metrics.text(), encoding: "utf8" });
    expect([metrics.status, checked.status, checked.stderr]).toEqual([200, 0, ""]);
  });

  it("Prometheus scrapes the gateway, and its alerts fire when the only upstream of a service is gone", async () => {
    const upstream = await origin();
    // Every second, and without the time for which rules wait.
    const folder = copied(ALERTS.replaceAll(/^( +for): .*/gm, "$1: 0s"));
    const token = join(folder, "metrics_token");
    writeFileSync(token, "a-token-of-prometheus\n");
    const gateway = await startBuilt(oneService(upstream.port, { health: { enabled: true, interval_ms: 100 } }), {
      PROBE_PORT: "0",
      METRICS_TOKEN_FILE: token,
    });
    const text = read("examples/prometheus/prometheus.yml")
      .replace("/run/secrets/metrics_token", token)
      .replaceAll("15s", "1s");
    writeFileSync(join(folder, "prometheus.yml"), text.replace("gateway:9090", new URL(gateway.probeUrl!).host));
    const port = await freePort();
    const prometheus = spawn("prometheus", ["--config.file=prometheus.yml", `--web.listen-address=127.0.0.1:${port}`], {
      cwd: folder,
      stdio: "ignore",
    });
    onTestFinished(async () => {
      prometheus.kill("SIGKILL");
      if (prometheus.exitCode === null && prometheus.signalCode === null) await once(prometheus, "exit");
    });
    const ask = async (path: string) =>
      ((await (await fetch(`http://127.0.0.1:${port}/api/v1/${path}`)).json()) as { data: unknown }).data;
    const seen = async () => {
      const { result } = (await ask("query?query=edge_gateway_upstream_healthy")) as {
        result: { value: [number, string] }[];
      };
      return result.map(({ value }) => value[1]);
    };
    const firing = async () =>
      ((await ask("alerts")) as { alerts: { labels: { alertname: string } }[] }).alerts
        .map(({ labels }) => labels.alertname)
        .sort();
    const soon = { timeout: 30_000, interval: 500 };
    await vi.waitFor(async () => expect([await seen(), await firing()]).toEqual([["1"], []]), soon);
    await upstream.close();
    await vi.waitFor(
      async () => expect(await firing()).toEqual(["EdgeGatewayServiceWithoutUpstream", "EdgeGatewayUpstreamUnhealthy"]),
      soon,
    );
    gateway.process.kill("SIGKILL");
    await vi.waitFor(async () => expect(await firing()).toContain("EdgeGatewayDown"), soon);
  });
});

interface ComposeService {
  readonly image: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly ports?: readonly unknown[];
  readonly volumes?: readonly string[];
}

describe("the Compose example", () => {
  /** The example as docker-compose understands it, beside copies of what it mounts. */
  function composed(environment = {}, change = (text: string) => text) {
    const folder = emptyFolder();
    cpSync(`${root}/examples`, folder, { recursive: true });
    mkdirSync(join(folder, "docker/secrets"), { recursive: true });
    const file = join(folder, "docker/compose.yaml");
    writeFileSync(file, change(read("examples/docker/compose.yaml")));
    return { folder, ...run("docker-compose", ["-f", file, "config"], join(folder, "docker"), environment) };
  }

  it("docker-compose accepts the Compose example, and refuses a misspelt field", () => {
    expect(composed()).toMatchObject({ code: 0 });
    expect(composed({}, (text) => text.replace("stop_grace_period", "stop_grace"))).toMatchObject({
      code: 1,
      out: expect.stringContaining("stop_grace") as string,
    });
  });

  it(
    "no container of the Compose example may write to its image, " +
      "gain privileges or listen beyond this machine, except the gateway",
    () => {
      const { services } = parse(composed().out) as { services: Record<string, ComposeService> };
      expect(Object.keys(services).sort()).toEqual(["gateway", "grafana", "orders", "prometheus"]);
      for (const [name, { read_only, cap_drop, security_opt, ports = [] }] of Object.entries(services)) {
        expect([name, read_only, cap_drop, security_opt]).toEqual([name, true, ["ALL"], ["no-new-privileges:true"]]);
        if (name !== "gateway") expect(ports.filter((port) => !String(port).startsWith("127.0.0.1:"))).toEqual([]);
      }
    },
  );

  it("every image of the Compose example can be one of another registry, by digest", () => {
    const images = {
      GATEWAY_IMAGE: "r/g@sha256:1",
      NODE_IMAGE: "r/n@sha256:2",
      PROMETHEUS_IMAGE: "r/p@sha256:3",
      GRAFANA_IMAGE: "r/f@sha256:4",
    };
    const { services } = parse(composed(images).out) as { services: Record<string, ComposeService> };
    expect(
      Object.values(services)
        .map(({ image }) => image)
        .sort(),
    ).toEqual(Object.values(images).sort());
  });

  it("everything the Compose example mounts is there, and the program accepts the environment of its gateway", () => {
    const { out, folder } = composed();
    const { services } = parse(out) as { services: Record<string, ComposeService> };
    const mounted = Object.values(services)
      .flatMap(({ volumes = [] }) => volumes.map((each) => each.split(":")[0]!))
      .filter((path) => path.startsWith("/"));
    expect(mounted.length).toBe(5);
    for (const path of mounted) expect(path.startsWith(folder)).toBe(true);
    for (const path of mounted) expect(run("ls", [path], folder).code).toBe(0);
    const settings = readSettings({}, services.gateway!.environment!, { readFile: () => "a-token-of-prometheus" });
    expect(settings).toMatchObject({
      ok: true,
      settings: { admin: null, metricsToken: "a-token-of-prometheus", probe: { port: 9090, host: "0.0.0.0" } },
    });
    expect(read("examples/prometheus/prometheus.yml")).toContain('targets: ["gateway:9090"]');
  });

  it(
    "Grafana's provisioning is YAML that names the Prometheus of the Compose example and " +
      "the folder of the dashboard",
    () => {
      const source = parse(read("examples/grafana/provisioning/datasources/prometheus.yml")) as {
        datasources: { url: string; type: string }[];
      };
      expect(source.datasources).toMatchObject([{ type: "prometheus", url: "http://prometheus:9090" }]);
      const { providers } = parse(read("examples/grafana/provisioning/dashboards/edge-gateway.yml")) as {
        providers: { options: { path: string } }[];
      };
      expect(read("examples/docker/compose.yaml")).toContain(
        `../grafana/dashboard.json:${providers[0]!.options.path}/`,
      );
    },
  );
});
