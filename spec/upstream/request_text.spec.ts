import { describe, expect, test } from "vitest";
import { writtenFields, writtenHead } from "../../lib/upstream/request_text.ts";

describe("a head", () => {
  test("is written with its case, order and duplicates, each character a byte", () => {
    const text = writtenHead("PROPFIND", "/a?b=\xe9", ["Host", "h", "x-B", "caf\xe9", "X-b", "", "X-T", "a\tb"]);
    expect(text).toBe("PROPFIND /a?b=\xe9 HTTP/1.1\r\nHost: h\r\nx-B: caf\xe9\r\nX-b: \r\nX-T: a\tb\r\nConnection: keep-alive\r\n\r\n");
  });

  test("keeps a Connection that is there", () => {
    expect(writtenHead("GET", "/", ["Host", "h", "connection", "TE"])).toBe("GET / HTTP/1.1\r\nHost: h\r\nconnection: TE\r\n\r\n");
  });

  test.each<[string, string, string, string[]]>([
    ["a method with a blank", "GET /x", "/", ["Host", "h"]],
    ["no method", "", "/", ["Host", "h"]],
    ["a target with a blank", "GET", "/a b", ["Host", "h"]],
    ["a target with a line of its own", "GET", "/ HTTP/1.1\r\nX-A: b\r\n", ["Host", "h"]],
    ["a target beyond Latin-1", "GET", "/\u2028", ["Host", "h"]],
    ["a name with a line break", "GET", "/", ["X\r\nY", "a"]],
    ["a name with a colon", "GET", "/", ["X:", "a"]],
    ["a name that has its own value behind it", "GET", "/", ["Content-Length: 5", "a"]],
    ["an empty name", "GET", "/", ["", "a"]],
    ["a value that is a line of its own", "GET", "/", ["X", "a\r\nY: b"]],
    ["a value that ends the head", "GET", "/", ["X", "a\r\n\r\nGET / HTTP/1.1\r\nY: b"]],
    ["a value with a bare LF", "GET", "/", ["X", "a\nb"]],
    ["a value with a bare CR", "GET", "/", ["X", "a\rb"]],
    ["a value with NUL", "GET", "/", ["X", "a\0"]],
    ["a value beyond Latin-1", "GET", "/", ["X", "\u0100"]],
    ["a name without a value", "GET", "/", ["X", "a", "Y"]],
  ])("is refused with %s", (_title, method, target, headers) => {
    expect(() => writtenHead(method, target, headers)).toThrow(TypeError);
  });
});

test("trailers are written one to a line, and refused with lines of their own", () => {
  expect(writtenFields([])).toBe("");
  expect(writtenFields(["X-Sum", "3", "x", "\xe9"])).toBe("X-Sum: 3\r\nx: \xe9\r\n");
  for (const value of ["a\r\nY: b", "a\n", "\0", "\u0100"]) expect(() => writtenFields(["X", value])).toThrow(TypeError);
  for (const name of ["X Y", "X: Y", ""]) expect(() => writtenFields([name, "a"])).toThrow(TypeError);
});
