/**
 * What can be undone and redone. The field's own history ends with its window of the text.
 */

/** Offsets; the caret, or the end that moves with the keys, is at `focus`. */
export interface Selection {
  readonly anchor: number;
  readonly focus: number;
}

export interface Edit {
  readonly from: number;
  readonly removed: string;
  readonly added: string;
  /** What was selected before it, and is after it. */
  readonly before: Selection;
  readonly after: Selection;
}

/** Characters that are kept, at most, but for the latest edit. */
const MAX_KEPT = 32_000_000;

export class EditHistory {
  #done: Edit[] = [];
  #undone: Edit[] = [];

  clear(): void {
    [this.#done, this.#undone] = [[], []];
  }

  /** What is typed, or deleted, key by key, is one edit up to the end of a word. */
  add(edit: Edit): void {
    this.#undone = [];
    const last = this.#done.at(-1);
    const one = last === undefined ? null : joined(last, edit);
    if (one !== null) this.#done.pop();
    this.#done.push(one ?? edit);
    let kept = 0;
    const first = this.#done.findLastIndex(({ removed, added }) => (kept += removed.length + added.length) > MAX_KEPT);
    this.#done.splice(0, Math.min(first + 1, this.#done.length - 1));
  }

  /** Returns the edit that takes the last one back; null: there is none. */
  undo(): Edit | null {
    return this.#move(this.#done, this.#undone);
  }

  redo(): Edit | null {
    return this.#move(this.#undone, this.#done);
  }

  #move(from: Edit[], to: Edit[]): Edit | null {
    const edit = from.pop();
    if (edit === undefined) return null;
    const back = { from: edit.from, removed: edit.added, added: edit.removed, before: edit.after, after: edit.before };
    to.push(back);
    return back;
  }
}

function joined(last: Edit, edit: Edit): Edit | null {
  if (last.after.focus !== edit.before.focus || edit.added.length + edit.removed.length !== 1) return null;
  if (last.removed === "" && edit.added !== "" && last.from + last.added.length === edit.from && /\S$/.test(last.added))
    return { ...last, added: last.added + edit.added, after: edit.after };
  if (last.added === "" && edit.removed !== "" && edit.from + 1 === last.from)
    return { ...last, from: edit.from, removed: edit.removed + last.removed, after: edit.after };
  return null;
}
