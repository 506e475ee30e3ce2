import { generateKeyPairSync } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput, Config, Service } from "../../lib/config/model.ts";
import { atOnce, createTimeSlices } from "../../lib/base/time_slices.ts";
import { configWarnings, configWarningsInSlices } from "../../lib/proof/config_warnings.ts";
import { written } from "../../lib/proof/written.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import type { ValidConfig } from "../../lib/gateway/compile_types.ts";
import type { ConfigWarning } from "../../lib/gateway/status.ts";
import { definePlugin, schema } from "../../lib/index.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import type { AnyPlugin } from "../../lib/plugins/plugin.ts";
import { document } from "../support/documents.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { emptyFolder } from "../support/process.ts";
import { ask } from "../support/raw_client.ts";
import { random } from "../support/random.ts";
import { checkRoutes, loadConfig } from "../support/schema.ts";

const ED25519 = String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));
const readFile = (path: string) => (path.endsWith("ed25519.pem") ? ED25519 : readFileSync(path, "utf8"));

function loaded(config: unknown, kinds: readonly AnyPlugin[] = []): ValidConfig {
  const result = loadConfig(
    { value: config },
    { kinds: [...builtinPlugins, ...kinds], environment: { KEY: "k", TOKEN: "s3cret" }, checkRoutes, readFile },
  );
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result;
}

const warningsOf = (config: unknown, kinds: readonly AnyPlugin[] = []) => configWarnings(loaded(config, kinds));
const pathsOf = (warnings: readonly ConfigWarning[]) => warnings.map(({ code, path }) => `${code}:${path}`);

/** Service "s" below "/", with these routes: [name, path, plugins], and parts. */
function configOf(
  routes: readonly (readonly [name: string, path: string, ...plugins: object[]])[],
  parts: object = {},
  global: object = {},
): AnyConfigInput {
  const all = routes.map(([name, path, ...plugins]) => ({ name, path, plugins }));
  return oneService(9, { base_path: "/", routes: all, ...parts } as never, global as never);
}

const key = (value = "k", more: object = {}) => ({ name: "key_auth", config: { key: value }, ...more });
const limit = (limit_by = "header:X-Tenant", more: object = {}) => ({
  name: "rate_limit",
  config: { limit_min: 5, limit_by },
  ...more,
});
const cache = { name: "response_cache" };
const RESOURCE = { resource: "https://api.example.com/mcp", authorization_servers: ["https://id.example.com"] };
const HMAC = { secret: "a secret of thirty-two characters", alg: "HS256" };

describe("configWarnings", () => {
  const sections = document("docs/warnings.md")
    .text.split(/^### /m)
    .slice(1)
    .map((text) => ({ code: /^\w+/.exec(text)![0], json: /```json example\n([^]*?)```/.exec(text)![1]! }));

  it("docs/warnings.md has a section for every warning about a configuration", () => {
    const table = /^\| `(\w+)` ²/gm;
    const listed = [...document("docs/troubleshooting.md").text.matchAll(table)].map(([, code]) => code);
    expect(sections.map(({ code }) => code)).toEqual(listed);
  });

  it.each(sections)("the example of $code in docs/warnings.md gives this warning, and no other", ({ code, json }) => {
    expect(warningsOf(JSON.parse(json)).map((warning) => warning.code)).toEqual([code]);
  });

  it("the settings of a plugin are reported with a request of the first route that runs it", () => {
    const jwt = { name: "jwt", config: HMAC };
    expect(
      warningsOf(
        configOf(
          [
            ["a", "/a"],
            ["b", "/b/{id}"],
          ],
          { plugins: [jwt] },
        ),
      ).map(({ code, example }) => [code, example]),
    ).toEqual([["token_for_anyone", "GET http://localhost/a"]]);
    expect(warningsOf(configOf([["b", "/b/{id}", jwt]])).map(({ example }) => example)).toEqual([
      "GET http://localhost/b/x",
    ]);
    expect(warningsOf(configOf([], { plugins: [jwt] })).map(({ example }) => example)).toEqual([null]);
  });

  it("a guard that a client avoids by a header is reported with such a request, without the secrets in it", () => {
    const open = (match: object) => ({ name: "open", path: "/a", match });
    const found = (match: object) =>
      warningsOf(
        oneService(9, {
          base_path: "/",
          routes: [{ name: "guarded", path: "/a", plugins: [key()] }, open(match)],
        } as never),
      );
    expect(found({ headers: { "X-Beta": true }, query: { b: "1" } })).toMatchObject([
      {
        code: "guard_bypassed",
        message:
          'Requests that match the path of route "guarded" of service "s" can avoid its guards: ' +
          ('route "open" of service "s" takes some without key_auth (those that other headers, ' +
            "cookies or another query select)."),
        example: "GET http://localhost/a?b=1 (x-beta: x)",
      },
    ]);
    expect(found({ headers: { "X-Token": "hunter2-hunter2" } })).toMatchObject([
      { example: "GET http://localhost/a (x-token: ********)" },
    ]);
  });

  it.each(["$API_KEY", "$${API_KEY}", "{{ api_key }}", "<API_KEY>", "%API_KEY%", "changeme", "Change-Me"])(
    "a secret that looks like a template is reported where it is, without its text: %s",
    (text) => {
      const [warning, ...more] = warningsOf(configOf([["a", "/a", key(text, { id: "mine" })]]));
      expect(more).toEqual([]);
      expect(warning).toMatchObject({
        code: "placeholder_secret",
        path: "services.s.routes.a.plugins.mine",
        service: "s",
        route: "a",
        at: ["services", 0, "routes", 0, "plugins", 0, "config", "key"],
      });
      expect(warning!.message).toBe(
        "The secret at services[0].routes[0].plugins[0].config.key looks like a template that nobody has filled " +
          "in: it is used as it is written.",
      );
      expect(warning!.remedy).toContain("${env:NAME}");
    },
  );

  it(
    "a secret that looks like a template is reported once for each plugin, " +
      "service and setting, and can be accepted",
    () => {
      const keys = {
        name: "key_auth",
        config: {
          keys: [
            { id: "a", key: "$A" },
            { id: "b", key: "$B" },
          ],
        },
      };
      const counters = { store: "redis", url: "rediss://:$PASSWORD@10.0.0.1" };
      const config = (accept_warnings: readonly string[]) =>
        configOf(
          [["a", "/a"]],
          { plugins: [keys], sticky: { secret: "<a secret of more than thirty-two characters>" } },
          { plugins: [key("changeme")], counters, accept_warnings },
        );
      const found = [
        "placeholder_secret:global.plugins.key_auth",
        "placeholder_secret:services.s",
        "placeholder_secret:services.s.plugins.key_auth",
      ];
      expect(pathsOf(warningsOf(config([]))).sort()).toEqual(found);
      expect(warningsOf(config(found))).toEqual([]);
    },
  );

  it.each(["${env:KEY}", "k$1", "a<b>", "$", "{{", "changemenot", "p4$$w0rd"])(
    "a secret that is a reference or like any other is not reported as a template: %s",
    (text) => {
      expect(warningsOf(configOf([["a", "/a", key(text)]]))).toEqual([]);
    },
  );

  it(
    "a route that no request reaches is named with those that take its requests, " +
      "with one of these and with its place",
    () => {
      expect(
        warningsOf(
          configOf([
            ["all", "/a/{x*}"],
            ["one", "/a/{y}"],
            ["more", "/a/{y}/{z*}"],
          ]),
        ),
      ).toEqual([
        {
          code: "route_unreachable",
          path: "services.s.routes.all",
          message:
            'No request reaches route "all" of service "s": route "one" of service "s", ' +
            'route "more" of service "s" take all that its path matches.',
          example: "GET http://localhost/a/x",
          remedy:
            "Remove the route, or give it a path, methods, hosts or conditions (match) that no other route takes; " +
            'if it is intended, add "route_unreachable:services.s.routes.all" to global.accept_warnings.',
          service: "s",
          route: "all",
          at: ["services", 0, "routes", 0, "path"],
        },
      ]);
    },
  );

  it(
    "a route without conditions that no request reaches is named with one of those that " +
      "take its requests together",
    () => {
      const route = (name: string, wanted: true | null | undefined) => ({
        name,
        path: "/a",
        ...(wanted === undefined ? {} : { match: { headers: { "X-A": wanted } } }),
      });
      const routes = [route("plain", undefined), route("present", true), route("absent", null)];
      expect(warningsOf(oneService(9, { base_path: "/", routes } as never)).map(({ message }) => message)).toEqual([
        'No request reaches route "plain" of service "s": route "absent" of service "s", ' +
          "together with the other routes of its path, takes all that its path matches.",
      ]);
    },
  );

  it(
    "a guarded route has a warning for each route that bypasses its guards, which names those that are missing, " +
      "and ten at most",
    () => {
      const others = ["b", "c"].map((name) => [name, `/a/${name}`] as const);
      const warnings = warningsOf(
        configOf([["guarded", "/a/{x}", key(), { name: "acl", config: { blacklist: ["10.0.0.1"] } }], ...others]),
      );
      expect(warnings).toMatchObject(
        others.map(([name, path]) => ({
          code: "guard_bypassed",
          path: `services.s.routes.guarded by services.s.routes.${name}`,
          message:
            'Requests that match the path of route "guarded" of service "s" can avoid its guards: ' +
            `route "${name}" of service "s" takes some without key_auth and acl (its path is more specific).`,
          example: `GET http://localhost${path}`,
          service: "s",
          route: "guarded",
          at: ["services", 0, "routes", 0, "path"],
        })),
      );
      const many = Array.from({ length: 30 }, (_, i) => [`r${i}`, `/a/r${i}`] as const);
      expect(warningsOf(configOf([["guarded", "/a/{x}", key()], ...many]))).toHaveLength(10);
    },
  );

  it(
    "a guard is the same if it is written alike: a reference is compared by its text, " +
      "whatever its value is, and a file by its path",
    () => {
      const folder = emptyFolder();
      for (const [name, text] of [
        ["a", "k"],
        ["b", "k"],
      ])
        writeFileSync(join(folder, name!), text!);
      const bypassed = (inner: object) =>
        pathsOf(
          warningsOf(
            configOf([
              ["guarded", "/a/{x}", key()],
              ["b", "/a/b", inner],
            ]),
          ),
        );
      const guarded = (plugin: object, inner: object) =>
        pathsOf(
          warningsOf(
            configOf([
              ["guarded", "/a/{x}", plugin],
              ["b", "/a/b", inner],
            ]),
          ),
        );
      expect(bypassed(key())).toEqual([]);
      expect(guarded(key("${env:KEY}"), key("${env:KEY}"))).toEqual([]);
      for (const other of ["${env:KEY}", `\${file:${join(folder, "a")}}`])
        expect(bypassed(key(other))).toEqual(["guard_bypassed:services.s.routes.guarded by services.s.routes.b"]);
      expect(guarded(key("${env:KEY}"), key("${env:TOKEN}"))).toEqual([
        "guard_bypassed:services.s.routes.guarded by services.s.routes.b",
      ]);
      expect(bypassed(key("other"))).toEqual(["guard_bypassed:services.s.routes.guarded by services.s.routes.b"]);
      expect(
        warningsOf(
          configOf([
            ["guarded", "/a/{x}", key()],
            ["b", "/a/b", key("other")],
          ]),
        )[0]!.message,
      ).toMatch(/takes some without the same key_auth \(/);
      const inFile = definePlugin({
        name: "in_file",
        schema: schema.object({ list: schema.file() }),
        guards: true,
        create: () => (next) => next,
      });
      const withFile = (name: string) => ({ name: "in_file", config: { list: join(folder, name) } });
      const compared = (name: string) =>
        pathsOf(
          warningsOf(
            configOf([
              ["guarded", "/a/{x}", withFile("a")],
              ["b", "/a/b", withFile(name)],
            ]),
            [inFile],
          ),
        );
      expect(compared("a")).toEqual([]);
      expect(compared("b")).toEqual(["guard_bypassed:services.s.routes.guarded by services.s.routes.b"]);
    },
  );

  it.each<[string, object]>([
    ["key_auth", { keys: [{ id: "a", key: "k" }] }],
    ["basic_auth", { username: "u", password: "p" }],
    ["jwt", { ...HMAC, aud: "a" }],
    ["mtls", {}],
    ["forward_auth", { url: "http://127.0.0.1:1/" }],
    ["introspection", { url: "http://127.0.0.1:1/", client_id: "a", client_secret: "s", scopes: ["x"] }],
    ["oidc", { issuer: "http://127.0.0.1:1", client_id: "a", client_secret: "s", session: { secret: "5".repeat(32) } }],
    ["acl", { whitelist: ["10.0.0.0/8"] }],
    ["request_termination", {}],
  ])("two guards of the kind %s with one configuration are the same, and one alone can be bypassed", (name, config) => {
    expect(
      warningsOf(
        configOf([
          ["guarded", "/a/{x}", { name, config }],
          ["b", "/a/b", { name, config }],
        ]),
      ),
    ).toEqual([]);
    expect(
      pathsOf(
        warningsOf(
          configOf([
            ["guarded", "/a/{x}", { name, config }],
            ["b", "/a/b"],
          ]),
        ),
      ),
    ).toEqual(["guard_bypassed:services.s.routes.guarded by services.s.routes.b"]);
  });

  it("a guard is the same in whatever order its members are written", () => {
    const jwt = (claims: object) => ({ name: "jwt", config: { ...HMAC, aud: "shop", claims } });
    const compared = (a: object, b: object, kinds: readonly AnyPlugin[] = []) =>
      pathsOf(
        warningsOf(
          configOf([
            ["a", "/a/{x}", a],
            ["b", "/a/b", b],
          ]),
          kinds,
        ),
      );
    expect(compared(jwt({ role: "admin", group: "g" }), jwt({ group: "g", role: "admin" }))).toEqual([]);
    expect(compared(jwt({ role: "admin" }), jwt({ role: "user" }))).toEqual([
      "guard_bypassed:services.s.routes.a by services.s.routes.b",
    ]);
  });

  it("no guard is missing where request_termination refuses all requests, as the remedy says", () => {
    const closed = { name: "request_termination", config: { status: 404 } };
    expect(
      warningsOf(
        configOf([
          ["a", "/a/{x}", key()],
          ["b", "/a/b", closed],
        ]),
      ),
    ).toEqual([]);
    expect(
      pathsOf(
        warningsOf(
          configOf([
            ["a", "/a/{x}", key(), closed],
            ["b", "/a/b", key()],
          ]),
        ),
      ),
    ).toEqual(["guard_bypassed:services.s.routes.a by services.s.routes.b"]);
    expect(
      pathsOf(
        warningsOf(
          configOf([
            ["a", "/a/{x}", key()],
            ["b", "/a/b", { ...closed, enabled: false }],
          ]),
        ),
      ),
    ).toEqual(["guard_bypassed:services.s.routes.a by services.s.routes.b"]);
  });

  it("the example of a plugin's warning is a request that its route takes", () => {
    const [warning] = warningsOf(
      configOf(
        [
          ["one", "/{id}", limit()],
          ["x", "/x", key(), limit()],
        ],
        { hosts: ["*.example.com"] },
      ),
    );
    expect(warning).toMatchObject({
      path: "services.s.routes.one.plugins.rate_limit",
      example: "GET http://x.example.com/x2",
    });
  });

  it("a disabled guard, a disabled cache and a disabled limit count for nothing", () => {
    const off = { enabled: false };
    expect(
      warningsOf(
        configOf(
          [
            ["guarded", "/a/{x}", key("k", off)],
            ["b", "/a/b"],
          ],
          { plugins: [{ ...cache, ...off }, limit("header:X", off)] },
        ),
      ),
    ).toEqual([]);
  });

  it("warnings are in the order of the configuration, and only the guards that are missing are named", () => {
    const other = { name: "mtls" };
    const services = [
      configOf([
        ["a", "/a/{x}", key(), other],
        ["b", "/a/b", other],
        ["c", "/c", limit()],
      ]).services[0]!,
      {
        ...configOf([
          ["d", "/d/{x*}"],
          ["e", "/d/{x}"],
          ["f", "/d/{x}/{y*}"],
        ]).services[0]!,
        name: "t",
      },
    ];
    const warnings = warningsOf({ services, global: { plugins: [limit("header:A", { id: "first" })] } });
    expect(pathsOf(warnings)).toEqual([
      "limit_by_any_header:global.plugins.first",
      "guard_bypassed:services.s.routes.a by services.s.routes.b",
      "limit_by_any_header:services.s.routes.c.plugins.rate_limit",
      "route_unreachable:services.t.routes.d",
    ]);
    expect(warnings[1]!.message).toMatch(/takes some without key_auth \(/);
  });

  it("guards at the service and the global level hold for all their routes", () => {
    expect(
      warningsOf(
        configOf(
          [
            ["a", "/a/{x}"],
            ["b", "/a/b"],
          ],
          { plugins: [key()] },
        ),
      ),
    ).toEqual([]);
    expect(
      warningsOf(
        configOf(
          [
            ["a", "/a/{x}"],
            ["b", "/a/b"],
          ],
          {},
          { plugins: [key()] },
        ),
      ),
    ).toEqual([]);
  });

  it("custom kinds guard, identify and store by what they say about themselves", () => {
    const custom = (name: string, roles: object) =>
      definePlugin({ name, schema: schema.object({}), create: () => (next) => next, ...roles });
    const kinds = [
      custom("door", { guards: true }),
      custom("badge", { identifies: true }),
      custom("shelf", { stores: true }),
    ];
    const config = configOf(
      [
        ["a", "/a/{x}", { name: "door" }, { name: "badge" }],
        ["b", "/a/b"],
      ],
      { plugins: [{ name: "shelf" }, limit("credential")] },
    );
    expect(pathsOf(warningsOf(config, kinds))).toEqual([
      "cache_outside_guard:services.s.plugins.shelf",
      "limit_before_identity:services.s.plugins.rate_limit",
      "guard_bypassed:services.s.routes.a by services.s.routes.b",
    ]);
  });

  it(
    "a cache further out than a guard has one warning however many routes have guards, " +
      "and says that it runs behind the guard",
    () => {
      const [warning, ...more] = warningsOf(
        configOf(
          [
            ["a", "/a", key()],
            ["b", "/b", key()],
          ],
          {},
          { plugins: [{ ...cache, id: "main" }] },
        ),
      );
      expect(more).toEqual([]);
      expect(warning).toMatchObject({
        code: "cache_outside_guard",
        path: "global.plugins.main",
        example: "GET http://localhost/a",
        service: null,
        route: null,
        at: ["global", "plugins", 0],
      });
      expect(warning!.message).toMatch(
        new RegExp(
          String.raw`^The plugin response_cache of the global level is written further out than ` +
            String.raw`key_auth of route "a" of service "s", .* runs it behind that guard all the ` +
            String.raw`same\.$`,
        ),
      );
      expect(warningsOf(configOf([["a", "/a", key(), cache]]))).toEqual([]);
    },
  );

  it(
    "a limit by credential is warned of only where a plugin of the route identifies the " +
      "caller later, and none before",
    () => {
      const told = (...plugins: object[]) => pathsOf(warningsOf(configOf([["a", "/a", ...plugins]])));
      const by = limit("credential");
      expect(told(by, key())).toEqual(["limit_before_identity:services.s.routes.a.plugins.rate_limit"]);
      expect(told(by, { name: "acl", config: { whitelist: ["10.0.0.0/8"] } })).toEqual([]);
      expect(told(key(), by, key("other"))).toEqual([]);
      expect(told(by)).toEqual([]);
    },
  );

  it(
    "limits of groups, and a concurrency, are warned of before the plugin that identifies the caller, " +
      "as a limit by credential is",
    () => {
      const own = definePlugin({
        name: "badge",
        schema: schema.object({}),
        identifies: true,
        create: () => (next) => next,
      });
      const told = (...plugins: object[]) =>
        warningsOf(configOf([["a", "/a", ...plugins]]), [own]).map(
          ({ code, message }) => `${code}: ${message.split(": ")[1]}`,
        );
      const groups = { name: "rate_limit", config: { limit_min: 5, limits_by_group: { gold: { limit_min: 9 } } } };
      const many = { name: "concurrency", config: { max_in_flight: 5 } };
      const named = { name: "badge" };
      expect(told(groups, named)).toEqual(["limit_before_identity: nobody has a group there."]);
      expect(told(many, key())).toEqual(["limit_before_identity: it counts by client address, not by credential."]);
      expect([told(named, groups), told(key(), many), told(many)]).toEqual([[], [], []]);
    },
  );

  it("an authorize without a plugin before it that identifies the caller is warned of, once, with the route", () => {
    const rules = { name: "authorize", config: { rules: [{ callers: ["a"] }] } };
    const told = (...plugins: object[]) =>
      pathsOf(
        warningsOf(
          configOf([
            ["a", "/a", ...plugins],
            ["b", "/b", ...plugins],
          ]),
        ),
      );
    const both = [
      "authorize_before_identity:services.s.routes.a.plugins.authorize",
      "authorize_before_identity:services.s.routes.b.plugins.authorize",
    ];
    expect([
      told(rules),
      told(rules, key()),
      told({ name: "acl", config: { whitelist: ["10.0.0.0/8"] } }, rules),
    ]).toEqual([both, both, both]);
    expect(told(key(), rules)).toEqual([]);
    const [warning, ...more] = warningsOf(
      configOf(
        [
          ["a", "/a", key()],
          ["b", "/b"],
        ],
        { plugins: [rules] },
      ),
    ).filter(({ code }) => code === "authorize_before_identity");
    expect(more).toEqual([]);
    expect(warning).toMatchObject({ path: "services.s.plugins.authorize", example: "GET http://localhost/a" });
    expect(warning!.message).toBe(
      'The plugin authorize of service "s" runs on route "a" of service "s" before any plugin that identifies ' +
        "the caller: no rule about callers, groups or claims holds there.",
    );
  });

  it("an mcp without a plugin before it that identifies the caller is warned of, and a route around it", () => {
    const tools = { name: "mcp", config: { tools: ["search"] } };
    const told = (...plugins: object[]) => pathsOf(warningsOf(configOf([["a", "/a", ...plugins]])));
    expect([told(tools), told(tools, key())]).toEqual([
      ["mcp_before_identity:services.s.routes.a.plugins.mcp"],
      ["mcp_before_identity:services.s.routes.a.plugins.mcp"],
    ]);
    expect(told(key(), tools)).toEqual([]);
    // Both lead to the path /mcp of the server.
    const around = configOf([["a", "/mcp", key(), tools]]);
    const other = {
      ...around.services[0]!,
      name: "t",
      base_path: "/t",
      routes: [{ name: "b", path: "/mcp", plugins: [key()] }],
    };
    expect(pathsOf(warningsOf({ ...around, services: [around.services[0]!, other] } as never))).toEqual([
      "guard_bypassed:services.s.routes.a by services.t.routes.b",
    ]);
  });

  it("an identity_token before the plugin that identifies the caller is warned of, and none elsewhere", () => {
    const token = { name: "identity_token", config: { key: "ed25519.pem", audience: "s" } };
    const told = (...plugins: object[]) => pathsOf(warningsOf(configOf([["a", "/a", ...plugins]])));
    expect(told(token, key())).toEqual(["token_before_identity:services.s.routes.a.plugins.identity_token"]);
    expect([
      told(key(), token),
      told(token),
      told(key(), token, { name: "basic_auth", config: { username: "u", password: "p" } }),
    ]).toEqual([[], [], []]);
  });

  it("two oidc are warned of whose cookies replace each other under a common host", () => {
    const login = (cookie: string, client_id = "one", issuer = "https://id.test") => ({
      name: "oidc",
      config: { issuer, client_id, client_secret: "c", session: { secret: HMAC.secret, cookie } },
    });
    const told = (one: object, other: object, hosts: readonly (readonly string[])[] = [[], []]) => {
      const services = [one, other].map((plugin, i) => ({
        ...oneService(9, {
          name: `s${i}`,
          base_path: `/${i}`,
          hosts: hosts[i],
          plugins: [plugin],
          routes: [{ path: "/a" }, { path: "/b" }],
        } as never).services![0],
      }));
      return pathsOf(warningsOf({ services })).filter((text) => text.startsWith("session_cookie_shared"));
    };
    const found = ["session_cookie_shared:services.s1.plugins.oidc"];
    for (const other of [login("a", "two"), login("a", "one", "https://other.test"), login("a.b")])
      expect([told(login("a"), other), told(other, login("a"))]).toEqual([found, found]);
    for (const other of [login("a"), login("ab", "two"), login("b", "two")])
      expect(told(login("a"), other)).toEqual([]);
    const hosts = (one: string, other: string) => told(login("a"), login("a", "two"), [[one], ["x.test", other]]);
    expect([hosts("a.test", "a.test"), hosts("*.b.test", "a.b.test"), hosts("a.b.test", "*.b.test")]).toEqual([
      found,
      found,
      found,
    ]);
    expect([hosts("a.test", "b.test"), hosts("*.b.test", "b.test")]).toEqual([[], []]);
  });

  it("a group that no caller has is warned of, unless tokens or plugins of one's own can name groups", () => {
    const callers = { callers: [{ id: "ada", groups: ["gold"], keys: [{ key: "k-ada" }] }] };
    const [keys, token] = [
      { name: "key_auth", config: { callers: true } },
      { name: "jwt", config: { ...HMAC, aud: "s" } },
    ];
    const limits = (...groups: string[]) => ({
      name: "rate_limit",
      config: { limit_min: 5, limits_by_group: Object.fromEntries(groups.map((group) => [group, { limit_min: 9 }])) },
    });
    const rules = (...groups: string[]) => ({
      name: "authorize",
      config: { rules: [{ groups }, { callers: ["ada"] }] },
    });
    const told = (root: object, kinds: readonly AnyPlugin[], ...plugins: object[]) =>
      warningsOf({ ...configOf([["a", "/a", ...plugins]]), ...root }, kinds).map(
        ({ code, message }) => `${code}: ${message}`,
      );
    const group = (kind: string, text: string) =>
      `group_unknown: The plugin ${kind} of route "a" of service "s" names the group ${text}, which no caller has.`;
    expect(told(callers, [], keys, limits("gold"), rules("gold"))).toEqual([]);
    expect(told(callers, [], keys, limits("golden", "gold"), rules("gold"))).toEqual([group("rate_limit", '"golden"')]);
    expect(told(callers, [], keys, limits("gold"), rules("gold", "a", "b", "a"))).toEqual([
      group("authorize", '"a" and 1 more'),
    ]);
    const tools = { name: "mcp", config: { tools: [], tools_by_group: { golden: ["a"], gold: ["b"] } } };
    expect(told(callers, [], keys, tools)).toEqual([group("mcp", '"golden"')]);
    expect(told({}, [], token, limits("gold"))).toEqual([group("rate_limit", '"gold"')]);
    const own = definePlugin({
      name: "badge",
      schema: schema.object({}),
      identifies: true,
      create: () => (next) => next,
    });
    expect(told({}, [own], { name: "badge" }, limits("gold"))).toEqual([]);
    expect(
      told({}, [], { name: "jwt", config: { ...HMAC, aud: "s", groups_claim: "groups" } }, limits("gold"), rules("x")),
    ).toEqual([]);
  });

  it("warns of names of callers that come from two places, once for each, and only where there are callers", () => {
    const callers = { callers: [{ id: "ada", keys: [{ key: "k-ada" }] }] };
    const keys = { name: "key_auth", config: { callers: true } };
    const token = (iss: string) => ({ name: "jwt", config: { ...HMAC, aud: "s", iss } });
    const told = (root: object, ...routes: object[]) =>
      warningsOf({ ...configOf(routes.map((plugin, i) => [`r${i}`, `/r${i}`, plugin])), ...root })
        .filter(({ code }) => code === "names_mixed")
        .map(({ path, message }) => `${path}: ${message.split(" take ")[0]}`);
    expect(told(callers, keys, token("a"), token("b"), token("b"))).toEqual([
      'services.s.routes.r1.plugins.jwt: The plugin jwt of route "r1" of service "s" and key_auth of ' +
        'route "r0" of service "s"',
      'services.s.routes.r2.plugins.jwt: The plugin jwt of route "r2" of service "s" and key_auth of ' +
        'route "r0" of service "s"',
    ]);
    expect(told(callers, keys, keys, { name: "acl", config: { whitelist: ["10.0.0.0/8"] } })).toEqual([]);
    expect(told({}, key(), token("a"))).toEqual([]);
    const password = { name: "basic_auth", config: { users: [{ username: "ada", password: "p" }] } };
    expect(told(callers, keys, password, key())).toEqual([]);
  });

  it("warns of a limit by a header before every guard, at any level, and of no other limits", () => {
    const told = (global: object[], service: object[], route: object[]) =>
      pathsOf(warningsOf(configOf([["x", "/x", ...route]], { plugins: service }, { plugins: global })));
    const at = (place: string) => `limit_by_any_header:${place}.plugins.rate_limit`;
    expect(told([limit()], [limit()], [limit()])).toEqual([at("global"), at("services.s"), at("services.s.routes.x")]);
    expect(told([limit(), key()], [limit()], [limit()])).toEqual([at("global")]);
    expect(told([], [key("k", { enabled: false }), limit()], [key(), limit()])).toEqual([at("services.s")]);
    expect(told([key()], [limit()], [limit()])).toEqual([]);
    expect(
      told([], [], [limit("client_ip"), limit("credential"), limit("all"), limit("header:X", { enabled: false })]),
    ).toEqual([]);
  });

  it("injected faults come first, one warning for each plugin, which says what happens to how many requests", () => {
    const fault = (config: object, more: object = {}) => ({ name: "fault", config, ...more });
    const plugins = [fault({ percent: 2.5, delay_ms: 250, status: 503 }, { id: "slow" })];
    const config = configOf(
      [["x", "/x", fault({ delay_ms: 10, match: { query: { slow: true } } }), limit()]],
      { plugins },
      { plugins: [limit(), fault({ status: 429 })] },
    );
    expect(
      warningsOf(config)
        .slice(0, 3)
        .map(({ code, path, message, example }) => [code, path, message, example]),
    ).toEqual([
      [
        "faults_injected",
        "global.plugins.fault",
        "Faults are injected by fault of the global level: 100 % of its requests get 429.",
        "GET http://localhost/x",
      ],
      [
        "faults_injected",
        "services.s.plugins.slow",
        'Faults are injected by fault of service "s": 2.5 % of its requests wait 250 ms and get 503.',
        "GET http://localhost/x",
      ],
      [
        "faults_injected",
        "services.s.routes.x.plugins.fault",
        'Faults are injected by fault of route "x" of service "s": 100 % of its requests that match wait 10 ms.',
        "GET http://localhost/x",
      ],
    ]);
    expect(pathsOf(warningsOf(config)).slice(3)).toEqual([
      "limit_by_any_header:global.plugins.rate_limit",
      "limit_by_any_header:services.s.routes.x.plugins.rate_limit",
    ]);
    expect(
      warningsOf(
        configOf([["x", "/x", fault({ status: 500 }, { enabled: false }), fault({ status: 500, percent: 0 })]]),
      ),
    ).toEqual([]);
  });

  it.each<[string, string, object, object]>([
    ["its own host and path", "/{rest*}", { location: "https://${request.host}${request.path}" }, {}],
    ["its own pattern", "/items/{id}", { location: "/items/{id}" }, {}],
    ["a path that no other route takes", "/{rest*}", { location: "/login" }, {}],
    [
      "a host of its service",
      "/{rest*}",
      { location: "https://shop.example.com/{rest}" },
      { hosts: ["shop.example.com"] },
    ],
  ])("warns of a redirect that leads to its own route: %s", (_what, path, config, parts) => {
    const redirect = { name: "redirect", config };
    expect(pathsOf(warningsOf(configOf([["r", path, redirect]], parts)))).toEqual([
      "redirect_loop:services.s.routes.r.plugins.redirect",
    ]);
    expect(
      pathsOf(
        warningsOf(configOf([["r", path]], { ...parts, plugins: [redirect] })).filter(
          () => !JSON.stringify(config).includes("{id}"),
        ),
      ),
    ).toEqual(JSON.stringify(config).includes("{id}") ? [] : ["redirect_loop:services.s.plugins.redirect"]);
  });

  it.each<[string, string, object, object?]>([
    ["another path", "/items/{id}", { location: "/things/{id}" }],
    ["another host", "/{rest*}", { location: "https://new.example.com/{rest}" }],
    ["a path that another route takes", "/{rest*}", { location: "/open" }],
    ["a POST that becomes a GET", "/{rest*}", { location: "${request.path}", status: 303 }, { methods: ["POST"] }],
  ])("does not warn of a redirect that leads to %s", (_what, path, config, parts = {}) => {
    const routes = [
      { name: "r", path, plugins: [{ name: "redirect", config }], ...parts },
      { name: "open", path: "/open" },
    ];
    expect(pathsOf(warningsOf(oneService(9, { base_path: "/", routes } as never)))).toEqual([]);
  });

  it("a jwt needs aud, also beside iss", () => {
    const told = (more: object) =>
      pathsOf(warningsOf(configOf([["a", "/a", { name: "jwt", config: { ...HMAC, ...more } }]])));
    const warning = ["token_for_anyone:services.s.routes.a.plugins.jwt"];
    for (const more of [
      {},
      { iss: "https://issuer.example.com" },
      { claims: { iss: "https://issuer.example.com" } },
      { claims: { role: "admin" } },
    ])
      expect(told(more)).toEqual(warning);
    expect(told({ resource_metadata: { ...RESOURCE, audience: "any" } })).toEqual(warning);
    for (const more of [{ aud: "shop" }, { claims: { aud: "shop" } }, { resource_metadata: RESOURCE }])
      expect(told(more)).toEqual([]);
  });

  it("an introspection needs scopes or claims", () => {
    const server = { url: "http://127.0.0.1:1/", client_id: "a", client_secret: "s" };
    const told = (more: object) =>
      pathsOf(warningsOf(configOf([["a", "/a", { name: "introspection", config: { ...server, ...more } }]])));
    for (const more of [{}, { claims: {} }, { claims_to_headers: { sub: "X-User" } }])
      expect(told(more)).toEqual(["token_for_anyone:services.s.routes.a.plugins.introspection"]);
    const [scopes, claims] = [["orders"], { aud: "shop" }];
    for (const more of [{ scopes }, { claims }, { claims: { client_id: "app" } }, { resource_metadata: RESOURCE }])
      expect(told(more)).toEqual([]);
  });

  it("a guard must not fail open, and the warning can be accepted", () => {
    const url = "http://127.0.0.1:1/";
    const plugins = [
      { name: "forward_auth", config: { url, on_error: "allow" } },
      { name: "introspection", config: { url, client_id: "a", client_secret: "s", scopes: ["x"], on_error: "allow" } },
      { name: "forward_auth", id: "safe", config: { url, on_error: "deny" } },
    ];
    const [first, second, ...more] = warningsOf(configOf([["a", "/a", ...plugins]]));
    expect(pathsOf([first!, second!])).toEqual([
      "guard_fails_open:services.s.routes.a.plugins.forward_auth",
      "guard_fails_open:services.s.routes.a.plugins.introspection",
    ]);
    expect([first!.example, more]).toEqual(["GET http://localhost/a", []]);
    expect(
      warningsOf(
        configOf(
          [["a", "/a", ...plugins]],
          {},
          { accept_warnings: pathsOf(warningsOf(configOf([["a", "/a", ...plugins]]))) },
        ),
      ),
    ).toEqual([]);
  });

  it("a limit by a header needs a guard before it; bot_protection is none", () => {
    const bot = { name: "bot_protection", config: { blacklist: ["x"] } };
    const told = (...before: object[]) =>
      pathsOf(warningsOf(configOf([["a", "/a", ...before, limit("header:X-Tenant")]])));
    expect([told(bot), told(key())]).toEqual([["limit_by_any_header:services.s.routes.a.plugins.rate_limit"], []]);
    expect(
      warningsOf(
        configOf([
          ["guarded", "/a/{x}", bot],
          ["b", "/a/b"],
        ]),
      ),
    ).toEqual([]);
  });

  it.each([
    [{ name: "forward_auth", config: { url: "URL" } }],
    [{ name: "introspection", config: { url: "URL", client_id: "a", client_secret: "s", scopes: ["x"] } }],
    [
      {
        name: "oidc",
        config: { issuer: "URL", client_id: "a", client_secret: "s", session: { secret: "5".repeat(32) } },
      },
    ],
    [{ name: "http_log", config: { http_endpoint: "URL" } }],
    [{ name: "mirror", config: { url: "URL" } }],
    [{ name: "jwt", config: { jwks_uri: "URL", alg: "RS256", aud: "a" } }],
  ])("$name must not reach another machine over plain HTTP", (plugin) => {
    const told = (url: string) =>
      warningsOf(configOf([["a", "/a", JSON.parse(JSON.stringify(plugin).replace("URL", url)) as object]])).map(
        ({ code }) => code,
      );
    for (const url of [
      "http://auth.example.com/x",
      "http://10.0.0.1:8080/",
      "http://[::2]/",
      "http://localhost.example.com/",
    ])
      expect(told(url), url).toEqual(["plain_http_secret"]);
    for (const url of ["https://auth.example.com/", "http://localhost:1/", "http://127.1.2.3/", "http://[::1]:80/"])
      expect(told(url), url).toEqual([]);
  });

  it("headers of the PROXY protocol should not be optional", () => {
    const told = (proxy_protocol: string) =>
      warningsOf(configOf([], {}, { trusted_proxies: ["10.0.0.7"], proxy_protocol }));
    expect(told("accept")).toMatchObject([{ code: "proxy_header_optional", path: "global.proxy_protocol" }]);
    for (const mode of ["off", "require"]) expect(told(mode)).toEqual([]);
    // No header is taken.
    expect(warningsOf(configOf([], {}, { proxy_protocol: "accept" }))).toEqual([]);
  });

  it("global.counters must not send a password to another machine without TLS", () => {
    const told = (url: string | string[], more: object = {}) =>
      pathsOf(warningsOf(configOf([], {}, { counters: { store: "redis", url }, ...more })));
    const remote = [
      "redis://gateway:hunter2@10.0.0.7",
      "redis://:hunter2@redis.internal:6380/2",
      "redis://a:hunter2@[fd00::1]",
      "redis://a:hunter2@localhost.example.com",
    ];
    for (const url of remote) expect(told(url), url).toEqual(["plain_http_secret:global.counters"]);
    for (const url of [
      "redis://10.0.0.7",
      "rediss://a:hunter2@10.0.0.7",
      "redis://a:hunter2@LOCALHOST",
      "redis://a:hunter2@127.0.0.2",
      "redis://a:hunter2@[::1]:6379",
    ])
      expect(told(url), url).toEqual([]);
    expect(
      told(["redis://a:hunter2@127.0.0.1", "redis://a:hunter2@10.0.0.8:7000", "redis://a:hunter2@10.0.0.9"]),
    ).toEqual(["plain_http_secret:global.counters"]);
    expect(told(remote[0]!, { accept_warnings: ["plain_http_secret:global.counters"] })).toEqual([]);
    expect(told(remote[0]!, { accept_warnings: ["plain_http_secret:global"] })).toEqual([
      "plain_http_secret:global.counters",
      "stale_acceptance:global.accept_warnings[0]",
    ]);
  });

  it("secrets in request_headers of an upstream must not reach another machine over plain HTTP", () => {
    const told = (host: string, header: object, parts: object = {}) => {
      const upstreams = [
        { host: "127.0.0.1", port: 1, request_headers: { "X-Api-Key": "k" } },
        ...["a", "b"].map((id) => ({ id, host, port: 8080, request_headers: header })),
      ];
      return warningsOf(configOf([["a", "/a"]], { upstreams, ...parts }));
    };
    const [secret, open] = [{ Authorization: "${env:TOKEN}" }, { "X-Tenant": "gold" }];
    for (const host of ["api.example.com", "10.0.0.7", "localhost.example.com", "fd00::1"])
      expect(pathsOf(told(host, secret)), host).toEqual(["plain_http_secret:services.s"]);
    expect(pathsOf(told("10.0.0.7", { "X-Tenant": "${env:TOKEN}" }, { protocol: "h2c" }))).toEqual([
      "plain_http_secret:services.s",
    ]);
    for (const host of ["localhost", "127.0.0.2", "::1"]) expect(told(host, secret), host).toEqual([]);
    expect(told("10.0.0.7", open)).toEqual([]);
    for (const protocol of ["https", "h2"]) expect(told("10.0.0.7", secret, { protocol })).toEqual([]);
    const [warning] = told("fd00::1", secret);
    expect(warning).toEqual({
      code: "plain_http_secret",
      path: "services.s",
      message:
        'Service "s" sends Authorization of upstream "a" over plain HTTP ([fd00::1]:8080): ' +
        "anyone on the network between can read it.",
      example: null,
      remedy: 'Use "https" or "h2" as the protocol, or reach the upstream through a proxy on this machine.',
      service: "s",
      route: null,
      at: ["services", 0, "upstreams", 1, "request_headers"],
    });
  });

  it("the warning about the password of global.counters names the server and its place, not the password", () => {
    const counters = { store: "redis", url: ["redis://a:hunter2@localhost", "redis://a:hunter2@[fd00::1]:7000"] };
    expect(warningsOf(configOf([], {}, { counters }))).toEqual([
      {
        code: "plain_http_secret",
        path: "global.counters",
        message:
          "global.counters sends its password without TLS ([fd00::1]:7000): anyone on the network between can read it.",
        example: null,
        remedy: "Use a rediss:// URL, or reach the server through a proxy on this machine.",
        service: null,
        route: null,
        at: ["global", "counters"],
      },
    ]);
  });

  it("an entry accepts the warning of its code and path, and none that begins with it", () => {
    const plugins = [limit("header:A", { id: "l" })];
    const left = (...entries: string[]) =>
      pathsOf(
        warningsOf(
          configOf(
            [["x", "/x", limit()]],
            { plugins },
            { plugins, accept_warnings: entries.map((entry) => `limit_by_any_header:${entry}`) },
          ),
        ),
      ).map((text) => text.replace("limit_by_any_header:", ""));
    const all = ["global.plugins.l", "services.s.plugins.l", "services.s.routes.x.plugins.rate_limit"];
    expect(left()).toEqual(all);
    expect(left(...all)).toEqual([]);
    expect(left("services.s.plugins.l")).toEqual([all[0], all[2]]);
    expect(left("global", "services.s")).toEqual([
      ...all,
      "stale_acceptance:global.accept_warnings[0]",
      "stale_acceptance:global.accept_warnings[1]",
    ]);
  });

  it("an accepted bypass is that of two routes: a later route that bypasses the same guards is a warning", () => {
    const accept_warnings = ["guard_bypassed:services.s.routes.guarded by services.s.routes.open"];
    const found = (...more: readonly (readonly [string, string])[]) =>
      pathsOf(warningsOf(configOf([["guarded", "/{x*}", key()], ["open", "/open"], ...more], {}, { accept_warnings })));
    expect(found()).toEqual([]);
    expect(found(["later", "/later"])).toEqual(["guard_bypassed:services.s.routes.guarded by services.s.routes.later"]);
    const taking = Array.from({ length: 30 }, (_, i) => [`r${i}`, `/r${i}`] as const);
    const all = taking.map(([name]) => `guard_bypassed:services.s.routes.guarded by services.s.routes.${name}`);
    const left = (...entries: readonly string[]) =>
      pathsOf(warningsOf(configOf([["guarded", "/{x*}", key()], ...taking], {}, { accept_warnings: entries })));
    expect(left(...all.slice(0, 15))).toEqual(all.slice(15, 25));
    expect(left(...all.slice(10))).toEqual(all.slice(0, 10));
    expect(left(...all)).toEqual([]);
    expect(left(...all, `${all[0]}x`)).toEqual(["stale_acceptance:global.accept_warnings[30]"]);
  });

  it(
    "an entry that names only the guarded route, or the place of plugins, " + "accepts nothing and says what to write",
    () => {
      const config = (...accept_warnings: string[]) =>
        configOf(
          [
            ["guarded", "/g/{x*}", key()],
            ["a", "/g/a"],
            ["b", "/b", limit()],
          ],
          {},
          { accept_warnings },
        );
      const warnings = warningsOf(
        config("guard_bypassed:services.s.routes.guarded", "limit_by_any_header:services.s.routes.b"),
      );
      const bypass = "guard_bypassed:services.s.routes.guarded by services.s.routes.a";
      const ofLimit = "limit_by_any_header:services.s.routes.b.plugins.rate_limit";
      expect(pathsOf(warnings).slice(0, 2)).toEqual([bypass, ofLimit]);
      expect(warnings.slice(2).map(({ code, remedy }) => [code, remedy])).toEqual([
        ["stale_acceptance", `Write instead, for each that is intended: "${bypass}".`],
        ["stale_acceptance", `Write instead, for each that is intended: "${ofLimit}".`],
      ]);
      expect(warningsOf(config(bypass, ofLimit))).toEqual([]);
    },
  );

  it("an entry that accepts nothing is a warning itself, which names its place and cannot be accepted", () => {
    const accept_warnings = [
      "token_for_anyone:global",
      "limit_by_any_header:services.s.routes.x.plugins.rate_limit",
      "limit_by_any_header:services.s",
    ];
    const stale = warningsOf(configOf([["x", "/x", limit()]], {}, { accept_warnings }));
    expect(stale.map(({ code, path, at, service }) => [code, path, at, service])).toEqual([
      ["stale_acceptance", "global.accept_warnings[0]", ["global", "accept_warnings", 0], null],
      ["stale_acceptance", "global.accept_warnings[2]", ["global", "accept_warnings", 2], null],
    ]);
    expect(stale[0]).toMatchObject({
      message: 'global.accept_warnings has "token_for_anyone:global", and there is no such warning.',
      remedy: "Remove the entry, or correct the path: it is the one that the warning names.",
    });
  });

  it("statuses to retry are reported for each route whose methods are never sent again after a response", () => {
    const found = (on: unknown[], more: object = {}) =>
      warningsOf(
        oneService(9, {
          base_path: "/",
          retries: { attempts: 2, on, ...more },
          routes: [
            { name: "post", path: "/a", methods: ["POST", "PATCH"] },
            { name: "put", path: "/a", methods: ["PUT"] },
            { name: "any", path: "/b" },
          ],
        } as never),
      );
    expect(found(["connect", 502, 503])).toMatchObject([
      {
        code: "retries_unused",
        path: "services.s.routes.post",
        message:
          '502, 503 in "retries.on" of service "s" never applies to route "post" of service "s": ' +
          "POST, PATCH might be done twice, so such a request is not sent again after a response.",
        example: "POST http://localhost/a",
      },
    ]);
    expect(found(["connect", "reset", "timeout"])).toEqual([]);
    expect(found([503], { attempts: 0 })).toEqual([]);
    expect(found([503], { methods: ["GET", "PATCH"] }).map(({ path }) => path)).toEqual(["services.s.routes.put"]);
  });

  it("two routes of one path that divide its methods and have their own guards do not bypass each other", () => {
    const orders = (name: string, methods: readonly string[], ...plugins: object[]) => ({
      name,
      path: "/orders",
      methods,
      plugins,
    });
    const found = (...routes: object[]) => pathsOf(warningsOf(oneService(9, { base_path: "/", routes } as never)));
    const bypass = (...[guarded, taker]: string[]) =>
      `guard_bypassed:services.s.routes.${guarded} by services.s.routes.${taker}`;
    const jwt = { name: "jwt", config: { ...HMAC, aud: "a" } };
    expect(found(orders("read", ["GET"], key("r")), orders("write", ["POST", "PUT"], key("w")))).toEqual([]);
    expect(found(orders("read", ["GET"], key()), orders("write", ["POST"], jwt))).toEqual([]);
    const [read, write] = [orders("read", ["GET"]), orders("write", ["POST"], key())];
    expect(found(read, write)).toEqual([bypass("write", "read")]);
    expect(found(orders("read", ["GET"], key()), orders("write", ["POST"], key(), jwt))).toEqual([
      bypass("write", "read"),
    ]);
    expect(found(orders("read", ["GET"], key()), orders("head", ["HEAD"], jwt))).toEqual([
      bypass("read", "head"),
      bypass("head", "read"),
    ]);
  });

  it.each([
    ["guard_bypased:services.s", /did you mean "guard_bypassed"\?/],
    ["upstream_down:services.s", /the codes are route_unreachable, guard_bypassed, /],
    ["stale_acceptance:global", /the codes are/],
    ["faults_injected:global", /the codes are/],
    ["guard_bypassed", /add what the warning is about: "guard_bypassed:services\.NAME\.routes\.NAME"/],
    ["guard_bypassed:", /add what the warning is about/],
  ])("refuses to accept %s, and says what to write", (entry, message) => {
    const result = loadConfig(
      { value: configOf([], {}, { accept_warnings: [entry] }) },
      { kinds: builtinPlugins, environment: {} },
    );
    if (result.ok) throw new Error("accepted");
    expect(result.issues[0]!.at).toEqual(["global", "accept_warnings", 0]);
    expect(result.issues[0]!.message).toMatch(message);
  });

  it("gives the same warnings in slices, between which other work runs", async () => {
    const config = loaded(
      configOf(
        Array.from(
          { length: 3_000 },
          (_, i) =>
            [`r${i}`, i % 2 === 0 ? `/{a}/{b}/r${i}` : `/r${i}/{b}/{c}`, ...(i % 2 === 0 ? [key()] : [])] as const,
        ),
      ),
    );
    let slices = 0;
    const next = createTimeSlices();
    const warnings = await configWarningsInSlices(config, undefined, () => (slices++, next()));
    expect(warnings).toEqual(configWarnings(config));
    expect(warnings.length).toBe(15_000);
    expect(slices).toBeGreaterThan(1);
  });
});

describe("what was proved of the configuration before", () => {
  it("never changes the warnings, whatever differs between the two", async () => {
    const { pick, int } = random(11);
    const lists = [[], [key("a")], [key("b")], [key("a"), key("b")], [{ name: "request_termination" }], [limit()]];
    const made = (name: string) => ({
      name,
      base_path: pick(["/", "/x"]),
      upstreams: [{ host: "127.0.0.1", port: pick([1, 2]) }],
      plugins: pick(lists),
      routes: Array.from({ length: int(1, 2) }, (_none, i) => ({
        name: `r${i}`,
        path: `/${i}${pick(["/{rest*}", `/${name}/{id}`, `/{first}/${name}`])}`,
        plugins: pick(lists),
      })),
    });
    const names = ["a", "b", "c"];
    const memory = { kept: null };
    const proofs = new Set<unknown>();
    const ofServices = new Map<string, Service>();
    let last: Config["global"] | null = null;
    let services = names.map(made);
    let [tried, told] = [0, 0];
    while (tried < 500) {
      const changed = int(0, 2);
      const one = services[changed]!;
      // Another key is another guard; the same guards, wherever they are, leave what was proved.
      const otherKey = JSON.parse(
        JSON.stringify(one).replaceAll(/"key":"\w+"/g, `"key":"k${int(0, 3)}"`),
      ) as typeof one;
      const at = int(0, one.routes.length - 1);
      const otherPlugins = { ...one, routes: one.routes.with(at, { ...one.routes[at]!, plugins: pick(lists) }) };
      const next = pick([
        names.map(made),
        services.with(changed, made(names[changed]!)),
        services.with(changed, otherKey),
        ...[1, 2, 3].map(() => services.with(changed, otherPlugins)),
      ]);
      const loaded = loadConfig({ value: { services: next } }, { kinds: builtinPlugins, environment: {}, checkRoutes });
      // Two services have one route.
      if (!loaded.ok) continue;
      services = next;
      // As after a reload: a service that has not changed is the same object.
      const { config } = loaded;
      const same = config.services.map((each) => ofServices.get(JSON.stringify(each)) ?? each);
      for (const each of same) ofServices.set(JSON.stringify(each), each);
      const global: Config["global"] = last ?? config.global;
      last = global;
      const result = { ...loaded, config: { ...config, global, services: same } };
      const found = await configWarningsInSlices(result, memory, async () => {});
      expect(found).toEqual(configWarnings(result));
      proofs.add(memory.kept);
      tried++;
      told += found.length;
    }
    expect(told).toBeGreaterThan(100);
    // Some were taken over, others were not.
    expect(proofs.size).toBeGreaterThan(50);
    expect(proofs.size).toBeLessThan(480);
  });

  it(
    "is taken over without a look at the guards of services that have not changed, " + "where one has another key",
    async () => {
      const made = (name: string, value: string) => ({
        name,
        base_path: `/${name}`,
        upstreams: [{ host: "127.0.0.1", port: 1 }],
        routes: [{ path: "/{rest*}", plugins: [key(value)] }],
      });
      const load = (services: AnyConfigInput["services"]) => loaded({ services });
      const before = load([made("a", "1"), made("b", "2"), made("c", "3")]);
      const memory = { kept: null };
      const slice = async () => {};
      await configWarningsInSlices(before, memory, slice);
      const { kept } = memory;
      for (const { routes } of atOnce(written(before)).services)
        for (const route of routes)
          Object.defineProperty(route, "guardNames", { get: () => expect.unreachable("asked") });
      const withAnother = (value: string) => {
        const next = load([made("a", "1"), made("b", value), made("c", "3")]);
        const { services, global } = before.config;
        return { ...next, config: { ...next.config, global, services: services.with(1, next.config.services[1]!) } };
      };
      await configWarningsInSlices(withAnother("4"), memory, slice);
      expect(memory.kept).toBe(kept);
      // The key of another service is an equal guard there.
      await expect(configWarningsInSlices(withAnother("3"), memory, slice)).rejects.toThrow("asked");
    },
  );
});

describe("the gateway's configWarnings", () => {
  it(
    "name an open route by which a request reaches the same path of the same " + "upstream as by a guarded one",
    async () => {
      const { port: upstream, seen } = await backend();
      const service = (name: string, path: string, more: object = {}) => ({
        name,
        base_path: `/${name}`,
        upstreams: [{ host: "127.0.0.1", port: upstream }],
        routes: [{ name: "all", path, ...more }],
      });
      const { gateway, port } = await running({
        services: [service("shop", "/admin/{rest*}", { plugins: [key()] }), service("legacy", "/{rest*}")],
      } as never);
      expect(gateway.configWarnings).toMatchObject([
        {
          code: "guard_bypassed",
          path: "services.shop.routes.all by services.legacy.routes.all",
          message:
            'What route "all" of service "shop" leads to can be reached without its guards: ' +
            'route "all" of service "legacy" leads to the same path of the same upstream without key_auth.',
          example: "GET http://localhost/legacy/admin/x",
        },
      ]);
      expect((await ask(port, { path: "/shop/admin/x" })).status).toBe(401);
      expect((await ask(port, { path: "/legacy/admin/x" })).status).toBe(200);
      expect((await ask(port, { path: "/shop/admin/x?apiKey=k" })).status).toBe(200);
      expect(seen.map(({ url }) => url.replace(/\?.*/, ""))).toEqual(["/admin/x", "/admin/x"]);
    },
  );

  it(
    "know one upstream by another spelling of its address, " +
      "and leave out routes that answer every request themselves",
    () => {
      const service = (name: string, host: string, plugins: object[], port = 80) => ({
        name,
        base_path: `/${name}`,
        upstreams: [{ host, port }],
        routes: [{ name: "r", path: "/x", plugins }],
      });
      const told = (...others: object[]) =>
        pathsOf(warningsOf({ services: [service("a", "127.0.0.1", [key()]), ...others] }));
      const bypassed = ["guard_bypassed:services.a.routes.r by services.b.routes.r"];
      for (const host of ["127.0.0.1", "localhost", "LOCALHOST.", "::1", "0:0:0:0:0:0:0:1"])
        expect(told(service("b", host, [])), host).toEqual(bypassed);
      for (const host of ["127.0.0.2", "localhost.example.com", "::2"])
        expect(told(service("b", host, [])), host).toEqual([]);
      expect(told(service("b", "127.0.0.1", [], 81))).toEqual([]);
      expect(told(service("b", "localhost", [{ name: "redirect", config: { location: "/" } }]))).toEqual([]);
      expect(told(service("b", "localhost", [{ name: "request_termination" }]))).toEqual([]);
    },
  );

  it("say that a route may take requests of a guarded one where they cannot all be tried", () => {
    const named = (path: string) =>
      path.replace(
        /\{\}/g,
        (() => {
          let i = 0;
          return () => `{p${i++}}`;
        })(),
      );
    const pairs = Array.from({ length: 24 }, (_, i) => Array.from({ length: 24 }, (_, j) => [i, j] as const))
      .flat()
      .filter(([i, j]) => j > i && (i * 7 + j * 11) % 5 < 3);
    const others = pairs.map(([i, j], n) => ({
      name: `p${n}`,
      path: named(Array.from({ length: 24 }, (_, at) => (at === i || at === j ? "/x" : "/{}")).join("")),
      plugins: [key()],
    }));
    const parts = { base_path: "/", upstreams: [{ host: "127.0.0.1", port: 80 }] };
    const accepting = {
      ...parts,
      name: "s",
      encoded_slashes: "allow",
      routes: [
        { name: "guarded", path: named("/{}".repeat(24)), plugins: [key()] },
        { name: "open", path: named("/{}/x".repeat(8)) },
      ],
    };
    const warning = warningsOf({ services: [accepting, { ...parts, name: "t", routes: others }] }).find(
      ({ path }) => path === "services.s.routes.guarded by services.s.routes.open",
    );
    expect(warning).toMatchObject({ code: "guard_bypassed", example: null });
    expect(warning!.message).toMatch(
      new RegExp(
        String.raw`route "open" of service "s" may take some without key_auth \(those with %2F, ` +
          String.raw`.*; there are too many ways to spell them to try them all\)\.$`,
      ),
    );
  });

  it("can be found in slices, between which requests are served", async () => {
    const config = configOf(
      Array.from(
        { length: 3_000 },
        (_, i) =>
          [`r${i}`, i % 2 === 0 ? `/{a}/{b}/r${i}` : `/r${i}/{b}/{c}`, ...(i % 2 === 0 ? [key()] : [])] as const,
      ),
    );
    const { configuration } = Gateway.internalsOf((await running(config)).gateway);
    let turns = 0;
    const counting = setInterval(() => turns++, 0);
    await configuration.findWarnings();
    clearInterval(counting);
    expect(turns).toBeGreaterThan(1);
    expect(configuration.configWarnings).toHaveLength(15_000);
  });

  it(
    "are those of the configuration in force, are in the status behind those of the moment, " +
      "and change with a reload",
    async () => {
      const { gateway } = await running(configOf([["x", "/x", limit()]], {}, { certificates: [] }));
      expect(pathsOf(gateway.configWarnings)).toEqual(["limit_by_any_header:services.s.routes.x.plugins.rate_limit"]);
      expect(gateway.configWarnings).toBe(gateway.configWarnings);
      expect(gateway.status.warnings).toEqual(gateway.configWarnings);
      await expect(gateway.reload({ services: [{}] } as never)).rejects.toThrow();
      expect(gateway.status.warnings.map(({ code }) => code)).toEqual(["reload_refused", "limit_by_any_header"]);
      await gateway.reload(configOf([["x", "/x"]]));
      expect(gateway.status.warnings).toEqual([]);
    },
  );
});

describe("entries of errors", () => {
  const html = { content_type: "text/html", body: "x" };
  const told = (...errors: object[]) => pathsOf(warningsOf(configOf([["a", "/a"]], {}, { errors })));
  const SECOND = ["errors_unused:global.errors[1]"];

  it.each<[string, object[]]>([
    ["every error", [{ ...html }, { ...html, codes: ["overloaded"] }]],
    ["every error, before one for every error", [{ ...html }, { ...html, methods: ["GET"] }]],
    [
      "its status",
      [
        { ...html, statuses: [503] },
        { ...html, codes: ["overloaded"] },
      ],
    ],
    [
      "its code",
      [
        { ...html, codes: ["not_cached"] },
        { ...html, codes: ["not_cached"] },
      ],
    ],
    [
      "its method",
      [
        { ...html, methods: ["GET"] },
        { ...html, codes: ["overloaded"], methods: ["GET", "HEAD"] },
      ],
    ],
    [
      "whatever is accepted",
      [
        { ...html, always: true },
        { ...html, content_type: "text/plain" },
      ],
    ],
    ["what accepts its type, written otherwise", [{ ...html, content_type: "TEXT/html; charset=utf-8" }, { ...html }]],
  ])("an entry of errors behind one that takes %s is named", (_what, errors) => {
    expect(told(...errors)).toEqual(SECOND);
  });

  it.each<[string, object[]]>([
    [
      "fewer errors",
      [
        { ...html, codes: ["overloaded"] },
        { ...html, statuses: [503] },
      ],
    ],
    [
      "one of two errors",
      [
        { ...html, statuses: [503] },
        { ...html, codes: ["overloaded", "forbidden"] },
      ],
    ],
    [
      "fewer methods",
      [
        { ...html, methods: ["GET"] },
        { ...html, codes: ["overloaded"] },
      ],
    ],
    [
      "another method",
      [
        { ...html, methods: ["HEAD"] },
        { ...html, methods: ["GET"] },
      ],
    ],
    ["another type", [{ ...html }, { ...html, content_type: "application/json" }]],
    ["the type with a parameter", [{ ...html, content_type: "text/html;level=1" }, { ...html }]],
    ["what is accepted alone", [{ ...html }, { ...html, always: true }]],
    [
      "a code of unknown status",
      [
        { ...html, statuses: [504] },
        { ...html, codes: ["not_cached"] },
      ],
    ],
  ])("an entry of errors behind one that takes %s is not", (_what, errors) => {
    expect(told(...errors)).toEqual([]);
  });

  it("an entry of errors is named with all entries that take its errors together, each list by itself", () => {
    const errors = [
      { ...html, statuses: [502] },
      { ...html, codes: ["overloaded"] },
      { ...html, statuses: [502], codes: ["overloaded"] },
    ];
    const [warning, ...more] = warningsOf(configOf([["a", "/a"]], { errors }, { errors: errors.slice(0, 1) }));
    expect(more).toEqual([]);
    expect(warning).toEqual({
      code: "errors_unused",
      path: "services.s.errors[2]",
      message:
        "services.s.errors[2] is never sent: services.s.errors[0], " +
        "services.s.errors[1] before it take all of its errors.",
      example: null,
      remedy: "Remove the entry, or put it in front of those that take more errors.",
      service: "s",
      route: null,
      at: ["services", 0, "errors", 2],
    });
    const accept_warnings = ["errors_unused:services.s.errors[2]"];
    expect(warningsOf(configOf([["a", "/a"]], { errors }, { accept_warnings }))).toEqual([]);
  });
});
