import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { PassThrough } from "node:stream";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { WriteBatch, type ReadyWrite } from "../../lib/base/event_loop.ts";
import { createGateway } from "../../lib/index.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { Listener, type ListenerOptions } from "../../lib/server/listener.ts";
import type { Inbound } from "../../lib/server/inbound.ts";
import { client, get, statusesIn } from "../journeys/harness.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { CA, SERVER } from "../support/certs.ts";
import { backend, hosted, oneService } from "../support/gateway.ts";
import { codec } from "../support/codec.ts";
import { defaultLimits } from "../support/limits.ts";
import { features } from "../support/listener_features.ts";
import { freePort } from "../support/origin.ts";
import { connect, eventually, overSocket, refused, type RawConnection } from "../support/raw_client.ts";

async function listening(
  serve: ListenerOptions["serve"],
  handshakeMs?: number,
  h2c = false,
  writeBatch = new WriteBatch(),
) {
  const clock = manualClock();
  const ended: Inbound[] = [];
  const errors: string[] = [];
  const log = { debug() {}, info() {}, warn() {}, error: (message: string) => void errors.push(message) };
  const listener = new Listener({
    features,
    clock,
    log,
    serve,
    writeBatch,
    receiving: () => ({ clock, proxies: null, limits: defaultLimits }),
    protocols: () => ({ http1: "wire", http2: true, h2c, proxyProtocol: "off" as const }),
    ...(handshakeMs === undefined ? {} : { handshakeMs }),
    ended: (inbound) => void ended.push(inbound),
    join: () => {},
  });
  onTestFinished(() => listener.destroy());
  const { port } = await listener.listenPlain("127.0.0.1", 0);
  return { clock, ended, errors, port, listener };
}

const FILES = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };
const fine = (): Reply => ({ status: 200, headers: [], body: Buffer.from("ok") });

it(
  "takes a port only to give it back where others are to listen on it: over TLS too, " +
    "a port in use is an error, and clients are refused",
  async () => {
    const clock = manualClock();
    const [log, receiving] = [
      { debug() {}, info() {}, warn() {}, error() {} },
      () => ({ clock, proxies: null, limits: defaultLimits }),
    ];
    const listener = new Listener({ features, clock, log, serve: fine, receiving, ports: "taken" });
    onTestFinished(() => listener.destroy());
    // Ports that no other process is given meanwhile.
    const addresses = [
      await listener.listenPlain("127.0.0.1", await freePort()),
      await listener.listenSecure("127.0.0.1", await freePort(), FILES),
    ];
    for (const { port } of addresses) await expect(client(port)).rejects.toThrow("ECONNREFUSED");
    const { port } = await listening(fine);
    await expect(listener.listenPlain("127.0.0.1", port)).rejects.toThrow("EADDRINUSE");
  },
);

it("serves a connection by our own codec where a reload names Node's while it is accepted", async () => {
  const clock = manualClock();
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  let asked = 0;
  const protocols = () =>
    ({ http1: asked++ === 0 ? "wire" : "node", http2: true, h2c: false, proxyProtocol: "off" as const }) as const;
  const serve = ({ body }: Inbound): Reply => ({ status: 200, headers: [], body });
  const listener = new Listener({
    features,
    clock,
    log,
    serve,
    protocols,
    receiving: () => ({ clock, proxies: null, limits: defaultLimits }),
  });
  onTestFinished(() => listener.destroy());
  const { port } = await listener.listenPlain("127.0.0.1", 0);
  const { send, until } = await client(port);
  send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
  send("body");
  expect(await until("body")).toContain("200 OK");
  expect(asked).toBe(1);
});

it("calls ended once for each request", async () => {
  const { port, ended } = await listening(fine);
  const talk = await client(port);
  talk.send(get("/1") + get("/2", "Host: two") + get("/3"));
  await talk.closed();
  expect(ended.map(({ target }) => target)).toEqual(["/1", "/2"]);
});

it("aborts a call when its client disconnects, and closes it when its reply was sent", async () => {
  const asked: ((reply: Reply) => void)[] = [];
  const { port, ended } = await listening(() => new Promise((resolve) => asked.push(resolve)));
  const talk = await client(port);
  talk.send(get("/1"));
  await eventually(() => asked.length === 1, "one request");
  asked[0]!(fine());
  await talk.until("ok");
  talk.send(get("/2"));
  await eventually(() => asked.length === 2, "two requests");
  talk.socket.end();
  await eventually(() => ended.length === 2, "two ended calls");
  expect(ended.map(({ call }) => call.aborted)).toEqual([false, true]);
});

/** Timers that run as long as there are HTTP/1 connections: our own codec looks at all of them once a second. */
const LOOKS = codec === "wire" ? 1 : 0;

it.each([
  ["a promise that is rejected", () => Promise.reject(new Error("no"))],
  [
    "an error that is thrown",
    () => {
      throw new Error("no");
    },
  ],
  ["a reply that is none", () => undefined as never],
])("answers %s with 500, logs it, and serves the next request", async (_what, bad) => {
  const { port, errors } = await listening((inbound) => (inbound.target === "/bad" ? bad() : fine()));
  const talk = await client(port);
  talk.send(get("/bad"));
  expect(await talk.until("internal")).toMatch(/^HTTP\/1\.1 500 /);
  expect(errors).toEqual(["a reply could not be sent"]);
  const next = await client(port);
  next.send(get("/"));
  await next.until("ok");
});

describe.each(["plain", "plain, where HTTP/2 is spoken too", "over TLS"])(
  "a client that pipelines without end, %s,",
  (how) => {
    const MANY = 20_000;

    it(
      "a client that pipelines without end has at most 64 requests and one read parsed behind a slow request, " +
        "none by our own codec, and gets all replies in the end",
      async () => {
        const first: ((reply: Reply) => void)[] = [];
        const asked: string[] = [];
        const serve = (inbound: Inbound) => (
          asked.push(inbound.target),
          inbound.target === "/slow" ? new Promise<Reply>((resolve) => first.push(resolve)) : fine()
        );
        const { port: plain, listener, ended } = await listening(serve, undefined, how.includes("HTTP/2"));
        const port = how === "over TLS" ? (await listener.listenSecure("127.0.0.1", 0, FILES)).port : plain;
        const host = "127.0.0.1";
        const socket =
          how === "over TLS"
            ? tls.connect({ port, host, servername: "localhost", ca: CA.cert })
            : net.connect(port, host);
        onTestFinished(() => void socket.destroy());
        const parsed =
          codec === "node" ? countParsed(port) : () => asked.filter((target) => target !== "/other").length;
        const talk = overSocket(socket);
        talk.send(get("/slow") + get("/").repeat(MANY) + get("/last", "Connection: close"));
        await eventually(() => parsed() >= (codec === "node" ? 64 : 1), "the parsed requests");
        const other = await client(plain);
        for (let i = 1; i <= 100; i++) {
          other.send(get("/other"));
          await eventually(() => statusesIn(other.text()).length === i, "the next reply");
        }
        expect(parsed()).toBeLessThan(codec === "node" ? 64 + (2 * 65_536) / get("/").length : 2);
        first[0]!(fine());
        await talk.closed();
        expect(ended).toHaveLength(100 + 1 + MANY + 1);
      },
    );
  },
);

/** Requests that node has parsed on connections to this port. */
function countParsed(port: number): () => number {
  let parsed = 0;
  const count = (message: unknown) => {
    if ((message as { socket: net.Socket }).socket.localPort === port) parsed++;
  };
  subscribe("http.server.request.start", count);
  onTestFinished(() => void unsubscribe("http.server.request.start", count));
  return () => parsed;
}

it.each<[string, string, (talk: RawConnection, clock: ManualClock) => void]>([
  ["arrives too slowly", "Content-Length: 100\r\n\r\nhalf", (_talk, clock) => clock.advance(30_000)],
  ["is found to be broken", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", (talk) => talk.send("no size\r\n")],
])(
  "sends a complete reply that waits to be written although the upload of its client %s in the same turn",
  async (_what, upload, act) => {
    class Held extends WriteBatch {
      readonly held: ReadyWrite[] = [];
      override add(write: ReadyWrite): void {
        this.held.push(write);
      }
      override now(): void {
        for (const write of this.held.splice(0)) write.writeNow();
      }
    }
    const writeBatch = new Held();
    const { port, clock } = await listening(({ body }) => (body!.resume(), fine()), undefined, false, writeBatch);
    const talk = await client(port);
    talk.send(`POST / HTTP/1.1\r\nHost: h\r\n${upload}`);
    await eventually(() => writeBatch.held.length === 1, "the reply");
    for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve));
    act(talk, clock);
    expect(statusesIn(await talk.until(/ok$/))).toEqual([200]);
    talk.socket.end();
    await talk.closed();
  },
);

it("cuts off an upload that is not read for five seconds", async () => {
  const { port, clock } = await listening(fine);
  const talk = await client(port);
  talk.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf");
  await talk.until("ok");
  await eventually(() => clock.pending === 1, "a pending timer");
  clock.advance(4_999);
  expect(talk.socket.destroyed).toBe(false);
  clock.advance(1);
  await talk.closed();
  expect(clock.pending).toBe(0);
});

it("keeps the connection of an upload that ends in time, and no timer", async () => {
  const { port, clock } = await listening(fine);
  const talk = await client(port);
  talk.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf");
  await talk.until("ok");
  talk.send("half" + get("/second"));
  await eventually(
    () => statusesIn(talk.text()).length === 2 && clock.pending === LOOKS,
    "two replies and no timer of the upload",
  );
  clock.advance(10_000);
  talk.send(get("/third"));
  await eventually(() => statusesIn(talk.text()).length === 3, "three replies");
});

it("leaves no listeners on a connection with many uploads that end after the reply", async () => {
  const warnings: Error[] = [];
  const note = (warning: Error) => void warnings.push(warning);
  process.on("warning", note);
  const { port } = await listening(fine);
  const talk = await client(port);
  for (let i = 1; i <= 30; i++) {
    talk.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf");
    await eventually(() => statusesIn(talk.text()).length === i, "the next reply");
    talk.send("half");
  }
  process.removeListener("warning", note);
  expect(warnings).toEqual([]);
});

it.runIf(codec === "node")("does not wait for a request that was abandoned before its reply is sent", async () => {
  const { clock, port } = await listening(async (inbound) => {
    inbound.body!.destroy();
    await once(inbound.body!, "close");
    return { status: 200, headers: [], body: Buffer.from("ok") };
  });
  const idle = clock.pending;
  const talk = await client(port);
  talk.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf");
  await talk.closed();
  await eventually(() => clock.pending === idle, "no timer left");
});

it("a draining listener ends each connection after its reply", async () => {
  const asked: ((reply: Reply) => void)[] = [];
  const { port, listener, ended } = await listening(() => new Promise((resolve) => asked.push(resolve)));
  const [busy, idle] = [await client(port), await client(port)];
  busy.send(get("/1"));
  await eventually(() => asked.length === 1, "one request");
  const drained = listener.drain(0);
  await idle.closed();
  asked[0]!(fine());
  expect(await busy.closed()).toMatch(/\r\nConnection: close\r\n/i);
  await drained;
  expect(ended).toHaveLength(1);
});

it(
  "a draining listener answers a request that arrives on an idle connection as its last, " +
    "and ends an idle connection after the linger",
  async () => {
    const { clock, port, listener } = await listening(fine);
    const [used, fresh, idle] = [await client(port), await client(port), await client(port)];
    for (const each of [used, idle]) {
      each.send(get("/1"));
      await each.until("ok");
    }
    const drained = listener.drain(1_000);
    await refused(port);
    used.send(get("/2"));
    fresh.send(get("/2"));
    for (const each of [used, fresh]) expect(await each.closed()).toMatch(/\r\nConnection: close\r\n(.+\r\n)*\r\nok$/);
    clock.advance(999);
    idle.send(get("/3"));
    expect(statusesIn(await idle.closed())).toEqual([200, 200]);
    await drained;
  },
);

it("a draining listener keeps a connection for the linger if its last reply did not announce the close", async () => {
  const body = new PassThrough();
  const { clock, port, listener } = await listening(() => ({ status: 200, headers: [], body }));
  const talk = await client(port);
  talk.send(get("/1"));
  body.write("part");
  await talk.until("part");
  const drained = listener.drain(1_000);
  await refused(port);
  clock.advance(5_000);
  body.end("and end");
  await talk.until("0\r\n\r\n");
  await eventually(() => clock.pending > 0, "a pending timer");
  clock.advance(999);
  expect(talk.socket.readyState).toBe("open");
  clock.advance(1);
  await talk.closed();
  await drained;
});

it.each(["plain", "over TLS"])(
  "a draining listener sends the whole reply to a client that reads slowly, %s",
  async (how) => {
    const length = 24 * 1024 * 1024;
    const { clock, port, listener } = await listening(() => ({
      status: 200,
      headers: [],
      body: Buffer.alloc(length, "x"),
    }));
    const secure = how === "plain" ? null : await listener.listenSecure("127.0.0.1", 0, FILES);
    const host = "127.0.0.1";
    const socket =
      secure === null
        ? net.connect(port, host)
        : tls.connect({ port: secure.port, host, servername: "localhost", ca: CA.cert });
    onTestFinished(() => void socket.destroy());
    socket.write(get("/1"));
    await once(socket, "readable");
    for (const lingerMs of [0, 1_000]) {
      void listener.drain(lingerMs);
      clock.advance(lingerMs);
    }
    let received = 0;
    socket.on("data", (chunk: Buffer) => (received += chunk.length));
    await eventually(() => received > length, "all of the reply");
    await eventually(() => clock.pending > 0, "a pending timer");
    clock.advance(1_000);
    await once(socket, "close");
  },
);

it("a draining listener serves connections that the system has completed already", async () => {
  const { clock, port, listener } = await listening(fine);
  const talks = Array.from({ length: 30 }, () => overSocket(net.connect(port, "127.0.0.1")));
  for (const talk of talks) talk.send(get("/1"));
  const drained = listener.drain(1_000);
  await Promise.all(talks.map((talk) => talk.until("ok")));
  await refused(port);
  clock.advance(1_000);
  await drained;
});

it("a listener asks clients to reconnect before an announced drain, and accepts their new connections", async () => {
  const { port, listener } = await listening(fine);
  const talk = await client(port);
  listener.announceStop();
  for (const each of [talk, await client(port)]) {
    each.send(get("/1"));
    expect(await each.closed()).toMatch(/^HTTP\/1\.1 200 [^]*\r\nConnection: close\r\n/);
  }
});

it(
  "a listener that has announced its stop accepts all connections that wait when it " + "ends its wait for new ones",
  async () => {
    const { port, listener, clock } = await listening(fine);
    listener.announceStop();
    const drained = listener.drain(20);
    const talks = Array.from({ length: 30 }, () => overSocket(net.connect(port, "127.0.0.1")));
    for (const talk of talks) talk.send(get("/1"));
    await new Promise(process.nextTick);
    // The system completes the connections, and the listener's wait is over before it can accept any of them.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 40);
    await Promise.all(talks.map((talk) => talk.until("ok")));
    await refused(port);
    clock.advance(20);
    await drained;
  },
);

it("a listener over TLS serves an upgrade to an unknown protocol as an ordinary request", async () => {
  const { listener } = await listening((inbound) => ({
    status: 200,
    headers: ["X-Scheme", inbound.scheme],
    body: Buffer.from("ok"),
  }));
  const { port } = await listener.listenSecure("127.0.0.1", 0, FILES);
  const socket = tls.connect({
    port,
    host: "127.0.0.1",
    servername: "localhost",
    ca: CA.cert,
    ALPNProtocols: ["http/1.1"],
  });
  onTestFinished(() => void socket.destroy());
  const talk = overSocket(socket);
  for (let i = 1; i <= 3; i++) {
    talk.send(get("/", "Connection: Upgrade", "Upgrade: h2c"));
    await eventually(() => statusesIn(talk.text()).length === i && talk.text().endsWith("ok"), "the next whole reply");
  }
  expect(talk.text()).toContain("X-Scheme: https");
});

describe("mounted in a host's server", () => {
  it("serves upgrades to unknown protocols as ordinary requests", async () => {
    const upstream = await backend();
    const gateway = createGateway({ config: oneService(upstream.port) });
    const server = http.createServer(gateway.handler).on("upgrade", gateway.upgrade);
    const talk = await client(await hosted(gateway, server));
    for (let i = 1; i <= 12; i++) {
      talk.send(get("/a/x", "Connection: Upgrade", "Upgrade: h2c"));
      await eventually(
        () => statusesIn(talk.text()).length === i && talk.text().endsWith("ok"),
        "the next whole reply",
      );
    }
    expect(upstream.seen).toHaveLength(12);
  });
});

const HALF_A_HELLO = Buffer.from("16030100", "hex");

describe("a TLS connection without a complete handshake", () => {
  it("a TLS connection without a complete handshake closes after the handshake timeout", async () => {
    const { listener } = await listening(fine, 30);
    const { port } = await listener.listenSecure("127.0.0.1", 0, FILES);
    const silent = await connect(port);
    expect(await silent.closed()).toBe("");
    await listener.drain(0);
  });

  it.each<[what: string, sent: Buffer]>([
    ["nothing", Buffer.alloc(0)],
    ["half a ClientHello", HALF_A_HELLO],
  ])(
    "a TLS connection without a complete handshake closes at once when its client closes it after %s",
    async (_what, sent) => {
      const { listener } = await listening(fine, 3_600_000);
      const { port } = await listener.listenSecure("127.0.0.1", 0, FILES);
      const gone = await Promise.all(Array.from({ length: 300 }, () => connect(port)));
      for (const { socket } of gone) socket.end(sent);
      await Promise.all(gone.map((each) => each.closed()));
      await listener.drain(3_600_000);
    },
  );

  it.each([0, 1_000])(
    "a TLS connection without a complete handshake does not delay a drain beyond its linger of %d ms",
    async (lingerMs) => {
      const { clock, listener } = await listening(fine, 3_600_000);
      const { port } = await listener.listenSecure("127.0.0.1", 0, FILES);
      const [silent, half] = [await connect(port), await connect(port)];
      const idle = overSocket(tls.connect({ port, host: "127.0.0.1", ca: CA.cert, servername: "localhost" }));
      half.send(HALF_A_HELLO);
      idle.send(get("/"));
      await idle.until("ok");
      const drained = listener.drain(lingerMs);
      await refused(port);
      clock.advance(lingerMs);
      await Promise.all([silent.closed(), half.closed(), idle.closed(), drained]);
    },
  );
});

it("a listener with TLS alone serves HTTP/1.1, ends incomplete heads, and drains", async () => {
  const clock = manualClock();
  const limits = { ...defaultLimits, headersTimeoutMs: 1 };
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const listener = new Listener({
    features,
    clock,
    log,
    serve: fine,
    receiving: () => ({ clock, proxies: null, limits }),
    ended: () => {},
    join: () => {},
  });
  onTestFinished(() => listener.destroy());
  const files = { cert: Buffer.from(SERVER.cert), key: Buffer.from(SERVER.key), ca: null, requireClientCert: false };
  const { port } = await listener.listenSecure("127.0.0.1", 0, files);
  const connected = () => overSocket(tls.connect({ port, host: "127.0.0.1", ca: CA.cert, servername: "localhost" }));
  const [whole, half] = [connected(), connected()];
  whole.send(get("/"));
  await whole.until("ok");
  half.send("GET / HTTP/1.1\r\nHost: h\r\n");
  await eventually(() => {
    clock.advance(1_000);
    return half.text() !== "";
  });
  expect(await half.closed()).toMatch(/^HTTP\/1\.1 408 /);
  const idle = connected();
  idle.send(get("/"));
  await idle.until("ok");
  let isDrained = false;
  void Promise.all([listener.drain(0), whole.closed(), idle.closed()]).then(() => (isDrained = true));
  // The last reply may have left only after the drain began.
  await eventually(() => {
    clock.advance(1);
    return isDrained;
  });
});
