import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { createGateway, type Explanation, type Question } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { blocksOf, counted, LINEAR } from "../support/growth.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { closedPort } from "../support/origin.ts";
import { random as seeded } from "../support/random.ts";
import { connect } from "../support/raw_client.ts";

const SHOP: AnyConfigInput = {
  global: { plugins: [{ name: "key_auth", id: "door", config: { key: "${env:KEY}" } }] },
  services: [
    {
      name: "shop",
      base_path: "/shop",
      plugins: [
        { name: "acl", config: { whitelist: ["127.0.0.0/8"] } },
        { name: "acl", enabled: false, config: { blacklist: ["10.0.0.1"] } },
      ],
      upstreams: [
        { id: "a", host: "127.0.0.1", port: 9, weight: 3 },
        { id: "b", host: "127.0.0.1", port: 10 },
        { id: "c", host: "127.0.0.1", port: 11, weight: 0 },
      ],
      load_balancing_strategy: "weighted",
      routes: [
        {
          name: "item",
          path: "/items/{id}",
          methods: ["GET", "DELETE"],
          plugins: [{ name: "rate_limit", config: { limit_min: 5 } }],
        },
        { name: "rest", path: "/{rest*}", methods: ["GET"] },
      ],
    },
    {
      name: "api",
      base_path: "/",
      hosts: ["api.example.com"],
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      routes: [{ name: "v1", path: "/v1/users" }],
    },
  ],
};

const gateway = createGateway({ config: SHOP, environment: { KEY: "s3cret-key" } });
const explain = (method: string, url: string, headers?: Question["headers"]): Promise<Explanation> =>
  gateway.explain({ method, url, ...(headers && { headers }) });

describe("the plugins of a route", () => {
  it(
    "come in the order in which they run, a cache behind the guards of inner levels, " +
      "without disabled ones and with secrets masked",
    async () => {
      const cached = createGateway({
        config: {
          global: {
            plugins: [
              { name: "response_cache", config: {} },
              { name: "cors", config: { allow_origins: ["*"] } },
            ],
          },
          services: [
            {
              name: "s",
              base_path: "/s",
              upstreams: [{ host: "127.0.0.1", port: 9 }],
              plugins: [{ name: "acl", enabled: false, config: { whitelist: ["::1"] } }],
              routes: [
                {
                  name: "r",
                  path: "/",
                  plugins: [
                    { name: "key_auth", id: "door", config: { key: "s3cret" } },
                    { name: "compress", config: {} },
                  ],
                },
              ],
            },
          ],
        },
      });
      const plugins = (await cached.routePlugins("s", "r"))!;
      expect(plugins.map(({ level, name, id }) => [level, name, id])).toEqual([
        ["global", "cors", null],
        ["route", "key_auth", "door"],
        ["global", "response_cache", null],
        ["route", "compress", null],
      ]);
      expect(plugins[1]!.config).toMatchObject({ key: "********" });
      expect([await cached.routePlugins("s", "x"), await cached.routePlugins("x", "r")]).toEqual([null, null]);
    },
  );
});

describe("explain for a request that matches", () => {
  it(
    "explain returns service, route, pattern, parameters, the forwarded path, " + "and the upstreams with their shares",
    async () => {
      expect(await explain("GET", "/shop/items/7?x=1")).toMatchObject({
        outcome: "matched",
        status: null,
        code: null,
        path: "/shop/items/7",
        service: "shop",
        route: "item",
        pattern: "/shop/items/{id}",
        params: { id: "7" },
        forwarded: "/items/7?x=1",
        strategy: "weighted",
        upstreams: [
          { id: "a", share: 0.75, usable: true },
          { id: "b", share: 0.25 },
          { id: "c", share: 0, state: "draining", usable: false },
        ],
      });
    },
  );

  it(
    "explain has the headers that the upstream would get, secrets masked, " + "and none where a plugin answers",
    async () => {
      const plugins = [
        { name: "request_headers", config: { set: { "X-From": "gateway", Authorization: "Bearer a long secret" } } },
      ];
      const closed = { path: "/closed", plugins: [{ name: "key_auth", config: { key: "k" } }] };
      const own = createGateway({
        config: {
          services: [
            {
              name: "s",
              base_path: "/s",
              upstreams: [{ host: "127.0.0.1", port: 9 }],
              routes: [{ path: "/open", plugins }, closed],
            },
          ],
        },
      });
      const headersOf = async (url: string, headers = {}) =>
        (await own.explain({ method: "GET", url, headers })).upstreamHeaders;
      const sent = (await headersOf("/s/open", { Connection: "x-hop", "X-Hop": "1", "X-Own": "2" }))!;
      const pairs = Object.fromEntries(
        sent.flatMap((name, i) => (i % 2 === 0 ? [[name.toLowerCase(), sent[i + 1]]] : [])),
      );
      expect(pairs).toMatchObject({
        host: "127.0.0.1:9",
        "x-own": "2",
        "x-from": "********",
        "x-forwarded-for": "127.0.0.1",
        "x-request-id": "(id of the request)",
      });
      expect(Object.keys(pairs)).not.toContain("x-hop");
      expect(JSON.stringify(sent)).not.toContain("a long secret");
      expect([await headersOf("/s/closed"), await headersOf("/nowhere")]).toEqual([null, null]);
    },
  );

  it("explain shows where a split sends such a request: by its conditions, and by the side of its caller", async () => {
    const split = [
      { group: "beta", percent: 50, match: { headers: { "X-Beta": "1" } } },
      { group: "canary", percent: 10, hash_on: "credential" },
    ];
    const upstreams = [
      { id: "a", host: "127.0.0.1", port: 9 },
      { id: "b", host: "127.0.0.1", port: 10, group: "canary", weight: 3 },
      { id: "c", host: "127.0.0.1", port: 11, group: "canary" },
      { id: "d", host: "127.0.0.1", port: 12, group: "beta" },
    ];
    const plugins = [
      {
        name: "key_auth",
        config: { keys: Array.from({ length: 40 }, (_, i) => ({ id: `caller ${i}`, key: `key ${i}` })) },
      },
    ];
    const own = createGateway({
      config: {
        services: [
          { name: "s", base_path: "/s", upstreams, split, routes: [{ path: "/open" }, { path: "/closed", plugins }] },
        ],
      },
    });
    const shares = async (url: string, headers: Record<string, string> = {}) => {
      const found = await own.explain({ method: "GET", url, headers });
      return found.upstreams.map(({ id, group, share }) => [id, group, Math.round(share * 1e6) / 1e6]);
    };
    const groups = (a: number, b: number, c: number, d: number) => [
      ["a", null, a],
      ["b", "canary", b],
      ["c", "canary", c],
      ["d", "beta", d],
    ];
    expect(await shares("/s/open")).toEqual(groups(0.9, 0.075, 0.025, 0));
    expect(own.health.services[0]!.upstreams.map(({ share, rest }) => [Math.round(share * 1e6) / 1e6, rest])).toEqual([
      [0.9, true],
      [0.075, false],
      [0.025, false],
      [0, false],
    ]);
    expect(await shares("/s/open", { "X-Beta": "1" })).toEqual(groups(0.45, 0.0375, 0.0125, 0.5));
    // Without a key it does not pass, and nothing is known of its caller.
    expect(await shares("/s/closed", { "X-Beta": "1" })).toEqual(groups(0.9, 0.075, 0.025, 0));
    const callers = await Promise.all(
      Array.from({ length: 40 }, (_, i) => shares("/s/closed", { apiKey: `key ${i}` })),
    );
    expect(callers).toEqual(expect.arrayContaining([groups(1, 0, 0, 0), groups(0, 0.75, 0.25, 0)]));
  });

  it("explain reports why the route matches, and which less specific routes match as well", async () => {
    const { reasons } = await explain("GET", "/shop/items/7");
    expect(reasons[0]).toBe('/shop/items/7 matches service "shop" (base_path /shop), route "item" (/items/{id}).');
    expect(reasons[1]).toMatch(
      new RegExp(
        String.raw`^Route "rest" of service "shop" \(\/shop\/\{rest\*\}\) matches as well, but is ` +
          String.raw`less specific than route "item" of service "shop": a literal segment comes ` +
          String.raw`before`,
      ),
    );
    expect((await explain("DELETE", "/shop/items/7")).reasons).toContain(
      "No other route matches it: a literal segment would come before {name}, and {name} before {name*}.",
    );
  });

  it("explain lists the plugins that run, in their order, without disabled ones and without secrets", async () => {
    const explanation = await explain("GET", "/shop/items/7");
    expect(explanation.plugins.map(({ level, name, id }) => [level, name, id])).toEqual([
      ["global", "key_auth", "door"],
      ["service", "acl", null],
      ["route", "rate_limit", null],
    ]);
    expect(explanation.plugins[0]!.config).toMatchObject({ key: "${env:KEY}" });
    expect(JSON.stringify(explanation)).not.toContain("s3cret");
  });

  it("explain reports when a route loses because of its host", async () => {
    const services = [
      ["*.example.com", "/v1/users"],
      ["*.a.example.com", "/v1/{name}"],
      ["x.a.example.com", "/{rest*}"],
      [null, "/v1/users"],
    ].map(([host, path], i) => ({
      name: `s${i}`,
      base_path: "/",
      ...(host == null ? {} : { hosts: [host] }),
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      routes: [{ name: "r", path: path! }],
    }));
    const own = createGateway({ config: { services } });
    const why = async (host: string) =>
      (await own.explain({ method: "GET", url: `http://${host}/v1/users` })).reasons
        .filter((reason) => reason.includes("less specific"))
        .map((reason) => /"(s\d)".*specific than [^:]*: (.*)$/.exec(reason)!.slice(1));
    const [hosts, all] = [
      "an exact host comes before a host with *., and a longer host with *. before a shorter one.",
      "services for certain hosts come first.",
    ];
    expect(await why("X.a.example.com:80")).toEqual([
      ["s1", hosts],
      ["s0", hosts],
      ["s3", all],
    ]);
    expect(await why("y.a.example.com")).toEqual([
      ["s0", hosts],
      ["s3", all],
    ]);
  });

  it("explain takes the host from the url, or from the headers", async () => {
    for (const asked of [
      await explain("GET", "http://api.example.com/v1/users"),
      await explain("GET", "/v1/users", { Host: "API.example.com:8008" }),
    ]) {
      expect([asked.service, asked.pattern, asked.forwarded]).toEqual(["api", "/v1/users", "/v1/users"]);
      expect(asked.reasons).toContain(
        "The service is for the hosts api.example.com: it comes before services for all hosts.",
      );
    }
  });

  it("explain shows the normal form of the path", async () => {
    const asked = await explain("GET", "/shop//items/%37");
    expect([asked.path, asked.route]).toEqual(["/shop/items/7", "item"]);
    expect(asked.reasons).toContain("The path is matched and forwarded in its normal form, /shop/items/7.");
  });

  it("explain reports that HEAD uses the route for GET", async () => {
    expect((await explain("HEAD", "/shop/items/7")).reasons).toContain("A route that accepts GET also accepts HEAD.");
  });
});

describe("explain for a service whose upstream depends on the request", () => {
  const own = async (parts: Parameters<typeof oneService>[1], question: Partial<Question> = {}) => {
    const upstreams = ["a", "b", "c"].map((id, i) => ({ id, host: "127.0.0.1", port: 9 + i }));
    const gateway = createGateway({ config: oneService([], { upstreams, ...parts }) });
    const explanation = await gateway.explain({ method: "GET", url: "/a/x", ...question });
    await gateway.close(0);
    return explanation;
  };
  const hash = { load_balancing_strategy: "hash", hash_on: "header:X-Tenant" } as const;

  it("explain names the upstream that a hash leads to, which is the one that gets the request", async () => {
    const origins = [
      await backend((_request, response) => response.end("a")),
      await backend((_request, response) => response.end("b")),
      await backend((_request, response) => response.end("c")),
    ];
    const upstreams = origins.map(({ port }, i) => ({ id: "abc"[i]!, host: "127.0.0.1", port }));
    const { gateway } = await running(oneService([], { ...hash, upstreams }));
    for (let i = 0; i < 10; i++) {
      const headers = { "X-Tenant": `t${i}` };
      const { reasons, strategy, hashOn } = await gateway.explain({ method: "GET", url: "/a/x", headers });
      const { body } = await gateway.inject({ url: "/a/x", headers });
      expect(reasons).toContain(`Its hash of header:X-Tenant leads to upstream "${String(body)}".`);
      expect([strategy, hashOn]).toEqual(["hash", "header:X-Tenant"]);
    }
  });

  it(
    "explain names the upstream that a sticky cookie leads to, before any hash, " +
      "also if that upstream has weight 0",
    async () => {
      const { port } = await backend((_request, response) => response.end());
      const upstreams = ["a", "b"].map((id) => ({ id, host: "127.0.0.1", port }));
      const sticky = { secret: "0123456789abcdef0123456789abcdef" };
      const { gateway } = await running(oneService([], { upstreams: [upstreams[0]!], sticky }));
      const { headers } = await gateway.inject({ url: "/a/x" });
      const cookie = headers[headers.indexOf("Set-Cookie") + 1]!.split(";")[0]!;
      // Its values lead to b.
      const weighted = { ...hash, sticky, upstreams: [{ ...upstreams[0]!, weight: 0 }, upstreams[1]!] };
      const shares = ({ upstreams: shown }: Explanation) => shown.map(({ share }) => share);
      const [without, forged, valid] = await Promise.all(
        ["x=y", `${cookie}x`, cookie].map((each) => own(weighted, { headers: { "X-Tenant": "t", Cookie: each } })),
      );
      for (const each of [without!, forged!])
        expect([each.reasons.join(), shares(each)]).toEqual([expect.stringContaining('leads to upstream "b"'), [0, 1]]);
      expect([valid!.reasons.join(), shares(valid!)]).toEqual([
        expect.stringContaining('Its cookie route leads to upstream "a".'),
        [1, 0],
      ]);
      expect(valid!.reasons.join()).not.toContain("hash");
    },
  );

  it(
    "explain says that a request without the value goes to each upstream in turn, " +
      "and what bounds the load of an upstream",
    async () => {
      expect((await own(hash)).reasons).toContain(
        "The request has no value for hash_on header:X-Tenant: such requests go to each upstream in turn.",
      );
      const { reasons } = await own({ ...hash, hash_balance_factor: 150 }, { headers: { "X-Tenant": "t" } });
      expect(reasons.join()).toMatch(/leads to upstream "[abc]", unless it has 150 % of the mean load\./);
      expect((await own({ load_balancing_strategy: "ip_hash" })).reasons.join()).toMatch(
        /Its hash of client_ip leads to upstream "[abc]"\./,
      );
      expect((await own({})).reasons.join()).not.toContain("hash");
    },
  );

  it("explain names no upstream where a plugin answers, or asks another server for what is hashed", async () => {
    const ask = { name: "forward_auth", config: { url: "http://127.0.0.1:9/" } };
    expect(
      (await own({ ...hash, plugins: [{ name: "key_auth", config: { key: "k" } }] })).reasons.join(),
    ).not.toContain("hash");
    expect((await own({ ...hash, hash_on: "credential", plugins: [ask] })).reasons.join()).not.toContain("hash");
  });

  it("explain names the cookie of a sticky service, and no secret", async () => {
    const explanation = await own({ sticky: { cookie: "node", secret: "0123456789abcdef0123456789abcdef" } });
    expect([explanation.sticky, explanation.hashOn]).toEqual(["node", null]);
    expect(JSON.stringify(explanation)).not.toContain("0123456789abcdef");
  });
});

describe("explain for a request that is refused", () => {
  it(
    "names the status that an entry of errors sends, with code and reason of the " + "error, also of a plugin's",
    async () => {
      const error = (codes: string[], status?: number) => ({
        codes,
        content_type: "text/html",
        body: "x",
        ...(status !== undefined && { status }),
      });
      const plugins = [{ name: "key_auth", config: { key: "k" } }];
      const { services } = SHOP;
      const service = { ...services[0]!, plugins, errors: [error(["key_missing"], 404), error(["key_invalid"])] };
      const gateway = createGateway({
        config: { ...SHOP, global: { errors: [error(["route_not_found"], 200)] }, services: [service] } as never,
      });
      const ask = (url: string, headers = {}) => gateway.explain({ method: "GET", url, headers });
      expect(await ask("/none")).toMatchObject({ outcome: "refused", status: 200, code: "route_not_found" });
      expect(await ask("/none", { Accept: "image/png" })).toMatchObject({ status: 404 });
      expect((await ask("/none")).reasons[0]).toBe("No service and route of this gateway match the path.");
      const url = "/shop/items/7";
      expect((await ask(url)).answer).toMatchObject({ name: "key_auth", status: 404, code: "key_missing" });
      expect((await ask(url)).plugins[0]).toMatchObject({ verdict: "answers 404 key_missing" });
      expect((await ask(url, { apiKey: "x" })).answer).toMatchObject({ status: 401, code: "key_invalid" });
    },
  );

  it("names the sent status, code and reason of the error, whatever body it would have", async () => {
    for (const [own, status] of [[{ body: "<p>${error.code}" }, 404] as const, [{ status: 204 }, 204] as const]) {
      const errors = [{ content_type: "text/html", ...own }];
      const { services } = SHOP;
      const service = { ...services[0]!, errors };
      const withPages = createGateway({ config: { ...SHOP, global: { errors }, services: [service] } as never });
      const ask = (url: string) => withPages.explain({ method: "GET", url });
      expect(await ask("/none")).toMatchObject({ outcome: "refused", status, code: "route_not_found" });
      expect((await ask("/none")).reasons[0]).toBe("No service and route of this gateway match the path.");
    }
  });

  it.each([
    ["/shop/a/../b", 400, "path_ambiguous", /dot|“\.\.”/],
    ["/shop/%zz", 400, "path_ambiguous", /hexadecimal digits/],
    ["*", 400, "bad_request", /neither a path/],
    [`/shop/${"x".repeat(20_000)}`, 414, "uri_too_long", /may have/],
  ])("explain refuses the target %s", async (url, status, code, reason) => {
    const asked = await explain("GET", url);
    expect(asked).toMatchObject({
      outcome: "refused",
      status,
      code,
      service: null,
      forwarded: null,
      plugins: [],
      upstreams: [],
    });
    expect(asked.reasons[0]).toMatch(reason);
  });

  it.each([
    ["a method that is no token", "GE T", {}],
    ["CONNECT", "CONNECT", {}],
    ["a host that is none", "GET", { Host: "a b" }],
    ["a header that could not be sent", "GET", { "X-A": "a\r\nb" }],
  ] as [string, string, Record<string, string>][])("explain answers 400 for %s", async (_, method, headers) => {
    expect(await explain(method, "/shop/items/7", headers)).toMatchObject({
      outcome: "refused",
      status: 400,
      code: "bad_request",
    });
  });

  it("explain lists, for a 404 below a base_path, the routes there and suggests one", async () => {
    const { status, code, path, reasons } = await explain("POST", "/shop");
    expect([status, code, path]).toEqual([404, "route_not_found", "/shop"]);
    expect(reasons[0]).toBe("No service and route of this gateway match the path.");
    expect(reasons[1]).toBe(
      '/shop begins as base_path /shop of service "shop" does, but matches none of its routes as a whole: ' +
        "/shop/items/{id}, /shop/{rest*}.",
    );
    expect((await explain("GET", "/v1/user", { Host: "api.example.com" })).reasons[1]).toMatch(
      /: \/v1\/users\. Did you mean \/v1\/users\?$/,
    );
  });

  it("explain lists, for a 404 elsewhere, the base_paths and suggests one", async () => {
    expect((await explain("GET", "/shpo/items/7")).reasons[1]).toBe(
      "/shpo/items/7 begins with the base_path of no service: there are /shop, /. Did you mean /shop?",
    );
  });

  it("explain names, for a 404 because of the host, the hosts of the route", async () => {
    expect((await explain("GET", "/v1/users", { Host: "other.example" })).reasons[1]).toBe(
      'Route "v1" of service "api" (/v1/users) matches the path, but is for the hosts api.example.com only.',
    );
  });

  it("explain reports, for a 404 without services, that there are none", async () => {
    expect((await createGateway({ config: { services: [] } }).explain({ method: "GET", url: "/" })).reasons[1]).toBe(
      "The configuration has no services.",
    );
  });

  it("explain names, for a 405, the methods of the route", async () => {
    const { status, code, reasons } = await explain("PUT", "/shop/items/7");
    expect([status, code]).toEqual([405, "method_not_allowed"]);
    expect(reasons).toEqual([
      "This path accepts DELETE, GET, HEAD.",
      'Route "item" of service "shop" (/shop/items/{id}) matches the path, but accepts GET, DELETE.',
    ]);
    expect((await explain("delete", "/shop/items/7")).reasons[1]).toMatch(
      /accepts GET, DELETE\. Upper and lower case are not the same in methods: write DELETE\.$/,
    );
  });
});

describe("the candidates of explain", () => {
  const verdicts = async (question: Question, from = gateway) =>
    (await from.explain(question)).candidates.map(({ service, route, verdict }) => `${service}/${route} ${verdict}`);
  const upstreams = [{ host: "127.0.0.1", port: 9 }];

  it(
    "the candidates of explain begin with the route that takes the request, " +
      "then the less specific routes that match as well",
    async () => {
      const rest =
        'matches as well, but is less specific than route "item" of service "shop": ' +
        "a literal segment comes before {name}, {name} before {name*}, and at a tie the longer base_path first";
      expect(await verdicts({ method: "GET", url: "/shop/items/7" })).toEqual([
        "shop/item takes the request",
        `shop/rest ${rest}`,
      ]);
    },
  );

  it("the candidates of explain include routes of other methods, with their methods", async () => {
    expect(await verdicts({ method: "DELETE", url: "/shop/items/7" })).toEqual([
      "shop/item takes the request",
      "shop/rest matches the path, but accepts only GET",
    ]);
    expect(await verdicts({ method: "PUT", url: "/shop/items/7" })).toEqual([
      "shop/item matches the path, but accepts GET, DELETE",
      "shop/rest matches the path, but accepts only GET",
    ]);
  });

  it("explain says which conditions hold and which do not, by their names, never by their values", async () => {
    const routes: AnyConfigInput["services"][number]["routes"] = [
      { name: "rest", path: "/x" },
      { name: "new", path: "/x", methods: ["GET"], match: { headers: { "X-Token": "s3cret" }, query: { beta: true } } },
      {
        name: "old",
        path: "/x",
        methods: ["GET"],
        match: { headers: { "X-Token": null }, cookies: { old: { matches: "hidden" } } },
      },
      { name: "only", path: "/only", match: { cookies: { c: "v4lue" } } },
    ];
    const own = createGateway({ config: { services: [{ name: "s", base_path: "/", upstreams, routes }] } });
    const taken = await own.explain({ method: "GET", url: "/x?beta", headers: { "X-Token": "s3cret" } });
    expect(taken.reasons).toContain("Its conditions on header X-Token and query parameter beta hold.");
    expect(await verdicts({ method: "GET", url: "/x?beta", headers: { "X-Token": "s3cret" } }, own)).toEqual([
      "s/new takes the request",
      "s/old matches the path, but its conditions on header X-Token and cookie old do not hold",
      's/rest matches as well, but is less specific than route "new" of service "s": ' +
        ("a literal segment comes before {name}, {name} before {name*}, " +
          "and at a tie the longer base_path first, then more conditions"),
    ]);
    expect(await verdicts({ method: "GET", url: "/x", headers: { "X-Token": "s3cret" } }, own)).toEqual([
      "s/new matches the path, but its condition on query parameter beta does not hold",
      "s/old matches the path, but its conditions on header X-Token and cookie old do not hold",
      "s/rest takes the request",
    ]);
    const refused = await own.explain({ method: "GET", url: "/only", headers: { Cookie: "c=other" } });
    expect([refused.status, refused.code, refused.reasons]).toEqual([
      404,
      "route_not_found",
      [
        "No route of this path fits the headers, the query, the cookies and the scheme of the request.",
        'Route "only" of service "s" (/only) matches the path, but its condition on cookie c does not hold.',
      ],
    ]);
    expect(JSON.stringify([taken, refused])).not.toMatch(/s3cret|hidden|v4lue/);
    await own.close(0);
  });

  it(
    "explain tests the conditions of a preflight that no plugin takes with the headers that it has, " +
      "not with those that it asks about",
    async () => {
      const routes = [{ name: "own", path: "/x", methods: ["OPTIONS", "GET"], match: { headers: { "X-A": "1" } } }];
      const own = createGateway({ config: { services: [{ name: "s", base_path: "/", upstreams, routes }] } });
      const headers = {
        Origin: "https://a.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "x-a",
      };
      expect(await verdicts({ method: "OPTIONS", url: "/x", headers }, own)).toEqual([
        "s/own matches the path, but its condition on header X-A does not hold",
      ]);
      expect(await verdicts({ method: "OPTIONS", url: "/x", headers: { ...headers, "X-A": "1" } }, own)).toEqual([
        "s/own takes the request",
      ]);
      await own.close(0);
    },
  );

  it(
    "the candidates of explain include routes for other hosts, with their hosts, " +
      "whether another route takes the request or none",
    async () => {
      expect(await verdicts({ method: "GET", url: "/v1/users" })).toEqual([
        "api/v1 matches the path, but is for the hosts api.example.com only",
      ]);
      const services = ["one", "two"].map((name) => ({
        name,
        base_path: "/",
        ...(name === "one" && { hosts: ["one.example"] }),
        upstreams,
        routes: [{ name: "r", path: "/x" }],
      }));
      const own = createGateway({ config: { services } });
      expect(await verdicts({ method: "GET", url: "/x" }, own)).toEqual([
        "two/r takes the request",
        "one/r matches the path, but is for the hosts one.example only",
      ]);
      expect(await verdicts({ method: "GET", url: "http://one.example/x" }, own)).toEqual([
        "one/r takes the request",
        'two/r matches as well, but is less specific than route "r" of service "one": ' +
          "services for certain hosts come first",
      ]);
    },
  );

  it(
    "the candidates of explain are the routes below the base_path when no pattern matches, " +
      "and none outside of every base_path",
    async () => {
      expect(await verdicts({ method: "POST", url: "/shop" })).toEqual([
        "shop/item has another path: /shop/items/{id}",
        "shop/rest has another path: /shop/{rest*}",
      ]);
      expect(await verdicts({ method: "GET", url: "/nowhere" })).toEqual([]);
      expect(await verdicts({ method: "GET", url: "/shop/%zz" })).toEqual([]);
    },
  );

  it(
    "the candidates of explain include the routes because of which a spelling is refused, " +
      "also if only the decoded path matches them",
    async () => {
      const services = [
        { name: "in", base_path: "/admin", upstreams, routes: [{ name: "users", path: "/users" }] },
        {
          name: "out",
          base_path: "/",
          upstreams,
          encoded_slashes: "allow" as const,
          path_parameters: "allow" as const,
          routes: [{ name: "rest", path: "/{rest*}" }],
        },
      ];
      const own = createGateway({ config: { services } });
      const rest = "out/rest would accept it, but is less specific: host and path alone decide";
      expect(await verdicts({ method: "GET", url: "/admin%2Fusers" }, own)).toEqual([
        rest,
        'in/users would match the path with “/” for %2F, and its service does not allow %2F ("encoded_slashes")',
      ]);
      expect(await verdicts({ method: "GET", url: "/admin;x/users" }, own)).toEqual([
        rest,
        "in/users would match the path without its parameters after “;”, " +
          'and its service does not allow such paths on other routes ("path_parameters")',
      ]);
      expect(await verdicts({ method: "GET", url: "/shop/items/a%2Fb" })).toContain(
        'shop/item matches the path, but its service does not allow %2F ("encoded_slashes")',
      );
    },
  );

  it("explain lists at most 100 candidates, at most five of them for other hosts", async () => {
    const routes = Array.from({ length: 120 }, (_, i) => ({
      name: `r${i}`,
      path: `/${["x", "{a}"][i & 1]!}/${"x/".repeat(i >> 1)}{rest*}`,
    }));
    const url = `/x${"/x".repeat(70)}`;
    const own = createGateway({ config: { services: [{ name: "s", base_path: "/", upstreams, routes }] } });
    expect((await own.explain({ method: "GET", url })).candidates).toHaveLength(100);
    const hosts = Array.from({ length: 9 }, (_, i) => ({
      name: `s${i}`,
      base_path: "/",
      hosts: [`h${i}.example`],
      upstreams,
      routes: [{ path: "/x" }],
    }));
    expect(
      (await createGateway({ config: { services: hosts } }).explain({ method: "GET", url: "/x" })).candidates,
    ).toHaveLength(5);
  });

  it("explain of a path that many routes share by conditions takes time in proportion to their number", async () => {
    const fresh = await counted(() => import("../../lib/index.ts"));
    const cost = async (count: number) => {
      const routes = Array.from({ length: count }, (_, i) => ({
        name: `r${i}`,
        path: "/x",
        match: { headers: { "x-version": String(i) } },
      }));
      const own = fresh.createGateway({ config: { services: [{ name: "s", base_path: "/", upstreams, routes }] } });
      return blocksOf(
        async () => void expect((await own.explain({ method: "GET", url: "/x" })).candidates).toHaveLength(100),
      );
    };
    expect((await cost(2000)) / (await cost(250))).toBeLessThan(LINEAR);
  });
});

describe("the effects of explain", () => {
  it("explain refuses names that it does not know, by the names of inject and of tests", async () => {
    const { gateway: own } = await running(oneService(9));
    const refused = (question: object) => own.explain(question as never).catch((error: unknown) => String(error));
    expect(await refused({ method: "GET", path: "/a/x" })).toBe('TypeError: explain has no option "path": write "url"');
    expect(await refused({ method: "GET", url: "/a/x", client_ip: "192.0.2.1" })).toBe(
      'TypeError: explain has no option "client_ip": did you mean "clientIp"?',
    );
    expect(await refused({ method: "GET", url: "/a/x", scheme: "https" })).toBe(
      'TypeError: explain has no option "scheme": the url says it, such as "https://localhost/"',
    );
  });

  it("explain sends nothing, counts nothing, and leaves nothing in flight", async () => {
    const { port, seen } = await backend();
    const { gateway: own } = await running(
      oneService(port, { plugins: [{ name: "rate_limit", config: { limit_min: 5 } }] }),
    );
    for (const url of ["/a/x", "/nowhere", "/a/%2e"]) await own.explain({ method: "GET", url });
    expect([seen.length, own.inFlight, own.stats.total.inFlight, own.stats.point.requests]).toEqual([0, 0, 0, 0]);
    expect(own.stats.services[0]!.routes.map(({ inFlight }) => inFlight)).toEqual([0, 0]);
    expect(readMetrics(own.metrics()).all("edge_gateway_http_requests_total")).toEqual([]);
    for (const headers of [{ "Content-Length": "5" }, { "transfer-encoding": "chunked" }])
      expect((await own.explain({ method: "POST", url: "/a/x", headers })).outcome).toBe("matched");
  });

  it("explain reports ejected upstreams, services without a usable upstream, and open circuits", async () => {
    const [bad, good] = [await closedPort(), await backend()];
    const { gateway: own } = await running(oneService([bad, good.port], { health: { passive: { max_failures: 1 } } }));
    for (let i = 0; i < 2; i++) await own.inject({ url: "/a/x" });
    expect(
      (await own.explain({ method: "GET", url: "/a/x" })).upstreams.map(({ state, share }) => [state, share]),
    ).toEqual([
      ["ejected", 0],
      ["unknown", 1],
    ]);
    const breaker = { min_requests: 1, error_ratio: 0.1 };
    const { gateway: broken } = await running(
      oneService(bad, { circuit_breaker: breaker, upstreams: [{ host: "127.0.0.1", port: bad, weight: 1 }] }),
    );
    await broken.inject({ url: "/a/x" });
    const { upstreams, reasons } = await broken.explain({ method: "GET", url: "/a/x" });
    expect(upstreams.map(({ share }) => share)).toEqual([0]);
    expect(reasons.at(-1)).toMatch(/^The circuit of the service is open/);
    const idle = createGateway({ config: oneService(9, { upstreams: [{ host: "127.0.0.1", port: 9, weight: 0 }] }) });
    expect((await idle.explain({ method: "GET", url: "/a/x" })).reasons.at(-1)).toMatch(
      /^No upstream of the service can be used/,
    );
  });

  it("explain and inject agree on the status or the route of every request", async () => {
    const { port } = await backend();
    const config = oneService(port, {
      routes: [
        { path: "/x", name: "x", methods: ["GET"] },
        { path: "/{a}/y", name: "y" },
      ],
    });
    const { gateway: own } = await running(config);
    for (const method of ["GET", "HEAD", "POST", "DELETE", "OPTIONS"]) {
      for (const path of [
        "/a/x",
        "/a/x/",
        "/a/b/y",
        "/a/b%2Fc/y",
        "/a/../a/x",
        "/b",
        "/a//x",
        "http://h/a/x",
        "/a/x#f",
      ]) {
        const { outcome, status } = await own.explain({ method, url: path });
        const got = await own.inject({ method, url: path });
        expect([method, path, outcome === "matched" ? 200 : status]).toEqual([method, path, got.status]);
      }
    }
  });

  it(
    "explain and a listener agree on status and code, whatever the client sends: targets, hosts, " +
      "lengths, expectations, sizes",
    async () => {
      const { port } = await backend((request, response) => void response.setHeader("x-got", request.url!).end());
      const config: AnyConfigInput = {
        global: { limits: { max_uri_bytes: 600, max_headers: 20, max_header_bytes: 4096, max_body_bytes: 1000 } },
        services: [
          {
            name: "a",
            base_path: "/a",
            upstreams: [{ host: "127.0.0.1", port }],
            routes: [
              { name: "x", path: "/x", methods: ["GET", "POST"] },
              { name: "y", path: "/{id}/y" },
              {
                name: "cors",
                path: "/cors",
                methods: ["PUT"],
                plugins: [{ name: "cors", config: { allow_origins: ["https://ok.example"] } }],
              },
            ],
          },
          {
            name: "enc",
            base_path: "/enc",
            encoded_slashes: "allow",
            upstreams: [{ host: "127.0.0.1", port }],
            routes: [{ name: "e", path: "/{v}" }],
          },
          {
            name: "h",
            base_path: "/",
            hosts: ["h.example", "*.w.example"],
            upstreams: [{ host: "127.0.0.1", port }],
            routes: [{ name: "r", path: "/{rest*}", methods: ["GET"] }],
          },
        ],
      };
      const { gateway: own, port: at } = await running(config);
      const { pick, chance, list } = seeded(6);
      const [long, longer] = ["y".repeat(700), "y".repeat(5_000)];
      const methods = ["GET", "POST", "PUT", "OPTIONS", "OPTIONS", "PATCH", "PROPFIND"];
      const targets = [
        "/a/x",
        "/a/x?q=1",
        "/a/b/y",
        "/a//x",
        "/a/x/",
        "/a/cors",
        "/a/cors",
        "/a/%41/y",
        "/A/x",
        "/enc/a%2fb",
        "/?",
        "/nope",
        "http://h.example/z",
        "HTTP://X.w.example/q?a",
      ];
      const wrongTargets = [
        "/a/%2e%2e/y",
        "/a/b%2Fc/y",
        "/enc/%5c",
        "/a/../a/x",
        "/a/%zz",
        "/a/%00/y",
        "/a/x?a b",
        "/a/ b/y",
        "*",
        "http:///a/x",
        "http://u@h.example/z",
        `/a/${long}/y`,
      ];
      const hosts = ["gw", "h.example", "H.EXAMPLE:80", "x.w.example", "h.example.", "[::1]", ""];
      const wrongHosts = ["a b", "[::1", "h.example:99999", "x/y", "h@x", "%41"];
      const preflight = { Origin: "https://ok.example", "Access-Control-Request-Method": "PUT" };
      const fields: Record<string, string>[] = [
        { "X-A": "1", "X-Client-Cert-Subject": "x", Connection: "close, x-a" },
        preflight,
        { Origin: "null" },
        { Expect: "100-Continue" },
        { Content_Length: "5" },
        { Transfer_Encoding: "chunked" },
      ];
      const lengths = ["5000", "007", "x"].map((length) => ({ "Content-Length": length }));
      const wrongFields: Record<string, string>[] = [
        { Expect: "tea" },
        { Connection: ",".repeat(100) },
        { "Transfer-Encoding": "gzip" },
        { "X-Long": longer },
        { "Bad Name": "x" },
        { "X-B": "a\u0001b" },
        ...lengths,
      ];
      const seen = new Set<string>();
      for (let i = 0; i < 600; i++) {
        // One thing wrong at most: of several, either may be told.
        const wrong = chance(0.5) ? "nothing" : pick(["target", "host", "field", "many"]);
        const url = pick(wrong === "target" ? wrongTargets : targets);
        const headers: Record<string, string> = { Host: pick(wrong === "host" ? wrongHosts : hosts) };
        Object.assign(headers, ...list(0, 2, () => pick(fields)), wrong === "field" ? pick(wrongFields) : {});
        if (wrong === "many") for (let n = 0; n < 20; n++) headers[`x-${n}`] = "";
        const method = pick(methods);
        const asked = await own.explain({ method, url, headers });
        const client = await connect(at);
        client.send(
          Buffer.from(
            `${method} ${url} HTTP/1.1\r\n${Object.entries(headers)
              .map(([name, value]) => `${name}: ${value}\r\n`)
              .join("")}\r\n`,
            "latin1",
          ),
        );
        const text = await client.until(/HTTP\/1\.1 (?:20.[^]*?\r\n\r\n|[45][^]*"code":"\w+")/);
        client.socket.destroy();
        const verdict = [
          /HTTP\/1\.1 ([2-5]\d\d)/.exec(text)?.[1],
          /"code":"(\w+)"/.exec(text)?.[1],
          /x-got: (.*)\r/.exec(text)?.[1],
        ].map((part) => part ?? null);
        const isPreflight = asked.route === "cors" && method === "OPTIONS";
        const expected =
          asked.outcome === "matched"
            ? [isPreflight ? "204" : "200", null, isPreflight ? null : asked.forwarded]
            : [String(asked.status), asked.code, null];
        expect([method, url, headers, ...verdict]).toEqual([method, url, headers, ...expected]);
        seen.add(expected.slice(0, 2).join(" "));
      }
      expect([...seen].sort()).toEqual([
        "200 ",
        "204 ",
        "400 bad_request",
        "400 path_ambiguous",
        "404 route_not_found",
        "405 method_not_allowed",
        "413 body_too_large",
        "414 uri_too_long",
        "417 expectation_failed",
        "431 headers_too_large",
      ]);
    },
  );

  it("explain refuses a body that is not as long as its Content-Length, too large, or framed otherwise", async () => {
    const { gateway: own } = await running(oneService(9, {}, { limits: { max_body_bytes: 10 } }));
    const asked = async (body: string, headers: Question["headers"] = {}) => {
      const { status, code, outcome } = await own.explain({ method: "POST", url: "/a/x", headers, body });
      return status === null ? outcome : `${status} ${code}`;
    };
    expect(await asked("four")).toBe("matched");
    expect(await asked("four", { "Content-Length": "4" })).toBe("matched");
    expect(await asked("four", { "Content-Length": "5" })).toBe("400 bad_request");
    expect(await asked("four", { "Content-Length": ["4", "4"] })).toBe("400 bad_request");
    expect(await asked("more than ten")).toBe("413 body_too_large");
    expect(await asked("four", { "Transfer-Encoding": "chunked" })).toBe("400 bad_request");
  });

  it("explain reports that HTTP/1.1 answers 400 to a method that its parser does not know", async () => {
    for (const method of ["BREW", "get"])
      expect((await explain(method, "/shop/items/7")).reasons.at(-1)).toBe(
        `That is over HTTP/2: HTTP/1.1 has no method ${method} here, and answers 400.`,
      );
    expect((await explain("PROPFIND", "/shop/items/7")).reasons.join()).not.toContain("HTTP/2");
  });
});
