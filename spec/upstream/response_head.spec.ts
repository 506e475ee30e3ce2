import { expect, it } from "vitest";
import { trailerFields } from "../../lib/upstream/response_head.ts";

it("passes trailers about the content on, in order and with duplicates", () => {
  const list = ["X-Sum", "1", "grpc-status", "0", "x-sum", "2", "Server-Timing", "a;dur=1", "ETag", '"x"'];
  expect(trailerFields(list)).toEqual(list);
});

it.each([
  "Content-Length", "transfer-encoding", "Host", "Connection", "TE", "Trailer", "Upgrade", "Authorization", "Cookie", "Set-Cookie",
  "Content-Type", "Content-Encoding", "Content-Range", "Expect", "Cache-Control", "X-Forwarded-For", "x-forwarded-proto", "Forwarded",
  "X-Request-Id", "Via", "Proxy-Authorization",
])("removes the trailer %s, which would rewrite what was checked in the head", (name) => {
  expect(trailerFields(["X-A", "1", name, "x", "X-B", "2"])).toEqual(["X-A", "1", "X-B", "2"]);
});
