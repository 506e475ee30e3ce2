import { describe, expect, it } from "vitest";
import { PaletteIndex, type Entry } from "../../../lib/manager/assets/palette_index.ts";

const entry = (name: string, more = "", kind = "Route"): Entry => ({ kind, name, more, hash: `#/${name}` });

function namesOf(entries: readonly Entry[], asked: string, most = 10) {
  const { found, total } = new PaletteIndex(entries).find(asked, most);
  return [found.map(({ name, more }) => `${name} ${more}`.trim()), total];
}

describe("the index of the palette", () => {
  const entries = [
    entry("items", "shop /shop/items"),
    entry("list", "shop /shop/list"),
    entry("shop", "/shop", "Service"),
    entry("workshop", "/work", "Service"),
  ];

  it(
    "the index of the palette has names that begin with what is asked for first, " +
      "then those that have it, then the rest",
    () =>
      expect(namesOf(entries, "SHOP")).toEqual([
        ["shop /shop", "workshop /work", "items shop /shop/items", "list shop /shop/list"],
        4,
      ]),
  );

  it("the index of the palette finds what has all words, in name, place and kind, in any order", () => {
    expect(namesOf(entries, "route  list")).toEqual([["list shop /shop/list"], 1]);
    expect(namesOf(entries, "list nowhere")).toEqual([[], 0]);
  });

  it("the index of the palette has everything for nothing, and counts what it leaves out", () => {
    const many = Array.from({ length: 10_000 }, (_, i) => entry(`r${i}`));
    const { found, total } = new PaletteIndex(many).find("", 50);
    expect([found.length, total]).toEqual([50, 10_000]);
    expect(namesOf(many, "r999", 3)).toEqual([["r999", "r9990", "r9991"], 11]);
  });

  it(
    "the index of the palette reads each of 10,000 entries once when it is made, " +
      "and none of its members for a key",
    () => {
      let reads = 0;
      const counting = Array.from({ length: 10_000 }, (_, i) => ({
        ...{ kind: "Route", more: "", hash: "#/" },
        get name() {
          reads++;
          return `r${i}`;
        },
      }));
      const index = new PaletteIndex(counting);
      expect(reads).toBe(10_000);
      for (const asked of ["r", "r9", "r99", "nothing"]) index.find(asked, 50);
      expect(reads).toBe(10_000);
    },
  );
});
