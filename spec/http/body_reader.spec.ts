import { describe, expect, it } from "vitest";
import { BODY_CASES, readBody } from "./body_reader.cases.ts";
import { BodyReader } from "../../lib/http/body_reader.ts";

describe.each(BODY_CASES)("$title", ({ framing, bytes, read, fault }) => {
  const all = Buffer.from(bytes, "latin1");
  const expected = { read, fault };

  it("reads a body alike in one piece, byte by byte, and split in two at any place", () => {
    expect(readBody(framing, [all])).toEqual(expected);
    expect(
      readBody(
        framing,
        Array.from(all, (byte) => Buffer.of(byte)),
      ),
      "byte by byte",
    ).toEqual(expected);
    expect(readBody(framing, [all], Buffer.from("before")), "behind other bytes").toEqual(expected);
    const step = Math.max(1, Math.floor(all.length / 500));
    for (let at = 0; at <= all.length; at += step)
      expect(readBody(framing, [all.subarray(0, at), all.subarray(at)]), `split before byte ${at}`).toEqual(expected);
    for (const at of [all.length - 1, all.length - 2, all.length - 3])
      if (at > 0)
        expect(readBody(framing, [all.subarray(0, at), all.subarray(at)]), `split before byte ${at}`).toEqual(expected);
  });
});

it("gives one piece for each read, in however many chunks the body comes", () => {
  const reader = new BodyReader();
  const pieces: string[] = [];
  reader.begin("chunked");
  const sizes = [1, 1, 30, 2, 500, 1, 16, 15, 17];
  const data = sizes.map((size, i) => String(i).repeat(size));
  const all = Buffer.from(data.map((each) => `${each.length.toString(16)};a=b\r\n${each}\r\n`).join(""));
  for (const [from, to] of [
    [0, 3],
    [3, 300],
    [300, all.length],
  ] as const) {
    // What one read leaves is passed again with the next one.
    let at = from;
    const before = pieces.length;
    at += reader.read(Buffer.from(all.subarray(at, to)), 0, { body: (bytes) => void pieces.push(bytes.toString()) });
    expect(pieces.length - before).toBeLessThanOrEqual(1);
    if (at < to) reader.read(Buffer.from(all.subarray(at, to)), 0, { body: () => expect.unreachable() });
  }
});

it("reads one body after another with one reader, and keeps nothing of the previous body", () => {
  const reader = new BodyReader();
  const bodies: string[] = [];
  const sink = { body: (bytes: Buffer) => void bodies.push(bytes.toString()) };
  reader.begin("chunked");
  expect(reader.read(Buffer.from("1;a=b\r\nx\r\n0\r\nA: b\r\n\r\nrest"), 0, sink)).toBe(21);
  expect([reader.isOver, reader.trailers]).toEqual([true, ["A", "b"]]);
  reader.begin(2);
  expect(reader.trailers).toEqual([]);
  expect(reader.read(Buffer.from("-yzrest"), 1, sink)).toBe(3);
  reader.begin("chunked");
  expect(reader.read(Buffer.from("0\r\n\r\n"), 0, sink)).toBe(5);
  expect(reader.trailers).toEqual([]);
  expect(bodies).toEqual(["x", "yz"]);
});

it("ends a body without a length when end() is called", () => {
  const reader = new BodyReader();
  const bodies: string[] = [];
  reader.begin("until close");
  expect([reader.isUntilClose, reader.isOver]).toEqual([true, false]);
  expect(reader.read(Buffer.from("-ab"), 1, { body: (bytes) => void bodies.push(bytes.toString()) })).toBe(3);
  reader.end();
  expect([reader.isOver, reader.isUntilClose, bodies]).toEqual([true, false, ["ab"]]);
});

it("forwards a whole chunk without a copy", () => {
  const reader = new BodyReader();
  const chunk = Buffer.from("whole");
  for (const framing of [5, "until close"] as const) {
    reader.begin(framing);
    reader.read(chunk, 0, { body: (bytes) => expect(bytes).toBe(chunk) });
  }
});

it("distinguishes trailers that are too long from malformed trailers", () => {
  const reader = new BodyReader();
  reader.begin("chunked");
  expect(reader.read(Buffer.from(`0\r\nA: ${"b".repeat(17_000)}`), 0, { body() {} })).toBe(-1);
  expect(reader.isTooLong).toBe(true);
  const other = new BodyReader();
  other.begin("chunked");
  expect(other.read(Buffer.from("0\r\nA\r\n"), 0, { body() {} })).toBe(-1);
  expect(other.isTooLong).toBe(false);
});
