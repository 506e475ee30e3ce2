/** Callers in a running gateway: who gets in, with which groups, under every plugin that identifies somebody. */
import { writeFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import type { ConfigInput } from "../../lib/config/model.ts";
import { createGateway, definePlugin, schema, type GatewayOptions } from "../../lib/index.ts";
import { together } from "../support/following.ts";
import { oneService } from "../support/gateway.ts";
import { keptClient } from "../support/kept_client.ts";
import { fileWith } from "../support/process.ts";

/** Takes the identity and the groups of a token from headers, and answers with what the next plugin sees. */
const identify = definePlugin({
  name: "identify",
  schema: schema.object({}),
  identifies: true,
  create: () => (next) => (exchange) => {
    const [, identity = null] = /^user (\S+)/.exec(exchange.headers[exchange.headers.indexOf("X-User") + 1] ?? "") ?? [];
    return next(exchange.with({ ...(identity !== null && { identity }), groups: ["of token"] }));
  },
});
const answer = definePlugin({
  name: "answer",
  schema: schema.object({}),
  create: (_config, { groupsOf }) => () => (exchange) => {
    const body = Buffer.from(JSON.stringify([exchange.identity, groupsOf(exchange)]));
    return { status: 200, headers: ["Content-Length", String(body.length)], body };
  },
});

const KEYS = { name: "key_auth", config: { callers: true } } as const;
const CALLERS = [
  { id: "ada", groups: ["gold"], keys: [{ key: "a-key" }] },
  { id: "bob", keys: [{ key: "b-key" }] },
  { id: "eve", groups: ["gold"], keys: [{ key: "e-key" }], enabled: false },
];
const config = (plugins: readonly object[], more: object = { callers: CALLERS }): ConfigInput => ({ ...oneService(9, { plugins: [...plugins, { name: "answer" }] as never }), ...more });

function gatewayOf(config: ConfigInput, options: GatewayOptions = {}) {
  const gateway = createGateway({ config, plugins: [identify, answer], ...options });
  onTestFinished(() => gateway.close(0).then(() => {}));
  return gateway;
}

async function ask(gateway: ReturnType<typeof gatewayOf>, headers: Record<string, string> = {}) {
  const { status, body } = await gateway.inject({ url: "/a/x", headers });
  const answered = JSON.parse(String(body)) as { readonly code?: string };
  return status === 200 ? answered : [status, answered.code];
}

describe("key_auth with callers", () => {
  it("takes the keys of all of them, and gives each request its caller's id and groups", async () => {
    const gateway = gatewayOf(config([KEYS]));
    for (let i = 0; i < 2; i++) {
      expect(await ask(gateway, { apiKey: "a-key" })).toEqual(["ada", ["gold"]]);
      expect(await ask(gateway, { apiKey: "b-key" })).toEqual(["bob", []]);
      expect(await ask(gateway, { apiKey: "e-key" })).toEqual([401, "key_invalid"]);
      expect(await ask(gateway, { apiKey: "x-key" })).toEqual([401, "key_invalid"]);
      expect(await ask(gateway, { apiKey: "" })).toEqual([401, "key_invalid"]);
    }
    expect(await ask(gateway)).toEqual([401, "key_missing"]);
  });

  it("tells nobody by its answer whether a key is wrong or its caller disabled", async () => {
    const gateway = gatewayOf(config([KEYS]));
    const answers = await Promise.all(["e-key", "x-key"].map((apiKey) => gateway.inject({ url: "/a/x", headers: { apiKey } })));
    const [first, second] = answers.map(({ status, headers, body }) => ({ status, names: headers.filter((_, i) => i % 2 === 0), length: body.length }));
    expect(first).toEqual(second);
  });

  it("takes the callers of a reload, and no others, from then on", async () => {
    const file = fileWith(CALLERS, "callers.json");
    const gateway = gatewayOf(config([KEYS], { caller_files: [file] }));
    expect([gateway.callerFiles, gateway.files]).toEqual([[file], [file]]);
    expect(await ask(gateway, { apiKey: "a-key" })).toEqual(["ada", ["gold"]]);
    writeFileSync(file, JSON.stringify([{ id: "ada", groups: ["silver"], keys: [{ key: "c-key" }] }]));
    expect(gateway.rereadFiles()).toBe(false);
    await gateway.reload();
    expect(await ask(gateway, { apiKey: "a-key" })).toEqual([401, "key_invalid"]);
    expect(await ask(gateway, { apiKey: "c-key" })).toEqual(["ada", ["silver"]]);
    writeFileSync(file, '[{"id":"ada","keys":[{"key":"hush"},{"key":"hush"}]}]');
    const { message } = await gateway.reload().then(() => new Error("taken"), (error: Error) => error);
    expect(message).toContain(`${file}:1:37  [0].keys[1]  is the same key as [0].keys[0]`);
    expect(message).not.toContain("hush");
    expect(await ask(gateway, { apiKey: "c-key" })).toEqual(["ada", ["silver"]]);
  });

  it("takes them in all workers", async () => {
    const file = fileWith(CALLERS, "callers.json");
    const { main, ports } = await together({ config: config([KEYS], { caller_files: [file] }), plugins: [identify, answer] });
    const [first, second] = await Promise.all(ports.map(keptClient));
    const bodies = () => Promise.all([first!, second!].map(async (client) => (await client.ask("/a/x?apiKey=a-key")).body));
    expect(await bodies()).toEqual(['["ada",["gold"]]', '["ada",["gold"]]']);
    writeFileSync(file, JSON.stringify([{ id: "ann", keys: [{ key: "a-key" }] }]));
    await main.reload();
    expect(await bodies()).toEqual(['["ann",[]]', '["ann",[]]']);
    for (const client of [first!, second!]) client.close();
  });
});

describe("callers who are identified otherwise", () => {
  it("get their groups, with those of the token, and are kept out where they are disabled", async () => {
    const gateway = gatewayOf(config([{ name: "identify" }]));
    expect(await ask(gateway, { "X-User": "user ada" })).toEqual(["ada", ["of token", "gold"]]);
    expect(await ask(gateway, { "X-User": "user joe" })).toEqual(["joe", ["of token"]]);
    expect(await ask(gateway, { "X-User": "user eve" })).toEqual([403, "forbidden"]);
    expect(await ask(gateway)).toEqual([null, ["of token"]]);
  });

  it("are kept out by the keys of key_auth itself, too", async () => {
    const gateway = gatewayOf(config([{ name: "key_auth", config: { keys: [{ id: "eve", key: "own" }, { id: "ada", key: "other" }] } }]));
    expect(await ask(gateway, { apiKey: "own" })).toEqual([403, "forbidden"]);
    expect(await ask(gateway, { apiKey: "other" })).toEqual(["ada", ["gold"]]);
  });

  it("have the groups of their token where the configuration has no callers", async () => {
    expect(await ask(gatewayOf(config([{ name: "identify" }], {})), { "X-User": "user eve" })).toEqual(["eve", ["of token"]]);
  });
});

describe("${caller.groups}", () => {
  it("is the groups in headers, with commas between them, in UTF-8, and without a way to write a header of its own", async () => {
    const groups = ["a,b", "50%", "größe", "plain"];
    const template = { name: "response_headers", config: { set: { "X-Groups": "[${caller.groups}]", "X-Id": "${caller.id}" } } };
    const gateway = gatewayOf(config([KEYS, template], { callers: [{ id: "ada", groups, keys: [{ key: "a-key" }] }, { id: "bob", keys: [{ key: "b-key" }] }] }));
    const of = async (apiKey: string) => (await gateway.inject({ url: "/a/x", headers: { apiKey } })).header("X-Groups");
    expect(Buffer.from((await of("a-key"))!, "latin1").toString()).toBe("[a%2Cb,50%25,größe,plain]");
    expect(await of("b-key")).toBe("[]");
  });
});
