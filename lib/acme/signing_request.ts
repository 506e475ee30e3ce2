/**
 * Makes the keys of certificates, and the requests for certificates with them (PKCS #10, RFC 2986).
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import {
  alternativeNamesFor,
  der,
  EXPLICIT,
  INTEGER,
  objectIdentifier,
  SEQUENCE,
  SET,
  signedStructure,
} from "./asn1.ts";

/** An EC key on P-256, which every directory and every client takes. */
export function newKey(): KeyObject {
  return generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
}

/** PKCS #8. */
export function pemOf(key: KeyObject): Buffer {
  return Buffer.from(key.export({ type: "pkcs8", format: "pem" }));
}

/** Throws if it is no private EC key on P-256 in PEM form. */
export function keyFrom(pem: Buffer): KeyObject {
  const key = createPrivateKey(pem);
  if (key.asymmetricKeyDetails?.namedCurve !== "prime256v1") throw new Error("it is not an EC key on P-256");
  return key;
}

/** SubjectPublicKeyInfo, DER. */
export function publicKeyInfo(key: KeyObject): Buffer {
  return createPublicKey(key).export({ type: "spki", format: "der" });
}

/** DER. The subject is empty: the names are the alternative ones (RFC 8555 §7.4). */
export function signingRequest(key: KeyObject, hosts: readonly string[]): Buffer {
  const extensions = der(SEQUENCE, alternativeNamesFor(hosts));
  const extensionRequest = der(SEQUENCE, objectIdentifier("1.2.840.113549.1.9.14"), der(SET, extensions));
  const content = [der(INTEGER, Buffer.from([0])), der(SEQUENCE), publicKeyInfo(key), der(EXPLICIT, extensionRequest)];
  return signedStructure(key, der(SEQUENCE, ...content));
}
