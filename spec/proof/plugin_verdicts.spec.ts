import { describe, expect, it, onTestFinished, vi } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import {
  createGateway,
  definePlugin,
  schema,
  type AnyPlugin,
  type Middleware,
  type Question,
  type Tools,
} from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";

const KEY = { name: "key_auth", config: { keys: [{ id: "web", key: "a-key-of-the-web" }] } };
const LIMIT = { name: "rate_limit", config: { limit_min: 1 } };
const RIGHT = { apiKey: "a-key-of-the-web" };

/** Kinds named "own", for one spec. */
const kind = (middleware: Middleware): AnyPlugin => tooled(() => middleware);
const tooled = (create: (tools: Tools) => Middleware, name = "own"): AnyPlugin =>
  definePlugin({ name, schema: schema.object({}), create: (_config, tools) => create(tools) });

/** Each plugin and its verdict, for a service with these plugins. */
async function verdicts(
  plugins: readonly object[],
  question: Partial<Question> = {},
  own: readonly AnyPlugin[] = [],
): Promise<string[]> {
  const gateway = createGateway({ config: oneService(9, { plugins: plugins as never }), plugins: own });
  onTestFinished(async () => void (await gateway.close(0)));
  const explanation = await gateway.explain({ method: "GET", url: "/a/x", ...question });
  return explanation.plugins.map(({ name, verdict }) => `${name}: ${verdict}`);
}

describe("the verdict on a plugin", () => {
  it(
    "explain says that plugins pass the request on, up to the plugin that answers; " +
      "the plugins behind it are not reached",
    async () => {
      const config: AnyConfigInput = oneService(
        9,
        {
          plugins: [KEY, { name: "acl", enabled: false, config: { blacklist: ["10.0.0.1"] } }, LIMIT],
          routes: [{ path: "/{rest*}", plugins: [LIMIT] }],
        },
        { plugins: [{ name: "acl", config: { blacklist: ["10.0.0.1"] } }] },
      );
      const gateway = createGateway({ config });
      const asked = async (question: Partial<Question>) =>
        (await gateway.explain({ method: "GET", url: "/a/x", ...question })).plugins.map(({ level, name, verdict }) => [
          level,
          name,
          verdict,
        ]);
      expect(await asked({})).toEqual([
        ["global", "acl", "passes the request on"],
        ["service", "key_auth", "answers 401 key_missing"],
        ["service", "rate_limit", "not reached"],
        ["route", "rate_limit", "not reached"],
      ]);
      expect(await asked({ headers: RIGHT })).toEqual([
        ["global", "acl", "passes the request on"],
        ["service", "key_auth", 'passes the request on as "web"'],
        ["service", "rate_limit", "passes the request on"],
        ["route", "rate_limit", "passes the request on"],
      ]);
      expect((await asked({ clientIp: "10.0.0.1" }))[0]).toEqual([
        "global",
        "acl",
        "answers 403 forbidden by blacklist",
      ]);
    },
  );

  it("the verdict on a plugin is data too: its action, and the status and code of its answer", async () => {
    const actions = async (plugins: readonly object[], own: readonly AnyPlugin[] = []) => {
      const gateway = createGateway({ config: oneService(9, { plugins: plugins as never }), plugins: own });
      return (await gateway.explain({ method: "GET", url: "/a/x" })).plugins.map(({ action, status, code }) => [
        action,
        status,
        code,
      ]);
    };
    const auth = { name: "forward_auth", config: { url: "http://127.0.0.1:1/" } };
    expect(await actions([KEY, LIMIT])).toEqual([
      ["answers", 401, "key_missing"],
      ["not_reached", null, null],
    ]);
    expect(await actions([auth, LIMIT])).toEqual([
      ["asks", null, null],
      ["passes", null, null],
    ]);
    expect(await actions([{ name: "request_termination", config: { status: 204 } }])).toEqual([["answers", 204, null]]);
    expect(await actions([{ name: "own" }], [kind(() => () => undefined as never)])).toEqual([
      ["answers", 500, "internal"],
    ]);
  });

  it(
    "the verdict on a plugin has whom it names, what it changes, " +
      "whom it would ask and where it redirects to as data",
    async () => {
      const told = async (plugins: readonly object[], headers = {}) =>
        (
          await createGateway({ config: oneService(9, { plugins: plugins as never }) }).explain({
            method: "GET",
            url: "/a/x",
            headers,
          })
        ).plugins;
      const NONE = { location: null, asks: null, caller: null, groups: [], sets: [], removes: [] };
      const edits = { name: "request_headers", config: { set: { "X-New": "1" }, remove: ["X-Old"] } };
      const redirect = { name: "redirect", config: { location: "https://new.example/x", status: 308 } };
      const auth = { name: "forward_auth", config: { url: "http://127.0.0.1:1/secret" } };
      expect(await told([KEY, edits, auth, redirect], { ...RIGHT, "X-Old": "1" })).toMatchObject([
        { ...NONE, caller: "web" },
        { ...NONE, sets: ["X-New"], removes: ["X-Old"] },
        { ...NONE, asks: "http://127.0.0.1:1" },
        { ...NONE, location: "https://new.example/x" },
      ]);
      const lan = { name: "acl", config: { whitelist: ["10.0.0.1"] } };
      const [refused] = await told([lan]);
      expect(refused).toMatchObject({ status: 403, code: "forbidden", rule: "whitelist" });
      expect(refused!.verdict).toBe("answers 403 forbidden by whitelist");
    },
  );

  it("an explanation says which plugin answers, and whether one before it may decide otherwise", async () => {
    const end = async (...plugins: readonly object[]) => {
      const { open, answer } = await createGateway({ config: oneService(9, { plugins: plugins as never }) }).explain({
        method: "GET",
        url: "/a/x",
      });
      return [open, answer && [answer.level, answer.name, answer.status, answer.code]];
    };
    const auth = { name: "forward_auth", config: { url: "http://127.0.0.1:1/" } };
    expect(await end()).toEqual([false, null]);
    expect(await end(LIMIT)).toEqual([false, null]);
    expect(await end(auth, LIMIT)).toEqual([true, null]);
    expect(await end(KEY, auth)).toEqual([false, ["service", "key_auth", 401, "key_missing"]]);
    expect(await end(auth, KEY)).toEqual([true, ["service", "key_auth", 401, "key_missing"]]);
  });

  it("the verdict on a plugin names the headers that it sets and removes, without their values", async () => {
    const edits = {
      name: "request_headers",
      config: {
        set: { "X-User": "s3cret", "X-B": "new" },
        add: { "x-c": "2" },
        remove: ["Cookie"],
        rename: { "X-Old": "X-New" },
      },
    };
    const headers = { Cookie: "a=b", "X-Old": "1", "X-B": "old", "X-C": "1", "X-Same": "1" };
    expect(await verdicts([edits], { headers })).toEqual([
      "request_headers: passes the request on, sets X-New, x-c, X-User, X-B, removes Cookie, X-Old",
    ]);
  });

  it("the verdict on a plugin that redirects names the location", async () => {
    expect(await verdicts([{ name: "redirect", config: { location: "https://new.example/x", status: 308 } }])).toEqual([
      "redirect: answers 308 to https://new.example/x",
    ]);
  });

  it(
    "the verdict on a plugin has the status alone of an answer without a code, " +
      "and the code of a client's fault that the plugin throws",
    async () => {
      const refusing = kind(() => () => ({ status: 418, headers: [], body: null }));
      expect(await verdicts([{ name: "own" }], {}, [refusing])).toEqual(["own: answers 418"]);
      const faulty = kind(() => async () => Promise.reject(new Fault("body_too_large", "too large")));
      expect(await verdicts([{ name: "own" }], {}, [faulty])).toEqual(["own: answers 413 body_too_large"]);
    },
  );

  it.each([
    [
      "throws",
      () => () => {
        throw new Error("it is broken");
      },
      "answers 500 internal: it is broken",
    ],
    ["rejects", () => () => Promise.reject(new Error("it is broken")), "answers 500 internal: it is broken"],
    ["returns no reply", () => () => ({}) as never, "answers 500 internal: it returned no reply"],
  ] as const)("the verdict on a plugin that %s is a 500 with the reason", async (_, middleware, verdict) => {
    expect(
      await verdicts([KEY, { name: "own" }], { headers: RIGHT }, [kind(middleware as unknown as Middleware)]),
    ).toEqual(['key_auth: passes the request on as "web"', `own: ${verdict}`]);
  });

  it("plugins can read the body of the question that explain gets", async () => {
    const shape = { name: "request_validation", config: { body: { type: "object", required: ["id"] } } };
    const ask = (body: string) =>
      verdicts([shape], { method: "POST", headers: { "Content-Type": "application/json" }, body });
    expect(await ask('{"id":1}')).toEqual(["request_validation: passes the request on"]);
    expect(await ask("{}")).toEqual(["request_validation: answers 400 request_invalid"]);
    expect(
      await verdicts([{ name: "request_size_limit", config: { max_payload_size: 3 } }], {
        method: "POST",
        body: "four",
      }),
    ).toEqual(["request_size_limit: answers 413 body_too_large"]);
  });

  it("an mcp reads the message that is the body of the question", async () => {
    const ask = (name: string) =>
      verdicts([{ name: "mcp", config: { tools: ["search"] } }], {
        method: "POST",
        headers: { "Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name } }),
      });
    expect([await ask("search"), await ask("refund")]).toEqual([
      ["mcp: passes the request on"],
      ["mcp: answers 400 mcp_not_allowed by tools"],
    ]);
  });

  it(
    "plugins get the client's address behind a trusted proxy, " +
      "and the scheme of the url that explain is asked about",
    async () => {
      const seen: string[] = [];
      const looking = kind(
        (next) => (exchange) => (
          seen.push(`${exchange.scheme} ${exchange.clientAddress} ${exchange.authority}`),
          next(exchange)
        ),
      );
      const config = oneService(9, { plugins: [{ name: "own" }] as never }, { trusted_proxies: ["10.0.0.0/8"] });
      const gateway = createGateway({ config, plugins: [looking] });
      await gateway.explain({
        method: "GET",
        url: "https://shop.example/a/x",
        clientIp: "10.1.1.1",
        headers: { "X-Forwarded-For": ["203.0.113.7", "10.2.2.2"] },
      });
      await gateway.explain({
        method: "GET",
        url: "/a/x",
        clientIp: "2001:db8::1",
        headers: { "X-Forwarded-For": "203.0.113.7" },
      });
      expect(seen).toEqual(["https 203.0.113.7 shop.example", "http 2001:db8::1 localhost"]);
    },
  );

  it("explain says that a CORS plugin answers a preflight, on the route that the preflight is for", async () => {
    const cors = { name: "cors", config: { allow_origins: ["https://a.example"] } };
    const gateway = createGateway({
      config: oneService(9, {
        routes: [
          { name: "put", path: "/x", methods: ["PUT"], plugins: [cors] },
          { name: "all", path: "/{rest*}" },
        ],
      }),
    });
    const headers = { Origin: "https://a.example", "Access-Control-Request-Method": "PUT" };
    expect(await gateway.explain({ method: "OPTIONS", url: "/a/x", headers })).toMatchObject({
      route: "put",
      plugins: [{ name: "cors", verdict: "answers 204" }],
    });
  });

  it(
    "explain gives the verdicts of the matched route only, " + "where a preflight was first tried on another route",
    async () => {
      const routes = [
        { name: "put", path: "/x", methods: ["PUT" as const], plugins: [LIMIT, LIMIT] },
        { name: "options", path: "/x", methods: ["OPTIONS" as const], plugins: [KEY, LIMIT] },
      ];
      const gateway = createGateway({ config: oneService(9, { routes, plugins: [LIMIT] }) });
      const headers = { Origin: "https://a.example", "Access-Control-Request-Method": "PUT" };
      const { route, plugins } = await gateway.explain({ method: "OPTIONS", url: "/a/x", headers });
      expect([route, plugins.map(({ verdict }) => verdict)]).toEqual([
        "options",
        ["passes the request on", "answers 401 key_missing", "not reached"],
      ]);
    },
  );
});

describe("a plugin that would ask another server", () => {
  it(
    "a plugin that would ask another server is not believed: its verdict names the server, " +
      "without path and query, and the request goes on behind it",
    async () => {
      const { port, connections } = await backend();
      const auth = { name: "forward_auth", config: { url: `http://127.0.0.1:${port}/s3cret?token=s3cret` } };
      const lines = await verdicts([auth, LIMIT, { name: "request_termination", config: { status: 410 } }]);
      expect(lines).toEqual([
        `forward_auth: asks http://127.0.0.1:${port}: not done here`,
        "rate_limit: passes the request on",
        expect.stringMatching(/^request_termination: answers 410/),
      ]);
      expect(await verdicts([{ ...auth, config: { ...auth.config, on_error: "allow" } }, LIMIT])).toEqual(
        lines.slice(0, 2),
      );
      expect(connections.total).toBe(0);
    },
  );

  it(
    "a plugin that can ask another server is believed where it decides without asking: " +
      "a missing token needs no keys",
    async () => {
      const { port, connections } = await backend();
      const jwt = { name: "jwt", config: { alg: "RS256", jwks_uri: `http://127.0.0.1:${port}/keys` } };
      expect(await verdicts([jwt, LIMIT])).toEqual(["jwt: answers 401 token_missing", "rate_limit: not reached"]);
      const token = [
        { alg: "RS256", kid: "1" },
        { sub: "ada", exp: 9e9 },
      ]
        .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
        .join(".");
      const headers = { Authorization: `Bearer ${token}.c2lnbmF0dXJl` };
      expect(await verdicts([jwt, LIMIT], { headers })).toEqual([
        `jwt: asks http://127.0.0.1:${port}: not done here`,
        "rate_limit: passes the request on",
      ]);
      expect(connections.total).toBe(0);
    },
  );

  it(
    "the request goes on once behind a plugin that asks another server, " + "also if the plugin passes it on itself",
    async () => {
      let behind = 0;
      const counting = tooled(() => (next) => (exchange) => (behind++, next(exchange)), "behind");
      const ask = { url: new URL("http://127.0.0.1:1/x"), timeoutMs: 1, maxBytes: 1 };
      const asking: Record<string, (tools: Tools) => Middleware> = {
        before:
          ({ client }) =>
          (next) =>
          async (exchange) => {
            void client()
              .ask(ask)
              .catch(() => {});
            return next(exchange);
          },
        after:
          ({ client }) =>
          (next) =>
          async (exchange) => {
            const reply = await next(exchange);
            await client().ask(ask);
            return reply;
          },
        failing:
          ({ client }) =>
          () =>
          async () => {
            await client().ask(ask);
            return { status: 403, headers: [], body: null };
          },
        throwing:
          ({ client }) =>
          () =>
          () => {
            void client().ask(ask);
            throw new Error("unreached");
          },
      };
      for (const [name, create] of Object.entries(asking)) {
        behind = 0;
        expect([name, await verdicts([{ name: "own" }, { name: "behind" }], {}, [tooled(create), counting])]).toEqual([
          name,
          ["own: asks http://127.0.0.1:1: not done here", "behind: passes the request on"],
        ]);
        expect([name, behind]).toEqual([name, 1]);
      }
    },
  );

  it(
    "a plugin that asks another server when it is created gets no answer, " + "and its own answer does not count",
    async () => {
      const prefetching = tooled(({ client }) => {
        const keys = client().ask({ url: new URL("https://keys.example/a"), timeoutMs: 1, maxBytes: 1 });
        keys.catch(() => {});
        return () => async () => {
          await keys.catch(() => {});
          return { status: 503, headers: [], body: null };
        };
      });
      expect(await verdicts([{ name: "own" }, LIMIT], {}, [prefetching])).toEqual([
        "own: asks https://keys.example: not done here",
        "rate_limit: passes the request on",
      ]);
      expect(await verdicts([KEY, { name: "own" }], {}, [prefetching])).toEqual([
        "key_auth: answers 401 key_missing",
        "own: not reached",
      ]);
    },
  );

  it(
    "a plugin that sends something after the reply, as http_log does, " + "passes the request on, and sends nothing",
    async () => {
      const { port, connections } = await backend();
      expect(
        await verdicts([{ name: "http_log", config: { http_endpoint: `http://127.0.0.1:${port}/`, batch_size: 1 } }]),
      ).toEqual(["http_log: passes the request on"]);
      expect(connections.total).toBe(0);
    },
  );
});

describe("a plugin that hangs", () => {
  it("explain waits 2 s for a plugin that hangs, says so, and aborts its request", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    let signal: AbortSignal | null = null;
    const hanging = kind(() => (exchange) => {
      signal = exchange.signal;
      return new Promise<never>((_, reject) =>
        exchange.signal.addEventListener("abort", () => reject(new Error("aborted"))),
      );
    });
    const pending = verdicts([KEY, { name: "own" }, LIMIT], { headers: RIGHT }, [hanging]);
    await vi.advanceTimersByTimeAsync(1_999);
    expect(signal).toMatchObject({ aborted: false });
    await vi.advanceTimersByTimeAsync(1);
    expect(await pending).toEqual([
      'key_auth: passes the request on as "web"',
      "own: has not answered within 2 s",
      "rate_limit: not reached",
    ]);
    expect(signal).toMatchObject({ aborted: true });
  });

  it("explain does not leave its timer behind when the plugin has answered", async () => {
    const [begun, cleared] = [vi.spyOn(globalThis, "setTimeout"), vi.spyOn(globalThis, "clearTimeout")];
    onTestFinished(() => [begun, cleared].forEach((spy) => spy.mockRestore()));
    const waiting = kind(() => async () => ({ status: 418, headers: [], body: null }));
    expect(await verdicts([{ name: "own" }], {}, [waiting])).toEqual(["own: answers 418"]);
    // Other timers of the process may begin meanwhile.
    const own = begun.mock.results
      .filter((_, i) => begun.mock.calls[i]![1] === 2_000)
      .map(({ value }) => value as NodeJS.Timeout);
    expect(own).toHaveLength(1);
    expect(cleared.mock.calls.flat()).toContain(own[0]);
  });
});

describe("a plugin that goes on after the explanation", () => {
  it("a plugin that passes the request on, or asks another server, after the explanation reaches nobody", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    let behind = 0;
    const counting = tooled(() => (next) => (exchange) => (behind++, next(exchange)), "behind");
    const late = tooled(
      ({ client }) =>
        (next) =>
        (exchange) =>
          new Promise((_, reject) =>
            exchange.call.onAbort(() => {
              void next(exchange);
              client()
                .ask({ url: new URL("http://127.0.0.1:1/x"), timeoutMs: 1, maxBytes: 1 })
                .catch(reject);
            }),
          ),
    );
    const pending = verdicts([{ name: "own" }, { name: "behind" }], {}, [late, counting]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect([await pending, behind]).toEqual([["own: has not answered within 2 s", "behind: not reached"], 0]);
  });
});

describe("the state of the gateway in force", () => {
  it(
    "explain does not touch the state of the gateway: no quota is spent, no reply is stored, " +
      "and nothing that a plugin holds stays open",
    async () => {
      const { port, seen } = await backend(
        (_request, response) => void response.writeHead(200, { "Cache-Control": "max-age=60" }).end("ok"),
      );
      const open = new Set<object>();
      const holding = tooled(({ keep }) => {
        keep("thing", {}, () => {
          const thing = { close: () => void open.delete(thing) };
          open.add(thing);
          return thing;
        });
        return (next) => next;
      });
      const { gateway } = await running(
        oneService(port, { plugins: [{ name: "own" }, LIMIT, { name: "response_cache" }] as never }),
        { plugins: [holding] },
      );
      const [inForce] = open;
      const asked = async () =>
        (await gateway.explain({ method: "GET", url: "/a/x" })).plugins.map(({ verdict }) => verdict);
      const passed = ["passes the request on", "passes the request on", "passes the request on"];
      for (let i = 0; i < 3; i++) expect(await asked()).toEqual(passed);
      expect([...open]).toEqual([inForce]);
      expect(seen).toEqual([]);
      const first = await gateway.inject({ url: "/a/x" });
      expect([first.status, first.header("cache-status")]).toEqual([200, expect.stringContaining("fwd=uri-miss")]);
      expect((await gateway.inject({ url: "/a/x" })).status).toBe(429);
      expect(await asked()).toEqual(passed);
    },
  );

  it("explain answers many questions at once, and each plugin has its own state in each of them", async () => {
    const gateway = createGateway({ config: oneService(9, { plugins: [KEY, LIMIT] }) });
    const asked = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        gateway.explain({ method: "GET", url: "/a/x", ...(i % 2 === 0 && { headers: RIGHT }) }),
      ),
    );
    for (const [i, { plugins }] of asked.entries())
      expect(plugins[1]!.verdict).toBe(i % 2 === 0 ? "passes the request on" : "not reached");
  });

  it(
    "explain says why plugins cannot be run where one can be created only once, " + "and explains everything else",
    async () => {
      let created = 0;
      const single = definePlugin({
        name: "own",
        schema: schema.object({}),
        create() {
          if (created++ > 0) throw new Error("the port is in use");
          return (next) => next;
        },
      });
      const gateway = createGateway({
        config: oneService(9, { plugins: [KEY, { name: "own" }] as never }),
        plugins: [single],
      });
      const { outcome, reasons, plugins, upstreams } = await gateway.explain({ method: "GET", url: "/a/x" });
      expect([outcome, upstreams.length, plugins.map(({ verdict }) => verdict)]).toEqual([
        "matched",
        1,
        ["not reached", "not reached"],
      ]);
      expect(reasons).toContain(
        'The plugins cannot be run here: plugin own of service "s" cannot be created: the port is in use.',
      );
    },
  );

  it("explain creates each plugin of the route once, and gives it the request once", async () => {
    const events: string[] = [];
    const watching = tooled(
      () => (events.push("created"), (next) => (exchange) => (events.push("called"), next(exchange))),
    );
    const gateway = createGateway({
      config: oneService(9, { plugins: [{ name: "own" }] as never }),
      plugins: [watching],
    });
    events.length = 0;
    await gateway.explain({ method: "GET", url: "/a/x" });
    expect(events).toEqual(["created", "called"]);
  });

  it("explain shows the path that the upstream is asked for as plugins have changed it", async () => {
    const rewriting = kind((next) => (exchange) => next(exchange.with({ upstreamPath: "/other", query: "?y=2" })));
    const gateway = createGateway({
      config: oneService(9, { plugins: [{ name: "own" }] as never }),
      plugins: [rewriting],
    });
    expect((await gateway.explain({ method: "GET", url: "/a/x?z" })).forwarded).toBe("/other?y=2");
  });
});
