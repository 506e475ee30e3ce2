import { PassThrough, Readable, Writable } from "node:stream";
import { describe, expect, test } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { byteStream, pump, sinkOf, type PumpEnd } from "../../lib/http/body.ts";
import { random } from "../support/random.ts";

type Move = (source: Readable, sink: Writable, end: PumpEnd) => unknown;

const move: Move = (source, sink, end) => pump(source, sinkOf(sink), end);

/** Resolves with how it ended. */
function moved(move: Move, source: Readable, sink: Writable): Promise<string> {
  return new Promise((resolve) => {
    move(source, sink, { done: () => resolve("done"), broken: (cause) => resolve(`broken: ${cause?.message ?? "closed"}`) });
  });
}

/** Takes each chunk only when told. */
function slowSink(highWaterMark: number) {
  const taken: Buffer[] = [];
  const pending: (() => void)[] = [];
  const sink = new Writable({
    highWaterMark,
    write(chunk: Buffer, _encoding, callback) {
      taken.push(chunk);
      pending.push(callback);
    },
  });
  return { sink, taken, takeOne: () => pending.shift()?.() };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

describe("a body that is moved", () => {
  test("arrives whole and in order, and the sink is left open", async () => {
    const sink = new PassThrough();
    const received: Buffer[] = [];
    sink.on("data", (chunk: Buffer) => received.push(chunk));
    expect(await moved(move, Readable.from([Buffer.from("one"), Buffer.from("two")]), sink)).toBe("done");
    await turn();
    expect(Buffer.concat(received).toString()).toBe("onetwo");
    expect(sink.writableEnded).toBe(false);
  });

  test("an empty one is done", async () => {
    expect(await moved(move, Readable.from([]), new PassThrough())).toBe("done");
  });

  test("a sink that is full stops the source, and goes on at drain", async () => {
    let produced = 0;
    const source = new Readable({
      highWaterMark: 10,
      read() {
        this.push(++produced <= 100 ? Buffer.alloc(10) : null);
      },
    });
    const { sink, taken, takeOne } = slowSink(30);
    const ended = moved(move, source, sink);
    for (let i = 0; i < 10; i++) await turn();
    expect(produced).toBeLessThan(8);
    while (taken.length < 100) {
      takeOne();
      await turn();
    }
    takeOne();
    expect(await ended).toBe("done");
  });

  test("whatever the sizes and speeds, nothing is lost or doubled", async () => {
    for (let seed = 1; seed <= 25; seed++) {
      const dice = random(seed);
      const chunks = dice.list(0, 30, () => Buffer.alloc(dice.int(1, 50), dice.int(0, 255)));
      const { sink, taken, takeOne } = slowSink(dice.int(1, 120));
      const ended = moved(move, Readable.from(chunks, { highWaterMark: dice.int(1, 5) }), sink);
      let over = false;
      void ended.then(() => (over = true));
      while (!over) {
        if (dice.chance(0.7)) takeOne();
        await turn();
      }
      for (let i = 0; i < 40; i++) {
        takeOne();
        await turn();
      }
      expect(Buffer.concat(taken).equals(Buffer.concat(chunks)), `seed ${seed}`).toBe(true);
    }
  });

  test("a source that fails is broken, with its cause", async () => {
    const source = new Readable({ read() {} });
    const ended = moved(move, source, new PassThrough());
    source.push("part");
    source.destroy(new Error("cut"));
    expect(await ended).toBe("broken: cut");
  });

  test("a source that closes before its end is broken", async () => {
    const source = new Readable({ read() {} });
    const ended = moved(move, source, new PassThrough());
    source.destroy();
    expect(await ended).toBe("broken: closed");
  });

  test("the end is told once", async () => {
    const told: string[] = [];
    const source = new Readable({ read() {} });
    move(source, new PassThrough(), { done: () => told.push("done"), broken: () => told.push("broken") });
    source.push(null);
    await turn();
    source.destroy(new Error("later"));
    source.on("error", () => {});
    await turn();
    expect(told).toEqual(["done"]);
  });
});

describe("moving a body", () => {
  const never: PumpEnd = {
    done: () => expect.unreachable("done"),
    broken: () => expect.unreachable("broken"),
  };

  test("stopped, it writes nothing more, tells nothing, and leaves the rest to others", async () => {
    const source = new Readable({ read() {} });
    const sink = new PassThrough();
    const stop = pump(source, sinkOf(sink), never);
    source.push("one");
    await turn();
    stop();
    source.push("two");
    const rest: string[] = [];
    source.on("data", (chunk: Buffer) => rest.push(chunk.toString()));
    source.resume();
    source.push(null);
    await turn();
    expect(sink.read().toString()).toBe("one");
    expect(rest).toEqual(["two"]);
    expect(sink.listenerCount("drain")).toBe(0);
  });

  test("stopped, a later failure of the body ends nothing", async () => {
    const source = new Readable({ read() {} });
    const stop = pump(source, sinkOf(new PassThrough()), never);
    stop();
    source.destroy(new Error("late"));
    await turn();
  });

  test("a body that was read or destroyed before is broken: its end would never come", async () => {
    const read = Readable.from([]);
    read.resume();
    await turn();
    const destroyed = new Readable({ read() {} });
    destroyed.destroy();
    await turn();
    for (const source of [read, destroyed]) {
      const ended = moved((from, to, end) => pump(from, sinkOf(to), end), source, new PassThrough());
      expect(await ended).toMatch(/^broken: the body was read or destroyed/);
    }
  });
});

describe("a body of stated length", () => {
  const all = async (parts: readonly string[], length: number) => {
    const sink = new PassThrough();
    const chunks: Buffer[] = [];
    sink.on("data", (chunk: Buffer) => chunks.push(chunk));
    const outcome = await new Promise<string>((resolve) => {
      const broken = (cause: Error | null) => resolve(`${(cause as Fault).code}: ${cause?.message}`);
      pump(Readable.from(parts.map((part) => Buffer.from(part))), sinkOf(sink), { done: () => resolve("done"), broken }, length);
    });
    await turn();
    return [outcome, Buffer.concat(chunks).toString()];
  };

  test("that is longer breaks off, and no byte beyond its length is written", async () => {
    expect(await all(["four", "more"], 4)).toEqual(["internal: the body is longer than its Content-Length of 4 bytes", "four"]);
    expect(await all(["fourmore"], 4)).toEqual(["internal: the body is longer than its Content-Length of 4 bytes", ""]);
  });

  test("that is shorter breaks off at its end", async () => {
    expect(await all(["four", "more"], 10)).toEqual(["internal: the body is 2 bytes shorter than its Content-Length of 10", "fourmore"]);
  });

  test("that is as long is done", async () => {
    expect(await all(["four", "", "more"], 8)).toEqual(["done", "fourmore"]);
  });
});

describe("a stream of a plugin's own", () => {
  test("that yields text or views of bytes is sent as its bytes, measured in bytes", async () => {
    const chunks: Buffer[] = [];
    const sink = new PassThrough();
    sink.on("data", (chunk: Buffer) => chunks.push(chunk));
    const source = Readable.from(["é", new Uint8Array([0x62]), Buffer.from("c")]);
    expect(await new Promise((resolve) => pump(source, sinkOf(sink), { done: () => resolve("done"), broken: resolve }, 4))).toBe("done");
    await turn();
    expect(Buffer.concat(chunks).toString()).toBe("ébc");
  });

  test.each([[{}], [5], [true], [[1]], [Symbol("x")]])("that yields %o breaks off: internal", async (chunk) => {
    expect(await moved(move, Readable.from([chunk]), new PassThrough())).toMatch(/^broken: the body's stream yields \w+ values/);
  });

  test("becomes a stream of bytes for all that read it, and breaks off where it yields none", async () => {
    const plain = new PassThrough();
    expect(byteStream(plain)).toBe(plain);
    expect((await byteStream(Readable.from(["é", Buffer.from("b")])).toArray()).every((chunk) => Buffer.isBuffer(chunk))).toBe(true);
    await expect(byteStream(Readable.from([{}])).toArray()).rejects.toThrow("the body's stream yields object values");
    const source = new Readable({ objectMode: true, read() {} });
    const bytes = byteStream(source);
    bytes.destroy();
    await turn();
    expect(source.destroyed).toBe(true);
  });
});
