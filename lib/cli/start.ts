/**
 * Starts everything the settings ask for: gateway, listeners, admin interface, management UI; all of it or nothing.
 */
import type { Admin, ProxyConfig } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { version } from "../base/version.ts";
import type { Address } from "../cluster/messages.ts";
import type { Settings } from "../config/settings.ts";
import { ConfigError, Gateway, type GatewayOptions, type LastReload } from "../gateway/gateway.ts";
import { loadPluginModules } from "../gateway/plugin_modules.ts";
import type { Manager } from "../manager/server.ts";
import type { TlsFiles } from "../server/tls.ts";
import { urlOf, where } from "./addresses.ts";
import { ON_DEMAND } from "./commands.ts";
import { Failure, listenFailure } from "./failure.ts";
import { readTlsFiles } from "./tls_files.ts";
import { openWorkers } from "./workers.ts";

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
  /** For a browser on this machine; null when the management UI is off. */
  readonly managerUrl: string | null;
  /** The files that HTTPS started with; null when it is off. */
  readonly tls: TlsFiles | null;
  /** How many threads serve requests. */
  readonly workers: number;
}

export interface StartOptions extends Pick<GatewayOptions, "config" | "configFile" | "accessLog"> {
  /** Called for a reload through the admin interface. */
  readonly reload: () => Promise<LastReload>;
}

/** Throws a `ConfigError` or a `Failure`; nothing listens then. */
export async function start(settings: Settings, options: StartOptions, log: Log): Promise<Started> {
  const { reload, ...gatewayOptions } = options;
  const modules = await loadPluginModules(options.configFile ?? options.config ?? {});
  const { tracing } = settings;
  if (tracing !== null) await modules.parts.loadPart("tracing");
  const supervisor = await openWorkers(settings, log);
  const gateway = new Gateway({ ...gatewayOptions, modules, log, ...(tracing && { tracing }) }, supervisor?.threads);
  const tls = readTlsFiles(settings, log);
  const admin = await openAdmin(settings, { gateway, tls, reload, log });
  let manager: Manager | null = null;
  try {
    const plain = await listenOnAll(gateway, settings, settings.httpPort, "HTTP_PORT", null);
    const secure = tls === null ? [] : await listenOnAll(gateway, settings, settings.httpsPort, "HTTPS_PORT", tls);
    await supervisor?.start(gateway, [...plain, ...secure], tls).catch((error: Error) => {
      throw new Failure(error.message, 1);
    });
    const [http, https] = [urlsOf(plain), urlsOf(secure)];
    const adminUrl = admin === null ? null : await listenAdmin(admin, settings);
    let managerUrl: string | null = null;
    if (settings.manager !== null) {
      const { listenManager, openManager } = await ON_DEMAND.manager();
      manager = openManager(settings.manager, admin, tls, log);
      managerUrl = await listenManager(manager, settings.manager, log);
    }
    return { gateway, admin, manager, http, https, adminUrl, managerUrl, tls, workers: supervisor?.threads.count ?? 1 };
  } catch (error) {
    await Promise.all([gateway.close(0), admin?.close(), manager?.close()]);
    throw error;
  }
}

async function listenOnAll(gateway: Gateway, settings: Settings, port: number, name: string, tls: TlsFiles | null): Promise<Address[]> {
  const addresses: Address[] = [];
  let shared = port;
  for (const host of settings.listenHosts) {
    try {
      const address = await gateway.listen({ host, port: shared, ...(tls && { tls }) });
      shared = address.port; // "any free port" is the same port on all addresses
      addresses.push({ host: address.address, port: shared, isSecure: tls !== null });
    } catch (error) {
      // A machine without IPv6 must not fail for the default "::".
      if (error instanceof ConfigError) throw error;
      const { code } = error as NodeJS.ErrnoException;
      if (host === "::" && settings.listenHosts.length > 1 && (code === "EAFNOSUPPORT" || code === "EADDRNOTAVAIL")) continue;
      throw listenFailure(error as NodeJS.ErrnoException, where(host, shared), name, "LISTEN_HOST");
    }
  }
  return addresses;
}

function urlsOf(addresses: readonly Address[]): string[] {
  return addresses.map(({ host, port, isSecure }) => urlOf(isSecure ? "https" : "http", { address: host, port }));
}

interface AdminParts {
  readonly gateway: Gateway;
  readonly tls: TlsFiles | null;
  readonly reload: () => Promise<LastReload>;
  readonly log: Log;
}

async function openAdmin(settings: Settings, { gateway, tls, reload, log }: AdminParts): Promise<Admin | null> {
  const { admin } = settings;
  if (admin === null) return null;
  const { createAdmin } = await ON_DEMAND.admin();
  try {
    return createAdmin({
      ...admin,
      tls: admin.tls ? tls : null,
      clock: systemClock,
      log,
      version,
      source: {
        proxyConfig: (secrets) => proxyConfig(secrets === "shown" ? gateway.shownConfig : gateway.maskedConfig),
        settings: () => ({
          ServerCertPath: settings.serverCertPath ?? "",
          ServerKeyPath: settings.serverKeyPath ?? "",
          CACertPath: settings.caCertPath ?? "",
          AdminUser: admin.user,
          AdminPassword: admin.password,
          ConfigFilePath: settings.configPath,
        }),
        ready: () => gateway.ready,
        refresh: (extent) => Gateway.partsOf(gateway).configuration.followers?.collect(extent) ?? null,
        status: () => gateway.status,
        health: () => gateway.health,
        stats: (extent) => gateway.recentStats(extent),
        explain: (question, secrets) => gateway.explain(question, secrets),
        tests: () => gateway.lastTests,
        metrics: () => gateway.metricsStream(),
        reload,
        dryRun: (text) => gateway.dryRun(text),
      },
    });
  } catch (error) {
    throw new Failure((error as Error).message, 2);
  }
}

/** The configuration in force, in the form of GET /gateway. */
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
