import { scryptSync } from "node:crypto";
import { describe, expect, it } from "vitest";
import { hashPassword, passwordProblem, sameText, verifyPassword } from "../../lib/base/password.ts";

const SALT = Buffer.alloc(16, 7);
const hashOf = (password: string, N = 1024, r = 8, p = 1) =>
  `scrypt$${N}$${r}$${p}$${SALT.toString("base64url")}$` +
  `${scryptSync(password, SALT, 32, { N, r, p, maxmem: 2 ** 28 }).toString("base64url")}`;

describe("a password", () => {
  it("a password matches only its own hash", async () => {
    const stored = await hashPassword("päss:wörd");
    expect(stored).toMatch(/^scrypt\$32768\$8\$1\$[\w-]{22}\$[\w-]{43}$/);
    expect(passwordProblem(stored)).toBeNull();
    expect(await verifyPassword("päss:wörd", stored)).toBe(true);
    expect(await verifyPassword("päss:word", stored)).toBe(false);
    expect(await verifyPassword("", stored)).toBe(false);
    expect(await verifyPassword(stored, stored)).toBe(false);
  });

  it("a password gets a new salt, and so a new hash, each time", async () => {
    expect(await hashPassword("x")).not.toBe(await hashPassword("x"));
  });

  it("a password matches hashes with other parameters from any scrypt", async () => {
    for (const stored of [hashOf("secret"), hashOf("secret", 2048, 16, 2)]) {
      expect(passwordProblem(stored)).toBeNull();
      expect(await verifyPassword("secret", stored)).toBe(true);
      expect(await verifyPassword("Secret", stored)).toBe(false);
    }
  });

  it("a password matches stored plain text, complete and case-sensitive", async () => {
    expect(await verifyPassword("secret", "secret")).toBe(true);
    for (const given of ["", "secre", "secrets", "SECRET", "secret\0"])
      expect(await verifyPassword(given, "secret")).toBe(false);
  });

  it("a password matches in every Unicode composition", async () => {
    expect(await verifyPassword("e\u0301", "\u00e9")).toBe(true);
    expect(await verifyPassword("e\u0301", hashOf("\u00e9"))).toBe(true);
    expect(sameText("u\u0308ser", "\u00fcser")).toBe(true);
    expect(sameText("user", "\u00fcser")).toBe(false);
  });
});

describe("passwordProblem", () => {
  it("accepts plain text, and refuses an empty password", () => {
    expect(passwordProblem("a")).toBeNull();
    expect(passwordProblem("$scrypt$")).toBeNull();
    expect(passwordProblem("")).toMatch(/empty/);
  });

  const salt = "AAAAAAAAAAAAAAAAAAAAAA";
  const hash = "A".repeat(43);
  it.each([
    ["a missing field", `scrypt$1024$8$1$${salt}`, /six fields/],
    ["a field too many", `scrypt$1024$8$1$${salt}$${hash}$`, /six fields/],
    ["N that is no number", `scrypt$x$8$1$${salt}$${hash}`, /whole numbers/],
    ["N in another notation", `scrypt$0x400$8$1$${salt}$${hash}`, /whole numbers/],
    ["a negative p", `scrypt$1024$8$-1$${salt}$${hash}`, /whole numbers/],
    ["N that is no power of two", `scrypt$1025$8$1$${salt}$${hash}`, /power of two/],
    ["N that is too small", `scrypt$512$8$1$${salt}$${hash}`, /power of two/],
    ["r that is too small", `scrypt$1024$1$1$${salt}$${hash}`, /r of/],
    ["N that takes gigabytes", `scrypt$1048576$8$1$${salt}$${hash}`, /64 MiB/],
    ["r that takes gigabytes", `scrypt$1024$999999$1$${salt}$${hash}`, /64 MiB/],
    ["p that takes minutes", `scrypt$32768$8$999999$${salt}$${hash}`, /cost/],
    ["a salt that is not base64url", `scrypt$1024$8$1$${salt.slice(1)}+$${hash}`, /base64url/],
    ["a hash with padding", `scrypt$1024$8$1$${salt}$${hash}=`, /base64url/],
    ["a short salt", `scrypt$1024$8$1$AAAA$${hash}`, /8 to 64/],
    ["a short hash", `scrypt$1024$8$1$${salt}$AAAA`, /16 to 64/],
    ["an endless hash", `scrypt$1024$8$1$${salt}$${"A".repeat(4000)}`, /16 to 64/],
  ])("names %s, and such a hash matches nothing", async (_, stored, problem) => {
    expect(passwordProblem(stored)).toMatch(problem);
    expect(await verifyPassword(stored, stored)).toBe(false);
  });
});
