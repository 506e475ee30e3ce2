import { describe, expect, it } from "vitest";
import { createIds } from "../../lib/observe/ids.ts";

describe("createIds", () => {
  it("gives 32 and 16 hexadecimal digits, no two alike, over many draws", () => {
    const ids = createIds();
    const given = Array.from({ length: 2_000 }, (_none, i) => (i % 3 === 0 ? ids.trace() : ids.span()));
    expect(new Set(given).size).toBe(2_000);
    expect(given.every((id, i) => /^[0-9a-f]+$/.test(id) && id.length === (i % 3 === 0 ? 32 : 16))).toBe(true);
  });

  it("draws randomness in stock, and again only when that is used up", () => {
    let draws = 0;
    const ids = createIds((buffer) => buffer.fill(++draws));
    for (let i = 0; i < 128; i++) expect(ids.trace()).toBe("01".repeat(16));
    expect(ids.span()).toBe("02".repeat(8));
  });

  it("gives none that is all zeros", () => {
    let draws = 0;
    const ids = createIds((buffer) => buffer.fill(draws++ === 0 ? 0 : 0xab));
    expect(ids.span()).toBe("ab".repeat(8));
  });
});
