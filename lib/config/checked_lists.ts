/**
 * Checks the lists of a configuration item by item, so that others can run in between, and takes services over that
 * are as they were in the configuration before.
 */
import type { Known } from "./config_document.ts";
import type { Issue, Json, JsonNode, Path } from "./json.ts";
import type { PluginKind, Service } from "./model.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { INVALID } from "./schema_core.ts";
import type { AnySchema, CheckContext, CheckedList, NamedFile, NodeOf, Secret, Sources } from "./schema_types.ts";

/** Shorter ones are checked with what they are in: in less than a slice. */
const SHORT = 50;

type ListContext = CheckContext & Pick<Required<CheckContext>, "lists">;

/** Adds the lists in `node`, and in the items of these lists, to `lists`. A step for each item. */
export function* checkLists(schema: AnySchema, node: JsonNode, at: Path, context: ListContext): Generator<void, void> {
  const { item } = schema;
  for (const [key, member] of node.kind === "object" ? node.members : []) {
    const field = schema.fields?.get(key);
    if (field !== undefined) yield* checkLists(field, member, [...at, key], context);
  }
  if (item?.fields === undefined || context.lists.has(node) || !isLongList(node)) return;
  const list = newList();
  const within = { ...context, ...list };
  for (const [i, child] of node.items.entries()) {
    const place = [...at, i];
    if (hasLongList(child)) yield* checkLists(item, child, place, within);
    list.values.push(item.check(child, place, within));
    list.shown.push(item.show(child, context.lists));
    yield;
  }
  context.lists.set(node, list);
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

/** A service without errors, or a list beside the services, and all that its value comes of. */
interface CheckedValue {
  readonly value: unknown;
  readonly shown: Json;
  readonly at: Path;
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
  readonly folder: string | null;
  readonly environment: Sources["environment"];
  readonly kinds: readonly PluginKind[];
  readonly features: readonly FeatureFields[];
  readonly references: Sources["references"];
}

/**
 * The services of a configuration without errors, and the lists beside them, by the digests of their texts; and what is
 * around them.
 */
export interface CheckedServices extends Surroundings, Known {
  readonly services: ReadonlyMap<string, CheckedValue>;
  /** The files that all else is read with; complete once it has been checked. */
  readonly read: Map<string, Buffer | string>;
}

interface ServiceOptions {
  /** Of the document. */
  readonly schema: AnySchema;
  readonly members: ReadonlyMap<string, JsonNode>;
  readonly outline: Known["outline"];
  readonly kinds: readonly PluginKind[];
  readonly features: readonly FeatureFields[];
  /** Null: there is none. */
  readonly before: CheckedServices | null;
  /** Gets the services that are taken over. */
  readonly kept: Map<JsonNode, Service>;
}

/**
 * Checks the services, a step for each, and the lists beside them, and adds all these lists to `lists`. A service or
 * list whose text, files and surroundings are those of before has the same value, which is the same object.
 */
export function* checkServices(
  context: ListContext,
  { schema, members, outline, kinds, features, before, kept }: ServiceOptions,
): Generator<void, CheckedServices> {
  const { sources, lists } = context;
  const { folder, environment, references } = sources;
  const global = members.get("global")?.digest ?? "";
  const surroundings = { global, folder, environment, kinds, features, references };
  const former = before !== null && areSame(before, surroundings) ? before.services : NONE;
  const services = new Map<string, CheckedValue>();
  const asBefore = (digest: string) => {
    const same = former.get(digest);
    return same !== undefined && hasSameFiles(same.read, sources) ? same : null;
  };
  const note = (digest: string, checked: CheckedValue) => {
    services.set(digest, checked);
    for (const [value, reference] of checked.resolved) sources.resolved?.set(value, reference);
    for (const [reference, value] of checked.formed) sources.formed?.set(reference, value);
  };
  for (const [key, member] of members) {
    const field = schema.fields!.get(key);
    if (key === "services" || field === undefined || member.kind !== "array") continue;
    const checked = asBefore(member.digest!) ?? (yield* checkApart(field, member, [key], { ...context, issues: [] }));
    note(member.digest!, checked);
    // What is wrong with it is reported where the document is checked.
    if (checked.value === INVALID) continue;
    lists.set(member, { ...checked, values: checked.value, issues: [] } as unknown as CheckedList);
  }
  const list = newList();
  const ofService = schema.fields!.get("services")!.item!;
  const node = members.get("services");
  const items = node?.kind === "array" ? node.items : [];
  for (const [index, item] of items.entries()) {
    yield;
    const digest = item.digest!;
    const same = asBefore(digest);
    const within = { ...context, issues: list.issues };
    const checked = same ? movedTo(index, same) : yield* checkApart(ofService, item, ["services", index], within);
    // One that is there twice is in conflict with itself.
    if (same !== null && !services.has(digest)) kept.set(item, same.value as Service);
    note(digest, checked);
    list.values.push(checked.value);
    list.shown.push(checked.shown);
    list.secrets.push(...checked.secrets);
    for (const [path, file] of checked.files) list.files.set(path, file);
  }
  if (node !== undefined) lists.set(node, list);
  return { ...surroundings, services, outline, read: new Map() };
}

/** Whether `global` is as it was. `sources`: those of `now`. */
export function isGlobalSame(before: CheckedServices, now: CheckedServices, sources: Sources): boolean {
  return areSame(before, now) && hasSameFiles(before.read, sources);
}

function* checkApart(schema: AnySchema, node: JsonNode, at: Path, context: ListContext): Generator<void, CheckedValue> {
  const read = new Map<string, Buffer | string>();
  const noted = { resolved: new Map<string, string>(), formed: new Map<string, string>() };
  const readFile = (path: string) => {
    const content = context.sources.readFile(path);
    read.set(path, content);
    return content;
  };
  const [secrets, files] = [[] as Secret[], new Map<string, NamedFile>()];
  const within = { ...context, sources: { ...context.sources, ...noted, readFile }, secrets, files };
  yield* node.readSteps?.() ?? [];
  yield* checkLists(schema, node, at, within);
  const value: unknown = schema.check(node, at, within);
  return { value, shown: schema.show(node, context.lists), at, secrets, files, read, ...noted };
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

function hasSameFiles(read: CheckedValue["read"], { readFile }: Sources): boolean {
  try {
    return [...read].every(([path, content]) => Buffer.from(readFile(path)).equals(Buffer.from(content)));
  } catch {
    return false; // the check says why
  }
}

function movedTo(index: number, service: CheckedValue): CheckedValue {
  if (index === service.at[1]) return service;
  const secrets = service.secrets.map(({ at, ...secret }) => ({ ...secret, at: at.with(1, index) }));
  return { ...service, at: service.at.with(1, index), secrets };
}

const NONE: ReadonlyMap<string, CheckedValue> = new Map();
