import { PassThrough, Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import { editedEvents, EventSplitter, withData, type StreamEvent } from "../../lib/http/event_stream.ts";
import { random } from "../support/random.ts";

const LONG = 10_000;

/** The events of a stream that arrives in chunks of these sizes, and what is behind the last one. */
function split(stream: string, sizes: Iterable<number> = [], most = LONG): StreamEvent[] {
  const splitter = new EventSplitter(most);
  const bytes = Buffer.from(stream);
  const found: StreamEvent[] = [];
  let at = 0;
  for (const size of [...sizes, bytes.length]) {
    found.push(...splitter.write(Buffer.from(bytes.subarray(at, at + size))));
    at = Math.min(at + size, bytes.length);
  }
  const rest = splitter.rest();
  return rest.bytes.length === 0 ? found : [...found, rest];
}

const dataIn = (stream: string, sizes?: Iterable<number>) =>
  split(stream, sizes).flatMap(({ data }) => (data === null ? [] : [String(data)]));

function* single(stream: string): Generator<number> {
  for (let i = 0; i < Buffer.byteLength(stream); i++) yield 1;
}

describe("events of a stream", () => {
  it.each([
    ["data: a\n\ndata:b\n\n", ["a", "b"]],
    ["data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]],
    ["data: a\r\rdata: b\r\r", ["a", "b"]],
    ["data: a\n\r\ndata: b\r\n\n", ["a", "b"]],
    ["data: one\ndata:two\ndata\ndata:  three\n\n", ["one\ntwo\n\n three"]],
    ["event: x\nid: 7\nretry: 10\ndata: a\n: a comment\n\n", ["a"]],
    [": heartbeat\n\n\n\ndata: a\n\n", ["a"]],
    ["\uFEFFdata: a\n\n\uFEFFdata: b\n\n", ["a"]],
    ["datax: a\nData: b\n data: c\ndata : d\n\n", []],
    ["data: é€😀\n\n", ["é€😀"]],
    ["data: a\n\ndata: cut of", ["a", "cut of"]],
    ["", []],
  ])("of %j have the data %j, however the stream is cut", (stream, expected) => {
    expect(dataIn(stream)).toEqual(expected);
    expect(dataIn(stream, single(stream))).toEqual(expected);
    for (let cut = 1; cut < Buffer.byteLength(stream); cut++) expect(dataIn(stream, [cut])).toEqual(expected);
  });

  it("are together the bytes of the stream, for random streams and cuts", () => {
    const rng = random(20);
    const words = ["\n", "\n", "\r\n", "\r", "data: x", "data:", ": c", "id: 1", "\uFEFF", "é", "data: long long long"];
    for (let i = 0; i < 2000; i++) {
      const stream = rng.list(0, 20, () => rng.pick(words)).join("");
      const sizes = rng.list(0, 6, () => rng.int(1, 12));
      const most = rng.int(0, 30);
      const joined = (events: StreamEvent[]) => Buffer.concat(events.map(({ bytes }) => bytes)).toString();
      expect(joined(split(stream, sizes, most))).toBe(stream);
      expect(dataIn(stream, sizes)).toEqual(dataIn(stream));
    }
  });

  it("come in pieces without data where they are too long, and whole again behind it", () => {
    const stream = `data: ${"x".repeat(50)}\n\ndata: short\n\n`;
    const events = split(stream, single(stream), 20);
    expect(events.slice(0, -1).every(({ isPiece, data }) => isPiece && data === null)).toBe(true);
    expect(events.at(-1)).toMatchObject({ isPiece: false, data: Buffer.from("short") });
    expect(Math.max(...events.map(({ bytes }) => bytes.length))).toBe(21);
  });
});

describe("an event with other data", () => {
  it.each([
    ["data: a\n\n", "b", "data: b\n\n"],
    ["data:a\r\n\r\n", "b", "data:b\r\n\r\n"],
    ["id: 1\r\ndata: a\r\n: c\r\ndata: a2\r\nevent: x\r\n\r\n", "b", "id: 1\r\ndata: b\r\n: c\r\nevent: x\r\n\r\n"],
    ["data: a\r\r", "b\nc", "data: b\rdata: c\r\r"],
    ["data\n\n", "b", "data:b\n\n"],
    ["data: cut of", "b\r\nc", "data: b\ndata: c"],
    ["\uFEFFdata: a\n\n", "b", "\uFEFFdata: b\n\n"],
  ])("%j, given %j, is %j", (stream, data, expected) => {
    expect(String(withData(split(stream)[0]!, data))).toBe(expected);
  });
});

describe("a stream with edited events", () => {
  const upper = { mostBytes: 100, edit: (data: Buffer) => String(data).toUpperCase(), tooLong: () => {} };

  it("leaves events without data, and those that are not edited", async () => {
    const stream = ": hi\n\ndata: keep\n\nid: 3\ndata: change\n\ndata: cut";
    const edit = (data: Buffer) => (String(data) === "keep" ? null : "new");
    expect(await text(editedEvents(Readable.from([Buffer.from(stream)]), { ...upper, edit }))).toBe(
      ": hi\n\ndata: keep\n\nid: 3\ndata: new\n\ndata: new",
    );
  });

  it("passes an event on before the next one begins", async () => {
    const source = new PassThrough();
    const edited = editedEvents(source, upper);
    source.write("data: a\n\nda");
    const [first] = (await edited
      .iterator({ destroyOnReturn: false })
      .next()
      .then(({ value }) => [value])) as [Buffer];
    expect(String(first)).toBe("data: A\n\n");
    source.end("ta: b\n\n");
    expect(await text(edited)).toBe("data: B\n\n");
  });

  it("passes events that are too long as they are, and reports the first one", async () => {
    let reported = 0;
    const long = `data: ${"x".repeat(200)}\n\n`;
    const edited = editedEvents(Readable.from([Buffer.from(`${long}data: a\n\n${long}`)]), {
      ...upper,
      tooLong: () => void reported++,
    });
    expect(await text(edited)).toBe(`${long}data: A\n\n${long}`);
    expect(reported).toBe(1);
  });

  it("breaks off with the error of an edit, and destroys its source", async () => {
    const source = new PassThrough();
    const edited = editedEvents(source, {
      ...upper,
      edit: () => {
        throw new Fault("upstream_invalid", "no JSON");
      },
    });
    source.write("data: a\n\n");
    await expect(text(edited)).rejects.toMatchObject({ code: "upstream_invalid" });
    expect(source.destroyed).toBe(true);
  });

  it("breaks off with its source, and destroys it when the reader leaves", async () => {
    const failing = new PassThrough();
    const broken = editedEvents(failing, upper);
    failing.destroy(new Error("reset"));
    await expect(text(broken)).rejects.toThrow("reset");
    const left = new PassThrough();
    const closed = new Promise((resolve) => left.once("close", resolve));
    editedEvents(left, upper).destroy();
    await closed;
    expect(left.destroyed).toBe(true);
  });

  it("stops its source while nobody reads", async () => {
    let made = 0;
    const source = Readable.from(
      (function* () {
        for (; made < 10_000; made++) yield Buffer.from(`data: ${"x".repeat(80)}\n\n`);
      })(),
      { objectMode: false },
    );
    const edited = editedEvents(source, upper);
    await new Promise((resolve) => edited.once("readable", resolve));
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(made).toBeLessThan(3_000);
    edited.destroy();
  });
});
