import { spawn, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { explanationText } from "../../lib/cli/explain.ts";
import { rememberedText } from "../../lib/cli/explain_id.ts";
import { inColour, plain } from "../../lib/cli/terminal.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { explanationView } from "../../lib/admin/views.ts";
import type { RequestDecision } from "../../lib/observe/decision_reader.ts";
import { EXPLANATION } from "../admin/harness.ts";
import { backend } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { fileWith, fileWithKind, program, PROGRAM, runningProgram } from "../support/process.ts";

const CREDENTIALS = { ADMIN_USER: "anna", ADMIN_PASSWORD: "secret" };
const upstreams = [
  { id: "a", host: "127.0.0.1", port: 9, weight: 3 },
  { host: "::1", port: 10 },
  { id: "old", host: "127.0.0.1", port: 11, weight: 0 },
];
const KEY = { name: "key_auth", id: "door", config: { keys: [{ id: "web", key: "hunter2-a-key-of-the-web" }] } };
const SHOP: AnyConfigInput = {
  services: [
    {
      name: "shop",
      base_path: "/shop",
      upstreams,
      load_balancing_strategy: "weighted",
      plugins: [KEY, { name: "acl", config: { whitelist: ["10.0.0.0/8"] } }],
      routes: [
        {
          name: "item",
          path: "/items/{id}",
          methods: ["GET"],
          plugins: [{ name: "rate_limit", config: { limit_min: 5 } }],
        },
        { name: "rest", path: "/{rest*}" },
      ],
    },
    { name: "api", base_path: "/", hosts: ["api.example.com"], upstreams, routes: [{ name: "v1", path: "/v1" }] },
  ],
};
const RIGHT = ["-H", "apiKey: hunter2-a-key-of-the-web", "--from", "10.1.1.1"];

const explained = (words: readonly string[], environment: Record<string, string> = {}) =>
  program(["explain", ...words], { environment }).ended;
const json = async (words: readonly string[], environment: Record<string, string> = {}) => {
  const { code, stdout, stderr } = await explained([...words, "--json"], environment);
  expect([code, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout) as Record<string, any>;
};

describe("edge-gateway explain, by a file", () => {
  it(
    "explain names a caller by its key, with its groups, which decide what is behind; " +
      "a disabled one is refused as a wrong key is",
    async () => {
      const callers = [
        { id: "ada", groups: ["gold", "staff"], keys: [{ key: "hunter2-a-key-of-ada" }] },
        { id: "bob", keys: [{ key: "hunter2-a-key-of-bob" }] },
        { id: "eve", groups: ["gold"], keys: [{ key: "hunter2-a-key-of-eve" }], enabled: false },
      ];
      const plugins = [
        { name: "key_auth", config: { callers: true } },
        { name: "authorize", config: { rules: [{ groups: ["gold"] }] } },
      ];
      const shop = {
        callers,
        services: [{ name: "shop", base_path: "/shop", upstreams, plugins, routes: [{ path: "/x" }] }],
      };
      const config = fileWith(shop);
      const { started } = await runningProgram(shop, [], CREDENTIALS);
      const of = async (key: string, where = ["--config", config]) => {
        const { plugins: found, ...rest } = await json(
          ["GET", "/shop/x", "-H", `apiKey: hunter2-${key}`, ...where],
          CREDENTIALS,
        );
        expect(JSON.stringify([found, rest])).not.toContain("hunter2");
        return (found as { verdict: string }[]).map(({ verdict }) => verdict);
      };
      expect(await of("a-key-of-ada")).toEqual([
        'passes the request on as "ada" in "gold", "staff"',
        "passes the request on",
      ]);
      expect(await of("a-key-of-bob")).toEqual(['passes the request on as "bob"', "answers 403 forbidden by rules[0]"]);
      for (const key of ["a-key-of-eve", "a-wrong-key"])
        expect(await of(key)).toEqual(["answers 401 key_invalid", "not reached"]);
      for (const key of ["a-key-of-ada", "a-key-of-bob", "a-key-of-eve"])
        expect(await of(key, ["--admin", started.admin as string])).toEqual(await of(key));
    },
  );

  it(
    "explain prints the route, the candidates, each plugin's verdict and the upstreams with their shares " +
      "as configured, and exits 0",
    async () => {
      const config = fileWith(SHOP);
      const { code, stdout, stderr } = await explained(["GET", "/shop/items/7?x=1", "--config", config]);
      expect([code, stderr]).toEqual([0, ""]);
      expect(stdout).toBe(`GET /shop/items/7?x=1 gets route "item" of service "shop" (/shop/items/{id})
  /shop/items/7 matches service "shop" (base_path /shop), route "item" (/items/{id}).

Candidates
  shop / item  takes the request
  shop / rest  matches as well, but is less specific than route "item" of service "shop": a literal segment comes \
before {name}, {name} before {name*}, and at a tie the longer base_path first

Plugins
  service  key_auth (door)  answers 401 key_missing
  service  acl              not reached
  route    rate_limit       not reached

Upstreams, weighted, asked for /items/7?x=1
  a 127.0.0.1:9     75 %
  [::1]:10          25 %
  old 127.0.0.1:11  0 % (draining)
`);
    },
  );

  it("explain prints why a request has no route, and exits 0", async () => {
    const { code, stdout, stderr } = await explained([
      "POST",
      "/shop/items",
      "-H",
      "Host: x.example",
      "--config",
      fileWith({
        services: [
          { name: "s", base_path: "/", upstreams, routes: [{ name: "r", path: "/shop/items", methods: ["GET"] }] },
        ],
      }),
    ]);
    expect([code, stdout, stderr]).toEqual([
      0,
      "POST /shop/items gets 405 method_not_allowed\n  This path accepts GET, " +
        "HEAD.\n\nCandidates\n  s / r  matches the path, but accepts only GET\n",
      "",
    ]);
  });

  it("explain uses the headers of every -H and the address of --from", async () => {
    const config = fileWith(SHOP);
    const { plugins } = await json([
      "GET",
      "/shop/items/7",
      ...RIGHT,
      "-H",
      "X-A: 1",
      "--header",
      "X-A:2",
      "--config",
      config,
    ]);
    expect(plugins.map(({ verdict }: { verdict: string }) => verdict)).toEqual([
      'passes the request on as "web"',
      "passes the request on",
      "passes the request on",
    ]);
    expect((await json(["GET", "/v1", "-H", "Host: api.example.com", "--config", config])).route).toBe("v1");
    expect(
      (await json(["GET", "/shop/x", ...RIGHT.slice(0, 2), "--from", "2001:db8::1", "--config", config])).plugins[1]
        .verdict,
    ).toBe("answers 403 forbidden by whitelist");
  });

  it("explain prints with --json what the admin interface answers, with secrets masked", async () => {
    const explanation = await json(["GET", "/shop/items/7", "--config", fileWith(SHOP)]);
    expect(explanation).toMatchObject({
      route: "item",
      service: "shop",
      candidates: [
        { service: "shop", route: "item", verdict: "takes the request" },
        { service: "shop", route: "rest" },
      ],
      plugins: [
        { name: "key_auth", level: "service", verdict: "answers 401 key_missing" },
        { name: "acl" },
        { name: "rate_limit", level: "route", verdict: "not reached" },
      ],
      upstreams: [{ id: "a", share: 0.75, in_flight: 0 }, { share: 0.25 }, { id: "old", share: 0 }],
    });
    expect(JSON.stringify(explanation)).not.toContain("hunter2");
    expect(await json(["GET", "/nowhere", "--config", fileWith(SHOP)])).toMatchObject({
      route: null,
      service: null,
      candidates: [],
      plugins: [],
      upstreams: [],
    });
  });

  it("explain with a file dials nothing: no upstream, and no server that a plugin asks", async () => {
    const { port, connections } = await backend();
    const plugins = [
      { name: "forward_auth", config: { url: `http://127.0.0.1:${port}/check` } },
      { name: "http_log", config: { http_endpoint: `http://127.0.0.1:${port}/log`, batch_size: 1 } },
    ];
    const config = fileWith({
      services: [
        {
          name: "s",
          base_path: "/",
          upstreams: [{ host: "127.0.0.1", port }],
          health: { enabled: true },
          plugins,
          routes: [{ path: "/x" }],
        },
      ],
    });
    const { stdout } = await explained(["GET", "/x", "--config", config]);
    expect(stdout).toContain(
      `  service  forward_auth  asks http://127.0.0.1:${port}: ` +
        `not done here\n  service  http_log      passes the request on\n`,
    );
    expect(connections.total).toBe(0);
  });

  it(
    "explain with a file dials nothing for a plugin module that asks its server " + "as soon as it is created",
    async () => {
      const { port, connections } = await backend();
      const url = `http://127.0.0.1:${port}/`;
      const create = `create: (_config, tools) => {
      const asked = tools.client().ask({ url: new \
URL("${url}"), timeoutMs: 5000, maxBytes: 100 }).then(({ status }) => String(status), (error) => error.message);
      return () => async ({ call }) => kit.problem(call, "forbidden", { headers: ["Location", await asked] });
    }`;
      const { code, stdout } = await explained([
        "GET",
        "/x",
        "--config",
        fileWithKind(`dials: { why: "own", urls: () => ["${url}"] }, ${create}`),
      ]);
      expect([code, stdout]).toEqual([0, expect.stringContaining(`asks http://127.0.0.1:${port}: not done here\n`)]);
      expect(connections.total).toBe(0);
    },
  );

  it.each([
    [
      'dials: { why: "own", urls: () => { throw new TypeError("no URL"); } }, create: () => (next) => next',
      'plugin own of service "s" cannot be created: urls of its "dials" has thrown: no URL',
    ],
    ['create: () => { throw new TypeError("no store"); }', 'plugin own of service "s" cannot be created: no store'],
  ])("explain exits 2 with the place if a plugin cannot be used: %s", async (members, message) => {
    const file = fileWithKind(members);
    expect(await explained(["GET", "/x", "--config", file])).toMatchObject({
      code: 2,
      stdout: "",
      stderr: expect.stringMatching(/^\S+gw\.json:1:\d+  services\[0\]\.plugins\[0\]  /),
    });
    expect((await explained(["GET", "/x", "--config", file])).stderr).toContain(message);
  });

  it(
    "explain takes the file from CONFIG_FILE_PATH, or gw.json of the working directory; " +
      "ADMIN_URL alone asks no gateway",
    async () => {
      const config = fileWith(SHOP);
      expect(
        (await json(["GET", "/shop/x"], { CONFIG_FILE_PATH: config, ADMIN_URL: "http://127.0.0.1:1", ...CREDENTIALS }))
          .route,
      ).toBe("rest");
      const { code, stdout } = await program(["explain", "GET", "/shop/x"], { cwd: config.replace(/gw\.json$/, "") })
        .ended;
      expect([code, stdout]).toEqual([0, expect.stringMatching(/^GET \/shop\/x gets route "rest"/)]);
    },
  );

  it.each([
    ["{}", /gw\.json:1:1 +services +is required/],
    ["{", /gw\.json:1:2 /],
    [null, /^edge-gateway|gw\.json.*no such file/],
  ])("explain exits 2 for a configuration that cannot be used: %s", async (text, message) => {
    const { code, stdout, stderr } = await explained([
      "GET",
      "/x",
      "--config",
      text === null ? "/nowhere/gw.json" : fileWith(text),
    ]);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(message);
  });
});

describe("edge-gateway explain, by a running gateway", () => {
  it("explain asks the running gateway that --admin, or a flag of reload, names", async () => {
    const running = await runningProgram(SHOP, [], CREDENTIALS);
    const url = String(running.started.admin);
    const words = ["GET", "/shop/items/7", ...RIGHT, "-H", "X-A: 1", "-H", "X-A: 2"];
    const asked = await json([...words, "--admin", url], CREDENTIALS);
    expect(asked).toEqual({ ...(await json([...words, "--config", running.file])), plugins: expect.any(Array) });
    expect(asked.plugins.map(({ verdict }: { verdict: string }) => verdict)).toEqual([
      'passes the request on as "web"',
      "passes the request on",
      "passes the request on",
    ]);
    const port = new URL(url).port;
    for (const flags of [
      ["--admin-url", url],
      ["--admin-port", port],
      ["--admin-port", port, "--admin-host", "127.0.0.1"],
    ]) {
      expect((await json(["GET", "/shop/items/7", ...flags], CREDENTIALS)).plugins[0].verdict).toBe(
        "answers 401 key_missing",
      );
    }
    const text = await explained(["GET", "/nowhere", "--admin", url], CREDENTIALS);
    expect(text).toMatchObject({
      code: 0,
      stderr: "",
      stdout: expect.stringMatching(/^GET \/nowhere gets 404 route_not_found\n {2}No service and route/) as string,
    });
  });

  it(
    "explain exits 1 when nothing listens, the credentials are refused, " + "or the gateway is too old for the command",
    async () => {
      const nobody = `http://127.0.0.1:${await closedPort()}`;
      expect(await explained(["GET", "/x", "--admin", nobody], CREDENTIALS)).toMatchObject({
        code: 1,
        stdout: "",
        stderr: expect.stringContaining(`cannot ask ${nobody}: nothing listens there`) as string,
      });
      const { url } = await fake(404, {});
      expect(await explained(["GET", "/x", "--admin", url], CREDENTIALS)).toMatchObject({
        code: 1,
        stdout: "",
        stderr: expect.stringContaining(
          "POST /gateway/explain with 404: it is not the admin interface of a gateway that knows this command",
        ) as string,
      });
      const old = await fake(200, { outcome: "matched", reasons: [], plugins: [], upstreams: [] });
      expect(await explained(["GET", "/x", "--admin", old.url], CREDENTIALS)).toMatchObject({ code: 1, stdout: "" });
      const wrong = await fake(401, {}, "/login");
      expect(await explained(["GET", "/x", "--admin", wrong.url], CREDENTIALS)).toMatchObject({
        code: 1,
        stderr: `edge-gateway: ${wrong.url} refused the user name or the password\n`,
      });
    },
  );

  it("explain exits 2 when the gateway refuses the question", async () => {
    const { url } = await fake(400, { code: "request_invalid", detail: "It is too long." });
    expect(await explained(["GET", "/x", "--admin", url], CREDENTIALS)).toMatchObject({
      code: 2,
      stdout: "",
      stderr: `edge-gateway: ${url} refused the question: It is too long.\n`,
    });
  });
});

describe("edge-gateway explain --id", () => {
  const CLOSED = {
    name: "closed",
    base_path: "/closed",
    upstreams,
    plugins: [{ name: "acl", config: { whitelist: ["10.0.0.0/8"] } }],
    routes: [{ name: "all", path: "/{rest*}" }],
  };
  const id = async (asked: Promise<Response>) => {
    const response = await asked;
    await response.text();
    return response.headers.get("x-request-id")!;
  };
  const text = async (words: readonly string[]) => {
    const { code, stdout, stderr } = await explained(words, CREDENTIALS);
    expect([code, stderr]).toEqual([0, ""]);
    return stdout;
  };

  it(
    "explain --id prints who has answered a request, with what, after which tries, " +
      "by which route and configuration",
    async () => {
      const closed = await closedPort();
      const down = {
        name: "down",
        base_path: "/down",
        upstreams: [{ id: "a", host: "127.0.0.1", port: closed }],
        routes: [{ name: "all", path: "/{rest*}" }],
      };
      const { port } = await backend();
      const open = {
        name: "open",
        base_path: "/",
        upstreams: [{ id: "b", host: "127.0.0.1", port }],
        routes: [{ name: "x", path: "/x" }],
      };
      const { started } = await runningProgram({ services: [CLOSED, down, open] }, [], CREDENTIALS);
      const [url, admin] = [String(started.http), String(started.admin)];
      const host = new URL(url).host;
      const ended = (of: string, digest = String(started.digest)) =>
        `\nRequest ${of} ended at \\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z, ` +
        `after [\\d.]+ ms\\.\nConfiguration ${digest} is in force\\.\n`;
      const refused = await id(fetch(`${url}/closed/x?key=hunter2`));
      expect(await text(["--id", refused, "--admin", admin])).toMatch(
        new RegExp(`^GET ${host}/closed/x from 127.0.0.1 got 403 forbidden
  The plugin acl answered; no upstream was asked\\.
  It is services\\.closed\\.plugins\\.acl; whitelist of its config decided\\.
  By route "all" of service "closed"\\.
${ended(refused)}What forbidden means: edge-gateway help forbidden\n$`),
      );
      const failed = await id(fetch(`${url}/down/x`));
      expect(await text(["--id", failed, "--admin", admin])).toMatch(
        new RegExp(`got 502 upstream_connect_failed
  The gateway itself answered, since no upstream gave a usable reply\\.
  By route "all" of service "down"\\.

Upstreams that were asked
  a: no response after [\\d.]+ ms
${ended(failed)}`),
      );
      expect(await text(["--id", await id(fetch(`${url}/x`)), "--admin", admin])).toMatch(
        /got 200\n {2}Upstream b answered\.\n[^]*\n {2}b: 200 after [\d.]+ ms\n[^]* is in force\.\n$/,
      );
      expect(await text(["--id", await id(fetch(`${url}/nowhere`)), "--admin", admin])).toMatch(
        new RegExp(
          String.raw`got 404 route_not_found\n {2}The gateway itself answered; no upstream was ` +
            String.raw`asked\.\n {2}No route was found, or looked for\.\n`,
        ),
      );
      const asJson = await json(["--id", refused, "--admin-port", new URL(admin).port], CREDENTIALS);
      expect(asJson).toEqual({
        id: refused,
        time: expect.any(String),
        client: "127.0.0.1",
        method: "GET",
        host,
        path: "/closed/x",
        service: "closed",
        route: "all",
        caller: null,
        mcp: null,
        status: 403,
        code: "forbidden",
        by: "acl",
        plugin: "services.closed.plugins.acl",
        rule: "whitelist",
        tries: [],
        plugins: expect.any(Array),
        ms: expect.any(Number),
        digest: started.digest,
        trace_id: null,
      });
    },
  );

  it("explain --id says so where another configuration is in force now", async () => {
    const { started, file } = await runningProgram({ services: [CLOSED] }, [], CREDENTIALS);
    const refused = await id(fetch(`${String(started.http)}/closed/x`));
    const admin = String(started.admin);
    writeFileSync(file, readFileSync(file, "utf8").replace('"all"', '"others"'));
    expect(await program(["reload", "--admin-url", admin], { environment: CREDENTIALS }).ended).toMatchObject({
      code: 0,
    });
    const said = await text(["--id", refused, "--admin", admin]);
    expect(said).toMatch(
      new RegExp(
        `By route "all" [^]*\nConfiguration ${String(started.digest)} is no longer in force: ` +
          `now it is [0-9a-f]{12}\\.\n`,
      ),
    );
    expect(said).not.toContain(`now it is ${String(started.digest)}`);
  });

  it(
    "explain --id exits 1 for an id that is not remembered, without an answer, " + "and for wrong credentials",
    async () => {
      const { started } = await runningProgram({ services: [CLOSED] }, [], CREDENTIALS);
      const admin = String(started.admin);
      const why = "it may be older than those that global.decisions keeps, or another gateway has answered it";
      const unknown = {
        code: 1,
        stdout: "",
        stderr: `edge-gateway: ${admin} remembers no request with the id some/id:7: ${why}\n`,
      };
      expect(await explained(["--id", "some/id:7", "--admin", admin], CREDENTIALS)).toEqual(
        expect.objectContaining(unknown),
      );
      expect(await explained(["--id", "some/id:7", "--admin", admin, "--json"], CREDENTIALS)).toEqual(
        expect.objectContaining(unknown),
      );
      expect(
        await explained(["--id", "x", "--admin", admin], { ...CREDENTIALS, ADMIN_PASSWORD: "wrong" }),
      ).toMatchObject({
        code: 1,
        stdout: "",
        stderr: `edge-gateway: ${admin} refused the user name or the password\n`,
      });
      const nobody = `http://127.0.0.1:${await closedPort()}`;
      expect(await explained(["--id", "x", "--admin", nobody], CREDENTIALS)).toMatchObject({
        code: 1,
        stdout: "",
        stderr: expect.stringContaining(`cannot ask ${nobody}: nothing listens there`) as string,
      });
      const old = await fake(404, { code: "route_not_found", detail: "There is nothing here." }, "/gateway/requests/x");
      expect(await explained(["--id", "x", "--admin", old.url], CREDENTIALS)).toMatchObject({
        code: 1,
        stdout: "",
        stderr: expect.stringContaining(
          "with 404: it is not the admin interface of a gateway that knows this command",
        ) as string,
      });
      const other = await fake(200, { id: "x" }, "/gateway/requests/x");
      expect(await explained(["--id", "x", "--admin", other.url], CREDENTIALS)).toMatchObject({ code: 1, stdout: "" });
    },
  );

  const EXPECTED =
    "--id: expected a request id as in X-Request-Id (1 to 128 of the characters A-Z a-z 0-9 _ . : / + = @ -), found";
  it.each([
    [["--id"], "--id needs a value: ID"],
    [["--id", ""], "--id needs a value: ID"],
    [["--id", "a b"], `${EXPECTED} "a b"\n`],
    [["--id", "a\u001b[31m\u009b1m\u2028\n"], `${EXPECTED} "a\\u001b[31m?1m?\\n"\n`],
    [["--id", "../%2e"], `${EXPECTED} "../%2e"\n`],
    [["--id", "ä"], `${EXPECTED} "ä"\n`],
    [["--id", "a".repeat(129)], `${EXPECTED} 129 characters\n`],
    [["--id", "\u001b".repeat(100_000)], `${EXPECTED} 100000 characters\n`],
    [["--id", "x", "--id", "y"], "--id is given twice"],
    [
      ["GET", "/x", "--id", "x"],
      "--id asks about a request that a gateway has had: leave out method, URL, --from and -H\n",
    ],
    [["--id", "x", "--from", "10.1.1.1"], "leave out method, URL, --from and -H\n"],
    [["--id", "x", "-H", "A: hunter2"], "leave out method, URL, --from and -H\n"],
    [["--id", "x", "--config", "gw.json"], "name a file with --config or a running gateway with --admin, not both"],
    [["--id", "x", "--admin", "ftp://a"], "--admin: expected"],
  ])("explain --id exits 2 for a command line that is wrong: %#", async (words, message) => {
    const { code, stdout, stderr } = await explained(words, CREDENTIALS);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(message);
    expect(stderr).not.toMatch(/hunter2|[^\n\P{Cc}]/u);
  });

  it("explain --id asks for credentials where it has none", async () => {
    expect(await explained(["--id", "x"])).toMatchObject({
      code: 2,
      stdout: "",
      stderr: expect.stringContaining("ADMIN_USER") as string,
    });
  });
});

describe("the text of what became of a request", () => {
  const DECISION = {
    id: "r",
    time: "2026-01-01T00:00:00.000Z",
    client: "192.0.2.1",
    method: "GET",
    host: "h",
    path: "/a",
    service: "s",
    route: "r",
    caller: null,
    mcp: null,
    status: 200,
    code: null,
    by: "upstream",
    plugin: null,
    rule: null,
    tries: [{ upstream: "a", status: 200, at_ms: 0, ms: 1 }],
    plugins: [],
    ms: 2,
    digest: "0123456789ab",
    trace_id: null,
  };
  const textOf = (more: Partial<RequestDecision>, paint = plain, inForce: string | null = "0123456789ab") =>
    rememberedText({ decision: { ...DECISION, ...more }, inForce }, paint);

  it.each<readonly [Partial<RequestDecision>, string]>([
    [{ code: "upstream_reset" }, "Upstream a answered; then the reply was broken off."],
    [{ by: "response_cache" }, "The plugin response_cache answered."],
    [{ caller: "ada" }, "  The caller was ada.\n"],
    [{ mcp: { method: "tools/call", name: "search" } }, '  The message was tools/call of "search".\n'],
    [{ mcp: { method: "tools/list", name: null } }, "  The message was tools/list.\n"],
    [{ by: "acl", plugin: "global.plugins.acl" }, "The plugin acl answered.\n  It is global.plugins.acl.\n"],
    [
      { by: "acl", plugin: "global.plugins.acl", rule: "blacklist" },
      "  It is global.plugins.acl; blacklist of its config decided.\n",
    ],
    [{ by: null, tries: [] }, "A plugin that is no longer known answered; no upstream was asked."],
    [
      { by: null, status: null, code: "client_closed", tries: [] },
      "The client disconnected before a reply, and no upstream was asked.",
    ],
    [
      { by: null, status: null, code: "client_closed", tries: [{ upstream: "a", status: null, at_ms: 0, ms: 4 }] },
      "The client disconnected before a reply; upstream a was asked last.",
    ],
    [{ tries: [{ upstream: null, status: 200, at_ms: 0, ms: 4 }] }, "Upstream unknown answered."],
    [
      {
        method: null,
        host: null,
        path: null,
        client: null,
        route: null,
        service: null,
        by: "gateway",
        status: 400,
        code: "bad_request",
        tries: [],
      },
      "A request that could not be read got 400 bad_request\n",
    ],
  ])("the text of what became of a request: %j", (more, sentence) => {
    expect(textOf(more)).toContain(sentence);
    expect(textOf(more)).not.toMatch(/null|undefined/);
  });

  it("the text of what became of a request has no control characters, and good and bad in colours", () => {
    expect(
      textOf(
        { path: "/\u001b[31m\u009b", route: "a\nb", tries: [{ upstream: "\u0007", status: null, at_ms: 0, ms: 1 }] },
        plain,
        "\u001b",
      ),
    ).not.toMatch(/[^\n\P{Cc}]/u);
    expect(textOf({}, inColour)).toContain("\u001b[32m200\u001b[");
    expect(textOf({ status: 503, code: "overloaded" }, inColour, "other")).toMatch(
      /\u001b\[31m503 overloaded\u001b.*[^]*\u001b\[31m is no longer in force: now it is other/,
    );
    expect(textOf({}, plain, null)).toContain("Configuration 0123456789ab.\n");
  });
});

describe("the command line of explain", () => {
  it.each([
    [[], "explain needs a method and a URL: edge-gateway explain GET /orders/7"],
    [["GET"], "explain needs a method and a URL"],
    [["GET", "/x", "/y"], 'too many arguments for "explain"'],
    [["/x", "GET"], '"/x" is not a method such as GET: edge-gateway explain METHOD URL'],
    [["GE T", "/x"], '"GE T" is not a method'],
    [["GET", "orders/7"], '"orders/7" is neither a path that starts with "/" nor an http or https URL'],
    [["GET", "ftp://a/x"], '"ftp://a/x" is neither'],
    [["GET", "http:///x"], '"http:///x" is neither'],
    [["GET", ""], '"" is neither'],
    [["GET", "/x", "-H"], "--header needs a value: 'Name: value'"],
    [["GET", "/x", "-H", "no colon hunter2"], "-H: expected a header such as 'Host: api.example.com', found no colon"],
    [["GET", "/x", "-H", ": hunter2"], '-H: "" is not the name of a header'],
    [["GET", "/x", "-H", "Bad Name: hunter2"], '-H: "Bad Name" is not the name of a header'],
    [["GET", "/x", "-H", "A: hunter2\nB: 2"], "-H: the value of A has a character that no header may have"],
    [["GET", "/x", "-H", "A: hunter2 €"], "-H: the value of A has a character that no header may have"],
    [["GET", "/x", "--from", "localhost"], '--from: expected an IP address such as 203.0.113.9, found "localhost"'],
    [["GET", "/x", "--from", "10.0.0.0/8"], "--from: expected an IP address"],
    [["GET", "/x", "--from"], "--from needs a value: IP"],
    [["GET", "/x", "--json=yes"], "--json takes no value"],
    [["GET", "/x", "--config"], "--config needs a value: the path of a file, or a URL"],
    [["GET", "/x", "--jsn"], "--jsn is not a known flag; did you mean --json?"],
    [["GET", "/x", "--http-port", "1"], "--http-port is not a flag of this command"],
    [
      ["GET", "/x", "--admin", "http://127.0.0.1:1", "--config", "gw.json"],
      "name a file with --config or a running gateway with --admin, not both",
    ],
    [
      ["GET", "/x", "--admin", "http://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1"],
      "--admin and --admin-url are the same flag: give one of them",
    ],
    [["GET", "/x", "--admin"], "--admin needs a value: URL"],
    [
      ["GET", "/x", "--admin", "localhost:8081"],
      "--admin: expected a URL such as https://gateway.example.com:8081, without a path",
    ],
    [["GET", "/x", "--admin", "http://127.0.0.1:1"], "ADMIN_USER is not set"],
  ] as const)("explain exits 2 for %j", async (words, message) => {
    const { code, stdout, stderr } = await explained(words);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toContain(`edge-gateway: ${message}`);
    expect(stderr).not.toContain("hunter2");
  });

  it("commands other than explain refuse -H and --from", async () => {
    for (const words of [
      ["reload", "-H", "A: 1"],
      ["schema", "--header", "A: 1"],
      ["demo", "--from", "1.1.1.1"],
    ]) {
      expect(await program(words).ended).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(/--(?:header|from) is not a known flag/) as string,
      });
    }
  });
});

describe("the text of an explanation", () => {
  const question = { method: "GET", url: "/a/x" };

  it(
    "the text of an explanation has no control characters of names and verdicts, " + "which would act on the terminal",
    () => {
      const wild = explanationView({
        ...EXPLANATION,
        route: "\u001b[31mr",
        reasons: ["a\nb"],
        plugins: [{ ...EXPLANATION.plugins[0]!, verdict: "answers 401 \u009b1m" }],
      });
      expect(explanationText({ method: "GET", url: "/\u0007" }, wild, plain)).not.toMatch(/[^\n\P{Cc}]/u);
    },
  );

  it("the text of an explanation says what is hashed, and the cookie of a sticky service", () => {
    const headings = [{ strategy: "hash", hashOn: "header:X-Tenant" }, { sticky: "route" }, {}].map(
      (more) =>
        /^Upstreams, .*/m.exec(explanationText(question, explanationView({ ...EXPLANATION, ...more }), plain))![0],
    );
    expect(headings).toEqual([
      "Upstreams, hash on header:X-Tenant, asked for /x",
      "Upstreams, round_robin, sticky by the cookie route, asked for /x",
      "Upstreams, round_robin, asked for /x",
    ]);
  });

  const DONE = [
    ["passes", "passes the request on"],
    ["answers", "answers 401 key_missing"],
    ["not_reached", "not reached"],
  ] as const;

  it("the text of an explanation shows good, bad and unimportant verdicts in colours", () => {
    const view = explanationView({
      ...EXPLANATION,
      plugins: DONE.map(([action, verdict]) => ({ ...EXPLANATION.plugins[0]!, action, verdict })),
    });
    const text = explanationText(question, view, inColour);
    for (const part of [
      "\u001b[32mtakes the request\u001b[",
      "\u001b[32mpasses the request on\u001b[",
      "\u001b[31manswers 401 key_missing\u001b[",
      "\u001b[2mnot reached\u001b[",
    ])
      expect(text).toContain(part);
    expect(explanationText(question, view, plain)).not.toContain("\u001b");
  });

  it(
    "the text of an explanation has colours on a terminal only, " + "and none with NO_COLOR (script as Linux has it)",
    async ({ skip }) => {
      if (process.platform !== "linux" || spawnSync("script", ["--version"]).status !== 0) skip();
      const config = fileWith(SHOP);
      const screen = async (environment: Record<string, string>) => {
        const words = [process.execPath, PROGRAM, "explain", "GET", "/shop/x", "--config", config];
        const child = spawn("script", ["-qec", words.map((word) => `'${word}'`).join(" "), "/dev/null"], {
          stdio: ["ignore", "pipe", "ignore"],
          env: { PATH: process.env.PATH, TERM: "xterm-256color", ...environment },
        });
        onTestFinished(() => void child.kill("SIGKILL"));
        let text = "";
        child.stdout.on("data", (chunk: Buffer) => void (text += chunk.toString()));
        await new Promise((resolve) => child.once("close", resolve));
        return text;
      };
      expect(await screen({})).toContain("\u001b[32mtakes the request\u001b[");
      expect(await screen({ NO_COLOR: "1" })).toMatch(/^GET \/shop\/x gets route[^\u001b]*$/);
      expect(
        (await explained(["GET", "/shop/x", "--config", config], { TERM: "xterm-256color" })).stdout,
      ).not.toContain("\u001b");
    },
  );
});

/** What looks like an admin interface that answers one path in this way. */
async function fake(status: number, answer: object, path = "/gateway/explain"): Promise<{ url: string }> {
  const server = http.createServer((request, response) => {
    const isAsked = request.url === path;
    response
      .writeHead(isAsked ? status : 200, request.url === "/login" ? { "Set-Cookie": "token=t; HttpOnly" } : {})
      .end(JSON.stringify(isAsked ? answer : {}));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}
