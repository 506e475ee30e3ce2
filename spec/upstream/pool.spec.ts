import http from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { Pool } from "../../lib/upstream/pool.ts";
import { manualClock } from "../support/clock.ts";
import { socketOrigin } from "../support/origin.ts";
import { eventually } from "../support/raw_client.ts";

const never = () => {};

function made(maxConnections: number, port = 1) {
  const clock = manualClock();
  const pool = new Pool({ protocol: "http", host: "127.0.0.1", port, keepaliveIdleMs: 30_000 }, maxConnections, clock);
  onTestFinished(() => pool.destroy());
  return { clock, pool };
}

/** "granted", or the code of the fault. */
function outcome(waiting: Promise<void>): Promise<string> {
  return waiting.then(
    () => "granted",
    (fault: Fault) => fault.code,
  );
}

describe("leases", () => {
  test("are given up to max_connections", () => {
    const { pool } = made(2);
    expect([pool.tryLease(), pool.tryLease(), pool.tryLease()]).toEqual([true, true, false]);
    expect(pool.leased).toBe(2);
  });

  test("a released one goes to who has waited longest", async () => {
    const { pool, clock } = made(1);
    pool.tryLease();
    const order: number[] = [];
    const waits = [1, 2, 3].map((n) => pool.waitForLease(100, never).then(() => order.push(n)));
    pool.release();
    await waits[0];
    expect(order).toEqual([1]);
    expect(pool).toMatchObject({ leased: 1, waiting: 2 });
    pool.release();
    await waits[1];
    pool.release();
    await waits[2];
    expect(order).toEqual([1, 2, 3]);
    expect(clock.pending).toBe(0);
  });

  test("nobody slips in between a release and its grant", async () => {
    const { pool } = made(1);
    pool.tryLease();
    const waiting = pool.waitForLease(100, never);
    pool.release();
    expect(pool.tryLease()).toBe(false);
    await waiting;
    expect(pool.leased).toBe(1);
  });

  test("upstream_saturated after the wait, and the place in the queue is given up", async () => {
    const { pool, clock } = made(1);
    pool.tryLease();
    const waiting = outcome(pool.waitForLease(100, never));
    clock.advance(99);
    expect(pool.waiting).toBe(1);
    clock.advance(1);
    expect(await waiting).toBe("upstream_saturated");
    pool.release();
    expect(pool).toMatchObject({ leased: 0, waiting: 0 });
    expect(pool.tryLease()).toBe(true);
  });

  test("who goes away while waiting is forgotten, with its timer", async () => {
    const { pool, clock } = made(1);
    pool.tryLease();
    let goAway = never;
    const gone = outcome(pool.waitForLease(100, (run) => (goAway = run)));
    const next = outcome(pool.waitForLease(100, never));
    goAway();
    expect(await gone).toBe("upstream_saturated");
    pool.release();
    expect(await next).toBe("granted");
    expect(pool).toMatchObject({ leased: 1, waiting: 0 });
    expect(clock.pending).toBe(0);
  });

  test("who is gone already does not wait at all", async () => {
    const { pool, clock } = made(1);
    pool.tryLease();
    expect(await outcome(pool.waitForLease(100, (run) => run()))).toBe("upstream_saturated");
    expect(pool.waiting).toBe(0);
    expect(clock.pending).toBe(0);
  });

  test("going away after the grant takes nothing back", async () => {
    const { pool } = made(1);
    pool.tryLease();
    let goAway = never;
    const waiting = outcome(pool.waitForLease(100, (run) => (goAway = run)));
    pool.release();
    expect(await waiting).toBe("granted");
    goAway();
    expect(pool.leased).toBe(1);
  });

  test("a higher max_connections lets waiting ones in at once, a lower one takes nothing away", async () => {
    const { pool } = made(1);
    pool.tryLease();
    const waits = [pool.waitForLease(100, never), pool.waitForLease(100, never)];
    pool.maxConnections = 3;
    await Promise.all(waits);
    expect(pool.leased).toBe(3);
    pool.maxConnections = 1;
    expect(pool.leased).toBe(3);
    pool.release();
    pool.release();
    expect(pool.tryLease()).toBe(false);
    pool.release();
    expect(pool.tryLease()).toBe(true);
  });

  test("a destroyed pool sends those away who wait, and takes nobody", async () => {
    const { pool, clock } = made(1);
    pool.tryLease();
    const waiting = outcome(pool.waitForLease(100, never));
    pool.destroy();
    expect(await waiting).toBe("upstream_unavailable");
    pool.release();
    expect(pool.tryLease()).toBe(false);
    expect(await outcome(pool.waitForLease(100, never))).toBe("upstream_unavailable");
    expect(clock.pending).toBe(0);
  });
});

describe("connections", () => {
  async function withBackend(answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") {
    const upstream = await socketOrigin((socket) => socket.on("data", () => socket.write(answer)));
    onTestFinished(() => upstream.close());
    const { pool } = made(5, upstream.port);
    /** Resolves when the answer is read and the connection back in the pool, or closed. */
    const ask = () =>
      new Promise<void>((resolve, reject) => {
        const request = http.get({ agent: pool.agent, host: "127.0.0.1", port: upstream.port }, (response) => response.resume());
        request.on("error", reject);
        request.on("close", () => setImmediate(resolve));
      });
    const idle = () => Object.values(pool.agent.freeSockets).flat().length;
    return { upstream, pool, ask, idle };
  }

  test("are kept and used again", async () => {
    const { upstream, ask, idle } = await withBackend();
    await ask();
    await ask();
    expect(upstream.connections).toBe(1);
    expect(idle()).toBe(1);
  });

  test("are closed when bytes come while they are idle, and not handed out in the same turn either", async () => {
    const { upstream, ask, idle, pool } = await withBackend();
    await ask();
    const [socket] = Object.values(pool.agent.freeSockets).flat();
    [...upstream.sockets][0]!.write("unasked");
    await new Promise<void>((resolve) => socket!.prependOnceListener("data", () => resolve()));
    expect(idle()).toBe(0);
    await ask();
    expect(upstream.connections).toBe(2);
  });

  test("listeners do not pile up on a connection that is used many times", async () => {
    const { ask, pool } = await withBackend();
    await ask();
    const [socket] = Object.values(pool.agent.freeSockets).flat();
    const count = () => socket!.eventNames().map((name) => socket!.listenerCount(name)).reduce((a, b) => a + b);
    await ask();
    const before = count();
    for (let i = 0; i < 20; i++) await ask();
    expect(count()).toBe(before);
  });

  test("dropIdle closes the idle ones", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    pool.dropIdle();
    await eventually(() => upstream.sockets.size === 0);
    await ask();
    expect(upstream.connections).toBe(2);
  });

  test("of a retired pool are closed when they come back", async () => {
    const { upstream, ask, pool, idle } = await withBackend();
    await ask();
    pool.retire();
    await eventually(() => upstream.sockets.size === 0);
    await ask();
    expect(idle()).toBe(0);
    await eventually(() => upstream.sockets.size === 0);
  });

  test("destroy closes those in use too", async () => {
    const silent = await socketOrigin((socket) => void socket.resume());
    onTestFinished(() => silent.close());
    const { pool } = made(1, silent.port);
    const failed = new Promise((resolve) => {
      http.get({ agent: pool.agent, host: "127.0.0.1", port: silent.port }).on("error", resolve);
    });
    await eventually(() => silent.connections === 1);
    pool.destroy();
    await failed;
    await eventually(() => silent.sockets.size === 0);
  });
});
