/**
 * Reads IP addresses and CIDR blocks, and tells whether an address lies in a set of blocks.
 * Which sets there are, and whose address is asked about, is the callers' affair.
 *
 * An IPv4-mapped IPv6 address (::ffff:192.0.2.1, RFC 4291 §2.5.5.2) is its IPv4 address everywhere: a dual-stack listener reports
 * IPv4 callers in that form.
 */

/** An address as four 32-bit words, high first. IPv4 stands in its mapped form: 0, 0, 0xffff, address. */
export interface Address {
  readonly version: 4 | 6;
  readonly words: readonly [number, number, number, number];
}

/** A block of addresses: its first address and how many leading bits (of 128, for IPv4 too) all of them share. */
export interface Cidr {
  readonly first: Address;
  readonly bits: number;
}

export interface CidrSet {
  /** Whether the address lies in one of the blocks; false for what is no address. */
  has(address: string): boolean;
}

/** The address, or null when the text is none. A zone id (`fe80::1%eth0`) is dropped. */
export function parseAddress(text: string): Address | null {
  const colon = text.indexOf(":");
  if (colon < 0) {
    const value = ipv4(text, 0, text.length);
    return value < 0 ? null : mapped(value);
  }
  const zone = text.indexOf("%");
  return ipv6(text, zone < 0 ? text.length : zone);
}

/**
 * The block, or what is wrong with the text, as the remedy of a configuration error. An address alone is the block of that one address; bits behind
 * the prefix length are ignored (10.1.2.3/8 is 10.0.0.0/8), as in nginx. ::/0 holds IPv6 only.
 */
export function parseCidr(text: string): Cidr | string {
  const slash = text.indexOf("/");
  const first = parseAddress(slash < 0 ? text : text.slice(0, slash));
  if (first === null) return "this is no IP address";
  // ::ffff:10.0.0.0/104 counts its bits from the start of the IPv6 form, 10.0.0.0/8 from the start of the IPv4 form.
  const written = text.includes(":") ? 128 : 32;
  const prefix = slash < 0 ? written : decimal(text, slash + 1, text.length);
  if (prefix < 0 || prefix > written) return `the prefix length is 0–${written}`;
  const bits = prefix + (128 - written);
  if (first.version === 4 && bits < 96) return `the prefix length of an IPv4 address in IPv6 form is 96–128; for all of IPv4 write 0.0.0.0/0, for IPv6 ::/${prefix}`;
  const word = (i: number) => (first.words[i]! & mask(bits, i)) >>> 0;
  return { first: { version: first.version, words: [word(0), word(1), word(2), word(3)] }, bits };
}

/**
 * The set of these blocks. Throws for a block that `parseCidr` refuses: configurations are checked with it before they come here.
 * Asking costs a binary search: the blocks are sorted, and blocks inside others left out, so that only one can hold an address.
 */
export function cidrSet(list: readonly string[]): CidrSet {
  const blocks = { 4: [] as Cidr[], 6: [] as Cidr[] };
  for (const text of list) {
    const block = parseCidr(text);
    if (typeof block === "string") throw new TypeError(`${JSON.stringify(text)}: ${block}`);
    blocks[block.first.version].push(block);
  }
  const sorted = { 4: withoutNested(blocks[4]), 6: withoutNested(blocks[6]) };
  return {
    has(text) {
      const address = parseAddress(text);
      return address !== null && holds(sorted[address.version], address);
    },
  };
}

/**
 * Under which name an address is counted as a caller: IPv4 as it is, IPv6 by its /64, because one customer holds at least that many
 * addresses (RFC 6177). What is no address is returned as it is.
 */
export function callerAddress(text: string): string {
  if (text.indexOf(":") < 0) return text;
  const address = parseAddress(text);
  if (address === null) return text;
  const [a, b, , d] = address.words;
  if (address.version === 4) return `${d >>> 24}.${(d >>> 16) & 255}.${(d >>> 8) & 255}.${d & 255}`;
  return `${(a >>> 16).toString(16)}:${(a & 0xffff).toString(16)}:${(b >>> 16).toString(16)}:${(b & 0xffff).toString(16)}::/64`;
}

function mapped(value: number): Address {
  return { version: 4, words: [0, 0, 0xffff, value] };
}

/** Dotted decimal in text[start, end) as an unsigned 32-bit number, or -1. */
function ipv4(text: string, start: number, end: number): number {
  let value = 0;
  let from = start;
  for (let part = 0; part < 4; part++) {
    const dot = part < 3 ? text.indexOf(".", from) : end;
    if (dot < 0 || dot > end) return -1;
    const byte = decimal(text, from, dot);
    if (byte < 0 || byte > 255) return -1;
    value = value * 256 + byte;
    from = dot + 1;
  }
  return value;
}

/** One to three decimal digits in text[start, end), or -1. A leading zero is refused: some programs read 010 as 8. */
function decimal(text: string, start: number, end: number): number {
  const length = end - start;
  if (length < 1 || length > 3 || (length > 1 && text.charCodeAt(start) === 48)) return -1;
  let value = 0;
  for (let i = start; i < end; i++) {
    const digit = text.charCodeAt(i) - 48;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}

/** RFC 4291 §2.2 in text[0, end): groups of hex digits, at most one "::", perhaps an IPv4 tail. */
function ipv6(text: string, end: number): Address | null {
  const groups: number[] = [];
  let gap = -1;
  let at = 0;
  if (text.startsWith("::")) {
    gap = 0;
    at = 2;
  }
  while (at < end) {
    if (groups.length === 8) return null;
    let value = 0;
    let i = at;
    for (; i < end && i - at < 5; i++) {
      const digit = hexDigit(text.charCodeAt(i));
      if (digit < 0) break;
      value = value * 16 + digit;
    }
    if (i < end && text.charCodeAt(i) === 46 /* . */) {
      const tail = ipv4(text, at, end);
      if (tail < 0) return null;
      groups.push(tail >>> 16, tail & 0xffff);
      at = end;
      break;
    }
    if (i === at || i - at > 4) return null;
    groups.push(value);
    if (i === end) break;
    if (text.charCodeAt(i) !== 58 /* : */) return null;
    at = i + 1;
    if (at < end && text.charCodeAt(at) === 58) {
      if (gap >= 0) return null;
      gap = groups.length;
      at++;
    } else if (at === end) return null; // 1:2:3:4:5:6:7:
  }
  if (gap < 0 ? groups.length !== 8 : groups.length > 7) return null;
  if (gap >= 0) groups.splice(gap, 0, ...ZEROS.slice(groups.length));
  const word = (i: number) => ((groups[i]! << 16) | groups[i + 1]!) >>> 0;
  const words: Address["words"] = [word(0), word(2), word(4), word(6)];
  return words[0] === 0 && words[1] === 0 && words[2] === 0xffff ? mapped(words[3]) : { version: 6, words };
}

const ZEROS: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 0];

function hexDigit(code: number): number {
  if (code >= 48 && code <= 57) return code - 48;
  const letter = code | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}

/** The part of a prefix of `bits` bits that falls into word `i`. */
function mask(bits: number, i: number): number {
  const inWord = bits - i * 32;
  return inWord <= 0 ? 0 : inWord >= 32 ? -1 : -1 << (32 - inWord);
}

function inside(block: Cidr, address: Address): boolean {
  for (let i = 0; i < 4; i++) {
    if (((block.first.words[i]! ^ address.words[i]!) & mask(block.bits, i)) !== 0) return false;
  }
  return true;
}

function compare(a: Address, b: Address): number {
  for (let i = 0; i < 4; i++) {
    if (a.words[i] !== b.words[i]) return a.words[i]! - b.words[i]!;
  }
  return 0;
}

/** Sorted by first address. Blocks nest or are disjoint, so a nested one comes right behind what holds it. */
function withoutNested(blocks: Cidr[]): readonly Cidr[] {
  blocks.sort((a, b) => compare(a.first, b.first) || a.bits - b.bits);
  const kept: Cidr[] = [];
  for (const block of blocks) {
    const last = kept[kept.length - 1];
    if (last === undefined || !inside(last, block.first)) kept.push(block);
  }
  return kept;
}

/** Only the last block that starts at or before the address can hold it. */
function holds(sorted: readonly Cidr[], address: Address): boolean {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compare(sorted[middle]!.first, address) <= 0) low = middle + 1;
    else high = middle;
  }
  return low > 0 && inside(sorted[low - 1]!, address);
}
