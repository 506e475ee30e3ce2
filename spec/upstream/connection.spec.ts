/** The connections that the pool keeps itself; those that its agents keep, and leases, are `pool.spec.ts`. */
import http, { type RequestListener } from "node:http";
import https from "node:https";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Reply } from "../../lib/http/reply.ts";
import { Pool, type PoolOptions } from "../../lib/upstream/pool.ts";
import { LOOPBACK, madeUpNames, NOBODY, site } from "../support/addresses.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { OTHER_CA, SHOP } from "../support/more_certs.ts";
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
  test("are kept, counted and used again, the last one first", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    await ask();
    expect(upstream.connections).toBe(1);
    expect(pool).toMatchObject({ leased: 0, open: 1 });
    await Promise.all([ask(), ask(), ask()]);
    expect(upstream.connections).toBe(3);
    expect(pool.open).toBe(3);
  });

  test("are closed when bytes come while they are idle", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    [...upstream.sockets][0]!.write("unasked");
    await eventually(() => pool.open === 0, "the end of the connection");
    await ask();
    expect(upstream.connections).toBe(2);
  });

  test("are closed when bytes have come, though nobody has read them yet", async () => {
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

  test("that the upstream has ended are not used again", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    [...upstream.sockets][0]!.end();
    await eventually(() => pool.open === 0);
    await ask();
    expect(upstream.connections).toBe(2);
  });

  test.each([
    ["Connection: close", 0],
    ["Keep-Alive: timeout=0", 0],
    ["Keep-Alive: timeout=1", 0],
    ["Keep-Alive: timeout=60", 1],
  ])("behind %j: %d are kept", async (line, kept) => {
    const { ask, pool } = await withBackend(`HTTP/1.1 200 OK\r\n${line}\r\nContent-Length: 2\r\n\r\nok`);
    await ask();
    expect(pool.open).toBe(kept);
  });

  test("are closed when nobody has used them for keepalive_idle_ms, or for as long as the upstream says", async () => {
    for (const [answer, keepaliveIdleMs] of [["", 40], ["Keep-Alive: timeout=2\r\n", 0]] as const) {
      const { ask, pool, upstream } = await withBackend(`HTTP/1.1 200 OK\r\n${answer}Content-Length: 2\r\n\r\nok`, { keepaliveIdleMs });
      await ask();
      expect(pool.open).toBe(1);
      await eventually(() => pool.open === 0 && upstream.sockets.size === 0, "the end of the connection");
    }
  });

  test("the upstream may ask for them to be kept longer than timers can run", async () => {
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

  test("listeners do not pile up on one that is used many times", async () => {
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

  test("that have become tunnels are counted among the upstream's to their end, and forgotten then", async () => {
    const { upstream, pool } = await withBackend("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    const options = { clock: manualClock(), client: "wire", connectMs: 5000, responseMs: 5000, idleMs: 5000, tryMs: 0, preserveHost: false, viaName: "gw" } as const;
    const reply = await madeUpPeer("u", pool).forward(madeUpExchange({ upgrade: "websocket" }), options, 0);
    const seen = pool.connection();
    const { connections } = seen.home as unknown as { readonly connections: ReadonlySet<unknown> };
    expect(connections.size).toBe(2);
    seen.end();
    reply.tunnel!.socket.destroy();
    await eventually(() => upstream.sockets.size === 0 && pool.leased === 0);
    expect(connections.size).toBe(0);
  });

  test("dropIdle closes those that are not in use, and no others", async () => {
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

  test("of a retired pool are closed when they come back", async () => {
    const { upstream, ask, pool } = await withBackend();
    await ask();
    pool.retire();
    await eventually(() => upstream.sockets.size === 0);
    await ask();
    expect(pool.open).toBe(0);
    await eventually(() => upstream.sockets.size === 0);
  });

  test("destroy closes those in use too", async () => {
    const { pool, upstream } = await withBackend("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\npart");
    const reply = await asking(pool)();
    const broken = new Promise((resolve) => (reply.body as NodeJS.ReadableStream).on("error", resolve).resume());
    pool.destroy();
    await broken;
    await eventually(() => upstream.sockets.size === 0 && pool.leased === 0);
  });
});

describe("the addresses of a name", () => {
  const ok: RequestListener = (request, response) => void response.end(request.socket.localAddress);

  async function bench(serving: readonly string[], answer: readonly string[], parts: Partial<PoolOptions> = {}, listener = ok) {
    const isSecure = parts.protocol === "https";
    const origin = await site(serving, () => (isSecure ? https.createServer({ cert: SHOP.cert, key: SHOP.key }, listener) : http.createServer(listener)));
    const host = parts.host ?? "upstream.invalid";
    const resolver = madeUpNames(answer);
    const name = await resolver.named(host);
    const pool = new Pool({ protocol: "http", host, port: origin.port, keepaliveIdleMs: 30_000, name, ...parts }, 100, manualClock());
    onTestFinished(() => pool.destroy());
    const send = asking(pool);
    const ask = async () => String((await send()).body);
    return { origin, resolver, pool, ask, send };
  }

  test("are used in turn, and their connections again, with no look-up for any", async () => {
    const { origin, resolver, ask } = await bench(LOOPBACK, LOOPBACK);
    const reached: string[] = [];
    for (let i = 0; i < LOOPBACK.length * 2; i++) reached.push(await ask());
    expect(reached).toEqual([...LOOPBACK, ...LOOPBACK]);
    expect(origin.total).toEqual(Object.fromEntries(LOOPBACK.map((address) => [address, 1])));
    expect(resolver.asked).toEqual(["upstream.invalid"]);
  });

  test("one that refuses is no error: the others take its turn", async () => {
    const { ask } = await bench(["127.0.0.2"], [NOBODY, "127.0.0.2"]);
    expect([await ask(), await ask()]).toEqual(["127.0.0.2", "127.0.0.2"]);
  });

  test("a new one is used, one that has left is not, one that stays keeps its connections", async () => {
    const { origin, resolver, ask } = await bench(["127.0.0.1", "127.0.0.2", "127.0.0.3"], ["127.0.0.1", "127.0.0.2"]);
    await ask();
    await ask();
    await resolver.again(["127.0.0.3", "127.0.0.2"]);
    await eventually(() => origin.open["127.0.0.1"] === 0, "the end of the idle connection");
    expect(new Set([await ask(), await ask(), await ask()])).toEqual(new Set(["127.0.0.2", "127.0.0.3"]));
    expect(origin.total).toEqual({ "127.0.0.1": 1, "127.0.0.2": 1, "127.0.0.3": 1 });
  });

  test("an exchange under way with one that leaves comes to its end, and its connection with it", async () => {
    const held: (() => void)[] = [];
    const { origin, resolver, ask } = await bench(["127.0.0.1", "127.0.0.2"], ["127.0.0.1"], {}, (_request, response) => void held.push(() => response.end("late")));
    const answered = ask();
    await eventually(() => held.length === 1);
    await resolver.again(["127.0.0.2"]);
    expect(origin.open["127.0.0.1"]).toBe(1);
    held[0]!();
    expect(await answered).toBe("late");
    await eventually(() => origin.open["127.0.0.1"] === 0, "the end of the connection");
  });

  test("https: every one has to show a certificate for the name, and the session is taken up again", async () => {
    const tls = { verify: true, identity: "i", ca: Buffer.from(OTHER_CA.cert) };
    const reused: boolean[] = [];
    const right = await bench(["127.0.0.1"], ["127.0.0.1"], { protocol: "https", host: "shop.example.com", tls }, (request, response) => {
      reused.push((request.socket as import("node:tls").TLSSocket).isSessionReused());
      response.setHeader("Connection", "close");
      response.end("ok");
    });
    await right.ask();
    await right.ask();
    expect(reused).toEqual([false, true]);
    const wrong = await bench(["127.0.0.1"], ["127.0.0.1"], { protocol: "https", host: "other.example.com", tls });
    await expect(wrong.ask()).rejects.toMatchObject({ code: "upstream_connect_failed" });
  });
});
