/**
 * The promises of an exchange with any protocol on either side of the gateway: one suite, run for each pair of
 * protocols from `exchange.spec.ts`. Clients and origins are node's own.
 */
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import http2, { type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { resetStream } from "../../lib/http/h2_streams.ts";
import { createGateway, type Gateway } from "../../lib/index.ts";
import { CA, SERVER } from "../support/certs.ts";
import { closedPort } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

export type Downstream = "h1" | "h1+tls" | "h2";
export type Upstream = "http" | "https" | "h2" | "h2c";
/** What parses HTTP/1.1 responses of upstreams. */
export type UpstreamClient = "wire" | "node";

/** A response; `whole` is false when it broke off. */
interface Answer {
  readonly status: number;
  /** Names in lower case; several of one name in order. */
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
  readonly trailers: readonly (readonly [string, string])[];
  readonly informed: readonly number[];
  readonly whole: boolean;
}

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: readonly string[];
  /** A Buffer has a Content-Length; a stream has none. */
  readonly body?: Buffer | PassThrough;
  readonly trailers?: Readonly<Record<string, string>>;
}

interface Sending {
  readonly answer: Promise<Answer>;
  /** Resolves with the first bytes of the body. */
  readonly begun: Promise<void>;
  cancel(): void;
}

type Client = (sent?: Sent) => Sending;
type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;
type Answering = (request: Request, response: Response) => void;

const SIZES = [0, 1, 64 * 1024, 1024 * 1024];

export function exchanges(downstream: Downstream, upstream: Upstream, client: UpstreamClient = "wire"): void {
  const origin = startedOrigin(upstream);
  let gateway: Gateway;
  let ports: { plain: number; secure: number };
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-"));
  const caFile = join(folder, "ca.pem");
  let send: Client;

  beforeAll(async () => {
    writeFileSync(caFile, CA.cert);
    await origin.start();
    const dead = await closedPort();
    const common = {
      protocol: upstream,
      upstream_client: client,
      ...(upstream === "https" || upstream === "h2" ? { tls: { ca: caFile } } : {}),
    };
    const services: AnyConfigInput["services"] = [
      {
        name: "s",
        base_path: "/a",
        upstreams: [{ host: "127.0.0.1", port: origin.port() }],
        routes: [{ path: "/{rest*}" }],
        ...common,
      },
      {
        name: "dead",
        base_path: "/dead",
        upstreams: [{ host: "127.0.0.1", port: dead }],
        routes: [{ path: "/{rest*}" }],
        ...common,
      },
    ];
    gateway = createGateway({ config: { services } });
    ports = { plain: (await gateway.listen({ port: 0 })).port, secure: 0 };
    ports.secure = (
      await gateway.listen({
        port: 0,
        tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false },
      })
    ).port;
    send =
      downstream === "h2"
        ? await h2Client(ports.secure)
        : h1Client(downstream === "h1" ? ports.plain : ports.secure, downstream === "h1+tls");
  });

  afterAll(async () => {
    for (const close of clientsOpen.splice(0)) close();
    await gateway.close(0);
    await origin.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const clientsOpen: (() => void)[] = [];

  async function h2Client(port: number): Promise<Client> {
    const session = http2.connect(`https://localhost:${port}`, { ca: CA.cert });
    clientsOpen.push(() => session.destroy());
    await new Promise((resolve, reject) => session.once("connect", resolve).once("error", reject));
    return (sent = {}) => sendH2(session, sent);
  }

  /** Answers this test's requests with `answer`. */
  function upstreamSays(answer: Answering): void {
    origin.answer = answer;
    onTestFinished(() => {
      origin.answer = echo;
    });
  }

  const named = (answer: Answer, name: string) =>
    answer.headers.filter(([each]) => each === name).map(([, value]) => value);
  const seen = (answer: Answer) =>
    JSON.parse(answer.body.toString()) as {
      method: string;
      url: string;
      headers: string[];
      bytes: number;
      trailers: string[];
    };
  const seenHeader = (answer: Answer, name: string) => {
    const { headers } = seen(answer);
    return headers.filter((_value, i) => i % 2 === 1 && headers[i - 1]!.toLowerCase() === name);
  };

  describe("a forwarded request", () => {
    it.each(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])(
      "a forwarded request keeps the method %s",
      async (method) => {
        const answer = await send({ method, path: "/a/x" }).answer;
        expect(answer.status).toBe(200);
        expect(seen(answer)).toMatchObject({ method, url: "/x", bytes: 0 });
      },
    );

    it.each(["/x", "/x/", "/%C3%A4/b;c=d", "/x?", "/x?a=1&a=2", "/x?q=%20+%2F&p[]=/", "/x?a=b?c"])(
      "a forwarded request keeps the target %s byte for byte",
      async (path) => {
        expect(seen(await send({ path: `/a${path}` }).answer).url).toBe(path);
      },
    );

    it.each(SIZES)("a forwarded request delivers a body of %d bytes with a Content-Length whole", async (size) => {
      const answer = await send({ method: "POST", body: Buffer.alloc(size, 7) }).answer;
      expect(seen(answer)).toMatchObject({ method: "POST", bytes: size });
      expect(seenHeader(answer, "content-length")).toEqual([String(size)]);
    });

    it.each(SIZES)("a forwarded request delivers a body of %d bytes of unknown length whole", async (size) => {
      const body = new PassThrough();
      body.end(Buffer.alloc(size, 7));
      expect(seen(await send({ method: "POST", body }).answer).bytes).toBe(size);
    });

    it("a forwarded request keeps the body of a GET", async () => {
      expect(seen(await send({ method: "GET", body: Buffer.from("odd") }).answer)).toMatchObject({
        method: "GET",
        bytes: 3,
      });
    });

    it("a forwarded request keeps the order, duplicates and Latin-1 bytes of headers", async () => {
      const answer = await send({ headers: ["X-One", "1", "X-Many", "a", "X-Two", "caf\u00e9", "X-Many", "b"] }).answer;
      expect(seenHeader(answer, "x-many")).toEqual(["a", "b"]);
      expect(seenHeader(answer, "x-two")).toEqual(["caf\u00e9"]);
    });

    it("names the upstream in Host, and the client in X-Forwarded-*", async () => {
      const answer = await send().answer;
      const authority = [...seenHeader(answer, "host"), ...seenHeader(answer, ":authority")];
      expect(authority).toEqual([`127.0.0.1:${origin.port()}`]);
      expect(seenHeader(answer, "x-forwarded-proto")).toEqual([downstream === "h1" ? "http" : "https"]);
      expect(seenHeader(answer, "x-forwarded-prefix")).toEqual(["/a"]);
      expect(seenHeader(answer, "via")).toEqual([`${downstream === "h2" ? "2.0" : "1.1"} edge-gateway`]);
      expect(seenHeader(answer, "x-request-id")).toEqual(named(answer, "x-request-id"));
    });

    it("a forwarded request has one Cookie header", async () => {
      expect(seenHeader(await send({ headers: ["Cookie", "a=1; b=2"] }).answer, "cookie")).toEqual(["a=1; b=2"]);
    });

    it("a forwarded request keeps te: trailers, and no other header of the connection", async () => {
      const hop = downstream === "h2" ? [] : ["Keep-Alive", "5", "Connection", "x-hop", "X-Hop", "1"];
      const answer = await send({ headers: ["TE", "trailers", ...hop] }).answer;
      expect(seenHeader(answer, "te")).toEqual(["trailers"]);
      expect([...seenHeader(answer, "x-hop"), ...seenHeader(answer, "keep-alive")]).toEqual([]);
    });

    it("a forwarded request keeps the trailers of a body of unknown length", async () => {
      const body = new PassThrough();
      body.end("body");
      const answer = await send({ method: "POST", body, trailers: { "x-sum": "42", host: "evil" } }).answer;
      expect(seen(answer).trailers.map((text) => text.toLowerCase())).toEqual(["x-sum", "42"]);
    });
  });

  describe("a forwarded response", () => {
    it.each(SIZES)("a forwarded response delivers a body of %d bytes with a Content-Length whole", async (size) => {
      upstreamSays((_request, response) => {
        response.writeHead(200, { "content-length": size });
        response.end(Buffer.alloc(size, 9));
      });
      const answer = await send().answer;
      expect(answer).toMatchObject({ status: 200, whole: true });
      expect(answer.body.equals(Buffer.alloc(size, 9))).toBe(true);
      expect(named(answer, "content-length")).toEqual([String(size)]);
    });

    it.each(SIZES)("a forwarded response delivers a body of %d bytes of unknown length whole", async (size) => {
      upstreamSays((_request, response) => {
        response.writeHead(200);
        write(response, Buffer.alloc(size, 9));
        response.end();
      });
      const answer = await send().answer;
      expect(answer).toMatchObject({ status: 200, whole: true });
      expect(answer.body.equals(Buffer.alloc(size, 9))).toBe(true);
    });

    it(
      "a forwarded response keeps the status, duplicates and several Set-Cookie, " + "and adds the gateway's Via",
      async () => {
        upstreamSays((_request, response) => {
          response.setHeader("set-cookie", ["a=1; Path=/", "b=2, 3"]);
          response.setHeader("x-latin", "caf\u00e9");
          response.writeHead(418);
          response.end("short and stout");
        });
        const answer = await send().answer;
        expect(answer.status).toBe(418);
        expect(named(answer, "set-cookie")).toEqual(["a=1; Path=/", "b=2, 3"]);
        expect(named(answer, "x-latin")).toEqual(["caf\u00e9"]);
        expect(named(answer, "via")).toEqual([`${isH2(upstream) ? "2.0" : "1.1"} edge-gateway`]);
      },
    );

    it("a forwarded response loses headers of the upstream's connection", async () => {
      upstreamSays((_request, response) => {
        if (!isH2(upstream)) {
          response.setHeader("connection", "x-hop");
          response.setHeader("keep-alive", "timeout=1");
        }
        response.setHeader("x-hop", "1");
        response.end();
      });
      const answer = await send().answer;
      expect(named(answer, "x-hop")).toEqual(isH2(upstream) ? ["1"] : []);
      expect(named(answer, "keep-alive")).not.toContain("timeout=1");
    });

    it("a forwarded response has a length and no body for HEAD", async () => {
      upstreamSays((_request, response) => {
        response.writeHead(200, { "content-length": 1234 });
        response.end();
      });
      const answer = await send({ method: "HEAD" }).answer;
      expect(answer).toMatchObject({ status: 200, whole: true });
      expect(answer.body.length).toBe(0);
      expect(named(answer, "content-length")).toEqual(["1234"]);
    });

    it.each([204, 304])("a forwarded response has no body with status %d", async (status) => {
      upstreamSays((_request, response) => {
        response.writeHead(status, { etag: '"x"' });
        response.end();
      });
      const answer = await send().answer;
      expect(answer).toMatchObject({ status, whole: true });
      expect(answer.body.length).toBe(0);
      expect(named(answer, "etag")).toEqual(['"x"']);
    });

    it("a forwarded response follows a 103 that is forwarded first", async () => {
      upstreamSays((_request, response) => {
        response.writeEarlyHints({ link: "</style.css>; rel=preload" });
        response.end("ok");
      });
      const answer = await send().answer;
      expect(answer.informed).toEqual([103]);
      expect(answer.body.toString()).toBe("ok");
    });

    it("a forwarded response keeps the trailers of its body", async () => {
      upstreamSays((_request, response) => {
        response.writeHead(200, { trailer: "x-sum" });
        write(response, Buffer.from("body"));
        response.addTrailers({ "x-sum": "42" });
        response.end();
      });
      const answer = await send({ headers: ["TE", "trailers"] }).answer;
      expect(answer.body.toString()).toBe("body");
      expect(answer.trailers).toEqual([["x-sum", "42"]]);
    });

    it("a forwarded response is sent while the request is still arriving", async () => {
      upstreamSays((_request, response) => {
        response.writeHead(413, { "content-length": 5 });
        response.end("early");
      });
      const body = new PassThrough();
      body.write("never ending");
      const sending = send({ method: "POST", body });
      const answer = await sending.answer;
      expect(answer.status).toBe(413);
      expect(answer.body.toString()).toBe("early");
      // The response has arrived before the rest of the upload.
      await eventually(() => gateway.stats.services[0]!.upstreams[0]!.inFlight === 0, "the lease coming back");
      body.end();
    });

    it("a forwarded response is streamed in turn with the request, both ways", async () => {
      upstreamSays((request, response) => {
        response.writeHead(200);
        request.on("data", (chunk: Buffer) => write(response, Buffer.from(chunk.toString().toUpperCase())));
        request.on("end", () => response.end("."));
      });
      const body = new PassThrough();
      const sending = send({ method: "POST", body });
      body.write("a");
      await sending.begun;
      body.write("b");
      body.end();
      expect((await sending.answer).body.toString()).toBe("AB.");
    });
  });

  describe("an exchange that ends early", () => {
    it(
      "cancels the upstream request when the client disconnects before the " + "response or in the middle of it",
      async () => {
        for (const begins of [false, true]) {
          let closed = false;
          let arrived = false;
          upstreamSays((_request, response) => {
            arrived = true;
            response.on("close", () => (closed = true));
            if (begins) {
              response.writeHead(200);
              write(response, Buffer.from("begun"));
            }
          });
          const sending = send();
          await eventually(() => arrived, "the request");
          if (begins) await sending.begun;
          sending.cancel();
          await eventually(() => closed, "the upstream's hearing of it");
          await sending.answer.catch(() => {});
        }
      },
    );

    it(
      "aborts the upstream request, without a clean end, " + "when the client disconnects in the middle of its body",
      async () => {
        let outcome = "";
        upstreamSays((request) => {
          request.on("data", () => {});
          request.on(
            "end",
            () => (outcome ||= (request as IncomingMessage & { aborted: boolean }).aborted ? "broken" : "whole"),
          );
          request.on("error", () => (outcome ||= "broken"));
          request.on("aborted", () => (outcome ||= "broken"));
        });
        const body = new PassThrough();
        const sending = send({ method: "POST", body });
        body.write("part");
        await eventually(() => gateway.inFlight > 0, "a request in flight");
        await new Promise((resolve) => setImmediate(resolve));
        sending.cancel();
        await sending.answer.catch(() => {});
        await eventually(() => outcome !== "" || gateway.inFlight === 0, "the end of the request");
        expect(outcome).not.toBe("whole");
      },
    );

    it.each(["known", "unknown"])(
      "breaks off the client's response, without a clean end, when the upstream breaks off a body of %s length",
      async (length) => {
        upstreamSays((_request, response) => {
          response.writeHead(200, length === "stated" ? { "content-length": 100 } : {});
          write(response, Buffer.from("part"));
          response.on("error", () => {});
          setImmediate(() => origin.cut(response));
        });
        const answer = await send().answer.catch(() => null);
        expect(answer?.whole ?? false).toBe(false);
      },
    );

    it("answers 502 upstream_reset when the upstream disconnects before a response", async () => {
      upstreamSays((_request, response) => origin.cut(response));
      const answer = await send({ method: "POST", body: Buffer.from("x") }).answer;
      expect(answer.status).toBe(502);
      expect(JSON.parse(answer.body.toString())).toMatchObject({ code: "upstream_reset" });
    });

    it("leaves the next exchange alone", async () => {
      expect(seen(await send({ method: "POST", body: Buffer.from("again") }).answer).bytes).toBe(5);
      await eventually(() => gateway.inFlight === 0, "no request in flight");
    });
  });

  it.each([
    ["/dead/x", 502, "upstream_connect_failed"],
    ["/nowhere", 404, "route_not_found"],
    ["/a/../x", 400, "path_ambiguous"],
  ])("answers %s with a problem document: %d %s", async (path, status, code) => {
    const answer = await send({ path }).answer;
    expect(answer.status).toBe(status);
    expect(named(answer, "content-type")).toEqual(["application/problem+json"]);
    expect(JSON.parse(answer.body.toString())).toMatchObject({
      status,
      code,
      request_id: named(answer, "x-request-id")[0],
    });
  });
}

function isH2(upstream: Upstream): boolean {
  return upstream === "h2" || upstream === "h2c";
}

function write(response: Response, chunk: Buffer): void {
  (response as ServerResponse).write(chunk);
}

/** Reads the whole request and answers with a description of it in JSON. */
function echo(request: Request, response: Response): void {
  let bytes = 0;
  request.on("data", (chunk: Buffer) => (bytes += chunk.length));
  request.on("error", () => {});
  request.on("end", () => {
    const seen = {
      method: request.method,
      url: request.url,
      headers: request.rawHeaders,
      bytes,
      trailers: request.rawTrailers,
    };
    response.end(JSON.stringify(seen));
  });
}

function startedOrigin(protocol: Upstream) {
  const sockets = new Set<Socket>();
  const listener = (request: Request, response: Response) => self.answer(request, response);
  const tls = { cert: SERVER.cert, key: SERVER.key };
  const server =
    protocol === "http"
      ? http.createServer(listener)
      : protocol === "https"
        ? https.createServer(tls, listener)
        : protocol === "h2"
          ? http2.createSecureServer(tls, listener)
          : http2.createServer(listener);
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("sessionError", () => {});
  const self = {
    answer: echo as Answering,
    port: () => (server.address() as AddressInfo).port,
    start: () => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)),
    /** Aborts the response: closes the connection in HTTP/1.1, resets the stream in HTTP/2. */
    cut(response: Response) {
      if ("stream" in response) response.stream.destroy(new Error("cut"));
      else response.destroy();
    },
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
  return self;
}

function pairs(list: readonly string[]): [string, string][] {
  const result: [string, string][] = [];
  for (let i = 0; i < list.length; i += 2)
    if (!list[i]!.startsWith(":")) result.push([list[i]!.toLowerCase(), list[i + 1]!]);
  return result;
}

function h1Client(port: number, secure: boolean): Client {
  return ({ method = "GET", path = "/a/x", headers = [], body, trailers } = {}) => {
    let begin = () => {};
    const begun = new Promise<void>((resolve) => (begin = resolve));
    const flat = ["Host", `localhost:${port}`, ...headers];
    if (Buffer.isBuffer(body)) flat.push("Content-Length", String(body.length));
    else if (body !== undefined) flat.push("Transfer-Encoding", "chunked");
    const options = { host: "127.0.0.1", port, method, path, headers: flat, setHost: false, agent: false as const };
    const request = secure
      ? https.request({ ...options, ca: CA.cert, servername: "localhost" })
      : http.request(options);
    const informed: number[] = [];
    const answer = new Promise<Answer>((resolve, reject) => {
      request.on("information", ({ statusCode }) => informed.push(statusCode));
      request.on("error", reject);
      request.on("response", (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => {
          chunks.push(chunk);
          begin();
        });
        response.on("error", () => {});
        response.on("close", () => {
          const { statusCode: status = 0, rawHeaders, rawTrailers, complete } = response;
          resolve({
            status,
            headers: pairs(rawHeaders),
            body: Buffer.concat(chunks),
            trailers: pairs(rawTrailers),
            informed,
            whole: complete,
          });
        });
      });
    });
    if (body instanceof PassThrough) {
      request.flushHeaders();
      body.on("data", (chunk) => request.write(chunk));
      body.on("end", () => {
        if (trailers !== undefined) request.addTrailers(trailers);
        request.end();
      });
    } else {
      request.end(body);
    }
    // A test that cancels may not wait for the rejection.
    answer.catch(() => {});
    return { answer, begun, cancel: () => void request.destroy() };
  };
}

function sendH2(
  session: http2.ClientHttp2Session,
  { method = "GET", path = "/a/x", headers = [], body, trailers }: Sent,
): Sending {
  let begin = () => {};
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const fields: http2.OutgoingHttpHeaders = { ":method": method, ":path": path };
  for (const [name, value] of pairs(headers)) {
    const earlier = fields[name];
    fields[name] = earlier === undefined ? value : [...(Array.isArray(earlier) ? earlier : [String(earlier)]), value];
  }
  if (Buffer.isBuffer(body)) fields["content-length"] = body.length;
  const stream = session.request(fields, { endStream: body === undefined, waitForTrailers: trailers !== undefined });
  if (trailers !== undefined) stream.on("wantTrailers", () => stream.sendTrailers(trailers));
  const informed: number[] = [];
  const answer = new Promise<Answer>((resolve, reject) => {
    let raw: readonly string[] = [];
    let rawTrailers: readonly string[] = [];
    const chunks: Buffer[] = [];
    let whole = false;
    stream.on("headers", (info) => informed.push(Number(info[":status"])));
    stream.on("response", (_fields: unknown, _flags: number, list: readonly string[]) => (raw = list));
    stream.on("trailers", (_fields: unknown, _flags: number, list: readonly string[]) => (rawTrailers = list));
    stream.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      begin();
    });
    // The gateway resets an aborted stream with an error code; Node's "end" alone does not show it.
    stream.on("end", () => (whole = true));
    stream.on("error", () => {});
    stream.on("close", () => {
      if (raw.length === 0) return reject(new Error(`the stream was reset with code ${stream.rstCode}`));
      const status = Number(raw[1]);
      const clean = whole && stream.rstCode === 0;
      resolve({
        status,
        headers: pairs(raw),
        body: Buffer.concat(chunks),
        trailers: pairs(rawTrailers),
        informed,
        whole: clean,
      });
    });
  });
  answer.catch(() => {});
  if (body instanceof PassThrough) body.pipe(stream);
  else if (body !== undefined) stream.end(body);
  return { answer, begun, cancel: () => resetStream(stream, http2.constants.NGHTTP2_CANCEL) };
}
