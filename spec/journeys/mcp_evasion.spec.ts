/** Requests that would get more of an MCP server than the lists of the plugin kind `mcp` allow. */
import { describe, expect, it } from "vitest";
import { oneService, running } from "../support/gateway.ts";
import {
  mcpServer,
  messagesIn,
  post,
  STATELESS,
  statelessRequest,
  type McpServerOptions,
} from "../support/mcp_server.ts";

const SEARCH = '{"name":"search"}';
const REFUND = '{"name":"refund"}';

/** A gateway whose callers nobody identifies. */
async function guarded(config: object, options: McpServerOptions = {}) {
  const server = await mcpServer(options);
  const routes = [{ path: "/mcp", plugins: [{ name: "mcp", config }] }];
  const { gateway, port } = await running(oneService(server.port, { routes } as never));
  const stateless = (method: string, params: object = {}, headers: Record<string, string> = {}) => {
    const request = statelessRequest(method, params as never);
    return post(port, request.body, { ...request.headers, ...headers });
  };
  /** In 2025-11-25. */
  const legacy = (message: object, headers: Record<string, string> = {}) =>
    post(port, JSON.stringify({ jsonrpc: "2.0", ...message }), { "MCP-Protocol-Version": "2025-11-25", ...headers });
  return { server, gateway, stateless, legacy };
}

const errorOf = ({ status, body }: { status: number; body: Buffer }) => [
  status,
  (JSON.parse(body.toString()) as { error?: { code: number } }).error?.code,
];

describe.each(["json", "events"] as const)("in a session, replies in %s", (replies) => {
  it("have no list in place of the result of another request that had the same id", async () => {
    const { legacy } = await guarded(
      { tools: ["search"] },
      { replies, result: () => `{"tools":[${SEARCH},${REFUND}]}` },
    );
    const answer = await legacy({ id: 1, method: "ping" });
    expect(messagesIn(answer).at(-1).result).toEqual({ tools: [{ name: "search" }] });
  });

  it("keep every byte if they only look as if they had a list", async () => {
    const result = `{"content":[{"type":"text","text":"\\ud83d"}],"structuredContent":{"n":1.0, "x":[${REFUND}]}}`;
    const listed = `{"content":[], "structuredContent":{"tools":[${REFUND}]}}`;
    for (const text of [result, listed]) {
      const { legacy } = await guarded({ tools: ["search"] }, { replies, result: () => text });
      const answer = await legacy({ id: 1, method: "tools/call", params: { name: "search" } });
      expect(answer.body.toString()).toContain(`"result":${text}`);
    }
  });

  it("may be longer than any list", async () => {
    const result = `{"content":"${"x".repeat(5_000_000)}"}`;
    const { legacy } = await guarded({ tools: ["search"] }, { replies, result: () => result });
    const answer = await legacy({ id: 1, method: "tools/call", params: { name: "search" } });
    expect(answer.body.toString()).toContain(result);
  });
});

describe("mcp refuses", () => {
  it.each<[string, object, Record<string, unknown>]>([
    [
      "subscriptions in the spelling of Python",
      { method: "subscriptions/listen" },
      { notifications: { resource_subscriptions: ["docs://internal/b"] } },
    ],
    ["meta beside _meta", { method: "tools/list" }, { meta: {} }],
    ["a revision in the spelling of Python", { method: "tools/list" }, { protocol_version: STATELESS }],
  ])("%s", async (_what, { method }: any, params) => {
    const { server, stateless } = await guarded({ resources: ["docs://public/*"] });
    expect(errorOf(await stateless(method, params))).toEqual([400, -32602]);
    expect(server.messages).toEqual([]);
  });

  it.each([
    "docs://public/%25%32%65%25%32%65/internal",
    "docs://public/%%32%65%%32%65/internal",
    "docs://public/%2%65%2%65/internal",
    "docs://public/%25252525252e./internal",
    "docs://public/..%00/internal",
    "docs://public/..%20/internal",
    "docs://public/.%09./internal",
    "docs://public/.. /internal",
  ])("the URI %s", async (uri) => {
    const { server, legacy } = await guarded({ resources: ["docs://public/*"] });
    expect(errorOf(await legacy({ id: 1, method: "resources/read", params: { uri } }))).toEqual([400, -32602]);
    expect(server.messages).toEqual([]);
  });

  it("names and URIs of more than 8192 characters", async () => {
    const { server, legacy } = await guarded({ resources: ["docs://public/*"], tools: ["*"] });
    const uri = `docs://public/${"/".repeat(8180)}`;
    expect(errorOf(await legacy({ id: 1, method: "resources/read", params: { uri } }))).toEqual([400, -32602]);
    const name = "x".repeat(8193);
    expect(errorOf(await legacy({ id: 1, method: "tools/call", params: { name } }))).toEqual([400, -32602]);
    expect(server.messages).toEqual([]);
    expect((await legacy({ id: 1, method: "tools/call", params: { name: name.slice(1) } })).status).toBe(200);
  });

  it.each(["docs://public/a.b/..c/.d", "docs://public/a%20b%2ec?q=100%25", "docs://public/größe/%e2%82%ac"])(
    "not the URI %s",
    async (uri) => {
      const { legacy } = await guarded({ resources: ["docs://public/*"] });
      expect((await legacy({ id: 1, method: "resources/read", params: { uri } })).status).toBe(200);
    },
  );

  it.each(["TOOLS/CALL", "tools/Call", "Notifications/Initialized"])(
    "the method %s, which some servers take for another one, whatever its list says",
    async (method) => {
      const { server, legacy } = await guarded({ tools: [], methods: ["*"] });
      expect(errorOf(await legacy({ id: 1, method, params: { name: "refund" } }))).toEqual([404, -32601]);
      expect(server.messages).toEqual([]);
    },
  );

  it("a response whose headers say that it is a call", async () => {
    const { server, legacy } = await guarded({ tools: ["search"] });
    const response = { id: 1, result: {} };
    expect(errorOf(await legacy(response, { "Mcp-Method": "tools/call" }))).toEqual([400, -32020]);
    expect((await legacy(response)).status).toBe(202);
    expect(server.messages).toHaveLength(1);
  });
});

describe("mcp", () => {
  it.each<[string, object, RegExp]>([
    ["takes nothing away", { tools: ["*", "!refund"] }, /tools\[1\].*"!" takes nothing away/],
    [
      "takes nothing away from a group",
      { tools: [], tools_by_group: { a: ["!x"] } },
      /tools_by_group.*takes nothing away/,
    ],
    ["begins with a space", { prompts: [" greet"] }, /prompts\[0\].*remove the space/],
    ["has a control character", { tools: ["a\u0000b"] }, /tools\[0\].*control characters are refused/],
    ["has a dot segment", { resources: ["docs://public/../x"] }, /resources\[0\].*URIs with "." or ".."/],
    ["is a method in another case", { methods: ["Tools/Call"] }, /methods\[0\].*with the same case/],
  ])("does not start with a pattern that %s", async (_what, config, message) => {
    await expect(guarded(config)).rejects.toThrow(message);
  });

  it("counts methods that clients choose by the pattern that allows them", async () => {
    const { gateway, legacy } = await guarded({ methods: ["x/*", "tools/*"] });
    for (const method of ["x/1", "x/2", "tools/list"]) await legacy({ id: 1, method });
    const counted = [...gateway.metrics().matchAll(/plugin_results_total\{plugin="mcp".*result="([^"]*)"\} (\d+)/g)];
    expect(counted.map(([, result, count]) => [result, count])).toEqual([
      ["x/*", "2"],
      ["tools/list", "1"],
    ]);
  });
});
