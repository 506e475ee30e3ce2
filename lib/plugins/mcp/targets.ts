/**
 * What a request of MCP would use: the names of tools and prompts, and the URIs of resources.
 */
import type { JsonNode } from "../../config/json.ts";
import { membersOf, MemberNames, stringOf } from "./members.ts";
import type { Message } from "./message.ts";

/** Also the name of the list in the plugin's `config`. */
export type TargetKind = "tools" | "prompts" | "resources";

export interface McpTarget {
  readonly kind: TargetKind;
  readonly name: string;
}

const REF = new MemberNames(["type", "name", "uri"]);
const NOTIFICATIONS = new MemberNames(["resourceSubscriptions"]);

/** The targets of a request, none where its method has none; a text says what is wrong with it. */
export function mcpTargets({ method, params }: Message): readonly McpTarget[] | string {
  switch (method) {
    case "tools/call":
      return one("tools", params.get("name"), "params.name");
    case "prompts/get":
      return one("prompts", params.get("name"), "params.name");
    case "resources/read":
    case "resources/subscribe":
    case "resources/unsubscribe":
      return one("resources", params.get("uri"), "params.uri");
    case "completion/complete":
      return ofReference(params.get("ref"));
    case "subscriptions/listen":
      return ofSubscriptions(params.get("notifications"));
    default:
      return [];
  }
}

function one(kind: TargetKind, node: JsonNode | undefined, place: string): readonly McpTarget[] | string {
  const name = stringOf(node);
  if (name === null || name === "") return `${place} has to be a text`;
  // Readers replace or cut NUL, each in its own way.
  if (/[\0-\x1f\x7f]/.test(name)) return `${place} has a control character`;
  if (kind === "resources" && hasDotSegment(name)) return `${place} has a dot segment`;
  return [{ kind, name }];
}

function ofReference(node: JsonNode | undefined): readonly McpTarget[] | string {
  const ref = membersOf(node);
  if (ref === null || REF.lookalikeIn(ref) !== null) return 'params.ref has to be an object with "type"';
  const type = stringOf(ref.get("type"));
  if (type === "ref/prompt") return one("prompts", ref.get("name"), "params.ref.name");
  return type === "ref/resource"
    ? one("resources", ref.get("uri"), "params.ref.uri")
    : 'params.ref.type has to be "ref/prompt" or "ref/resource"';
}

function ofSubscriptions(node: JsonNode | undefined): readonly McpTarget[] | string {
  const members = membersOf(node);
  if (members === null || NOTIFICATIONS.lookalikeIn(members) !== null)
    return "params.notifications has to be an object";
  const uris = members.get("resourceSubscriptions");
  if (uris === undefined) return [];
  if (uris.kind !== "array") return "params.notifications.resourceSubscriptions has to be a list";
  const targets: McpTarget[] = [];
  for (const uri of uris.items) {
    const found = one("resources", uri, "params.notifications.resourceSubscriptions[…]");
    if (typeof found === "string") return found;
    targets.push(...found);
  }
  return targets;
}

/**
 * Whether a reader could take a part of the URI for "." or "..": `docs://public/%2e%2e/secret` matches
 * `docs://public/*`, and leads out of it. Some decode twice, and some take "\" for "/".
 */
function hasDotSegment(uri: string): boolean {
  const once = uri.replace(/%(?:25)+/g, "%");
  const plain = once
    .replace(/%2e/gi, ".")
    .replace(/%2f|%5c|\\/gi, "/")
    .replace(/%3b/gi, ";");
  return plain.split(/[/?#:;]/).some((segment) => segment === "." || segment === "..");
}
