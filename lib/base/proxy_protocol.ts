/**
 * The header of the PROXY protocol, versions 1 and 2 (HAProxy's proxy-protocol.txt): a proxy that passes on bytes says
 * with it whose connection it passes on.
 *
 *     PROXY TCP4 192.0.2.1 203.0.113.7 51234 443\r\n
 */
import { isIPv4, isIPv6, SocketAddress } from "node:net";
import { parseAddress, type IpAddress } from "./ip_address.ts";

export interface ProxyHeader {
  /** Of the header, in bytes. */
  readonly length: number;
  /**
   * The client's address; null: the connection is the proxy's own (LOCAL, UNKNOWN), or one without an IP address or
   * TCP.
   */
  readonly address: string | null;
}

/** A longer header is invalid, whatever it says of its length. */
const MAX_LENGTH = 4_096;
const V1_BEGIN = Buffer.from("PROXY ");
/** Of the longest header of version 1, with its CRLF (§2.1). */
const V1_MAX = 107;
const V2_BEGIN = Buffer.from("\r\n\r\n\0\r\nQUIT\n");
const BEGINS = [
  ["v1", V1_BEGIN],
  ["v2", V2_BEGIN],
] as const;
/** Signature, version and command, family, length (§2.2). */
const V2_FIXED = 16;
/** Bytes of both addresses and ports, by the upper half of the byte of the family: UNSPEC, IPv4, IPv6, UNIX. */
const V2_ADDRESSES = [0, 12, 36, 216];
const STREAM = 1;
/** Version 2 with its command. */
const LOCAL = 0x20;
const PROXY = 0x21;
const TCP4 = 0x11;
const TCP6 = 0x21;
/** Type of a checksum over the whole header (§2.2.3). */
const TLV_CRC32C = 0x03;

/**
 * "part": more bytes have to come; "none": no header begins so; "invalid": one does, but it breaks the rules. Does not
 * accept spaces, leading zeros or zones beyond those of the grammar.
 */
export function parseProxyHeader(bytes: Buffer): ProxyHeader | "part" | "none" | "invalid" {
  const begins = proxyHeaderBegins(bytes);
  return begins === "v1" ? readV1(bytes) : begins === "v2" ? readV2(bytes) : begins;
}

/** Whether the bytes begin as a header of a version does; "part": more have to come to say. */
export function proxyHeaderBegins(bytes: Buffer): "v1" | "v2" | "part" | "none" {
  for (const [version, begin] of BEGINS) {
    const length = Math.min(bytes.length, begin.length);
    if (bytes.compare(begin, 0, length, 0, length) === 0) return length < begin.length ? "part" : version;
  }
  return "none";
}

/**
 * The header of a connection that is made for a client. Null: it is the gateway's own, or its client has no address.
 * `to`: what it leads to; a host that is no address is the unspecified one. The client's port is 0: connections are
 * kept for all requests of an address.
 */
export function proxyHeader(
  version: "v1" | "v2",
  client: string | null,
  { host, port }: { readonly host: string; readonly port: number },
): Buffer {
  const source = parseAddress(client ?? "");
  if (source === null) return version === "v1" ? Buffer.from("PROXY UNKNOWN\r\n") : v2Header(LOCAL, 0, []);
  const target = parseAddress(host) ?? { version: source.version, words: UNSPECIFIED[source.version] };
  const isIPv4 = source.version === 4 && target.version === 4;
  const bytes = ({ words }: IpAddress) => (isIPv4 ? bytesOf(words[3]) : words.flatMap(bytesOf));
  if (version === "v2")
    return v2Header(PROXY, isIPv4 ? TCP4 : TCP6, [...bytes(source), ...bytes(target), 0, 0, port >> 8, port & 255]);
  const text = (address: IpAddress) => (isIPv4 ? bytes(address).join(".") : ipv6Text(address.words));
  return Buffer.from(`PROXY ${isIPv4 ? "TCP4" : "TCP6"} ${text(source)} ${text(target)} 0 ${port}\r\n`);
}

const UNSPECIFIED = { 4: [0, 0, 0xffff, 0], 6: [0, 0, 0, 0] } as const;

function v2Header(command: number, family: number, addresses: readonly number[]): Buffer {
  return Buffer.from([...V2_BEGIN, command, family, 0, addresses.length, ...addresses]);
}

const bytesOf = (word: number) => [word >>> 24, (word >>> 16) & 255, (word >>> 8) & 255, word & 255];

function ipv6Text(words: IpAddress["words"]): string {
  const groups = words.flatMap((word) => [(word >>> 16).toString(16), (word & 0xffff).toString(16)]);
  return new SocketAddress({ family: "ipv6", address: groups.join(":") }).address;
}

function readV1(bytes: Buffer): ProxyHeader | "part" | "invalid" {
  const end = bytes.subarray(0, V1_MAX).indexOf("\r\n");
  if (end < 0) return bytes.length < V1_MAX ? "part" : "invalid";
  const length = end + 2;
  const words = bytes.toString("latin1", V1_BEGIN.length, end).split(" ");
  const [family, source = "", target = "", ...ports] = words;
  if (family === "UNKNOWN") return { length, address: null };
  const isAddress = ADDRESSES.get(family!);
  if (isAddress === undefined || ports.length !== 2 || !ports.every(isPort)) return "invalid";
  if (!isAddress(source) || !isAddress(target)) return "invalid";
  return { length, address: family === "TCP4" ? source : ipv6Text(parseAddress(source)!.words) };
}

const ADDRESSES = new Map([
  ["TCP4", isIPv4],
  ["TCP6", (text: string) => isIPv6(text) && !text.includes("%")],
]);

function isPort(text: string): boolean {
  return /^(?:0|[1-9]\d{0,4})$/.test(text) && Number(text) < 65_536;
}

function readV2(bytes: Buffer): ProxyHeader | "part" | "invalid" {
  if (bytes.length < V2_FIXED) return "part";
  const command = bytes[12]!;
  const [family, transport] = [bytes[13]! >> 4, bytes[13]! & 15];
  const length = V2_FIXED + bytes.readUInt16BE(14);
  const addresses = V2_ADDRESSES[family];
  // Version 2 with LOCAL or PROXY; UNSPEC, STREAM or DGRAM.
  if ((command !== LOCAL && command !== PROXY) || addresses === undefined || transport > 2) return "invalid";
  if (length > MAX_LENGTH) return "invalid";
  if (bytes.length < length) return "part";
  // What it says of a connection of its own is skipped, whatever it is.
  if (command === LOCAL) return { length, address: null };
  if (V2_FIXED + addresses > length) return "invalid";
  const header = bytes.subarray(0, length);
  if (!areExtrasValid(header, V2_FIXED + addresses)) return "invalid";
  return { length, address: transport === STREAM ? addressIn(header, family) : null };
}

function addressIn(header: Buffer, family: number): string | null {
  if (family === 1) return header.subarray(V2_FIXED, V2_FIXED + 4).join(".");
  if (family !== 2) return null;
  const word = (i: number) => header.readUInt32BE(V2_FIXED + 4 * i);
  return ipv6Text([word(0), word(1), word(2), word(3)]);
}

/** Whether each of the extra values ends within the header, and the checksum is right where there is one: one alone. */
function areExtrasValid(header: Buffer, begin: number): boolean {
  let isSummed = false;
  for (let at = begin, end; at < header.length; at = end) {
    if (at + 3 > header.length) return false;
    const value = at + 3;
    end = value + header.readUInt16BE(at + 1);
    if (end > header.length) return false;
    if (header[at] !== TLV_CRC32C) continue;
    if (isSummed || end - value !== 4) return false;
    isSummed = true;
    const zeroed = Buffer.from(header).fill(0, value, end);
    if (crc32c(zeroed) !== header.readUInt32BE(value)) return false;
  }
  return true;
}

/** RFC 9260, appendix A. */
function crc32c(bytes: Buffer): number {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc >>> 0;
}
