/** The plugin kind `mcp` between the clients, servers and the conformance suite of the protocol's authors. */
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as SessionClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as SessionTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { describe, expect, it, onTestFinished } from "vitest";
import { running } from "../support/gateway.ts";
import { everythingServer, sessionServer, statelessServer } from "./mcp_servers.ts";
import { nodeOf } from "./nodes.ts";
import { redis } from "./redis.ts";

const CALLERS = [
  { id: "ada", groups: ["support"], keys: [{ key: "k-ada" }] },
  { id: "bob", keys: [{ key: "k-bob" }] },
];
const KEYS = { name: "key_auth", config: { callers: true } };

/** The URL of an MCP server behind a gateway. `global`: further settings of it. */
async function behind(port: number, config: object, plugins: readonly object[] = [KEYS], global = {}): Promise<URL> {
  const { url } = await running({
    callers: CALLERS,
    global,
    services: [
      {
        name: "tools",
        base_path: "/",
        upstreams: [{ host: "127.0.0.1", port }],
        preserve_host: true,
        routes: [{ path: "/mcp", plugins: [...plugins, { name: "mcp", config }] }],
      },
    ],
  } as never);
  return new URL("/mcp", url);
}

const asked = (apiKey: string) => ({ requestInit: { headers: { apiKey } } });

async function modernClient(url: URL, apiKey = "k-bob", mode: string = "auto"): Promise<Client> {
  const client = new Client({ name: "c", version: "1" }, { versionNegotiation: { mode } } as never);
  await client.connect(new StreamableHTTPClientTransport(url, asked(apiKey)));
  onTestFinished(() => client.close());
  return client;
}

async function sessionClient(url: URL, apiKey = "k-bob"): Promise<SessionClient> {
  const client = new SessionClient({ name: "c", version: "1" }, { capabilities: { sampling: {} } });
  await client.connect(new SessionTransport(url, asked(apiKey)) as never);
  onTestFinished(() => client.close());
  return client;
}

const names = (list: readonly { readonly name: string }[]) => list.map(({ name }) => name);
const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => null,
    (error: Error & { code?: unknown }) => error,
  );

describe("the client of 2026-07-28", () => {
  it("lists and calls what its caller may use, and shows the error of what it may not", async () => {
    const config = {
      tools: ["search", "gr*"],
      tools_by_group: { support: ["refund"] },
      resources: ["docs://public/*"],
    };
    const url = await behind(await statelessServer(), config);
    const bob = await modernClient(url);
    expect(bob.getNegotiatedProtocolVersion?.()).toBe("2026-07-28");
    expect(names((await bob.listTools()).tools)).toEqual(["search", "grow"]);
    expect(await bob.callTool({ name: "grow", arguments: { q: "x" } })).toMatchObject({
      content: [{ text: "grow x" }],
    });
    expect(await failure(bob.callTool({ name: "refund", arguments: { q: "x" } }))).toMatchObject({ code: -32602 });
    expect((await bob.listResources()).resources.map(({ uri }) => uri)).toEqual(["docs://public/a"]);
    expect(await failure(bob.readResource({ uri: "docs://internal/b" }))).toMatchObject({ code: -32602 });
    expect(names((await bob.listPrompts()).prompts)).toEqual(["grüße"]);
    expect(await bob.getPrompt({ name: "grüße" })).toMatchObject({ messages: [] });
    const ada = await modernClient(url, "k-ada");
    expect(names((await ada.listTools()).tools)).toEqual(["search", "grow", "refund"]);
    expect(await ada.callTool({ name: "refund", arguments: { q: "1" } })).toMatchObject({
      content: [{ text: "refund 1" }],
    });
  });

  it("falls back to a session where the gateway serves no other revision", async () => {
    const url = await behind(await sessionServer(), { revisions: ["2025-11-25"], tools: ["test_simple_text"] });
    const client = await modernClient(url);
    expect(client.getNegotiatedProtocolVersion?.()).toBe("2025-11-25");
    expect(names((await client.listTools()).tools)).toEqual(["test_simple_text"]);
  });
});

describe("the client of 2025-11-25", () => {
  it("has a session with lists, calls, and requests of the server to it, which ends with it", async () => {
    const url = await behind(await sessionServer(), { tools: ["test_s*"], resources: ["test://static*"] });
    const client = new SessionClient({ name: "c", version: "1" }, { capabilities: { sampling: {} } });
    const { CreateMessageRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      model: "m",
      role: "assistant" as const,
      content: { type: "text" as const, text: "hello" },
    }));
    const transport = new SessionTransport(url, asked("k-bob"));
    await client.connect(transport as never);
    onTestFinished(() => client.close());
    expect(transport.sessionId).toMatch(/^2025-11-25\./);
    expect(names((await client.listTools()).tools)).toEqual(["test_simple_text", "test_sampling"]);
    expect(await client.callTool({ name: "test_sampling", arguments: { prompt: "p" } })).toMatchObject({
      content: [{ text: "LLM response: hello" }],
    });
    expect(String((await failure(client.callTool({ name: "test_image_content" })))?.message)).toContain("-32602");
    expect((await client.listResources()).resources.map(({ uri }) => uri)).toEqual([
      "test://static-text",
      "test://static-binary",
    ]);
    expect((await client.listResourceTemplates()).resourceTemplates).toEqual([]);
    await transport.terminateSession();
    expect(transport.sessionId).toBeUndefined();
  });

  it("has the example server of everything, and no session of somebody else", async () => {
    const url = await behind(await everythingServer(), { tools: ["echo", "get-*"] });
    const ada = await sessionClient(url, "k-ada");
    const tools = names((await ada.listTools()).tools);
    expect(tools).toContain("echo");
    expect(tools.every((name) => name === "echo" || name.startsWith("get-"))).toBe(true);
    expect(await ada.callTool({ name: "echo", arguments: { message: "hi" } })).toMatchObject({
      content: [{ text: expect.stringContaining("hi") }],
    });
    const { sessionId } = ada.transport as unknown as SessionTransport;
    const stolen = new SessionTransport(url, { ...asked("k-bob"), sessionId: sessionId! });
    await stolen.start();
    expect(await failure(stolen.send({ jsonrpc: "2.0", id: 1, method: "tools/list" }))).toMatchObject({ code: 404 });
    await stolen.close();
  });
});

describe("a session", () => {
  it("holds in all gateways that share counters, and goes on while Redis is away", async () => {
    const store = await redis();
    // The user that docs/scale.md names may do no more.
    const rights = ["~edge-gateway:*", "+eval", "+evalsha", "+get", "+set", "+time"];
    await store.cli("ACL", "SETUSER", "gateway", "on", ">secret-1", ...rights);
    const url = `redis://gateway:secret-1@127.0.0.1:${store.port}`;
    const counters = (on_error: string) => ({ counters: { store: "redis", url, timeout_ms: 5_000, on_error } });
    const port = await sessionServer();
    const [one, other, strict] = await Promise.all([
      behind(port, {}, [KEYS], counters("local")),
      behind(port, {}, [KEYS], counters("local")),
      behind(port, {}, [KEYS], counters("deny")),
    ]);
    const ada = await sessionClient(one, "k-ada");
    const { sessionId } = ada.transport as unknown as SessionTransport;
    const ping = async (url: URL, apiKey: string) => {
      const headers = { apiKey, "Mcp-Session-Id": sessionId!, "Content-Type": "application/json" };
      const accept = { Accept: "application/json, text/event-stream" };
      const body = '{"jsonrpc":"2.0","id":99,"method":"ping"}';
      const { status } = await fetch(url, { method: "POST", headers: { ...headers, ...accept }, body });
      return status;
    };
    expect([await ping(other, "k-ada"), await ping(strict, "k-ada"), await ping(other, "k-bob")]).toEqual([
      200, 200, 404,
    ]);
    await store.stop();
    expect([await ping(one, "k-ada"), await ping(other, "k-ada"), await ping(strict, "k-bob")]).toEqual([
      200, 200, 404,
    ]);
    const late = await behind(port, {}, [KEYS], counters("deny"));
    expect(await ping(late, "k-ada")).toBe(503);
    expect(String((await failure(sessionClient(late, "k-ada")))?.message)).toContain("cannot be found out");
  });
});

describe("the conformance suite", () => {
  const suite = fileURLToPath(new URL("node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url));

  /** The statuses of its checks, by scenario. */
  async function results(url: string): Promise<Record<string, readonly string[]>> {
    const folder = mkdtempSync(join(tmpdir(), "edge-gateway-conformance-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const run = promisify(execFile)(nodeOf(22), [suite, "server", "--url", url, "-o", folder], { timeout: 120_000 });
    // It ends with 1 where a scenario fails.
    await run.catch(() => null);
    const found = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((path) =>
      path.endsWith("checks.json"),
    );
    return Object.fromEntries(
      found.sort().map((path) => {
        const checks = JSON.parse(readFileSync(join(folder, path), "utf8")) as { id: string; status: string }[];
        const scenario = path.replace(/-\d{4}-\d{2}-\d{2}T.*$/, "");
        return [scenario, checks.map(({ id, status }) => `${id}: ${status}`)];
      }),
    );
  }

  it("finds the same with the gateway as without it", async () => {
    const port = await sessionServer();
    const url = await behind(port, {}, []);
    const direct = await results(`http://127.0.0.1:${port}/mcp`);
    const guarded = await results(url.href);
    const passed = Object.values(direct).filter((checks) => checks.every((check) => !check.endsWith("FAILURE")));
    expect(passed.length).toBeGreaterThan(15);
    expect(guarded).toEqual(direct);
  });
});
