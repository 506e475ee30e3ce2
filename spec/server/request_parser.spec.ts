import { describe, expect, it } from "vitest";
import { RequestParser } from "../../lib/server/request_head.ts";
import { defaultLimits } from "../support/limits.ts";
import { readPieces, asText } from "../support/request_reading.ts";
import { CASES, type Case } from "./request_parser.cases.ts";

function read(pieces: Iterable<Buffer>, { limits }: Case) {
  const { requests, end } = readPieces(pieces, { ...defaultLimits, ...limits });
  return { reads: requests.map(asText), end };
}

const BEFORE = "POST /before HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nT: u\r\n\r\n";
const BEFORE_READ = "POST /before 1.1 Host|h|Transfer-Encoding|chunked {x} <T|u>";
/**
 * Beyond so many bytes not every place to split at is tried: each third of the case and each place where a line begins
 * or ends.
 */
const SHORT = 600;

function splits(bytes: Buffer): number[] {
  const all = Array.from({ length: bytes.length + 1 }, (_, at) => at);
  if (bytes.length <= SHORT) return all;
  const isBreak = (at: number) => bytes[at] === 0x0d || bytes[at] === 0x0a || bytes[at - 1] === 0x0a;
  return all.filter(
    (at) => (at < SHORT && at % 3 === 0) || (isBreak(at) && at > bytes.length - SHORT) || at >= bytes.length - 3,
  );
}

describe.each([...new Set(CASES.map(({ rule }) => rule))])("%s", (rule) => {
  it.each(CASES.filter((each) => each.rule === rule))("reads $title and ends with $end", (each) => {
    const bytes = Buffer.from(each.bytes, "latin1");
    const expected = { reads: [...each.reads], end: each.end };
    expect(read([bytes], each)).toEqual(expected);
    expect(
      read(
        Array.from(bytes, (byte) => Buffer.of(byte)),
        each,
      ),
      "byte by byte",
    ).toEqual(expected);
    for (const at of splits(bytes))
      expect(read([bytes.subarray(0, at), bytes.subarray(at)], each), `split before byte ${at}`).toEqual(expected);
    const behind = Buffer.from(BEFORE + each.bytes, "latin1");
    const both = { reads: [BEFORE_READ, ...each.reads], end: each.end };
    expect(read([behind], each), "behind another request").toEqual(both);
    const before = BEFORE.length;
    for (const at of splits(bytes))
      expect(
        read([behind.subarray(0, before + at), behind.subarray(before + at)], each),
        `behind another, split before byte ${at}`,
      ).toEqual(both);
  });
});

/** Feeds `text` byte by byte without end and tells after how many bytes it was refused, and with what. */
function refusedAfter(begin: string, filler: string): { bytes: number; code: string | undefined } {
  const limits = { ...defaultLimits, maxHeaderBytes: 200, maxUriBytes: 100 };
  const parser = new RequestParser({ body() {}, ended() {} });
  const text = Buffer.from(begin + filler.repeat(300), "latin1");
  let used = 0;
  for (let length = 1; length <= text.length; length++) {
    const read = parser.read(text.subarray(used, length), limits);
    if (read < 0) return { bytes: length, code: parser.fault?.code };
    used += read;
  }
  throw new Error("nothing was refused");
}

it.each<[title: string, begin: string, filler: string, bytes: number, code: string]>([
  ["a control character at the start", "", "\x16\x03\x01", 1, "bad_request"],
  ["a method in lower case", "", "get / ", 1, "bad_request"],
  ["a version that is none", "GET / HTTX", "", 10, "bad_request"],
  ["a request line that is none", "GET / HTTP\r", "\n", 12, "bad_request"],
  ["an unknown method", "FETCH / HTTP/1.1\r\n", "A: b\r\n", 18, "bad_request"],
  ["a folded line", "GET / HTTP/1.1\r\nA: b\r\n ", "c", 23, "bad_request"],
  ["a space before a colon", "GET / HTTP/1.1\r\nA ", ": b", 18, "bad_request"],
  ["NUL in a value", "GET / HTTP/1.1\r\nA: \0", "b", 20, "bad_request"],
  ["LF alone", "GET / HTTP/1.1\r\nA: b\n", "b", 21, "bad_request"],
  ["a target without end", "GET /", "a", 4 + 101, "uri_too_long"],
  ["a method without end", "", "A", 204, "headers_too_large"],
  ["a head without end", "GET / HTTP/1.1\r\n", "A: b\r\n", 204, "headers_too_large"],
  ["a value without end", "GET / HTTP/1.1\r\nA:", "b", 204, "headers_too_large"],
])("refuses %s at the byte that decides, before the head has ended", (_title, begin, filler, bytes, code) => {
  expect(refusedAfter(begin, filler)).toEqual({ bytes, code });
});

it("reads each byte of a head of 1 MiB once, in whatever pieces it arrives", () => {
  const limits = { ...defaultLimits, maxHeaderBytes: 1_048_576, maxUriBytes: 1_048_576, maxHeaders: 10_000 };
  for (const filler of [`X-A: ${"b".repeat(1_000_000)}\r\n`, "a:\r\n".repeat(9_000)]) {
    const head = Buffer.from(`GET /${"a".repeat(40_000)} HTTP/1.1\r\nHost: h\r\n${filler}\r\n`, "latin1");
    const parser = new RequestParser({ body() {}, ended() {} });
    // As the connection does, all that has arrived is given again: what is copied or checked again shows in a test that
    // takes minutes.
    for (let length = 1; length < head.length; length += length < 100_000 ? 1 : 977)
      expect(parser.read(head.subarray(0, length), limits)).toBe(0);
    expect(parser.head).toBeNull();
    expect(parser.read(head, limits)).toBe(head.length);
    expect(parser.head).not.toBeNull();
  }
});

it("keeps no more header lines than max_headers of a head that it refuses for them", () => {
  const limits = { ...defaultLimits, maxHeaderBytes: 1_048_576 };
  const parser = new RequestParser({ body() {}, ended() {} });
  parser.read(Buffer.from(`GET / HTTP/1.1\r\n${"a:\r\n".repeat(200_000)}\r\n`), limits);
  const { headers, framing } = parser.head!;
  expect(headers.length / 2).toBe(200);
  expect(framing.refusal).toEqual({
    code: "headers_too_large",
    detail: "A request may have at most 200 header lines.",
  });
});
