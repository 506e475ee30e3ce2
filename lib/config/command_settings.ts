/**
 * The runtime settings of the commands that start no gateway.
 */
import { addressOf } from "../base/ip_address.ts";
import { isHashed } from "../base/password.ts";
import { adminPassword, managerOf, managerRules, type ManagerValues } from "./settings.ts";
import { CLIENT_TABLE, HEALTHCHECK_TABLE, MANAGER_TABLE, SETTINGS } from "./settings_table.ts";
import { certificateRules, messagesOf } from "./settings_rules.ts";
import type { SettingsRead } from "./settings_types.ts";
import { logFormatOf, readValues, type Environment, type Flags, type Host, type ValuesOf } from "./start_settings.ts";

export type LoneManagerSettings = ReturnType<typeof loneManagerOf>;

/**
 * For `healthcheck`: the URL of the gateway on this machine, without a path. The probe port is preferred to the admin
 * interface.
 */
export function readHealthcheckSettings(
  flags: Flags,
  environment: Environment,
): SettingsRead<{ readonly url: string }> {
  const issues: string[] = [];
  const { probePort, probeHost, adminUser, adminUsersPath, adminPort, adminHost, adminTls } = readValues(
    HEALTHCHECK_TABLE,
    flags,
    environment,
    issues,
  );
  if (issues.length > 0) return { ok: false, issues };
  const [name, host, port] =
    probePort === null ? ["ADMIN_PORT", adminHost, adminPort] : ["PROBE_PORT", probeHost, probePort];
  if (probePort === null && adminUser === null && adminUsersPath === null)
    issues.push("there is nothing to ask: set PROBE_PORT, as for the gateway itself");
  else if (port === 0) issues.push(`${name} is 0, any free port: set it to the port in use`);
  else if (probePort === null && adminTls === true)
    issues.push("the admin interface uses HTTPS, and its certificate need not name this machine: set PROBE_PORT");
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: { url: `http://${addressOf({ host: near(host!), port: port! })}` } };
}

/** For commands that ask a running gateway: other settings in the environment are ignored, wrong ones too. */
export function readClientSettings(
  flags: Flags,
  environment: Environment,
  host: Host = {},
): SettingsRead<ReturnType<typeof clientOf>> {
  const issues: string[] = [];
  const values = readValues(CLIENT_TABLE, flags, environment, issues);
  if (values.adminUrl === null && values.adminPort === 0)
    issues.push("ADMIN_PORT is 0, any free port: name the port in use with --admin-url");
  // If the gateway's own environment contains a hash, give the password with the flag.
  const isNamed = flags[SETTINGS.adminPasswordFile.flag!] !== undefined;
  const password = adminPassword(isNamed ? { ...values, adminPassword: null } : values, host, issues);
  const user = values.adminUser;
  if (issues.length === 0) {
    if (user === null) issues.push("ADMIN_USER is not set: it names the user who logs in to the admin interface");
    if (password === null)
      issues.push("neither ADMIN_PASSWORD nor ADMIN_PASSWORD_FILE is set: the admin password must be in one of them");
    else if (isHashed(password)) {
      issues.push(
        "the admin password is a hash, which cannot log in: " +
          "set the password itself in ADMIN_PASSWORD or --admin-password-file",
      );
    }
  }
  if (user === null || password === null || issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: clientOf(values as ValuesOf<typeof CLIENT_TABLE>, user, password) };
}

/** For a management UI without a gateway: other settings in the environment are ignored, wrong ones too. */
export function readManagerSettings(
  flags: Flags,
  environment: Environment,
  host: Host = {},
): SettingsRead<LoneManagerSettings> {
  const issues = [...(host.issues ?? [])];
  const read = readValues(MANAGER_TABLE, flags, environment, issues);
  const values = { ...read, managerBackendUrl: read.managerBackendUrl ?? "http://127.0.0.1:8081" };
  issues.push(...messagesOf([...certificateRules(values), ...managerRules(values)]));
  if (issues.length > 0) return { ok: false, issues };
  return { ok: true, settings: loneManagerOf(values as ManagerValues, values.managerBackendUrl, host) };
}

function loneManagerOf(values: ManagerValues, backendUrl: string, host: Host) {
  const { serverCertPath, serverKeyPath, logLevel } = values;
  return {
    manager: { ...managerOf(values), backendUrl },
    serverCertPath,
    serverKeyPath,
    logLevel,
    logFormat: logFormatOf(values, host),
  };
}

/**
 * `url` is the admin interface, by default of a gateway with these settings on the same machine:
 * "http://127.0.0.1:8081".
 */
function clientOf(values: ValuesOf<typeof CLIENT_TABLE>, user: string, password: string) {
  const { adminUrl, adminHost, adminPort, adminTls, adminCaPath: caPath } = values;
  const url = adminUrl ?? `${adminTls ? "https" : "http"}://${addressOf({ host: near(adminHost), port: adminPort })}`;
  return { url, user, password, caPath };
}

/** Where a client on this machine reaches a listener on this host. */
function near(host: string): string {
  return host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
}
