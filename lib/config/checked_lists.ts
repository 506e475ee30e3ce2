/**
 * Checks the lists of a configuration item by item, so that others can run in between, and takes services over that
 * are as they were in the configuration before.
 */
import type { Issue, Json, JsonNode, Path } from "./json.ts";
import type { PluginKind, Service } from "./model.ts";
import type { FeatureFields } from "./feature_fields.ts";
import type { AnySchema, CheckContext, NamedFile, NodeOf, Secret, Sources } from "./schema_types.ts";
import { digestSteps, endSteps } from "./value_text.ts";

/** Shorter ones are checked with what they are in: in less than a slice. */
const SHORT = 50;

/** Adds the lists in `node`, and in the items of these lists, to `lists`. A step for each item. */
export function* checkLists(
  schema: AnySchema,
  node: JsonNode,
  at: Path,
  context: CheckContext & Pick<Required<CheckContext>, "lists">,
): Generator<void, void> {
  if (node.kind !== "object" || schema.fields === undefined) return;
  for (const [key, member] of node.members) {
    const item = schema.fields.get(key)?.item;
    if (!isLongList(member) || item?.fields === undefined || context.lists.has(member)) continue;
    const list = newList();
    const within = { ...context, ...list };
    for (const [i, child] of member.items.entries()) {
      const place = [...at, key, i];
      if (hasLongList(child)) yield* checkLists(item, child, place, within);
      list.values.push(item.check(child, place, within));
      list.shown.push(item.show(child, context.lists));
      yield;
    }
    context.lists.set(member, list);
  }
}

function isLongList(node: JsonNode): node is NodeOf<"array"> {
  return node.kind === "array" && node.items.length > SHORT;
}

function hasLongList(node: JsonNode): boolean {
  if (node.kind === "object") for (const member of node.members.values()) if (isLongList(member)) return true;
  return false;
}

function newList() {
  return {
    values: [] as unknown[],
    shown: [] as Json[],
    issues: [] as Issue[],
    secrets: [] as Secret[],
    files: new Map<string, NamedFile>(),
  };
}

/** A service without errors, and all that its value comes of. */
interface CheckedService {
  readonly value: unknown;
  readonly shown: Json;
  readonly index: number;
  readonly secrets: readonly Secret[];
  readonly files: ReadonlyMap<string, NamedFile>;
  /** Files with values of references, and those that it names. */
  readonly read: ReadonlyMap<string, Buffer | string>;
  readonly resolved: ReadonlyMap<string, string>;
  readonly formed: ReadonlyMap<string, string>;
}

/** What the value of a service depends on besides its own text and files. */
interface Surroundings {
  /** The digest of the text of `global`: conditions of routes look at it. */
  readonly global: string;
  readonly folder: string;
  readonly environment: Sources["environment"];
  readonly kinds: readonly PluginKind[];
  readonly features: readonly FeatureFields[];
  readonly references: Sources["references"];
}

/** The services of a configuration without errors, by the digests of their texts, and what is around them. */
export interface CheckedServices extends Surroundings {
  readonly services: ReadonlyMap<string, CheckedService>;
  /** The digest of the text of all else but tests. */
  readonly rest: string;
  /** The files that the rest is read with; complete once it has been checked. */
  readonly read: Map<string, Buffer | string>;
}

interface ServiceOptions {
  readonly schema: AnySchema;
  /** Of the document, and its members. */
  readonly text: string;
  readonly members: ReadonlyMap<string, JsonNode>;
  readonly kinds: readonly PluginKind[];
  readonly features: readonly FeatureFields[];
  /** Null: there is none. */
  readonly before: CheckedServices | null;
  /** Gets the services that are taken over. */
  readonly kept: Map<JsonNode, Service>;
}

/**
 * Checks the services, a step for each, and adds their list to `lists`. A service whose text, files and surroundings
 * are those of before has the same value, which is the same object.
 */
export function* checkServices(
  context: CheckContext & Pick<Required<CheckContext>, "lists">,
  { schema, text, members, kinds, features, before, kept }: ServiceOptions,
): Generator<void, CheckedServices> {
  const { sources, lists } = context;
  const { folder, environment, references } = sources;
  const digests = new Map<string, string>();
  // With the closing brackets: where a text is not parsed they are all that tells whether they are the right ones.
  const digestOf = function* (offset: number): Generator<void, string> {
    return yield* digestSteps(text, offset, yield* endSteps(text, offset));
  };
  for (const [key, { offset }] of members) if (!APART.has(key)) digests.set(key, yield* digestOf(offset));
  const surroundings = { global: digests.get("global") ?? "", folder, environment, kinds, features, references };
  const former = before !== null && areSame(before, surroundings) ? before.services : NONE;
  const services = new Map<string, CheckedService>();
  const list = newList();
  const node = members.get("services");
  const items = node?.kind === "array" ? node.items : [];
  for (const [index, item] of items.entries()) {
    yield;
    const unread = item.kind === "object" ? item.known : undefined;
    const digest = unread?.digest ?? (yield* digestOf(item.offset));
    const same = former.get(digest);
    const service = same !== undefined && hasSameFiles(same.read, sources) ? movedTo(index, same) : null;
    if (service === null) yield* unread?.readSteps() ?? [];
    const checked = service ?? (yield* checkService(schema, item, index, context, list.issues));
    // One that is there twice is in conflict with itself.
    if (service !== null && !services.has(digest)) kept.set(item, service.value as Service);
    services.set(digest, checked);
    list.values.push(checked.value);
    list.shown.push(checked.shown);
    list.secrets.push(...checked.secrets);
    for (const [path, file] of checked.files) list.files.set(path, file);
    for (const [value, reference] of checked.resolved) sources.resolved?.set(value, reference);
    for (const [reference, value] of checked.formed) sources.formed?.set(reference, value);
  }
  if (node !== undefined) lists.set(node, list);
  return { ...surroundings, services, rest: JSON.stringify([...digests]), read: new Map() };
}

/** The members of a document that are looked at one by one, or change nothing that the gateway does. */
const APART: ReadonlySet<string> = new Set(["services", "tests", "test_files", "$schema"]);

/** Whether everything around the services is as it was. `sources`: those of `now`. */
export function isRestSame(before: CheckedServices, now: CheckedServices, sources: Sources): boolean {
  return before.rest === now.rest && areSame(before, now) && hasSameFiles(before.read, sources);
}

function* checkService(
  schema: AnySchema,
  node: JsonNode,
  index: number,
  context: CheckContext & Pick<Required<CheckContext>, "lists">,
  issues: Issue[],
): Generator<void, CheckedService> {
  const at = ["services", index];
  const read = new Map<string, Buffer | string>();
  const noted = { resolved: new Map<string, string>(), formed: new Map<string, string>() };
  const readFile = (path: string) => {
    const content = context.sources.readFile(path);
    read.set(path, content);
    return content;
  };
  const [secrets, files] = [[] as Secret[], new Map<string, NamedFile>()];
  const within = { ...context, sources: { ...context.sources, ...noted, readFile }, issues, secrets, files };
  yield* checkLists(schema, node, at, within);
  const value: unknown = schema.check(node, at, within);
  return { value, shown: schema.show(node, context.lists), index, secrets, files, read, ...noted };
}

function areSame(a: Surroundings, b: Surroundings): boolean {
  return (
    a.global === b.global &&
    a.folder === b.folder &&
    a.references === b.references &&
    haveSame(a.kinds, b.kinds) &&
    haveSame(a.features, b.features) &&
    haveSame(Object.entries(a.environment).flat(), Object.entries(b.environment).flat())
  );
}

function haveSame(some: readonly unknown[], others: readonly unknown[]): boolean {
  return some.length === others.length && some.every((each, i) => each === others[i]);
}

function hasSameFiles(read: CheckedService["read"], { readFile }: Sources): boolean {
  try {
    return [...read].every(([path, content]) => Buffer.from(readFile(path)).equals(Buffer.from(content)));
  } catch {
    return false; // the check says why
  }
}

function movedTo(index: number, service: CheckedService): CheckedService {
  if (index === service.index) return service;
  const secrets = service.secrets.map(({ at, ...secret }) => ({ ...secret, at: at.with(1, index) }));
  return { ...service, index, secrets };
}

const NONE: ReadonlyMap<string, CheckedService> = new Map();
