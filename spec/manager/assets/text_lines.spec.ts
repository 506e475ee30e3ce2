import { describe, expect, it } from "vitest";
import { EditHistory, type Edit } from "../../../lib/manager/assets/edit_history.ts";
import { Lines } from "../../../lib/manager/assets/text_lines.ts";
import { random } from "../../support/random.ts";

describe("a text by its lines", () => {
  it("is after each edit what a string would be, with all its places", () => {
    const { next } = random(5);
    const pick = (below: number) => Math.floor(next() * below);
    let text = "one\n\ntwo 😀\nthree";
    const lines = new Lines(text);
    for (let i = 0; i < 500; i++) {
      const from = pick(text.length + 1);
      const to = Math.min(from + pick(4), text.length);
      const added = ["", "x", "\n", "a\nb", "\n\n\n"][pick(5)]!;
      lines.replace(from, to, added);
      text = text.slice(0, from) + added + text.slice(to);
      const at = pick(text.length + 1);
      const before = text.slice(0, at).split("\n");
      expect([lines.rowAt(at), lines.startOf(before.length - 1)]).toEqual([
        before.length - 1,
        at - before.at(-1)!.length,
      ]);
      expect(lines.slice(Math.min(from, at), at)).toBe(text.slice(Math.min(from, at), at));
      if (i % 7 === 0)
        expect([lines.text, lines.length, lines.count]).toEqual([text, text.length, text.split("\n").length]);
    }
  });

  it(
    "counts lines and columns from 1, characters and not halves of them, " + "and ends with the line and with the text",
    () => {
      const lines = new Lines("ab\n😀c");
      const places = [
        [1, 1],
        [2, 1],
        [2, 3],
        [9, 9],
        [1, 99],
      ] as const;
      expect(places.map(([line, column]) => lines.offsetOf(line, column))).toEqual([0, 3, 6, 6, 2]);
    },
  );
});

describe("what can be undone", () => {
  /** Applies edits to a text. */
  function typing(text: string) {
    const history = new EditHistory();
    const state = { text };
    const apply = ({ from, removed, added }: Edit) =>
      (state.text = state.text.slice(0, from) + added + state.text.slice(from + removed.length));
    const edit = (from: number, removed: string, added: string) => {
      const [before, after] = [from + removed.length, from + added.length].map((at) => ({ anchor: at, focus: at }));
      const made = { from, removed, added, before: before!, after: after! };
      history.add(made);
      apply(made);
    };
    const move = (by: "undo" | "redo") => {
      const made = history[by]();
      return made === null ? null : (apply(made), [state.text, made.after.focus]);
    };
    return { edit, move, history, state };
  }

  it(
    "is a word, or a run of deleted characters, at a time, " + "and comes back with redo until something else is typed",
    () => {
      const { edit, move } = typing("");
      [..."one two"].forEach((char, i) => edit(i, "", char));
      [..."owt"].forEach((char, i) => edit(6 - i, char, ""));
      expect([move("undo"), move("undo"), move("undo"), move("undo")]).toEqual([
        ["one two", 7],
        ["one ", 4],
        ["", 0],
        null,
      ]);
      expect([move("redo"), move("redo")]).toEqual([
        ["one ", 4],
        ["one two", 7],
      ]);
      edit(0, "", "x");
      expect([move("redo"), move("undo")]).toEqual([null, ["one two", 0]]);
    },
  );

  it("keeps the latest edit, however large, and of the others what has room", () => {
    const { edit, move, state } = typing("");
    edit(0, "", "small");
    edit(5, "", "x".repeat(33_000_000));
    expect([move("undo"), move("undo"), state.text]).toEqual([["small", 5], null, "small"]);
  });
});
