import { describe, expect, it } from "vitest";
import { hashName } from "../../lib/store/memory.ts";

const SECRET = [0x03020100, 0x07060504] as const;

function hashOf(name: string, secret: readonly [number, number] = SECRET): readonly [number, number] {
  const result = new Int32Array(2);
  hashName(name, secret, result);
  return [result[0]! >>> 0, result[1]! >>> 0];
}

describe("the hash of a name", () => {
  it("the hash of a name equals HalfSipHash-1-3 of 32 bits (vectors of Linux, lib/test_siphash.c)", () => {
    // By number of bytes; a character has two.
    const vectors = new Map([
      [0, 0x5814c896],
      [2, 0xbc4b0e30],
      [4, 0x7e059ea6],
      [6, 0xa0080b65],
    ]);
    for (const [bytes, vector] of vectors) {
      const message = Buffer.from(Array.from({ length: bytes }, (_, i) => i)).toString("utf16le");
      expect(hashOf(message)[0]).toBe(vector);
    }
  });

  it("the hash of a name differs with another secret", () => {
    const hashes = (
      [
        [1, 2],
        [1, 3],
        [2, 2],
      ] as const
    ).map((secret) => hashOf("ip:192.0.2.1", secret).join());
    expect(new Set(hashes).size).toBe(3);
  });

  it("the hash of a name differs in both halves for names of any length and script", () => {
    const names = new Set<string>();
    for (let length = 0; length <= 80; length++) {
      for (const piece of ["a", "\0", "é", "ж", "a\0", "ж\0"]) names.add(piece.repeat(80).slice(0, length));
    }
    for (const half of [0, 1] as const)
      expect(new Set([...names].map((name) => hashOf(name)[half])).size).toBe(names.size);
  });

  it.each([0, 100])("the hash of a name distinguishes halves of surrogate pairs behind %i characters", (length) => {
    const before = "c:" + "x".repeat(length);
    expect(hashOf(before + "\ud83d")).not.toEqual(hashOf(before + "\ud83e"));
  });

  it("the hash of a name covers every character of a long name", () => {
    const long = "x".repeat(100_000);
    expect(hashOf(long + "1")).not.toEqual(hashOf(long + "2"));
    expect(hashOf("1" + long)).not.toEqual(hashOf("2" + long));
  });
});
