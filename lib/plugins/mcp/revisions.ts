/**
 * The revisions of the Model Context Protocol that the plugin kind `mcp` knows, and the methods of each: what clients
 * may send (https://modelcontextprotocol.io/specification).
 */
import { MemberNames } from "./members.ts";

/** The first revision without sessions: headers repeat what the body says. */
export const STATELESS = "2026-07-28";
export const REVISIONS = [STATELESS, "2025-11-25", "2025-06-18"] as const;
export type Revision = (typeof REVISIONS)[number];

/** What a request without MCP-Protocol-Version has (2025-11-25, "Protocol Version Header"). It allows batches. */
export const ASSUMED = "2025-03-26";

/** Members of `params._meta` that each request has since 2026-07-28. */
export const META_REVISION = "io.modelcontextprotocol/protocolVersion";
export const META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";

export const INITIALIZE = "initialize";

const COMMON = [
  "tools/list",
  "tools/call",
  "resources/list",
  "resources/templates/list",
  "resources/read",
  "prompts/list",
  "prompts/get",
  "completion/complete",
];

const WITH_SESSIONS = [
  ...COMMON,
  INITIALIZE,
  "ping",
  "logging/setLevel",
  "resources/subscribe",
  "resources/unsubscribe",
  "notifications/initialized",
  "notifications/cancelled",
  "notifications/progress",
  "notifications/roots/list_changed",
];

export const METHODS_OF: Readonly<Record<Revision, ReadonlySet<string>>> = {
  "2026-07-28": new Set([...COMMON, "server/discover", "subscriptions/listen"]),
  "2025-11-25": new Set([
    ...WITH_SESSIONS,
    "tasks/get",
    "tasks/result",
    "tasks/cancel",
    "tasks/list",
    "notifications/tasks/status",
  ]),
  "2025-06-18": new Set(WITH_SESSIONS),
};

const METHODS = new MemberNames(Object.values(METHODS_OF).flatMap((methods) => [...methods]));

/**
 * Whether only some servers take the method for one of MCP: `TOOLS/CALL` may be a call, which a pattern must not let
 * pass without a look at the tool.
 */
export function hasMethodLookalike(method: string): boolean {
  return METHODS.hasLookalike(method);
}

/** The member of the result that lists what the caller may not always use. */
export const LIST_METHODS: ReadonlySet<string> = new Set([
  "tools/list",
  "resources/list",
  "resources/templates/list",
  "prompts/list",
]);

export function isRevision(text: string): text is Revision {
  return (REVISIONS as readonly string[]).includes(text);
}
