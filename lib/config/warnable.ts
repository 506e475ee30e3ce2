/**
 * Tells from the document of a configuration whether there can be warnings about it, so that the code which finds them
 * is loaded only then.
 */
import { itemsOf, nodeAt, type JsonNode } from "./json.ts";

/** Kinds of which no setting causes a warning. */
const HARMLESS: ReadonlySet<string> = new Set([
  "bot_protection",
  "compress",
  "cors",
  "json_body",
  "request_headers",
  "request_size_limit",
  "request_validation",
  "response_headers",
]);
/** No setting of these guards does; but a route that lacks a guard of another route may be a way around it. */
const GUARDS: ReadonlySet<string> = new Set(["acl", "basic_auth", "key_auth", "mtls", "request_termination"]);

/**
 * False: `configWarnings` finds none, if the configuration is accepted and has no secret that looks like a template.
 * True proves nothing.
 *
 * A route that is alone is reached, and no other route leads around its guards. In one service without conditions each
 * route is reached.
 * Routes of one pattern have no method in common (`checkRoutes`). Of the paths that a pattern matches, take one with
 * texts that occur in no pattern in its placeholders, and with more of them in {name*} than any pattern is long.
 * Another pattern that matches it has no literal in the place of a placeholder. So it is less specific, and loses;
 * unless it is longer, and has {a}/{b*} where this one has {name*}. No request avoids a guard that all routes have:
 * that of the service, or of all services.
 */
export function canWarn(document: JsonNode, [service, ...more]: readonly JsonNode[]): boolean {
  const global = nodeAt(document, ["global"]);
  if (more.length > 0 || hasSome(document, OF_DOCUMENT) || hasSome(global, OF_GLOBAL)) return true;
  if ([global, service].some((owner) => listIn(owner, "errors").length > 1)) return true;
  const routes = listIn(service, "routes");
  const isAlone = routes.length === 1;
  const common = [global, service, isAlone ? routes[0] : undefined].flatMap((owner) => listIn(owner, "plugins"));
  if (!common.every((plugin, i) => isSilent(plugin, common.slice(i + 1)))) return true;
  if (service === undefined) return false;
  if (nodeAt(service, ["retries", "on"]) !== undefined) return true;
  const isSecure = ["https", "h2"].includes(textAt(service, "protocol"));
  if (!isSecure && listIn(service, "upstreams").some((each) => hasSome(each, ["request_headers"]))) return true;
  const causes = (route: JsonNode) =>
    hasSome(route, ["match", "upstream_path"]) ||
    (!isAlone &&
      (REST.test(textAt(route, "path")) ||
        listIn(route, "plugins").some((each) => !isSilent(each, []) || isGuard(each))));
  return routes.some(causes);
}

/** What warnings are about, besides plugins, routes that no request reaches and secrets that look like templates. */
const OF_DOCUMENT = ["callers", "caller_files"];
const OF_GLOBAL = ["counters", "egress_proxy", "proxy_protocol", "accept_warnings"];
/** {a}/{b*} */
const REST = /[}>]\/[{<][^/]*\*/;

/** Whether there is no warning about a plugin instance, which runs before the others. */
function isSilent(plugin: JsonNode, after: readonly JsonNode[]): boolean {
  const kind = textAt(plugin, "name");
  if (kind !== "rate_limit") return HARMLESS.has(kind) || GUARDS.has(kind);
  if (nodeAt(plugin, ["config", "limits_by_group"]) !== undefined) return false;
  const by = textAt(plugin, "config", "limit_by");
  return by === "" || by === "client_ip" || by === "all" || (by === "credential" && !after.some(isGuard));
}

function isGuard(plugin: JsonNode): boolean {
  return GUARDS.has(textAt(plugin, "name"));
}

function listIn(owner: JsonNode | undefined, name: string): readonly JsonNode[] {
  return itemsOf(owner && nodeAt(owner, [name]));
}

function hasSome(owner: JsonNode | undefined, names: readonly string[]): boolean {
  return names.some((name) => owner && nodeAt(owner, [name]) !== undefined);
}

/** "": there is no text. */
function textAt(node: JsonNode, ...at: string[]): string {
  const value = nodeAt(node, at);
  return value?.kind === "string" ? value.value : "";
}
