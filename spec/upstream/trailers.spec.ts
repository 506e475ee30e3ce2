import { expect, test } from "vitest";
import { pairs } from "../../lib/http/headers.ts";
import { trailerFields } from "../../lib/upstream/trailers.ts";

test("fields that speak of the content pass, in order and with duplicates", () => {
  const list = ["X-Sum", "1", "grpc-status", "0", "x-sum", "2", "Server-Timing", "a;dur=1", "ETag", '"x"'];
  expect(trailerFields(list)).toEqual(list);
});

test.each([
  "Content-Length", "transfer-encoding", "Host", "Connection", "TE", "Trailer", "Upgrade", "Authorization", "Cookie", "Set-Cookie",
  "Content-Type", "Content-Encoding", "Content-Range", "Expect", "Cache-Control", "X-Forwarded-For", "x-forwarded-proto", "Forwarded",
  "X-Request-Id", "Via", "Proxy-Authorization",
])("%s does not: it would rewrite what was checked in the head", (name) => {
  expect(trailerFields(["X-A", "1", name, "x", "X-B", "2"])).toEqual(["X-A", "1", "X-B", "2"]);
});

test("pairs are what node takes", () => {
  expect(pairs(["A", "1", "B", "2"])).toEqual([["A", "1"], ["B", "2"]]);
});
