/** Ingresses, imported and served as ingress-nginx serves them. */
import { describe, expect, it } from "vitest";
import { importAndServe, object, service, SERVICES } from "./kubernetes_objects.ts";

type Annotations = Readonly<Record<string, string>>;

const backend = (name: string, port: object = { number: 80 }) => ({ service: { name, port } });
const path = (value: string, name: string, pathType = "Prefix") => ({ path: value, pathType, backend: backend(name) });
const host = (name: string, ...paths: object[]) => ({ host: name, http: { paths } });

/** An Ingress with annotations of ingress-nginx. */
function ingress(name: string, rules: readonly object[], annotations: Annotations = {}, spec: object = {}): object {
  const named = Object.entries(annotations).map(([key, value]) => [
    key.includes("/") ? key : `nginx.ingress.kubernetes.io/${key}`,
    value,
  ]);
  return object(
    "Ingress",
    name,
    { ingressClassName: "nginx", rules, ...spec },
    { annotations: Object.fromEntries(named) },
  );
}

const at = (value: string, more: Annotations = {}) => ({ Host: value, ...more });
const SIZE = "bodies of more than 1 MiB";

/** One rule for a.test with annotations; asks for each, and gives the list without the usual line on sizes. */
async function annotated(annotations: Annotations, paths: readonly object[] = [path("/", "blue")], spec: object = {}) {
  const made = await importAndServe([...SERVICES, ingress("shop", [host("a.test", ...paths)], annotations, spec)]);
  return {
    ...made,
    settings: made.services[0]!,
    plugins: made.services[0]!.plugins ?? [],
    notes: made.notes.filter((note) => !note.includes(SIZE)),
    get: (request: string, headers: Annotations = {}) => made.send(request, at("a.test", headers)),
  };
}

describe("paths of an Ingress", () => {
  it("are exact, prefixes of whole segments, or the default backend's", async () => {
    const { send, notes } = await importAndServe([
      ...SERVICES,
      ingress("a", [
        host(
          "a.test",
          path("/list", "blue"),
          path("/list/one", "green", "Exact"),
          path("/loose", "red", "ImplementationSpecific"),
        ),
      ]),
      ingress("b", [host("*.b.test", path("/", "green"))]),
      ingress("c", [], {}, { defaultBackend: backend("red", { name: "web" }) }),
    ]);
    const answers = [];
    for (const [name, request] of [
      ["a.test", "/list"],
      ["a.test", "/list/x"],
      ["a.test", "/list/one"],
      ["a.test", "/list/one/x"],
      ["a.test", "/lists"],
      ["a.test", "/loose/x"],
      ["x.b.test", "/"],
      ["c.test", "/any"],
    ] as const)
      answers.push(await send(`GET ${request}`, at(name)));
    expect(answers).toEqual([
      "blue GET /list",
      "blue GET /list/x",
      "green GET /list/one",
      "blue GET /list/one/x",
      "red GET /lists",
      "red GET /loose/x",
      "green GET /",
      "red GET /any",
    ]);
    expect(notes).toEqual([
      expect.stringContaining(SIZE),
      expect.stringContaining("a path with a slash at its end is the one without it"),
      expect.stringContaining("a path matches whole segments here"),
    ]);
  });

  it("that are replaced at the upstream: a prefix by a group, or the whole", async () => {
    const cases: [string, string, string, string][] = [
      ["/app(/|$)(.*)", "/$2", "/app/x/y", "blue GET /x/y"],
      ["/app(/|$)(.*)", "/$2", "/app", "blue GET /"],
      ["/app(/|$)(.*)", "/v2/$2", "/app/x?q", "blue GET /v2/x?q"],
      ["/app/(.*)", "/$1", "/app/x", "blue GET /x"],
      ["/app/?(.*)", "/$1", "/app/x", "blue GET /x"],
      ["/app(/.*)?", "/v1$1", "/app/x", "blue GET /v1/x"],
      ["/(.*)", "/$1", "/x/y", "blue GET /x/y"],
      ["/app", "/", "/app/x", "blue GET /"],
      ["/app", "/fixed", "/app", "blue GET /fixed"],
      ["/app/(a|b)/(.*)", "/$2", "/app/a/x", "503"],
      ["/app/x", "/$1", "/app/x", "503"],
    ];
    for (const [written, target, request, expected] of cases) {
      const { send } = await importAndServe([
        ...SERVICES,
        ingress("a", [host("a.test", path(written, "blue", "ImplementationSpecific"))], {
          "rewrite-target": target,
          "use-regex": "true",
        }),
        ingress("b", [host("a.test", path("/other", "green"))]),
      ]);
      expect([written, target, await send(`GET ${request}`, at("a.test"))]).toEqual([written, target, expected]);
    }
  });

  it("that are regular expressions become patterns", async () => {
    const { get, notes } = await annotated({ "use-regex": "true" }, [
      path("/items/[0-9]+$", "blue", "ImplementationSpecific"),
    ]);
    expect([await get("GET /items/7"), await get("GET /items"), await get("GET /items/7/x")]).toEqual([
      "blue GET /items/7",
      "404",
      "404",
    ]);
    expect(notes).toEqual([expect.stringContaining("a placeholder is any one segment here")]);
  });

  it("lead to ports of the Service by number and by name; what is none gets 503, and is listed first", async () => {
    const { send, notes } = await importAndServe([
      service("blue"),
      ingress("a", [
        host(
          "a.test",
          { path: "/name", pathType: "Prefix", backend: backend("blue", { name: "web" }) },
          { path: "/gone", pathType: "Prefix", backend: backend("nowhere") },
          { path: "/port", pathType: "Prefix", backend: backend("blue", { number: 81 }) },
          { path: "/bucket", pathType: "Prefix", backend: { resource: { kind: "Bucket", name: "b" } } },
        ),
      ]),
    ]);
    const answers = [];
    for (const each of ["name", "gone", "port", "bucket"]) answers.push(await send(`GET /${each}`, at("a.test")));
    expect(answers).toEqual(["blue GET /name", "503", "503", "503"]);
    expect(notes[0]).toBe(
      '["Ingress shop/a"].spec.rules[0].http.paths[1]: it has no backend: ' +
        "Service shop/nowhere is not in the file: it answers 503 (request_termination) until you replace it",
    );
  });
});

describe("redirects of an Ingress", () => {
  const TLS = { tls: [{ hosts: ["a.test"], secretName: "cert" }] };
  const HTTPS = { "X-Forwarded-Proto": "https" };

  it(
    "lead hosts with a certificate to HTTPS, unless ssl-redirect is false; " + "others with force-ssl-redirect",
    async () => {
      const secure = await annotated({}, undefined, TLS);
      expect([await secure.get("GET /x?q"), await secure.get("GET /x", HTTPS)]).toEqual([
        "308 https://a.test/x?q",
        "blue GET /x",
      ]);
      expect(secure.notes).toEqual([
        expect.stringContaining("certificates are not in the file"),
        expect.stringContaining("a proxy that ends TLS has to be in global.trusted_proxies"),
      ]);
      const kept = await annotated({ "ssl-redirect": "false" }, undefined, TLS);
      expect(await kept.get("GET /x")).toBe("blue GET /x");
      const other = await importAndServe([
        ...SERVICES,
        ingress("one", [host("a.test", path("/", "blue"))]),
        ingress("two", [host("a.test", path("/x", "green"))], {}, TLS),
      ]);
      expect(await other.send("GET /", at("a.test"))).toBe("308 https://a.test/");
      const forced = await annotated({ "force-ssl-redirect": "true" });
      expect([await forced.get("GET /x"), await forced.get("GET /x", HTTPS)]).toEqual([
        "308 https://a.test/x",
        "blue GET /x",
      ]);
    },
  );

  it("of annotations take the place of all its paths, app-root that of /", async () => {
    const cases: [Annotations, string, string][] = [
      [{ "permanent-redirect": "https://new.test/page" }, "/x?q", "301 https://new.test/page"],
      [{ "permanent-redirect": "https://new.test", "permanent-redirect-code": "308" }, "/x", "308 https://new.test"],
      [{ "temporal-redirect": "https://new.test$request_uri" }, "/x/y?q", "302 https://new.test/x/y?q"],
      [{ "permanent-redirect": "https://$host.test" }, "/x", "503"],
      [{ "app-root": "/start" }, "/", "302 /start"],
      [{ "app-root": "/start" }, "/x", "blue GET /x"],
    ];
    for (const [annotations, request, expected] of cases) {
      const { get } = await annotated(annotations);
      expect([annotations, await get(`GET ${request}`)]).toEqual([annotations, expected]);
    }
  });
});

describe("annotations of ingress-nginx", () => {
  it.each<[Annotations, object[]]>([
    [{ "proxy-body-size": "8m" }, [{ name: "request_size_limit", config: { max_payload_size: 8_388_608 } }]],
    [{ "proxy-body-size": "0" }, []],
    [
      { "limit-rps": "10", "limit-rpm": "300" },
      [{ name: "rate_limit", config: { limit_second: 10, limit_min: 300, limit_by: "client_ip" } }],
    ],
    [{ "limit-connections": "5" }, [{ name: "concurrency", config: { max_in_flight: 5, limit_by: "client_ip" } }]],
    [
      { "whitelist-source-range": "10.0.0.0/8, 192.0.2.1" },
      [{ name: "acl", config: { whitelist: ["10.0.0.0/8", "192.0.2.1"] } }],
    ],
    [{ "denylist-source-range": "10.0.0.0/8" }, [{ name: "acl", config: { blacklist: ["10.0.0.0/8"] } }]],
    [
      { "auth-url": "http://auth.shop.svc/check", "auth-response-headers": "X-User, X-Mail" },
      [{ name: "forward_auth", config: { url: "http://auth.shop.svc/check", response_headers: ["X-User", "X-Mail"] } }],
    ],
    [
      {
        "enable-cors": "true",
        "cors-allow-origin": "https://a.test, https://*.b.test",
        "cors-allow-methods": "GET, PUT",
        "cors-allow-headers": "X-One",
        "cors-max-age": "600",
      },
      [
        {
          name: "cors",
          config: {
            allow_origins: ["https://a.test", "https://*.b.test"],
            allow_methods: ["GET", "PUT"],
            allow_headers: ["X-One"],
            max_age: 600,
            allow_credentials: true,
          },
        },
      ],
    ],
    [
      { "enable-cors": "true" },
      [
        {
          name: "cors",
          config: {
            allow_origins: ["*"],
            allow_methods: ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"],
            max_age: 86_400,
          },
        },
      ],
    ],
    [{ "enable-cors": "false", "limit-rps": "soon" }, []],
  ])("become plugins: %j", async (annotations, expected) => {
    const { plugins } = await annotated(annotations);
    expect(plugins).toEqual(expected);
  });

  it("become settings: time limits, the protocol of upstreams, the host that they get", async () => {
    const { settings } = await annotated({
      "proxy-connect-timeout": "5",
      "proxy-read-timeout": "120",
      "proxy-send-timeout": "90",
      "backend-protocol": "GRPC",
    });
    expect([settings.timeouts, settings.protocol, settings.preserve_host]).toEqual([
      { connect_ms: 5000, response_ms: 120_000, idle_ms: 120_000 },
      "h2c",
      true,
    ]);
    expect((await annotated({ "backend-protocol": "HTTPS" })).settings.protocol).toBe("https");
    expect((await annotated({ "upstream-vhost": "x.test" })).settings.preserve_host).toBe(undefined);
  });

  it.each<[string, Annotations]>([
    ["users of a Secret", { "auth-type": "basic", "auth-secret": "users", "auth-realm": "x" }],
    ["client certificates", { "auth-tls-secret": "shop/ca" }],
    ["an auth-url with variables", { "auth-url": "https://$host/check" }],
    ["either guard", { satisfy: "any" }],
    ["configuration of nginx", { "configuration-snippet": "deny all;" }],
    ["configuration of a server", { "server-snippet": "deny all;" }],
    ["a firewall", { "enable-modsecurity": "true" }],
    ["a protocol that is not forwarded", { "backend-protocol": "FCGI" }],
    ["a guard of another program", { "traefik.ingress.kubernetes.io/router.middlewares": "shop-auth@kubernetescrd" }],
    ["a policy of another program", { "nginx.org/policies": "jwt" }],
    ["addresses of another program", { "alb.ingress.kubernetes.io/inbound-cidrs": "10.0.0.0/8" }],
    ["a guard that is not known yet", { "auth-next": "x" }],
  ])("that may decide who passes, and are not carried over, close their routes: %s", async (_what, annotations) => {
    const { get, notes } = await annotated(annotations);
    expect(await get("GET /x")).toBe("503");
    expect(notes[0]).toContain("may decide who passes, and is not carried over: it answers 503");
  });

  it.each<[string, Annotations]>([
    ["client certificates", { "auth-tls-secret": "shop/ca" }],
    ["configuration of a server", { "server-snippet": "deny all;" }],
    ["what the backend alone sees", { "ssl-passthrough": "true" }],
  ])("that stand for a host close the paths of its other Ingresses, too: %s", async (_what, annotations) => {
    const { send } = await importAndServe([
      ...SERVICES,
      ingress("a", [host("a.test", path("/a", "blue")), host("b.test", path("/a", "blue"))], annotations),
      ingress("b", [host("a.test", path("/", "blue")), host("c.test", path("/", "green"))]),
    ]);
    expect([await send("GET /a", at("a.test")), await send("GET /x", at("a.test"))]).toEqual(["503", "503"]);
    expect([await send("GET /a", at("b.test")), await send("GET /a", at("c.test"))]).toEqual(["503", "green GET /a"]);
  });

  it.each<[string, string, Annotations, Annotations]>([
    ["that is closed", "ImplementationSpecific", { "auth-type": "basic" }, {}],
    [
      "of a host with regular expressions",
      "Prefix",
      { "whitelist-source-range": "10.0.0.0/8" },
      { "use-regex": "true" },
    ],
    ["that is exact on such a host", "Exact", { "whitelist-source-range": "10.0.0.0/8" }, { "use-regex": "true" }],
  ])(
    "guard what goes on behind a path %s: a shorter path of the same Service is closed",
    async (_what, type, annotations, others) => {
      const { send } = await importAndServe([
        ...SERVICES,
        ingress("a", [host("a.test", path("/admin", "blue", type))], annotations),
        ingress("b", [host("a.test", path("/", "blue"))], others),
        ingress("c", [host("a.test", path("/else", "green"))]),
      ]);
      expect(await send("GET /admin/x", at("a.test"))).toMatch(/^(403|503)$/);
      expect([await send("GET /admin.php", at("a.test")), await send("GET /else/x", at("a.test"))]).toEqual([
        "503",
        "green GET /else/x",
      ]);
    },
  );

  it.each<[Annotations, string]>([
    [{ affinity: "cookie", "session-cookie-name": "x" }, "a Service is one upstream here"],
    [{ "upstream-hash-by": "$remote_addr" }, "a Service is one upstream here"],
    [{ "proxy-buffering": "on" }, "has no counterpart here"],
    [{ "auth-signin": "https://login.test" }, "has no counterpart here"],
    [{ "proxy-body-size": "big" }, 'is no size such as "8m"'],
    [{ "limit-rpm": "5" }, "lets a burst of five times the limit pass"],
    [{ "other.example.com/x": "y" }, "has no counterpart here"],
  ])("that have no counterpart are listed, and change nothing about who passes: %j", async (annotations, note) => {
    const { get, notes } = await annotated(annotations);
    expect(await get("GET /x")).toBe("blue GET /x");
    expect(notes).toContainEqual(expect.stringContaining(note));
  });

  it("of other programs that serve nothing are not listed, nor those that are off", async () => {
    const { notes } = await annotated({
      "kubectl.kubernetes.io/last-applied-configuration": "{}",
      "cert-manager.io/issuer": "x",
      "enable-modsecurity": "false",
    });
    expect(notes).toEqual([]);
  });

  it("of a canary lead to its Service by a header, a cookie, and by weight", async () => {
    const canary = { canary: "true", "canary-by-header": "X-New", "canary-by-cookie": "new", "canary-weight": "25" };
    const { send, services, notes } = await importAndServe([
      ...SERVICES,
      ingress("main", [host("a.test", path("/", "blue"))]),
      ingress("next", [host("a.test", path("/", "green"))], canary),
      ingress("lost", [host("b.test", path("/", "red"))], { canary: "true" }),
    ]);
    expect(services[0]!.split).toEqual([
      { group: "canary", percent: 100, match: { headers: { "X-New": "always" } } },
      { group: "canary", percent: 0, match: { headers: { "X-New": "never" } } },
      { group: "canary", percent: 100, match: { cookies: { new: "always" } } },
      { group: "canary", percent: 0, match: { cookies: { new: "never" } } },
      { group: "canary", percent: 25 },
    ]);
    const answers = [
      await send("GET /", at("a.test", { "X-New": "always" })),
      await send("GET /", at("a.test", { Cookie: "new=always" })),
      await send("GET /", at("b.test")),
    ];
    expect(answers).toEqual(["green GET /", "green GET /", "404"]);
    expect(notes.join("\n")).toContain("is a canary of a host and path that no other Ingress has");
  });

  it("of a canary whose Service is none are listed, and the main one gets all requests", async () => {
    const { send, notes } = await importAndServe([
      ...SERVICES,
      ingress("main", [host("a.test", path("/", "blue"))]),
      ingress("next", [host("a.test", path("/", "nowhere"))], { canary: "true", "canary-weight": "50" }),
    ]);
    expect([await send("GET /", at("a.test")), await send("GET /", at("a.test"))]).toEqual([
      "blue GET /",
      "blue GET /",
    ]);
    expect(notes.join("\n")).toContain("the canary is not carried over: Service shop/nowhere is not in the file");
  });
});
