/**
 * Hashes passwords with scrypt (RFC 7914) and compares them with stored ones in constant time.
 */
import { createHash, randomBytes, scrypt, timingSafeEqual } from "node:crypto";

/** `scrypt$N$r$p$salt$hash`, salt and hash in base64url. Needs some 60 ms on a pool thread, and 32 MiB. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const hash = await derive(password, { cost: 32_768, blockSize: 8, parallel: 1, salt, length: 32 });
  return `${PREFIX}32768$8$1$${salt.toString("base64url")}$${hash.toString("base64url")}`;
}

/** Whether a stored password is a hash; the hash itself is not accepted as a password. */
export function isHashed(stored: string): boolean {
  return stored.startsWith(PREFIX);
}

/** Whether `given` is the stored password, which is a hash of the form above or else plain text. A malformed hash matches nothing. */
export async function verifyPassword(given: string, stored: string): Promise<boolean> {
  if (!isHashed(stored)) return sameText(given, stored);
  const parsed = parse(stored);
  if (typeof parsed === "string") return false;
  return timingSafeEqual(await derive(given, parsed.parameters), parsed.hash);
}

/** Why `stored` cannot be used as a password; null if it can. Call at start, when a mistake can still be corrected. */
export function passwordProblem(stored: string): string | null {
  if (stored === "") return "the password is empty";
  if (!isHashed(stored)) return null;
  const parsed = parse(stored);
  return typeof parsed === "string" ? parsed : null;
}

/**
 * Compares two texts in a time that reveals nothing of the stored one: all digests have the same length. Texts that differ only in
 * Unicode composition are equal (RFC 8265 §4.2, NFC).
 */
export function sameText(given: string, stored: string): boolean {
  return timingSafeEqual(digest(given), digest(stored));
}

const PREFIX = "scrypt$";

interface Parameters {
  readonly cost: number;
  readonly blockSize: number;
  readonly parallel: number;
  readonly salt: Buffer;
  /** Length of the hash in bytes. */
  readonly length: number;
}

/** Returns the parts of the stored hash, or an error text. The parameters are limited: a hash from elsewhere must not demand gigabytes or minutes. */
function parse(stored: string): { parameters: Parameters; hash: Buffer } | string {
  const fields = stored.split("$");
  if (fields.length !== 6) return "a scrypt hash has six fields, scrypt$N$r$p$salt$hash";
  const [cost, blockSize, parallel] = fields.slice(1, 4).map((field) => (/^[1-9]\d{0,6}$/.test(field) ? Number(field) : 0));
  const [salt, hash] = fields.slice(4).map((field) => Buffer.from(field, "base64url"));
  if (!cost || !blockSize || !parallel || !salt || !hash) return "N, r and p of a scrypt hash are whole numbers";
  if (cost < 1024 || (cost & (cost - 1)) !== 0) return "N of a scrypt hash is a power of two, at least 1024";
  if (blockSize < 8) return "r of a scrypt hash is at least 8";
  if (128 * cost * blockSize > 64 * MIB) return "a scrypt hash may take 64 MiB (128 * N * r)";
  if (128 * cost * blockSize * parallel > 256 * MIB) return "a scrypt hash may cost eight times the default (N * r * p)";
  if (salt.toString("base64url") !== fields[4] || hash.toString("base64url") !== fields[5]) return "salt and hash are base64url";
  if (salt.length < 8 || salt.length > 64) return "the salt of a scrypt hash has 8 to 64 bytes";
  if (hash.length < 16 || hash.length > 64) return "a scrypt hash has 16 to 64 bytes";
  return { parameters: { cost, blockSize, parallel, salt, length: hash.length }, hash };
}

const MIB = 1024 * 1024;

function derive(password: string, { cost, blockSize, parallel, salt, length }: Parameters): Promise<Buffer> {
  // OpenSSL counts 128 * r * (N + p + 2) bytes against `maxmem`.
  const options = { N: cost, r: blockSize, p: parallel, maxmem: 128 * blockSize * (cost + parallel + 2) + MIB };
  return new Promise((resolve, reject) => {
    scrypt(password.normalize("NFC"), salt, length, options, (error, key) => (error === null ? resolve(key) : reject(error)));
  });
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text.normalize("NFC")).digest();
}
