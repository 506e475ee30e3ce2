import { describe, expect, it } from "vitest";
import { RELOADED, RIGHT, source, startAdmin, UI, type Got } from "./harness.ts";

const FOREIGN = [
  "http://evil.example",
  "http://localhost:5174",
  "https://localhost:5173",
  "http://localhost:5173.evil.example",
  "null",
  "",
];

const corsHeaders = ({ headers }: Got) => Object.keys(headers).filter((name) => name.startsWith("access-control-"));

describe("a page of an allowed origin", () => {
  it("a page of an allowed origin may log in, read with its cookie, see errors, and log out", async () => {
    const { ask } = await startAdmin();
    const login = await ask("POST", "/login", { headers: { origin: UI, authorization: RIGHT } });
    const cookie = login.headers["set-cookie"]![0]!.split(";")[0]!;
    const others = [
      await ask("GET", "/gateway", { headers: { origin: UI, cookie } }),
      await ask("GET", "/gateway", { headers: { origin: UI } }),
      await ask("GET", "/nowhere", { headers: { origin: UI } }),
      await ask("DELETE", "/logout", { headers: { origin: UI, cookie } }),
    ];
    expect([login, ...others].map(({ status }) => status)).toEqual([200, 200, 401, 404, 204]);
    for (const { headers } of [login, ...others]) {
      expect(headers).toMatchObject({
        "access-control-allow-origin": UI,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": "X-Request-Id, Retry-After, ETag",
        vary: "Origin",
      });
    }
  });

  it("a page of an allowed origin gets the methods and headers that it may use from the preflight", async () => {
    const { ask } = await startAdmin();
    const headers = {
      origin: UI,
      "access-control-request-method": "DELETE",
      "access-control-request-headers": "content-type",
    };
    const got = await ask("OPTIONS", "/logout", { headers });
    expect([got.status, got.text]).toEqual([204, ""]);
    expect(got.headers).toMatchObject({
      allow: "DELETE, OPTIONS",
      "access-control-allow-origin": UI,
      "access-control-allow-credentials": "true",
      "access-control-allow-methods": "DELETE, OPTIONS",
      "access-control-allow-headers": "Authorization, Content-Type, If-Match",
      "access-control-max-age": "600",
      vary: "Origin",
    });
  });

  it("an allowed origin is recognised however the origin was written in the settings", async () => {
    const { ask } = await startAdmin({ corsOrigins: [" HTTPS://UI.example/ ", UI] });
    for (const origin of ["https://ui.example", UI]) {
      expect((await ask("GET", "/healthz", { headers: { origin } })).headers["access-control-allow-origin"]).toBe(
        origin,
      );
    }
  });

  it("an allowed origin is never every page: * is not a wildcard", async () => {
    const { ask } = await startAdmin({ corsOrigins: ["*"] });
    expect(corsHeaders(await ask("GET", "/healthz", { headers: { origin: "http://evil.example" } }))).toEqual([]);
    expect(
      (await ask("POST", "/login", { headers: { origin: "http://evil.example", authorization: RIGHT } })).status,
    ).toBe(403);
  });
});

describe.each(FOREIGN)("a page of a foreign origin (%s)", (origin) => {
  it("a page of a foreign origin gets no CORS headers in any reply", async () => {
    const { ask } = await startAdmin();
    for (const asked of ["GET /healthz", "GET /gateway", "OPTIONS /login", "POST /login", "GET /nowhere"]) {
      const [method, path] = asked.split(" ") as [string, string];
      const got = await ask(method, path, { headers: { origin, "access-control-request-method": "POST" } });
      expect(corsHeaders(got)).toEqual([]);
      expect(got.headers.vary).toBe("Origin");
    }
  });

  it(
    "a page of a foreign origin gets 403 for unsafe methods with any " + "credentials, and nothing is changed",
    async () => {
      const { ask, session } = await startAdmin();
      const cookie = await session();
      for (const asked of ["POST /login", "DELETE /logout", "PUT /gateway", "PATCH /nowhere"]) {
        const [method, path] = asked.split(" ") as [string, string];
        const got = await ask(method, path, { headers: { origin, authorization: RIGHT, cookie } });
        expect([got.status, got.json.code, got.headers["set-cookie"]]).toEqual([403, "forbidden", undefined]);
      }
      expect((await ask("GET", "/gateway", { headers: { cookie, origin } })).status).toBe(200);
    },
  );
});

describe("a page of the admin interface's own origin", () => {
  it("a page of the admin interface's own origin may use unsafe methods without CORS headers", async () => {
    const { ask, port } = await startAdmin({ hosts: ["admin.example", "x"] });
    for (const [origin, host] of [
      [`http://127.0.0.1:${port}`, `127.0.0.1:${port}`],
      ["https://admin.example", "Admin.Example"],
    ] as const) {
      const got = await ask("POST", "/login", { headers: { origin, host, authorization: RIGHT } });
      expect([got.status, corsHeaders(got), got.headers.vary]).toEqual([200, [], "Origin"]);
    }
    expect(
      (await ask("POST", "/login", { headers: { origin: "http://x", host: "x:81", authorization: RIGHT } })).status,
    ).toBe(403);
  });
});

describe("a client without an Origin", () => {
  it("a client without an Origin may use unsafe methods, and gets Vary: Origin", async () => {
    const { ask, login } = await startAdmin();
    const got = await login();
    expect([got.status, corsHeaders(got), got.headers.vary]).toEqual([200, [], "Origin"]);
    expect(await ask("OPTIONS", "/gateway")).toMatchObject({ status: 204, headers: { allow: "GET, HEAD, OPTIONS" } });
  });
});

describe("a request without Origin that another site has caused", () => {
  it.each(["cross-site", "same-site", "near-site"])(
    "a request with Sec-Fetch-Site: %s and no Origin changes nothing: 403, also with a session",
    async (site) => {
      let reloads = 0;
      const { ask, session } = await startAdmin({
        source: { ...source, reload: () => (reloads++, Promise.resolve(RELOADED)) },
      });
      const cookie = await session();
      const headers = { cookie, "sec-fetch-site": site };
      expect((await ask("POST", "/gateway/reload", { headers })).status).toBe(403);
      expect((await ask("DELETE", "/logout", { headers })).status).toBe(403);
      expect((await ask("POST", "/login", { headers: { authorization: RIGHT, "sec-fetch-site": site } })).status).toBe(
        403,
      );
      expect([reloads, (await ask("GET", "/gateway", { headers: { cookie } })).status]).toEqual([0, 200]);
      // What reads is kept from other sites by SameSite=Strict and CORS.
      expect((await ask("GET", "/gateway", { headers })).status).toBe(200);
      expect(
        (await ask("POST", "/gateway/reload", { headers: { cookie, "sec-fetch-site": "same-origin" } })).status,
      ).toBe(200);
      expect(
        (await ask("POST", "/gateway/reload", { headers: { cookie, origin: UI, "sec-fetch-site": site } })).status,
      ).toBe(200);
    },
  );
});
