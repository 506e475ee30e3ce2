import http, { type RequestListener } from "node:http";
import type { TLSSocket } from "node:tls";
import https from "node:https";
import { describe, expect, it, onTestFinished } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { forward } from "../../lib/upstream/attempts.ts";
import { Http1Pool, type Http1PoolOptions } from "../../lib/upstream/pool.ts";
import type { Address, HostName } from "../../lib/upstream/contracts.ts";
import { UpstreamTls } from "../../lib/upstream/tls.ts";
import { LOOPBACK, madeUpNames, NOBODY, NOBODY_EITHER, site } from "../support/addresses.ts";
import { ANYWHERE } from "../support/anywhere.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { OTHER_CA, SHOP } from "../support/more_certs.ts";
import { socketOrigin } from "../support/origin.ts";
import { madeUpPeer } from "../support/peer.ts";
import { random } from "../support/random.ts";
import { eventually } from "../support/raw_client.ts";

const never = () => {};

function made(maxConnections: number, port = 1) {
  const clock = manualClock();
  const pool = new Http1Pool(
    { ...ANYWHERE, protocol: "http", host: "127.0.0.1", port, keepaliveIdleMs: 30_000 },
    maxConnections,
    clock,
  );
  onTestFinished(() => pool.destroy());
  return { clock, pool };
}

/** "granted", or the code of the fault. */
function outcome(waiting: Promise<true>): Promise<string> {
  return waiting.then(
    () => "granted",
    (fault: Fault) => fault.code,
  );
}

describe("leases", () => {
  it("leases grow in number up to max_connections", () => {
    const { pool } = made(2);
    expect([pool.tryLease(""), pool.tryLease(""), pool.tryLease("")]).toEqual([true, true, null]);
    expect(pool.leases.leased).toBe(2);
  });

  it("leases go to the request that has waited longest when they are released", async () => {
    const { pool, clock } = made(1);
    pool.tryLease("");
    const order: number[] = [];
    const waits = [1, 2, 3].map((n) => pool.leases.wait({ holder: "", onAbort: never }, 100).then(() => order.push(n)));
    pool.leases.release("");
    await waits[0];
    expect(order).toEqual([1]);
    expect(pool.leases).toMatchObject({ leased: 1, waiting: 2 });
    pool.leases.release("");
    await waits[1];
    pool.leases.release("");
    await waits[2];
    expect(order).toEqual([1, 2, 3]);
    expect(clock.pending).toBe(0);
  });

  it("never go to a new request between a release and its grant", async () => {
    const { pool } = made(1);
    pool.tryLease("");
    const waiting = pool.leases.wait({ holder: "", onAbort: never }, 100);
    pool.leases.release("");
    expect(pool.tryLease("")).toBeNull();
    await waiting;
    expect(pool.leases.leased).toBe(1);
  });

  it("leases end in upstream_saturated after the wait, and the request leaves the queue", async () => {
    const { pool, clock } = made(1);
    pool.tryLease("");
    const waiting = outcome(pool.leases.wait({ holder: "", onAbort: never }, 100));
    clock.advance(99);
    expect(pool.leases.waiting).toBe(1);
    clock.advance(1);
    expect(await waiting).toBe("upstream_saturated");
    pool.leases.release("");
    expect(pool.leases).toMatchObject({ leased: 0, waiting: 0 });
    expect(pool.tryLease("")).toBe(true);
  });

  it("leases leave nothing behind, timers included, for a client that disconnects while it waits", async () => {
    const { pool, clock } = made(1);
    pool.tryLease("");
    let goAway = never;
    const gone = outcome(pool.leases.wait({ holder: "", onAbort: (run) => (goAway = run) }, 100));
    const next = outcome(pool.leases.wait({ holder: "", onAbort: never }, 100));
    goAway();
    expect(await gone).toBe("upstream_saturated");
    pool.leases.release("");
    expect(await next).toBe("granted");
    expect(pool.leases).toMatchObject({ leased: 1, waiting: 0 });
    expect(clock.pending).toBe(0);
  });

  it("leases fail at once for a client that has disconnected", async () => {
    const { pool, clock } = made(1);
    pool.tryLease("");
    expect(await outcome(pool.leases.wait({ holder: "", onAbort: (run) => run() }, 100))).toBe("upstream_saturated");
    expect(pool.leases.waiting).toBe(0);
    expect(clock.pending).toBe(0);
  });

  it("leases stay granted when the client disconnects afterwards", async () => {
    const { pool } = made(1);
    pool.tryLease("");
    let goAway = never;
    const waiting = outcome(pool.leases.wait({ holder: "", onAbort: (run) => (goAway = run) }, 100));
    pool.leases.release("");
    expect(await waiting).toBe("granted");
    goAway();
    expect(pool.leases.leased).toBe(1);
  });

  it("leases start at once under a higher max_connections, and stay under a lower one", async () => {
    const { pool } = made(1);
    pool.tryLease("");
    const waits = [
      pool.leases.wait({ holder: "", onAbort: never }, 100),
      pool.leases.wait({ holder: "", onAbort: never }, 100),
    ];
    pool.limitTo(3, 1);
    await Promise.all(waits);
    expect(pool.leases.leased).toBe(3);
    pool.limitTo(1, 1);
    expect(pool.leases.leased).toBe(3);
    pool.leases.release("");
    pool.leases.release("");
    expect(pool.tryLease("")).toBeNull();
    pool.leases.release("");
    expect(pool.tryLease("")).toBe(true);
  });

  it("leases fail for all requests, including waiting requests, when the pool is destroyed", async () => {
    const { pool, clock } = made(1);
    pool.tryLease("");
    const waiting = outcome(pool.leases.wait({ holder: "", onAbort: never }, 100));
    pool.destroy();
    expect(await waiting).toBe("upstream_unavailable");
    pool.leases.release("");
    expect(pool.tryLease("")).toBeNull();
    expect(await outcome(pool.leases.wait({ holder: "", onAbort: never }, 100))).toBe("upstream_unavailable");
    expect(clock.pending).toBe(0);
  });
});

describe("the addresses of a name", () => {
  const ok: RequestListener = (request, response) => void response.end(request.socket.localAddress);

  /** Servers on `serving`, and a pool to a name that only the test knows, of the addresses `answer`. */
  async function bench(
    serving: readonly string[],
    answer: readonly string[] | Error,
    listener = ok,
    parts: Partial<Http1PoolOptions> = {},
  ) {
    const isSecure = parts.protocol === "https";
    const origin = await site(serving, () =>
      isSecure ? https.createServer({ cert: SHOP.cert, key: SHOP.key }, listener) : http.createServer(listener),
    );
    const host = parts.host ?? "upstream.invalid";
    const resolver = madeUpNames(answer);
    const name = await resolver.named(host);
    const pool = new Http1Pool(
      { ...ANYWHERE, protocol: "http", host, port: origin.port, keepaliveIdleMs: 30_000, name, ...parts },
      100,
      manualClock(),
    );
    onTestFinished(() => pool.destroy());
    const options = {
      clock: manualClock(),
      connectMs: 5000,
      responseMs: 5000,
      idleMs: 5000,
      tryMs: 0,
      preserveHost: false,
      viaName: "gw",
    };
    /** The body of a response: the address that has answered. */
    const ask = async () => String((await forward(madeUpExchange(), madeUpPeer("u", pool), options, Infinity)).body);
    return { origin, resolver, name, pool, ask };
  }

  it("the addresses of a name take turns, and their connections are reused without a look-up", async () => {
    const { origin, resolver, ask } = await bench(LOOPBACK, LOOPBACK);
    const reached: string[] = [];
    for (let i = 0; i < LOOPBACK.length * 3; i++) reached.push(await ask());
    expect(reached).toEqual([...LOOPBACK, ...LOOPBACK, ...LOOPBACK]);
    expect(origin.total).toEqual(Object.fromEntries(LOOPBACK.map((address) => [address, 1])));
    expect(resolver.asked).toEqual(["upstream.invalid"]);
  });

  it("the addresses of a name share the leases", async () => {
    const { pool } = await bench(LOOPBACK, LOOPBACK);
    pool.limitTo(2, 1);
    expect([pool.tryLease(""), pool.tryLease(""), pool.tryLease("")]).toEqual([true, true, null]);
  });

  it("the addresses of a name have at most max_connections together, unused ones included", async () => {
    const { origin, pool, ask } = await bench(LOOPBACK, LOOPBACK);
    const open = () => Object.values(origin.open).reduce((sum, each) => sum + each, 0);
    for (const most of [1, 2]) {
      pool.limitTo(most, 1);
      for (let i = 0; i < LOOPBACK.length * 2; i++) {
        await ask();
        expect(pool.open).toBeLessThanOrEqual(most);
      }
      await eventually(() => open() === most, "the end of the others");
    }
    pool.limitTo(1, 1);
    expect(pool.open).toBe(1);
    await eventually(() => open() === 1, "the end of the one that is too many");
  });

  it("the addresses of a name give way to the next address if they refuse", async () => {
    const { origin, ask } = await bench(["127.0.0.2"], [NOBODY, "127.0.0.2"]);
    expect([await ask(), await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.2", "127.0.0.2"]);
    expect(origin.total["127.0.0.2"]).toBe(2);
  });

  it("the addresses of a name appear all in the fault if all refuse", async () => {
    const { ask, origin } = await bench(["127.0.0.3"], [NOBODY, NOBODY_EITHER]);
    const message =
      `connect ECONNREFUSED ${NOBODY}:${origin.port}, connect ECONNREFUSED ` + `${NOBODY_EITHER}:${origin.port}`;
    await expect(ask()).rejects.toMatchObject({ code: "upstream_connect_failed", message });
  });

  it(
    "the addresses of a name follow each look-up: a new address is used, a removed address is not, " +
      "a remaining address keeps its connections",
    async () => {
      const { origin, resolver, ask } = await bench(
        ["127.0.0.1", "127.0.0.2", "127.0.0.3"],
        ["127.0.0.1", "127.0.0.2"],
      );
      await ask();
      await ask();
      await resolver.again(["127.0.0.3", "127.0.0.2"]);
      await eventually(() => origin.open["127.0.0.1"] === 0, "the end of the idle connection");
      expect(new Set([await ask(), await ask(), await ask()])).toEqual(new Set(["127.0.0.2", "127.0.0.3"]));
      expect(origin.total).toEqual({ "127.0.0.1": 1, "127.0.0.2": 1, "127.0.0.3": 1 });
    },
  );

  it("the addresses of a name take turns when there are fewer than before", async () => {
    const { resolver, ask } = await bench(
      ["127.0.0.1", "127.0.0.2", "127.0.0.3"],
      ["127.0.0.1", "127.0.0.2", "127.0.0.3"],
    );
    for (let i = 0; i < 3; i++) await ask();
    await resolver.again(["127.0.0.2"]);
    expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.2"]);
  });

  it("the addresses of a name stay in use when a look-up fails", async () => {
    const { origin, resolver, ask } = await bench(["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.2"]);
    await ask();
    await resolver.again(new Error("getaddrinfo EAI_AGAIN"));
    expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.1"]);
    expect(origin.total).toEqual({ "127.0.0.1": 1, "127.0.0.2": 1 });
  });

  /** A request to the first address that is answered when the test says so. */
  async function underWay() {
    const held: (() => void)[] = [];
    const made = await bench(
      ["127.0.0.1", "127.0.0.2"],
      ["127.0.0.1"],
      (_request, response) => void held.push(() => response.end("late")),
    );
    const answered = made.ask();
    answered.catch(never);
    await eventually(() => held.length === 1, "one held request");
    return { ...made, held, answered };
  }

  it("the addresses of a name let a request finish on a removed address, then its connection ends", async () => {
    const { origin, resolver, held, answered } = await underWay();
    await resolver.again(["127.0.0.2"]);
    expect(origin.open["127.0.0.1"]).toBe(1);
    held[0]!();
    expect(await answered).toBe("late");
    await eventually(() => origin.open["127.0.0.1"] === 0, "the end of the connection");
  });

  it(
    "the addresses of a name lose their connections at destroy, " + "including the connections of removed addresses",
    async () => {
      const { origin, resolver, pool, answered } = await underWay();
      await resolver.again(["127.0.0.2"]);
      pool.destroy();
      await expect(answered).rejects.toThrow();
      await eventually(() => origin.open["127.0.0.1"] === 0, "no connection to 127.0.0.1");
    },
  );

  it(
    "the addresses of a name belong to the connection that reached them: " +
      "a connection that was opened for another address ends with the address it reached",
    async () => {
      const { origin, resolver, ask } = await bench(["127.0.0.2", "127.0.0.3"], [NOBODY, "127.0.0.2"]);
      await ask();
      expect(origin.open).toEqual({ "127.0.0.2": 1, "127.0.0.3": 0 });
      await resolver.again([NOBODY, "127.0.0.3"]);
      expect([await ask(), await ask()]).toEqual(["127.0.0.3", "127.0.0.3"]);
      await eventually(() => origin.open["127.0.0.2"] === 0, "no connection to 127.0.0.2");
    },
  );

  it("the addresses of a name lose their idle connections at dropIdle and retire", async () => {
    const { origin, pool, ask } = await bench(["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.2"]);
    const none = () => origin.open["127.0.0.1"] === 0 && origin.open["127.0.0.2"] === 0;
    await ask();
    await ask();
    pool.dropIdle();
    await eventually(none);
    await ask();
    await ask();
    expect(origin.total).toEqual({ "127.0.0.1": 2, "127.0.0.2": 2 });
    pool.retire();
    await eventually(none);
  });

  it(
    "the addresses of a name trigger a look-up by a connection while there are none, " +
      "and the connection fails with the look-up",
    async () => {
      const { resolver, ask } = await bench(LOOPBACK, new Error("no answer yet"));
      await expect(ask()).rejects.toThrow("no answer yet");
      resolver.answer = ["127.0.0.2"];
      expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.2"]);
    },
  );

  it("the addresses of a name follow look-ups from the first use to the end only", async () => {
    const { resolver, name } = await bench([], ["127.0.0.1"]);
    let following = 0;
    const counted = {
      host: name.host,
      get addresses() {
        return name.addresses;
      },
      known: () => name.known(),
      connectOptions: (first: Address | undefined) => name.connectOptions(first),
      onChange(listener: () => void) {
        following++;
        const end = name.onChange(listener);
        return () => {
          following--;
          end();
        };
      },
    } as unknown as HostName;
    const make = () =>
      new Http1Pool(
        { ...ANYWHERE, protocol: "http", host: name.host, port: 1, keepaliveIdleMs: 1, name: counted },
        1,
        manualClock(),
      );
    const [retired, destroyed] = [make(), make()];
    expect(following).toBe(0);
    void [retired.connection(), retired.connection(), destroyed.connection()];
    expect(following).toBe(2);
    retired.retire();
    expect(following).toBe(1);
    destroyed.destroy();
    expect(following).toBe(0);
    await resolver.again(["127.0.0.2"]);
  });

  it("the addresses of a name must present a certificate for the name over https", async () => {
    const tls = new UpstreamTls({ ca: { content: Buffer.from(OTHER_CA.cert) } });
    const right = await bench(["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.2"], ok, {
      protocol: "https",
      host: "shop.example.com",
      tls,
    });
    expect([await right.ask(), await right.ask(), await right.ask()]).toEqual(["127.0.0.1", "127.0.0.2", "127.0.0.1"]);
    const wrong = await bench(["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.2"], ok, {
      protocol: "https",
      host: "other.example.com",
      tls,
    });
    await expect(wrong.ask()).rejects.toMatchObject({
      code: "upstream_connect_failed",
      message: expect.stringContaining("other.example.com"),
    });
  });

  it("the addresses of a name give way to the next address over https if they refuse", async () => {
    const tls = new UpstreamTls({ ca: { content: Buffer.from(OTHER_CA.cert) } });
    const { ask } = await bench(["127.0.0.2"], [NOBODY, "127.0.0.2"], ok, {
      protocol: "https",
      host: "shop.example.com",
      tls,
    });
    expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.2"]);
  });

  it("the addresses of a name keep their TLS session, which the next connection resumes", async () => {
    const tls = new UpstreamTls({ ca: { content: Buffer.from(OTHER_CA.cert) } });
    const reused: boolean[] = [];
    const listener: RequestListener = (request, response) => {
      reused.push((request.socket as TLSSocket).isSessionReused());
      response.setHeader("Connection", "close");
      response.end("ok");
    };
    const { ask } = await bench(["127.0.0.1"], ["127.0.0.1"], listener, {
      protocol: "https",
      host: "shop.example.com",
      tls,
    });
    await ask();
    await ask();
    expect(reused).toEqual([false, true]);
  });
});

/** Sends a request without a body and reads the answer to its end. */
function asking(pool: Http1Pool) {
  const clock = manualClock();
  const options = {
    clock,
    connectMs: 5000,
    responseMs: 5000,
    idleMs: 5000,
    tryMs: 0,
    preserveHost: false,
    viaName: "gw",
  } as const;
  return (): Promise<Reply> => forward(madeUpExchange(), madeUpPeer("u", pool), options, Infinity);
}

async function withBackend(
  answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
  parts: Partial<Http1PoolOptions> = {},
) {
  const upstream = await socketOrigin((socket) => socket.on("data", () => socket.write(answer)));
  const pool = new Http1Pool(
    { ...ANYWHERE, protocol: "http", host: "127.0.0.1", port: upstream.port, keepaliveIdleMs: 30_000, ...parts },
    5,
    manualClock(),
  );
  onTestFinished(async () => {
    pool.destroy();
    await upstream.close();
  });
  return { upstream, pool, ask: asking(pool) };
}

describe("connections", () => {
  it("connections stay open, are counted and are reused, the last connection first", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    await ask();
    expect(upstream.connections).toBe(1);
    expect([pool.leases.leased, pool.open]).toEqual([0, 1]);
    await Promise.all([ask(), ask(), ask()]);
    expect(upstream.connections).toBe(3);
    expect(pool.open).toBe(3);
  });

  it("connections close when bytes arrive while they are idle", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    [...upstream.sockets][0]!.write("unasked");
    await eventually(() => pool.open === 0, "the end of the connection");
    await ask();
    expect(upstream.connections).toBe(2);
  });

  it("connections close when unread bytes have arrived", async () => {
    const { upstream, pool } = await withBackend();
    // As over TLS: what has come waits in the socket while it is paused.
    const connection = pool.connection("upgrade");
    await eventually(
      () => connection.isConnected && upstream.sockets.size === 1,
      "a connected connection and one connection at the upstream",
    );
    connection.socket.pause();
    [...upstream.sockets][0]!.write("unasked");
    await eventually(() => connection.socket.readableLength > 0, "unread bytes");
    pool.giveBack(connection);
    expect(connection.socket.destroyed).toBe(true);
  });

  it("never serve again after the upstream has ended them", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    [...upstream.sockets][0]!.end();
    await eventually(() => pool.open === 0, "no open connection in the pool");
    await ask();
    expect(upstream.connections).toBe(2);
  });

  it.each([
    ["Connection: close", 0],
    ["Keep-Alive: timeout=0", 0],
    ["Keep-Alive: timeout=1", 0],
    ["Keep-Alive: timeout=60", 1],
  ])("the pool keeps, after a response with %j, %d connections", async (line, kept) => {
    const { ask, pool } = await withBackend(`HTTP/1.1 200 OK\r\n${line}\r\nContent-Length: 2\r\n\r\nok`);
    await ask();
    expect(pool.open).toBe(kept);
  });

  it("connections close after keepalive_idle_ms without use, or after the time that the upstream states", async () => {
    for (const [answer, keepaliveIdleMs] of [
      ["", 40],
      ["Keep-Alive: timeout=2\r\n", 0],
    ] as const) {
      const { ask, pool, upstream } = await withBackend(`HTTP/1.1 200 OK\r\n${answer}Content-Length: 2\r\n\r\nok`, {
        keepaliveIdleMs,
      });
      await ask();
      expect(pool.open).toBe(1);
      await eventually(() => pool.open === 0 && upstream.sockets.size === 0, "the end of the connection");
    }
  });

  it("connections stay open if the upstream states a time longer than timers can run", async () => {
    const warnings: string[] = [];
    const warned = (warning: Error) => warnings.push(warning.message);
    process.on("warning", warned);
    const { ask, pool } = await withBackend(
      "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=999999999\r\nContent-Length: 2\r\n\r\nok",
      { keepaliveIdleMs: 0 },
    );
    await ask();
    await new Promise((resolve) => setImmediate(resolve));
    process.off("warning", warned);
    expect(warnings.filter((text) => text.includes("does not fit"))).toEqual([]);
    expect(pool.open).toBe(1);
  });

  it("connections do not collect listeners when they are used many times", async () => {
    const { ask, pool } = await withBackend();
    await ask();
    const connection = pool.connection();
    const { socket } = connection;
    const count = () =>
      socket
        .eventNames()
        .map((name) => socket.listenerCount(name))
        .reduce((a, b) => a + b);
    const before = count();
    pool.giveBack(connection);
    for (let i = 0; i < 20; i++) await ask();
    expect(count()).toBe(before);
  });

  it("connections hold their lease to their end as tunnels, and close with the pool", async () => {
    const { upstream, pool } = await withBackend("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    const options = {
      clock: manualClock(),
      connectMs: 5000,
      responseMs: 5000,
      idleMs: 5000,
      tryMs: 0,
      preserveHost: false,
      viaName: "gw",
    } as const;
    const reply = await forward(madeUpExchange({ upgrade: "websocket" }), madeUpPeer("u", pool), options, Infinity);
    expect(pool.open).toBe(1);
    pool.destroy();
    expect(reply.tunnel!.socket.destroyed).toBe(true);
    await eventually(
      () => upstream.sockets.size === 0 && pool.leases.leased === 0,
      "no connection at the upstream and no lease in use",
    );
    expect(pool.open).toBe(0);
  });

  it("connections close when their request was abandoned before they were connected", async () => {
    const { upstream, pool } = await withBackend();
    const exchange = madeUpExchange();
    const options = {
      clock: manualClock(),
      connectMs: 5000,
      responseMs: 5000,
      idleMs: 5000,
      tryMs: 0,
      preserveHost: false,
      viaName: "gw",
    };
    const reply = forward(exchange, madeUpPeer("u", pool), options, Infinity);
    exchange.call.abort();
    await expect(reply).rejects.toMatchObject({ code: "upstream_reset" });
    expect([pool.leases.leased, pool.open]).toEqual([0, 0]);
    await eventually(() => upstream.sockets.size === 0, "no connection at the upstream");
  });

  it("connections close at dropIdle unless they are in use", async () => {
    const { upstream, ask, pool } = await withBackend();
    await Promise.all([ask(), ask()]);
    const used = pool.connection();
    pool.dropIdle();
    await eventually(() => upstream.sockets.size === 1, "one connection at the upstream");
    expect(used.socket.destroyed).toBe(false);
    pool.giveBack(used);
    await ask();
    expect(upstream.connections).toBe(2);
  });

  it("connections close when they come back to a retired pool", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    pool.retire();
    await eventually(() => upstream.sockets.size === 0, "no connection at the upstream");
    await ask();
    expect(pool.open).toBe(0);
    await eventually(() => upstream.sockets.size === 0, "no connection at the upstream");
  });

  it("connections close at destroy, even in use", async () => {
    const { pool, upstream } = await withBackend("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\npart");
    const reply = await asking(pool)();
    const broken = new Promise((resolve) => (reply.body as NodeJS.ReadableStream).on("error", resolve).resume());
    pool.destroy();
    await broken;
    await eventually(
      () => upstream.sockets.size === 0 && pool.leases.leased === 0,
      "no connection at the upstream and no lease in use",
    );
  });
});

describe("the share of one client", () => {
  it("says in the fault of a wait that the client held its share", async () => {
    const { pool, clock } = made(4);
    pool.limitTo(4, 0.5);
    for (const client of ["a", "a", "b"]) pool.tryLease(client);
    const waiting = pool.leases.wait({ holder: "a", onAbort: never }, 100).catch((fault: Fault) => fault.message);
    expect(pool.tryLease("b")).toBe(true);
    clock.advance(100);
    expect(await waiting).toBe(
      "no connection became free within 100 ms (max_connections 4, 4 requests in progress, " +
        "2 of this client, which are its share)",
    );
    expect(clock.pending).toBe(0);
  });

  it(
    "does not decide alone: clients that wait take turns, " +
      "and the requests of each are granted in the order in which they came",
    async () => {
      const { pool } = made(1);
      pool.tryLease("x");
      const granted: string[] = [];
      for (const name of ["a1", "a2", "a3", "b1", "b2"])
        void pool.leases.wait({ holder: name[0]!, onAbort: never }, 1000).then(() => granted.push(name));
      for (const client of ["x", "a", "b", "a", "b", "a"]) {
        pool.leases.release(client);
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect(granted).toEqual(["a1", "b1", "a2", "b2", "a3"]);
    },
  );

  it("is refused with all other waits when the pool is destroyed", async () => {
    const { pool, clock } = made(2);
    pool.limitTo(2, 0.5);
    pool.tryLease("a");
    const waits = [1, 2, 3].map(() => outcome(pool.leases.wait({ holder: "a", onAbort: never }, 100)));
    pool.destroy();
    expect(await Promise.all(waits)).toEqual(["upstream_unavailable", "upstream_unavailable", "upstream_unavailable"]);
    expect([pool.leases.waiting, clock.pending]).toEqual([0, 0]);
  });

  it.each([1, 2, 3, 4, 5, 6])(
    "is never exceeded, leaves no place unused that somebody may have, and no trace at the end (random run %i)",
    async (seed) => {
      const dice = random(seed);
      const { pool, clock } = made(4);
      let [limit, share] = [4, 0.5];
      pool.limitTo(limit, share);
      const leases: string[] = [];
      const waits = new Set<{ readonly client: string; goAway: () => void }>();
      const count = (client: string) => leases.filter((each) => each === client).length;
      const most = (client: string) =>
        client === "" || share === 1 ? Infinity : Math.max(1, Math.floor(limit * share));
      const granted = (client: string) => {
        expect(leases.length).toBeLessThan(limit);
        expect(count(client)).toBeLessThan(most(client));
        leases.push(client);
      };
      const arrive = (client: string) => {
        if (pool.tryLease(client) !== null) return granted(client);
        const wait = { client, goAway: never };
        waits.add(wait);
        pool.leases.wait({ holder: client, onAbort: (run) => (wait.goAway = run) }, dice.pick([5, 50, 500])).then(
          () => {
            waits.delete(wait);
            granted(client);
          },
          () => waits.delete(wait),
        );
      };
      const release = (at: number) => pool.leases.release(leases.splice(at, 1)[0]!);
      let isQuiet = true;
      for (let step = 0; step < 1500; step++) {
        const roll = dice.int(0, isQuiet ? 19 : 17);
        isQuiet = dice.chance(0.75);
        if (roll < 9) arrive(dice.pick(["", "a", "a", "a", "b", "c"]));
        else if (roll < 15 && leases.length > 0) release(dice.int(0, leases.length - 1));
        else if (roll < 17 && waits.size > 0) dice.pick([...waits]).goAway();
        else if (roll === 17) clock.advance(dice.int(0, 59));
        else if (roll === 18) pool.limitTo((limit = dice.int(1, 8)), share);
        else if (roll === 19) pool.limitTo(limit, (share = dice.pick([0.001, 0.25, 0.5, 1])));
        // Grants come some microtasks later; sometimes more happens before, but not a change of the limits, by which
        // the grants are judged.
        if (!isQuiet) continue;
        await new Promise((resolve) => setImmediate(resolve));
        expect([pool.leases.leased, pool.leases.waiting]).toEqual([leases.length, waits.size]);
        expect(Object.fromEntries(pool.leases.byClient)).toEqual(
          Object.fromEntries([...new Set(leases)].map((client) => [client, count(client)])),
        );
        const needless = [...waits].filter(({ client }) => leases.length < limit && count(client) < most(client));
        expect(needless, `step ${step}`).toEqual([]);
      }
      while (leases.length > 0 || waits.size > 0) {
        if (leases.length > 0) release(0);
        await new Promise((resolve) => setImmediate(resolve));
      }
      expect([pool.leases.leased, pool.leases.waiting, pool.leases.byClient.size, clock.pending]).toEqual([0, 0, 0, 0]);
    },
  );
});
