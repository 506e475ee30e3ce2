import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { describe, expect, expectTypeOf, it, onTestFinished, vi } from "vitest";
import { ConfigError, createGateway, createLog, definePlugin, schema, version, type ConfigInput } from "../../lib/index.ts";
import { SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { backend, hosted, oneService, running } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { ask, connect, eventually, refused } from "../support/raw_client.ts";
import { behaving, fragile, HANDSHAKE, mark, marking } from "./plugins.ts";

const wrong = { services: [{ name: "s" }] } as unknown as ConfigInput;
const TLS = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };

function thrown(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

describe("createGateway", () => {
  it("throws a ConfigError that lists every issue of a value", () => {
    const error = thrown(() => createGateway({ config: wrong })) as ConfigError;
    expect(error).toBeInstanceOf(ConfigError);
    expect(error.name).toBe("ConfigError");
    expect(error.issues.length).toBeGreaterThan(2);
    expect(error.message.trimEnd().split("\n")).toHaveLength(error.issues.length);
    expect(error.message).toContain("services[0].upstreams");
  });

  it("names file, line and column of every issue of a file", () => {
    const file = fileWith('{\n  "services": 7\n}\n');
    expect((thrown(() => createGateway({ configFile: file })) as Error).message).toContain(`${file}:2:15`);
  });

  it("throws a ConfigError for a file that is not there", () => {
    expect(thrown(() => createGateway({ configFile: "/nowhere/gw.json" }))).toBeInstanceOf(ConfigError);
  });

  it("throws a TypeError without config and configFile", () => {
    expect(thrown(() => createGateway({}))).toBeInstanceOf(TypeError);
  });

  it("reads references from the environment it is given, and shows them unresolved", async () => {
    const origin = await backend();
    const config = oneService(origin.port, { plugins: [{ name: "key_auth", config: { key: "${env:THE_KEY}" } }] });
    const { gateway, port } = await running(config, { environment: { THE_KEY: "resolved-key" } });
    expect((await ask(port, { path: "/a/x?apiKey=resolved-key" })).status).toBe(200);
    expect(JSON.stringify(gateway.shownConfig)).toContain("${env:THE_KEY}");
    expect(JSON.stringify(gateway.shownConfig)).not.toContain("resolved-key");
  });

  it("counts services, routes and upstreams, and names the configuration by 12 hexadecimal digits", () => {
    const gateway = createGateway({ config: oneService([1, 2, 3]) });
    expect(gateway.counts).toEqual({ services: 1, routes: 2, upstreams: 3 });
    expect(gateway.digest).toMatch(/^[0-9a-f]{12}$/);
    expect(createGateway({ config: oneService([1, 2, 3]) }).digest).toBe(gateway.digest);
    expect(createGateway({ config: oneService([1, 2]) }).digest).not.toBe(gateway.digest);
  });
});

describe("custom plugins", () => {
  it("get their config as their schema gives it, defaults filled in and keys in camelCase, also to TypeScript", async () => {
    const given: unknown[] = [];
    const greet = definePlugin({
      name: "greet",
      schema: schema.object({ greeting_text: schema.string(), how_often: schema.withDefault(schema.integer({ min: 1 }), 2) }),
      create(config) {
        expectTypeOf(config.greetingText).toEqualTypeOf<string>();
        expectTypeOf(config.howOften).toEqualTypeOf<number>();
        given.push(config);
        const body = Buffer.from(config.greetingText.repeat(config.howOften));
        return () => () => ({ status: 200, headers: ["Content-Length", String(body.length)], body });
      },
    });
    const config = oneService(9, { plugins: [{ name: "greet", config: { greeting_text: "hi " } }] });
    const { port } = await running(config, { plugins: [greet] });
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("hi hi ");
    expect(given).toEqual([{ greetingText: "hi ", howOften: 2 }]);
  });

  it("have their config checked by their own schema, with its path", () => {
    const config = oneService(9, { plugins: [{ name: "mark", config: { label: 5, labl: "x" } }] });
    const error = thrown(() => createGateway({ config, plugins: [marking([])] })) as ConfigError;
    expect(error.message).toContain("services[0].plugins[0].config.label");
    expect(error.message).toContain("services[0].plugins[0].config.labl");
  });

  it("are unknown where they are not given", () => {
    const error = thrown(() => createGateway({ config: oneService(9, { plugins: [mark("x")] }) })) as ConfigError;
    expect(error.message).toContain("key_auth, rate_limit");
  });

  it.each(["key_auth", "rate_limit"])("a TypeError for one that calls itself %s", (name) => {
    const plugin = { ...behaving((next) => next), name };
    expect(thrown(() => createGateway({ config: oneService(9), plugins: [plugin] }))).toEqual(new TypeError(`there is already a plugin named "${name}"`));
  });

  it("a TypeError for two of one name", () => {
    const plugin = behaving((next) => next);
    expect(thrown(() => createGateway({ config: oneService(9), plugins: [plugin, plugin] }))).toBeInstanceOf(TypeError);
  });

  it.each(["", "Upper", "with-dash", "1st"])("a TypeError for the name %j", (name) => {
    const plugin = { ...behaving((next) => next), name };
    expect(thrown(() => createGateway({ config: oneService(9), plugins: [plugin] }))).toBeInstanceOf(TypeError);
  });

  it("one that cannot be created stops the start, saying where it stands", () => {
    const config = oneService(9, { routes: [{ name: "r", path: "/", plugins: [{ name: "fragile", config: { broken: true } }] }] });
    const message = 'plugin fragile of route "r" of service "s" cannot be created: the fragile thing broke';
    expect(thrown(() => createGateway({ config, plugins: [fragile] }))).toMatchObject({ message });
  });
});

describe("listen", () => {
  it("listens on several addresses at once", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    const second = await gateway.listen({ port: 0 });
    expect(second.port).not.toBe(port);
    for (const each of [port, second.port]) expect((await ask(each, { path: "/a/x" })).status).toBe(200);
  });

  it("rejects with EADDRINUSE for a port that is taken, and goes on where it listens", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    await expect(gateway.listen({ port })).rejects.toMatchObject({ code: "EADDRINUSE" });
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it("rejects for an HTTPS listener without a plain one before it", async () => {
    const gateway = createGateway({ config: oneService(9) });
    await expect(gateway.listen({ port: 0, tls: TLS })).rejects.toThrow("a plain listener has to be there");
    await gateway.close(0);
  });

  it("rejects after close, and while closing", async () => {
    const { gateway } = await running(oneService(9));
    const closing = gateway.close(0);
    await expect(gateway.listen({ port: 0 })).rejects.toThrow("the gateway is being closed");
    await closing;
    await expect(gateway.listen({ port: 0 })).rejects.toThrow("the gateway is being closed");
  });

  it("leaves no socket behind when close comes before it is done", async () => {
    const gateway = createGateway({ config: oneService(9) });
    const server = http.createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const listening = gateway.listen({ port });
    const refused = expect(listening).rejects.toThrow("the gateway is being closed");
    await gateway.close(0);
    await refused;
    await expect(connect(port)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });
});

describe("reload", () => {
  it("takes the configuration it is given", async () => {
    const [one, two] = [await backend((_q, response) => response.end("one")), await backend((_q, response) => response.end("two"))];
    const { gateway, port } = await running(oneService(one.port));
    const { digest } = gateway;
    const reloaded = gateway.reload(oneService(two.port));
    const changes = [
      { kind: "upstream", name: `service "s" / upstream "127.0.0.1:${two.port}"`, change: "added" },
      { kind: "upstream", name: `service "s" / upstream "127.0.0.1:${one.port}"`, change: "removed" },
    ];
    expect(reloaded).toEqual({ digest: gateway.digest, changed: true, changes });
    expect(gateway.digest).not.toBe(digest);
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("two");
    expect(gateway.reload(oneService(two.port))).toEqual({ digest: gateway.digest, changed: false, changes: [] });
  });

  it("reads the file anew when none is given", async () => {
    const origin = await backend();
    const file = fileWith(oneService(origin.port));
    const gateway = createGateway({ configFile: file });
    expect((await gateway.inject({ path: "/b/x" })).status).toBe(404);
    writeFileSync(file, JSON.stringify(oneService(origin.port, { base_path: "/b" })));
    expect(gateway.reload().changed).toBe(true);
    expect((await gateway.inject({ path: "/b/x" })).status).toBe(200);
    await gateway.close(0);
  });

  it("keeps all of the old configuration when the new one is wrong", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    const { digest, shownConfig } = gateway;
    expect(thrown(() => gateway.reload(wrong))).toBeInstanceOf(ConfigError);
    expect(gateway.digest).toBe(digest);
    expect(gateway.shownConfig).toBe(shownConfig);
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect(origin.connections.total).toBe(1);
  });

  it("keeps the old one when a plugin cannot be created, and touches nothing: pools, limits, rotation", async () => {
    const names: string[] = [];
    const origins = await Promise.all(["one", "two"].map((name) => backend((_request, response) => (names.push(name), response.end()))));
    const ports = origins.map(({ port }) => port);
    const limit = (limit_hour: number) => ({ name: "rate_limit", config: { limit_hour } });
    const { gateway, port } = await running(oneService(ports, { plugins: [limit(3)], pool: { max_connections: 5 } }), { plugins: [fragile] });
    const first = await ask(port, { path: "/a/x" });
    expect(first.headers.ratelimit).toContain("r=2");
    const broken = oneService(ports[0]!, {
      plugins: [limit(100), { name: "fragile", config: { broken: true } }],
      pool: { max_connections: 1, keepalive_idle_ms: 5 },
    });
    expect(thrown(() => gateway.reload(broken))).toMatchObject({ message: expect.stringContaining("the fragile thing broke") as string });
    const second = await ask(port, { path: "/a/x" });
    expect(second.headers.ratelimit).toContain("r=1");
    expect(second.headers["ratelimit-policy"]).toContain("q=3");
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
    expect(names).toEqual(["one", "two", "one"]);
    expect(origins[0]!.connections.total).toBe(1);
  });

  it("leaves requests under way with the configuration they began with, plugins of the way back included", async () => {
    const trail: string[] = [];
    let finish = () => {};
    const origin = await backend((_request, response) => (finish = () => void response.end("ok")));
    const config = (label: string) => oneService(origin.port, { plugins: [mark(label)] });
    const { gateway, port } = await running(config("old"), { plugins: [marking(trail)] });
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 1);
    gateway.reload(config("new"));
    finish();
    expect((await answer).headers["x-trail"]).toBe("old");
    const next = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 2);
    finish();
    expect((await next).headers["x-trail"]).toBe("new");
    expect(trail).toEqual([">old", "<old", ">new", "<new"]);
  });

  it("leaves open WebSockets open, also those of a route that is gone", async () => {
    const { port, server } = await backend();
    server.on("upgrade", (_request, socket: Duplex) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
      socket.pipe(socket);
    });
    const gateway = await running(oneService(port));
    const client = await connect(gateway.port);
    client.send(HANDSHAKE);
    await client.until("\r\n\r\n");
    gateway.gateway.reload({ services: [] });
    client.send("still here");
    await client.until("still here");
    client.socket.destroy();
  });
});

describe("status", () => {
  it("tells version, uptime, what is in force since when, and the last reload, taken or refused", async () => {
    const clock = manualClock();
    const { gateway } = await running(oneService(9), { clock });
    const made = clock.wall();
    const { digest } = gateway;
    clock.advance(1_500);
    expect(gateway.status).toEqual({
      version,
      state: "serving",
      ready: true,
      uptimeMs: 1_500,
      inFlight: 0,
      digest,
      loadedAt: made,
      counts: { services: 1, routes: 2, upstreams: 1 },
      lastReload: null,
      lastChange: null,
      pluginFaults: [],
      certificates: [],
      warnings: [],
    });
    const { changes } = gateway.reload({ services: [] }, "signal");
    expect(gateway.status).toMatchObject({ loadedAt: made + 1_500, digest: gateway.digest, counts: { services: 0 } });
    expect(gateway.status.lastReload).toEqual({ at: made + 1_500, by: "signal", digest: gateway.digest, outcome: "taken", changes });
    clock.advance(500);
    const { issues } = thrown(() => gateway.reload(wrong)) as ConfigError;
    expect(gateway.status.loadedAt).toBe(made + 1_500);
    expect(gateway.status.lastReload).toMatchObject({ at: made + 2_000, by: "api", digest: gateway.digest, outcome: "refused" });
    expect((gateway.status.lastReload as { issues?: unknown }).issues).toHaveLength(issues.length);
    gateway.reload({ services: [] });
    expect(gateway.status.lastReload).toMatchObject({ by: "api", outcome: "taken", changes: [] });
    expect(gateway.status.lastChange).toEqual({ at: made + 1_500, by: "signal", digest: gateway.digest, outcome: "taken", changes });
  });

  it("names the fault when a plugin could not be created", async () => {
    const { gateway } = await running(oneService(9), { plugins: [fragile] });
    thrown(() => gateway.reload(oneService(9, { plugins: [{ name: "fragile", config: { broken: true } }] })));
    expect(gateway.status.lastReload).toMatchObject({ outcome: "refused", issues: [expect.stringContaining("the fragile thing broke")] });
  });

  it("lists the upstreams of every service under health", async () => {
    const { gateway } = await running(oneService([8, 9]));
    const upstream = (port: number) => ({ id: `127.0.0.1:${port}`, host: "127.0.0.1", port });
    expect(gateway.health).toMatchObject({ services: [{ name: "s", upstreams: [upstream(8), upstream(9)] }] });
  });
});

describe("announceStop", () => {
  it("turns ready to false while requests and connections are still taken; HTTP/1 clients are asked to connect anew", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    gateway.announceStop();
    expect([gateway.ready, gateway.status.state]).toEqual([false, "stopping"]);
    const answer = await ask(port, { path: "/a/x", headers: { Connection: "keep-alive" } });
    expect([answer.status, answer.headers.connection]).toEqual([200, "close"]);
    expect((await gateway.listen({ port: 0 })).port).toBeGreaterThan(0);
    expect(await gateway.close()).toBe("drained");
    gateway.announceStop();
    expect(gateway.status.state).toBe("closed");
  });
});

describe("the access log over a reload", () => {
  it.each([
    [true, false, 1],
    [false, true, 0],
  ])("a request that came while it was %s is judged by that, though it ends when it is %s", async (before, after, lines) => {
    const written: string[] = [];
    const answers: (() => void)[] = [];
    const { port: upstream } = await backend((_request, response) => void answers.push(() => response.end("ok")));
    const config = (enabled: boolean) => oneService(upstream, {}, { access_log: { enabled } });
    const { gateway, port } = await running(config(before), { accessLog: (text) => void written.push(text) });
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => answers.length === 1);
    gateway.reload(config(after));
    answers[0]!();
    expect((await answer).status).toBe(200);
    await gateway.close(2_000);
    expect(written.join("").split("\n").filter((line) => line !== "")).toHaveLength(lines);
  });
});

describe("close", () => {
  it("waits as long as it is told, also longer than a timer of node's can be", async () => {
    const answers: (() => void)[] = [];
    const { port: upstream } = await backend((_request, response) => void answers.push(() => response.end("late")));
    const { gateway, port } = await running(oneService(upstream));
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => answers.length === 1);
    const closed = gateway.close(Infinity);
    await new Promise((resolve) => setImmediate(resolve));
    answers[0]!();
    expect((await answer).body.toString()).toBe("late");
    expect(await closed).toBe("drained");
  });

  it("is drained at once when nothing is open, and refuses connections afterwards", async () => {
    const { gateway, port } = await running(oneService(9));
    expect(await gateway.close()).toBe("drained");
    expect(gateway.ready).toBe(false);
    await expect(connect(port)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });

  it("ends reloads, too: what one would start, nobody would end any more", async () => {
    const clock = manualClock();
    const { gateway } = await running(oneService(9), { clock });
    await gateway.close();
    const pending = clock.pending;
    expect(() => gateway.reload(oneService(9, { health: { enabled: true } }))).toThrow("the gateway has been closed");
    expect(gateway.status.lastReload).toMatchObject({ outcome: "refused", issues: ["the gateway has been closed"] });
    expect(gateway.rereadFiles()).toBe(false);
    expect(clock.pending).toBe(pending);
  });

  it("closes keep-alive connections that stay idle, to clients and to upstreams, without waiting for the grace", async () => {
    const origin = await backend();
    const clock = manualClock();
    const { gateway, port } = await running(oneService(origin.port), { clock });
    const client = await connect(port);
    client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until(/\r\n\r\n(.|\r|\n)*ok/);
    const closing = gateway.close();
    await refused(port);
    expect(client.socket.readyState).toBe("open");
    clock.advance(1_000);
    expect(await closing).toBe("drained");
    await client.closed();
    await eventually(() => origin.connections.open === 0);
  });

  it("closes connections that never sent a request after half of a short grace", async () => {
    const clock = manualClock();
    // The grace itself is timed by the system, and on a busy machine could be over before the connections are closed.
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const { gateway, port } = await running(oneService(9), { clock });
    const client = await connect(port);
    const closing = gateway.close(1_500);
    await refused(port);
    clock.advance(750);
    expect(await closing).toBe("drained");
    await client.closed();
  });

  it("lets requests in flight finish, says Connection: close to them, and takes no new connections", async () => {
    let finish = () => {};
    const origin = await backend((_request, response) => (finish = () => void response.end("whole")));
    const { gateway, port } = await running(oneService(origin.port));
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 1);
    const closing = gateway.close();
    expect(gateway.ready).toBe(false);
    expect(gateway.inFlight).toBe(1);
    await eventually(() => !gateway.ready);
    await refused(port);
    finish();
    const { status, headers, body } = await answer;
    expect([status, headers.connection, body.toString()]).toEqual([200, "close", "whole"]);
    expect(await closing).toBe("drained");
  });

  it("cuts off what is left when the grace is over: the client sees a break, not an end", async () => {
    const origin = await backend((_request, response) => void response.write("part"));
    const { gateway, port } = await running(oneService(origin.port));
    const client = await connect(port);
    client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("part");
    expect(await gateway.close(5)).toBe("cut");
    expect(await client.closed()).not.toContain("\r\n0\r\n");
    await eventually(() => origin.connections.open === 0);
    expect(gateway.inFlight).toBe(0);
  });

  it("cuts open WebSockets on both sides", async () => {
    const { port, server, connections } = await backend();
    server.on("upgrade", (_request, socket: Duplex) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
      socket.pipe(socket);
    });
    const gateway = await running(oneService(port));
    const client = await connect(gateway.port);
    client.send(HANDSHAKE);
    await client.until("\r\n\r\n");
    expect(await gateway.gateway.close(5)).toBe("cut");
    await client.closed();
    await eventually(() => connections.open === 0);
  });

  it("called twice, gives the same outcome, and the shorter grace counts", async () => {
    const origin = await backend(() => {});
    const { gateway, port } = await running(oneService(origin.port));
    const answer = expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    await eventually(() => origin.seen.length === 1);
    const first = gateway.close(60_000);
    const second = gateway.close(5);
    expect(await Promise.all([first, second, gateway.close()])).toEqual(["cut", "cut", "cut"]);
    await answer;
    expect(await gateway.close()).toBe("cut");
  });

  it("has the access log's last lines written before it resolves, those of what was cut off too", async () => {
    const origin = await backend(() => {});
    let log = "";
    const { gateway, port } = await running(oneService(origin.port), { accessLog: (lines) => void (log += lines) });
    const answer = expect(ask(port, { path: "/a/x" })).rejects.toThrow();
    await eventually(() => origin.seen.length === 1);
    await gateway.close(0);
    expect(JSON.parse(log)).toMatchObject({ path: "/a/x", status: null, code: "client_closed" });
    await answer;
  });
});

describe("handler and upgrade in a host's own server", () => {
  async function host(config: ConfigInput) {
    const gateway = createGateway({ config, log: createLog({ level: "silent" }) });
    const server = http.createServer((request, response) => {
      if (request.url === "/own") response.end("the host's");
      else gateway.handler(request, response);
    });
    server.on("upgrade", gateway.upgrade);
    return { gateway, port: await hosted(gateway, server) };
  }

  it("serve what the host hands over, and leave the rest to it", async () => {
    const origin = await backend((_request, response, body) => response.end(`got ${body.toString()}`));
    const { port } = await host(oneService(origin.port));
    expect((await ask(port, { path: "/own" })).body.toString()).toBe("the host's");
    expect((await ask(port, { method: "POST", path: "/a/x", body: "this" })).body.toString()).toBe("got this");
    expect((await ask(port, { path: "/none" })).status).toBe(404);
  });

  it("pass WebSockets, and cut them on both sides at close", async () => {
    const origin = await backend();
    origin.server.on("upgrade", (_request, socket: Duplex) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
      socket.pipe(socket);
    });
    const { gateway, port } = await host(oneService(origin.port));
    const client = await connect(port);
    client.send(HANDSHAKE);
    await client.until("\r\n\r\n");
    client.send("echo me");
    await client.until("echo me");
    expect(await gateway.close(5)).toBe("cut");
    await client.closed();
    await eventually(() => origin.connections.open === 0);
  });

  it("end requests to upstreams that are gone from the configuration, too, when the grace is over", async () => {
    const origin = await backend((_request, response) => void response.write("part"));
    const { gateway, port } = await host(oneService(origin.port));
    const client = await connect(port);
    client.send("GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("part");
    gateway.reload({ services: [] });
    gateway.reload({ services: [] });
    expect(await gateway.close(5)).toBe("cut");
    await client.closed();
    await eventually(() => origin.connections.open === 0);
  });

  it("answer 503 overloaded once the gateway is closed, and end the connection", async () => {
    const { gateway, port } = await host(oneService(9));
    await gateway.close();
    const answer = await ask(port, { path: "/a/x" });
    expect(answer.status).toBe(503);
    expect(answer.headers.connection).toBe("close");
    expect(JSON.parse(answer.body.toString())).toMatchObject({ code: "overloaded" });
    const client = await connect(port);
    client.send(HANDSHAKE);
    expect(await client.closed()).toMatch(/^HTTP\/1\.1 503 /);
  });
});

describe("a configuration with faults of every sort", () => {
  it("has all of them told at once: fields, patterns below a broken base_path, conflicts, references", () => {
    const file = fileWith(`{
  "services": [
    { "name": "a", "base_path": "a", "upstreams": [{ "host": "h", "port": "80a" }], "routes": [{ "path": "/x/v{y}" }] },
    { "name": "b", "base_path": "/b", "upstreams": [{ "host": "\${env:NOPE}", "port": 1 }], "routes": [{ "path": "/x" }, { "path": "/x", "name": "y" }] }
  ],
  "glob": {}
}`);
    const { issues } = thrown(() => createGateway({ configFile: file, environment: {} })) as ConfigError;
    expect(issues.map(({ at, position }) => `${position!.line} ${at.join(".")}`)).toEqual([
      "3 services.0.base_path",
      "3 services.0.upstreams.0.port",
      "3 services.0.routes.0.path",
      "4 services.1.upstreams.0.host",
      "4 services.1.routes.1.path",
      "6 glob",
    ]);
  });
});
