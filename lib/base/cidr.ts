/**
 * Reads CIDR blocks, reports whether a set of blocks contains an address, and names the block that a client is counted
 * with.
 */
import { parseAddress, type IpAddress } from "./ip_address.ts";

/** A block of addresses: its first address and how many leading bits (of 128, for IPv4 too) all of them share. */
export interface Cidr {
  readonly first: IpAddress;
  readonly bits: number;
}

export interface CidrSet {
  /** Whether the address lies in one of the blocks; false for a text that is not an address. */
  has(address: string): boolean;
}

/**
 * Returns the block, or an error text that says how to correct the configuration. A single address is a block of one
 * address; bits behind the prefix length are ignored (10.1.2.3/8 is 10.0.0.0/8), as in nginx. ::/0 contains IPv6 only.
 */
export function parseCidr(text: string): Cidr | string {
  const slash = text.indexOf("/");
  const first = parseAddress(slash < 0 ? text : text.slice(0, slash));
  if (first === null) return "this is no IP address";
  // ::ffff:10.0.0.0/104 counts its bits from the start of the IPv6 form, 10.0.0.0/8 from the start of the IPv4 form.
  const width = text.includes(":") ? 128 : 32;
  const written = slash < 0 ? String(width) : text.slice(slash + 1);
  const prefix = /^(0|[1-9]\d{0,2})$/.test(written) ? Number(written) : -1;
  if (prefix < 0 || prefix > width) return `the prefix length is 0–${width}`;
  const bits = prefix + (128 - width);
  if (first.version === 4 && bits < 96)
    return (
      `the prefix length of an IPv4 address in IPv6 form is 96–128; ` +
      `for all of IPv4 write 0.0.0.0/0, for IPv6 ::/${prefix}`
    );
  const word = (i: number) => (first.words[i]! & mask(bits, i)) >>> 0;
  return { first: { version: first.version, words: [word(0), word(1), word(2), word(3)] }, bits };
}

/**
 * The set of these blocks. Throws for a block that `parseCidr` refuses: configurations are checked with it first. The
 * blocks are sorted, and blocks inside others left out, so that a binary search finds the only block that can contain
 * an address.
 */
export function cidrSet(list: readonly string[]): CidrSet {
  const blocks = list.map((text) => {
    const block = parseCidr(text);
    if (typeof block === "string") throw new TypeError(`${JSON.stringify(text)}: ${block}`);
    return block;
  });
  const sorted: Cidr[] = [];
  for (const block of blocks.sort((a, b) => compare(a.first, b.first) || a.bits - b.bits)) {
    // Blocks nest or are disjoint, so a nested block comes right behind the block that contains it.
    const last = sorted.at(-1);
    if (last === undefined || !contains(last, block.first)) sorted.push(block);
  }
  return {
    has(text) {
      const address = parseAddress(text);
      if (address === null) return false;
      let low = 0;
      let high = sorted.length;
      while (low < high) {
        const middle = (low + high) >>> 1;
        if (compare(sorted[middle]!.first, address) <= 0) low = middle + 1;
        else high = middle;
      }
      return low > 0 && contains(sorted[low - 1]!, address);
    },
  };
}

/**
 * Names the network of a client: IPv4 by its /24, IPv6 by its /48, which is what one site has (RFC 6177). Other texts
 * are returned as they are.
 */
export function networkOf(text: string): string {
  const address = parseAddress(text);
  if (address === null) return text;
  const [a, b, , d] = address.words;
  return address.version === 4
    ? `${d >>> 24}.${(d >>> 16) & 255}.${(d >>> 8) & 255}.0/24`
    : `${a.toString(16)}:${(b >>> 16).toString(16)}/48`;
}

/** The part of a prefix of `bits` bits that falls into word `i`. */
function mask(bits: number, i: number): number {
  const inWord = bits - i * 32;
  return inWord <= 0 ? 0 : inWord >= 32 ? -1 : -1 << (32 - inWord);
}

/** ::/0 does not contain IPv4. */
function contains(block: Cidr, address: IpAddress): boolean {
  if (block.first.version !== address.version) return false;
  for (let i = 0; i < 4; i++) {
    if (((block.first.words[i]! ^ address.words[i]!) & mask(block.bits, i)) !== 0) return false;
  }
  return true;
}

/** IPv4 before IPv6, then by value. */
function compare(a: IpAddress, b: IpAddress): number {
  if (a.version !== b.version) return a.version - b.version;
  for (let i = 0; i < 4; i++) {
    if (a.words[i] !== b.words[i]) return a.words[i]! - b.words[i]!;
  }
  return 0;
}
