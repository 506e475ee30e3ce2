import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import * as edge from "edge-gateway";
import {
  createGateway,
  defineConfig,
  definePlugin,
  headerValue,
  problem,
  problemReply,
  schema,
  withHeader,
} from "edge-gateway";
import { describe, expect, expectTypeOf, it, onTestFinished } from "vitest";
import { backend, hosted } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";

/** A host's own plugin kind: admits callers of one tenant and adds the tenant to the request and the response. */
const tenant = definePlugin({
  name: "tenant",
  schema: schema.object({
    allowed_tenants: schema.array(schema.string(), { min: 1 }),
    soft: schema.withDefault(schema.boolean(), false),
  }),
  create({ allowedTenants, soft }, { log, scope }) {
    expectTypeOf(allowedTenants).toEqualTypeOf<readonly string[]>();
    log.info("tenant plugin created", { scope: scope.key });
    return (next) => async (exchange) => {
      const name = headerValue(exchange.headers, "x-tenant");
      if (name === undefined) return problem(exchange.call, "unauthenticated", { detail: "Send X-Tenant." });
      if (!allowedTenants.includes(name) && !soft) {
        return problemReply(exchange.call, {
          code: "wrong_tenant",
          status: 403,
          title: "This tenant is not served here",
        });
      }
      const reply = await next(
        exchange.with({ identity: name, headers: withHeader(exchange.headers, "X-Tenant-Checked", "yes") }),
      );
      return { ...reply, headers: [...reply.headers, "X-Served-For", name] };
    };
  },
});

const configFor = (port: number) =>
  defineConfig({
    global: { name: "embedded" },
    services: [
      {
        name: "orders",
        base_path: "/orders",
        upstreams: [{ host: "127.0.0.1", port }],
        routes: [{ name: "one", path: "/{id}", methods: ["GET"] }],
        plugins: [
          { name: "tenant", config: { allowed_tenants: ["acme"] } },
          { name: "rate_limit", config: { limit_hour: 2, limit_by: "credential" } },
        ],
      },
    ],
  });

describe("a host that embeds the gateway", () => {
  it(
    "a host that embeds the gateway runs a gateway from a value and its own plugin by inject, its own server and " +
      "a listener, reloads it and closes it",
    async () => {
      const origin = await backend((request, response) => response.end(`order ${request.url}`));
      const events: string[] = [];
      const log = edge.createLog({
        format: "json",
        write: (line) => void events.push((JSON.parse(line) as { message: string }).message),
      });
      const gateway = createGateway({ config: configFor(origin.port), plugins: [tenant], log });
      onTestFinished(async () => void (await gateway.close(0)));
      expect(events).toEqual(["tenant plugin created"]);

      // Without a socket
      expect((await gateway.inject({ url: "/orders/7" })).json()).toMatchObject({
        status: 401,
        code: "unauthenticated",
        detail: "Send X-Tenant.",
      });
      expect((await gateway.inject({ url: "/orders/7", headers: { "X-Tenant": "evil" } })).json()).toMatchObject({
        status: 403,
        code: "wrong_tenant",
      });
      const injected = await gateway.inject({ url: "/orders/7", headers: { "X-Tenant": "acme" } });
      expect([injected.status, injected.text(), injected.header("x-served-for")]).toEqual([200, "order /7", "acme"]);
      expect(origin.seen[0]!.headers.join(" ")).toContain("X-Tenant-Checked yes");

      // In its own server
      const server = http.createServer(gateway.handler).on("upgrade", gateway.upgrade).listen(0, "127.0.0.1");
      await once(server, "listening");
      onTestFinished(() => new Promise((resolve) => server.close(() => resolve())));
      const mounted = await ask((server.address() as AddressInfo).port, {
        path: "/orders/8",
        headers: { "X-Tenant": "acme" },
      });
      expect([mounted.status, mounted.body.toString()]).toEqual([200, "order /8"]);

      // On a listener, with the same rate limit as the requests above
      const { port } = await gateway.listen({ port: 0 });
      expect((await ask(port, { path: "/orders/9", headers: { "X-Tenant": "acme" } })).status).toBe(429);

      // A reload to another value
      const changed = defineConfig({ ...configFor(origin.port), services: [] });
      expect((await gateway.reload(changed)).changed).toBe(true);
      expect((await ask(port, { path: "/orders/9" })).status).toBe(404);
      expect(await gateway.close()).toBe("drained");
    },
  );

  it("a host that embeds the gateway gets all errors of its configuration as values", () => {
    try {
      createGateway({ config: { services: [{ name: "", base_path: "x", upstreams: [], routes: [] }] } });
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(edge.ConfigError);
      const { issues } = error as edge.ConfigError;
      expect(issues.map(({ at }) => at.join("."))).toEqual([
        "services.0.name",
        "services.0.base_path",
        "services.0.upstreams",
      ]);
    }
  });

  it("a host that embeds the gateway loses only the reply for which its own server's `end` throws", async () => {
    const ends: string[] = [];
    const service = {
      name: "s",
      base_path: "/a",
      upstreams: [{ host: "127.0.0.1", port: 1 }],
      routes: [{ path: "/{rest*}" }],
    };
    const plugins = [{ name: "request_termination", config: { status: 200, body: "here" } }];
    const gateway = createGateway({ config: { services: [{ ...service, plugins }] } });
    const waiting: (() => void)[] = [];
    const host = http.createServer((request, response) => {
      const { url } = request;
      const { end } = response;
      response.end = function (this: typeof response, ...given: Parameters<typeof end>) {
        ends.push(url!);
        if (url === "/a/spoilt") throw new Error("the host's own");
        return end.apply(this, given);
      } as typeof end;
      waiting.push(() => gateway.handler(request, response));
      // Both replies are written together, the failing one first.
      if (waiting.length === 3) for (const handle of waiting) handle();
    });
    const port = await hosted(gateway, host);
    const answers = await Promise.allSettled(["/a/one", "/a/spoilt", "/a/two"].map((path) => ask(port, { path })));
    expect(ends.sort()).toEqual(["/a/one", "/a/spoilt", "/a/two"]);
    expect(answers.map((answer) => (answer.status === "fulfilled" ? answer.value.status : answer.status))).toEqual([
      200,
      "rejected",
      200,
    ]);
  });

  it("a host that embeds the gateway gets TypeScript errors for mistakes in the configuration", () => {
    defineConfig({ services: [] });
    // @ts-expect-error a mistyped optional key
    defineConfig({ services: [], gobal: {} });
    // @ts-expect-error a service needs a base_path
    defineConfig({ services: [{ name: "s", upstreams: [{ host: "h", port: 1 }], routes: [] }] });
    // @ts-expect-error a port is a number
    defineConfig({ services: [{ name: "s", base_path: "/", upstreams: [{ host: "h", port: true }], routes: [] }] });
    const upstreams = [{ host: "h", port: 1 }];
    // @ts-expect-error there is no such strategy
    defineConfig({ services: [{ name: "s", base_path: "/", upstreams, routes: [], load_balancing_strategy: "x" }] });
    expectTypeOf(createGateway).returns.toHaveProperty("inject");
  });

  it("a host that embeds the gateway finds everything it may need under one import", () => {
    const names = [
      "createGateway",
      "definePlugin",
      "defineConfig",
      "schema",
      "ConfigError",
      "Exchange",
      "problem",
      "problemReply",
      "discard",
      "headerValue",
      "ERRORS",
      "createLog",
      "systemClock",
      "version",
    ];
    expect(names.filter((name) => !(name in edge))).toEqual([]);
  });
});
