import { Readable } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import {
  createGateway,
  headerValue,
  headerValues,
  type ConfigInput,
  type Gateway,
  type GatewayOptions,
} from "../../lib/index.ts";
import { codec } from "../support/codec.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { connect } from "../support/raw_client.ts";
import { behaving } from "../gateway/plugins.ts";

function mounted(config: ConfigInput, options: Partial<GatewayOptions> = {}): Gateway {
  const gateway = createGateway({ config, ...options });
  onTestFinished(async () => void (await gateway.close(0)));
  return gateway;
}

describe("inject", () => {
  it.each<[what: string, request: unknown, message: RegExp]>([
    ["nothing", undefined, /^inject takes an object with options$/],
    ["no URL", {}, /^inject: url must be a string$/],
    ["an unknown name", { url: "/a/x", header: {} }, /^inject has no option "header": did you mean "headers"\?$/],
    [
      "a name that is far from all",
      { url: "/a/x", timeout: 1 },
      /^inject has no option "timeout": it has method, url, headers, body, clientIp, certificate$/,
    ],
    ["a path", { path: "/a/x" }, /^inject has no option "path": write "url"$/],
    [
      "a remoteAddress",
      { url: "/a/x", remoteAddress: "192.0.2.1" },
      /^inject has no option "remoteAddress": write "clientIp"$/,
    ],
    [
      "the name of a configuration's test",
      { url: "/a/x", client_ip: "192.0.2.1" },
      /^inject has no option "client_ip": did you mean "clientIp"\?$/,
    ],
    [
      "a scheme",
      { url: "/a/x", scheme: "https" },
      /^inject has no option "scheme": the url says it, such as "https:\/\/localhost\/"$/,
    ],
    ["encrypted", { url: "/a/x", encrypted: true }, /^inject has no option "encrypted": the url says it, /],
    ["a body that is an object", { url: "/a/x", body: {} }, /^inject: body must be a string or a Buffer$/],
    [
      "headers that are a string",
      { url: "/a/x", headers: "A: b" },
      /^inject: headers must be an object or a flat list$/,
    ],
    ["a method that is a number", { url: "/a/x", method: 1 }, /^inject: method must be a string$/],
    [
      "a client that is no address",
      { url: "/a/x", clientIp: "gateway.example" },
      /^inject: clientIp must be an IP address$/,
    ],
    [
      "a certificate with the names of another interface",
      { url: "/a/x", certificate: { subject: "CN=a", names: [] } },
      /^certificate of inject has no option "names": write "san"$/,
    ],
    [
      "a certificate without a subject",
      { url: "/a/x", certificate: {} },
      /^inject: certificate.subject must be a string$/,
    ],
  ])(
    "inject rejects with a TypeError that says what is wrong for %s, and sends nothing",
    async (_what, request, message) => {
      const { port, seen } = await backend();
      const error: unknown = await mounted(oneService(port))
        .inject(request as never)
        .catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(TypeError);
      expect((error as Error).message).toMatch(message);
      expect(seen).toHaveLength(0);
    },
  );

  it("inject sends a request to the upstream and returns its reply without a listener", async () => {
    const { port, seen } = await backend((request, response, body) => {
      response.writeHead(201, { "Content-Type": "text/plain", "X-Own": "yes" });
      response.end(`${request.method} ${body.toString()}`);
    });
    const answer = await mounted(oneService(port)).inject({
      method: "POST",
      url: "/a/x?q=1",
      headers: { "X-Mine": "1" },
      body: "hello",
    });
    expect(answer.status).toBe(201);
    expect(answer.text()).toBe("POST hello");
    expect(answer.header("x-own")).toBe("yes");
    expect(answer.header("X-OWN")).toBe("yes");
    expect(answer.header("absent")).toBeUndefined();
    expect(seen[0]).toMatchObject({ method: "POST", url: "/x?q=1" });
    expect(seen[0]!.headers).toEqual(
      expect.arrayContaining(["X-Mine", "1", "X-Forwarded-Host", "localhost", "X-Forwarded-For", "127.0.0.1"]),
    );
  });

  it("inject keeps order and duplicates of a flat header list", async () => {
    const { port, seen } = await backend();
    await mounted(oneService(port)).inject({ url: "/a/x", headers: ["X-A", "1", "X-B", "2", "X-A", "3"] });
    const sent = seen[0]!.headers.flatMap((name, i) =>
      i % 2 === 0 && /^X-[AB]$/.test(name) ? [`${name}: ${seen[0]!.headers[i + 1]}`] : [],
    );
    expect(sent).toEqual(["X-A: 1", "X-B: 2", "X-A: 3"]);
  });

  it("inject sends a list of values as several lines", async () => {
    const { port, seen } = await backend();
    await mounted(oneService(port)).inject({ url: "/a/x", headers: { "X-A": ["1", "2"], "X-B": "3" } });
    expect(headerValues(seen[0]!.headers, "x-a")).toEqual(["1", "2"]);
  });

  it.each([
    ["a path", { url: "/a/x?q" }, "http", "localhost"],
    ["a path, with a certificate", { url: "/a/x?q", certificate: { subject: "CN=a" } }, "https", "localhost"],
    ["a URL", { url: "https://shop.example/a/x?q" }, "https", "shop.example"],
    [
      "a URL beside another Host",
      { url: "HTTP://shop.example:80/a/x?q", headers: { Host: "other.example" } },
      "http",
      "shop.example:80",
    ],
    [
      "a URL, with a certificate",
      { url: "http://shop.example/a/x?q", certificate: { subject: "CN=a" } },
      "https",
      "shop.example",
    ],
  ])("inject takes scheme and host from %s", async (_what, request, scheme, host) => {
    const { port, seen } = await backend();
    expect((await mounted(oneService(port)).inject(request)).status).toBe(200);
    expect(seen[0]!.url).toBe("/x?q");
    expect(headerValue(seen[0]!.headers, "x-forwarded-proto")).toBe(scheme);
    expect(headerValue(seen[0]!.headers, "x-forwarded-host")).toBe(host);
  });

  it("inject runs plugins, with clientIp as the client's address", async () => {
    const { port } = await backend();
    const gateway = mounted(oneService(port, { plugins: [{ name: "rate_limit", config: { limit_hour: 1 } }] }));
    const from = async (clientIp: string) => (await gateway.inject({ url: "/a/x", clientIp })).status;
    expect(await from("192.0.2.1")).toBe(200);
    expect(await from("192.0.2.1")).toBe(429);
    expect(await from("192.0.2.2")).toBe(200);
  });

  it("json() of a response parses the body, and throws a SyntaxError if it is not JSON", async () => {
    const { port } = await backend((request, response) => response.end(request.url === "/json" ? '{"a":[1]}' : "no"));
    const gateway = mounted(oneService(port));
    expect((await gateway.inject({ url: "/a/json" })).json()).toEqual({ a: [1] });
    const other = await gateway.inject({ url: "/a/text" });
    expect(() => other.json()).toThrow(SyntaxError);
  });

  it("inject returns no body for HEAD", async () => {
    const gateway = mounted(oneService(9));
    const answer = await gateway.inject({ method: "HEAD", url: "/nowhere" });
    expect(answer.status).toBe(404);
    expect(answer.body).toHaveLength(0);
  });

  it.each([
    ["a target beyond 8192 bytes", { url: `/a/${"x".repeat(9000)}` }, 414],
    ["more than 200 header lines", { url: "/a/x", headers: Array.from({ length: 402 }, () => "x") }, 431],
    ["a head of more bytes than allowed", { url: "/a/x", headers: { "X-Long": "x".repeat(70_000) } }, 431],
    ["an expectation that cannot be met", { url: "/a/x", headers: { Expect: "tea" } }, 417],
    ["a Host that is none", { url: "/a/x", headers: { Host: "a b" } }, 400],
  ])("refuses %s, like a listener", async (_what, request, status) => {
    expect((await mounted(oneService(9)).inject(request)).status).toBe(status);
  });

  // Node's own codec counts heads in another way.
  it.runIf(codec === "wire")("refuses heads from the same size on as a listener, to the byte", async () => {
    const limits = { max_header_bytes: 4096 };
    const { gateway, port } = await running(oneService((await backend()).port, {}, { limits }));
    const rest = "GET /a/x HTTP/1.1\r\nHost: a\r\nX-One: \r\n".length;
    for (const bytes of [4095, 4096, 4097, 4098]) {
      // The end of the last line and the empty line do not count.
      const value = "x".repeat(bytes + "\r\n".length - rest);
      const headers = { Host: "a", "X-One": value };
      const { status: inject } = await gateway.inject({ url: "/a/x", headers });
      const talk = await connect(port);
      talk.send(`GET /a/x HTTP/1.1\r\nHost: a\r\nX-One: ${value}\r\n\r\n`);
      const [, status] = /^HTTP\/1.1 (\d+)/.exec(await talk.until("\r\n"))!;
      talk.socket.destroy();
      expect([bytes, inject]).toEqual([bytes, Number(status)]);
      expect(inject).toBe(bytes > 4096 ? 431 : 200);
    }
  });

  it("inject rejects when the body is interrupted, and the access log has the request", async () => {
    const { port } = await backend((_request, response) => {
      response.writeHead(200, { "Content-Length": "100" });
      response.write("part", () => response.destroy());
    });
    let log = "";
    const gateway = mounted(oneService(port), { accessLog: (lines) => void (log += lines) });
    await expect(gateway.inject({ url: "/a/x" })).rejects.toThrow();
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
    await gateway.inject({ method: "POST", url: "/a/x", body: "unread" });
    expect((body as Readable | null)?.destroyed).toBe(true);
  });

  it("inject answers while the gateway drains, and gets 503 overloaded after close", async () => {
    let release = () => {};
    const { port } = await backend((request, response) => {
      if (request.url === "/slow") release = () => void response.end("slow");
      else response.end("quick");
    });
    const gateway = mounted(oneService(port));
    const slow = gateway.inject({ url: "/a/slow" });
    await expect.poll(() => gateway.inFlight).toBe(1);
    const closing = gateway.close();
    expect((await gateway.inject({ url: "/a/quick" })).text()).toBe("quick");
    await expect.poll(() => (release(), gateway.inFlight)).toBe(0);
    expect((await slow).text()).toBe("slow");
    expect(await closing).toBe("drained");
    const late = await gateway.inject({ url: "/a/quick" });
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
    ["a space in the target", { url: "/a/x y" }],
  ])("the invalid requests that inject refuses never reach the upstream: %s", async (_what, request) => {
    const upstream = await backend();
    const response = await mounted(oneService(upstream.port)).inject({ url: "/a/x", ...request });
    expect(response.status).toBe(400);
    expect(response.json()).toMatchObject({ code: "bad_request" });
    expect(upstream.seen).toEqual([]);
  });
});
