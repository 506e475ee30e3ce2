import { once } from "node:events";
import net from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { SERVER } from "../support/certs.ts";
import { oneService, running } from "../support/gateway.ts";
import { manualClock } from "../support/clock.ts";
import { codec } from "../support/codec.ts";
import { h2TlsSession } from "../support/h2_client.ts";
import { closedPort } from "../support/origin.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, get, rawBackend, statusesIn } from "./harness.ts";

const warnings: Error[] = [];
const note = (warning: Error) => void warnings.push(warning);
beforeAll(() => void process.on("warning", note));
afterAll(() => {
  process.removeListener("warning", note);
  expect(warnings.map((warning) => warning.message)).toEqual([]);
});

const lines = (...all: string[]) => all.join("\r\n") + "\r\n\r\n";
const post = (...headers: string[]) => lines("POST /a/x HTTP/1.1", "Host: gw.example", ...headers);

interface Case {
  readonly title: string;
  readonly bytes: string;
  readonly status?: number;
  readonly code?: string;
}

/**
 * Each is answered with its code (default bad_request) and a closed connection, and nothing is sent to the upstream.
 */
const refused: Case[] = [
  { title: "CL.TE", bytes: post("Content-Length: 6", "Transfer-Encoding: chunked") + "0\r\n\r\nG" },
  {
    title: "TE.CL",
    bytes: post("Transfer-Encoding: chunked", "Content-Length: 4") + "5c\r\nGPOST / HTTP/1.1\r\n0\r\n\r\n",
  },
  {
    title: "TE.TE with an unknown coding last",
    bytes: post("Transfer-Encoding: chunked", "Transfer-Encoding: x") + "0\r\n\r\n",
  },
  {
    title: "TE.TE with an unknown coding first",
    bytes: post("Transfer-Encoding: x", "Transfer-Encoding: chunked") + "0\r\n\r\n",
  },
  {
    title: "Transfer-Encoding given twice",
    bytes: post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n",
  },
  { title: "Transfer-Encoding: chunked, chunked", bytes: post("Transfer-Encoding: chunked, chunked") + "0\r\n\r\n" },
  { title: "Transfer-Encoding: gzip, chunked", bytes: post("Transfer-Encoding: gzip, chunked") + "0\r\n\r\n" },
  { title: "Transfer-Encoding: chunked, identity", bytes: post("Transfer-Encoding: chunked, identity") + "0\r\n\r\n" },
  { title: "Transfer-Encoding: identity", bytes: post("Transfer-Encoding: identity") },
  { title: "Transfer-Encoding: xchunked", bytes: post("Transfer-Encoding: xchunked") + "0\r\n\r\n" },
  {
    title: "Transfer-Encoding with a vertical tab before its value",
    bytes: post("Transfer-Encoding: \x0bchunked") + "0\r\n\r\n",
  },
  { title: "Transfer-Encoding in an obs-fold", bytes: post("Transfer-Encoding:\r\n chunked") + "0\r\n\r\n" },
  { title: "Transfer-Encoding before a colon with a space", bytes: post("Transfer-Encoding : chunked") + "0\r\n\r\n" },
  { title: "an empty Transfer-Encoding", bytes: post("Transfer-Encoding:") },
  {
    title: "Transfer-Encoding with HTTP/1.0",
    bytes: lines("POST /a/x HTTP/1.0", "Host: h", "Transfer-Encoding: chunked") + "0\r\n\r\n",
  },
  { title: "Content-Length twice, different", bytes: post("Content-Length: 1", "Content-Length: 2") + "aa" },
  { title: "Content-Length twice, the same", bytes: post("Content-Length: 1", "Content-Length: 1") + "a" },
  { title: "Content-Length as a list", bytes: post("Content-Length: 1, 1") + "a" },
  { title: "Content-Length negative", bytes: post("Content-Length: -1") },
  { title: "Content-Length with a plus", bytes: post("Content-Length: +1") + "a" },
  { title: "Content-Length in hexadecimal", bytes: post("Content-Length: 0x1") + "a" },
  { title: "Content-Length beyond 64 bits", bytes: post("Content-Length: 18446744073709551617") + "a" },
  { title: "Content-Length of letters", bytes: post("Content-Length: one") + "a" },
  { title: "Content-Length empty", bytes: post("Content-Length:") + "a" },
  { title: "Content-Length with a space within", bytes: post("Content-Length: 1 0") + "aaaaaaaaaa" },
  { title: "Content-Length with leading zeros", bytes: post("Content-Length: 0010") + "aaaaaaaaaa" },
  { title: "Content-Length of zeros", bytes: post("Content-Length: 00") },
  { title: "Content-Length of 2^64 - 1", bytes: post("Content-Length: 18446744073709551615") + "a" },
  { title: "Content-Length with a fraction", bytes: post("Content-Length: 1.0") + "a" },
  { title: "Content-Length with an exponent", bytes: post("Content-Length: 1e1") + "aaaaaaaaaa" },
  { title: "Content-Length in digits that are not ASCII", bytes: post("Content-Length: \xb2") + "aa" },
  {
    title: "Content-Length behind a bare LF",
    bytes: post("X-A: b\nContent-Length: 1", "Transfer-Encoding: chunked") + "0\r\n\r\n",
  },
  {
    title: "Transfer-Encoding behind a bare LF",
    bytes: post("X-A: b\nTransfer-Encoding: chunked", "Content-Length: 1") + "0\r\n\r\n",
  },
  {
    title: "Transfer-Encoding behind a bare CR",
    bytes: post("X-A: b\rTransfer-Encoding: chunked", "Content-Length: 1") + "0\r\n\r\n",
  },
  { title: "Transfer-Encoding in quotes", bytes: post('Transfer-Encoding: "chunked"') + "0\r\n\r\n" },
  { title: "Transfer-Encoding with a parameter", bytes: post("Transfer-Encoding: chunked;a=b") + "0\r\n\r\n" },
  { title: "Transfer-Encoding with NUL behind it", bytes: post("Transfer-Encoding: chunked\0") + "0\r\n\r\n" },
  { title: "a tab before the colon", bytes: get("/a/x", "X-A\t: b") },
  { title: "a request line behind a space", bytes: " " + get() },
  { title: "a Latin-1 byte in the target", bytes: get("/a/caf\xe9") },
  { title: "a target without a slash", bytes: get("a/x") },
  { title: "bare CR in a header value", bytes: get("/a/x", "X-A: b\rX-C: d") },
  { title: "bare LF behind a header", bytes: "GET /a/x HTTP/1.1\r\nHost: h\nX-A: b\r\n\r\n" },
  { title: "bare LF throughout", bytes: "GET /a/x HTTP/1.1\nHost: h\n\n" },
  { title: "bare CR behind the request line", bytes: "GET /a/x HTTP/1.1\rHost: h\r\n\r\n" },
  { title: "obs-fold in an ordinary header", bytes: get("/a/x", "X-A: b\r\n c") },
  { title: "a fold before any header", bytes: "GET /a/x HTTP/1.1\r\n Host: h\r\n\r\n" },
  { title: "space before the colon", bytes: get("/a/x", "X-A : b") },
  { title: "space in a header name", bytes: get("/a/x", "X A: b") },
  { title: "no header name", bytes: get("/a/x", ": b") },
  { title: "no colon", bytes: get("/a/x", "X-A") },
  { title: "NUL in a header value", bytes: get("/a/x", "X-A: b\0c") },
  { title: "NUL in a header name", bytes: get("/a/x", "X\0A: b") },
  { title: "a control byte in a header value", bytes: get("/a/x", "X-A: b\x01c") },
  { title: "DEL in a header value", bytes: get("/a/x", "X-A: b\x7fc") },
  { title: "no Host", bytes: "GET /a/x HTTP/1.1\r\n\r\n" },
  { title: "two Hosts", bytes: get("/a/x", "Host: other.example") },
  { title: "two equal Hosts", bytes: get("/a/x", "Host: gw.example") },
  { title: "a space in Host", bytes: lines("GET /a/x HTTP/1.1", "Host: a b") },
  { title: "a slash in Host", bytes: lines("GET /a/x HTTP/1.1", "Host: a/b") },
  { title: "two hosts in Host", bytes: lines("GET /a/x HTTP/1.1", "Host: evil.com,a.example.com") },
  { title: "a Latin-1 byte in the query", bytes: get("/a/x?q=caf\xe9") },
  { title: "an @ in Host", bytes: lines("GET /a/x HTTP/1.1", "Host: user@h") },
  { title: "a Latin-1 byte in Host", bytes: lines("GET /a/x HTTP/1.1", "Host: caf\xe9") },
  { title: "a quote in Host", bytes: lines("GET /a/x HTTP/1.1", 'Host: a"b') },
  { title: "HTTP/0.9", bytes: "GET /a/x\r\n\r\n" },
  { title: "HTTP/0.9 written out", bytes: lines("GET /a/x HTTP/0.9", "Host: h") },
  { title: "HTTP/2.0 in an HTTP/1 line", bytes: lines("GET /a/x HTTP/2.0", "Host: h") },
  { title: "HTTP/1.2", bytes: lines("GET /a/x HTTP/1.2", "Host: h") },
  { title: "lower-case http/1.1", bytes: lines("GET /a/x http/1.1", "Host: h") },
  { title: "the HTTP/2 preface", bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
  { title: "a tab in the request line", bytes: lines("GET\t/a/x\tHTTP/1.1", "Host: h") },
  { title: "an unknown method", bytes: lines("FETCH /a/x HTTP/1.1", "Host: h") },
  { title: "a method in lower case", bytes: lines("get /a/x HTTP/1.1", "Host: h") },
  { title: "NUL in the target", bytes: lines("GET /a/\0 HTTP/1.1", "Host: h") },
  { title: "CONNECT", bytes: lines("CONNECT backend.example:80 HTTP/1.1", "Host: backend.example:80") },
  { title: "CONNECT with bytes behind it", bytes: lines("CONNECT h:80 HTTP/1.1", "Host: h:80") + get() },
  { title: "garbage", bytes: "\x00\x01\x02\x03 lorem ipsum\r\n\r\n" },
  {
    title: "a TLS ClientHello on the plain port",
    bytes: "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + "\x55".repeat(160),
  },
  {
    title: "a WebSocket request with a body",
    bytes: get("/a/x", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 4") + "GET ",
  },
  {
    title: "a WebSocket request with a chunked body",
    bytes: get("/a/x", "Connection: Upgrade", "Upgrade: websocket", "Transfer-Encoding: chunked"),
  },
  {
    title: "another expectation before 100-continue",
    bytes: post("Expect: x 100-continue", "Content-Length: 1"),
    status: 417,
    code: "expectation_failed",
  },
  {
    title: "an unknown expectation",
    bytes: post("Expect: 200-ok", "Content-Length: 1"),
    status: 417,
    code: "expectation_failed",
  },
  { title: "a target of more than 8 KiB", bytes: get("/a/" + "x".repeat(8192)), status: 414, code: "uri_too_long" },
  { title: "a target of more than 32 KiB", bytes: get("/a/" + "x".repeat(40_000)), status: 414, code: "uri_too_long" },
  {
    title: "a head of more than 32 KiB",
    bytes: get("/a/x", "X-A: " + "x".repeat(40_000)),
    status: 431,
    code: "headers_too_large",
  },
  {
    title: "more than 200 header lines",
    bytes: get("/a/x", ...Array.from({ length: 200 }, (_, i) => `X-${i}: b`)),
    status: 431,
    code: "headers_too_large",
  },
  {
    title: "a head of many small lines",
    bytes: get("/a/x", ...Array.from({ length: 8000 }, () => "A: b")),
    status: 431,
    code: "headers_too_large",
  },
];

describe("a request that could be read in two ways", () => {
  it.each(refused)(
    "a request that could be read in two ways is refused, reaches no upstream and closes its connection: $title",
    async ({ bytes, status = 400, code = "bad_request" }) => {
      const upstream = await backend();
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(bytes);
      const received = await connection.closed();
      expect(statusesIn(received)).toEqual([status]);
      expect(codeIn(received)).toBe(code);
      expect(received).toContain("Content-Type: application/problem+json");
      expect(received).toMatch(/\r\nConnection: close\r\n/i);
      expect(upstream.seen).toEqual([]);
      expect(upstream.connections.total).toBe(0);
      expect((await ask(port, { path: "/a/still" })).status).toBe(200);
    },
  );

  it("serves a request of 200 header lines", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/x", ...Array.from({ length: 199 }, (_, i) => `X-${i}: b`)));
    expect(statusesIn(await connection.until("ok"))).toEqual([200]);
    expect(
      upstream.seen[0]!.headers.filter((_, i) => i % 2 === 0 && /^X-\d+$/.test(upstream.seen[0]!.headers[i]!)),
    ).toHaveLength(199);
  });

  it.runIf(codec === "node")("reads several spaces in the request line as one, and forwards one", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(lines("GET  /a/x  HTTP/1.1", "Host: h"));
    await connection.until("ok");
    expect(upstream.seen[0]!.url).toBe("/x");
  });

  it("serves a target of 8 KiB", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    expect((await ask(port, { path: "/a/" + "x".repeat(8189) })).status).toBe(200);
  });
});

/** Bodies that Node's parser accepts and the gateway's own refuses. */
const readByNode: [title: string, body: string, got: string][] = [
  ["a size with a thousand leading zeros", "0".repeat(1000) + "1\r\na\r\n0\r\n\r\n", "a"],
  ["an extension of 15 KB, many times", `1;${"x".repeat(15_000)}\r\na\r\n`.repeat(5) + "0\r\n\r\n", "aaaaa"],
];

describe("a body with broken framing", () => {
  const chunked = (body: string) => post("Transfer-Encoding: chunked") + body;
  const broken: Case[] = [
    { title: "a chunk size with a minus", bytes: chunked("-1\r\na\r\n0\r\n\r\n") },
    { title: "a chunk size with 0x", bytes: chunked("0x1\r\na\r\n0\r\n\r\n") },
    { title: "a chunk size with a space before it", bytes: chunked(" 1\r\na\r\n0\r\n\r\n") },
    { title: "a chunk size with a space behind it", bytes: chunked("1 \r\na\r\n0\r\n\r\n") },
    { title: "a chunk size that overflows", bytes: chunked("fffffffffffffffff\r\na\r\n0\r\n\r\n") },
    { title: "no chunk size", bytes: chunked("\r\na\r\n0\r\n\r\n") },
    { title: "a chunk longer than its size", bytes: chunked("1\r\naaa\r\n0\r\n\r\n") },
    { title: "a chunk size ended by bare LF", bytes: chunked("1\na\r\n0\r\n\r\n") },
    { title: "a chunk ended by bare LF", bytes: chunked("1\r\na\n0\r\n\r\n") },
    { title: "a chunk extension ended by bare LF", bytes: chunked("1;x\na\r\n0\r\n\r\n") },
    { title: "a chunk extension with a bare CR", bytes: chunked("1;x\ry\r\na\r\n0\r\n\r\n") },
    { title: "a chunk extension of 20 KB", bytes: chunked(`1;${"x".repeat(20_000)}\r\na\r\n0\r\n\r\n`) },
    { title: "a chunk size with a plus", bytes: chunked("+1\r\na\r\n0\r\n\r\n") },
    { title: "a chunk size with an underscore", bytes: chunked("1_0\r\n0123456789abcdef\r\n0\r\n\r\n") },
    { title: "a chunk size with a tab behind it", bytes: chunked("1\t\r\na\r\n0\r\n\r\n") },
    { title: "an empty extension ended by bare LF", bytes: chunked("1;\na\r\n0\r\n\r\n") },
    { title: "lines ended by bare CR", bytes: chunked("1\ra\r0\r\r") },
    { title: "a last chunk ended by bare LF", bytes: chunked("0\r\n\n") },
    { title: "a trailer ended by bare LF", bytes: chunked("0\r\nX: y\n\r\n") },
    { title: "a folded trailer", bytes: chunked("0\r\nX: y\r\n z\r\n\r\n") },
    {
      title: "a Transfer-Encoding among the trailers",
      bytes: chunked("1\r\na\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    },
    { title: "a Content-Length among the trailers", bytes: chunked("1\r\na\r\n0\r\nContent-Length: 5\r\n\r\n") },
    {
      title: "trailers without end",
      bytes: chunked(`0\r\n${"X-A: b\r\n".repeat(10_000)}`),
      status: 431,
      code: "headers_too_large",
    },
    { title: "a NUL in a chunk extension", bytes: chunked("1;a\0\r\na\r\n0\r\n\r\n") },
    { title: "a trailer with a space before its colon", bytes: chunked("0\r\nX : y\r\n\r\n") },
  ];
  it.each(broken)(
    "a body with broken framing is refused and never reaches the upstream as a whole request: $title",
    async ({ bytes, status = 400, code = "bad_request" }) => {
      const upstream = await backend();
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(bytes);
      const received = await connection.closed();
      expect(statusesIn(received)).toEqual([status]);
      expect(codeIn(received)).toBe(code);
      expect(upstream.seen).toEqual([]);
      await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
    },
  );

  it.each<[title: string, body: string, got: string]>([
    ["a last chunk of several zeros", "1\r\na\r\n000\r\n\r\n", "a"],
    ["an extension", '1;name="a\\"b"\r\na\r\n0;last\r\n\r\n', "a"],
    ...(codec === "wire" ? [] : readByNode),
  ])("accepts a chunked body with %s, and chunks it again for the upstream", async (_title, body, got) => {
    let received = "";
    const upstream = await byteBackend((socket) => {
      socket.on("data", (chunk: Buffer) => {
        received += chunk.toString("latin1");
        if (received.endsWith("\r\n0\r\n\r\n")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      });
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(chunked(body));
    await connection.until("\r\nok");
    const sent = received.slice(received.indexOf("\r\n\r\n") + 4);
    expect(sent).toMatch(/^([1-9a-f][0-9a-f]*\r\na+\r\n)+0\r\n\r\n$/);
    expect(sent.replace(/[^a]/g, "")).toBe(got);
  });

  it("drops chunk extensions instead of forwarding them", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(chunked('3;a=b;c="d e"\r\nabc\r\n0;last\r\n\r\n'));
    expect(statusesIn(await connection.until("ok"))).toEqual([200]);
    expect(upstream.seen[0]!.body.toString()).toBe("abc");
  });

  it("closes the connection without a second reply for a broken chunk after the reply has begun", async () => {
    const upstream = await rawBackend((_request, response) => {
      response.writeHead(200);
      response.write("begun");
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(chunked("1\r\na\r\n"));
    await connection.until("begun");
    connection.send("zz\r\n");
    const received = await connection.closed();
    expect(statusesIn(received)).toEqual([200]);
    expect(received).not.toContain("bad_request");
    expect(received).not.toMatch(/0\r\n\r\n$/);
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
  });

  it(
    "sends no complete reply to a client that disconnects during its body, " +
      "and no complete request to the upstream",
    async () => {
      const upstream = await backend();
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(post("Content-Length: 10") + "half");
      await eventually(() => upstream.connections.total === 1, "a connection to the upstream");
      connection.socket.end();
      expect(statusesIn(await connection.closed())).not.toContain(200);
      expect(upstream.seen).toEqual([]);
      await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
    },
  );

  it("refuses a request that ends in the middle of its head", async () => {
    const { port } = await running(oneService((await backend()).port));
    const connection = await client(port);
    connection.send("GET /a/x HTTP/1.1\r\nHos");
    connection.socket.end();
    expect(codeIn(await connection.closed())).toBe("bad_request");
  });

  it("closes a connection without a reply when the client disconnects without sending anything", async () => {
    const { port } = await running(oneService((await backend()).port));
    const connection = await client(port);
    connection.socket.end();
    expect(await connection.closed()).toBe("");
  });
});

describe("request targets", () => {
  it("request targets are refused in asterisk-form", async () => {
    const { port } = await running(oneService((await backend()).port));
    const answer = await ask(port, { method: "OPTIONS", path: "*" });
    expect(answer.status).toBe(400);
    expect(codeIn(answer.body.toString())).toBe("bad_request");
  });

  it("request targets in absolute form override Host with their authority", async () => {
    const named = await backend();
    const other = await backend((_request, response) => void response.end("other"));
    const config = oneService(named.port, { hosts: ["named.example"] });
    const { port } = await running({
      services: [...config.services, { ...oneService(other.port).services[0]!, name: "other" }],
    });
    const connection = await client(port);
    connection.send("GET http://named.example/a/x HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    await connection.until("ok");
    expect(named.seen).toHaveLength(1);
    expect(named.seen[0]!.url).toBe("/x");
    const { headers } = named.seen[0]!;
    expect(headers[headers.indexOf("X-Forwarded-Host") + 1]).toBe("named.example");
    expect(headers.join("\n")).not.toContain("evil");
    expect(other.seen).toHaveLength(0);
  });

  it("serves HTTP/1.0 without Host, and closes the connection", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send("GET /a/x HTTP/1.0\r\n\r\n");
    expect(statusesIn(await connection.closed())).toEqual([200]);
    expect(upstream.seen[0]!.headers.slice(0, 2)).toEqual(["Host", `127.0.0.1:${upstream.port}`]);
  });
});

describe("a path that a guarded route could be taken for", () => {
  const guarded = {
    routes: [
      { path: "/admin", plugins: [{ name: "key_auth", config: { key: "hush" } }] },
      { path: "/{rest*}" },
      { path: "/", name: "root" },
    ],
  };

  it.each<[target: string, code: string]>([
    ["/a//admin", "key_missing"],
    ["//a/admin", "key_missing"],
    ["/a/admin/", "key_missing"],
    ["/a/admin//", "key_missing"],
    ["/a/%61dmin", "key_missing"],
    ["/a/adm%69n/", "key_missing"],
    ["/%61/admin", "key_missing"],
    ["/a/admin?x", "key_missing"],
    ["http://gw.example/a/admin", "key_missing"],
    ["HTTP://gw.example/a//admin", "key_missing"],
    ["/a/../a/admin", "path_ambiguous"],
    ["/a/./admin", "path_ambiguous"],
    ["/a/admin/.", "path_ambiguous"],
    ["/a/x/../admin", "path_ambiguous"],
    ["/a/x/%2e%2e/admin", "path_ambiguous"],
    ["/a/x/.%2E/admin", "path_ambiguous"],
    ["/a/x/..;/admin", "path_ambiguous"],
    ["/a/x/%2e%2e;y/admin", "path_ambiguous"],
    ["/a/.;/admin", "path_ambiguous"],
    ["/a/x%2f..%2fadmin", "path_ambiguous"],
    ["/a/admin%2f", "path_ambiguous"],
    ["/a\\admin", "path_ambiguous"],
    ["/a/%5cadmin", "path_ambiguous"],
    ["/a/admin%00", "path_ambiguous"],
    ["/a/admin%0a", "path_ambiguous"],
    ["/a/admin%0d%0aX-A:%20b", "path_ambiguous"],
    ["/a/admin%u0061", "path_ambiguous"],
    ["/a/admin%", "path_ambiguous"],
    ["/a/admin#x", "bad_request"],
  ])("runs the guards of the route for %s, or reaches no upstream", async (target, code) => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port, guarded));
    const connection = await client(port);
    connection.send(lines(`GET ${target} HTTP/1.1`, "Host: gw.example"));
    expect(codeIn(await connection.until(/"code":"\w+"/))).toBe(code);
    expect(upstream.connections.total).toBe(0);
  });
});

describe("pipelined requests", () => {
  it("pipelined requests are answered in order, even when a later reply is ready first", async () => {
    const upstream = await rawBackend((request, response) => {
      setTimeout(() => response.end(`<${request.url}>`), request.url === "/1" ? 40 : 0);
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/1") + get("/a/2") + get("/b/none") + get("/a/3"));
    const received = await connection.until("</3>");
    expect(statusesIn(received)).toEqual([200, 200, 404, 200]);
    expect(received.replace(/[^]*?(<\/\d>|route_not_found)/g, "$1,")).toMatch(/^<\/1>,<\/2>,route_not_found,<\/3>/);
  });

  it("pipelined requests start only when the previous one has ended", async () => {
    let under = 0;
    let most = 0;
    const upstream = await rawBackend((_request, response) => {
      most = Math.max(most, ++under);
      setTimeout(() => {
        under--;
        response.end("ok");
      }, 3);
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(Array.from({ length: 100 }, (_, i) => get(`/a/${i}`)).join("") + get("/none"));
    expect(statusesIn(await connection.until("route_not_found"))).toHaveLength(101);
    expect(most).toBe(1);
  });

  it(
    "pipelined requests end the connection after the reply to a refused one, " +
      "and the requests after it are not served",
    async () => {
      const upstream = await backend();
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(get("/a/1") + get("/a/2", "Host: two.example") + get("/a/3"));
      expect(statusesIn(await connection.closed())).toEqual([200, 400]);
      expect(upstream.seen.map(({ url }) => url)).toEqual(["/1"]);
    },
  );

  it("pipelined requests are answered before a later one that cannot be parsed is refused", async () => {
    const upstream = await rawBackend((_request, response) => void setTimeout(() => response.end("ok"), 30));
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/1") + get("/a/2") + "garbage\r\n\r\n");
    const received = await connection.closed();
    expect(statusesIn(received)).toEqual([200, 200, 400]);
  });

  it("pipelined requests are answered before a later one with a broken body is refused in its turn", async () => {
    const upstream = await rawBackend((request, response) => {
      request.resume();
      setTimeout(() => response.end("ok"), 30);
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/1") + post("Transfer-Encoding: chunked") + "zz\r\n\r\n");
    expect(statusesIn(await connection.closed())).toEqual([200, 400]);
  });

  it("pipelined requests are answered before a later CONNECT or upgrade", async () => {
    for (const last of [
      "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
      get("/none", "Connection: Upgrade", "Upgrade: websocket"),
    ]) {
      const upstream = await rawBackend((_request, response) => void setTimeout(() => response.end("ok"), 30));
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      connection.send(get("/a/1") + last);
      expect(statusesIn(await connection.closed())).toEqual([200, last.startsWith("CONNECT") ? 400 : 404]);
    }
  });

  it("pipelined requests are served in order when one of them has Upgrade: h2c", async () => {
    const upstream = await rawBackend(
      (request, response) => void setTimeout(() => response.end(`<${request.url}>`), 10),
    );
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(
      get("/a/1") +
        get("/a/2", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk") +
        get("/a/3"),
    );
    const received = await connection.until("</3>");
    expect([...received.matchAll(/<\/\d>/g)].join("")).toBe("</1></2></3>");
  });

  it("pipelined requests are dropped while they wait when the client disconnects", async () => {
    const seen: string[] = [];
    const upstream = await rawBackend((request) => void seen.push(request.url!));
    const { port, gateway } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/1") + get("/a/2") + get("/a/3"));
    await eventually(() => seen.length === 1, "a request at the upstream");
    connection.socket.destroy();
    await eventually(() => upstream.connections.open === 0, "the upstream's connection closing");
    expect(seen).toEqual(["/1"]);
    expect(await gateway.close(5_000)).toBe("drained");
  });

  it("pipelined requests are read bit by bit and all answered, a thousand at once", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/x", "X-Pad: " + "p".repeat(100)).repeat(1000) + get("/none"));
    expect(statusesIn(await connection.until("route_not_found"))).toHaveLength(1001);
  });
});

describe("an Upgrade that the gateway does not support", () => {
  const h2c = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"];

  it(
    "an Upgrade that the gateway does not support is ignored: the request is served as an ordinary one, " +
      "many times on one connection",
    async () => {
      const upstream = await backend();
      const { port } = await running(oneService(upstream.port));
      const connection = await client(port);
      for (let i = 1; i <= 30; i++) {
        connection.send(get(`/a/${i}`, ...h2c));
        await eventually(
          () => statusesIn(connection.text()).length === i && connection.text().endsWith("\r\nok"),
          `answer ${i}`,
        );
      }
      expect(upstream.seen).toHaveLength(30);
      expect(upstream.seen[0]!.headers.join("\n")).not.toMatch(/upgrade|http2-settings/i);
    },
  );

  it("an Upgrade that the gateway does not support leaves the body with its request", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    const head = lines("POST /a/1 HTTP/1.1", "Host: h", ...h2c, "Content-Length: 5");
    const chunked = lines("POST /a/2 HTTP/1.1", "Host: h", ...h2c, "Transfer-Encoding: chunked");
    connection.send(head + "hel");
    await eventually(() => upstream.connections.total === 1, "a connection to the upstream");
    const rest = [chunked + "3\r\nabc\r\n0\r\n\r\n", get("/a/3")];
    connection.send("lo" + rest.join(""));
    await connection.until("\r\nok");
    if (!/\r\nConnection: close\r\n/i.test(connection.text())) {
      await eventually(() => upstream.seen.length === 3 && statusesIn(connection.text()).length === 3, "three answers");
    } else {
      // Where Node loses the bytes behind such a body, the response closes the connection, so the client sends the next
      // request again.
      expect(statusesIn(await connection.closed())).toEqual([200]);
      for (const request of rest) {
        const again = await client(port);
        again.send(request);
        await again.until("\r\nok");
      }
    }
    expect(upstream.seen.map(({ url, body }) => `${url} ${body}`)).toEqual(["/1 hello", "/2 abc", "/3 "]);
  });

  it("an Upgrade that the gateway does not support leaves the other Connection options in force", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/1", "Connection: close, X-Hop, Upgrade", "Upgrade: h2c", "X-Hop: secret"));
    await connection.closed();
    expect(upstream.seen[0]!.headers.join("\n")).not.toContain("secret");
  });

  it("an Upgrade that the gateway does not support leaves a target with $ signs unchanged", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get("/a/x?q=$'$&$`$$", ...h2c));
    await connection.until("ok");
    expect(upstream.seen[0]!.url).toBe("/x?q=$'$&$`$$");
  });

  it(
    "an Upgrade that the gateway does not support is ignored for websocket with POST or HTTP/1.0: " +
      "the request is served as an ordinary one",
    async () => {
      const upstream = await backend();
      const { port } = await running(oneService(upstream.port));
      for (const line of ["POST /a/x HTTP/1.1", "GET /a/x HTTP/1.0"]) {
        const connection = await client(port);
        connection.send(
          lines(line, "Host: h", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 2") + "hi",
        );
        await connection.until("ok");
      }
      expect(upstream.seen.map(({ method, body }) => `${method} ${body}`)).toEqual(["POST hi", "GET hi"]);
      expect(upstream.seen.flatMap(({ headers }) => headers).join("\n")).not.toMatch(/upgrade/i);
    },
  );
});

describe("an unwanted request body", () => {
  it("an unwanted request body is read to its end when it is small, and the connection stays open", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(lines("POST /none HTTP/1.1", "Host: h", "Content-Length: 300000"));
    await connection.until("route_not_found");
    connection.send("x".repeat(300_000) + get("/a/x"));
    expect(statusesIn(await connection.until("ok"))).toEqual([404, 200]);
  });

  it(
    "an unwanted request body is read slowly and cut off after 30 s, " + "after the client has received its reply",
    async () => {
      const clock = manualClock();
      const { port } = await running(oneService((await backend()).port), { clock });
      const connection = await client(port);
      connection.send(lines("POST /none HTTP/1.1", "Host: h", "Content-Length: 1000000000"));
      await connection.until("route_not_found");
      let sent = 0;
      const piece = Buffer.alloc(64 * 1024);
      const push = () => {
        while (!connection.socket.destroyed && sent < 500_000_000) {
          sent += piece.length;
          if (!connection.socket.write(piece)) return;
        }
      };
      connection.socket.on("drain", push);
      push();
      for (let seconds = 0; seconds < 31; seconds++) {
        clock.advance(1_000);
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect(statusesIn(await connection.closed())).toEqual([404]);
      expect(connection.socket.bytesWritten).toBeLessThan(300_000_000);
    },
  );

  it("an unwanted request body does not keep a refused client from reading its reply", async () => {
    const { port } = await running(oneService((await backend()).port));
    for (let i = 0; i < 20; i++) {
      const connection = await client(port);
      connection.send(
        lines("POST /a/x HTTP/1.1", "Host: h", "Host: h", "Content-Length: 500000") + "x".repeat(500_000),
      );
      expect(codeIn(await connection.closed())).toBe("bad_request");
    }
  });

  it("an unwanted request body does not keep a client that sends long garbage from reading its reply", async () => {
    const { port } = await running(oneService((await backend()).port));
    for (let i = 0; i < 20; i++) {
      const connection = await client(port);
      connection.send("!".repeat(500_000));
      expect(codeIn(await connection.closed())).toBe("bad_request");
    }
  });
});

it("leaves no connection or request behind when clients reset at any moment", async () => {
  const upstream = await rawBackend((request, response) => {
    request.resume();
    setTimeout(() => response.end("x".repeat(200_000)), 2);
  });
  const { port, gateway } = await running(oneService(upstream.port));
  const whole = lines("POST /a/x HTTP/1.1", "Host: h", "Content-Length: 50") + "y".repeat(50);
  for (let cut = 1; cut <= whole.length; cut += 7) {
    const connection = await client(port);
    connection.send(whole.slice(0, cut));
    await new Promise((resolve) => setImmediate(resolve));
    if (cut % 2 === 0) connection.socket.resetAndDestroy();
    else connection.socket.destroy();
  }
  expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  expect(await gateway.close(5_000)).toBe("drained");
  await eventually(() => upstream.connections.open === 0, "the upstream's connections closing");
});

describe("an HTTP/2 client", () => {
  async function session(upstreamPort: number) {
    const { gateway } = await running(oneService(upstreamPort));
    const files = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };
    const { port } = await gateway.listen({ port: 0, tls: files });
    const over = await h2TlsSession(port);
    return { gateway, over };
  }

  it("releases streams and upstream connections when it disconnects with replies in progress", async () => {
    const upstream = await rawBackend((request, response) => {
      if (request.url === "/begun") response.write("begun");
    });
    const { gateway, over } = await session(upstream.port);
    for (const path of ["/a/begun", "/a/waiting"])
      over
        .request({ ":path": path })
        .on("error", () => {})
        .resume();
    await eventually(() => upstream.connections.open === 2, "two connections to the upstream");
    over.destroy();
    await eventually(() => gateway.inFlight === 0, "the streams ending");
    await eventually(() => upstream.connections.open === 0, "the upstream's connections closing");
  });

  it.each([10, 16_000, 60_000, 100_000])(
    "leaves no stream behind when its body of %d bytes is unwanted",
    async (size) => {
      const { gateway, over } = await session(await closedPort());
      for (let i = 0; i < 5; i++) {
        const stream = over.request({ ":method": "POST", ":path": "/a/x" });
        stream.on("error", () => {}).resume();
        const answered = once(stream, "response");
        stream.end(Buffer.alloc(size));
        expect((await answered)[0][":status"]).toBe(502);
      }
      await eventually(() => gateway.inFlight === 0, "the streams ending");
      expect(over.destroyed).toBe(false);
    },
  );
});

it("serves others beside two hundred connections that send nothing", async () => {
  const { port } = await running(oneService((await backend()).port));
  const idle = await Promise.all(
    Array.from(
      { length: 200 },
      () =>
        new Promise<net.Socket>((resolve) => {
          const socket = net.connect({ port, host: "127.0.0.1" }, () => resolve(socket));
          socket.on("error", () => {});
        }),
    ),
  );
  expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  for (const socket of idle) socket.destroy();
});
