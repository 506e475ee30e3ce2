/**
 * Writes DER (ITU-T X.690): as much of it as requests for certificates and their challenges need. It is read by
 * `lib/base/der.ts`.
 */
import { sign, type KeyObject } from "node:crypto";
import { isIP } from "node:net";
import { parseAddress } from "../base/ip_address.ts";

const BOOLEAN = 0x01;
export const INTEGER = 0x02;
const BIT_STRING = 0x03;
export const OCTET_STRING = 0x04;
const OBJECT_IDENTIFIER = 0x06;
export const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;
const GENERALIZED_TIME = 0x18;
export const SEQUENCE = 0x30;
export const SET = 0x31;

/** [0], [1], … around a value of its own type. */
export const EXPLICIT = 0xa0;
/** [0], [1], … in place of the tag of a primitive value. */
const IMPLICIT = 0x80;

export function der(tag: number, ...contents: readonly Buffer[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.from([tag, ...lengthOctets(content.length)]), content]);
}

/** X.690 §8.1.3: a length from 128 on has the number of its octets before it. */
function lengthOctets(length: number): number[] {
  if (length < 0x80) return [length];
  const octets: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) octets.unshift(rest % 256);
  return [0x80 | octets.length, ...octets];
}

/** "1.2.840.10045.4.3.2" */
export function objectIdentifier(dotted: string): Buffer {
  const [first, second, ...others] = dotted.split(".").map(Number);
  const octets = [first! * 40 + second!, ...others].flatMap((arc) => {
    const groups = [arc % 128];
    for (let rest = Math.floor(arc / 128); rest > 0; rest = Math.floor(rest / 128)) groups.unshift(0x80 | (rest % 128));
    return groups;
  });
  return der(OBJECT_IDENTIFIER, Buffer.from(octets));
}

/** Of whole octets. */
export function bitString(content: Buffer): Buffer {
  return der(BIT_STRING, Buffer.from([0]), content);
}

/** RFC 5280 §4.1.2.5: two digits for the year before 2050. `at` in milliseconds since 1970. */
export function time(at: number): Buffer {
  const digits = new Date(at).toISOString().replace(/\.\d+/, "").replaceAll(/[-:T]/g, "");
  return digits < "2050" ? der(UTC_TIME, Buffer.from(digits.slice(2))) : der(GENERALIZED_TIME, Buffer.from(digits));
}

/** The content, the algorithm ecdsa-with-SHA256 (RFC 5758 §3.2), and the signature: a request, or a certificate. */
export function signedStructure(key: KeyObject, content: Buffer): Buffer {
  return der(SEQUENCE, content, ECDSA_WITH_SHA256, bitString(sign("sha256", content, key)));
}

export const ECDSA_WITH_SHA256 = der(SEQUENCE, objectIdentifier("1.2.840.10045.4.3.2"));

export function extension(id: string, content: Buffer, isCritical: "critical" | "not critical"): Buffer {
  const critical = isCritical === "critical" ? [der(BOOLEAN, Buffer.from([0xff]))] : [];
  return der(SEQUENCE, objectIdentifier(id), ...critical, der(OCTET_STRING, content));
}

/** subjectAltName (RFC 5280 §4.2.1.6) with host names and IP addresses. */
export function alternativeNamesFor(hosts: readonly string[]): Buffer {
  const names = hosts.map((host) =>
    isIP(host) === 0 ? der(IMPLICIT | 2, Buffer.from(host, "latin1")) : der(IMPLICIT | 7, addressBytes(host)),
  );
  return extension("2.5.29.17", der(SEQUENCE, ...names), "not critical");
}

/** 4 or 16 octets, in the order of the network. */
export function addressBytes(address: string): Buffer {
  const { version, words } = parseAddress(address)!;
  const bytes = Buffer.alloc(16);
  words.forEach((word, i) => bytes.writeUInt32BE(word, 4 * i));
  return version === 4 ? bytes.subarray(12) : bytes;
}
