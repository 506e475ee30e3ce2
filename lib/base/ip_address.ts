/**
 * Reads IP addresses, and names the clients that they belong to.
 *
 * An IPv4-mapped IPv6 address (::ffff:192.0.2.1, RFC 4291 §2.5.5.2) is its IPv4 address everywhere: a dual-stack
 * listener reports IPv4 clients in that form.
 */
import { isIP, isIPv6 } from "node:net";

/** An address as four 32-bit words, high first. IPv4 has its mapped form: 0, 0, 0xffff, address. */
export interface IpAddress {
  readonly version: 4 | 6;
  readonly words: readonly [number, number, number, number];
}

/** The address, or null when the text is not an address. A zone id (`fe80::1%eth0`) is dropped. */
export function parseAddress(text: string): IpAddress | null {
  const isMapped = text.startsWith("::ffff:") && text.includes(".");
  if (isMapped || !text.includes(":")) {
    const value = ipv4(text, isMapped ? 7 : 0);
    return value < 0 ? null : { version: 4, words: [0, 0, 0xffff, value] };
  }
  const zone = text.indexOf("%");
  return ipv6(zone < 0 ? text : text.slice(0, zone));
}

/**
 * The name under which a client is counted: IPv4 as it is, IPv6 by its /64, because one customer has at least that many
 * addresses (RFC 6177). A text that is not an address is returned as it is.
 */
export function callerAddress(text: string): string {
  if (text.indexOf(":") < 0) return text;
  const address = parseAddress(text);
  if (address === null) return text;
  const [a, b, , d] = address.words;
  if (address.version === 4) return `${d >>> 24}.${(d >>> 16) & 255}.${(d >>> 8) & 255}.${d & 255}`;
  return (
    `${(a >>> 16).toString(16)}:${(a & 0xffff).toString(16)}:${(b >>> 16).toString(16)}:` +
    `${(b & 0xffff).toString(16)}::/64`
  );
}

/**
 * Dotted decimal from `start` on as an unsigned 32-bit number, or -1. A leading zero is refused: some programs read 010
 * as 8.
 */
function ipv4(text: string, start: number): number {
  let value = 0;
  let dots = 0;
  let byte = -1;
  for (let i = start; i < text.length; i++) {
    const digit = text.charCodeAt(i) - 48;
    if (digit === DOT && byte >= 0 && dots < 3) {
      value = value * 256 + byte;
      byte = -1;
      dots++;
    } else {
      if (digit < 0 || digit > 9 || byte === 0) return -1;
      byte = byte < 0 ? digit : byte * 10 + digit;
      if (byte > 255) return -1;
    }
  }
  return dots === 3 && byte >= 0 ? value * 256 + byte : -1;
}

const DOT = 46 - 48;

/** RFC 4291 §2.2: groups of hex digits, at most one "::", perhaps an IPv4 tail. */
function ipv6(text: string): IpAddress | null {
  if (!isIPv6(text)) return null;
  const groups: number[] = [];
  let gap = 8;
  for (let at = 0, end; at < text.length; at = end + 1) {
    end = text.indexOf(":", at);
    if (end < 0) end = text.length;
    const tail = end < text.length ? -1 : ipv4(text, at);
    if (end === at) gap = groups.length;
    else if (tail >= 0) groups.push(tail >>> 16, tail & 0xffff);
    else groups.push(parseInt(text.slice(at, end), 16));
  }
  groups.splice(gap, 0, ...ZEROS.slice(groups.length));
  const word = (i: number) => ((groups[i]! << 16) | groups[i + 1]!) >>> 0;
  const words: IpAddress["words"] = [word(0), word(2), word(4), word(6)];
  return { version: words[0] === 0 && words[1] === 0 && words[2] === 0xffff ? 4 : 6, words };
}

const ZEROS: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 0];

/**
 * Whether a host is a name that may have any addresses: not an address, nor a name of this machine (`localhost`, and
 * names below it: RFC 6761 §6.3).
 */
export function isForeignName(host: string): boolean {
  const name = host.toLowerCase().replace(/\.$/, "");
  return isIP(host) === 0 && name !== "localhost" && !name.endsWith(".localhost");
}

/** "10.0.0.8:6379", "[fd00::8]:6379" */
export function addressOf({ host, port }: { readonly host: string; readonly port: number }): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
