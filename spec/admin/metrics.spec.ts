import { once } from "node:events";
import { Agent } from "node:http";
import net from "node:net";
import { Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { Login } from "../../lib/admin/login.ts";
import { createLog } from "../../lib/base/log.ts";
import { manualClock } from "../support/clock.ts";
import { eventually } from "../support/raw_client.ts";
import { basic, PASSWORD, RIGHT, source, startAdmin, USER, WRONG } from "./harness.ts";

const TEXT = "text/plain; version=0.0.4; charset=utf-8";

describe("GET /metrics", () => {
  it("answers requests with the token as cookie or bearer, or with the administrator's credentials", async () => {
    const { ask, session } = await startAdmin();
    const cookie = await session();
    for (const headers of [
      { cookie },
      { authorization: cookie.replace("token=", "Bearer ") },
      { authorization: RIGHT },
    ] as Record<string, string>[]) {
      const got = await ask("GET", "/metrics", { headers });
      expect([got.status, got.headers["content-type"], got.text]).toEqual([200, TEXT, "# metrics\n"]);
      expect(got.headers["set-cookie"]).toBeUndefined();
    }
  });

  it("refuses a bearer token that was revoked or has expired", async () => {
    const { ask, clock, session } = await startAdmin();
    const [gone, old] = [await session(), await session()];
    const statusOf = async (cookie: string) =>
      (await ask("GET", "/metrics", { headers: { authorization: cookie.replace("token=", "bearer ") } })).status;
    await ask("DELETE", "/logout", { headers: { cookie: gone } });
    expect([await statusOf(gone), await statusOf(old)]).toEqual([401, 200]);
    clock.advance(3_600_000);
    expect(await statusOf(old)).toBe(401);
  });

  it.each([
    ["nothing", {}],
    ["a wrong password", { authorization: WRONG }],
    ["a made-up token", { authorization: "Bearer a.b.c" }],
    ["a wrong cookie", { cookie: "token=a.b.c" }],
  ] as [string, Record<string, string>][])("gives 401 that names both schemes for %s", async (_, headers) => {
    const { ask } = await startAdmin();
    const got = await ask("GET", "/metrics", { headers });
    expect([got.status, got.json.code]).toEqual([401, "unauthenticated"]);
    expect(got.headers["www-authenticate"]).toBe(
      'Basic realm="edge-gateway admin", charset="UTF-8", Bearer realm="edge-gateway admin"',
    );
  });

  it("accepts a bearer token on no other path", async () => {
    const { ask, session } = await startAdmin();
    const authorization = (await session()).replace("token=", "Bearer ");
    expect((await ask("GET", "/gateway", { headers: { authorization } })).status).toBe(401);
    expect((await ask("GET", "/gateway", { headers: { authorization: RIGHT } })).status).toBe(401);
  });

  it("METRICS_TOKEN opens /metrics as a bearer token, and nothing else", async () => {
    const token = "a-token-of-the-scraper";
    const { ask } = await startAdmin({ metricsToken: token });
    const statusOf = async (path: string, authorization: string) =>
      (await ask(path === "/gateway/reload" ? "POST" : "GET", path, { headers: { authorization } })).status;
    expect(await statusOf("/metrics", `Bearer ${token}`)).toBe(200);
    for (const path of ["/gateway", "/gateway/config", "/gateway/status", "/gateway/tail", "/gateway/reload"])
      expect([path, await statusOf(path, `Bearer ${token}`)]).toEqual([path, 401]);
    expect((await ask("POST", "/login", { headers: { authorization: `Bearer ${token}` } })).status).toBe(401);
    for (const wrong of [`Bearer ${token}x`, `Bearer ${token.slice(1)}`, `Basic ${token}`, token])
      expect([wrong, await statusOf("/metrics", wrong)]).toEqual([wrong, 401]);
    expect(await statusOf("/metrics", RIGHT)).toBe(200);
  });

  it("without METRICS_TOKEN no bearer token but that of a session opens /metrics", async () => {
    const { ask } = await startAdmin();
    for (const authorization of ["Bearer null", "Bearer undefined", "Bearer "])
      expect((await ask("GET", "/metrics", { headers: { authorization } })).status).toBe(401);
  });

  it(
    "GET returns the text of Prometheus whatever Accept says, HEAD returns the headers alone, " +
      "and other methods get 405",
    async () => {
      const { ask } = await startAdmin();
      const headers = { authorization: RIGHT, accept: "application/openmetrics-text;version=1.0.0" };
      const [get, head] = [await ask("GET", "/metrics", { headers }), await ask("HEAD", "/metrics", { headers })];
      expect([get.headers["content-type"], get.text, get.headers.vary]).toEqual([TEXT, "# metrics\n", "Origin"]);
      expect([head.status, head.headers["content-type"], head.text]).toEqual([200, TEXT, ""]);
      const post = await ask("POST", "/metrics", { headers });
      expect([post.status, post.headers.allow]).toEqual([405, "GET, HEAD, OPTIONS"]);
    },
  );

  it("keeps the connection open for the next scrape", async () => {
    const { ask } = await startAdmin();
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    for (let i = 0; i < 2; i++)
      expect((await ask("GET", "/metrics", { headers: { authorization: RIGHT }, agent })).text).toBe("# metrics\n");
    expect(Object.values(agent.freeSockets)).toHaveLength(1);
  });

  /** Metrics without an end. */
  function endless() {
    const made = { slices: 0, isOver: false };
    const metrics = new Readable({
      read() {
        made.slices++;
        this.push(Buffer.alloc(64 * 1024, 0x23));
      },
      destroy(_error, done) {
        made.isOver = true;
        done(null);
      },
    });
    return { source: { ...source, metrics: () => Promise.resolve(metrics) }, made };
  }

  async function unread(port: number): Promise<void> {
    const socket = net.connect(port, "127.0.0.1");
    onTestFinished(() => void socket.destroy());
    await once(
      socket.on("error", () => {}),
      "connect",
    );
    socket.pause().write(`GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${RIGHT}\r\n\r\n`);
  }

  it("generates no more for a scraper that does not read than fits in the buffers", async () => {
    const { source: slow, made } = endless();
    const { port } = await startAdmin({ source: slow });
    await unread(port);
    await eventually(() => made.slices > 0);
    for (let i = 0; i < 2_000; i++) await new Promise((resolve) => setImmediate(resolve));
    // Buffers of the system hold some megabytes.
    expect(made.slices).toBeLessThan(500);
  });

  it("cuts off a scraper that reads nothing for a minute", async () => {
    const { source: slow, made } = endless();
    const { port, clock } = await startAdmin({ source: slow });
    await unread(port);
    await eventually(() => made.slices > 0);
    await eventually(() => {
      clock.advance(61_000);
      return made.isOver;
    });
  });

  it("counts and logs wrong credentials as failed logins, and does not log scrapes", async () => {
    let log = "";
    const { ask, login, clock } = await startAdmin({ log: createLog({ write: (line) => void (log += line) }) });
    const scrape = (authorization: string) => ask("GET", "/metrics", { headers: { authorization } });
    expect((await scrape(RIGHT)).status).toBe(200);
    expect(log).toBe("");
    for (let i = 0; i < 5; i++) expect((await scrape(WRONG)).status).toBe(401);
    expect(log).toContain("admin login failed");
    // The right ones as well, though they are known by now: else guesses could go on unseen.
    const paused = await scrape(RIGHT);
    expect([paused.status, paused.headers["retry-after"]]).toEqual([429, "1"]);
    expect((await login()).status).toBe(429);
    clock.advance(1_000);
    expect((await scrape(RIGHT)).status).toBe(200);
  });
});

describe("credentials that were right", () => {
  const counting = () => {
    const verified: string[] = [];
    const login = new Login({ user: USER, password: PASSWORD, clock: manualClock() }, (given, stored) => {
      verified.push(given);
      return Promise.resolve(given === stored);
    });
    return { login, verified };
  };

  it("correct credentials are not verified again; wrong credentials are verified each time", async () => {
    const { login, verified } = counting();
    const kinds = [];
    for (const given of [RIGHT, RIGHT, WRONG, WRONG, RIGHT]) kinds.push((await login.attempt(given, "192.0.2.1")).kind);
    expect(kinds).toEqual(["accepted", "accepted", "wrong", "wrong", "accepted"]);
    expect(verified).toEqual([PASSWORD, "wrong", "wrong"]);
  });

  it("credentials that were right do not let the same password pass with another user", async () => {
    const { login } = counting();
    await login.attempt(RIGHT, "192.0.2.1");
    expect((await login.attempt(basic("other", PASSWORD), "192.0.2.1")).kind).toBe("wrong");
  });

  it("correct credentials are not found by parallel guesses", async () => {
    const { login } = counting();
    await login.attempt(RIGHT, "192.0.2.1");
    const kinds = await Promise.all(
      [...Array.from({ length: 10 }, () => WRONG), RIGHT].map(
        async (given) => (await login.attempt(given, "192.0.2.9")).kind,
      ),
    );
    expect(kinds.filter((kind) => kind === "wrong").length).toBe(5);
    expect(kinds.at(-1)).toBe("paused");
  });
});
