/**
 * Objects of JSON whose members every reader finds under the same names.
 */
import type { JsonNode } from "../../config/json.ts";

export type Members = ReadonlyMap<string, JsonNode>;

export const NO_MEMBERS: Members = new Map();

/**
 * The names that a message may have, and those that some readers take for them: Go's `encoding/json` finds a member
 * whatever its case, also by "ſ" for "s" and the Kelvin sign for "k", and takes the last one.
 */
export class MemberNames {
  readonly #known: ReadonlySet<string>;
  readonly #folded: ReadonlySet<string>;

  constructor(names: readonly string[]) {
    this.#known = new Set(names);
    this.#folded = new Set(names.map(folded));
  }

  /** A member that only some readers take for a known one; null: there is none. */
  lookalikeIn(members: Members): string | null {
    for (const name of members.keys()) if (!this.#known.has(name) && this.#folded.has(folded(name))) return name;
    return null;
  }
}

/** Without case, by Unicode's simple and full case folding; "İ" counts as "i", as in Java. */
function folded(name: string): string {
  return name.toUpperCase().toLowerCase().replaceAll("\u0307", "");
}

/** The members of an object; null: it is another value, or there is none. */
export function membersOf(node: JsonNode | undefined): Members | null {
  return node?.kind === "object" ? node.members : null;
}

/** The value of a string; null: it is another value, or there is none. */
export function stringOf(node: JsonNode | undefined): string | null {
  return node?.kind === "string" ? node.value : null;
}
