import { Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGateway, type ConfigInput, type Gateway, type GatewayOptions } from "../../lib/index.ts";
import { backend, oneService } from "../support/gateway.ts";
import { behaving } from "./plugins.ts";

function mounted(config: ConfigInput, options: Partial<GatewayOptions> = {}): Gateway {
  const gateway = createGateway({ config, ...options });
  onTestFinished(async () => void (await gateway.close(0)));
  return gateway;
}

describe("inject", () => {
  it.each<[what: string, request: unknown, message: RegExp]>([
    ["nothing", undefined, /^inject takes an object with options$/],
    ["no path", {}, /^inject: path must be a string$/],
    ["an unknown name", { path: "/a/x", header: {} }, /^inject has no option "header": did you mean "headers"\?$/],
    ["a name of another interface", { path: "/a/x", scheme: "https" }, /^inject has no option "scheme": it has method, path, headers, /],
    ["a body that is an object", { path: "/a/x", body: {} }, /^inject: body must be a string or a Buffer$/],
    ["headers that are a string", { path: "/a/x", headers: "A: b" }, /^inject: headers must be an object or a flat list$/],
    ["a method that is a number", { path: "/a/x", method: 1 }, /^inject: method must be a string$/],
  ])("inject rejects with a TypeError that says what is wrong for %s, and sends nothing", async (_what, request, message) => {
    const { port, seen } = await backend();
    const error: unknown = await mounted(oneService(port)).inject(request as never).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toMatch(message);
    expect(seen).toHaveLength(0);
  });

  it("inject sends a request to the upstream and returns its reply without a listener", async () => {
    const { port, seen } = await backend((request, response, body) => {
      response.writeHead(201, { "Content-Type": "text/plain", "X-Own": "yes" });
      response.end(`${request.method} ${body.toString()}`);
    });
    const answer = await mounted(oneService(port)).inject({ method: "POST", path: "/a/x?q=1", headers: { "X-Mine": "1" }, body: "hello" });
    expect(answer.status).toBe(201);
    expect(answer.text()).toBe("POST hello");
    expect(answer.header("x-own")).toBe("yes");
    expect(answer.header("X-OWN")).toBe("yes");
    expect(answer.header("absent")).toBeUndefined();
    expect(seen[0]).toMatchObject({ method: "POST", url: "/x?q=1" });
    expect(seen[0]!.headers).toEqual(expect.arrayContaining(["X-Mine", "1", "X-Forwarded-Host", "localhost", "X-Forwarded-For", "127.0.0.1"]));
  });

  it("inject keeps order and duplicates of a flat header list", async () => {
    const { port, seen } = await backend();
    await mounted(oneService(port)).inject({ path: "/a/x", headers: ["X-A", "1", "X-B", "2", "X-A", "3"] });
    const sent = seen[0]!.headers.flatMap((name, i) => (i % 2 === 0 && /^X-[AB]$/.test(name) ? [`${name}: ${seen[0]!.headers[i + 1]}`] : []));
    expect(sent).toEqual(["X-A: 1", "X-B: 2", "X-A: 3"]);
  });

  it("inject runs plugins, with remoteAddress as the client's address", async () => {
    const { port } = await backend();
    const gateway = mounted(oneService(port, { plugins: [{ name: "rate_limit", config: { limit_hour: 1 } }] }));
    const from = async (remoteAddress: string) => (await gateway.inject({ path: "/a/x", remoteAddress })).status;
    expect(await from("192.0.2.1")).toBe(200);
    expect(await from("192.0.2.1")).toBe(429);
    expect(await from("192.0.2.2")).toBe(200);
  });

  it("json() of a response parses the body, and throws a SyntaxError if it is not JSON", async () => {
    const { port } = await backend((request, response) => response.end(request.url === "/json" ? '{"a":[1]}' : "no"));
    const gateway = mounted(oneService(port));
    expect((await gateway.inject({ path: "/a/json" })).json()).toEqual({ a: [1] });
    const other = await gateway.inject({ path: "/a/text" });
    expect(() => other.json()).toThrow(SyntaxError);
  });

  it("inject returns no body for HEAD", async () => {
    const gateway = mounted(oneService(9));
    const answer = await gateway.inject({ method: "HEAD", path: "/nowhere" });
    expect(answer.status).toBe(404);
    expect(answer.body).toHaveLength(0);
  });

  it.each([
    ["a target beyond 8192 bytes", { path: `/a/${"x".repeat(9000)}` }, 414],
    ["more than 200 header lines", { path: "/a/x", headers: Array.from({ length: 402 }, () => "x") }, 431],
    ["a head of more bytes than allowed", { path: "/a/x", headers: { "X-Long": "x".repeat(70_000) } }, 431],
    ["an expectation that cannot be met", { path: "/a/x", headers: { Expect: "tea" } }, 417],
    ["a Host that is none", { path: "/a/x", headers: { Host: "a b" } }, 400],
  ])("refuses %s, like a listener", async (_what, request, status) => {
    expect((await mounted(oneService(9)).inject(request)).status).toBe(status);
  });

  it("inject rejects when the body is interrupted, and the access log has the request", async () => {
    const { port } = await backend((_request, response) => {
      response.writeHead(200, { "Content-Length": "100" });
      response.write("part", () => response.destroy());
    });
    let log = "";
    const gateway = mounted(oneService(port), { accessLog: (lines) => void (log += lines) });
    await expect(gateway.inject({ path: "/a/x" })).rejects.toThrow();
    await gateway.close(0);
    expect(JSON.parse(log)).toMatchObject({ status: 200, code: "upstream_reset" });
  });

  it("inject destroys a request body that was not read", async () => {
    let body: Readable | null = null;
    const gateway = mounted(oneService(9, { plugins: [{ name: "behave" }] }), {
      plugins: [
        behaving(() => (exchange) => {
          body = exchange.body;
          return { status: 204, headers: [], body: null };
        }),
      ],
    });
    await gateway.inject({ method: "POST", path: "/a/x", body: "unread" });
    expect((body as Readable | null)?.destroyed).toBe(true);
  });

  it("inject answers while the gateway drains, and gets 503 overloaded after close", async () => {
    let release = () => {};
    const { port } = await backend((request, response) => {
      if (request.url === "/slow") release = () => void response.end("slow");
      else response.end("quick");
    });
    const gateway = mounted(oneService(port));
    const slow = gateway.inject({ path: "/a/slow" });
    await expect.poll(() => gateway.inFlight).toBe(1);
    const closing = gateway.close();
    expect((await gateway.inject({ path: "/a/quick" })).text()).toBe("quick");
    await expect.poll(() => (release(), gateway.inFlight)).toBe(0);
    expect((await slow).text()).toBe("slow");
    expect(await closing).toBe("drained");
    const late = await gateway.inject({ path: "/a/quick" });
    expect(late.status).toBe(503);
    expect(late.json()).toMatchObject({ code: "overloaded", detail: "The gateway has been shut down." });
  });
});

describe("the invalid requests that inject refuses", () => {
  const hidden = "xGET /admin HTTP/1.1\r\nHost: h\r\n\r\n";
  it.each([
    ["a Content-Length that is not the body's", { method: "POST", headers: { "content-length": "1" }, body: hidden }],
    ["a Content-Length without a body", { method: "POST", headers: { "content-length": "10" } }],
    ["two Content-Lengths", { method: "POST", headers: ["Content-Length", "2", "Content-Length", "2"], body: "ab" }],
    ["a Transfer-Encoding", { method: "POST", headers: { "Transfer-Encoding": "chunked" }, body: "0\r\n\r\n" }],
    ["two Hosts", { headers: ["Host", "a", "Host", "b"] }],
    ["a Host that is none", { headers: { Host: "a/b" } }],
    ["CONNECT", { method: "CONNECT" }],
    ["a method that is no token", { method: "GET /x" }],
    ["a header name that is no token", { headers: { "a b": "1" } }],
    ["a line break in a header", { headers: { a: "1\r\nb: 2" } }],
    ["more than 100 options in Connection", { headers: { Connection: ",".repeat(100) } }],
    ["a space in the target", { path: "/a/x y" }],
  ])("the invalid requests that inject refuses never reach the upstream: %s", async (_what, request) => {
    const upstream = await backend();
    const response = await mounted(oneService(upstream.port)).inject({ path: "/a/x", ...request });
    expect(response.status).toBe(400);
    expect(response.json()).toMatchObject({ code: "bad_request" });
    expect(upstream.seen).toEqual([]);
  });
});
