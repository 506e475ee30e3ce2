/**
 * Collects what a gateway can do from its checked configuration and its settings, for `edge-gateway audit`.
 */
import { isIP } from "node:net";
import { resolve } from "node:path";
import type { Destination } from "../base/egress.ts";
import { readRegularFile } from "../base/regular_file.ts";
import { destinationOf } from "../base/url_destination.ts";
import { nameServers } from "../base/egress_clients.ts";
import { formatPath, type Json } from "../config/json.ts";
import type { Settings } from "../config/settings_types.ts";
import { SETTINGS } from "../config/settings_table.ts";
import { areOfStart, type Flags } from "../config/start_settings.ts";
import { referencesIn } from "../config/references.ts";
import { folderOf } from "../config/source.ts";
import { maskedConfig, withoutDigests } from "../config/masked.ts";
import { ConfigReader, type ReadConfig } from "../gateway/config_reader.ts";
import { destinationsOf } from "../gateway/all_destinations.ts";
import { placed } from "../gateway/plugin_error.ts";
import type { LoadedFeatures } from "../gateway/loaded_features.ts";
import { readForStart } from "../features/load.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import {
  auditedFile,
  loadedAtStart,
  loadedOnRequest,
  modulesOf,
  OF_TEXTS,
  type AuditedModule,
} from "./audit_modules.ts";
import { featuresNamedBy, settingsOf, type Named } from "./on_demand.ts";
import { configOf } from "./config_file.ts";
import { checkHttps } from "./tls_files.ts";
import { NAME_FILES, realPath, touchedFiles, unique } from "./touched_files.ts";

export interface Audit {
  /** What the start loads. */
  readonly modules: readonly AuditedModule[];
  /** The sum of theirs. */
  readonly lines: number;
  /** What reloads and requests of the admin interface can load later on. */
  readonly on_request: readonly AuditedModule[];
  /**
   * Absolute paths of files, and of folders with a slash at the end. Files that Node or the system reads for every
   * program are not listed.
   */
  readonly reads: readonly string[];
  readonly writes: readonly string[];
  readonly listens: readonly Destination[];
  readonly dials: readonly AuditedDial[];
  /** "env:NAME", "file:/path", or the place of a secret that stands in the configuration itself. */
  readonly secrets: readonly string[];
}

/** `via`: the proxy that is connected to in its place. */
export type AuditedDial = Destination & { readonly via?: string };

export type Audited = Awaited<ReturnType<typeof auditOf>>;

/**
 * `flags` are those of `run`. `watched`: those of `audit.reads` whose changes are noticed. Throws a `Failure` or a
 * `ConfigError`.
 */
export async function auditOf(flags: Flags) {
  const bySettings: string[] = [];
  const readFile = (path: string) => {
    bySettings.push(resolve(path));
    return readRegularFile(path);
  };
  const settings = await settingsOf(flags, process.env, { readFile });
  const from = await configOf(settings);
  const { modules } = await readForStart(from);
  for (const name of featuresNamedBy(settings)) await modules.loadFeature(name);
  const reader = new ConfigReader(
    {
      ...from,
      modules,
      https: settings.serverCertPath !== null,
      acme: "checked",
    },
    readRegularFile,
  );
  const read = reader.load(reader.source());
  const hasHttps = reader.https !== "closed";
  if (hasHttps || settings.needHttps) checkHttps(settings, reader.https);
  const destinations = destinationsIn(read.valid, modules);
  const { config, tests, testFiles, callerFiles } = read.valid;
  const keys = [...read.inputs.files].flatMap(([path, content]) =>
    PRIVATE_KEY.test(content.toString("latin1")) ? [path] : [],
  );
  const own = config.global.pluginModules.map(({ path }) => auditedFile(path.path, path.content));
  const dials = throughProxy(dialsOf(settings, destinations), config.global.egressProxy, modules);
  const listens = listensOf(settings, hasHttps);
  // "*", the servers of a Cluster, counts: they may give each other names. localhost is looked up in files alone (RFC
  // 6761 §6.3).
  // Records are looked up here also where a proxy leads to their targets.
  const names = [...dials, ...listens].filter(
    ({ host, via, srv }: AuditedDial) => srv === true || (via === undefined && isIP(host) === 0),
  );
  const hasNameServers = names.some(({ host }) => host !== "localhost");
  const { watched, patterns, ...touched } = touchedFiles(settings, {
    ...config.global,
    testFiles,
    callerFiles,
    named: [...read.inputs.files.keys()],
  });
  const hasTests = tests.length > 0;
  // What a start needs besides what its settings name.
  const named: Named = [
    ...(areOfStart(flags, process.env) ? [] : (["settings"] as const)),
    ...(process.env.LISTEN_FDS ? (["sockets"] as const) : []),
    ...(hasHttps ? (["serverTls"] as const) : []),
    ...(config.global.acme === undefined ? [] : (["acme"] as const)),
  ];
  const atStart = [
    ...modulesOf(loadedAtStart(settings, named, modules, hasTests), areOfStart(flags) ? "plain" : "any"),
    ...own,
  ];
  const audit: Audit = {
    modules: atStart,
    lines: atStart.reduce((sum, { lines }) => sum + lines, 0),
    on_request: onRequest(settings, atStart),
    reads: unique([
      ...touched.reads,
      ...bySettings,
      ...bySettings.map(realPath),
      ...(names.length === 0 ? [] : NAME_FILES),
    ]).sort(),
    writes: touched.writes,
    listens,
    dials: [...dials, ...(hasNameServers ? nameServers() : [])],
    secrets: unique([...secretsOfSettings(settings, flags), ...secretsOf(read), ...keys.map((path) => `file:${path}`)]),
  };
  const { kinds } = read.valid;
  return { audit, settings, from, hasHttps, config, kinds, features: modules, hasTests, watched, patterns };
}

function onRequest(settings: Settings, atStart: readonly AuditedModule[]): readonly AuditedModule[] {
  const ofTexts = settings.admin === null ? [] : OF_TEXTS;
  const known = new Set(atStart.map(({ path }) => path));
  return modulesOf([...loadedOnRequest(settings), ...ofTexts], "plain").filter(({ path }) => !known.has(path));
}

/** Throws a `ConfigError` for a plugin that cannot say what it asks. */
function destinationsIn(valid: ValidConfig, features: LoadedFeatures): readonly Destination[] {
  try {
    return destinationsOf(valid.config, valid.kinds, features);
  } catch (error) {
    throw placed(error, valid);
  }
}

/** The same, and the proxy itself. */
function throughProxy(
  dials: readonly Destination[],
  settings: ValidConfig["config"]["global"]["egressProxy"],
  features: LoadedFeatures,
): readonly AuditedDial[] {
  if (settings === undefined) return dials;
  const { egressProxy, proxyDestination } = features.outbound;
  const proxy = egressProxy(settings);
  // The UI of another gateway is no part of this one, and the source of a configuration is not led by what it gives.
  const isBehind = (to: Destination) => to.why !== "manager" && to.why !== "config" && proxy.leadsTo(to);
  return [...dials.map((to) => (isBehind(to) ? { ...to, via: proxy.address } : to)), proxyDestination(settings)];
}

const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;
function listensOf(
  { listenHosts, httpPort, httpsPort, admin, probe, manager }: Settings,
  hasHttps: boolean,
): Destination[] {
  const on = (hosts: readonly string[], port: number, why: string) => hosts.map((host) => ({ host, port, why }));
  return [
    ...(httpPort === null ? [] : on(listenHosts, httpPort, "http")),
    ...(hasHttps ? on(listenHosts, httpsPort, "https") : []),
    ...(admin === null ? [] : on([admin.host], admin.port, "admin")),
    ...(probe === null ? [] : on([probe.host], probe.port, "probes")),
    ...(manager === null ? [] : on([manager.host], manager.port, "manager")),
  ];
}

function dialsOf(
  { tracing, metricsExport, logsExport, manager, source }: Settings,
  configured: readonly Destination[],
): Destination[] {
  const backend = manager?.backendUrl ?? null;
  const all = [
    ...configured,
    ...[tracing, metricsExport, logsExport].flatMap((to) =>
      to === null ? [] : [destinationOf(new URL(to.url), "otlp")],
    ),
    ...(backend === null ? [] : [destinationOf(new URL(backend), "manager")]),
    ...(source?.url.servers ?? []).map(({ host, port }) => ({ host, port, why: "config" })),
  ];
  return [...new Map(all.map((each) => [JSON.stringify(each), each])).values()];
}

function secretsOfSettings({ serverKeyPath, admin }: Settings, flags: Flags): string[] {
  const variables = [
    ...Object.values(SETTINGS).flatMap(({ flag, variable }) => (flag === null ? [variable] : [])),
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
  ];
  const { adminPasswordFile, adminViewerPasswordFile, metricsTokenFile } = SETTINGS;
  const { sourceTokenPath, etcdPasswordPath, sourceKeyPath, acmeFleetKeyPath } = SETTINGS;
  const files = [
    ...[adminPasswordFile, adminViewerPasswordFile, metricsTokenFile],
    ...[sourceTokenPath, etcdPasswordPath, sourceKeyPath, acmeFleetKeyPath],
  ].flatMap(({ flag, variable }) => String(flags[flag!] ?? "") || process.env[variable] || []);
  return [
    ...variables
      .filter((name) => process.env[name] !== undefined && process.env[name] !== "")
      .map((name) => `env:${name}`),
    ...[...files, serverKeyPath ?? [], admin?.usersPath ?? []].flat().map((path) => `file:${resolve(path)}`),
  ];
}

/**
 * References, also of tests, and where secrets stand in the configuration itself: there, what viewers see differs from
 * what is written.
 */
function secretsOf({ source, inputs, valid }: ReadConfig): string[] {
  const folder = folderOf(source) ?? "/";
  const found: string[] = [];
  const visit = (written: Json, masked: Json, at: readonly (string | number)[]) => {
    if (typeof written === "string") {
      const references = referencesIn(written);
      for (const reference of references)
        found.push(
          reference.startsWith("${env:") ? reference.slice(2, -1) : `file:${resolve(folder, reference.slice(7, -1))}`,
        );
      if (references.length === 0 && written !== masked) found.push(formatPath(at));
    } else if (written !== null && typeof written === "object") {
      for (const [key, value] of Object.entries(written))
        visit(value as Json, (masked as Record<string, Json>)[key]!, [
          ...at,
          Array.isArray(written) ? Number(key) : key,
        ]);
    }
  };
  visit(valid.shown, maskedConfig({ shown: valid.shown, secrets: withoutDigests(valid.secrets) }), []);
  // What is shown has no tests.
  // Files of tests and of callers are shown by their names.
  const own = "text" in source ? (parsed(source.text) as { readonly tests?: Json }).tests : undefined;
  for (const tests of [
    own ?? [],
    ...[...valid.testFiles, ...valid.callerFiles].map((path) => parsed(inputs.files.get(path)!)),
  ])
    visit(tests, tests, []);
  return found;
}

function parsed(text: Buffer | string): Json {
  return JSON.parse(String(text).replace(/^\uFEFF/, "")) as Json;
}
