import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { createTimeSlices, paced } from "../../lib/base/time_slices.ts";

const turn = () => new Promise<void>((resolve) => void setImmediate(resolve));

describe("slices of long work", () => {
  it("slices of long work run one at a time, in the order of the requests", async () => {
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

  it("connections that come together wait for one or two slices, not for one slice each", async () => {
    const server = net.createServer((socket) => void socket.on("data", (bytes) => socket.write(bytes)));
    await once(server.listen(0, "127.0.0.1"), "listening");
    const clients = Array.from({ length: 20 }, () => net.connect((server.address() as AddressInfo).port, "127.0.0.1"));
    const answered = Promise.all(
      clients.map(async (client) => {
        client.write("a");
        await once(client, "data");
      }),
    );
    let isAnswered = false;
    void answered.then(() => (isAnswered = true));
    const nextSlice = createTimeSlices();
    let slices = 0;
    // Each slice ends at the first turn that is idle or at 5 ms: a busy machine needs some more of them.
    for (; !isAnswered && slices < 15; slices++) await nextSlice();
    for (const client of clients) client.destroy();
    server.close();
    expect(isAnswered, `${slices} slices`).toBe(true);
  });

  it("slices of long work start again after a pause", async () => {
    const nextSlice = createTimeSlices();
    await nextSlice();
    await turn();
    await nextSlice();
    expect(await Promise.all([nextSlice(), nextSlice()])).toEqual([undefined, undefined]);
  });
});

describe("paced", () => {
  it("work in small steps waits for the next slice only once the current one has lasted for 5 ms", async () => {
    let slices = 0;
    const slice = paced(async () => void slices++);
    const work = (ms: number) => {
      const end = performance.now() + ms;
      while (performance.now() < end);
    };
    await slice();
    expect(slices).toBe(0);
    work(6);
    await slice();
    expect(slices).toBe(1);
    work(6);
    await slice();
    expect(slices).toBe(2);
  });
});
