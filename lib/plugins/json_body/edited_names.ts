/**
 * Finds members of a body that only some readers take for those which edits name: `{"Model": "large"}` where `/model`
 * is set. A server that ignores case would read the client's value in place of the edited one.
 */
import { foldedName } from "../../json_schema/folded_name.ts";
import { INDEX, isWithin, pointerText, type Edit, type Pointer } from "./json_edits.ts";

/** The names that edits have at one place of a body. */
interface Level {
  readonly below: Map<string, Level>;
  readonly folded: Set<string>;
  /** The longest name, in characters. */
  longest: number;
}

export class EditedNames {
  readonly #root = newLevel();

  /** `edits` in their order: what an edit names below the new place of a rename is looked for at the old one, too. */
  constructor(edits: readonly Edit[]) {
    edits.forEach((edit, i) => {
      this.#add(edit.at);
      if (edit.change === "rename") this.#add(edit.to);
      let at = edit.at;
      for (const earlier of edits.slice(0, i).reverse()) {
        if (earlier.change !== "rename" || !isWithin(at, earlier.to)) continue;
        at = [...earlier.at, ...at.slice(earlier.to.length)];
        this.#add(at);
      }
    });
  }

  #add(at: Pointer): void {
    let level = this.#root;
    for (const step of at) {
      let below = level.below.get(step);
      if (below === undefined) level.below.set(step, (below = newLevel()));
      level.folded.add(foldedName(step));
      level.longest = Math.max(level.longest, step.length);
      level = below;
    }
  }

  /** The place of such a member in a parsed body, as a JSON Pointer; null: there is none. */
  lookalikeIn(body: unknown): string | null {
    const at = lookalike(body, this.#root);
    return at === null ? null : pointerText(at);
  }
}

function newLevel(): Level {
  return { below: new Map(), folded: new Set(), longest: 0 };
}

function lookalike(value: unknown, { below, folded, longest }: Level): Pointer | null {
  if (below.size === 0 || typeof value !== "object" || value === null) return null;
  if (!Array.isArray(value))
    for (const name of Object.keys(value))
      if (name.length <= longest && !below.has(name) && folded.has(foldedName(name))) return [name];
  for (const [step, level] of below) {
    const isThere = Array.isArray(value) ? INDEX.test(step) : Object.hasOwn(value, step);
    const found = isThere ? lookalike((value as Readonly<Record<string, unknown>>)[step], level) : null;
    if (found !== null) return [step, ...found];
  }
  return null;
}
