import type { Duplex } from "node:stream";
import { describe, expect, it } from "vitest";
import { createGateway, type ConfigInput } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask, connect } from "../support/raw_client.ts";
import { behaving, HANDSHAKE, mark, marking } from "./plugins.ts";

const allLevels = (port: number): ConfigInput =>
  oneService(
    port,
    {
      plugins: [mark("service 1"), mark("service 2")],
      routes: [{ path: "/{rest*}", plugins: [mark("route 1"), mark("route 2")] }],
    },
    { plugins: [mark("global 1"), mark("global 2")] },
  );
const INWARD = [">global 1", ">global 2", ">service 1", ">service 2", ">route 1", ">route 2"];
const OUTWARD = ["<route 2", "<route 1", "<service 2", "<service 1", "<global 2", "<global 1"];

describe("the plugin chain of a route", () => {
  it(
    "plugins run in the order global, service, route, each level in the order of the file, " +
      "and see the reply in reverse order",
    async () => {
      const trail: string[] = [];
      const { port } = await backend((_request, response) => {
        trail.push("upstream");
        response.end("ok");
      });
      const gateway = await running(allLevels(port), { plugins: [marking(trail)] });
      const answer = await ask(gateway.port, { path: "/a/x" });
      expect(answer.status).toBe(200);
      expect(trail).toEqual([...INWARD, "upstream", ...OUTWARD]);
      expect(answer.headers["x-trail"]).toBe("route 2, route 1, service 2, service 1, global 2, global 1");
    },
  );

  it("plugins run for WebSocket upgrades and see the 101", async () => {
    const trail: string[] = [];
    const { port, server } = await backend();
    server.on("upgrade", (_request, socket: Duplex) => {
      trail.push("upstream");
      socket.end("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframes");
    });
    const gateway = await running(allLevels(port), { plugins: [marking(trail)] });
    const client = await connect(gateway.port);
    client.send(HANDSHAKE);
    const text = await client.until("frames");
    expect(text).toMatch(/^HTTP\/1\.1 101 /);
    expect(text).toContain("X-Trail: global 1");
    expect(trail).toEqual([...INWARD, "upstream", ...OUTWARD]);
    client.socket.destroy();
  });

  it("a plugin can refuse a WebSocket upgrade, and no request reaches the upstream", async () => {
    const { port, server } = await backend();
    let upgrades = 0;
    server.on("upgrade", (_request, socket: Duplex) => {
      upgrades++;
      socket.destroy();
    });
    const config = oneService(port, { plugins: [{ name: "key_auth", config: { key: "k" } }] });
    const gateway = await running(config);
    const client = await connect(gateway.port);
    client.send(HANDSHAKE);
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 401 Unauthorized\r\n/);
    expect(upgrades).toBe(0);
  });

  it("a plugin kind at two levels runs twice", async () => {
    const trail: string[] = [];
    const { port } = await backend();
    const config = oneService(port, { plugins: [mark("same")] }, { plugins: [mark("same")] });
    const gateway = await running(config, { plugins: [marking(trail)] });
    await ask(gateway.port, { path: "/a/x" });
    expect(trail).toEqual([">same", ">same", "<same", "<same"]);
  });

  it("an instance with enabled false is not created and does not run", async () => {
    const trail: string[] = [];
    const { port } = await backend();
    const config = oneService(port, {
      plugins: [
        { ...mark("off"), enabled: false },
        { ...mark("on"), enabled: true },
      ],
    });
    const gateway = await running(config, { plugins: [marking(trail)] });
    await ask(gateway.port, { path: "/a/x" });
    expect(trail).toEqual([">on", "<on"]);
  });

  it("only the plugins of the matched route run", async () => {
    const trail: string[] = [];
    const { port } = await backend();
    const routes = [
      { path: "/one", plugins: [mark("one")] },
      { path: "/two", plugins: [mark("two")] },
    ];
    const gateway = await running(oneService(port, { routes }), { plugins: [marking(trail)] });
    await ask(gateway.port, { path: "/a/two" });
    expect(trail).toEqual([">two", "<two"]);
  });

  it("no plugin runs for requests that get 404 or 405", async () => {
    const trail: string[] = [];
    const { port } = await backend();
    const config = oneService(port, { routes: [{ path: "/x", methods: ["GET"] }] }, { plugins: [mark("global")] });
    const gateway = await running(config, { plugins: [marking(trail)] });
    expect((await ask(gateway.port, { path: "/a/y" })).status).toBe(404);
    expect((await ask(gateway.port, { path: "/a/x", method: "POST" })).status).toBe(405);
    expect(trail).toEqual([]);
  });

  it("the plugins before a plugin that answers see its reply, and the plugins behind it do not run", async () => {
    const trail: string[] = [];
    const { port, seen } = await backend();
    const teapot = behaving(() => () => ({ status: 418, headers: ["Content-Length", "0"], body: null }));
    const config = oneService(port, { plugins: [{ name: "behave" }, mark("behind")] }, { plugins: [mark("before")] });
    const gateway = await running(config, { plugins: [marking(trail), teapot] });
    const answer = await ask(gateway.port, { path: "/a/x" });
    expect(answer.status).toBe(418);
    expect(answer.headers["x-trail"]).toBe("before");
    expect(trail).toEqual([">before", "<before"]);
    expect(seen).toEqual([]);
  });
});

describe("the scope of a plugin instance", () => {
  it(
    "a plugin instance gets its level, service, route, id, " + "the path that warnings name it by, and a separate key",
    async () => {
      const scopes: unknown[] = [];
      const spy = behavingWithScope(scopes);
      createGateway({
        config: oneService(
          9,
          {
            plugins: [{ name: "spy", id: "s1" }],
            routes: [{ name: "r", path: "/r", plugins: [{ name: "spy" }, { name: "spy" }] }],
          },
          { name: "edge", plugins: [{ name: "spy" }] },
        ),
        plugins: [spy],
      });
      expect(scopes).toEqual([
        {
          level: "global",
          service: null,
          route: null,
          id: null,
          path: "global.plugins.spy",
          key: expect.any(String) as string,
          gatewayName: "edge",
        },
        {
          level: "service",
          service: "s",
          route: null,
          id: "s1",
          path: "services.s.plugins.s1",
          key: expect.any(String) as string,
          gatewayName: "edge",
        },
        {
          level: "route",
          service: "s",
          route: "r",
          id: null,
          path: "services.s.routes.r.plugins.spy",
          key: expect.any(String) as string,
          gatewayName: "edge",
        },
        {
          level: "route",
          service: "s",
          route: "r",
          id: null,
          path: "services.s.routes.r.plugins.spy#2",
          key: expect.any(String) as string,
          gatewayName: "edge",
        },
      ]);
      expect(new Set(scopes.map((scope) => (scope as { key: string }).key)).size).toBe(4);
    },
  );

  it("disabling an instance does not change the keys of other instances of its kind", () => {
    const keys = (enabled: boolean) => {
      const scopes: { key: string }[] = [];
      const config = oneService(9, { plugins: [{ name: "spy", enabled }, { name: "spy" }] });
      createGateway({ config, plugins: [behavingWithScope(scopes)] });
      return scopes.map(({ key }) => key);
    };
    expect(keys(false)).toEqual(keys(true).slice(1));
  });
});

function behavingWithScope(scopes: unknown[]) {
  const kind = behaving((next) => next);
  const create: typeof kind.create = (_config, { scope, gatewayName }) => {
    scopes.push({ ...scope, gatewayName });
    return (next) => next;
  };
  return { ...kind, name: "spy", create };
}
