import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { createGateway, discard, type Handler, type Log, type Reply } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { ask } from "../support/raw_client.ts";
import { behaving } from "./plugins.ts";

interface Line {
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>> | undefined;
}

function keeping(lines: Line[]): Log {
  const keep = (message: string, fields?: Readonly<Record<string, unknown>>) => void lines.push({ message, fields });
  return { debug: () => {}, info: keep, warn: keep, error: keep };
}

describe("serve", () => {
  it("404 route_not_found where no service and route match", async () => {
    const gateway = createGateway({ config: oneService(9) });
    const answer = await gateway.inject({ path: "/b/c" });
    expect(answer.status).toBe(404);
    expect(answer.json()).toMatchObject({ type: "about:blank", status: 404, code: "route_not_found", title: "No route matches the request" });
  });

  it("405 method_not_allowed with Allow where the path has routes for other methods", async () => {
    const gateway = createGateway({ config: oneService(9, { routes: [{ path: "/x", methods: ["GET", "PUT"] }] }) });
    const answer = await gateway.inject({ method: "POST", path: "/a/x" });
    expect(answer.status).toBe(405);
    expect(answer.header("Allow")!.split(", ").sort()).toEqual(["GET", "HEAD", "PUT"]);
    expect(answer.json()).toMatchObject({ code: "method_not_allowed" });
  });

  it.each(["/a/../b", "/a/%2e%2e/b", "/a/x%2fy", "/a/%zz", "/a/x\\y", "/a/%00"])("400 path_ambiguous for %s", async (path) => {
    const gateway = createGateway({ config: oneService(9) });
    const answer = await gateway.inject({ path });
    expect(answer.status).toBe(400);
    expect(answer.json()).toMatchObject({ code: "path_ambiguous", detail: expect.stringMatching(/^[A-Z].*\.$/) as string });
  });

  it("the host of an absolute target counts, not the Host header", async () => {
    const { port, seen } = await backend();
    const gateway = createGateway({ config: oneService(port, { hosts: ["api.example.com"] }) });
    expect((await gateway.inject({ path: "http://api.example.com/a/x", headers: { Host: "other.example" } })).status).toBe(200);
    expect((await gateway.inject({ path: "http://other.example/a/x", headers: { Host: "api.example.com" } })).status).toBe(404);
    expect(seen).toHaveLength(1);
    await gateway.close(0);
  });

  it("every problem names the request by the id its X-Request-Id bears", async () => {
    const gateway = await running(oneService(9));
    const answer = await ask(gateway.port, { path: "/nowhere" });
    const { request_id: id } = JSON.parse(answer.body.toString()) as { request_id: string };
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(answer.headers["x-request-id"]).toBe(id);
    expect(answer.headers["content-type"]).toBe("application/problem+json");
  });
});

const WRONG: readonly [string, unknown][] = [
  ["undefined", undefined],
  ["null", null],
  ["a text", "hello"],
  ["a reply without headers", { status: 200, body: null }],
  ["a reply whose body is a text", { status: 200, headers: [], body: "hello" }],
  ["a reply without a body field", { status: 200, headers: [] }],
  ["a reply whose status is a text", { status: "200", headers: [], body: null }],
  ["a reply with status 99", { status: 99, headers: [], body: null }],
  ["a reply with status 1000", { status: 1000, headers: [], body: null }],
  ["a 101 without a tunnel", { status: 101, headers: [], body: null }],
];

describe("a plugin at fault", () => {
  const faults: readonly [string, Handler][] = [
    ["throws", () => { throw new Error("secret inside"); }],
    ["rejects", () => Promise.reject(new Error("secret inside"))],
    ["throws what is no Error", () => { throw "secret inside"; }], // eslint-disable-line
    ...WRONG.map(([what, reply]): [string, Handler] => [`returns ${what}`, () => reply as Reply]),
    ...WRONG.map(([what, reply]): [string, Handler] => [`resolves with ${what}`, () => Promise.resolve(reply as Reply)]),
  ];

  it.each(faults)("that %s makes a 500 that tells nothing, a line in the log, and no harm to the next request", async (_what, handler) => {
    const { port } = await backend();
    const lines: Line[] = [];
    let faulty = true;
    const gateway = await running(oneService(port, { plugins: [{ name: "behave" }] }), {
      plugins: [behaving((next) => (exchange) => (faulty ? handler(exchange) : next(exchange)))],
      log: keeping(lines),
    });
    const answer = await ask(gateway.port, { path: "/a/x" });
    expect(answer.status).toBe(500);
    expect(answer.body.toString()).not.toContain("inside");
    expect(JSON.parse(answer.body.toString())).toMatchObject({ code: "internal", title: "The gateway failed to handle the request" });
    expect(lines).toHaveLength(1);
    expect(lines[0]!.message).toBe("a plugin or the gateway failed");
    expect(lines[0]!.fields).toMatchObject({ request_id: answer.headers["x-request-id"], service: "s", route: "/{rest*}" });
    faulty = false;
    expect((await ask(gateway.port, { path: "/a/x" })).status).toBe(200);
  });

  it("a stream that came with a reply that is none is destroyed", async () => {
    const body = Readable.from(["x"]);
    const gateway = createGateway({
      config: oneService(9, { plugins: [{ name: "behave" }] }),
      plugins: [behaving(() => () => ({ status: 0, headers: [], body }))],
    });
    expect((await gateway.inject({ path: "/a/x" })).status).toBe(500);
    expect(body.destroyed).toBe(true);
  });

  it("one that replaces a reply and discards the old one leaves its pooled connection free for the next", async () => {
    const { port, connections } = await backend((_request, response) => response.end("x".repeat(1_000_000)));
    const gateway = await running(oneService(port, { plugins: [{ name: "behave" }], pool: { max_connections: 1 } }), {
      plugins: [
        behaving((next) => async (exchange) => {
          discard(await next(exchange));
          return { status: 204, headers: [], body: null };
        }),
      ],
    });
    for (let i = 0; i < 3; i++) expect((await ask(gateway.port, { path: "/a/x" })).status).toBe(204);
    expect(connections.total).toBeGreaterThan(0);
  });

  it("a stream as a plugin's own body reaches the client whole", async () => {
    const gateway = await running(oneService(9, { plugins: [{ name: "behave" }] }), {
      plugins: [behaving(() => () => ({ status: 200, headers: [], body: Readable.from([Buffer.from("one "), Buffer.from("two")]) }))],
    });
    expect((await ask(gateway.port, { path: "/a/x" })).body.toString()).toBe("one two");
  });

  it("a status beyond 599 from an upstream passes, as it is the upstream's word", async () => {
    const { port } = await backend((_request, response) => {
      response.writeHead(799, "Own Idea");
      response.end("ok");
    });
    const gateway = await running(oneService(port));
    expect(await ask(gateway.port, { path: "/a/x" })).toMatchObject({ status: 799, reason: "Own Idea" });
  });
});
