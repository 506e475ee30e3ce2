import { once } from "node:events";
import { connect as connectH2 } from "node:http2";
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { createGateway, definePlugin, discard, schema, type Handler, type Log, type Reply } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { behaving } from "./plugins.ts";

interface Line {
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>> | undefined;
}

function keeping(lines: Line[]): Log {
  const keep = (message: string, fields?: Readonly<Record<string, unknown>>) => void lines.push({ message, fields });
  return { debug: () => {}, info: keep, warn: keep, error: keep };
}

describe("serve", () => {
  it("answers 404 route_not_found if no service and route match", async () => {
    const gateway = createGateway({ config: oneService(9) });
    const answer = await gateway.inject({ url: "/b/c" });
    expect(answer.status).toBe(404);
    expect(answer.json()).toMatchObject({
      type: "about:blank",
      status: 404,
      code: "route_not_found",
      title: "No route matches the request",
    });
  });

  it("answers 405 method_not_allowed with Allow if the path has routes for other methods", async () => {
    const gateway = createGateway({ config: oneService(9, { routes: [{ path: "/x", methods: ["GET", "PUT"] }] }) });
    const answer = await gateway.inject({ method: "POST", url: "/a/x" });
    expect(answer.status).toBe(405);
    expect(answer.header("Allow")!.split(", ").sort()).toEqual(["GET", "HEAD", "PUT"]);
    expect(answer.json()).toMatchObject({ code: "method_not_allowed" });
  });

  it(
    "answers 404 route_not_found, which says why, if no route of the path fits headers, query and cookies, " +
      "and 405 if none accepts the method",
    async () => {
      const routes = [{ path: "/x", methods: ["GET"], match: { headers: { "X-Version": "2" } } }, { path: "/{rest*}" }];
      const gateway = createGateway({ config: oneService(9, { routes }) });
      const answer = await gateway.inject({ url: "/a/x", headers: { "X-Version": "3" } });
      expect([answer.status, answer.json()]).toEqual([
        404,
        expect.objectContaining({
          code: "route_not_found",
          detail: "No route of this path fits the headers, the query, the cookies and the scheme of the request.",
        }),
      ]);
      expect((await gateway.inject({ url: "/a/x", method: "PUT" })).header("Allow")).toBe("GET, HEAD");
    },
  );

  it.each(["1.1", "2"])(
    "gives requests over HTTP/%s to the route whose conditions on headers, query and cookies hold",
    async (version) => {
      const [one, two] = [await backend(), await backend()];
      const match = { headers: { "X-Version": "2" }, query: { "a b": "ü" }, cookies: { beta: { matches: "^[0-9]$" } } };
      const [first] = oneService(one.port).services;
      const gateway = await running({
        global: { h2c: true },
        services: [
          first!,
          { ...oneService(two.port).services[0]!, name: "two", routes: [{ path: "/{rest*}", match }] },
        ],
      });
      const path = "/a/x?a%20b=%C3%BC";
      const sent = async (target: string, headers: Record<string, string | string[]>): Promise<number | undefined> => {
        if (version === "1.1")
          return (
            await ask(gateway.port, {
              path: target,
              headers: { ...headers, cookie: [headers["cookie"]].flat().join("; ") },
            })
          ).status;
        const session = connectH2(`http://127.0.0.1:${gateway.port}`);
        try {
          const stream = session.request({ ":path": target, ...headers });
          const [answer] = (await once(stream, "response")) as [{ readonly ":status": number }];
          return answer[":status"];
        } finally {
          session.destroy();
        }
      };
      expect(await sent(path, { "x-version": "2", cookie: ["a=1", "beta=7"] })).toBe(200);
      expect([one.seen.length, two.seen.length]).toEqual([0, 1]);
      expect(await sent("/a/x?ab=%C3%BC", { "x-version": "2", cookie: ["a=1", "beta=7"] })).toBe(200);
      expect(await sent(path, { "x-version": "3", cookie: ["a=1", "beta=7"] })).toBe(200);
      expect(await sent(path, { "x-version": "2", cookie: ["a=1", "beta=77"] })).toBe(200);
      expect([one.seen.length, two.seen.length]).toEqual([3, 1]);
    },
  );

  it.each(["/a/../b", "/a/%2e%2e/b", "/a/x%2fy", "/a/%zz", "/a/x\\y", "/a/%00"])(
    "answers 400 path_ambiguous for %s",
    async (path) => {
      const gateway = createGateway({ config: oneService(9) });
      const answer = await gateway.inject({ url: path });
      expect(answer.status).toBe(400);
      expect(answer.json()).toMatchObject({
        code: "path_ambiguous",
        detail: expect.stringMatching(/^[A-Z].*\.$/) as string,
      });
    },
  );

  it("matches the host of an absolute target, not the Host header", async () => {
    const { port, seen } = await backend();
    const gateway = createGateway({ config: oneService(port, { hosts: ["api.example.com"] }) });
    expect(
      (await gateway.inject({ url: "http://api.example.com/a/x", headers: { Host: "other.example" } })).status,
    ).toBe(200);
    expect(
      (await gateway.inject({ url: "http://other.example/a/x", headers: { Host: "api.example.com" } })).status,
    ).toBe(404);
    expect(seen).toHaveLength(1);
    await gateway.close(0);
  });

  it("every problem document has the id of X-Request-Id", async () => {
    const gateway = await running(oneService(9));
    const answer = await ask(gateway.port, { path: "/nowhere" });
    const { request_id: id } = JSON.parse(answer.body.toString()) as { request_id: string };
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(answer.headers["x-request-id"]).toBe(id);
    expect(answer.headers["content-type"]).toBe("application/problem+json");
  });
});

const WRONG: readonly [string, unknown][] = [
  ["undefined", undefined],
  ["null", null],
  ["a text", "hello"],
  ["a reply without headers", { status: 200, body: null }],
  ["a reply whose body is a text", { status: 200, headers: [], body: "hello" }],
  ["a reply without a body field", { status: 200, headers: [] }],
  ["a reply whose status is a text", { status: "200", headers: [], body: null }],
  ["a reply with status 99", { status: 99, headers: [], body: null }],
  ["a reply with status 1000", { status: 1000, headers: [], body: null }],
  ["a 101 without a tunnel", { status: 101, headers: [], body: null }],
];

describe("faulty plugins", () => {
  const faults: readonly [string, Handler][] = [
    [
      "throws",
      () => {
        throw new Error("secret inside");
      },
    ],
    ["rejects", () => Promise.reject(new Error("secret inside"))],
    [
      "throws what is no Error",
      () => {
        throw "secret inside";
      },
    ], // eslint-disable-line
    ...WRONG.map(([what, reply]): [string, Handler] => [`returns ${what}`, () => reply as Reply]),
    ...WRONG.map(([what, reply]): [string, Handler] => [
      `resolves with ${what}`,
      () => Promise.resolve(reply as Reply),
    ]),
  ];

  it.each(faults)(
    "a plugin that %s gets its request a 500 without details and a line in the log, and the next request is served",
    async (_what, handler) => {
      const { port } = await backend();
      const lines: Line[] = [];
      let faulty = true;
      const gateway = await running(oneService(port, { plugins: [{ name: "behave" }] }), {
        plugins: [behaving((next) => (exchange) => (faulty ? handler(exchange) : next(exchange)))],
        log: keeping(lines),
      });
      const answer = await ask(gateway.port, { path: "/a/x" });
      expect(answer.status).toBe(500);
      expect(answer.body.toString()).not.toContain("inside");
      expect(JSON.parse(answer.body.toString())).toMatchObject({
        code: "internal",
        title: "The gateway failed to handle the request",
      });
      expect(lines).toHaveLength(1);
      expect(lines[0]!.message).toBe("a plugin or the gateway failed");
      expect(lines[0]!.fields).toMatchObject({
        request_id: answer.headers["x-request-id"],
        service: "s",
        route: "/{rest*}",
      });
      faulty = false;
      expect((await ask(gateway.port, { path: "/a/x" })).status).toBe(200);
    },
  );

  it("the stream in an invalid reply is destroyed", async () => {
    const body = Readable.from(["x"]);
    const gateway = createGateway({
      config: oneService(9, { plugins: [{ name: "behave" }] }),
      plugins: [behaving(() => () => ({ status: 0, headers: [], body }))],
    });
    expect((await gateway.inject({ url: "/a/x" })).status).toBe(500);
    expect(body.destroyed).toBe(true);
  });

  it("a plugin that replaces a reply and discards the old reply frees the pooled connection", async () => {
    const { port, connections } = await backend((_request, response) => response.end("x".repeat(1_000_000)));
    const gateway = await running(oneService(port, { plugins: [{ name: "behave" }], pool: { max_connections: 1 } }), {
      plugins: [
        behaving((next) => async (exchange) => {
          discard(await next(exchange));
          return { status: 204, headers: [], body: null };
        }),
      ],
    });
    for (let i = 0; i < 3; i++) expect((await ask(gateway.port, { path: "/a/x" })).status).toBe(204);
    expect(connections.total).toBeGreaterThan(0);
  });

  it("a stream as the body of a plugin's own reply reaches the client whole", async () => {
    const gateway = await running(oneService(9, { plugins: [{ name: "behave" }] }), {
      plugins: [
        behaving(() => () => ({
          status: 200,
          headers: [],
          body: Readable.from([Buffer.from("one "), Buffer.from("two")]),
        })),
      ],
    });
    expect((await ask(gateway.port, { path: "/a/x" })).body.toString()).toBe("one two");
  });

  it("a status beyond 599 from an upstream is forwarded", async () => {
    const { port } = await backend((_request, response) => {
      response.writeHead(799, "Own Idea");
      response.end("ok");
    });
    const gateway = await running(oneService(port));
    expect(await ask(gateway.port, { path: "/a/x" })).toMatchObject({ status: 799, reason: "Own Idea" });
  });
});

describe("CORS preflights", () => {
  const own = (takes?: "preflights") =>
    definePlugin({
      name: "own",
      schema: schema.object({}),
      ...(takes === undefined ? {} : { takes }),
      create: () => () => (exchange) => ({ status: 204, headers: ["X-Asked", exchange.method], body: null }),
    });
  const preflighted = async (
    plugin: ReturnType<typeof own>,
    headers: Record<string, string>,
    others: { path: string; methods: string[] }[] = [],
  ) => {
    const routes = [{ path: "/x", methods: ["GET"], plugins: [{ name: "own" }] }, ...others];
    const gateway = createGateway({ config: oneService(9, { routes }), plugins: [plugin] });
    const { status, header } = await gateway.inject({ url: "/a/x", method: "OPTIONS", headers });
    await gateway.close(0);
    return [status, header("x-asked")];
  };
  const preflight = { Origin: "https://a.example", "Access-Control-Request-Method": "GET" };

  it("a preflight reaches the route of the requested method if a plugin handles preflights", async () => {
    expect(await preflighted(own("preflights"), preflight)).toEqual([204, "OPTIONS"]);
  });

  it("a preflight reaches the route of the requested method although another route accepts OPTIONS", async () => {
    expect(await preflighted(own("preflights"), preflight, [{ path: "/{rest*}", methods: ["OPTIONS"] }])).toEqual([
      204,
      "OPTIONS",
    ]);
  });

  it("a preflight gets 405 if no plugin handles preflights, or if it requests another method", async () => {
    expect((await preflighted(own(), preflight))[0]).toBe(405);
    expect((await preflighted(own("preflights"), { ...preflight, "Access-Control-Request-Method": "PUT" }))[0]).toBe(
      405,
    );
  });

  it("a preflight reaches the route whose conditions the request that it asks about may fulfil", async () => {
    const marked = definePlugin({
      name: "marked",
      schema: schema.object({ name: schema.string() }),
      takes: "preflights",
      create:
        ({ name }) =>
        () =>
        () => ({ status: 204, headers: ["X-Route", name], body: null }),
    });
    const route = (name: string, match?: object) => ({
      name,
      path: "/x",
      plugins: [{ name: "marked", config: { name } }],
      ...(match && { match }),
    });
    const routes = [
      route("version", { headers: { "X-Version": "2" }, query: { v: "2" } }),
      route("pattern", { headers: { "X-Pattern": { matches: "^a" } } }),
      route("none", { headers: { "X-None": null }, query: { v: "none" } }),
      route("cookie", { cookies: { c: true }, query: { v: "c" } }),
      route("origin", { headers: { Origin: "https://b.example", "X-None": null }, query: { o: true } }),
      route("rest"),
    ];
    const gateway = createGateway({ config: oneService(9, { routes }), plugins: [marked] });
    const asked = async (query: string, headers: Record<string, string> = {}) =>
      (await gateway.inject({ url: `/a/x${query}`, method: "OPTIONS", headers: { ...preflight, ...headers } })).header(
        "x-route",
      );
    const names = (value: string) => ({ "Access-Control-Request-Headers": value });
    expect(await asked("?v=2", names("content-type, x-version"))).toBe("version");
    expect(await asked("?v=3", names("x-version"))).toBe("rest");
    expect(await asked("?v=2")).toBe("rest");
    expect(await asked("", names("X-Pattern"))).toBe("pattern");
    expect(await asked("?v=none")).toBe("none");
    expect(await asked("?v=none", names("x-none"))).toBe("rest");
    expect(await asked("?v=c", { Cookie: "c=1" })).toBe("rest");
    expect(await asked("?o", { Origin: "https://b.example" })).toBe("origin");
    await gateway.close(0);
  });

  it("OPTIONS requests without both preflight headers are not preflights", async () => {
    expect((await preflighted(own("preflights"), { Origin: "https://a.example" }))[0]).toBe(405);
    expect((await preflighted(own("preflights"), { "Access-Control-Request-Method": "GET" }))[0]).toBe(405);
  });
});
