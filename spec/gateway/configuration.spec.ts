import { writeFileSync } from "node:fs";
import type { Duplex } from "node:stream";
import { inspect } from "node:util";
import { describe, expect, expectTypeOf, it } from "vitest";
import { ConfigError, createGateway, definePlugin, schema, type ConfigInput } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { behaving, fragile, HANDSHAKE, mark, marking } from "./plugins.ts";

const wrong = { services: [{ name: "s" }] } as unknown as ConfigInput;

function thrown(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

describe("createGateway", () => {
  it("createGateway throws a ConfigError that lists every issue of a configuration value", () => {
    const error = thrown(() => createGateway({ config: wrong })) as ConfigError;
    expect(error).toBeInstanceOf(ConfigError);
    expect(error.name).toBe("ConfigError");
    expect(error.issues.length).toBeGreaterThan(2);
    expect(error.message.trimEnd().split("\n")).toHaveLength(error.issues.length);
    expect(error.message).toContain("services[0].upstreams");
  });

  it("createGateway names file, line and column of every issue of a configuration file", () => {
    const file = fileWith('{\n  "services": 7\n}\n');
    expect((thrown(() => createGateway({ configFile: file })) as Error).message).toContain(`${file}:2:15`);
  });

  it("createGateway throws a ConfigError for a missing file", () => {
    expect(thrown(() => createGateway({ configFile: "/nowhere/gw.json" }))).toBeInstanceOf(ConfigError);
  });

  it.each<[what: string, options: unknown, message: RegExp]>([
    ["nothing", undefined, /^createGateway takes an object with options$/],
    [
      "both config and configFile",
      { config: { services: [] }, configFile: "gw.json" },
      /^createGateway has both config and configFile: leave one out$/,
    ],
    [
      "an unknown option",
      { config: { services: [] }, configfile: "gw.json" },
      /^createGateway has no option "configfile": did you mean "configFile"\?$/,
    ],
    [
      "an option like no other",
      { config: { services: [] }, zebra: 1 },
      /^createGateway has no option "zebra": it has config, configFile, /,
    ],
  ])("createGateway throws a TypeError that says what is wrong for %s", (_what, options, message) => {
    const error = thrown(() => createGateway(options as never));
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toMatch(message);
  });

  it("createGateway takes an unknown option that is undefined as absent", async () => {
    await createGateway({ config: { services: [] }, zebra: undefined } as never).close(0);
  });

  it("createGateway throws a TypeError without config and configFile", () => {
    expect(thrown(() => createGateway({}))).toBeInstanceOf(TypeError);
  });

  it("resolves references from the given environment, and displays them unresolved", async () => {
    const origin = await backend();
    const config = oneService(origin.port, { plugins: [{ name: "key_auth", config: { key: "${env:THE_KEY}" } }] });
    const { gateway, port } = await running(config, { environment: { THE_KEY: "resolved-key" } });
    expect((await ask(port, { path: "/a/x?apiKey=resolved-key" })).status).toBe(200);
    expect(JSON.stringify(gateway.shownConfig)).toContain("${env:THE_KEY}");
    expect(JSON.stringify(gateway.shownConfig)).not.toContain("resolved-key");
  });

  it("counts services, routes and upstreams, and identifies the configuration by 12 hexadecimal digits", () => {
    const gateway = createGateway({ config: oneService([1, 2, 3]) });
    expect(gateway.counts).toEqual({ services: 1, routes: 2, upstreams: 3 });
    expect(gateway.digest).toMatch(/^[0-9a-f]{12}$/);
    expect(createGateway({ config: oneService([1, 2, 3]) }).digest).toBe(gateway.digest);
    expect(createGateway({ config: oneService([1, 2]) }).digest).not.toBe(gateway.digest);
  });
});

describe("custom plugins", () => {
  it(
    "a custom plugin gets its config with defaults filled in and keys in camelCase, " +
      "and TypeScript infers its type",
    async () => {
      const given: unknown[] = [];
      const greet = definePlugin({
        name: "greet",
        schema: schema.object({
          greeting_text: schema.string(),
          how_often: schema.withDefault(schema.integer({ min: 1 }), 2),
        }),
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
    },
  );

  it("a custom plugin's config is checked by its own schema, and issues name their path", () => {
    const config = oneService(9, { plugins: [{ name: "mark", config: { label: 5, labl: "x" } }] });
    const error = thrown(() => createGateway({ config, plugins: [marking([])] })) as ConfigError;
    expect(error.message).toContain("services[0].plugins[0].config.label");
    expect(error.message).toContain("services[0].plugins[0].config.labl");
  });

  it("a custom plugin is an unknown kind unless it is passed to createGateway", () => {
    const error = thrown(() => createGateway({ config: oneService(9, { plugins: [mark("x")] }) })) as ConfigError;
    expect(error.message).toContain("key_auth, rate_limit");
  });

  it.each(["key_auth", "rate_limit"])(
    "createGateway throws a TypeError for a custom plugin named like the built-in %s",
    (name) => {
      const plugin = { ...behaving((next) => next), name };
      expect(thrown(() => createGateway({ config: oneService(9), plugins: [plugin] }))).toEqual(
        new TypeError(`there is already a plugin named "${name}"`),
      );
    },
  );

  it("createGateway throws a TypeError for two custom plugins of one name", () => {
    const plugin = behaving((next) => next);
    expect(thrown(() => createGateway({ config: oneService(9), plugins: [plugin, plugin] }))).toBeInstanceOf(TypeError);
  });

  it.each(["", "Upper", "with-dash", "1st"])(
    "createGateway throws a TypeError for a custom plugin with the name %j",
    (name) => {
      const plugin = { ...behaving((next) => next), name };
      expect(thrown(() => createGateway({ config: oneService(9), plugins: [plugin] }))).toBeInstanceOf(TypeError);
    },
  );

  it("createGateway throws when a plugin cannot be created, and names its place in the configuration", () => {
    const config = oneService(9, {
      routes: [{ name: "r", path: "/", plugins: [{ name: "fragile", config: { broken: true } }] }],
    });
    const message = 'plugin fragile of route "r" of service "s" cannot be created: the fragile thing broke';
    const issue = { at: ["services", 0, "routes", 0, "plugins", 0], message, position: null };
    const error = thrown(() => createGateway({ config, plugins: [fragile] }));
    expect(error).toBeInstanceOf(ConfigError);
    expect(error).toMatchObject({
      issues: [issue],
      message: `services[0].routes[0].plugins[0]  ${message}`,
      cause: { message: "the fragile thing broke" },
    });
    const file = fileWith({ global: { plugins: [{ name: "fragile", config: { broken: true } }] }, services: [] });
    expect(thrown(() => createGateway({ configFile: file, plugins: [fragile] }))).toMatchObject({
      file,
      message: expect.stringMatching(
        new RegExp(
          String.raw`gw\.json:1:\d+  global\.plugins\[0\]  plugin fragile of the global level ` +
            String.raw`cannot be created: the fragile thing broke$`,
        ),
      ),
    });
  });
});

describe("reload", () => {
  it("reload puts the given configuration into force", async () => {
    const [one, two] = [
      await backend((_q, response) => response.end("one")),
      await backend((_q, response) => response.end("two")),
    ];
    const { gateway, port } = await running(oneService(one.port));
    const { digest } = gateway;
    const reloaded = await gateway.reload(oneService(two.port));
    const changes = [
      { kind: "upstream", name: `service "s" / upstream "127.0.0.1:${two.port}"`, change: "added", fields: [] },
      { kind: "upstream", name: `service "s" / upstream "127.0.0.1:${one.port}"`, change: "removed", fields: [] },
    ];
    expect(reloaded).toEqual({ digest: gateway.digest, changed: true, changes });
    expect(gateway.digest).not.toBe(digest);
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe("two");
    expect(await gateway.reload(oneService(two.port))).toEqual({ digest: gateway.digest, changed: false, changes: [] });
  });

  it("reload reads the file again if no configuration is given", async () => {
    const origin = await backend();
    const file = fileWith(oneService(origin.port));
    const gateway = createGateway({ configFile: file });
    expect((await gateway.inject({ url: "/b/x" })).status).toBe(404);
    writeFileSync(file, JSON.stringify(oneService(origin.port, { base_path: "/b" })));
    expect((await gateway.reload()).changed).toBe(true);
    expect((await gateway.inject({ url: "/b/x" })).status).toBe(200);
    await gateway.close(0);
  });

  it("a refused reload keeps all of the old configuration", async () => {
    const origin = await backend();
    const { gateway, port } = await running(oneService(origin.port));
    const { digest, shownConfig } = gateway;
    await expect(gateway.reload(wrong)).rejects.toBeInstanceOf(ConfigError);
    expect(gateway.digest).toBe(digest);
    expect(gateway.shownConfig).toBe(shownConfig);
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect(origin.connections.total).toBe(1);
  });

  it(
    "the message of a plugin that cannot be created, and its cause, " +
      "show no secret that the configuration has or refers to",
    async () => {
      const config = schema.object({ token: schema.string(), own: schema.string({ secret: true }) });
      const telling = definePlugin({
        name: "telling",
        schema: config,
        create: ({ token, own }) => {
          throw new Error(`cannot log in with ${token} and ${own}`);
        },
      });
      const plugins = [{ name: "telling", config: { token: "${env:TOKEN}", own: "hunter2-hunter2" } }] as never;
      const error = thrown(() =>
        createGateway({
          config: oneService(9, { plugins }),
          plugins: [telling],
          environment: { TOKEN: "s3cret-s3cret" },
        }),
      ) as Error;
      expect(error.message).toContain(
        'plugin telling of service "s" cannot be created: cannot log in with ${env:TOKEN} and ********',
      );
      expect(inspect(error)).not.toMatch(/s3cret|hunter2/);
      const gateway = createGateway({
        config: oneService(9),
        plugins: [telling],
        environment: { TOKEN: "s3cret-s3cret" },
      });
      await expect(gateway.reload(oneService(9, { plugins }))).rejects.toThrow("cannot log in with ${env:TOKEN}");
      expect(JSON.stringify(gateway.status.lastReload)).not.toMatch(/s3cret|hunter2/);
    },
  );

  it("a reload whose plugin cannot be created changes nothing: pools, limits and rotation stay", async () => {
    const names: string[] = [];
    const origins = await Promise.all(
      ["one", "two"].map((name) => backend((_request, response) => (names.push(name), response.end()))),
    );
    const ports = origins.map(({ port }) => port);
    const limit = (limit_hour: number) => ({ name: "rate_limit", config: { limit_hour } });
    const { gateway, port } = await running(oneService(ports, { plugins: [limit(3)], pool: { max_connections: 5 } }), {
      plugins: [fragile],
    });
    const first = await ask(port, { path: "/a/x" });
    expect(first.headers.ratelimit).toContain("r=2");
    const broken = oneService(ports[0]!, {
      plugins: [limit(100), { name: "fragile", config: { broken: true } }],
      pool: { max_connections: 1, keepalive_idle_ms: 5 },
    });
    await expect(gateway.reload(broken)).rejects.toMatchObject({
      message: expect.stringContaining("the fragile thing broke") as string,
    });
    const second = await ask(port, { path: "/a/x" });
    expect(second.headers.ratelimit).toContain("r=1");
    expect(second.headers["ratelimit-policy"]).toContain("q=3");
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect((await ask(port, { path: "/a/x" })).status).toBe(429);
    expect(names).toEqual(["one", "two", "one"]);
    expect(origins[0]!.connections.total).toBe(1);
  });

  it("a request keeps its first configuration over a reload, even for the plugins that see its reply", async () => {
    const trail: string[] = [];
    let finish = () => {};
    const origin = await backend((_request, response) => (finish = () => void response.end("ok")));
    const config = (label: string) => oneService(origin.port, { plugins: [mark(label)] });
    const { gateway, port } = await running(config("old"), { plugins: [marking(trail)] });
    const answer = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 1, "one request at the upstream");
    await gateway.reload(config("new"));
    finish();
    expect((await answer).headers["x-trail"]).toBe("old");
    const next = ask(port, { path: "/a/x" });
    await eventually(() => origin.seen.length === 2, "two requests at the upstream");
    finish();
    expect((await next).headers["x-trail"]).toBe("new");
    expect(trail).toEqual([">old", "<old", ">new", "<new"]);
  });

  it("a reload keeps WebSockets open, including the WebSockets of a removed route", async () => {
    const { port, server } = await backend();
    server.on("upgrade", (_request, socket: Duplex) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
      socket.pipe(socket);
    });
    const gateway = await running(oneService(port));
    const client = await connect(gateway.port);
    client.send(HANDSHAKE);
    await client.until("\r\n\r\n");
    await gateway.gateway.reload({ services: [] });
    client.send("still here");
    await client.until("still here");
    client.socket.destroy();
  });
});

describe("the access log over a reload", () => {
  it.each([
    [true, false, 1],
    [false, true, 0],
  ])(
    "a request that arrived with the access log at %s keeps that setting, even if it is %s when the request ends",
    async (before, after, lines) => {
      const written: string[] = [];
      const answers: (() => void)[] = [];
      const { port: upstream } = await backend((_request, response) => void answers.push(() => response.end("ok")));
      const config = (enabled: boolean) => oneService(upstream, {}, { access_log: { enabled } });
      const { gateway, port } = await running(config(before), { accessLog: (text) => void written.push(text) });
      const answer = ask(port, { path: "/a/x" });
      await eventually(() => answers.length === 1, "one request to answer");
      await gateway.reload(config(after));
      answers[0]!();
      expect((await answer).status).toBe(200);
      await gateway.close(2_000);
      expect(
        written
          .join("")
          .split("\n")
          .filter((line) => line !== ""),
      ).toHaveLength(lines);
    },
  );
});

describe("a configuration with many errors", () => {
  it(
    "all errors of a configuration are reported at once: fields, " +
      "patterns below a broken base_path, conflicts, references",
    () => {
      const file = fileWith(`{
  "services": [
    { "name": "a", "base_path": "a", "upstreams": [{ "host": "h", "port": "80a" }], "routes": [{ "path": "/x/v{y}" }] },
    { "name": "b", "base_path": "/b", "upstreams": [{ "host": "\${env:NOPE}", "port": 1 }], "routes": [{ "path": "/x" \
}, { "path": "/x", "name": "y" }] }
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
    },
  );
});
