/**
 * Starts everything the settings ask for: gateway, listeners, admin interface, management UI; all of it or nothing. What is then said,
 * watched and waited for is `run.ts`.
 */
import { createAdmin, type Admin, type ProxyConfig } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import type { Settings } from "../config/settings.ts";
import { Gateway, type GatewayOptions, type LastReload } from "../gateway/gateway.ts";
import { loadPluginModules } from "../gateway/plugin_modules.ts";
import { createOriginalClients, type OriginalClients } from "../http/original_clients.ts";
import type { Manager } from "../manager/server.ts";
import type { TlsFiles } from "../server/tls.ts";
import { urlOf, where } from "./addresses.ts";
import { listenFailure, StartError } from "./failure.ts";
import { listenManager, openManager } from "./open_manager.ts";
import { readTlsFiles } from "./tls_files.ts";

export interface Started {
  readonly gateway: Gateway;
  readonly admin: Admin | null;
  readonly manager: Manager | null;
  /** "http://0.0.0.0:8008", … */
  readonly http: readonly string[];
  /** Empty when HTTPS is off. */
  readonly https: readonly string[];
  /** Null when the admin interface is off. */
  readonly adminUrl: string | null;
  /** As a browser on this machine finds it; null when the management UI is off. */
  readonly managerUrl: string | null;
  /** What HTTPS began with; null when it is off. */
  readonly tls: TlsFiles | null;
}

export interface StartOptions extends Pick<GatewayOptions, "config" | "configFile" | "accessLog"> {
  /** What the admin interface does when it is asked to reload. */
  readonly reload: (started: Promise<Started>) => Promise<LastReload>;
}

/** Throws a `ConfigError` or a `StartError`; nothing listens then. */
export function start(settings: Settings, options: StartOptions, log: Log): Promise<Started> {
  const started: Promise<Started> = open(settings, options, () => options.reload(started), log);
  return started;
}

async function open(settings: Settings, options: StartOptions, reload: () => Promise<LastReload>, log: Log): Promise<Started> {
  const { reload: _, ...gatewayOptions } = options;
  const modules = await loadPluginModules(options.configFile ?? options.config ?? {});
  const { tracing } = settings;
  const gateway = new Gateway({ ...gatewayOptions, modules, log, ...(tracing === null ? {} : { tracing }) });
  const tls = readTlsFiles(settings, log);
  const clients = createOriginalClients();
  const admin = settings.admin === null ? null : openAdmin(settings, settings.admin, { gateway, tls, reload, log, clients });
  let manager: Manager | null = null;
  try {
    const http = await listenOnAll(gateway, settings, settings.httpPort, "HTTP_PORT", null);
    const https = tls === null ? [] : await listenOnAll(gateway, settings, settings.httpsPort, "HTTPS_PORT", tls);
    const adminUrl = admin === null ? null : await listenAdmin(admin, settings);
    if (settings.manager !== null) manager = openManager(settings.manager, adminUrl, tls, log, clients);
    const managerUrl = manager === null ? null : await listenManager(manager, settings.manager!, log);
    return { gateway, admin, manager, http, https, adminUrl, managerUrl, tls };
  } catch (error) {
    await Promise.all([gateway.close(0), admin?.close(), manager?.close()]);
    throw error;
  }
}

async function listenOnAll(gateway: Gateway, settings: Settings, port: number, name: string, tls: TlsFiles | null): Promise<string[]> {
  const urls: string[] = [];
  let shared = port;
  for (const host of settings.listenHosts) {
    try {
      const address = await gateway.listen({ host, port: shared, ...(tls === null ? {} : { tls }) });
      shared = address.port; // of several addresses with "any free port", all get the first one's
      urls.push(urlOf(tls === null ? "http" : "https", address));
    } catch (error) {
      // A machine without IPv6 is no reason to fail when nobody asked for it by name.
      const { code } = error as NodeJS.ErrnoException;
      if (host === "::" && settings.listenHosts.length > 1 && (code === "EAFNOSUPPORT" || code === "EADDRNOTAVAIL")) continue;
      throw listenFailure(error as NodeJS.ErrnoException, where(host, shared), name, "LISTEN_HOST");
    }
  }
  return urls;
}

interface AdminParts {
  readonly gateway: Gateway;
  readonly tls: TlsFiles | null;
  readonly reload: () => Promise<LastReload>;
  readonly log: Log;
  readonly clients: OriginalClients;
}

function openAdmin(settings: Settings, own: NonNullable<Settings["admin"]>, { gateway, tls, reload, log, clients }: AdminParts): Admin {
  try {
    return createAdmin({
      user: own.user,
      password: own.password,
      jwtSecret: own.jwtSecret,
      sessionTtlS: own.sessionTtlS,
      redactSecrets: own.redactSecrets,
      corsOrigins: own.corsOrigins,
      hosts: own.hosts,
      tls: own.tls ? tls : null,
      clock: systemClock,
      log,
      clients,
      version,
      source: {
        proxyConfig: (secrets) => proxyConfig(secrets === "shown" ? gateway.shownConfig : gateway.maskedConfig),
        settings: () => ({
          ServerCertPath: settings.serverCertPath ?? "",
          ServerKeyPath: settings.serverKeyPath ?? "",
          CACertPath: settings.caCertPath ?? "",
          AdminUser: own.user,
          AdminPassword: own.password,
          ConfigFilePath: settings.configPath,
        }),
        ready: () => gateway.ready,
        status: () => gateway.status,
        health: () => gateway.health,
        stats: (extent) => gateway.recentStats(extent),
        explain: (question, secrets) => gateway.explain(question, secrets),
        metrics: () => gateway.metricsStream(),
        reload,
      },
    });
  } catch (error) {
    throw new StartError((error as Error).message, 2);
  }
}

/** The configuration in force as GET /gateway shows it. */
function proxyConfig(config: Gateway["shownConfig"]): ProxyConfig {
  const { global, services } = config as { global: { name: string; plugins: unknown[] }; services: unknown[] };
  return { services, plugins: global.plugins, global };
}

async function listenAdmin(admin: Admin, settings: Settings): Promise<string> {
  const { host, tls } = settings.admin!;
  try {
    return urlOf(tls ? "https" : "http", await admin.listen({ host, port: settings.adminPort }));
  } catch (error) {
    throw listenFailure(error as NodeJS.ErrnoException, where(host, settings.adminPort), "ADMIN_PORT", "ADMIN_HOST");
  }
}
