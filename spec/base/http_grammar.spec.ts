import { describe, expect, it } from "vitest";
import { FIELD_LINE, FIELD_VALUE, TOKEN } from "../../lib/base/http_grammar.ts";

const characters = Array.from({ length: 0x180 }, (_each, code) => String.fromCharCode(code));
const printed = (found: readonly string[]) => JSON.stringify(found.join(""));

describe("the grammar of header lines", () => {
  it("a token is one or more of the characters of RFC 9110 §5.6.2", () => {
    const inToken = characters.filter((each) => TOKEN.test(each));
    expect(printed(inToken)).toBe(
      printed([..."!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~"]),
    );
    for (const text of ["", "a b", "a\n", "a:"]) expect(TOKEN.test(text), text).toBe(false);
  });

  it("a value may be empty, and holds no control character but the tab, and none beyond a byte (RFC 9110 §5.5)", () => {
    const inValue = characters.filter((each) => FIELD_VALUE.test(each));
    expect(printed(inValue)).toBe(
      printed(characters.filter((each) => each === "\t" || (each >= " " && each <= "\xff" && each !== "\x7f"))),
    );
    expect([FIELD_VALUE.test(""), FIELD_VALUE.test("a\n")]).toEqual([true, false]);
  });

  it("a line is a name, a colon, a value and CR LF, without a space before the colon (RFC 9112 §5.1)", () => {
    const line = new RegExp(`^${FIELD_LINE}$`);
    for (const text of ["A: b\r\n", "A:\r\n", "A::b\r\n"]) expect(line.test(text), text).toBe(true);
    for (const text of ["A : b\r\n", ": b\r\n", " A: b\r\n", "A: b\n", "A: b", "A: b\r\nB: c\r\n"])
      expect(line.test(text), text).toBe(false);
  });
});
