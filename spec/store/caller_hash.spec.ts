import { describe, expect, it } from "vitest";
import { countOf, halfSipHash, Name } from "../../lib/store/caller_hash.ts";

const SECRET = [0x03020100, 0x07060504] as const;

function read(name: string, secret: readonly [number, number] = SECRET) {
  const reader = new Name(secret);
  reader.read(name);
  return { ints: [...reader.ints.subarray(0, reader.count)], hash: reader.hash };
}

describe("a name", () => {
  it("hashes as HalfSipHash-1-3 says (vectors of Linux, lib/test_siphash.c)", () => {
    const vectors = [0x5814c896, 0xe7e864ca, 0xbc4b0e30, 0x01539939, 0x7e059ea6, 0x88e3d89b, 0xa0080b65, 0x9d38d9d6];
    vectors.forEach((vector, length) => {
      const bytes = String.fromCharCode(...Array.from({ length }, (_, i) => i));
      expect(read(bytes).hash >>> 0).toBe(vector);
    });
  });

  it("hashes otherwise with another secret", () => {
    const of = (secret: readonly [number, number]) => read("ip:192.0.2.1", secret).hash;
    expect(new Set([of([1, 2]), of([1, 3]), of([2, 2])]).size).toBe(3);
  });

  it("hashes by the numbers alone", () => {
    const { ints, hash } = read("c:José");
    expect(halfSipHash(Int32Array.from(ints), ints.length, SECRET)).toBe(hash);
  });

  it("has numbers of its own, and none that end like another's, whatever the length and the script", () => {
    const names: string[] = [];
    for (let length = 0; length <= 64; length++) {
      for (const piece of ["a", "\0", "é", "ж", "a\0", "ж\0"]) names.push(piece.repeat(64).slice(0, length));
    }
    const distinct = [...new Set(names)].map((name) => read(name).ints);
    for (const a of distinct) {
      for (const b of distinct) if (a !== b && a.length <= b.length) expect(b.slice(b.length - a.length)).not.toEqual(a);
    }
  });

  it("tells by its last number how many there are", () => {
    for (let length = 0; length <= 64; length++) {
      for (const piece of ["a", "ж"]) {
        const { ints } = read(piece.repeat(length));
        expect(countOf(ints.at(-1)!)).toBe(ints.length);
      }
    }
  });

  it("that is long is not that of another who differs in half a surrogate pair", () => {
    const long = "c:" + "x".repeat(100);
    expect(read(long + "\ud83d").ints).not.toEqual(read(long + "\ud83e").ints);
  });

  it("is replaced by a hash when it is long", () => {
    const [a, b] = ["x".repeat(100_000) + "1", "x".repeat(100_000) + "2"].map((name) => read(name).ints);
    expect(a!.length).toBeLessThan(20);
    expect(a).not.toEqual(b);
  });
});
