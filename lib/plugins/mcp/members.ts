/**
 * Objects of JSON whose members every reader finds under the same names.
 */
import type { JsonNode } from "../../config/json.ts";
import { foldedName } from "../../json_schema/folded_name.ts";

export type Members = ReadonlyMap<string, JsonNode>;

export const NO_MEMBERS: Members = new Map();

/** The names that a message may have, and those that readers which ignore case take for them. */
export class MemberNames {
  readonly #known: ReadonlySet<string>;
  readonly #folded: ReadonlySet<string>;

  constructor(names: readonly string[]) {
    this.#known = new Set(names);
    this.#folded = new Set(names.map(foldedName));
  }

  /** A member that only some readers take for a known one; null: there is none. */
  lookalikeIn(members: Members): string | null {
    for (const name of members.keys()) if (!this.#known.has(name) && this.#folded.has(foldedName(name))) return name;
    return null;
  }
}

/** The members of an object; null: it is another value, or there is none. */
export function membersOf(node: JsonNode | undefined): Members | null {
  return node?.kind === "object" ? node.members : null;
}

/** The value of a string; null: it is another value, or there is none. */
export function stringOf(node: JsonNode | undefined): string | null {
  return node?.kind === "string" ? node.value : null;
}
