import { describe, expect, it } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import { PROXY_CONFIG, SETTINGS, source, startAdmin, type AdminSource } from "./harness.ts";

describe("GET /gateway", () => {
  it("shows services and global plugins, and plugins also under global", async () => {
    const { ask, session } = await startAdmin();
    const got = await ask("GET", "/gateway?pretty", { headers: { cookie: await session() } });
    expect([got.status, got.headers["content-type"]]).toEqual([200, "application/json"]);
    expect(got.json).toEqual(PROXY_CONFIG);
    expect(Object.keys(got.json)).toEqual(["services", "plugins", "global"]);
  });

  it("shows the present configuration, and nothing beside the three fields", async () => {
    let name = "one";
    const config = () => ({
      services: [],
      global: { name, plugins: [], limits: { max_connections: 9 } },
      resolved: { KEY: "s3cret" },
    });
    const { ask, session } = await startAdmin({ source: { ...source, config } });
    const cookie = await session();
    const view = async () => (await ask("GET", "/gateway", { headers: { cookie } })).json;
    expect(await view()).toEqual({
      services: [],
      plugins: [],
      global: { name: "one", plugins: [], limits: { max_connections: 9 } },
    });
    name = "two";
    expect((await view()).global.name).toBe("two");
  });
});

describe("GET /gateway/config", () => {
  it("shows exactly the six keys, AdminPassword as configured", async () => {
    const { ask, session } = await startAdmin();
    const got = await ask("GET", "/gateway/config", { headers: { cookie: await session() } });
    expect(got.json).toEqual(SETTINGS);
    expect(Object.keys(got.json)).toEqual([
      "ServerCertPath",
      "ServerKeyPath",
      "CACertPath",
      "AdminUser",
      "AdminPassword",
      "ConfigFilePath",
    ]);
  });

  it("masks AdminPassword when secrets are redacted", async () => {
    const { ask, session } = await startAdmin({ redactSecrets: true });
    const got = await ask("GET", "/gateway/config", { headers: { cookie: await session() } });
    expect(got.json).toEqual({ ...SETTINGS, AdminPassword: "********" });
  });
});

describe("GET /gateway/status, /gateway/health, /gateway/stats and /metrics", () => {
  it.each([
    ["/gateway/status", "counts"],
    ["/gateway/health", "counts"],
    ["/gateway/stats", "counts"],
    ["/metrics", "all"],
  ])("GET %s has the workers report first, each on %s", async (path, extent) => {
    const order: string[] = [];
    const noting = <T>(what: T): T => (order.push("read"), what);
    const refresh: AdminSource["refresh"] = async (asked) => {
      order.push(asked);
      await new Promise((resolve) => setImmediate(resolve));
      order.push("reported");
    };
    const { status, health, stats, metrics } = source;
    const told = {
      ...source,
      refresh,
      status: () => noting(status()),
      health: () => noting(health()),
      stats: () => noting(stats("all")),
      metrics: () => noting(metrics()),
    };
    const { ask, session } = await startAdmin({ source: told });
    const got = await ask("GET", path, { headers: { cookie: await session() } });
    expect([got.status, order]).toEqual([200, [extent, "reported", "read"]]);
  });

  it("GET /gateway/status shows how many workers there should be, serve and were replaced", async () => {
    const status = () => ({ ...source.status(), workers: { configured: 4, serving: 3, restarts: 7 } });
    const { ask, session } = await startAdmin({ source: { ...source, status } });
    const got = await ask("GET", "/gateway/status", { headers: { cookie: await session() } });
    expect(got.json.workers).toEqual({ configured: 4, serving: 3, restarts: 7 });
  });
});

describe("GET /healthz", () => {
  it("gives 200 without a token, and the version only with one", async () => {
    const { ask, session } = await startAdmin();
    expect(await ask("GET", "/healthz")).toMatchObject({ status: 200, json: { status: "ok" } });
    expect((await ask("GET", "/healthz", { headers: { cookie: "token=x" } })).text).not.toContain("1.2.3");
    expect((await ask("GET", "/healthz", { headers: { cookie: await session() } })).json).toEqual({
      status: "ok",
      version: "1.2.3",
    });
  });

  it("gives 200 also while not ready", async () => {
    const { ask } = await startAdmin({ source: { ...source, ready: () => false } });
    expect((await ask("GET", "/healthz")).status).toBe(200);
  });
});

describe("GET /readyz", () => {
  it("gives 200 while serving and 503 otherwise, without a token", async () => {
    let serving = false;
    const { ask } = await startAdmin({ source: { ...source, ready: () => serving } });
    expect(await ask("GET", "/readyz")).toMatchObject({ status: 503, json: { status: "not_ready" } });
    serving = true;
    expect(await ask("GET", "/readyz")).toMatchObject({ status: 200, json: { status: "ready" } });
  });
});

describe("a source that fails", () => {
  it("a source that fails leads to 500 without the reason, which is logged under the same request id", async () => {
    let text = "";
    const config = () => {
      throw new Error("inside story");
    };
    const log = createLog({ format: "json", level: "error", write: (line) => void (text += line) });
    const { ask, session } = await startAdmin({ log, source: { ...source, config } });
    const cookie = await session();
    const got = await ask("GET", "/gateway", { headers: { cookie } });
    expect([got.status, got.json.code]).toEqual([500, "internal"]);
    expect(got.text).not.toContain("inside");
    expect(JSON.parse(text)).toMatchObject({
      request_id: got.json.request_id,
      error: expect.stringContaining("inside story"),
    });
    expect((await ask("GET", "/gateway/config", { headers: { cookie } })).status).toBe(200);
  });
});
