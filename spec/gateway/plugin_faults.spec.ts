import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import {
  createGateway,
  definePlugin,
  problem,
  schema,
  type AnyPlugin,
  type LogLine,
  type Middleware,
  type Reply,
} from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";

const none = undefined as unknown as Reply;
const lost = (): never => {
  throw new Error("lost");
};

/** What a plugin may do wrong, by name. `?x` in the query: it does; otherwise it passes the request on. */
const FAULTS: Readonly<Record<string, Middleware>> = {
  "throws at once": () => () => lost(),
  "throws a text": () => () => {
    throw "lost";
  },
  "throws after next": (next) => (exchange) => {
    void next(exchange);
    return lost();
  },
  "rejects before next": () => async () => lost(),
  "rejects after next": (next) => async (exchange) => {
    await next(exchange);
    return lost();
  },
  "rejects with undefined": () => () => Promise.reject(undefined),
  "returns nothing": (next) => (exchange) => {
    void next(exchange);
    return none;
  },
  "resolves with nothing": (next) => async (exchange) => {
    await next(exchange);
    return none;
  },
  "returns a status that is none": () => () => ({ status: 20, headers: [], body: null }),
  "returns headers that are no list": () => async () => ({ status: 200, headers: { a: "b" } as never, body: null }),
};

function plugin(name: string, behave: Middleware): AnyPlugin {
  const create = (): Middleware => (next) => {
    const wrong = behave(next);
    return (exchange) => (exchange.query === "?x" ? wrong(exchange) : next(exchange));
  };
  return definePlugin({ name, schema: schema.object({}), create });
}

/** Around the one at fault: one that only looks, one that awaits, one that changes the reply. */
const around: readonly AnyPlugin[] = [
  plugin("looks", (next) => (exchange) => next(exchange)),
  plugin("awaits", (next) => async (exchange) => await next(exchange)),
  plugin("changes", (next) => async (exchange) => ({ ...(await next(exchange)) })),
];

function logged() {
  const lines: Pick<LogLine, "message" | "fields">[] = [];
  const at = () => {};
  return {
    lines,
    log: {
      debug: at,
      info: at,
      warn: at,
      error: (message: string, fields = {}) => void lines.push({ message, fields }),
    },
  };
}

const OF = { service: "s", route: "/{rest*}" };

describe.each(Object.entries(FAULTS))("a plugin that %s", (_what, behave) => {
  const faulty = plugin("faulty", behave);
  const named = (...names: string[]) => names.map((name) => ({ name }));

  it(
    "a request gets 500 for a faulty plugin, which is named in the log and counted, " +
      "and other requests are not affected",
    async () => {
      const origin = await backend();
      const { lines, log } = logged();
      const plugins = [
        ...named("looks", "awaits"),
        { name: "faulty", id: "here" },
        ...named("looks", "awaits", "changes"),
      ];
      const config = oneService(origin.port, { plugins: named("awaits"), routes: [{ path: "/{rest*}", plugins }] });
      const { gateway, port } = await running(config, { plugins: [...around, faulty], log });
      const others = Array.from({ length: 5 }, () => ask(port, { path: "/a/y" }));
      const hurt = await ask(port, { path: "/a/y?x" });
      expect([hurt.status, JSON.parse(hurt.body.toString())]).toEqual([
        500,
        expect.objectContaining({ code: "internal" }),
      ]);
      expect(hurt.body.toString()).not.toContain("lost");
      expect((await Promise.all(others)).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
      expect((await ask(port, { path: "/a/y" })).status).toBe(200);
      await ask(port, { path: "/a/y?x" });
      expect(gateway.status.pluginFaults).toEqual([{ plugin: "faulty", id: "here", level: "route", ...OF, count: 2 }]);
      expect(
        lines.map(({ message, fields: { plugin, plugin_id, plugin_level } }) => [
          message,
          plugin,
          plugin_id,
          plugin_level,
        ]),
      ).toEqual(Array(2).fill(["a plugin or the gateway failed", "faulty", "here", "route"]));
    },
  );

  it.each([["global"], ["service"], ["route"]] as const)(
    "a fault is attributed to the plugin at the level of the %s, although plugins around it handle replies",
    async (level) => {
      const { lines, log } = logged();
      const at = (own: string) => [...named("looks"), ...(own === level ? named("faulty") : []), ...named("looks")];
      const config = oneService(
        9,
        { plugins: at("service"), routes: [{ path: "/{rest*}", plugins: at("route") }] },
        { plugins: [...named("changes"), ...at("global")] },
      );
      const end = plugin("ends", () => () => ({ status: 200, headers: [], body: null }));
      const ending = {
        ...config,
        services: config.services.map((each) => ({
          ...each,
          routes: each.routes.map((route) => ({ ...route, plugins: [...(route.plugins ?? []), { name: "ends" }] })),
        })),
      };
      const gateway = createGateway({ config: ending, plugins: [...around, faulty, end], log });
      await gateway.inject({ url: "/a/y?x" });
      const place = { global: { service: null, route: null }, service: { ...OF, route: null }, route: OF }[level];
      expect(gateway.status.pluginFaults).toEqual([{ plugin: "faulty", id: null, level, ...place, count: 1 }]);
      expect(lines[0]!.fields).toMatchObject({ plugin: "faulty", plugin_level: level });
      await gateway.close(0);
    },
  );
});

describe("plugin faults", () => {
  const throwing = plugin("faulty", () => () => lost());
  const ask500 = async (plugins: readonly AnyPlugin[], names: readonly string[]) => {
    const { lines, log } = logged();
    const gateway = createGateway({
      config: oneService(9, { plugins: names.map((name) => ({ name })) }),
      plugins,
      log,
    });
    const { status } = await gateway.inject({ url: "/a/y?x" });
    const faults = gateway.status.pluginFaults.map((each) => each.plugin);
    return { status, faults, lines, gateway };
  };

  it.each([
    ["throws", throwing],
    ["rejects", plugin("faulty", () => async () => lost())],
    ["returns nothing", plugin("faulty", () => () => none)],
  ])(
    "plugin faults reach the plugins around the plugin that %s as a reply with status 500, never as an error, " +
      "and the reply can be replaced",
    async (_what, faulty) => {
      const seen: number[] = [];
      const handling = plugin("handles", (next) => async (exchange) => {
        const reply = await next(exchange);
        seen.push(reply.status);
        return problem(exchange.call, "forbidden");
      });
      const { status, faults, lines } = await ask500([handling, ...around, faulty], ["handles", "looks", "faulty"]);
      expect([status, seen, faults, lines.length]).toEqual([403, [500], ["faulty"], 1]);
    },
  );

  it.each([
    ["throws", throwing],
    ["rejects", plugin("faulty", () => async () => lost())],
    ["resolves with nothing", plugin("faulty", () => async () => none)],
  ])(
    "plugin faults have CORS and RateLimit headers and the headers of response_headers: " +
      "the plugins around the plugin that %s add them",
    async (_what, faulty) => {
      const outer = [
        { name: "cors", config: { allow_origins: ["https://app.example"] } },
        { name: "rate_limit", config: { limit_min: 10 } },
        { name: "response_headers", config: { set: { "X-Frame-Options": "DENY" } } },
      ];
      const gateway = createGateway({
        config: oneService(9, { plugins: [...outer, { name: "faulty" }] }),
        plugins: [faulty],
      });
      const answer = await gateway.inject({ url: "/a/y?x", headers: { Origin: "https://app.example" } });
      expect([answer.status, answer.json()]).toEqual([500, expect.objectContaining({ code: "internal" })]);
      const names = ["Access-Control-Allow-Origin", "RateLimit", "X-Frame-Options"];
      expect(names.map((name) => answer.header(name))).toEqual([
        "https://app.example",
        expect.stringContaining("r=9"),
        "DENY",
      ]);
      await gateway.close(0);
    },
  );

  it(
    "plugin faults leave the counts when their plugin instance is removed, " +
      "and keep them for instances that a reload keeps",
    async () => {
      const { gateway } = await ask500([throwing, ...around], ["faulty"]);
      await gateway.reload(oneService(9, { plugins: [{ name: "looks" }, { name: "faulty" }] }));
      expect(gateway.status.pluginFaults).toMatchObject([{ plugin: "faulty", count: 1 }]);
      await gateway.reload(oneService(9, { plugins: [{ name: "looks" }] }));
      expect(gateway.status.pluginFaults).toEqual([]);
    },
  );

  it("plugin faults exclude refusals and interrupted bodies", async () => {
    const refusing = plugin("refuses", () => (exchange) => problem(exchange.call, "forbidden"));
    expect((await ask500([refusing], ["refuses"])).faults).toEqual([]);
    const breaking = plugin("breaks", () => () => ({
      status: 200,
      headers: [],
      body: new Readable({
        read() {
          this.destroy(new Error("lost"));
        },
      }),
    }));
    await expect(ask500([breaking], ["breaks"])).rejects.toThrow("lost");
  });

  it.each([
    ["throws", () => lost(), /plugin odd of service "s" cannot be created: lost$/],
    [
      "throws a text",
      () => {
        throw "lost";
      },
      /plugin odd of service "s" cannot be created: lost$/,
    ],
    ["gives nothing", () => undefined, /plugin odd of service "s" cannot be created: "create" gave no function$/],
    [
      "gives what makes no handler",
      () => () => undefined,
      /plugin odd of service "s" cannot be created: what "create" returns has to give a handler/,
    ],
    ["gives what throws", () => () => lost(), /plugin odd of service "s" cannot be created: lost$/],
  ])(
    "plugin faults stop the start with the plugin's name if create %s, " +
      "and keep the old configuration in force at a reload",
    async (_what, create, message) => {
      const odd = definePlugin({ name: "odd", schema: schema.object({}), create: create as never });
      const wrong = oneService(9, { plugins: [{ name: "odd" }], routes: [{ path: "/", name: "root" }] });
      expect(() => createGateway({ config: wrong, plugins: [odd] })).toThrow(message);
      const fine = plugin("fine", (next) => next);
      const gateway = createGateway({ config: oneService(9, { plugins: [{ name: "fine" }] }), plugins: [odd, fine] });
      const { digest } = gateway;
      await expect(gateway.reload(wrong)).rejects.toThrow(message);
      expect(gateway.digest).toBe(digest);
    },
  );

  it("a chain of plugins that return replies unchanged returns the upstream's own promise", () => {
    // One that only looks returns the very promise that it got.
    const seen: unknown[] = [];
    const watching = plugin("watches", (next) => (exchange) => {
      const returned = next(exchange);
      seen.push(returned);
      return returned;
    });
    const gateway = createGateway({
      config: oneService(9, { plugins: [{ name: "watches" }, { name: "looks" }, { name: "watches" }] }),
      plugins: [watching, ...around],
    });
    const asked = gateway.inject({ url: "/a/y?x" });
    expect(seen).toHaveLength(2);
    expect(seen[0]).toBe(seen[1]);
    return asked.then(() => gateway.close(0));
  });
});

describe("a header of a plugin that cannot be sent", () => {
  const UNSENDABLE: readonly [string, readonly string[]][] = [
    ["a line break in its value", ["X-A", "b\r\nX-C: d"]],
    ["a character beyond Latin-1", ["X-A", "\u65e5"]],
    ["a name that is no token", ["X A", "b"]],
    ["a name without a value", ["X-A"]],
  ];

  it.each(UNSENDABLE)(
    "in a reply, %s: 500, logged and counted as a fault of that plugin, whatever is around it",
    async (_what, added) => {
      const origin = await backend();
      const { lines, log } = logged();
      const faulty = plugin("faulty", (next) => async (exchange) => {
        const reply = await next(exchange);
        return { ...reply, headers: [...reply.headers, ...added] };
      });
      const plugins = ["changes", "faulty", "changes"].map((name) => ({ name }));
      const { gateway, port } = await running(oneService(origin.port, { plugins }), {
        plugins: [...around, faulty],
        log,
      });
      expect((await ask(port, { path: "/a/b?x" })).status).toBe(500);
      expect((await ask(port, { path: "/a/b" })).status).toBe(200);
      expect(lines.map(({ fields }) => fields?.plugin)).toEqual(["faulty"]);
      expect(gateway.status.pluginFaults).toMatchObject([{ plugin: "faulty", count: 1 }]);
    },
  );

  it.each(UNSENDABLE)(
    "in a request, %s: 500, logged and counted as a fault of that plugin, and nothing reaches the upstream",
    async (_what, added) => {
      const origin = await backend();
      const { lines, log } = logged();
      const faulty = plugin(
        "faulty",
        (next) => (exchange) => next(exchange.with({ headers: [...exchange.headers, ...added] })),
      );
      const plugins = ["looks", "faulty", "changes"].map((name) => ({ name }));
      const { gateway, port } = await running(oneService(origin.port, { plugins }), {
        plugins: [...around, faulty],
        log,
      });
      expect((await ask(port, { path: "/a/b?x" })).status).toBe(500);
      expect(lines.map(({ fields }) => fields?.plugin)).toEqual(["faulty"]);
      expect(gateway.status.pluginFaults).toMatchObject([{ plugin: "faulty", count: 1 }]);
      expect(origin.seen).toEqual([]);
    },
  );
});
