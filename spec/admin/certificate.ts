import { generateKeyPairSync, sign } from "node:crypto";

/**
 * A self-signed certificate for 127.0.0.1, made anew in each run: just enough DER for a TLS handshake (RFC 5280 §4.1).
 */
const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });

const der = (tag: number, ...parts: Uint8Array[]): Buffer => {
  const content = Buffer.concat(parts);
  const { length } = content;
  return Buffer.concat([Buffer.from(length < 128 ? [tag, length] : [tag, 0x82, length >> 8, length & 255]), content]);
};
const sequence = (...parts: Uint8Array[]) => der(0x30, ...parts);
const time = (text: string) => der(0x18, Buffer.from(text));

const ecdsaWithSha256 = sequence(der(0x06, Buffer.from("2a8648ce3d040302", "hex")));
const commonName = der(0x06, Buffer.from("550403", "hex"));
const name = sequence(der(0x31, sequence(commonName, der(0x0c, Buffer.from("127.0.0.1")))));
const validity = sequence(time("20200101000000Z"), time("21200101000000Z"));
const key = publicKey.export({ type: "spki", format: "der" });
const signed = sequence(der(0x02, Buffer.from([1])), ecdsaWithSha256, name, validity, name, key);
const signature = der(0x03, Buffer.from([0]), sign("sha256", signed, privateKey));

const certificate = sequence(signed, ecdsaWithSha256, signature).toString("base64");

export const CERT = Buffer.from(`-----BEGIN CERTIFICATE-----\n${certificate}\n-----END CERTIFICATE-----\n`);
export const KEY = Buffer.from(privateKey.export({ type: "pkcs8", format: "pem" }).toString());
