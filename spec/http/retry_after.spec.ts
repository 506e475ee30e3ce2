import { expect, it } from "vitest";
import { askedWait } from "../../lib/http/retry_after.ts";

const NOW = Date.UTC(2026, 0, 1);

it.each([
  ["0", 0],
  ["120", 120_000],
  ["Thu, 01 Jan 2026 00:01:00 GMT", 60_000],
  ["Wed, 31 Dec 2025 23:59:00 GMT", -60_000],
  ["-1", null],
  ["1.5", null],
  ["soon", null],
  ["", null],
])("Retry-After %j asks for a wait of %j ms", (value, ms) => {
  expect(askedWait(["Retry-After", value], NOW)).toBe(ms);
});

it("a server without Retry-After asks for no wait", () => {
  expect(askedWait(["Date", "Thu, 01 Jan 2026 00:00:00 GMT"], NOW)).toBeNull();
});
