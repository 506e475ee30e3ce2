/**
 * Takes out of the lists of an MCP server what a caller may not use.
 */
import type { JsonNode } from "../../config/json.ts";
import { membersOf, MemberNames, stringOf, type Members } from "./members.ts";
import { TOP } from "./message.ts";
import { withJson } from "./strict_json.ts";
import type { TargetKind } from "./targets.ts";

/** Whether a caller may use it. */
export type MayUse = (kind: TargetKind, name: string) => boolean;

export interface ListFilter {
  /** Null: the kind is not limited, and its lists stay as they are. */
  readonly limited: ReadonlySet<TargetKind>;
  readonly mayUse: MayUse;
  /** Whether results say who may share them, as they do since 2026-07-28. */
  readonly hasCacheScope: boolean;
}

/** The lists of results: what they have, and by which member of an item it is named. */
const LISTS: Readonly<Record<string, { readonly kind: TargetKind; readonly by: string }>> = {
  tools: { kind: "tools", by: "name" },
  prompts: { kind: "prompts", by: "name" },
  resources: { kind: "resources", by: "uri" },
  // A template is allowed by its own text: `docs://public/{id}` by `docs://public/*`.
  resourceTemplates: { kind: "resources", by: "uriTemplate" },
};

/** As every writer of JSON writes them: none escapes these letters. */
const WRITTEN = Object.keys(LISTS).map((name) => `"${name}"`);

/** Whether a text of a server may have a list. */
export function mayHaveList(bytes: Buffer): boolean {
  return WRITTEN.some((name) => bytes.includes(name));
}

const RESULT = new MemberNames([...Object.keys(LISTS), "cacheScope"]);
const ITEM = new MemberNames(["name", "uri", "uriTemplate"]);

/**
 * The text of one message of JSON-RPC as the caller may have it: the same one where it has no list that is limited.
 * Null: the text cannot be read, or readers may understand it differently.
 */
export function filteredText(bytes: Buffer, filter: ListFilter): Promise<Buffer | null> {
  return withJson(bytes, (node) => (typeof node === "string" ? null : filteredNode(node, bytes, filter)));
}

function filteredNode(node: JsonNode, bytes: Buffer, filter: ListFilter): Buffer | null {
  const top = membersOf(node);
  if (top === null || TOP.lookalikeIn(top) !== null) return null;
  if (!top.has("result")) return bytes;
  const result = membersOf(top.get("result"));
  if (result === null || RESULT.lookalikeIn(result) !== null) return null;
  const lists = Object.keys(LISTS).filter((name) => result.has(name) && filter.limited.has(LISTS[name]!.kind));
  if (lists.length === 0) return bytes;
  const filtered = new Map(result);
  for (const name of lists) {
    const list = result.get(name)!;
    if (list.kind !== "array") return null;
    filtered.set(name, { ...list, items: list.items.filter((item) => isShown(item, name, filter)) });
  }
  // What one caller may see is for nobody else (2026-07-28, "Caching").
  if (filter.hasCacheScope || filtered.has("cacheScope")) filtered.set("cacheScope", PRIVATE);
  const whole = new Map(top).set("result", { kind: "object", offset: -1, keyOffset: -1, members: filtered });
  return Buffer.from(jsonText({ kind: "object", offset: -1, keyOffset: -1, members: whole }));
}

const PRIVATE: JsonNode = { kind: "string", offset: -1, keyOffset: -1, value: "private" };

function isShown(item: JsonNode, list: string, { mayUse }: ListFilter): boolean {
  const { kind, by } = LISTS[list]!;
  const members: Members | null = membersOf(item);
  const name = members === null || ITEM.lookalikeIn(members) !== null ? null : stringOf(members.get(by));
  return name !== null && mayUse(kind, name);
}

/** The value as JSON: numbers keep their digits, members their order. */
function jsonText(node: JsonNode): string {
  switch (node.kind) {
    case "object":
      return `{${Array.from(node.members, ([name, value]) => `${JSON.stringify(name)}:${jsonText(value)}`).join()}}`;
    case "array":
      return `[${node.items.map(jsonText).join()}]`;
    case "number":
      return node.text;
    case "string":
    case "boolean":
      return JSON.stringify(node.value);
    default:
      return "null";
  }
}
