import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { readManagerSettings } from "../../lib/config/command_settings.ts";
import { readSettings } from "../../lib/config/settings.ts";
import { SERVER } from "../support/certs.ts";
import { backend } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";
import { json, PASSWORD, USER, fullGateway, type FullGateway } from "./full_gateway.ts";

const shown = async ({ admin, login }: FullGateway, path = "/gateway") =>
  json(await admin("GET", path, { Cookie: `token=${await login()}` }));

/** Every field of sections 2.1 to 2.5, as in a file. */
const everything = (port: number) => ({
  global: {
    name: "the-gateway",
    plugins: [
      { id: "g", name: "rate_limit", enabled: true, config: { limit_second: 100, limit_min: 1000, limit_hour: 10000 } },
    ],
  },
  services: [
    {
      name: "shop",
      base_path: "/shop",
      protocol: "http",
      load_balancing_strategy: "round_robin",
      upstreams: [{ id: "u1", host: "127.0.0.1", port }],
      routes: [
        { name: "item", path: "/items/{id}", methods: ["GET"], plugins: [] },
        {
          name: "locked",
          path: "/locked",
          methods: ["GET", "POST"],
          plugins: [{ name: "key_auth", enabled: true, config: { key: "k" } }],
        },
      ],
      plugins: [{ name: "key_auth", enabled: false, config: { key: "never" } }],
    },
  ],
});

describe("2.1 Configuration file", () => {
  it("accepts every field of the seed, and shows each as it was written", async () => {
    const origin = await backend();
    const config = everything(origin.port);
    const gateway = await fullGateway(config);
    expect((await gateway.proxy("/shop/items/1")).status).toBe(200);
    const view = await shown(gateway);
    expect(view.services).toMatchObject(config.services);
    expect(view.plugins).toMatchObject(config.global.plugins);
  });

  it("global.name names the gateway", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(everything(origin.port));
    expect((await proxy("/shop/locked")).headers["www-authenticate"]).toContain('"the-gateway"');
  });

  it("applies global.plugins to all services and routes", async () => {
    const origin = await backend();
    const service = (name: string) => ({
      name,
      base_path: `/${name}`,
      upstreams: [{ host: "127.0.0.1", port: origin.port }],
      routes: [{ path: "/r" }, { path: "/s" }],
    });
    const { proxy } = await fullGateway({
      global: { plugins: [{ name: "key_auth", config: { key: "k" } }] },
      services: [service("a"), service("b")],
    });
    for (const path of ["/a/r", "/a/s", "/b/r", "/b/s"]) {
      expect((await proxy(path)).status).toBe(401);
      expect((await proxy(`${path}?apiKey=k`)).status).toBe(200);
    }
  });

  it(
    "GET /gateway returns the ProxyConfig: an array services and a top-level array " + "plugins, the global ones",
    async () => {
      const view = await shown(await fullGateway(everything(9)));
      expect(Array.isArray(view.services)).toBe(true);
      expect(view.plugins).toEqual([expect.objectContaining({ id: "g", name: "rate_limit" })]);
    },
  );
});

describe("2.2 Service", () => {
  it("base_path selects the service", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(everything(origin.port));
    expect((await proxy("/shop/items/1")).status).toBe(200);
    expect((await proxy("/other/items/1")).status).toBe(404);
  });

  it("base_path starts with '/'", async () => {
    const config = everything(9);
    config.services[0]!.base_path = "shop";
    await expect(fullGateway(config)).rejects.toThrow(/services\[0\]\.base_path .*write "\/shop"/);
  });

  it("protocol selects http or https towards upstreams", async () => {
    const server = createServer({ cert: SERVER.cert, key: SERVER.key }, (_request, response) =>
      response.end("over TLS"),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => new Promise((resolve) => (server.close(() => resolve()), server.closeAllConnections())));
    const service = {
      name: "s",
      base_path: "/s",
      protocol: "https",
      upstreams: [{ host: "127.0.0.1", port: (server.address() as AddressInfo).port }],
      routes: [{ path: "/r" }],
    };
    // The upstream's certificate is not signed by a known CA: the handshake is attempted, and the answer is a 502.
    const handshakes: unknown[] = [];
    server
      .on("tlsClientError", (error) => handshakes.push(error))
      .on("secureConnection", (socket) => handshakes.push(socket));
    const { proxy } = await fullGateway({ services: [service] });
    expect((await proxy("/s/r")).status).toBe(502);
    await eventually(() => handshakes.length > 0, "a TLS handshake");
  });

  it("load_balancing_strategy round_robin uses the upstreams in turn", async () => {
    const names: string[] = [];
    const origins = await Promise.all(
      ["one", "two", "three"].map((name) => backend((_q, response) => (names.push(name), response.end()))),
    );
    const upstreams = origins.map(({ port }) => ({ host: "127.0.0.1", port }));
    const { proxy } = await fullGateway({
      services: [
        { name: "s", base_path: "/s", load_balancing_strategy: "round_robin", upstreams, routes: [{ path: "/r" }] },
      ],
    });
    for (let i = 0; i < 6; i++) await proxy("/s/r");
    expect(names).toEqual(["one", "two", "three", "one", "two", "three"]);
  });

  it("applies plugins of a service to all of its routes and to no other service", async () => {
    const origin = await backend();
    const upstreams = [{ host: "127.0.0.1", port: origin.port }];
    const routes = [{ path: "/r" }, { path: "/s" }];
    const { proxy } = await fullGateway({
      services: [
        { name: "a", base_path: "/a", upstreams, routes, plugins: [{ name: "key_auth", config: { key: "k" } }] },
        { name: "b", base_path: "/b", upstreams, routes },
      ],
    });
    expect([(await proxy("/a/r")).status, (await proxy("/a/s")).status, (await proxy("/b/r")).status]).toEqual([
      401, 401, 200,
    ]);
  });
});

describe("2.3 Upstream", () => {
  it("host and port say where requests go; host may be a name", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway({
      services: [
        {
          name: "s",
          base_path: "/s",
          upstreams: [{ id: "u", host: "localhost", port: origin.port }],
          routes: [{ path: "/r" }],
        },
      ],
    });
    expect((await proxy("/s/r")).status).toBe(200);
    expect(origin.seen).toHaveLength(1);
  });

  it(
    "id identifies the upstream within its service: twice in one service is an error, " + "once in each of two is not",
    async () => {
      const service = (name: string, ...ids: string[]) => ({
        name,
        base_path: `/${name}`,
        upstreams: ids.map((id, i) => ({ id, host: "127.0.0.1", port: 9 + i })),
        routes: [{ path: "/r" }],
      });
      await expect(fullGateway({ services: [service("a", "u", "u")] })).rejects.toThrow(
        /services\[0\]\.upstreams\[1\]/,
      );
      await fullGateway({ services: [service("a", "u"), service("b", "u")] });
    },
  );

  it.each([0, 65536, 1.5, "80a"])("port is an integer 1–65535, not %j", async (port) => {
    const services = [{ name: "s", base_path: "/s", upstreams: [{ host: "h", port }], routes: [] }];
    await expect(fullGateway({ services })).rejects.toThrow(/services\[0\]\.upstreams\[0\]\.port/);
  });
});

describe("2.4 Route", () => {
  it("a segment in curly braces matches exactly one segment with any value", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(everything(origin.port));
    for (const value of ["1", "x-y", "%20", "~"]) expect((await proxy(`/shop/items/${value}`)).status).toBe(200);
    expect((await proxy("/shop/items")).status).toBe(404);
    expect((await proxy("/shop/items/1/2")).status).toBe(404);
  });

  it("accepts the methods it lists", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(everything(origin.port));
    expect((await proxy("/shop/items/1", { method: "GET" })).status).toBe(200);
    const refused = await proxy("/shop/items/1", { method: "POST" });
    expect([refused.status, refused.headers.allow]).toEqual([405, "GET, HEAD"]);
    expect((await proxy("/shop/locked?apiKey=k", { method: "POST" })).status).toBe(200);
  });

  it("applies its plugins to that route only, and accepts an empty list", async () => {
    const origin = await backend();
    const { proxy } = await fullGateway(everything(origin.port));
    expect((await proxy("/shop/items/1")).status).toBe(200);
    expect((await proxy("/shop/locked")).status).toBe(401);
  });
});

describe("2.5 Plugin", () => {
  it("enabled says whether it is active", async () => {
    const origin = await backend();
    const at = (enabled: boolean) => ({
      services: [
        {
          name: "s",
          base_path: "/s",
          upstreams: [{ host: "127.0.0.1", port: origin.port }],
          routes: [{ path: "/r", plugins: [{ name: "key_auth", enabled, config: { key: "k" } }] }],
        },
      ],
    });
    expect((await (await fullGateway(at(true))).proxy("/s/r")).status).toBe(401);
    expect((await (await fullGateway(at(false))).proxy("/s/r")).status).toBe(200);
  });

  it("name is its kind: rate_limit and key_auth are known, an unknown kind is an error that names it", async () => {
    const config = { global: { plugins: [{ name: "key_aut" }] }, services: [] };
    await expect(fullGateway(config)).rejects.toThrow(/global\.plugins\[0\]\.name .*key_auth/);
  });

  it("config is checked by the kind", async () => {
    const config = { global: { plugins: [{ name: "rate_limit", config: { limit_min: "many" } }] }, services: [] };
    await expect(fullGateway(config)).rejects.toThrow(/global\.plugins\[0\]\.config\.limit_min/);
  });

  it("id is kept and shown", async () => {
    expect((await shown(await fullGateway(everything(9)))).plugins[0].id).toBe("g");
  });
});

describe("2.6 Admin configuration object", () => {
  it("the admin configuration object has six keys, with the values of the settings", async () => {
    const [cert, key] = [fileWith(SERVER.cert, "cert.pem"), fileWith(SERVER.key, "key.pem")];
    const gateway = await fullGateway(
      { services: [] },
      { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key, CA_CERT_PATH: cert },
    );
    expect(await shown(gateway, "/gateway/config")).toEqual({
      ServerCertPath: cert,
      ServerKeyPath: key,
      CACertPath: cert,
      AdminUser: USER,
      AdminPassword: PASSWORD,
      ConfigFilePath: gateway.file,
    });
  });
});

describe("2.7 Runtime settings", () => {
  it("reads every setting of the proxy from its environment variable", () => {
    const read = readSettings(
      {},
      {
        CONFIG_FILE_PATH: "/c.json",
        SERVER_CERT_PATH: "/cert.pem",
        SERVER_KEY_PATH: "/key.pem",
        CA_CERT_PATH: "/ca.pem",
        ADMIN_USER: "u",
        ADMIN_PASSWORD: "p",
        PERSISTENCE_CONFIG: "dbless",
      },
    );
    expect(read).toMatchObject({
      ok: true,
      settings: {
        configPath: "/c.json",
        serverCertPath: "/cert.pem",
        serverKeyPath: "/key.pem",
        caCertPath: "/ca.pem",
        admin: { user: "u", password: "p" },
        persistence: "dbless",
      },
    });
  });

  it(
    "MANAGER_BACKEND_API_URL is the {admin_url} that the management UI talks to; " +
      "the default is the address in the reference deployment",
    () => {
      const backendUrl = "https://gw.example.com:8081/admin";
      expect(readManagerSettings({}, { MANAGER_BACKEND_API_URL: backendUrl })).toMatchObject({
        ok: true,
        settings: { manager: { backendUrl } },
      });
      expect(readManagerSettings({}, {})).toMatchObject({
        ok: true,
        settings: { manager: { backendUrl: "http://127.0.0.1:8081" } },
      });
    },
  );

  it(
    "defaults to the ports of the reference deployment: 8008, 8443, 8081, 5173; " +
      "no other origin may use the admin interface",
    () => {
      const read = readSettings({}, { ADMIN_USER: "u", ADMIN_PASSWORD: "p", MANAGER: "true" });
      const admin = { port: 8081, corsOrigins: [] };
      expect(read).toMatchObject({
        ok: true,
        settings: { httpPort: 8008, httpsPort: 8443, admin, manager: { port: 5173 } },
      });
    },
  );
});
