import { describe, expect, it } from "vitest";
import { CallerTable } from "../../lib/store/caller_table.ts";
import { random } from "../support/random.ts";

describe("a table of callers", () => {
  it("finds callers by name, forgets them, and keeps the order of their last admission, as a Map would", () => {
    for (let seed = 0; seed < 4; seed++) {
      const from = random(seed);
      const table = new CallerTable([seed, 2]);
      /** Slots by name, the oldest first. */
      const model = new Map<string, number>();
      const remove = (name: string) => {
        const slot = model.get(name)!;
        model.delete(name);
        const moved = table.remove(slot);
        for (const [other, at] of model) if (at === moved) model.set(other, slot);
      };
      const names = Array.from({ length: 300 }, (_, i) => from.pick(["ip:", "c:ж", "h:" + "x".repeat(i % 40)]) + i);
      for (let i = 0; i < 4_000; i++) {
        // A tide of callers, so that the table grows and shrinks.
        const name = names[from.int(0, i % 2_000 < 1_000 ? 299 : 20)]!;
        const found = table.find(name);
        if (found !== (model.get(name) ?? 0)) expect.fail(`${name} is found at ${found}`);
        if (found === 0) {
          model.set(name, table.add());
          table.setBlock(model.get(name)!, i);
          expect(table.block(model.get(name)!)).toBe(i);
        } else if (from.chance(0.5)) {
          table.touch(found);
          model.delete(name);
          model.set(name, found);
        }
        if (from.chance(i % 2_000 < 1_000 ? 0.05 : 0.6) && model.size > 0) remove(from.chance(0.8) ? [...model.keys()][0]! : from.pick([...model.keys()]));
        if (table.size !== model.size || table.oldest !== (model.values().next().value ?? 0)) expect.fail(`at step ${i}`);
        if (i % 50 === 0) expect(table.newest).toBe([...model.values()].at(-1) ?? 0);
      }
      expect([...model.values()].sort((a, b) => a - b)).toEqual(Array.from(model, (_, i) => i + 1));
      for (const name of [...model.keys()]) {
        expect(table.find(name)).toBe(model.get(name));
        expect(table.oldest).toBe(model.get(name));
        remove(name);
      }
      expect([table.oldest, table.newest, table.size]).toEqual([0, 0, 0]);
    }
  });

  it("keeps the block of a caller who moves to another slot", () => {
    const table = new CallerTable([1, 2]);
    for (const name of ["a", "b", "c"]) {
      table.find(name);
      const slot = table.add();
      table.setBlock(slot, 10 * slot);
    }
    expect(table.remove(1)).toBe(3);
    expect(table.find("c")).toBe(1);
    expect([table.block(1), table.block(2)]).toEqual([30, 20]);
  });
});
