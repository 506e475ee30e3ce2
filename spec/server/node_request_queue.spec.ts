import { PassThrough } from "node:stream";
import { expect, it } from "vitest";
import { RequestQueue } from "../../lib/server/node_request_queue.ts";

function line() {
  const turns = new RequestQueue();
  const socket = new PassThrough();
  const begun: number[] = [];
  const take = (n: number) => turns.take(socket, () => void begun.push(n));
  return { turns, socket, begun, take };
}

it("begins the first request at once and each later request when the previous request is over", () => {
  const { turns, socket, begun, take } = line();
  for (const n of [1, 2, 3]) take(n);
  expect(begun).toEqual([1]);
  turns.over(socket);
  expect(begun).toEqual([1, 2]);
  turns.over(socket);
  turns.over(socket);
  expect(begun).toEqual([1, 2, 3]);
  take(4);
  expect(begun).toEqual([1, 2, 3, 4]);
});

it("does not make one connection wait for another connection", () => {
  const { turns, begun, take } = line();
  take(1);
  turns.take(new PassThrough(), () => void begun.push(2));
  expect(begun).toEqual([1, 2]);
});

it("begins no request on a connection that is ending", () => {
  const { turns, socket, begun, take } = line();
  take(1);
  take(2);
  socket.end();
  turns.over(socket);
  take(3);
  expect(begun).toEqual([1]);
});

it(
  "does not read a connection with 64 waiting requests until they have begun, " + "even if other code resumes it",
  async () => {
    const { turns, socket, take } = line();
    socket.resume();
    for (let n = 0; n < 65; n++) take(n);
    socket.resume();
    await turn();
    expect(socket.isPaused()).toBe(true);
    for (let n = 0; n < 63; n++) turns.over(socket);
    socket.resume();
    await turn();
    expect(socket.isPaused()).toBe(true);
    turns.over(socket);
    await turn();
    expect(socket.isPaused()).toBe(false);
  },
);

it("continues to read a connection whose queue empties in the same tick", async () => {
  const { turns, socket, take } = line();
  socket.resume();
  for (let n = 0; n < 65; n++) take(n);
  for (let n = 0; n < 64; n++) turns.over(socket);
  await turn();
  expect(socket.isPaused()).toBe(false);
});

it("resets a connection that continues to deliver requests although it is paused", () => {
  const { socket, begun, take } = line();
  for (let n = 0; n <= 4_095; n++) take(n);
  expect(socket.destroyed).toBe(false);
  take(4_096);
  expect(socket.destroyed).toBe(true);
  expect(begun).toEqual([0]);
});

const turn = () => new Promise((resolve) => setImmediate(resolve));
