/**
 * Undocumented behaviour of Node that lib relies on, grouped by the file that relies on it, over real sockets. A
 * release of Node that fails one of these breaks the file in the title.
 */
import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import https from "node:https";
import net, { type AddressInfo, type LookupFunction, type Socket } from "node:net";
import { Duplex, Readable } from "node:stream";
import tls, { type TLSSocket } from "node:tls";
import { Worker } from "node:worker_threads";
import { describe, expect, it, onTestFinished } from "vitest";
import { CA, CLIENT, SERVER } from "./support/certs.ts";
import { client, connected, listening, pair, turn } from "./support/loopback.ts";
import { NAMELESS } from "./support/more_certs.ts";
import { eventually, overSocket } from "./support/raw_client.ts";

const RELEASE = Number.parseInt(process.versions.node, 10);
/** More than the socket buffers of an unread connection hold. */
const LARGE = Buffer.alloc(16 * 1024 * 1024, "x");
const NOTHING = Buffer.alloc(0);

function ignore(): void {}

describe("Node for lib/server/limits.ts, lib/server/h2c.ts and lib/server/client_connection.ts", () => {
  it(
    "an http.Server and a tls.Server serve a connection only by the `connection` listeners that " +
      "they have from the start",
    async () => {
      for (const server of [
        http.createServer(),
        tls.createServer({ cert: SERVER.cert, key: SERVER.key }),
      ] as net.Server[]) {
        const own = server.listeners("connection");
        expect(own.length).toBeGreaterThan(0);
        server.removeAllListeners("connection");
        const port = await listening(server);
        // The listener added by `listening`.
        expect(server.listeners("connection")).toHaveLength(1);
        expect(port).toBeGreaterThan(0);
      }
      const server = http.createServer((_request, response) => response.end("served"));
      const own = server.listeners("connection") as ((this: net.Server, socket: Socket) => void)[];
      server.removeAllListeners("connection");
      const taken = once(server, "connection") as Promise<[Socket]>;
      const { socket, send, until } = await client(await listening(server));
      send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
      const [serverSide] = await taken;
      // Without its own listeners the server has read nothing: all bytes are still there.
      await once(serverSide, "readable");
      expect(serverSide.readableLength).toBeGreaterThan(0);
      serverSide.unshift(serverSide.read() as Buffer);
      for (const listener of own) listener.call(server, serverSide);
      await until("served");
      socket.destroy();
    },
  );

  it(
    "an http.Server serves a socket that was read by `readable` and unshifted, " +
      "and reads the unshifted bytes first",
    async () => {
      const paths: string[] = [];
      const server = http.createServer((request, response) => {
        paths.push(request.url!);
        response.end();
      });
      const front = net.createServer((socket) => {
        const look = () => {
          const seen = socket.read() as Buffer | null;
          if (seen === null) return;
          socket.off("readable", look);
          socket.unshift(seen);
          server.emit("connection", socket);
        };
        socket.on("readable", look);
      });
      const { send } = await client(await listening(front));
      send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHo");
      send("st: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
      await eventually(() => paths.length === 3, "three requests at the upstream");
      expect(paths).toEqual(["/1", "/2", "/3"]);
    },
  );
});

describe("Node for lib/server/client_connection.ts", () => {
  it(
    "the handle of an accepted connection can be given to a socket with `onread`, which gets all bytes, the end, " +
      "and can push, although the accepted one is destroyed at once",
    async () => {
      const read: string[] = [];
      let taken: Socket | undefined;
      const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (accepted) => {
        const { _handle: handle } = accepted as unknown as { _handle: object };
        (accepted as unknown as { _handle: null })._handle = null;
        const buffer = Buffer.alloc(64);
        const callback = (bytes: number) => {
          const text = buffer.toString("latin1", 0, bytes);
          read.push(text);
          return text === "pushed" ? socket.push("by push") : true;
        };
        const socket: Socket = new net.Socket({
          handle,
          allowHalfOpen: true,
          readable: true,
          writable: true,
          onread: { buffer, callback },
        } as net.SocketConstructorOpts);
        socket.on("data", (chunk: Buffer) => read.push(chunk.toString("latin1")));
        accepted.destroy();
        taken = socket;
      });
      const { socket, send, until } = await client(await listening(server));
      send("x".repeat(100));
      await eventually(() => read.join("").length === 100, "all bytes");
      taken!.pause();
      send("pushed");
      for (let i = 0; i < 10; i++) await turn();
      expect(read.join("")).toBe("x".repeat(100));
      taken!.resume();
      await eventually(() => read.at(-1) === "by push", "what was pushed");
      expect(taken!.remoteAddress).toBe("127.0.0.1");
      taken!.write("answer");
      await until("answer");
      const ended = once(taken!, "end");
      socket.end();
      await ended;
      const closed = new Promise((resolve) => server.close(resolve));
      taken!.destroy();
      await closed;
    },
  );
});

describe("Node for lib/server/listener.ts and lib/server/http1_node.ts", () => {
  it("an http.Server without a port checks for late requests once `listening` was emitted on it", async () => {
    const server = http.createServer({ connectionsCheckingInterval: 5, headersTimeout: 1, requestTimeout: 1 });
    server.emit("listening");
    onTestFinished(() => void server.close());
    const late = once(server, "clientError") as Promise<[NodeJS.ErrnoException, Duplex]>;
    const { send } = await client(
      await listening(net.createServer((socket) => void server.emit("connection", socket))),
    );
    send("GET / HTTP/1.1\r\n");
    const [error, socket] = await late;
    socket.destroy();
    expect(error.code).toBe("ERR_HTTP_REQUEST_TIMEOUT");
  });

  it("timeouts that change on an http.Server apply to open connections", async () => {
    const server = http.createServer(
      { connectionsCheckingInterval: 5, headersTimeout: 0, requestTimeout: 0 },
      (_request, response) => response.end("served"),
    );
    const { send, until } = await client(await listening(server));
    send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await until("served");
    const late = once(server, "clientError") as Promise<[NodeJS.ErrnoException, Duplex]>;
    send("GET / HTTP/1.1\r\n");
    server.requestTimeout = 1;
    server.headersTimeout = 1;
    expect((await late)[0].code).toBe("ERR_HTTP_REQUEST_TIMEOUT");
  });

  it("at least one waiting connection is accepted within two turns of the event loop", async () => {
    const server = net.createServer();
    const port = await listening(server);
    let taken = 0;
    server.on("connection", () => taken++);
    const clients = Array.from({ length: 5 }, () => net.connect(port, "127.0.0.1"));
    for (const socket of clients) onTestFinished(() => void socket.destroy());
    // From now on the system has accepted them all.
    await new Promise((resolve) => process.nextTick(resolve));
    for (let before = -1; before !== taken;) {
      before = taken;
      await turn();
      await turn();
    }
    expect(taken).toBe(5);
  });
});

describe("Node for lib/server/node_request_queue.ts", () => {
  it(
    "a paused socket whose own `resume` does nothing stays unread, " +
      "although its parser resumes it after each message",
    async () => {
      const responses: ServerResponse[] = [];
      const server = http.createServer((_request, response) => void responses.push(response));
      const connections: Socket[] = [];
      server.on("connection", (socket) => connections.push(socket));
      const { send } = await client(await listening(server));
      send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
      await eventually(() => responses.length === 1, "a request at the server");
      const [near] = connections as [Socket];
      const resume = near.resume;
      near.resume = () => near;
      near.pause();
      send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
      for (let i = 0; i < 20; i++) await turn();
      expect(responses).toHaveLength(1);
      near.resume = resume;
      near.resume();
      await eventually(() => responses.length === 2, "two requests at the server");
    },
  );
});

describe("Node for lib/server/http1_node.ts", () => {
  it(
    "pipelined requests are emitted as they arrive, and the next response gets the connection when " +
      "the one before has closed",
    async () => {
      const responses: ServerResponse[] = [];
      const server = http.createServer((_request, response) => void responses.push(response));
      const { send, until } = await client(await listening(server));
      send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
      await eventually(() => responses.length === 2, "two requests at the server");
      expect(responses[1]!.socket).toBeNull();
      responses[0]!.end("first");
      await once(responses[0]!, "close");
      expect(responses[1]!.socket).toBeInstanceOf(net.Socket);
      responses[1]!.end("second");
      expect(await until("second")).toMatch(/first[^]*second/);
    },
  );

  it("data written before an http.Server handles its client's FIN is still sent", async () => {
    const server = http.createServer((request, response) => {
      request.socket.prependListener("end", () => response.end("in time"));
    });
    const { socket, send, closed } = await client(await listening(server));
    send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    socket.end();
    expect(await closed()).toContain("in time");
  });

  it.each([
    ["a head that is too large", `GET /${"x".repeat(2000)} HTTP/1.1\r\nHost: a\r\n\r\n`, /^HPE_HEADER_OVERFLOW$/],
    [
      "a body whose sender ends its side",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
      /^HPE_INVALID_EOF_STATE$/,
    ],
    ["bytes that are no request", "\x16\x03\x01\x02\r\n\r\n", /^HPE_/],
  ])("`clientError` names the fault of %s, and has the bytes", async (_what, bytes, code) => {
    const server = http.createServer({ maxHeaderSize: 1000 }, ignore);
    const failed = once(server, "clientError") as Promise<[NodeJS.ErrnoException & { rawPacket?: Buffer }, Duplex]>;
    const { socket, send } = await client(await listening(server));
    send(bytes);
    if (bytes.startsWith("POST")) socket.end();
    const [error, side] = await failed;
    side.destroy();
    expect(error.code).toMatch(code);
    if (bytes.startsWith("GET")) expect(error.rawPacket!.toString("latin1", 0, 6)).toBe("GET /x");
  });

  it("`clientError` has the code ECONNRESET for a connection that is reset", async () => {
    const server = http.createServer(ignore);
    const failed = once(server, "clientError") as Promise<[NodeJS.ErrnoException, Duplex]>;
    const { socket, send } = await client(await listening(server));
    const accepted = once(server, "request");
    send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await accepted;
    socket.resetAndDestroy();
    expect((await failed)[0].code).toBe("ECONNRESET");
  });

  it(
    "`maxHeaderSize` of a server may change while it listens, " + "and applies to connections opened from then on",
    async () => {
      const server = http.createServer((_request, response) => response.end("served")) as http.Server & {
        maxHeaderSize?: number;
      };
      server.on("clientError", (error: NodeJS.ErrnoException, socket) => socket.end(error.code));
      const port = await listening(server);
      const answer = async (size: number) => {
        const { send, closed } = await client(port);
        // "/", "Host", "a", "Connection", "close", "X" and the rest of them in the value.
        send(`GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ${"x".repeat(size - 22)}\r\n\r\n`);
        return closed();
      };
      for (const most of [30_000, 1_000]) {
        server.maxHeaderSize = most;
        // The limit counts the target, names and values (as `lib/proof/explain.ts` does).
        expect(await answer(most - 1)).toContain("served");
        expect(await answer(most)).toContain("HPE_HEADER_OVERFLOW");
      }
    },
  );

  it(
    "closeIdleConnections closes connections that wait for a further request, " +
      "and keeps those with a request or a part of one",
    async () => {
      const server = http.createServer((request, response) => {
        if (request.url !== "/held") response.end("served");
      });
      const taken: Socket[] = [];
      const front = net.createServer((socket) => {
        taken.push(socket);
        server.emit("connection", socket);
      });
      server.emit("listening");
      onTestFinished(() => void server.close());
      const port = await listening(front);
      // One after the other: `taken` has them in this order.
      const [first, idle, further, held] = [
        await client(port),
        await client(port),
        await client(port),
        await client(port),
      ];
      for (const { send } of [idle, further]) send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
      await Promise.all([idle.until("served"), further.until("served")]);
      first.send("GET / HT");
      further.send("GET / HT");
      held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
      await eventually(
        () => taken.every(({ bytesRead }) => bytesRead > 0) && taken[2]!.bytesRead > taken[1]!.bytesRead,
        "the bytes on each connection",
      );
      server.closeIdleConnections();
      await idle.closed();
      first.send("TP/1.1\r\nHost: a\r\n\r\n");
      further.send("TP/1.1\r\nHost: a\r\n\r\n");
      await Promise.all([first.until("served"), further.until(/served[^]*served/)]);
      expect(held.socket.destroyed).toBe(false);
    },
  );

  it(
    "closeIdleConnections keeps a connection whose reply has `finished` set to false, " +
      "and closes it when it is true",
    async () => {
      const server = http.createServer((_request, response) => response.end(LARGE));
      const answered = once(server, "request") as Promise<[IncomingMessage, ServerResponse]>;
      const { socket, send, closed } = await client(await listening(server));
      socket.pause();
      send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
      const [request, response] = await answered;
      response.finished = false;
      server.closeIdleConnections();
      expect(request.socket.destroyed).toBe(false);
      response.finished = true;
      server.closeIdleConnections();
      expect(request.socket.destroyed).toBe(true);
      socket.resume();
      await closed();
    },
  );

  it(
    "a connection that an upgrade has taken over is served again when it is emitted as a " +
      "`connection`, unshifted bytes first",
    async () => {
      const paths: string[] = [];
      const server = http.createServer((request, response) => {
        paths.push(request.url!);
        response.end(`served ${request.url}`);
      });
      server.on("upgrade", (_request, socket, behind) => {
        socket.unshift(Buffer.concat([Buffer.from("GET /again HTTP/1.1\r\nHost: a\r\n\r\n"), behind]));
        server.emit("connection", socket);
      });
      const { send, until } = await client(await listening(server));
      send(
        "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
      );
      await until("served /2");
      send("GET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
      await until("served /3");
      expect(paths).toEqual(["/again", "/2", "/3"]);
    },
  );

  it("the socket of a request has its server as `server`, over http and https", async () => {
    for (const server of [http.createServer(), https.createServer({ cert: SERVER.cert, key: SERVER.key })]) {
      const found = once(server, "upgrade") as Promise<[IncomingMessage, Socket]>;
      const port = await listening(server);
      const socket = await connected(
        server instanceof https.Server
          ? tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false })
          : net.connect(port, "127.0.0.1"),
      );
      socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
      const [request] = await found;
      expect((request.socket as Socket & { server?: unknown }).server).toBe(server);
    }
  });

  it(
    `until Node 24 an upgrade gets the connection with its body unread; ` +
      `from Node 25 on a callback makes it an ordinary request`,
    async () => {
      const request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\n";
      const server = http.createServer(
        RELEASE >= 25 ? ({ shouldUpgradeCallback: () => false } as http.ServerOptions) : {},
        async (body, response) => {
          response.end(`served ${Buffer.concat(await body.toArray()).toString()}`);
        },
      );
      server.on("upgrade", (asked: IncomingMessage, socket: Duplex, behind: Buffer) => {
        expect(RELEASE).toBeLessThan(25);
        expect(socket).toBe(asked.socket);
        socket.end(`body ${behind.toString()}`);
      });
      const { send, until } = await client(await listening(server));
      send(`${request}body`);
      await until(RELEASE >= 25 ? "served body" : "body body");
    },
  );

  it("data written to the connection of a response is sent before its head", async () => {
    const server = http.createServer((_request, response) => {
      response.socket!.write("HTTP/1.1 103 Early Hints\r\n\r\n");
      response.end("late");
    });
    const { send, until } = await client(await listening(server));
    send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(await until("late")).toMatch(/^HTTP\/1\.1 103 Early Hints\r\n\r\nHTTP\/1\.1 200 OK\r\n/);
  });

  it("`bytesRead` of a connection counts bytes that the parser reads without events", async () => {
    const server = http.createServer((request, response) => {
      const before = request.socket.bytesRead;
      request.resume().on("end", () => response.end(`read ${request.socket.bytesRead - before}`));
    });
    const { send, until } = await client(await listening(server));
    const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    send(head);
    send(Buffer.alloc(100_000));
    const counted = Number(/read (\d+)/.exec(await until(/read \d+/))![1]);
    // The first segment may hold some of the body.
    expect(counted).toBeGreaterThan(0);
    expect(counted).toBeLessThanOrEqual(100_000);
  });
});

describe("Node for lib/server/node_reply.ts and lib/server/linger.ts", () => {
  /** What the first request is answered with by `answer`, once `fits` has come. */
  async function answered(
    answer: (response: ServerResponse, request: IncomingMessage) => void,
    fits: string | RegExp,
    request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
  ) {
    let failure: unknown;
    const server = http.createServer((asked, response) => {
      try {
        answer(response, asked);
      } catch (error) {
        failure = error;
        asked.socket.destroy();
      }
    });
    const { send, until } = await client(await listening(server));
    send(request);
    return until(fits).catch((ended: unknown) => {
      throw failure ?? ended;
    });
  }

  it(
    "writeHead accepts a flat list: order, case, repeated names and Latin-1 bytes are kept, " +
      "and chunking is added for HTTP/1.1 only",
    async () => {
      const list = ["x-A", "1", "Set-Cookie", "a=1", "X-a", "caf\xe9", "Set-Cookie", "b=2"];
      const answer = (response: ServerResponse) =>
        void response.writeHead(200, "", list as unknown as http.OutgoingHttpHeaders).end("body");
      const text = await answered(
        (response) =>
          void (
            response.writeHead(200, "Fine", list as unknown as http.OutgoingHttpHeaders),
            response.write("body"),
            response.end()
          ),
        "0\r\n\r\n",
      );
      expect(text).toMatch(/^HTTP\/1\.1 200 Fine\r\nx-A: 1\r\nSet-Cookie: a=1\r\nX-a: caf\xe9\r\nSet-Cookie: b=2\r\n/);
      expect(text).toContain("Transfer-Encoding: chunked\r\n");
      expect(await answered(answer, "body", "GET / HTTP/1.0\r\n\r\n")).not.toContain("Transfer-Encoding");
    },
  );

  it("a head that writeHead refuses leaves nothing set except the reason phrase", async () => {
    const text = await answered((response) => {
      expect(() =>
        response.writeHead(201, "Kept", ["X-Bad", "a\r\nb", "X-Good", "1"] as unknown as http.OutgoingHttpHeaders),
      ).toThrow();
      response.statusMessage = "";
      response.writeHead(500, ["Content-Length", "4"] as unknown as http.OutgoingHttpHeaders).end("body");
    }, "body");
    expect(text).toMatch(/^HTTP\/1\.1 500 Internal Server Error\r\nContent-Length: 4\r\n/);
    expect(text).not.toMatch(/X-Bad|X-Good|KeptState/);
  });

  it("an empty write sends the head by itself, and does not end a chunked body", async () => {
    let answer!: ServerResponse;
    const server = http.createServer((_request, response) => void (answer = response));
    const { send, until } = await client(await listening(server));
    send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await eventually(() => answer !== undefined, "a response");
    answer.writeHead(200, ["X-Name", "caf\xe9"] as unknown as http.OutgoingHttpHeaders);
    answer.write(NOTHING);
    expect(await until("\r\n\r\n")).toMatch(/X-Name: caf\xe9\r\n[^]*\r\n\r\n$/);
    answer.end("body");
    expect(await until("0\r\n\r\n")).toMatch(/\r\n\r\n4\r\nbody\r\n0\r\n\r\n$/);
  });

  it("`end` of a response is the prototype's", async () => {
    await answered((response) => {
      expect(Object.hasOwn(response, "end")).toBe(false);
      expect(response.end).toBe(http.ServerResponse.prototype.end);
      response.end("same");
    }, "same");
  });

  it(
    "a response is not finished, and its connection has bytes to write, " +
      "until the system has accepted its last byte",
    async () => {
      let answer!: ServerResponse;
      let socket!: Socket;
      const server = http.createServer((request, response) => {
        answer = response;
        socket = request.socket;
        response.writeHead(200, ["Content-Length", String(LARGE.length)] as unknown as http.OutgoingHttpHeaders);
        response.end(LARGE);
        expect(socket.writableLength).toBeGreaterThan(0);
      });
      const near = await connected(net.connect(await listening(server), "127.0.0.1"));
      near.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
      await once(near, "readable");
      for (let i = 0; i < 20; i++) await turn();
      expect(answer.writableFinished).toBe(false);
      const finished = once(answer, "finish");
      near.resume();
      await finished;
      expect([answer.writableFinished, socket.writableLength]).toEqual([true, 0]);
    },
  );

  it("the last reply of a connection closes it by the socket's own `destroySoon`", async () => {
    let asked = 0;
    const text = await answered((response, { socket }) => {
      const { destroySoon } = socket;
      socket.destroySoon = () => {
        asked++;
        destroySoon.call(socket);
      };
      response.writeHead(200, ["Connection", "close"] as unknown as http.OutgoingHttpHeaders).end("last");
    }, "last");
    expect(text).toContain("Connection: close");
    await eventually(() => asked === 1, "a request at the upstream");
  });

  it("a body that flows from the turn of its reply on loses no byte: its listeners get all of them", async () => {
    const heard: string[] = [];
    const server = http.createServer((request, response) => {
      response.end("early");
      if (request.method === "GET") return;
      request.on("data", (chunk: Buffer) => heard.push(chunk.toString()));
      request.on("end", () => heard.push("end"));
      request.resume();
    });
    const { send, until } = await client(await listening(server));
    send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    await until("early");
    send("bodyGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    await until(/early[^]*early/);
    expect(heard).toEqual(["body", "end"]);
  });

  it("a body whose own `pause` does nothing flows to its end, whatever calls pause", async () => {
    await answered(
      (response, request) => {
        let bytes = 0;
        request.pause();
        request.pause = () => request;
        request.resume();
        request.on("data", (chunk: Buffer) => {
          bytes += chunk.length;
          request.pause();
        });
        request.on("end", () => response.end(`all ${bytes}`));
      },
      "all 300000",
      `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n${"x".repeat(300_000)}`,
    );
  });

  it(
    "an http.Server destroys a connection that has timed out, " + "and a complete reply restarts the keep-alive time",
    async () => {
      const server = http.createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
        request.socket.setTimeout(30);
        response.end(request.url === "/large" ? LARGE : "small");
      });
      const port = await listening(server);
      const taken = await client(port);
      const kept = once(server, "request") as Promise<[IncomingMessage]>;
      taken.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
      await taken.until("small");
      expect((await kept)[0].socket.timeout).toBeGreaterThanOrEqual(60_000);
      const stuck = await client(port);
      stuck.socket.pause();
      const held = once(server, "request") as Promise<[IncomingMessage]>;
      stuck.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
      await once((await held)[0].socket, "close");
    },
  );

  it("trailers may be a list of pairs: order and repeated names are kept", async () => {
    const text = await answered((response) => {
      response.writeHead(200, ["Trailer", "x-a"] as unknown as http.OutgoingHttpHeaders);
      response.write("body");
      response.addTrailers([
        ["X-B", "1"],
        ["x-a", "2"],
        ["X-B", "3"],
      ]);
      response.end();
    }, /\r\n0\r\n[^]*\r\n\r\n$/);
    expect(text).toMatch(/\r\n0\r\nX-B: 1\r\nx-a: 2\r\nX-B: 3\r\n\r\n$/);
  });

  it("a new Readable has no listener except those that were added, and flows in neither mode", () => {
    const body = new Readable({ read: ignore });
    expect([body.eventNames(), body.readableFlowing, body.readableDidRead]).toEqual([[], null, false]);
  });
});

describe("Node for lib/server/inbound.ts", () => {
  it(
    "rawHeaders and rawTrailers are flat lists with case, order, repeated names and Latin-1 as received; " +
      "trailers are not among the headers",
    async () => {
      let seen: readonly (readonly string[])[] = [];
      const server = http.createServer((request, response) => {
        request.resume().on("end", () => {
          seen = [request.rawHeaders, request.rawTrailers];
          response.end("seen");
        });
      });
      const { send, until } = await client(await listening(server));
      send(
        "POST / HTTP/1.1\r\nhOST: a\r\nX-b: \t1 \r\nCookie: x\r\nx-B: caf\xe9\r\nCookie: y\r\nTransfer-Encoding: " +
          "chunked\r\n\r\n0\r\nX-T: 1\r\nx-t: 2\r\n\r\n",
      );
      await until("seen");
      expect(seen[0]).toEqual([
        "hOST",
        "a",
        "X-b",
        "1",
        "Cookie",
        "x",
        "x-B",
        "caf\xe9",
        "Cookie",
        "y",
        "Transfer-Encoding",
        "chunked",
      ]);
      expect(seen[1]).toEqual(["X-T", "1", "x-t", "2"]);
    },
  );

  it.each([
    ["a Content-Length with a sign", "Content-Length: +4\r\n"],
    ["a Content-Length with a space in it", "Content-Length: 4 4\r\n"],
    ["a Content-Length in hexadecimal digits", "Content-Length: 0x4\r\n"],
    ["a Content-Length that is a list", "Content-Length: 4, 4\r\n"],
    ["an empty Content-Length", "Content-Length:\r\n"],
    ["a space before the colon", "Content-Length : 4\r\n"],
    ["a name that is no token", "X(Y): 1\r\n"],
    ["an empty name", ": 1\r\n"],
    ["a line without a colon", "X-A\r\n"],
    ["a line that goes on in the next one", "X-A: 1\r\n 2\r\n"],
    ["a NUL in a value", "X-A: a\0b\r\n"],
    ["a control character in a value", "X-A: a\x01b\r\n"],
    ["a CR in a value", "X-A: a\rb\r\n"],
    ["a chunk size that is no number", "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"],
    ["a chunk that is longer than it says", "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"],
    ["a chunk size with a blank before it", "Transfer-Encoding: chunked\r\n\r\n 1\r\na\r\n0\r\n\r\n"],
  ])("the parser refuses %s", async (_what, lines) => {
    const server = http.createServer({ insecureHTTPParser: false }, (request) => void request.resume());
    const failed = once(server, "clientError") as Promise<[NodeJS.ErrnoException, Duplex]>;
    const { send } = await client(await listening(server));
    send(`POST / HTTP/1.1\r\nHost: a\r\n${lines}\r\nbody`);
    const [error, socket] = await failed;
    socket.destroy();
    expect(error.code).toMatch(/^HPE_/);
  });

  it("the parser accepts the methods of `http.METHODS` and no other", async () => {
    const server = http.createServer((request, response) => response.end(request.method));
    const failed = once(server, "clientError") as Promise<[NodeJS.ErrnoException, Duplex]>;
    const port = await listening(server);
    for (const method of ["GET", "PATCH", "PURGE", "REPORT"]) {
      expect(http.METHODS).toContain(method);
      const { send, until } = await client(port);
      send(`${method} / HTTP/1.1\r\nHost: a\r\n\r\n`);
      await until("200 OK");
    }
    expect(http.METHODS).not.toContain("FETCH");
    (await client(port)).send("FETCH / HTTP/1.1\r\nHost: a\r\n\r\n");
    const [error, socket] = await failed;
    socket.destroy();
    expect(error.code).toBe("HPE_INVALID_METHOD");
  });
});

describe("Node for lib/server/tls.ts and lib/server/client_certificate.ts", () => {
  const asking = (ticketKeys: Buffer, sessionIdContext: string): tls.TlsOptions => {
    return {
      cert: SERVER.cert,
      key: SERVER.key,
      ca: CA.cert,
      requestCert: true,
      rejectUnauthorized: false,
      ticketKeys,
      sessionIdContext,
    };
  };

  /**
   * Connects, with the ticket of an earlier connection where one is given; resolves with a ticket, and what the server
   * knows of the client.
   */
  async function meet(port: number, session?: Buffer): Promise<{ ticket: Buffer; reused: boolean; shown: string }> {
    const socket = tls.connect({
      host: "127.0.0.1",
      port,
      ...CLIENT,
      rejectUnauthorized: false,
      servername: "localhost",
      ...(session && { session }),
    });
    const ticket = session === undefined ? (once(socket, "session") as Promise<[Buffer]>) : [session];
    const heard = once(socket, "data") as Promise<[Buffer]>;
    await connected(socket);
    const [[shown], [given]] = await Promise.all([heard, ticket]);
    const reused = socket.isSessionReused();
    socket.destroy();
    return { ticket: given!, reused, shown: shown.toString() };
  }

  async function secure(options: tls.TlsOptions): Promise<number> {
    const server = tls.createServer(options);
    server.on(
      "secureConnection",
      (socket) => void socket.on("error", ignore).write(`${socket.getPeerX509Certificate()?.subject ?? "nobody"}`),
    );
    return listening(server);
  }

  it(
    "every context with the same `ticketKeys` and `sessionIdContext` resumes a ticket, under SNI too, " +
      "with the client's certificate",
    async () => {
      const keys = Buffer.alloc(48, 7);
      const options = asking(keys, "rules");
      const [first, second] = [
        await secure(options),
        await secure({ ...options, SNICallback: (_name, done) => done(null, tls.createSecureContext(options)) }),
      ];
      const { ticket, reused, shown } = await meet(first);
      expect([reused, shown]).toEqual([false, "CN=a client"]);
      expect(await meet(second, ticket)).toMatchObject({ reused: true, shown: "CN=a client" });
      const renewed = tls.createServer(asking(Buffer.alloc(48, 8), "rules"));
      renewed.on("secureConnection", (socket) => void socket.on("error", ignore).write("renewed"));
      renewed.setSecureContext(options);
      expect(await meet(await listening(renewed), ticket)).toMatchObject({ reused: true });
    },
  );

  it(
    "`this` of an SNICallback is the TLS socket, and what is written to its TCP socket before the callback fails " +
      "arrives as a record of TLS",
    async () => {
      for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
        let raw: Socket;
        const server = tls.createServer({
          SNICallback(this: Socket, _name, done) {
            expect([this.remotePort, this.localPort]).toEqual([raw.remotePort, raw.localPort]);
            raw.write(Buffer.from([21, 3, 3, 0, 2, 2, 112]));
            done(new Error("unknown"));
          },
        });
        server.prependListener("connection", (socket) => (raw = socket));
        const failed = once(server, "tlsClientError");
        const port = await listening(server);
        const socket = tls.connect({
          port,
          host: "127.0.0.1",
          servername: "a.test",
          minVersion: version,
          maxVersion: version,
        });
        const [error] = (await once(socket, "error")) as [NodeJS.ErrnoException];
        expect(error.code).toBe("ERR_SSL_TLSV1_UNRECOGNIZED_NAME");
        expect(await failed).toMatchObject([{ message: "unknown" }, { destroyed: true }]);
      }
    },
  );

  it("a ticket is not resumed when `ticketKeys` or `sessionIdContext` differ", async () => {
    const keys = Buffer.alloc(48, 7);
    const { ticket } = await meet(await secure(asking(keys, "rules")));
    // A handshake that OpenSSL refuses for the other context is no resumption either.
    const other = await meet(await secure(asking(keys, "others")), ticket).catch(() => ({ reused: false }));
    expect([other.reused, (await meet(await secure(asking(Buffer.alloc(48, 8), "rules")), ticket)).reused]).toEqual([
      false,
      false,
    ]);
  });

  it("a subject has one line for each part; an empty one has no text and no common name", () => {
    expect(new X509Certificate(CLIENT.cert).subject).toBe("CN=a client");
    expect((new X509Certificate(CLIENT.cert).toLegacyObject().subject as { CN?: string }).CN).toBe("a client");
    const nameless = new X509Certificate(NAMELESS.cert);
    expect(nameless.subject ?? "").toBe("");
    expect((nameless.toLegacyObject().subject as { CN?: string } | undefined)?.CN).toBeUndefined();
  });
});

describe("Node for lib/http/delivery.ts", () => {
  it.each(["TCP", "TLS"])(
    "the handle of a connection over %s tells what the system took of a write that is under way",
    async (transport) => {
      const secure = transport === "TLS";
      const server = secure ? tls.createServer({ cert: SERVER.cert, key: SERVER.key }) : net.createServer();
      const port = await listening(server);
      const accepted = once(server, secure ? "secureConnection" : "connection") as Promise<[Socket]>;
      const far = await connected(
        secure
          ? tls.connect({ port, host: "127.0.0.1", ca: CA.cert, servername: "localhost" })
          : net.connect(port, "127.0.0.1"),
      );
      const [near] = await accepted;
      type Handle = { readonly bytesWritten: number; readonly writeQueueSize: number };
      const { _handle: own } = near as unknown as { readonly _handle: Handle & { readonly _parent?: Handle } };
      const handle = own._parent ?? own;
      const taken = () => handle.bytesWritten - handle.writeQueueSize;
      far.pause();
      near.on("error", ignore).write(LARGE);
      for (let i = 0; i < 20; i++) await turn();
      expect(taken()).toBeGreaterThan(100_000);
      expect(taken()).toBeLessThan(LARGE.length);
      expect(handle.writeQueueSize).toBeGreaterThan(0);
      far.resume();
      await eventually(() => handle.writeQueueSize === 0, "all of it");
      expect(taken()).toBeGreaterThanOrEqual(LARGE.length);
    },
  );
});

describe("Node for lib/base/event_loop.ts", () => {
  it(
    "a stream writes text with a request whose class has a constructor without arguments, " +
      "and which only a write that is not taken at once uses; or with null, and Node makes one then",
    async () => {
      const { near, far } = await pair();
      type Request = {
        readonly constructor: new () => Request;
        oncomplete: (status: number) => void;
        getAsyncId: () => number;
      };
      type Handle = { writeLatin1String: (request: Request | null, text: string) => number | Request };
      const { _handle: handle } = near as unknown as { readonly _handle: Handle };
      const write = handle.writeLatin1String;
      const seen: (Request | null)[] = [];
      handle.writeLatin1String = (request, text) => {
        seen.push(request);
        return write.call(handle, request, text);
      };
      near.write("by the stream;", "latin1");
      handle.writeLatin1String = write;
      expect(seen).toHaveLength(1);
      const own = seen[0] === null ? null : new seen[0]!.constructor();
      for (const text of ["one;", "two;"])
        expect([handle.writeLatin1String(own, text), own?.getAsyncId() ?? -1]).toEqual([0, -1]);
      far.pause();
      const large = LARGE.toString("latin1");
      const result = handle.writeLatin1String(own, large);
      const used = own ?? (result as Request);
      if (own !== null) expect(result).toBe(0);
      const ended = new Promise<number>((resolve) => (used.oncomplete = resolve));
      expect(used.getAsyncId()).toBeGreaterThanOrEqual(0);
      let read = "";
      far.on("data", (chunk: Buffer) => void (read += chunk.toString("latin1"))).resume();
      expect(await ended).toBe(0);
      await eventually(() => read.length === 22 + large.length, "all of it");
      expect(read === `by the stream;one;two;${large}`).toBe(true);
    },
  );
});

describe("Node for lib/upstream/http1_exchange.ts and lib/upstream/pool.ts", () => {
  it("`onread` of a new connection gets all bytes, and none are emitted as events", async () => {
    const server = net.createServer((socket) => void socket.end("answer"));
    const port = await listening(server);
    const buffer = Buffer.alloc(64);
    const read: string[] = [];
    const onread = {
      buffer,
      callback: (bytes: number, given: Buffer) => (
        read.push(given.toString("latin1", 0, bytes)),
        given === buffer || given.buffer === buffer.buffer
      ),
    };
    const socket = net.connect({ host: "127.0.0.1", port, onread } as net.TcpNetConnectOpts);
    socket.on("data", () => read.push("an event"));
    await once(socket, "end");
    expect(read.join("")).toBe("answer");
    expect(socket.readableLength).toBe(0);
  });

  it("`pause` holds a connection with `onread` back, and isPaused is true until it is resumed", async () => {
    const server = net.createServer();
    const accepted = once(server, "connection") as Promise<[Socket]>;
    const port = await listening(server);
    let bytes = 0;
    const callback = (count: number) => ((bytes += count), true);
    const near = await connected(
      net.connect({ host: "127.0.0.1", port, onread: { buffer: Buffer.alloc(1024), callback } }),
    );
    const [far] = await accepted;
    near.on("data", ignore);
    near.pause();
    expect(near.isPaused()).toBe(true);
    far.write("x".repeat(10_000));
    for (let i = 0; i < 10; i++) await turn();
    expect(bytes).toBe(0);
    near.resume();
    expect(near.isPaused()).toBe(false);
    await eventually(() => bytes === 10_000, "all bytes");
  });

  it(
    "a connection whose other side has sent FIN is no longer writable in the turn of its " +
      "`end`, before its `close`",
    async () => {
      const { near, far } = await pair();
      near.resume();
      const closed = once(near, "close");
      far.end();
      await once(near, "end");
      expect(near.writable).toBe(false);
      expect(await Promise.race([closed, "still open"])).toBe("still open");
    },
  );

  it("`readableLength` counts bytes that arrived on a paused connection", async () => {
    const { near, far } = await pair();
    near.once("data", () => near.pause());
    far.write("read");
    await once(near, "pause");
    far.write("stray");
    await eventually(() => near.bytesRead === 9, "nine bytes");
    expect(near.readableLength).toBe(5);
  });

  it(
    "`writableLength` is 0 in the turn of a write that the system has accepted " + "whole, and more until then",
    async () => {
      const { near, far } = await pair();
      far.pause();
      near.write("small");
      expect(near.writableLength).toBe(0);
      near.write(LARGE);
      for (let i = 0; i < 20; i++) await turn();
      expect(near.writableLength).toBeGreaterThan(0);
      const called = new Promise((resolve) => near.write(NOTHING, resolve));
      far.resume();
      await called;
      expect(near.writableLength).toBe(0);
    },
  );

  it("a corked connection sends nothing, and then everything together", async () => {
    const { near, far } = await pair();
    const chunks: string[] = [];
    far.on("data", (chunk: Buffer) => chunks.push(chunk.toString()));
    near.cork();
    near.write("head ", "latin1");
    await turn();
    near.write("body");
    expect([near.writableLength, chunks]).toEqual([9, []]);
    near.uncork();
    await eventually(() => chunks.length > 0, "the first bytes");
    expect(chunks).toEqual(["head body"]);
  });
});

describe("Node for lib/upstream/node_response_parser.ts", () => {
  function parsing() {
    const stream = new Duplex({ read: ignore, write: ignore });
    const request = http.request({ method: "GET", createConnection: () => stream });
    const events: string[] = [];
    let response: IncomingMessage | undefined;
    request.on("response", (received) => (response = received.on("error", ignore)));
    request.on("information", ({ statusCode }) => events.push(String(statusCode)));
    request.on("upgrade", (_response, _stream, behind) => events.push(`upgrade ${String(behind)}`));
    request.on("error", ({ code }: NodeJS.ErrnoException) => events.push(code!));
    return {
      stream,
      events,
      feed: (text: string) => stream.emit("data", Buffer.from(text)),
      response: () => response!,
    };
  }

  it("a request parses bytes that its stream emits as `data` at once, from the next tick on", async () => {
    const { stream, events, feed, response } = parsing();
    expect(feed("")).toBe(false);
    await turn();
    expect(feed("HTTP/1.1 103 Hint\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbo")).toBe(true);
    expect(events).toEqual(["103"]);
    expect([String(response().read()), response().complete]).toEqual(["bo", false]);
    feed("dy");
    expect([String(response().read()), response().complete]).toEqual(["dy", true]);
    expect(stream.destroyed).toBe(false);
  });

  it("a body without a length is complete when its stream emits `end`, a body with a length is not", async () => {
    for (const [length, isComplete] of [
      ["", true],
      ["Content-Length: 9\r\n", false],
    ] as const) {
      const { stream, feed, response } = parsing();
      await turn();
      feed(`HTTP/1.1 200 OK\r\n${length}\r\nbody`);
      expect(response().complete).toBe(false);
      stream.emit("end");
      expect(response().complete).toBe(isComplete);
    }
  });

  it(
    "a second response after the first closes the stream, " +
      "and other bytes are an error with a code that starts with HPE_",
    async () => {
      const second = parsing();
      await turn();
      second.feed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
      expect([second.response().complete, second.stream.destroyed]).toEqual([true, true]);
      const garbage = parsing();
      await turn();
      garbage.feed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\ngarbage");
      expect(garbage.response().complete).toBe(true);
      expect(garbage.events).toEqual([expect.stringMatching(/^HPE_/)]);
    },
  );

  it("a 101 passes on the bytes that follow it", async () => {
    const { events, feed } = parsing();
    await turn();
    feed("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbehind");
    expect(events).toEqual(["upgrade behind"]);
  });
});

describe("Node for lib/upstream/connect.ts", () => {
  /** A port of 127.0.0.1 at which nobody listens on another address of this machine. */
  const lookup =
    (addresses: readonly string[]): LookupFunction =>
    (_host, { all }, done) => {
      expect(all).toBe(true);
      process.nextTick(
        done,
        null,
        addresses.map((address) => ({ address, family: net.isIP(address) })),
      );
    };

  it(
    "a look-up with `autoSelectFamily` returns all addresses, " +
      "and they are tried in its order, the first one first",
    async () => {
      const port = await listening(net.createServer());
      for (const [addresses, reached] of [
        [["127.0.0.9", "127.0.0.1"], "127.0.0.1"],
        [["::ffff:127.0.0.1", "127.0.0.1"], "::ffff:127.0.0.1"],
      ] as const) {
        const socket = await connected(
          net.connect({ host: "some.example", port, lookup: lookup(addresses), autoSelectFamily: true }),
        );
        expect(socket.remoteAddress).toBe(reached);
      }
    },
  );

  it(
    "the error for several unreachable addresses has no text except its code, " + "and an error for each address",
    async () => {
      const port = await new Promise<number>((resolve) => {
        const server = net.createServer().listen(0, "127.0.0.1", () => {
          const { port: free } = server.address() as AddressInfo;
          server.close(() => resolve(free));
        });
      });
      const socket = net.connect({
        host: "some.example",
        port,
        lookup: lookup(["127.0.0.8", "127.0.0.9"]),
        autoSelectFamily: true,
      });
      const [error] = (await once(socket, "error").catch((thrown: unknown) => [thrown])) as [
        AggregateError & NodeJS.ErrnoException,
      ];
      expect(error).toBeInstanceOf(AggregateError);
      expect(error.code).toBe("ECONNREFUSED");
      expect((error.errors as Error[]).map(({ message }) => message)).toEqual([
        expect.stringContaining("127.0.0.8"),
        expect.stringContaining("127.0.0.9"),
      ]);
    },
  );

  it("an empty `servername` sends no SNI, and `checkServerIdentity` is called all the same", async () => {
    const server = tls.createServer({ cert: SERVER.cert, key: SERVER.key });
    const taken = once(server, "secureConnection") as Promise<[TLSSocket]>;
    const checked: string[] = [];
    const secureContext = tls.createSecureContext({ ca: CA.cert });
    const checkServerIdentity = (host: string, certificate: tls.PeerCertificate) => {
      checked.push(host);
      return tls.checkServerIdentity("localhost", certificate);
    };
    const agent = new https.Agent({
      secureContext,
      servername: "",
      checkServerIdentity,
      rejectUnauthorized: true,
    } as https.AgentOptions);
    onTestFinished(() => agent.destroy());
    const connect = agent.createConnection.bind(agent) as unknown as (options: object) => TLSSocket;
    const socket = await connected(connect({ ...agent.options, host: "127.0.0.1", port: await listening(server) }));
    expect(socket.authorized).toBe(true);
    expect((await taken)[0].servername).toBe(false);
    expect(checked).toHaveLength(1);
  });
});

describe("Node for lib/upstream/tunnel.ts", () => {
  it(
    "a connection that may be half-open only since it was made can be written after the other side " +
      "has sent FIN, over TLS too",
    async () => {
      const heard: string[] = [];
      const half = (socket: Socket) => {
        socket.on("data", (chunk: Buffer) => heard.push(chunk.toString()));
        socket.end();
      };
      const plain = net.createServer({ allowHalfOpen: true }, half);
      const secure = tls.createServer({ cert: SERVER.cert, key: SERVER.key, allowHalfOpen: true }, half);
      for (const socket of [
        net.connect(await listening(plain), "127.0.0.1"),
        tls.connect({ port: await listening(secure), host: "127.0.0.1", rejectUnauthorized: false }),
      ]) {
        socket.allowHalfOpen = true;
        socket.resume();
        await Promise.all([connected(socket), once(socket, "end")]);
        expect(socket.writable).toBe(true);
        socket.end("after the end");
      }
      await eventually(() => heard.length === 2, "two messages");
      expect(heard).toEqual(["after the end", "after the end"]);
    },
  );
});

describe("Node for lib/upstream/health_checks.ts, lib/client/client.ts and lib/manager/proxy.ts", () => {
  it(
    "a request sends a flat list of headers unchanged: order, case, repeated names, Latin-1; " +
      "only Connection is added",
    async () => {
      const headers = ["x-A", "1", "Host", "b", "X-a", "caf\xe9", "x-A", "2"] as unknown as http.OutgoingHttpHeaders;
      const server = net.createServer();
      const taken = once(server, "connection") as Promise<[Socket]>;
      const request = http
        .request({ host: "127.0.0.1", port: await listening(server), headers, setHost: false, agent: false })
        .on("error", ignore)
        .end();
      onTestFinished(() => void request.destroy());
      const text = await overSocket((await taken)[0]).until("\r\n\r\n");
      expect(text).toMatch(
        new RegExp(
          String.raw`^GET \/ HTTP\/1\.1\r\nx-A: 1\r\nHost: b\r\nX-a: caf\xe9\r\nx-A: 2\r\n` +
            String.raw`Connection: (?:close|keep-alive)\r\n\r\n$`,
        ),
      );
    },
  );

  it("an empty write sends the head of a request by itself, and its trailers may be a list of pairs", async () => {
    const headers = [
      "Host",
      "b",
      "X-A",
      "caf\xe9",
      "Transfer-Encoding",
      "chunked",
    ] as unknown as http.OutgoingHttpHeaders;
    const server = net.createServer();
    const taken = once(server, "connection") as Promise<[Socket]>;
    const request = http
      .request({
        host: "127.0.0.1",
        port: await listening(server),
        method: "POST",
        headers,
        setHost: false,
        agent: false,
      })
      .on("error", ignore);
    onTestFinished(() => void request.destroy());
    request.write(NOTHING);
    const { until } = overSocket((await taken)[0]);
    expect(await until("\r\n\r\n")).toMatch(/X-A: caf\xe9\r\n[^]*\r\n\r\n$/);
    request.write("body");
    request.addTrailers([
      ["X-T", "1"],
      ["x-t", "2"],
    ]);
    request.end();
    expect(await until("x-t: 2\r\n\r\n")).toMatch(/\r\n\r\n4\r\nbody\r\n0\r\nX-T: 1\r\nx-t: 2\r\n\r\n$/);
  });

  it.each([
    ["no HTTP", "220 mail.example ESMTP\r\n", /^HPE_/, /./],
    // `lib/upstream/health_checks.ts` knows it by its words.
    ["nothing at all", "", /^ECONNRESET$/, /^socket hang up$/],
  ])("a response that is %s fails the request with a code for it", async (_what, answer, code, message) => {
    const port = await listening(net.createServer((socket) => void socket.once("data", () => socket.end(answer))));
    const request = http.get({ host: "127.0.0.1", port, agent: false });
    const error = await new Promise<NodeJS.ErrnoException>((resolve) => request.once("error", resolve));
    expect(error.code).toMatch(code);
    expect(error.message).toMatch(message);
  });
});

describe("Node for lib/upstream/faults.ts", () => {
  it.each(["TLSv1.3", "TLSv1.2"] as const)(
    "a server that requires a client certificate fails the connection with a code that names the alert (%s)",
    async (maxVersion) => {
      const options = {
        cert: SERVER.cert,
        key: SERVER.key,
        ca: CA.cert,
        requestCert: true,
        rejectUnauthorized: true,
        maxVersion,
      };
      const socket = tls.connect({
        port: await listening(tls.createServer(options)),
        host: "127.0.0.1",
        rejectUnauthorized: false,
      });
      const error = await new Promise<NodeJS.ErrnoException>((resolve) => socket.once("error", resolve).resume());
      expect(error.code).toMatch(/^ERR_SSL_[\w/]*ALERT_\w*(?:CERT|HANDSHAKE)/);
    },
  );
});

describe("Node for lib/upstream/breaker.ts and lib/upstream/shared_health.ts", () => {
  it("performance.now() counts from the same moment in every thread", async () => {
    const before = performance.now();
    const worker = new Worker("require('node:worker_threads').parentPort.postMessage(performance.now())", {
      eval: true,
    });
    const [now] = (await once(worker, "message")) as [number];
    expect(now).toBeGreaterThanOrEqual(before);
    expect(now).toBeLessThanOrEqual(performance.now());
  });
});

describe("Node for lib/base/heap_growth.ts", () => {
  it(
    "V8 has --heap-growing-percent, and chooses itself with 0; " + "what it does is seen by `npm run bench -- growth`",
    () => {
      const options = execFileSync(process.execPath, ["--v8-options"], { encoding: "utf8" });
      expect(options).toMatch(/--heap-growing-percent .*\n.* default: (?:--heap-growing-percent=)?0\b/);
    },
  );

  it("V8 optimizes no code after --no-opt, and does again after --opt", () => {
    const script = `
      const v8 = require("node:v8");
      v8.setFlagsFromString("--allow-natives-syntax --no-maglev");
      // The bit of optimized code, one lower since V8 14.
      const bit = Number(process.versions.v8.split(".")[0]) >= 14 ? 8 : 16;
      const isOptimized = new Function("f", "return (%GetOptimizationStatus(f) & " + bit + ") !== 0");
      const results = [];
      for (const flag of ["--no-opt", "--opt"]) {
        v8.setFlagsFromString(flag);
        const f = new Function("n", "let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s;");
        let found = false;
        for (let i = 0; i < 3000 && !found; i++) {
          f(20_000);
          found = isOptimized(f);
        }
        results.push(found);
      }
      console.log(JSON.stringify(results));`;
    const results = execFileSync(process.execPath, ["-e", script], { encoding: "utf8" });
    expect(JSON.parse(results)).toEqual([false, true]);
  });

  it("V8 enlarges its young generation for what stays, and not while --semi-space-growth-factor is 1", () => {
    const script = `
      const v8 = require("node:v8");
      const kept = [];
      const keepMore = () => { for (let i = 0; i < 200_000; i++) kept.push({ i, list: [i] }); };
      const size = () => v8.getHeapSpaceStatistics().find((space) => space.space_name === "new_space").space_size;
      const sizes = [];
      for (const factor of [1, 2]) {
        v8.setFlagsFromString("--semi-space-growth-factor=" + factor);
        keepMore();
        sizes.push(size());
      }
      console.log(JSON.stringify(sizes));`;
    const [kept, grown] = JSON.parse(execFileSync(process.execPath, ["-e", script], { encoding: "utf8" })) as [
      number,
      number,
    ];
    // Where V8 begins with half a MiB it has some 2 after the first collection of garbage.
    expect(kept).toBeLessThanOrEqual(3 * 1024 * 1024);
    expect(grown).toBeGreaterThanOrEqual(4 * kept);
  });
});
