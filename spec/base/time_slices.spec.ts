import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { createTimeSlices, paced } from "../../lib/base/time_slices.ts";

const turn = () => new Promise<void>((resolve) => void setImmediate(resolve));

describe("slices of short work", () => {
  it("slices run one in each turn of the event loop, in the order of the requests", async () => {
    const nextSlice = createTimeSlices();
    const order: string[] = [];
    const work = async (name: string, slices: number) => {
      for (let i = 1; i <= slices; i++) {
        await nextSlice();
        order.push(`${name}${i}`);
      }
    };
    const all = Promise.all([work("a", 3), work("b", 2), work("c", 1)]);
    const perTurn: number[] = [];
    for (let before = 0; order.length < 6; before = order.length) {
      await turn();
      perTurn.push(order.length - before);
    }
    await all;
    expect(order).toEqual(["a1", "b1", "c1", "a2", "b2", "a3"]);
    expect(Math.max(...perTurn)).toBe(1);
  });

  it("slices start again after a pause", async () => {
    const nextSlice = createTimeSlices();
    await nextSlice();
    await turn();
    await nextSlice();
    expect(await Promise.all([nextSlice(), nextSlice()])).toEqual([undefined, undefined]);
  });
});

/** Keeps the event loop busy. */
function work(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

describe("paced", () => {
  it("work in small steps waits for the next slice only once the current one has lasted for 5 ms", async () => {
    let slices = 0;
    const slice = paced(async () => void slices++);
    await slice();
    expect(slices).toBe(0);
    work(6);
    await slice();
    expect(slices).toBe(1);
    work(6);
    await slice();
    expect(slices).toBe(2);
  });

  it.each([1, 2, 3])(
    "connections that come together beside %i long tasks wait for a few slices, not for one slice each",
    async (tasks) => {
      const server = net.createServer((socket) => void socket.on("data", (bytes) => socket.write(bytes)));
      await once(server.listen(0, "127.0.0.1"), "listening");
      const { port } = server.address() as AddressInfo;
      const clients = Array.from({ length: 120 }, () => net.connect(port, "127.0.0.1"));
      let answered = 0;
      for (const client of clients) {
        client.write("a");
        client.once("data", () => answered++);
      }
      let slices = 0;
      const task = async () => {
        // With a slice in every second turn, 120 connections would take 60 slices.
        for (const slice = paced(); answered < clients.length && slices < 50; slices++) {
          work(6);
          await slice();
        }
      };
      await Promise.all(Array.from({ length: tasks }, task));
      for (const client of clients) client.destroy();
      server.close();
      expect(answered, `${slices} slices`).toBe(clients.length);
    },
  );

  it("slices go on where the event loop is never idle", async () => {
    let isOver = false;
    const busy = () => {
      work(1);
      if (!isOver) setImmediate(busy);
    };
    busy();
    const slice = paced();
    for (let i = 0; i < 5; i++) {
      work(6);
      await slice();
    }
    isOver = true;
  });
});
