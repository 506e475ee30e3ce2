/** Which plugin instance has refused a request, and which member of its configuration decided. */
import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { problem, schema, type Exchange, type Gateway } from "../../lib/index.ts";
import { oneService, running } from "../support/gateway.ts";
import { backend, decided } from "./harness.ts";

type Plugins = NonNullable<NonNullable<AnyConfigInput["global"]>["plugins"]>;

const SECRET = "0123456789abcdef0123456789abcdef";

function token(claims: object, header: object = {}): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "HS256", typ: "JWT", ...header })}.${part({ exp: 4e9, ...claims })}`;
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

/** The decision on the last of so many requests. */
async function decisionOn(gateway: Gateway, url: string, headers: Record<string, string> = {}, times = 1) {
  let response: Response | undefined;
  for (let i = 0; i < times; i++) {
    response = await fetch(url, { headers });
    await response.arrayBuffer();
  }
  const id = response!.headers.get("x-request-id")!;
  return decided(gateway, id);
}

const jwt = (config: object): Plugins => [{ name: "jwt", config: { alg: "HS256", secret: SECRET, ...config } }];
const bearer = (claims: object, header: object = {}) => ({ authorization: `Bearer ${token(claims, header)}` });
const keyed = (keys: readonly object[], config: object = {}): Plugins => [
  { name: "key_auth", config: { keys, ...config } as never },
];
const KEYS = keyed([{ id: "ann", key: "k" }]);
const CALLERS: AnyConfigInput["callers"] = [
  { id: "ann", groups: ["gold"], keys: [{ key: "ended", expires_at: "2020-01-01T00:00:00Z" }] },
  { id: "bob", enabled: false },
];

/** What a request needs that the plugins refuse, and the instance and rule that decide; all on a route "r". */
const CASES: readonly (readonly [
  title: string,
  plugins: Plugins,
  request: { readonly headers?: Record<string, string>; readonly times?: number; readonly query?: string },
  verdict: readonly [status: number, code: string, plugin: string, rule: string | null],
])[] = [
  [
    "acl: a whitelist",
    [{ name: "acl", config: { whitelist: ["10.0.0.1"] } }],
    {},
    [403, "forbidden", "acl", "whitelist"],
  ],
  [
    "acl: a blacklist",
    [{ name: "acl", id: "no", config: { blacklist: ["127.0.0.1"] } }],
    {},
    [403, "forbidden", "no", "blacklist"],
  ],
  [
    "authorize: one rule",
    [...KEYS, { name: "authorize", config: { rules: [{ groups: ["admins"] }] } }],
    { query: "?apiKey=k" },
    [403, "forbidden", "authorize", "rules[0]"],
  ],
  [
    "authorize: several rules",
    [{ name: "authorize", config: { rules: [{ groups: ["a"] }, { callers: ["b"] }] } }],
    {},
    [401, "identity_required", "authorize", "rules"],
  ],
  [
    "basic_auth",
    [{ name: "basic_auth", config: { users: [{ username: "ann", password: "pw" }] } }],
    {},
    [401, "credentials_missing", "basic_auth", null],
  ],
  [
    "bot_protection: an entry",
    [{ name: "bot_protection", config: { blacklist: ["curl", "wget"] } }],
    { headers: { "user-agent": "Wget/1" } },
    [403, "bot_detected", "bot_protection", "blacklist[1]"],
  ],
  [
    "bot_protection: a whitelist",
    [{ name: "bot_protection", config: { whitelist: ["firefox"] } }],
    { headers: { "user-agent": "x" } },
    [403, "bot_detected", "bot_protection", "whitelist"],
  ],
  [
    "bot_protection: no agent",
    [{ name: "bot_protection", config: { blacklist: ["x"] } }],
    { headers: { "user-agent": "" } },
    [403, "bot_detected", "bot_protection", "allow_empty"],
  ],
  ["jwt: no token", jwt({}), {}, [401, "token_missing", "jwt", null]],
  [
    "jwt: the issuer",
    jwt({ iss: "https://a" }),
    { headers: bearer({ iss: "b" }) },
    [401, "token_invalid", "jwt", "iss"],
  ],
  [
    "jwt: the audience",
    jwt({ aud: "here" }),
    { headers: bearer({ aud: "there" }) },
    [401, "token_invalid", "jwt", "aud"],
  ],
  [
    "jwt: a claim",
    jwt({ claims: { role: "admin", tenant: "t" } }),
    { headers: bearer({ role: "admin" }) },
    [401, "token_invalid", "jwt", "claims.tenant"],
  ],
  [
    "jwt: a claim that is required",
    jwt({ require: ["jti"] }),
    { headers: bearer({}) },
    [401, "token_invalid", "jwt", "require"],
  ],
  ["jwt: the algorithm", jwt({}), { headers: bearer({}, { alg: "HS512" }) }, [401, "token_invalid", "jwt", "alg"]],
  ["jwt: the type", jwt({ typ: "at+jwt" }), { headers: bearer({}) }, [401, "token_invalid", "jwt", "typ"]],
  ["key_auth: no key", KEYS, {}, [401, "key_missing", "key_auth", null]],
  [
    "key_auth: a key that has ended",
    keyed([
      { id: "a", key: "1" },
      { id: "b", key: "2", expires_at: "2020-01-01T00:00:00Z" },
    ]),
    { query: "?apiKey=2" },
    [401, "key_expired", "key_auth", "keys[1].expires_at"],
  ],
  [
    "key_auth: a caller's key that has ended",
    [{ name: "key_auth", config: { callers: true } }],
    { query: "?apiKey=ended" },
    [401, "key_expired", "key_auth", "callers"],
  ],
  [
    "key_auth: a caller who is disabled",
    keyed([{ id: "bob", key: "1" }]),
    { query: "?apiKey=1" },
    [403, "forbidden", "key_auth", null],
  ],
  ["jwt: a caller who is disabled", jwt({}), { headers: bearer({ sub: "bob" }) }, [403, "forbidden", "jwt", null]],
  [
    "basic_auth: a caller who is disabled",
    [{ name: "basic_auth", config: { users: [{ username: "bob", password: "pw" }] } }],
    { headers: { authorization: `Basic ${btoa("bob:pw")}` } },
    [403, "forbidden", "basic_auth", null],
  ],
  ["mtls: no certificate", [{ name: "mtls", config: {} }], {}, [401, "client_certificate_missing", "mtls", null]],
  [
    "quota",
    [{ name: "quota", config: { limit: 1, per: "day" } }],
    { times: 2 },
    [429, "quota_exceeded", "quota", "limit"],
  ],
  [
    "quota: of a group",
    [...KEYS, { name: "quota", config: { limit: 9, per: "day", limits_by_group: { gold: { limit: 1 } } } as never }],
    { query: "?apiKey=k", times: 2 },
    [429, "quota_exceeded", "quota", "limits_by_group.gold.limit"],
  ],
  [
    "rate_limit",
    [{ name: "rate_limit", config: { limit_min: 1, limit_hour: 5 } }],
    { times: 2 },
    [429, "rate_limited", "rate_limit", "limit_min"],
  ],
  [
    "rate_limit: of two windows the longer",
    [{ name: "rate_limit", config: { limit_min: 1, limit_hour: 1 } }],
    { times: 2 },
    [429, "rate_limited", "rate_limit", "limit_hour"],
  ],
  [
    "rate_limit: of a group",
    [...KEYS, { name: "rate_limit", config: { limit_min: 9, limits_by_group: { gold: { limit_hour: 1 } } } as never }],
    { query: "?apiKey=k", times: 2 },
    [429, "rate_limited", "rate_limit", "limits_by_group.gold.limit_hour"],
  ],
  [
    "rate_limit: the second of its kind",
    [
      { name: "rate_limit", config: { limit_min: 5 } },
      { name: "rate_limit", config: { limit_hour: 1 } },
    ],
    { times: 2 },
    [429, "rate_limited", "rate_limit#2", "limit_hour"],
  ],
];

describe("the decision on a refused request", () => {
  it.each(CASES)(
    "names the instance and the rule: %s",
    async (_title, plugins, { headers, times, query = "" }, verdict) => {
      const origin = await backend();
      const config = oneService(origin.port, { routes: [{ name: "r", path: "/{rest*}", plugins }] });
      const { gateway, url } = await running({ ...config, callers: CALLERS });
      const { status, code, by, plugin, rule } = await decisionOn(gateway, `${url}/a/x${query}`, headers, times);
      const [wantedStatus, wantedCode, name, wantedRule] = verdict;
      const kind = plugins.at(-1)!.name;
      const place = `services.s.routes.r.plugins.${name}`;
      expect([status, code, by, plugin, rule]).toEqual([wantedStatus, wantedCode, kind, place, wantedRule]);
    },
  );

  it("names the place of an instance of all routes, and of a service", async () => {
    const origin = await backend();
    const acl = (id?: string) => [{ name: "acl" as const, ...(id && { id }), config: { blacklist: ["127.0.0.1"] } }];
    const ofAll = await running(oneService(origin.port, {}, { plugins: acl() }));
    expect(await decisionOn(ofAll.gateway, `${ofAll.url}/a/x`)).toMatchObject({ plugin: "global.plugins.acl" });
    const ofOne = await running(oneService(origin.port, { plugins: acl("lan") }));
    expect(await decisionOn(ofOne.gateway, `${ofOne.url}/a/x`)).toMatchObject({ plugin: "services.s.plugins.lan" });
  });

  it("keeps the name of before where a reload gives the instance another one", async () => {
    const origin = await backend();
    const named = (id: string) =>
      oneService(origin.port, { plugins: [{ name: "acl", id, config: { blacklist: ["127.0.0.1"] } }] });
    const { gateway, url } = await running(named("before"));
    const before = await decisionOn(gateway, `${url}/a/x`);
    await gateway.reload(named("after"));
    const after = await decisionOn(gateway, `${url}/a/x`);
    expect([before.plugin, after.plugin]).toEqual(["services.s.plugins.before", "services.s.plugins.after"]);
    expect(await gateway.decision(before.id)).toEqual(before);
  });

  it("names the instance behind a cache, and the rule", async () => {
    const origin = await backend();
    const plugins: Plugins = [
      { name: "response_cache", config: {} },
      { name: "rate_limit", id: "slow", config: { limit_min: 1 } },
    ];
    const { gateway, url } = await running(oneService(origin.port, { plugins }));
    await decisionOn(gateway, `${url}/a/1`);
    expect(await decisionOn(gateway, `${url}/a/2`)).toMatchObject({
      by: "rate_limit",
      plugin: "services.s.plugins.slow",
      rule: "limit_min",
    });
  });

  it("has the rule that a plugin of one's own gives", async () => {
    const origin = await backend();
    const own = {
      name: "own",
      schema: schema.object({}, { describe: "Nothing." }),
      create: () => () => (exchange: Exchange) => problem(exchange.call, "forbidden", { rule: "hours" }),
    };
    const config = oneService(origin.port, { plugins: [{ name: "own", config: {} }] });
    const { gateway, url } = await running(config, { plugins: [own] });
    expect(await decisionOn(gateway, `${url}/a/x`)).toMatchObject({ by: "own", rule: "hours" });
  });
});
