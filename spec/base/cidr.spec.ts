import { BlockList } from "node:net";
import { describe, expect, it } from "vitest";
import { cidrSet, networkOf, parseCidr } from "../../lib/base/cidr.ts";
import { callerAddress, parseAddress } from "../../lib/base/ip_address.ts";
import { random, type Random } from "../support/random.ts";

const words = (text: string) => {
  const address = parseAddress(text);
  return address === null ? null : address.words.map((word) => word.toString(16)).join(" ");
};

describe("addresses", () => {
  it.each([
    ["0.0.0.0", "0 0 ffff 0"],
    ["192.0.2.1", "0 0 ffff c0000201"],
    ["255.255.255.255", "0 0 ffff ffffffff"],
    ["::", "0 0 0 0"],
    ["::1", "0 0 0 1"],
    ["1::", "10000 0 0 0"],
    ["2001:DB8::a:b", "20010db8 0 0 a000b"],
    ["1:2:3:4:5:6:7:8", "10002 30004 50006 70008"],
    ["1:2:3:4:5:6:7::", "10002 30004 50006 70000"],
    ["::2:3:4:5:6:7:8", "2 30004 50006 70008"],
    ["64:ff9b::192.0.2.1", "64ff9b 0 0 c0000201"],
    ["fe80::1%eth0", "fe800000 0 0 1"],
    ["::ffff:192.0.2.1", "0 0 ffff c0000201"],
    ["::FFFF:c000:201", "0 0 ffff c0000201"],
  ])("reads the address %s", (text, expected) => {
    expect(words(text)).toBe(expected);
  });

  it("an IPv4-mapped address is its IPv4 address", () => {
    expect(parseAddress("::ffff:192.0.2.1")).toEqual(parseAddress("192.0.2.1"));
  });

  it.each([
    "",
    "1",
    "1.2.3",
    "1.2.3.4.5",
    "1.2.3.256",
    "01.2.3.4",
    "1.2.3.",
    ".1.2.3",
    "1..2.3",
    "1.2.3.4 ",
    "1.2.3.-4",
    "0x1.2.3.4",
    "1234.1.1.1",
    ":",
    ":::",
    "1:",
    ":1",
    "1::2::3",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8:9",
    "1:2:3:4:5:6:7:8::",
    "12345::",
    "g::",
    "::1.2.3",
    "::1.2.3.4:5",
    "1:2:3:4:5:6:7:1.2.3.4",
    "[::1]",
    "::1 ",
    "%eth0",
    ":%:",
    "::ffff:01.2.3.4",
  ])("%j is not an address", (text) => {
    expect(parseAddress(text)).toBe(null);
    expect(cidrSet(["0.0.0.0/0", "::/0"]).has(text)).toBe(false);
  });
});

describe("blocks", () => {
  it.each([
    ["10.0.0.0/33", "0–32"],
    ["10.0.0.0/", "0–32"],
    ["10.0.0.0/-1", "0–32"],
    ["10.0.0.0/8/8", "0–32"],
    ["10.0.0.0/08", "0–32"],
    ["::/129", "0–128"],
    ["::/x", "0–128"],
    ["10.0.0/8", "this is no IP address"],
    ["::ffff:0:0/90", "of an IPv4 address in IPv6 form is 96–128"],
  ])("refuses %s, with the reason", (text, why) => {
    expect(parseCidr(text)).toContain(why);
    expect(() => cidrSet([text])).toThrow(why);
  });

  it.each([
    ["10.0.0.0/8", "10.255.255.255", true],
    ["10.0.0.0/8", "11.0.0.0", false],
    ["10.1.2.3/8", "10.9.9.9", true],
    ["192.0.2.1", "192.0.2.1", true],
    ["192.0.2.1", "192.0.2.2", false],
    ["0.0.0.0/0", "203.0.113.9", true],
    ["0.0.0.0/0", "2001:db8::1", false],
    ["::/0", "2001:db8::1", true],
    ["::/0", "203.0.113.9", false],
    ["10.0.0.0/8", "::ffff:10.1.1.1", true],
    ["::ffff:10.0.0.0/104", "10.1.1.1", true],
    ["fe80::/10", "fe80::1%eth0", true],
    ["2001:db8::/33", "2001:db8:7fff::", true],
    ["2001:db8::/33", "2001:db8:8000::", false],
  ])("decides whether block %s contains %s: %s", (block, address, expected) => {
    expect(cidrSet([block]).has(address)).toBe(expected);
  });

  it("an empty set contains nothing", () => {
    expect(cidrSet([]).has("127.0.0.1")).toBe(false);
  });

  it("any set agrees with node's own BlockList", () => {
    const from = random(7);
    // Few distinct bytes, so that blocks nest and addresses hit.
    const address4 = (r: Random) => [10, r.pick([0, 1]), r.pick([0, 128, 255]), r.int(0, 3)].join(".");
    const address6 = (r: Random) =>
      `2001:db8:${r.pick(["0", "8000", "ffff"])}:${r.int(0, 3)}:${r.int(0, 1)}::${r.int(0, 2)}`;
    for (let round = 0; round < 200; round++) {
      const reference = new BlockList();
      const blocks = from.list(0, 12, () => {
        const four = from.chance(0.5);
        const address = four ? address4(from) : address6(from);
        const prefix = from.int(four ? 6 : 30, four ? 32 : 128);
        reference.addSubnet(address, prefix, four ? "ipv4" : "ipv6");
        return `${address}/${prefix}`;
      });
      const set = cidrSet(blocks);
      for (let i = 0; i < 40; i++) {
        const four = from.chance(0.5);
        const address = four ? address4(from) : address6(from);
        expect(set.has(address), `${address} in ${blocks.join(" ")}`).toBe(
          reference.check(address, four ? "ipv4" : "ipv6"),
        );
      }
    }
  });
});

describe("callerAddress", () => {
  it.each([
    ["192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.255", "192.0.2.255"],
    ["2001:db8:0:1:aaaa::1", "2001:db8:0:1::/64"],
    ["2001:0DB8::1:0:0:0:9", "2001:db8:0:1::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["unix:", "unix:"],
    ["", ""],
  ])("%s counts as %s", (address, caller) => {
    expect(callerAddress(address)).toBe(caller);
  });
});

describe("networkOf", () => {
  it.each([
    ["192.0.2.77", "192.0.2.0/24"],
    ["::ffff:192.0.2.1", "192.0.2.0/24"],
    ["2001:db8:1:2::1", "20010db8:1/48"],
    ["2001:db8:1:ffff::", "20010db8:1/48"],
    ["2001:db8:2::", "20010db8:2/48"],
    ["no address", "no address"],
  ])("networkOf names the network of %s %s", (address, network) => {
    expect(networkOf(address)).toBe(network);
  });
});
