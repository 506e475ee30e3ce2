import { describe, expect, it } from "vitest";
import { Blocks, within } from "../../lib/store/blocks.ts";
import { Name } from "../../lib/store/caller_hash.ts";
import { Places } from "../../lib/store/caller_index.ts";
import { random } from "../support/random.ts";

/** In numbers of four bytes. */
const PLACE_AT = 2;

function placesOf(hashOf?: (name: string) => number) {
  const blocks = new Blocks<string>();
  const places = new Places(blocks, PLACE_AT);
  const reader = new Name([1, 2]);
  const read = (name: string) => {
    reader.read(name);
    if (hashOf !== undefined) reader.hash = hashOf(name);
    return reader;
  };
  const block = (name: string, size: number) => {
    const { ints, count } = read(name);
    const taken = blocks.take("caller", size);
    const page = blocks.page(taken);
    page.ints.set(ints.subarray(0, count), 2 * (within(taken) + page.size) - count);
    return taken;
  };
  return { blocks, places, read, block };
}

describe.each([
  ["with hashes of their own", undefined],
  ["with three hashes for all of them", (name: string) => name.length % 3],
  ["with hashes that meet at the end of the table", (name: string) => -1 - (name.length % 2)],
])("callers %s", (_, hashOf) => {
  it("are found by name, forgotten, and kept in the order of their last admission, as a Map would", () => {
    for (let seed = 0; seed < 2; seed++) {
      const from = random(seed);
      const { blocks, places, read, block } = placesOf(hashOf);
      const model = new Map<string, number>();
      const give = (block: number) =>
        blocks.give(block, (from, to) => {
          places.replace(from, to);
          for (const [name, at] of model) if (at === from) model.set(name, to);
        });
      const names = Array.from({ length: 300 }, (_, i) => from.pick(["ip:", "c:ж", "h:" + "x".repeat(i % 40)]) + i);
      for (let i = 0; i < 4_000; i++) {
        // A tide of callers, so that the table grows and shrinks.
        const name = names[from.int(0, i % 2_000 < 1_000 ? 299 : 20)]!;
        const found = places.find(read(name));
        if (found !== (model.get(name) ?? 0)) expect.fail(`${name} is found at ${found}`);
        if (found === 0) {
          const taken = block(name, 30);
          places.add(read(name), taken);
          model.set(name, taken);
        } else if (from.chance(0.5)) {
          places.touch(found);
          model.delete(name);
          model.set(name, found);
        } else if (from.chance(0.3)) {
          const by = block(name, from.pick([30, 40]));
          places.replace(found, by);
          model.set(name, by);
          give(found);
        }
        if (from.chance(i % 2_000 < 1_000 ? 0.05 : 0.6) && model.size > 0) {
          const [[oldest, at]] = model as unknown as [[string, number]];
          const [gone, whose] = from.chance(0.8) ? [oldest, at] : from.pick([...model]);
          places.remove(whose);
          model.delete(gone);
          give(whose);
        }
        if (places.callers !== model.size || places.first !== (model.values().next().value ?? 0)) expect.fail(`at step ${i}`);
        if (i % 50 === 0) expect(places.last).toBe([...model.values()].at(-1) ?? 0);
      }
      for (const [name, at] of model) expect(places.find(read(name))).toBe(at);
      for (const at of model.values()) {
        expect(places.first).toBe(at);
        places.remove(at);
      }
      expect([places.first, places.last, places.callers]).toEqual([0, 0, 0]);
    }
  });
});
