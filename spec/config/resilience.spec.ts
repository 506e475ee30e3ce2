import { describe, expect, it } from "vitest";
import { CIRCUIT_BREAKER } from "../../lib/config/circuit_breaker.ts";
import { NO_HEALTH } from "../../lib/config/fields.ts";
import { HEALTH } from "../../lib/config/health.ts";
import { nodeFrom } from "../../lib/config/json.ts";
import type { FeatureSchemas } from "../../lib/config/feature_schemas.ts";
import { fieldsOf } from "../../lib/config/feature_fields.ts";
import { RETRIES } from "../../lib/config/retries.ts";
import type { AnySchema } from "../../lib/config/schema.ts";
import { checkSettings } from "../../lib/upstream/health_checks.ts";
import { checked } from "../support/exercise.ts";

const issues = (schema: AnySchema, input: unknown) => checked(schema, input).issues;

describe("expect_status", () => {
  it.each([
    ["200-399", [{ from: 200, to: 399 }]],
    ["204", [{ from: 204, to: 204 }]],
    [
      [200, "300-399"],
      [
        { from: 200, to: 200 },
        { from: 300, to: 399 },
      ],
    ],
  ])("expect_status %j is read as %j", (expect_status, ranges) => {
    const { value, issues } = checked(HEALTH, { expect_status });
    expect(issues).toEqual([]);
    const { expects } = checkSettings(value! as Parameters<typeof checkSettings>[0]);
    for (const { from, to } of ranges)
      expect([from - 1, from, to, to + 1].map((status) => expects(status))).toEqual([false, true, true, false]);
  });

  it.each([
    [
      "399-200",
      'expect_status: expected statuses such as "200-399" or "204", found "399-200": write the lower status first',
    ],
    ["2xx", 'expect_status: expected statuses such as "200-399" or "204", found "2xx"'],
    ["200-", 'expect_status: expected statuses such as "200-399" or "204", found "200-"'],
    [[], "expect_status: expected at least 1 item, found none"],
    [[99], "expect_status[0]: expected an integer 100–599, found 99"],
    [["600"], 'expect_status[0]: expected statuses such as "200-399" or "204", found "600"'],
    [200, 'expect_status: expected statuses such as "200-399" or "204" or an array, found 200'],
  ])("expect_status %j is refused: %s", (expect_status, issue) => {
    expect(issues(HEALTH, { expect_status })).toEqual([issue]);
  });
});

it.each([
  [{ path: "healthz" }, "path: "],
  [{ path: "/a b" }, "path: "],
  [{ interval_ms: 10 }, "interval_ms: expected an integer 100–86400000, found 10"],
  [{ passive: { statuses: [200] } }, "passive.statuses[0]: expected an integer 400–599, found 200"],
  [{ passive: { max_failures: -1 } }, "passive.max_failures: expected an integer 0–10000, found -1"],
  [{ passiv: {} }, 'passiv: is not a known field; did you mean "passive"?'],
])("health %j is refused: %s", (input, issue) => {
  expect(issues(HEALTH, input)).toEqual([expect.stringContaining(issue)]);
});

it("health is the same with its feature, and without it where a service says nothing of it", () => {
  const health = fieldsOf<FeatureSchemas>([])("health", NO_HEALTH);
  expect(checked(health, {})).toEqual(checked(HEALTH, {}));
  expect(health.show(nodeFrom({}))).toEqual(HEALTH.show(nodeFrom({})));
  expect(issues(health, { enabled: true })).toEqual([
    expect.stringContaining('the field "health" has not been loaded'),
  ]);
});

it("a circuit breaker has defaults for every field, and reports wrong values", () => {
  expect(checked(CIRCUIT_BREAKER, {}).value).toEqual({
    errorRatio: 0.5,
    minRequests: 20,
    windowMs: 10_000,
    openMs: 10_000,
    probes: 1,
  });
  expect(issues(CIRCUIT_BREAKER, { error_ratio: 0, probes: 0 })).toEqual([
    "error_ratio: expected a number 0.01–1, found 0",
    "probes: expected an integer 1–1000, found 0",
  ]);
});

it("retries have defaults for every field, and report wrong values", () => {
  expect(checked(RETRIES, {}).value).toEqual({
    attempts: 2,
    on: ["connect", "reset", "timeout"],
    methods: ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "QUERY"],
    perTryMs: 0,
    budgetRatio: 0.2,
    maxReplayBytes: 65_536,
  });
  expect(checked(RETRIES, { on: [503, "connect"] }).value).toMatchObject({ on: [503, "connect"] });
  expect(issues(RETRIES, { on: ["conect", 200], budget_ratio: 2 })).toEqual([
    'on[0]: expected "connect", "reset" or "timeout", found "conect": did you mean "connect"?',
    'on[1]: expected "connect", "reset" or "timeout" or an integer 400–599, found 200',
    "budget_ratio: expected a number 0–1, found 2",
  ]);
  expect(issues(RETRIES, { on: [] })).toEqual(["on: expected at least 1 item, found none"]);
  expect(issues(RETRIES, { methods: [] })).toEqual(["methods: expected at least 1 item, found none"]);
  expect(issues(RETRIES, { methods: ["post", "CONNECT"] })).toEqual([
    expect.stringContaining('write "POST"'),
    expect.stringContaining("CONNECT is not forwarded"),
  ]);
});
