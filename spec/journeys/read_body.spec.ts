/**
 * Plugins that read the whole body of a request or of a reply, and the target as it was sent: over sockets, in every
 * protocol.
 */
import { createHash, createHmac } from "node:crypto";
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import {
  definePlugin,
  Fault,
  loadPluginModules,
  readBody,
  readReply,
  schema,
  withHeader,
  type AnyPlugin,
  type ConfigInput,
  type Exchange,
  type Handler,
} from "../../lib/index.ts";
import { read, root } from "../support/documents.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Ask, h2Open, h2Session } from "../support/h2_client.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, client, codeIn, gate, rawBackend, restartableBackend } from "./harness.ts";

const plugin = (name: string, run: (next: Handler) => Handler): AnyPlugin =>
  definePlugin({ name, schema: schema.object({}), create: () => run });

/** Notes the body of each request that it reads, and what is thrown at it. */
function reading(most = 1_000) {
  const bodies: string[] = [];
  const errors: unknown[] = [];
  const kind = plugin("reading", (next) => async (exchange) => {
    try {
      bodies.push((await readBody(exchange, most)).toString());
    } catch (error) {
      errors.push(error);
      throw error;
    }
    return next(exchange);
  });
  return { bodies, errors, kind };
}

const throughGateway = (port: number, kinds: readonly AnyPlugin[], global: ConfigInput["global"] = {}, parts = {}) =>
  running(oneService(port, { plugins: kinds.map(({ name }) => ({ name })), ...parts }, { h2c: true, ...global }), {
    plugins: kinds,
  });

const chunked = (path: string, ...chunks: string[]) =>
  `POST ${path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: ` +
  `chunked\r\n\r\n${chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join("")}`;

describe("a plugin that reads the body of a request", () => {
  it.each(["http", "h2c"] as const)(
    "readBody gives the whole body and forwards it byte for byte, with its trailers, to an upstream that speaks %s",
    async (protocol) => {
      const origin = await restartableBackend(protocol);
      const got: unknown[] = [];
      origin.answer = (request, response) => {
        const chunks: Buffer[] = [];
        request
          .on("data", (chunk: Buffer) => chunks.push(chunk))
          .on(
            "end",
            () => (
              got.push([Buffer.concat(chunks).toString(), request.rawTrailers.map((text) => text.toLowerCase())]),
              response.end()
            ),
          );
      };
      const { bodies, kind } = reading();
      const { gateway, port } = await throughGateway(origin.port, [kind], {}, { protocol });
      const connection = await client(port);
      connection.send(`${chunked("/a/x", "he", "llo")}0\r\nX-Sum: 1\r\n\r\n`);
      await connection.until("\r\n\r\n");
      await h2Ask(h2Session(port), { method: "POST", body: "hello", trailers: { "x-sum": "1" } });
      await ask(port, { method: "POST", path: "/a/x", body: "hello" });
      expect(bodies).toEqual(["hello", "hello", "hello"]);
      expect(got).toEqual([
        ["hello", ["x-sum", "1"]],
        ["hello", ["x-sum", "1"]],
        ["hello", []],
      ]);
      expect(gateway.status.pluginFaults).toEqual([]);
      await origin.kill();
    },
  );

  it("readBody gives no bytes where there is no body, or one without bytes", async () => {
    const origin = await backend();
    const { bodies, kind } = reading(0);
    const { port } = await throughGateway(origin.port, [kind]);
    const connection = await client(port);
    connection.send(
      `GET /a/x HTTP/1.1\r\nHost: h\r\n\r\n${chunked("/a/y")}0\r\n\r\nPOST /a/z HTTP/1.1\r\nHost: ` +
        `h\r\nContent-Length: 0\r\n\r\n`,
    );
    await connection.until(/(ok[^]*){3}/);
    expect(bodies).toEqual(["", "", ""]);
    expect(origin.seen.map(({ url, body }) => [url, body.length])).toEqual([
      ["/x", 0],
      ["/y", 0],
      ["/z", 0],
    ]);
  });

  it(
    "a body that is larger than the plugin wants gets 413, before any of it is read where its length is stated, " +
      "and is no fault of the plugin",
    async () => {
      const origin = await backend();
      const { errors, kind } = reading(4);
      const { gateway, port } = await throughGateway(origin.port, [kind]);
      const stated = await client(port);
      stated.send("POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
      expect(codeIn(await stated.until('"}'))).toBe("body_too_large");
      const streamed = await client(port);
      streamed.send(chunked("/a/x", "he", "llo"));
      expect(codeIn(await streamed.until('"}'))).toBe("body_too_large");
      expect((await ask(port, { method: "POST", path: "/a/x", body: "hello" })).status).toBe(413);
      expect(await h2Ask(h2Session(port), { method: "POST", body: "hello" })).toMatchObject({ status: 413 });
      expect(errors.map((error) => error instanceof Fault && error.code)).toEqual([
        "body_too_large",
        "body_too_large",
        "body_too_large",
        "body_too_large",
      ]);
      expect(gateway.status.pluginFaults).toEqual([]);
      expect(origin.seen).toEqual([]);
    },
  );

  it("the gateway's own limit of bodies applies while a plugin reads one", async () => {
    const { kind } = reading();
    const { port } = await throughGateway(9, [kind], { limits: { max_body_bytes: 4 } });
    const connection = await client(port);
    connection.send(chunked("/a/x", "hello"));
    expect(codeIn(await connection.until('"}'))).toBe("body_too_large");
  });

  it("a client that disconnects while its body is read ends the reading, with no fault of the plugin", async () => {
    const origin = await backend();
    const { errors, kind } = reading();
    const { gateway, port } = await throughGateway(origin.port, [kind]);
    const connection = await client(port);
    connection.send(chunked("/a/x", "hel"));
    const session = h2Session(port);
    const { stream } = h2Open(session, { method: "POST" }, false);
    stream.write("hel");
    await eventually(() => gateway.inFlight === 2);
    connection.socket.destroy();
    stream.destroy();
    await eventually(() => gateway.inFlight === 0 && errors.length === 2);
    expect(errors.map((error) => error instanceof Fault && error.code)).toEqual(["bad_request", "bad_request"]);
    expect([gateway.status.pluginFaults, origin.seen]).toEqual([[], []]);
  });

  it("several plugins read the same body, and one of them twice", async () => {
    const origin = await backend();
    const { bodies, kind } = reading();
    const again = plugin("again", (next) => async (exchange) => {
      const copy = exchange.with({ headers: withHeader(exchange.headers, "X-Own", "1") });
      for (let i = 0; i < 2; i++) bodies.push((await readBody(copy, 5)).fill("x", 0, 1).toString());
      return next(copy);
    });
    const { port } = await throughGateway(origin.port, [kind, again, { ...kind, name: "third" }]);
    const connection = await client(port);
    connection.send(`${chunked("/a/x", "he", "llo")}0\r\n\r\n`);
    await connection.until("ok");
    expect(bodies).toEqual(["hello", "xello", "xello", "hello"]);
    expect(origin.seen[0]!.body.toString()).toBe("hello");
  });

  it(
    "readBody after the body was read as a stream is a fault of the plugin, " +
      "and a second reading at the same time as well",
    async () => {
      const errors: unknown[] = [];
      const late = plugin("late", (next) => async (exchange) => {
        if (exchange.path === "/a/read") await exchange.body!.toArray();
        else void readBody(exchange, 100);
        await readBody(exchange, 100).catch((error: unknown) => {
          errors.push((error as Error).message);
          throw error;
        });
        return next(exchange);
      });
      const { gateway, port } = await throughGateway(9, [late]);
      for (const path of ["/a/read", "/a/twice"]) {
        const connection = await client(port);
        connection.send(`${chunked(path, "he", "llo")}0\r\n\r\n`);
        expect(codeIn(await connection.until('"}'))).toBe("internal");
      }
      expect(errors).toEqual([
        "the body has been read before, or is being read",
        "the body has been read before, or is being read",
      ]);
      expect(gateway.status.pluginFaults).toMatchObject([{ plugin: "late", count: 2 }]);
    },
  );

  it("a client that waits for 100 (Continue) gets it once, and the upstream no Expect", async () => {
    const origin = await backend();
    const { bodies, kind } = reading();
    const { port } = await throughGateway(origin.port, [kind]);
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    await connection.until("HTTP/1.1 100 Continue\r\n\r\n");
    connection.send("hello");
    expect((await connection.until("ok")).match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 100", "HTTP/1.1 200"]);
    const session = h2Session(port);
    const { stream, reply } = h2Open(session, { method: "POST", headers: { expect: "100-continue" } }, false);
    stream.once("headers", () => stream.end("hello"));
    expect(await reply).toMatchObject({ status: 200, informed: [100] });
    expect(bodies).toEqual(["hello", "hello"]);
    expect(
      origin.seen.map(({ headers, body }) => [
        headers.includes("Expect") || headers.includes("expect"),
        body.toString(),
      ]),
    ).toEqual([
      [false, "hello"],
      [false, "hello"],
    ]);
  });

  it("bodies that plugins have read hold at most 256 MiB together, until their requests end", async () => {
    const block = Buffer.alloc(64 * 1024 * 1024);
    const most = 2 * block.length;
    const begin = (): { exchange: Exchange; body: Readable; read: Promise<unknown> } => {
      const body = new Readable({ read() {} });
      const exchange = madeUpExchange({ method: "POST", body });
      const read = readBody(exchange, most).catch((error: unknown) => error);
      body.push(block);
      return { exchange, body, read };
    };
    const four = [begin(), begin(), begin(), begin()];
    await eventually(() => four.every(({ body }) => body.readableDidRead));
    expect(await begin().read).toMatchObject({ name: "Fault", code: "overloaded" });
    four[0]!.exchange.call.abort();
    const { body, exchange, read } = begin();
    body.push(null);
    expect(await read).toHaveLength(block.length);
    for (const each of [...four, { body, exchange }]) {
      each.body.destroy();
      each.exchange.call.close();
    }
  });
});

describe("the target of a request", () => {
  it("a plugin gets the target as the client sent it, the path normalised, over both protocols", async () => {
    const origin = await backend();
    const got: string[][] = [];
    const kind = plugin("look", (next) => (exchange) => {
      got.push([exchange.target, exchange.path]);
      return next(exchange.with({ headers: withHeader(exchange.headers, "X-A", "1") }));
    });
    const { port } = await throughGateway(origin.port, [kind]);
    const connection = await client(port);
    for (const target of ["/a/p/%73igned?a=%62", "http://h/a/x"]) {
      connection.discard();
      connection.send(`GET ${target} HTTP/1.1\r\nHost: h\r\n\r\n`);
      await connection.until("ok");
    }
    await h2Ask(h2Session(port), { path: "/a/p/%73igned?a=%62" });
    expect(got).toEqual([
      ["/a/p/%73igned?a=%62", "/a/p/signed"],
      ["http://h/a/x", "/a/x"],
      ["/a/p/%73igned?a=%62", "/a/p/signed"],
    ]);
  });

  it("examples/signature_module.mjs lets a request pass only as it was signed: method, target and body", async () => {
    const origin = await backend();
    const secret = "an example secret";
    const sha256 = createHash("sha256").update(read("examples/signature_module.mjs")).digest("hex");
    const config: ConfigInput = oneService(
      origin.port,
      { plugins: [{ name: "signature", config: { secret, max_bytes: 10 } } as never] },
      { h2c: true, plugin_modules: [{ path: `${root}/examples/signature_module.mjs`, sha256 }] },
    );
    const { gateway, port } = await running(config, { modules: await loadPluginModules(config) });
    const headers = (text: string) => ({ "x-signature": createHmac("sha256", secret).update(text).digest("hex") });
    const path = "/a/%73igned?x=%41";
    const right = headers(`POST ${path}\nhello`);
    const overHttp1 = async (request: object) =>
      (await ask(port, { method: "POST", path, body: "hello", headers: right, ...request })).status;
    const session = h2Session(port);
    const overHttp2 = async (request: object) =>
      (await h2Ask(session, { method: "POST", path, body: "hello", headers: right, ...request })).status;
    for (const send of [overHttp1, overHttp2]) {
      expect(await send({})).toBe(200);
      expect(await send({ body: "hallo" })).toBe(401);
      expect(await send({ path: "/a/signed?x=%41" })).toBe(401);
      expect(await send({ method: "PUT" })).toBe(401);
      expect(await send({ headers: {} })).toBe(401);
      expect(await send({ body: "hello world" })).toBe(413);
      expect(await send({ method: "GET", body: undefined, headers: headers(`GET ${path}\n`) })).toBe(200);
    }
    expect(origin.seen.map(({ url, body }) => `${url} ${String(body)}`)).toEqual([
      "/signed?x=%41 hello",
      "/signed?x=%41 ",
      "/signed?x=%41 hello",
      "/signed?x=%41 ",
    ]);
    expect(gateway.status.pluginFaults).toEqual([]);
  });
});

describe("a plugin that reads the body of a reply", () => {
  const readingReply = (bodies: string[], most = 100) =>
    plugin("reading_reply", (next) => async (exchange) => {
      const reply = await next(exchange);
      bodies.push((await readReply(reply, most)).toString());
      return exchange.path === "/a/changed"
        ? { ...reply, headers: withHeader(reply.headers, "Content-Length", "2"), body: Buffer.from("ok") }
        : reply;
    });

  it(
    "readReply gives the whole body and lets it pass byte for byte, with its trailers, also over HTTP/2, " +
      "and nothing for HEAD and 204",
    async () => {
      const origin = await backend((request, response) => {
        if (request.url === "/none") return void response.writeHead(204).end();
        if (request.url === "/whole") return void response.writeHead(200, { "Content-Length": "5" }).end("hello");
        response.writeHead(200, { Trailer: "X-Sum" });
        response.write("he");
        response.addTrailers({ "X-Sum": "1" });
        response.end("llo");
      });
      const bodies: string[] = [];
      const { gateway, port } = await throughGateway(origin.port, [readingReply(bodies)]);
      const streamed = await ask(port, { path: "/a/x", headers: { TE: "trailers" } });
      expect([streamed.body.toString(), streamed.trailers]).toEqual(["hello", ["X-Sum", "1"]]);
      const session = h2Session(port);
      expect(await h2Ask(session, { path: "/a/x" })).toMatchObject({ body: "hello", trailers: { "x-sum": "1" } });
      expect(await h2Ask(session, { path: "/a/whole" })).toMatchObject({ body: "hello" });
      expect((await ask(port, { path: "/a/whole" })).body.toString()).toBe("hello");
      expect((await ask(port, { path: "/a/changed" })).body.toString()).toBe("ok");
      expect((await ask(port, { path: "/a/none" })).status).toBe(204);
      expect((await ask(port, { method: "HEAD", path: "/a/whole" })).headers["content-length"]).toBe("5");
      expect(bodies).toEqual(["hello", "hello", "hello", "hello", "hello", "", ""]);
      expect(gateway.status.pluginFaults).toEqual([]);
    },
  );

  it.each([
    ["is larger than the plugin wants", "upstream_invalid", 4],
    ["breaks off", "upstream_reset", 100],
  ])(
    "a reply that %s gets 502 %s, is no fault of the plugin, and leaves no request at the upstream",
    async (what, code, most) => {
      const closed = gate();
      const origin = await rawBackend((_request, response) => {
        response.on("close", () => closed.open());
        response.write("hel", () => (what === "breaks off" ? response.destroy() : response.write("lo")));
      });
      const bodies: string[] = [];
      const { gateway, port } = await throughGateway(origin.port, [readingReply(bodies, most)]);
      const answer = await ask(port, { path: "/a/x" });
      expect([answer.status, (JSON.parse(answer.body.toString()) as { code: string }).code]).toEqual([502, code]);
      await closed.opened;
      await eventually(() => gateway.inFlight === 0);
      expect([bodies, gateway.status.pluginFaults]).toEqual([[], []]);
    },
  );

  it(
    "a body in memory that is larger than the plugin wants gets 502 as well, " +
      "and a body that was read as a stream is a fault of the plugin",
    async () => {
      const errors: unknown[] = [];
      const note = (error: unknown) => void errors.push((error as Error).message);
      await readReply({ status: 200, headers: [], body: Buffer.from("hello") }, 4).catch(note);
      const body = Readable.from(["hello"]);
      await body.toArray();
      await readReply({ status: 200, headers: [], body }, 5).catch(note);
      await readReply({ status: 200, headers: [], body: Buffer.from("hello") }, "5" as never).catch(note);
      expect(errors).toEqual([
        "the response body has more than 4 bytes",
        "the body has been read before, or is being read",
        "maxBytes must be a number of bytes",
      ]);
    },
  );
});
