/**
 * `max_client_share`: what one client address holds of an upstream's places, over each protocol on either side, while
 * others are served.
 * Clients have addresses of their own in 127.0.0.0/8, or are named by a trusted proxy.
 */
import { once } from "node:events";
import http2 from "node:http2";
import type { ServerResponse } from "node:http";
import net, { type AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually, type RawConnection } from "../support/raw_client.ts";
import { backend, byteBackend, client, codeIn, get, statusesIn } from "./harness.ts";

const ATTACKER = "127.0.0.2";
const UPGRADE = [
  "Connection: Upgrade",
  "Upgrade: websocket",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  "Sec-WebSocket-Version: 13",
];
const SWITCHED =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
  "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const four = { pool: { max_connections: 4 } };

type Config = Parameters<typeof oneService>;

/** A gateway whose upstream answers `/ok`, and holds all other requests until the test answers them. */
async function holding(parts: Config[1] = four, global: Config[2] = {}) {
  const held: ServerResponse[] = [];
  const upstream = await backend((request, response) => {
    if (request.url === "/ok") response.end("ok");
    else held.push(response);
  });
  const clock = manualClock();
  const config = (more: Config[2] = {}) => oneService(upstream.port, parts, { ...global, ...more });
  const { gateway, port } = await running(config(), { clock });
  const upstreams = () => gateway.health.services[0]!.upstreams[0]!.inFlight;
  /**
   * Sends these requests, each over a connection of its own; resolves when all of them hold a place or wait for one.
   */
  const sent = async (count: number, from = ATTACKER, ...lines: string[]): Promise<RawConnection[]> => {
    const before = upstreams();
    const connections = await Promise.all(Array.from({ length: count }, () => client(port, from)));
    for (const connection of connections) connection.send(get("/a/x", ...lines));
    await eventually(() => upstreams() === before + count, "the requests to hold a place or to wait");
    return connections;
  };
  const served = async (...lines: string[]) => {
    const other = await client(port);
    other.send(get("/a/ok", "Connection: close", ...lines));
    return statusesIn(await other.closed())[0];
  };
  const holds = (count: number) => eventually(() => held.length === count, `${count} requests to reach the upstream`);
  return { gateway, port, clock, config, held, holds, sent, served, upstreams };
}

describe("a client over HTTP/1.1", () => {
  it("holds half of the places, waits for more as for a connection, and others are served meanwhile", async () => {
    const { held, holds, sent, served, upstreams, clock } = await holding();
    const connections = await sent(5);
    await holds(2);
    expect(await served()).toBe(200);
    expect(held.length).toBe(2);
    // Each that ends lets the next in.
    for (let next = 3; next <= 5; next++) {
      held[next - 3]!.end("done");
      await holds(next);
      expect(await served()).toBe(200);
    }
    for (const response of held) response.end("done");
    for (const connection of connections) expect(statusesIn(await connection.until("done"))).toEqual([200]);
    await eventually(() => upstreams() === 0, "every place to be free");
    // No timer of a wait is left.
    clock.advance(10_000);
    expect(connections.flatMap(({ text }) => statusesIn(text()))).toEqual([200, 200, 200, 200, 200]);
  });

  it("gets 503 upstream_saturated after connect_ms, and leaves nothing behind", async () => {
    const { gateway, held, holds, sent, served, clock, upstreams } = await holding({
      ...four,
      timeouts: { connect_ms: 700 },
    });
    const connections = await sent(3);
    await holds(2);
    clock.advance(700);
    await eventually(() => connections.some(({ text }) => text().includes("upstream_saturated")), "a 503");
    expect(connections.map(({ text }) => codeIn(text()) ?? "waits").sort()).toEqual([
      "upstream_saturated",
      "waits",
      "waits",
    ]);
    expect(upstreams()).toBe(2);
    for (const response of held) response.end("done");
    await eventually(() => upstreams() === 0 && gateway.inFlight === 0, "every place to be free");
    await sent(2);
    await holds(4);
    expect(await served()).toBe(200);
  });

  it("leaves nothing behind when it goes away while it waits", async () => {
    const { gateway, held, holds, sent, upstreams } = await holding();
    const [first] = await sent(2);
    await holds(2);
    const waiting = await sent(3);
    for (const { socket } of waiting) socket.destroy();
    await eventually(() => upstreams() === 2, "those that have gone to leave the queue");
    // Going away with a place frees it.
    first!.socket.destroy();
    await eventually(() => upstreams() === 1, "the place to be free");
    await sent(1);
    await holds(3);
    for (const response of held) response.end("done");
    await eventually(() => upstreams() === 0 && gateway.inFlight === 0, "every place to be free");
  });

  it("has one place at least, and all of them with 1", async () => {
    for (const [share, places, most] of [
      [0.001, 4, 1],
      [0.5, 1, 1],
      [0.5, 3, 1],
      [0.29, 100, 29],
      [1, 4, 4],
    ] as const) {
      const { held, holds, sent, served } = await holding(
        { pool: { max_connections: places } },
        { limits: { max_client_share: share } },
      );
      await sent(most + 1);
      await holds(most);
      if (most < places) expect(await served()).toBe(200);
      expect(held.length).toBe(most);
    }
  });

  it("is counted while the share is 1, and a reload changes the share of those that hold and wait", async () => {
    const { gateway, config, held, holds, sent, served, upstreams } = await holding(
      { pool: { max_connections: 6 } },
      { limits: { max_client_share: 1 } },
    );
    await sent(4);
    await holds(4);
    await gateway.reload(config({ limits: { max_client_share: 0.5 } }));
    await sent(1);
    held[0]!.end("done");
    await eventually(() => upstreams() === 4, "the end of the first");
    // Three hold places still.
    expect(await served()).toBe(200);
    expect(held.length).toBe(4);
    held[1]!.end("done");
    await holds(5);
    await sent(2);
    expect(await served()).toBe(200);
    expect(held.length).toBe(5);
    await gateway.reload(config({ limits: { max_client_share: 1 } }));
    await holds(7);
  });

  it("waits behind nobody once its share is free, and holds nobody up while it is not", async () => {
    const { held, holds, sent } = await holding();
    await sent(4);
    await holds(2);
    await sent(2, "127.0.0.3");
    await holds(4);
    // All places are taken, and a third client waits for one.
    await sent(1, "127.0.0.4");
    held[0]!.end("done");
    await holds(5);
    held[1]!.end("done");
    await holds(6);
  });
});

describe("whose place it is", () => {
  const proxied = { trusted_proxies: ["127.0.0.1", "127.0.0.9"] };
  const by = (address: string) => `X-Forwarded-For: ${address}`;

  it("is the /64's of an IPv6 address, and an IPv4 address in IPv6 form is the IPv4 address", async () => {
    const { held, holds, sent } = await holding(
      { pool: { max_connections: 6 } },
      { ...proxied, limits: { max_client_share: 0.34 } },
    );
    await sent(2, "127.0.0.1", by("2001:db8::1"));
    await sent(1, "127.0.0.1", by("2001:DB8:0:0:ffff::2"));
    await holds(2);
    await sent(1, "127.0.0.1", by("2001:db8:0:1::1"));
    await holds(3);
    await sent(2, "127.0.0.1", by("192.0.2.7"));
    await holds(5);
    await sent(1, "127.0.0.1", by("::ffff:192.0.2.7"));
    // Neither the third of the /64 nor the third of the IPv4 address has a place, though one is free.
    await sent(1, "127.0.0.1", by("192.0.2.8"));
    await holds(6);
    expect(held.length).toBe(6);
  });

  it("is a client's that a trusted proxy names; nobody's if it names none, or another trusted proxy", async () => {
    const { holds, sent, served } = await holding(four, proxied);
    await sent(3, "127.0.0.1", by("192.0.2.7"));
    await holds(2);
    expect(await served(by("192.0.2.8"))).toBe(200);
    await sent(1, "127.0.0.1");
    await sent(1, "127.0.0.1", by("127.0.0.9"));
    await holds(4);
    const alone = await holding(four, proxied);
    await alone.sent(3, "127.0.0.1");
    await alone.sent(1, "127.0.0.9", by("127.0.0.1"));
    await alone.holds(4);
  });

  it("is the connection's if no proxy is trusted, whatever X-Forwarded-For says", async () => {
    const { held, holds, sent, served } = await holding();
    for (const last of [1, 2, 3]) await sent(1, ATTACKER, by(`192.0.2.${last}`));
    await holds(2);
    expect(await served()).toBe(200);
    expect(held.length).toBe(2);
  });
});

describe("a client over HTTP/2", () => {
  /** Opens so many streams over one connection, and lets nothing of their replies in. */
  async function windowless(port: number, streams: number): Promise<http2.ClientHttp2Session> {
    const socket = net.connect({ port, host: "127.0.0.1", localAddress: ATTACKER });
    const session = http2.connect("http://gw.example", {
      createConnection: () => socket,
      settings: { initialWindowSize: 0 },
    });
    session.on("error", () => {});
    onTestFinished(() => session.destroy());
    await once(session, "remoteSettings");
    for (let i = 0; i < streams; i++) session.request({ ":path": "/a/large" }).on("error", () => {});
    return session;
  }

  it("does not hold every connection with two of its own, 256 streams and no window for replies of 1 MB", async () => {
    const large = Buffer.alloc(1_000_000);
    const upstream = await backend((request, response) => response.end(request.url === "/large" ? large : "ok"));
    const { gateway, port } = await running(oneService(upstream.port, {}, { h2c: true }));
    const sessions = [await windowless(port, 128), await windowless(port, 128)];
    await eventually(() => gateway.health.services[0]!.upstreams[0]!.inFlight === 256, "every stream");
    for (let i = 0; i < 20; i++) expect((await ask(port, { path: "/a/ok" })).body.toString()).toBe("ok");
    expect(upstream.connections.open).toBeLessThanOrEqual(128 + 1);
    for (const session of sessions) session.destroy();
    await eventually(
      () => gateway.inFlight === 0 && gateway.health.services[0]!.upstreams[0]!.inFlight === 0,
      "every place to be free",
    );
  });
});

describe("an upstream of HTTP/2", () => {
  it(
    "has as many places as its connections have streams: " + "a client holds half of them, and others are served",
    async () => {
      const held: http2.ServerHttp2Stream[] = [];
      const server = http2.createServer({ settings: { maxConcurrentStreams: 4 } });
      const sessions = new Set<http2.ServerHttp2Session>();
      server.on("session", (session) => void sessions.add(session.on("error", () => {})));
      server.on("stream", (stream, headers) => {
        stream.on("error", () => {});
        if (headers[":path"] !== "/ok") return void held.push(stream);
        stream.respond({ ":status": 200 });
        stream.end("ok");
      });
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      onTestFinished(() => {
        for (const session of sessions) session.destroy();
        server.close();
      });
      const parts = { protocol: "h2c", pool: { max_connections: 2 } } as const;
      const { gateway, port } = await running(oneService((server.address() as AddressInfo).port, parts));
      const connections = await Promise.all(Array.from({ length: 12 }, () => client(port, ATTACKER)));
      for (const connection of connections) connection.send(get("/a/x"));
      await eventually(
        () => held.length === 4 && gateway.health.services[0]!.upstreams[0]!.inFlight === 12,
        "the share, and all others to wait",
      );
      for (let i = 0; i < 5; i++) expect((await ask(port, { path: "/a/ok" })).body.toString()).toBe("ok");
      expect(held.length).toBe(4);
      // A reset frees a place as an end does.
      held[0]!.close(http2.constants.NGHTTP2_CANCEL);
      await eventually(() => held.length === 5, "the next to take the place");
      connections.forEach(({ socket }) => socket.destroy());
      await eventually(() => gateway.health.services[0]!.upstreams[0]!.inFlight === 0, "every place to be free");
    },
  );
});

describe("a WebSocket", () => {
  it("holds its place until it ends", async () => {
    const upstream = await byteBackend((socket) => {
      socket.on("error", () => {});
      socket.on(
        "data",
        (bytes: Buffer) => void (bytes.toString("latin1").includes("Sec-WebSocket-Key") && socket.write(SWITCHED)),
      );
    });
    const { gateway, port } = await running(oneService(upstream.port, four));
    const opened = async (from: string) => {
      const connection = await client(port, from);
      connection.send(get("/a/chat", ...UPGRADE));
      return connection;
    };
    const first = await opened(ATTACKER);
    await first.until("101 Switching");
    await (await opened(ATTACKER)).until("101 Switching");
    const third = await opened(ATTACKER);
    await eventually(() => gateway.health.services[0]!.upstreams[0]!.inFlight === 3, "the third to wait");
    const others = [await opened("127.0.0.1"), await opened("127.0.0.1")];
    for (const other of others) await other.until("101 Switching");
    expect(third.text()).toBe("");
    first.socket.destroy();
    await third.until("101 Switching");
  });
});

describe("the requests in flight of one client", () => {
  const limits = { max_requests_in_flight: 8 };

  /**
   * Opens streams that no route takes, over several connections, and lets nothing of their replies in. Resolves when
   * all have heads.
   */
  async function unread(
    port: number,
    from: string,
    count: number,
  ): Promise<{
    readonly sessions: http2.ClientHttp2Session[];
    readonly streams: http2.ClientHttp2Stream[];
    readonly statuses: unknown[];
  }> {
    const sessions = Array.from({ length: 2 }, () => {
      const socket = net.connect({ port, host: "127.0.0.1", localAddress: from });
      return http2.connect("http://gw.example", { createConnection: () => socket, settings: { initialWindowSize: 0 } });
    });
    const statuses: unknown[] = [];
    const streams: http2.ClientHttp2Stream[] = [];
    for (const session of sessions) {
      session.on("error", () => {});
      onTestFinished(() => session.destroy());
      await once(session, "remoteSettings");
    }
    for (let i = 0; i < count; i++) {
      const stream = sessions[i % 2]!.request({ ":path": "/none" }).on("error", () => {});
      streams.push(stream);
      statuses.push(((await once(stream, "response")) as [{ readonly ":status": number }])[0][":status"]);
    }
    return { sessions, streams, statuses };
  }

  it("are half of max_requests_in_flight, on whatever connections and whoever answers them", async () => {
    const { gateway, port, served } = await holding(four, { h2c: true, limits });
    const { sessions, statuses } = await unread(port, ATTACKER, 9);
    expect(statuses).toEqual([404, 404, 404, 404, 503, 503, 503, 503, 503]);
    expect(await served()).toBe(200);
    for (const session of sessions) session.destroy();
    await eventually(() => gateway.inFlight === 0, "no request in flight");
    expect((await unread(port, ATTACKER, 5)).statuses).toEqual([404, 404, 404, 404, 503]);
  });

  it(
    "are as many as there is room for with a share of 1, " +
      "and of requests that wait for their share of an upstream none beyond",
    async () => {
      const { gateway, config, port, holds, sent, served } = await holding(four, { h2c: true, limits });
      await sent(4);
      await holds(2);
      expect((await unread(port, ATTACKER, 2)).statuses).toEqual([503, 503]);
      expect(await served()).toBe(200);
      await gateway.reload(config({ limits: { ...limits, max_client_share: 1 } }));
      expect((await unread(port, ATTACKER, 5)).statuses).toEqual([404, 404, 404, 404, 503]);
      expect(await served()).toBe(503);
    },
  );

  it("are not those of a trusted proxy that names no client", async () => {
    const { port } = await holding(four, { h2c: true, trusted_proxies: ["127.0.0.9"], limits });
    expect((await unread(port, "127.0.0.9", 9)).statuses).toEqual([404, 404, 404, 404, 404, 404, 404, 404, 503]);
  });

  // Node never ends such a stream: neither "aborted" nor "close" comes.
  it.each(["", ", and then its connection ended"])(
    "are over when a reply that is not read is reset with NO_ERROR%s",
    async (way) => {
      const { gateway, port, clock } = await holding(four, { h2c: true });
      const { sessions, streams } = await unread(port, ATTACKER, 6);
      for (const stream of streams) stream.close(http2.constants.NGHTTP2_NO_ERROR);
      if (way !== "") for (const session of sessions) session.destroy();
      await eventually(() => {
        clock.advance(1_000);
        return gateway.inFlight === 0;
      }, "no request in flight");
    },
  );
});
