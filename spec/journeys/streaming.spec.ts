import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { definePlugin, schema } from "../../lib/index.ts";
import { SERVER } from "../support/certs.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2TlsSession } from "../support/h2_client.ts";
import { runningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, gate, get, headBackend, rawBackend, statusesIn } from "./harness.ts";

const one = { pool: { max_connections: 1 } };
const post = (...lines: string[]) => ["POST /a/x HTTP/1.1", "Host: h", ...lines, "", ""].join("\r\n");
const MB = 1024 * 1024;
const FILES = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };

describe("streaming of bodies", () => {
  it("sends an upload to the upstream while the client is still sending it", async () => {
    const pieces: string[] = [];
    const upstream = await rawBackend((request, response) => {
      request.on("data", (chunk: Buffer) => pieces.push(chunk.toString()));
      request.on("end", () => response.end("ok"));
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(post("Transfer-Encoding: chunked"));
    await eventually(() => upstream.connections.total === 1, "the head on its own");
    for (const piece of ["one", "two", "three"]) {
      connection.send(`${piece.length.toString(16)}\r\n${piece}\r\n`);
      await eventually(() => pieces.includes(piece), piece);
    }
    connection.send("0\r\n\r\n");
    await connection.until("\r\nok");
  });

  it("sends a response to the client while the upstream is still sending it", async () => {
    const step = [gate(), gate()];
    const upstream = await rawBackend(async (_request, response) => {
      response.write("one");
      await step[0]!.opened;
      response.write("two");
      await step[1]!.opened;
      response.end();
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get());
    await connection.until("one");
    step[0]!.open();
    await connection.until("two");
    step[1]!.open();
    await connection.until("0\r\n\r\n");
  });

  it("sends the head of a response before its body arrives", async () => {
    const upstream = await rawBackend(
      (_request, response) => void response.writeHead(200, { "X-Early": "1" }).flushHeaders(),
    );
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get());
    await connection.until("X-Early: 1");
  });

  it("passes bodies byte for byte, both ways at once", async () => {
    const upstream = await rawBackend((request, response) => void request.pipe(response));
    const { port } = await running(oneService(upstream.port));
    const body = Buffer.alloc(5 * MB, "0123456789abcdef-");
    for (const headers of [{}, { "Transfer-Encoding": "chunked" }]) {
      const answer = await ask(port, { method: "POST", path: "/a/x", body, headers });
      expect(answer.body.equals(body)).toBe(true);
    }
  });
});

describe("server-sent events", () => {
  /** Sends the next event only when the test has received the one before. */
  async function events() {
    let send = (_event: string) => {};
    const upstream = await rawBackend((_request, response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.flushHeaders();
      send = (event) => void response.write(event);
    });
    const { port, gateway } = await running(oneService(upstream.port));
    return { upstream, port, gateway, send: (event: string) => send(event) };
  }

  it("server-sent events arrive one by one over HTTP/1.1, each before the next is sent", async () => {
    const { port, send, upstream } = await events();
    const connection = await client(port);
    connection.send(get("/a/x", "Accept: text/event-stream"));
    await connection.until("text/event-stream");
    for (let i = 0; i < 50; i++) {
      const event = `id: ${i}\ndata: event ${i}\n\n`;
      send(event);
      // The event arrives as one chunk: neither joined with others nor split.
      await connection.until(`\r\n${event.length.toString(16)}\r\n${event}\r\n`);
    }
    connection.socket.destroy();
    await eventually(() => upstream.connections.open === 0, "the upstream hearing of the end");
  });

  it("server-sent events arrive one by one over HTTP/2, each before the next is sent", async () => {
    const { gateway, send, upstream } = await events();
    const { port } = await gateway.listen({ port: 0, tls: FILES });
    const session = await h2TlsSession(port);
    const stream = session.request({ ":path": "/a/x", accept: "text/event-stream" });
    const pieces: string[] = [];
    stream.setEncoding("utf8").on("data", (piece: string) => pieces.push(piece));
    stream.on("error", () => {});
    await once(stream, "response");
    for (let i = 0; i < 50; i++) {
      const event = `id: ${i}\ndata: event ${i}\n\n`;
      send(event);
      await eventually(() => pieces.length === i + 1, `event ${i}`);
      expect(pieces[i]).toBe(event);
    }
    stream.close();
    await eventually(() => upstream.connections.open === 0, "the upstream hearing of the end");
  });
});

describe("back-pressure", () => {
  it("keeps memory under 32 MiB when a client does not read a response of one gibibyte", async () => {
    const zeros = Buffer.alloc(64 * 1024);
    let written = 0;
    const upstream = await headBackend(({ socket, text }) => {
      const size = Number(/ \/(\d+) /.exec(text)![1]) * MB;
      let left = size;
      const push = () => {
        while (left > 0) {
          const piece = Math.min(left, zeros.length);
          left -= piece;
          written += piece;
          if (!socket.write(piece === zeros.length ? zeros : zeros.subarray(0, piece))) return;
        }
      };
      socket.removeAllListeners("drain").on("drain", push);
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      push();
    });
    const { port, child } = await runningProgram(oneService(upstream.port));
    const download = async (megabytes: number) => {
      const connection = await client(port);
      connection.socket.removeAllListeners("data");
      let received = 0;
      connection.socket.on("data", (piece: Buffer) => (received += piece.length));
      connection.send(get(`/a/${megabytes}`));
      /** Many megabytes may take long on a busy machine: the test's own time limit is the bound. */
      const until = async (bytes: number) => {
        while (received <= bytes) await once(connection.socket, "data");
      };
      return { socket: connection.socket, received: () => received, until };
    };
    // By then the process holds the code and buffers that any such response needs.
    const first = await download(64);
    await first.until(64 * MB);
    const before = residentBytes(child.pid!);
    const stalled = await download(1024);
    stalled.socket.pause();
    let most = 0;
    await settled(() => {
      most = Math.max(most, residentBytes(child.pid!));
      return written;
    });
    expect(written - 64 * MB).toBeLessThan(64 * MB);
    expect(most - before).toBeLessThan(32 * MB);
    const seen = stalled.received();
    stalled.socket.resume();
    await stalled.until(seen + 32 * MB);
  });

  it("stops the upstream when the client does not read, and limits what lies between", async () => {
    let written = 0;
    let full = false;
    const piece = Buffer.alloc(64 * 1024);
    const upstream = await byteBackend((socket) => {
      const push = () => {
        while (written < 200 * MB) {
          written += piece.length;
          if (!socket.write(piece)) {
            full = true;
            return;
          }
        }
      };
      socket.once("data", () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${200 * MB}\r\n\r\n`);
        socket.on("drain", push);
        push();
      });
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.socket.pause();
    connection.send(get());
    await eventually(() => full, "a full write buffer");
    await settled(() => written);
    expect(written).toBeLessThan(40 * MB);
    const before = written;
    connection.socket.removeAllListeners("data");
    connection.socket.on("data", () => {});
    connection.socket.resume();
    await eventually(() => written > before + 10 * MB, "going on once it reads");
  });

  it("stops the client's upload when the upstream does not read", async () => {
    const go = gate();
    const upstream = await byteBackend((socket) => {
      socket.pause();
      void go.opened.then(() => socket.resume());
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(post(`Content-Length: ${200 * MB}`));
    await eventually(() => upstream.connections === 1, "a connection to the upstream");
    let written = 0;
    const piece = Buffer.alloc(64 * 1024);
    const push = () => {
      while (written < 200 * MB) {
        written += piece.length;
        if (!connection.socket.write(piece)) return;
      }
    };
    connection.socket.on("drain", push);
    push();
    await settled(() => written);
    expect(written).toBeLessThan(40 * MB);
    const before = written;
    go.open();
    await eventually(() => written > before + 10 * MB, "going on once it reads");
  });

  /** The resident memory of a process as the system reports it. */
  function residentBytes(pid: number): number {
    const file = `/proc/${pid}/status`;
    const kilobytes = existsSync(file)
      ? /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(file, "utf8"))![1]
      : execFileSync("ps", ["-o", "rss=", "-p", String(pid)], { encoding: "utf8" });
    return Number(kilobytes) * 1024;
  }

  /** Resolves when the value has been the same in twenty consecutive checks. */
  async function settled(value: () => number): Promise<void> {
    let last = -1;
    let same = 0;
    await eventually(() => {
      same = value() === last ? same + 1 : 0;
      last = value();
      return same >= 20;
    }, "coming to rest");
  }
});

describe("framing of requests", () => {
  const cases: [title: string, sent: string, framed: RegExp, not: RegExp][] = [
    ["GET without a body", get(), /^GET \/x HTTP\/1\.1\r\n/, /content-length|transfer-encoding/i],
    [
      "GET with a body",
      "GET /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi",
      /\r\nContent-Length: 2\r\n[^]*\r\n\r\nhi$/,
      /transfer/i,
    ],
    ["POST with Content-Length: 0", post("Content-Length: 0"), /\r\nContent-Length: 0\r\n/, /transfer-encoding/i],
    ["POST with neither", post(), /\r\nContent-Length: 0\r\n/, /transfer-encoding/i],
    [
      "PROPFIND with neither",
      "PROPFIND /a/x HTTP/1.1\r\nHost: h\r\n\r\n",
      /\r\nContent-Length: 0\r\n/,
      /transfer-encoding/i,
    ],
    ["DELETE with neither", "DELETE /a/x HTTP/1.1\r\nHost: h\r\n\r\n", /^DELETE/, /content-length|transfer-encoding/i],
    [
      "a chunked body",
      post("Transfer-Encoding: chunked") + "1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
      /\r\nTransfer-Encoding: chunked\r\n[^]*0\r\n\r\n$/,
      /content-length/i,
    ],
    [
      "an empty chunked body",
      post("Transfer-Encoding: Chunked") + "0\r\n\r\n",
      /\r\nTransfer-Encoding: chunked\r\n[^]*\r\n0\r\n\r\n$/,
      /content-length/i,
    ],
    [
      "GET with a chunked body",
      "GET /a/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      /\r\nTransfer-Encoding: chunked\r\n/,
      /content-length/i,
    ],
    [
      "POST from HTTP/1.0",
      "POST /a/x HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi",
      /HTTP\/1\.1\r\n[^]*\r\nContent-Length: 2\r\n[^]*hi$/,
      /transfer-encoding/i,
    ],
  ];
  it.each(cases)("forwards %s with the right framing", async (_title, sent, framed, not) => {
    let received = "";
    const upstream = await byteBackend((socket) =>
      socket.on("data", (chunk: Buffer) => {
        received += chunk.toString("latin1");
        if (framed.test(received) && received.includes("\r\n\r\n"))
          socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      }),
    );
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(sent);
    await connection.until("\r\nok");
    expect(received).toMatch(framed);
    expect(received).not.toMatch(not);
  });
});

describe("framing of responses", () => {
  async function received(response: string, request = get(), end: "end" | "open" = "open"): Promise<string> {
    const upstream = await headBackend(({ socket }) => {
      socket.write(response);
      if (end === "end") socket.end();
    });
    const { port } = await running(oneService(upstream.port, one));
    const connection = await client(port);
    connection.send(request + "GET /none HTTP/1.1\r\nHost: h\r\n\r\n");
    return request.includes("HTTP/1.0") ? connection.closed() : connection.until("route_not_found");
  }

  it("keeps a Content-Length", async () => {
    const all = await received("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    expect(all).toMatch(/\r\ncontent-length: 2\r\n[^]*\r\n\r\nokHTTP/);
    expect(all.split("HTTP/1.1 404")[0]).not.toMatch(/transfer-encoding/i);
  });

  it("chunks a chunked response again", async () => {
    const all = await received(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;ext=1\r\no\r\n" +
        `30000\r\n${"k".repeat(0x30000)}\r\n0\r\n\r\n`,
    );
    expect(all).toMatch(/\r\nTransfer-Encoding: chunked\r\n/i);
    expect(all).not.toContain("ext=1");
    expect(all).toMatch(/0\r\n\r\nHTTP\/1\.1 404/);
  });

  it("states the length of a chunked response that arrives whole", async () => {
    const all = await received(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;ext=1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    );
    expect(all).toMatch(/\r\nContent-Length: 2\r\n[^]*\r\n\r\nokHTTP\/1\.1 404/);
    expect(all).not.toMatch(/transfer-encoding/i);
  });

  it("chunks a body that lasts until the upstream closes, and keeps the client's connection open", async () => {
    const all = await received("HTTP/1.1 200 OK\r\n\r\nuntil the end", get(), "end");
    expect(all).toMatch(/\r\nTransfer-Encoding: chunked\r\n[^]*until the end\r\n0\r\n\r\nHTTP\/1\.1 404/i);
  });

  it("sends an HTTP/1.0 client no chunks: the body ends with the connection", async () => {
    const all = await received(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
      "GET /a/x HTTP/1.0\r\n\r\n",
    );
    expect(all).toMatch(/\r\nConnection: close\r\n/i);
    expect(all).toMatch(/\r\n\r\nok$/);
    expect(all).not.toMatch(/transfer-encoding/i);
  });

  it("forwards the response of an HTTP/1.0 upstream as HTTP/1.1", async () => {
    expect(await received("HTTP/1.0 200 OK\r\n\r\nold", get(), "end")).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*old/);
  });

  it.each([
    ["HEAD with Content-Length", "HEAD", "200 OK", "Content-Length: 9000", /Content-Length: 9000\r\n/],
    ["HEAD with Transfer-Encoding", "HEAD", "200 OK", "Transfer-Encoding: chunked", /200 OK/],
    ["HEAD with Trailer", "HEAD", "200 OK", "Trailer: X-Sum\r\nTransfer-Encoding: chunked", /200 OK/],
    ["HEAD with nothing", "HEAD", "200 OK", "X-A: b", /X-A: b/],
    ["304 with Content-Length", "GET", "304 Not Modified", "Content-Length: 9000", /Content-Length: 9000\r\n/],
    ["304 with Trailer", "GET", "304 Not Modified", "Trailer: X-Sum", /304/],
    [
      "204 with Content-Length, which is removed,",
      "GET",
      "204 No Content",
      "Content-Length: 5",
      /204 No Content\r\n(?!Content-Length)/,
    ],
    ["204 with Trailer", "GET", "204 No Content", "Trailer: X-Sum", /204/],
    ["an empty 200 with Trailer", "GET", "200 OK", "Content-Length: 0\r\nTrailer: X-Sum", /Content-Length: 0/],
    ["an empty 200", "GET", "200 OK", "Content-Length: 0", /Content-Length: 0/],
  ])("sends no body for %s, and keeps the connection open", async (_title, method, status, line, expected) => {
    const all = await received(`HTTP/1.1 ${status}\r\n${line}\r\n\r\n`, get().replace("GET", method));
    const first = all.slice(0, all.indexOf("HTTP/1.1 404"));
    expect(first).toMatch(expected);
    expect(first).toMatch(/\r\n\r\n$/);
    if (status.startsWith("204")) expect(first).not.toMatch(/content-length/i);
    expect(statusesIn(all)).toEqual([Number(status.slice(0, 3)), 404]);
  });

  it("drops Trailer beside a Content-Length, and keeps the connection open", async () => {
    const all = await received("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTrailer: X-Sum\r\n\r\nok");
    expect(all).toMatch(/\r\n\r\nokHTTP/);
    expect(all).not.toContain("X-Sum");
  });
});

describe("trailers", () => {
  it("trailers pass to the upstream and to the client", async () => {
    const upstream = await backend((_request, response) => {
      response.writeHead(200, { Trailer: "X-Sum, X-Two" });
      response.write("body");
      response.addTrailers({ "X-Sum": "abc", "X-Two": "caf\xe9" });
      response.end();
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(
      post("Transfer-Encoding: chunked", "Trailer: X-Check") + "2\r\nhi\r\n0\r\nX-Check: 42\r\nX-Check: 43\r\n\r\n",
    );
    const received = await connection.until("caf\xe9\r\n\r\n");
    expect(received).toMatch(/\r\nTrailer: X-Sum, X-Two\r\n/);
    expect(received).toMatch(/0\r\nX-Sum: abc\r\nX-Two: caf\xe9\r\n\r\n$/);
    expect(upstream.seen[0]!.trailers).toEqual(["X-Check", "42", "X-Check", "43"]);
    expect(upstream.seen[0]!.headers).toContain("X-Check");
  });

  it("trailers are dropped both ways when they would change a header that was already checked", async () => {
    const upstream = await headBackend(({ socket }) => {
      socket.write(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nVia: " +
          "x\r\nSet-Cookie: a=b\r\nX-Sum: 1\r\n\r\n",
      );
    });
    const { port } = await running(oneService(upstream.port));
    const answer = await ask(port, { path: "/a/x" });
    expect(answer.trailers).toEqual(["X-Sum", "1"]);

    const other = await backend();
    const { port: second } = await running(oneService(other.port));
    const connection = await client(second);
    const bad = "Host: evil\r\nX-Forwarded-For: 1.2.3.4\r\nAuthorization: Basic x\r\nConnection: x\r\nX-Sum: 1";
    connection.send(post("Transfer-Encoding: chunked") + `2\r\nhi\r\n0\r\n${bad}\r\n\r\n`);
    await connection.until("\r\nok");
    expect(other.seen[0]!.trailers).toEqual(["X-Sum", "1"]);
  });

  it("trailers are dropped for an HTTP/1.0 client", async () => {
    const upstream = await headBackend(({ socket }) => {
      socket.write(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
      );
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send("GET /a/x HTTP/1.0\r\n\r\n");
    expect(await connection.closed()).not.toContain("X-Sum");
  });
});

describe("Expect: 100-continue", () => {
  it("forwards the 100 of the upstream, and then the body", async () => {
    const upstream = await byteBackend((socket) => {
      let received = "";
      socket.on("data", (chunk: Buffer) => {
        received += chunk.toString();
        if (received.endsWith("\r\n\r\n")) void asked.opened.then(() => socket.write("HTTP/1.1 100 Continue\r\n\r\n"));
        if (received.endsWith("hello")) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      });
    });
    const asked = gate();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(post("Expect: 100-continue", "Content-Length: 5"));
    await eventually(() => upstream.connections === 1, "a connection to the upstream");
    expect(connection.text()).toBe("");
    asked.open();
    await connection.until("HTTP/1.1 100 Continue\r\n\r\n");
    connection.send("hello");
    expect(statusesIn(await connection.until("\r\nok"))).toEqual([100, 200]);
    connection.send(get("/none"));
    await connection.until("route_not_found");
  });

  it.each([
    ["by the gateway", "/none", 404],
    ["by a plugin", "/a/x", 401],
  ])(
    "refuses a request %s without a 100 and closes the connection, so a body sent anyway is not read as a request",
    async (_by, path, status) => {
      const upstream = await backend();
      const { port } = await running(
        oneService(upstream.port, { plugins: [{ name: "key_auth", config: { key: "k" } }] }),
      );
      const connection = await client(port);
      connection.send(`POST ${path} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n`);
      await connection.until("problem+json");
      connection.send(get("/a/smuggled?apiKey=k"));
      expect(statusesIn(await connection.closed())).toEqual([status]);
      expect(upstream.seen).toEqual([]);
    },
  );

  it("forwards the refusal of an upstream without a 100, and closes the connection", async () => {
    const upstream = await headBackend(
      ({ socket }) => void socket.write("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"),
    );
    const { port } = await running(oneService(upstream.port, one));
    for (let i = 0; i < 2; i++) {
      const connection = await client(port);
      connection.send(post("Expect: 100-continue", "Content-Length: 5"));
      expect(statusesIn(await connection.closed())).toEqual([413]);
    }
  });

  it("serves a client that does not wait for the 100", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(post("Expect: 100-Continue", "Content-Length: 5") + "hello");
    expect(statusesIn(await connection.until("\r\nok"))).toEqual([100, 200]);
    expect(upstream.seen[0]!.body.toString()).toBe("hello");
  });

  it("sends no 100 to an HTTP/1.0 client", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    expect(statusesIn(await connection.closed())).toEqual([200]);
  });

  it("answers 417 to another expectation, and sends the upstream nothing", async () => {
    const upstream = await backend();
    const { port } = await running(oneService(upstream.port));
    const answer = await ask(port, { path: "/a/x", headers: { Expect: "tea" } });
    expect(answer.status).toBe(417);
    expect(codeIn(answer.body.toString())).toBe("expectation_failed");
    expect(upstream.seen).toEqual([]);
  });

  it("drops a 100 that the client did not ask for", async () => {
    const upstream = await headBackend(
      ({ socket }) => void socket.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    );
    const { port } = await running(oneService(upstream.port));
    const answer = await ask(port, { path: "/a/x" });
    expect(answer.status).toBe(200);
    expect(answer.informed).toEqual([]);
  });
});

describe("informational responses", () => {
  const hinting = () =>
    headBackend(({ socket }) => {
      socket.write(
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nLink: </b.css>\r\nConnection: x-hop\r\nX-Hop: secret\r\n\r\n",
      );
      socket.write("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });

  it("informational responses 103 and 102 pass with their end-to-end headers", async () => {
    const upstream = await hinting();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(get());
    const received = await connection.until("\r\nok");
    expect(received).toMatch(
      new RegExp(
        String.raw`^HTTP\/1\.1 103 Early Hints\r\nLink: <\/a\.css>\r\nLink: <\/b\.css>\r\n\r\n` +
          String.raw`HTTP\/1\.1 102 Processing\r\n\r\nHTTP\/1\.1 200`,
      ),
    );
    expect(received).not.toContain("secret");
  });

  it("informational responses are not sent to an HTTP/1.0 client", async () => {
    const upstream = await hinting();
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send("GET /a/x HTTP/1.0\r\n\r\n");
    expect(statusesIn(await connection.closed())).toEqual([200]);
  });

  it(
    "informational responses end in 504 when they never stop, " + "and do not pile up for a client that does not read",
    async () => {
      const upstream = await byteBackend((socket) => {
        const hint = `HTTP/1.1 103 Early Hints\r\nLink: ${"x".repeat(8000)}\r\n\r\n`.repeat(8);
        const push = () => {
          while (!socket.destroyed && socket.write(hint));
        };
        socket.on("drain", push);
        socket.once("data", push);
      });
      const { port } = await running(oneService(upstream.port, { ...one, timeouts: { response_ms: 300 } }));
      const connection = await client(port);
      connection.socket.pause();
      const before = process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed;
      connection.send(get());
      await eventually(() => upstream.connections === 1, "a connection to the upstream");
      await eventually(() => upstream.sockets.size === 0, "the response timeout");
      expect(process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed - before).toBeLessThan(100 * MB);
      connection.socket.resume();
      expect(await connection.until("upstream_timeout")).toContain("HTTP/1.1 504");
    },
  );
});

describe("a response that arrives before the request is complete", () => {
  it("a response that arrives before the request is complete is sent at once while the upload continues", async () => {
    let received = 0;
    const ended = gate();
    const upstream = await rawBackend((request, response) => {
      response.write("early");
      request.on("data", (chunk: Buffer) => (received += chunk.length));
      request.on("end", () => {
        ended.open();
        response.end("late");
      });
    });
    const { port } = await running(oneService(upstream.port));
    const connection = await client(port);
    connection.send(post("Content-Length: 100000"));
    await connection.until("early");
    connection.send("x".repeat(100_000));
    await ended.opened;
    expect(received).toBe(100_000);
    await connection.until("late");
  });

  it(
    "a response that arrives before the request is complete reaches the client whole when the upstream refuses " +
      "and closes, and the rest of the upload is read and dropped",
    async () => {
      const upstream = await byteBackend((socket) => {
        socket.once("data", () => {
          socket.write("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 8\r\n\r\ntoo much");
          void seen.opened.then(() => socket.destroy());
        });
      });
      const seen = gate();
      const { port } = await running(oneService(upstream.port, one));
      const connection = await client(port);
      connection.send(post("Content-Length: 400000") + "x".repeat(1000));
      await connection.until("too much");
      seen.open();
      await eventually(() => upstream.sockets.size === 0, "the connections to the upstream closing");
      connection.send("x".repeat(399_000) + get("/none"));
      expect(statusesIn(await connection.until("route_not_found"))).toEqual([413, 404]);
      expect((await ask(port, { path: "/none" })).status).toBe(404);
    },
  );

  it(
    "a response that arrives before the request is complete leaves the connection pool usable when it is " +
      "complete before the upload",
    async () => {
      const upstream = await headBackend(({ socket, text }) => {
        if (/(POST|GET) /.test(text)) socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      });
      const { port } = await running(oneService(upstream.port, one));
      const connection = await client(port);
      connection.send(post("Content-Length: 10"));
      await connection.until("\r\nok");
      connection.send("0123456789");
      expect((await ask(port, { path: "/a/next" })).status).toBe(200);
    },
  );
});

describe("bodies that plugins replace or ignore", () => {
  const replying = (make: () => object) =>
    definePlugin({ name: "replying", schema: schema.object({}), create: () => () => () => make() as never });

  it(
    "bodies that plugins replace or ignore are sent with their real length when it " +
      "differs from the Content-Length",
    async () => {
      for (const stated of ["1", "100"]) {
        const plugin = replying(() => ({
          status: 200,
          headers: ["Content-Length", stated],
          body: Buffer.from("four"),
        }));
        const { port } = await running(oneService(1, { plugins: [{ name: "replying" }] }), { plugins: [plugin] });
        const connection = await client(port);
        connection.send(get() + get("/none"));
        const received = await connection.until("route_not_found");
        expect(received).toMatch(/\r\nContent-Length: 4\r\n[^]*\r\n\r\nfourHTTP\/1\.1 404/);
      }
    },
  );

  it("bodies that plugins replace or ignore do not end at an empty chunk in the middle", async () => {
    const plugin = replying(() => ({
      status: 200,
      headers: [],
      body: Readable.from([Buffer.from("be"), Buffer.alloc(0), Buffer.from("gun")]),
    }));
    const { port } = await running(oneService(1, { plugins: [{ name: "replying" }] }), { plugins: [plugin] });
    const connection = await client(port);
    connection.send(get() + get("/none"));
    expect(await connection.until("route_not_found")).toMatch(
      /\r\n\r\n(2\r\nbe\r\n3\r\ngun|5\r\nbegun)\r\n0\r\n\r\nHTTP\/1\.1 404/,
    );
  });

  it("bodies that plugins replace or ignore discard an unread upload when a plugin answers by itself", async () => {
    const plugin = replying(() => ({ status: 200, headers: [], body: Buffer.from("four") }));
    const { port } = await running(oneService(1, { plugins: [{ name: "replying" }] }), { plugins: [plugin] });
    const connection = await client(port);
    connection.send(post("Content-Length: 300000") + "x".repeat(300_000) + get("/none"));
    expect(statusesIn(await connection.until("route_not_found"))).toEqual([200, 404]);
  });
});

it("leaves no listeners behind after many requests on one connection, on either side", async () => {
  const warnings: Error[] = [];
  const note = (warning: Error) => void warnings.push(warning);
  process.on("warning", note);
  const upstream = await backend((request, response) => {
    response.setHeader("Content-Length", "2");
    response.end(request.method === "HEAD" ? undefined : "ok");
  });
  const { port } = await running(oneService(upstream.port, one));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  for (let i = 0; i < 60; i++) {
    const method = ["GET", "POST", "HEAD", "DELETE"][i % 4]!;
    const answer = await ask(port, {
      method,
      path: i % 5 === 0 ? "/none" : "/a/x",
      agent,
      ...(method === "POST" ? { body: "hello" } : {}),
    });
    expect(answer.status).toBe(i % 5 === 0 ? 404 : 200);
  }
  expect(upstream.connections.total).toBe(1);
  agent.destroy();
  process.removeListener("warning", note);
  expect(warnings).toEqual([]);
});
