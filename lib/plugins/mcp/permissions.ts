/**
 * What a caller may use of an MCP server, by the lists of the plugin's `config`.
 */
import { hasMethodLookalike, METHODS_OF, type Revision } from "./revisions.ts";
import { NamePatterns } from "./name_patterns.ts";
import type { TargetKind } from "./targets.ts";

export interface PermissionLists {
  readonly tools?: readonly string[] | undefined;
  readonly toolsByGroup?: Readonly<Record<string, readonly string[]>> | undefined;
  readonly prompts?: readonly string[] | undefined;
  readonly resources?: readonly string[] | undefined;
  readonly methods?: readonly string[] | undefined;
}

export class Permissions {
  /** Null: all are allowed. */
  readonly #lists: Readonly<Record<TargetKind, NamePatterns | null>>;
  readonly #methods: NamePatterns | null;
  readonly #ofGroups: ReadonlyMap<string, NamePatterns>;

  constructor({ tools, toolsByGroup = {}, prompts, resources, methods }: PermissionLists) {
    const patterns = (list: readonly string[] | undefined) => (list === undefined ? null : new NamePatterns(list));
    this.#lists = { tools: patterns(tools), prompts: patterns(prompts), resources: patterns(resources) };
    this.#methods = patterns(methods);
    this.#ofGroups = new Map(Object.entries(toolsByGroup).map(([group, list]) => [group, new NamePatterns(list)]));
  }

  /** Whether some of the kind may not be used by everybody. */
  limits(kind: TargetKind): boolean {
    return this.#lists[kind] !== null;
  }

  /** The pattern that allows it, "*" where no list limits the kind; null: it is not allowed. */
  allowing(kind: TargetKind, name: string, groups: readonly string[]): string | null {
    const list = this.#lists[kind];
    if (list === null) return "*";
    const found = list.find(name);
    if (found !== null || kind !== "tools") return found;
    for (const group of groups) {
      const ofGroup = this.#ofGroups.get(group)?.find(name) ?? null;
      if (ofGroup !== null) return ofGroup;
    }
    return null;
  }

  /**
   * By what the method is allowed: its own name, or the pattern for one that the revision does not have; null: it is
   * not allowed. Without `methods`, those of the revision are.
   */
  allowingMethod(method: string, revision: Revision): string | null {
    if (hasMethodLookalike(method)) return null;
    const isKnown = METHODS_OF[revision].has(method);
    if (this.#methods === null) return isKnown ? method : null;
    const pattern = this.#methods.find(method);
    return pattern !== null && isKnown ? method : pattern;
  }
}
