/**
 * Makes the certificate that answers a tls-alpn-01 challenge (RFC 8737 §3, for addresses RFC 8738 §6).
 */
import { createHash, randomBytes } from "node:crypto";
import { isIP } from "node:net";
import type { Pair } from "../server/certificates.ts";
import {
  addressBytes,
  alternativeNamesFor,
  der,
  ECDSA_WITH_SHA256,
  EXPLICIT,
  extension,
  INTEGER,
  objectIdentifier,
  OCTET_STRING,
  SEQUENCE,
  SET,
  signedStructure,
  time,
  UTF8_STRING,
} from "./asn1.ts";
import { newKey, pemOf, publicKeyInfo } from "./signing_request.ts";

/** Signed by itself. `now` in milliseconds since 1970. */
export function alpnCertificate(host: string, keyAuthorization: string, now: number): Pair {
  const key = newKey();
  const digest = createHash("sha256").update(keyAuthorization).digest();
  const name = der(SEQUENCE, objectIdentifier("2.5.4.3"), der(UTF8_STRING, Buffer.from("ACME challenge")));
  const names = der(SEQUENCE, der(SET, name));
  const acmeIdentifier = extension("1.3.6.1.5.5.7.1.31", der(OCTET_STRING, digest), "critical");
  const content = der(
    SEQUENCE,
    der(EXPLICIT, der(INTEGER, Buffer.from([2]))),
    // Positive, and without an octet of zeros before it.
    der(INTEGER, Buffer.from([1]), randomBytes(15)),
    ECDSA_WITH_SHA256,
    names,
    der(SEQUENCE, time(now - DAY_MS), time(now + DAY_MS)),
    names,
    publicKeyInfo(key),
    der(EXPLICIT | 3, der(SEQUENCE, alternativeNamesFor([host]), acmeIdentifier)),
  );
  return { cert: certificatePem(signedStructure(key, content)), key: pemOf(key) };
}

const DAY_MS = 86_400_000;

export function certificatePem(bytes: Buffer): Buffer {
  const lines = bytes.toString("base64").replace(/.{64}(?=.)/g, "$&\n");
  return Buffer.from(`-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`);
}

/** The name that a handshake for the host asks for; of an address its name in the reverse tree (RFC 8738 §6). */
export function servernameOf(host: string): string {
  const version = isIP(host);
  if (version === 0) return host;
  const bytes = addressBytes(host);
  if (bytes.length === 4) return `${[...bytes].reverse().join(".")}.in-addr.arpa`;
  return `${[...bytes.toString("hex")].reverse().join(".")}.ip6.arpa`;
}
