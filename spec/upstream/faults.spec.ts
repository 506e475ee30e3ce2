import { expect, it } from "vitest";
import { faultCode } from "../../lib/upstream/faults.ts";
import { RetryBudget } from "../../lib/upstream/retries.ts";
import { manualClock } from "../support/clock.ts";

/**
 * As Node 20 and Node 26 give them, of the alerts that `openssl s_server -Verify` sends after the handshake of TLS 1.3.
 */
it.each([
  "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED",
  "ERR_SSL_TLSV1_ALERT_UNKNOWN_CA",
  "ERR_SSL_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
  "ERR_SSL_SSL/TLS_ALERT_UNSUPPORTED_CERTIFICATE",
  "ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE",
])("treats %s as a failure to connect, also after the handshake", (code) => {
  expect(faultCode(Object.assign(new Error("alert"), { code }), false)).toBe("upstream_connect_failed");
});

it.each([
  ["ERR_SSL_SSL/TLS_ALERT_BAD_RECORD_MAC", "upstream_reset"],
  ["ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR", "upstream_reset"],
  ["ECONNRESET", "upstream_reset"],
])("treats %s after the handshake as %s", (code, expected) => {
  expect(faultCode(Object.assign(new Error("broken"), { code }), false)).toBe(expected);
});

const taken = (budget: RetryBudget, ratio: number, times: number) =>
  Array.from({ length: times }, () => budget.take(ratio)).filter(Boolean).length;

it("gives a service with few requests ten retries in ten seconds", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  budget.request();
  expect(taken(budget, 0.2, 20)).toBe(10);
  clock.advance(9_000);
  expect(budget.take(0.2)).toBe(false);
  clock.advance(1_000);
  expect(taken(budget, 0.2, 20)).toBe(10);
});

it("gives a service with many requests its share of the requests of the last ten seconds", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  for (let i = 0; i < 1000; i++) budget.request();
  expect(taken(budget, 0.2, 500)).toBe(200);
  for (let i = 0; i < 50; i++) budget.request();
  expect(taken(budget, 0.2, 500)).toBe(10);
});

it("gives upstreams that all fail no more than the requests and their share", () => {
  const clock = manualClock();
  const budget = new RetryBudget(clock);
  let sent = 0;
  for (let i = 0; i < 10_000; i++) {
    clock.advance(5);
    budget.request();
    sent += 1 + taken(budget, 0.2, 2);
  }
  expect(sent).toBeLessThanOrEqual(10_000 * 1.2);
});
