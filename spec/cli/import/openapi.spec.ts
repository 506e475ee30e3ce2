import { describe, expect, it } from "vitest";
import { parseJson } from "../../../lib/config/json_parser.ts";
import { fromOpenApi } from "./imported.ts";

const OK = { responses: { 200: { description: "ok" } } };
const post = (body: object, schema?: object) => ({
  "/a": { post: { ...OK, requestBody: body } },
  ...(schema === undefined ? {} : { schema }),
});
const json = (schema: unknown, more: object = {}) => ({
  required: true,
  content: { "application/json": { schema } },
  ...more,
});
/** The `request_validation` of the only route. */
const validation = async (paths: object, more: object = {}) => {
  const { services, notes } = await fromOpenApi({ paths, ...more });
  return { config: services[0]!.routes[0]!.plugins?.[0]?.config, notes };
};
const withParameters = (...parameters: object[]) => validation({ "/a": { get: { ...OK, parameters } } });

describe("routes of an OpenAPI document", () => {
  it(
    "are one for each path and method, with the operationId as the name, " + "below the path of the first server",
    async () => {
      const { services, notes } = await fromOpenApi({
        info: { title: "Pet shop" },
        servers: [{ url: "https://api.example.com/{version}/shop/", variables: { version: { default: "v2" } } }],
        paths: {
          "/pets": { get: { operationId: "list pets", ...OK }, post: OK },
          "/pets/{pet-id}": { delete: OK, "x-note": 1 },
          "x-internal": {},
        },
      });
      expect(services).toEqual([
        {
          name: "Pet shop",
          base_path: "/v2/shop",
          protocol: "http",
          upstreams: [{ host: "127.0.0.1", port: 3000 }],
          routes: [
            { name: "list pets", path: "/pets", methods: ["GET"] },
            { path: "/pets", methods: ["POST"] },
            { path: "/pets/{pet_id}", methods: ["DELETE"] },
          ],
        },
      ]);
      expect(notes).toEqual([]);
    },
  );

  it("are below the path of the server, whose literal characters are percent-encoded, too", async () => {
    const { services, notes } = await fromOpenApi({
      servers: [{ url: "https://x.org/V4/(S(abc))/:v/" }],
      paths: { "/a": { get: OK } },
    });
    expect([services[0]!.base_path, notes]).toEqual(["/V4/%28S%28abc%29%29/%3Av", []]);
  });

  it(
    "get the requests of operations that only a verb, " + "a query or a fragment tells apart, and then check nothing",
    async () => {
      const checked = { ...OK, requestBody: json({ type: "object", required: ["a"] }) };
      const other = { ...OK, requestBody: json({ type: "object", required: ["b"] }) };
      const { services, notes } = await fromOpenApi({
        paths: {
          "/orders/{id}": { post: checked, put: checked },
          "/orders/{id}:cancel": { post: other },
          "/items": { post: checked },
          "/items?action=copy": { post: other },
          "/notes#a": { post: checked },
          "/notes#b": { post: other },
          "/odata/Users({key})": { patch: checked },
          "/odata/Groups({key})": { patch: other },
        },
      });
      const routes = services[0]!.routes.map(
        ({ path, methods, plugins }) => `${methods![0]} ${path} ${plugins?.length ?? 0}`,
      );
      expect(routes).toEqual([
        "PUT /orders/{id} 1",
        "POST /orders/{id} 0",
        "POST /items 0",
        "POST /notes 0",
        "PATCH /odata/{key} 0",
      ]);
      expect(notes.join("\n")).toContain(
        'paths["/orders/{id}"].post, paths["/items"].post, paths["/notes#a"].post and 1 more: ' +
          "gets the requests of several operations: they are not checked",
      );
      expect(notes.join("\n")).toContain('its path goes on with "?" or "#", which is no part of a path');
    },
  );

  it("are made of operations that are references, also where those lead nowhere, which is noted", async () => {
    const { services, notes } = await fromOpenApi({
      paths: {
        "/a": { get: { $ref: "#/components/x-operations/list" }, put: { $ref: "other.yml" } },
      },
      components: {
        "x-operations": {
          list: { ...OK, operationId: "list", parameters: [{ name: "q", in: "query", required: true }] },
        },
      },
    });
    expect(services[0]!.routes.map(({ name, methods, plugins }) => [name, methods, plugins?.[0]!.name])).toEqual([
      ["list", ["GET"], "request_validation"],
      [undefined, ["PUT"], undefined],
    ]);
    expect(notes).toEqual([expect.stringMatching(/^paths\["\/a"\]\.put: "\$ref" leads to nothing in this document/)]);
  });

  it("let headers with an underscore pass where the document has parameters or keys with such names", async () => {
    const parameter = { name: "X_Tenant", in: "header", required: true };
    const scheme = { type: "apiKey", in: "header", name: "api_key" };
    const documents = [
      { paths: { "/a": { get: { ...OK, parameters: [parameter] } } } },
      { paths: { "/a": { get: { ...OK, parameters: [{ ...parameter, required: false }] } } } },
      {
        paths: { "/a": { get: { ...OK, security: [{ key: [] }] } } },
        components: { securitySchemes: { key: scheme } },
      },
    ];
    for (const document of documents) {
      const { global, notes } = await fromOpenApi(document);
      expect(global).toEqual({ underscore_headers: "allow" });
      expect(notes.join()).toContain(
        'has a header with "_" in its name: underscore_headers of "global" is "allow" here',
      );
    }
    const query = { paths: { "/a": { get: { ...OK, parameters: [{ ...parameter, in: "query" }] } } } };
    expect((await fromOpenApi(query)).global).toBeUndefined();
  });

  it("have literal characters percent-encoded that would be patterns of other gateways", async () => {
    const { services, notes } = await fromOpenApi({
      paths: { "/$metadata": { get: OK }, "/me()/{id}": { get: OK }, "/:x/a*": { get: OK } },
    });
    expect([services[0]!.routes.map(({ path }) => path), notes]).toEqual([
      ["/%24metadata", "/me%28%29/{id}", "/%3Ax/a%2A"],
      [],
    ]);
  });

  it("ask the upstream below its own path, whatever that of the server is", async () => {
    const servers = [{ url: "/api/v1" }];
    const { services } = await fromOpenApi({ servers, paths: { "/a": { get: OK } } }, "https://[::1]/v1");
    expect(services[0]).toMatchObject({
      base_path: "/api/v1",
      upstream_path: "/v1",
      protocol: "https",
      upstreams: [{ host: "::1", port: 443 }],
      routes: [{ path: "/a" }],
    });
    expect((await fromOpenApi({ paths: { "/a": { get: OK } } }, "http://h/other/")).services[0]).toMatchObject({
      base_path: "/",
      upstream_path: "/other",
      routes: [{ path: "/a" }],
    });
    expect((await fromOpenApi({ servers, paths: { "/a": { get: OK } } })).services[0]).not.toHaveProperty(
      "upstream_path",
    );
  });

  it("note a server whose URL is none, or has a query", async () => {
    const notesOn = async (url: string) =>
      (await fromOpenApi({ servers: [{ url }], paths: { "/a": { get: OK } } })).notes;
    expect([await notesOn("http://:x"), await notesOn("/a%zz"), await notesOn("/a?b=c")]).toEqual([
      ["servers[0]: is no URL: the base_path is /"],
      ["servers[0]: is no URL: the base_path is /"],
      ["servers[0]: its query and fragment are not carried over: clients send their own"],
    ]);
  });

  it(
    "have the nearest pattern where a segment mixes text and placeholders, noted, " + "unless it is another path's",
    async () => {
      const { services, notes } = await fromOpenApi({
        paths: {
          "/a/{id}.pdf": { get: OK, put: OK },
          "/a/{name}": { get: OK },
          "/b/v{x}-{y-z}/c": { get: OK },
          "/b/{x}:undo/c": { get: OK },
        },
      });
      expect(services[0]!.routes.map(({ path, methods }) => `${methods![0]} ${path}`)).toEqual([
        "PUT /a/{id}",
        "GET /a/{name}",
        "GET /b/{x_y_z}/c",
      ]);
      expect(notes).toEqual([
        'paths["/a/{id}.pdf"].get, paths["/b/{x}:undo/c"].get: the route is not carried over: ' +
          ("its path mixes text and placeholders in a segment, " +
            "and another path here matches its requests: they go there"),
        'paths["/a/{id}.pdf"].put: its path mixes text and placeholders in a segment: it is "/a/{id}" here, ' +
          "and the upstream has to refuse other requests",
        'paths["/b/v{x}-{y-z}/c"].get: its path mixes text and placeholders in a segment: ' +
          'it is "/b/{x_y_z}/c" here, and the upstream has to refuse other requests',
      ]);
    },
  );

  it("get other names where an operationId occurs twice or has control characters, noted", async () => {
    const { services, notes } = await fromOpenApi({
      paths: { "/a": { get: { operationId: "x" }, put: { operationId: "x" } }, "/b": { get: { operationId: "y\n" } } },
    });
    expect(services[0]!.routes.map(({ name }) => name)).toEqual(["x", "x_2", "y"]);
    expect(notes).toEqual([
      'paths["/a"].put.operationId, paths["/b"].get.operationId: is no name, or the name of another operation: ' +
        "the route has a number more",
    ]);
  });

  it("are left out, noted, where a path cannot be expressed or two paths are one", async () => {
    const { services, notes } = await fromOpenApi({
      paths: {
        "/a/{x}": { get: OK, put: OK },
        "/a/{y}": { get: OK },
        "/c?d=1": { get: OK },
        "/e/{x}/{x}": { get: OK },
        f: { get: OK },
      },
    });
    expect(services[0]!.routes.map(({ path, methods }) => `${methods![0]} ${path}`)).toEqual([
      "GET /a/{x}",
      "PUT /a/{x}",
      "GET /c",
    ]);
    expect(notes.map((note) => note.slice(0, 90))).toEqual([
      'paths["/c?d=1"].get: its path goes on with "?" or "#", which is no part of a path: it is "',
      'paths.f.get: the route is not carried over: path: expected a path that starts with "/", fo',
      'paths["/a/{y}"].get: the route is not carried over: path: route "GET /a/{y}" of service "t',
      'paths["/e/{x}/{x}"].get: the route is not carried over: path: the placeholder "x" occurs t',
    ]);
  });

  it("are refused as a whole where nothing is left", async () => {
    await expect(fromOpenApi({})).rejects.toThrow('has no "paths"');
    await expect(fromOpenApi({ paths: { "x-a": {} } })).rejects.toThrow('has no "paths"');
    await expect(fromOpenApi({ paths: { "/{a}/{a}": { get: OK } } })).rejects.toThrow(
      /^no route could be carried over\npaths/,
    );
    await expect(fromOpenApi({ paths: { "/a": { $ref: "#/nowhere" } } })).rejects.toThrow(
      /"\$ref" leads to nothing in this document/,
    );
  });

  it("are refused where there are more than can be compiled", async () => {
    const paths = (count: number, item: object) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`/a${i}`, item]));
    await expect(fromOpenApi({ paths: paths(100_001, {}) })).rejects.toThrow(
      "paths has 100001 entries: at most 100000 can be imported",
    );
    await expect(fromOpenApi({ paths: paths(50_000, { get: {}, put: {}, post: {} }) })).rejects.toThrow(
      "more than 100000 services, routes and plugins cannot be imported: split the file",
    );
  });

  it("never read a secret of this machine that a document names", async () => {
    const { services, notes } = await fromOpenApi({
      paths: {
        "/a": { get: { operationId: "${file:/etc/passwd}" } },
        "/b": { get: { operationId: "${env:PATH}" } },
        "/c": { get: OK },
      },
    });
    expect(services[0]!.routes).toEqual([{ path: "/c", methods: ["GET"] }]);
    expect(notes).toEqual([
      expect.stringContaining(
        'paths["/a"].get, paths["/b"].get: the route is not carried over: name: contains ${env:…} or ${file:…}',
      ),
    ]);
  });

  it("note other servers, further operations and security schemes, which the upstream checks", async () => {
    const { notes } = await fromOpenApi({
      servers: [{ url: "/a" }, { url: "/b" }],
      security: [{ key: [] }],
      components: {
        securitySchemes: {
          key: { type: "apiKey", name: "k", in: "query" },
          basic: { type: "http", scheme: "Basic" },
          token: { $ref: "#/x" },
        },
      },
      paths: {
        "/p": {
          servers: [{ url: "/c" }],
          additionalOperations: { LINK: {} },
          get: OK,
          put: { security: [{ basic: [], token: [] }, {}] },
        },
      },
    });
    expect(notes).toEqual([
      "servers[1]: has another path than the first server: only that of the first is the base_path",
      'paths["/p"].servers: only the servers of the whole document are used',
      'paths["/p"].additionalOperations: has no counterpart here: add routes with these methods',
      'security: the security scheme "key" (apiKey) is left to the upstream: ' +
        "add key_auth if the gateway is to check it",
      'paths["/p"].put.security: the security scheme "basic" (http) is left to the upstream: ' +
        "add basic_auth if the gateway is to check it",
      expect.stringMatching(/^components\.securitySchemes\.token: "\$ref" leads to nothing/),
      'paths["/p"].put.security: the security scheme "token" (unknown) is left to the upstream: ' +
        "add an authentication plugin if the gateway is to check it",
    ]);
  });

  it("note webhooks and callbacks, which the gateway does not see", async () => {
    const { notes } = await fromOpenApi({
      webhooks: { a: { post: OK } },
      paths: { "/a": { get: { ...OK, callbacks: {} }, post: { ...OK, callbacks: { b: { "{$url}": {} }, c: {} } } } },
    });
    expect(notes).toEqual([
      'webhooks, paths["/a"].post.callbacks: are requests of the upstream to others, which do not pass the gateway',
    ]);
    expect((await fromOpenApi({ webhooks: {}, paths: { "/a": { get: OK } } })).notes).toEqual([]);
  });

  it("note members of the wrong type and go on", async () => {
    const { services, notes } = await fromOpenApi({
      servers: "x",
      paths: {
        "/a": { get: { operationId: 7, parameters: {}, security: "y" }, put: [] },
        "/b": 3,
        "/c": { parameters: [4, { in: "query" }], get: OK },
      },
    });
    expect(services[0]!.routes.map(({ path }) => path)).toEqual(["/a", "/c"]);
    expect(notes).toEqual([
      'servers, paths["/a"].get.security: expected an array, found a string: not carried over',
      'paths["/a"].get.operationId: expected a string, found a number: not carried over',
      'paths["/a"].get.parameters: expected an array, found an object: not carried over',
      'paths["/c"].parameters[0], paths["/c"].parameters[1]: is no parameter: it needs "name" and "in"',
    ]);
  });
});

describe("parameters of an OpenAPI document", () => {
  it("are checked in query and headers, those of the operation before those of the path", async () => {
    const { services, notes } = await fromOpenApi({
      components: {
        parameters: { page: { name: "page", in: "query", required: true, schema: { type: "integer", minimum: 1 } } },
      },
      paths: {
        "/a": {
          parameters: [
            { name: "q", in: "query", schema: { type: "string" } },
            { $ref: "#/components/parameters/page" },
          ],
          get: {
            parameters: [
              { name: "q", in: "query", schema: { type: "array", items: { type: "string", maxLength: 3 } } },
              { name: "X-Tenant", in: "header", required: true },
              { name: "Accept", in: "header", required: true },
            ],
          },
        },
      },
    });
    expect(services[0]!.routes[0]!.plugins).toEqual([
      {
        name: "request_validation",
        config: {
          query: {
            properties: {
              q: { type: "array", items: { type: "string", maxLength: 3 } },
              page: { type: "integer", minimum: 1 },
            },
            required: ["page"],
          },
          headers: { required: ["x-tenant"] },
        },
      },
    ]);
    expect(notes).toEqual([]);
  });

  it.each([
    [
      "objects",
      { name: "f", in: "query", style: "deepObject", schema: { type: "object" } },
      "does not read parameters in this form",
    ],
    [
      "lists in one text",
      { name: "f", in: "query", explode: false, schema: { type: "array", items: { type: "integer" } } },
      "does not read parameters in this form",
    ],
    [
      "lists in headers",
      { name: "f", in: "header", schema: { type: "array", items: { type: "integer" } } },
      "does not read parameters in this form",
    ],
    [
      "JSON in a parameter",
      { name: "f", in: "query", content: { "application/json": { schema: { type: "object" } } } },
      "does not read parameters in this form",
    ],
    [
      "schemas that name no type",
      { name: "f", in: "query", schema: { oneOf: [{ type: "integer" }, { type: "boolean" }] } },
      "does not say by one type",
    ],
    [
      "lists whose items name no type",
      { name: "f", in: "query", schema: { type: "array", items: { enum: [1, 2] } } },
      "does not say by one type",
    ],
    ["cookies", { name: "f", in: "cookie", schema: { type: "string", minLength: 9 } }, "cookies are not checked"],
    [
      "placeholders of the path",
      { name: "f", in: "path", required: true, schema: { type: "integer" } },
      "placeholders of paths are not checked",
    ],
  ])(
    "are not checked, noted, where request_validation would read them differently: %s",
    async (_what, parameter, note) => {
      const { config, notes } = await withParameters(parameter);
      expect(config).toBeUndefined();
      expect(notes).toEqual([expect.stringContaining(`paths["/a"].get.parameters[0]: `)]);
      expect(notes[0]).toContain(note);
    },
  );

  it("are still required where only their value cannot be checked", async () => {
    const { config } = await withParameters(
      { name: "f", in: "query", required: true, schema: { oneOf: [{ type: "integer" }] } },
      { name: "e", in: "query", allowEmptyValue: true, schema: { type: "integer" } },
    );
    expect(config).toEqual({ query: { required: ["f"] } });
  });
});

describe("bodies of an OpenAPI document", () => {
  it("are checked, with the definitions that they need and no others", async () => {
    const schemas = {
      Pet: { type: "object", properties: { tag: { $ref: "#/components/schemas/Tag" } } },
      Tag: { type: "string" },
      Other: {},
    };
    const { config, notes } = await validation(post(json({ $ref: "#/components/schemas/Pet" })), {
      components: { schemas },
    });
    expect(config).toEqual({
      body: {
        $ref: "#/$defs/Pet",
        $defs: { Pet: { type: "object", properties: { tag: { $ref: "#/$defs/Tag" } } }, Tag: { type: "string" } },
      },
    });
    expect(notes).toEqual([]);
  });

  it("may be missing where the document does not require them", async () => {
    expect(
      (await validation(post({ content: { "application/json": { schema: { type: "object" } } } }))).config,
    ).toEqual({ body: { type: "object" }, body_required: false });
    expect((await validation(post(json({ type: "object" })))).config).toEqual({ body: { type: "object" } });
  });

  it.each([
    ["another type", { content: { "text/csv": {} } }, "another type than JSON"],
    ["JSON or another type", { content: { "application/json": {}, "text/csv": {} } }, "several types"],
    ["any type", { content: { "*/*": { schema: { type: "object" } } } }, "another type than JSON"],
    ["two kinds of JSON", { content: { "application/json": {}, "application/vnd.a+json": {} } }, "several types"],
  ])("are not checked, noted, where they may have %s", async (_what, body, note) => {
    const { config, notes } = await validation(post(body));
    expect(config).toBeUndefined();
    expect(notes).toEqual([expect.stringContaining(`paths["/a"].post.requestBody: the body may have ${note}`)]);
  });

  it("with a schema that refers to itself are checked; one that never comes to an end is left out, noted", async () => {
    const schemas = {
      Tree: { properties: { left: { $ref: "#/components/schemas/Tree" } } },
      Loop: { allOf: [{ $ref: "#/components/schemas/Loop" }] },
    };
    const body = (name: string) => ({ post: { requestBody: json({ $ref: `#/components/schemas/${name}` }) } });
    const { services, notes } = await fromOpenApi({
      components: { schemas },
      paths: {
        "/tree": body("Tree"),
        "/loop": body("Loop"),
        "/hop": { post: { requestBody: { $ref: "#/paths/~1hop/post/requestBody" } } },
      },
    });
    expect(services[0]!.routes.map(({ path, plugins }) => [path, plugins?.length])).toEqual([
      ["/tree", 1],
      ["/loop", undefined],
      ["/hop", undefined],
    ]);
    expect(notes).toEqual([
      expect.stringMatching(/^paths\["\/hop"\]\.post\.requestBody: "\$ref" leads to nothing/),
      expect.stringMatching(
        /^paths\["\/loop"\]\.post: "request_validation" is not carried over: config\.body: "\$ref" leads in a circle/,
      ),
    ]);
  });

  it.each<[string, (inner: object) => object, string]>([
    ["items", (items) => ({ items }), "3.0.3"],
    [
      "properties that may be null",
      (a) => ({ nullable: true, properties: { a }, required: ["a"], enum: [{}] }),
      "3.0.3",
    ],
    ["choices", (a) => ({ oneOf: [{ type: "string" }, a] }), "3.0.3"],
    ["references", (a) => ({ $ref: "#/components/schemas/A", additionalProperties: a }), "3.1.0"],
  ])(
    "with a schema that is nested too deep are checked down to that part, which accepts everything: %s",
    async (_what, around, openapi) => {
      let deep: object = { type: "string" };
      for (let i = 0; i < 3_000; i++) deep = around(deep);
      const { config, notes } = await validation(
        {
          "/a": {
            post: {
              parameters: [{ name: "q", in: "query", required: true }],
              requestBody: json({ type: "object", required: ["n"], properties: { n: { type: "integer" }, deep } }),
            },
          },
        },
        { openapi, components: { schemas: { A: { minProperties: 1, items: deep } } } },
      );
      expect(config).toMatchObject({
        query: { required: ["q"] },
        body: { type: "object", required: ["n"], properties: { n: { type: "integer" }, deep: {} } },
      });
      expect(notes).toEqual([expect.stringMatching(/: the schema is nested too deep: every value is accepted$/)]);
      // The parser of configurations counts a level more than the check of the object that was imported.
      const text = JSON.stringify({ services: [{ routes: [{ plugins: [{ config }] }] }] });
      expect(parseJson(text).issues).toEqual([]);
    },
  );

  it("with a value that is nested too deep are not checked for it", async () => {
    let deep: object = {};
    for (let i = 0; i < 15_000; i++) deep = [deep];
    const { config, notes } = await validation(
      post(json({ type: "object", properties: { a: { const: deep }, b: { enum: [[{}], 1] } } })),
    );
    expect(config).toEqual({ body: { type: "object", properties: { a: {}, b: { enum: [[{}], 1] } } } });
    expect(notes).toEqual([expect.stringMatching(/\.a\.const: the value is nested too deep: it is not checked$/)]);
  });

  it("with too large a schema are left out, noted", async () => {
    const wide = (count: number) => ({
      properties: Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, { type: "string" }])),
    });
    const { config, notes } = await validation(post(json(wide(11_000))));
    expect(config).toBeUndefined();
    expect(notes).toEqual([
      expect.stringMatching(/^paths\["\/a"\].*the schema is too large: at most 20000 values each, and 250000 in all$/),
    ]);
  });
});
