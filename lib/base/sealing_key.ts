/**
 * Encrypts values for a store that others can read and write, with a key that only those programs have which may read
 * them: AES-256-GCM (NIST SP 800-38D).
 *
 * ```
 * 1 byte   version: 1
 * 12       nonce, random
 * n        the value, encrypted
 * 16       tag
 * ```
 */
import { createCipheriv, createDecipheriv, createSecretKey, randomBytes, type KeyObject } from "node:crypto";

/** Random nonces of 96 bits are good for 2^32 values of one key (NIST SP 800-38D §8.3). */
export class SealingKey {
  readonly #key: KeyObject;

  /** `bytes`: 32. */
  constructor(bytes: Buffer) {
    this.#key = createSecretKey(bytes);
  }

  /** `name` is where the value is kept: it can be opened under this name alone, so that values cannot be exchanged. */
  seal(value: Buffer, name: string): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, this.#key, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(Buffer.from(name));
    return Buffer.concat([VERSION, nonce, cipher.update(value), cipher.final(), cipher.getAuthTag()]);
  }

  /** Null: it was sealed with another key or under another name, or is damaged. */
  open(sealed: Buffer, name: string): Buffer | null {
    const begin = VERSION.length + NONCE_BYTES;
    const end = sealed.length - TAG_BYTES;
    if (end < begin || !sealed.subarray(0, VERSION.length).equals(VERSION)) return null;
    const nonce = sealed.subarray(VERSION.length, begin);
    const decipher = createDecipheriv(ALGORITHM, this.#key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(name));
    decipher.setAuthTag(sealed.subarray(end));
    try {
      return Buffer.concat([decipher.update(sealed.subarray(begin, end)), decipher.final()]);
    } catch {
      return null;
    }
  }
}

const ALGORITHM = "aes-256-gcm";
const VERSION = Buffer.from([1]);
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
