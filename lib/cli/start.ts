/**
 * Starts everything the settings ask for: gateway, listeners, admin interface, management UI; all of it or nothing.
 */
import type { AddressInfo } from "node:net";
import type { Readable } from "node:stream";
import type { Admin, ProxyConfig } from "../admin/server.ts";
import { systemClock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Threads } from "../base/threads.ts";
import { version } from "../base/version.ts";
import type { BoundAddress } from "../cluster/messages.ts";
import type { Settings } from "../config/settings.ts";
import type { Gateway } from "../embed/gateway.ts";
import { ConfigError, GatewayCore, type CompleteOptions, type LastReload, type ListenOptions } from "../gateway/gateway.ts";
import { loadPluginModules } from "../parts/load.ts";
import type { Manager } from "../manager/server.ts";
import type { OperatorServer, OperatorTls } from "../operator/operator_server.ts";
import type { TlsFiles } from "../server/tls.ts";
import { urlOf, where } from "./addresses.ts";
import { OF_ADMIN, ON_DEMAND } from "./commands.ts";
import { Failure, listenFailure } from "./failure.ts";
import { allNamedBy, partsNamedBy, refuseLacking } from "./named_parts.ts";
import type { PassedSockets } from "./socket_activation.ts";
import { readTlsFiles } from "./tls_files.ts";
import { openWorkers } from "./workers.ts";

export interface Started {
  readonly gateway: GatewayCore;
  /** The same; null: nobody asks for reports. */
  readonly reported: Gateway | null;
  readonly admin: Admin | null;
  readonly manager: Manager | null;
  readonly probes: OperatorServer | null;
  /** "http://0.0.0.0:8008", … */
  readonly http: readonly string[];
  /** Empty when HTTPS is off. */
  readonly https: readonly string[];
  /** Null when the admin interface is off. */
  readonly adminUrl: string | null;
  /** Null when there is no listener for probes. */
  readonly probeUrl: string | null;
  /** For a browser on this machine; null when the management UI is off. */
  readonly managerUrl: string | null;
  /** The files that HTTPS started with; null when it is off. */
  readonly tls: TlsFiles | null;
  /** How many threads serve requests. */
  readonly workers: number;
}

export interface StartOptions extends Pick<CompleteOptions, "config" | "configFile" | "configKeyFile" | "tests" | "accessLog"> {
  /** Used in place of ports that would be opened. Default: none. */
  readonly sockets?: PassedSockets;
  /** Called for a reload through the admin interface. */
  readonly reload: () => Promise<LastReload>;
}

/** Throws a `ConfigError` or a `Failure`; nothing listens then. */
export async function start(settings: Settings, options: StartOptions, log: Log): Promise<Started> {
  refuseLacking(allNamedBy(settings));
  const { reload, sockets, ...gatewayOptions } = options;
  const modules = await loadPluginModules(options.configFile ?? options.config ?? {}, process.env, options.configKeyFile);
  const { tracing } = settings;
  const adminCookie = settings.admin?.cookie;
  for (const name of partsNamedBy(settings)) await modules.parts.loadPart(name);
  const supervisor = await openWorkers(settings, log);
  const made = { ...gatewayOptions, modules, log, ...(tracing && { tracing }), ...(adminCookie !== undefined && { adminCookie }) };
  const reporting = modules.parts.partIfLoaded("reporting");
  const reported = reporting && open(reporting.Gateway, made, supervisor?.threads);
  const gateway = reported ?? open(GatewayCore, made, supervisor?.threads);
  const { configuration } = GatewayCore.partsOf(gateway);
  // Before anything listens: to find the warnings of ten thousand routes takes a second.
  await configuration.findWarnings();
  const tls = readTlsFiles(settings, log);
  configuration.setHttps(tls !== null);
  const part: OperatorTls["part"] = (name) => modules.parts.part(name);
  const admin = await openAdmin(settings, { gateway: reported, tls, part, reload, log });
  const probes = await openProbes(settings, reported, log);
  let manager: Manager | null = null;
  try {
    const plain = await listenFor({ gateway, settings, name: "HTTP_PORT", port: settings.httpPort, fds: sockets?.http, tls: null });
    const secure = tls === null ? [] : await listenFor({ gateway, settings, name: "HTTPS_PORT", port: settings.httpsPort, fds: sockets?.https, tls });
    await supervisor?.start(gateway, [...plain, ...secure], tls).catch((error: NodeJS.ErrnoException & { address?: string; port?: number }) => {
      const { code, address, port } = error;
      if (code !== "EADDRINUSE") throw new Failure(error.message, 1);
      throw listenFailure(error, where(address!, port!), plain[0]!.port === port ? "HTTP_PORT" : "HTTPS_PORT", "LISTEN_HOST");
    });
    const [http, https] = [urlsOf(plain), urlsOf(secure)];
    const adminUrl = admin === null ? null : await listenAdmin(admin, settings);
    let managerUrl: string | null = null;
    if (settings.manager !== null) {
      const { listenManager, openManager } = await ON_DEMAND.manager();
      manager = await openManager(settings.manager, admin, tls && { ...tls, part }, log);
      managerUrl = await listenManager(manager, settings.manager, log);
    }
    // After the traffic, which is what "ready" is about.
    const probeUrl = probes === null ? null : await listenProbes(probes, settings.probe!);
    return { gateway, reported, admin, manager, probes, http, https, adminUrl, probeUrl, managerUrl, tls, workers: supervisor?.threads.count ?? 1 };
  } catch (error) {
    await Promise.all([gateway.close(0), admin?.close(), manager?.close(), probes?.close()]);
    throw error;
  }
}

/** Throws a `ConfigError`, or a `Failure` when a plugin cannot be created or names no servers that it could ask. */
function open<G extends GatewayCore>(Kind: new (options: CompleteOptions, threads?: Threads) => G, options: CompleteOptions, threads: Threads | undefined): G {
  try {
    return new Kind(options, threads);
  } catch (error) {
    throw error instanceof ConfigError ? error : new Failure(`${options.configFile === undefined ? "" : `${options.configFile}: `}${messageOf(error)}`, 1);
  }
}

interface Listening {
  readonly gateway: GatewayCore;
  readonly settings: Settings;
  readonly name: "HTTP_PORT" | "HTTPS_PORT";
  readonly port: number;
  /** Passed sockets; none: the port is opened on all addresses. */
  readonly fds: readonly number[] | undefined;
  readonly tls: TlsFiles | null;
}

async function listenFor(listening: Listening): Promise<BoundAddress[]> {
  const { gateway, fds = [], tls } = listening;
  const secure = tls === null ? {} : { tls };
  const addresses = fds.length > 0 ? await listenOnPassed(gateway, fds, secure) : await listenOnAll(listening, secure);
  return addresses.map(({ address, port }) => ({ host: address, port, isSecure: tls !== null }));
}

async function listenOnPassed(gateway: GatewayCore, fds: readonly number[], secure: ListenOptions): Promise<AddressInfo[]> {
  const addresses: AddressInfo[] = [];
  for (const fd of fds) {
    try {
      addresses.push(await gateway.listen({ ...secure, fd }));
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      throw new Failure(`file descriptor ${fd}, passed by LISTEN_FDS, is no TCP socket to listen on: ${(error as Error).message}`, 2);
    }
  }
  return addresses;
}

async function listenOnAll({ gateway, settings, name, port }: Listening, secure: ListenOptions): Promise<AddressInfo[]> {
  const addresses: AddressInfo[] = [];
  for (const host of settings.listenHosts) {
    const shared = addresses[0]?.port ?? port; // "any free port" is the same port on all addresses
    try {
      addresses.push(await gateway.listen({ ...secure, host, port: shared }));
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

function urlsOf(addresses: readonly BoundAddress[]): string[] {
  return addresses.map(({ host, port, isSecure }) => urlOf(isSecure ? "https" : "http", { address: host, port }));
}

interface AdminParts {
  readonly gateway: Gateway | null;
  readonly tls: TlsFiles | null;
  readonly part: OperatorTls["part"];
  readonly reload: () => Promise<LastReload>;
  readonly log: Log;
}

async function openAdmin(settings: Settings, { gateway, tls, part, reload, log }: AdminParts): Promise<Admin | null> {
  const { admin } = settings;
  if (admin === null || gateway === null) return null;
  const { createAdmin } = await ON_DEMAND.admin();
  try {
    return createAdmin({
      ...admin,
      tls: admin.tls && tls !== null ? { ...tls, part } : null,
      clock: systemClock,
      log,
      version,
      metricsToken: settings.metricsToken,
      onRequest: OF_ADMIN,
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
        refresh: (extent) => refresh(gateway, extent),
        status: () => gateway.status,
        health: () => gateway.health,
        stats: (extent) => gateway.recentStats(extent),
        explain: (question, secrets) => gateway.explain(question, secrets),
        routePlugins: (service, route) => gateway.routePlugins(service, route),
        tests: () => gateway.lastTests,
        metrics: () => metricsOf(gateway),
        reload,
        dryRun: (text) => gateway.dryRun(text),
      },
    });
  } catch (error) {
    throw new Failure((error as Error).message, 2);
  }
}

async function metricsOf(gateway: Gateway): Promise<Readable> {
  await GatewayCore.partsOf(gateway).runtime.parts.loadPart("exposition");
  return gateway.metricsStream();
}

/** Asks the workers, if there are any, for their figures. */
function refresh(gateway: GatewayCore, extent: "counts" | "all"): Promise<void> | null {
  return GatewayCore.partsOf(gateway).configuration.followers?.collect(extent) ?? null;
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

async function openProbes({ probe, metricsToken }: Settings, gateway: Gateway | null, log: Log): Promise<OperatorServer | null> {
  if (probe === null || gateway === null) return null;
  const { hosts } = probe;
  const metrics = async () => {
    await refresh(gateway, "all");
    return metricsOf(gateway);
  };
  const { createProbes } = await ON_DEMAND.probes();
  return createProbes({ ready: () => gateway.ready, metrics, metricsToken, hosts, clock: systemClock, log });
}

async function listenProbes(probes: OperatorServer, { host, port }: NonNullable<Settings["probe"]>): Promise<string> {
  try {
    return urlOf("http", await probes.listen({ host, port }));
  } catch (error) {
    throw listenFailure(error as NodeJS.ErrnoException, where(host, port), "PROBE_PORT", "PROBE_HOST");
  }
}
