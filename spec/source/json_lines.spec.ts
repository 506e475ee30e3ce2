import { describe, expect, it } from "vitest";
import { JsonLines } from "../../lib/source/json_lines.ts";

const TEXT = Buffer.from('{"result":{"name":"é"}}\n\n{"a":1}\n');
const LINES = [{ object: { result: { name: "é" } } }, { object: { a: 1 } }];

describe("JsonLines", () => {
  it("reads lines that are torn at any byte", () => {
    for (let at = 0; at <= TEXT.length; at++) {
      const lines = new JsonLines(100);
      expect([...lines.read(TEXT.subarray(0, at)), ...lines.read(TEXT.subarray(at))]).toEqual(LINES);
    }
  });

  it("reads lines that arrive byte by byte", () => {
    const lines = new JsonLines(100);
    expect([...TEXT].flatMap((byte) => lines.read(Buffer.from([byte])))).toEqual(LINES);
  });

  it("reports a line of more bytes than allowed once, skips the rest of it, and reads the next one", () => {
    const lines = new JsonLines(8);
    expect(lines.read(Buffer.from('{"a":"123'))).toEqual(["long"]);
    expect(lines.read(Buffer.from("4567890"))).toEqual([]);
    expect(lines.read(Buffer.from('"}\n{"b":2}\n'))).toEqual([{ object: { b: 2 } }]);
    expect(lines.read(Buffer.from('{"b":22}\n{"b":222}\n'))).toEqual([{ object: { b: 22 } }, "long"]);
  });

  it("throws a SyntaxError for a line that is no JSON object", () => {
    for (const line of ["[]", "1", "null", '"a"', "{", "<html>"])
      expect(() => new JsonLines(100).read(Buffer.from(`${line}\n`)), line).toThrow(SyntaxError);
  });
});
