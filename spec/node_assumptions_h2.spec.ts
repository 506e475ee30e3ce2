/** Undocumented behaviour of Node's HTTP/2 that lib relies on, grouped by the file that relies on it. */
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import http2, {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type Http2Stream,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import http, { type IncomingMessage } from "node:http";
import net, { type Socket } from "node:net";
import tls, { type TLSSocket } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { h2Fields } from "../lib/http/h2_fields.ts";
import { CA, CLIENT, SERVER } from "./support/certs.ts";
import {
  ACK,
  CODES,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  frameReader,
  GET,
  GOAWAY,
  HEADERS,
  number32,
  PING,
  POST,
  PREFACE,
  rawSession,
  RST_STREAM,
  SETTINGS,
  type Frame,
  type RawSession,
} from "./support/h2_raw.ts";
import { client, connected, h2Client, h2Port, listening } from "./support/loopback.ts";
import { eventually } from "./support/raw_client.ts";

function ignore(): void {}

async function raw(port: number, options?: Parameters<typeof rawSession>[1]): Promise<RawSession> {
  const session = await rawSession(port, options);
  onTestFinished(() => void session.socket.destroy());
  return session;
}

function withPath(path: string): readonly (readonly [string, string])[] {
  return GET.map(([name, value]) => [name, name === ":path" ? path : value] as const);
}

/** An HTTP/2 server at the level of frames, which sends only its SETTINGS by itself. */
async function rawServer(answer: (socket: Socket, got: Frame) => void): Promise<number> {
  const server = net.createServer((socket) => {
    socket.write(frame(SETTINGS, 0, 0));
    const read = frameReader((got) => {
      if (got.type === SETTINGS && got.flags === 0) socket.write(frame(SETTINGS, ACK, 0));
      answer(socket, got);
    }, PREFACE.length);
    socket.on("data", read);
  });
  return listening(server);
}

/** ":status: 200" of HPACK's static table (RFC 7541, appendix A). */
const OK = Buffer.from([0x88]);

describe("Node for lib/server/h2_sessions.ts and lib/server/h2c.ts", () => {
  it("an HTTP/2 session reads bytes unshifted to its socket before later ones", async () => {
    const paths: string[] = [];
    const front = net.createServer((socket) => {
      socket.once("readable", () => {
        socket.unshift(socket.read() as Buffer);
        const session = http2.performServerHandshake(socket);
        session.on("error", ignore);
        session.on("stream", (stream, headers) => {
          paths.push(headers[":path"]!);
          stream.respond({ ":status": 204 }, { endStream: true });
        });
      });
    });
    const session = await raw(await listening(front));
    session.headers(1, GET);
    session.headers(3, withPath("/later"));
    await session.until(({ type, stream }) => type === HEADERS && stream === 3);
    expect(paths).toEqual(["/a/x", "/later"]);
  });

  it("a session whose socket may not be half-open closes with its client's FIN", async () => {
    let session!: ServerHttp2Session;
    const server = net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.allowHalfOpen = false;
      session = http2.performServerHandshake(socket);
      session.on("error", ignore);
    });
    const peer = await raw(await listening(server));
    await peer.until(({ type }) => type === SETTINGS);
    const closed = once(session, "close");
    peer.socket.end();
    await closed;
  });

  it(
    "`writeQueueSize` of a socket's handle is 0 when the system has accepted all that a session " +
      "wrote, and more until then",
    async () => {
      const handleOf = (socket: Socket) =>
        (socket as Socket & { _handle?: { readonly writeQueueSize?: number } })._handle;
      const sessions: ServerHttp2Session[] = [];
      const serve = (socket: Socket) => {
        const session = http2.performServerHandshake(socket);
        sessions.push(session);
        session.on("error", ignore);
        session.on("stream", (stream) => {
          stream.on("error", ignore).respond({});
          stream.end(Buffer.alloc(8 * 1024 * 1024));
        });
        sockets.push(socket);
      };
      const sockets: Socket[] = [];
      const secure = tls.createServer({ cert: SERVER.cert, key: SERVER.key, ALPNProtocols: ["h2"] });
      secure.on("secureConnection", serve);
      const ports = [await listening(net.createServer(serve)), await listening(secure)];
      for (const [i, port] of ports.entries()) {
        const socket = await connected(
          i === 0
            ? net.connect(port, "127.0.0.1")
            : tls.connect({ port, host: "127.0.0.1", ALPNProtocols: ["h2"], rejectUnauthorized: false }),
        );
        const peer = http2.connect("http://a", {
          createConnection: () => socket,
          settings: { initialWindowSize: 16 * 1024 * 1024 },
        });
        onTestFinished(() => peer.destroy());
        peer.on("error", ignore);
        await once(peer, "remoteSettings");
        peer.setLocalWindowSize(16 * 1024 * 1024);
        await new Promise((resolve) => peer.ping(resolve));
        expect(handleOf(sockets[i]!)!.writeQueueSize).toBe(0);
        const stream = peer.request({});
        stream.on("error", ignore).end();
        await once(stream, "response");
        // The session reads past the socket's events: only so it stops.
        (handleOf(socket) as unknown as { readStop(): void }).readStop();
        await eventually(() => handleOf(sockets[i]!)!.writeQueueSize! > 0, "a waiting write");
        expect(sessions[i]!.state.outboundQueueSize).toBeTypeOf("number");
        (handleOf(socket) as unknown as { readStart(): void }).readStart();
        stream.resume();
        await once(stream, "end");
        await eventually(() => handleOf(sockets[i]!)!.writeQueueSize === 0, "an empty write queue");
      }
    },
  );

  it(
    "a session stopped by a connection error ends, or keeps in " + "`outboundQueueSize` what it will never send",
    async () => {
      let session!: ServerHttp2Session;
      let stream!: ServerHttp2Stream;
      const port = await h2Port((made) => {
        session = made;
        made.on("stream", (taken) => void (stream = taken).respond({}));
      });
      const peer = await raw(port);
      peer.headers(1, GET);
      await peer.until(({ type }) => type === HEADERS);
      expect(session.state.outboundQueueSize).toBe(0);
      // A stream's number cannot be that of a server's.
      peer.headers(2, GET);
      await peer.goaway();
      if (!stream.destroyed) stream.write("never sent");
      await eventually(
        () => session.destroyed || session.state.outboundQueueSize! > 0,
        "the end of the session, or a frame that it never sends",
      );
    },
  );

  it("`lastProcStreamID` counts a request that Node resets without an event", async () => {
    let session!: ServerHttp2Session;
    let heard = 0;
    const port = await h2Port((made) => {
      session = made;
      made.on("stream", () => heard++);
    });
    const peer = await raw(port);
    peer.headers(1, [...GET, ["X-Upper", "1"]]);
    expect(await peer.reset(1)).toBe(CODES.PROTOCOL_ERROR);
    expect([heard, session.state.lastProcStreamID]).toEqual([0, 1]);
  });

  it("destroy with an error and a code sends that code to the client", async () => {
    let session!: ServerHttp2Session;
    const peer = await raw(await h2Port((made) => void (session = made)));
    await peer.until(({ type }) => type === SETTINGS);
    session.destroy(new Error("enough"), http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    expect(await peer.goaway()).toBe(CODES.ENHANCE_YOUR_CALM);
    await peer.closed();
  });

  it(
    "`stream` and `trailers` give flat lists: pseudo-headers first, order and repeated names kept, " +
      "cookies apart, the end in the flags",
    async () => {
      const seen: unknown[] = [];
      const port = await h2Port((session) => {
        session.on(
          "stream",
          (stream: ServerHttp2Stream, _headers: IncomingHttpHeaders, flags: number, block: string[]) => {
            seen.push((flags & http2.constants.NGHTTP2_FLAG_END_STREAM) !== 0, block);
            stream.on("trailers", (_fields: IncomingHttpHeaders, _flags: number, list: string[]) => seen.push(list));
            stream.resume();
          },
        );
      });
      const peer = await raw(port);
      peer.headers(1, [...GET, ["x-b", "1"], ["cookie", "a"], ["x-a", "caf\xe9"], ["cookie", "b"], ["x-b", "2"]]);
      peer.headers(3, POST, 0);
      peer.headers(3, [
        ["x-t", "1"],
        ["x-t", "2"],
      ]);
      await eventually(() => seen.length === 5, "five requests at the upstream");
      expect(seen).toEqual([
        true,
        [...GET.flat(), "x-b", "1", "cookie", "a", "x-a", "caf\xe9", "cookie", "b", "x-b", "2"],
        false,
        POST.flat(),
        ["x-t", "1", "x-t", "2"],
      ]);
    },
  );
});

describe("Node for lib/server/listener.ts, lib/server/h2_receive.ts and lib/server/h2_request.ts", () => {
  it("a stream that its client resets emits `aborted` before any end of its body", async () => {
    const events: string[] = [];
    const port = await h2Port((session) => {
      session.on("stream", (stream) => {
        for (const event of ["aborted", "end", "close"]) stream.on(event, () => events.push(event));
        stream.resume();
      });
    });
    for (const code of [CODES.NO_ERROR, CODES.CANCEL, CODES.INTERNAL_ERROR]) {
      events.length = 0;
      const session = await raw(port);
      session.headers(1, POST, 0);
      session.send(frame(DATA, 0, 1, Buffer.from("half")), frame(RST_STREAM, 0, 1, number32(code)));
      await eventually(() => events.includes("close"), "the close event");
      session.socket.destroy();
      expect(events[0], `code ${code}`).toBe("aborted");
    }
  });

  it(
    "a stream that closes after a complete reply is finished, " + "not aborted and without a reset, and only then",
    async () => {
      const closed: boolean[] = [];
      const port = await h2Port((session) => {
        session.on("stream", (stream, headers) => {
          stream.once("close", () =>
            closed.push(stream.headersSent && stream.writableFinished && !stream.aborted && stream.rstCode === 0),
          );
          stream.respond({ ":status": 200 });
          if (headers[":path"] === "/a/x") stream.end("whole");
          else stream.write("half");
        });
      });
      const session = await raw(port);
      session.headers(1, GET);
      await eventually(() => closed.length === 1, "the first stream closing");
      session.headers(3, withPath("/half"));
      await session.until(({ type, stream }) => type === DATA && stream === 3);
      session.send(frame(RST_STREAM, 0, 3, number32(CODES.NO_ERROR)));
      await eventually(() => closed.length === 2, "both streams closing");
      expect(closed).toEqual([true, false]);
    },
  );

  it("the socket of an HTTP/2 session has its connection's address, encryption and client certificate", async () => {
    const server = tls.createServer({
      cert: SERVER.cert,
      key: SERVER.key,
      ca: CA.cert,
      requestCert: true,
      ALPNProtocols: ["h2"],
    });
    const seen = new Promise<unknown[]>((resolve) => {
      server.on("secureConnection", (socket) => {
        const session = http2.performServerHandshake(socket);
        session.on("error", ignore);
        session.on("stream", (stream) => {
          const shown = stream.session!.socket as TLSSocket;
          resolve([shown.remoteAddress, shown.encrypted, shown.authorized, shown.getPeerX509Certificate()?.subject]);
        });
      });
    });
    const port = await listening(server);
    const socket = await connected(
      tls.connect({ host: "127.0.0.1", port, ...CLIENT, ALPNProtocols: ["h2"], rejectUnauthorized: false }),
    );
    const session = http2.connect("https://a", { createConnection: () => socket });
    onTestFinished(() => session.destroy());
    session.on("error", ignore);
    session.request({}).on("error", ignore).end();
    expect(await seen).toEqual(["127.0.0.1", true, true, new X509Certificate(CLIENT.cert).subject]);
  });

  it("`remoteClose` is 1 once the client's END_STREAM has arrived, read or not", async () => {
    let stream!: ServerHttp2Stream;
    const peer = await raw(await h2Port((session) => void session.on("stream", (made) => void (stream = made))));
    peer.headers(1, POST, 0);
    await eventually(() => stream !== undefined, "a stream");
    expect(stream.state.remoteClose).toBe(0);
    peer.send(frame(DATA, END_STREAM, 1, Buffer.from("whole")));
    await eventually(() => stream.state.remoteClose === 1, "the END_STREAM");
    expect(stream.readableLength).toBe(5);
  });

  it(
    "an unread body holds up its own stream only: the window of the connection is " + "restored as bytes arrive",
    async () => {
      const streams: ServerHttp2Stream[] = [];
      const port = await h2Port((session) => void session.on("stream", (stream) => void streams.push(stream)));
      const session = await h2Client(port);
      const uploads = Array.from({ length: 4 }, () => session.request({ ":method": "POST" }));
      for (const upload of uploads) upload.on("error", ignore).end(Buffer.alloc(65_535));
      // Together four windows of the connection.
      await eventually(
        () => streams.length === 4 && streams.every((stream) => stream.state.remoteClose === 1),
        "four streams with END_STREAM",
      );
    },
  );
});

describe("Node for lib/http/h2_streams.ts and lib/http/body.ts", () => {
  /**
   * What goes through a stream's own `push`: lengths of chunks, and for an end whether the stream was closed by then.
   */
  function watchPush(
    body: { push(chunk: unknown, encoding?: BufferEncoding): boolean },
    isOver: () => boolean,
  ): (number | "end" | "end of a closed one")[] {
    const seen: (number | "end" | "end of a closed one")[] = [];
    const { push } = body;
    body.push = (chunk, encoding) => {
      if (chunk === null) seen.push(isOver() ? "end of a closed one" : "end");
      else seen.push((chunk as Buffer).length);
      return push.call(body, chunk, encoding);
    };
    return seen;
  }

  it("the body of an HTTP/1 request arrives through its own `push`", async () => {
    let seen!: unknown[];
    const server = http.createServer((request: IncomingMessage, response) => {
      seen = watchPush(request, () => false);
      request.resume().on("end", () => response.end("read"));
    });
    const { send, until } = await client(await listening(server));
    send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    await eventually(() => seen !== undefined, "a request");
    send("2\r\nde\r\n0\r\n\r\n");
    await until("read");
    expect(seen).toEqual(expect.arrayContaining([2, "end"]));
  });

  it("the whole body of a stream arrives through its own `push`, its end before the stream is closed", async () => {
    let seen!: unknown[];
    const port = await h2Port((session) => {
      session.on("stream", (stream) => {
        seen = watchPush(stream, () => stream.closed || stream.destroyed);
        stream.resume();
      });
    });
    const peer = await raw(port);
    peer.headers(1, POST, 0);
    peer.send(frame(DATA, 0, 1, Buffer.from("abc")), frame(DATA, END_STREAM, 1, Buffer.from("de")));
    await eventually(() => seen?.includes("end"), "the end of the body");
    expect(seen).toEqual([3, 2, "end"]);
  });

  it.each(["NO_ERROR", "CANCEL"] as const)(
    "the end of a body that is reset with %s, if Node emits one, arrives when the stream is closed",
    async (name) => {
      let seen!: unknown[];
      let stream!: ServerHttp2Stream;
      const port = await h2Port((session) => {
        session.on("stream", (made) => {
          stream = made;
          seen = watchPush(made, () => made.closed || made.destroyed);
          made.resume();
        });
      });
      const peer = await raw(port);
      peer.headers(1, POST, 0);
      peer.send(frame(DATA, 0, 1, Buffer.from("abc")));
      await eventually(() => seen?.includes(3), "the last part of the body");
      peer.send(frame(RST_STREAM, 0, 1, number32(CODES[name])));
      await once(stream, "close");
      expect(seen).not.toContain("end");
    },
  );

  it(
    "a stream's own `emit` gets `aborted`, `error` and `close`, in this order, " + "although there is no listener",
    async () => {
      const seen: string[] = [];
      let stream!: ServerHttp2Stream;
      const port = await h2Port((session) => {
        session.on("stream", (made) => {
          stream = made;
          const { emit } = stream;
          stream.emit = (...event: Parameters<typeof emit>) => {
            seen.push(event[0] as string);
            return seen.at(-1) === "error" || emit.apply(stream, event);
          };
        });
      });
      const peer = await raw(port);
      peer.headers(1, POST, 0);
      await eventually(() => stream !== undefined, "a stream");
      peer.send(frame(RST_STREAM, 0, 1, number32(CODES.INTERNAL_ERROR)));
      await eventually(() => seen.includes("close"), "the end of the stream");
      expect(seen.filter((name) => ["aborted", "error", "close"].includes(name))).toEqual([
        "aborted",
        "error",
        "close",
      ]);
    },
  );

  it(
    "the end of a response whose connection closes, if Node emits one, " + "arrives when the stream is closed",
    async () => {
      let far!: Socket;
      const port = await rawServer((socket, { type, stream }) => {
        if (type !== HEADERS) return;
        far = socket;
        socket.write(
          Buffer.concat([frame(HEADERS, END_HEADERS, stream, OK), frame(DATA, 0, stream, Buffer.from("abc"))]),
        );
      });
      const stream = (await h2Client(port)).request({});
      const seen = watchPush(stream, () => stream.closed || stream.destroyed);
      stream.on("error", ignore).resume();
      await eventually(() => seen.includes(3), "the last part of the body");
      far.end();
      await once(stream, "close");
      expect(seen).not.toContain("end");
    },
  );

  it("close calls the stream's own `end`: if that does nothing, the other side gets only the reset", async () => {
    const port = await h2Port((session) => {
      session.on("stream", (stream) => {
        stream.respond({});
        stream.write("half");
        stream.once("aborted", ignore);
        setImmediate(() => {
          stream.end = () => stream;
          stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
        });
      });
    });
    const peer = await raw(port);
    peer.headers(1, GET);
    expect(await peer.reset(1)).toBe(CODES.INTERNAL_ERROR);
    expect(peer.frames.some(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0)).toBe(false);
  });

  it(
    "close of a request's stream with its own `end` sends CANCEL without END_STREAM, " +
      "even when it is destroyed at once",
    async () => {
      const frames: string[] = [];
      const port = await rawServer((_socket, { type, flags, stream, payload }) => {
        if (stream === 1)
          frames.push(
            type === RST_STREAM
              ? `reset ${payload.readUInt32BE(0)}`
              : `${type}${(flags & END_STREAM) === 0 ? "" : " end"}`,
          );
      });
      const session = await h2Client(port);
      const stream = session.request({ ":method": "POST" });
      stream.on("error", ignore).write("half");
      await eventually(() => frames.length === 2, "two frames");
      stream.end = () => stream;
      stream.close(http2.constants.NGHTTP2_CANCEL);
      stream.destroy();
      await eventually(() => frames.length === 3, "three frames");
      expect(frames).toEqual([`${HEADERS}`, `${DATA}`, `reset ${CODES.CANCEL}`]);
    },
  );

  it("`closed` is a getter of the prototype, which an own property hides", async () => {
    const port = await h2Port(
      (session) => void session.on("stream", (stream) => void (stream.respond({}), stream.end("whole"))),
    );
    const session = await h2Client(port);
    const stream = session.request({});
    await once(stream, "response");
    const isClosed = () => Reflect.get(Object.getPrototypeOf(stream) as object, "closed", stream) as unknown;
    expect([Object.hasOwn(stream, "closed"), isClosed()]).toEqual([false, false]);
    Object.defineProperty(stream, "closed", {
      configurable: true,
      get: () => (stream.readableEnded || stream.destroyed) && isClosed(),
    });
    await eventually(() => isClosed() === true, "the stream closing");
    expect([stream.closed, stream.readableLength]).toEqual([false, 5]);
    const chunks: string[] = [];
    for await (const chunk of stream) chunks.push(String(chunk));
    expect(chunks).toEqual(["whole"]);
  });
});

describe("Node for lib/server/h2_respond.ts and lib/http/h2_fields.ts", () => {
  it("the END_STREAM of a reply has been sent a turn after `finish`: a reset comes after it", async () => {
    const port = await h2Port((session) => {
      session.on("stream", (stream) => {
        stream.once("finish", () => setImmediate(() => stream.close(http2.constants.NGHTTP2_NO_ERROR)));
        stream.respond({});
        stream.end("reply");
      });
    });
    const peer = await raw(port);
    peer.headers(1, POST, 0);
    expect(await peer.reset(1)).toBe(CODES.NO_ERROR);
    const ends = peer.frames
      .filter(({ stream }) => stream === 1)
      .map(({ type, flags }) => (type === RST_STREAM ? "reset" : (flags & END_STREAM) !== 0 ? "end" : "part"));
    expect(ends.slice(-2)).toEqual(["end", "reset"]);
  });

  it("a field list may hold every name twice, except the known names that Node sends only once", async () => {
    const answers: (number | string)[] = [];
    const port = await h2Port((session) => {
      session.on("stream", (stream, headers) => {
        const name = headers[":path"]!.slice(1);
        try {
          stream.respond({ ":status": 200, ...h2Fields([name, "1", name, "2"]) }, { endStream: true });
        } catch (error) {
          answers.push(`${name}: ${(error as Error).message}`);
          stream.close();
        }
      });
    });
    const session = await h2Client(port);
    for (const name of NAMES) {
      const stream = session.request({ ":path": `/${name}` });
      stream.on("error", ignore).resume();
      // What the names say of such a reply is not looked at, only whether it is sent.
      await new Promise((resolve) => stream.once("close", resolve));
    }
    expect(answers).toEqual([]);
  });
});

/** Names of header fields that are registered and may stand in messages of HTTP/2, and some that many send. */
const NAMES = `accept accept-charset accept-encoding accept-language accept-ranges access-control-allow-credentials \
access-control-allow-headers
  access-control-allow-methods access-control-allow-origin access-control-expose-headers access-control-max-age \
access-control-request-headers
  access-control-request-method age allow alt-svc authorization cache-control cache-status clear-site-data \
content-disposition
  content-encoding content-language content-length content-location content-md5 content-range content-security-policy \
content-type cookie
  cross-origin-opener-policy cross-origin-resource-policy date deprecation digest dnt early-data etag expect expires \
forwarded from host
  if-match if-modified-since if-none-match if-range if-unmodified-since last-event-id last-modified link location \
max-forwards origin
  permissions-policy pragma prefer priority proxy-authenticate proxy-authorization range referer referrer-policy \
refresh retry-after
  sec-fetch-site sec-websocket-key sec-websocket-protocol server server-timing set-cookie strict-transport-security \
sunset tk trailer
  traceparent tracestate upgrade-insecure-requests user-agent vary via want-digest warning www-authenticate \
x-content-type-options
  x-forwarded-for x-frame-options x-real-ip x-request-id x-robots-tag x-xss-protection`.split(/\s+/);

describe("Node for lib/upstream/sessions.ts and lib/upstream/http2_request.ts", () => {
  it(
    "a GOAWAY with an error calls the session's own `destroy` in the turn of its event, " +
      "and closing instead lets streams be answered",
    async () => {
      const port = await rawServer((socket, { type, stream }) => {
        if (type !== HEADERS) return;
        socket.write(frame(GOAWAY, 0, 0, Buffer.concat([number32(stream), number32(CODES.INTERNAL_ERROR)])));
        setImmediate(() =>
          socket.write(
            Buffer.concat([
              frame(HEADERS, END_HEADERS, stream, OK),
              frame(DATA, END_STREAM, stream, Buffer.from("answered")),
            ]),
          ),
        );
      });
      const session = await h2Client(port);
      const order: string[] = [];
      session.on("goaway", () => {
        const { destroy } = session;
        session.destroy = () => {
          order.push("destroy");
          session.destroy = destroy;
          session.close();
        };
        process.nextTick(() => order.push("next tick"));
      });
      const stream = session.request({}) as ClientHttp2Stream;
      stream.on("error", ignore).end();
      expect(Buffer.concat(await stream.toArray()).toString()).toBe("answered");
      expect(order).toEqual(["destroy", "next tick"]);
    },
  );

  it(
    "`headers`, `response` and `trailers` of a request's stream give flat lists, " +
      "which begin with the status if there is one",
    async () => {
      const port = await h2Port((session) => {
        session.on("stream", (stream) => {
          stream.additionalHeaders({ ":status": 103, link: "</a>" });
          stream.respond({ ":status": 200, "set-cookie": ["a", "b"] }, { waitForTrailers: true });
          stream.once("wantTrailers", () => stream.sendTrailers({ "x-t": "1" }));
          stream.end("body");
        });
      });
      const stream = (await h2Client(port)).request({}) as ClientHttp2Stream;
      stream.on("error", ignore);
      const seen = new Map<string, readonly string[]>();
      for (const event of ["headers", "response", "trailers"])
        stream.on(event, (_fields: IncomingHttpHeaders, _flags: number, list: string[]) => seen.set(event, list));
      stream.resume();
      await once(stream, "close");
      expect(seen.get("headers")).toEqual([":status", "103", "link", "</a>"]);
      expect(seen.get("response")?.slice(0, 6)).toEqual([":status", "200", "set-cookie", "a", "set-cookie", "b"]);
      expect(seen.get("trailers")).toEqual(["x-t", "1"]);
    },
  );

  it(
    "a request for which the session has no stream id left fails by an event with " +
      "ERR_HTTP2_OUT_OF_STREAMS, and none of it is sent",
    async () => {
      const streams: number[] = [];
      const port = await rawServer((_socket, { type, stream }) => void (type === HEADERS && streams.push(stream)));
      const session = await h2Client(port);
      await once(session, "remoteSettings");
      (session as ClientHttp2Session & { setNextStreamID(id: number): void }).setNextStreamID(0x7fffffff);
      session.request({}).on("error", ignore);
      await eventually(() => streams.length === 1, "a stream");
      const stream = session.request({});
      const failed = new Promise((resolve) => stream.once("error", resolve));
      expect(await failed).toMatchObject({ code: "ERR_HTTP2_OUT_OF_STREAMS" });
      expect([stream.id, session.destroyed, streams]).toEqual([undefined, false, [0x7fffffff]]);
    },
  );

  it("a stream without a reset has the code NO_ERROR, or none", async () => {
    let side!: Http2Stream;
    const port = await h2Port((session) => void session.on("stream", (stream) => void (side = stream)));
    const stream = (await h2Client(port)).request({ ":method": "POST" });
    stream.on("error", ignore).write("x");
    await eventually(() => side !== undefined, "a stream");
    for (const one of [stream, side]) {
      expect("rstCode" in one).toBe(true);
      expect(one.rstCode ?? http2.constants.NGHTTP2_NO_ERROR).toBe(http2.constants.NGHTTP2_NO_ERROR);
    }
  });

  it("a session can be made over an existing connection, and answers a PING of the other side by itself", async () => {
    let answered = 0;
    const port = await rawServer((socket, { type, flags }) => {
      if (type === SETTINGS && flags === 0) socket.write(frame(PING, 0, 0, Buffer.alloc(8)));
      if (type === PING && flags === 1) answered++;
    });
    await h2Client(port);
    await eventually(() => answered === 1, "the answer to the PING");
  });
});
