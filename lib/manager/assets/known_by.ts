/**
 * Links to the plugins that can identify a caller.
 */
import type { ShownCaller } from "./api.ts";
import { breakable, link } from "./components.ts";
import { fixedPart, type Part } from "./tables.ts";
import { hashForPlace } from "./url_hash.ts";

/** The gateway names no more plugins of one caller. */
const MOST_PLUGINS = 10;

/** "key_auth of route list of shop": links to the places of the plugins, the first `most` of them. */
export function knownBy({ plugins }: Pick<ShownCaller, "plugins">, most = MOST_PLUGINS): Part {
  const links = plugins.slice(0, most).flatMap((plugin, i) => {
    const { kind, service, route } = plugin;
    const place = [route === null ? null : `route ${route}`, service ?? "all services"].filter((part) => part !== null);
    return [i > 0 && ", ", link(hashForPlace(plugin), ...breakable([kind, ...place].join(" of ")))];
  });
  if (links.length === 0) return fixedPart("no plugin");
  const rest = plugins.length - most;
  const count = `${plugins.length === MOST_PLUGINS ? "at least " : ""}${rest} more`;
  return fixedPart(...links, rest > 0 && ` and ${count}`);
}
