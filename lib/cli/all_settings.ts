/**
 * Reads the settings that not every start has, and moves a program with threads to its own folder, where Node's
 * permission model makes that safer.
 */
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { readSettings } from "../config/settings.ts";
import type { Settings, SettingsRead, SourceSettings } from "../config/settings_types.ts";
import { asksForExport, asksForTraces } from "../config/settings_table.ts";
import { hasScheme, type Environment, type Flags, type Host } from "../config/start_settings.ts";
import type * as tracingCode from "../gateway/tracing.ts";
import { FEATURES } from "../features/table.ts";
import { refuseLacking } from "./failure.ts";

/** Throws a `Failure` where the settings ask for traces, metrics or logs to be sent, and this build sends none. */
export async function readAll(flags: Flags, environment: Environment, host: Host): Promise<SettingsRead<Settings>> {
  const isAsked =
    asksForTraces(environment) || asksForExport("METRICS", environment) || asksForExport("LOGS", environment);
  if (!isAsked) return readSettings(flags, environment, host);
  refuseLacking(["tracing"]);
  const { readTracing, readMetricsExport, readLogsExport } =
    (await FEATURES.tracing()) as unknown as typeof tracingCode;
  return readSettings(flags, environment, { ...host, readTracing, readMetricsExport, readLogsExport });
}

/**
 * Under its permission model Node lets every worker read the working directory, as it has no script in its arguments.
 * So with workers, or with dry runs, which have a thread, the program moves to its own folder, which it may read
 * anyhow. The result has the paths of the settings as they were before, absolute.
 */
export function inOwnFolder(settings: Settings): Settings {
  if (process.permission === undefined) return settings;
  const isPath = (name: string, value: unknown): value is string =>
    name.endsWith("Path") && typeof value === "string" && !hasScheme(value);
  const absolute = <T extends object>(part: T) =>
    Object.fromEntries(
      Object.entries(part).map(([name, value]) => [name, isPath(name, value) ? resolve(value) : value]),
    ) as T;
  const absoluteSource = (source: SourceSettings) => ({
    ...absolute(source),
    user: source.user && absolute(source.user),
  });
  const resolved = absolute({
    ...settings,
    source: settings.source && absoluteSource(settings.source),
    audit: settings.audit && absolute(settings.audit),
    manager: settings.manager && absolute(settings.manager),
    admin: settings.admin && absolute(settings.admin),
  });
  process.chdir(fileURLToPath(new URL(".", import.meta.url)));
  return resolved;
}
