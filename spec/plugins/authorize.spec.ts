import { describe, expect, it } from "vitest";
import type { ExchangeParts } from "../../lib/http/exchange.ts";
import { headerValue } from "../../lib/http/headers.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { authorize } from "../../lib/plugins/authorize.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, plainReply, problemOf } from "../support/exercise.ts";
import { loadConfig } from "../support/schema.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { oneService } from "../support/gateway.ts";

const ADA = { identity: "ada" };

function ask(rules: object | readonly object[], parts: Partial<ExchangeParts> = ADA): Reply {
  return atOnce(exercise(instance(authorize, { rules: [rules].flat() }), madeUpExchange(parts)).returned);
}

const admits = (rules: object | readonly object[], parts?: Partial<ExchangeParts>) => ask(rules, parts).status === 200;

describe("authorize admits a request if", () => {
  it("all members of one rule hold, and no other", () => {
    const rules = [{ callers: ["ada"], methods: ["GET"] }, { groups: ["staff"] }];
    expect(admits(rules)).toBe(true);
    expect(admits(rules, { ...ADA, method: "POST" })).toBe(false);
    expect(admits(rules, { identity: "bob" })).toBe(false);
    expect(admits(rules, { identity: "bob", method: "POST", groups: ["staff"] })).toBe(true);
  });

  it("its caller is in one of the groups", () => {
    const rule = { groups: ["gold", "staff"] };
    expect(
      [["gold"], ["x", "staff"], [], ["silver"], ["Gold"], ["gold,staff"]].map((groups) =>
        admits(rule, { ...ADA, groups }),
      ),
    ).toEqual([true, true, false, false, false, false]);
  });

  it("its caller is one of the callers", () => {
    const rule = { callers: ["ada", "bob"] };
    expect(["ada", "bob", "Ada", "ada ", "", null].map((identity) => admits(rule, { identity }))).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ]);
  });

  it("it has one of the methods, GET also for HEAD", () => {
    expect(
      ["GET", "HEAD", "POST", "PUT"].map((method) => admits({ methods: ["GET", "POST"] }, { ...ADA, method })),
    ).toEqual([true, true, true, false]);
    expect(["GET", "HEAD"].map((method) => admits({ methods: ["HEAD"] }, { ...ADA, method }))).toEqual([false, true]);
  });

  it.each<[object, unknown, boolean]>([
    [{ role: "admin" }, { role: "admin" }, true],
    [{ role: "admin" }, { role: "administrator" }, false],
    [{ role: "admin" }, { role: ["user", "admin"] }, true],
    [{ role: "admin" }, { role: [["admin"]] }, false],
    [{ role: "admin" }, { role: [] }, false],
    [{ role: "admin" }, { role: { admin: true } }, false],
    [{ role: "admin" }, {}, false],
    [{ "realm.roles": "admin" }, { realm: { roles: ["admin"] } }, true],
    [{ level: 3 }, { level: 3 }, true],
    [{ level: 3 }, { level: "3" }, false],
    [{ email_verified: true }, { email_verified: true }, true],
    [{ email_verified: true }, { email_verified: "true" }, false],
    [{ email: { matches: "@example\\.com$" } }, { email: "ada@example.com" }, true],
    [{ email: { matches: "@example\\.com$" } }, { email: "ada@example.com.evil" }, false],
    [{ email: { matches: "@example\\.com$" } }, { email: ["a@b", "ada@example.com"] }, true],
    [{ level: { matches: "3" } }, { level: 3 }, false],
    [{ scope: "orders:read" }, { scope: "orders:write orders:read" }, true],
    [{ scope: "orders" }, { scope: "orders:read" }, false],
    [{ scopes: "a" }, { scopes: "a b" }, false],
    [{ role: "admin", level: 3 }, { role: "admin", level: 4 }, false],
    [{ constructor: { matches: "" } }, {}, false],
    [{ __proto__: null, toString: { matches: "" } }, {}, false],
  ])("claims %j hold of %j: %j", (claims, held, holds) => {
    expect(admits({ claims }, { ...ADA, claims: held as Record<string, unknown> })).toBe(holds);
  });

  it("claims hold of no caller without a token, and of one whose token names nobody", () => {
    expect(admits({ claims: { role: "admin" } })).toBe(false);
    expect(admits({ claims: { role: "admin" } }, { claims: { role: "admin" } })).toBe(true);
  });

  it("a long claim does not keep a pattern busy, and does not fulfil it", () => {
    const long = `${"a".repeat(400_000)}b`;
    const rule = { claims: { sub: { matches: "(a|aa|aaa)*b$" } } };
    expect(admits(rule, { ...ADA, claims: { sub: [long, "ab"] } })).toBe(false);
    expect(admits(rule, { ...ADA, claims: { sub: ["ab", long] } })).toBe(true);
  });

  it("parameters of its path are the texts, percent-decoded", () => {
    const rule = { params: { user: "${caller.id}" } };
    const withUser = (user: string, identity: string | null) => admits(rule, { identity, params: { user } });
    expect([withUser("ada", "ada"), withUser("bob", "ada"), withUser("ad", "ada"), withUser("Ada", "ada")]).toEqual([
      true,
      false,
      false,
      false,
    ]);
    expect([
      withUser("j%C3%B6rg%20m", "jörg m"),
      withUser("a%2Fb", "a/b"),
      withUser("%FF", "\ufffd"),
      withUser("ada;x", "ada"),
    ]).toEqual([true, true, false, false]);
    expect(admits(rule, { ...ADA, params: {} })).toBe(false);
    expect(admits({ params: { toString: "${caller.id}" } }, { ...ADA, params: {} })).toBe(false);
  });

  it("a text with a placeholder that has no value is equal to nothing", () => {
    const rule = (text: string) => ({ params: { user: text } });
    expect(admits(rule("${caller.id}"), { params: { user: "" } })).toBe(false);
    expect(admits(rule("user-${caller.id}"), { params: { user: "user-" } })).toBe(false);
    expect(admits(rule("user-${caller.id}"), { ...ADA, params: { user: "user-ada" } })).toBe(true);
    expect(admits(rule("${claim.tenant}"), { ...ADA, claims: {}, params: { user: "" } })).toBe(false);
    expect(admits(rule("${claim.tenant}"), { ...ADA, claims: { tenant: "t" }, params: { user: "t" } })).toBe(true);
    expect(admits(rule("{other}"), { ...ADA, params: { user: "%61", other: "a" } })).toBe(true);
    expect(admits(rule("public"), { params: { user: "public" } })).toBe(true);
  });

  it("passes on the same exchange, and returns the same reply or promise", () => {
    const exchange = madeUpExchange(ADA);
    const promise = Promise.resolve(plainReply);
    const rules = { rules: [{ callers: ["ada"] }] };
    expect(exercise(instance(authorize, rules), exchange)).toEqual({ returned: plainReply, forwarded: exchange });
    expect(exercise(instance(authorize, rules), exchange, () => promise).returned).toBe(promise);
  });
});

describe("authorize refuses", () => {
  const rules = { rules: [{ groups: ["staff"] }] };

  it("a known caller with 403 forbidden, without saying what would admit", () => {
    const { returned, forwarded } = exercise(instance(authorize, rules), madeUpExchange(ADA));
    expect(forwarded).toBeNull();
    expect(problemOf(atOnce(returned))).toEqual(
      expect.objectContaining({
        status: 403,
        code: "forbidden",
        detail: "No rule admits this caller to this request.",
      }),
    );
    expect(headerValue(atOnce(returned).headers, "www-authenticate")).toBeUndefined();
  });

  it("a caller whose token has no subject with 403, too: another login would not help", () => {
    expect(ask({ groups: ["staff"] }, { claims: { aud: "x" } }).status).toBe(403);
    const exchange = madeUpExchange();
    exchange.call.personal = true;
    expect(atOnce(exercise(instance(authorize, rules), exchange).returned).status).toBe(403);
  });

  it("nobody with 401 identity_required and a challenge", () => {
    const reply = ask({ groups: ["staff"] }, {});
    expect(problemOf(reply)).toMatchObject({ status: 401, code: "identity_required" });
    expect(headerValue(reply.headers, "www-authenticate")).toBe('Bearer realm="edge-gateway"');
  });
});

describe("configuration", () => {
  it.each<[object, string]>([
    [{}, "rules: is required"],
    [{ rules: [] }, "rules: expected at least 1 item, found none"],
    [
      { rules: [{}] },
      "rules[0]: needs at least one of groups, callers, claims, methods, params: without any it would admit everybody",
    ],
    [{ rules: [{ claims: {} }] }, "rules[0]: needs at least one of"],
    [{ rules: [{ claims: {}, params: {} }] }, "rules[0]: needs at least one of"],
    [{ rules: [{ groups: [] }] }, "rules[0].groups: expected at least 1 item, found none"],
    [{ rules: [{ callers: [] }] }, "rules[0].callers: expected at least 1 item, found none"],
    [{ rules: [{ methods: [] }] }, "rules[0].methods: expected at least 1 item, found none"],
    [{ rules: [{ groups: [""] }] }, "rules[0].groups[0]: expected"],
    [{ rules: [{ groups: "staff" }] }, "rules[0].groups: expected an array"],
    [
      { rules: [{ methods: ["get"] }] },
      'rules[0].methods[0]: expected an HTTP method in upper case, found "get": ' +
        'methods are case-sensitive, write "GET"',
    ],
    [{ rules: [{ claims: { role: null } }] }, "rules[0].claims.role: expected"],
    [{ rules: [{ claims: { role: ["a", "b"] } }] }, "rules[0].claims.role: expected"],
    [
      { rules: [{ claims: { role: { matches: "(?=a)" } } }] },
      "rules[0].claims.role.matches: expected a regular expression",
    ],
    [{ rules: [{ params: { user: "${caller}" } }] }, "rules[0].params.user: ${caller} is not known here"],
    [{ rules: [{ params: { user: "" } }] }, "rules[0].params.user: expected"],
    [{ rules: [{ params: { user: 7 } }] }, "rules[0].params.user: expected"],
    [{ rules: [{ group: ["a"] }] }, 'rules[0].group: is not a known field; did you mean "groups"?'],
    [{ rule: [{ groups: ["a"] }] }, 'rule: is not a known field; did you mean "rules"?'],
  ])("reports %j as a configuration error", (config, issue) => {
    expect(checked(authorize.schema, config).issues.join("\n")).toContain(issue);
  });

  it(
    "a rule about a parameter that the route's path does not have is an error at the " + "route, and is not elsewhere",
    () => {
      const plugins = (name: string) => [
        { name: "authorize", config: { rules: [{ params: { [name]: "${caller.id}" } }] } },
      ];
      const issuesOf = (config: unknown) => {
        const result = loadConfig({ value: config }, { kinds: builtinPlugins, environment: {} } as never);
        return result.ok ? [] : result.issues.map(({ message }) => message);
      };
      const route = (name: string) =>
        oneService(9, { routes: [{ path: "/users/{user}/{rest*}", plugins: plugins(name) }] });
      expect(issuesOf(route("user"))).toEqual([]);
      expect(issuesOf(route("rest"))).toEqual([]);
      expect(issuesOf(route("usr"))).toEqual([
        "{usr} is no placeholder of this route's path (it has {user}, {rest}): the rule would never hold",
      ]);
      expect(issuesOf(oneService(9, { plugins: plugins("usr") } as never))).toEqual([]);
    },
  );
});
