import { expect, it } from "vitest";
import type { ErrorCode } from "../../lib/base/errors.ts";
import { Call } from "../../lib/http/exchange.ts";
import { grpcReply } from "../../lib/http/grpc.ts";
import { headerValue } from "../../lib/http/headers.ts";
import { problem, problemReply, type Reply } from "../../lib/http/reply.ts";

const call = () => new Call({ id: "1", remoteAddress: "", trustedRemote: false, startedAt: 0, inform: () => {} });
const grpc = ["content-type", "application/grpc"];

it.each<[ErrorCode, number]>([
  ["bad_request", 13],
  ["key_missing", 16],
  ["forbidden", 7],
  ["route_not_found", 12],
  ["method_not_allowed", 12],
  ["rate_limited", 14],
  ["upstream_reset", 14],
  ["upstream_unavailable", 14],
  ["upstream_timeout", 14],
  ["request_timeout", 2],
  ["body_too_large", 2],
  ["internal", 2],
])("turns %s into grpc-status %d with HTTP status 200 and no body", (code, status) => {
  const own = call();
  const reply = grpcReply(own, grpc, problem(own, code));
  expect(reply).toMatchObject({ status: 200, body: null });
  expect(reply.headers.slice(0, 4)).toEqual(["content-type", "application/grpc", "grpc-status", String(status)]);
});

it(
  "sends title and detail percent-encoded as grpc-message, " + "and keeps headers that do not describe the document",
  () => {
    const own = call();
    const made = problem(own, "rate_limited", { detail: "100 % für heute\n", headers: ["Retry-After", "3"] });
    const { headers } = grpcReply(own, ["Content-Type", "application/grpc+proto"], made);
    expect(headerValue(headers, "grpc-message")).toBe("Too many requests: 100 %25 f%C3%BCr heute%0A");
    expect(headerValue(headers, "retry-after")).toBe("3");
    expect(headerValue(headers, "content-length")).toBeUndefined();
  },
);

it("turns a plugin's own error into a gRPC error", () => {
  const own = call();
  const reply = grpcReply(own, grpc, problemReply(own, { code: "teapot", status: 403, title: "No coffee" }));
  expect(reply.headers).toEqual(["content-type", "application/grpc", "grpc-status", "7", "grpc-message", "No coffee"]);
});

it.each(["application/grpc", "application/grpc+proto", "APPLICATION/GRPC+json", "application/grpc; charset=x"])(
  "treats %s as gRPC",
  (type) => {
    const own = call();
    expect(grpcReply(own, ["content-type", type], problem(own, "internal")).status).toBe(200);
  },
);

it.each(["application/grpc-web", "application/grpc-web+proto", "application/json", "text/application/grpc"])(
  "does not treat %s as gRPC",
  (type) => {
    const own = call();
    const made = problem(own, "internal");
    expect(grpcReply(own, ["content-type", type], made)).toBe(made);
  },
);

it("leaves an upstream's reply unchanged, even a problem document", () => {
  const reply: Reply = { status: 503, headers: ["content-type", "application/problem+json"], body: Buffer.from("{}") };
  expect(grpcReply(call(), grpc, reply)).toBe(reply);
});

it("leaves a plugin's reply unchanged if it is not a problem document", () => {
  const own = call();
  own.fail("odd");
  const reply: Reply = { status: 503, headers: ["content-type", "text/plain"], body: Buffer.from("no") };
  expect(grpcReply(own, grpc, reply)).toBe(reply);
});
