import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { SealingKey } from "../../lib/base/sealing_key.ts";

const BYTES = Buffer.from("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "hex");
const key = new SealingKey(BYTES);

describe("a sealed value", () => {
  it.each([[""], ["a value"], ["x".repeat(100_000)]])(
    "is opened by the key and the name that it was sealed with",
    (text) => {
      const sealed = key.seal(Buffer.from(text), "gw/acme/a");
      expect(String(key.open(sealed, "gw/acme/a"))).toBe(text);
      expect(sealed.length).toBe(text.length + 29);
      expect(sealed[0]).toBe(1);
    },
  );

  it("is another one each time", () => {
    expect(key.seal(Buffer.from("a"), "n").equals(key.seal(Buffer.from("a"), "n"))).toBe(false);
  });

  it("is not opened under another name or with another key", () => {
    const sealed = key.seal(Buffer.from("a value"), "gw/acme/a");
    expect(key.open(sealed, "gw/acme/b")).toBeNull();
    expect(new SealingKey(randomBytes(32)).open(sealed, "gw/acme/a")).toBeNull();
  });

  it("is not opened once a byte of it is another one, or where it is cut", () => {
    const sealed = key.seal(Buffer.from("a value"), "n");
    for (let at = 0; at < sealed.length; at++) {
      const other = Buffer.from(sealed);
      other[at]! ^= 1;
      expect([at, key.open(other, "n")]).toEqual([at, null]);
      expect([at, key.open(sealed.subarray(0, at), "n")]).toEqual([at, null]);
    }
  });

  it("is that of AES-256-GCM with the name as additional data", () => {
    // Python's cryptography: AESGCM(bytes(range(32))).encrypt(bytes(12), b"value", b"name").
    const sealed = Buffer.concat([
      Buffer.from([1]),
      Buffer.alloc(12),
      Buffer.from("78ddd9abd0186c9188ab119027ab9f9ca0e6fb97fa", "hex"),
    ]);
    expect(String(key.open(sealed, "name"))).toBe("value");
  });
});
