import { once } from "node:events";
import http2, { type ClientHttp2Session } from "node:http2";
import https from "node:https";
import net, { type AddressInfo, type Socket } from "node:net";
import { finished, PassThrough, Readable, type Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { Call, type ExchangeParts } from "../../lib/http/exchange.ts";
import { discard, type Reply } from "../../lib/http/reply.ts";
import { forward } from "../../lib/upstream/attempts.ts";
import { forwardHttp2 } from "../../lib/upstream/http2_request.ts";
import type { PoolOptions } from "../../lib/upstream/connect.ts";
import { SessionPool } from "../../lib/upstream/sessions.ts";
import type { UpstreamTlsSettings } from "../../lib/upstream/contracts.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import { LOOPBACK, madeUpNames, NOBODY, NOBODY_EITHER, site } from "../support/addresses.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange, problemOf } from "../support/exercise.ts";
import { OTHER_CA, SHOP } from "../support/more_certs.ts";
import { closedPort } from "../support/origin.ts";
import { madeUpPeer } from "../support/peer.ts";
import { eventually } from "../support/raw_client.ts";

const [DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY] = [0, 1, 3, 4, 6, 7];
const [NO_ERROR, CANCEL, REFUSED_STREAM, ENHANCE_YOUR_CALM] = [0, 8, 7, 11];
const END_STREAM = 1;
const STATUS_200 = Buffer.from([0x88]);
const KEY = ["Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="];
const WEBSOCKET: Partial<ExchangeParts> = { upgrade: "websocket", headers: KEY };

interface Peer {
  readonly socket: Socket;
  send(type: number, flags: number, stream: number, payload?: Buffer): void;
  answer(stream: number): void;
}

/**
 * An HTTP/2 peer at the level of frames. `talk` gets each request's stream; `resets` collects RST_STREAM codes. Without
 * settings it says nothing of itself; while it is `deaf` it answers no PING.
 */
async function framePeer(talk: (peer: Peer, stream: number) => void, settings: Buffer | null = Buffer.alloc(0)) {
  const self = {
    port: 0,
    connections: 0,
    open: 0,
    sockets: [] as Socket[],
    streams: [] as number[],
    resets: [] as number[],
    acks: 0,
    pings: 0,
    deaf: false,
  };
  const server = net.createServer((socket) => {
    self.connections++;
    self.open++;
    self.sockets.push(socket);
    socket.on("close", () => self.open--);
    socket.on("error", () => {});
    const peer: Peer = {
      socket,
      send: (type, flags, stream, payload = Buffer.alloc(0)) => void socket.write(frame(type, flags, stream, payload)),
      answer(stream) {
        peer.send(HEADERS, 4, stream, STATUS_200);
        peer.send(DATA, END_STREAM, stream, Buffer.from("ok"));
      },
    };
    if (settings !== null) peer.send(SETTINGS, 0, 0, settings);
    let received = Buffer.alloc(0);
    let preface = 24;
    socket.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < preface) return;
      received = received.subarray(preface);
      preface = 0;
      for (
        let size = 0;
        received.length >= 9 && received.length >= (size = 9 + received.readUIntBE(0, 3));
        received = received.subarray(size)
      ) {
        const [type, flags, stream] = [received[3]!, received[4]!, received.readUInt32BE(5)];
        if (type === SETTINGS && (flags & 1) === 0 && settings !== null) peer.send(SETTINGS, 1, 0);
        if (type === SETTINGS && (flags & 1) === 1) self.acks++;
        if (type === PING && (flags & 1) === 0) {
          self.pings++;
          if (!self.deaf) peer.send(PING, 1, 0, Buffer.from(received.subarray(9, size)));
        }
        if (type === RST_STREAM) self.resets.push(received.readUInt32BE(9));
        if (type === HEADERS) {
          self.streams.push(stream);
          talk(peer, stream);
        }
      }
    });
    onTestFinished(() => void socket.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  self.port = (server.address() as AddressInfo).port;
  return self;
}

function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

function words(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => bytes.writeUInt32BE(value, i * 4));
  return bytes;
}

/** SETTINGS_MAX_CONCURRENT_STREAMS. */
const maxStreams = (most: number) => Buffer.concat([Buffer.from([0, 3]), words(most)]);

function bench(port: number, parts: Partial<PoolOptions> = {}, maxConnections = 1) {
  const clock = manualClock();
  const pool = new SessionPool(
    { ...ANYWHERE, protocol: "h2c", host: "127.0.0.1", port, keepaliveIdleMs: 30_000, ...parts },
    maxConnections,
    clock,
    forwardHttp2,
  );
  onTestFinished(() => pool.destroy());
  const peer = madeUpPeer("u", pool);
  const options = {
    clock,
    connectMs: 100,
    responseMs: 200,
    idleMs: 60_000,
    tryMs: 0,
    preserveHost: false,
    viaName: "gw",
  };
  const send = (exchange: Partial<ExchangeParts> = {}) => forward(madeUpExchange(exchange), peer, options, Infinity);
  return { clock, pool, send, options, peer };
}

const read = async (reply: Reply) => {
  let text = "";
  for await (const chunk of reply.body as Readable) text += String(chunk);
  return text;
};
const code = (reply: Promise<Reply>) =>
  reply.then(
    (given) => String(given.status),
    (fault: unknown) => (fault instanceof Fault ? fault.code : String(fault)),
  );

describe("sessions", () => {
  it("sessions carry many exchanges each, and every lease ends", async () => {
    const upstream = await framePeer((peer, stream) => peer.answer(stream));
    const { send, pool } = bench(upstream.port);
    const replies = await Promise.all(Array.from({ length: 20 }, () => send()));
    expect(await Promise.all(replies.map(read))).toEqual(Array(20).fill("ok"));
    await eventually(() => pool.leases.leased === 0, "no lease in use");
    expect(upstream.connections).toBe(1);
  });

  it.each<[string, (body: Readable) => Promise<string>]>([
    ["for await", text],
    [
      "finished",
      (body) =>
        new Promise((resolve, reject) =>
          finished(
            body.on("data", () => {}),
            (error) => (error ? reject(error) : resolve("ok")),
          ),
        ),
    ],
    [
      "pipeline",
      async (body) => {
        const through = new PassThrough();
        await pipeline(body, through);
        return text(through);
      },
    ],
    ["the adapter to web streams", (body) => new Response(Readable.toWeb(body) as ReadableStream).text()],
  ])("deliver all of a body that arrived before it was read: %s", async (_way, readWhole) => {
    const upstream = await framePeer((peer, stream) => peer.answer(stream));
    const { send, pool } = bench(upstream.port);
    const body = (await send()).body as Duplex & { readonly rstCode: number | undefined };
    await eventually(() => body.rstCode !== undefined && body.readableLength > 0, "the end of the stream");
    expect(await readWhole(body)).toBe("ok");
    await eventually(() => pool.leases.leased === 0 && body.closed, "no lease in use and a closed body");
    expect(upstream.resets).toEqual([]);
  });

  it(
    "sessions get a replacement if they end between the lease and the request, " + "even for a request with a body",
    async () => {
      const upstream = await framePeer((peer, stream) => peer.answer(stream));
      const { send, pool } = bench(upstream.port, {}, 2);
      await read(await send());
      await eventually(() => pool.leases.leased === 0, "no lease in use");
      const session = pool.tryLease("")!;
      session.release("");
      session.http2!.destroy();
      expect(await read(await send({ method: "POST", body: Readable.from([Buffer.from("hello")]) }))).toBe("ok");
      expect(upstream.connections).toBe(2);
    },
  );

  it(
    "sessions grow in number to max_connections when the upstream's limit is reached; " +
      "then requests wait connect_ms, and get upstream_saturated",
    async () => {
      const held: (() => void)[] = [];
      const upstream = await framePeer((peer, stream) => held.push(() => peer.answer(stream)), maxStreams(1));
      const { send, pool, clock } = bench(upstream.port, {}, 2);
      const first = send();
      await eventually(() => held.length === 1, "one held request");
      const second = send();
      await eventually(() => held.length === 2, "two held requests");
      expect(upstream.connections).toBe(2);
      const third = send();
      const fourth = send();
      await eventually(() => pool.leases.waiting === 2, "two waiting requests");
      held[0]!();
      await read(await first);
      await eventually(() => held.length === 3, "the third's turn");
      clock.advance(100);
      expect(await code(fourth)).toBe("upstream_saturated");
      held[1]!();
      held[2]!();
      await Promise.all([read(await second), read(await third)]);
      expect(upstream.connections).toBe(2);
    },
  );

  it(
    "sessions grow in number as needed if more requests are sent at once than the " + "upstream turns out to allow",
    async () => {
      const held = new Map<Peer, number[]>();
      const upstream = await framePeer(
        (peer, stream) => held.set(peer, [...(held.get(peer) ?? []), stream]),
        maxStreams(2),
      );
      const { send, pool } = bench(upstream.port, {}, 3);
      const texts = Array.from({ length: 7 }, async () => read(await send()));
      await eventually(
        () => upstream.streams.length === 6 && pool.leases.waiting === 1,
        "six streams and one waiting request",
      );
      expect([...held.values()].map((streams) => streams.length)).toEqual([2, 2, 2]);
      const answered = [...held].flatMap(([peer, streams]) => streams.map((stream) => [peer, stream] as const));
      for (const [peer, stream] of answered) peer.answer(stream);
      await eventually(() => upstream.streams.length === 7, "the turn of the one that waits");
      for (const [peer, streams] of held) for (const stream of streams.slice(2)) peer.answer(stream);
      expect(await Promise.all(texts)).toEqual(Array(7).fill("ok"));
      await eventually(() => pool.leases.leased === 0, "no lease in use");
    },
  );

  it(
    "sessions hold a request back as long as the upstream allows no stream, " + "which is no violation of the protocol",
    async () => {
      const upstream = await framePeer((peer, stream) => peer.answer(stream), maxStreams(0));
      const { send, pool, clock, options } = bench(upstream.port);
      options.responseMs = 60_000;
      const reply = send();
      await eventually(() => upstream.acks === 1, "an acknowledged SETTINGS");
      // The request is sent in one of these rounds, and its session looked at in the next ones.
      for (let round = 0; round < 20; round++) {
        await new Promise(setImmediate);
        clock.advance(1_000);
      }
      expect(pool.leases.leased).toBe(1);
      upstream.sockets[0]!.write(frame(SETTINGS, 0, 0, maxStreams(1)));
      expect(await read(await reply)).toBe("ok");
      expect(upstream.connections).toBe(1);
    },
  );

  it("sessions go on when they are looked at between the reading of a body and the WINDOW_UPDATE for it", async () => {
    const upstream = await framePeer((peer, stream) => {
      peer.send(HEADERS, 4, stream, STATUS_200);
      for (let sent = 0; sent < 200; sent++) peer.send(DATA, 0, stream, Buffer.alloc(1_000));
    });
    const { send, clock } = bench(upstream.port);
    const { body } = await send();
    const stream = body as Readable;
    await once(stream, "readable");
    await eventually(() => stream.readableLength > 32_000, "bytes that nobody has read");
    let length = 0;
    setImmediate(() => stream.on("data", (bytes: Buffer) => (length += bytes.length)));
    clock.advance(1_000);
    await eventually(() => length === 200_000 || stream.destroyed, "the body");
    expect(stream.errored).toBeNull();
    upstream.sockets[0]!.write(frame(DATA, END_STREAM, upstream.streams[0]!, Buffer.from("end")));
    await once(stream, "end");
    expect(length).toBe(200_003);
  });

  it(
    "sessions get no new requests if they are not ready within connect_ms, " + "and end with the requests that wait",
    async () => {
      const upstream = await framePeer((peer, stream) => peer.answer(stream), null);
      const { send, pool, clock } = bench(upstream.port, {}, 2);
      const first = code(send());
      await eventually(() => upstream.sockets.length === 1, "one connection at the upstream");
      clock.advance(60);
      const second = code(send());
      clock.advance(40);
      expect(await first).toBe("upstream_timeout");
      const third = code(send());
      await eventually(() => upstream.sockets.length === 2, "another connection");
      clock.advance(60);
      expect(await second).toBe("upstream_timeout");
      await eventually(() => upstream.open === 1 && pool.open === 1, "the first being closed");
      clock.advance(40);
      expect(await third).toBe("upstream_timeout");
      await eventually(
        () => upstream.open === 0 && pool.open === 0 && clock.pending === 0,
        "no connection open at the upstream, no open connection in the pool and no pending timer",
      );
    },
  );

  it(
    "sessions fail with upstream_connect_failed if they close before the upstream's " + "SETTINGS: nothing was sent",
    async () => {
      const upstream = await framePeer(() => {}, null);
      const { send, pool } = bench(upstream.port);
      const sent = send({ method: "POST" });
      await eventually(() => upstream.sockets.length === 1, "one connection at the upstream");
      upstream.sockets[0]!.end();
      expect(await code(sent)).toBe("upstream_connect_failed");
      expect(upstream.streams).toEqual([]);
      expect(pool.leases.leased).toBe(0);
    },
  );

  it("sessions open for waiting requests under a larger max_connections", async () => {
    const held: (() => void)[] = [];
    const upstream = await framePeer((peer, stream) => held.push(() => peer.answer(stream)), maxStreams(1));
    const { send, pool } = bench(upstream.port);
    const first = send();
    await eventually(() => held.length === 1, "one held request");
    const second = send();
    await eventually(() => pool.leases.waiting === 1, "one waiting request");
    pool.limitTo(2, 1);
    await eventually(() => held.length === 2, "two held requests");
    for (const answer of held) answer();
    await Promise.all([read(await first), read(await second)]);
  });

  it("sessions close after keepalive_idle_ms without a stream, not before", async () => {
    const upstream = await framePeer((peer, stream) => peer.answer(stream));
    const { send, pool, clock } = bench(upstream.port);
    await read(await send());
    await eventually(() => pool.leases.leased === 0, "no lease in use");
    clock.advance(29_999);
    expect(pool.open).toBe(1);
    clock.advance(1);
    await eventually(
      () => upstream.open === 0 && pool.open === 0,
      "no connection open at the upstream and no open connection in the pool",
    );
  });

  it("sessions end with their last stream when the pool is retired", async () => {
    const upstream = await framePeer((peer, stream) => peer.send(HEADERS, 4, stream, STATUS_200));
    const { send, pool } = bench(upstream.port);
    const reply = await send();
    pool.retire();
    expect(upstream.open).toBe(1);
    discard(reply);
    await eventually(
      () => upstream.open === 0 && pool.leases.leased === 0,
      "no connection open at the upstream and no lease in use",
    );
  });

  it("sessions finish their requests after a GOAWAY, and get no new requests", async () => {
    const upstream = await framePeer((peer, stream) => {
      if (upstream.connections === 2) return peer.answer(stream);
      peer.send(HEADERS, 4, stream, STATUS_200);
      peer.send(GOAWAY, 0, 0, words(stream, NO_ERROR));
      setImmediate(() => setImmediate(() => peer.send(DATA, END_STREAM, stream, Buffer.from("late"))));
    });
    const { send } = bench(upstream.port, {}, 2);
    const first = await send();
    const text = read(first);
    expect(await read(await send())).toBe("ok");
    expect(await text).toBe("late");
    expect(upstream.connections).toBe(2);
  });
});

it.each([1, 2])(
  "replaces a connection that has no stream numbers left (max_connections %i)",
  async (maxConnections) => {
    const upstream = await framePeer((peer, stream) => peer.answer(stream));
    const { send, pool } = bench(upstream.port, {}, maxConnections);
    const first = pool.tryLease("")!;
    const session = (await first.settled, first.http2) as ClientHttp2Session & { setNextStreamID(id: number): void };
    await first.settled;
    session.setNextStreamID(0x7fffffff);
    first.release("");
    for (let i = 0; i < 4; i++) expect(await read(await send())).toBe("ok");
    expect(upstream.streams).toEqual([0x7fffffff, 1, 3, 5]);
    await eventually(
      () => upstream.open === 1 && pool.open === 1 && pool.leases.leased === 0,
      "one connection open at the upstream, one open connection in the pool and no lease in use",
    );
  },
);

it("finishes the requests that the upstream still answers after a GOAWAY with an error", async () => {
  const upstream = await framePeer((peer, stream) => {
    if (upstream.connections === 2) return peer.answer(stream);
    peer.send(HEADERS, 4, stream, STATUS_200);
    if (stream === 1) return;
    peer.send(GOAWAY, 0, 0, words(1, ENHANCE_YOUR_CALM));
    setImmediate(() => setImmediate(() => peer.send(DATA, END_STREAM, 1, Buffer.from("late"))));
  });
  const { send, pool } = bench(upstream.port, {}, 2);
  const early = read(await send());
  const beyond = await send();
  await expect(read(beyond)).rejects.toBeInstanceOf(Error);
  expect(await early).toBe("late");
  expect(await read(await send())).toBe("ok");
  await eventually(
    () => upstream.open === 1 && pool.open === 1,
    "one connection open at the upstream and one open connection in the pool",
  );
});

describe("an upstream that does not answer in time", () => {
  /** Passes bytes on, for each connection until it is told to stall: then not a byte more, and no end. */
  async function stallingProxy(to: number) {
    const self = { port: 0, connections: 0, stall: () => {} };
    const server = net.createServer({ pauseOnConnect: true }, (near) => {
      self.connections++;
      const far = net.connect(to, "127.0.0.1");
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        one.on("error", () => {});
        one.pipe(other);
        onTestFinished(() => void one.destroy());
      }
      self.stall = () => {
        for (const one of [near, far]) one.unpipe().pause();
      };
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    self.port = (server.address() as AddressInfo).port;
    return self;
  }

  /** One request is served on the first connection, then nothing passes on it any more. */
  async function vanished(maxConnections: number) {
    const upstream = await framePeer((peer, stream) => {
      if (upstream.streams.length !== 2) peer.answer(stream);
      else peer.send(HEADERS, 4, stream, STATUS_200);
    });
    const proxy = await stallingProxy(upstream.port);
    const made = bench(proxy.port, {}, maxConnections);
    await read(await made.send());
    await eventually(() => made.pool.leases.leased === 0, "no lease in use");
    const halfWay = await made.send();
    proxy.stall();
    const patient = (method: string) =>
      code(forward(madeUpExchange({ method }), made.peer, { ...made.options, responseMs: 60_000 }, Infinity));
    return { ...made, upstream, proxy, halfWay, patient };
  }

  it(
    "an upstream that does not answer in time gets no new requests while it is silent; " +
      "without an answer to a PING, all requests on the connection end at once",
    async () => {
      const { send, patient, halfWay, clock, proxy, pool } = await vanished(2);
      const body = read(halfWay).catch((error: unknown) => (error as Fault).code);
      const late = patient("PATCH");
      const repeatable = patient("GET");
      const first = send();
      await eventually(() => pool.leases.leased === 4 && clock.pending === 2, "all sent");
      clock.advance(200);
      expect(await code(first)).toBe("upstream_timeout");
      expect(await read(await send())).toBe("ok");
      expect(proxy.connections).toBe(2);
      clock.advance(2_500);
      expect(await late).toBe("upstream_timeout");
      expect(await body).toBe("upstream_timeout");
      expect(await repeatable).toBe("200");
      await eventually(() => pool.open === 1, "one open connection in the pool");
    },
  );

  it(
    "an upstream that falls silent loses its connection 2.5 s after the first client has given " +
      "up, however early that is",
    async () => {
      const { send, peer, options, halfWay, clock, proxy, pool } = await vanished(2);
      const body = read(halfWay).catch((error: unknown) => (error as Fault).code);
      const exchange = madeUpExchange();
      const left = code(forward(exchange, peer, options, Infinity));
      await eventually(() => pool.leases.leased === 2, "both sent");
      clock.advance(50);
      exchange.call.abort();
      expect(await left).toBe("upstream_reset");
      clock.advance(2_500);
      expect(await body).toBe("upstream_timeout");
      expect(await read(await send())).toBe("ok");
      expect(proxy.connections).toBe(2);
    },
  );

  it(
    "an upstream that answers slowly gets one PING in three seconds for clients that " + "give up, however many do",
    async () => {
      const upstream = await framePeer(() => {});
      const { clock, peer, options, pool } = bench(upstream.port);
      for (let i = 0; i < 10; i++) {
        const exchange = madeUpExchange();
        const left = code(forward(exchange, peer, options, Infinity));
        await eventually(() => upstream.streams.length === i + 1, "the request sent");
        clock.advance(50);
        exchange.call.abort();
        expect(await left).toBe("upstream_reset");
        await eventually(() => upstream.resets.length === i + 1 && pool.leases.leased === 0, "the reset");
      }
      // Sent before the last reset.
      expect([upstream.pings, upstream.connections]).toEqual([1, 1]);
    },
  );

  it(
    "an upstream that falls silent gets no new requests on a connection from which no byte has come for 3 s " +
      "although requests were sent",
    async () => {
      const { send, patient, clock, proxy } = await vanished(2);
      const lost = patient("GET");
      clock.advance(2_999);
      const alsoLost = patient("GET");
      await eventually(() => clock.pending >= 2, "both sent");
      expect(proxy.connections).toBe(1);
      clock.advance(1);
      expect(await read(await send())).toBe("ok");
      expect(proxy.connections).toBe(2);
      clock.advance(2_500);
      expect(await Promise.all([lost, alsoLost])).toEqual(["200", "200"]);
    },
  );

  it(
    "an upstream that does not answer in time holds up requests that wait for the only " +
      "connection no longer than the PING",
    async () => {
      const { send, clock, proxy, peer, options } = await vanished(1);
      const first = send();
      await eventually(() => clock.pending === 2, "the request sent");
      clock.advance(200);
      expect(await code(first)).toBe("upstream_timeout");
      const waiting = forward(madeUpExchange(), peer, { ...options, connectMs: 3_000 }, Infinity);
      clock.advance(2_500);
      expect(await read(await waiting)).toBe("ok");
      expect(proxy.connections).toBe(2);
    },
  );

  it("an upstream that does not answer in time keeps its connection if it answers the PING", async () => {
    const upstream = await framePeer((peer, stream) => upstream.streams.length > 1 && peer.answer(stream));
    // Of one connection only: who comes before the answer to the PING waits for it.
    const { send, pool, clock } = bench(upstream.port, {}, 1);
    const slow = send();
    await eventually(() => upstream.streams.length === 1, "one stream");
    clock.advance(200);
    expect(await code(slow)).toBe("upstream_timeout");
    await eventually(() => upstream.pings === 1 && pool.leases.leased === 0, "the PING");
    expect(await read(await send())).toBe("ok");
    clock.advance(10_000);
    expect(await read(await send())).toBe("ok");
    expect(upstream).toMatchObject({ connections: 1, streams: [1, 3, 5] });
  });

  it(
    "an upstream that does not answer in time keeps its connection, without an answer to the PING, " +
      "if it sends on other streams",
    async () => {
      let events: Peer | null = null;
      const upstream = await framePeer((peer, stream) => {
        if (upstream.streams.length === 1) peer.send(HEADERS, 4, stream, STATUS_200);
        events = peer;
      });
      upstream.deaf = true;
      const { send, pool, clock } = bench(upstream.port, {}, 2);
      const body = (await send()).body as Readable;
      const slow = send();
      await eventually(() => upstream.streams.length === 2, "two streams");
      clock.advance(200);
      expect(await code(slow)).toBe("upstream_timeout");
      await eventually(() => upstream.pings === 1, "one PING");
      events!.send(DATA, 0, 1, Buffer.from("event"));
      await once(body, "readable");
      clock.advance(2_500);
      const next = send();
      await eventually(() => upstream.streams.length === 3, "three streams");
      expect(upstream.connections).toBe(1);
      clock.advance(2_000);
      expect(await code(next)).toBe("upstream_timeout");
      discard({ status: 200, headers: [], body });
      await eventually(() => pool.leases.leased === 0, "no lease in use");
    },
  );

  it(
    "an upstream that does not answer in time loses an idle connection soon after " +
      "keepalive_idle_ms if it has vanished",
    async () => {
      const upstream = await framePeer((peer, stream) => peer.answer(stream));
      const proxy = await stallingProxy(upstream.port);
      const { send, pool, clock } = bench(proxy.port);
      await read(await send());
      await eventually(() => pool.leases.leased === 0, "no lease in use");
      proxy.stall();
      clock.advance(30_000);
      expect(pool.open).toBe(1);
      clock.advance(2_500);
      expect(pool.open).toBe(0);
      expect(clock.pending).toBe(0);
    },
  );
});

describe("the second try of a request that the upstream has not processed", () => {
  it.each<[string, (peer: Peer, stream: number) => void]>([
    ["REFUSED_STREAM", (peer, stream) => peer.send(RST_STREAM, 0, stream, words(REFUSED_STREAM))],
    ["a GOAWAY below the stream", (peer) => peer.send(GOAWAY, 0, 0, words(0, NO_ERROR))],
    ["a GOAWAY with an error below the stream", (peer) => peer.send(GOAWAY, 0, 0, words(0, 11))],
  ])("follows %s", async (_title, refuse) => {
    const upstream = await framePeer((peer, stream) =>
      upstream.streams.length === 1 ? refuse(peer, stream) : peer.answer(stream),
    );
    const { send, pool } = bench(upstream.port, {}, 2);
    expect(await read(await send({ method: "PATCH" }))).toBe("ok");
    await eventually(() => pool.leases.leased === 0, "no lease in use");
    expect(upstream.streams).toHaveLength(2);
  });

  it("the second try of a request that the upstream has not processed happens once only", async () => {
    const upstream = await framePeer((peer, stream) => peer.send(RST_STREAM, 0, stream, words(REFUSED_STREAM)));
    const { send } = bench(upstream.port, {}, 9);
    expect(await code(send())).toBe("upstream_reset");
    expect(upstream.streams).toHaveLength(2);
  });
});

describe("a response that breaks off", () => {
  it.each<[string, (peer: Peer, stream: number) => void]>([
    ["RST_STREAM NO_ERROR", (peer, stream) => peer.send(RST_STREAM, 0, stream, words(NO_ERROR))],
    ["RST_STREAM CANCEL", (peer, stream) => peer.send(RST_STREAM, 0, stream, words(CANCEL))],
    ["the end of the connection", (peer) => void peer.socket.end()],
    ["a reset of the connection", (peer) => void peer.socket.resetAndDestroy()],
  ])("never looks whole: %s", async (_title, breakOff) => {
    const upstream = await framePeer((peer, stream) => {
      peer.send(HEADERS, 4, stream, STATUS_200);
      peer.send(DATA, 0, stream, Buffer.from("part"));
      setImmediate(() => breakOff(peer, stream));
    });
    const { send, pool } = bench(upstream.port);
    const ended = await send().then(
      (reply) =>
        read(reply).then(
          () => "whole",
          () => "broken",
        ),
      () => "broken",
    );
    expect(ended).toBe("broken");
    await eventually(() => pool.leases.leased === 0, "no lease in use");
  });

  it("a response that breaks off resets the stream with CANCEL when the reply is abandoned", async () => {
    const upstream = await framePeer((peer, stream) => peer.send(HEADERS, 4, stream, STATUS_200));
    const { send } = bench(upstream.port);
    discard(await send());
    await eventually(() => upstream.resets.length === 1, "one reset stream");
    expect(upstream.resets).toEqual([CANCEL]);
  });
});

describe("faults", () => {
  it("reports upstream_connect_failed if the connection is refused", async () => {
    const { send, pool } = bench(await closedPort());
    expect(await code(send())).toBe("upstream_connect_failed");
    expect([pool.leases.leased, pool.open]).toEqual([0, 0]);
  });

  it("reports upstream_timeout, and sends CANCEL, without a response within response_ms", async () => {
    const upstream = await framePeer(() => {});
    const { send, clock } = bench(upstream.port);
    const reply = send();
    await eventually(() => upstream.streams.length === 1, "one stream");
    clock.advance(200);
    expect(await code(reply)).toBe("upstream_timeout");
    await eventually(() => upstream.resets[0] === CANCEL, "a reset with CANCEL");
  });

  it("reports internal for a header that cannot be written, and sends nothing", async () => {
    const upstream = await framePeer((peer, stream) => peer.answer(stream));
    const { send } = bench(upstream.port);
    expect(await code(send({ headers: ["X-A", "b\nc"] }))).toBe("internal");
    expect(upstream.streams).toEqual([]);
  });

  it("reports 431 for a head of more than 64 KiB, which Node would not send, and keeps the connection", async () => {
    const upstream = await framePeer((peer, stream) => peer.answer(stream));
    const { send, pool } = bench(upstream.port);
    const large = (bytes: number) => ({
      headers: Array.from({ length: 8 }, (_, i) => [`x-${i}`, "y".repeat(bytes / 8)]).flat(),
    });
    expect(await read(await send(large(65_000)))).toBe("ok");
    expect(problemOf(await send(large(66_000))).code).toBe("headers_too_large");
    expect(await read(await send())).toBe("ok");
    await eventually(() => pool.leases.leased === 0, "no lease in use");
    expect(upstream.connections).toBe(1);
  });

  it("reports 502 for a WebSocket that the upstream's SETTINGS do not allow, and sends nothing", async () => {
    const upstream = await framePeer((peer, stream) => peer.answer(stream));
    const { send, pool } = bench(upstream.port);
    const call = new Call({
      id: "1",
      remoteAddress: "192.0.2.1",
      trustedRemote: false,
      startedAt: 0,
      inform: () => {},
    });
    expect(problemOf(await send({ ...WEBSOCKET, call }))).toMatchObject({ status: 502, code: "upstream_invalid" });
    expect(call.notes.fault).toMatch(/SETTINGS.*extended CONNECT/);
    expect(upstream.streams).toEqual([]);
    expect(pool.leases.leased).toBe(0);
  });

  it("reports upstream_timeout for a WebSocket without SETTINGS within connect_ms", async () => {
    const upstream = await framePeer(() => {}, null);
    const { send, clock, pool } = bench(upstream.port);
    const reply = send(WEBSOCKET);
    await eventually(() => upstream.connections === 1, "one connection at the upstream");
    clock.advance(100);
    expect(await code(reply)).toBe("upstream_timeout");
    expect(pool.leases.leased).toBe(0);
  });

  it.each([[[]], [["Sec-WebSocket-Key", "c2hvcnQ="]], [[...KEY, ...KEY]]])(
    "reports 400 for a WebSocket over HTTP/1.1 with the key %j",
    async (headers) => {
      const { send, pool } = bench(1);
      expect(problemOf(await send({ upgrade: "websocket", headers }))).toMatchObject({
        status: 400,
        code: "bad_request",
      });
      expect([pool.leases.leased, pool.open]).toEqual([0, 0]);
    },
  );
});

describe("TLS", () => {
  const settings = (parts: UpstreamTlsSettings = {}) =>
    new UpstreamTls({ ca: { content: Buffer.from(CA.cert) }, ...parts });

  async function secureOrigin(
    options: http2.SecureServerOptions = {},
    made = http2.createSecureServer as (options: http2.SecureServerOptions) => net.Server,
  ) {
    const server = made({ cert: SERVER.cert, key: SERVER.key, ...options });
    const sockets = new Set<Socket>();
    server.on("connection", (socket: Socket) => sockets.add(socket.on("error", () => {})));
    server.on("request", (_request, response: { end(text: string): void }) => response.end("ok"));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    return (server.address() as AddressInfo).port;
  }

  it("accepts a certificate that is signed by tls.ca for the address", async () => {
    const { send } = bench(await secureOrigin(), { protocol: "h2", tls: settings() });
    expect(await read(await send())).toBe("ok");
  });

  it.each<[string, UpstreamTls, RegExp]>([
    ["one the system does not know", new UpstreamTls(), /certificate/],
    ["one for another name", settings({ servername: "other.example" }), /other\.example/],
  ])("refuses %s with upstream_connect_failed, and the reason is in the fault alone", async (_title, tls, why) => {
    const { send } = bench(await secureOrigin(), { protocol: "h2", tls });
    await expect(send()).rejects.toMatchObject({
      code: "upstream_connect_failed",
      message: expect.stringMatching(why) as string,
    });
  });

  it("accepts any certificate if verify is false", async () => {
    const { send } = bench(await secureOrigin(), { protocol: "h2", tls: new UpstreamTls({ verify: false }) });
    expect(await read(await send())).toBe("ok");
  });

  it("presents the client certificate", async () => {
    const port = await secureOrigin({ ca: CA.cert, requestCert: true, rejectUnauthorized: true });
    const { send } = bench(port, {
      protocol: "h2",
      tls: settings({ cert: { content: Buffer.from(CLIENT.cert) }, key: { content: Buffer.from(CLIENT.key) } }),
    });
    expect(await read(await send())).toBe("ok");
  });

  it("refuses an upstream without HTTP/2 with upstream_connect_failed", async () => {
    const port = await secureOrigin({}, https.createServer as never);
    const { send } = bench(port, { protocol: "h2", tls: settings() });
    await expect(send()).rejects.toMatchObject({ code: "upstream_connect_failed" });
  });
});

describe("the addresses of a name", () => {
  /**
   * Servers on `serving` that answer with the address they were reached at, or when the test says so; and a name of
   * `answer`.
   */
  async function named(
    serving: readonly string[],
    answer: readonly string[] | Error,
    { max = 10, parts = {}, holds = false }: NamedParts = {},
  ) {
    const held: (() => void)[] = [];
    const origin = await site(serving, () => {
      const server =
        parts.protocol === "h2" ? http2.createSecureServer({ cert: SHOP.cert, key: SHOP.key }) : http2.createServer();
      server.on("stream", (stream: http2.ServerHttp2Stream) => {
        const reached = stream.session!.socket.localAddress!;
        stream.respond();
        if (holds) held.push(() => stream.end(reached));
        else stream.end(reached);
      });
      return server;
    });
    const resolver = madeUpNames(answer);
    const name = await resolver.named(parts.host ?? "upstream.invalid");
    const made = bench(origin.port, { host: name.host, name, ...parts }, max);
    const ask = async () => read(await made.send());
    return { ...made, origin, resolver, held, ask };
  }

  interface NamedParts {
    readonly max?: number;
    readonly parts?: Partial<PoolOptions>;
    readonly holds?: boolean;
  }

  it("the addresses of a name get streams in turn, on one session each, without a look-up", async () => {
    const { origin, resolver, ask } = await named(LOOPBACK, LOOPBACK);
    const reached: string[] = [];
    for (let i = 0; i < LOOPBACK.length * 3; i++) reached.push(await ask());
    expect(reached).toEqual([...LOOPBACK, ...LOOPBACK, ...LOOPBACK]);
    expect(origin.total).toEqual(Object.fromEntries(LOOPBACK.map((address) => [address, 1])));
    expect(resolver.asked).toEqual(["upstream.invalid"]);
  });

  it("the addresses of a name share max_connections", async () => {
    const { ask, pool } = await named(LOOPBACK, ["127.0.0.1", "127.0.0.2"], { max: 1 });
    expect([await ask(), await ask(), await ask()]).toEqual(["127.0.0.1", "127.0.0.1", "127.0.0.1"]);
    expect(pool.open).toBe(1);
  });

  it(
    "the addresses of a name give way to the next address if they refuse, " +
      "and are not tried again with each request",
    async () => {
      const { origin, ask } = await named(["127.0.0.2"], [NOBODY, "127.0.0.2"]);
      for (let i = 0; i < 6; i++) expect(await ask()).toBe("127.0.0.2");
      expect(origin.total["127.0.0.2"]).toBe(2);
    },
  );

  it("the addresses of a name appear all in upstream_connect_failed if all refuse", async () => {
    const { send, origin } = await named(["127.0.0.3"], [NOBODY, NOBODY_EITHER]);
    const message =
      `connect ECONNREFUSED ${NOBODY}:${origin.port}, connect ECONNREFUSED ` + `${NOBODY_EITHER}:${origin.port}`;
    await expect(send()).rejects.toMatchObject({ code: "upstream_connect_failed", message });
  });

  it("the addresses of a name get the next session, when all are full, if they have the fewest", async () => {
    const [one, two] = [await framePeer(() => {}, maxStreams(1)), ["127.0.0.1", "127.0.0.2"]];
    const { pool } = bench(
      one.port,
      { host: "upstream.invalid", name: await madeUpNames(two).named("upstream.invalid") },
      4,
    );
    const lease = async () => {
      const session = pool.tryLease("")!;
      await session.settled;
      await eventually(() => !session.hasRoom, "the peer's settings");
      return session;
    };
    const sessions = [await lease(), await lease(), await lease()];
    sessions[1]!.release("");
    sessions.push(await lease(), await lease());
    expect(sessions.map(({ address }) => address!.address)).toEqual([
      "127.0.0.1",
      "127.0.0.2",
      "127.0.0.1",
      "127.0.0.2",
      "127.0.0.2",
    ]);
    expect(pool.open).toBe(4);
    expect(pool.tryLease("")).toBeNull();
  });

  it(
    "the addresses of a name follow each look-up: a new address gets streams, a removed address gets none, " +
      "a remaining address keeps its session",
    async () => {
      const { origin, resolver, ask } = await named(
        ["127.0.0.1", "127.0.0.2", "127.0.0.3"],
        ["127.0.0.1", "127.0.0.2"],
      );
      await ask();
      await ask();
      await resolver.again(["127.0.0.3", "127.0.0.2"]);
      await eventually(() => origin.open["127.0.0.1"] === 0, "the end of the idle session");
      expect(new Set([await ask(), await ask(), await ask()])).toEqual(new Set(["127.0.0.2", "127.0.0.3"]));
      expect(origin.total).toEqual({ "127.0.0.1": 1, "127.0.0.2": 1, "127.0.0.3": 1 });
    },
  );

  it("the addresses of a name stay in use when a look-up fails", async () => {
    const { origin, resolver, ask } = await named(["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.2"]);
    await ask();
    await resolver.again(new Error("getaddrinfo EAI_AGAIN"));
    expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.1"]);
    expect(origin.total).toEqual({ "127.0.0.1": 1, "127.0.0.2": 1 });
  });

  it("the addresses of a name let a stream to a removed address finish, then its session ends", async () => {
    const { origin, resolver, send, held } = await named(["127.0.0.1", "127.0.0.2"], ["127.0.0.1"], { holds: true });
    const reply = await send();
    await resolver.again(["127.0.0.2"]);
    const next = await send();
    expect(origin.total).toEqual({ "127.0.0.1": 1, "127.0.0.2": 1 });
    await eventually(() => held.length === 2, "two held requests");
    const texts = Promise.all([read(reply), read(next)]);
    for (const end of held) end();
    expect(await texts).toEqual(["127.0.0.1", "127.0.0.2"]);
    await eventually(() => origin.open["127.0.0.1"] === 0, "no connection to 127.0.0.1");
  });

  it(
    "the addresses of a name belong to the session that reached them: " +
      "a session that was opened for another address ends with the address it reached",
    async () => {
      const { origin, resolver, ask } = await named(["127.0.0.2", "127.0.0.3"], ["127.0.0.1", "127.0.0.2"]);
      await ask();
      expect(origin.open).toEqual({ "127.0.0.2": 1, "127.0.0.3": 0 });
      await resolver.again(["127.0.0.1", "127.0.0.3"]);
      expect([await ask(), await ask()]).toEqual(["127.0.0.3", "127.0.0.3"]);
      await eventually(() => origin.open["127.0.0.2"] === 0, "no connection to 127.0.0.2");
    },
  );

  it("the addresses of a name get no streams if they are removed while their connection is being made", async () => {
    const { origin, resolver, send, ask } = await named(["127.0.0.1", "127.0.0.2"], ["127.0.0.1"]);
    const first = send();
    await resolver.again(["127.0.0.2"]);
    // Which of them it has reached is a race that nobody minds.
    await read(await first);
    expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.2"]);
    await eventually(() => origin.open["127.0.0.1"] === 0, "no connection to 127.0.0.1");
  });

  it(
    "the addresses of a name trigger a look-up by a connection while there are none, " +
      "and the connection fails with the look-up",
    async () => {
      const { resolver, ask } = await named(LOOPBACK, new Error("no answer yet"));
      await expect(ask()).rejects.toMatchObject({ code: "upstream_connect_failed", message: "no answer yet" });
      resolver.answer = ["127.0.0.2"];
      expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.2"]);
    },
  );

  it("the addresses of a name must present a certificate for the name over h2", async () => {
    const tls = settingsFor(OTHER_CA.cert);
    const both = ["127.0.0.1", "127.0.0.2"];
    const right = await named(both, both, { parts: { protocol: "h2", host: "shop.example.com", tls } });
    expect([await right.ask(), await right.ask()]).toEqual(both);
    const wrong = await named(both, both, { parts: { protocol: "h2", host: "other.example.com", tls } });
    await expect(wrong.send()).rejects.toMatchObject({
      code: "upstream_connect_failed",
      message: expect.stringContaining("other.example.com") as string,
    });
  });

  function settingsFor(ca: string): UpstreamTls {
    return new UpstreamTls({ ca: { content: Buffer.from(ca) } });
  }
});
