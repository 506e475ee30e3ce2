import { PassThrough, Readable, Writable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { byteStream, pump, type PumpEnd } from "../../lib/http/body.ts";
import { random } from "../support/random.ts";

type Move = (source: Readable, sink: Writable, end: PumpEnd) => unknown;

const move: Move = (source, sink, end) => pump(source, sink, end);

/** Resolves with how the transfer ended. */
function moved(move: Move, source: Readable, sink: Writable): Promise<string> {
  return new Promise((resolve) => {
    move(source, sink, {
      done: () => resolve("done"),
      broken: (cause) => resolve(`broken: ${cause?.message ?? "closed"}`),
    });
  });
}

/** A sink that accepts each chunk only when the test lets it. */
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

describe("a moved body", () => {
  it("a moved body arrives whole and in order, and leaves the sink open", async () => {
    const sink = new PassThrough();
    const received: Buffer[] = [];
    sink.on("data", (chunk: Buffer) => received.push(chunk));
    expect(await moved(move, Readable.from([Buffer.from("one"), Buffer.from("two")]), sink)).toBe("done");
    await turn();
    expect(Buffer.concat(received).toString()).toBe("onetwo");
    expect(sink.writableEnded).toBe(false);
  });

  it("a moved body is done at once when it is empty", async () => {
    expect(await moved(move, Readable.from([]), new PassThrough())).toBe("done");
  });

  it("a moved body pauses its source while the sink is full, and resumes at drain", async () => {
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

  it("a moved body loses and doubles nothing, whatever the sizes and speeds", async () => {
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

  it("a moved body reports its cause when the source fails", async () => {
    const source = new Readable({ read() {} });
    const ended = moved(move, source, new PassThrough());
    source.push("part");
    source.destroy(new Error("cut"));
    expect(await ended).toBe("broken: cut");
  });

  it("a moved body is reported as broken when the source closes before its end", async () => {
    const source = new Readable({ read() {} });
    const ended = moved(move, source, new PassThrough());
    source.destroy();
    expect(await ended).toBe("broken: closed");
  });

  it("a moved body reports its end once", async () => {
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

describe("a body transfer that is stopped", () => {
  const never: PumpEnd = {
    done: () => expect.unreachable("done"),
    broken: () => expect.unreachable("broken"),
  };

  it(
    "a body transfer that is stopped writes nothing more, reports nothing, " +
      "and leaves the rest of the body to others",
    async () => {
      const source = new Readable({ read() {} });
      const sink = new PassThrough();
      const stop = pump(source, sink, never);
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
    },
  );

  it("a body transfer that is stopped ends nothing when the body fails later", async () => {
    const source = new Readable({ read() {} });
    const stop = pump(source, new PassThrough(), never);
    stop();
    source.destroy(new Error("late"));
    await turn();
  });

  it(
    "passes on a body without bytes that has ended before it is read, " +
      "as one of HTTP/2 does while a connection is made",
    async () => {
      const source = new Readable({ read() {} });
      source.push(Buffer.alloc(0));
      source.push(null);
      // As Node's own look-ahead after a push.
      source.read(0);
      await turn();
      expect([source.readableEnded, source.readableDidRead]).toEqual([true, false]);
      expect(await moved(move, source, new PassThrough())).toBe("done");
    },
  );

  it("reports a body that was read or destroyed before as broken, because its end would never come", async () => {
    const read = Readable.from([Buffer.from("a")]);
    read.resume();
    await turn();
    const destroyed = new Readable({ read() {} });
    destroyed.destroy();
    await turn();
    for (const source of [read, destroyed]) {
      const ended = moved((from, to, end) => pump(from, to, end), source, new PassThrough());
      expect(await ended).toMatch(/^broken: the body was read or destroyed/);
    }
  });
});

describe("a body with a Content-Length", () => {
  const all = async (parts: readonly string[], length: number) => {
    const sink = new PassThrough();
    const chunks: Buffer[] = [];
    sink.on("data", (chunk: Buffer) => chunks.push(chunk));
    const outcome = await new Promise<string>((resolve) => {
      const broken = (cause: Error | null) => resolve(`${(cause as Fault).code}: ${cause?.message}`);
      pump(
        Readable.from(parts.map((part) => Buffer.from(part))),
        sink,
        { done: () => resolve("done"), broken },
        length,
      );
    });
    await turn();
    return [outcome, Buffer.concat(chunks).toString()];
  };

  it(
    "a body with a Content-Length breaks off when it is longer, " + "and no byte beyond its length is written",
    async () => {
      expect(await all(["four", "more"], 4)).toEqual([
        "internal: the body is longer than its Content-Length of 4 bytes",
        "four",
      ]);
      expect(await all(["fourmore"], 4)).toEqual([
        "internal: the body is longer than its Content-Length of 4 bytes",
        "",
      ]);
    },
  );

  it("a body with a Content-Length breaks off at its end when it is shorter", async () => {
    expect(await all(["four", "more"], 10)).toEqual([
      "internal: the body is 2 bytes shorter than its Content-Length of 10",
      "fourmore",
    ]);
  });

  it("a body with a Content-Length is done when it is as long as stated", async () => {
    expect(await all(["four", "", "more"], 8)).toEqual(["done", "fourmore"]);
  });
});

describe("a plugin's own stream as a body", () => {
  it("a body is sent as its bytes, and measured in bytes, when it yields text or views", async () => {
    const chunks: Buffer[] = [];
    const sink = new PassThrough();
    sink.on("data", (chunk: Buffer) => chunks.push(chunk));
    const source = Readable.from(["é", new Uint8Array([0x62]), Buffer.from("c")]);
    expect(
      await new Promise((resolve) => pump(source, sink, { done: () => resolve("done"), broken: resolve }, 4)),
    ).toBe("done");
    await turn();
    expect(Buffer.concat(chunks).toString()).toBe("ébc");
  });

  it.each([[{}], [5], [true], [[1]], [Symbol("x")]])("breaks off with internal when it yields %o", async (chunk) => {
    expect(await moved(move, Readable.from([chunk]), new PassThrough())).toMatch(
      /^broken: the body's stream yields \w+ values/,
    );
  });

  it("becomes a stream of bytes for every reader, and breaks off where it yields none", async () => {
    const plain = new PassThrough();
    expect(byteStream(plain)).toBe(plain);
    expect(
      (await byteStream(Readable.from(["é", Buffer.from("b")])).toArray()).every((chunk) => Buffer.isBuffer(chunk)),
    ).toBe(true);
    await expect(byteStream(Readable.from([{}])).toArray()).rejects.toThrow("the body's stream yields object values");
    const source = new Readable({ objectMode: true, read() {} });
    const bytes = byteStream(source);
    bytes.destroy();
    await turn();
    expect(source.destroyed).toBe(true);
  });
});
