/** MCP servers made with the packages of the protocol's authors, each closed when its test ends. */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import { fileURLToPath } from "node:url";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer as SessionServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { isInitializeRequest } from "@modelcontextprotocol/sdk/types.js";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { onTestFinished } from "vitest";
import { z } from "zod";
import { listening } from "../support/loopback.ts";
import { freePort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

const text = (value: string) => ({ content: [{ type: "text" as const, text: value }] });
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async function serving(handle: (request: IncomingMessage, response: ServerResponse) => unknown): Promise<number> {
  const server = http.createServer((request, response) => void handle(request, response));
  onTestFinished(() => server.closeAllConnections());
  return listening(server);
}

/** Of 2026-07-28, without sessions; clients of older revisions are served without sessions, too. */
export function statelessServer(): Promise<number> {
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name: "stateless", version: "1.0.0" });
    for (const name of ["search", "grow", "refund"])
      server.registerTool(name, { inputSchema: z.object({ q: z.string() }) }, ({ q }: { q: string }) =>
        text(`${name} ${q}`),
      );
    server.registerResource("a", "docs://public/a", {}, (uri: URL) => ({ contents: [{ uri: uri.href, text: "a" }] }));
    server.registerResource("b", "docs://internal/b", {}, (uri: URL) => ({ contents: [{ uri: uri.href, text: "b" }] }));
    server.registerPrompt("grüße", {}, () => ({ messages: [] }));
    return server;
  });
  return serving(toNodeHandler(handler) as never);
}

/** Of 2025-11-25 and before, with sessions, and with what the conformance suite asks for. */
export function sessionServer(): Promise<number> {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  onTestFinished(async () => {
    await Promise.all([...transports.values()].map((transport) => transport.close()));
  });
  return serving(async (request, response) => {
    const id = request.headers["mcp-session-id"] as string | undefined;
    let transport = transports.get(id ?? "");
    let body: unknown;
    if (request.method === "POST") body = JSON.parse(await wholeText(request)) as unknown;
    if (transport === undefined && id !== undefined) return void response.writeHead(404).end();
    if (transport === undefined) {
      if (!isInitializeRequest(body)) return void response.writeHead(400).end();
      const opened = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (session) => void transports.set(session, opened),
        onsessionclosed: (session) => void transports.delete(session),
      });
      await conformant().connect(opened as never);
      transport = opened;
    }
    await transport.handleRequest(request, response, body);
  });
}

async function wholeText(request: IncomingMessage): Promise<string> {
  return Buffer.concat(await request.toArray()).toString();
}

function conformant(): SessionServer {
  const server = new SessionServer({ name: "sessions", version: "1.0.0" }, { capabilities: { logging: {} } });
  const tool = (name: string, answer: (extra: any) => unknown) =>
    server.registerTool(name, { description: name }, (async (extra: unknown) => answer(extra)) as never);
  tool("test_simple_text", () => text("This is a simple text response for testing."));
  tool("test_error_handling", () => ({
    ...text("This tool intentionally returns an error for testing"),
    isError: true,
  }));
  tool("test_image_content", () => ({ content: [{ type: "image", data: PIXEL, mimeType: "image/png" }] }));
  tool("test_tool_with_logging", async ({ sendNotification }) => {
    for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"])
      await sendNotification({ method: "notifications/message", params: { level: "info", data } });
    return text("Tool with logging executed successfully");
  });
  tool("test_tool_with_progress", async ({ sendNotification, _meta }) => {
    for (const progress of [0, 50, 100])
      await sendNotification({
        method: "notifications/progress",
        params: { progressToken: _meta?.progressToken ?? 0, progress, total: 100 },
      });
    return text("done");
  });
  server.registerTool("test_sampling", { inputSchema: { prompt: z.string() } }, (async ({
    prompt,
  }: {
    prompt: string;
  }) => {
    const messages = [{ role: "user" as const, content: { type: "text" as const, text: prompt } }];
    const { content } = await server.server.createMessage({ messages, maxTokens: 100 });
    return text(`LLM response: ${(content as { text?: string }).text}`);
  }) as never);
  const file = (uri: string, mimeType: string, more: object) => ({ contents: [{ uri, mimeType, ...more }] });
  server.registerResource(
    "text",
    "test://static-text",
    { mimeType: "text/plain" },
    (uri) => file(uri.href, "text/plain", { text: "This is the content of the static text resource." }) as never,
  );
  server.registerResource(
    "binary",
    "test://static-binary",
    { mimeType: "image/png" },
    (uri) => file(uri.href, "image/png", { blob: PIXEL }) as never,
  );
  const template = new ResourceTemplate("test://template/{id}/data", { list: undefined });
  server.registerResource(
    "template",
    template,
    { mimeType: "application/json" },
    (uri, { id }) =>
      file(uri.href, "application/json", {
        text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${String(id)}` }),
      }) as never,
  );
  const said = (value: string) => ({
    messages: [{ role: "user" as const, content: { type: "text" as const, text: value } }],
  });
  server.registerPrompt("test_simple_prompt", {}, () => said("This is a simple prompt for testing."));
  server.registerPrompt(
    "test_prompt_with_arguments",
    { argsSchema: { arg1: z.string(), arg2: z.string() } },
    ({ arg1, arg2 }) => said(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`),
  );
  return server;
}

/** The authors' example of everything, with sessions and streams that can be resumed. */
export async function everythingServer(): Promise<number> {
  const port = await freePort();
  const path = fileURLToPath(
    new URL("node_modules/@modelcontextprotocol/server-everything/dist/index.js", import.meta.url),
  );
  const child = spawn(process.execPath, [path, "streamableHttp"], {
    env: { ...process.env, PORT: String(port) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  onTestFinished(async () => {
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  });
  await eventually(() => /listening|port/i.test(output), "the server listens");
  return port;
}
