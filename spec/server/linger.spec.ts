import { once } from "node:events";
import net, { type AddressInfo, type Socket } from "node:net";
import { PassThrough } from "node:stream";
import { expect, it, onTestFinished } from "vitest";
import { endSoon, letFlow } from "../../lib/server/linger.ts";
import { manualClock } from "../support/clock.ts";
import { connect, eventually } from "../support/raw_client.ts";

/** A server that ends each connection with "bye", and a client of it that keeps its own side open. */
async function pair() {
  const clock = manualClock();
  let accepted: Socket | null = null;
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    accepted = socket;
    socket.on("error", () => {});
    socket.write("bye");
    endSoon(socket, clock);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const talk = await connect((server.address() as AddressInfo).port);
  onTestFinished(() => {
    talk.socket.destroy();
    accepted?.destroy();
    server.close();
  });
  talk.socket.allowHalfOpen = true;
  await talk.until("bye");
  await eventually(() => clock.pending === 1, "what was written going out");
  return { clock, talk, accepted: accepted! as Socket };
}

it("endSoon closes the connection when the client closes its side, and leaves no timer", async () => {
  const { clock, talk, accepted } = await pair();
  talk.socket.end();
  await eventually(() => accepted.destroyed, "the end of the connection");
  expect(clock.pending).toBe(0);
});

it("endSoon discards what the client still sends, without a reset", async () => {
  const { talk, accepted } = await pair();
  let reset = false;
  talk.socket.on("error", () => (reset = true));
  talk.socket.end("x".repeat(300_000));
  await eventually(() => accepted.destroyed, "the end of the connection");
  await talk.closed();
  expect(reset).toBe(false);
  expect(accepted.bytesRead).toBe(300_000);
});

it("endSoon cuts off a client that never closes its side", async () => {
  const { clock, accepted } = await pair();
  clock.advance(4_999);
  expect(accepted.destroyed).toBe(false);
  clock.advance(1);
  expect(accepted.destroyed).toBe(true);
});

it("endSoon discards 20 MB that a client still sends, and cuts it off when it continues for 30 s", async () => {
  const { clock, talk, accepted } = await pair();
  talk.socket.write(Buffer.alloc(20_000_000));
  // At most 8 MiB a second are read.
  await eventually(() => accepted.isPaused(), "a pause");
  expect(accepted.bytesRead).toBeLessThan(9_000_000);
  clock.advance(1_000);
  await eventually(() => accepted.bytesRead > 16_000_000 && accepted.isPaused(), "another pause");
  clock.advance(1_000);
  await eventually(() => accepted.bytesRead === 20_000_000, "what the client sends");
  for (let times = 1; times <= 6; times++) {
    clock.advance(4_000);
    expect(accepted.destroyed).toBe(false);
    talk.socket.write("more");
    await eventually(() => accepted.bytesRead === 20_000_000 + 4 * times, "more of it");
  }
  clock.advance(3_999);
  expect(accepted.destroyed).toBe(false);
  clock.advance(1);
  expect(accepted.destroyed).toBe(true);
});

it("endSoon leaves a destroyed socket alone", () => {
  const clock = manualClock();
  const socket = new net.Socket();
  socket.destroy();
  endSoon(socket, clock);
  expect(clock.pending).toBe(0);
});

it("letFlow reads a body to its end although its reader pauses it", async () => {
  const body = new PassThrough({ highWaterMark: 4 });
  body.on("data", () => body.pause());
  body.write("some");
  await eventually(() => body.isPaused(), "a paused body");
  letFlow(body);
  for (let i = 0; i < 10; i++) body.write("more");
  body.end();
  await once(body, "end");
});
