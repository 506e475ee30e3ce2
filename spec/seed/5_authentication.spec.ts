import https from "node:https";
import { describe, expect, it } from "vitest";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { backend } from "../support/gateway.ts";
import { fileWith } from "../support/process.ts";
import { BASIC, json, tokenOf, fullGateway } from "./full_gateway.ts";

const basic = (user: string, password: string) => `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
const keyAuth = (key = "the-key", enabled = true) => ({ name: "key_auth", enabled, config: { key } });

/** Two services of two routes each, with key_auth at the level asked for. */
async function guarded(level: "global" | "service" | "route", plugin: object = keyAuth()) {
  const origin = await backend();
  const at = (wanted: string, here: boolean) => (level === wanted && here ? [plugin] : []);
  const service = (name: string) => ({
    name,
    base_path: `/${name}`,
    upstreams: [{ host: "127.0.0.1", port: origin.port }],
    plugins: at("service", name === "a"),
    routes: [{ path: "/r", plugins: at("route", name === "a") }, { path: "/s" }],
  });
  const gateway = await fullGateway({
    global: { plugins: at("global", true) },
    services: [service("a"), service("b")],
  });
  const statuses = async (suffix = "") =>
    Promise.all(["/a/r", "/a/s", "/b/r", "/b/s"].map(async (path) => (await gateway.proxy(path + suffix)).status));
  return { ...gateway, origin, statuses };
}

describe("5.1 Admin interface", () => {
  it.each([
    ["ADMIN_USER and ADMIN_PASSWORD", BASIC, 200],
    ["a wrong password", basic("admin", "wrong"), 401],
    ["a wrong user", basic("root", "admin-password"), 401],
    ["another scheme", BASIC.replace("Basic", "Bearer"), 401],
    ["no base64", "Basic ***", 401],
  ])("rule 1: POST /login with %s: %s", async (_what, Authorization, status) => {
    const { admin } = await fullGateway({ services: [] });
    const answer = await admin("POST", "/login", { Authorization });
    expect(answer.status).toBe(status);
    expect(answer.headers["set-cookie"] !== undefined).toBe(status === 200);
  });

  it("rule 2: the login token is a JWT in an HttpOnly, Secure cookie", async () => {
    const { admin } = await fullGateway({ services: [] });
    const answer = await admin("POST", "/login", { Authorization: BASIC });
    const [head, claims] = tokenOf(answer)
      .split(".")
      .slice(0, 2)
      .map((part) => JSON.parse(Buffer.from(part, "base64url").toString()) as any);
    expect(head).toMatchObject({ alg: "HS256", typ: "JWT" });
    expect(claims).toMatchObject({
      sub: "admin",
      iat: expect.any(Number) as number,
      jti: expect.any(String) as string,
    });
    expect(claims.exp - claims.iat).toBe(3600);
    expect(answer.headers["set-cookie"]![0]).toMatch(/; HttpOnly(;|$)/);
    expect(answer.headers["set-cookie"]![0]).toMatch(/; Secure(;|$)/);
  });

  it("rule 3: later requests send that cookie, a changed one is refused, and DELETE /logout clears it", async () => {
    const { admin, login } = await fullGateway({ services: [] });
    const token = await login();
    const get = async (value: string) => (await admin("GET", "/gateway", { Cookie: `token=${value}` })).status;
    expect(await get(token)).toBe(200);
    const [head, claims, signature] = token.split(".");
    const elevated = Buffer.from(
      JSON.stringify({ ...JSON.parse(Buffer.from(claims!, "base64url").toString()), exp: 9_999_999_999 }),
    ).toString("base64url");
    expect(await get(`${head}.${elevated}.${signature}`)).toBe(401);
    expect(await get(`${Buffer.from('{"alg":"none","typ":"JWT"}').toString("base64url")}.${claims}.`)).toBe(401);
    await admin("DELETE", "/logout", { Cookie: `token=${token}` });
    expect(await get(token)).toBe(401);
  });
});

describe("5.2 Transport security", () => {
  it("accepts a server certificate and key, and a CA certificate that signs client certificates", async () => {
    const origin = await backend();
    const gateway = await fullGateway(
      {
        services: [
          {
            name: "s",
            base_path: "/s",
            upstreams: [{ host: "127.0.0.1", port: origin.port }],
            routes: [{ path: "/r" }],
          },
        ],
      },
      {
        SERVER_CERT_PATH: fileWith(SERVER.cert, "cert.pem"),
        SERVER_KEY_PATH: fileWith(SERVER.key, "key.pem"),
        CA_CERT_PATH: fileWith(CA.cert, "ca.pem"),
        CLIENT_AUTH: "require",
      },
    );
    const { port } = new URL(gateway.started.https[0]!);
    const get = (identity: object) =>
      new Promise<number>((resolve, reject) => {
        const request = https.get(
          { host: "127.0.0.1", port, path: "/s/r", ca: CA.cert, agent: false, ...identity },
          (response) => {
            response.resume();
            resolve(response.statusCode!);
          },
        );
        request.on("error", reject);
      });
    expect(await get(CLIENT)).toBe(200);
    await expect(get({})).rejects.toThrow();
  });
});

describe("5.3 Plugin key_auth", () => {
  it("rule 1: the key is read first from the query parameter apiKey, whatever the header says", async () => {
    const { proxy } = await guarded("route");
    expect((await proxy("/a/r?apiKey=the-key")).status).toBe(200);
    expect((await proxy("/a/r?apiKey=the-key", { headers: { apiKey: "wrong" } })).status).toBe(200);
    expect((await proxy("/a/r?apiKey=wrong", { headers: { apiKey: "the-key" } })).status).toBe(401);
    expect((await proxy("/a/r?apiKey=", { headers: { apiKey: "the-key" } })).status).toBe(401);
  });

  it("rule 2: without that parameter, the key is read from the header apiKey, in any case", async () => {
    const { proxy } = await guarded("route");
    for (const name of ["apiKey", "APIKEY", "apikey"])
      expect((await proxy("/a/r?other=1", { headers: { [name]: "the-key" } })).status).toBe(200);
    expect((await proxy("/a/r", { headers: { apiKey: "wrong" } })).status).toBe(401);
  });

  it("rule 3: when the presented key equals the configured one, the request proceeds unchanged", async () => {
    const { proxy, origin } = await guarded("route");
    await proxy("/a/r?x=1&apiKey=the-key");
    expect(origin.seen[0]!.url).toBe("/r?x=1&apiKey=the-key");
  });

  it.each([
    "",
    "?apiKey=",
    "?apiKey=the-ke",
    "?apiKey=the-keyx",
    "?apiKey=THE-KEY",
    "?apikey=the-key",
    "?xapiKey=the-key",
  ])("rule 4: otherwise the answer is 401 and the upstream is not asked: %j", async (query) => {
    const { proxy, origin } = await guarded("route");
    const answer = await proxy(`/a/r${query}`);
    expect([answer.status, answer.reason]).toEqual([401, "Unauthorized"]);
    expect(["key_missing", "key_invalid"]).toContain(json(answer).code);
    expect(origin.seen).toEqual([]);
  });

  it.each([
    ["global", [401, 401, 401, 401]],
    ["service", [401, 401, 200, 200]],
    ["route", [401, 200, 200, 200]],
  ] as const)("rule 5: the plugin covers everything at %s level", async (level, statuses) => {
    const gateway = await guarded(level);
    expect(await gateway.statuses()).toEqual(statuses);
    expect(await gateway.statuses("?apiKey=the-key")).toEqual([200, 200, 200, 200]);
  });

  it("asks for no key with enabled false", async () => {
    expect(await (await guarded("global", keyAuth("the-key", false))).statuses()).toEqual([200, 200, 200, 200]);
  });
});
