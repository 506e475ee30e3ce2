/**
 * Logs the listeners and warnings of a gateway that has started.
 */
import type { Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import type { Settings } from "../config/settings.ts";
import { GatewayCore } from "../gateway/gateway.ts";
import type { Warning } from "../gateway/status.ts";
import { describeCounts } from "./counted.ts";
import type { Started } from "./start.ts";

export function announce(started: Started, settings: Settings, log: Log): void {
  const { gateway, http, https, adminUrl, probeUrl, workers } = started;
  const { configPath: config, logFormat, logLevel, clientAuth, tracing } = settings;
  const { digest } = gateway;
  const { signer, snapshot } = GatewayCore.partsOf(gateway).configuration;
  const httpsOff = "off: SERVER_CERT_PATH and SERVER_KEY_PATH are not set";
  const httpOff = "off: HTTP_PORT is off";
  const admin = adminUrl ?? "off: ADMIN_USER and ADMIN_PASSWORD are not set";
  const probes = probeUrl ?? "off: PROBE_PORT is not set";
  const manager = started.managerUrl ?? "off: --manager (MANAGER=true) starts the management UI";
  // Only the origin: the path may contain keys for a collector.
  const traces = tracing === null ? undefined : new URL(tracing.url).origin;
  if (logFormat === "json") {
    const listeners = { http: http.length === 0 ? httpOff : http, https: https.length === 0 ? httpsOff : https, admin, probes, manager, ...(traces !== undefined && { traces }) };
    log.info(`edge-gateway ${version} started`, { config, digest, ...(signer !== undefined && { signed_by: signer }), ...gateway.counts, ...(settings.tests === "skip" && { tests: "skipped" }), ...listeners, ...(workers > 1 && { workers }) });
  } else if (logLevel === "debug" || logLevel === "info") {
    const clients = { none: "", request: ", clients are asked for a certificate", require: ", clients need a certificate" }[clientAuth];
    const rows: [string, string][] = [
      ["config", `${config} (${describeCounts(gateway.counts)}), digest ${digest}`],
      ["tests", settings.tests === "skip" ? "not run, neither now nor before reloads (--no-tests)" : ""],
      ["signed", signer === undefined ? "" : `by the key ${signer}`],
      ["http", http.length === 0 ? httpOff : http.join("  ")],
      ["https", https.length === 0 ? httpsOff : `${https.join("  ")} (${snapshot.global.http2 ? "HTTP/2 and " : ""}HTTP/1.1${clients})`],
      ["admin", admin],
      ["probes", probes],
      ["manager", manager],
      ["workers", workers === 1 ? "" : `${workers}, which share the ports and all limits`],
      ["reload", `when the file changes, and on SIGHUP${adminUrl === null ? "" : ", and by edge-gateway reload"}`],
      ["traces", traces === undefined ? "" : `to ${traces}, ${tracing!.sampler}`],
    ];
    const lines = rows.map(([name, text]) => (text === "" ? "" : `  ${name.padEnd(9)}${text}\n`));
    process.stderr.write(`edge-gateway ${version} started\n${lines.join("")}`);
  }
  // Without that part nothing in the configuration causes one of them.
  const warnings = started.reported?.status.warnings ?? [];
  logWarnings(log, [...warnings.filter(({ code }) => OF_SETTINGS.has(code)), ...gateway.configWarnings]);
  warnOfNode({ ...snapshot.config, https }, log);
}

/** Warnings that the settings cause. */
const OF_SETTINGS: ReadonlySet<string> = new Set(["certificates_unused", "mtls_idle"]);

const MOST_LOGGED = 100;

/** Logs each warning on a line of its own, at most 100. */
export function logWarnings(log: Log, warnings: readonly Warning[]): void {
  for (const { code, path, message, example, remedy } of warnings.slice(0, MOST_LOGGED)) {
    log.warn(message, { code, ...(path !== null && { path }), ...(example !== null && { example }), remedy });
  }
  const more = warnings.length - MOST_LOGGED;
  if (more > 0) log.warn(`${more} more warnings: edge-gateway validate lists all of them`);
}

/** The first nghttp2 whose process its peers cannot abort (CVE-2026-27135). */
const FIXED_NGHTTP2 = "1.68.1";

/** Logs a warning if clients or upstreams use HTTP/2 and the nghttp2 of this Node ("1.61.0") is older than the fixed one. */
export function warnOfNode({ global, services, https }: Peers, log: Log, nghttp2 = process.versions.nghttp2): void {
  const peers = (https.length > 0 && global.http2) || global.h2c ? ["clients"] : [];
  if (services.some(({ protocol }) => protocol === "h2" || protocol === "h2c")) peers.push("upstreams");
  if (nghttp2 === undefined || peers.length === 0) return;
  if (nghttp2.localeCompare(FIXED_NGHTTP2, "en", { numeric: true }) >= 0) return;
  const remedy = "run the gateway with Node 24 or the newest Node 22";
  const message = `HTTP/2 ${peers.join(" and ")} can abort this process: the nghttp2 of this Node is older than ${FIXED_NGHTTP2} (CVE-2026-27135); ${remedy}`;
  log.warn(message, { node: process.version, nghttp2 });
}

interface Peers {
  readonly global: { readonly http2: boolean; readonly h2c: boolean };
  readonly services: readonly { readonly protocol: string }[];
  readonly https: readonly string[];
}
