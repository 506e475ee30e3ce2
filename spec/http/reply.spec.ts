import { Duplex, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { ERRORS, type ErrorCode } from "../../lib/base/errors.ts";
import { headerValue } from "../../lib/http/headers.ts";
import { discard, problem, problemDocument, problemReply } from "../../lib/http/reply.ts";
import { madeUpExchange, problemOf } from "../support/exercise.ts";

const call = () => madeUpExchange().call;

describe("a problem (RFC 9457)", () => {
  it.each(Object.entries(ERRORS))(
    "a problem with code %s has its status, title and code from the table",
    (code, kind) => {
      const one = call();
      const reply = problem(one, code as ErrorCode);
      expect(reply.status).toBe(kind.status);
      expect(problemOf(reply)).toEqual({
        type: "about:blank",
        title: kind.title,
        status: kind.status,
        detail: `${kind.title}.`,
        code,
        request_id: "request-1",
      });
      expect(one.notes.code).toBe(code);
    },
  );

  it("a problem has the type application/problem+json and its length in bytes", () => {
    const reply = problem(call(), "forbidden", { detail: "нет" });
    expect(headerValue(reply.headers, "content-type")).toBe("application/problem+json");
    expect(headerValue(reply.headers, "content-length")).toBe(String((reply.body as Buffer).length));
    expect(problemOf(reply)["detail"]).toBe("нет");
  });

  it("a problem has the given headers after its framing headers", () => {
    expect(problem(call(), "rate_limited", { headers: ["Retry-After", "3"] }).headers.slice(-2)).toEqual([
      "Retry-After",
      "3",
    ]);
  });

  it("a problem keeps the reason for the log", () => {
    const one = call();
    const reply = problem(one, "upstream_connect_failed", { why: "connect ECONNREFUSED 10.0.0.1:80" });
    expect(one.notes.fault).toBe("connect ECONNREFUSED 10.0.0.1:80");
    expect(String(reply.body)).not.toContain("10.0.0.1");
  });

  it("a problem may have a plugin's own code, status and title", () => {
    const one = call();
    const reply = problemReply(
      one,
      { code: "teapot", status: 418, title: "I am a teapot" },
      { detail: "short and stout" },
    );
    expect(problemOf(reply)).toMatchObject({
      status: 418,
      code: "teapot",
      title: "I am a teapot",
      detail: "short and stout",
    });
    expect(one.notes.code).toBe("teapot");
  });

  it.each(["Not today", "Not today.", "Not today!"])(
    "a problem without a detail of its own has its title as a sentence: %s",
    (title) => {
      expect(JSON.parse(String(problemDocument({ code: "x", status: 400, title }, "r")))).toHaveProperty(
        "detail",
        title === "Not today" ? "Not today." : title,
      );
    },
  );
});

describe("discard", () => {
  it("frees an unread body", () => {
    const body = Readable.from(["unread"]);
    discard({ status: 200, headers: [], body });
    expect(body.destroyed).toBe(true);
  });

  it("frees a tunnel", () => {
    const socket = new Duplex({ read() {}, write() {} });
    discard({ status: 101, headers: [], body: null, tunnel: { socket, head: Buffer.alloc(0), idleMs: 1 } });
    expect(socket.destroyed).toBe(true);
  });

  it("ignores a buffer and a reply without a body", () => {
    expect(() => {
      discard({ status: 200, headers: [], body: Buffer.from("x") });
      discard({ status: 204, headers: [], body: null });
    }).not.toThrow();
  });
});
