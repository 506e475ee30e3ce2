/**
 * Objects of JSON whose members every reader finds under the same names.
 */
import type { JsonNode } from "../../config/json.ts";
import { foldedName } from "../../json_schema/folded_name.ts";

export type Members = ReadonlyMap<string, JsonNode>;

export const NO_MEMBERS: Members = new Map();

/**
 * The names that a message may have, and those that some readers take for them: many ignore case, and those in Python
 * also find `resourceSubscriptions` as `resource_subscriptions`, and `_meta` as `meta`.
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
    for (const name of members.keys()) if (this.hasLookalike(name)) return name;
    return null;
  }

  /** Whether only some readers take the name for a known one. */
  hasLookalike(name: string): boolean {
    return !this.#known.has(name) && this.#folded.has(folded(name));
  }
}

/** Without case, "_" and "-". */
function folded(name: string): string {
  return foldedName(name).replaceAll(/[_-]/g, "");
}

/** The members of an object; null: it is another value, or there is none. */
export function membersOf(node: JsonNode | undefined): Members | null {
  return node?.kind === "object" ? node.members : null;
}

/** The value of a string; null: it is another value, or there is none. */
export function stringOf(node: JsonNode | undefined): string | null {
  return node?.kind === "string" ? node.value : null;
}
