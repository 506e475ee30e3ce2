import net, { type AddressInfo, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { expect, it, onTestFinished } from "vitest";
import { DeadlineTimer, systemClock } from "../../lib/base/clock.ts";
import { joinTunnel } from "../../lib/upstream/tunnel.ts";
import { manualClock } from "../support/clock.ts";
import { connect, eventually, type RawConnection } from "../support/raw_client.ts";

const DELIVERY = { clock: systemClock, watch: new DeadlineTimer(systemClock), idleMs: 60_000, leastBytesPerS: () => 0 };

/** Both ends of one TCP connection. */
async function connection(): Promise<{ far: RawConnection; near: Socket }> {
  let near: Socket | null = null;
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => {});
    near = socket;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const far = await connect((server.address() as AddressInfo).port);
  await eventually(() => near !== null, "an accepted connection");
  onTestFinished(() => {
    far.socket.destroy();
    near!.destroy();
    server.close();
  });
  return { far, near: near! };
}

async function joined(idleMs = 10_000) {
  const [client, upstream] = [await connection(), await connection()];
  joinTunnel(
    client.near,
    Buffer.from("<c>"),
    { socket: upstream.near, head: Buffer.from("<u>"), idleMs },
    { received: null, sent: null },
    DELIVERY,
  );
  return { client, upstream };
}

it("forwards the bytes behind both heads first, then every byte both ways", async () => {
  const { client, upstream } = await joined();
  client.far.send("ping");
  upstream.far.send("pong");
  expect(await upstream.far.until("ping")).toBe("<c>ping");
  expect(await client.far.until("pong")).toBe("<u>pong");
});

it.each(["client", "upstream"] as const)(
  "closes the other side of a %s that closed before the two were joined",
  async (gone) => {
    const sides = { client: await connection(), upstream: await connection() };
    sides[gone].near.destroy();
    await eventually(() => sides[gone].near.closed, "the end of the first side");
    joinTunnel(
      sides.client.near,
      Buffer.alloc(0),
      { socket: sides.upstream.near, head: Buffer.alloc(0), idleMs: 10_000 },
      { received: null, sent: null },
      DELIVERY,
    );
    await eventually(() => sides.client.near.destroyed && sides.upstream.near.destroyed, "the end of both sides");
  },
);

it("lets either side end alone, and closes both when both have ended", async () => {
  const { client, upstream } = await joined();
  upstream.far.socket.allowHalfOpen = true;
  client.far.socket.end("over");
  await upstream.far.until("<c>over");
  await eventually(() => upstream.far.socket.readableEnded, "the end of the client's bytes at the upstream");
  upstream.far.send("still here");
  await client.far.until("still here");
  upstream.far.socket.end();
  await eventually(() => client.near.destroyed && upstream.near.destroyed, "the end of both sides");
});

it("resets the other side of a side that breaks", async () => {
  for (const who of ["client", "upstream"] as const) {
    const both = await joined();
    both[who].far.socket.resetAndDestroy();
    await eventually(() => both.client.near.destroyed && both.upstream.near.destroyed, "the end of both sides");
  }
});

it("forwards what an upstream sent before it closed to a client that reads late", async () => {
  const { client, upstream } = await joined();
  client.far.socket.pause();
  const all = Buffer.alloc(300_000, "x");
  upstream.far.socket.end(all);
  await eventually(() => upstream.near.readableEnded, "the end of the upstream's bytes");
  client.far.socket.resume();
  expect(await client.far.closed()).toHaveLength("<u>".length + all.length);
});

it("slows one side down when the other side does not read", async () => {
  const { client, upstream } = await joined();
  upstream.far.socket.pause();
  let written = 0;
  const piece = Buffer.alloc(64 * 1024);
  const push = () => {
    while (written < 200_000_000) {
      written += piece.length;
      if (!client.far.socket.write(piece)) return;
    }
  };
  client.far.socket.on("drain", push);
  push();
  await eventually(() => client.near.isPaused(), "a paused client");
  expect(written).toBeLessThan(60_000_000);
  expect(upstream.near.writableLength).toBeLessThan(1_000_000);
});

it("closes both sides when no bytes have moved for idleMs, not before", async () => {
  const { client, upstream } = await joined(120);
  const began = performance.now();
  await eventually(() => client.near.destroyed && upstream.near.destroyed, "the end of both sides");
  expect(performance.now() - began).toBeGreaterThan(100);
});

it("keeps both sides open for traffic in one direction", async () => {
  // Many times the pause between two bytes: a busy machine makes each longer.
  const { client, upstream } = await joined(700);
  for (let i = 0; i < 10; i++) {
    client.far.send("x");
    await new Promise((resolve) => setTimeout(resolve, 80));
  }
  expect([client.near.destroyed, upstream.near.destroyed]).toEqual([false, false]);
  await eventually(() => client.near.destroyed && upstream.near.destroyed, "the end of both sides");
});

it("measures every silence, even on streams that count no bytes", async () => {
  const side = () => new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const [client, upstream] = [side(), side()];
  const clock = manualClock();
  const delivery = { ...DELIVERY, clock, watch: new DeadlineTimer(clock) };
  joinTunnel(
    client,
    Buffer.alloc(0),
    { socket: upstream, head: Buffer.alloc(0), idleMs: 1 },
    { received: null, sent: null },
    delivery,
  );
  // Once both flow, what is pushed is heard at once.
  await new Promise((resolve) => setImmediate(resolve));
  for (const mover of [client, upstream]) {
    client.emit("timeout");
    mover.push("x");
    upstream.emit("timeout");
    mover.push("y");
    expect([client.destroyed, upstream.destroyed]).toEqual([false, false]);
  }
  clock.advance(1);
  client.emit("timeout");
  expect(client.destroyed).toBe(false);
  upstream.emit("timeout");
  expect([client.destroyed, upstream.destroyed]).toEqual([true, true]);
});
