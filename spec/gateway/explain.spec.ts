import { describe, expect, it } from "vitest";
import type { ConfigInput } from "../../lib/config/model.ts";
import { createGateway, definePlugin, schema, type Explanation, type Question } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { readMetrics } from "../support/metrics_text.ts";
import { closedPort } from "../support/origin.ts";
import { random as seeded } from "../support/random.ts";
import { connect } from "../support/raw_client.ts";

const SHOP: ConfigInput = {
  global: { plugins: [{ name: "key_auth", id: "door", config: { key: "${env:KEY}" } }] },
  services: [
    {
      name: "shop",
      base_path: "/shop",
      plugins: [{ name: "acl", config: { whitelist: ["127.0.0.0/8"] } }, { name: "acl", enabled: false, config: { blacklist: ["10.0.0.1"] } }],
      upstreams: [{ id: "a", host: "127.0.0.1", port: 9, weight: 3 }, { id: "b", host: "127.0.0.1", port: 10 }, { id: "c", host: "127.0.0.1", port: 11, weight: 0 }],
      load_balancing_strategy: "weighted",
      routes: [
        { name: "item", path: "/items/{id}", methods: ["GET", "DELETE"], plugins: [{ name: "rate_limit", config: { limit_min: 5 } }] },
        { name: "rest", path: "/{rest*}", methods: ["GET"] },
      ],
    },
    { name: "api", base_path: "/", hosts: ["api.example.com"], upstreams: [{ host: "127.0.0.1", port: 9 }], routes: [{ name: "v1", path: "/v1/users" }] },
  ],
};

const gateway = createGateway({ config: SHOP, environment: { KEY: "s3cret-key" } });
const explain = (method: string, url: string, headers?: Question["headers"]): Explanation => gateway.explain({ method, url, ...(headers && { headers }) });

describe("explain for a request that matches", () => {
  it("explain returns service, route, pattern, parameters, the forwarded path, and the upstreams with their shares", () => {
    expect(explain("GET", "/shop/items/7?x=1")).toMatchObject({
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
      upstreams: [{ id: "a", share: 0.75, usable: true }, { id: "b", share: 0.25 }, { id: "c", share: 0, state: "draining", usable: false }],
    });
  });

  it("explain reports why the route matches, and which less specific routes match as well", () => {
    const { reasons } = explain("GET", "/shop/items/7");
    expect(reasons[0]).toBe('/shop/items/7 matches service "shop" (base_path /shop), route "item" (/items/{id}).');
    expect(reasons[1]).toMatch(/^Route "rest" of service "shop" \(\/shop\/\{rest\*\}\) matches as well, but is less specific: a literal segment comes before/);
    expect(explain("DELETE", "/shop/items/7").reasons).toContain("No other route matches it: a literal segment would come before {name}, and {name} before {name*}.");
  });

  it("explain lists the plugins that run, in their order, without disabled ones and without secrets", () => {
    const explanation = explain("GET", "/shop/items/7");
    expect(explanation.plugins.map(({ level, name, id }) => [level, name, id])).toEqual([["global", "key_auth", "door"], ["service", "acl", null], ["route", "rate_limit", null]]);
    expect(explanation.plugins[0]!.config).toMatchObject({ key: "${env:KEY}" });
    expect(JSON.stringify(explanation)).not.toContain("s3cret");
  });

  it("explain reports when a route loses because of its host", () => {
    const services = [["*.example.com", "/v1/users"], ["*.a.example.com", "/v1/{name}"], ["x.a.example.com", "/{rest*}"], [null, "/v1/users"]].map(([host, path], i) => ({
      name: `s${i}`,
      base_path: "/",
      ...(host == null ? {} : { hosts: [host] }),
      upstreams: [{ host: "127.0.0.1", port: 9 }],
      routes: [{ name: "r", path: path! }],
    }));
    const own = createGateway({ config: { services } });
    const why = (host: string) => own.explain({ method: "GET", url: `http://${host}/v1/users` }).reasons.filter((reason) => reason.includes("less specific")).map((reason) => /"(s\d)".*specific: (.*)$/.exec(reason)!.slice(1));
    const [hosts, all] = ["an exact host comes before a host with *., and a longer host with *. before a shorter one.", "services for certain hosts come first."];
    expect(why("X.a.example.com:80")).toEqual([["s0", hosts], ["s1", hosts], ["s3", all]]);
    expect(why("y.a.example.com")).toEqual([["s0", hosts], ["s3", all]]);
  });

  it("explain takes the host from the url, or from the headers", () => {
    for (const asked of [explain("GET", "http://api.example.com/v1/users"), explain("GET", "/v1/users", { Host: "API.example.com:8008" })]) {
      expect([asked.service, asked.pattern, asked.forwarded]).toEqual(["api", "/v1/users", "/v1/users"]);
      expect(asked.reasons).toContain("The service is for the hosts api.example.com: it comes before services for all hosts.");
    }
  });

  it("explain shows the normal form of the path", () => {
    const asked = explain("GET", "/shop//items/%37");
    expect([asked.path, asked.route]).toEqual(["/shop/items/7", "item"]);
    expect(asked.reasons).toContain("The path is matched and forwarded in its normal form, /shop/items/7.");
  });

  it("explain reports that HEAD uses the route for GET", () => {
    expect(explain("HEAD", "/shop/items/7").reasons).toContain("A route that accepts GET also accepts HEAD.");
  });
});

describe("explain for a request that is refused", () => {
  it.each([
    ["/shop/a/../b", 400, "path_ambiguous", /dot|“\.\.”/],
    ["/shop/%zz", 400, "path_ambiguous", /hexadecimal digits/],
    ["*", 400, "bad_request", /neither a path/],
    [`/shop/${"x".repeat(20_000)}`, 414, "uri_too_long", /may have/],
  ])("explain refuses the target %s", (url, status, code, reason) => {
    const asked = explain("GET", url);
    expect(asked).toMatchObject({ outcome: "refused", status, code, service: null, forwarded: null, plugins: [], upstreams: [] });
    expect(asked.reasons[0]).toMatch(reason);
  });

  it.each([
    ["a method that is no token", "GE T", {}],
    ["CONNECT", "CONNECT", {}],
    ["a host that is none", "GET", { Host: "a b" }],
    ["a header that could not be sent", "GET", { "X-A": "a\r\nb" }],
  ] as [string, string, Record<string, string>][])("explain answers 400 for %s", (_, method, headers) => {
    expect(explain(method, "/shop/items/7", headers)).toMatchObject({ outcome: "refused", status: 400, code: "bad_request" });
  });

  it("explain lists, for a 404 below a base_path, the routes there and suggests one", () => {
    const { status, code, path, reasons } = explain("POST", "/shop");
    expect([status, code, path]).toEqual([404, "route_not_found", "/shop"]);
    expect(reasons[0]).toBe("No service and route of this gateway match the path.");
    expect(reasons[1]).toBe('/shop begins as base_path /shop of service "shop" does, but matches none of its routes as a whole: /shop/items/{id}, /shop/{rest*}.');
    expect(explain("GET", "/v1/user", { Host: "api.example.com" }).reasons[1]).toMatch(/: \/v1\/users\. Did you mean \/v1\/users\?$/);
  });

  it("explain lists, for a 404 elsewhere, the base_paths and suggests one", () => {
    expect(explain("GET", "/shpo/items/7").reasons[1]).toBe("/shpo/items/7 begins with the base_path of no service: there are /shop, /. Did you mean /shop?");
  });

  it("explain names, for a 404 because of the host, the hosts of the route", () => {
    expect(explain("GET", "/v1/users", { Host: "other.example" }).reasons[1]).toBe(
      'Route "v1" of service "api" (/v1/users) matches the path, but is for the hosts api.example.com only.',
    );
  });

  it("explain reports, for a 404 without services, that there are none", () => {
    expect(createGateway({ config: { services: [] } }).explain({ method: "GET", url: "/" }).reasons[1]).toBe("The configuration has no services.");
  });

  it("explain names, for a 405, the methods of the route", () => {
    const { status, code, reasons } = explain("PUT", "/shop/items/7");
    expect([status, code]).toEqual([405, "method_not_allowed"]);
    expect(reasons).toEqual([
      "This path accepts DELETE, GET, HEAD.",
      'Route "item" of service "shop" (/shop/items/{id}) matches the path, but accepts GET, DELETE.',
    ]);
    expect(explain("delete", "/shop/items/7").reasons[1]).toMatch(/accepts GET, DELETE\. Upper and lower case are not the same in methods: write DELETE\.$/);
  });
});

describe("the effects of explain", () => {
  it("explain sends nothing, runs no plugin, counts nothing, and leaves nothing in flight", async () => {
    let runs = 0;
    const watching = definePlugin({ name: "watching", schema: schema.object({}), create: () => (next) => (exchange) => (runs++, next(exchange)) });
    const { port, seen } = await backend();
    const { gateway: own } = await running(oneService(port, { plugins: [{ name: "watching", config: {} }] } as never), { plugins: [watching] });
    for (const url of ["/a/x", "/nowhere", "/a/%2e"]) own.explain({ method: "GET", url });
    expect([runs, seen.length, own.inFlight, own.stats.total.inFlight, own.stats.point.requests]).toEqual([0, 0, 0, 0, 0]);
    expect(own.stats.services[0]!.routes.map(({ inFlight }) => inFlight)).toEqual([0, 0]);
    expect(readMetrics(own.metrics()).all("edge_gateway_http_requests_total")).toEqual([]);
    for (const headers of [{ "Content-Length": "5" }, { "transfer-encoding": "chunked" }]) expect(own.explain({ method: "POST", url: "/a/x", headers }).outcome).toBe("matched");
  });

  it("explain reports ejected upstreams, services without a usable upstream, and open circuits", async () => {
    const [bad, good] = [await closedPort(), await backend()];
    const { gateway: own } = await running(oneService([bad, good.port], { health: { passive: { max_failures: 1 } } }));
    for (let i = 0; i < 2; i++) await own.inject({ path: "/a/x" });
    expect(own.explain({ method: "GET", url: "/a/x" }).upstreams.map(({ state, share }) => [state, share])).toEqual([["ejected", 0], ["unknown", 1]]);
    const breaker = { min_requests: 1, error_ratio: 0.1 };
    const { gateway: broken } = await running(oneService(bad, { circuit_breaker: breaker, upstreams: [{ host: "127.0.0.1", port: bad, weight: 1 }] }));
    await broken.inject({ path: "/a/x" });
    const { upstreams, reasons } = broken.explain({ method: "GET", url: "/a/x" });
    expect(upstreams.map(({ share }) => share)).toEqual([0]);
    expect(reasons.at(-1)).toMatch(/^The circuit of the service is open/);
    const idle = createGateway({ config: oneService(9, { upstreams: [{ host: "127.0.0.1", port: 9, weight: 0 }] }) });
    expect(idle.explain({ method: "GET", url: "/a/x" }).reasons.at(-1)).toMatch(/^No upstream of the service can be used/);
  });

  it("explain and inject agree on the status or the route of every request", async () => {
    const { port } = await backend();
    const config = oneService(port, { routes: [{ path: "/x", name: "x", methods: ["GET"] }, { path: "/{a}/y", name: "y" }] });
    const { gateway: own } = await running(config);
    for (const method of ["GET", "HEAD", "POST", "DELETE", "OPTIONS"]) {
      for (const path of ["/a/x", "/a/x/", "/a/b/y", "/a/b%2Fc/y", "/a/../a/x", "/b", "/a//x", "http://h/a/x", "/a/x#f"]) {
        const { outcome, status } = own.explain({ method, url: path });
        const got = await own.inject({ method, path });
        expect([method, path, outcome === "matched" ? 200 : status]).toEqual([method, path, got.status]);
      }
    }
  });

  it("explain and a listener agree on status and code, whatever the client sends: targets, hosts, lengths, expectations, sizes", async () => {
    const { port } = await backend((request, response) => void response.setHeader("x-got", request.url!).end());
    const config: ConfigInput = {
      global: { limits: { max_uri_bytes: 600, max_headers: 20, max_header_bytes: 4096, max_body_bytes: 1000 } },
      services: [
        {
          name: "a",
          base_path: "/a",
          upstreams: [{ host: "127.0.0.1", port }],
          routes: [
            { name: "x", path: "/x", methods: ["GET", "POST"] },
            { name: "y", path: "/{id}/y" },
            { name: "cors", path: "/cors", methods: ["PUT"], plugins: [{ name: "cors", config: { allow_origins: ["https://ok.example"] } }] },
          ],
        },
        { name: "enc", base_path: "/enc", encoded_slashes: "allow", upstreams: [{ host: "127.0.0.1", port }], routes: [{ name: "e", path: "/{v}" }] },
        { name: "h", base_path: "/", hosts: ["h.example", "*.w.example"], upstreams: [{ host: "127.0.0.1", port }], routes: [{ name: "r", path: "/{rest*}", methods: ["GET"] }] },
      ],
    };
    const { gateway: own, port: at } = await running(config);
    const { pick, chance, list } = seeded(6);
    const [long, longer] = ["y".repeat(700), "y".repeat(5_000)];
    const methods = ["GET", "POST", "PUT", "OPTIONS", "OPTIONS", "PATCH", "PROPFIND"];
    const targets = ["/a/x", "/a/x?q=1", "/a/b/y", "/a//x", "/a/x/", "/a/cors", "/a/cors", "/a/%41/y", "/A/x", "/enc/a%2fb", "/?", "/nope", "http://h.example/z", "HTTP://X.w.example/q?a"];
    const wrongTargets = ["/a/%2e%2e/y", "/a/b%2Fc/y", "/enc/%5c", "/a/../a/x", "/a/%zz", "/a/%00/y", "/a/x?a b", "/a/ b/y", "*", "http:///a/x", "http://u@h.example/z", `/a/${long}/y`];
    const hosts = ["gw", "h.example", "H.EXAMPLE:80", "x.w.example", "h.example.", "[::1]", ""];
    const wrongHosts = ["a b", "[::1", "h.example:99999", "x/y", "h@x", "%41"];
    const preflight = { Origin: "https://ok.example", "Access-Control-Request-Method": "PUT" };
    const fields: Record<string, string>[] = [{ "X-A": "1", "X-Client-Cert-Subject": "x", Connection: "close, x-a" }, preflight, { Origin: "null" }, { Expect: "100-Continue" }, { Content_Length: "5" }, { Transfer_Encoding: "chunked" }];
    const lengths = ["5000", "007", "x"].map((length) => ({ "Content-Length": length }));
    const wrongFields: Record<string, string>[] = [{ Expect: "tea" }, { Connection: ",".repeat(100) }, { "Transfer-Encoding": "gzip" }, { "X-Long": longer }, { "Bad Name": "x" }, { "X-B": "a\u0001b" }, ...lengths];
    const seen = new Set<string>();
    for (let i = 0; i < 600; i++) {
      // One thing wrong at most: of several, either may be told.
      const wrong = chance(0.5) ? "nothing" : pick(["target", "host", "field", "many"]);
      const url = pick(wrong === "target" ? wrongTargets : targets);
      const headers: Record<string, string> = { Host: pick(wrong === "host" ? wrongHosts : hosts) };
      Object.assign(headers, ...list(0, 2, () => pick(fields)), wrong === "field" ? pick(wrongFields) : {});
      if (wrong === "many") for (let n = 0; n < 20; n++) headers[`x-${n}`] = "";
      const method = pick(methods);
      const asked = own.explain({ method, url, headers });
      const client = await connect(at);
      client.send(Buffer.from(`${method} ${url} HTTP/1.1\r\n${Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`, "latin1"));
      const text = await client.until(/HTTP\/1\.1 (?:20.[^]*?\r\n\r\n|[45][^]*"code":"\w+")/);
      client.socket.destroy();
      const verdict = [/HTTP\/1\.1 ([2-5]\d\d)/.exec(text)?.[1], /"code":"(\w+)"/.exec(text)?.[1], /x-got: (.*)\r/.exec(text)?.[1]].map((part) => part ?? null);
      const isPreflight = asked.route === "cors" && method === "OPTIONS";
      const expected = asked.outcome === "matched" ? [isPreflight ? "204" : "200", null, isPreflight ? null : asked.forwarded] : [String(asked.status), asked.code, null];
      expect([method, url, headers, ...verdict]).toEqual([method, url, headers, ...expected]);
      seen.add(expected.slice(0, 2).join(" "));
    }
    expect([...seen].sort()).toEqual(["200 ", "204 ", "400 bad_request", "400 path_ambiguous", "404 route_not_found", "405 method_not_allowed", "413 body_too_large", "414 uri_too_long", "417 expectation_failed", "431 headers_too_large"]);
  });

  it("explain reports that HTTP/1.1 answers 400 to a method that its parser does not know", () => {
    for (const method of ["BREW", "get"]) expect(explain(method, "/shop/items/7").reasons.at(-1)).toBe(`That is over HTTP/2: HTTP/1.1 has no method ${method} here, and answers 400.`);
    expect(explain("PROPFIND", "/shop/items/7").reasons.join()).not.toContain("HTTP/2");
  });
});
