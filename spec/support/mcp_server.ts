/** A small server of the Model Context Protocol (Streamable HTTP), and messages for it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { onTestFinished } from "vitest";
import { origin, type Origin } from "./origin.ts";
import { ask, type Answer } from "./raw_client.ts";

export const STATELESS = "2026-07-28";

/** Its lists: what they are called in results, and what they have. */
const TOOLS = ["search", "orders_list", "orders_cancel", "refund"].map((name) => ({
  name,
  inputSchema: { type: "object", properties: { n: { maximum: 1 } } },
}));
const LISTS: Readonly<Record<string, object>> = {
  "tools/list": { tools: TOOLS },
  "prompts/list": { prompts: [{ name: "greet" }, { name: "secret" }] },
  "resources/list": { resources: [{ uri: "docs://public/a" }, { uri: "docs://internal/b" }] },
  "resources/templates/list": {
    resourceTemplates: [{ uriTemplate: "docs://public/{id}" }, { uriTemplate: "docs://{area}/x" }],
  },
};

export interface McpServer extends Origin {
  /** The messages that it has got. */
  readonly messages: Record<string, unknown>[];
  /** The streams that GET has opened. */
  readonly streams: ServerResponse[];
}

export interface McpServerOptions {
  /** Whether replies are JSON or streams of events. Default: JSON. */
  readonly replies?: "json" | "events";
  /** The text of the result of a request, in place of its own. */
  readonly result?: (method: string) => string | undefined;
  /** Of its replies. Default: 200. */
  readonly status?: number;
  /** Further headers of replies. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The ids of sessions that it gives; default: it has none. */
  readonly sessions?: readonly string[];
  /** The revision that it chooses. Default: the client's. */
  readonly revision?: string;
}

/** Starts one that is closed when the test ends. */
export async function mcpServer(options: McpServerOptions = {}): Promise<McpServer> {
  const messages: Record<string, unknown>[] = [];
  const streams: ServerResponse[] = [];
  let sessions = 0;
  const started = await origin((request, response, body) => {
    if (request.method !== "POST") return other(request, response, streams);
    const message = JSON.parse(body.toString()) as { id?: unknown; method: string; params?: Record<string, unknown> };
    messages.push(message as never);
    if (message.id === undefined || message.method === undefined) return void response.writeHead(202).end();
    const { method, params = {} } = message;
    const isStateless = request.headers["mcp-protocol-version"] === STATELESS;
    const own = options.result?.(method) ?? JSON.stringify(resultOf(method, params, isStateless, options.revision));
    const text = `{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${own}}`;
    if (method === "initialize" && options.sessions !== undefined)
      response.setHeader("Mcp-Session-Id", options.sessions[sessions++]!);
    response.statusCode = options.status ?? 200;
    const isEvents = options.replies === "events";
    const headers = { "Content-Type": isEvents ? "text/event-stream" : "application/json", ...options.headers };
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    if (!isEvents) return void response.end(text);
    response.end(`id: 1\ndata:\n\n: ping\n\nevent: message\nid: 2\ndata: ${text}\n\n`);
  });
  onTestFinished(() => started.close());
  return { ...started, messages, streams };
}

function other(request: IncomingMessage, response: ServerResponse, streams: ServerResponse[]): void {
  if (request.method === "DELETE") return void response.writeHead(200).end();
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.flushHeaders();
  streams.push(response);
}

function resultOf(method: string, params: Record<string, unknown>, isStateless: boolean, revision?: string): object {
  if (method === "initialize")
    return { protocolVersion: revision ?? params["protocolVersion"], capabilities: {}, serverInfo: { name: "double" } };
  const list = LISTS[method];
  if (list === undefined) return { content: [{ type: "text", text: `${method} ${JSON.stringify(params["name"])}` }] };
  return {
    ...list,
    nextCursor: "more",
    ...(isStateless && { resultType: "complete", ttlMs: 5, cacheScope: "public" }),
  };
}

export const META = {
  "io.modelcontextprotocol/protocolVersion": STATELESS,
  "io.modelcontextprotocol/clientCapabilities": {},
};

/** A request of 2026-07-28, with the headers that repeat it. `name`: of a tool, a prompt or a resource. */
export function statelessRequest(method: string, params: Readonly<Record<string, unknown>> = {}, id: unknown = 1) {
  const name = params["name"] ?? params["uri"];
  return {
    body: JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: META } }),
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": STATELESS,
      "Mcp-Method": method,
      ...(typeof name === "string" && { "Mcp-Name": name }),
    } as Record<string, string>,
  };
}

/** Sends one by POST; headers that are undefined are left out. */
export function post(
  port: number,
  body: string | Buffer,
  headers: Readonly<Record<string, string | undefined>> = {},
): Promise<Answer> {
  const all: Record<string, string | undefined> = { "Content-Type": "application/json", ...headers };
  const given = Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
  return ask(port, { method: "POST", path: "/a/mcp", headers: given, body });
}

/** What an answer has: the data of its events, or its body, as JSON. */
export function messagesIn({ headers, body }: Answer): any[] {
  if (!String(headers["content-type"]).startsWith("text/event-stream")) return [JSON.parse(body.toString())];
  return [...body.toString().matchAll(/^data: (.+)$/gm)].map(([, data]) => JSON.parse(data!));
}
