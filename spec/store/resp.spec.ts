import { describe, expect, it, onTestFinished, vi } from "vitest";
import { command, ErrorReply, ProtocolError, ReplyParser, type RespValue } from "../../lib/store/resp.ts";
import { random, type Random } from "../support/random.ts";

function parsed(...chunks: readonly string[]): RespValue[] {
  const parser = new ReplyParser();
  const replies: RespValue[] = [];
  for (const chunk of chunks) parser.feed(Buffer.from(chunk, "latin1"), (reply) => replies.push(reply));
  return replies;
}

function written(value: RespValue): string {
  if (value === null) return "$-1\r\n";
  if (typeof value === "number") return `:${value}\r\n`;
  if (typeof value === "string") return `$${value.length}\r\n${value}\r\n`;
  if (value instanceof ErrorReply) return `-${value.message}\r\n`;
  return `*${value.length}\r\n${value.map(written).join("")}`;
}

function anyValue(from: Random, depth = 0): RespValue {
  const kind = from.int(0, depth < 5 ? 4 : 3);
  if (kind === 0) return null;
  if (kind === 1) return from.pick([0, -1, 1, from.int(-1e9, 1e9), Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]);
  if (kind === 2)
    return from.list(0, 30, () => String.fromCharCode(from.pick([13, 10, 36, 42, 0, 255, from.int(0, 255)]))).join("");
  if (kind === 3) return new ErrorReply(`ERR ${from.int(0, 99)}`);
  return from.list(0, 5, () => anyValue(from, depth + 1));
}

describe("a command", () => {
  it("is an array of bulk strings with their lengths in bytes of UTF-8", () => {
    expect(command("AUTH", "pässword", "")).toBe("*3\r\n$4\r\nAUTH\r\n$9\r\npässword\r\n$0\r\n\r\n");
  });

  it("cannot be broken out of by line breaks in its parts", () => {
    expect(command("GET", "a\r\n*1\r\n")).toBe("*2\r\n$3\r\nGET\r\n$7\r\na\r\n*1\r\n\r\n");
  });
});

describe("the parser of replies", () => {
  it("parses the items of a list once, in however many pieces the list arrives", () => {
    const lines = vi.spyOn(Buffer.prototype, "indexOf");
    onTestFinished(() => lines.mockRestore());
    const text = `*1000\r\n${":7\r\n".repeat(1_000)}`;
    expect(parsed(...text)).toEqual([Array.from({ length: 1_000 }, () => 7)]);
    expect(lines.mock.calls.length).toBeLessThanOrEqual(text.length);
  });

  it("copies a text that arrives in pieces of 1 KiB in proportion to its length", () => {
    const allocated = vi.spyOn(Buffer, "allocUnsafeSlow");
    const joined = vi.spyOn(Buffer, "concat");
    onTestFinished(() => void vi.restoreAllMocks());
    const text = "x".repeat(1_000_000);
    const pieces = `$${text.length}\r\n${text}\r\n`.match(/[^]{1,1024}/g)!;
    expect(parsed(...pieces)).toEqual([text]);
    expect(joined).not.toHaveBeenCalled();
    // Twice as much each time.
    expect(allocated.mock.calls.reduce((sum, [bytes]) => sum + bytes, 0)).toBeLessThan(6 * text.length);
  });

  it("refuses a line of more than 64 KiB before it is complete", () => {
    expect(() =>
      parsed(
        "-MOVED ",
        ..."x"
          .repeat(65)
          .match(/./g)!
          .map((x) => x.repeat(1024)),
      ),
    ).toThrow(new ProtocolError("a line of a reply has more than 65536 bytes"));
  });

  it("refuses a list that grows beyond 1 MiB before it is complete", () => {
    const parser = new ReplyParser();
    const item = Buffer.from(`$1000\r\n${"a".repeat(1_000)}\r\n`);
    parser.feed(Buffer.from("*2000\r\n"), () => {});
    expect(() => {
      for (let i = 0; i < 1_100; i++) parser.feed(item, () => {});
    }).toThrow(new ProtocolError("a reply has more than 1048576 bytes"));
  });

  it.each<[string, RespValue]>([
    ["+OK\r\n", "OK"],
    ["+\r\n", ""],
    [":1000\r\n", 1000],
    [":-5\r\n", -5],
    ["$5\r\na\r\nbc\r\n", "a\r\nbc"],
    ["$0\r\n\r\n", ""],
    ["$-1\r\n", null],
    ["*-1\r\n", null],
    ["*0\r\n", []],
    ["*2\r\n:1\r\n*1\r\n$1\r\na\r\n", [1, ["a"]]],
  ])("reads %j", (text, value) => {
    expect(parsed(text)).toEqual([value]);
  });

  it("reads an error with its code", () => {
    const [error] = parsed("-MOVED 3999 10.0.0.8:6379\r\n") as [ErrorReply];
    expect([error.code, error.message]).toEqual(["MOVED", "MOVED 3999 10.0.0.8:6379"]);
  });

  it("reads replies that are cut anywhere as it reads them whole", () => {
    for (let seed = 0; seed < 400; seed++) {
      const from = random(seed);
      const values = from.list(1, 6, () => anyValue(from));
      const text = values.map(written).join("");
      const cuts = from.list(0, 8, () => from.int(0, text.length)).sort((a, b) => a - b);
      const chunks = [0, ...cuts].map((cut, i) => text.slice(cut, cuts[i] ?? text.length));
      expect([seed, parsed(...chunks)]).toEqual([seed, values]);
      if (text.length < 500) expect([seed, parsed(...text)]).toEqual([seed, values]);
    }
  });

  it.each([
    ["HTTP/1.1 400 Bad Request\r\n", "a reply has an unknown type"],
    ["%1\r\n+a\r\n+b\r\n", "a reply has an unknown type"],
    ["\r\n", "a reply has an unknown type"],
    ["+a\nb\r\n", "a line of a reply does not end with CR LF"],
    ["+a\rb\r\n", "a line of a reply does not end with CR LF"],
    [":1.5\r\n", "a number of a reply is not an integer"],
    [":\r\n", "a number of a reply is not an integer"],
    [":+1\r\n", "a number of a reply is not an integer"],
    [": 1\r\n", "a number of a reply is not an integer"],
    [":99999999999999999\r\n", "a number of a reply is not an integer"],
    [":9007199254740993\r\n", "a number of a reply is not an integer"],
    ["$-2\r\n", "a reply has a wrong length"],
    ["$1048577\r\n", "a reply has a wrong length"],
    ["*-2\r\n", "a reply has a wrong length"],
    ["$1\r\nabc", "a text of a reply does not end with CR LF"],
    ["*1\r\n".repeat(9), "a reply has more than 8 levels"],
  ])("refuses %j", (text, problem) => {
    expect(() => parsed(text)).toThrow(new ProtocolError(problem));
  });

  it("refuses a reply of more than 1 MiB, however it arrives", () => {
    expect(() =>
      parsed(
        "+",
        ..."x"
          .repeat(1_100)
          .match(/./g)!
          .map((x) => x.repeat(1_024)),
      ),
    ).toThrow("more than 65536 bytes");
    expect(() =>
      parsed(
        "*1000000\r\n",
        ..."x"
          .repeat(1_100)
          .match(/./g)!
          .map(() => `$1000\r\n${"y".repeat(1_000)}\r\n`),
      ),
    ).toThrow("more than 1048576 bytes");
  });

  it("throws nothing but a ProtocolError on any bytes", () => {
    for (let seed = 0; seed < 2_000; seed++) {
      const from = random(seed);
      const text = written(anyValue(from));
      const at = from.int(0, text.length);
      const broken = text.slice(0, at) + String.fromCharCode(from.int(0, 255)) + text.slice(at + from.int(0, 1));
      try {
        parsed(broken);
      } catch (error) {
        expect([seed, error]).toEqual([seed, expect.any(ProtocolError)]);
      }
    }
  });
});
