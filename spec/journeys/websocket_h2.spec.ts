import { once } from "node:events";
import { createHash } from "node:crypto";
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import type { Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { SERVER } from "../support/certs.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2TlsSession, h2WebSocketSession } from "../support/h2_client.ts";
import {
  CODES,
  DATA,
  END_STREAM,
  frame,
  HEADERS,
  number32,
  rawSession,
  RST_STREAM,
  SETTINGS,
} from "../support/h2_raw.ts";
import { eventually } from "../support/raw_client.ts";
import { byteBackend, gate, get, client } from "./harness.ts";

const on = { h2c: true };
const upgradeHeaders = {
  ":method": "CONNECT",
  ":protocol": "websocket",
  ":scheme": "http",
  "sec-websocket-version": "13",
};

const acceptOf = (head: string): string => {
  const key = /\r\nSec-WebSocket-Key: (\S+)\r\n/i.exec(head)?.[1] ?? "";
  return createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
};

const yes = (head: string, ...lines: string[]): string =>
  [
    "HTTP/1.1 101 Switching Protocols",
    "Connection: Upgrade",
    "Upgrade: websocket",
    `Sec-WebSocket-Accept: ${acceptOf(head)}`,
    ...lines,
    "",
    "",
  ].join("\r\n");

/** Calls `talk` with each connection and the head of its first request. */
async function upstream(connection: (socket: Socket, head: string) => void) {
  const heads: string[] = [];
  const made = await byteBackend((socket) => {
    socket.once("data", (chunk: Buffer) => {
      heads.push(chunk.toString("latin1"));
      connection(socket, heads.at(-1)!);
    });
  });
  return Object.assign(made, { heads });
}

const echo = (...lines: string[]) =>
  upstream((socket, head) => {
    socket.write(yes(head, ...lines));
    socket.pipe(socket);
  });

interface Opened {
  readonly stream: ClientHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  readonly text: () => string;
}

async function open(port: number, more: OutgoingHttpHeaders = {}, session?: ClientHttp2Session): Promise<Opened> {
  const stream = (session ?? (await h2WebSocketSession(port))).request(
    { ...upgradeHeaders, ":path": "/a/chat?room=1", ":authority": "gw.example", ...more },
    { endStream: false },
  );
  stream.on("error", () => {});
  let text = "";
  stream.on("data", (chunk: Buffer) => (text += chunk.toString("latin1")));
  const [headers] = (await once(stream, "response")) as [IncomingHttpHeaders];
  return { stream, headers, text: () => text };
}

describe("a WebSocket over HTTP/2 (RFC 8441)", () => {
  it(
    "a WebSocket over HTTP/2 is an ordinary upgrade to the upstream with the gateway's own " +
      "key, and a 200 to the client",
    async () => {
      const origin = await echo("Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Extensions: permessage-deflate");
      const { port } = await running(oneService(origin.port, {}, on));
      const wishes = {
        "sec-websocket-protocol": "chat, old",
        "sec-websocket-extensions": "permessage-deflate",
        "sec-websocket-key": "of the client",
      };
      const { stream, headers, text } = await open(port, wishes);
      const [head] = origin.heads;
      expect(head).toMatch(/^GET \/chat\?room=1 HTTP\/1\.1\r\n/);
      expect(head).toMatch(/\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n/);
      expect(head).toMatch(/\r\nSec-WebSocket-Key: [A-Za-z0-9+/]{22}==\r\n/);
      expect(head).not.toMatch(/of the client|:protocol/);
      expect(head).toMatch(/\r\nsec-websocket-version: 13\r\n/i);
      expect(head).toMatch(/\r\nsec-websocket-protocol: chat, old\r\n/i);
      expect(headers).toMatchObject({
        ":status": 200,
        "sec-websocket-protocol": "chat",
        "sec-websocket-extensions": "permessage-deflate",
      });
      for (const name of ["sec-websocket-accept", "connection", "upgrade"]) expect(headers).not.toHaveProperty(name);
      stream.write("hello");
      await eventually(() => text() === "hello", "the bytes 'hello'");
    },
  );

  it("a WebSocket over HTTP/2 works over TLS, beside other streams of its connection", async () => {
    const origin = await echo();
    const { gateway } = await running(oneService(origin.port));
    const { port } = await gateway.listen({
      port: 0,
      tls: { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false },
    });
    const session = await h2TlsSession(port);
    await once(session, "remoteSettings");
    const both = [await open(port, { ":scheme": "https" }, session), await open(port, { ":scheme": "https" }, session)];
    both.forEach(({ stream }, i) => stream.write(`to ${i}`));
    await eventually(() => both.every(({ text }, i) => text() === `to ${i}`), "the bytes of both WebSockets");
  });

  it(
    "a WebSocket over HTTP/2 passes what the client sends before the answer, " + "and what follows the upstream's head",
    async () => {
      const answer = gate();
      const origin = await upstream((socket, head) => {
        void answer.opened.then(() => {
          socket.write(yes(head) + "<first>");
          socket.pipe(socket);
        });
      });
      const { port } = await running(oneService(origin.port, {}, on));
      const stream = (await h2WebSocketSession(port)).request(
        { ...upgradeHeaders, ":path": "/a/x" },
        { endStream: false },
      );
      let text = "";
      stream.on("error", () => {}).on("data", (chunk: Buffer) => (text += chunk.toString()));
      stream.write("early");
      await eventually(() => origin.heads.length === 1, "a request at the upstream");
      answer.open();
      await eventually(() => text === "<first>early", "the bytes '<first>early'");
    },
  );

  it(
    "a WebSocket over HTTP/2 answers 502 to a wrong Sec-WebSocket-Accept, " + "and closes the upstream's connection",
    async () => {
      const origin = await upstream((socket) => void socket.write(yes("")));
      const { port } = await running(oneService(origin.port, {}, on));
      const { headers, text, stream } = await open(port);
      await eventually(() => stream.closed, "the stream closing");
      expect(headers[":status"]).toBe(502);
      expect(JSON.parse(text())).toMatchObject({ code: "upstream_invalid" });
      await eventually(() => origin.sockets.size === 0, "the connections to the upstream closing");
    },
  );

  it("a WebSocket over HTTP/2 passes a refused upgrade on as an ordinary response", async () => {
    const origin = await upstream(
      (socket) => void socket.write("HTTP/1.1 426 Upgrade Required\r\nX-Why: old\r\nContent-Length: 4\r\n\r\nno\r\n"),
    );
    const { port, gateway } = await running(oneService(origin.port, {}, on));
    const { headers, text, stream } = await open(port);
    await eventually(() => stream.closed, "the stream closing");
    expect(headers).toMatchObject({ ":status": 426, "x-why": "old" });
    expect(text()).toBe("no\r\n");
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
  });

  it("a WebSocket over HTTP/2 runs the plugins, as a GET", async () => {
    const origin = await echo();
    const guarded = {
      routes: [{ path: "/{rest*}", methods: ["GET"] }],
      plugins: [{ name: "key_auth", config: { key: "secret" } }],
    };
    const { port } = await running(oneService(origin.port, guarded, on));
    expect((await open(port)).headers[":status"]).toBe(401);
    expect(origin.heads).toEqual([]);
    expect((await open(port, { apikey: "secret" })).headers[":status"]).toBe(200);
  });

  it.each<[string, OutgoingHttpHeaders, boolean]>([
    ["another :protocol", { ":protocol": "connect-udp" }, false],
    ["a Content-Length", { "content-length": "5" }, false],
    ["END_STREAM in its request", {}, true],
  ])("a WebSocket over HTTP/2 answers 400 to %s", async (_what, more, endStream) => {
    const origin = await echo();
    const { port } = await running(oneService(origin.port, {}, on));
    const connection = await rawSession(port);
    onTestFinished(() => void connection.socket.destroy());
    const fields = Object.entries({ ...upgradeHeaders, ":path": "/a/x", ":authority": "gw.example", ...more }) as [
      string,
      string,
    ][];
    fields.sort(([a], [b]) => Number(b.startsWith(":")) - Number(a.startsWith(":")));
    connection.headers(1, fields, endStream ? END_STREAM : 0);
    if (more["content-length"] !== undefined) connection.send(frame(DATA, 0, 1, Buffer.from("12345")));
    const { payload } = await connection.until(({ type, stream }) => type === DATA && stream === 1);
    expect(JSON.parse(payload.toString())).toMatchObject({ status: 400, code: "bad_request" });
    expect(origin.heads).toEqual([]);
  });

  it("a WebSocket over HTTP/2 advertises extended CONNECT in its SETTINGS", async () => {
    const { port } = await running(oneService(9, {}, on));
    const connection = await rawSession(port);
    onTestFinished(() => void connection.socket.destroy());
    const { payload } = await connection.until(({ type, flags }) => type === SETTINGS && flags === 0);
    expect(payload.toString("hex")).toMatch(/000800000001/);
  });
});

describe("the end of a WebSocket over HTTP/2", () => {
  async function joined(parts: Parameters<typeof oneService>[1] = {}) {
    let socket: Socket | null = null;
    let received = "";
    const how: string[] = [];
    const origin = await upstream((each, head) => {
      socket = each;
      each.on("data", (chunk: Buffer) => (received += chunk.toString()));
      each.on("end", () => how.push("end"));
      each.on("error", (error: NodeJS.ErrnoException) => how.push(error.code!));
      each.write(yes(head));
    });
    const { port, gateway } = await running(oneService(origin.port, parts, on));
    const { stream, text } = await open(port);
    return { gateway, origin, stream, text, far: socket as unknown as Socket, how, received: () => received };
  }

  it("translates END_STREAM to FIN and FIN to END_STREAM, and lets either side continue alone", async () => {
    const { stream, text, far, how, received, gateway, origin } = await joined();
    far.allowHalfOpen = true;
    stream.end("over");
    await eventually(() => received() === "over" && how.includes("end"), "the client's last bytes and its FIN");
    far.write("still here");
    await eventually(() => text() === "still here", "the bytes 'still here'");
    const ended = once(stream, "end");
    far.end();
    await ended;
    await eventually(
      () => stream.closed && gateway.inFlight === 0 && origin.sockets.size === 0,
      "the stream closing and no request being in flight and the connections to the upstream closing",
    );
    expect(stream.rstCode).toBe(CODES.NO_ERROR);
    expect(how).toEqual(["end"]);
  });

  it("resets the upstream's connection when the client resets the stream", async () => {
    // By frames, because close() of Node's client sends END_STREAM before RST_STREAM.
    const how: string[] = [];
    const origin = await upstream((socket, head) => {
      socket.on("error", (error: NodeJS.ErrnoException) => how.push(error.code!)).on("end", () => how.push("end"));
      socket.write(yes(head));
    });
    const { port, gateway } = await running(oneService(origin.port, {}, on));
    const connection = await rawSession(port);
    onTestFinished(() => void connection.socket.destroy());
    connection.headers(
      1,
      [...Object.entries(upgradeHeaders).slice(0, 3), [":path", "/a/x"], [":authority", "gw.example"]],
      0,
    );
    await connection.until(({ type, stream }) => type === HEADERS && stream === 1);
    connection.send(frame(RST_STREAM, 0, 1, number32(CODES.CANCEL)));
    await eventually(
      () => origin.sockets.size === 0 && gateway.inFlight === 0,
      "the connections to the upstream closing and no request being in flight",
    );
    expect(how).toEqual(["ECONNRESET"]);
  });

  it("resets the stream with CANCEL when the upstream resets its connection", async () => {
    const origin = await upstream((socket, head) => void socket.write(yes(head)));
    const { port } = await running(oneService(origin.port, {}, on));
    const connection = await rawSession(port);
    onTestFinished(() => void connection.socket.destroy());
    connection.headers(
      1,
      [...Object.entries(upgradeHeaders).slice(0, 3), [":path", "/a/x"], [":authority", "gw.example"]],
      0,
    );
    await connection.until(({ type, stream }) => type === HEADERS && stream === 1);
    for (const socket of origin.sockets) socket.resetAndDestroy();
    expect(await connection.reset(1)).toBe(CODES.CANCEL);
    expect(connection.frames.filter(({ type, flags }) => type === DATA && (flags & END_STREAM) !== 0)).toEqual([]);
  });

  it("resets the stream with CANCEL and closes the upstream's connection after idle_ms of silence", async () => {
    const { stream, far } = await joined({ timeouts: { idle_ms: 80 } });
    await eventually(() => stream.closed && far.destroyed, "the stream closing and the connection closing");
    expect(stream.rstCode).toBe(CODES.CANCEL);
  });

  it("applies back-pressure both ways when a side does not read", async () => {
    const piece = Buffer.alloc(64 * 1024);
    const { stream, far } = await joined();
    far.pause();
    let sent = 0;
    const push = () => {
      for (let room = true; room && sent < 200_000_000; sent += piece.length) room = stream.write(piece);
    };
    stream.on("drain", push);
    push();
    const other = await joined();
    other.stream.pause();
    let written = 0;
    const push2 = () => {
      for (let room = true; room && written < 200_000_000; written += piece.length) room = other.far.write(piece);
    };
    other.far.on("drain", push2);
    push2();
    // No progress for some turns, with bytes waiting on both sides.
    let before = -1;
    await eventually(() => {
      const moved = sent + written;
      const still = moved === before && stream.writableNeedDrain && other.far.writableNeedDrain;
      before = moved;
      return still;
    }, "both senders being held back");
    expect(sent).toBeLessThan(60_000_000);
    expect(written).toBeLessThan(60_000_000);
  });

  it("the end of a WebSocket over HTTP/2 comes when the grace period of a drain has passed, not earlier", async () => {
    const { stream, text, far, gateway } = await joined();
    const closing = gateway.close(150);
    far.write("meanwhile");
    await eventually(() => text() === "meanwhile", "the bytes 'meanwhile'");
    expect(await closing).toBe("cut");
    await eventually(() => stream.closed && far.destroyed, "the stream closing and the connection closing");
    expect(gateway.inFlight).toBe(0);
  });

  it(
    "the end of a WebSocket over HTTP/2 comes with the grace period over HTTP/1.1 too, " +
      "and one that closes by itself before is not cut off",
    async () => {
      const origin = await echo();
      const { port, gateway } = await running(oneService(origin.port, {}, on));
      const connection = await client(port);
      connection.send(
        get(
          "/a/x",
          "Connection: Upgrade",
          "Upgrade: websocket",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
          "Sec-WebSocket-Version: 13",
        ),
      );
      await connection.until("101 Switching");
      const closing = gateway.close(5_000);
      connection.send("meanwhile");
      await connection.until("meanwhile");
      connection.socket.end();
      expect(await closing).toBe("drained");
    },
  );
});
