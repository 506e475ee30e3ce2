import { describe, expect, it } from "vitest";
import { Der, TAG } from "../../lib/base/der.ts";
import { der, time } from "../support/pki.ts";

const hex = (text: string) => new Der(Buffer.from(text, "hex"));

describe("values in DER", () => {
  it("are read one after the other, with what is within them", () => {
    const values = hex("3007020105020200ff0500");
    const inner = values.enter(TAG.sequence);
    expect([inner.content(TAG.integer), inner.whole(TAG.integer)].map((bytes) => bytes.toString("hex"))).toEqual([
      "05",
      "020200ff",
    ]);
    expect([inner.has(), values.has(), values.has(5), values.has(6)]).toEqual([false, true, true, false]);
    inner.end();
    expect(() => values.end()).toThrow("what is at byte 9 is too much");
  });

  it.each([
    ["0203ffff", "is cut off"],
    ["02", "is cut off"],
    ["", "is missing"],
    ["0401ff", "has another type than is expected"],
    ["0280ff0000", "has no length of DER"],
    ["0281", "has no length of DER"],
    ["028105ffffffffff", "has no length of DER"],
    ["02820001ff", "has no length of DER"],
    ["0285ffffffffff", "has no length of DER"],
    ["0284ffffffff", "is cut off"],
  ])("throw for %s, in place of an integer: it %s", (text, how) => {
    expect(() => hex(text).content(TAG.integer)).toThrow(`what is at byte 0 ${how}`);
  });

  it.each([0x7f, 0x80, 0xff, 0x100, 0xffff])("may have %i bytes", (length) => {
    expect(new Der(der(TAG.octetString, Buffer.alloc(length))).content(TAG.octetString)).toHaveLength(length);
  });

  it.each([
    ["06032a0304", "1.2.3.4"],
    ["0603551d1b", "2.5.29.27"],
    ["06092a864886f70d01010b", "1.2.840.113549.1.1.11"],
    ["0603883703", "2.999.3"],
  ])("may be an object identifier: %s is %s", (text, dotted) => expect(hex(text).oid()).toBe(dotted));

  it.each([0, 1949, 1950, 2049, 2050, 9999].map((year) => Date.UTC(year, 1, 28, 23, 59, 59)))(
    "may be a time, in two digits of the year or four: %i",
    (ms) => {
      const isShort = ms >= Date.UTC(1950) && ms < Date.UTC(2050);
      const text = new Date(ms).toISOString().replace(/[-:T]|\.000/g, "");
      const value = isShort ? time(ms) : der(TAG.generalizedTime, Buffer.from(text));
      expect(new Der(value).time()).toBe(ms);
    },
  );

  it.each(["20260101000000Z", "260101000000", "260101000000+0100", "260230000000Z", "2601010000Z", "260101240000Z"])(
    "are no time in two digits of the year: %s",
    (text) => expect(() => new Der(der(TAG.utcTime, Buffer.from(text))).time()).toThrow("is no time"),
  );
});
