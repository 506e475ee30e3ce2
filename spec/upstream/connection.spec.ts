import { describe, expect, it, onTestFinished } from "vitest";
import type { Reply } from "../../lib/http/reply.ts";
import { Pool, type PoolOptions } from "../../lib/upstream/pool.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { socketOrigin } from "../support/origin.ts";
import { madeUpPeer } from "../support/peer.ts";
import { eventually } from "../support/raw_client.ts";

/** Sends a request without a body and reads the answer to its end. */
function asking(pool: Pool) {
  const clock = manualClock();
  const options = { clock, client: "wire", connectMs: 5000, responseMs: 5000, idleMs: 5000, tryMs: 0, preserveHost: false, viaName: "gw" } as const;
  return (): Promise<Reply> => madeUpPeer("u", pool).forward(madeUpExchange(), options, 0);
}

async function withBackend(answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", parts: Partial<PoolOptions> = {}) {
  const upstream = await socketOrigin((socket) => socket.on("data", () => socket.write(answer)));
  const pool = new Pool({ protocol: "http", host: "127.0.0.1", port: upstream.port, keepaliveIdleMs: 30_000, ...parts }, 5, manualClock());
  onTestFinished(async () => {
    pool.destroy();
    await upstream.close();
  });
  return { upstream, pool, ask: asking(pool) };
}

describe("connections", () => {
  it("are kept, counted and used again, the last one first", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    await ask();
    expect(upstream.connections).toBe(1);
    expect(pool).toMatchObject({ leased: 0, open: 1 });
    await Promise.all([ask(), ask(), ask()]);
    expect(upstream.connections).toBe(3);
    expect(pool.open).toBe(3);
  });

  it("are closed when bytes come while they are idle", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    [...upstream.sockets][0]!.write("unasked");
    await eventually(() => pool.open === 0, "the end of the connection");
    await ask();
    expect(upstream.connections).toBe(2);
  });

  it("are closed when unread bytes have come", async () => {
    const { upstream, pool } = await withBackend();
    // As over TLS: what has come waits in the socket while it is paused.
    const connection = pool.connection("upgrade");
    await eventually(() => connection.isConnected && upstream.sockets.size === 1);
    connection.socket.pause();
    [...upstream.sockets][0]!.write("unasked");
    await eventually(() => connection.socket.readableLength > 0);
    pool.giveBack(connection);
    expect(connection.socket.destroyed).toBe(true);
  });

  it("are not used again after the upstream has ended them", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    [...upstream.sockets][0]!.end();
    await eventually(() => pool.open === 0);
    await ask();
    expect(upstream.connections).toBe(2);
  });

  it.each([
    ["Connection: close", 0],
    ["Keep-Alive: timeout=0", 0],
    ["Keep-Alive: timeout=1", 0],
    ["Keep-Alive: timeout=60", 1],
  ])("after a response with %j: %d are kept", async (line, kept) => {
    const { ask, pool } = await withBackend(`HTTP/1.1 200 OK\r\n${line}\r\nContent-Length: 2\r\n\r\nok`);
    await ask();
    expect(pool.open).toBe(kept);
  });

  it("are closed after keepalive_idle_ms without use, or after the time that the upstream states", async () => {
    for (const [answer, keepaliveIdleMs] of [["", 40], ["Keep-Alive: timeout=2\r\n", 0]] as const) {
      const { ask, pool, upstream } = await withBackend(`HTTP/1.1 200 OK\r\n${answer}Content-Length: 2\r\n\r\nok`, { keepaliveIdleMs });
      await ask();
      expect(pool.open).toBe(1);
      await eventually(() => pool.open === 0 && upstream.sockets.size === 0, "the end of the connection");
    }
  });

  it("are kept if the upstream states a time longer than timers can run", async () => {
    const warnings: string[] = [];
    const warned = (warning: Error) => warnings.push(warning.message);
    process.on("warning", warned);
    const { ask, pool } = await withBackend("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=999999999\r\nContent-Length: 2\r\n\r\nok", { keepaliveIdleMs: 0 });
    await ask();
    await new Promise((resolve) => setImmediate(resolve));
    process.off("warning", warned);
    expect(warnings.filter((text) => text.includes("does not fit"))).toEqual([]);
    expect(pool.open).toBe(1);
  });

  it("do not collect listeners when they are used many times", async () => {
    const { ask, pool } = await withBackend();
    await ask();
    const connection = pool.connection();
    const { socket } = connection;
    const count = () => socket.eventNames().map((name) => socket.listenerCount(name)).reduce((a, b) => a + b);
    const before = count();
    pool.giveBack(connection);
    for (let i = 0; i < 20; i++) await ask();
    expect(count()).toBe(before);
  });

  it("hold their lease to their end as tunnels, and are closed with the pool", async () => {
    const { upstream, pool } = await withBackend("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    const options = { clock: manualClock(), client: "wire", connectMs: 5000, responseMs: 5000, idleMs: 5000, tryMs: 0, preserveHost: false, viaName: "gw" } as const;
    const reply = await madeUpPeer("u", pool).forward(madeUpExchange({ upgrade: "websocket" }), options, 0);
    expect(pool.open).toBe(1);
    pool.destroy();
    expect(reply.tunnel!.socket.destroyed).toBe(true);
    await eventually(() => upstream.sockets.size === 0 && pool.leased === 0);
    expect(pool.open).toBe(0);
  });

  it("are not kept when their request was given up before they were connected", async () => {
    const { upstream, pool } = await withBackend();
    const exchange = madeUpExchange();
    const options = { clock: manualClock(), connectMs: 5000, responseMs: 5000, idleMs: 5000, tryMs: 0, preserveHost: false, viaName: "gw" };
    const reply = madeUpPeer("u", pool).forward(exchange, options, 0);
    exchange.call.abort();
    await expect(reply).rejects.toMatchObject({ code: "upstream_reset" });
    expect(pool).toMatchObject({ leased: 0, open: 0 });
    await eventually(() => upstream.sockets.size === 0);
  });

  it("are closed by dropIdle unless they are in use", async () => {
    const { upstream, ask, pool } = await withBackend();
    await Promise.all([ask(), ask()]);
    const used = pool.connection();
    pool.dropIdle();
    await eventually(() => upstream.sockets.size === 1);
    expect(used.socket.destroyed).toBe(false);
    pool.giveBack(used);
    await ask();
    expect(upstream.connections).toBe(2);
  });

  it("are closed when they come back to a retired pool", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    pool.retire();
    await eventually(() => upstream.sockets.size === 0);
    await ask();
    expect(pool.open).toBe(0);
    await eventually(() => upstream.sockets.size === 0);
  });

  it("are closed by destroy, also in use", async () => {
    const { pool, upstream } = await withBackend("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\npart");
    const reply = await asking(pool)();
    const broken = new Promise((resolve) => (reply.body as NodeJS.ReadableStream).on("error", resolve).resume());
    pool.destroy();
    await broken;
    await eventually(() => upstream.sockets.size === 0 && pool.leased === 0);
  });
});
