import { describe, expect, it } from "vitest";
import { backend } from "../support/gateway.ts";
import { json, fullGateway } from "./full_gateway.ts";

describe("1. What the service does", () => {
  it("receives client requests and forwards them to backend servers, as a declarative configuration says", async () => {
    const [a, b] = [
      await backend((_q, response) => response.end("from a")),
      await backend((_q, response) => response.end("from b")),
    ];
    const service = (name: string, port: number) => ({
      name,
      base_path: `/${name}`,
      upstreams: [{ host: "127.0.0.1", port }],
      routes: [{ path: "/r" }],
    });
    const { proxy } = await fullGateway({ services: [service("a", a.port), service("b", b.port)] });
    expect((await proxy("/a/r")).body.toString()).toBe("from a");
    expect((await proxy("/b/r")).body.toString()).toBe("from b");
  });

  it("3: runs plugins before forwarding and on the upstream response", async () => {
    const origin = await backend();
    const plugins = [{ name: "rate_limit", config: { limit_hour: 1 } }];
    const { proxy } = await fullGateway({
      services: [
        {
          name: "s",
          base_path: "/s",
          upstreams: [{ host: "127.0.0.1", port: origin.port }],
          routes: [{ path: "/r", plugins }],
        },
      ],
    });
    expect((await proxy("/s/r")).headers["ratelimit-policy"]).toBeDefined(); // added to the upstream's response
    expect((await proxy("/s/r")).status).toBe(429); // refused before it was forwarded
    expect(origin.seen).toHaveLength(1);
  });

  it("4: serves an admin HTTP interface for login and for reading the configuration", async () => {
    const { login, admin } = await fullGateway({ services: [] });
    expect(json(await admin("GET", "/gateway", { Cookie: `token=${await login()}` }))).toMatchObject({ services: [] });
  });

  it(
    "5: lets a management UI on the origin that ADMIN_CORS_ORIGIN names log in and read " +
      "with the admin credentials",
    async () => {
      const Origin = "http://localhost:5173";
      const { admin, login } = await fullGateway({ services: [] }, { ADMIN_CORS_ORIGIN: Origin });
      const answer = await admin("GET", "/gateway", { Origin, Cookie: `token=${await login()}` });
      expect(answer.headers["access-control-allow-origin"]).toBe(Origin);
      expect(answer.headers["access-control-allow-credentials"]).toBe("true");
    },
  );

  it("loads the configuration from the JSON file that CONFIG_FILE_PATH names; dbless is file-only", async () => {
    const { admin, login, file } = await fullGateway({ services: [] }, { PERSISTENCE_CONFIG: "dbless" });
    expect(json(await admin("GET", "/gateway/config", { Cookie: `token=${await login()}` })).ConfigFilePath).toBe(file);
    await expect(fullGateway({ services: [] }, { PERSISTENCE_CONFIG: "postgres" })).rejects.toThrow(
      /PERSISTENCE_CONFIG: expected dbless/,
    );
  });
});
