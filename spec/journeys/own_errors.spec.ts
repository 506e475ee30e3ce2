import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { problemReply } from "../../lib/http/reply.ts";
import { ERRORS } from "../../lib/base/errors.ts";
import { CODES_OF_KINDS, compileOwnErrors } from "../../lib/gateway/own_errors.ts";
import { createGateway, definePlugin, schema } from "../../lib/index.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { emptyFolder, fileWith } from "../support/process.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { manualClock } from "../support/clock.ts";
import { rawBackend } from "./harness.ts";

type Errors = NonNullable<NonNullable<AnyConfigInput["global"]>["errors"]>;

const HTML = "text/html; charset=utf-8";
const PAGE = { content_type: HTML, body: "<p>${error.code} ${error.status} ${request.id}</p>" } as const;

/** The lines of the access log. */
function keeper() {
  let said = "";
  return {
    write: (text: string) => void (said += text),
    lines: () =>
      said
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as object),
  };
}

/** A gateway whose upstream is closed. */
async function failing(errors: Errors, ofService?: Errors, parts: object = {}) {
  return running(oneService(await closedPort(), { ...(ofService && { errors: ofService }), ...parts }, { errors }));
}

describe("own bodies of errors", () => {
  it("take the place of the problem document, with status, headers of the error and id", async () => {
    const { port } = await failing([{ statuses: [405], ...PAGE }], undefined, {
      routes: [{ path: "/x", methods: ["GET"] }],
    });
    const { status, headers, body } = await ask(port, { method: "DELETE", path: "/a/x" });
    expect([status, headers.allow, headers["content-type"]]).toEqual([405, "GET, HEAD", HTML]);
    expect(body.toString()).toBe(`<p>method_not_allowed 405 ${String(headers["x-request-id"])}</p>`);
    expect(headers["content-length"]).toBe(String(body.length));
    expect([headers["cache-control"], headers.vary]).toEqual([undefined, "Accept"]);
  });

  it("are chosen by codes or statuses, methods and order, those of the service first", async () => {
    const text = (body: string, more: object = {}) => ({ content_type: "text/plain", body, ...more });
    const { port } = await failing(
      [text("code", { codes: ["route_not_found"], methods: ["POST"] }), text("first"), text("second")],
      [text("of the service", { codes: ["rate_limited"], statuses: [502], methods: ["GET"] })],
    );
    const bodyOf = async (method: string, path: string) => String((await ask(port, { method, path })).body);
    expect(await bodyOf("GET", "/a/x")).toBe("of the service");
    expect(await bodyOf("POST", "/a/x")).toBe("first");
    expect(await bodyOf("POST", "/none")).toBe("code");
    expect(await bodyOf("GET", "/none")).toBe("first");
  });

  it("leave out the body of HEAD, and state its length", async () => {
    const { port } = await failing([{ ...PAGE, methods: ["GET"] }]);
    const connection = await connect(port);
    connection.send("HEAD /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const text = await connection.closed();
    const { headers } = await ask(port, { path: "/none" });
    expect(text).toContain(`Content-Length: ${headers["content-length"]}\r\n`);
    expect(text).toMatch(/\r\n\r\n$/);
  });

  it.each([
    [undefined, true],
    ["text/html", true],
    ["TEXT/HTML;q=0.1", true],
    ["application/json, text/*", true],
    ["*/*", true],
    ["text/html;charset=utf-8", true],
    ["text/html;q=0, */*", false],
    ["text/html;level=1", false],
    ["application/json", false],
    ["text/html;q=x", false],
    ["text/html;q=1.5", false],
    ["", false],
  ])("fit a request with Accept: %s: %s", async (accept, fits) => {
    const { port } = await failing([PAGE]);
    const { headers } = await ask(port, { path: "/none", headers: accept === undefined ? {} : { Accept: accept } });
    expect(headers["content-type"]).toBe(fits ? HTML : "application/problem+json");
    // A cache must not give one to a client that would get the other.
    expect(headers.vary).toBe("Accept");
  });

  it("are not for an Accept of more than 1024 characters, which nobody reads", async () => {
    const { port } = await failing([PAGE]);
    const Accept = `${"application/json,".repeat(60)}text/html`;
    const { headers } = await ask(port, { path: "/none", headers: { Accept } });
    expect(headers["content-type"]).toBe("application/problem+json");
  });

  it("leave the members and headers of a problem document that is sent for an Accept in their place", async () => {
    const { port } = await failing([PAGE], undefined, { routes: [{ path: "/x", methods: ["GET"] }] });
    const { headers, body } = await ask(port, { method: "PUT", path: "/a/x", headers: { Accept: "text/plain" } });
    expect([headers.allow, headers.vary]).toEqual(["GET, HEAD", "Accept"]);
    expect(JSON.parse(String(body))).toMatchObject({ code: "method_not_allowed", status: 405 });
  });

  it("are sent whatever a request accepts where they say always, and do not vary then", async () => {
    const { port } = await failing([{ ...PAGE, always: true }]);
    const { headers } = await ask(port, { path: "/none", headers: { Accept: "application/json" } });
    expect([headers["content-type"], headers.vary]).toEqual([HTML, undefined]);
  });

  it("may have another status, which is not cached, and which log and placeholders have", async () => {
    const log = keeper();
    const config = oneService(await closedPort(), {}, { errors: [{ ...PAGE, status: 200 }, PAGE] });
    const { port, gateway } = await running(config, { accessLog: log.write });
    const { status, headers, body } = await ask(port, { path: "/a/x" });
    expect([status, headers["cache-control"]]).toEqual([200, "no-store"]);
    expect(gateway.metrics()).toMatch(/^edge_gateway_http_requests_total\{.*code="200"\} 1$/m);
    expect(body.toString()).toContain("<p>upstream_connect_failed 200 ");
    await gateway.close(0);
    expect(log.lines()).toMatchObject([{ status: 200, code: "upstream_connect_failed" }]);
  });

  it("have no body with 204, 205 and 304", async () => {
    for (const status of [204, 205, 304] as const) {
      const { port } = await failing([{ status, content_type: HTML }]);
      const answer = await ask(port, { path: "/none" });
      expect([answer.status, answer.headers["content-type"], answer.body.length]).toEqual([status, undefined, 0]);
    }
  });

  it("are not for errors of upstreams, nor for request_termination", async () => {
    const { port: upstream } = await backend((_request, response) => {
      response.writeHead(503, { "Content-Type": "application/problem+json" }).end("{}");
    });
    const closed = { path: "/closed", plugins: [{ name: "request_termination", config: { status: 503 } }] };
    const errors = [{ ...PAGE, always: true }];
    const parts = { routes: [closed, { path: "/{rest*}" }] };
    const { port } = await running(oneService(upstream, parts, { errors }));
    expect(String((await ask(port, { path: "/a/x" })).body)).toBe("{}");
    expect(String((await ask(port, { path: "/a/closed" })).body)).not.toContain("<p>");
    expect(String((await ask(port, { path: "/none" })).body)).toContain("<p>");
  });

  it("are for errors of an upstream behind a cache", async () => {
    const { port } = await failing([PAGE], undefined, { plugins: [{ name: "response_cache" }] });
    const { status, headers, body } = await ask(port, { path: "/a/x" });
    expect([status, headers["content-type"]]).toEqual([502, HTML]);
    expect(String(body)).toContain(`<p>upstream_connect_failed 502 ${String(headers["x-request-id"])}</p>`);
  });

  it("are in memory once, however many services have some of their own before them", () => {
    const written = (body: string) =>
      ({ codes: ["request_timeout"], statuses: [], contentType: "text/plain", body, always: true }) as never;
    const common = written("common");
    const bodyWith = (own: never[]) => {
      const kind = { code: "request_timeout", status: 408, title: "" };
      return compileOwnErrors(own, [common])!.ofUnread(kind, "id", {})!.body;
    };
    expect(bodyWith([])).toEqual(Buffer.from("common"));
    expect(bodyWith([written("other")])).toEqual(Buffer.from("other"));
    expect(bodyWith([])).toBe(bodyWith([]));
  });

  it("are for the codes of plugins", async () => {
    const teapot = definePlugin({
      name: "teapot",
      schema: schema.object({}),
      create:
        () =>
        () =>
        ({ call }) =>
          problemReply(call, { code: "short_and_stout", status: 418, title: "A teapot" }),
    });
    const errors = [
      { codes: ["short_and_stout"], content_type: "text/plain", body: "${error.title}: ${error.detail}" },
    ];
    const config = oneService(1, { plugins: [{ name: "teapot" } as never] }, { errors });
    const { port } = await running(config, { plugins: [teapot] });
    const { status, body } = await ask(port, { path: "/a/x" });
    expect([status, String(body)]).toEqual([418, "A teapot: A teapot."]);
  });

  it("leave plugins the last word on the status, unless the entry has one", async () => {
    const maps = definePlugin({
      name: "maps",
      schema: schema.object({}),
      create: () => (next) => async (exchange) => {
        const reply = await next(exchange);
        return reply.status === 502 ? { ...reply, status: 503 } : reply;
      },
    });
    const statusWith = async (entry: object) => {
      const config = oneService(
        await closedPort(),
        { plugins: [{ name: "maps" } as never] },
        { errors: [{ ...PAGE, ...entry }] },
      );
      const { port } = await running(config, { plugins: [maps] });
      return (await ask(port, { path: "/a/x" })).status;
    };
    expect([await statusWith({}), await statusWith({ status: 200 })]).toEqual([503, 200]);
  });

  it("do not change what breakers and retries see", async () => {
    const circuit_breaker = { error_ratio: 0.5, min_requests: 2, window_ms: 60_000, open_ms: 60_000, probes: 1 };
    const { port } = await failing([{ ...PAGE, status: 200 }], undefined, { circuit_breaker });
    const codes: string[] = [];
    for (let i = 0; i < 4; i++)
      codes.push(
        String((await ask(port, { path: "/a/x" })).body)
          .slice(3)
          .split(" ")[0]!,
      );
    expect(codes).toContain("circuit_open");
  });

  it("of a service are those of a reread file, too", async () => {
    const file = fileWith("before");
    const { port, gateway } = await failing([], [{ statuses: [502], content_type: "text/plain", body_file: file }]);
    const body = async () => String((await ask(port, { path: "/a/x" })).body);
    expect(await body()).toBe("before");
    writeFileSync(file, "after ${error.code}");
    await gateway.rereadFiles();
    expect(await body()).toBe("after upstream_connect_failed");
    writeFileSync(file, "no ${such}");
    expect(() => gateway.rereadFiles()).toThrow('no placeholder "${such}"');
    expect(await body()).toBe("after upstream_connect_failed");
  });

  it("are those of a reread file", async () => {
    const file = fileWith("before");
    const errors = [{ statuses: [404], content_type: "text/plain", body_file: file }];
    const { port, gateway } = await failing(errors);
    const body = async () => String((await ask(port, { path: "/none" })).body);
    expect(await body()).toBe("before");
    writeFileSync(file, "after ${error.code}");
    await gateway.rereadFiles();
    expect(await body()).toBe("after route_not_found");
  });
});

describe("a configuration of errors is refused", () => {
  const refused = ({ file, ...entry }: { readonly file?: string | Buffer; readonly [field: string]: unknown }) => {
    const path = join(emptyFolder(), "page.html");
    if (file !== undefined) writeFileSync(path, file);
    const ofFile = file === undefined ? {} : { body: undefined, body_file: path };
    const errors = [{ content_type: "text/html", body: "x", ...ofFile, ...entry }];
    try {
      createGateway({ config: oneService(1, {}, { errors: JSON.parse(JSON.stringify(errors)) as Errors }) });
    } catch (error) {
      return (error as Error).message;
    }
    return "accepted";
  };
  const place = (path: string) => ({ body: undefined, body_file: path });

  it.each<[string, Record<string, unknown>, string]>([
    [
      "an unknown code",
      { codes: ["rate_limitd"] },
      'codes[0]  no error has the code "rate_limitd": did you mean "rate_li',
    ],
    ["a code like none", { codes: ["zzzzzzzzzz"] }, "the codes are bad_request, request_invalid, "],
    ["no code", { codes: [] }, "codes  expected 1–100 items, found none"],
    ["a status of no error", { statuses: [302] }, "statuses[0]  expected an integer 400–599, found 302"],
    ["a status beyond the last", { status: 600 }, "status  expected an integer 200–599, found 600"],
    [
      "a body with 204",
      { status: 204 },
      "body  replies with status 204 have no body: remove it, or use another status",
    ],
    ["no body", { body: undefined }, 'global.errors[0]  needs "body" or "body_file"'],
    ["two bodies", { file: "x", body: "x" }, 'has "body" and "body_file": remove one of them'],
    ["no media type", { content_type: "html" }, 'expected a media type, such as "text/html; charset=utf-8", found "h'],
    ["a range", { content_type: "text/*" }, "expected a media type"],
    ["a line break", { content_type: "text/html\r\nX: y" }, "expected a media type"],
    ["another charset", { content_type: "text/html; charset=utf-7" }, "bodies are sent in UTF-8"],
    [
      "an unknown placeholder",
      { body: "${error.cod}" },
      'has no placeholder "${error.cod}": did you mean "${error.code}"?',
    ],
    ["an environment variable", { body: "${env:HOME}" }, 'has no placeholder "${env:HOME}": there are ${error.code}, '],
    ["an open placeholder", { body: "a ${error.code" }, "has ${ without its }: write $${ for ${ as text"],
    ["too many placeholders", { body: "${error.code}".repeat(65) }, "has 65 placeholders: at most 64"],
    ["a long body to fill in", { body: `\${error.code}${"x".repeat(65_536)}` }, "has 65549 bytes: at most 65536 where"],
    ["a file that is missing", place("/none.html"), "body_file  cannot read /none.html: no such file"],
    ["a folder", place("/"), "body_file  cannot read /: it is a folder"],
    ["a device", place("/dev/null"), "body_file  cannot read /dev/null: it is a device, not a file"],
    ["a page in place of its file", place("<p>\n</p>"), "found the content of a file"],
    ["an image", { file: Buffer.from([0xff, 0xd8, 0xff]) }, "is not text in UTF-8"],
    ["a large file", { file: "x".repeat(1_048_577) }, "has 1048577 bytes: at most 1048576"],
    ["a file with an unknown placeholder", { file: "${x}" }, 'has no placeholder "${x}"'],
  ])("with %s", (_what, entry, message) => {
    expect(refused(entry)).toContain(message);
  });

  it("with codes of several lists, all of which are named, with their places", () => {
    const wrong = { codes: ["quota_exceeded", "nope_nope"], content_type: "text/plain", body: "x" };
    const config = oneService(1, { errors: [wrong] }, { errors: [wrong] });
    expect(() => createGateway({ config })).toThrow(
      /global\.errors\[0\]\.codes\[1\].*\n.*services\[0\]\.errors\[0\]\.codes\[1\]/,
    );
  });

  it("unless it names one of the codes of the built-in kinds", () => {
    const files = readdirSync("lib/plugins", { recursive: true, encoding: "utf8" }).filter((name) =>
      name.endsWith(".ts"),
    );
    const sources = files.map((name) => readFileSync(join("lib/plugins", name), "utf8"));
    const own = sources.flatMap((text) => [...text.matchAll(/\bcode: "(\w+)"/g)].map(([, code]) => code!));
    expect(new Set(own.filter((code) => !Object.hasOwn(ERRORS, code)))).toEqual(new Set(CODES_OF_KINDS));
    expect(refused({ codes: CODES_OF_KINDS })).toBe("accepted");
  });
});

describe("values in own bodies", () => {
  const DETAIL = `<script>alert("1")</script> & 'x' \u0001`;
  const evil = definePlugin({
    name: "evil",
    schema: schema.object({}),
    create:
      () =>
      () =>
      ({ call }) =>
        problemReply(call, { code: "evil", status: 400, title: "T" }, { detail: DETAIL }),
  });
  const bodyWith = async (content_type: string, body: string) => {
    const config = oneService(
      1,
      { plugins: [{ name: "evil" } as never] },
      { errors: [{ content_type, body }], trusted_proxies: ["127.0.0.1"] },
    );
    const { port } = await running(config, { plugins: [evil] });
    const headers = { "X-Request-Id": `a"<b>'&\\` };
    return String((await ask(port, { path: "/a/x", headers })).body);
  };

  it.each(["text/html", "application/xhtml+xml; charset=utf-8", "application/xml", "text/xml", "image/svg+xml"])(
    "are escaped as markup in %s",
    async (type) => {
      const text = await bodyWith(type, "${error.detail}|${request.id}");
      expect(text).toMatch(/^&lt;script&gt;alert\(&quot;1&quot;\)&lt;\/script&gt; &amp; &#39;x&#39; \ufffd\|[^<>"']+$/);
    },
  );

  it.each(["application/json", "application/vnd.api+json; charset=utf-8"])("are escaped in %s", async (type) => {
    const text = await bodyWith(type, '{"detail": "${error.detail}", "id": "${request.id}"}');
    expect((JSON.parse(text) as { readonly detail: string }).detail).toBe(DETAIL);
  });

  it("are as they are in text/plain, and $${ is ${", async () => {
    expect(await bodyWith("text/plain", "$${error.code} ${error.detail}")).toBe(`\${error.code} ${DETAIL}`);
  });
});

describe("requests that cannot be read", () => {
  const always = (body: string) => ({ content_type: "text/plain", body, always: true });
  const UNREADABLE = {
    "no request at all": "nonsense\r\n\r\n",
    "two lengths": "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a head that is too large": `GET / HTTP/1.1\r\nHost: x\r\nA: ${"a".repeat(70_000)}\r\n\r\n`,
    "too many headers": `GET / HTTP/1.1\r\nHost: x\r\n${"A: 1\r\n".repeat(300)}\r\n`,
  };

  it.each(Object.entries(UNREADABLE))("get only what is for all: %s", async (_name, bytes) => {
    const log = keeper();
    const errors = [{ content_type: "text/plain", body: "accepted" }, always("${error.status} ${error.code}")];
    const config = oneService(1, {}, { errors });
    const { port } = await running(config, { accessLog: log.write });
    const connection = await connect(port);
    connection.send(bytes);
    const text = await connection.closed();
    expect(text).toMatch(/^HTTP\/1\.1 (400|431) /);
    const [, status] = /^HTTP\/1\.1 (\d+)/.exec(text)!;
    expect(text).toMatch(new RegExp(`\r\n\r\n${status} (bad_request|headers_too_large)$`));
    expect(text).toContain("Content-Type: text/plain\r\n");
    expect(log.lines()).toMatchObject([{ status: Number(status) }]);
  });

  it("get a problem document where nothing is for all, and the status of theirs where it has one", async () => {
    const bare = await running(oneService(1, {}, { errors: [{ content_type: "text/plain", body: "accepted" }] }));
    const first = await connect(bare.port);
    first.send(UNREADABLE["no request at all"]);
    expect(await first.closed()).toContain("application/problem+json");
    const log = keeper();
    const config = oneService(1, {}, { errors: [{ ...always("gone"), status: 410 }] });
    const { port } = await running(config, { accessLog: log.write });
    const second = await connect(port);
    second.send(UNREADABLE["no request at all"]);
    expect(await second.closed()).toMatch(/^HTTP\/1\.1 410 Gone\r\n[^]*Cache-Control: no-store[^]*\r\n\r\ngone$/);
    expect(log.lines()).toMatchObject([{ status: 410, code: "bad_request" }]);
  });
});

describe("requests whose head could be read", () => {
  it("get the body that they accept, also where the rest does not arrive in time", async () => {
    const clock = manualClock();
    const upstream = await rawBackend(() => {});
    const global = { limits: { request_timeout_ms: 100 }, errors: [PAGE] };
    const { port } = await running(oneService(upstream.port, {}, global), { clock });
    const connection = await connect(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nAccept: text/html\r\n\r\nab");
    await eventually(() => upstream.connections.open === 1);
    await eventually(() => {
      clock.advance(100);
      return connection.text().includes("</p>");
    });
    expect(connection.text()).toMatch(/^HTTP\/1\.1 408 [^]*\r\n\r\n<p>request_timeout 408 /);
  });

  it("get only what is for all where something else of it is malformed", async () => {
    const { port } = await failing([PAGE, { content_type: "text/plain", body: "${error.code}", always: true }]);
    const { status, body } = await ask(port, { method: "OPTIONS", path: "/a/x", headers: { "Max-Forwards": "one" } });
    expect([status, String(body)]).toEqual([400, "bad_request"]);
  });
});

describe("gRPC", () => {
  it("keeps its errors, over HTTP/2 with trailers, and others get own bodies there", async () => {
    const config = oneService(await closedPort(), {}, { h2c: true, errors: [{ ...PAGE, status: 200, always: true }] });
    const { port } = await running(config);
    const session = http2.connect(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    const answer = async (headers: http2.OutgoingHttpHeaders) => {
      const stream = session.request(headers).end();
      const [got] = (await once(stream, "response")) as [http2.IncomingHttpHeaders];
      let text = "";
      for await (const chunk of stream) text += String(chunk);
      return { got, text };
    };
    const grpc = await answer({ ":method": "POST", ":path": "/a/x", "content-type": "application/grpc" });
    expect([grpc.got[":status"], grpc.got["grpc-status"], grpc.text]).toEqual([200, "14", ""]);
    const plain = await answer({ ":path": "/a/x" });
    expect([plain.got[":status"], plain.got["content-type"]]).toEqual([200, HTML]);
    expect(plain.text).toContain("upstream_connect_failed 200");
  });
});
