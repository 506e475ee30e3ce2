/**
 * Links to the plugins that can identify a caller.
 */
import type { ShownCaller } from "./api.ts";
import { breakable, link } from "./components.ts";
import { el } from "./dom.ts";
import { fixedPart, type Part } from "./tables.ts";
import { hashForPlace } from "./url_hash.ts";

/** Links that a row has at once: the rest opens. */
const MAX_LINKS = 3;
/** The gateway names no more plugins of one caller. */
const MOST_PLUGINS = 10;

/** "key_auth of route list of shop": links to the places of the plugins. */
export function knownBy({ plugins }: Pick<ShownCaller, "plugins">): Part {
  const links = plugins.map((plugin) => {
    const { kind, service, route } = plugin;
    const place = [route === null ? null : `route ${route}`, service ?? "all services"].filter((part) => part !== null);
    return link(hashForPlace(plugin), ...breakable([kind, ...place].join(" of ")));
  });
  if (links.length === 0) return fixedPart("no plugin");
  const listed = (some: readonly HTMLElement[]) => some.flatMap((each, i) => (i === 0 ? [each] : [", ", each]));
  const rest = links.slice(MAX_LINKS);
  const count = `and ${links.length === MOST_PLUGINS ? "at least " : ""}${rest.length} more`;
  return fixedPart(
    ...listed(links.slice(0, MAX_LINKS)),
    rest.length > 0 && el("details", { class: "more" }, el("summary", {}, count), ...listed(rest)),
  );
}
