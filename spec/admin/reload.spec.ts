import { describe, expect, it } from "vitest";
import type { ReloadOutcome } from "../../lib/gateway/status.ts";
import type { LastReload } from "../../lib/index.ts";
import { DRY_RUN, RELOADED, source, startAdmin, STATUS, TAKEN, UI } from "./harness.ts";

async function loggedIn(changes: Parameters<typeof startAdmin>[0] = {}) {
  const running = await startAdmin(changes);
  const cookie = await running.session();
  const headers = { cookie };
  return { ...running, headers, get: (path: string) => running.ask("GET", path, { headers }) };
}

/** A source that counts how often it is asked to reload. */
function reloading(outcome: ReloadOutcome = RELOADED) {
  const asked = { count: 0 };
  const reload = async () => {
    asked.count++;
    return outcome;
  };
  return { asked, source: { ...source, reload } };
}

describe("POST /gateway/reload", () => {
  it("reloads, and returns the digest and the changes", async () => {
    const { asked, source } = reloading();
    const { ask, headers } = await loggedIn({ source });
    const got = await ask("POST", "/gateway/reload", { headers });
    expect(got).toMatchObject({
      status: 200,
      json: { digest: "0123456789ab", changed: true, changes: [{ change: "added", kind: "route" }] },
    });
    expect(Object.keys(got.json)).toEqual(["digest", "changed", "changes"]);
    expect(asked.count).toBe(1);
  });

  it("returns that nothing changed", async () => {
    const { ask, headers } = await loggedIn(
      reloading({ outcome: "taken", digest: TAKEN.digest, changed: false, changes: [] }),
    );
    expect((await ask("POST", "/gateway/reload", { headers })).json).toEqual({
      digest: "0123456789ab",
      changed: false,
      changes: [],
    });
  });

  it("gives 422 with every issue and the digest in force for an invalid configuration", async () => {
    const issues = [
      { path: "services[0].base_pth", line: 3, column: 5, message: "is not a known field" },
      { path: "[0]", line: 1, column: 2, message: "expected an object", file: "/etc/gw/tests.json" },
    ];
    const { digest } = TAKEN;
    const { ask, headers } = await loggedIn(reloading({ digest, outcome: "refused", file: "gw.json", issues }));
    const got = await ask("POST", "/gateway/reload", { headers });
    expect([got.status, got.headers["content-type"]]).toEqual([422, "application/problem+json"]);
    expect(got.json).toMatchObject({
      type: "about:blank",
      status: 422,
      code: "configuration_refused",
      digest,
      file: "gw.json",
      issues,
    });
    expect(got.json.detail).toBe("Configuration 0123456789ab stays in force.");
  });

  it("gives 500 without details for a fault", async () => {
    const reload = () => Promise.reject(new Error("the inside"));
    const { ask, headers } = await loggedIn({ source: { ...source, reload } });
    const got = await ask("POST", "/gateway/reload", { headers });
    expect([got.status, got.json.code]).toEqual([500, "internal"]);
    expect(got.text).not.toContain("inside");
  });

  it("refuses a configuration in the body, which would not be used", async () => {
    const { asked, source } = reloading();
    const { ask, headers } = await loggedIn({ source });
    for (const query of ["", "?dry_run=false"]) {
      const got = await ask("POST", `/gateway/reload${query}`, {
        headers: { ...headers, "content-type": "application/json" },
        body: '{"services":[]}',
      });
      expect([got.status, got.json.code]).toEqual([400, "request_invalid"]);
      expect(got.json.detail).toBe(
        "A reload reads the file of the gateway, and takes no body; dry_run=true tries one.",
      );
    }
    expect(asked.count).toBe(0);
  });

  it("does nothing without a token, for a foreign page, or for another method", async () => {
    const { asked, source } = reloading();
    const { ask, headers } = await loggedIn({ source });
    expect((await ask("POST", "/gateway/reload")).status).toBe(401);
    expect(
      (await ask("POST", "/gateway/reload", { headers: { ...headers, origin: "https://evil.example" } })).status,
    ).toBe(403);
    for (const method of ["GET", "PUT", "DELETE"]) {
      const got = await ask(method, "/gateway/reload", { headers });
      expect([got.status, got.headers.allow]).toEqual([405, "POST, OPTIONS"]);
    }
    expect((await ask("POST", "/gateway/reload/", { headers })).status).toBe(404);
    expect(asked.count).toBe(0);
    expect((await ask("POST", "/gateway/reload", { headers: { ...headers, origin: UI } })).status).toBe(200);
    expect(asked.count).toBe(1);
  });
});

describe("POST /gateway/reload?dry_run=true", () => {
  const DRY = "/gateway/reload?dry_run=true";

  /** A source that keeps the texts of dry runs. */
  function trying() {
    const texts: (string | null)[] = [];
    const { asked, source: counting } = reloading();
    const dryRun = async (text: Buffer | null) => {
      texts.push(text === null ? null : text.toString());
      return DRY_RUN;
    };
    return { texts, asked, source: { ...counting, dryRun } };
  }

  it("tries the file, or the text in the body, and does not reload", async () => {
    const { texts, asked, source } = trying();
    const { ask, headers } = await loggedIn({ source });
    const json = { ...headers, "content-type": "application/json; charset=utf-8" };
    expect((await ask("POST", DRY, { headers })).json).toMatchObject({ outcome: "accepted" });
    expect((await ask("POST", DRY, { headers: json, body: '{"services":[' })).status).toBe(200);
    expect([texts, asked.count]).toEqual([[null, '{"services":['], 0]);
  });

  it("returns the outcome in snake_case", async () => {
    const { ask, headers } = await loggedIn();
    expect((await ask("POST", DRY, { headers })).json).toEqual({
      outcome: "accepted",
      file: null,
      issues: [],
      warnings: [],
      tests: { passed: 2, failed: 0, not_run: 1, failures: [] },
      untested: null,
      diff: {
        guards_lost: [
          {
            service: "s",
            route: "r",
            guards: ["jwt"],
            altered: [],
            before: { service: "s", route: "r" },
            example: "GET http://localhost/",
          },
        ],
        added: [],
        removed: [],
        changed: [],
        other: [],
      },
      requests: { checked: 7, other_route: 2, no_route: 1, undecided: 3, examples: [] },
    });
    const refused = {
      ...DRY_RUN,
      outcome: "refused" as const,
      file: "gw.json",
      issues: [{ path: "", line: 1, column: 1, message: "wrong" }],
      tests: null,
      diff: null,
      requests: null,
    };
    const other = await loggedIn({ source: { ...source, dryRun: () => Promise.resolve(refused) } });
    expect((await other.ask("POST", DRY, { headers: other.headers })).json).toEqual(refused);
  });

  it.each(["dryrun=true", "dry_run", "dry_run=1", "dry_run=true&x=1", "x"])(
    "refuses the query ?%s, which must not become a reload",
    async (query) => {
      const { texts, asked, source } = trying();
      const { ask, headers } = await loggedIn({ source });
      const got = await ask("POST", `/gateway/reload?${query}`, { headers });
      expect(got.json).toMatchObject({
        code: "request_invalid",
        detail: "The only query parameter is dry_run=true or dry_run=false.",
      });
      expect([texts, asked.count]).toEqual([[], 0]);
      expect((await ask("POST", "/gateway/reload?dry_run=false", { headers })).status).toBe(200);
      expect([texts, asked.count]).toEqual([[], 1]);
    },
  );

  it("refuses a text of another type, and one that is too large", async () => {
    const { texts, source } = trying();
    const { ask, headers } = await loggedIn({ source });
    const other = await ask("POST", DRY, { headers: { ...headers, "content-type": "text/plain" }, body: "{}" });
    expect([other.status, other.json.detail]).toEqual([400, "Send the configuration as application/json."]);
    const large = await ask("POST", DRY, {
      headers: { ...headers, "content-type": "application/json" },
      body: "x".repeat(16 * 1024 * 1024 + 1),
    });
    expect([large.status, large.json.detail]).toEqual([413, "The body may have at most 16777216 bytes."]);
    expect(texts).toEqual([]);
  });

  it("does nothing without a token, or for a foreign page", async () => {
    const { texts, source } = trying();
    const { ask, headers } = await loggedIn({ source });
    expect((await ask("POST", DRY)).status).toBe(401);
    expect((await ask("POST", DRY, { headers: { ...headers, origin: "https://evil.example" } })).status).toBe(403);
    expect(texts).toEqual([]);
  });
});

describe("GET /gateway/status", () => {
  it("returns the state of the gateway in snake_case", async () => {
    const { get } = await loggedIn();
    expect((await get("/gateway/status")).json).toEqual({
      version: "1.2.3",
      state: "serving",
      ready: true,
      uptime_s: 61,
      in_flight: 2,
      digest: "0123456789ab",
      loaded_at: "2026-01-02T00:00:00.000Z",
      counts: { services: 1, routes: 1, upstreams: 1 },
      last_reload: null,
      last_change: null,
      counters: null,
      workers: null,
      tests: { passed: 1, failed: 0 },
      plugin_faults: [],
      certificates: [],
      acme: null,
      source: null,
      revocation_lists: [],
      warnings: [],
    });
  });

  it("returns the state of the counters that gateways share", async () => {
    const servers = [{ address: "10.0.0.7:6379", state: "down", reason: "no answer within 50 ms" }];
    const counters = {
      store: "redis" as const,
      state: "down" as const,
      onError: "deny" as const,
      since: Date.UTC(2026, 0, 2),
      servers,
    };
    const { get } = await loggedIn({ source: { ...source, status: () => ({ ...STATUS, counters }) } });
    expect((await get("/gateway/status")).json.counters).toEqual({
      store: "redis",
      state: "down",
      on_error: "deny",
      since: "2026-01-02T00:00:00.000Z",
      servers,
    });
  });

  it("returns plugins that have failed", async () => {
    const pluginFaults = [{ plugin: "tenant", id: null, level: "route" as const, service: "s", route: "r", count: 3 }];
    const { get } = await loggedIn({ source: { ...source, status: () => ({ ...STATUS, pluginFaults }) } });
    expect((await get("/gateway/status")).json.plugin_faults).toEqual(pluginFaults);
  });

  it("returns the last reload, accepted or refused", async () => {
    const { at, by, digest } = TAKEN;
    const refused: LastReload = {
      at,
      by,
      digest,
      outcome: "refused",
      file: "gw.json",
      issues: [{ path: "", line: 1, column: 1, message: "expected an object" }],
    };
    for (const lastReload of [TAKEN, refused]) {
      const { get } = await loggedIn({ source: { ...source, status: () => ({ ...STATUS, lastReload }) } });
      expect((await get("/gateway/status")).json.last_reload).toEqual({
        ...lastReload,
        at: "2026-01-02T00:00:00.000Z",
      });
    }
    const { get } = await loggedIn({
      source: { ...source, status: () => ({ ...STATUS, lastReload: refused, lastChange: TAKEN }) },
    });
    expect((await get("/gateway/status")).json.last_change).toEqual({ ...TAKEN, at: "2026-01-02T00:00:00.000Z" });
  });
});

describe("GET /gateway/health", () => {
  it("returns every upstream of every service", async () => {
    const { get } = await loggedIn();
    expect((await get("/gateway/health")).json).toEqual({
      services: [
        {
          name: "a",
          circuit_breaker: { state: "open", since: "2026-01-03T00:00:00.000Z" },
          upstreams: [
            {
              id: "u",
              host: "h",
              port: 1,
              weight: 2,
              group: "canary",
              backup: false,
              state: "ejected",
              usable: false,
              since: "2026-01-01T00:00:00.000Z",
              until: "2026-01-02T00:00:00.000Z",
              reason: "status 503",
              in_flight: 4,
              admin_id: "u",
              admin_state: "drain",
              admin_since: "2026-01-01T00:00:00.000Z",
              share: 0,
              rest: false,
            },
          ],
        },
        {
          name: "b",
          circuit_breaker: null,
          upstreams: [
            {
              id: "v",
              host: "h",
              port: 2,
              weight: 1,
              group: null,
              backup: false,
              state: "unknown",
              usable: true,
              since: null,
              until: null,
              reason: null,
              in_flight: 0,
              admin_id: null,
              admin_state: null,
              admin_since: null,
              share: 1,
              rest: true,
            },
          ],
        },
      ],
    });
  });
});

it.each(["/gateway/status", "/gateway/health"])("%s needs a token and accepts GET and HEAD only", async (path) => {
  const { ask, headers } = await loggedIn();
  expect((await ask("GET", path)).status).toBe(401);
  const got = await ask("POST", path, { headers });
  expect([got.status, got.headers.allow]).toEqual([405, "GET, HEAD, OPTIONS"]);
});
