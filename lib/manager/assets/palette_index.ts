/**
 * Finds entries by words: those whose name begins with what is asked for first.
 */
export interface Entry {
  /** "Route" */
  readonly kind: string;
  readonly name: string;
  /** What tells those of one name apart: "shop /shop/items". */
  readonly more: string;
  readonly hash: string;
}

export class PaletteIndex {
  readonly #entries: readonly Entry[];
  /** Looked through for each key that is pressed, so made once. */
  readonly #texts: readonly string[];

  constructor(entries: readonly Entry[]) {
    this.#entries = entries;
    this.#texts = entries.map(({ kind, name, more }) => `${name}\n${more} ${kind}`.toLowerCase());
  }

  /** Those that have all words, `most` of them, and how many there are. One pass over all entries. */
  find(asked: string, most: number): { readonly found: readonly Entry[]; readonly total: number } {
    const words = asked
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word !== "");
    const [first = ""] = words;
    const ranks: [Entry[], Entry[], Entry[]] = [[], [], []];
    let total = 0;
    for (const [i, text] of this.#texts.entries()) {
      if (!words.every((word) => text.includes(word))) continue;
      total++;
      const at = text.indexOf(first);
      const rank = ranks[at === 0 ? 0 : at < text.indexOf("\n") ? 1 : 2];
      if (rank.length < most) rank.push(this.#entries[i]!);
    }
    return { found: ranks.flat().slice(0, most), total };
  }
}
