/** Callers in a running gateway: who gets in, with which groups, under every plugin that identifies somebody. */
import { writeFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { createGateway, definePlugin, schema, type GatewayOptions } from "../../lib/index.ts";
import { manualClock } from "../support/clock.ts";
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
    const [, identity = null] =
      /^user (\S+)/.exec(exchange.headers[exchange.headers.indexOf("X-User") + 1] ?? "") ?? [];
    return next(exchange.with({ ...(identity !== null && { identity }), groups: ["of token"] }));
  },
});
const answer = definePlugin({
  name: "answer",
  schema: schema.object({}),
  create:
    (_config, { groupsOf }) =>
    () =>
    (exchange) => {
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
const config = (plugins: readonly object[], more: object = { callers: CALLERS }): AnyConfigInput => ({
  ...oneService(9, { plugins: [...plugins, { name: "answer" }] as never }),
  ...more,
});

function gatewayOf(config: AnyConfigInput, options: GatewayOptions = {}) {
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
  it("takes a key until it ends, and the caller's other keys from then on as before", async () => {
    const clock = manualClock(Date.UTC(2027, 0, 1));
    const keys = [{ key: "a-key", expires_at: "2027-01-02T00:00:00Z" }, { key: "a-next" }];
    const gateway = gatewayOf(config([KEYS], { callers: [{ id: "ada", groups: ["gold"], keys }] }), { clock });
    const both = () => Promise.all(["a-key", "a-next"].map((apiKey) => ask(gateway, { apiKey })));
    expect(await both()).toEqual([
      ["ada", ["gold"]],
      ["ada", ["gold"]],
    ]);
    clock.advance(86_400_000);
    expect(await both()).toEqual([
      [401, "key_expired"],
      ["ada", ["gold"]],
    ]);
  });

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
    const answers = await Promise.all(
      ["e-key", "x-key"].map((apiKey) => gateway.inject({ url: "/a/x", headers: { apiKey } })),
    );
    const [first, second] = answers.map(({ status, headers, body }) => ({
      status,
      names: headers.filter((_, i) => i % 2 === 0),
      length: body.length,
    }));
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
    const { message } = await gateway.reload().then(
      () => new Error("taken"),
      (error: Error) => error,
    );
    expect(message).toContain(`${file}:1:37  [0].keys[1]  is the same key as [0].keys[0]`);
    expect(message).not.toContain("hush");
    expect(await ask(gateway, { apiKey: "c-key" })).toEqual(["ada", ["silver"]]);
  });

  it("takes them in all workers", async () => {
    const file = fileWith(CALLERS, "callers.json");
    const { main, ports } = await together({
      config: config([KEYS], { caller_files: [file] }),
      plugins: [identify, answer],
    });
    const { snapshot } = Gateway.internalsOf(main).configuration;
    const list = snapshot.callers!.lists[0]!;
    const seen = () =>
      list.callers.filter((caller) => snapshot.callers!.lastSeen(list, caller) > 0).map(({ id }) => id);
    expect(seen()).toEqual([]);
    const [first, second] = await Promise.all(ports.map(keptClient));
    const bodies = () =>
      Promise.all([first!, second!].map(async (client) => (await client.ask("/a/x?apiKey=a-key")).body));
    expect(await bodies()).toEqual(['["ada",["gold"]]', '["ada",["gold"]]']);
    // The main thread, which serves nobody, knows from memory that all threads share.
    expect(seen()).toEqual(["ada"]);
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
    const gateway = gatewayOf(
      config([
        {
          name: "key_auth",
          config: {
            keys: [
              { id: "eve", key: "own" },
              { id: "ada", key: "other" },
            ],
          },
        },
      ]),
    );
    expect(await ask(gateway, { apiKey: "own" })).toEqual([403, "forbidden"]);
    expect(await ask(gateway, { apiKey: "other" })).toEqual(["ada", ["gold"]]);
  });

  it("have the groups of their token where the configuration has no callers", async () => {
    expect(await ask(gatewayOf(config([{ name: "identify" }], {})), { "X-User": "user eve" })).toEqual([
      "eve",
      ["of token"],
    ]);
  });
});

describe("a test of a configuration with as.caller", () => {
  const jwt = {
    name: "jwt",
    config: { alg: "HS256", secret: "a secret of more than thirty-two bytes", aud: "shop", groups_claim: "groups" },
  };
  const users = { name: "basic_auth", config: { users: [{ username: "ada", password: "a long password" }] } };

  it.each<readonly [string, object, object, object]>([
    ["key_auth takes a caller with a key", KEYS, { caller: "ada" }, { status: 200, caller: "ada" }],
    ["key_auth refuses a caller who is disabled", KEYS, { caller: "eve" }, { status: 401, code: "key_invalid" }],
    ["key_auth refuses a caller without a key", KEYS, { caller: "joe" }, { status: 401, code: "key_invalid" }],
    ["key_auth refuses somebody who is no caller", KEYS, { caller: "nobody" }, { status: 401, code: "key_invalid" }],
    [
      "key_auth with keys of its own takes the callers of them",
      { name: "key_auth", config: { keys: [{ id: "joe", key: "own" }] } },
      { caller: "joe" },
      { status: 200, caller: "joe" },
    ],
    [
      "key_auth with keys of its own refuses all others",
      { name: "key_auth", config: { keys: [{ id: "joe", key: "own" }] } },
      { caller: "ada" },
      { status: 401, code: "key_invalid" },
    ],
    ["basic_auth takes the user", users, { caller: "ada" }, { status: 200, caller: "ada" }],
    ["basic_auth lets no disabled caller through", users, { caller: "eve" }, { status: 403, code: "forbidden" }],
    [
      "jwt takes the caller as the subject of its claims",
      jwt,
      { caller: "joe", jwt: { aud: "shop" } },
      { status: 200, caller: "joe" },
    ],
    ["jwt checks the claims", jwt, { caller: "joe" }, { status: 401, code: "token_invalid" }],
    ["without it a key is needed", KEYS, {}, { status: 401, code: "key_missing" }],
  ])("%s", async (_title, plugin, as, expect_) => {
    const callers = [...CALLERS, { id: "joe" }];
    const tests = [{ name: "it", request: { url: "/a/x", as }, expect: expect_ }];
    const gateway = gatewayOf({ ...oneService(9, { plugins: [plugin] as never }), callers, tests } as AnyConfigInput);
    const {
      tests: [result],
    } = await gateway.test();
    expect(result).toMatchObject({ passed: true, differences: [] });
  });

  it("has the groups of the caller and of the claims in templates", async () => {
    const headers = { name: "request_headers", config: { set: { "X-Groups": "${caller.groups}" } } };
    const tests = [
      {
        name: "it",
        request: { url: "/a/x", as: { caller: "ada", jwt: { aud: "shop", groups: ["staff", 7, "", "staff"] } } },
        expect: { upstream_headers: { "X-Groups": "staff,gold" } },
      },
    ];
    const gateway = gatewayOf({
      ...oneService(9, { plugins: [jwt, headers] as never }),
      callers: CALLERS,
      tests,
    } as AnyConfigInput);
    expect((await gateway.test()).tests).toMatchObject([{ passed: true, differences: [] }]);
  });
});

describe("the warning caller_unused", () => {
  const warned = (plugins: readonly object[], callers: readonly object[], more: object = {}) =>
    gatewayOf({
      ...oneService(9, { plugins: plugins as never }),
      callers,
      ...more,
    } as AnyConfigInput).configWarnings.filter(({ code }) => code === "caller_unused");

  it("names each caller whom no plugin can identify", () => {
    const pathsOf = (plugins: readonly object[]) =>
      warned(plugins, [...CALLERS, { id: "joe" }, { id: "default" }]).map(({ path }) => path);
    expect(pathsOf([])).toEqual(["callers.ada", "callers.bob", "callers.eve", "callers.joe", "callers.default"]);
    expect(pathsOf([KEYS])).toEqual(["callers.joe", "callers.default"]);
    expect(pathsOf([KEYS, { name: "key_auth", config: { key: "k" } }])).toEqual(["callers.joe"]);
    expect(pathsOf([{ name: "basic_auth", config: { users: [{ username: "joe", password: "p" }] } }])).toEqual([
      "callers.ada",
      "callers.bob",
      "callers.eve",
      "callers.default",
    ]);
    expect(pathsOf([{ name: "identify" }])).toEqual([]);
    expect(pathsOf([{ ...KEYS, enabled: false }])).toHaveLength(5);
  });

  it("has the place of the caller or of its file, and can be accepted", () => {
    const file = fileWith([{ id: "ann" }], "callers.json");
    expect(warned([], [{ id: "ada" }], { caller_files: [file] })).toMatchObject([
      { path: "callers.ann", at: ["caller_files", 0] },
      {
        path: "callers.ada",
        at: ["callers", 0],
        message: 'No plugin can identify the caller "ada": it has no effect.',
        service: null,
      },
    ]);
    expect(warned([], [{ id: "ada" }], { global: { accept_warnings: ["caller_unused:callers.ada"] } })).toEqual([]);
  });

  it("counts the rest of many", () => {
    const found = warned(
      [],
      Array.from({ length: 1000 }, (_, i) => ({ id: `c${i}` })),
    );
    expect(found).toHaveLength(21);
    expect(found.at(-1)!.message).toBe("No plugin can identify 980 more callers.");
  });
});

describe("${caller.groups}", () => {
  it(
    "is the groups in headers, with commas between them, in UTF-8, " + "and without a way to write a header of its own",
    async () => {
      const groups = ["a,b", "50%", "größe", "plain"];
      const template = {
        name: "response_headers",
        config: { set: { "X-Groups": "[${caller.groups}]", "X-Id": "${caller.id}" } },
      };
      const gateway = gatewayOf(
        config([KEYS, template], {
          callers: [
            { id: "ada", groups, keys: [{ key: "a-key" }] },
            { id: "bob", keys: [{ key: "b-key" }] },
          ],
        }),
      );
      const of = async (apiKey: string) =>
        (await gateway.inject({ url: "/a/x", headers: { apiKey } })).header("X-Groups");
      expect(Buffer.from((await of("a-key"))!, "latin1").toString()).toBe("[a%2Cb,50%25,größe,plain]");
      expect(await of("b-key")).toBe("[]");
    },
  );
});
