/**
 * Reads the settings that not every start has.
 */
import { readSettings } from "../config/settings.ts";
import type { Settings, SettingsRead } from "../config/settings_types.ts";
import { asksForTraces } from "../config/settings_table.ts";
import type { Environment, Flags, Host } from "../config/start_settings.ts";
import type * as tracingCode from "../gateway/tracing.ts";
import { FEATURES } from "../features/table.ts";
import { refuseLacking } from "./failure.ts";

/** Throws a `Failure` where the settings ask for traces, and this build has none. */
export async function readAll(flags: Flags, environment: Environment, host: Host): Promise<SettingsRead<Settings>> {
  if (!asksForTraces(environment)) return readSettings(flags, environment, host);
  refuseLacking(["tracing"]);
  const { readTracing } = (await FEATURES.tracing()) as typeof tracingCode;
  return readSettings(flags, environment, { ...host, readTracing });
}
