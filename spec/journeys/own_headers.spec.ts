/** `request_headers` of upstreams: what only one of them gets. */
import http2 from "node:http2";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { maskedConfig } from "../../lib/config/masked.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { manualClock } from "../support/clock.ts";
import { closedPort } from "../support/origin.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, client, get, headBackend, rawBackend, recordedLog } from "./harness.ts";

type Upstream = AnyConfigInput["services"][number]["upstreams"][number];
type Parts = Partial<AnyConfigInput["services"][number]>;

const KEY = "Bearer key-of-the-first-provider";
const OTHER_KEY = "Bearer key-of-the-other-provider";
const at = (port: number, request_headers?: Upstream["request_headers"], more: Partial<Upstream> = {}): Upstream => ({
  ...{ host: "127.0.0.1", port, ...more },
  ...(request_headers !== undefined && { request_headers }),
});
const calm: Parts = { health: { passive: { max_failures: 0 } } };

/** An upstream over HTTP/2 that answers everything, and remembers heads and trailers. */
async function h2Backend() {
  const heads: http2.IncomingHttpHeaders[] = [];
  const trailers: http2.IncomingHttpHeaders[] = [];
  const sessions = new Set<http2.Http2Session>();
  const server = http2.createServer({ settings: { enableConnectProtocol: true } });
  server.on("session", (session) => sessions.add(session));
  server.on("stream", (stream, headers) => {
    heads.push(headers);
    stream.on("error", () => {});
    stream.on("trailers", (given) => trailers.push(given));
    stream.resume();
    stream.respond({ ":status": 200 }, { endStream: headers[":protocol"] === undefined });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, heads, trailers };
}

/** Values of a header, by its name in lower case. */
const valuesOf = (list: readonly string[], lower: string) =>
  list.flatMap((name, i) => (i % 2 === 0 && name.toLowerCase() === lower ? [list[i + 1]!] : []));

describe("request_headers of an upstream", () => {
  it("replace the client's of the same names, and what plugins have set, in requests and uploads", async () => {
    const upstream = await backend();
    const plugins = [{ name: "request_headers", config: { set: { "X-Set": "by the plugin", Other: "stays" } } }];
    const config = oneService(
      [],
      { upstreams: [at(upstream.port, { Authorization: KEY, "X-Set": "by the upstream" })], plugins },
      { underscore_headers: "allow" },
    );
    const { port } = await running(config);
    for (const method of ["GET", "POST"]) {
      const headers = { authorization: "Bearer of-the-client", x_set: "by the client", "x-set": "by the client" };
      await ask(port, { method, path: "/a/x", headers, ...(method === "POST" && { body: "body" }) });
    }
    for (const { headers, body, method } of upstream.seen) {
      expect(valuesOf(headers, "authorization")).toEqual([KEY]);
      expect([valuesOf(headers, "x-set"), valuesOf(headers, "x_set")]).toEqual([["by the upstream"], []]);
      expect([valuesOf(headers, "other"), body.toString()]).toEqual([["stays"], method === "POST" ? "body" : ""]);
    }
    expect(upstream.seen).toHaveLength(2);
  });

  it("are sent over HTTP/2 as well, with an upload and its trailers, without those of these names", async () => {
    const upstream = await h2Backend();
    const parts: Parts = { protocol: "h2c", upstreams: [at(upstream.port, { "X-Tenant": "acme" })] };
    const { port } = await running(oneService([], parts));
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nX-Tenant: other\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.send("1\r\na\r\n0\r\nX-Tenant: third\r\nX-Sum: 1\r\n\r\n");
    await eventually(() => upstream.trailers.length === 1, "the trailers at the upstream");
    expect(upstream.heads[0]!["x-tenant"]).toBe("acme");
    expect(Object.entries(upstream.trailers[0]!)).toEqual([["x-sum", "1"]]);
  });

  it("drop trailers of these names over HTTP/1.1, also with _ in them", async () => {
    const texts: string[] = [];
    const upstream = await rawBackend((request, response) => {
      request.resume();
      request.on("end", () => {
        texts.push(JSON.stringify(request.rawTrailers));
        response.end("ok");
      });
    });
    const upstreams = [at(upstream.port, { "X-Tenant": "acme" })];
    const { port } = await running(oneService([], { upstreams }, { underscore_headers: "allow" }));
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.send("1\r\na\r\n0\r\nX-Tenant: b\r\nX_Tenant: c\r\nX-Sum: 1\r\n\r\n");
    await connection.until("\r\nok");
    expect(texts).toEqual(['["X-Sum","1"]']);
  });

  it("are sent with the request for a WebSocket", async () => {
    const upstream = await headBackend(({ socket }) => void socket.end("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"));
    const { port } = await running(oneService([], { upstreams: [at(upstream.port, { Authorization: KEY })] }));
    const connection = await client(port);
    const upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"];
    connection.send(get("/a/x", ...upgrade, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="));
    await connection.until("403");
    expect(upstream.heads[0]).toMatch(new RegExp(`\r\nAuthorization: ${KEY}\r\n`));
  });

  it("never go along to another upstream: each has its own, and one without gets the client's", async () => {
    const answers = [503, 503, 200].map((status) =>
      backend((_request, response) => void response.writeHead(status).end("x")),
    );
    const [first, second, third] = await Promise.all(answers);
    const parts: Parts = {
      ...calm,
      upstreams: [
        at(await closedPort(), { Authorization: "Bearer never-sent", "X-Only": "0" }, { id: "gone" }),
        at(first!.port, { Authorization: KEY, "X-Only": "1" }),
        at(second!.port, { Authorization: OTHER_KEY }),
        at(third!.port, undefined, { backup: true }),
      ],
      retries: { attempts: 3, on: ["connect", 503] },
    };
    const { port } = await running(oneService([], parts));
    const headers = { authorization: "Bearer of-the-client" };
    expect((await ask(port, { method: "PUT", path: "/a/x", headers, body: "b" })).status).toBe(200);
    const got = [first, second, third].map((each) => {
      const list = each!.seen[0]!.headers;
      return [...valuesOf(list, "authorization"), ...valuesOf(list, "x-only")];
    });
    expect(got).toEqual([[KEY, "1"], [OTHER_KEY], ["Bearer of-the-client"]]);
  });

  it("are those of a reload from then on, and gone after one without them", async () => {
    const upstream = await backend();
    const config = (value?: string) =>
      oneService([], { upstreams: [at(upstream.port, value === undefined ? undefined : { "X-Key": value })] });
    const { port, gateway } = await running(config("one"));
    for (const next of [config("two"), config(), config("three")]) {
      await ask(port, { path: "/a/x" });
      await gateway.reload(next);
    }
    await ask(port, { path: "/a/x" });
    expect(upstream.seen.map(({ headers }) => valuesOf(headers, "x-key").join())).toEqual(["one", "two", "", "three"]);
    expect(upstream.connections.total).toBe(1);
  });

  it.each(["http", "h2c"] as const)(
    "are sent with health checks only where health says so, over %s",
    async (protocol) => {
      const got: (string | undefined)[] = [];
      const plain = await rawBackend((request, response) => {
        got.push(request.headers.authorization);
        response.end();
      });
      const overH2 = await h2Backend();
      const port = protocol === "http" ? plain.port : overH2.port;
      const seen = () => (protocol === "http" ? got : overH2.heads.map(({ authorization }) => authorization));
      const health = { enabled: true, interval_ms: 100 };
      const config = (more: object) =>
        oneService([], { protocol, upstreams: [at(port, { Authorization: KEY })], health: { ...health, ...more } });
      const clock = manualClock();
      const { gateway } = await running(config({}), { clock });
      const checked = async (n: number) =>
        eventually(() => {
          clock.advance(150);
          return seen().length >= n;
        }, "a check");
      await checked(1);
      const before = seen().length;
      expect(new Set(seen())).toEqual(new Set([undefined]));
      await gateway.reload(config({ request_headers: true }));
      await checked(before + 2);
      expect(seen().at(-1)).toBe(KEY);
    },
  );
});

describe("secrets in request_headers of an upstream", () => {
  it("are in no display, log, or answer: neither those that a reference stands for nor literal ones", async () => {
    process.env["OWN_HEADERS_SPEC"] = "resolved-secret-value";
    onTestFinished(() => void delete process.env["OWN_HEADERS_SPEC"]);
    const upstream = await backend();
    const { log, lines } = recordedLog();
    const request_headers = {
      Authorization: "Bearer literal-secret-value",
      "X-Plain": "id ${env:OWN_HEADERS_SPEC}",
      "X-Tenant": "acme",
    };
    const tests = [
      {
        name: "t",
        request: { url: "/a/x" },
        expect: { upstream_headers: { Authorization: "no", "X-Plain": "no", "X-Tenant": "no" } },
      },
    ];
    const config = oneService(
      [],
      { upstreams: [at(upstream.port, request_headers)] },
      { access_log: { enabled: true } },
    );
    const { port, gateway } = await running(config, { log });
    await ask(port, { path: "/a/x" });
    const list = upstream.seen[0]!.headers;
    expect(valuesOf(list, "x-plain")).toEqual(["id resolved-secret-value"]);
    const explained = await gateway.explain({ method: "GET", url: "/a/x" });
    expect(valuesOf(explained.upstreamHeaders!, "x-tenant")).toEqual(["acme"]);
    const { snapshot } = Gateway.internalsOf(gateway as Gateway).configuration;
    const shown = maskedConfig(snapshot) as { services: [{ upstreams: [{ request_headers: object }] }] };
    expect(shown.services[0].upstreams[0].request_headers).toEqual({
      Authorization: expect.not.stringContaining("literal"),
      "X-Plain": expect.stringContaining("${env:OWN_HEADERS_SPEC}"),
      "X-Tenant": "acme",
    });
    const refused = await gateway.reload({ ...config, tests } as AnyConfigInput).then(String, String);
    const texts = [explained, shown, gateway.health, gateway.status, refused, gateway.lastTests, lines];
    const text = JSON.stringify(texts);
    expect(text).not.toContain("resolved-secret-value");
    expect(text).not.toContain("literal-secret-value");
    expect(String(refused)).toContain("acme");
  });
});
