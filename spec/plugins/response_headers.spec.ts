import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import type { Reply } from "../../lib/http/reply.ts";
import { responseHeaders } from "../../lib/plugins/response_headers.ts";
import { atOnce, checked, exercise, instance, madeUpExchange, plainReply } from "../support/exercise.ts";

const config = {
  remove: ["Server"],
  rename: { "X-Old": "X-New" },
  set: { "X-Item": "{id}" },
  add: { Link: ["</a>", "</b>"] },
};
const reply: Reply = {
  status: 200,
  headers: ["Server", "x", "X-Old", "1", "x-item", "upstream's", "Link", "</0>"],
  body: null,
};
const changed = ["X-New", "1", "Link", "</0>", "X-Item", "7", "Link", "</a>", "Link", "</b>"];
const exchange = () => madeUpExchange({ params: { id: "7" } });

describe("the reply", () => {
  it("the reply has its headers changed in a copy, in the order remove, rename, set, add", () => {
    const before = [...reply.headers];
    const { returned, forwarded } = exercise(instance(responseHeaders, config), exchange(), () => reply);
    expect(atOnce(returned)).toEqual({ ...reply, headers: changed });
    expect(reply.headers).toEqual(before);
    expect(forwarded?.headers).toEqual(["Host", "gateway.example"]);
  });

  it("the reply gets its changes also as a promise", async () => {
    const { returned } = exercise(instance(responseHeaders, config), exchange(), () => Promise.resolve(reply));
    expect((await returned).headers).toEqual(changed);
  });

  it("the reply keeps status, body, trailers and tunnel", () => {
    const body = Readable.from(["x"]);
    const trailers = () => ["T", "1"];
    const { returned } = exercise(instance(responseHeaders, config), exchange(), () => ({
      ...reply,
      status: 502,
      reason: "Why",
      body,
      trailers,
    }));
    expect(atOnce(returned)).toMatchObject({ status: 502, reason: "Why", trailers });
    expect(atOnce(returned).body).toBe(body);
    const tunnel = { socket: body as never, head: Buffer.alloc(0), idleMs: 1 };
    const switched: Reply = {
      status: 101,
      headers: ["Connection", "Upgrade", "Upgrade", "websocket"],
      body: null,
      tunnel,
    };
    const opened = atOnce(
      exercise(instance(responseHeaders, { set: { "X-A": "1" } }), exchange(), () => switched).returned,
    );
    expect(opened).toEqual({ ...switched, headers: ["Connection", "Upgrade", "Upgrade", "websocket", "X-A", "1"] });
    body.destroy();
  });

  it("the reply never replaces the fault of an inner plugin", async () => {
    const failing = exercise(instance(responseHeaders, config), exchange(), () => Promise.reject(new Error("x")));
    await expect(failing.returned).rejects.toThrow("x");
    expect(atOnce(exercise(instance(responseHeaders, { remove: ["None"] }), exchange()).returned).headers).toEqual(
      plainReply.headers,
    );
  });
});

describe("configuration", () => {
  it.each<[string, unknown, RegExp]>([
    ["nothing to do", {}, /needs at least one of/],
    ["Connection", { add: { Connection: "x" } }, /is a header of a single connection/],
    ["Content-Length", { remove: ["content-length"] }, /is part of how the message is framed/],
    ["Trailer", { set: { trailer: "x" } }, /is part of how the message is framed/],
    ["X-Request-Id", { set: { "X-Request-Id": "x" } }, /is set by the gateway itself/],
    ["Sec-WebSocket-Accept", { remove: ["Sec-WebSocket-Accept"] }, /is part of how a WebSocket is opened/],
  ])("response_headers reports %s as a configuration error", (_, given, message) => {
    const { issues } = checked(responseHeaders.schema, given);
    expect(issues.length).toBe(1);
    expect(issues[0]).toMatch(message);
  });
});
