import { describe, expect, it } from "vitest";
import { Login } from "../../lib/admin/login.ts";
import { createLog } from "../../lib/base/log.ts";
import { hashPassword } from "../../lib/base/password.ts";
import { manualClock } from "../support/clock.ts";
import {
  basic,
  cookieOf,
  forged,
  PASSWORD,
  RIGHT,
  startAdmin,
  USER,
  WRONG,
  type AdminChanges,
  type Got,
} from "./harness.ts";

/** scrypt of "quick" with N = 1024, which takes a millisecond. */
const QUICK = "scrypt$1024$8$1$BwcHBwcHBwcHBwcHBwcHBw$Dj4MCJX6B5OKDIzJjNvQXdnTIySlUIIoys9kE_3K7cQ";

describe("credentials of a GET", () => {
  it.each(["/gateway/status", "/gateway/health", "/gateway/stats", "/gateway/tests", "/gateway/now", "/metrics"])(
    "are accepted in place of a session: %s",
    async (path) => {
      const { ask } = await startAdmin();
      for (const method of ["GET", "HEAD"])
        expect((await ask(method, path, { headers: { authorization: RIGHT } })).status).toBe(200);
      const refused = await ask("GET", path, { headers: { authorization: WRONG } });
      expect([refused.status, refused.json.code, refused.headers["set-cookie"]]).toEqual([
        401,
        "unauthenticated",
        undefined,
      ]);
    },
  );

  it.each(["/gateway", "/gateway/config"])(
    "do not stand for the cookie where secrets of the configuration are shown: %s",
    async (path) => {
      const { ask } = await startAdmin();
      const refused = await ask("GET", path, { headers: { authorization: RIGHT } });
      expect([refused.status, refused.json.detail]).toEqual([
        401,
        "Log in with POST /login and send the cookie it sets.",
      ]);
    },
  );

  it("are throttled as those of a login, and never asked for in a way that opens a dialog of a browser", async () => {
    const { ask, login } = await startAdmin();
    const get = () => ask("GET", "/gateway/status", { headers: { authorization: WRONG } });
    const refused = await get();
    expect(refused.headers["www-authenticate"]).not.toMatch(/basic/i);
    for (let i = 0; i < 4; i++) await get();
    expect([
      (await ask("GET", "/gateway/status", { headers: { authorization: RIGHT } })).status,
      (await login()).status,
    ]).toEqual([429, 429]);
  });

  it("are not accepted for what changes or tries something, and other schemes are no credentials", async () => {
    const { ask } = await startAdmin();
    const post = await ask("POST", "/gateway/reload", { headers: { authorization: RIGHT } });
    expect([post.status, post.json.detail]).toEqual([401, "Log in with POST /login and send the cookie it sets."]);
    const bearer = await ask("GET", "/gateway/status", {
      headers: { authorization: RIGHT.replace("Basic", "Bearer") },
    });
    expect([bearer.status, bearer.json.detail]).toEqual([401, "Log in with POST /login and send the cookie it sets."]);
  });

  it("are not accepted of pages of other origins, with which browsers send what they remember", async () => {
    const { ask } = await startAdmin({ corsOrigins: ["http://ui.example"] });
    const from = async (headers: Record<string, string>) =>
      (await ask("GET", "/gateway/status", { headers: { authorization: RIGHT, ...headers } })).status;
    expect([
      await from({ "sec-fetch-site": "cross-site" }),
      await from({ origin: "http://evil.example" }),
      await from({ origin: "null" }),
    ]).toEqual([401, 401, 401]);
    expect([
      await from({ "sec-fetch-site": "same-origin" }),
      await from({ "sec-fetch-site": "none" }),
      await from({ origin: "http://ui.example" }),
    ]).toEqual([200, 200, 200]);
  });

  it("do not help a session that has ended, and need no live one", async () => {
    const { ask, session } = await startAdmin();
    const cookie = await session();
    await ask("DELETE", "/logout", { headers: { cookie } });
    expect((await ask("GET", "/gateway/status", { headers: { cookie } })).status).toBe(401);
    expect((await ask("GET", "/gateway/status", { headers: { cookie, authorization: RIGHT } })).status).toBe(200);
  });
});

describe("POST /login", () => {
  it("gives 200 with the token cookie, the user and the end of the session for the right credentials", async () => {
    const { login } = await startAdmin({ sessionTtlS: 900 });
    const got = await login();
    expect(got.status).toBe(200);
    expect(got.headers["content-type"]).toBe("application/json");
    expect(got.json).toEqual({ user: USER, role: "admin", expires_at: "2026-01-01T00:15:00.000Z" });
    expect(got.headers["set-cookie"]).toEqual([
      expect.stringMatching(/^token=[\w-]+\.[\w-]+\.[\w-]+; HttpOnly; Secure; SameSite=Strict; Path=\/; Max-Age=900$/),
      expect.stringMatching(
        /^token-device=[\w-]+\.[\w-]+\.[\w-]+; HttpOnly; Secure; SameSite=Strict; Path=\/; Max-Age=7776000$/,
      ),
    ]);
  });

  it("returns a token signed with HS256 whose claims are sub, iat, exp, auth_time, jti, iss and aud", async () => {
    const { session } = await startAdmin({ sessionTtlS: 900 });
    const parts = async () =>
      (await session())
        .replace("token=", "")
        .split(".")
        .slice(0, 2)
        .map((part) => JSON.parse(Buffer.from(part, "base64url").toString()));
    const [header, claims] = await parts();
    const iat = Date.UTC(2026, 0, 1) / 1000;
    const jti = expect.stringMatching(/^[\w-]{22}$/);
    expect(header).toEqual({ alg: "HS256", typ: "JWT" });
    const by = { iss: "edge-gateway", aud: "edge-gateway-admin" };
    expect(claims).toEqual({ sub: USER, iat, exp: iat + 900, auth_time: iat, jti, ...by });
    expect((await parts())[1].jti).not.toBe(claims.jti);
  });

  it("accepts the scheme in any case, missing padding, and a body that is ignored", async () => {
    const { ask, login } = await startAdmin();
    expect((await login(RIGHT.replace("Basic ", "bASIC  "))).status).toBe(200);
    expect((await login(RIGHT.replace(/=+$/, ""))).status).toBe(200);
    expect(
      (await ask("POST", "/login?next=/", { headers: { authorization: RIGHT }, body: '{"user":"x"}' })).status,
    ).toBe(200);
  });

  it("compares with a configured hash, and does not accept the hash itself as password", async () => {
    const password = await hashPassword("quick");
    const { login } = await startAdmin({ password });
    expect((await login(basic(USER, "quick"))).status).toBe(200);
    expect((await login(basic(USER, "Quick"))).status).toBe(401);
    expect((await login(basic(USER, password))).status).toBe(401);
  });

  it.each([
    ["a wrong password", WRONG],
    ["a wrong user", basic("admin", PASSWORD)],
    ["user and password swapped", basic(PASSWORD, USER)],
    ["an empty user and password", basic("", "")],
    ["the user in another case", basic(USER.toUpperCase(), PASSWORD)],
    ["no header", undefined],
    ["an empty header", ""],
    ["the scheme alone", "Basic"],
    ["what is not base64", "Basic !!!!"],
    ["base64 with rubbish in it", RIGHT.replace("Basic ", "Basic *")],
    ["base64 with stray bits", "Basic YTpiZ=="],
    ["no colon", `Basic ${Buffer.from(USER).toString("base64")}`],
    ["what is not UTF-8", `Basic ${Buffer.from([0xff, 0x3a, 0xff]).toString("base64")}`],
    ["another scheme", RIGHT.replace("Basic", "Bearer")],
    ["two credentials", `${RIGHT}, ${RIGHT}`],
    ["eight kilobytes of blanks", `Basic${" ".repeat(8000)}!`],
  ])("gives 401 with the Basic challenge for %s", async (_, authorization) => {
    const { ask } = await startAdmin();
    const got = await ask("POST", "/login", authorization === undefined ? {} : { headers: { authorization } });
    expect(got.status).toBe(401);
    expect(got.headers["www-authenticate"]).toBe('Basic realm="edge-gateway admin", charset="UTF-8"');
    expect(got.headers["content-type"]).toBe("application/problem+json");
    expect(got.json).toMatchObject({ status: 401, code: "unauthenticated", request_id: got.headers["x-request-id"] });
    expect(got.headers["set-cookie"]).toBeUndefined();
  });

  it("challenges scripts of a page with another scheme than Basic, for which browsers open a window", async () => {
    const { ask } = await startAdmin();
    for (const authorization of [basic(USER, "wrong"), undefined]) {
      const headers = { "sec-fetch-dest": "empty", ...(authorization === undefined ? {} : { authorization }) };
      const got = await ask("POST", "/login", { headers });
      expect(got.status).toBe(401);
      expect(got.headers["www-authenticate"]).toMatch(/^Cookie realm=/);
    }
    const visited = await ask("POST", "/login", { headers: { "sec-fetch-dest": "document" } });
    expect(visited.headers["www-authenticate"]).toMatch(/^Basic realm=/);
  });

  it("logs logins and failed logins without the credentials", async () => {
    let text = "";
    const { login } = await startAdmin({ log: createLog({ write: (line) => void (text += line) }) });
    await login();
    await login(basic("my-password-by-mistake", "guess"));
    expect(text).toMatch(/info {2}admin logged in address=127\.0\.0\.1/);
    expect(text).toMatch(/warn {2}admin login failed address=127\.0\.0\.1/);
    for (const secret of [PASSWORD, "guess", "my-password", "eyJ"]) expect(text).not.toContain(secret);
  });
});

describe("guessing", () => {
  it(
    "gets 429 with Retry-After after five failures, also for the right password, " +
      "and twice as long after each further one",
    async () => {
      const { login, clock } = await startAdmin();
      for (let i = 0; i < 5; i++) expect((await login(WRONG)).status).toBe(401);
      for (const seconds of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]) {
        const got = await login(RIGHT);
        expect(got.status).toBe(429);
        expect(got.headers["retry-after"]).toBe(String(seconds));
        expect(got.json).toMatchObject({ status: 429, code: "rate_limited" });
        expect(got.headers["set-cookie"]).toBeUndefined();
        clock.advance(seconds * 1000 - 1);
        expect((await login(RIGHT)).headers["retry-after"]).toBe("1");
        clock.advance(1);
        expect((await login(WRONG)).status).toBe(401);
      }
    },
  );

  it("a guess is counted further when the right password comes from the same address in between", async () => {
    const { login, clock } = await startAdmin();
    for (let i = 0; i < 5; i++) await login(WRONG);
    clock.advance(1000);
    for (let i = 0; i < 3; i++) expect((await login()).status).toBe(200);
    expect((await login(WRONG)).status).toBe(401);
    expect((await login()).headers["retry-after"]).toBe("2");
  });

  it(
    "gets 429 for all but 19 of 800 guesses in 50 minutes, " +
      "although a scrape with the right password follows every four",
    async () => {
      const { login, ask, clock } = await startAdmin({ password: QUICK });
      const right = basic(USER, "quick");
      let guesses = 0;
      for (let i = 0; i < 200; i++) {
        for (let j = 0; j < 4; j++) if ((await login(WRONG)).status === 401) guesses += 1;
        await ask("GET", "/metrics", { headers: { authorization: right } });
        clock.advance(15_000);
      }
      expect(guesses).toBeLessThanOrEqual(19); // 15, and one in 15 minutes
    },
  );

  it("a guess is not counted for requests without credentials", async () => {
    const { ask, login } = await startAdmin();
    for (const authorization of ["", "Bearer x", "Basic !!!!", "Basic YTpiZ==", "Basic eA==", "Basic /zr/"]) {
      for (let i = 0; i < 5; i++)
        expect((await ask("POST", "/login", { headers: { authorization } })).status).toBe(401);
    }
    expect((await login()).status).toBe(200);
  });

  it("guessing is not faster in parallel: of 20 attempts at once, five are verified", async () => {
    const { login } = await startAdmin({ password: QUICK });
    const got = await Promise.all(Array.from({ length: 20 }, () => login(WRONG)));
    expect(got.map(({ status }) => status).sort()).toEqual([...Array(5).fill(401), ...Array(15).fill(429)]);
  });

  it("delays one address, not another (127.0.0.2 is ours on Linux only)", async ({ skip }) => {
    if (process.platform !== "linux") skip();
    const { login } = await startAdmin();
    for (let i = 0; i < 6; i++) await login(WRONG);
    expect((await login(RIGHT)).status).toBe(429);
    expect((await login(RIGHT, "127.0.0.2")).status).toBe(200);
  });

  it(
    "300 addresses get 50 guesses together, and one in the network of an earlier login is not locked out " +
      "(127.x is ours on Linux only)",
    async ({ skip }) => {
      if (process.platform !== "linux") skip();
      const { login, clock } = await startAdmin({ password: QUICK });
      const right = basic(USER, "quick");
      // The second one is recognised without another hash.
      for (const address of ["127.1.0.1", "127.4.0.1"]) expect((await login(right, address)).status).toBe(200);
      let guesses = 0;
      for (let i = 0; i < 300; i++)
        if ((await login(WRONG, `127.2.${i >> 4}.${(i % 16) + 1}`)).status === 401) guesses += 1;
      expect(guesses).toBe(50);
      const stranger = await login(right, "127.3.0.1");
      expect([stranger.status, stranger.headers["retry-after"], stranger.json.detail]).toEqual([
        429,
        "30",
        "Too many failed logins from all addresses together. Networks from which somebody has logged in do not wait.",
      ]);
      for (const address of ["127.1.0.1", "127.1.0.77", "127.4.0.77"])
        expect((await login(right, address)).status).toBe(200);
      clock.advance(30_000);
      expect((await login(right, "127.3.0.1")).status).toBe(200);
    },
  );

  it("counts an IPv6 /64 as one address, and IPv4 in IPv6 as IPv4", async () => {
    const login = new Login({ user: USER, password: PASSWORD, clock: manualClock() });
    const kind = async (authorization: string, address: string) => (await login.attempt(authorization, address)).kind;
    for (let i = 0; i < 5; i++) expect(await kind(WRONG, `2001:db8::${i}`)).toBe("wrong");
    expect(await kind(RIGHT, "2001:db8::ffff:1")).toBe("paused");
    expect(await kind(RIGHT, "2001:db8:0:1::1")).toBe("accepted");
    for (let i = 0; i < 5; i++) expect(await kind(WRONG, i % 2 ? "192.0.2.1" : "::ffff:192.0.2.1")).toBe("wrong");
    expect(await kind(RIGHT, "192.0.2.1")).toBe("paused");
    expect(await kind(RIGHT, "::ffff:192.0.2.2")).toBe("accepted");
  });

  it("a guess is refused without being counted when two are being verified and 32 wait", async () => {
    const login = new Login({ user: USER, password: QUICK, clock: manualClock() });
    const right = basic(USER, "quick");
    const outcomes = await Promise.all(Array.from({ length: 40 }, (_, i) => login.attempt(right, `192.0.2.${i}`)));
    expect(outcomes.map(({ kind }) => kind)).toEqual([...Array(34).fill("accepted"), ...Array(6).fill("overloaded")]);
    // Had those six been counted, five more failures would not all be looked at.
    for (let i = 0; i < 5; i++) expect((await login.attempt(WRONG, "192.0.2.39")).kind).toBe("wrong");
    expect((await login.attempt(WRONG, "192.0.2.39")).kind).toBe("paused");
  });

  it(
    "gets 503 overloaded with Retry-After when it is refused, " +
      "while /healthz answers (127.0.0.x is ours on Linux only)",
    async ({ skip }) => {
      if (process.platform !== "linux") skip();
      const { login, ask } = await startAdmin({ password: QUICK.replace("1024", "16384") });
      const flood = Promise.all(Array.from({ length: 60 }, (_, i) => login(WRONG, `127.0.1.${i + 1}`)));
      const first = await Promise.race([flood, ask("GET", "/healthz")]);
      expect(first).toMatchObject({ status: 200 });
      const got = await flood;
      const away = got.filter(({ status }) => status === 503);
      expect(away.length).toBeGreaterThan(0);
      expect(away[0]!.json).toMatchObject({ code: "overloaded" });
      expect(away[0]!.headers["retry-after"]).toBe("1");
      expect(got.filter(({ status }) => status === 401).length).toBe(60 - away.length);
    },
  );
});

describe("a device cookie", () => {
  const VIEWER = { user: "eve", password: "only looks" };
  const AS_VIEWER = basic(VIEWER.user, VIEWER.password);
  const DAY = 24 * 3_600_000;
  const deviceOf = ({ headers }: Got) => headers["set-cookie"]![1]!.split(";")[0]!;

  /** An admin interface, the cookie of a browser that has logged in, and five failed logins of others. */
  async function besideOthers(changes: AdminChanges = {}, as = RIGHT) {
    const running = await startAdmin({ viewer: VIEWER, ...changes });
    const device = deviceOf(await running.login(as));
    const others = async () => {
      for (let i = 0; i < 5; i++) await running.login(WRONG);
    };
    await others();
    const from = (cookie: string, authorization = RIGHT) =>
      running.ask("POST", "/login", { headers: { authorization, cookie } });
    return { ...running, device, others, from };
  }

  it("lets its user log in while others of the same address have to wait, and reads the same", async () => {
    const { login, ask, from, device } = await besideOthers();
    expect([(await login()).status, (await from(device)).status]).toEqual([429, 200]);
    expect((await from(`a=b; token-device=x; ${device.replace("=", '="')}"; c=d`)).status).toBe(200);
    const scrape = await ask("GET", "/gateway/status", { headers: { authorization: RIGHT, cookie: device } });
    expect([scrape.status, scrape.headers["set-cookie"]]).toEqual([200, undefined]);
    expect((await login()).status).toBe(429);
  });

  it("has a pause of its own failures, which count neither for others nor less after a login", async () => {
    const { from, login, clock, device } = await besideOthers();
    for (let i = 0; i < 5; i++) expect((await from(device, WRONG)).status).toBe(401);
    const paused = await from(device);
    expect([paused.status, paused.headers["retry-after"], paused.json.detail]).toEqual([
      429,
      "1",
      "Too many failed logins from this address or browser.",
    ]);
    clock.advance(1000);
    // The address has still its five failures, not ten.
    expect((await login(WRONG)).status).toBe(401);
    expect((await login()).headers["retry-after"]).toBe("2");
    const renewed = deviceOf(await from(device));
    expect(renewed).not.toBe("");
    expect((await from(renewed, WRONG)).status).toBe(401);
    for (const cookie of [renewed, device]) expect((await from(cookie)).headers["retry-after"]).toBe("2");
  });

  it("of a viewer gives no guesses at the administrator, and none of an administrator at the viewer", async () => {
    const viewer = await besideOthers({}, AS_VIEWER);
    expect([(await viewer.from(viewer.device)).status, (await viewer.from(viewer.device, AS_VIEWER)).status]).toEqual([
      429, 200,
    ]);
    const admin = await besideOthers();
    expect([(await admin.from(admin.device, AS_VIEWER)).status, (await admin.from(admin.device)).status]).toEqual([
      429, 200,
    ]);
  });

  it(
    "is valid for 90 days from the last login, in each process with the key, " + "and until the password changes",
    async () => {
      const { from, others, clock, device } = await besideOthers();
      clock.stall(90 * DAY - 10_000);
      await others();
      const renewed = deviceOf(await from(device));
      expect(renewed).not.toBe(device);
      clock.advance(10_000);
      await others();
      expect([(await from(device)).status, (await from(renewed)).status]).toEqual([429, 200]);
      const again = await besideOthers({ clock });
      expect((await again.from(renewed)).status).toBe(200);
      const another = basic(USER, "another");
      const changed = await besideOthers({ clock, password: "another" }, another);
      expect((await changed.from(renewed, another)).status).toBe(429);
      const other = await besideOthers({ clock, jwtSecret: null });
      expect((await other.from(renewed)).status).toBe(429);
      expect((await other.from(other.device)).status).toBe(200);
    },
  );

  it("counts for nothing if it is forged, of another kind, none, or very long", async () => {
    const { from, login, ask, device, clock } = await besideOthers();
    clock.advance(1000);
    const session = cookieOf(await login());
    await login(WRONG);
    const HS256 = { alg: "HS256", typ: "JWT" };
    const claims = {
      sub: USER,
      exp: clock.wall() / 1000 + 60,
      jti: "x",
      iss: "edge-gateway",
      aud: "edge-gateway-device",
    };
    const made = (...args: Parameters<typeof forged>) => forged(...args).replace("token=", "token-device=");
    expect((await from(made(HS256, claims))).status).toBe(200);
    const [head, body, signature] = device.split(".");
    for (const cookie of [
      made(HS256, claims, "another secret of thirty-two bytes"),
      made({ alg: "none" }, claims),
      made(HS256, { ...claims, jti: 1 }),
      made(HS256, { ...claims, sub: ["x"] }),
      made(HS256, { ...claims, exp: undefined }),
      made(HS256, { ...claims, aud: "edge-gateway-admin" }),
      made(HS256, { ...claims, jti: "x".repeat(5000) }),
      `${head!}.${body!}.${signature!.slice(0, -2)}`,
      `${head!}.${body!}.`,
      session.replace("token=", "token-device="),
      device.replace("token-device=", "token="),
      device.replace("token-device=", "Token-Device="),
      "token-device=",
      `token-device=${"x".repeat(15_000)}`,
      `token-device=${"e.y.j;token-device=".repeat(700)}`,
    ])
      expect([cookie.slice(0, 60), (await from(cookie)).status]).toEqual([cookie.slice(0, 60), 429]);
    const asSession = device.replace("token-device=", "token=");
    expect((await ask("GET", "/gateway", { headers: { cookie: asSession } })).status).toBe(401);
  });

  it(
    "does not wait for the failures of all addresses together, " + "nor does its own failure count among them",
    async () => {
      const login = new Login({ user: USER, password: PASSWORD, clock: manualClock() });
      const kind = async (authorization: string, address: string, device: string | null = null) =>
        (await login.attempt(authorization, address, () => device)).kind;
      for (let i = 0; i < 4; i++) expect(await kind(WRONG, "198.51.100.1", "one")).toBe("wrong");
      for (let i = 0; i < 50; i++) expect(await kind(WRONG, `192.0.2.${i}`)).toBe("wrong");
      expect(await kind(RIGHT, "198.51.100.1")).toBe("paused");
      expect(await kind(RIGHT, "198.51.100.1", "one")).toBe("accepted");
      // Somebody has logged in from its network.
      expect(await kind(RIGHT, "198.51.100.1")).toBe("accepted");
    },
  );

  it("of an administrator does not wait for failures with those of a viewer, of however many browsers", async () => {
    const login = new Login({ user: USER, password: PASSWORD, viewer: VIEWER, clock: manualClock() });
    const kind = async (authorization: string, device: string) =>
      (await login.attempt(authorization, "198.51.100.1", () => device)).kind;
    const wrong = basic(VIEWER.user, "guess");
    for (let i = 0; i < 10_000; i++) await kind(wrong, `viewer ${i}`);
    // Browsers beyond those that are counted one by one wait together.
    for (let i = 0; i < 5; i++) await kind(wrong, "one more");
    expect(await kind(AS_VIEWER, "another")).toBe("paused");
    expect(await kind(RIGHT, "administrator")).toBe("accepted");
  });
});

describe("many logins at once", () => {
  it("many logins at once succeed with the right, hashed password", async () => {
    const login = new Login({ user: "admin", password: await hashPassword("right"), clock: manualClock() });
    const authorization = `Basic ${Buffer.from("admin:right").toString("base64")}`;
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => login.attempt(authorization, "192.0.2.1")));
    expect(outcomes.map(({ kind }) => kind)).toEqual(Array.from({ length: 8 }, () => "accepted"));
  });

  it("many logins at once cause five verifications of wrong passwords, and a pause for the others", async () => {
    const login = new Login({ user: "admin", password: await hashPassword("right"), clock: manualClock() });
    const authorization = `Basic ${Buffer.from("admin:wrong").toString("base64")}`;
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => login.attempt(authorization, "192.0.2.1")));
    expect(outcomes.map(({ kind }) => kind)).toEqual([
      "wrong",
      "wrong",
      "wrong",
      "wrong",
      "wrong",
      "paused",
      "paused",
      "paused",
    ]);
  });
});
