/**
 * Reports whether a set of CIDR blocks contains an address.
 */
import { mask, parseAddress, parseCidr, type Cidr, type IpAddress } from "./cidr.ts";

export interface CidrSet {
  /** Whether the address lies in one of the blocks; false for a text that is not an address. */
  has(address: string): boolean;
}

/**
 * The set of these blocks. Throws for a block that `parseCidr` refuses: configurations are checked with it first. The blocks are sorted,
 * and blocks inside others left out, so that a binary search finds the only block that can contain an address.
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
