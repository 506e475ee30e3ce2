/** Sessions of an MCP server behind the plugin kind `mcp`: whose they are, and the streams that they have. */
import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import { mcpServer, messagesIn, post, statelessRequest, type McpServerOptions } from "../support/mcp_server.ts";
import { ask, eventually, type Answer } from "../support/raw_client.ts";
import { client } from "./harness.ts";

const CALLERS = [
  { id: "ada", groups: ["support"], keys: [{ key: "k-ada" }] },
  { id: "bob", keys: [{ key: "k-bob" }] },
];
const KEYS = { name: "key_auth", config: { callers: true } };

/** A gateway in front of a server with sessions. Without `keys` nobody is identified. */
async function guarded(config: object = {}, options: McpServerOptions = {}, keys: readonly object[] = [KEYS]) {
  const server = await mcpServer({ sessions: ["s-1", "s-2", "s-3"], ...options });
  const configOf = (more: object) =>
    ({
      ...oneService(server.port, {
        routes: [{ path: "/mcp", plugins: [...keys, { name: "mcp", config: more }] }],
      } as never),
      callers: CALLERS,
    }) as never;
  const { gateway, port } = await running(configOf(config));
  const headersOf = (session: string | undefined, apiKey: string, revision: string | undefined) => ({
    apiKey,
    "Mcp-Session-Id": session,
    "MCP-Protocol-Version": revision,
  });
  const call = (
    session: string | undefined,
    method: string,
    params: object = {},
    apiKey = "k-ada",
    revision = "2025-11-25",
  ) =>
    post(
      port,
      JSON.stringify({ jsonrpc: "2.0", id: 7, method, params }),
      headersOf(session, apiKey, revision || undefined),
    );
  const initialize = (apiKey = "k-ada", protocolVersion = "2025-11-25") =>
    call(undefined, "initialize", { protocolVersion, capabilities: {} }, apiKey, "");
  const by = (method: string, session: string, apiKey = "k-ada") =>
    ask(port, { method, path: "/a/mcp", headers: { apiKey, "Mcp-Session-Id": session } });
  return { server, gateway, port, call, initialize, by, configOf };
}

const sessionOf = ({ headers }: Answer) => headers["mcp-session-id"] as string;
const errorOf = ({ status, body }: Answer) => [status, JSON.parse(body.toString()).error?.code];
/** The ids that the server has got, of all requests. */
const idsAt = ({ seen }: { seen: readonly { headers: readonly string[] }[] }) =>
  seen.map(({ headers }) => headers[headers.findIndex((text) => text.toLowerCase() === "mcp-session-id") + 1]);

describe.each(["json", "events"] as const)("a session that is opened in %s", (replies) => {
  it("has an id of the gateway, by which the server's own is found", async () => {
    const { server, call, initialize } = await guarded({}, { replies });
    const opened = await initialize();
    const id = sessionOf(opened);
    expect(messagesIn(opened).at(-1).result.protocolVersion).toBe("2025-11-25");
    expect(id).toMatch(/^2025-11-25\.[\w-]{22}\.s-1$/);
    const called = await call(id, "tools/call", { name: "search" });
    expect(called.status).toBe(200);
    expect(idsAt(server)[1]).toBe("s-1");
  });

  it("is refused where the server chooses a revision that is not served", async () => {
    const { initialize } = await guarded({}, { replies, revision: "2025-03-26" });
    const refused = await initialize();
    expect(errorOf(refused)).toEqual([400, -32022]);
    expect(sessionOf(refused)).toBeUndefined();
  });
});

describe("a session", () => {
  it("belongs to the caller who opened it: to all others it is as unknown as any", async () => {
    const { server, call, initialize, by } = await guarded();
    const id = sessionOf(await initialize("k-ada"));
    const before = server.seen.length;
    const foreign = await call(id, "tools/list", {}, "k-bob");
    const unknown = await call(`2025-11-25.${"A".repeat(22)}.s-1`, "tools/list", {}, "k-bob");
    expect([foreign.status, foreign.body.toString()]).toEqual([404, unknown.body.toString()]);
    expect(errorOf(foreign)).toEqual([404, -32600]);
    for (const text of [
      "s-1",
      "",
      "x",
      id.slice(1),
      `${id}x`,
      id.replace("2025-11-25", "2025-06-18"),
      id.toUpperCase(),
    ])
      expect([text, (await call(text, "tools/list")).status]).toEqual([text, 404]);
    expect([(await by("GET", id, "k-bob")).status, (await by("DELETE", id, "k-bob")).status]).toEqual([404, 404]);
    expect(server.seen).toHaveLength(before);
    expect((await by("DELETE", id)).status).toBe(200);
    expect(server.seen).toHaveLength(before + 1);
  });

  it("belongs to the address of its client where nobody identifies the caller", async () => {
    const { port, call, initialize } = await guarded({}, {}, []);
    const id = sessionOf(await initialize());
    expect((await call(id, "tools/list")).status).toBe(200);
    const other = await client(port, "127.0.0.2");
    const body = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';
    const lines = ["POST /a/mcp HTTP/1.1", "Host: a", "Content-Type: application/json", `Mcp-Session-Id: ${id}`];
    other.send(`${[...lines, `Content-Length: ${body.length}`].join("\r\n")}\r\n\r\n${body}`);
    expect(await other.until("\r\n\r\n")).toContain("HTTP/1.1 404");
  });

  it("has the revision that was negotiated where a request names none, or the oldest", async () => {
    const { call, initialize } = await guarded();
    const id = sessionOf(await initialize("k-ada", "2025-06-18"));
    const status = async (method: string, revision: string) => (await call(id, method, {}, "k-ada", revision)).status;
    expect([await status("ping", ""), await status("ping", "2025-03-26"), await status("ping", "2025-06-18")]).toEqual([
      200, 200, 200,
    ]);
    // Tasks came with 2025-11-25.
    expect(await status("tasks/list", "")).toBe(404);
    expect(errorOf(await call(id, "ping", {}, "k-ada", "2025-11-25"))).toEqual([400, -32020]);
    expect(errorOf(await call(undefined, "ping", {}, "k-ada", ""))).toEqual([400, -32022]);
    expect(errorOf(await call(undefined, "ping", {}, "k-ada", "2025-03-26"))).toEqual([400, -32022]);
    // A server may have no sessions.
    expect((await call(undefined, "ping")).status).toBe(200);
  });

  it("holds over a reload, and ends where its revision is no longer served", async () => {
    const { gateway, call, initialize, configOf } = await guarded();
    const id = sessionOf(await initialize());
    await gateway.reload(configOf({ tools: ["search"] }));
    expect((await call(id, "tools/call", { name: "search" })).status).toBe(200);
    expect((await call(id, "tools/call", { name: "refund" })).status).toBe(400);
    await gateway.reload(configOf({ revisions: ["2025-06-18"] }));
    expect(errorOf(await call(id, "ping"))).toEqual([400, -32022]);
  });

  it("takes notifications, and answers of the client to requests of the server", async () => {
    const { server, port, initialize } = await guarded();
    const headers = { apiKey: "k-ada", "Mcp-Session-Id": sessionOf(await initialize()) };
    const send = async (rest: string) => (await post(port, `{"jsonrpc":"2.0",${rest}}`, headers)).status;
    expect([
      await send('"method":"notifications/initialized"'),
      await send('"id":"s-1","result":{"roots":[]}'),
      await send('"id":1,"error":{"code":-1,"message":"no"}'),
    ]).toEqual([202, 202, 202]);
    expect([await send('"method":"notifications/unknown"'), await send('"result":{}')]).toEqual([404, 400]);
    expect(server.messages).toHaveLength(4);
  });

  it("of a server that gives an id which no client may have is 502", async () => {
    const { initialize } = await guarded({}, { sessions: ["a b", "s".repeat(1025)] });
    expect([(await initialize()).status, (await initialize()).status]).toEqual([502, 502]);
  });

  it("is not opened by an error", async () => {
    const { initialize } = await guarded({}, { status: 400 });
    const refused = await initialize();
    expect([refused.status, sessionOf(refused)]).toEqual([400, undefined]);
  });
});

describe("the stream of a session", () => {
  it("begins before its first event, has its lists filtered, and all else byte for byte", async () => {
    const { server, port, initialize } = await guarded({ tools: ["search"] });
    const id = sessionOf(await initialize());
    const stream = await client(port);
    stream.send(`GET /a/mcp HTTP/1.1\r\nHost: a\r\napiKey: k-ada\r\nMcp-Session-Id: ${id}\r\nLast-Event-ID: 3\r\n\r\n`);
    expect(await stream.until("\r\n\r\n")).toContain("text/event-stream");
    await eventually(() => server.streams.length === 1);
    const note =
      ': hello\r\nid: 4\ndata: {"jsonrpc":"2.0","method":"notifications/x","params":{"tools":[{"name":"x"}]}}\n\n';
    server.streams[0]!.write(note);
    expect(await stream.until("}}\n\n")).toContain(note);
    server.streams[0]!.write(
      'event: message\nid: 5\ndata: {"jsonrpc":"2.0","id":1,\ndata: ' +
        '"result":{"tools":[{"name":"search"},{"name":"refund"}]}}\n\n',
    );
    const text = await stream.until('"search"}]}}\n\n');
    expect(text).toContain(
      'event: message\nid: 5\ndata: {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"search"}]}}\n\n',
    );
    expect(text).not.toContain("refund");
    stream.socket.destroy();
    await eventually(() => server.streams[0]!.destroyed);
  });

  it("is broken off at an event that only some readers understand", async () => {
    const { server, port, initialize } = await guarded({ tools: ["search"] });
    const id = sessionOf(await initialize());
    const stream = await client(port);
    stream.send(`GET /a/mcp HTTP/1.1\r\nHost: a\r\napiKey: k-ada\r\nMcp-Session-Id: ${id}\r\n\r\n`);
    await stream.until("\r\n\r\n");
    await eventually(() => server.streams.length === 1);
    server.streams[0]!.write('data: {"jsonrpc":"2.0","id":1,"result":{},"result":{"tools":[{"name":"refund"}]}}\n\n');
    expect(await stream.closed()).not.toContain("refund");
    await eventually(() => server.streams[0]!.destroyed);
  });
});

describe("in 2026-07-28, which has no sessions,", () => {
  it("an id is neither taken nor given", async () => {
    const { server, port } = await guarded({}, { headers: { "Mcp-Session-Id": "s-9" } });
    const { body, headers } = statelessRequest("tools/call", { name: "search" });
    const answer = await post(port, body, { ...headers, apiKey: "k-ada", "Mcp-Session-Id": "s-1" });
    expect([answer.status, sessionOf(answer)]).toEqual([200, undefined]);
    expect(server.seen[0]!.headers.join().toLowerCase()).not.toContain("mcp-session-id");
  });
});
