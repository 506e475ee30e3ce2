/** The administrator and the viewer: what each may do, and how a session shows whose it is. */
import { describe, expect, it } from "vitest";
import { Login } from "../../lib/admin/login.ts";
import { hashPassword } from "../../lib/base/password.ts";
import { manualClock } from "../support/clock.ts";
import { basic, cookieOf, forged, PASSWORD, RIGHT, SECRET, startAdmin, USER } from "./harness.ts";
import { AS_VIEWER, VIEWER } from "./writable.ts";

const GETS = [
  "/gateway",
  "/gateway/config",
  "/gateway/status",
  "/gateway/health",
  "/gateway/stats",
  "/gateway/now",
  "/gateway/tests",
  "/gateway/session",
  "/metrics",
];

describe("POST /login", () => {
  it("says which role the user has", async () => {
    const { login } = await startAdmin({ viewer: VIEWER });
    expect((await login()).json).toEqual({ user: USER, role: "admin", expires_at: "2026-01-01T01:00:00.000Z" });
    expect((await login(AS_VIEWER)).json).toEqual({
      user: "eve",
      role: "viewer",
      expires_at: "2026-01-01T01:00:00.000Z",
    });
  });

  it.each([
    ["the viewer's name with the administrator's password", basic(VIEWER.user, PASSWORD)],
    ["the administrator's name with the viewer's password", basic(USER, VIEWER.password)],
    ["neither", basic("other", VIEWER.password)],
  ])("refuses %s", async (_, authorization) => {
    const { login } = await startAdmin({ viewer: VIEWER });
    expect((await login(authorization)).status).toBe(401);
  });

  it("has no viewer unless one is configured", async () => {
    const { login } = await startAdmin();
    expect((await login(AS_VIEWER)).status).toBe(401);
  });

  it(
    "compares with one hash, whoever is named and whether or not that user has one, " +
      "so that the time does not show whose name is right",
    async () => {
      const verified: string[] = [];
      const stored = {
        user: USER,
        password: await hashPassword("a"),
        viewer: { user: "eve", password: await hashPassword("b") },
        users: { accounts: [{ role: "operator" as const, user: "plain", password: "c" }] },
      };
      const login = new Login({ ...stored, clock: manualClock() }, (_given, password) =>
        Promise.resolve(verified.push(password) < 0),
      );
      const hashes = [stored.password, stored.viewer.password];
      for (const [i, user] of [USER, "eve"].entries()) {
        await login.attempt(basic(user, "x"), "192.0.2.1");
        expect(verified.splice(0)).toEqual([hashes[i]]);
      }
      let attempts = 0;
      for (const user of ["plain", ...Array.from({ length: 10 }, (_, i) => `nobody ${i}`)]) {
        for (let i = 0; i < 3; i++) await login.attempt(basic(user, "x"), `192.0.2.${attempts++}`);
        const [first, ...further] = verified.splice(0);
        expect(hashes).toContain(first);
        expect(further).toEqual([first, first]);
      }
      const { login: real } = await startAdmin(stored);
      const roleOf = async (user: string, password: string) => (await real(basic(user, password))).json.role;
      expect([await roleOf("eve", "b"), await roleOf(USER, "a"), await roleOf("plain", "c")]).toEqual([
        "viewer",
        "admin",
        "operator",
      ]);
    },
  );

  it("counts wrong passwords of both users for one address", async () => {
    const { login } = await startAdmin({ viewer: VIEWER });
    for (let i = 0; i < 5; i++) expect((await login(basic(i % 2 ? "eve" : USER, "wrong"))).status).toBe(401);
    expect([(await login()).status, (await login(AS_VIEWER)).status]).toEqual([429, 429]);
  });
});

describe("a viewer", () => {
  const started = async () => {
    const { ask, login, ...rest } = await startAdmin({ viewer: VIEWER, write: true });
    const cookie = cookieOf(await login(AS_VIEWER));
    return {
      ...rest,
      login,
      ask,
      asViewer: (method: string, path: string, more: object = {}) =>
        ask(method, path, { headers: { cookie, ...more } }),
      cookie,
    };
  };

  it.each(GETS)("reads %s", async (path) => {
    const { asViewer } = await started();
    expect((await asViewer("GET", path)).status).toBe(200);
    expect((await asViewer("HEAD", path)).status).toBe(200);
  });

  it("sees secrets masked, whatever the query says", async () => {
    const shown: string[] = [];
    const { ask, login } = await startAdmin({
      viewer: VIEWER,
      ...(await import("./harness.ts").then(({ optionsFrom, source }) =>
        optionsFrom({
          ...source,
          config: (secrets) => (shown.push(secrets), { services: [], global: { plugins: [] } }),
        }),
      )),
    });
    const cookie = cookieOf(await login(AS_VIEWER));
    for (const query of ["", "?secrets=shown", "?secrets=masked"])
      await ask("GET", `/gateway${query}`, { headers: { cookie } });
    expect(shown).toEqual(["masked", "masked", "masked"]);
    expect((await ask("GET", "/gateway/config?secrets=shown", { headers: { cookie } })).json).toMatchObject({
      AdminPassword: "********",
    });
  });

  it("may explain, with secrets masked, and renew the session", async () => {
    const { asViewer, ask, cookie } = await started();
    const body = JSON.stringify({ method: "GET", url: "/a" });
    const explained = await ask("POST", "/gateway/explain", {
      headers: { cookie, "content-type": "application/json" },
      body,
    });
    expect([explained.status, (await asViewer("POST", "/gateway/session")).status]).toEqual([200, 200]);
  });

  it.each([
    ["POST", "/gateway/reload"],
    ["POST", "/gateway/reload?dry_run=true"],
  ])("gets 403 forbidden for %s %s", async (method, path) => {
    const { asViewer } = await started();
    const refused = await asViewer(method, path);
    expect([refused.status, refused.json.code]).toEqual([403, "forbidden"]);
  });

  it("reads with credentials as the administrator does, and does nothing else with them", async () => {
    const { ask } = await started();
    const headers = { authorization: AS_VIEWER };
    expect((await ask("GET", "/gateway/status", { headers })).status).toBe(200);
    expect((await ask("GET", "/metrics", { headers })).status).toBe(200);
    expect((await ask("GET", "/gateway/session", { headers })).json).toEqual({
      user: "eve",
      role: "viewer",
      write: false,
      drain: false,
      expires_at: null,
    });
    expect((await ask("GET", "/gateway", { headers })).status).toBe(401);
    expect((await ask("POST", "/gateway/explain", { headers })).status).toBe(401);
  });

  it("logs out", async () => {
    const { asViewer } = await started();
    expect((await asViewer("DELETE", "/logout")).status).toBe(204);
    expect((await asViewer("GET", "/gateway/status")).status).toBe(401);
  });

  it("cannot become the administrator by a token that names him: each role signs with a key of its own", async () => {
    const { ask, login } = await started();
    const claims = JSON.parse(
      Buffer.from(cookieOf(await login(AS_VIEWER)).split(".")[1]!, "base64url").toString(),
    ) as object;
    const asked = async (cookie: string) =>
      (await ask("GET", "/gateway/session", { headers: { cookie } })).json.role as string | undefined;
    const header = { alg: "HS256", typ: "JWT" };
    // Signed with the administrator's key, and with the viewer's name: no session.
    expect(await asked(forged(header, claims))).toBeUndefined();
    expect(await asked(forged(header, { ...claims, sub: USER }))).toBe("admin");
    expect(await asked(forged(header, { ...claims, sub: USER }, "x".repeat(32)))).toBeUndefined();
  });
});

describe("/gateway/session", () => {
  it.each([
    [true, "admin", true],
    [true, "viewer", false],
    [false, "admin", false],
  ])("says with ADMIN_WRITE=%j of the %s: write is %j", async (write, role, may) => {
    const { ask, login } = await startAdmin({ viewer: VIEWER, write });
    const cookie = cookieOf(await login(role === "admin" ? RIGHT : AS_VIEWER));
    const got = await ask("GET", "/gateway/session", { headers: { cookie } });
    expect(got.json).toEqual({
      user: role === "admin" ? USER : "eve",
      role,
      write: may,
      drain: may,
      expires_at: "2026-01-01T01:00:00.000Z",
    });
  });

  it("gives a later end, and both tokens of the session end with it", async () => {
    const { ask, session, clock } = await startAdmin({ sessionTtlS: 60 });
    const first = await session();
    clock.advance(50_000);
    const renewed = await ask("POST", "/gateway/session", { headers: { cookie: first } });
    const expires_at = "2026-01-01T00:01:50.000Z";
    expect(renewed.json).toEqual({ user: USER, role: "admin", write: false, drain: false, expires_at });
    const second = cookieOf(renewed);
    clock.advance(50_000);
    const status = async (cookie: string) => (await ask("GET", "/gateway/status", { headers: { cookie } })).status;
    expect([await status(first), await status(second)]).toEqual([401, 200]);
    const third = cookieOf(await ask("POST", "/gateway/session", { headers: { cookie: second } }));
    await ask("DELETE", "/logout", { headers: { cookie: second } });
    expect([await status(second), await status(third)]).toEqual([401, 401]);
    clock.advance(20_000);
    expect([
      (await ask("POST", "/gateway/session", { headers: { cookie: third } })).status,
      await status(third),
    ]).toEqual([401, 401]);
  });

  it("needs a session, and is not for pages of other origins", async () => {
    const { ask, session } = await startAdmin();
    expect([(await ask("GET", "/gateway/session")).status, (await ask("POST", "/gateway/session")).status]).toEqual([
      401, 401,
    ]);
    const cookie = await session();
    const foreign = await ask("POST", "/gateway/session", { headers: { cookie, origin: "http://evil.example" } });
    expect([foreign.status, foreign.json.code]).toEqual([403, "forbidden"]);
    const wrong = await ask("PUT", "/gateway/session", { headers: { cookie } });
    expect([wrong.status, wrong.headers.allow]).toEqual([405, "GET, HEAD, POST, OPTIONS"]);
  });

  it("tells the sessions of two gateways with one ADMIN_JWT_SECRET apart by role and password", async () => {
    const one = await startAdmin({ viewer: VIEWER, jwtSecret: SECRET });
    const cookie = cookieOf(await one.login(AS_VIEWER));
    const roleAt = async (viewer: { user: string; password: string } | null) =>
      (await (await startAdmin({ viewer, jwtSecret: SECRET })).ask("GET", "/gateway/session", { headers: { cookie } }))
        .json.role as string | undefined;
    expect([await roleAt(VIEWER), await roleAt({ ...VIEWER, password: "another" }), await roleAt(null)]).toEqual([
      "viewer",
      undefined,
      undefined,
    ]);
  });
});
