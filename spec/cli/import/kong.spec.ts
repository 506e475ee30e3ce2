import { describe, expect, it } from "vitest";
import { fromKong } from "./imported.ts";

const SERVICE = { name: "s", url: "http://10.0.0.1:3000" };
const ROUTE = { name: "r", paths: ["/a"] };
const CONSUMERS = [
  {
    username: "ada",
    keyauth_credentials: [{ key: "k-ada" }, { key: "k-ada-2" }],
    basicauth_credentials: [{ username: "ada", password: "p-ada" }],
    acls: [{ group: "admins" }],
  },
  {
    username: "bob",
    keyauth_credentials: [{ key: "k-bob" }],
    basicauth_credentials: [{ username: "bob", password: "p-bob" }],
  },
];
const CLOSED = {
  name: "request_termination",
  config: { status: 503, body: "This route is closed until its access control is configured." },
};
const WHOLE = expect.stringContaining("a path matches whole segments here");

/** The plugins of the only service, and the notes on them. */
async function plugins(given: object[], more: object = {}, environment?: Record<string, string>) {
  const { services, notes } = await fromKong(
    { services: [{ ...SERVICE, routes: [ROUTE], plugins: given }], ...more },
    environment,
  );
  return { made: services[0]!.plugins ?? [], notes: notes.filter((note) => !note.includes("whole segments")) };
}

describe("services and routes of Kong", () => {
  it("become a base_path that is removed, with its timeouts and retries", async () => {
    const { services, notes } = await fromKong({
      services: [
        {
          ...SERVICE,
          id: "1",
          tags: ["x"],
          connect_timeout: 1000,
          read_timeout: 2000,
          write_timeout: 3000,
          retries: 20,
          enabled: true,
          routes: [{ ...ROUTE, id: "2", methods: ["get"], preserve_host: true, hosts: ["a.example.com"] }],
        },
      ],
    });
    expect(services).toEqual([
      {
        name: "s",
        base_path: "/a",
        hosts: ["a.example.com"],
        preserve_host: true,
        protocol: "http",
        upstreams: [{ host: "10.0.0.1", port: 3000 }],
        timeouts: { connect_ms: 1000, response_ms: 2000, idle_ms: 3000 },
        retries: { attempts: 10 },
        routes: [
          { path: "/{rest*}", methods: ["GET"] },
          { path: "/", methods: ["GET"] },
        ],
      },
    ]);
    expect(notes).toEqual([WHOLE]);
  });

  it.each([
    ["strip_path and no path of the service", {}, "", "/v1/a", "/v1/a", "/"],
    ["the path of the service is put before", {}, "/a/", "/v1/a", "/v1/a", "/"],
    ["the whole path is forwarded", { strip_path: false }, "", "/v1/a", "/", "/v1/a"],
    ["everything", { paths: undefined }, "", "/", "/", "/"],
  ])("keep what upstreams get: %s", async (_what, route, path, client, base, below) => {
    const { services } = await fromKong({
      services: [{ name: "s", url: `http://h:1${path}`, routes: [{ paths: [client], ...route }] }],
    });
    expect([services[0]!.base_path, services[0]!.routes.map((each) => each.path)]).toEqual([
      base,
      [`${below === "/" ? "" : below}/{rest*}`, below],
    ]);
    expect(services[0]!.upstream_path).toBe(path === "" ? undefined : "/a");
  });

  it.each([
    [
      "a choice",
      { paths: ["~/a/(x|y)$"] },
      'services[0].routes[0].paths[0]: "~/a/(x|y)$" is not carried over: it has alternatives (|): ' +
        "write a route for each of them",
    ],
    [
      "a look ahead",
      { paths: ["~/a/(?!x).*"] },
      "is not carried over: it looks ahead or behind; write routes with placeholders",
    ],
    [
      "a look behind",
      { paths: ["~/a/.+(?<=x)$"] },
      "is not carried over: it looks ahead or behind; write routes with placeholders",
    ],
    [
      "a group that is there twice",
      { paths: ["~/a/(?<id>\\d+)/b/(?<id>\\d+)$"] },
      'is not carried over: the group "id" is there twice: give each a name of its own',
    ],
    [
      "text and classes in a segment",
      { paths: ["~/a/(?<id>\\d+)\\.pdf$"] },
      '"(?<id>\\d+)\\.pdf" is no expression for one segment of the path',
    ],
    [
      "a class that may have a slash",
      { paths: ["~/a/[+-9]+$"] },
      '"[+-9]+" is no expression for one segment of the path',
    ],
    ["a segment that may be empty", { paths: ["~/a/\\d*/b$"] }, '"\\d*" is no expression for one segment of the path'],
    [
      "a bracket that stays open",
      { paths: ["~/a[b/c$"] },
      '"~/a[b/c$" is not carried over: it is no regular expression',
    ],
    [
      "a long expression",
      { paths: [`~/${"[/".repeat(1001)}`] },
      "is not carried over: it has more than 2000 characters",
    ],
    ["any character", { paths: ["~/a/v1.0/b$"] }, '"v1.0" is no expression for one segment of the path'],
    ["an expression without ~", { paths: ["/a/\\d+"] }, 'which no request has: a regular expression begins with "~/"'],
    ["a path that is not absolute", { paths: ["a/b"] }, '"a/b" is not carried over: a path begins with "/" or "~/"'],
    [
      "a pattern of a header",
      { headers: { "x-v": ["~*2"] } },
      'services[0].routes[0]: the route is not carried over: it matches by "headers" that cannot be conditions here',
    ],
    [
      "a header that is no condition",
      { headers: { "x-v": ["2"], Upgrade: ["h2c"] } },
      'services[0].routes[0]: the route is not carried over: it matches by "headers" that cannot be conditions here',
    ],
    [
      "headers without values",
      { headers: { "x-v": [] } },
      'services[0].routes[0]: the route is not carried over: it matches by "headers" that cannot be conditions here',
    ],
    [
      "headers that are a list",
      { headers: ["x-v"] },
      'services[0].routes[0]: the route is not carried over: it matches by "headers" that cannot be conditions here',
    ],
    ["source addresses", { sources: [{ ip: "10.0.0.0/8" }] }, 'the route is not carried over: it matches by "sources"'],
    ["an expression", { expression: 'http.path == "/a"' }, 'the route is not carried over: it matches by "expression"'],
    ["TCP", { protocols: ["tcp"] }, 'the route is not carried over: the protocol "tcp" is not served'],
    ["methods that are no list", { methods: "GET" }, 'the route is not carried over: "methods" is no list of texts'],
    ["hosts that are no texts", { hosts: [7] }, 'the route is not carried over: "hosts" is no list of texts'],
    ["a host with a port", { hosts: ["a.example.com:8443"] }, 'the host "a.example.com:8443" has a port'],
    [
      "a wildcard at the end of a host",
      { paths: ["/base"], hosts: ["a.*"] },
      'the host "a.*" has a port, or a wildcard that is not its first label',
    ],
  ])(
    "are left out, noted, where leaving out a condition would let more requests through: %s",
    async (_what, route, note) => {
      const { services, notes } = await fromKong({
        services: [
          { name: "x", url: "http://h:1/base", routes: [{ ...ROUTE, ...route }] },
          { ...SERVICE, routes: [{ paths: ["/kept"] }] },
        ],
      });
      expect(services.map(({ base_path: base }) => base)).toContain("/kept");
      const closed = services.filter(({ name }) => name.startsWith("closed"));
      expect(closed.length).toBeGreaterThan(0);
      for (const { plugins } of closed) expect(plugins).toEqual([CLOSED]);
      expect(
        services.every(({ name, routes }) => name !== "x" || routes.every((each) => /^\/(ok|base)\b/.test(each.path))),
      ).toBe(true);
      expect(notes.join("\n")).toContain(note);
    },
  );

  it(
    "that are left out do not let their requests through to a less specific route, " + "nor to one that lacks a guard",
    async () => {
      const guarded = { plugins: [{ name: "key-auth" }] };
      const { services, notes } = await fromKong({
        services: [
          {
            ...SERVICE,
            routes: [
              { paths: ["~/admin/(?!x)\\d+"], ...guarded },
              { paths: ["/tenant"], snis: ["a.test"], ...guarded },
              { paths: ["/", "/admin/open", "/tenants"] },
              { paths: ["/admin/keyed"], ...guarded },
            ],
          },
        ],
        consumers: CONSUMERS,
      });
      const at = (base: string) =>
        services
          .filter(({ name, base_path: path }) => name.startsWith("s") && path === base)
          .map(({ plugins = [], routes }) => [...plugins, ...(routes[0]!.plugins ?? [])].map(({ name }) => name));
      expect([at("/"), at("/admin/open"), at("/tenants"), at("/admin/keyed")]).toEqual([
        [["request_termination"]],
        [["request_termination"]],
        [[]],
        [["key_auth"]],
      ]);
      const closed = services
        .filter(({ name }) => name.startsWith("closed"))
        .map(({ plugins, routes }) => [plugins, routes.map(({ path }) => path)]);
      expect(closed).toEqual([
        [[CLOSED], ["/admin/{rest*}", "/admin"]],
        [[CLOSED], ["/tenant/{rest*}", "/tenant"]],
      ]);
      expect(notes).toContainEqual(
        "services[0].routes[2]: would get requests of services[0].routes[0], which is left out, " +
          'without "key_auth": it answers 503 (request_termination) until you replace it',
      );
    },
  );

  it.each([
    ["a regular expression whose last segment may go on", ["~/raw\\d+"], {}],
    ["a choice", ["~/a/|/b/"], {}],
    ["a wildcard host", ["~/raw.*"], { hosts: ["*.example.com"] }],
  ])("that are left out close what is at the beginning of the path: %s", async (_what, paths, host) => {
    const { services } = await fromKong({
      services: [
        {
          ...SERVICE,
          routes: [
            { paths, ...host, plugins: [{ name: "ip-restriction", config: { deny: ["10.0.0.1"] } }] },
            { paths: ["/"], hosts: ["a.example.com"] },
            { paths: ["/kept"], hosts: ["other.org"] },
          ],
        },
      ],
    });
    expect(services[0]).toMatchObject({
      hosts: ["a.example.com"],
      routes: [{ plugins: [CLOSED] }, { plugins: [CLOSED] }],
    });
    expect(services[1]!.routes[0]!.plugins).toEqual("hosts" in host ? undefined : [CLOSED]);
  });

  it("match by headers: one value as it is, several as a pattern of all of them", async () => {
    const { services, notes } = await fromKong({
      services: [
        {
          ...SERVICE,
          routes: [
            { name: "v2", paths: ["/a"], headers: { "X-V": ["2"] } },
            { paths: ["/a"], headers: { "x-v": ["3.0", "a|b", "${x}"] } },
            { paths: ["/a"], headers: { "x-v": ["4", "5"] } },
            { paths: ["/a"], methods: ["GET"], headers: { "x-v": ["${HOME}"], "x-w": ["w"] } },
            { paths: ["/a"] },
          ],
        },
      ],
    });
    const found = services
      .flatMap(({ routes }) => routes)
      .filter(({ path }) => path === "/{rest*}")
      .map(({ name, match, methods }) => ({ name, match, methods }));
    expect(found).toEqual([
      { name: "v2 /{rest*}", match: { headers: { "X-V": "2" } }, methods: undefined },
      {
        name: "route /{rest*}",
        match: { headers: { "x-v": { matches: "^(?:3\\.0|a\\|b|\\$\\{x\\})$" } } },
        methods: undefined,
      },
      { name: "route /{rest*}_2", match: { headers: { "x-v": { matches: "^(?:4|5)$" } } }, methods: undefined },
      { name: "route /{rest*}_3", match: { headers: { "x-v": "$${HOME}", "x-w": "w" } }, methods: ["GET"] },
      { name: undefined, match: undefined, methods: undefined },
    ]);
    expect(notes.join("\n")).toContain("values are compared with case here, and a longer path goes before headers");
  });

  it.each<[Record<string, unknown>, Record<string, unknown>, string]>([
    [
      { path_handling: "v1" },
      { path_handling: "v0" },
      "the paths of the service and of the request are joined with a slash here, as by v0",
    ],
    [
      { request_buffering: false },
      { request_buffering: true },
      "bodies are always streamed here, unless a plugin reads them",
    ],
    [
      { response_buffering: false },
      { response_buffering: true },
      "bodies are always streamed here, unless a plugin reads them",
    ],
    [
      { https_redirect_status_code: 301 },
      { https_redirect_status_code: 426 },
      "requests over HTTP get 404 here: global.https_redirect redirects all of them",
    ],
    [{ regex_priority: 7 }, { regex_priority: 0 }, "the more specific pattern goes first here"],
  ])(
    "note a setting that has no counterpart exactly where it is not Kong's default: %j",
    async (odd, usual, message) => {
      const notesOn = async (route: object, url: string) =>
        (await fromKong({ services: [{ ...SERVICE, url, routes: [{ paths: ["/a/base"], ...route }] }] })).notes;
      expect(await notesOn(odd, "http://h:1/base")).toEqual(
        expect.arrayContaining([WHOLE, `services[0].routes[0].${Object.keys(odd)[0]}: ${message}`]),
      );
      expect(await notesOn(usual, "http://h:1/base")).toEqual([WHOLE]);
      if ("path_handling" in odd) expect(await notesOn(odd, "http://h:1")).toEqual([WHOLE]);
    },
  );

  it("note a name to which the routes here add their path", async () => {
    const notesOn = async (route: object) =>
      (await fromKong({ services: [{ ...SERVICE, routes: [{ ...route, headers: { "x-v": ["2"] } }] }] })).notes;
    const note = "services[0].routes[0].name: the names of its routes here end with their path";
    expect([await notesOn({ name: "v2" }), await notesOn({})]).toEqual([
      expect.arrayContaining([note]),
      expect.not.arrayContaining([note]),
    ]);
  });

  it(
    "with a guard that are left out because a request could fulfil the headers of two " +
      "leave no way around the guard",
    async () => {
      const { services, notes } = await fromKong({
        services: [
          {
            ...SERVICE,
            routes: [
              { name: "v1", paths: ["/a"], headers: { "X-V": ["1"] } },
              { name: "keyed", paths: ["/a"], headers: { "X-W": ["1"] }, plugins: [{ name: "key-auth" }] },
              { name: "rest", paths: ["/a"] },
              { name: "other", paths: ["/b"] },
            ],
          },
        ],
        consumers: CONSUMERS,
      });
      const closed = services.flatMap(({ name, base_path: base, plugins = [], routes }) =>
        name.startsWith("closed")
          ? []
          : routes.map(
              (each) =>
                `${base} ${each.name ?? "rest"} ` +
                `${[...plugins, ...(each.plugins ?? [])].map((plugin) => plugin.name).join()}`,
            ),
      );
      expect(closed).toEqual([
        "/a v1 /{rest*} request_termination",
        "/a v1 / request_termination",
        "/a rest request_termination",
        "/a rest request_termination",
        "/b rest ",
        "/b rest ",
      ]);
      expect(notes.join("\n")).toContain(
        'would get requests of services[0].routes[1], which is left out, without "key_auth"',
      );
    },
  );

  it("are left out, noted, where they are no objects", async () => {
    const { services, notes } = await fromKong({ services: [{ ...SERVICE, routes: [null, 7, { paths: ["/a"] }] }] });
    expect(services.map(({ base_path: base }) => base)).toEqual(["/a"]);
    expect(notes).toContain("services[0].routes[0], services[0].routes[1]: is no route: expected an object");
  });

  it.each<[string, object, string, [string, string, string?][]]>([
    ["~/items/(?<id>\\d+)$", {}, "/items/{id}", [["/items/{id}", "/"]]],
    ["~/items/(?<id>\\d+)/?$", { strip_path: false }, "/items/{id}", [["/", "/items/{id}"]]],
    [
      "~/items/[^/]+/x",
      { strip_path: false },
      "",
      [
        ["/", "/items/{segment_2}/x/{rest*}"],
        ["/", "/items/{segment_2}/x"],
      ],
    ],
    [
      "~/v1\\.0/(\\w+)/.*$",
      { strip_path: false },
      "/v1.0/{segment_2}",
      [
        ["/", "/v1.0/{segment_2}/{rest*}"],
        ["/", "/v1.0/{segment_2}"],
      ],
    ],
    ["~/d/[0-9]{4}-[0-9]{2}$", { strip_path: false }, "/d/{segment_2}", [["/", "/d/{segment_2}"]]],
    ["~/files/(?<rest>.+)", {}, "", [["/", "/files/{rest*}", "/api"]]],
    ["~/$", {}, "", [["/", "/"]]],
  ])(
    "have a regular expression as a pattern, whose placeholders are noted where they accept more: %s",
    async (path, route, wider, expected) => {
      const { services, notes } = await fromKong({
        services: [{ name: "s", url: "http://h:1/api/", routes: [{ ...ROUTE, paths: [path], ...route }] }],
      });
      const made = services.flatMap(({ base_path: base, upstream_path: prefix, routes }) =>
        routes.map((each) => [prefix, base, each.path, each.upstream_path]),
      );
      expect(made).toEqual(
        expected.map(([base, below, asked]) => [asked === undefined ? "/api" : undefined, base, below, asked]),
      );
      const noted = notes.filter((note) => !note.includes("whole segments"));
      expect(noted).toEqual(
        wider === ""
          ? []
          : [
              `services[0].routes[0].paths[0]: is "${wider}" here, in which a placeholder is any one segment: ` +
                `the upstream has to refuse what the expression does not match`,
            ],
      );
    },
  );

  it("with a regular expression leave no way around a guard, whichever pattern goes first here", async () => {
    const guarded = { plugins: [{ name: "key-auth" }] };
    const states = async (...routes: object[]) => {
      const { services } = await fromKong({
        services: [{ ...SERVICE, routes: routes.map((route) => ({ strip_path: false, ...route })) }],
        consumers: CONSUMERS,
      });
      return services.flatMap(({ plugins = [], routes: made }) =>
        made.map((each) => `${each.path} ${[...plugins, ...(each.plugins ?? [])].map(({ name }) => name).join()}`),
      );
    };
    // A text goes before the expression here, in Kong after it.
    expect(
      await states({ paths: ["~/a/(?<id>\\w+)$"], ...guarded }, { paths: ["/a/open"] }, { paths: ["/b"] }),
    ).toEqual(["/a/{id} key_auth", "/a/open/{rest*} ", "/a/open request_termination", "/b/{rest*} ", "/b "]);
    // /a/x is guarded in Kong, and would be of the expression here.
    expect(await states({ paths: ["~/a/(?<id>\\d+)$"] }, { paths: ["/a"], ...guarded })).toEqual([
      "/a/{id} request_termination",
      "/a/{rest*} key_auth",
      "/a key_auth",
    ]);
    expect(await states({ paths: ["~/a/(?<id>[^/]+)$"] }, { paths: ["/a"], ...guarded })).toEqual([
      "/a/{id} ",
      "/a/{rest*} key_auth",
      "/a key_auth",
    ]);
    // Two expressions of one pattern.
    expect(
      await states({ paths: ["~/a/(?<id>\\d+)$"] }, { paths: ["~/a/(?<name>[a-z]+)$"], ...guarded }, { paths: ["/b"] }),
    ).toEqual(["/a/{id} request_termination", "/b/{rest*} ", "/b "]);
    // Methods of their own.
    expect(
      await states({ paths: ["~/a/(?<id>\\d+)$"], methods: ["GET"] }, { paths: ["/a"], methods: ["POST"], ...guarded }),
    ).toEqual(["/a/{id} ", "/a/{rest*} key_auth", "/a key_auth", "/a/{id} key_auth"]);
  });

  it("have the path that request-transformer writes, with the groups of their path", async () => {
    const of = async (uri: string) => {
      const plugins = [{ name: "request-transformer", config: { replace: { uri } } }];
      const { services, notes } = await fromKong({
        services: [
          { name: "s", url: "http://h:1/api", routes: [{ paths: ["~/a/(?<id>[^/]+)/(?<rest>.+)$"], plugins }] },
        ],
      });
      return [services[0]!.upstream_path, services[0]!.routes[0]!.upstream_path, notes.length];
    };
    expect(await of("/v2/$(uri_captures.id)")).toEqual([undefined, "/v2/{id}", 0]);
    expect(await of("/$(uri_captures['id'])/$(uri_captures[\"rest\"])")).toEqual([undefined, "/{id}/{rest}", 0]);
    for (const bad of ["/v2/$(uri_captures.other)", "/$(headers.x)", "v2", "/v2?a=1", "/{id}{", ""])
      expect(await of(bad)).toEqual([undefined, "/api", 1]);
  });

  it.each([
    [["https"], "https"],
    [["grpcs", "https"], "https"],
    [["http"], "http"],
    [["http", "https"], undefined],
    [["grpc", "grpcs"], undefined],
  ])("with the protocols %j match the scheme %s", async (protocols, scheme) => {
    const { services, notes } = await fromKong({
      services: [{ ...SERVICE, routes: [{ paths: ["/a"], protocols, methods: ["GET"] }] }],
    });
    expect(services[0]!.routes[0]!.match).toEqual(scheme === undefined ? undefined : { scheme });
    expect(notes.join().includes("requests over HTTP get 404 here")).toBe(scheme === "https");
  });

  it.each([
    [{ url: "http://h:1/a?b=c" }, "expected a URL without user, query and fragment"],
    [{ url: "http://u:p@h:1/" }, "expected a URL without user, query and fragment"],
    [{ url: "http://h:0/a" }, "expected a port from 1 to 65535"],
    [{ host: "h", port: 0 }, "expected a port from 1 to 65535"],
    [{ host: "h", path: "2/a" }, 'its path "2/a" has to begin with "/"'],
    [{ url: "http://h:1/a//b" }, '"" is an empty segment: write "/" once'],
  ])("of a service that cannot be reached as it is written are left out, noted: %j", async (service, message) => {
    const { services, notes } = await fromKong({
      services: [
        { name: "x", ...service, routes: [{ paths: ["/x"] }] },
        { ...SERVICE, routes: [ROUTE] },
      ],
    });
    expect(services.some(({ name }) => name === "x")).toBe(false);
    expect(notes.join("\n")).toContain(message);
  });

  it("answer 503 where their service or path cannot be carried over", async () => {
    const plugins = [{ name: "ip-restriction", config: { deny: ["10.0.0.1"] } }];
    const { services } = await fromKong({
      services: [
        { ...SERVICE, routes: [{ paths: ["/"] }] },
        { url: "http://u:p@h", routes: [{ paths: ["/login"] }], plugins },
        { host: "h", port: 99_999_999, routes: [{ paths: ["/port"] }], plugins },
        { ...SERVICE, routes: [{ paths: ["/x//y"] }], plugins },
      ],
    });
    expect(services.flatMap(({ name, routes }) => (name.startsWith("closed") ? [routes[1]!.path] : []))).toEqual([
      "/login",
      "/port",
      "/x/y",
    ]);
  });

  it("have the targets of the upstream that the service names, with the algorithm", async () => {
    const of = async (upstream: object) =>
      (
        await fromKong({
          services: [{ name: "s", host: "UP", routes: [ROUTE] }],
          upstreams: [{ name: "up", ...upstream }],
        })
      ).services[0];
    expect(
      await of({
        algorithm: "least-connections",
        targets: [{ target: "10.0.0.1:80" }, { target: "[::1]:81" }, { target: "h" }],
      }),
    ).toMatchObject({
      load_balancing_strategy: "least_connections",
      upstreams: [
        { host: "10.0.0.1", port: 80 },
        { host: "::1", port: 81 },
        { host: "h", port: 8000 },
      ],
    });
    expect(
      await of({
        targets: [
          { target: "a:1", weight: 10 },
          { target: "b:1", weight: 30 },
        ],
      }),
    ).toMatchObject({ load_balancing_strategy: "weighted", upstreams: [{ weight: 10 }, { weight: 30 }] });
    const spares = [
      { target: "a:1", failover: false },
      { target: "b:1", failover: true },
    ];
    expect(JSON.parse(JSON.stringify(await of({ targets: spares })))).toMatchObject({
      upstreams: [{ host: "a" }, { host: "b", backup: true }],
    });
    expect(await of({ targets: [spares[1]] })).toMatchObject({ upstreams: [{ host: "b", backup: undefined }] });
    expect(await of({ algorithm: "consistent-hashing", hash_on: "ip", targets: [{ target: "a:1" }] })).toMatchObject({
      load_balancing_strategy: "ip_hash",
    });
    expect(await of({ targets: [] })).toMatchObject({ upstreams: [{ host: "up", port: 80 }] });
    const { notes } = await fromKong({
      services: [{ name: "s", host: "up", routes: [ROUTE] }],
      upstreams: [{ name: "up", algorithm: "latency", healthchecks: { active: {} }, targets: [{ target: "a:1" }] }],
    });
    expect(notes).toContain(
      'upstreams[0].algorithm: "latency" is not carried over: the service has load_balancing_strategy "round_robin"',
    );
    expect(notes).toContain(
      'upstreams[0].healthchecks: health checks are not carried over: write "health" of the service',
    );
  });

  it.each<[object, object, string[]]>([
    [
      { hash_on: "header", hash_on_header: "X-Tenant", hash_fallback: "none", slots: 1000 },
      { load_balancing_strategy: "hash", hash_on: "header:X-Tenant" },
      [],
    ],
    [{ hash_on: "consumer" }, { load_balancing_strategy: "hash", hash_on: "credential" }, []],
    [{ hash_on: "ip" }, { load_balancing_strategy: "ip_hash" }, []],
    [
      { hash_on: "cookie", hash_on_cookie: "sid", hash_on_cookie_path: "/" },
      { load_balancing_strategy: "hash", hash_on: "cookie:sid" },
      [
        "upstreams[0].hash_on_cookie: Kong sets this cookie where a client has none: here the upstream has to, " +
          'or use "sticky" of the service instead',
      ],
    ],
    [
      { hash_on: "header", hash_on_header: "X", hash_fallback: "ip" },
      { load_balancing_strategy: "hash", hash_on: "header:X" },
      ["upstreams[0].hash_fallback: is not carried over: requests without the value go to each upstream in turn"],
    ],
    [
      { hash_on: "uri_capture", hash_on_uri_capture: "id" },
      { load_balancing_strategy: "round_robin" },
      [
        'upstreams[0].hash_on: "uri_capture" is not carried over: requests go to each upstream in turn: ' +
          "use a placeholder in the path of the route, and hash on param:<name>",
      ],
    ],
    [
      { hash_on: "query_arg", hash_on_query_arg: "q" },
      { load_balancing_strategy: "round_robin" },
      ['upstreams[0].hash_on: "query_arg" is not carried over: requests go to each upstream in turn'],
    ],
    [
      {},
      { load_balancing_strategy: "round_robin" },
      ['upstreams[0].hash_on: "none" is not carried over: requests go to each upstream in turn'],
    ],
    [
      { hash_on: "constructor" },
      { load_balancing_strategy: "round_robin" },
      ['upstreams[0].hash_on: "constructor" is not carried over: requests go to each upstream in turn'],
    ],
    [
      { hash_on: "header" },
      { load_balancing_strategy: "round_robin" },
      ["upstreams[0].hash_on_header: is not the name of a header: requests go to each upstream in turn"],
    ],
    [
      { hash_on: "header", hash_on_header: "a b" },
      { load_balancing_strategy: "round_robin" },
      ["upstreams[0].hash_on_header: is not the name of a header: requests go to each upstream in turn"],
    ],
    [
      {
        algorithm: "sticky-sessions",
        hash_on: "none",
        sticky_sessions_cookie: "sid",
        sticky_sessions_cookie_path: "/",
      },
      { load_balancing_strategy: "round_robin", sticky: { cookie: "sid" } },
      [],
    ],
    [
      { algorithm: "sticky-sessions" },
      { sticky: {} },
      ['upstreams[0].sticky_sessions_cookie: is no name that the cookie can have: it is "route"'],
    ],
  ])("have the consistent hashing and the sticky sessions of the upstream: %j", async (upstream, expected, noted) => {
    const { services, notes } = await fromKong({
      services: [{ name: "s", host: "up", routes: [ROUTE] }],
      upstreams: [
        { name: "up", algorithm: "consistent-hashing", targets: [{ target: "a:1" }, { target: "b:1" }], ...upstream },
      ],
    });
    expect(services[0]).toMatchObject({
      ...expected,
      upstreams: [
        { host: "a", port: 1 },
        { host: "b", port: 1 },
      ],
    });
    if (!("hash_on" in expected)) expect(services[0]).not.toHaveProperty("hash_on");
    expect(notes.filter((note) => !note.includes("whole segments"))).toEqual(noted);
  });

  it(
    "that share an upstream with sticky sessions have a cookie each, " + "where a browser would take both for one",
    async () => {
      const route = (path: string, more = {}) => ({ ...ROUTE, paths: [path], strip_path: false, ...more });
      const service = (name: string, ...routes: object[]) => ({ name, host: "up", routes });
      const { services } = await fromKong({
        services: [
          service(
            "s",
            route("/a"),
            route("/b", { preserve_host: true }),
            route("/c", { paths: ["/c"], strip_path: true }),
          ),
          service("t", route("/d")),
        ],
        upstreams: [
          { name: "up", algorithm: "sticky-sessions", sticky_sessions_cookie: "sid", targets: [{ target: "a:1" }] },
        ],
      });
      expect(services.map(({ base_path, sticky }) => [base_path, sticky])).toEqual([
        ["/", { cookie: "sid" }],
        ["/", { cookie: "sid_2" }],
        ["/c", { cookie: "sid" }],
        ["/", { cookie: "sid_3" }],
      ]);
    },
  );

  it("keep TLS towards upstreams: verified unless tls_verify is false", async () => {
    const of = (more: object) =>
      fromKong({ services: [{ name: "s", protocol: "grpcs", host: "h", ...more, routes: [ROUTE] }] });
    expect((await of({ tls_verify: false })).services[0]).toMatchObject({
      protocol: "h2",
      upstreams: [{ host: "h", port: 443 }],
      tls: { verify: false },
    });
    const { services, notes } = await of({ client_certificate: "c" });
    expect(services[0]!.tls).toBeUndefined();
    expect(notes).toContain("services[0]: certificates of upstreams are verified here, unless tls.verify is false");
    expect(notes).toContain('services[0]: certificates towards upstreams are files here: name them in "tls"');
  });

  it("are found at the top of the file, too, and by name or id", async () => {
    const { services, notes } = await fromKong({
      services: [{ ...SERVICE, id: "i1" }],
      routes: [
        { ...ROUTE, service: "s" },
        { paths: ["/b"], service: { id: "i1" } },
        { paths: ["/c"], service: { name: "other" } },
      ],
      plugins: [{ name: "key-auth", route: { name: "r" } }],
      consumers: [{ username: "ada" }],
      keyauth_credentials: [{ consumer: "ada", key: "k" }],
    });
    expect(services.map((each) => [each.base_path, each.plugins?.map(({ name }) => name)])).toEqual([
      ["/a", ["key_auth"]],
      ["/b", undefined],
    ]);
    expect(notes).toContain(
      "routes[2]: is not carried over: it is disabled, belongs to a consumer or group, or to nothing that is here",
    );
  });

  it("are left out, noted, where they are disabled, have no target, or no routes", async () => {
    const { notes } = await fromKong({
      services: [
        { ...SERVICE, routes: [ROUTE] },
        { name: "off", url: "http://h", enabled: false, routes: [ROUTE] },
        { name: "u", url: "tcp://h", routes: [ROUTE] },
        { name: "n" },
        { name: "e", url: "http://h" },
      ],
      vaults: [{ name: "v" }],
    });
    expect(notes).toEqual([
      expect.stringContaining("services[2].routes[0]: the route is not carried over: its requests get 503"),
      WHOLE,
      "services[1]: is disabled, and left out",
      expect.stringContaining("services[2]: the service is not carried over: expected a URL"),
      "services[2].routes[0]: the route is not carried over: its service is not",
      'services[3]: the service is not carried over: it needs "url", or "host"',
      "services[4]: the service has no routes, and is left out",
      'vaults: "vaults" has no counterpart here',
    ]);
    await expect(fromKong({ services: [] })).rejects.toThrow("no route could be carried over");
  });
});

describe("prefixes of Kong", () => {
  const guarded = { plugins: [{ name: "key-auth" }] };
  const OTHER = { name: "other", url: "http://other.test" };
  const shown = (services: Awaited<ReturnType<typeof fromKong>>["services"]) =>
    services.flatMap(({ name, base_path: base, plugins = [], routes }) =>
      routes.map((route) =>
        [
          name,
          base,
          route.path,
          route.methods?.join() ?? "all",
          ...[...plugins, ...(route.plugins ?? [])].map((each) => each.name),
        ].join(" "),
      ),
    );

  it(
    "close the route at their upstream that would get /admin.php of a guarded " + "/admin, and note one at another",
    async () => {
      const routes = [
        { paths: ["/admin"], strip_path: false, ...guarded },
        { paths: ["/"], strip_path: false },
      ];
      const one = await fromKong({ services: [{ ...SERVICE, routes }], consumers: CONSUMERS });
      expect(shown(one.services)).toEqual([
        "s / /admin/{rest*} all key_auth",
        "s / /admin all key_auth",
        "s / /{rest*} all request_termination",
        "s / / all",
      ]);
      expect(one.notes[0]).toBe(
        'services[0].routes[1]: would get requests such as "/admin.php" of services[0].routes[0], ' +
          "which has other guards, " +
          "since a path matches whole segments here: it answers 503 (request_termination) until you replace it",
      );
      const stripped = [{ paths: ["/v1/admin"], ...guarded }, { paths: ["/v1"] }, { paths: ["/v1/admin/open"] }];
      const three = await fromKong({ services: [{ ...SERVICE, routes: stripped }], consumers: CONSUMERS });
      expect(shown(three.services)).toEqual([
        "s /v1/admin /{rest*} all key_auth",
        "s /v1/admin / all key_auth",
        "s_2 /v1 /{rest*} all request_termination",
        "s_2 /v1 / all",
        "s_3 /v1/admin/open /{rest*} all",
        "s_3 /v1/admin/open / all",
      ]);
      const two = await fromKong({
        services: [
          { ...SERVICE, routes: [routes[0]] },
          { ...OTHER, routes: [routes[1]] },
        ],
        consumers: CONSUMERS,
      });
      expect(shown(two.services).join()).not.toContain("request_termination");
      expect(two.notes.join("\n")).toContain(
        'services[1].routes[0]: gets requests such as "/admin.php" of services[0]',
      );
    },
  );

  it(
    "that end with a slash, that lie within one of the same guards, " +
      "or whose guards the other route has, close nothing",
    async () => {
      const shorter = [{ paths: ["/v1/admin", "/v1/"], ...guarded }, { paths: ["/"] }];
      const { services: between } = await fromKong({
        services: [{ ...SERVICE, routes: shorter }],
        consumers: CONSUMERS,
      });
      expect(shown(between).join()).not.toContain("request_termination");
      for (const [path, more] of [
        ["/admin/", {}],
        ["/admin", guarded],
      ] as const) {
        const routes = [
          { paths: [path], ...guarded },
          { paths: ["/"], ...more },
        ];
        const { services } = await fromKong({ services: [{ ...SERVICE, routes }], consumers: CONSUMERS });
        expect(shown(services).join()).not.toContain("request_termination");
      }
    },
  );

  it("leave methods that a longer one does not accept to a shorter one, with its guards", async () => {
    const { services } = await fromKong({
      services: [
        { ...SERVICE, routes: [{ paths: ["/orders"], methods: ["GET", "POST"], ...guarded }] },
        { ...OTHER, routes: [{ paths: ["/orders/special"], methods: ["GET"], strip_path: false }] },
      ],
      consumers: CONSUMERS,
    });
    expect(shown(services)).toEqual([
      "s /orders /{rest*} GET,POST key_auth",
      "s /orders / GET,POST key_auth",
      "s /orders /special/{rest*} POST key_auth",
      "s /orders /special POST key_auth",
      "other / /orders/special/{rest*} GET",
      "other / /orders/special GET",
    ]);
  });

  it.each<[string, string[] | undefined, string[] | undefined, string[]]>([
    ["all hosts", ["a.test"], undefined, ["POST get 405 here"]],
    ["a wildcard", ["x.a.test"], ["*.a.test"], ["POST get 405 here"]],
    ["more hosts", ["a.test"], ["b.test", "A.test"], ["POST get 405 here"]],
    ["another host", ["a.test"], ["b.test"], []],
    ["one of them", undefined, ["a.test"], []],
    ["a longer name", ["*.a.test"], ["x.a.test"], []],
  ])(
    "say how methods that a longer one hides from a shorter one for %s can reach it",
    async (_title, hosts, wider, expected) => {
      const { allNotes } = await fromKong({
        services: [
          { ...SERVICE, routes: [{ paths: ["/orders"], methods: ["GET", "POST"], ...(wider && { hosts: wider }) }] },
          { ...OTHER, routes: [{ paths: ["/orders/special"], methods: ["GET"], ...(hosts && { hosts }) }] },
        ],
      });
      const notes = allNotes.filter((note) => note.includes("405"));
      expect(notes.map((note) => note.split(": ")[1]!.split(",")[0])).toEqual(expected);
      for (const note of notes)
        expect(note).toBe(
          "services[1].routes[0]: POST get 405 here, and do not reach the shorter path of services[0].routes[0]: " +
            "add a route for them with this path and these hosts, and with the upstreams and plugins of that one",
        );
    },
  );

  it(
    "close the route at their upstream that would get /admin.php of a route whose " + "guard is not carried over",
    async () => {
      const routes = [
        { paths: ["/admin"], strip_path: false, plugins: [{ name: "ldap-auth", config: {} }] },
        { paths: ["/"], strip_path: false },
      ];
      const { services } = await fromKong({ services: [{ ...SERVICE, routes }] });
      expect(shown(services)).toEqual([
        "s / /admin/{rest*} all request_termination",
        "s / /admin all request_termination",
        "s / /{rest*} all request_termination",
        "s / / all",
      ]);
    },
  );

  it("close a route for all hosts that would get /admin.php of a guarded /admin for one host", async () => {
    const routes = [
      { paths: ["/admin"], strip_path: false, hosts: ["a.test"], ...guarded },
      { paths: ["/"], strip_path: false },
    ];
    const { services } = await fromKong({ services: [{ ...SERVICE, routes }], consumers: CONSUMERS });
    expect(shown(services).filter((line) => line.includes(" /{rest*}"))).toEqual([
      "s_2 / /{rest*} all request_termination",
    ]);
  });

  it("without methods have the rest of the methods that a route of the same path does not accept", async () => {
    const routes = [
      { paths: ["/a"], methods: ["GET"] },
      { paths: ["/a"], ...guarded },
    ];
    const { services } = await fromKong({ services: [{ ...SERVICE, routes }], consumers: CONSUMERS });
    expect(shown(services)).toContain("s /a / HEAD,POST,PUT,PATCH,DELETE,OPTIONS key_auth");
    expect(shown(services)).toContain("s /a / GET");
  });

  it("are texts where format 3 has no ~, and expressions in older formats", async () => {
    const routes = [{ paths: ["/$metadata", "/me()"], strip_path: false }];
    const { services, notes } = await fromKong({ services: [{ ...SERVICE, routes }] });
    expect(services[0]!.routes.map(({ path }) => path)).toEqual([
      "/%24metadata/{rest*}",
      "/%24metadata",
      "/me%28%29/{rest*}",
      "/me%28%29",
    ]);
    expect(notes).toEqual([WHOLE]);
    const old = await fromKong({
      _format_version: "1.1",
      services: [{ ...SERVICE, routes: [{ paths: ["/users/\\d+$"], strip_path: false }] }],
    });
    expect(old.services[0]!.routes.map(({ path }) => path)).toEqual(["/users/{segment_2}"]);
  });

  it("and the plugins that know consumers say which headers upstreams no longer get", async () => {
    const { allNotes } = await fromKong({
      services: [{ ...SERVICE, routes: [{ paths: ["/a"] }], ...guarded }],
      consumers: CONSUMERS,
    });
    expect(allNotes.join("\n")).toContain("services[0].plugins[0].config: upstreams get no X-Consumer-Username");
  });
});

describe("plugins of Kong", () => {
  it("run in Kong's order; of one kind only the most specific counts", async () => {
    const { services, global, notes } = await fromKong({
      plugins: [
        { name: "rate-limiting", config: { minute: 9 } },
        { name: "cors", config: {} },
      ],
      services: [
        {
          ...SERVICE,
          routes: [
            { ...ROUTE, plugins: [{ name: "rate-limiting", config: { minute: 1, limit_by: "ip" } }] },
            { paths: ["/b"] },
          ],
          plugins: [{ name: "key-auth" }],
        },
      ],
      consumers: CONSUMERS,
    });
    expect(global!.plugins!.map(({ name }) => name)).toEqual(["cors"]);
    expect(services.map((service) => service.plugins!.map(({ name, config }) => [name, config.limit_min]))).toEqual([
      [
        ["key_auth", undefined],
        ["rate_limit", 1],
      ],
      [
        ["key_auth", undefined],
        ["rate_limit", 9],
      ],
    ]);
    expect(notes.filter((note) => note.includes("counts separately"))).toEqual([]);
  });

  it("note limits that several services count for themselves", async () => {
    const { notes } = await fromKong({
      services: [
        {
          ...SERVICE,
          routes: [ROUTE, { paths: ["/b"] }],
          plugins: [{ name: "rate-limiting", config: { hour: 9, month: 99 } }],
        },
      ],
    });
    expect(notes).toContain(
      "services[0].plugins[0]: counts separately for each service or route that it is written at",
    );
    expect(notes).toContain("services[0].plugins[0].config.month: there is no limit for a month");
  });

  it("key-auth and basic-auth have the credentials of the consumers whom acl admits", async () => {
    const acl = (config: object) => ({ name: "acl", config });
    const keys = async (...given: object[]) =>
      (await plugins([{ name: "key-auth", config: { hide_credentials: true } }, ...given], { consumers: CONSUMERS }))
        .made;
    const [ada, again, bob] = [
      { id: "ada", key: "k-ada" },
      { id: "ada_2", key: "k-ada-2" },
      { id: "bob", key: "k-bob" },
    ];
    const from = ["header:apikey", "query:apikey"];
    expect(await keys()).toEqual([
      { name: "key_auth", config: { keys: [ada, again, bob], from, hide_credentials: true } },
    ]);
    expect(await keys(acl({ allow: ["admins"] }))).toEqual([
      { name: "key_auth", config: { keys: [ada, again], from, hide_credentials: true } },
    ]);
    expect(await keys(acl({ deny: ["admins"] }))).toEqual([
      { name: "key_auth", config: { keys: [bob], from, hide_credentials: true } },
    ]);
    expect(
      (
        await plugins([{ name: "basic-auth", config: { realm: "r" } }, acl({ whitelist: ["admins"] })], {
          consumers: CONSUMERS,
        })
      ).made,
    ).toEqual([{ name: "basic_auth", config: { users: [{ username: "ada", password: "p-ada" }], realm: "r" } }]);
  });

  it("consumers who are in groups are callers by the identities of their credentials", async () => {
    const [ada, bob] = CONSUMERS;
    const service = { ...SERVICE, routes: [ROUTE], plugins: [{ name: "key-auth" }] };
    const { callers, notes } = await fromKong({
      services: [
        service,
        { ...SERVICE, name: "t", routes: [{ name: "t", paths: ["/t"] }], plugins: [{ name: "basic-auth" }] },
      ],
      consumers: [
        { ...ada, groups: [{ name: "gold", id: "1" }, "beta"] },
        { ...bob, acls: [{ group: "a\nb" }, { group: "" }, { group: "x".repeat(201) }] },
      ],
    });
    expect(callers).toEqual([
      { id: "ada", groups: ["admins", "gold", "beta"] },
      { id: "ada_2", groups: ["admins", "gold", "beta"] },
    ]);
    expect(notes.filter((note) => note.includes("groups"))).toEqual([]);
    expect((await fromKong({ services: [service], consumers: [bob] })).callers).toBeUndefined();
  });

  it("two consumers who are known by one name have no groups", async () => {
    const [ada, bob] = CONSUMERS;
    const other = { ...bob, basicauth_credentials: [{ username: "ada_2", password: "p" }], acls: [{ group: "spies" }] };
    const routes = (name: string) => [{ name, paths: [`/${name}`] }];
    const { callers, notes } = await fromKong({
      services: [
        { ...SERVICE, routes: routes("k"), plugins: [{ name: "key-auth" }] },
        { ...SERVICE, name: "b", routes: routes("b"), plugins: [{ name: "basic-auth" }] },
      ],
      consumers: [ada, other],
    });
    expect(callers).toEqual([
      { id: "ada", groups: ["admins"] },
      { id: "bob", groups: ["spies"] },
    ]);
    expect(notes).toContain(
      "consumers[1]: its groups are not carried over: another consumer is known by the same name",
    );
  });

  it("key-auth has no credentials of a consumer whom a plugin of its own may refuse", async () => {
    const [ada, bob] = CONSUMERS;
    const { made, notes } = await plugins([{ name: "key-auth" }], {
      consumers: [
        { ...ada, plugins: [{ name: "request-termination" }] },
        {
          ...bob,
          plugins: [
            { name: "rate-limiting", config: { minute: 1 } },
            { name: "acl", enabled: false },
          ],
        },
      ],
    });
    expect(made[0]!.config.keys).toEqual([{ id: "bob", key: "k-bob" }]);
    expect(notes).toContain(
      'consumers[0]: its credentials are left out: "request-termination" of the consumer may refuse ' +
        "it, and is not carried over",
    );
    const groups = await plugins([{ name: "key-auth" }], {
      consumers: [{ ...ada, groups: [{ name: "g" }] }, bob],
      consumer_groups: [{ name: "g", plugins: [{ name: "ip-restriction" }] }],
    });
    expect(groups.made[0]!.config.keys).toEqual([{ id: "bob", key: "k-bob" }]);
  });

  it.each([
    { allow: "admins" },
    { allow: [7], deny: ["admins"] },
    { deny: ["admins", 7] },
    { deny: ["gold"], include_consumer_groups: true },
  ])("acl of the wrong form, or of groups of another kind, admits nobody: %j", async (config) => {
    expect((await plugins([{ name: "key-auth" }, { name: "acl", config }], { consumers: CONSUMERS })).made).toEqual([
      CLOSED,
    ]);
  });

  it.each([
    [
      "an address that is no text",
      { name: "ip-restriction", config: { deny: [7, "10.0.0.1"] } },
      "services[0].plugins[0].config.deny: expected a list of texts",
    ],
    [
      "robots",
      { name: "bot-detection", config: { deny: ["curl"] } },
      '"bot-detection" is not carried over, and may decide who passes',
    ],
    [
      "a consumer, at the service",
      { name: "ip-restriction", consumer: "ada", config: { deny: ["10.0.0.1"] } },
      '"ip-restriction of some consumers" is not carried over, and may decide who passes',
    ],
    [
      "a kind that is a property of every object",
      { name: "__proto__" },
      '"__proto__" is not carried over, and may decide who passes',
    ],
  ])("that refuse close their routes: %s", async (_what, plugin, note) => {
    const { made, notes } = await plugins([plugin]);
    expect(made).toEqual([CLOSED]);
    expect(notes.join("\n")).toContain(note);
  });

  it.each<[object, string[] | undefined]>([
    [
      { key_names: ["X-API-Key", "apikey", "APIKEY"] },
      ["header:X-API-Key", "header:apikey", "query:X-API-Key", "query:apikey", "query:APIKEY"],
    ],
    [{ key_names: ["k"], key_in_query: false }, ["header:k"]],
    [{ key_names: ["k"], key_in_header: false }, ["query:k"]],
    [{ key_in_header: false, key_in_query: false, key_in_body: true }, undefined],
    [{ key_names: [] }, undefined],
    [{ key_names: "k" }, undefined],
    [{ key_names: ["a b"] }, undefined],
  ])("key-auth reads keys where Kong does, and admits nobody where that is nowhere: %j", async (config, from) => {
    const { made } = await plugins([{ name: "key-auth", config }], { consumers: CONSUMERS });
    expect(from === undefined ? made : made[0]!.config.from).toEqual(from ?? [CLOSED]);
  });

  it("key-auth leaves out a key that expires, which would not expire here", async () => {
    const { made, notes } = await plugins([{ name: "key-auth" }], {
      consumers: [{ username: "ada", keyauth_credentials: [{ key: "short", ttl: 60 }, { key: "lasting" }] }],
    });
    expect(made[0]!.config.keys).toEqual([{ id: "ada", key: "lasting" }]);
    expect(notes).toContain(
      "consumers[0].keyauth_credentials[0]: is left out: it expires in Kong (ttl), and would not here",
    );
  });

  it("cors with origins that are no list does not admit every origin", async () => {
    const { made, notes } = await plugins([{ name: "cors", config: { origins: "https://a.example.com" } }]);
    expect([made, notes]).toEqual([
      [],
      [
        "services[0].plugins[0].config.origins: expected a list of texts",
        'services[0].plugins[0]: "cors" is not carried over',
      ],
    ]);
  });

  it("rate-limiting by what is a property of every object counts by address", async () => {
    const { made, notes } = await plugins([{ name: "rate-limiting", config: { second: 5, limit_by: "constructor" } }]);
    expect(made).toEqual([{ name: "rate_limit", config: { limit_second: 5, limit_by: "client_ip" } }]);
    expect(notes).toEqual([
      'services[0].plugins[0].config.limit_by: "constructor" is not carried over: the limit counts by address',
    ]);
  });

  describe("rate-limiting-advanced", () => {
    const advanced = (config: object, more: object = {}) => ({ name: "rate-limiting-advanced", ...more, config });
    const consumers = [
      { username: "ada", keyauth_credentials: [{ key: "k-ada" }], groups: [{ name: "gold" }] },
      { username: "bob", keyauth_credentials: [{ key: "k-bob" }], groups: ["gold", "new"] },
    ];
    const limitOf = async (given: object[], more: object = {}) => {
      const { made, notes } = await plugins([{ name: "key-auth" }, ...given], { consumers, ...more });
      return {
        limit: made.find(({ name }) => name === "rate_limit")?.config,
        notes: notes.filter((note) => !note.includes("query")),
      };
    };

    it("has the windows that there are here, with the limits of consumer groups", async () => {
      const { limit, notes } = await limitOf(
        [
          advanced({
            limit: [10, 500, 5, 9000],
            window_size: [60, 3600, 1, 86_400],
            identifier: "consumer",
            strategy: "local",
            sync_rate: -1,
            namespace: "n",
            dictionary_name: "d",
            disable_penalty: false,
            retry_after_jitter_max: 0,
          }),
        ],
        {
          consumer_groups: [
            { id: "1", name: "gold", plugins: [advanced({ limit: [600], window_size: [60], window_type: "sliding" })] },
          ],
          plugins: [advanced({ limit: [3], window_size: [3600] }, { consumer_group: "new" })],
        },
      );
      expect(limit).toEqual({
        limit_second: 5,
        limit_min: 10,
        limit_hour: 500,
        limit_day: 9000,
        limits_by_group: { gold: { limit_min: 600 }, new: { limit_hour: 3 } },
        limit_by: "credential",
      });
      expect(notes).toEqual([]);
    });

    it("with enforce_consumer_groups has those of the groups that it names, in this order", async () => {
      const groups = ["new", "gold", "other"].map((name, i) => ({
        name,
        plugins: [advanced({ limit: [i + 1], window_size: [60] })],
      }));
      const { limit, notes } = await limitOf(
        [
          advanced({
            limit: [10],
            window_size: [60],
            enforce_consumer_groups: true,
            consumer_groups: ["gold", "new", "none"],
          }),
        ],
        { consumer_groups: groups },
      );
      expect(Object.entries(limit!.limits_by_group as object)).toEqual([
        ["gold", { limit_min: 2 }],
        ["new", { limit_min: 1 }],
      ]);
      expect(notes).toEqual([
        'consumer_groups[2].plugins[0]: is not carried over: there is no "rate-limiting-advanced" for all others',
      ]);
    });

    it.each<[string, object, object, object, string]>([
      [
        "another window",
        { limit: [1, 2], window_size: [60, 30] },
        {},
        { limit_min: 1, limit_by: "credential" },
        "services[0].plugins[1].config.window_size[1]: is not carried over: limits are for 1, 60, " +
          "3600 and 86400 seconds here",
      ],
      ["one window twice", { limit: [9, 2], window_size: [60, 60] }, {}, { limit_min: 2, limit_by: "credential" }, ""],
      [
        "a fixed window",
        { limit: [1], window_size: [60], window_type: "fixed" },
        {},
        { limit_min: 1, limit_by: "credential" },
        "services[0].plugins[1].config.window_type: windows slide here: at most so many requests are in any of them",
      ],
      [
        "Redis",
        { limit: [1], window_size: [60], strategy: "redis", redis: { host: "h" } },
        {},
        { limit_min: 1, limit_by: "credential" },
        "services[0].plugins[1].config.strategy: counts are shared by global.counters, not by each plugin",
      ],
      [
        "a header",
        { limit: [1], window_size: [60], identifier: "header", header_name: "X-A" },
        {},
        { limit_min: 1, limit_by: "header:X-A" },
        "",
      ],
      [
        "a path",
        { limit: [1], window_size: [60], identifier: "path" },
        {},
        { limit_min: 1, limit_by: "client_ip" },
        'services[0].plugins[1].config.identifier: "path" is not carried over: the limit counts by address',
      ],
      [
        "the group as one",
        { limit: [1], window_size: [60], identifier: "consumer-group" },
        {},
        { limit_min: 1, limit_by: "client_ip" },
        'services[0].plugins[1].config.identifier: "consumer-group" is not carried over: the limit counts by address',
      ],
      [
        "a group that counts otherwise",
        { limit: [1], window_size: [60] },
        { limit: [5], window_size: [60], identifier: "ip" },
        { limit_min: 1, limit_by: "credential" },
        "consumer_groups[0].plugins[0].config.identifier: is not carried over: " +
          "the limits of groups count by what the others count by",
      ],
      [
        "a group with another window",
        { limit: [1], window_size: [60] },
        { limit: [5], window_size: [10] },
        { limit_min: 1, limit_by: "credential" },
        "consumer_groups[0].plugins[0].config.window_size[0]: is not carried over: limits are for 1, 60, " +
          "3600 and 86400 seconds here",
      ],
      [
        "a limit without a window",
        { limit: [1, 2], window_size: [60] },
        {},
        {},
        "services[0].plugins[1].config: needs a limit for each window_size",
      ],
    ])("%s: carried over as far as the meaning is the same", async (_what, config, group, expected, note) => {
      const { limit, notes } = await limitOf([advanced(config)], {
        consumer_groups: [{ name: "gold", ...(Object.keys(group).length > 0 ? { plugins: [advanced(group)] } : {}) }],
      });
      expect(limit ?? {}).toEqual(expected);
      expect(notes.join("\n")).toContain(note);
      if (note === "") expect(notes).toEqual([]);
    });

    it.each<[string, object, string]>([
      [
        "without one for all others",
        { consumer_groups: [{ name: "gold", plugins: [advanced({ limit: [5], window_size: [60] })] }] },
        'consumer_groups[0].plugins[0]: is not carried over: there is no "rate-limiting-advanced" for all others',
      ],
      [
        "for a service alone",
        { plugins: [advanced({ limit: [5], window_size: [60] }, { consumer_group: "gold", service: "s" })] },
        "plugins[0]: is not carried over: it is for some consumers only",
      ],
      [
        "that is disabled",
        {
          consumer_groups: [
            { name: "gold", plugins: [advanced({ limit: [5], window_size: [60] }, { enabled: false })] },
          ],
        },
        "consumer_groups[0].plugins[0]: is not carried over: it is for some consumers only",
      ],
    ])("of a group, %s, is listed with the reason", async (_what, more, note) => {
      const { limit, notes } = await limitOf([], more);
      expect(limit).toBeUndefined();
      expect(notes).toContain(note);
    });
  });

  it("jwt has the key of the only consumer with one", async () => {
    const secret = "0123456789abcdef0123456789abcdef";
    const of = (credentials: object[], config: object = {}) =>
      plugins([{ name: "jwt", config }], { consumers: [{ username: "ada", jwt_secrets: credentials }] });
    const { made, notes } = await of([{ key: "issuer", secret }], {
      claims_to_verify: ["exp"],
      cookie_names: ["t"],
      uri_param_names: [],
    });
    expect(made).toEqual([
      { name: "jwt", config: { alg: "HS256", secret, iss: "issuer", exp: "required", from: ["header", "cookie:t"] } },
    ]);
    expect(notes).toEqual([]);
    expect((await of([{ key: "issuer", secret }], { claims_to_verify: ["nbf"] })).made[0]!.config).toMatchObject({
      require: ["nbf"],
    });
    for (const bad of [
      of([{ key: "i", secret: "short" }]),
      of([
        { key: "i", secret },
        { key: "j", secret },
      ]),
      of([{ key: "i", secret }], { key_claim_name: "kid" }),
      of([{ key: "i", secret }], { secret_is_base64: true }),
      of([{ key: "i", secret }], { maximum_expiration: 60 }),
      of([{ secret }]),
      of([], { claims_to_verify: ["exp"] }),
    ]) {
      expect((await bad).made).toEqual([CLOSED]);
      expect((await bad).notes.join()).not.toMatch(/config\.\w+: "\w+" has no counterpart/);
    }
  });

  it.each([
    ["key-auth of nobody", { name: "key-auth" }],
    ["key-auth of consumers without a key", { name: "key-auth", config: { key_names: ["x"] } }],
    ["basic-auth with hashed passwords", { name: "basic-auth" }],
    ["groups without anyone who is identified", { name: "acl", config: { allow: ["admins"] } }],
    ["addresses that are none", { name: "ip-restriction", config: { allow: ["here"] } }],
    ["no addresses", { name: "ip-restriction", config: { allow: "10.0.0.1" } }],
    ["a kind that has no counterpart", { name: "oauth2", config: { scopes: ["a"] } }],
    ["a kind of one's own", { name: "my-check" }],
    ["an answer on a condition", { name: "request-termination", config: { trigger: "x" } }],
    ["an answer that cannot be given", { name: "request-termination", config: { status_code: 99 } }],
  ])("that decide who passes close their routes where they cannot be carried over: %s", async (_what, plugin) => {
    const consumers = [
      {
        username: "ada",
        basicauth_credentials: [
          { username: "a", password: "0123456789012345678901234567890123456789" },
          { username: "b" },
        ],
        keyauth_credentials: [{}],
      },
    ];
    const { made, notes } = await plugins([plugin, { name: "cors", config: { origins: ["https://a.example.com"] } }], {
      consumers,
    });
    expect(made).toContainEqual(CLOSED);
    expect(notes).toContainEqual(expect.stringMatching(/^services\[0\]\.plugins\[0\].*answer 503/));
  });

  it("that refuse nobody are left out, noted, where they cannot be carried over", async () => {
    const kinds = ["prometheus", "correlation-id", "http-log", "file-log", "proxy-cache", "response-ratelimiting"];
    const { made, notes } = await plugins([
      ...kinds.map((name) => ({ name, config: { a: 1 } })),
      { name: "rate-limiting", config: { month: 3 } },
      { name: "cors", config: { origins: ["*"], credentials: true } },
      { name: "request-transformer" },
    ]);
    expect(made).toEqual([]);
    expect(notes).toHaveLength(kinds.length + 4);
    expect(notes).toContain(
      'services[0].plugins[0]: "prometheus" is not carried over: the admin interface has /metrics',
    );
    expect(notes).toContainEqual(
      expect.stringContaining(
        'services[0].plugins[7]: "cors" is not carried over: config.allow_origins: "*" cannot be used',
      ),
    );
  });

  it("carry over addresses, sizes, answers and CORS", async () => {
    const { made, notes } = await plugins([
      { name: "ip-restriction", config: { allow: ["10.0.0.0/8"], deny: ["10.0.0.1"], status: null } },
      { name: "request-size-limiting", config: { allowed_payload_size: 2, size_unit: "kilobytes" } },
      { name: "request-termination", config: { status_code: 418, message: "tea" } },
      {
        name: "cors",
        config: {
          origins: ["https://a.example.com"],
          methods: ["PUT"],
          headers: ["X-A"],
          exposed_headers: ["X-B"],
          credentials: true,
          max_age: 9,
          preflight_continue: false,
          private_network: true,
        },
      },
    ]);
    expect(made).toEqual([
      {
        name: "cors",
        config: {
          allow_origins: ["https://a.example.com"],
          allow_methods: ["PUT"],
          allow_headers: ["X-A"],
          expose_headers: ["X-B"],
          allow_credentials: true,
          preflight_continue: false,
          allow_private_network: true,
          max_age: 9,
        },
      },
      { name: "acl", config: { whitelist: ["10.0.0.0/8"] } },
      { name: "acl", config: { blacklist: ["10.0.0.1"] } },
      { name: "request_size_limit", config: { max_payload_size: 2000 } },
      {
        name: "request_termination",
        config: { status: 418, body: '{"message":"tea"}', content_type: "application/json; charset=utf-8" },
      },
    ]);
    expect(notes).toEqual([]);
  });

  it("carry over changed headers as fixed texts, in which braces stand for themselves", async () => {
    const { made, notes } = await plugins([
      {
        name: "request-transformer",
        config: {
          remove: { headers: ["X-A"], querystring: ["q"] },
          rename: { headers: ["X-B:X-C"] },
          add: { headers: ["X-D:{id}:${request.id}:${id}", "X-T:$(headers.x)", "bad"] },
          replace: { headers: ["X-E:1"], uri: "/x" },
          append: { headers: ["X-F:1", "X-F:2"] },
        },
      },
      { name: "response-transformer", config: { remove: { headers: ["Server"] } } },
    ]);
    expect(made).toEqual([
      {
        name: "request_headers",
        config: {
          remove: ["X-A"],
          rename: { "X-B": "X-C" },
          set: { "X-D": "{{id}}:$${request.id}:$${id}", "X-E": "1" },
          add: { "X-F": ["1", "2"] },
        },
      },
      { name: "response_headers", config: { remove: ["Server"] } },
    ]);
    expect(notes).toEqual([
      "services[0].plugins[0].config.add.headers[1], services[0].plugins[0].config.add.headers[2]: " +
        'is not carried over: expected "name:value", without a template',
      "services[0].plugins[0].config.replace: headers are also set where they are missing",
      "services[0].plugins[0].config.add: headers that are there already are replaced: what clients send does not pass",
      'services[0].plugins[0].config.remove.querystring: "querystring" has no counterpart here',
    ]);
  });

  it.each([
    ["request-transformer", { add: { headers: ["A:1"] }, replace: { body: ["a:b"] } }, "replace.body"],
    ["request-transformer", { append: { querystring: ["a:b"] }, rename: { headers: ["a:b"] } }, "append.querystring"],
    ["cors", { bogus: 1 }, "bogus"],
    ["key-auth", { bogus: 1 }, "bogus"],
  ])("note what has no counterpart where nothing beside it has one: %s %j", async (name, config, left) => {
    const { notes } = await plugins([{ name, config }], { consumers: CONSUMERS });
    expect(notes).toContain(
      `services[0].plugins[0].config.${left}: "${left.split(".").at(-1)}" has no counterpart here`,
    );
  });

  it.each<[string, Record<string, unknown>, Record<string, unknown>, string]>([
    [
      "key-auth",
      { run_on_preflight: false },
      { run_on_preflight: true },
      "preflights need credentials here, unless cors answers them first",
    ],
    ["rate-limiting", { error_code: 503 }, { error_code: 429 }, "refused requests get 429 and the gateway's own body"],
    [
      "rate-limiting",
      { error_message: "wait" },
      { error_message: "API rate limit exceeded" },
      "refused requests get 429 and the gateway's own body",
    ],
    [
      "rate-limiting",
      { hide_client_headers: true },
      { hide_client_headers: false },
      "replies have the headers RateLimit and RateLimit-Policy",
    ],
    [
      "rate-limiting",
      { fault_tolerant: false },
      { fault_tolerant: true },
      '"on_error" of global.counters says what happens without the counters',
    ],
    ["ip-restriction", { status: 404 }, { status: 403 }, "refused addresses get 403 and the gateway's own body"],
    ["ip-restriction", { message: "no" }, { message: null }, "refused addresses get 403 and the gateway's own body"],
  ])(
    "note a setting that has no counterpart exactly where it is not Kong's default: %s %j",
    async (name, odd, usual, message) => {
      const needed = { "rate-limiting": { minute: 1 }, "ip-restriction": { deny: ["10.0.0.1"] } }[name];
      const notesOn = async (config: object) =>
        (await plugins([{ name, config: { ...needed, ...config } }], { consumers: CONSUMERS })).notes;
      const note = `services[0].plugins[0].config.${Object.keys(odd)[0]}: ${message}`;
      expect((await notesOn(odd)).filter((each) => each.includes(message))).toEqual([note]);
      expect(await notesOn(usual)).toEqual((await notesOn(odd)).filter((each) => each !== note));
    },
  );

  it.each([
    ["consumer", "key"],
    ["ip", "client_ip"],
    ["service", "all"],
    ["header", "header:X-A"],
    ["path", "client_ip"],
  ])("limit by %s", async (by, limitBy) => {
    const { made } = await plugins([
      { name: "rate-limiting", config: { second: 1, limit_by: by, header_name: "X-A" } },
    ]);
    expect(made[0]!.config).toEqual({ limit_second: 1, limit_by: limitBy === "key" ? "credential" : limitBy });
  });

  it("read credentials from the environment where Kong does, and never another reference", async () => {
    const consumers = [
      { username: "ada", keyauth_credentials: [{ key: "{vault://env/ada-key}" }, { key: '${{ env "DECK_KEY" }}' }] },
    ];
    const { made, notes } = await plugins([{ name: "key-auth" }], { consumers }, { ADA_KEY: "a", DECK_KEY: "b" });
    expect(made[0]!.config.keys).toEqual([
      { id: "ada", key: "${env:ADA_KEY}" },
      { id: "ada_2", key: "${env:DECK_KEY}" },
    ]);
    expect(notes).toContain(
      "consumers[0].keyauth_credentials[0].key: is read from the environment variable ADA_KEY: " +
        "set it before you validate",
    );
    const named = await fromKong(
      {
        services: [
          { ...SERVICE, name: "${env:ADA_KEY}", routes: [ROUTE], plugins: [{ name: "key-auth" }] },
          { ...SERVICE, routes: [{ paths: ["/b"] }] },
        ],
        consumers,
      },
      { ADA_KEY: "a", DECK_KEY: "b" },
    );
    expect(named.services.map(({ name }) => name)).toEqual(["s", "closed"]);
    const stolen = await plugins([{ name: "key-auth" }], {
      consumers: [{ username: "x", keyauth_credentials: [{ key: "${env:HOME}" }] }],
    });
    expect(stolen.made).toEqual([CLOSED]);
  });

  it("are left out, noted, where they are disabled, or for a single consumer", async () => {
    const { made, notes } = await plugins([
      { name: "cors", enabled: false, config: {} },
      { name: "cors", consumer: "ada", config: {} },
      { config: {} },
    ]);
    expect(made).toEqual([]);
    expect(notes).toEqual([
      "services[0].plugins[0]: is disabled, and left out",
      "services[0].plugins[1]: is not carried over: it is for some consumers only",
      'services[0].plugins[2]: is no plugin: it needs "name"',
    ]);
  });
});
