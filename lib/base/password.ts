/**
 * Hashes passwords with scrypt (RFC 7914) and compares them with stored ones in constant time.
 */
import { createHash, randomBytes, scrypt, timingSafeEqual } from "node:crypto";

/** `scrypt$N$r$p$salt$hash`, salt and hash in base64url. Needs some 60 ms on a pool thread, and 32 MiB. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const hash = await derive(password, { N: 32_768, r: 8, p: 1 }, salt, 32);
  return `${PREFIX}32768$8$1$${salt.toString("base64url")}$${hash.toString("base64url")}`;
}

/** Whether a stored password is a hash; the hash itself is not accepted as a password. */
export function isHashed(stored: string): boolean {
  return stored.startsWith(PREFIX);
}

/**
 * Whether `given` is the stored password, which is a hash of the form above or else plain text. A malformed hash
 * matches nothing.
 */
export async function verifyPassword(given: string, stored: string): Promise<boolean> {
  if (!isHashed(stored)) return sameText(given, stored);
  const parsed = parse(stored);
  if (typeof parsed === "string") return false;
  const { cost, salt, hash } = parsed;
  return timingSafeEqual(await derive(given, cost, salt, hash.length), hash);
}

/** Why `stored` cannot be used as a password; null if it can. Call at start, when a mistake can still be corrected. */
export function passwordProblem(stored: string): string | null {
  if (stored === "") return "the password is empty";
  if (!isHashed(stored)) return null;
  const parsed = parse(stored);
  return typeof parsed === "string" ? parsed : null;
}

/**
 * Compares two texts in a time that reveals nothing of the stored one: all digests have the same length. Texts that
 * differ only in Unicode composition are equal (RFC 8265 §4.2, NFC).
 */
export function sameText(given: string, stored: string): boolean {
  return timingSafeEqual(digest(given), digest(stored));
}

const PREFIX = "scrypt$";

/** The parameters of scrypt, named as in RFC 7914 §2. */
type Cost = Readonly<Record<"N" | "r" | "p", number>>;

/**
 * Returns the parts of the stored hash, or an error text. The parameters are limited: a hash from elsewhere must not
 * demand gigabytes or minutes.
 */
function parse(stored: string): { cost: Cost; salt: Buffer; hash: Buffer } | string {
  const fields = stored.split("$");
  if (fields.length !== 6) return "a scrypt hash has six fields, scrypt$N$r$p$salt$hash";
  const [N, r, p] = fields.slice(1, 4).map((field) => (/^[1-9]\d{0,6}$/.test(field) ? Number(field) : 0));
  const [salt, hash] = fields.slice(4).map((field) => Buffer.from(field, "base64url"));
  if (!N || !r || !p || !salt || !hash) return "N, r and p of a scrypt hash are whole numbers";
  if (N < 1024 || (N & (N - 1)) !== 0) return "N of a scrypt hash is a power of two, at least 1024";
  if (r < 8) return "r of a scrypt hash is at least 8";
  if (128 * N * r > 64 * MIB) return "a scrypt hash may take 64 MiB (128 * N * r)";
  if (128 * N * r * p > 256 * MIB) return "a scrypt hash may cost eight times the default (N * r * p)";
  if (salt.toString("base64url") !== fields[4] || hash.toString("base64url") !== fields[5])
    return "salt and hash are base64url";
  if (salt.length < 8 || salt.length > 64) return "the salt of a scrypt hash has 8 to 64 bytes";
  if (hash.length < 16 || hash.length > 64) return "a scrypt hash has 16 to 64 bytes";
  return { cost: { N, r, p }, salt, hash };
}

const MIB = 1024 * 1024;

function derive(password: string, { N, r, p }: Cost, salt: Buffer, length: number): Promise<Buffer> {
  // OpenSSL counts 128 * r * (N + p + 2) bytes against `maxmem`.
  const options = { N, r, p, maxmem: 128 * r * (N + p + 2) + MIB };
  return new Promise((resolve, reject) => {
    scrypt(password.normalize("NFC"), salt, length, options, (error, key) =>
      error === null ? resolve(key) : reject(error),
    );
  });
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text.normalize("NFC")).digest();
}
