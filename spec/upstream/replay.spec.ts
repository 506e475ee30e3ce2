import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Replay, ReplayMemory } from "../../lib/upstream/replay.ts";

/** A body that is sent piece by piece. */
function source() {
  const stream = new Readable({ read() {} });
  stream.on("error", () => {});
  return stream;
}

const read = async (body: Readable) => {
  let text = "";
  for await (const chunk of body) text += String(chunk);
  return text;
};
const turn = () => new Promise((resolve) => setImmediate(resolve));

function bench(most = 100, memory = new ReplayMemory(1000)) {
  const body = source();
  return { body, memory, replay: new Replay(body, most, memory) };
}

describe("a kept body", () => {
  it("a kept body gives every reader the same bytes", async () => {
    const { body, replay } = bench();
    for (const chunk of ["a", "b", "c", null]) body.push(chunk);
    for (let i = 0; i < 3; i++) expect(await read(replay.open())).toBe("abc");
  });

  it("a kept body continues to arrive at the last reader", async () => {
    const { body, replay } = bench();
    const first = replay.open();
    body.push("a");
    first.on("data", () => {});
    await turn();
    const second = read(replay.open());
    body.push("b");
    body.push(null);
    expect(await second).toBe("ab");
    expect(first.destroyed).toBe(true);
  });

  it("a kept body fails for its reader when the client breaks off", async () => {
    const { body, replay } = bench();
    const view = read(replay.open());
    body.push("a");
    await turn();
    body.destroy(new Error("gone"));
    await expect(view).rejects.toThrow("gone");
    await expect(read(replay.open())).rejects.toThrow("gone");
  });

  it("a kept body fails for its reader when the client breaks off without an error", async () => {
    const { body, replay } = bench();
    const view = read(replay.open());
    await turn();
    body.destroy();
    await expect(view).rejects.toThrow("the body ended early");
  });
});

describe("the end of a kept body", () => {
  it("the end of a kept body comes at the size limit, and the reader gets the rest", async () => {
    const { body, replay, memory } = bench(3);
    for (const chunk of ["ab", "cd", null]) body.push(chunk);
    expect(await read(replay.open())).toBe("abcd");
    expect(replay.isWhole).toBe(false);
    expect(memory.used).toBe(0);
  });

  it("the end of a kept body comes when all bodies together exceed the limit", async () => {
    const memory = new ReplayMemory(5);
    const [one, two] = [bench(100, memory), bench(100, memory)];
    for (const { body } of [one, two]) for (const chunk of ["abc", null]) body.push(chunk);
    expect(await read(one.replay.open())).toBe("abc");
    expect(await read(two.replay.open())).toBe("abc");
    expect([one.replay.isWhole, two.replay.isWhole]).toEqual([true, false]);
    one.replay.release();
    expect(memory.used).toBe(0);
  });

  it("the end of a kept body comes when the body is released, and the reader gets the rest", async () => {
    const { body, replay, memory } = bench();
    const view = read(replay.open());
    body.push("a");
    await turn();
    expect(memory.used).toBe(1);
    replay.release();
    replay.release();
    body.push("b");
    body.push(null);
    expect(await view).toBe("ab");
    expect(memory.used).toBe(0);
  });
});

it("keeps many small chunks in little more memory than their bytes", async () => {
  const { body, replay } = bench(10_000, new ReplayMemory(10_000));
  const text = Array.from({ length: 5000 }, (_, i) => String(i % 10)).join("");
  const blocks = new Set<ArrayBufferLike>();
  for (const digit of text) {
    const large = Buffer.alloc(1000, digit);
    body.push(large.subarray(0, 1));
  }
  body.push(null);
  expect(await read(replay.open())).toBe(text);
  const again = replay.open();
  again.on("data", (chunk: Buffer) => blocks.add(chunk.buffer));
  await new Promise((resolve) => again.once("end", resolve));
  expect(blocks.size).toBeLessThan(5000 / 256 + 256);
  expect([...blocks].reduce((sum, { byteLength }) => sum + byteLength, 0)).toBe(5000);
  expect(await read(replay.open())).toBe(text);
});

it("slows the client down to the pace of a slow reader", async () => {
  const { body, replay } = bench(10_000_000, new ReplayMemory(100_000_000));
  const view = replay.open();
  view.on("data", () => view.pause());
  body.push(Buffer.alloc(1_000_000));
  body.push(Buffer.alloc(1_000_000));
  await turn();
  expect(body.isPaused()).toBe(true);
  view.resume();
  await turn();
  expect(body.isPaused()).toBe(false);
});

it("loses nothing for a reader that begins late", async () => {
  const { body, replay } = bench(3);
  replay.open().on("data", () => {});
  body.push("ab");
  await turn();
  const view = replay.open();
  for (const chunk of ["c", "de", "f", null]) {
    body.push(chunk);
    await turn();
  }
  expect(await read(view)).toBe("abcdef");
});

it("does not slow the client down for a reader that will not begin", async () => {
  const { body, replay } = bench();
  replay.open().on("data", () => {});
  body.push("a");
  await turn();
  replay.open();
  body.push("b");
  await turn();
  replay.release();
  body.resume();
  for (let i = 0; i < 5; i++) body.push(Buffer.alloc(100_000));
  body.push(null);
  await turn();
  await turn();
  expect(body.readableEnded).toBe(true);
});

it("does not slow the client down for a reader that has stopped", async () => {
  const { body, replay } = bench(10_000_000, new ReplayMemory(100_000_000));
  const view = replay.open();
  const listener = () => {};
  view.on("data", listener);
  body.push("a");
  await turn();
  view.removeListener("data", listener);
  body.resume();
  for (let i = 0; i < 5; i++) body.push(Buffer.alloc(100_000));
  body.push(null);
  await turn();
  await turn();
  expect(body.readableEnded).toBe(true);
});
