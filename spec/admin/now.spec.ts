import { gunzipSync } from "node:zlib";
import { request } from "node:http";
import { describe, expect, it } from "vitest";
import { nowView, readNowQuestion } from "../../lib/admin/now.ts";
import type * as api from "../../lib/manager/assets/admin_types.ts";
import { HEALTH, optionsFrom, source, startAdmin, STATS, STATUS, type AdminSource, type Running } from "./harness.ts";

/** That this compiles is the promise: what the interface says is what the pages of the management UI read. */
const all: api.Now = await nowView(optionsFrom(source).gateway, { figures: "total", known: null }, () =>
  Promise.resolve(),
);

/** A source that can be changed, and what was asked of it. */
function changing() {
  const now = { status: STATUS, health: HEALTH };
  const asked: unknown[] = [];
  const stats: AdminSource["stats"] = (extent) => (asked.push(extent), STATS);
  return {
    now,
    asked,
    source: { ...source, status: () => now.status, health: () => now.health, stats } satisfies AdminSource,
  };
}

/** The bytes of a reply, as a browser gets them. */
function raw(
  { port }: Running,
  path: string,
  headers: Record<string, string>,
): Promise<{ coding: string | undefined; body: Buffer }> {
  return new Promise((resolve, reject) => {
    request({ host: "127.0.0.1", port, path, headers, agent: false }, (response) => {
      const parts: Buffer[] = [];
      response
        .on("data", (part: Buffer) => void parts.push(part))
        .on("end", () => resolve({ coding: response.headers["content-encoding"], body: Buffer.concat(parts) }));
    })
      .on("error", reject)
      .end();
  });
}

describe("GET /gateway/now", () => {
  it("gives status, health, figures and history to whoever knows nothing", async () => {
    const { ask, session } = await startAdmin();
    const got = await ask("GET", "/gateway/now", { headers: { cookie: await session() } });
    expect([got.status, got.json]).toEqual([200, JSON.parse(JSON.stringify(all))]);
    expect(got.json).toMatchObject({
      status: { digest: STATUS.digest },
      health: { services: [{ name: "a" }, { name: "b" }] },
      stats: { step_s: 5, history: [{ requests: 3 }] },
    });
    expect((await ask("GET", "/gateway/now")).status).toBe(401);
  });

  it(
    "gives to whoever names what is known only the figures, " +
      "and what has changed apart from uptime and requests in flight",
    async () => {
      const { now, source: told } = changing();
      const ask = (known: string | null): Promise<api.Now> =>
        nowView(optionsFrom(told).gateway, { figures: "total", known: known?.split(".") ?? null }, () =>
          Promise.resolve(),
        );
      const before = (await ask(null)).known;
      now.status = { ...STATUS, uptimeMs: 99_000, inFlight: 9 };
      expect(Object.keys(await ask(before))).toEqual(["known", "stats"]);
      expect((await ask(before)).stats.history).toBeUndefined();
      now.status = { ...STATUS, digest: "000000000001" };
      expect(Object.keys(await ask(before))).toEqual(["known", "status", "stats"]);
      const after = (await ask(before)).known;
      now.health = { services: [] };
      expect(Object.keys(await ask(after))).toEqual(["known", "health", "stats"]);
      expect(Object.keys(await ask("of.another"))).toEqual(["known", "status", "health", "stats"]);
    },
  );

  it("computes figures only of what the page shows", async () => {
    const { asked, source: told } = changing();
    const { ask, session } = await startAdmin({ source: told });
    const cookie = await session();
    for (const query of [
      "",
      "?figures=total",
      "?figures=top",
      "?figures=services",
      "?figures=busy",
      "?service=a%20%26%20b",
    ])
      await ask("GET", `/gateway/now${query}`, { headers: { cookie } });
    expect(asked).toEqual(["total", "total", "busy", "services", "busy", { service: "a & b" }]);
    const wrong = await ask("GET", "/gateway/now?figures=all", { headers: { cookie } });
    expect([wrong.status, wrong.json.code, wrong.json.detail]).toEqual([
      400,
      "request_invalid",
      '"figures" must be one of total, top, services, busy.',
    ]);
    expect(readNowQuestion("/gateway/now?known=a.b")).toEqual({ figures: "total", known: ["a", "b"] });
  });
});

describe("the figures of the first routes", () => {
  it(
    "are of the five with the most requests, the longest durations and the most errors, " +
      "of any service, without the others",
    async () => {
      const quiet = { ...STATS.total, requestsPerS: 1, p95Ms: 10 };
      const routes = (names: string, of: (i: number) => Partial<typeof quiet>) =>
        Array.from(names, (name, i) => ({ name, ...quiet, ...of(i) }));
      const services = [
        { ...STATS.services[0]!, name: "busy", routes: routes("abcdef", (i) => ({ requestsPerS: 20 - i })) },
        { ...STATS.services[0]!, name: "slow", routes: routes("ghijkl", (i) => ({ p95Ms: 100 + i })) },
        { ...STATS.services[0]!, name: "failing", routes: routes("mnopqr", (i) => ({ errorsPerS: i })) },
        { ...STATS.services[0]!, name: "none of these" },
      ];
      const { stats } = await nowView(
        optionsFrom({ ...source, stats: () => ({ ...STATS, services }) }).gateway,
        { figures: "top", known: [] },
        () => Promise.resolve(),
      );
      expect(
        stats.services.map(({ name, routes, upstreams, groups }) => [
          name,
          routes.map((route) => route.name).join(""),
          upstreams,
          groups,
        ]),
      ).toEqual([
        ["busy", "abcde", [], []],
        ["slow", "hijkl", [], []],
        ["failing", "nopqr", [], []],
      ]);
      expect(stats.total).toEqual(all.stats.total);
    },
  );
});

describe("the coding of replies", () => {
  it("is gzip where the client accepts it and the reply has no secrets", async () => {
    const routes = Array.from({ length: 50 }, (_, i) => ({ name: `r${i}`, path: `/r${i}` }));
    const config = () => ({ services: [{ name: "s", routes }], global: { name: "g", plugins: [] } });
    const running = await startAdmin({ source: { ...source, config } });
    const headers = { cookie: await running.session(), "accept-encoding": "gzip" };
    for (const path of ["/gateway/now", "/gateway/stats", "/gateway?secrets=masked"]) {
      const { coding, body } = await raw(running, path, headers);
      expect([path, coding]).toEqual([path, "gzip"]);
      expect(JSON.parse(gunzipSync(body).toString())).toEqual(
        (await running.ask("GET", path, { headers: { cookie: headers.cookie } })).json,
      );
    }
    // The compressed length of a secret beside a text of an attacker's choice tells about the secret.
    expect((await raw(running, "/gateway", headers)).coding).toBeUndefined();
  });
});

describe("secrets for a page that asks for none", () => {
  it("are masked by the gateway in the configuration, the settings and explanations", async () => {
    const asked: unknown[] = [];
    const told: AdminSource = {
      ...source,
      config: (secrets) => (asked.push(secrets), source.config(secrets)),
      explain: (question, secrets) => (asked.push(secrets), source.explain(question, secrets)),
    };
    const { ask, session } = await startAdmin({ source: told });
    const cookie = await session();
    const question = { body: '{"method":"GET","url":"/"}', headers: { cookie, "content-type": "application/json" } };
    for (const query of ["", "?secrets=masked"]) {
      await ask("GET", `/gateway${query}`, { headers: { cookie } });
      await ask("POST", `/gateway/explain${query}`, question);
    }
    expect(asked).toEqual(["shown", "shown", "masked", "masked"]);
    expect((await ask("GET", "/gateway/config?secrets=masked", { headers: { cookie } })).json.AdminPassword).toBe(
      "********",
    );
  });
});

describe("GET /gateway/plugins", () => {
  it("gives the plugins of a route in the order in which they run, and says which route there is not", async () => {
    const { ask, session } = await startAdmin();
    const cookie = await session();
    const get = (query: string) => ask("GET", `/gateway/plugins${query}`, { headers: { cookie } });
    expect((await get("?service=a&route=r")).json).toEqual({
      plugins: [
        { level: "global", name: "key_auth", id: null, config: { key: "${env:KEY}" }, requests: 7, answered: 2 },
      ],
    });
    expect([(await get("?service=a&route=x")).status, (await get("?service=a")).json.detail]).toEqual([
      404,
      'Name a route: "?service=…&route=…".',
    ]);
    expect((await ask("GET", "/gateway/plugins?service=a&route=r")).status).toBe(401);
  });
});

describe("a cookie of the session's name that is no session of this gateway", () => {
  it.each([
    ["of another application", "token=hello"],
    ["of another gateway, or from before a restart", "token=eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhIn0.AAAA"],
  ])("%s is named in the 401, with the setting that ends the collision", async (_what, cookie) => {
    const { ask } = await startAdmin();
    const got = await ask("GET", "/gateway/now", { headers: { cookie } });
    expect([got.status, got.json.cookie, got.json.detail]).toEqual([
      401,
      "token",
      expect.stringMatching(
        new RegExp(
          String.raw`^Sign in again: the gateway was restarted, [^.]*STATE_DIR or ` +
            String.raw`ADMIN_JWT_SECRET, [^.]*ADMIN_COOKIE_NAME avoids\.$`,
        ),
      ),
    ]);
  });

  it("is not suspected of a session that has expired or was ended, nor without a cookie", async () => {
    const { ask, session, clock } = await startAdmin({ sessionTtlS: 10 });
    const [ended, expired] = [await session(), await session()];
    await ask("DELETE", "/logout", { headers: { cookie: ended } });
    clock.advance(11_000);
    for (const headers of [{ cookie: ended }, { cookie: expired }, { cookie: "token=" }, {}])
      expect((await ask("GET", "/gateway/now", { headers })).json.cookie).toBeUndefined();
  });
});
