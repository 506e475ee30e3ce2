/**
 * Logs the listeners and warnings of a gateway that has started.
 */
import type { Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import type { Settings } from "../config/settings_types.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import { describeCounts, logWarnings } from "./counted.ts";
import type { Started } from "./start.ts";

export function announce(started: Started, settings: Settings, log: Log): void {
  const { gateway, http, https, adminUrl, probeUrl, workers } = started;
  const { configPath: config, logFormat, logLevel, clientAuth, tracing } = settings;
  const { digest } = gateway;
  const {
    configuration: { signer, snapshot },
    features,
  } = GatewayCore.internalsOf(gateway);
  const httpsOff = "off: neither SERVER_CERT_PATH nor global.certificates names a certificate";
  const httpOff = "off: HTTP_PORT is off";
  const admin = adminUrl ?? "off: neither ADMIN_USER nor ADMIN_USERS_FILE is set";
  const probes = probeUrl ?? "off: PROBE_PORT is not set";
  const manager = started.managerUrl ?? "off: --manager (MANAGER=true) starts the management UI";
  // Only the origin: the path may contain keys for a collector.
  const traces = tracing === null ? undefined : new URL(tracing.url).origin;
  if (logFormat === "json") {
    const listeners = {
      http: http.length === 0 ? httpOff : http,
      https: https.length === 0 ? httpsOff : https,
      admin,
      probes,
      manager,
      ...(traces !== undefined && { traces }),
    };
    log.info(`edge-gateway ${version} started`, {
      config,
      digest,
      ...(signer !== undefined && { signed_by: signer }),
      ...gateway.counts,
      ...(settings.tests === "skip" && { tests: "skipped" }),
      ...listeners,
      ...(workers > 1 && { workers }),
    });
  } else if (logLevel === "debug" || logLevel === "info") {
    const clients = {
      none: "",
      request: ", clients are asked for a certificate",
      require: ", clients need a certificate",
    }[clientAuth];
    const rows: [string, string][] = [
      ["config", `${config} (${describeCounts(gateway.counts)}), digest ${digest}`],
      ["tests", settings.tests === "skip" ? "not run, neither now nor before reloads (--no-tests)" : ""],
      ["signed", signer === undefined ? "" : `by the key ${signer}`],
      ["http", http.length === 0 ? httpOff : http.join("  ")],
      [
        "https",
        https.length === 0
          ? httpsOff
          : `${https.join("  ")} (${snapshot.global.http2 ? "HTTP/2 and " : ""}HTTP/1.1${clients})`,
      ],
      ["admin", admin],
      ["probes", probes],
      ["manager", manager],
      ["workers", workers === 1 ? "" : `${workers}, which share the ports and all limits`],
      ["reload", `${whenOf(settings)}, and on SIGHUP${adminUrl === null ? "" : ", and by edge-gateway reload"}`],
      ["traces", traces === undefined ? "" : `to ${traces}, ${tracing!.sampler}`],
    ];
    const lines = rows.map(([name, text]) => (text === "" ? "" : `  ${name.padEnd(9)}${text}\n`));
    process.stderr.write(`edge-gateway ${version} started\n${lines.join("")}`);
  }
  // Without it nothing in the configuration causes one of them.
  const warnings = started.reported?.status.warnings ?? [];
  logWarnings(log, [
    ...warnings.filter(({ code, path }) => OF_SETTINGS.has(code) && !isOfConfiguration(code, path)),
    ...gateway.configWarnings,
  ]);
  const proxies = PROXIES.flatMap((name) => [name, name.toLowerCase()]).filter((name) => process.env[name]);
  if (proxies.length > 0) log.warn(`proxies of the environment are not used: ${proxies.join(", ")}`);
  features.loaded.http2?.warnOfNode({ ...snapshot.config, https }, log);
}

function whenOf({ source }: Settings): string {
  return source === null
    ? "when the file changes"
    : `when the source has another text, asked every ${source.pollMs / 1000} s`;
}

/** Variables that other programs read; whoever sets them may expect it here. */
const PROXIES = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"];

/** Of a secret in the configuration, which is among its warnings. */
function isOfConfiguration(code: string, path: string | null): boolean {
  return code === "plain_http_secret" && path !== null;
}

/** Warnings that the settings cause. */
const OF_SETTINGS: ReadonlySet<string> = new Set([
  "acme_not_shared",
  "mtls_idle",
  "quota_not_durable",
  "plain_http_secret",
]);
