/**
 * Reads the callers of a configuration from its field `callers` and from the files of `caller_files`, and reports all
 * their errors.
 */
import { hash } from "node:crypto";
import { readRegularFile } from "../base/regular_file.ts";
import { atOnce, inSlices, paced } from "../base/time_slices.ts";
import { CallerList, digestOf, type CallerEntry } from "./caller_list.ts";
import { flag } from "./fields.ts";
import { addIssue, formatPath, itemsOf, listedIssues, nodeAt, NOWHERE, offsetAt } from "./json.ts";
import { parseJson, parseSteps } from "./json_parser.ts";
import type { Issue, JsonDocument, JsonNode, Path, PositionOf } from "./json.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { contentOf, listedFile, reportUnpinned, writtenPath, type ListedFile } from "./pinned_file.ts";
import * as references from "./references.ts";
import { INVALID, report, reportAt, type CheckContext } from "./schema.ts";
import { folderOf, parsedFrom, type ConfigSource } from "./source.ts";
import { endOfKey, KEY_EXPIRES_AT } from "./validity_fields.ts";
import { namedPath } from "./named_path.ts";
import * as s from "./whole_schema.ts";

const MAX_CALLERS = 1_000_000;
/** Less than a millisecond of work. */
const CALLERS_OF_A_STEP = 500;
const MAX_FILES = 16;
/** Of one caller. */
const MAX_KEYS = 100;
const MAX_GROUPS = 100;
/** A header or a query with a longer one would be refused before any plugin. */
const MAX_KEY = 4096;

/** Whether a caller can have it as an id or a group. */
export function isCallerName(text: string): boolean {
  return text !== "" && text.length <= 200 && !/\p{Cc}/u.test(text);
}

function nameOf(what: string, describe: string) {
  const hint = `${what} of 1–200 characters without control characters`;
  return s.string({
    references: "none",
    min: 1,
    max: 200,
    hint,
    describe,
    check: (text) => (isCallerName(text) ? undefined : ""),
  });
}

const KEY = s.object({
  key: s.optional(s.string({ min: 1, max: MAX_KEY, secret: true, describe: "The key itself." })),
  key_sha256: s.optional(
    s.string({
      pattern: /^[0-9a-fA-F]{64}$/,
      hint: "64 hex digits",
      secret: true,
      describe: "The key's SHA-256, in its stead.",
    }),
  ),
  expires_at: s.optional(KEY_EXPIRES_AT),
});

const CALLER = s.object(
  {
    id: nameOf(
      "an id",
      "Who it is: the identity in rate limits and logs, and the subject, user or sub by which other plugins know it.",
    ),
    groups: s.withDefault(
      s.array(nameOf("a group", "A group."), { max: MAX_GROUPS, describe: "Groups that the caller is in." }),
      [],
    ),
    keys: s.withDefault(s.array(KEY, { max: MAX_KEYS, describe: 'API keys, for key_auth with "callers": true.' }), []),
    enabled: flag("Whether its requests are admitted.", true),
  },
  {
    refine({ groups, keys }, complain) {
      groups.forEach((group, i) => void (groups.indexOf(group) < i && complain("is there twice", "groups", i)));
      keys.forEach(({ key, keySha256 }, i) => {
        if ((key === undefined) === (keySha256 === undefined))
          complain('needs either "key" or "key_sha256"', "keys", i);
        else if (keySha256?.toLowerCase() === EMPTY) complain("is the hash of the empty key", "keys", i, "key_sha256");
      });
    },
  },
);

const EMPTY = hash("sha256", "");

export const CALLERS = s.array(s.named("Caller", CALLER), {
  max: MAX_CALLERS,
  describe: "Who may send requests: ids, groups and keys.",
});
const CALLER_FILE = listedFile("A JSON file with an array of callers; relative to the configuration's folder.");
export const CALLER_FILES = s.array(CALLER_FILE, { max: MAX_FILES, describe: "Files with further callers." });

interface Owner {
  readonly plugins: readonly { readonly name: string; readonly config: unknown }[];
}

interface Configured {
  readonly global: Owner;
  readonly services: readonly (Owner & { readonly routes: readonly Owner[] })[];
  readonly callers?: readonly CallerEntry[];
  readonly callerFiles?: readonly ListedFile[];
}

export interface CallersRead {
  /** Null: the configuration names no callers. */
  readonly lists: readonly CallerList[] | null;
  readonly files: readonly string[];
  /** Those of the files. */
  readonly issues: readonly Issue[];
}

interface Made {
  readonly content: Buffer;
  readonly list: CallerList;
  readonly issues: readonly Issue[];
}

/** Reads the callers of one gateway's configurations. A file with the same content as before is not read again. */
export class CallerReader {
  /** By the path of their files. */
  #made = new Map<string, Made>();
  /** Those of the configuration before, the same array where all of them have stayed. */
  #lists: readonly CallerList[] = [];
  /** The list of the configuration before, without errors. A list that has not changed is the same array. */
  #own: { readonly callers: Configured["callers"]; readonly list: CallerList } | null = null;

  /** `context` gets the errors in the configuration's own text. With `mustPin` each file needs its digest. */
  *readSteps(root: JsonNode, config: Configured, context: CheckContext, mustPin = false): Generator<void, CallersRead> {
    const { callers, callerFiles = [] } = config;
    if (callers === undefined && nodeAt(root, ["caller_files"]) === undefined) {
      reportWithout(root, config, context);
      return { lists: null, files: [], issues: [] };
    }
    const known = this.#own !== null && this.#own.callers === callers ? this.#own.list : null;
    const own = known ?? (yield* ownList(callers, root, context));
    this.#own = context.issues.length === 0 ? { callers, list: own } : null;
    const files = callerFiles.map(contentOf);
    const made = files.flatMap(({ path, content }, i) => {
      const first = files.findIndex((other) => other.path === path);
      const at = ["caller_files", i];
      const node = nodeAt(root, at)!;
      if (first < i) return (report(context, at, node, `is the same file as caller_files[${first}]`), []);
      const isUnpinned = mustPin && reportUnpinned(callerFiles[i]!, at, node, context);
      return isUnpinned ? [] : [this.#of(path, content, context)];
    });
    const lists = [own, ...made.map(({ list }) => list)];
    const issues = made.flatMap((each, i) => [...each.issues, ...betweenLists(each, lists.slice(0, i + 1))]);
    const isSame = lists.length === this.#lists.length && lists.every((list, i) => list === this.#lists[i]);
    if (!isSame) this.#lists = lists;
    this.#made = new Map(made.flatMap((each) => (each.content.includes("${") ? [] : [[each.list.file!, each]])));
    return { lists: this.#lists, files: files.map(({ path }) => path), issues };
  }

  /**
   * Reads those files of a source that have changed in slices, so that `readSteps` finds them made. What cannot be read
   * is left to it.
   */
  async readAhead(source: ConfigSource, readFile: (path: string) => Buffer = readRegularFile): Promise<void> {
    const { node } = parsedFrom(source);
    const folder = folderOf(source);
    for (const item of itemsOf(node === null ? undefined : nodeAt(node, ["caller_files"]))) {
      const written = writtenPath(item);
      if (written === undefined || written.includes("${")) continue;
      const path = namedPath(folder, written);
      if (path === null) continue;
      try {
        const content = readFile(path);
        if (this.#made.get(path)?.content.equals(content) === true || content.includes("${")) continue;
        const context = { issues: [], sources: { environment: {}, readFile, folder } };
        this.#made.set(path, await inSlices(stepsOf(path, content, context), paced()));
      } catch {
        // `readSteps` says why.
      }
    }
  }

  #of(path: string, content: Buffer, context: CheckContext): Made {
    const known = this.#made.get(path);
    return known?.content.equals(content) === true ? known : atOnce(stepsOf(path, content, context));
  }
}

const readers = new WeakMap<object, CallerReader>();

/** The one of a gateway, which has all its `features` for itself. */
export function callerReaderOf(features: object): CallerReader {
  const reader = readers.get(features) ?? new CallerReader();
  readers.set(features, reader);
  return reader;
}

/** The document of a valid configuration may not have been read where that has not changed. */
function reportWithout(root: JsonNode, { global, services }: Configured, context: CheckContext): void {
  const inOwner = ({ plugins }: Owner, owner: Path) => {
    for (const [i, { name, config }] of plugins.entries()) {
      if (name !== "key_auth" || (config as { readonly callers?: boolean }).callers !== true) continue;
      const at = [...owner, "plugins", i, "config", "callers"];
      report(context, at, nodeAt(root, at) ?? root, NO_CALLERS);
    }
  };
  inOwner(global, ["global"]);
  services.forEach((service, i) => inOwner(service, ["services", i]));
  services.forEach(({ routes }, i) => routes.forEach((route, j) => inOwner(route, ["services", i, "routes", j])));
}

const NO_CALLERS = 'there are no callers: the configuration needs "callers" or "caller_files" beside "services"';

function* ownList(
  callers: Configured["callers"] = [],
  root: JsonNode,
  context: CheckContext,
): Generator<void, CallerList> {
  const list = new CallerList();
  for (const [i, caller] of callers.entries()) {
    if (i % CALLERS_OF_A_STEP === 0) yield;
    addTo(list, caller, ["callers", i], (message, at) => report(context, at, nodeAt(root, at) ?? root, message));
  }
  return list;
}

type Complain = (message: string, at: Path) => void;

function addTo(list: CallerList, entry: CallerEntry, at: Path, complain: Complain): void {
  const first = list.withId(entry.id);
  if (first !== undefined)
    return complain(`${JSON.stringify(entry.id)} is already used by ${placeIn(list, first.index)}`, [...at, "id"]);
  const caller = list.add(entry);
  entry.keys.forEach((key, i) => {
    const digest = digestOf(key);
    const same = list.keyWith(digest);
    if (same >= 0) complain(`is the same key as ${keyPlace(list, same)}`, [...at, "keys", i]);
    else list.addKey(caller, digest, endOfKey(key));
  });
}

/** `callers[3]`, or `[3]` of a file. */
function placeIn({ file }: CallerList, index: number): string {
  return formatPath(file === undefined ? ["callers", index] : [index]);
}

function keyPlace(list: CallerList, number: number): string {
  const { index, key } = list.placeOfKey(number);
  return `${placeIn(list, index)}.keys[${key}]`;
}

/** Ids and keys of a file that an earlier list has. */
function betweenLists({ list, content, issues: found }: Made, earlier: readonly CallerList[]): readonly Issue[] {
  if (found.length > 0) return [];
  const issues: Issue[] = [];
  const complain: Complain = (message, at) => {
    const isPlaced = issues.length === 0 && content.length < MOST_WITH_POSITIONS;
    const { node, positionOf } = isPlaced ? parseJson(content) : NO_DOCUMENT;
    addIssue(issues, () => ({ at, message, position: node && positionOf(offsetAt(node, at)) }));
  };
  for (const other of earlier) {
    const where = other.file === undefined ? "" : ` of ${other.file}`;
    if (other.callers.length === 0) continue;
    for (const { id, index } of list.callers) {
      const same = other.withId(id);
      if (same !== undefined)
        complain(`${JSON.stringify(id)} is already used by ${placeIn(other, same.index)}${where}`, [index, "id"]);
    }
    for (const [number, digest] of list.digests()) {
      const [same, { index, key }] = [other.keyWith(digest), list.placeOfKey(number)];
      if (same >= 0) complain(`is the same key as ${keyPlace(other, same)}${where}`, [index, "keys", key]);
    }
  }
  return inFile(issues, list.file!);
}

function inFile(issues: readonly Issue[], file: string): readonly Issue[] {
  return listedIssues(issues).map((issue) => ({ ...issue, file }));
}

const MOST_WITH_POSITIONS = 4 * 1024 * 1024;
const NO_DOCUMENT: JsonDocument = { node: null, issues: [], positionOf: NOWHERE };

/**
 * Makes the list of a file in steps. The file is never held as a document, which takes ten times as much memory.
 */
function* stepsOf(file: string, content: Buffer, { sources }: CheckContext): Generator<void, Made> {
  const list = new CallerList(file);
  const inItems: Issue[] = [];
  let count = 0;
  const contextOf = (positionOf: PositionOf) => ({
    issues: inItems,
    positionOf,
    sources: { ...sources, references },
  });
  const { node, issues, positionOf } = yield* parseSteps(content, {
    each: (item, positionOf) => {
      const at = [count++];
      if (count > MAX_CALLERS) return;
      const context = contextOf(positionOf);
      const entry = CALLER.check(item, at, context);
      const complain: Complain = (message, under) =>
        reportAt(context, under, offsetAt(item, under.slice(at.length)), message);
      if (entry !== INVALID) addTo(list, entry, at, complain);
    },
  });
  if (node !== null && node.kind !== "array") CALLERS.check(node, [], contextOf(positionOf));
  if (count > MAX_CALLERS) inItems.push({ at: [], message: `expected at most ${MAX_CALLERS} callers`, position: null });
  return { content, list, issues: inFile(node === null ? issues : [...issues, ...inItems], file) };
}

export const fields: FeatureFields = { schemas: { callers: CALLERS, caller_files: CALLER_FILES } };
