/**
 * Tells from the text of a configuration whether there can be warnings about it, so that the code which finds them is
 * loaded only then.
 */
import { textsOf, valuesAt, type JsonNode } from "../config/json.ts";
import { UNFILLED } from "../config/schema_core.ts";

/** What warnings are about, besides plugins, routes that no request reaches and secrets that look like templates. */
const CAUSES = [
  "callers",
  "caller_files",
  "global.counters",
  "global.accept_warnings",
  "services[].retries.on",
  "services[].routes[].match",
  "services[].routes[].upstream_path",
];

/** Kinds of which no setting causes a warning. */
const HARMLESS: ReadonlySet<string> = new Set([
  "bot_protection",
  "compress",
  "cors",
  "request_headers",
  "request_size_limit",
  "request_validation",
  "response_headers",
]);
/** No setting of these guards does; but a route that lacks a guard of another route may be a way around it. */
const GUARDS: ReadonlySet<string> = new Set(["acl", "basic_auth", "key_auth", "mtls", "request_termination"]);

/**
 * False: `configWarnings` finds none, if the configuration is accepted. True proves nothing.
 *
 * A route that is alone is reached, and no other route leads around its guards. In one service without conditions each
 * route is reached.
 * Routes of one pattern have no method in common (`checkRoutes`). Of the paths that a pattern matches, take one with
 * texts that occur in no pattern in its placeholders, and with more of them in {name*} than any pattern is long.
 * Another pattern that matches it has no literal in the place of a placeholder. So it is less specific, and loses;
 * unless it is longer, and has {a}/{b*} where this one has {name*}. No request avoids a guard that all routes have:
 * that of the service, or of all services.
 */
export function canHaveWarnings(document: JsonNode): boolean {
  const at = (...places: string[]) => places.flatMap((place) => valuesAt(document, place));
  if (at(...CAUSES).length > 0 || at("services[]").length > 1 || textsOf([document]).some(isUnfilled)) return true;
  const inner = at("services[].routes[].plugins[]");
  const isAlone = at("services[].routes[]").length === 1;
  const common = [...at("global.plugins[]", "services[].plugins[]"), ...(isAlone ? inner : [])];
  if (!common.every((plugin, i) => isSilent(plugin, common.slice(i + 1)))) return true;
  if (isAlone) return false;
  const paths = textsOf(at("services[].routes[].path"));
  return (
    inner.some((plugin) => !isSilent(plugin, []) || GUARDS.has(textAt(plugin, "name"))) ||
    paths.some((path) => /[}>]\/[{<][^/]*\*/.test(path))
  );
}

/** Whether there is no warning about a plugin instance, which runs before the others. */
function isSilent(plugin: JsonNode, after: readonly JsonNode[]): boolean {
  const kind = textAt(plugin, "name");
  if (kind !== "rate_limit") return HARMLESS.has(kind) || GUARDS.has(kind);
  if (valuesAt(plugin, "config.limits_by_group").length > 0) return false;
  const by = textAt(plugin, "config.limit_by");
  return (
    by === "" ||
    by === "client_ip" ||
    by === "all" ||
    (by === "credential" && !after.some((other) => GUARDS.has(textAt(other, "name"))))
  );
}

/** "": there is no text. */
function textAt(node: JsonNode, place: string): string {
  const [value] = valuesAt(node, place);
  return value?.kind === "string" ? value.value : "";
}

/** Whatever fields are secrets. */
function isUnfilled(text: string): boolean {
  return UNFILLED.test(text.replaceAll("$${", "${"));
}
