/**
 * The settings of commands that write to etcd, or read what is not a configuration there.
 */
import { readSourceSettings, isOfEtcd } from "../config/source_settings.ts";
import type { SourceSettings } from "../config/settings_types.ts";
import { hasScheme } from "../config/start_settings.ts";
import type { Arguments } from "./arguments.ts";
import { accepted, Failure } from "./failure.ts";

/** Throws a `Failure`. */
export function etcdSettings(named: string, { flags }: Arguments): SourceSettings {
  const settings = hasScheme(named) ? accepted(readSourceSettings(named, flags, process.env, "none")) : null;
  if (settings === null || !isOfEtcd(settings.url))
    throw new Failure("expected the URL of a key in etcd: etcd://HOST:2379/KEY, or etcds://", 2);
  return settings;
}
