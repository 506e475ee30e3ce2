import { describe, expect, it } from "vitest";
import { AdminSessions } from "../../lib/admin/session.ts";
import { manualClock } from "../support/clock.ts";
import { cookieOf, forged, PASSWORD, RIGHT, SECRET, startAdmin, USER } from "./harness.ts";

const PAGES = ["/gateway", "/gateway/config"];
const NOW = Date.UTC(2026, 0, 1) / 1000;
const HEADER = { alg: "HS256", typ: "JWT" };
const MIDDLE = /\.[^.]+\./;
const CLAIMS = {
  ...{ sub: USER, iat: NOW, auth_time: NOW, exp: NOW + 60, jti: "j" },
  ...{ iss: "edge-gateway", aud: "edge-gateway-admin" },
};

describe("the token cookie", () => {
  it.each(PAGES)("the token cookie gives access to GET and HEAD %s", async (path) => {
    const { ask, session } = await startAdmin();
    const cookie = await session();
    expect((await ask("GET", path, { headers: { cookie } })).status).toBe(200);
    const head = await ask("HEAD", path, { headers: { cookie } });
    expect([head.status, head.text]).toEqual([200, ""]);
  });

  it("the token cookie is found among other cookies, in quotes, and among several of its name", async () => {
    const { ask, session } = await startAdmin();
    const token = await session();
    const value = token.slice("token=".length);
    const status = async (cookie: string) => (await ask("GET", "/gateway", { headers: { cookie } })).status;
    expect(await status(`a=b; xtoken=x; Token=x; flag;${token}; token2=x`)).toBe(200);
    expect(await status(`token="${value}"`)).toBe(200);
    expect(await status(` token = ${value} `)).toBe(200);
    expect(await status(`${token}; token=x`)).toBe(200);
    expect(await status(`token=x; ${token}`)).toBe(200);
    expect(await status(`token=x; token="${value}"; token=y`)).toBe(200);
    expect(await status("token=x; token=y")).toBe(401);
    expect(await status(`token2=${value}`)).toBe(401);
    expect(await status(value)).toBe(401);
  });

  it.each<[string, string | undefined]>([
    ["missing", undefined],
    ["empty", "token="],
    ["a lone quote", 'token="'],
    ["no token at all", "token=hello"],
    ["longer than any token of ours", `token=${"a.b.".repeat(2000)}`],
    ["for another audience", forged(HEADER, { ...CLAIMS, aud: "edge-gateway" })],
    ["of another issuer", forged(HEADER, { ...CLAIMS, iss: "other" })],
    ["for another user", forged(HEADER, { ...CLAIMS, sub: "other" })],
    ["without a jti, so that it could not be revoked", forged(HEADER, { ...CLAIMS, jti: undefined })],
    [
      "without the time of its login, so that it could be renewed for ever",
      forged(HEADER, { ...CLAIMS, auth_time: "1" }),
    ],
    ["without an exp", forged(HEADER, { ...CLAIMS, exp: undefined })],
    ["expired", forged(HEADER, { ...CLAIMS, exp: NOW })],
    ["signed with another secret", forged(HEADER, CLAIMS, "another secret of more than 32 bytes")],
    ["of alg none", forged({ alg: "none", typ: "JWT" }, CLAIMS).replace(/[^.]+$/, "")],
    ["of alg none, rightly signed", forged({ alg: "none", typ: "JWT" }, CLAIMS)],
    ["of alg HS512", forged({ alg: "HS512", typ: "JWT" }, CLAIMS, SECRET, "sha512")],
    [
      "changed behind its signature",
      forged(HEADER, CLAIMS).replace(MIDDLE, MIDDLE.exec(forged(HEADER, { ...CLAIMS, exp: NOW + 99 }))![0]),
    ],
  ])("the token cookie leads to 401 without a Basic challenge when it is %s", async (_, cookie) => {
    const { ask } = await startAdmin();
    for (const path of PAGES) {
      const got = await ask("GET", path, cookie === undefined ? {} : { headers: { cookie } });
      expect(got.status).toBe(401);
      expect(got.headers["content-type"]).toBe("application/problem+json");
      expect(got.json).toMatchObject({ status: 401, code: "unauthenticated", request_id: got.headers["x-request-id"] });
      expect(got.headers["www-authenticate"]).toMatch(/^Cookie realm="edge-gateway admin", .*cookie-name="token"$/);
      expect(got.text).not.toContain("services");
    }
    expect((await ask("GET", "/gateway", { headers: { cookie: forged(HEADER, CLAIMS) } })).status).toBe(200);
  });

  it("the token cookie cannot be replaced by Basic credentials", async () => {
    const { ask } = await startAdmin();
    expect((await ask("GET", "/gateway", { headers: { authorization: RIGHT } })).status).toBe(401);
  });

  it("the token cookie expires with its session to the second", async () => {
    const { ask, session, clock } = await startAdmin({ sessionTtlS: 60 });
    const cookie = await session();
    clock.advance(59_999);
    expect((await ask("GET", "/gateway", { headers: { cookie } })).status).toBe(200);
    clock.advance(1);
    expect((await ask("GET", "/gateway", { headers: { cookie } })).status).toBe(401);
  });

  it("the token cookie is valid at every instance with the same secret, and at no other", async () => {
    const [one, two] = [await startAdmin(), await startAdmin()];
    const [own, other] = [await startAdmin({ jwtSecret: null }), await startAdmin({ jwtSecret: null })];
    const cookie = await one.session();
    expect((await two.ask("GET", "/gateway", { headers: { cookie } })).status).toBe(200);
    expect((await own.ask("GET", "/gateway", { headers: { cookie } })).status).toBe(401);
    const ownCookie = await own.session();
    expect((await own.ask("GET", "/gateway", { headers: { cookie: ownCookie } })).status).toBe(200);
    expect((await other.ask("GET", "/gateway", { headers: { cookie: ownCookie } })).status).toBe(401);
  });

  it.each([
    ["the password", { password: "another" }],
    ["the user", { user: "another" }],
    [
      "the password's hash",
      { password: "scrypt$1024$8$1$BwcHBwcHBwcHBwcHBwcHBw$Dj4MCJX6B5OKDIzJjNvQXdnTIySlUIIoys9kE_3K7cQ" },
    ],
  ])(
    "the token cookie is invalid once %s has changed, even if ADMIN_JWT_SECRET is the same",
    async (_what, changed) => {
      const [before, after] = [await startAdmin(), await startAdmin(changed)];
      const cookie = await before.session();
      for (const path of PAGES) expect((await after.ask("GET", path, { headers: { cookie } })).status).toBe(401);
      expect(
        (await after.ask("GET", "/metrics", { headers: { authorization: `Bearer ${cookie.slice("token=".length)}` } }))
          .status,
      ).toBe(401);
    },
  );
});

describe("DELETE /logout", () => {
  const CLEARED = ["token=; HttpOnly; Secure; SameSite=Strict; Path=/; Max-Age=0"];

  it("gives 204, clears the cookie, and revokes its token and no other", async () => {
    const { ask, session } = await startAdmin();
    const [cookie, another] = [await session(), await session()];
    const got = await ask("DELETE", "/logout", { headers: { cookie } });
    expect([got.status, got.text, got.headers["set-cookie"]]).toEqual([204, "", CLEARED]);
    expect((await ask("GET", "/gateway", { headers: { cookie } })).status).toBe(401);
    expect((await ask("GET", "/gateway", { headers: { cookie: another } })).status).toBe(200);
  });

  const INVALID = [undefined, "token=", "token=rubbish", forged(HEADER, { ...CLAIMS, exp: 1 })];
  it.each(INVALID)("gives 204 also without a valid token: %s", async (cookie) => {
    const { ask } = await startAdmin();
    const got = await ask("DELETE", "/logout", cookie === undefined ? {} : { headers: { cookie } });
    expect([got.status, got.headers["set-cookie"]]).toEqual([204, CLEARED]);
  });

  it("revokes every token in the Cookie header", async () => {
    const { ask, session } = await startAdmin();
    const cookies = [await session(), await session()];
    await ask("DELETE", "/logout", { headers: { cookie: `token=x; ${cookies.join("; ")}` } });
    for (const cookie of cookies) expect((await ask("GET", "/gateway", { headers: { cookie } })).status).toBe(401);
  });

  it("lets the same user log in again", async () => {
    const { ask, login } = await startAdmin();
    await ask("DELETE", "/logout", { headers: { cookie: cookieOf(await login()) } });
    const cookie = cookieOf(await login());
    expect((await ask("GET", "/gateway", { headers: { cookie } })).status).toBe(200);
  });
});

describe("revoked tokens", () => {
  const sessionsOf = (maxRevoked: number) => {
    const clock = manualClock();
    const viewer = { user: "viewer", password: PASSWORD };
    const sessions = new AdminSessions(
      { user: USER, password: PASSWORD, viewer, cookie: "token", jwtSecret: SECRET, sessionTtlS: 60, clock },
      maxRevoked,
    );
    const issue = (role: unknown = "admin") => [
      "Cookie",
      sessions.issue(role === "viewer" ? "viewer" : USER)!.cookie.split(";")[0]!,
    ];
    const isLive = (headers: readonly string[]) => sessions.hasCookie(headers);
    const revoke = (headers: readonly string[]) => sessions.revoke(headers);
    return { clock, issue, isLive, revoke };
  };

  it("revoked tokens stay revoked when there are more than can be remembered: all sessions end then", () => {
    const { clock, issue, isLive, revoke } = sessionsOf(3);
    const bystander = issue();
    const revoked = Array.from({ length: 4 }, issue);
    revoked.slice(0, 3).forEach(revoke);
    expect(isLive(bystander)).toBe(true);
    revoke(revoked[3]!);
    expect([bystander, ...revoked].map(isLive)).toEqual([false, false, false, false, false]);
    clock.advance(1000);
    expect(isLive(issue())).toBe(true);
  });

  it("revoked tokens of a viewer, however many, end no session of the administrator", () => {
    const { issue, isLive, revoke } = sessionsOf(3);
    const [administrator, viewer] = [issue(), issue("viewer")];
    for (let i = 0; i < 4; i++) revoke(issue("viewer"));
    expect([administrator, viewer].map(isLive)).toEqual([true, false]);
  });

  it("revoked tokens leave memory once they have expired", () => {
    const { clock, issue, isLive, revoke } = sessionsOf(3);
    Array.from({ length: 3 }, issue).forEach(revoke);
    clock.advance(30_000);
    const bystander = issue();
    clock.advance(30_000);
    revoke(issue());
    expect(isLive(bystander)).toBe(true);
  });
});

describe("a session that is renewed again and again", () => {
  const renewed = (sessionTtlS: number) => {
    const clock = manualClock();
    const sessions = new AdminSessions({
      ...{ user: USER, password: PASSWORD, cookie: "token", jwtSecret: SECRET, sessionTtlS, clock },
    });
    let cookie: string | undefined = sessions.issue(USER)!.cookie;
    let ms = 0;
    while (ms < 48 * 3_600_000) {
      const next: { readonly cookie: string } | null = sessions.renew(["Cookie", cookie.split(";")[0]!]);
      if (next === null) break;
      cookie = next.cookie;
      clock.advance(60_000);
      ms += 60_000;
    }
    return { hours: ms / 3_600_000, cookie };
  };

  it("a session that is renewed again and again ends 12 hours after its login, and its cookie with it", () => {
    const { hours, cookie } = renewed(3600);
    expect([hours, Number(/Max-Age=(\d+)/.exec(cookie)![1])]).toEqual([12, 60]);
  });

  it("a session that is renewed again and again ends after ADMIN_SESSION_TTL_S where that is longer", () => {
    expect(renewed(86_400).hours).toBe(24);
  });
});
