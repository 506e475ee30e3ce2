import { describe, expect, it } from "vitest";
import { explanationView, statusView, testsView, view as viewOf } from "../../lib/admin/views.ts";
import type * as api from "../../lib/manager/assets/admin_types.ts";
import { EXPLANATION, HEALTH, startAdmin, STATS, STATUS, TAKEN, TESTS } from "./harness.ts";

/** That this compiles is the promise: what the interface says is what the pages of the management UI read. */
const status: api.Status = statusView({ ...STATUS, lastReload: TAKEN });
const health: api.Health = viewOf(HEALTH);
const stats: api.StatsWithHistory = viewOf(STATS);
const explanation: api.Explanation = explanationView(EXPLANATION);
const tests: api.TestRun = testsView(TESTS);

describe("the JSON that the pages of the management UI read", () => {
  it(
    "the JSON that the pages of the management UI read has certificates and warnings in the status, " +
      "with times as in RFC 3339",
    () => {
      const view = statusView({
        ...STATUS,
        certificates: [
          { where: "SERVER_CERT_PATH", path: "/c.pem", names: [], commonName: "till", notAfter: Date.UTC(2027, 0, 1) },
        ],
        warnings: [
          {
            code: "circuit_open",
            path: "services.s",
            message: "Open.",
            example: null,
            remedy: "Wait.",
            service: "s",
            route: null,
          },
        ],
      });
      expect(view.certificates).toEqual([
        {
          where: "SERVER_CERT_PATH",
          path: "/c.pem",
          names: [],
          common_name: "till",
          not_after: "2027-01-01T00:00:00.000Z",
        },
      ]);
      expect(view.warnings).toEqual([
        {
          code: "circuit_open",
          path: "services.s",
          line: null,
          column: null,
          message: "Open.",
          example: null,
          remedy: "Wait.",
          service: "s",
          route: null,
          acceptable: false,
        },
      ]);
      expect(status.last_reload?.outcome).toBe("taken");
    },
  );

  it("the JSON that the pages of the management UI read has the statistics of the endpoint", async () => {
    const tries = { requests_per_s: 0, errors_per_s: 0, p50_ms: null, p95_ms: null, p99_ms: null, in_flight: 0 };
    const figures = { ...tries, limited_per_s: 0, statuses_per_s: {} };
    const { step_s, history, ...now } = stats;
    expect(now).toEqual({
      at: "2026-01-01T00:00:07.000Z",
      window_s: 60,
      total: { ...figures, requests_per_s: 0.3333, statuses_per_s: { "4xx": 0.6667, "401": 0.3333 }, in_flight: 2 },
      unrouted: figures,
      codes_per_s: { key_missing: 0.3333 },
      services: [
        {
          name: "a",
          total: figures,
          groups: [{ group: null, ...tries }],
          routes: [{ name: "r", ...figures, p95_ms: 12 }],
          upstreams: [{ id: "u", ...tries, errors_per_s: 2 }],
        },
      ],
      point: {
        at: "2026-01-01T00:00:05.000Z",
        requests: 3,
        errors: 1,
        limited: 1,
        statuses: { "4xx": 1, "5xx": 1 },
        p50_ms: 1.5,
        p95_ms: 2,
        p99_ms: 3,
      },
    });
    expect([step_s, history]).toEqual([5, [{ ...stats.point, at: "2026-01-01T00:00:00.000Z" }]]);
    const { ask, session } = await startAdmin();
    const got = await ask("GET", "/gateway/stats", { headers: { cookie: await session() } });
    expect([got.status, got.json]).toEqual([200, stats]);
    expect((await ask("GET", "/gateway/stats")).status).toBe(401);
  });

  it(
    "the JSON that the pages of the management UI read has the last run of tests with its counts, " +
      "and none where none has run",
    () => {
      expect([tests.passed, tests.failed]).toEqual([TESTS.report.passed, TESTS.report.failed]);
      expect(tests.tests.map(({ name }) => name)).toEqual(TESTS.report.tests.map(({ name }) => name));
      expect(testsView(null) satisfies api.TestRun).toMatchObject({ passed: 0, failed: 0, tests: [] });
    },
  );

  it(
    "the JSON that the pages of the management UI read has the upstreams of an explanation as in the " +
      "health, with their share",
    () => {
      expect(explanation.upstreams[0]).toEqual({
        ...health.services[1]!.upstreams[0],
        id: "u",
        port: 1,
        state: "healthy",
        since: "2026-01-01T00:00:00.000Z",
        share: 1,
      });
    },
  );
});
