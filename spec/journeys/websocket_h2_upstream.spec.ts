import { once } from "node:events";
import { randomBytes } from "node:crypto";
import http from "node:http";
import http2, {
  type ClientHttp2Stream,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type Settings,
} from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { CA, SERVER } from "../support/certs.ts";
import { oneService, running, type Running } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import { fileWith } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { client, get } from "./harness.ts";

const { NGHTTP2_CANCEL, NGHTTP2_NO_ERROR } = http2.constants;
type Parts = Parameters<typeof oneService>[1];

interface Upstream {
  readonly port: number;
  readonly sessions: Set<ServerHttp2Session>;
  readonly sockets: Socket[];
  /** The heads of all requests, and the streams of the WebSocket requests. */
  readonly heads: IncomingHttpHeaders[];
  readonly streams: ServerHttp2Stream[];
}

/** Serves HTTP/2: `talk` gets each extended CONNECT, anything else is answered with "ok". */
async function upstream(
  connection: (stream: ServerHttp2Stream) => void,
  settings: Settings = { enableConnectProtocol: true },
  create: (settings: Settings) => Http2Server = (given) => http2.createServer({ settings: given }),
): Promise<Upstream> {
  const server = create(settings);
  const made = {
    port: 0,
    sessions: new Set<ServerHttp2Session>(),
    sockets: [] as Socket[],
    heads: [] as IncomingHttpHeaders[],
    streams: [] as ServerHttp2Stream[],
  };
  server.on("connection", (socket: Socket) => made.sockets.push(socket));
  server.on("session", (session) => {
    made.sessions.add(session.on("error", () => {}));
    session.once("close", () => made.sessions.delete(session));
  });
  server.on("stream", (stream, headers) => {
    stream.on("error", () => {});
    made.heads.push(headers);
    if (headers[":protocol"] === undefined) {
      stream.respond({ ":status": 200 });
      return void stream.end("ok");
    }
    made.streams.push(stream);
    connection(stream);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    for (const session of made.sessions) session.destroy();
  });
  made.port = (server.address() as AddressInfo).port;
  return made;
}

const accept = (stream: ServerHttp2Stream) => stream.respond({ ":status": 200 });
const echo = (stream: ServerHttp2Stream) => {
  accept(stream);
  stream.pipe(stream);
};

const before = (to: Upstream, parts: Parts = {}): Promise<Running> =>
  running(oneService(to.port, { protocol: "h2c", pool: { max_connections: 1 }, ...parts }, { h2c: true }));

interface Opened {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The stream of the WebSocket, or of the body of another response. */
  readonly side: Duplex;
  readonly received: () => Buffer;
  /** Aborts it: resets the connection over HTTP/1.1, the stream over HTTP/2. */
  readonly abort: () => void;
  /** Whether the gateway has aborted it. */
  readonly broken: () => boolean;
}

type Open = (port: number, headers?: Record<string, string>) => Promise<Opened>;

const WISHES = { "sec-websocket-version": "13", "sec-websocket-protocol": "chat, old" };

const overHttp1: Open = async (port, headers = {}) => {
  const asks = {
    Host: "gw.example",
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    ...WISHES,
    ...headers,
  };
  const request = http.request({ host: "127.0.0.1", port, path: "/a/chat?room=1", headers: asks, agent: false });
  request.on("error", () => {});
  request.end();
  const [response, socket, head] = await new Promise<[http.IncomingMessage, Socket, Buffer]>((resolve) => {
    request.once("upgrade", (...parts) => resolve(parts as [http.IncomingMessage, Socket, Buffer]));
    request.once("response", (answer) => resolve([answer, answer.socket, Buffer.alloc(0)]));
  });
  let failed = false;
  socket.on("error", () => (failed = true));
  onTestFinished(() => void socket.destroy());
  socket.allowHalfOpen = true;
  const switched = response.statusCode === 101;
  return {
    status: response.statusCode!,
    headers: response.headers,
    side: socket,
    received: collect(switched ? socket : response, head),
    abort: () => void socket.resetAndDestroy(),
    broken: () => failed,
  };
};

const overHttp2: Open = async (port, headers = {}) => {
  const session = h2Session(port);
  // A client may send an extended CONNECT only after the server's SETTINGS (RFC 8441 §3).
  await once(session, "remoteSettings");
  const asks = {
    ":method": "CONNECT",
    ":protocol": "websocket",
    ":scheme": "http",
    ":path": "/a/chat?room=1",
    ":authority": "gw.example",
    ...WISHES,
    ...headers,
  };
  const stream: ClientHttp2Stream = session.request(asks, { endStream: false });
  stream.on("error", () => {});
  const [fields] = (await once(stream, "response")) as [IncomingHttpHeaders];
  return {
    status: Number(fields[":status"]),
    headers: fields,
    side: stream,
    received: collect(stream),
    abort() {
      // Node's own client would send END_STREAM before RST_STREAM.
      stream.end = () => stream;
      stream.close(NGHTTP2_CANCEL);
    },
    broken: () => stream.rstCode === NGHTTP2_CANCEL,
  };
};

/** Whether the side is closed; a half-open socket has at least received the other side's FIN. */
const isGone = (side: Duplex) => side.closed || side.readableEnded;

function collect(
  source: { on(event: "data", run: (chunk: Buffer) => void): unknown },
  head: Buffer = Buffer.alloc(0),
): () => Buffer {
  const chunks = [head];
  source.on("data", (chunk: Buffer) => void chunks.push(chunk));
  return () => Buffer.concat(chunks);
}

const KINDS: [string, Open][] = [
  ["HTTP/1.1", overHttp1],
  ["HTTP/2", overHttp2],
];

describe.each(KINDS)("a WebSocket from %s to an upstream over HTTP/2 (RFC 8441)", (kind, open) => {
  it("a WebSocket to an upstream over HTTP/2 is an extended CONNECT to the upstream, without a key", async () => {
    const to = await upstream((stream) =>
      stream.respond({ ":status": 200, "sec-websocket-protocol": "chat", "sec-websocket-accept": "of the upstream" }),
    );
    const { port } = await before(to);
    const { status, headers } = await open(port);
    expect(to.heads[0]).toMatchObject({
      ":method": "CONNECT",
      ":protocol": "websocket",
      ":scheme": "http",
      ":path": "/chat?room=1",
      ":authority": `127.0.0.1:${to.port}`,
      "sec-websocket-version": "13",
      "sec-websocket-protocol": "chat, old",
      "x-forwarded-for": "127.0.0.1",
    });
    for (const name of ["connection", "upgrade", "host", "sec-websocket-key", "content-length"])
      expect(to.heads[0]).not.toHaveProperty(name);
    expect(headers["sec-websocket-protocol"]).toBe("chat");
    if (kind === "HTTP/1.1") {
      expect(status).toBe(101);
      expect(headers).toMatchObject({
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
      });
    } else {
      expect(status).toBe(200);
      for (const name of ["connection", "upgrade", "sec-websocket-accept"]) expect(headers).not.toHaveProperty(name);
    }
  });

  it("a WebSocket to an upstream over HTTP/2 passes megabytes unchanged, both ways at once", async () => {
    const { port } = await before(await upstream(echo));
    const { side, received } = await open(port);
    const sent = randomBytes(5 * 1024 * 1024 + 1);
    side.end(sent);
    await once(side, "end");
    expect(received().equals(sent)).toBe(true);
  });

  it(
    "a WebSocket to an upstream over HTTP/2 shares its upstream connection with other requests, " +
      "and releases its stream once when it ends",
    async () => {
      const to = await upstream(echo, { enableConnectProtocol: true, maxConcurrentStreams: 1 });
      const { port, gateway } = await before(to, { timeouts: { connect_ms: 300 } });
      const { side, received } = await open(port);
      side.write("hello");
      await eventually(() => received().toString() === "hello", "the bytes 'hello'");
      expect((await ask(port, { path: "/a/x" })).status).toBe(503);
      side.end();
      await eventually(() => gateway.inFlight === 0, "no request being in flight");
      const answers = [await ask(port, { path: "/a/x" }), await ask(port, { path: "/a/x" })];
      expect(answers.map(({ status }) => status)).toEqual([200, 200]);
      expect(to.sessions.size).toBe(1);
    },
  );

  it("a WebSocket to an upstream over HTTP/2 lets either side end alone: END_STREAM stands for FIN", async () => {
    let far = "";
    const to = await upstream((stream) => {
      accept(stream);
      stream.on("data", (chunk: Buffer) => (far += chunk.toString()));
    });
    const { port, gateway } = await before(to);
    const first = await open(port);
    first.side.end("over");
    await once(to.streams[0]!, "end");
    expect(far).toBe("over");
    to.streams[0]!.write("still ");
    await eventually(() => first.received().toString() === "still ", "the bytes 'still '");
    to.streams[0]!.end("here");
    await once(first.side, "end");
    expect(first.received().toString()).toBe("still here");

    far = "";
    const second = await open(port);
    to.streams[1]!.end("bye");
    await once(second.side, "end");
    expect(second.received().toString()).toBe("bye");
    second.side.end("last words");
    await once(to.streams[1]!, "end");
    expect(far).toBe("last words");
    await eventually(
      () => gateway.inFlight === 0 && to.streams.every(({ closed }) => closed),
      "no request being in flight and the stream closing",
    );
    expect([...to.streams.map(({ rstCode }) => rstCode), first.broken(), second.broken()]).toEqual([
      NGHTTP2_NO_ERROR,
      NGHTTP2_NO_ERROR,
      false,
      false,
    ]);
  });

  it(
    "a WebSocket to an upstream over HTTP/2 resets the upstream's stream with CANCEL " + "when the client disconnects",
    async () => {
      const to = await upstream(echo);
      const { port, gateway } = await before(to);
      const { abort, side, received } = await open(port);
      side.write("x");
      await eventually(() => received().length === 1, "a byte");
      abort();
      await eventually(
        () => to.streams[0]!.closed && gateway.inFlight === 0,
        "the stream closing and no request being in flight",
      );
      expect(to.streams[0]!.rstCode).toBe(NGHTTP2_CANCEL);
      expect(to.streams[0]!.aborted).toBe(true);
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(to.sessions.size).toBe(1);
    },
  );

  it.each<[string, (to: Upstream) => void]>([
    [
      "resets the stream",
      ({ streams: [stream] }) => {
        stream!.end = () => stream!;
        stream!.close(NGHTTP2_CANCEL);
      },
    ],
    ["loses its connection", ({ sockets }) => void sockets[0]!.destroy()],
  ])("disconnects the client when the upstream %s", async (_how, end) => {
    const to = await upstream(accept);
    const { port, gateway } = await before(to);
    const { side, broken } = await open(port);
    end(to);
    await eventually(() => side.closed, "the stream closing");
    expect(broken()).toBe(true);
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });

  it(
    "a WebSocket to an upstream over HTTP/2 stays open while bytes pass, " +
      "and ends on both sides after idle_ms of silence",
    async () => {
      const to = await upstream(echo);
      // Many times the pause between two bytes: a busy machine makes each longer.
      const { port, gateway } = await before(to, { timeouts: { idle_ms: 700 } });
      const { side, received } = await open(port);
      for (let beats = 1; beats <= 10; beats++) {
        await new Promise((resolve) => setTimeout(resolve, 80));
        side.write("x");
      }
      await eventually(() => received().length === 10, "ten bytes");
      await eventually(
        () => isGone(side) && to.streams[0]!.closed && gateway.inFlight === 0,
        "the connection closing and the stream closing and no request being in flight",
      );
      expect(to.streams[0]!.rstCode).toBe(NGHTTP2_CANCEL);
    },
  );

  it("a WebSocket to an upstream over HTTP/2 applies back-pressure both ways when a side does not read", async () => {
    const to = await upstream(accept);
    const { port } = await before(to);
    const piece = Buffer.alloc(64 * 1024);
    const { side } = await open(port);
    side.pause();
    to.streams[0]!.pause();
    const written = [side, to.streams[0]!].map((from) => {
      const count = { bytes: 0 };
      const push = () => {
        for (let room = true; room && count.bytes < 200_000_000; count.bytes += piece.length) room = from.write(piece);
      };
      from.on("drain", push);
      push();
      return count;
    });
    // No progress for some turns, with bytes waiting on both sides.
    let earlier = -1;
    let turns = 0;
    await eventually(() => {
      const moved = written[0]!.bytes + written[1]!.bytes;
      turns = moved === earlier && side.writableNeedDrain && to.streams[0]!.writableNeedDrain ? turns + 1 : 0;
      earlier = moved;
      return turns === 20;
    }, "both senders being held back");
    for (const { bytes } of written) expect(bytes).toBeLessThan(60_000_000);
  });

  it(
    "a WebSocket to an upstream over HTTP/2 passes a refusal on as an ordinary " + "response, and releases its stream",
    async () => {
      const to = await upstream(
        (stream) => {
          stream.respond({ ":status": 403, "x-why": "members only", "content-length": 3 });
          stream.end("no\n");
        },
        { enableConnectProtocol: true, maxConcurrentStreams: 1 },
      );
      const { port, gateway } = await before(to);
      const { status, headers, received } = await open(port);
      expect([status, headers["x-why"]]).toEqual([403, "members only"]);
      await eventually(
        () => received().toString() === "no\n" && gateway.inFlight === 0,
        "the bytes 'no\n' and no request being in flight",
      );
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    },
  );

  it(
    "a WebSocket to an upstream over HTTP/2 answers 502 when the upstream's settings do not allow it, " +
      "and sends the upstream no request",
    async () => {
      const to = await upstream(echo, {});
      const { port } = await before(to);
      const { status, received } = await open(port);
      expect(status).toBe(502);
      await eventually(() => received().includes("\n"), "the upstream's refusal");
      expect(JSON.parse(received().toString())).toMatchObject({
        code: "upstream_invalid",
        detail: expect.stringMatching(/accepts no WebSockets/) as string,
      });
      expect(to.heads).toEqual([]);
    },
  );

  it(
    "a WebSocket to an upstream over HTTP/2 is waited for by a drain, " +
      "and cut off when the grace period has passed",
    async () => {
      const to = await upstream(echo);
      const first = await before(to);
      const ended = await open(first.port);
      const closing = first.gateway.close(10_000);
      ended.side.write("meanwhile");
      await eventually(() => ended.received().toString() === "meanwhile", "the bytes 'meanwhile'");
      ended.side.end();
      expect(await closing).toBe("drained");

      const second = await before(to);
      const cut = await open(second.port);
      expect(await second.gateway.close(50)).toBe("cut");
      await eventually(
        () => isGone(cut.side) && to.streams[1]!.closed && to.sessions.size === 0,
        "the connection closing and the stream closing and the connections to the upstream closing",
      );
    },
  );

  it("a WebSocket to an upstream over HTTP/2 stays open over a reload that removes its service", async () => {
    const to = await upstream(echo);
    const { port, gateway } = await before(to);
    const { side, received } = await open(port);
    await gateway.reload(oneService(9, { base_path: "/other" }, { h2c: true }));
    side.end("still here");
    await once(side, "end");
    expect(received().toString()).toBe("still here");
    await eventually(() => to.sessions.size === 0, "the connections to the upstream closing");
  });
});

it("tunnels a WebSocket over TLS on both sides", async () => {
  const to = await upstream(echo, { enableConnectProtocol: true }, (settings) =>
    http2.createSecureServer({ cert: SERVER.cert, key: SERVER.key, settings }),
  );
  const { port } = await before(to, { protocol: "h2", tls: { ca: fileWith(CA.cert, "ca.pem") } });
  const { side, received } = await overHttp1(port);
  side.write("hello");
  await eventually(() => received().toString() === "hello", "the bytes 'hello'");
  expect(to.heads[0]).toMatchObject({ ":scheme": "https", ":protocol": "websocket" });
});

it(
  "answers 400 to an HTTP/1.1 client without a Sec-WebSocket-Key, " + "which an HTTP/2 upstream would not check",
  async () => {
    const to = await upstream(echo);
    const { port } = await before(to);
    const { status } = await overHttp1(port, { "Sec-WebSocket-Key": "short" });
    expect(status).toBe(400);
    expect(to.heads).toEqual([]);
  },
);

it("keeps what clients send before the upstream has answered, and forwards it", async () => {
  const to = await upstream(() => {});
  const { port } = await before(to);
  const first = await client(port);
  const lines = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
  ];
  first.send(`${get("/a/x", ...lines)}early`);
  const session = h2Session(port);
  await once(session, "remoteSettings");
  const second = session.request(
    { ":method": "CONNECT", ":protocol": "websocket", ":path": "/a/x" },
    { endStream: false },
  );
  const received = collect(second.on("error", () => {}));
  second.write("early");
  await eventually(() => to.streams.length === 2, "two streams");
  expect(to.streams.map(({ readableLength }) => readableLength)).toEqual([0, 0]);
  to.streams.forEach(echo);
  expect(await first.until("early")).toMatch(/^HTTP\/1\.1 101 [^]*\r\n\r\nearly$/);
  await eventually(() => received().toString() === "early", "the bytes 'early'");
});

it.each(KINDS)(
  "cancels the upstream request when a client over %s disconnects before the answer",
  async (_kind, open) => {
    const to = await upstream(() => {});
    const { port, gateway } = await before(to);
    if (open === overHttp1) {
      const connection = await client(port);
      connection.send(
        get("/a/x", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
      );
      await eventually(() => to.streams.length === 1, "a stream");
      connection.socket.destroy();
    } else {
      const session = h2Session(port);
      await once(session, "remoteSettings");
      session
        .request({ ":method": "CONNECT", ":protocol": "websocket", ":path": "/a/x" }, { endStream: false })
        .on("error", () => {});
      await eventually(() => to.streams.length === 1, "a stream");
      session.destroy();
    }
    await eventually(
      () => to.streams[0]!.closed && gateway.inFlight === 0,
      "the stream closing and no request being in flight",
    );
    expect(to.streams[0]!.rstCode).toBe(NGHTTP2_CANCEL);
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
    expect(to.sessions.size).toBe(1);
  },
);
