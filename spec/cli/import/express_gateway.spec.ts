import { describe, expect, it } from "vitest";
import { fromExpressGateway } from "./imported.ts";

const CLOSED = { name: "request_termination", config: { status: 503, body: "This route is closed until its access control is configured." } };
const proxy = (action: object = {}) => ({ proxy: [{ action: { serviceEndpoint: "backend", changeOrigin: true, ...action } }] });

/** One pipeline of one endpoint. */
const imported = (endpoint: object, policies: object[], url = "http://10.0.0.1:3000", environment?: Record<string, string>) =>
  fromExpressGateway({ apiEndpoints: { api: endpoint }, serviceEndpoints: { backend: { url } }, policies: [], pipelines: { main: { apiEndpoints: ["api"], policies } } }, environment);

describe("pipelines of Express Gateway", () => {
  it("become services with the routes of their endpoints", async () => {
    const { services, notes } = await fromExpressGateway({
      http: { port: 8080 },
      apiEndpoints: { api: { host: "*", paths: ["/ip", "/items/:id", "/v1/*", "/w*"], methods: "get, POST" }, more: [{ host: "*.example.com", paths: "/x" }, { path: "*", methods: ["PUT"] }], unused: {} },
      serviceEndpoints: { backend: { urls: ["https://a.internal", "https://b.internal:8443"] } },
      policies: ["proxy"],
      pipelines: { main: { apiEndpoints: ["api", "more", "missing"], policies: [proxy({ changeOrigin: false })] } },
    });
    const shared = { protocol: "https", upstreams: [{ host: "a.internal", port: 443 }, { host: "b.internal", port: 8443 }], preserve_host: true };
    const methods = ["GET", "POST"];
    expect(services).toEqual([
      { name: "main", base_path: "/", ...shared, routes: [...["/ip", "/items/{id}", "/v1/{rest*}", "/w/{rest*}", "/w"].map((path) => ({ path, methods })), { path: "/{rest*}", methods: ["PUT"] }, { path: "/", methods: ["PUT"] }] },
      { name: "main_2", base_path: "/", hosts: ["*.example.com"], ...shared, routes: [{ path: "/x" }] },
    ]);
    expect(notes).toEqual([
      "pipelines.main.apiEndpoints[2]: is no apiEndpoint, and is left out",
      "apiEndpoints.unused: is in no pipeline, and is left out",
      "http: is a setting of the program here: HTTP_PORT, LISTEN_HOST",
    ]);
  });

  it.each([
    ["/v1/*", { stripPath: true }, "", "/v1", "/{rest*}"],
    ["/api/v1/*", { stripPath: true }, "/v1", "/api", "/v1/{rest*}"],
    ["/a/b", {}, "", "/", "/a/b"],
    ["/a/b", { prependPath: false }, "/base", "/", "/a/b"],
  ])("forward what Express Gateway does: %s with %j to a url with the path %j", async (paths, action, path, base, below) => {
    const { services, notes } = await imported({ paths }, [proxy(action)], `http://h:1${path}`);
    expect([services[0]!.base_path, services[0]!.routes.map((route) => route.path), notes]).toEqual([base, [below], []]);
  });

  it.each([
    ["ignorePath", { paths: "/a" }, [proxy({ ignorePath: true })], "http://h:1", '"ignorePath" has no counterpart'],
    ["a proxy on a condition", { paths: "/a" }, [{ proxy: { condition: { name: "pathExact", path: "/a" }, action: { serviceEndpoint: "backend" } } }], "http://h:1", "its proxy has a condition"],
    ["no policy that answers", { paths: "/a" }, [{ cors: null }], "http://h:1", "it has no policy that answers"],
    ["a service that is not there", { paths: "/a" }, [proxy({ serviceEndpoint: "other" })], "http://h:1", 'the service endpoint "other" has no url'],
    ["a url that is none", { paths: "/a" }, [proxy()], "backend", 'the service endpoint "backend": expected a URL'],
  ])("are left out, noted, with %s", async (_what, endpoint, policies, url, note) => {
    await expect(imported(endpoint, policies, url)).rejects.toThrow(note);
  });

  it.each([
    ["a path that would have to be put before", { paths: "/a/*" }, "http://h:1/base", "/a", 'apiEndpoints.api.paths: "/a/*" is not carried over'],
    ["a regular expression", { pathRegex: "^/a/b.*" }, "http://h:1", "/a", 'apiEndpoints.api.pathRegex: "^/a/b.*" is not carried over'],
    ["a part of a segment", { paths: "/a/b-:id(\\d+)" }, "http://h:1", "/a", "with placeholders that are whole segments"],
    ["hosts by a regular expression", { hostRegex: "a|b", paths: "/a" }, "http://h:1", "", "there are no regular expressions"],
  ])("answer 503 where a less specific endpoint would get the requests of %s", async (_what, endpoint, url, head, note) => {
    const { services, notes } = await fromExpressGateway({
      apiEndpoints: { api: endpoint, other: { paths: "/other" } },
      serviceEndpoints: { backend: { url }, kept: { url: "http://h:1" } },
      pipelines: { main: { apiEndpoints: ["api"], policies: [proxy()] }, kept: { apiEndpoints: ["other"], policies: [proxy({ serviceEndpoint: "kept" })] } },
    });
    expect(services.map(({ plugins = [], routes }) => [plugins, routes.map(({ path }) => path)])).toEqual([[[], ["/other"]], [[CLOSED], [`${head}/{rest*}`, head || "/"]]]);
    expect(notes.join("\n")).toContain(note);
  });

  it.each([
    ["a pipeline that is left out", { paths: "/a" }, [{ "key-auth": null }, proxy({ serviceEndpoint: "missing" })]],
    ["methods that are none", { paths: "/a", methods: [" "] }, [{ "key-auth": null }, proxy()]],
  ])("answer 503 where the endpoint for all the rest would get the requests of %s", async (_what, endpoint, policies) => {
    const { services } = await fromExpressGateway({
      apiEndpoints: { api: endpoint, rest: {} },
      serviceEndpoints: { backend: { url: "http://h:1" } },
      pipelines: { main: { apiEndpoints: ["api"], policies }, rest: { apiEndpoints: ["rest"], policies: [proxy()] } },
    });
    expect(services.map(({ plugins = [], routes }) => [plugins, routes.map(({ path }) => path)])).toEqual([[[], ["/{rest*}", "/"]], [[CLOSED], ["/a/{rest*}", "/a"]]]);
  });

  it("are left out, noted, where an endpoint is no object", async () => {
    await expect(imported(7 as never, [proxy()])).rejects.toThrow("apiEndpoints.api: is no endpoint: expected an object");
  });

  it("have the hosts of a list", async () => {
    const { services } = await imported({ host: ["a.example.com", "b.example.com"], paths: "/a" }, [proxy()]);
    expect(services[0]!.hosts).toEqual(["a.example.com", "b.example.com"]);
  });

  it.each([{ host: 7 }, { methods: 7 }, { paths: { a: 1 } }])("are left out, noted, where the endpoint has a condition of the wrong type: %j", async (wrong) => {
    await expect(imported({ paths: "/a", ...wrong }, [proxy()])).rejects.toThrow("the endpoint is not carried over: expected a text or a list of texts");
  });

  it("close the routes of an endpoint with scopes, since who has them is in Redis", async () => {
    const { services, notes } = await imported({ paths: "/a", scopes: ["read"] }, [proxy()]);
    expect(services[0]!.routes).toEqual([{ path: "/a", plugins: [CLOSED] }]);
    expect(notes).toEqual([expect.stringMatching(/^apiEndpoints\.api\.scopes: "scopes" is not carried over, and may decide who passes/)]);
  });

  it.each([
    ["terminate", { terminate: [{ condition: { name: "never" }, action: { statusCode: 404 } }] }],
    ["redirect", { redirect: { condition: { name: "never" }, action: { redirectUrl: "https://example.com/" } } }],
    ["proxy", { proxy: [{ condition: { name: "never" }, action: { serviceEndpoint: "other" } }] }],
  ])("go on behind a policy that never runs: %s", async (_what, policy) => {
    const { services, notes } = await imported({ paths: "/a" }, [policy, { cors: { action: {} } }, proxy()]);
    expect(services).toMatchObject([{ upstreams: [{ host: "10.0.0.1", port: 3000 }], plugins: [{ name: "cors" }], routes: [{ path: "/a" }] }]);
    expect(notes).toEqual([]);
  });

  it("may answer themselves", async () => {
    const { services } = await imported({ paths: "/a" }, [{ redirect: { action: { redirectUrl: "https://example.com/" } } }, proxy()]);
    expect(services[0]!.plugins).toEqual([{ name: "redirect", config: { status: 302, location: "https://example.com/" } }]);
    const terminated = await imported({ paths: "/a" }, [{ terminate: [{ action: { statusCode: 410, message: "gone" } }] }]);
    expect(terminated.services[0]!.plugins).toEqual([{ name: "request_termination", config: { status: 410, body: "gone" } }]);
  });
});

describe("policies of Express Gateway", () => {
  it("before the proxy become plugins in their order", async () => {
    const { services, notes } = await imported({ paths: "/a" }, [
      { cors: { action: { origin: ["https://a.example.com"], methods: "GET,PUT", credentials: true, maxAge: 60, allowedHeaders: ["X-A"], exposedHeaders: "X-B" } } },
      { "rate-limit": [{ action: { max: 3, windowMs: 1000 } }, { action: { max: 9, windowMs: 3_600_000, rateLimitBy: "${req.user.id}" }, condition: { name: "always" } }] },
      { jwt: { action: { secretOrPublicKey: "${JWT_SECRET}", checkCredentialExistence: false, issuer: "i", audience: "a", jwtExtractor: "query", jwtExtractorField: "t" } } },
      proxy(),
    ], undefined, { JWT_SECRET: "0123456789abcdef0123456789abcdef" });
    expect(services[0]!.plugins).toEqual([
      { name: "cors", config: { allow_origins: ["https://a.example.com"], allow_methods: ["GET", "PUT"], allow_headers: ["X-A"], expose_headers: ["X-B"], allow_credentials: true, max_age: 60 } },
      { name: "rate_limit", config: { limit_second: 3 } },
      { name: "rate_limit", config: { limit_hour: 9, limit_by: "credential" } },
      { name: "jwt", config: { alg: "HS256", secret: "${env:JWT_SECRET}", iss: "i", aud: "a", exp: "optional", from: "query:t" } },
    ]);
    expect(notes).toEqual([
      "pipelines.main.policies[2].jwt.action.secretOrPublicKey: is read from the environment variable JWT_SECRET: set it before you validate",
      "pipelines.main.policies[2].jwt.action: accepts HS256 only",
    ]);
  });

  it.each([
    ["keys in Redis", { "key-auth": null }],
    ["a kind of one's own", { mine: [{ action: {} }] }],
    ["a kind that is a text, not an object", "key-auth"],
    ...["constructor", "toString", "hasOwnProperty", "__defineGetter__", "__proto__"].map((name): [string, object] => [`${name}, a property of every object`, { [name]: {} }]),
    ["an expression", { expression: { action: { jscode: "1" } } }],
    ["a condition", { jwt: { condition: { name: "pathExact" }, action: { secretOrPublicKey: "0123456789abcdef0123456789abcdef" } } }],
    ["a token in a header of its own", { jwt: { action: { jwtExtractor: "header", secretOrPublicKey: "0123456789abcdef0123456789abcdef" } } }],
    ["a key in a file", { jwt: { action: { secretOrPublicKeyFile: "k.pem" } } }],
    ["a secret that is too short", { jwt: { action: { secretOrPublicKey: "short", checkCredentialExistence: false } } }],
    ["tokens of credentials in Redis", { jwt: { action: { secretOrPublicKey: "0123456789abcdef0123456789abcdef" } } }],
  ])("that decide who passes close their routes where they cannot be carried over: %s", async (_what, policy) => {
    const { services, notes } = await imported({ paths: "/a" }, [policy as object, proxy()]);
    expect(services[0]!.plugins).toEqual([CLOSED]);
    expect(notes).toContainEqual(expect.stringMatching(/answer 503 \(request_termination\) until you replace it$/));
  });

  it("that refuse nobody are left out, noted, where they cannot be carried over", async () => {
    const { services, notes } = await imported({ paths: "/a", scopes: [] }, [
      { log: { action: { message: "m" } } },
      { headers: { action: { headersPrefix: "x-" } } },
      { "rate-limit": { action: { windowMs: 5 } } },
      { "rate-limit": { action: { rateLimitBy: "${req.host}" } } },
      { cors: { condition: { name: "method" }, action: {} } },
      { cors: { action: { bogus: 1 } } },
      { oauth2: { condition: { name: "never" } } },
      proxy({ secure: false }),
      { log: null },
    ]);
    expect(services[0]!.plugins).toEqual([{ name: "cors", config: { allow_origins: ["*"] } }]);
    expect(notes).toEqual([
      'pipelines.main.policies[8].log: comes after the policy that answers, and is left out',
      'pipelines.main.policies[0].log: "log" is not carried over: see the access log, and http_log',
      'pipelines.main.policies[1].headers: "headers" is not carried over',
      "pipelines.main.policies[2][\"rate-limit\"].action.windowMs: windows are a second, a minute and an hour",
      'pipelines.main.policies[2]["rate-limit"], pipelines.main.policies[3]["rate-limit"]: "rate-limit" is not carried over',
      expect.stringMatching(/^pipelines\.main\.policies\[3\]\["rate-limit"\]\.action\.rateLimitBy: what is counted together/),
      'pipelines.main.policies[4].cors: "cors" is not carried over: it has a condition',
      'pipelines.main.policies[5].cors.action.bogus: "bogus" has no counterpart here',
    ]);
  });
});
