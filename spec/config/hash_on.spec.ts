import { describe, expect, it } from "vitest";
import { HASH_ON } from "../../lib/config/hash_on.ts";
import { formatPath } from "../../lib/config/schema.ts";
import { maskedConfig } from "../../lib/config/masked.ts";
import { concealerOf } from "../../lib/config/secrets.ts";
import { checked } from "../support/exercise.ts";
import { loadConfig } from "../support/schema.ts";

describe("hash_on", () => {
  it.each(["client_ip", "credential", "header:X-Tenant", "cookie:session", "param:user_id"])(
    "accepts %s as it is",
    (text) => {
      expect(checked(HASH_ON, text)).toEqual({ value: text, issues: [] });
    },
  );

  it.each([
    ["client-ip", /"client-ip".*did you mean "client_ip"\?/],
    ["headers:X-Tenant", /did you mean "header:X-Tenant"\?/],
    ["Cookie:a", /did you mean "cookie:a"\?/],
    ["credentials", /did you mean "credential"\?/],
    ["client_ip:x", /did you mean "client_ip"\?/],
    ["header", /write a name behind it, as in "header:X-Tenant"/],
    ["cookie:", /write a name behind it, as in "cookie:session"/],
    ["header:X Tenant", /"X Tenant" cannot be the name of a header/],
    ["cookie:a;b", /"a;b" cannot be the name of a cookie/],
    ["param:{user_id}", /write the placeholder's name alone, as in "param:user_id"/],
    [
      "query:user",
      /expected "client_ip", "credential", "header:<name>", "cookie:<name>" or "param:<name>", found "query:user"$/,
    ],
    ["constructor:x", /expected "client_ip".*found "constructor:x"$/],
    ["", /expected "client_ip"/],
    [7, /expected "client_ip".*found 7/],
  ])("refuses %j and says what to write", (value, message) => {
    expect(checked(HASH_ON, value)).toEqual({ value: null, issues: [expect.stringMatching(message)] });
  });
});

/** A service with a route for `/users/{user_id}` below `/shops/{shop}`, and one for `/files/<path*>`. */
function load(more: object) {
  const routes = [{ path: "/users/{user_id}" }, { path: "/files/<path*>" }];
  const service = {
    name: "a",
    base_path: "/shops/{shop}",
    upstreams: [{ host: "a.internal", port: 80 }],
    routes,
    ...more,
  };
  return loadConfig({ value: { services: [service] } }, { kinds: [], environment: { STICKY: "hush-".repeat(8) } });
}

function issues(more: object): string[] {
  const result = load(more);
  return result.ok ? [] : result.issues.map(({ at, message }) => `${formatPath(at)}: ${message}`);
}

const SECRET = "0123456789abcdef0123456789abcdef";

describe("a service", () => {
  it.each([
    [{ load_balancing_strategy: "hash", hash_on: "client_ip" }],
    [{ load_balancing_strategy: "hash", hash_on: "param:user_id" }],
    [{ load_balancing_strategy: "hash", hash_on: "param:shop", hash_balance_factor: 101 }],
    [{ load_balancing_strategy: "hash", hash_on: "param:path", hash_balance_factor: 1000 }],
    [{ load_balancing_strategy: "ip_hash", hash_balance_factor: 125 }],
    [{ sticky: {} }],
    [{ sticky: { cookie: "__Secure-route", ttl_s: 3600, secret: SECRET } }],
  ])("a service may have %j", (more) => {
    expect(issues(more)).toEqual([]);
  });

  it.each([
    [
      { load_balancing_strategy: "hash" },
      /^services\[0\]\.load_balancing_strategy: needs "hash_on" beside it, such as "header:X-Tenant"/,
    ],
    [
      { hash_on: "client_ip" },
      /^services\[0\]\.hash_on: is for load_balancing_strategy "hash"; this service has "round_robin"/,
    ],
    [
      { load_balancing_strategy: "ip_hash", hash_on: "client_ip" },
      /hash_on: is for load_balancing_strategy "hash"; this service has "ip_hash"/,
    ],
    [
      { load_balancing_strategy: "hash", hash_on: "param:tenant" },
      /hash_on: no route of this service has a placeholder \{tenant\}$/,
    ],
    [
      { load_balancing_strategy: "hash", hash_on: "param:userid" },
      /no route of this service has a placeholder \{userid\}: did you mean "param:user_id"\?/,
    ],
    [{ load_balancing_strategy: "hash", hash_on: "cookie" }, /hash_on: .*write a name behind it/],
    [
      { load_balancing_strategy: "hash", hash_on: "client_ip", hash_balance_factor: 100 },
      /hash_balance_factor: expected 0 or 101–1000, found 100: no distribution/,
    ],
    [
      { load_balancing_strategy: "hash", hash_on: "client_ip", hash_balance_factor: 1001 },
      /hash_balance_factor: expected an integer 0–1000, found 1001/,
    ],
    [
      { hash_balance_factor: 125 },
      /hash_balance_factor: is for load_balancing_strategy "hash" and "ip_hash"; this service has "round_robin"/,
    ],
    [{ sticky: true }, /sticky: expected an object/],
    [{ sticky: { cookie: "a b" } }, /sticky\.cookie: expected the name of a cookie, found "a b"/],
    [{ sticky: { cookie: "" } }, /sticky\.cookie: expected the name of a cookie/],
    [{ sticky: { cookie: "__host-route" } }, /sticky\.cookie: .*leave __Host- out/],
    [{ sticky: { ttl_s: -1 } }, /sticky\.ttl_s: expected an integer 0–31536000/],
    [{ sticky: { ttl: 60 } }, /sticky\.ttl: .*"ttl_s"/],
    [
      { sticky: { secret: "short and known" } },
      /^services\[0\]\.sticky\.secret: expected a string of 32–1000 characters, found a string$/,
    ],
  ])("a service with %j is refused, with the place and what to do", (more, message) => {
    expect(issues(more)).toEqual([expect.stringMatching(message)]);
  });

  it("the secret of sticky is shown to nobody who may not see secrets, and may be a reference", () => {
    const result = load({ sticky: { secret: "${env:STICKY}" } });
    if (!result.ok) throw new Error("refused");
    expect(result.config.services[0]!.sticky).toEqual({ cookie: "route", ttlS: 0, secret: "hush-".repeat(8) });
    const written = load({ sticky: { secret: SECRET } });
    if (!written.ok) throw new Error("refused");
    expect(JSON.stringify(maskedConfig(written))).not.toContain(SECRET);
    expect(concealerOf(written)(`a log line with ${SECRET}`)).not.toContain(SECRET);
  });
});

describe("two sticky services", () => {
  const service = (name: string, more: object) => ({
    name,
    base_path: "/",
    upstreams: [{ host: "a.internal", port: 80 }],
    routes: [],
    sticky: {},
    ...more,
  });
  const found = (one: object, other: object) => {
    const result = loadConfig(
      { value: { services: [service("one", one), service("other", other)] } },
      { kinds: [], environment: {} },
    );
    return result.ok ? [] : result.issues.map(({ at, message }) => `${formatPath(at)}: ${message}`);
  };
  const REFUSED = [
    'services[1].sticky: replaces the cookie of service "one", ' +
      'which has the same name and base_path: set another "cookie"',
  ];

  it.each([
    [{}, {}],
    [{ hosts: ["a.example", "b.example"] }, { hosts: ["b.example"], sticky: { ttl_s: 60 } }],
  ])("two sticky services with %j and %j would replace each other's cookies, and are refused", (one, other) => {
    expect(found(one, other)).toEqual(REFUSED);
  });

  it.each([
    [{ sticky: { cookie: "one" } }, {}],
    [{ base_path: "/one" }, {}],
    [{ hosts: ["a.example"] }, { hosts: ["b.example"] }],
  ])("two sticky services may have %j and %j", (one, other) => {
    expect(found(one, other)).toEqual([]);
  });
});
