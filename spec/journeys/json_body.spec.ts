/** JSON bodies that are edited on their way through a whole gateway, over HTTP/1.1 and HTTP/2 on both sides. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import { createLog } from "../../lib/base/log.ts";
import type { GatewayOptions } from "../../lib/index.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { backend, client, codeIn, gate, restartableBackend } from "./harness.ts";

const JSON_TYPE = { "Content-Type": "application/json" };
const SSE = { "Content-Type": "text/event-stream" };
type Answer = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void;

/** A gateway with json_body before an upstream; what the upstream got, and the lines of the log. */
async function editing(config: object, answer?: Answer, options: Partial<GatewayOptions> = {}, parts: object = {}) {
  const origin = await backend(answer);
  const lines: string[] = [];
  const log = createLog({ format: "json", write: (line) => void lines.push(line) });
  const plugins = [{ name: "json_body", config }];
  const { port, gateway } = await running(oneService(origin.port, { plugins, ...parts }, { h2c: true }), {
    log,
    ...options,
  });
  const post = (body: string | Buffer, headers: Record<string, string> = JSON_TYPE) =>
    ask(port, { method: "POST", path: "/a/x", headers, body });
  const got = () => {
    const { headers, body, trailers } = origin.seen.at(-1)!;
    const list = headers.map((text, i) => (i % 2 === 0 ? text.toLowerCase() : text));
    return {
      body: body.toString(),
      header: (name: string) => list[list.indexOf(name) + 1],
      has: (name: string) => list.includes(name),
      trailers,
    };
  };
  return { port, gateway, origin, post, got, lines };
}

const USAGE = { request: { set: { "/stream_options/include_usage": true } } };
const code = ({ body }: { body: Buffer }) => codeIn(body.toString());

describe("requests", () => {
  it("reach the upstream edited, with the right length and without digests of other bytes", async () => {
    const { post, got } = await editing(USAGE);
    const text = '{ "n": 1.0,\n "stream_options": {"x": 1e2} }';
    const digests = { "Content-MD5": "x", Digest: "x", "Content-Digest": "x", "Repr-Digest": "x" };
    expect((await post(text, { ...JSON_TYPE, ...digests })).status).toBe(200);
    const { body, header, has } = got();
    expect(body).toBe('{ "n": 1.0,\n "stream_options": {"x": 1e2,"include_usage":true} }');
    expect(header("content-length")).toBe(String(body.length));
    expect(Object.keys(digests).filter((name) => has(name.toLowerCase()))).toEqual([]);
  });

  it("that need no edit arrive byte for byte, with their digests", async () => {
    const { post, got } = await editing({ request: { remove: ["/user"], default: { "/n": 1 } } });
    const text = '\t{"n" : 1.00 , "é": "\\u00e9" }\n';
    await post(text, { ...JSON_TYPE, "Content-Digest": "sha-256=:x:" });
    expect(got()).toMatchObject({ body: text });
    expect(got().header("content-digest")).toBe("sha-256=:x:");
  });

  it("in chunks stay without a length, and keep trailers other than digests", async () => {
    const { port, got } = await editing(USAGE);
    const connection = await client(port);
    connection.send(
      "POST /a/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n" +
        "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\nX-Sum: 1\r\nContent-Digest: x\r\n\r\n",
    );
    await connection.closed();
    const { body, has, trailers } = got();
    expect(body).toBe('{"stream_options":{"include_usage":true}}');
    expect(has("content-length")).toBe(false);
    expect(trailers).toEqual(["X-Sum", "1"]);
  });

  it("that wait for 100 (Continue) get it, and it is not forwarded", async () => {
    const { port, got } = await editing(USAGE);
    const connection = await client(port);
    connection.send(
      "POST /a/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" +
        "Expect: 100-continue\r\n\r\n",
    );
    await connection.until("100 Continue");
    connection.send("{}");
    expect(await connection.closed()).toContain("200 OK");
    expect(got().has("expect")).toBe(false);
  });

  it.each<[string, string | Buffer, Record<string, string>]>([
    ["another type", "{}", { "Content-Type": "text/plain" }],
    ["no type", "{}", {}],
    ["another charset", "{}", { "Content-Type": "application/json; charset=latin1" }],
    ["a coding", gzipSync("{}"), { ...JSON_TYPE, "Content-Encoding": "gzip" }],
    ["text that is no JSON", "{a:1}", JSON_TYPE],
    ["duplicate members", '{"a":1,"\\u0061":2}', JSON_TYPE],
    ["duplicate members below", '{"stream_options":{"include_usage":true,"include_usage":false}}', JSON_TYPE],
    ["bytes that are no UTF-8", Buffer.from([0x22, 0xff, 0x22]), JSON_TYPE],
    ["a byte order mark", "\uFEFF{}", JSON_TYPE],
    ["two values", "{}{}", JSON_TYPE],
    ["a name that differs from an edited one in case", '{"stream_options":{"Include_Usage":false}}', JSON_TYPE],
    ["such a name of a parent", '{"\u017ftream_options":{"include_usage":false}}', JSON_TYPE],
    ["101 levels", "[".repeat(101) + "]".repeat(101), JSON_TYPE],
    ["no content", "", JSON_TYPE],
  ])("with %s are refused, or pass as they are with on_other", async (_title, body, headers) => {
    const refusing = await editing(USAGE);
    const refused = await refusing.post(body, headers);
    expect([refused.status, code(refused)]).toEqual([400, "request_invalid"]);
    expect(refusing.origin.seen).toEqual([]);
    const passing = await editing({ ...USAGE, on_other: "pass" });
    expect((await passing.post(body, headers)).status).toBe(200);
    expect(passing.origin.seen[0]!.body.equals(Buffer.from(body))).toBe(true);
  });

  it("with an index beyond the end are refused, whatever on_other says", async () => {
    const { post, origin } = await editing({ request: { set: { "/list/2": 1 } }, on_other: "pass" });
    const refused = await post('{"list":[0]}');
    expect([refused.status, code(refused)]).toEqual([400, "request_invalid"]);
    expect(refused.body.toString()).toContain("The request body has a shorter array than /list/2 asks for.");
    expect((await post('{"list":[0,0]}')).status).toBe(200);
    expect(origin.seen.map(({ body }) => body.toString())).toEqual(['{"list":[0,0,1]}']);
  });

  it("that are too long are refused, by their length and as they arrive", async () => {
    const { port, post, origin } = await editing({ ...USAGE, max_body_bytes: 10, on_other: "pass" });
    const refused = await post('{"a":"long"}');
    expect([refused.status, code(refused)]).toEqual([413, "body_too_large"]);
    const connection = await client(port);
    connection.send(
      "POST /a/x HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
        "b\r\n{          \r\n",
    );
    expect(await connection.until("body_too_large")).toContain("HTTP/1.1 413");
    expect((await post('{"a":"x"}')).status).toBe(200);
    expect(origin.seen).toHaveLength(1);
  });

  it("without a body pass for methods that need none, and are other for POST", async () => {
    const { port, origin } = await editing(USAGE);
    for (const method of ["GET", "HEAD", "DELETE", "OPTIONS"])
      expect((await ask(port, { method, path: "/a/x" })).status).toBe(200);
    expect((await ask(port, { method: "POST", path: "/a/x" })).status).toBe(400);
    expect(origin.seen).toHaveLength(4);
  });

  it("that end early or are left reach no upstream", async () => {
    const { port, origin, gateway } = await editing(USAGE);
    const connection = await connect(port);
    connection.send(`POST /a/x HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a"`);
    await eventually(() => gateway.inFlight === 1);
    connection.socket.destroy();
    await eventually(() => gateway.inFlight === 0);
    expect(origin.seen).toEqual([]);
  });

  it("are sent again as they were edited", async () => {
    const failing = await backend((_request, response) => void response.writeHead(503).end());
    const healthy = await backend();
    const retries = { attempts: 1, on: [503], methods: ["POST"] };
    const { port } = await running(
      oneService([failing.port, healthy.port], { plugins: [{ name: "json_body", config: USAGE }], retries }),
    );
    for (let i = 0; i < 2; i++)
      expect((await ask(port, { method: "POST", path: "/a/x", headers: JSON_TYPE, body: "{}" })).status).toBe(200);
    const bodies = new Set([...failing.seen, ...healthy.seen].map(({ body }) => body.toString()));
    expect([...bodies]).toEqual(['{"stream_options":{"include_usage":true}}']);
    expect(failing.seen.length).toBeGreaterThan(0);
  });
});

const NO_COST = { response: { remove: ["/internal"], set: { "/by": "gateway" } } };
const answering =
  (text: string | Buffer, headers: Record<string, string> = JSON_TYPE, status = 200): Answer =>
  (_request, response) =>
    void response.writeHead(status, headers).end(text);

describe("replies", () => {
  it("reach the client edited, with the right length, a weak ETag, and without digests and ranges", async () => {
    const text = '{"internal":{"a":[1]}, "n":1.0}';
    const headers = {
      ...JSON_TYPE,
      "Content-Length": String(text.length),
      ETag: '"v1"',
      "Accept-Ranges": "bytes",
      "Content-MD5": "x",
      Digest: "x",
      "Content-Digest": "x",
      "Repr-Digest": "x",
      "X-Other": "1",
    };
    const { port, got } = await editing(NO_COST, answering(text, headers));
    const asked = { "Accept-Encoding": "gzip, br", Range: "bytes=0-1", "If-Range": '"v1"', Accept: "*/*" };
    const reply = await ask(port, { path: "/a/x", headers: asked });
    expect(reply.body.toString()).toBe('{ "n":1.0,"by":"gateway"}');
    const { date, connection, "x-request-id": id, via, ...rest } = reply.headers;
    expect(rest).toEqual({
      "content-type": "application/json",
      "content-length": "25",
      etag: 'W/"v1"',
      "x-other": "1",
    });
    expect([date, connection, id, via].includes(undefined as never)).toBe(false);
    expect(["accept-encoding", "range", "if-range"].filter((name) => got().has(name))).toEqual([]);
    expect(got().header("accept")).toBe("*/*");
  });

  it("that need no edit arrive byte for byte, with a strong ETag", async () => {
    const text = ' {"n" : 1.00}\n';
    const { port } = await editing(
      { response: { remove: ["/internal"] } },
      answering(text, { ...JSON_TYPE, ETag: '"v1"' }),
    );
    const reply = await ask(port, { path: "/a/x" });
    expect(reply.body.toString()).toBe(text);
    expect(reply.headers.etag).toBe('"v1"');
  });

  it("to HEAD, and 304, have no length of other bytes, and a weak ETag", async () => {
    const { port } = await editing(NO_COST, (request, response) => {
      const status = request.headers["if-none-match"] === undefined ? 200 : 304;
      const headers = status === 200 ? { ...JSON_TYPE, "Content-Length": "30", "Repr-Digest": "x" } : {};
      response.writeHead(status, { ...headers, ETag: '"v1"' }).end();
    });
    for (const [method, headers, status] of [
      ["HEAD", {}, 200],
      ["GET", { "If-None-Match": 'W/"v1"' }, 304],
    ] as const) {
      const reply = await ask(port, { method, path: "/a/x", headers });
      expect(reply.status).toBe(status);
      expect(reply.headers).toMatchObject({ etag: 'W/"v1"' });
      expect(Object.keys(reply.headers)).not.toContain("repr-digest");
      if (method === "HEAD") expect(Object.keys(reply.headers)).not.toContain("content-length");
    }
  });

  it("without content stay as they are", async () => {
    const { port } = await editing(NO_COST, (request, response) => {
      if (request.url === "/none") response.writeHead(204, { ETag: '"v1"' }).end();
      else response.writeHead(201, { ...JSON_TYPE, "Content-Length": "0" }).end();
    });
    expect(await ask(port, { path: "/a/none" })).toMatchObject({ status: 204, headers: { etag: '"v1"' } });
    expect(await ask(port, { path: "/a/empty" })).toMatchObject({ status: 201, headers: { "content-length": "0" } });
  });

  it("in chunks keep their trailers other than digests", async () => {
    const { port } = await editing(NO_COST, (_request, response) => {
      response.writeHead(200, { ...JSON_TYPE, Trailer: "X-Sum, Content-Digest" });
      response.write('{"internal":');
      response.addTrailers({ "X-Sum": "1", "Content-Digest": "x" });
      response.end("1}");
    });
    const reply = await ask(port, { path: "/a/x" });
    expect(reply.body.toString()).toBe('{"by":"gateway"}');
    expect(reply.trailers).toEqual(["X-Sum", "1"]);
  });

  it.each<[string, Answer]>([
    ["another type", answering("<p>", { "Content-Type": "text/html" })],
    ["a coding", answering(gzipSync("{}"), { ...JSON_TYPE, "Content-Encoding": "gzip" })],
    ["text that is no JSON", answering("{internal:1}")],
    ["duplicate members", answering('{"internal":1,"internal":2}')],
    ["a part", answering('{"a":1}', { ...JSON_TYPE, "Content-Range": "bytes 0-6/20" }, 206)],
  ])("with %s are 502, or pass as they are with on_other", async (_title, answer) => {
    const refusing = await editing(NO_COST, answer);
    const refused = await ask(refusing.port, { path: "/a/x" });
    expect([refused.status, code(refused)]).toEqual([502, "upstream_invalid"]);
    const passing = await editing({ ...NO_COST, on_other: "pass" }, answer);
    const direct = await ask(passing.origin.port, { path: "/a/x" });
    const passed = await ask(passing.port, { path: "/a/x" });
    expect([passed.status, passed.body]).toEqual([direct.status, direct.body]);
  });

  it.each([true, false])("that are too long are 502 where something is removed (length known: %s)", async (isSized) => {
    const text = `{"internal":1,"text":"${"x".repeat(200_000)}"}`;
    const answer: Answer = (_request, response) => {
      response.writeHead(200, { ...JSON_TYPE, ...(isSized && { "Content-Length": String(text.length) }) });
      response.write(text.slice(0, 50));
      setImmediate(() => response.end(text.slice(50)));
    };
    const removing = await editing({ ...NO_COST, max_body_bytes: 1000 }, answer);
    const refused = await ask(removing.port, { path: "/a/x" });
    expect([refused.status, code(refused)]).toEqual([502, "upstream_invalid"]);
    const setting = await editing({ response: { set: { "/by": 1 } }, max_body_bytes: 1000 }, answer);
    const passed = await ask(setting.port, { path: "/a/x" });
    expect(passed.body.toString()).toBe(text);
    const [line] = setting.lines.filter((each) => each.includes("json_body"));
    expect(JSON.parse(line!)).toMatchObject({
      level: "warn",
      message: "json_body: a reply is too long to be edited, and passes unchanged",
      plugin: "services.s.plugins.json_body",
      max_body_bytes: 1000,
    });
  });

  it("of the gateway itself stay as they are", async () => {
    const closed = await backend();
    await closed.close();
    const { port } = await running(oneService(closed.port, { plugins: [{ name: "json_body", config: NO_COST }] }));
    const reply = await ask(port, { path: "/a/x" });
    expect([reply.status, code(reply)]).toEqual([502, "upstream_connect_failed"]);
    expect(reply.body.toString()).not.toContain('"by"');
  });

  it("with edits whose index is beyond the end get the others", async () => {
    const { port } = await editing({ response: { set: { "/list/3": 1, "/b": 2 } } }, answering('{"list":[]}'));
    expect((await ask(port, { path: "/a/x" })).body.toString()).toBe('{"list":[],"b":2}');
  });

  it("that break off are errors, and free their memory", async () => {
    const { port } = await editing(NO_COST, (_request, response) => {
      response.writeHead(200, JSON_TYPE);
      response.write('{"a":');
      setImmediate(() => response.destroy());
    });
    const reply = await ask(port, { path: "/a/x" });
    expect([reply.status, code(reply)]).toEqual([502, "upstream_reset"]);
  });
});

describe("event streams", () => {
  const STREAM =
    ': hi\r\n\r\nid: 1\r\nevent: chunk\r\ndata: {"internal":1,\r\ndata: "n":1.0}\r\n\r\n' +
    'data:{"a":[]}\n\nretry: 5\n\ndata: [DONE]\n\ndata: {"internal":2}';
  const EDITED =
    ': hi\r\n\r\nid: 1\r\nevent: chunk\r\ndata: {\r\ndata: "n":1.0,"by":"gateway"}\r\n\r\n' +
    'data:{"a":[],"by":"gateway"}\n\nretry: 5\n\ndata: [DONE]\n\ndata: {"by":"gateway"}';

  it("are edited event by event; comments, ids, line ends and what is no JSON stay", async () => {
    const headers = { ...SSE, ETag: '"v1"', "Content-Length": String(STREAM.length) };
    const { port } = await editing(NO_COST, answering(STREAM, headers));
    const reply = await ask(port, { path: "/a/x" });
    expect(reply.body.toString()).toBe(EDITED);
    expect(reply.headers).toMatchObject({ etag: 'W/"v1"' });
    expect(Object.keys(reply.headers)).not.toContain("content-length");
  });

  it("pass each event on at once", async () => {
    const more = gate();
    const { port } = await editing(NO_COST, (_request, response) => {
      response.writeHead(200, SSE);
      response.write('data: {"internal":1}\n\ndata: {"inter');
      void more.opened.then(() => response.end('nal":2}\n\n'));
    });
    const connection = await client(port);
    connection.send("GET /a/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    expect(await connection.until('"by"')).not.toContain("inter");
    more.open();
    expect((await connection.closed()).match(/data: \{"by":"gateway"\}\n\n/g)).toHaveLength(2);
  });

  it("with an event that is too long break off where something is removed, and pass else", async () => {
    const long = `data: {"internal":"${"x".repeat(2_000)}"}\n\n`;
    const answer = answering(`data: {}\n\n${long}`, SSE);
    const removing = await editing({ ...NO_COST, max_body_bytes: 1000 }, answer);
    await expect(ask(removing.port, { path: "/a/x" })).rejects.toThrow();
    const setting = await editing({ response: { set: { "/by": 1 } }, max_body_bytes: 1000 }, answer);
    expect((await ask(setting.port, { path: "/a/x" })).body.toString()).toBe(`data: {"by":1}\n\n${long}`);
    expect(setting.lines.filter((line) => line.includes("json_body: an event is too long"))).toHaveLength(1);
  });

  it("with an ambiguous event break off, unless what is other passes", async () => {
    const stream = 'data: {"internal":1,"internal":2}\n\n';
    const refusing = await editing(NO_COST, answering(stream, SSE));
    await expect(ask(refusing.port, { path: "/a/x" })).rejects.toThrow();
    const passing = await editing({ ...NO_COST, on_other: "pass" }, answering(stream, SSE));
    expect((await ask(passing.port, { path: "/a/x" })).body.toString()).toBe(stream);
  });

  it("end at the upstream when their client leaves", async () => {
    const left = gate();
    const { port } = await editing(NO_COST, (_request, response) => {
      response.writeHead(200, SSE).write("data: {}\n\n");
      response.on("close", () => left.open());
    });
    const connection = await client(port);
    connection.send("GET /a/x HTTP/1.1\r\nHost: a\r\n\r\n");
    await connection.until('"by"');
    connection.socket.destroy();
    await left.opened;
  });
});

describe.each(["http", "h2c"] as const)("over HTTP/2 with an upstream of %s", (protocol) => {
  it("requests and replies are edited, with their lengths and trailers", async () => {
    const origin = await restartableBackend(protocol);
    onTestFinished(() => origin.kill());
    const seen: { body: string; length: string | undefined }[] = [];
    origin.answer = (request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        seen.push({ body: Buffer.concat(chunks).toString(), length: request.headers["content-length"] });
        const isStream = request.url === "/stream";
        response.writeHead(200, isStream ? SSE : { ...JSON_TYPE, Trailer: "x-sum" });
        response.write(isStream ? 'data: {"internal":1}\n\n' : '{"internal":1');
        if (!isStream) response.addTrailers({ "x-sum": "1" });
        response.end(isStream ? "" : "}");
      });
    };
    const plugins = [{ name: "json_body", config: { ...USAGE, ...NO_COST } }];
    const { port } = await running(oneService(origin.port, { plugins, protocol }, { h2c: true }));
    const session = h2Session(port);
    const headers = { "content-type": "application/json", "content-length": "2" };
    const reply = await h2Ask(session, { method: "POST", path: "/a/x", headers, body: "{}" });
    expect(reply).toMatchObject({ status: 200, body: '{"by":"gateway"}', trailers: { "x-sum": "1" } });
    expect(seen).toEqual([{ body: '{"stream_options":{"include_usage":true}}', length: "41" }]);
    expect((await h2Ask(session, { path: "/a/stream" })).body).toBe('data: {"by":"gateway"}\n\n');
  });
});
