import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { definePlugin, ERRORS, schema, type Reply } from "../../lib/index.ts";
import type { ErrorCode } from "../../lib/base/errors.ts";
import { manualClock } from "../support/clock.ts";
import { closedPort } from "../support/origin.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually, type Answer } from "../support/raw_client.ts";
import { backend, client, get, headBackend, statusesIn } from "./harness.ts";

function expectProblem(answer: Answer, code: ErrorCode): void {
  const { status, title } = ERRORS[code];
  expect(answer.status).toBe(status);
  expect(answer.headers["content-type"]).toBe("application/problem+json");
  const document = JSON.parse(answer.body.toString()) as Record<string, unknown>;
  expect(document).toMatchObject({
    type: "about:blank",
    title,
    status,
    detail: expect.stringMatching(/^[A-Z].*\.$/),
    code,
    request_id: answer.headers["x-request-id"],
  });
  expect(
    Object.keys(document).filter((key) => !["type", "title", "status", "detail", "code", "request_id"].includes(key)),
  ).toEqual([]);
  const all = answer.rawHeaders.join("\n") + answer.body.toString();
  expect(all).not.toMatch(/127\.0\.0\.1|ECONN|HPE_|ERR_|at .*\.ts|node|stack|edge-gateway\/\d/);
}

describe("problem documents", () => {
  it("problem documents have one shape for every error code, and reveal nothing internal", async () => {
    const clock = manualClock();
    const upstream = await headBackend(({ socket, text }) => {
      if (text.includes("/reset")) socket.destroy();
      else if (text.includes("/invalid")) socket.write("nonsense\r\n\r\n");
    });
    const timeouts = { response_ms: 50, connect_ms: 20 };
    const { port } = await running(
      oneService(upstream.port, { timeouts, routes: [{ path: "/{x}", methods: ["GET"] }] }),
      { clock },
    );
    const hung = () => upstream.heads.filter((text) => text.includes("/hang")).length;
    expectProblem(await ask(port, { path: "/none" }), "route_not_found");
    expectProblem(await ask(port, { method: "DELETE", path: "/a/x" }), "method_not_allowed");
    expectProblem(await ask(port, { path: "/a/../x" }), "path_ambiguous");
    expectProblem(await ask(port, { path: "/a/x", headers: { Host: "a b" } }), "bad_request");
    expectProblem(await ask(port, { path: "/a/x", headers: { Expect: "x" } }), "expectation_failed");
    expectProblem(await ask(port, { path: `/a/${"x".repeat(9000)}` }), "uri_too_long");
    expectProblem(await ask(port, { path: "/a/x", headers: { "X-A": "x".repeat(40_000) } }), "headers_too_large");
    expectProblem(await ask(port, { path: "/a/reset" }), "upstream_reset");
    expectProblem(await ask(port, { path: "/a/invalid" }), "upstream_invalid");
    const late = ask(port, { path: "/a/hang" });
    await eventually(() => hung() === 1, "a request at the upstream");
    clock.advance(50);
    expectProblem(await late, "upstream_timeout");
    const { port: dead } = await running(oneService(await closedPort()));
    expectProblem(await ask(dead, { path: "/a/x" }), "upstream_connect_failed");
    const { port: narrow } = await running(
      oneService(upstream.port, { timeouts: { connect_ms: 20 }, pool: { max_connections: 1 } }),
      { clock },
    );
    const connection = await client(narrow);
    connection.send(get("/a/hang"));
    await eventually(() => hung() === 2, "a request at the upstream");
    const before = clock.pending;
    const waiting = ask(narrow, { path: "/a/x" });
    await eventually(() => clock.pending > before, "the second waiting");
    clock.advance(20);
    expectProblem(await waiting, "upstream_saturated");
  });

  it("problem documents are left out of responses to HEAD, which keep their Content-Length", async () => {
    const { port } = await running(oneService(await closedPort()));
    for (const [path, status] of [
      ["/none", 404],
      ["/a/%zz", 400],
      ["/a/x", 502],
    ] as const) {
      const connection = await client(port);
      connection.send(`HEAD ${path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n`);
      const received = await connection.closed();
      expect(statusesIn(received)).toEqual([status]);
      expect(received).toMatch(/\r\nContent-Length: [1-9]\d+\r\n/);
      expect(received).toMatch(/\r\n\r\n$/);
    }
  });

  it("problem documents list the allowed methods in Allow with a 405", async () => {
    const { port } = await running(oneService(1, { routes: [{ path: "/x", methods: ["GET", "PUT"] }] }));
    expect((await ask(port, { method: "DELETE", path: "/a/x" })).headers.allow).toBe("GET, HEAD, PUT");
  });
});

/** A gateway with one plugin that runs `act` for /a/bad, in front of a backend that answers "ok". */
async function withPlugin(act: () => unknown) {
  const upstream = await backend();
  const kind = definePlugin({
    name: "acting",
    schema: schema.object({}),
    create: () => (next) => (exchange) => (exchange.path === "/a/bad" ? (act() as Reply) : next(exchange)),
  });
  const made = await running(oneService(upstream.port, { plugins: [{ name: "acting" }] }), { plugins: [kind] });
  return { ...made, upstream };
}

describe("a plugin that fails", () => {
  const reply = (parts: object) => () => ({ status: 200, headers: [], body: Buffer.from("body"), ...parts });
  it.each<[string, () => unknown]>([
    [
      "throws",
      () => {
        throw new Error("secret reason at 10.0.0.1");
      },
    ],
    [
      "throws a value that is no Error",
      () => {
        throw "secret reason";
      },
    ],
    ["rejects", () => Promise.reject(new Error("secret reason"))],
    ["rejects later", () => new Promise((_, reject) => setImmediate(reject, new Error("secret reason")))],
    ["puts a line break into a header", reply({ headers: ["X-A", "b\r\nSet-Cookie: secret=1"] })],
    ["puts a line break into a header name", reply({ headers: ["X-A\r\nSet-Cookie", "secret=1"] })],
    ["puts a NUL into a header", reply({ headers: ["X-A", "b\0secret"] })],
    ["puts a character beyond Latin-1 into a header", reply({ headers: ["X-A", "secret\u{1F600}"] })],
    ["puts a line break into the reason", reply({ reason: "OK\r\nSet-Cookie: secret=1" })],
    ["returns an invalid status", reply({ status: 42 })],
  ])("answers 500 when a plugin %s, and serves other requests", async (_what, act) => {
    const { port } = await withPlugin(act);
    const answer = await ask(port, { path: "/a/bad" });
    expectProblem(answer, "internal");
    expect(answer.rawHeaders.join() + answer.body.toString()).not.toContain("secret");
    expect((await ask(port, { path: "/a/good" })).status).toBe(200);
  });

  it.each([undefined, null, 42, "text", {}])(
    "answers 500 or closes the connection when a plugin returns %j, and keeps the process running",
    async (value) => {
      const { port } = await withPlugin(() => value);
      await ask(port, { path: "/a/bad" }).then(
        (answer) => expect(answer.status).toBe(500),
        (error: NodeJS.ErrnoException) => expect(error.code).toBe("ECONNRESET"),
      );
      expect((await ask(port, { path: "/a/good" })).status).toBe(200);
    },
  );

  it(
    "answers 500 to an upgrade when a plugin's header contains a line break, " + "and sends nothing of that header",
    async () => {
      const { port } = await withPlugin(reply({ headers: ["X-A", "b\r\nSet-Cookie: secret=1"] }));
      const connection = await client(port);
      connection.send(get("/a/bad", "Connection: Upgrade", "Upgrade: websocket"));
      const received = await connection.closed();
      expect(statusesIn(received)).toEqual([500]);
      expect(received).not.toContain("secret");
    },
  );

  it(
    "answers 500 when a plugin adds a line break to a header for the upstream, " + "and sends the upstream nothing",
    async () => {
      const upstream = await backend();
      const kind = definePlugin({
        name: "splitting",
        schema: schema.object({}),
        create: () => (next) => (exchange) =>
          next(exchange.with({ headers: [...exchange.headers, "X-A", "b\r\nX-Evil: 1"] })),
      });
      const { port } = await running(
        oneService(upstream.port, { plugins: [{ name: "splitting" }], pool: { max_connections: 1 } }),
        { plugins: [kind] },
      );
      for (let i = 0; i < 2; i++) expectProblem(await ask(port, { path: "/a/x" }), "internal");
      expect(upstream.connections.total).toBe(0);
    },
  );

  it("leaves out a trailer that HTTP cannot carry", async () => {
    const { port } = await withPlugin(
      reply({ body: Readable.from([Buffer.from("body")]), trailers: () => ["X-A", "b\r\nX-Evil: 1"] }),
    );
    const answer = await ask(port, { path: "/a/bad" });
    expect(answer.body.toString()).toBe("body");
    expect(answer.trailers).toEqual([]);
  });

  it("answers with an error when a plugin's body has already been read or has failed before it is sent", async () => {
    const read = Readable.from([]);
    read.resume();
    await new Promise((resolve) => read.once("end", resolve));
    const broken = new Readable({ read() {} });
    broken.on("error", () => {});
    broken.destroy(new Error("gone"));
    for (const [body, status] of [
      [read, 500],
      [broken, 502],
    ] as const) {
      const { port } = await withPlugin(reply({ body }));
      expect((await ask(port, { path: "/a/bad" })).status).toBe(status);
    }
  });
});
