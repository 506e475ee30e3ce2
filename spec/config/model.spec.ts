import { describe, expect, expectTypeOf, it } from "vitest";
import type { Config, AnyConfigInput } from "../../lib/config/model.ts";
import * as s from "../../lib/config/schema.ts";
import { EXPIRED } from "../support/certs.ts";
import { OTHER_CA, SHOP, WILDCARD } from "../support/more_certs.ts";
import { configJsonSchema } from "../../lib/cli/schema.ts";
import { loadConfig } from "../support/schema.ts";

const kinds = [
  {
    name: "key_auth",
    schema: s.object({ key: s.string({ min: 1 }), hide_credentials: s.withDefault(s.boolean(), false) }),
  },
  { name: "rate_limit", schema: s.object({ limit_min: s.optional(s.integer({ min: 1 })) }) },
];

const service = (more: object = {}) => ({
  name: "a",
  base_path: "/a",
  upstreams: [{ host: "a.internal", port: 80 }],
  routes: [{ path: "/b" }],
  ...more,
});

function load(value: unknown) {
  return loadConfig({ value }, { kinds, environment: { TOKEN: "hush" } });
}

function valid(value: unknown): Config {
  const result = load(value);
  if (!result.ok) throw new Error(JSON.stringify(result.issues));
  return result.config;
}

function issues(value: unknown): string[] {
  const result = load(value);
  return result.ok ? [] : result.issues.map(({ at, message }) => `${s.formatPath(at)}: ${message}`);
}

const ofService = (more: object) => issues({ services: [service(more)] });

describe("configSchema", () => {
  it.each([
    [{ format: "xml" }, /^global\.access_log\.format: /],
    [{ sample: 1.1 }, /^global\.access_log\.sample: /],
    [{ exclude: ["healthz"] }, /^global\.access_log\.exclude\[0\]: .*write "\/healthz"/],
    [{ exclude: ["*"] }, /set "enabled" to false/],
    [{ exclude: ["/a*b"] }, /"\*" can only stand at the end/],
    [{ exclude: ["/a?b"] }, /leave the query out/],
    [{ file: "" }, /^global\.access_log\.file: /],
  ])("refuses the access log %j", (access_log, message) => {
    expect(issues({ global: { access_log }, services: [] })).toEqual([expect.stringMatching(message)]);
  });

  it("fills in every default", () => {
    expect(valid({ services: [service()] })).toEqual({
      global: {
        name: "edge-gateway",
        underscoreHeaders: "drop",
        acceptWarnings: [],
        plugins: [],
        pluginModules: [],
        trustedProxies: [],
        clientIpHeaders: [],
        proxyProtocol: "off",
        accessLog: { enabled: true, format: "json", sample: 1, exclude: [] },
        serverTiming: false,
        certificates: [],
        http1: "wire",
        http2: true,
        h2c: false,
        dnsTtlMs: 30_000,
        limits: {
          headersTimeoutMs: 60_000,
          requestTimeoutMs: 0,
          minBodyBytesPerS: 100,
          minReplyBytesPerS: 100,
          maxHeaderBytes: 32_768,
          maxHeaders: 200,
          maxUriBytes: 8192,
          maxBodyBytes: 0,
          maxConnections: 10_000,
          maxConnectionsPerIp: 0,
          maxClientShare: 0.5,
          maxRequestsInFlight: 10_000,
        },
      },
      services: [
        {
          name: "a",
          basePath: "/a",
          protocol: "http",
          loadBalancingStrategy: "round_robin",
          upstreams: [{ id: "a.internal:80", host: "a.internal", port: 80, weight: 1 }],
          routes: [{ name: "/b", path: "/b", methods: [], plugins: [] }],
          plugins: [],
          hosts: [],
          encodedSlashes: "reject",
          pathParameters: "reject",
          preserveHost: false,
          timeouts: { connectMs: 3000, responseMs: 60_000, idleMs: 60_000, totalMs: 0 },
          upstreamClient: "wire",
          pool: { maxConnections: 256, keepaliveIdleMs: 30_000 },
          health: {
            enabled: false,
            path: "/",
            intervalMs: 5000,
            timeoutMs: 2000,
            healthyThreshold: 2,
            unhealthyThreshold: 3,
            expectStatus: "200-399",
            addresses: "each",
            passive: { maxFailures: 5, windowMs: 10_000, ejectMs: 10_000, statuses: [], slowStartMs: 0 },
          },
        },
      ],
    });
  });

  it("accepts wire and node as upstream_client", () => {
    expect(ofService({ upstream_client: "node" })).toEqual([]);
    expect(ofService({ upstream_client: "nod" })).toEqual([
      expect.stringMatching(/^services\[0\]\.upstream_client: .*"wire".*"node"/),
    ]);
  });

  it("accepts an empty list of services, and ignores $schema only at the root", () => {
    expect(valid({ $schema: "x", services: [] }).services).toEqual([]);
    expect(issues({ services: [service({ $schema: "x" })] })[0]).toContain("services[0].$schema: is not a known field");
  });

  it("names the required fields that are missing", () => {
    expect(issues({})).toEqual(["services: is required (The configured services.)"]);
    expect(issues({ services: [{}] }).map((issue) => issue.split(" is required")[0])).toEqual([
      "services[0].name:",
      "services[0].base_path:",
      "services[0].upstreams:",
      "services[0].routes:",
    ]);
    expect(ofService({ upstreams: [] })).toEqual(["services[0].upstreams: expected at least 1 item, found none"]);
  });

  it("suggests the field that was meant", () => {
    expect(issues({ service: [], services: [] })).toEqual(['service: is not a known field; did you mean "services"?']);
    expect(ofService({ basePath: "/" })).toEqual([
      'services[0].basePath: is not a known field; did you mean "base_path"?',
    ]);
  });

  it("the schema has a type for the written configuration and one for the configuration that code reads", () => {
    expectTypeOf<Config["services"][number]["protocol"]>().toEqualTypeOf<"http" | "https" | "h2" | "h2c">();
    expectTypeOf<Config["services"][number]["upstreams"][number]["id"]>().toEqualTypeOf<string>();
    const upstreams = [{ host: "h", port: 1 }];
    const input: AnyConfigInput = { services: [{ name: "a", base_path: "/", upstreams, routes: [{ path: "/" }] }] };
    expect(valid(input).services).toHaveLength(1);
  });
});

describe("references", () => {
  const service = (more: object, route: object = {}) => ({
    services: [
      { name: "s", base_path: "/a", upstreams: [{ host: "h", port: 1 }], routes: [{ path: "/x", ...route }], ...more },
    ],
  });
  const REF = "${env:TOKEN}";

  it.each<[string, object]>([
    ["services[0].name", service({ name: REF })],
    ["services[0].base_path", service({ base_path: `/${REF}` })],
    ["services[0].hosts[0]", service({ hosts: [REF] })],
    ["services[0].upstreams[0].id", service({ upstreams: [{ id: REF, host: "h", port: 1 }] })],
    ["services[0].upstreams[0].group", service({ upstreams: [{ group: REF, host: "h", port: 1 }] })],
    ["services[0].hash_on", service({ load_balancing_strategy: "hash", hash_on: `header:${REF}` })],
    ["services[0].sticky.cookie", service({ sticky: { cookie: REF } })],
    ["services[0].health.path", service({ health: { path: `/${REF}` } })],
    ["services[0].routes[0].name", service({}, { name: REF })],
    ["services[0].routes[0].path", service({}, { path: `/${REF}` })],
    ["services[0].routes[0].methods[0]", service({}, { methods: [REF] })],
    ["services[0].routes[0].match.headers.X", service({}, { match: { headers: { X: REF } } })],
    ["services[0].routes[0].match.query.x.matches", service({}, { match: { query: { x: { matches: REF } } } })],
    ["services[0].routes[0].match.cookies.x", service({}, { match: { cookies: { x: REF } } })],
    [
      "services[0].routes[0].plugins[0].id",
      service({}, { plugins: [{ id: REF, name: "key_auth", config: { key: "k" } }] }),
    ],
    ["global.name", { global: { name: REF }, services: [] }],
    ["global.access_log.exclude[0]", { global: { access_log: { exclude: [`/${REF}`] } }, services: [] }],
    [
      "global.counters.prefix",
      { global: { counters: { store: "redis", url: "redis://h", prefix: REF } }, services: [] },
    ],
  ])("are errors in %s, which names something, whatever they stand for", (path, value) => {
    const found = issues(value);
    expect(found).toEqual([
      `${path}: \${env:TOKEN} is not replaced here: write the text itself (references are for secrets and ` +
        `addresses, not for names, ids, paths, hosts, methods and conditions)`,
    ]);
    expect(issues(JSON.parse(JSON.stringify(value).replaceAll("TOKEN", "NOPE"))).join()).toBe(
      found.join().replaceAll("TOKEN", "NOPE"),
    );
  });
});

describe("routes", () => {
  it("routes are named after their methods and path", () => {
    const routes = [
      { path: "/b/{id}", methods: ["GET"] },
      { path: "/b" },
      { path: "/c", methods: ["GET", "PUT"] },
      { path: "/d", name: "mine" },
    ];
    expect(valid({ services: [service({ routes })] }).services[0]!.routes.map((route) => route.name)).toEqual([
      "GET /b/{id}",
      "/b",
      "GET,PUT /c",
      "mine",
    ]);
  });

  it("routes have names unique within their service, defaulted ones included", () => {
    expect(ofService({ routes: [{ path: "/b" }, { path: "/c", name: "/b" }, { path: "/b" }] })).toEqual([
      'services[0].routes[1].name: "/b" is already used by services[0].routes[0]',
      'services[0].routes[2].name: "/b" is already used by services[0].routes[0]: write its own "name"',
    ]);
    expect(issues({ services: [service(), service({ name: "b" })] })).toEqual([]);
  });

  it.each([
    ["get", 'methods are case-sensitive, write "GET"'],
    ["CONNECT", "CONNECT is not forwarded"],
    ["G T", 'expected an HTTP method in upper case, found "G T"'],
    [
      "PURG",
      'expected an HTTP method in upper case, found "PURG": the servers refuse this method: did you mean "PURGE"?',
    ],
    ["", 'found ""'],
  ])("routes refuse the method %j with a remedy", (method, message) => {
    expect(ofService({ routes: [{ path: "/b", methods: [method] }] })[0]).toContain(message);
  });

  it("routes have paths that start with a slash", () => {
    expect(ofService({ base_path: "a", routes: [{ path: "b" }] })).toEqual([
      'services[0].base_path: expected a path that starts with "/", found "a": write "/a"',
      'services[0].routes[0].path: expected a path that starts with "/", found "b": write "/b"',
    ]);
  });
});

describe("upstreams", () => {
  it.each(["localhost", "a-b.internal", "my_service", "10.0.0.1", "::1", "2001:db8::1", "example.com."])(
    "upstreams accept the host %s",
    (host) => {
      expect(ofService({ upstreams: [{ host, port: 1 }] })).toEqual([]);
    },
  );

  it.each([
    ["http://a", "write no scheme here"],
    ["a/b", "write no path here"],
    ["a:80", "write no port here"],
    ["[::1]", "without brackets"],
    ["1.2.3.256", "no valid IPv4 address"],
    ["bücher.example", "ASCII form"],
    ["", 'found ""'],
    ["a b", 'found "a b"'],
    ["-a", 'found "-a"'],
    ["a..b", 'found "a..b"'],
  ])("upstreams refuse the host %j with a remedy", (host, message) => {
    const [issue] = ofService({ upstreams: [{ host, port: 1 }] });
    expect(issue).toContain("services[0].upstreams[0].host: expected a host name or an IP address");
    expect(issue).toContain(message);
  });

  it.each([0, 65536, 80.5, "80"])("upstreams refuse the port %j", (port) => {
    expect(ofService({ upstreams: [{ host: "a", port }] })).toEqual([
      `services[0].upstreams[0].port: expected an integer 1–65535, found ${JSON.stringify(port)}`,
    ]);
  });

  it("upstreams have ids unique within their service, IPv6 hosts in brackets by default", () => {
    const upstreams = [
      { host: "::1", port: 1 },
      { host: "b", port: 1, id: "[::1]:1" },
    ];
    expect(ofService({ upstreams })).toEqual([
      'services[0].upstreams[1].id: "[::1]:1" is already used by services[0].upstreams[0]',
    ]);
  });
});

describe("services", () => {
  it("services have unique names", () => {
    expect(issues({ services: [service(), service({ base_path: "/x" })] })).toEqual([
      'services[1].name: "a" is already used by services[0]',
    ]);
  });

  it("services have hosts in lower case and refuse texts that are not host names", () => {
    expect(valid({ services: [service({ hosts: ["API.example.com", "*.Example.com"] })] }).services[0]!.hosts).toEqual([
      "api.example.com",
      "*.example.com",
    ]);
    for (const host of ["api.example.com:80", "https://a", "*", "a.*.b", "::1", "*."]) {
      expect(ofService({ hosts: [host] }), host).toHaveLength(1);
    }
  });

  it("upstreams have request_headers that plugins may set too, and never repeat a secret", () => {
    const of = (request_headers: unknown) =>
      ofService({ upstreams: [{ host: "127.0.0.1", port: 1, request_headers }] });
    const at = "services[0].upstreams[0].request_headers";
    expect(
      of({ Authorization: "Bearer x", "Proxy-Authorization": "Basic x", Cookie: "a=b", "X-Api-Key": "k" }),
    ).toEqual([]);
    expect(of({ Host: "h", via: "v", "X-Forwarded-For": "1", TE: "t", "Content-Length": "1", "a b": "c" })).toEqual([
      expect.stringContaining(`${at}.Host: is the upstream's own`),
      `${at}.via: is set by the gateway itself`,
      expect.stringContaining("X-Forwarded-For"),
      `${at}.TE: is a header of a single connection: the gateway itself sets it`,
      expect.stringContaining("is part of how the message is framed"),
      expect.stringContaining("is not the name of a header"),
    ]);
    expect(of({ "X-A": "1", "x-a": "2" })).toEqual([`${at}["x-a"]: occurs twice, in different cases`]);
    const [secret, open, empty] = of({ "X-Api-Key": "hush\nhush", "X-Plain": "two\nlines", "X-Empty": "" });
    expect(secret).not.toContain("hush");
    expect(open).toContain(`expected the value of a header, found "two\\nlines"`);
    expect(empty).toContain("expected the value of a header");
  });

  it("at least one upstream of a service is no backup, and nor is one of a group with a share", () => {
    const upstream = (id: string, more: object = {}) => ({ id, host: "127.0.0.1", port: 1, ...more });
    const spare = upstream("b", { backup: true, group: "g" });
    expect(ofService({ upstreams: [upstream("a"), spare] })).toEqual([]);
    expect(ofService({ upstreams: [spare] })).toEqual([
      "services[0].upstreams: are all backups: one of them has to get the requests that they are a backup for",
    ]);
    expect(ofService({ upstreams: [upstream("a"), spare], split: [{ group: "g", percent: 5 }] })).toEqual([
      "services[0].split[0].group: is a group of backups alone, which get no share",
    ]);
    expect(ofService({ upstreams: [upstream("a", { backup: "yes" })] })).toEqual([
      'services[0].upstreams[0].backup: expected true or false, found "yes"',
    ]);
  });

  it("services limit their timeouts", () => {
    const [low, high] = ofService({ timeouts: { connect_ms: 0, idle_ms: 86_400_001 } });
    expect(low).toBe("services[0].timeouts.connect_ms: expected an integer 1–86400000, found 0");
    expect(high).toContain("services[0].timeouts.idle_ms");
  });

  it("routes have timeouts of their own, where they give some, and never one for connections", () => {
    const route = (timeouts: object) => ({ routes: [{ path: "/b", timeouts }] });
    const given = { response_ms: 1, idle_ms: 2, total_ms: 0 };
    expect(valid({ services: [service(route(given))] }).services[0]!.routes[0]!.timeouts).toEqual({
      ...{ responseMs: 1, idleMs: 2, totalMs: 0 },
    });
    expect(valid({ services: [service(route({}))] }).services[0]!.routes[0]!.timeouts).toEqual({});
    const broken = { response_ms: 0, idle_ms: "5s", total_ms: -1, connect_ms: 5 };
    expect(ofService(route(broken)).map((issue) => issue.replace("services[0].routes[0].timeouts.", ""))).toEqual([
      "connect_ms: is not a known field (known here: response_ms, idle_ms, total_ms)",
      "response_ms: expected an integer 1–86400000, found 0",
      'idle_ms: expected an integer 1–86400000, found "5s"',
      "total_ms: expected an integer 0–86400000, found -1",
    ]);
  });
});

describe("global", () => {
  it.each(["10.0.0.1", "10.0.0.0/8", "::1", "fd00::/8", "0.0.0.0/0"])("trusts %s", (range) => {
    expect(issues({ global: { trusted_proxies: [range] }, services: [] })).toEqual([]);
  });

  const broken = ["10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/08", "proxy", "fe80::1%eth0", ""];
  it.each(broken)("refuses the range %j", (range) => {
    expect(issues({ global: { trusted_proxies: [range] }, services: [] })[0]).toContain(
      "expected an IP address or a range such as 10.0.0.0/8",
    );
  });

  it.each<[unknown, string]>([
    [["CF Connecting"], 'client_ip_headers[0]: expected the name of a header, found "CF Connecting"'],
    [["X-Forwarded-For"], "this header counts where none of these does"],
    [["Host"], "it does not name a client"],
    [["connection"], "it does not name a client"],
    [["True_Client_IP"], "underscore"],
    [["A", "B", "C", "D", "E", "F", "G", "H", "I"], "at most 8"],
    ["CF-Connecting-IP", "expected an array"],
    [[1], "expected the name of a header"],
  ])("refuses the client_ip_headers %j", (client_ip_headers, message) => {
    const global = { trusted_proxies: ["10.0.0.1"], client_ip_headers };
    expect(issues({ global, services: [] })[0]).toContain(message);
  });

  it("requires headers of the PROXY protocol of trusted proxies alone", () => {
    for (const proxy_protocol of ["off", "accept", "require"] as const) {
      const none =
        proxy_protocol === "require"
          ? ['global.proxy_protocol: takes headers of "trusted_proxies" alone, and there are none']
          : [];
      expect(issues({ global: { proxy_protocol, trusted_proxies: ["10.0.0.1"] }, services: [] })).toEqual([]);
      expect(issues({ global: { proxy_protocol }, services: [] })).toEqual(none);
    }
    expect(issues({ global: { proxy_protocol: "on" }, services: [] })).toHaveLength(1);
  });

  it("takes client_ip_headers of trusted proxies alone", () => {
    const client_ip_headers = ["CF-Connecting-IP", "X-Real-IP"];
    expect(issues({ global: { trusted_proxies: ["10.0.0.1"], client_ip_headers }, services: [] })).toEqual([]);
    expect(issues({ global: { client_ip_headers }, services: [] })).toEqual([
      'global.client_ip_headers: count from "trusted_proxies" alone, and there are none',
    ]);
  });

  it.each(['a"b', "a\\b", "a\nb", "naïve"])("refuses the name %j, which would break a header", (name) => {
    expect(issues({ global: { name }, services: [] })).toHaveLength(1);
  });
});

describe("rules of TLS", () => {
  const near = /^global\.tls\.ciphers\[0\]: .*did you mean "ECDHE-RSA-AES128-GCM-SHA256"\?$/;
  it.each<[what: string, rules: object, issue: RegExp]>([
    ["a cipher with a slip of the pen", { ciphers: ["ECDHE-RSA-AES128-GCM-SHA"] }, near],
    ["several ciphers in one text", { ciphers: ["HIGH:!aNULL"] }, /ciphers\[0\]: .* does not know it$/],
    ["a cipher that encrypts nothing", { ciphers: ["PSK-AES128-GCM-SHA256"] }, /ciphers\[0\]: .* it needs keys that/],
    ["no ciphers", { ciphers: [] }, /ciphers: expected at least 1 item/],
    ["a cipher twice", { ciphers: Array(2).fill("TLS_AES_256_GCM_SHA384") }, /ciphers: have "TLS_AES.*" twice$/],
    ["a group of nobody", { groups: ["P-257"] }, /groups\[0\]: .* does not know it; did you mean "P-256"\?$/],
    ["another name of a group", { groups: ["secp384r1"] }, /groups\[0\]: .*; did you mean "P-384"\?$/],
    ["a word of OpenSSL that is no group", { groups: ["auto"] }, /groups\[0\]: .* does not know it$/],
    ["a group twice", { groups: ["X25519", "X25519"] }, /groups: have "X25519" twice$/],
    ["an old version", { min_version: "1.1" }, /min_version: expected "1\.2" or "1\.3", found "1\.1"/],
    [
      "ciphers that the version does not have",
      { min_version: "1.3", ciphers: ["ECDHE-RSA-AES128-GCM-SHA256"] },
      /ciphers: are for TLS 1\.2 alone, and "min_version" is "1\.3": name some that begin with TLS_$/,
    ],
  ])("refuses %s", (_what, tls, issue) => {
    expect(issues({ global: { tls }, services: [] })).toEqual([expect.stringMatching(issue)]);
    const found = ofService({ protocol: "https", tls });
    expect(found.map((text) => text.replace(/^services\[0\]/, "global"))).toEqual([expect.stringMatching(issue)]);
  });

  it.runIf(process.versions.openssl.startsWith("3.0."))("says which Node has post-quantum groups", () => {
    const found = issues({ global: { tls: { groups: ["X25519MLKEM768"] } }, services: [] });
    expect(found).toEqual([expect.stringMatching(/v20\.\S+, does not know it; OpenSSL 3\.5 does, which Node 24 has$/)]);
  });

  it("are for the protocols https and h2 alone", () => {
    expect(ofService({ tls: { min_version: "1.3" } })).toEqual([
      'services[0].tls: is for protocol "https" and "h2"; this service has "http"',
    ]);
  });
});

describe("certificates", () => {
  const files: Readonly<Record<string, string>> = {
    "/tls/shop.crt": SHOP.cert,
    "/tls/shop.key": SHOP.key,
    "/tls/both.crt": SHOP.cert + OTHER_CA.cert,
    "/tls/broken.crt": SHOP.cert + "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n",
    "/tls/other.key": WILDCARD.key,
    "/tls/old.crt": EXPIRED.cert,
    "/tls/old.key": EXPIRED.key,
    "/tls/none": "hush",
  };
  const readFile = (path: string) => {
    if (files[path] === undefined) throw Object.assign(new Error(path), { code: "ENOENT" });
    return files[path];
  };
  const entry = (hosts: readonly string[], cert = "/tls/shop.crt", key = "/tls/shop.key") => ({ hosts, cert, key });
  const loaded = (...certificates: object[]) =>
    loadConfig({ value: { global: { certificates }, services: [] } }, { kinds, environment: {}, readFile });
  const wrong = (...certificates: object[]) => {
    const result = loaded(...certificates);
    return result.ok ? [] : result.issues.map(({ at, message }) => `${s.formatPath(at)}: ${message}`);
  };

  it("certificates contain the content of their files, with hosts in lower case, and are shown by their paths", () => {
    const result = loaded(entry(["Shop.example.com", "*.example.com"], "/tls/both.crt"));
    if (!result.ok) throw new Error(JSON.stringify(result.issues));
    expect(result.config.global.certificates).toEqual([
      {
        hosts: ["shop.example.com", "*.example.com"],
        cert: { path: "/tls/both.crt", content: Buffer.from(files["/tls/both.crt"]!) },
        key: { path: "/tls/shop.key", content: Buffer.from(SHOP.key) },
      },
    ]);
    expect(result.shown).toMatchObject({
      global: { certificates: [entry(["Shop.example.com", "*.example.com"], "/tls/both.crt")] },
    });
  });

  it("may have expired", () => expect(wrong(entry(["a.example"], "/tls/old.crt", "/tls/old.key"))).toEqual([]));

  it.each<[what: string, certificate: object, issue: RegExp]>([
    ["without hosts", entry([]), /^global\.certificates\[0\]\.hosts: expected at least 1 item/],
    [
      "for a host longer than any",
      entry([`*.${"a.".repeat(125)}aa`]),
      /^global\.certificates\[0\]\.hosts\[0\]: .*no host name is that long$/,
    ],
    ["for an address", entry(["::1"]), /^global\.certificates\[0\]\.hosts\[0\]: .*an IPv6 address cannot be matched$/],
    [
      "for a wildcard in the middle",
      entry(["a.*.example"]),
      /^global\.certificates\[0\]\.hosts\[0\]: expected a host name/,
    ],
    ["without a key", { hosts: ["a.example"], cert: "/tls/shop.crt" }, /^global\.certificates\[0\]\.key: is required/],
    [
      "with a file that is not there",
      entry(["a.example"], "/tls/away.crt"),
      /\.cert: cannot read \/tls\/away\.crt: no such file$/,
    ],
    [
      "with a certificate that is none",
      entry(["a.example"], "/tls/none"),
      /\.cert: \/tls\/none: is not a certificate in PEM form/,
    ],
    [
      "with a chain that is broken further down",
      entry(["a.example"], "/tls/broken.crt"),
      /\.cert: \/tls\/broken\.crt: .*\(number 2 of 2 in it\)/,
    ],
    [
      "with a key that is none",
      entry(["a.example"], "/tls/shop.crt", "/tls/none"),
      /\.key: \/tls\/none: is not a private key in PEM form/,
    ],
    [
      "with another's key",
      entry(["a.example"], "/tls/shop.crt", "/tls/other.key"),
      /\.key: \/tls\/other\.key: the key does not belong to the certificate \/tls\/shop\.crt$/,
    ],
  ])(
    "certificates %s are refused, and the message repeats nothing that a file contains",
    (_what, certificate, issue) => {
      const [first, ...others] = wrong(certificate);
      expect(first).toMatch(issue);
      expect(first).not.toContain("hush");
      expect(others).toEqual([]);
    },
  );

  it("certificates have each host once, whatever its case", () => {
    expect(wrong(entry(["a.example", "b.example"]), entry(["c.example", "B.example"]))).toEqual([
      "global.certificates[1].hosts[1]: is the same host as global.certificates[0].hosts[1]",
    ]);
    expect(wrong(entry(["*.a.example", "b.a.example"]))).toEqual([]);
  });
});

describe("h2c", () => {
  it("h2c is a boolean, false unless given", () => {
    expect(valid({ global: { h2c: true }, services: [] }).global.h2c).toBe(true);
    expect(issues({ global: { h2c: "yes" }, services: [] })[0]).toMatch(/global\.h2c: expected true or false/);
    expect(issues({ global: { h2: true }, services: [] })[0]).toContain('did you mean "h2c"?');
  });
});

describe("decisions", () => {
  it.each<[unknown, string]>([
    [-1, "found -1"],
    [0.5, "found 0.5"],
    ["100", 'found "100"'],
    [1_000_001, "found 1000001"],
    [null, "found null"],
    [true, "found true"],
    [[], "found an array"],
  ])("decisions refuse %j", (decisions, found) => {
    expect(issues({ global: { decisions }, services: [] })).toEqual([
      `global.decisions: expected an integer 0–1000000, ${found}`,
    ]);
  });

  it.each([0, 1, 1_000_000])("decisions may be %d", (decisions) =>
    expect(issues({ global: { decisions }, services: [] })).toEqual([]),
  );
});

describe("limits", () => {
  const limits = (given: object) => issues({ global: { limits: given }, services: [] });

  it("limits keep their defaults when other limits are set", () => {
    expect(valid({ global: { limits: { max_headers: 50 } }, services: [] }).global.limits).toMatchObject({
      maxHeaders: 50,
      maxUriBytes: 8192,
    });
  });

  it.each<[string, unknown, string]>([
    ["headers_timeout_ms", 0, "an integer 1–86400000, found 0"],
    ["headers_timeout_ms", "60s", 'found "60s"'],
    ["request_timeout_ms", -1, "an integer 0–86400000, found -1"],
    ["min_body_bytes_per_s", 0.5, "an integer 0–1000000000, found 0.5"],
    ["min_reply_bytes_per_s", -1, "an integer 0–1000000000, found -1"],
    ["min_reply_bytes_per_s", "2k", 'an integer 0–1000000000, found "2k"'],
    ["max_header_bytes", 1023, "an integer 1024–1048576, found 1023"],
    ["max_headers", 0, "an integer 1–10000, found 0"],
    ["max_uri_bytes", 63, "an integer 64–1048576, found 63"],
    ["max_body_bytes", -1, "found -1"],
    ["max_connections", 1_000_001, "an integer 0–1000000, found 1000001"],
    ["max_connections_per_ip", -1, "an integer 0–1000000, found -1"],
    ["max_client_share", 0, "a number 0.001–1, found 0"],
    ["max_client_share", 1.5, "a number 0.001–1, found 1.5"],
    ["max_client_share", "half", 'a number 0.001–1, found "half"'],
    ["max_client_share", NaN, "a number 0.001–1, found NaN"],
    ["max_requests_in_flight", null, "an integer 0–1000000, found null"],
  ])("limits refuse %s %j", (field, value, message) => {
    const [issue, ...others] = limits({ [field]: value });
    expect(issue).toContain(`global.limits.${field}: expected`);
    expect(issue).toContain(message);
    expect(others).toEqual([]);
  });

  it.each([
    "request_timeout_ms",
    "min_body_bytes_per_s",
    "min_reply_bytes_per_s",
    "max_body_bytes",
    "max_connections",
    "max_connections_per_ip",
    "max_requests_in_flight",
  ])("the limit %s is off with 0", (field) => expect(limits({ [field]: 0 })).toEqual([]));

  it("limits suggest the field that was meant", () => {
    expect(limits({ max_body_size: 1 })[0]).toContain('is not a known field; did you mean "max_body_bytes"?');
  });
});

describe("plugins", () => {
  const keyAuth = { name: "key_auth", config: { key: "x" } };

  it("plugins get their config from their kind's schema, at all three levels", () => {
    const config = valid({
      global: { plugins: [keyAuth] },
      services: [
        service({
          plugins: [{ ...keyAuth, id: "p", enabled: false }],
          routes: [{ path: "/b", plugins: [{ name: "rate_limit" }] }],
        }),
      ],
    });
    expect(config.global.plugins).toEqual([
      { name: "key_auth", enabled: true, config: { key: "x", hideCredentials: false } },
    ]);
    expect(config.services[0]!.plugins[0]).toMatchObject({ id: "p", enabled: false });
    expect(config.services[0]!.routes[0]!.plugins[0]).toEqual({ name: "rate_limit", enabled: true, config: {} });
  });

  it("plugins resolve references in their config", () => {
    const plugin = { name: "key_auth", config: { key: "${env:TOKEN}" } };
    expect(valid({ global: { plugins: [plugin] }, services: [] }).global.plugins[0]!.config).toMatchObject({
      key: "hush",
    });
  });

  it("plugins are checked also when they are not enabled", () => {
    expect(ofService({ plugins: [{ name: "rate_limit", enabled: false, config: { limit_min: 0 } }] })).toEqual([
      "services[0].plugins[0].config.limit_min: expected an integer ≥ 1, found 0",
    ]);
  });

  it("plugins report a missing required field at the plugin, even without config", () => {
    const text = '{"services": [],\n "global": {"plugins": [\n  {"name": "key_auth"}]}}';
    const result = loadConfig({ text, file: "gw.json" }, { kinds, environment: {} });
    expect(result).toEqual({
      ok: false,
      issues: [
        {
          at: ["global", "plugins", 0, "config", "key"],
          message: "is required (a non-empty string)",
          position: { line: 3, column: 3 },
        },
      ],
    });
  });

  it("plugins cause an error that suggests a known kind if their kind is unknown", () => {
    expect(ofService({ plugins: [{ name: "key-auth", config: { anything: 1 } }] })).toEqual([
      'services[0].plugins[0].name: expected a plugin kind (key_auth, rate_limit), found "key-auth": ' +
        'did you mean "key_auth"?',
    ]);
  });

  it("plugins have ids unique within one list", () => {
    const twice = [{ ...keyAuth, id: "p" }, { ...keyAuth }, { ...keyAuth }, { ...keyAuth, id: "p" }];
    expect(ofService({ plugins: twice, routes: [{ path: "/", plugins: [{ ...keyAuth, id: "p" }] }] })).toEqual([
      'services[0].plugins[3].id: "p" is already used by services[0].plugins[0]',
    ]);
  });
});

describe("configJsonSchema", () => {
  it("describes plugins by their name, once", () => {
    const document = JSON.parse(JSON.stringify(configJsonSchema(kinds)));
    expect(Object.keys(document.$defs).sort()).toEqual([
      "Caller",
      "ErrorBody",
      "Plugin",
      "Route",
      "Service",
      "Test",
      "Upstream",
    ]);
    expect(document.properties.$schema).toEqual({});
    expect(document.$defs.Plugin.allOf[0]).toEqual({
      if: { properties: { name: { const: "key_auth" } }, required: ["name"] },
      then: { properties: { config: kinds[0]!.schema.jsonSchema() } },
    });
    expect(document.$defs.Service.required).toEqual(["name", "base_path", "upstreams", "routes"]);
  });
});
