import { describe, expect, it } from "vitest";
import { parseProxyHeader } from "../../lib/base/proxy_protocol.ts";
import { v2 } from "../support/proxy_header.ts";

const read = (text: string) => parseProxyHeader(Buffer.from(text, "latin1"));
const IPV4 = Buffer.from([192, 0, 2, 1, 203, 0, 113, 7, 200, 30, 1, 187]);
const IPV6 = Buffer.from("20010db8000000000000000000000001".padEnd(72, "0"), "hex");
const tlv = (type: number, value: Buffer) =>
  Buffer.concat([Buffer.from([type, value.length >> 8, value.length & 255]), value]);

describe("version 1 of the PROXY protocol", () => {
  it.each([
    ["PROXY TCP4 192.0.2.1 203.0.113.7 51234 443\r\n", "192.0.2.1"],
    ["PROXY TCP4 255.255.255.255 0.0.0.0 0 65535\r\n", "255.255.255.255"],
    ["PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n", "2001:db8::1"],
    [
      "PROXY TCP6 ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n".replaceAll("f...f", Array(6).fill("ffff").join(":")),
      Array(8).fill("ffff").join(":"),
    ],
    ["PROXY TCP6 2001:DB8:0::1 2001:db8::2 1 2\r\n", "2001:db8::1"],
    ["PROXY TCP6 0:0:0:0:0:ffff:c000:201 ::1 1 2\r\n", "::ffff:192.0.2.1"],
    ["PROXY UNKNOWN\r\n", null],
    ["PROXY UNKNOWN ffff::1 whatever 1 2\r\n", null],
  ])("has the client's address: %j", (text, address) => {
    expect(read(text)).toEqual({ length: text.length, address });
    expect(read(`${text}GET / HTTP/1.1\r\n`)).toEqual({ length: text.length, address });
    for (let length = 1; length < text.length; length++) expect(read(text.slice(0, length))).toBe("part");
  });

  it.each([
    "PROXY TCP4 192.0.2.1 203.0.113.7 51234\r\n",
    "PROXY TCP4 192.0.2.1 203.0.113.7 51234 443 \r\n",
    "PROXY TCP4  192.0.2.1 203.0.113.7 51234 443\r\n",
    "PROXY TCP4 192.0.2.01 203.0.113.7 51234 443\r\n",
    "PROXY TCP4 192.0.2.1 203.0.113 51234 443\r\n",
    "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
    "PROXY TCP6 192.0.2.1 203.0.113.7 1 2\r\n",
    "PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n",
    "PROXY TCP4 192.0.2.1 203.0.113.7 65536 443\r\n",
    "PROXY TCP4 192.0.2.1 203.0.113.7 -1 443\r\n",
    "PROXY TCP4 192.0.2.1 203.0.113.7 01 443\r\n",
    "PROXY TCP4 192.0.2.1 203.0.113.7 1\n443\r\n",
    "PROXY tcp4 192.0.2.1 203.0.113.7 1 2\r\n",
    "PROXY UDP4 192.0.2.1 203.0.113.7 1 2\r\n",
    "PROXY \r\n",
    `PROXY UNKNOWN ${"x".repeat(92)}\r\n`,
    `PROXY UNKNOWN ${"x".repeat(200)}`,
  ])("is invalid: %j", (text) => expect(read(text)).toBe("invalid"));

  it("has at most 107 bytes with its end", () => {
    expect(read(`PROXY UNKNOWN ${"x".repeat(91)}\r\n`)).toEqual({ length: 107, address: null });
    expect(read(`PROXY UNKNOWN ${"x".repeat(92)}`)).toBe("part");
  });
});

describe("version 2 of the PROXY protocol", () => {
  it.each([
    ["IPv4", v2(0x21, 0x11, IPV4), "192.0.2.1"],
    ["IPv6", v2(0x21, 0x21, IPV6), "2001:db8::1"],
    [
      "IPv4 with values of unknown types, one of them empty",
      v2(0x21, 0x11, IPV4, tlv(0xe0, Buffer.from("abc")), tlv(4, Buffer.alloc(0))),
      "192.0.2.1",
    ],
    ["LOCAL", v2(0x20, 0x00), null],
    ["LOCAL with addresses, and what breaks the rules behind them", v2(0x20, 0x11, IPV4, Buffer.from([1])), null],
    ["UNSPEC", v2(0x21, 0x00), null],
    ["UNSPEC with a value", v2(0x21, 0x00, tlv(1, Buffer.from("h2"))), null],
    ["UDP over IPv4", v2(0x21, 0x12, IPV4), null],
    ["UDP over IPv6", v2(0x21, 0x22, IPV6), null],
    ["UNIX", v2(0x21, 0x31, Buffer.alloc(216, 0x61)), null],
    ["the longest", v2(0x21, 0x11, IPV4, tlv(0xe0, Buffer.alloc(4_096 - 16 - 12 - 3))), "192.0.2.1"],
  ])("has the client's address: %s", (_name, bytes, address) => {
    const { length } = bytes;
    expect(parseProxyHeader(bytes)).toEqual({ length, address });
    expect(parseProxyHeader(Buffer.concat([bytes, bytes]))).toEqual({ length, address });
    for (let end = 1; end < Math.min(length, 300); end++) expect(parseProxyHeader(bytes.subarray(0, end))).toBe("part");
  });

  it.each([
    ["version 1", v2(0x11, 0x11, IPV4)],
    ["an unknown command", v2(0x22, 0x11, IPV4)],
    ["an unknown family", v2(0x21, 0x41, IPV4)],
    ["an unknown transport", v2(0x21, 0x13, IPV4)],
    ["too few bytes for IPv4", v2(0x21, 0x11, IPV4.subarray(1))],
    ["too few bytes for IPv6", v2(0x21, 0x21, IPV4)],
    ["too few bytes for UNIX", v2(0x21, 0x31, IPV6)],
    ["a value that ends behind the header", v2(0x21, 0x11, IPV4, Buffer.from([4, 0, 2, 1]))],
    ["a value without its length", v2(0x21, 0x11, IPV4, Buffer.from([4, 0]))],
    ["a checksum of three bytes", v2(0x21, 0x11, IPV4, tlv(3, Buffer.alloc(3)))],
    ["a wrong checksum", v2(0x21, 0x11, IPV4, tlv(3, Buffer.alloc(4)))],
    ["more than 4,096 bytes", v2(0x21, 0x11, IPV4, tlv(0xe0, Buffer.alloc(4_096 - 16 - 12 - 2)))],
  ])("is invalid: %s", (_name, bytes) => expect(parseProxyHeader(bytes)).toBe("invalid"));

  it("says that it is too long before all of it has come", () => {
    expect(parseProxyHeader(v2(0x20, 0, Buffer.alloc(65_535)).subarray(0, 16))).toBe("invalid");
  });

  it("may have a CRC-32C over all of it, which must be right", () => {
    // The sum is by another program, whose sum of "123456789" is that of RFC 3720, appendix B.4: e3069283.
    const sum = Buffer.from("00000000", "hex");
    const before = v2(0x21, 0x11, IPV4, tlv(0xe0, Buffer.from("abc")), tlv(3, sum), tlv(0xe1, Buffer.from("d")));
    const right = Buffer.from(before);
    right.writeUInt32BE(0x1eb26da1, before.length - 8);
    expect(parseProxyHeader(right)).toEqual({ length: right.length, address: "192.0.2.1" });
    const typeAt = right.length - 11;
    for (let i = 16; i < right.length; i++) {
      // With another type it is no sum.
      if (i === typeAt) continue;
      const wrong = Buffer.from(right);
      wrong[i]! ^= 1;
      expect([i, parseProxyHeader(wrong)]).toEqual([i, "invalid"]);
    }
    // Each costs a look at the whole header.
    const twice = v2(0x21, 0x11, right.subarray(16), tlv(3, sum));
    expect(parseProxyHeader(twice)).toBe("invalid");
  });
});

it("what no header begins with is none, whatever it begins with", () => {
  for (const text of [
    "GET / HTTP/1.1\r\n",
    "POST /",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "PROXI",
    "\r\nGET /",
    "\x16\x03\x01",
    "proxy ",
  ])
    expect([text, read(text)]).toEqual([text, "none"]);
  for (const text of ["", "P", "PR", "\r\n", "\r\n\r"]) expect([text, read(text)]).toEqual([text, "part"]);
});
