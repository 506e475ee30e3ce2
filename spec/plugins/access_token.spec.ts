import { describe, expect, it } from "vitest";
import { freezeClaims } from "../../lib/plugins/access_token.ts";

describe("claims of a token", () => {
  it("claims of a token are frozen however many they are and however deep, and each is counted", () => {
    const claims = { groups: Array.from({ length: 300_000 }, (_, i) => `g${i}`), address: { city: ["a"] } };
    const one = freezeClaims({});
    expect(freezeClaims(claims)).toBe(one * (1 + 2 + 300_000 + 1 + 1));
    for (const each of [claims, claims.groups, claims.address, claims.address.city])
      expect(Object.isFrozen(each)).toBe(true);
  });
});
