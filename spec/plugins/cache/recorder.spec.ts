import { PassThrough, Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { Recorder, type RecorderOptions } from "../../../lib/plugins/cache/recorder.ts";
import { turn } from "../../support/addresses.ts";
import { manualClock } from "../../support/clock.ts";

function recording(source: Readable, parts: Partial<RecorderOptions> = {}) {
  const seen = { reserved: 0, recorded: [] as (Buffer | string)[] };
  const clock = manualClock();
  const recorder = new Recorder(source, {
    clock,
    most: 100_000,
    expected: null,
    store: {
      reserve(bytes) {
        seen.reserved += bytes;
        return true;
      },
      release: (bytes) => void (seen.reserved -= bytes),
    },
    recorded: (body) => void seen.recorded.push(body),
    readerLeft: () => false,
    ...parts,
  });
  return { recorder, seen, clock };
}

async function all(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

const parts = (count: number) => Array.from({ length: count }, (_each, i) => Buffer.alloc(1_000, i + 1));

describe("a recorder", () => {
  it("a recorder passes every byte to its reader, and records the body in memory of its own", async () => {
    const { recorder, seen } = recording(Readable.from(parts(50)));
    expect(await all(recorder)).toEqual(Buffer.concat(parts(50)));
    expect(seen.recorded).toEqual([Buffer.concat(parts(50))]);
    expect((seen.recorded[0] as Buffer).buffer.byteLength).toBe(50_000);
    expect(seen.reserved).toBe(0);
  });

  it("a recorder passes bytes on as soon as they arrive", async () => {
    const source = new PassThrough();
    const { recorder } = recording(source);
    const chunks: string[] = [];
    recorder.on("data", (chunk: Buffer) => chunks.push(chunk.toString()));
    for (const text of ["a", "b"]) {
      source.write(text);
      await turn();
    }
    expect(chunks).toEqual(["a", "b"]);
    recorder.destroy();
  });

  it(
    "a recorder gives up a reader that reads nothing for a minute once the body is complete, " +
      "and no reader that reads a little",
    async () => {
      for (const most of [1_000_000, 1_000]) {
        const { recorder, seen, clock } = recording(Readable.from([Buffer.alloc(300_000)]), { most });
        while (seen.recorded.length === 0) await turn();
        recorder.read(0);
        for (let i = 0; i < 3; i++) {
          await turn();
          clock.advance(59_000);
          expect(recorder.destroyed).toBe(false);
          if (most === 1_000_000) expect(recorder.read(65_536)?.length).toBe(65_536);
          else break;
        }
        clock.advance(60_000);
        expect(recorder.errored).toMatchObject({ code: "request_timeout", message: "the client reads no more" });
        expect(clock.pending).toBe(0);
      }
      const { recorder, seen, clock } = recording(Readable.from(parts(5)));
      await all(recorder);
      expect([seen.recorded.length, clock.pending]).toEqual([1, 0]);
    },
  );

  it("a recorder reads the whole source although its reader reads nothing", async () => {
    const { recorder, seen } = recording(Readable.from(parts(90)));
    while (seen.recorded.length === 0) await turn();
    expect(seen.recorded).toEqual([Buffer.concat(parts(90))]);
    expect(await all(recorder)).toEqual(Buffer.concat(parts(90)));
  });

  it.each([
    ["too long", { most: 20_000 }],
    ["without memory", { store: { reserve: () => false, release: () => {} } }],
    ["longer than it says", { expected: 20_000 }],
  ])("a recorder goes on at its reader's pace when the body is %s", async (_why, options) => {
    let read = 0;
    const source = Readable.from(
      (function* () {
        for (const part of parts(200)) {
          read++;
          yield part;
        }
      })(),
    );
    const { recorder, seen } = recording(source, options);
    while (seen.recorded.length === 0) await turn();
    for (let i = 0; i < 50; i++) await turn();
    expect(seen.recorded).toEqual(["too much"]);
    expect(read).toBeLessThan(80);
    expect(await all(recorder)).toEqual(Buffer.concat(parts(200)));
    expect(seen.reserved).toBe(0);
  });

  it("a recorder breaks off when its source does", async () => {
    const source = new PassThrough();
    const { recorder, seen } = recording(source);
    source.write("half");
    await turn();
    source.destroy(new Error("gone"));
    await expect(all(recorder)).rejects.toThrow("gone");
    expect([seen.recorded, seen.reserved]).toEqual([["broken"], 0]);
    const late = recording(source);
    expect([late.recorder.destroyed, late.seen.recorded]).toEqual([true, ["broken"]]);
  });

  it("a recorder destroys its source with its reader, unless the record is wanted", async () => {
    for (const wanted of [false, true]) {
      const source = new PassThrough();
      const { recorder, seen } = recording(source, { readerLeft: () => wanted });
      source.write("all ");
      await turn();
      recorder.destroy();
      await turn();
      expect(source.destroyed).toBe(!wanted);
      if (wanted) source.end("of it");
      while (seen.recorded.length === 0) await turn();
      expect(String(seen.recorded[0])).toBe(wanted ? "all of it" : "broken");
      expect(seen.reserved).toBe(0);
    }
  });

  it("a recorder destroys a source that is too long if it has no reader", async () => {
    const source = new PassThrough();
    const { recorder, seen } = recording(source, { readerLeft: () => true, most: 10 });
    recorder.destroy();
    source.write("more than ten");
    while (!source.destroyed) await turn();
    expect([seen.recorded, seen.reserved]).toEqual([["too much"], 0]);
  });
});
