/** The plugin kind `mcp` in a whole gateway, in front of a small MCP server. */
import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import {
  mcpServer,
  messagesIn,
  META,
  post,
  STATELESS,
  statelessRequest,
  type McpServerOptions,
} from "../support/mcp_server.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { decided } from "./harness.ts";

const CALLERS = [
  { id: "ada", groups: ["support"], keys: [{ key: "k-ada" }] },
  { id: "bob", keys: [{ key: "k-bob" }] },
];
const KEYS = { name: "key_auth", config: { callers: true } };

async function guarded(config: object = {}, options: McpServerOptions = {}) {
  const server = await mcpServer(options);
  const plugins = [KEYS, { name: "mcp", config }];
  const { gateway, port } = await running({
    ...oneService(server.port, { routes: [{ path: "/mcp", plugins }] } as never),
    callers: CALLERS,
  } as never);
  const call = (method: string, params: object = {}, headers: Record<string, string | undefined> = {}) => {
    const request = statelessRequest(method, params as never);
    return post(port, request.body, { ...request.headers, apiKey: "k-bob", ...headers });
  };
  return { server, gateway, port, call };
}

/** Status and code of JSON-RPC of a refusal. */
const errorOf = ({ status, body }: { status: number; body: Buffer }) => [
  status,
  (JSON.parse(body.toString()) as { error?: { code: number } }).error?.code,
];

const LISTS = { tools: ["search", "orders_*"], tools_by_group: { support: ["refund"] } };

describe("mcp lets a caller", () => {
  it("call the tools of its lists and of its groups, and no others", async () => {
    const { server, call } = await guarded(LISTS);
    const by = async (apiKey: string, name: string) => (await call("tools/call", { name }, { apiKey })).status;
    expect([await by("k-bob", "search"), await by("k-bob", "orders_cancel"), await by("k-bob", "refund")]).toEqual([
      200, 200, 400,
    ]);
    expect([await by("k-ada", "search"), await by("k-ada", "refund"), await by("k-ada", "drop")]).toEqual([
      200, 200, 400,
    ]);
    expect(server.messages).toHaveLength(4);
    const refused = await call("tools/call", { name: "refund" });
    expect(messagesIn(refused)).toEqual([
      { jsonrpc: "2.0", id: 1, error: { code: -32602, message: 'tool "refund" is not allowed' } },
    ]);
    expect(refused.headers["content-type"]).toBe("application/json");
  });

  it("use all of a kind without a list, and nothing with an empty one", async () => {
    const { call } = await guarded({ prompts: [] });
    expect((await call("tools/call", { name: "anything" })).status).toBe(200);
    expect(errorOf(await call("prompts/get", { name: "greet" }))).toEqual([400, -32602]);
    expect(messagesIn(await call("prompts/list"))[0].result.prompts).toEqual([]);
  });

  it("use resources and prompts by any method that names them", async () => {
    const { call } = await guarded({ resources: ["docs://public/*"], prompts: ["greet"], methods: ["*"] });
    const status = async (method: string, params: object) => (await call(method, params)).status;
    const ref = (type: string, by: object) => ({ ref: { type, ...by }, argument: { name: "x", value: "" } });
    const listen = (...uris: string[]) => ({ notifications: { resourceSubscriptions: uris } });
    expect([
      await status("resources/read", { uri: "docs://public/a" }),
      await status("prompts/get", { name: "greet" }),
      await status("completion/complete", ref("ref/prompt", { name: "greet" })),
      await status("completion/complete", ref("ref/resource", { uri: "docs://public/{id}" })),
      await status("subscriptions/listen", listen("docs://public/a", "docs://public/b")),
      await status("subscriptions/listen", { notifications: { toolsListChanged: true } }),
    ]).toEqual([200, 200, 200, 200, 200, 200]);
    expect([
      await status("resources/read", { uri: "docs://internal/a" }),
      await status("prompts/get", { name: "secret" }),
      await status("resources/subscribe", { uri: "docs://internal/a" }),
      await status("resources/unsubscribe", { uri: "docs://internal/a" }),
      await status("completion/complete", ref("ref/prompt", { name: "secret" })),
      await status("completion/complete", ref("ref/resource", { uri: "docs://internal/{id}" })),
      await status("completion/complete", ref("ref/tool", { name: "greet" })),
      await status("subscriptions/listen", listen("docs://public/a", "docs://internal/b")),
    ]).toEqual([400, 400, 400, 400, 400, 400, 400, 400]);
  });

  it.each([
    "docs://public/../internal/a",
    "docs://public/%2e%2e/internal/a",
    "docs://public/.%2E/internal/a",
    "docs://public/%252e%252e/internal/a",
    "docs://public/..%2finternal",
    "docs://public/..%5cinternal",
    "docs://public\\..\\internal",
    "docs://public/./a",
    "docs://public/..;/internal",
    "docs://public/..?x",
  ])("read no resource whose URI has a dot segment: %s", async (uri) => {
    const { server, call } = await guarded({ resources: ["docs://public*"] });
    expect(errorOf(await call("resources/read", { uri }))).toEqual([400, -32602]);
    expect(server.messages).toEqual([]);
  });

  it("use the methods of the revision, or those of the list", async () => {
    const all = await guarded();
    expect((await all.call("server/discover")).status).toBe(200);
    expect(errorOf(await all.call("tasks/get", { taskId: "x" }))).toEqual([404, -32601]);
    expect(errorOf(await all.call("initialize"))).toEqual([404, -32601]);
    const some = await guarded({ methods: ["tools/*", "tasks/get"] });
    expect((await some.call("tasks/get", { taskId: "x" })).status).toBe(200);
    expect(errorOf(await some.call("server/discover"))).toEqual([404, -32601]);
  });
});

describe("mcp refuses", () => {
  it("a body that is too long, encoded, or of another type", async () => {
    const { server, call, port } = await guarded({ max_body_bytes: 300 });
    const { body, headers } = statelessRequest("tools/call", { name: "search", arguments: { text: "x".repeat(300) } });
    expect(errorOf(await post(port, body, { ...headers, apiKey: "k-bob" }))).toEqual([413, -32600]);
    const chunked = { ...headers, apiKey: "k-bob", "Transfer-Encoding": "chunked" };
    expect(errorOf(await post(port, body, chunked))).toEqual([413, -32600]);
    expect(errorOf(await call("tools/list", {}, { "Content-Encoding": "gzip" }))).toEqual([415, -32600]);
    expect(errorOf(await call("tools/list", {}, { "Content-Type": "text/plain" }))).toEqual([415, -32600]);
    expect(errorOf(await call("tools/list", {}, { "Content-Type": "application/json; charset=utf-16" }))).toEqual([
      415, -32600,
    ]);
    expect((await call("tools/list", {}, { "Content-Type": "application/json;charset=UTF-8" })).status).toBe(200);
    expect(server.messages).toHaveLength(1);
  });

  const call = (rest: string) => `{"jsonrpc":"2.0",${rest}}`;
  const meta = `"_meta":${JSON.stringify(META)}`;
  const named = (name: string) => call(`"id":1,"method":"tools/call","params":{${name},${meta}}`);
  it.each<[string, string | Buffer, number]>([
    ["a duplicate member", named('"name":"search","name":"refund"'), -32700],
    ["a duplicate that is written with escapes", named('"name":"search","na\\u006de":"refund"'), -32700],
    ["a duplicate within arguments", named('"name":"search","arguments":{"a":1,"\\u0061":2}'), -32700],
    [
      "a method under a name in another case",
      call(`"id":1,"method":"tools/list","Method":"tools/call","params":{${meta}}`),
      -32600,
    ],
    ["a name under a name in another case", named('"name":"search","Name":"refund"'), -32602],
    [
      "a member with the Kelvin sign",
      named('"name":"search","task\u212a":1').replace("task\u212a", "Ta\u017fk"),
      -32602,
    ],
    ["_meta in another case", call('"id":1,"method":"tools/call","params":{"name":"search","_Meta":{}}'), -32602],
    [
      "a revision in another case",
      call(`"id":1,"method":"tools/call","params":{"name":"search","_meta":{"PROGRESSTOKEN":"x"}}`),
      -32602,
    ],
    ["half a surrogate pair", named('"name":"search\\ud800"'), -32700],
    ["invalid UTF-8", Buffer.from(named('"name":"search\u00ff"'), "latin1"), -32700],
    ["a byte order mark", `\uFEFF${named('"name":"search"')}`, -32700],
    ["a comment", `/* x */${named('"name":"search"')}`, -32700],
    ["NUL in a name", named('"name":"search\\u0000refund"'), -32602],
    ["deep nesting", named(`"name":"search","arguments":${"[".repeat(200)}${"]".repeat(200)}`), -32700],
    ["a batch", `[${named('"name":"search"')}]`, -32600],
    ["two messages", `${named('"name":"search"')}\n${named('"name":"search"')}`, -32700],
    ["no message", "", -32700],
    ["another version of JSON-RPC", `{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, -32600],
    ["a call without an id", call(`"method":"tools/call","params":{"name":"search",${meta}}`), -32600],
    ["an id that is null", call(`"id":null,"method":"tools/call","params":{"name":"search",${meta}}`), -32600],
    [
      "an id that readers round",
      call(`"id":9007199254740993,"method":"tools/call","params":{"name":"search",${meta}}`),
      -32600,
    ],
    ["an id that is a fraction", call(`"id":1.5,"method":"tools/call","params":{"name":"search",${meta}}`), -32600],
    ["an id beyond all numbers", call(`"id":1e400,"method":"tools/call","params":{"name":"search",${meta}}`), -32600],
    ["a notification with an id", call('"id":1,"method":"notifications/cancelled"'), -32600],
    ["a method that is no text", call('"id":1,"method":{"a":1}'), -32600],
    ["a response with a method", call('"id":1,"result":{},"method":"tools/call"'), -32600],
    ["params that are a list", call('"id":1,"method":"tools/call","params":["search"]'), -32602],
    ["a name that is no text", named('"name":["search"]'), -32602],
    ["no name", call(`"id":1,"method":"tools/call","params":{${meta}}`), -32602],
    ["no _meta", call('"id":1,"method":"tools/call","params":{"name":"search"}'), -32602],
  ])("%s", async (_what, body, code) => {
    const { server, port } = await guarded();
    const { headers } = statelessRequest("tools/call", { name: "search" });
    const answer = await post(port, body, { ...headers, apiKey: "k-bob" });
    expect(errorOf(answer)).toEqual([400, code]);
    expect(server.messages).toEqual([]);
  });

  it.each<[string, Record<string, string | undefined>, number]>([
    ["another Mcp-Method", { "Mcp-Method": "tools/list" }, -32020],
    ["no Mcp-Method", { "Mcp-Method": undefined }, -32020],
    ["Mcp-Method in another case", { "Mcp-Method": "Tools/Call" }, -32020],
    ["Mcp-Method in base64", { "Mcp-Method": "=?base64?dG9vbHMvY2FsbA==?=" }, -32020],
    ["another Mcp-Name", { "Mcp-Name": "refund" }, -32020],
    ["no Mcp-Name", { "Mcp-Name": undefined }, -32020],
    ["another Mcp-Name in base64", { "Mcp-Name": "=?base64?cmVmdW5k?=" }, -32020],
    ["Mcp-Name in base64 that is not canonical", { "Mcp-Name": "=?base64?c2VhcmNo=?=" }, -32020],
    ["Mcp-Name in base64 of broken UTF-8", { "Mcp-Name": "=?base64?/w==?=" }, -32020],
    ["no MCP-Protocol-Version", { "MCP-Protocol-Version": undefined }, -32020],
    ["another MCP-Protocol-Version", { "MCP-Protocol-Version": "2025-11-25" }, -32020],
    ["an unknown MCP-Protocol-Version", { "MCP-Protocol-Version": "2030-01-01" }, -32020],
  ])("%s than the body says", async (_what, headers, code) => {
    const { server, call } = await guarded();
    expect(errorOf(await call("tools/call", { name: "search" }, headers))).toEqual([400, code]);
    expect(server.messages).toEqual([]);
  });

  it.each(["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])("%s twice", async (name) => {
    const { port } = await guarded();
    const { body, headers } = statelessRequest("tools/call", { name: "search" });
    const twice = [...Object.entries({ ...headers, apiKey: "k-bob" }).flat(), name.toLowerCase(), headers[name]!];
    const answer = await ask(port, { method: "POST", path: "/a/mcp", headers: twice, body });
    expect(errorOf(answer)).toEqual([400, -32020]);
  });

  it("revisions that it does not serve, and says which it does", async () => {
    const { call, port } = await guarded({ revisions: [STATELESS] });
    const old = await post(port, '{"jsonrpc":"2.0","id":"a","method":"initialize","params":{}}', { apiKey: "k-bob" });
    expect([old.status, ...messagesIn(old)]).toEqual([
      400,
      {
        jsonrpc: "2.0",
        id: "a",
        error: {
          code: -32022,
          message: "this revision of MCP is not served here",
          data: { supported: [STATELESS], requested: "2025-03-26" },
        },
      },
    ]);
    expect((await call("tools/list")).status).toBe(200);
    const legacy = await guarded({ revisions: ["2025-11-25"] });
    expect(errorOf(await legacy.call("tools/list"))).toEqual([400, -32022]);
  });

  it("other methods of HTTP, and WebSockets", async () => {
    const { port, server } = await guarded({ revisions: [STATELESS] });
    const by = (method: string, headers: object = {}) =>
      ask(port, { method, path: "/a/mcp", headers: { apiKey: "k-bob", ...headers } });
    const get = await by("GET");
    expect([get.status, get.headers.allow]).toEqual([405, "POST"]);
    expect((await by("DELETE")).status).toBe(405);
    expect((await by("PUT")).status).toBe(405);
    const upgrade = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13" };
    expect((await by("GET", { ...upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==" })).status).toBe(400);
    expect(server.seen).toEqual([]);
  });
});

describe("mcp passes on", () => {
  it("the body byte for byte, and names in base64", async () => {
    const { server, port } = await guarded({ tools: ["größe"] });
    const { headers } = statelessRequest("tools/call", { name: "x" });
    const params = `{"name":"gr\\u00f6ße", "_meta":${JSON.stringify(META)},"arguments":{"n":1.0e0}}`;
    const body = ` {"params": ${params},\n "id":"1","method":"tools/call","jsonrpc":"2.0"} `;
    const name = `=?base64?${Buffer.from("größe").toString("base64")}?=`;
    const answer = await post(port, body, { ...headers, "Mcp-Name": name, apiKey: "k-bob", "Mcp-Param-X": "1" });
    expect(answer.status).toBe(200);
    expect(server.seen[0]!.body.toString()).toBe(body);
    expect(server.seen[0]!.headers).toEqual(expect.arrayContaining(["Mcp-Name", name, "Mcp-Param-X", "1"]));
  });

  it("neither Accept-Encoding nor an id of a session where there are none", async () => {
    const { server, call } = await guarded();
    await call("tools/list", {}, { "Accept-Encoding": "gzip", "Mcp-Session-Id": "x", Mcp_Session_Id: "y" });
    expect(server.seen[0]!.headers.map((text) => text.toLowerCase())).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/accept-encoding|session/)]),
    );
  });
});

describe.each(["json", "events"] as const)("mcp takes out of lists, in %s,", (replies) => {
  it("what the caller may not use", async () => {
    const { call } = await guarded({ ...LISTS, prompts: ["g*"], resources: ["docs://public/*"] }, { replies });
    const listed = async (method: string, apiKey = "k-bob") =>
      messagesIn(await call(method, {}, { apiKey })).at(-1).result as Record<string, any>;
    const tools = await listed("tools/list");
    expect(tools["tools"].map(({ name }: { name: string }) => name)).toEqual([
      "search",
      "orders_list",
      "orders_cancel",
    ]);
    expect(tools).toMatchObject({ nextCursor: "more", ttlMs: 5, resultType: "complete", cacheScope: "private" });
    expect((await listed("tools/list", "k-ada"))["tools"]).toHaveLength(4);
    expect(await listed("prompts/list")).toMatchObject({ prompts: [{ name: "greet" }], cacheScope: "private" });
    expect(await listed("resources/list")).toMatchObject({ resources: [{ uri: "docs://public/a" }] });
    expect(await listed("resources/templates/list")).toMatchObject({
      resourceTemplates: [{ uriTemplate: "docs://public/{id}" }],
    });
  });

  it("nothing where the kind is not limited", async () => {
    const { call } = await guarded({ tools: ["search"] }, { replies });
    const answer = await call("prompts/list");
    expect(messagesIn(answer).at(-1).result).toMatchObject({ cacheScope: "public" });
    expect(messagesIn(answer).at(-1).result.prompts).toHaveLength(2);
  });

  it.each([
    ["has duplicate members", '{"tools":[],"tools":[{"name":"refund"}]}'],
    ["has a member in another case", '{"tools":[],"Tools":[{"name":"refund"}]}'],
    ["is no list", '{"tools":{"name":"refund"}}'],
    ["is no object", '[{"tools":[]}]'],
    ["is cut", '{"tools":['],
  ])("none that %s", async (_what, result) => {
    const { call } = await guarded({ tools: ["search"] }, { replies, result: () => result });
    const answer = await call("tools/list").catch(() => null);
    // The head of a stream has been sent before.
    expect(answer?.status ?? 502).toBe(502);
    expect(String(answer?.body)).not.toContain("refund");
  });
});

describe("mcp", () => {
  it("tells of each message what it asked for, in the access log, in decisions and in metrics", async () => {
    const lines: Record<string, unknown>[] = [];
    const server = await mcpServer();
    const plugins = [KEYS, { name: "mcp", config: { ...LISTS, resources: ["docs://*"] } }];
    const config = { ...oneService(server.port, { routes: [{ path: "/mcp", plugins }] } as never), callers: CALLERS };
    const { gateway, port } = await running(config as never, {
      accessLog: (text) =>
        void lines.push(
          ...text
            .trim()
            .split("\n")
            .map((line) => JSON.parse(line) as never),
        ),
    });
    const call = async (method: string, params: Record<string, unknown>) => {
      const { body, headers } = statelessRequest(method, params);
      return (await post(port, body, { ...headers, apiKey: "k-bob" })).headers["x-request-id"] as string;
    };
    const ids = [
      await call("tools/call", { name: "orders_list" }),
      await call("tools/call", { name: "refund" }),
      await call("resources/read", { uri: "docs://a?key=secret" }),
      await call("tools/list", {}),
    ];
    await eventually(() => lines.length === 4);
    expect(lines.map(({ mcp_method, mcp_name, code, rule }) => [mcp_method, mcp_name, code, rule])).toEqual([
      ["tools/call", "orders_list", null, undefined],
      ["tools/call", "refund", "mcp_not_allowed", "tools"],
      ["resources/read", undefined, null, undefined],
      ["tools/list", undefined, null, undefined],
    ]);
    expect(await decided(gateway as never, ids[1]!)).toMatchObject({
      caller: "bob",
      rule: "tools",
      mcp: { method: "tools/call", name: "refund" },
    });
    const counted = [...gateway.metrics().matchAll(/plugin_results_total\{plugin="mcp".*result="([^"]*)"\} (\d+)/g)];
    expect(counted.map(([, result, count]) => `${result}: ${count}`).sort()).toEqual([
      "mcp_not_allowed: 1",
      "resources/read docs://*: 1",
      "tools/call orders_*: 1",
      "tools/list: 1",
    ]);
  });

  it("leads clients without a token to its metadata, and serves that", async () => {
    const resource = "https://api.example.com/mcp";
    const { port } = await guarded({ resource_metadata: { resource, authorization_servers: ["https://id.example"] } });
    const { body, headers } = statelessRequest("tools/list");
    const refused = await post(port, body, headers);
    expect([refused.status, refused.headers["www-authenticate"]]).toEqual([
      401,
      expect.stringContaining('resource_metadata="https://api.example.com/.well-known/oauth-protected-resource/mcp"'),
    ]);
    const path = "/.well-known/oauth-protected-resource/mcp";
    const found = await ask(port, { path, headers: { Host: "api.example.com" } });
    expect(JSON.parse(found.body.toString())).toEqual({ resource, authorization_servers: ["https://id.example"] });
  });

  it("corrects the length, and drops the tag and digests of a list", async () => {
    const headers = { ETag: '"a"', "Content-Digest": "sha-256=:x:", "Last-Modified": "Mon, 30 Nov 2026 00:00:00 GMT" };
    const { call } = await guarded({ tools: ["search"] }, { headers });
    const answer = await call("tools/list");
    expect(answer.headers["content-length"]).toBe(String(answer.body.length));
    expect([answer.headers.etag, answer.headers["content-digest"], answer.headers["last-modified"]]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it("keeps the digits of numbers and the order of members in lists", async () => {
    const tool = '{"name":"search","z":1.0,"10":12345678901234567890,"a":1e400,"t":"ä\\u2028"}';
    const { call } = await guarded({ tools: ["search"] }, { result: () => `{"tools":[${tool},{"name":"x"}]}` });
    expect((await call("tools/list")).body.toString()).toContain(
      '"tools":[{"name":"search","z":1.0,"10":12345678901234567890,"a":1e400,"t":"ä\u2028"}]',
    );
  });

  it.each([
    ["an encoding", { "Content-Encoding": "gzip" }],
    ["another type", { "Content-Type": "text/html" }],
  ])("answers 502 where a list has %s", async (_what, headers) => {
    const { call } = await guarded({ tools: ["search"] }, { headers, result: () => '{"tools":[{"name":"refund"}]}' });
    const answer = await call("tools/list");
    expect([answer.status, JSON.parse(answer.body.toString()).code]).toEqual([502, "upstream_invalid"]);
  });
});
