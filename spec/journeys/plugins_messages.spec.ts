/** Plugins that change or validate messages, through a whole gateway, over HTTP/1.1 and HTTP/2. */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import type { IncomingHttpHeaders } from "node:http2";
import zlib from "node:zlib";
import { describe, expect, it } from "vitest";
import type { ConfigInput } from "../../lib/index.ts";
import { HANDSHAKE } from "../gateway/plugins.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Session } from "../support/h2_client.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, restartableBackend, rawBackend } from "./harness.ts";

interface Response {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

interface Request {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

type Client = (request?: Request) => Promise<Response>;

/** Clients over HTTP/1.1 and over HTTP/2 of one gateway. */
async function clients(config: ConfigInput) {
  const { gateway, port } = await running({ ...config, global: { ...config.global, h2c: true } });
  const session = h2Session(port);
  const overHttp1: Client = ({ method, path = "/a/x", headers = {}, body } = {}) =>
    ask(port, { path, headers, ...(method === undefined ? {} : { method }), ...(body === undefined ? {} : { body }) });
  const overHttp2: Client = async ({ headers = {}, ...request } = {}) => {
    const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    const reply = await h2Ask(session, { ...request, headers: lower });
    return { ...reply, body: reply.bytes };
  };
  return {
    gateway,
    port,
    session,
    both: [
      ["HTTP/1.1", overHttp1],
      ["HTTP/2", overHttp2],
    ] as const,
  };
}

const plugin = (name: string, config: Record<string, unknown>) => ({ name, config });
const valueOf = (headers: readonly string[], name: string) =>
  headers.flatMap((each, i) => (i % 2 === 0 && each.toLowerCase() === name ? [headers[i + 1]!] : []));
const problemIn = ({ body }: Response) => JSON.parse(body.toString()) as { code: string; violations: unknown[] };

describe("request_headers and response_headers", () => {
  const config = (port: number) =>
    oneService(
      port,
      {
        plugins: [
          plugin("request_headers", { set: { "X-Level": "service", "X-Tenant": "{tenant}" }, remove: ["X-Debug"] }),
          plugin("response_headers", { remove: ["X-Inside"], set: { "X-Level": "service" } }),
        ],
        routes: [
          {
            path: "/{id}",
            plugins: [
              plugin("request_headers", { add: { "X-Level": "route ${client.ip}" }, set: { "X-Item": "{id}" } }),
              plugin("response_headers", { add: { "X-Item": ["{id}", "${request.method}"] } }),
            ],
          },
        ],
      },
      {
        plugins: [
          plugin("key_auth", { keys: [{ id: "alice", key: "k" }] }),
          plugin("request_headers", { set: { "X-User": "${caller.id}" } }),
        ],
      },
    );

  it(
    "request_headers and response_headers change requests and replies at every " + "level, over both protocols",
    async () => {
      const origin = await backend((_request, response) =>
        response.writeHead(200, { "X-Inside": "1", "X-Level": "upstream" }).end("ok"),
      );
      const { both } = await clients(config(origin.port));
      for (const [, client] of both) {
        const { status, headers } = await client({
          path: "/a/a%20b",
          headers: { apikey: "k", "X-User": "root", "X-Debug": "1", "X-Item": "forged" },
        });
        expect([status, headers["x-inside"], headers["x-level"], headers["x-item"]]).toEqual([
          200,
          undefined,
          "service",
          "a%20b, GET",
        ]);
        const seen = origin.seen.at(-1)!.headers;
        const told = ["x-user", "x-debug", "x-item", "x-level", "x-tenant"].map((name) => valueOf(seen, name));
        expect(told).toEqual([["alice"], [], ["a%20b"], ["service", "route 127.0.0.1"], []]);
      }
    },
  );

  it(
    "request_headers and response_headers keep headers that they have set when the client " +
      "names them in Connection",
    async () => {
      const origin = await backend();
      const { port } = await clients(config(origin.port));
      await ask(port, {
        path: "/a/x",
        headers: { apikey: "k", Connection: "close, X-User, x-item, X-Other", "X-Other": "1" },
      });
      const seen = origin.seen[0]!.headers;
      expect(["x-user", "x-item", "x-other"].map((name) => valueOf(seen, name))).toEqual([["alice"], ["x"], []]);
    },
  );

  it(
    "request_headers and response_headers apply to refusals of inner plugins and to WebSockets, " +
      "and a reload changes them",
    async () => {
      let received = "";
      const origin = await byteBackend((socket) =>
        socket.on("data", (chunk: Buffer) => {
          received += chunk.toString("latin1");
          if (received.endsWith("\r\n\r\n"))
            socket.write(
              "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
                "websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-Inside: 1\r\n\r\n",
            );
          else socket.write(chunk);
        }),
      );
      const given = oneService(origin.port, {
        plugins: [
          plugin("response_headers", { set: { "X-Out": "1" }, remove: ["X-Inside"] }),
          plugin("request_headers", { set: { "X-In": "1" } }),
        ],
      });
      const { gateway, port } = await clients(given);
      const connection = await client(port);
      connection.send(HANDSHAKE);
      const head = await connection.until("\r\n\r\n");
      expect(head).toMatch(/^HTTP\/1\.1 101 /);
      expect(head).toMatch(/\r\nX-Out: 1\r\n/);
      expect(head).not.toMatch(/X-Inside/);
      expect(received).toMatch(/\r\nX-In: 1\r\n/);
      await gateway.reload(
        oneService(origin.port, {
          plugins: [plugin("response_headers", { set: { "X-Out": "2" } }), plugin("key_auth", { key: "k" })],
        }),
      );
      connection.send("still there");
      await connection.until("still there");
      const { status, headers } = await ask(port, { path: "/a/x" });
      expect([status, headers["x-out"]]).toEqual([401, "2"]);
    },
  );

  it(
    "request_headers and response_headers report an unknown placeholder as a " + "configuration error with its place",
    async () => {
      const origin = await backend();
      await expect(
        running(
          oneService(origin.port, {
            routes: [{ path: "/{id}", plugins: [plugin("request_headers", { set: { A: "{ib}" } })] }],
          }),
        ),
      ).rejects.toThrow(/config\.set\.A +\{ib\} is no placeholder of this route's path; did you mean \{id\}\?/);
    },
  );
});

describe("redirect", () => {
  it("answers by itself over both protocols, and keeps the connections open", async () => {
    const { both, port } = await clients(
      oneService(9, {
        routes: [
          { path: "/old/{rest*}", plugins: [plugin("redirect", { location: "https://${request.host}/new/{rest}" })] },
        ],
      }),
    );
    for (const [, client] of both) {
      for (const body of [undefined, "unread"]) {
        const {
          status,
          headers,
          body: answer,
        } = await client({ path: "/a/old/x/y%20z?q=%7e", method: "POST", ...(body === undefined ? {} : { body }) });
        expect([status, headers["location"], answer.length]).toEqual([308, "https://127.0.0.1/new/x/y%20z?q=%7e", 0]);
      }
      expect((await client({ path: "/a/old//evil.example", method: "HEAD" })).headers["location"]).toBe(
        "https://127.0.0.1/new/evil.example",
      );
    }
    const connection = await client(port);
    connection.send(HANDSHAKE.replace("/a/socket", "/a/old/socket"));
    expect(await connection.closed()).toMatch(
      /^HTTP\/1\.1 308 [^]*\r\nLocation: https:\/\/gateway\.example\/new\/socket\r\n/,
    );
  });
});

describe("compress", () => {
  const config = (port: number, parts: object = {}) =>
    oneService(port, { plugins: [plugin("compress", {})], ...parts });
  const decode: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
    gzip: zlib.gunzipSync,
    br: zlib.brotliDecompressSync,
  };
  const text = Buffer.from(Array.from({ length: 40_000 }, (_, i) => `line ${i * 7919} of many\n`).join(""));

  it.each(["gzip", "br"])(
    "loses nothing of a large %s reply, with a length and without, over both protocols",
    async (coding) => {
      const origin = await backend((request, response) => {
        const length = request.url === "/length" ? { "Content-Length": String(text.length) } : {};
        response.writeHead(200, { "Content-Type": "text/plain", ETag: '"1"', ...length }).end(text);
      });
      const { both } = await clients(config(origin.port));
      for (const [, client] of both) {
        for (const path of ["/a/length", "/a/chunked"]) {
          const { headers, body } = await client({ path, headers: { "Accept-Encoding": coding } });
          expect([headers["content-encoding"], headers["content-length"], headers["vary"], headers["etag"]]).toEqual([
            coding,
            undefined,
            "Accept-Encoding",
            'W/"1"',
          ]);
          expect(body.length).toBeLessThan(text.length / 3);
          expect(decode[coding]!(body).equals(text)).toBe(true);
          const plain = await client({ path });
          expect([plain.headers["content-encoding"], plain.headers["vary"], plain.body.equals(text)]).toEqual([
            undefined,
            "Accept-Encoding",
            true,
          ]);
          const head = await client({ path, method: "HEAD", headers: { "Accept-Encoding": coding } });
          // Without a length it is unknown whether a GET would compress it.
          expect([head.headers["content-encoding"], head.body.length]).toEqual([
            path === "/a/length" ? coding : undefined,
            0,
          ]);
        }
      }
    },
  );

  it.each(["http", "h2c"] as const)(
    "sends each event of a stream before the next one is sent, with an upstream over %s",
    async (protocol) => {
      const origin = await restartableBackend(protocol);
      const sending: ((event: string) => void)[] = [];
      origin.answer = (_request, response) => {
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        response.flushHeaders();
        sending.push((event) => void (event === "" ? response.end() : response.write(event)));
      };
      const { port, session } = await clients(config(origin.port, { protocol }));
      const request = http.get({
        port,
        host: "127.0.0.1",
        path: "/a/x",
        headers: { "Accept-Encoding": "gzip" },
        agent: false,
      });
      const stream = session.request({ ":path": "/a/x", "accept-encoding": "gzip" });
      const [response] = (await once(request, "response")) as [http.IncomingMessage];
      await eventually(() => sending.length === 2, "both requests at the upstream");
      const got = ["", ""];
      const plain = [response, stream].map((each, i) =>
        each.pipe(zlib.createGunzip()).on("data", (chunk: Buffer) => (got[i] += chunk.toString())),
      );
      let sent = "";
      for (let i = 0; i < 4; i++) {
        sent += `data: ${i}\n\n`;
        for (const send of sending) send(`data: ${i}\n\n`);
        await eventually(() => got.every((each) => each === sent), `event ${i}`);
      }
      for (const send of sending) send("");
      await Promise.all(plain.map((each) => once(each, "end")));
    },
  );

  it("ends the upstream's response when the client disconnects, over both protocols", async () => {
    let open = 0;
    const origin = await rawBackend((_request, response) => {
      open++;
      response.on("close", () => open--);
      response.writeHead(200, { "Content-Type": "text/plain" });
      response.write("x");
    });
    const { port, session } = await clients(config(origin.port));
    const request = http.get({
      port,
      host: "127.0.0.1",
      path: "/a/x",
      headers: { "Accept-Encoding": "br" },
      agent: false,
    });
    const stream = session.request({ ":path": "/a/x", "accept-encoding": "br" });
    request.on("error", () => {});
    stream.on("error", () => {});
    await Promise.all([once(request, "response"), once(stream, "response")]);
    expect(open).toBe(2);
    request.destroy();
    stream.close(8);
    await eventually(() => open === 0, "the end of the upstream's responses");
  });

  it("ends its reply with an error when the upstream breaks off, over both protocols", async () => {
    const origin = await rawBackend((_request, response) => {
      response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": "100000" });
      response.write("x".repeat(2_000), () => response.destroy());
    });
    const { both } = await clients(config(origin.port));
    for (const [, client] of both) await expect(client({ headers: { "Accept-Encoding": "gzip" } })).rejects.toThrow();
  });

  it("reads the upstream no faster than the client reads", async () => {
    let written = 0;
    const chunk = randomBytes(65_536);
    const origin = await rawBackend((_request, response) => {
      response.writeHead(200, { "Content-Type": "text/plain" });
      const write = () => {
        while (!response.destroyed && written < 2_000) {
          written++;
          if (!response.write(chunk)) return void response.once("drain", write);
        }
      };
      write();
    });
    const { port } = await clients(config(origin.port, { plugins: [plugin("compress", {})] }));
    const connection = await client(port);
    connection.socket.pause();
    connection.send("GET /a/x HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    let before = -1;
    let turns = 0;
    await eventually(() => {
      turns = written === before && written > 0 ? turns + 1 : 0;
      before = written;
      return turns > 50;
    }, "a pause");
    expect(written).toBeLessThan(1_000);
  });
});

describe("request_validation", () => {
  const schema = { type: "object", properties: { id: { type: "integer" } }, required: ["id"] };
  const config = (port: number, parts: object = {}) =>
    oneService(port, {
      plugins: [
        plugin("request_validation", {
          body: schema,
          query: { properties: { page: { type: "integer" } } },
          max_bytes: 1000,
        }),
      ],
      ...parts,
    });
  const json = { "Content-Type": "application/json" };

  it("serves other requests while it checks a long body, and checks that body to its end", async () => {
    const origin = await backend();
    const items = { anyOf: [...Array<object>(30).fill({ type: "object" }), { type: "integer" }] };
    const { port } = await running(
      oneService(origin.port, { plugins: [plugin("request_validation", { body: { items } })] }),
    );
    const ended: string[] = [];
    const body = JSON.stringify(Array(100_000).fill(1));
    const headers = { "Content-Type": "application/json", Connection: "close" };
    const long = ask(port, { method: "POST", path: "/a/long", headers, body }).then(
      (got) => (ended.push("long"), got.status),
    );
    // The check begins when the whole body is there, which may be after the first of the short ones.
    for (let i = 0; i < 4; i++) {
      expect((await ask(port, { method: "POST", path: "/a/short", headers, body: "[1]" })).status).toBe(200);
      ended.push("short");
    }
    expect(await long).toBe(200);
    // A hundred pauses, and no reply of a short one takes more than a few turns of the event loop.
    expect(ended.indexOf("long")).toBeGreaterThan(1);
    expect(origin.seen).toHaveLength(5);
  });

  it(
    "passes valid requests on byte for byte, and refuses others with every " + "violation, over both protocols",
    async () => {
      const origin = await backend();
      const { both } = await clients(config(origin.port));
      const exact = '{ "id":1,\t"ü":"\\u0041" }\r\n';
      for (const [, client] of both) {
        expect((await client({ method: "POST", headers: json, body: exact })).status).toBe(200);
        expect(origin.seen.at(-1)!.body.toString()).toBe(exact);
        const before = origin.seen.length;
        const refused = await client({ method: "POST", path: "/a/x?page=one", headers: json, body: '{"id":"1"}' });
        expect([refused.status, problemIn(refused).code]).toEqual([400, "request_invalid"]);
        expect(problemIn(refused).violations).toEqual([
          { in: "query", at: "/page", message: "expected an integer, found a string" },
          { in: "body", at: "/id", message: "expected an integer, found a string" },
        ]);
        expect(
          (await client({ method: "POST", headers: json, body: JSON.stringify({ id: 1, more: "x".repeat(1000) }) }))
            .status,
        ).toBe(413);
        expect((await client({ method: "GET" })).status).toBe(200);
        expect(origin.seen.length).toBe(before + 1);
      }
    },
  );

  it(
    "reads a chunked body up to the limit, forwards it chunked with its trailers, " +
      "and keeps the connection after a refusal",
    async () => {
      const origin = await backend();
      const { port } = await clients(config(origin.port));
      const connection = await client(port);
      const post = (chunks: string) =>
        `POST /a/x HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: ` +
        `chunked\r\nTrailer: X-Sum\r\n\r\n${chunks}`;
      connection.send(post("2\r\n{}\r\n0\r\n\r\n"));
      await connection.until(/"violations":\[\{"in":"body","at":"\/id","message":"is required"\}\]/);
      connection.send(post('1\r\n{\r\n7\r\n"id":1}\r\n0\r\nX-Sum: 8\r\n\r\n'));
      await connection.until(/HTTP\/1\.1 200 OK[^]*ok/);
      expect([origin.seen.length, origin.seen[0]!.body.toString(), origin.seen[0]!.trailers]).toEqual([
        1,
        '{"id":1}',
        ["X-Sum", "8"],
      ]);
      connection.send(post(`3e9\r\n"${"x".repeat(1000)}\r\n`));
      await connection.until("HTTP/1.1 413");
    },
  );

  it("sends 100 Continue once to a client that waits for it, before the upstream is asked", async () => {
    const origin = await backend();
    const { port, session } = await clients(config(origin.port));
    const connection = await client(port);
    connection.send(
      "POST /a/x HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
        "8\r\nExpect: 100-continue\r\n\r\n",
    );
    await connection.until("HTTP/1.1 100 Continue\r\n\r\n");
    expect(origin.seen.length).toBe(0);
    connection.send('{"id":1}');
    const all = await connection.until("HTTP/1.1 200 OK");
    expect(all.match(/100 Continue/g)!.length).toBe(1);
    const stream = session.request(
      { ":method": "POST", ":path": "/a/x", "content-type": "application/json", expect: "100-continue" },
      { endStream: false },
    );
    const informed = once(stream, "continue");
    await informed;
    stream.end('{"id":1}');
    const [fields] = (await once(stream, "response")) as [IncomingHttpHeaders];
    expect(fields[":status"]).toBe(200);
    stream.resume();
    expect(origin.seen.map(({ headers }) => valueOf(headers, "expect"))).toEqual([[], []]);
  });

  it("lets a checked body be sent to another upstream", async () => {
    const dead = await restartableBackend();
    const origin = await backend();
    await dead.kill();
    const { both } = await clients(
      config(dead.port, { retries: {}, upstreams: [dead, origin].map(({ port }) => ({ host: "127.0.0.1", port })) }),
    );
    for (const [, client] of both) {
      for (let i = 0; i < 3; i++)
        expect((await client({ method: "PUT", headers: json, body: '{"id":1}' })).status).toBe(200);
    }
    expect(new Set(origin.seen.map(({ body }) => body.toString()))).toEqual(new Set(['{"id":1}']));
  });

  it("checks the query of a WebSocket request, and lets valid ones pass", async () => {
    const origin = await byteBackend((socket) =>
      socket.on(
        "data",
        () =>
          void socket.write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
              "websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
          ),
      ),
    );
    const { port } = await clients(config(origin.port));
    const connection = await client(port);
    connection.send(HANDSHAKE);
    await connection.until("HTTP/1.1 101");
    const refused = await client(port);
    refused.send(HANDSHAKE.replace("/a/socket", "/a/socket?page=x"));
    expect(await refused.closed()).toMatch(/^HTTP\/1\.1 400 [^]*"request_invalid"/);
  });
});
