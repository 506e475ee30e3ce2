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

/** Characters of a name or a URI; patterns and dot segments are looked for in all of them. */
const MAX_NAME = 8192;

function one(kind: TargetKind, node: JsonNode | undefined, place: string): readonly McpTarget[] | string {
  const name = stringOf(node);
  if (name === null || name === "") return `${place} has to be a text`;
  if (name.length > MAX_NAME) return `${place} has more than ${MAX_NAME} characters`;
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

/** How often a URI may be percent-encoded: some readers decode twice, and some decode until nothing changes. */
const MAX_DECODED = 4;

/**
 * Whether a reader could take a part of the URI for "." or "..": `docs://public/%2e%2e/secret` matches
 * `docs://public/*`, and leads out of it. Some decode twice (`%25%32%65` is "." then), some take "\" for "/", and some
 * drop spaces and control characters. A URI that is encoded still more often counts as one.
 */
export function hasDotSegment(uri: string): boolean {
  if (!/[.%]/.test(uri)) return false;
  let plain = uri;
  for (let i = 0; i < MAX_DECODED; i++) {
    if (plain.split(/[/\\?#:;]/).some(isDots)) return true;
    const decoded = plain.replace(/%([0-7][0-9a-f])/gi, (_all, hex: string) => String.fromCharCode(parseInt(hex, 16)));
    if (decoded === plain) return false;
    plain = decoded;
  }
  return true;
}

function isDots(segment: string): boolean {
  if (!segment.includes(".")) return false;
  const text = segment.replaceAll(/[\0-\x20]/g, "");
  return text === "." || text === "..";
}
