/** `resource_metadata` of plugins that admit by access tokens, in a whole gateway (RFC 9728). */
import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { createGateway, type ConfigInput } from "../../lib/index.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { fileWith, program } from "../support/process.ts";

const SECRET = "0123456789abcdef0123456789abcdef";
const RESOURCE = "https://api.example.com/mcp";
const WELL_KNOWN = "/.well-known/oauth-protected-resource";
const METADATA = { resource: RESOURCE, authorization_servers: ["https://id.example.com"] };
const HOST = { Host: "api.example.com" };
const URL_OF_METADATA = `https://api.example.com${WELL_KNOWN}/mcp`;

function token(claims: object): string {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${encode({ alg: "HS256" })}.${encode({ exp: 4_102_444_800, sub: "ann", ...claims })}`;
  return `${text}.${createHmac("sha256", SECRET).update(text).digest("base64url")}`;
}

const jwt = (metadata: object = {}, config: object = {}) => ({
  name: "jwt",
  config: { alg: "HS256", secret: SECRET, resource_metadata: { ...METADATA, ...metadata }, ...config },
});
const bearer = (claims: object) => ({ ...HOST, Authorization: `Bearer ${token(claims)}` });

/** A gateway whose service under /mcp has these plugins; its upstream answers each request with 200. */
async function serving(plugins: readonly object[], global: object = {}, parts: object = {}) {
  const origin = await backend();
  const made = await running(
    oneService(origin.port, { base_path: "/mcp", plugins, ...parts } as never, global as ConfigInput["global"]),
  );
  return { ...made, origin };
}

/** The errors of a configuration, with the places of their fields. */
function issuesOf(config: object): readonly string[] {
  const gateway = () => createGateway({ config: config as ConfigInput });
  try {
    void gateway().close();
    return [];
  } catch (error) {
    return (error as { issues: { at: readonly (string | number)[]; message: string }[] }).issues.map(
      ({ at, message }) => `${at.join(".")}: ${message}`,
    );
  }
}

describe("the document", () => {
  it("is served without a token at the inserted path and at the root form, over HTTP/1.1 and HTTP/2", async () => {
    const { port, origin } = await serving([jwt({ scopes_supported: ["read", "write"] })], { h2c: true });
    for (const path of [`${WELL_KNOWN}/mcp`, `${WELL_KNOWN}/mcp/`, WELL_KNOWN, `${WELL_KNOWN}/mcp?x=1`]) {
      const { status, headers, body } = await ask(port, { path, headers: HOST });
      expect([path, status, headers["content-type"], headers["access-control-allow-origin"]]).toEqual([
        path,
        200,
        "application/json",
        "*",
      ]);
      expect(headers["cache-control"]).toBe("max-age=300");
      expect(JSON.parse(String(body))).toEqual({ ...METADATA, scopes_supported: ["read", "write"] });
    }
    const session = h2Session(port);
    const overHttp2 = await h2Ask(session, { path: `${WELL_KNOWN}/mcp`, headers: { ":authority": "api.example.com" } });
    session.close();
    expect(overHttp2.status).toBe(200);
    expect(origin.seen).toHaveLength(0);
  });

  it("is for the host of the resource alone, whatever the port; all else goes to the routes", async () => {
    const { port, origin } = await serving(
      [jwt()],
      {},
      {
        base_path: "/",
        plugins: [],
        routes: [
          { path: "/mcp", plugins: [jwt()] },
          { path: "/{rest*}", name: "rest" },
        ],
      },
    );
    const asked = async (path: string, host: string) => {
      const before = origin.seen.length;
      const { status } = await ask(port, { path, headers: { Host: host } });
      return `${status} ${origin.seen.length > before ? "upstream" : "gateway"}`;
    };
    expect(await asked(`${WELL_KNOWN}/mcp`, "API.example.com:8443")).toBe("200 gateway");
    expect(await asked(`http://api.example.com${WELL_KNOWN}/mcp`, "other.example.com")).toBe("200 gateway");
    expect(await asked(`${WELL_KNOWN}/mcp`, "other.example.com")).toBe("200 upstream");
    expect(await asked(`${WELL_KNOWN}/mcp/more`, "api.example.com")).toBe("200 upstream");
    expect(await asked(`${WELL_KNOWN}x`, "api.example.com")).toBe("200 upstream");
    expect(await asked(`/x?${WELL_KNOWN}/mcp`, "api.example.com")).toBe("200 upstream");
  });

  it("names the configured address, whatever Host and X-Forwarded-Host say", async () => {
    const { port } = await serving([jwt()], { trusted_proxies: ["127.0.0.1"] });
    const { status, body } = await ask(port, {
      path: WELL_KNOWN,
      headers: { Host: "inner.example", "X-Forwarded-Host": "api.example.com", "X-Forwarded-Proto": "http" },
    });
    expect([status, JSON.parse(String(body)).resource]).toEqual([200, RESOURCE]);
    const { headers } = await ask(port, { path: "/mcp/x", headers: { Host: "evil.example" } });
    expect(headers["www-authenticate"]).toContain(`resource_metadata="${URL_OF_METADATA}"`);
  });

  it("can be read alone: HEAD has no body, preflights of any page are answered, other methods get 405", async () => {
    const { port } = await serving([jwt()]);
    const path = `${WELL_KNOWN}/mcp`;
    const head = await ask(port, { method: "HEAD", path, headers: HOST });
    expect([head.status, head.body.length, Number(head.headers["content-length"]) > 0]).toEqual([200, 0, true]);
    const preflight = await ask(port, {
      method: "OPTIONS",
      path,
      headers: {
        ...HOST,
        Origin: "https://app.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "mcp-protocol-version",
      },
    });
    expect([preflight.status, preflight.headers]).toMatchObject([
      204,
      {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "GET, HEAD",
        "access-control-allow-headers": "*",
      },
    ]);
    for (const method of ["POST", "DELETE", "OPTIONS"]) {
      const { status, headers, body } = await ask(port, { method, path, headers: HOST });
      expect([status, headers.allow, JSON.parse(String(body)).code]).toEqual([405, "GET, HEAD", "method_not_allowed"]);
    }
  });

  it("global cors has the last word on who reads it", async () => {
    const cors = { name: "cors", config: { allow_origins: ["https://app.example"] } };
    const { port } = await serving([jwt()], { plugins: [cors] });
    const { rawHeaders } = await ask(port, {
      path: `${WELL_KNOWN}/mcp`,
      headers: { ...HOST, Origin: "https://app.example" },
    });
    const allowed = rawHeaders.filter((_text, i) => rawHeaders[i - 1]?.toLowerCase() === "access-control-allow-origin");
    expect(allowed).toEqual(["https://app.example"]);
  });

  it("of several resources of one host, each is at its own path, and none at the root form", async () => {
    const { port } = await serving(
      [],
      {},
      {
        base_path: "/",
        routes: [
          { path: "/a", plugins: [jwt({ resource: "https://api.example.com/a" })] },
          { path: "/b", plugins: [jwt({ resource: "https://api.example.com/b" })] },
          { path: "/c", plugins: [jwt({ resource: "https://other.example.com" })] },
        ],
      },
    );
    const resourceAt = async (path: string, host = "api.example.com") => {
      const { status, body } = await ask(port, { path: WELL_KNOWN + path, headers: { Host: host } });
      return status === 200 ? JSON.parse(String(body)).resource : status;
    };
    expect(await resourceAt("/a")).toBe("https://api.example.com/a");
    expect(await resourceAt("/b")).toBe("https://api.example.com/b");
    expect(await resourceAt("")).toBe(404);
    expect(await resourceAt("", "other.example.com")).toBe("https://other.example.com");
  });

  it("changes with a reload, and is gone with its plugin", async () => {
    const { port, gateway, origin } = await serving([jwt()]);
    const read = async () => {
      const { status, body } = await ask(port, { path: `${WELL_KNOWN}/mcp`, headers: HOST });
      return status === 200 ? JSON.parse(String(body)).authorization_servers : status;
    };
    const config = (plugin: object) => oneService(origin.port, { base_path: "/mcp", plugins: [plugin] } as never);
    await gateway.reload(config(jwt({ authorization_servers: ["https://new.example.com"] })) as ConfigInput);
    expect(await read()).toEqual(["https://new.example.com"]);
    await gateway.reload(config({ ...jwt(), enabled: false }) as ConfigInput);
    expect(await read()).toBe(404);
  });

  it("is seen by tests and explanations", async () => {
    const tests = [
      {
        name: "metadata",
        request: { url: `https://api.example.com${WELL_KNOWN}/mcp` },
        expect: { status: 200, body: METADATA, upstream_path: null },
      },
      {
        name: "challenge",
        request: { url: "https://api.example.com/mcp/x" },
        expect: {
          status: 401,
          headers: { "WWW-Authenticate": `Bearer realm="edge-gateway", resource_metadata="${URL_OF_METADATA}"` },
        },
      },
    ];
    const config = { ...oneService(9, { base_path: "/mcp", plugins: [jwt()] } as never), tests };
    const gateway = createGateway({ config: config as ConfigInput });
    expect(await gateway.test()).toMatchObject({ passed: 2, failed: 0 });
    const url = `https://api.example.com${WELL_KNOWN}`;
    expect(await gateway.explain({ method: "GET", url })).toMatchObject({
      status: 200,
      reasons: ["The gateway answers with the metadata of a protected resource (resource_metadata)."],
    });
    await gateway.close();
  });
});

describe("challenges", () => {
  const challengesOf = async (port: number, path: string, headers: Record<string, string>) => {
    const { status, rawHeaders } = await ask(port, { path, headers });
    const challenges = rawHeaders.filter((_text, i) => rawHeaders[i - 1]?.toLowerCase() === "www-authenticate");
    return [status, ...challenges];
  };
  const LEADS = `resource_metadata="${URL_OF_METADATA}"`;

  it("a 401 leads to the metadata and says which scopes a token needs", async () => {
    const { port } = await serving([jwt({}, { scopes: ["read", "write"] })]);
    expect(await challengesOf(port, "/mcp/x", HOST)).toEqual([
      401,
      `Bearer realm="edge-gateway", ${LEADS}, scope="read write"`,
    ]);
    expect(await challengesOf(port, "/mcp/x", { ...HOST, Authorization: "Bearer x" })).toEqual([
      401,
      'Bearer realm="edge-gateway", error="invalid_token", error_description="The access token is malformed.", ' +
        `${LEADS}, scope="read write"`,
    ]);
  });

  it("a 403 for a missing scope says so, with the scopes once", async () => {
    const { port } = await serving([jwt({}, { scopes: ["read", "write"] })]);
    const claims = { aud: RESOURCE, scope: "read" };
    expect(await challengesOf(port, "/mcp/x", bearer(claims))).toEqual([
      403,
      'Bearer realm="edge-gateway", error="insufficient_scope", scope="read write", ' +
        `error_description="The access token lacks a scope that is required here.", ${LEADS}`,
    ]);
    expect((await ask(port, { path: "/mcp/x", headers: bearer({ ...claims, scope: "write read x" }) })).status).toBe(
      200,
    );
  });

  it("refusals of all plugins of the route have it, whatever challenge they have", async () => {
    const keyed = { name: "key_auth", config: { key: "k" } };
    const limited = { name: "acl", config: { blacklist: ["127.0.0.1"] } };
    const { port } = await serving(
      [jwt()],
      { plugins: [keyed] },
      {
        routes: [
          { path: "/open" },
          { path: "/closed", plugins: [limited] },
          { path: "/fixed", plugins: [{ name: "request_termination", config: { status: 403 } }] },
        ],
      },
    );
    const [status, ...challenges] = await challengesOf(port, "/mcp/open", HOST);
    expect([status, challenges[0], challenges.length]).toEqual([401, `Bearer ${LEADS}`, 2]);
    const admitted = { ...bearer({ aud: RESOURCE }), "X-API-Key": "k", apiKey: "k" };
    expect(await challengesOf(port, "/mcp/open", admitted)).toEqual([200]);
    expect(await challengesOf(port, "/mcp/closed", admitted)).toEqual([403, `Bearer ${LEADS}`]);
    expect(await challengesOf(port, "/mcp/fixed", admitted)).toEqual([403, `Bearer ${LEADS}`]);
  });

  it("replies of the upstream stay as they are", async () => {
    const origin = await backend((_request, response) => {
      response.writeHead(403, { "WWW-Authenticate": 'Bearer error="insufficient_scope", scope="admin"' });
      response.end();
    });
    const { port } = await running(oneService(origin.port, { base_path: "/mcp", plugins: [jwt()] } as never));
    expect(await challengesOf(port, "/mcp/x", bearer({ aud: RESOURCE }))).toEqual([
      403,
      'Bearer error="insufficient_scope", scope="admin"',
    ]);
  });

  it("those of a route lead to the innermost resource, and other routes have none", async () => {
    const { port } = await serving(
      [],
      {},
      {
        base_path: "/mcp",
        plugins: [jwt()],
        routes: [{ path: "/x", plugins: [jwt({ resource: "https://api.example.com/mcp/x" })] }, { path: "/y" }],
      },
    );
    const [, ofX] = await challengesOf(port, "/mcp/x", HOST);
    expect(ofX).toContain(`resource_metadata="${URL_OF_METADATA}/x"`);
    const [, ofY] = await challengesOf(port, "/mcp/y", HOST);
    expect(ofY).toContain(LEADS);
  });
});

describe("the audience", () => {
  const statusOf = async (plugin: object, claims: object) => {
    const { port } = await serving([plugin]);
    return (await ask(port, { path: "/mcp/x", headers: bearer(claims) })).status;
  };

  it("is the resource, unless the plugin names another one, or any", async () => {
    expect(await statusOf(jwt(), { aud: RESOURCE })).toBe(200);
    expect(await statusOf(jwt(), { aud: ["x", RESOURCE] })).toBe(200);
    for (const claims of [{}, { aud: "https://api.example.com" }, { aud: `${RESOURCE}/` }, { aud: [] }])
      expect(await statusOf(jwt(), claims)).toBe(401);
    expect(await statusOf(jwt({ audience: "any" }), {})).toBe(200);
    expect(await statusOf(jwt({}, { aud: "shop" }), { aud: "shop" })).toBe(200);
    expect(await statusOf(jwt({}, { aud: "shop" }), { aud: RESOURCE })).toBe(401);
    expect(await statusOf(jwt({}, { claims: { aud: "shop" } }), { aud: "shop" })).toBe(200);
  });

  it("of a resource without a path may have a slash at its end", async () => {
    const whole = jwt({ resource: "https://api.example.com" });
    expect(await statusOf(whole, { aud: "https://api.example.com" })).toBe(200);
    expect(await statusOf(whole, { aud: "https://api.example.com/" })).toBe(200);
    expect(await statusOf(whole, { aud: "https://api.example.com/mcp" })).toBe(401);
  });

  it("of introspection is that of the answer", async () => {
    const answers: object[] = [];
    const server = await backend((_request, response) => void response.end(JSON.stringify(answers.shift())));
    const config = { url: `http://127.0.0.1:${server.port}/`, client_id: "g", client_secret: "s", cache_s: 0 };
    const { port } = await serving([
      { name: "introspection", config: { ...config, negative_cache_s: 0, resource_metadata: METADATA } },
    ]);
    const asked = async (answer: object) => {
      answers.push({ active: true, ...answer });
      return (await ask(port, { path: "/mcp/x", headers: { ...HOST, Authorization: "Bearer t" } })).status;
    };
    expect([await asked({ aud: RESOURCE }), await asked({}), await asked({ aud: ["x"] })]).toEqual([200, 401, 401]);
  });
});

describe("the configuration", () => {
  it("two resources of one path and host are an error at both places", async () => {
    const config = (one: object, other: object) =>
      oneService(9, {
        base_path: "/",
        routes: [
          { path: "/a", plugins: [one] },
          { path: "/b", plugins: [other] },
        ],
      } as never);
    const where = (i: number) => `services.0.routes.${i}.plugins.0.config.resource_metadata.resource`;
    const named = (i: number) => `services[0].routes[${i}].plugins[0].config.resource_metadata`;
    for (const resource of [RESOURCE, `${RESOURCE}/`, "https://api.example.com:8443/mcp"])
      expect(issuesOf(config(jwt(), jwt({ resource })))).toEqual([
        expect.stringContaining(`${where(0)}: has its metadata at ${WELL_KNOWN}/mcp, as that of ${named(1)} has`),
        expect.stringContaining(`${where(1)}: has its metadata at ${WELL_KNOWN}/mcp, as that of ${named(0)} has`),
      ]);
    expect(issuesOf(config(jwt(), jwt({ resource: "https://other.example.com/mcp" })))).toEqual([]);
    expect(issuesOf(config(jwt(), { ...jwt(), enabled: false }))).toEqual([]);
    const file = fileWith(config(jwt(), jwt()));
    const { code, stderr } = await program(["validate", file]).ended;
    expect([code, stderr.match(/gw\.json:1:\d+ /g)?.length]).toEqual([2, 2]);
  });

  it.each<[string, object, RegExp]>([
    ["plain HTTP", { resource: "http://api.example.com/mcp" }, /clients reach it with https/],
    ["no URL", { resource: "api.example.com" }, /expected an https:\/\/ URL/],
    ["a fragment", { resource: "https://api.example.com/mcp#x" }, /leave query and fragment out/],
    ["a query", { resource: "https://api.example.com/mcp?x=1" }, /leave query and fragment out/],
    ["a password", { resource: "https://a:b@api.example.com/mcp" }, /leave user name and password out/],
    ["capitals", { resource: "https://API.example.com/mcp" }, /clients write it as "https:\/\/api\.example\.com\/mcp"/],
    ["a usual port", { resource: "https://api.example.com:443/mcp" }, /clients write it as/],
    ["no authorization server", { authorization_servers: [] }, /authorization_servers/],
    ["one over plain HTTP", { authorization_servers: ["http://id.example.com"] }, /authorization_servers/],
    ["an odd scope", { scopes_supported: ["a b"] }, /one scope, without spaces/],
    ["an odd audience", { audience: "shop" }, /"resource".*"any"/],
  ])("%s is an error", (_what, metadata, message) => {
    const [issue, ...more] = issuesOf(oneService(9, { plugins: [jwt(metadata)] } as never));
    expect([issue, more]).toEqual([expect.stringMatching(message), []]);
  });

  it("plain HTTP is accepted for this machine", () => {
    const metadata = { resource: "http://localhost:8008/mcp", authorization_servers: ["http://127.0.0.1:4000"] };
    expect(issuesOf(oneService(9, { plugins: [jwt(metadata)] } as never))).toEqual([]);
  });
});
