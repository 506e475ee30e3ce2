/**
 * A configuration in a key of etcd, over the JSON gateway of its servers.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import type { SourceSettings } from "../config/settings_types.ts";
import type { TextServer } from "../config/text_source.ts";

/** Throws an `Error` for settings that cannot be used, such as a file that cannot be read. */
export function openEtcd(settings: SourceSettings, _log: Log, _clock: Clock): TextServer {
  throw new Error(`${settings.url.name}: this version cannot ask etcd`);
}
