/**
 * The message of MCP that a test of a configuration describes by a method and a name, with the headers that clients
 * send with it.
 */
import type { ConfigTest } from "../config/tests.ts";
import { INITIALIZE, META_CAPABILITIES, META_REVISION, STATELESS } from "../plugins/mcp/revisions.ts";

type TestRequest = ConfigTest["request"];

/** Its method, headers and body; headers of the test replace those of the message. */
export function mcpRequest(
  { method, name }: NonNullable<TestRequest["mcp"]>,
  given: TestRequest["headers"],
): Pick<TestRequest, "method" | "headers"> & { readonly body: string } {
  const lower = new Set(Object.keys(given).map((header) => header.toLowerCase()));
  const revision = Object.entries(given).find(([header]) => header.toLowerCase() === "mcp-protocol-version")?.[1];
  const isStateless = (revision === undefined || revision === STATELESS) && method !== INITIALIZE;
  const isNotification = method.startsWith("notifications/");
  const own: Record<string, string> = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    ...(isStateless && { "MCP-Protocol-Version": STATELESS, "Mcp-Method": method }),
    ...(isStateless && name !== undefined && { "Mcp-Name": headerText(name) }),
  };
  const meta = { [META_REVISION]: STATELESS, [META_CAPABILITIES]: {} };
  const params = { ...paramsOf(method, name), ...(isStateless && { _meta: meta }) };
  const message = { jsonrpc: "2.0", ...(!isNotification && { id: 1 }), method, params };
  const headers = Object.entries(own).filter(([header]) => !lower.has(header.toLowerCase()));
  return { method: "POST", headers: { ...Object.fromEntries(headers), ...given }, body: JSON.stringify(message) };
}

/** Where the method has the name. */
function paramsOf(method: string, name: string | undefined): object {
  if (method === INITIALIZE) return { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "test" } };
  if (name === undefined) return {};
  if (method.startsWith("resources/")) return { uri: name };
  if (method === "completion/complete")
    return { ref: { type: "ref/prompt", name }, argument: { name: "a", value: "" } };
  return method === "subscriptions/listen" ? { notifications: { resourceSubscriptions: [name] } } : { name };
}

/** What is not plain ASCII is in base64 (2026-07-28, "Header Encoding"). */
function headerText(name: string): string {
  const isPlain = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(name) && !/^=\?base64\?.*\?=$/.test(name);
  return isPlain ? name : `=?base64?${Buffer.from(name).toString("base64")}?=`;
}
