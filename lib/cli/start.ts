/**
 * Starts everything the settings ask for: gateway, listeners, admin interface, management UI; all of it or nothing.
 */
import type { AddressInfo } from "node:net";
import { messageOf } from "../base/errors.ts";
import { addressOf } from "../base/ip_address.ts";
import type { Log } from "../base/log.ts";
import type { StateFolder } from "../base/state_folder.ts";
import type { Threads } from "../base/threads.ts";
import type { Settings } from "../config/settings_types.ts";
import { ConfigError, GatewayCore, type CompleteOptions, type ListenOptions } from "../gateway/gateway.ts";
import type { BoundAddress } from "../gateway/options.ts";
import type { Replacement } from "../gateway/reloads.ts";
import type { AskedBy, GatewayStatus, ReloadOutcome } from "../gateway/status.ts";
import { readForStart } from "../features/load.ts";
import type { TlsFiles } from "../server/certificates.ts";
import { Failure, listenFailure } from "./failure.ts";
import type { FleetMember } from "./fleet_member.ts";
import type { EarlyProbes } from "./probes.ts";
import type { PassedSockets } from "./socket_activation.ts";
import { askedBy, featuresNamedBy, ON_DEMAND } from "./on_demand.ts";

/** A server for operators, beside the gateway. */
interface ServerBeside {
  /** Throws for a certificate that cannot be used. */
  renewTls(files: TlsFiles): void;
  /** Resolves when its requests have ended. */
  close(): Promise<void>;
}

export interface Started {
  readonly gateway: GatewayCore;
  /** The same; null: nobody asks for reports. */
  readonly reported: { readonly status: GatewayStatus } | null;
  readonly admin: ServerBeside | null;
  readonly manager: ServerBeside | null;
  readonly probes: ServerBeside | null;
  /** Null: there is no ADMIN_USERS_FILE. */
  readonly users: { reread(): void } | null;
  /** Null: the configuration is not in etcd. */
  readonly fleet: FleetMember | null;
  /** What keeps certificates of `global.acme`, which a reload may bring; null: nothing does. */
  readonly certificates: () => { close(): Promise<void> } | null;
  /** Null: there is no STATE_DIR. */
  readonly stateFolder: StateFolder | null;
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

export interface StartOptions extends Pick<
  CompleteOptions,
  "config" | "configFile" | "textSource" | "configKeyFile" | "tests" | "accessLog" | "audit"
> {
  /**
   * File descriptors of sockets that a service manager has opened, used in place of ports that would be opened: see
   * `socket_activation.ts`. Default: none.
   */
  readonly sockets?: PassedSockets;
  /** That listen already. Default: they are opened with the gateway. */
  readonly probes?: EarlyProbes | null;
  /** Called for a reload through the admin interface. */
  readonly reload: (replacement?: Replacement, who?: Omit<AskedBy, "by">) => Promise<ReloadOutcome>;
  /** Called before the first port is open. */
  readonly onListen?: () => void;
}

/** Throws a `ConfigError` or a `Failure`; nothing listens then. */
export async function start(settings: Settings, options: StartOptions, log: Log): Promise<Started> {
  const { reload, sockets, onListen, probes: early = null, ...gatewayOptions } = options;
  const { modules, source } = await readForStart(options);
  const { tracing, metricsExport } = settings;
  const adminCookie = settings.admin?.cookie;
  const named = featuresNamedBy(settings);
  const asked = askedBy(settings);
  for (const name of named) await modules.loadFeature(name);
  const supervisor =
    settings.workers === 1 ? null : (await ON_DEMAND.workers()).openWorkers(settings, { features: named, asked }, log);
  const kept = settings.stateDir !== null && (await (await ON_DEMAND.stateDir()).openState(settings.stateDir, log));
  const made = {
    ...gatewayOptions,
    ...kept,
    modules,
    ...(source && { source }),
    log,
    https: settings.serverCertPath !== null,
    acme: acmeMeans(settings, kept),
    asked,
    ...(tracing && { tracing }),
    areDurationsSent: metricsExport !== null,
    ...(adminCookie !== undefined && { adminCookie }),
  };
  // Also of what the configuration names: settings may be the cause of a warning.
  const isReported = modules.loaded.reporting !== undefined;
  const reported = isReported ? open((await ON_DEMAND.reporting()).ReportedGateway, made, supervisor?.threads) : null;
  const gateway = reported ?? open(GatewayCore, made, supervisor?.threads);
  const { configuration } = GatewayCore.internalsOf(gateway);
  const { fleet, share } = await fleetOf(settings, log);
  if (kept) await (await ON_DEMAND.stateDir()).restoreState(gateway, kept, ON_DEMAND, share);
  if (settings.logsExport !== null) (await ON_DEMAND.logsExport()).exportLogs(settings, gateway, log);
  if (metricsExport !== null) (await ON_DEMAND.metricsExport()).exportMetrics(metricsExport, reported!, log);
  const tls = await httpsFiles(settings, configuration.reader.https, sockets, log);
  const operatorTls = tls?.cert ? { ...tls, features: modules } : null;
  const users = settings.admin?.usersPath ? new (await ON_DEMAND.adminUsers()).UsersFile(settings.admin, log) : null;
  const admin =
    settings.admin &&
    reported &&
    (await ON_DEMAND.admin()).openAdmin(settings.admin, settings, {
      gateway: reported,
      tls: operatorTls,
      users,
      kept,
      fleet,
      writing: settings.admin.write ? await ON_DEMAND.adminWrite() : null,
      reload,
      log,
    });
  const probes =
    settings.probe &&
    reported &&
    (early ?? (await ON_DEMAND.probes()).openProbes(settings.probe, settings.metricsToken, log));
  let manager: { readonly server: ServerBeside; listen(): Promise<string> } | null = null;
  try {
    await configuration.testFirst("lenient");
    if (settings.seal) (await ON_DEMAND.seal()).seal(settings, gateway);
    onListen?.();
    const { plain, secure } = await listenForTraffic(gateway, settings, sockets, tls);
    if (supervisor !== null) await (await ON_DEMAND.workers()).startWorkers(supervisor, gateway, plain, secure, tls);
    if (kept) kept.state.certificates?.start();
    const http = urlsOf(plain);
    const https = urlsOf(secure);
    // After the traffic, which is what "ready" is about.
    if (probes && reported) probes.follow(reported);
    const probeUrl = (await probes?.listen()) ?? null;
    // Beside the traffic, which does not wait for them, and before anybody can ask for them.
    await configuration.findWarnings();
    const adminUrl = (await admin?.listen()) ?? null;
    if (settings.manager !== null) {
      const proxy = settings.manager.backendUrl === null ? null : await ON_DEMAND.managerProxy();
      manager = (await ON_DEMAND.manager()).openManager(settings.manager, {
        admin: admin?.server ?? null,
        proxy,
        tls: operatorTls,
        log,
      });
    }
    const managerUrl = (await manager?.listen()) ?? null;
    // What a start that fails was to bring was never in force.
    admin?.followGateway();
    GatewayCore.internalsOf(gateway).runtime.takenOut?.applied();
    const servers = { admin: admin?.server ?? null, manager: manager?.server ?? null, probes: probes?.server ?? null };
    return {
      gateway,
      reported,
      ...servers,
      users,
      fleet,
      certificates: () => GatewayCore.internalsOf(gateway).certificates,
      stateFolder: kept ? kept.state.folder : null,
      http,
      https,
      adminUrl,
      probeUrl,
      managerUrl,
      tls,
      workers: supervisor?.threads.count ?? 1,
    };
  } catch (error) {
    await Promise.all([gateway.close(0), ...[admin, manager, probes].map((opened) => opened?.server.close())]);
    throw error;
  }
}

/** As a member of what this gateway starts, and how it shares certificates; null where it does not. */
async function fleetOf({ source, acmeFleetKey }: Settings, log: Log) {
  if (!source?.url.scheme.startsWith("etcd")) return { fleet: null, share: null };
  const fleet = new (await ON_DEMAND.fleet()).FleetMember(source, log);
  if (acmeFleetKey === null) return { fleet, share: null };
  return { fleet, share: (await ON_DEMAND.sharedAcme()).sharingIn(fleet, acmeFleetKey) };
}

/** What there is for `global.acme`. */
function acmeMeans(
  { httpPort }: Settings,
  kept: false | { readonly state: { certificatesProblem(): string | undefined } },
): NonNullable<CompleteOptions["acme"]> {
  return {
    stateDir: kept !== false,
    plainPort: httpPort !== null,
    ...(kept && { stateProblem: () => kept.state.certificatesProblem() }),
  };
}

/** Null: nothing listens on HTTPS. Throws a `Failure`. */
async function httpsFiles(
  settings: Settings,
  https: CompleteOptions["https"],
  sockets: StartOptions["sockets"],
  log: Log,
): Promise<TlsFiles | null> {
  if (https !== "closed" || settings.needHttps) return (await ON_DEMAND.serverTls()).tlsFilesOf(settings, https, log);
  if (sockets && sockets.https.length > 0) (await ON_DEMAND.sockets()).refuseHttps();
  return null;
}

/** Throws a `ConfigError`, or a `Failure` when a plugin cannot be created or names no servers that it could ask. */
function open<G extends GatewayCore>(
  Kind: new (options: CompleteOptions, threads?: Threads) => G,
  options: CompleteOptions,
  threads: Threads | undefined,
): G {
  try {
    return new Kind(options, threads);
  } catch (error) {
    throw error instanceof ConfigError
      ? error
      : new Failure(`${options.configFile === undefined ? "" : `${options.configFile}: `}${messageOf(error)}`, 1);
  }
}

async function listenForTraffic(
  gateway: GatewayCore,
  { listenHosts: hosts, httpPort, httpsPort }: Settings,
  sockets: StartOptions["sockets"],
  tls: TlsFiles | null,
) {
  const plain =
    httpPort === null
      ? []
      : await listen(gateway, { name: "HTTP_PORT", port: httpPort, hosts, fds: sockets?.http }, {});
  const secure =
    tls === null
      ? []
      : await listen(gateway, { name: "HTTPS_PORT", port: httpsPort, hosts, fds: sockets?.https }, { tls });
  return { plain, secure };
}

interface ListenAddress {
  readonly name: "HTTP_PORT" | "HTTPS_PORT";
  readonly port: number;
  readonly hosts: readonly string[];
  /** Passed sockets; none: the port is opened on all hosts. */
  readonly fds: readonly number[] | undefined;
}

async function listen(gateway: GatewayCore, place: ListenAddress, secure: ListenOptions): Promise<BoundAddress[]> {
  const { fds = [] } = place;
  const opened =
    fds.length === 0
      ? listenOnAll(gateway, place, secure)
      : (await ON_DEMAND.sockets()).listenOnPassed(gateway, fds, secure);
  return (await opened).map(({ address, port }) => ({ host: address, port, isSecure: secure.tls !== undefined }));
}

async function listenOnAll(
  gateway: GatewayCore,
  { name, port, hosts }: ListenAddress,
  secure: ListenOptions,
): Promise<AddressInfo[]> {
  const addresses: AddressInfo[] = [];
  for (const host of hosts) {
    const shared = addresses[0]?.port ?? port; // "any free port" is the same port on all addresses
    try {
      addresses.push(await gateway.listen({ ...secure, host, port: shared }));
    } catch (error) {
      // A machine without IPv6 must not fail for the default "::".
      if (error instanceof ConfigError) throw error;
      const { code } = error as NodeJS.ErrnoException;
      if (host === "::" && hosts.length > 1 && (code === "EAFNOSUPPORT" || code === "EADDRNOTAVAIL")) continue;
      throw listenFailure(error as NodeJS.ErrnoException, addressOf({ host, port: shared }), name, "LISTEN_HOST");
    }
  }
  return addresses;
}

function urlsOf(addresses: readonly BoundAddress[]): string[] {
  return addresses.map((address) => `${address.isSecure ? "https" : "http"}://${addressOf(address)}`);
}
