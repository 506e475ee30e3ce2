/**
 * Reads the callers of a configuration from its field `callers` and from the files of `caller_files`, and reports all
 * their errors.
 */
import { isUtf8 } from "node:buffer";
import { hash } from "node:crypto";
import { dirname, resolve } from "node:path";
import { readRegularFile } from "../base/regular_file.ts";
import { atOnce, inSlices, paced } from "../base/time_slices.ts";
import { CallerList, digestOf, type CallerEntry } from "./caller_list.ts";
import { flag } from "./fields.ts";
import {
  formatPath,
  itemsOf,
  nodeAt,
  positionAt,
  readValidJson,
  type Issue,
  type JsonNode,
  type Path,
  type Position,
} from "./json.ts";
import { pathsTo } from "./json_paths.ts";
import { parseJson } from "./json_text.ts";
import type { PartFields } from "./part_fields.ts";
import { contentOf, listedFile, reportUnpinned, writtenPath, type ListedFile } from "./pinned_file.ts";
import * as references from "./references.ts";
import { INVALID, report, type CheckContext } from "./schema.ts";
import { parsedFrom, type ConfigSource } from "./source.ts";
import * as s from "./whole_schema.ts";

const MAX_CALLERS = 1_000_000;
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

interface Configured {
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

  /** `context` gets the errors in the configuration's own text. With `mustPin` each file needs its digest. */
  read(root: JsonNode, { callers, callerFiles = [] }: Configured, context: CheckContext, mustPin = false): CallersRead {
    if (callers === undefined && nodeAt(root, ["caller_files"]) === undefined) {
      reportWithout(root, context);
      return { lists: null, files: [], issues: [] };
    }
    const own = new CallerList();
    callers?.forEach((caller, i) =>
      addTo(own, caller, ["callers", i], (message, at) => report(context, at, nodeAt(root, at) ?? root, message)),
    );
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
    this.#made = new Map(made.flatMap((each) => (each.content.includes("${") ? [] : [[each.list.file!, each]])));
    return { lists, files: files.map(({ path }) => path), issues };
  }

  /**
   * Reads those files of a source that have changed in slices, so that `read` finds them made. What cannot be read is
   * left to it.
   */
  async readAhead(source: ConfigSource, readFile: (path: string) => Buffer = readRegularFile): Promise<void> {
    const { node } = parsedFrom(source);
    const folder = source.file !== undefined ? dirname(resolve(source.file)) : process.cwd();
    for (const item of itemsOf(node === null ? undefined : nodeAt(node, ["caller_files"]))) {
      const written = writtenPath(item);
      if (written === undefined || written.includes("${")) continue;
      const path = resolve(folder, written);
      try {
        const content = readFile(path);
        if (this.#made.get(path)?.content.equals(content) === true || content.includes("${")) continue;
        const context = { issues: [], sources: { environment: {}, readFile, folder } };
        this.#made.set(path, await inSlices(stepsOf(path, content, context), paced()));
      } catch {
        // `read` says why.
      }
    }
  }

  #of(path: string, content: Buffer, context: CheckContext): Made {
    const known = this.#made.get(path);
    return known?.content.equals(content) === true ? known : atOnce(stepsOf(path, content, context));
  }
}

const readers = new WeakMap<object, CallerReader>();

/** The one of a gateway, which has all its `parts` for itself. */
export function callerReaderOf(parts: object): CallerReader {
  const reader = readers.get(parts) ?? new CallerReader();
  readers.set(parts, reader);
  return reader;
}

function reportWithout(root: JsonNode, context: CheckContext): void {
  for (const { at, value } of PLUGINS.flatMap((place) => pathsTo(root, `${place}.config.callers`))) {
    const kind = nodeAt(root, [...at.slice(0, -2), "name"]);
    const isAsked = value.kind === "boolean" && value.value && kind?.kind === "string" && kind.value === "key_auth";
    if (isAsked)
      report(
        context,
        at,
        value,
        'there are no callers: the configuration needs "callers" or "caller_files" beside "services"',
      );
  }
}

const PLUGINS = ["global.plugins[]", "services[].plugins[]", "services[].routes[].plugins[]"];

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
    else list.addKey(caller, digest);
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
    const root = issues.length === 0 && content.length < MOST_WITH_POSITIONS ? parseJson(content).node : null;
    issues.push({ at, message, position: root && positionAt(root, at), file: list.file! });
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
      if (issues.length >= MAX_ISSUES) return issues;
    }
  }
  return issues;
}

/** The rest is like the first ones, and each is logged. */
const MAX_ISSUES = 100;
const MOST_WITH_POSITIONS = 4 * 1024 * 1024;

/**
 * Makes the list of a file in steps. A file without errors is never held as a document, which takes ten times as much
 * memory.
 */
function* stepsOf(file: string, content: Buffer, { sources }: CheckContext): Generator<void, Made> {
  const list = new CallerList(file);
  if (!isUtf8(content)) return { content, list, issues: issuesOf(content, file, sources) };
  const text = content.toString().replace(/^\uFEFF/, "");
  const spans = spansOf(text);
  for (;;) {
    const { done, value } = spans.next();
    if (done && value) return { content, list, issues: [] };
    const node = done ? null : readValidJson(`[${text.slice(...value)}]`);
    if (done || node?.kind !== "array") return { content, list, issues: issuesOf(content, file, sources) };
    const issues: Issue[] = [];
    const first = list.callers.length;
    const context = { issues, sources: { ...sources, references }, root: node };
    for (const [i, item] of node.items.entries()) {
      const entry = CALLER.check(item, [first + i], context);
      if (entry !== INVALID)
        addTo(list, entry, [first + i], (message, at) => issues.push({ at, message, position: null }));
    }
    if (issues.length > 0)
      return { content, list, issues: placed(issues.slice(0, MAX_ISSUES), text, value as Span, first, file) };
    if (list.callers.length > MAX_CALLERS)
      return {
        content,
        list,
        issues: [{ at: [], message: `expected at most ${MAX_CALLERS} callers`, position: null, file }],
      };
    yield;
  }
}

/** Of what is no array of JSON in UTF-8. */
function issuesOf(content: Buffer, file: string, sources: CheckContext["sources"]): readonly Issue[] {
  const { node, issues: inText } = parseJson(content);
  const issues = [...inText];
  if (node !== null) CALLERS.check(node, [], { issues, sources: { ...sources, references }, root: node });
  return issues.slice(0, MAX_ISSUES).map((issue) => ({ ...issue, file }));
}

type Span = readonly [start: number, end: number];

/** Where callers stand in the text of an array, some hundred at a time; true: to its end. */
function* spansOf(text: string): Generator<Span, boolean> {
  let start = text.search(/[^ \t\r\n]/) + 1;
  if (text[start - 1] !== "[") return false;
  for (let i = start, depth = 0; i < text.length; i++) {
    const character = text.charCodeAt(i);
    if (character === QUOTE) {
      do i = text.indexOf('"', i + 1);
      while (i > 0 && isEscaped(text, i));
      if (i < 0) return false;
    } else if (character === BRACE || character === BRACKET) depth++;
    else if (character === COMMA && depth === 0 && i - start > SPAN) {
      yield [start, i];
      start = i + 1;
    } else if ((character === END_BRACE || character === END_BRACKET) && --depth < 0) {
      // Nothing behind a comma is an error.
      if (text[start - 1] === "," && text.slice(start, i).trim() === "") return false;
      yield [start, i];
      return character === END_BRACKET && text.slice(i + 1).trim() === "";
    }
  }
  return false;
}

const SPAN = 16 * 1024;
const [QUOTE, COMMA, BRACKET, END_BRACKET, BRACE, END_BRACE] = [0x22, 0x2c, 0x5b, 0x5d, 0x7b, 0x7d];

/** Whether an odd number of backslashes stands before this place. */
function isEscaped(text: string, at: number): boolean {
  let before = at;
  while (text[before - 1] === "\\") before--;
  return (at - before) % 2 === 1;
}

/** The issues with their positions in the file. `first`: the number of the first caller of the span. */
function placed(
  issues: readonly Issue[],
  text: string,
  [start, end]: Span,
  first: number,
  file: string,
): readonly Issue[] {
  // A bracket takes the place of the character before the span, which is one as well.
  const { node } = parseJson(`[${text.slice(start, end)}]`);
  const lines = text.slice(0, start - 1).split("\n");
  const before = [...lines.at(-1)!].length;
  const shifted = ({ line, column }: Position) => ({
    line: line + lines.length - 1,
    column: line === 1 ? column + before : column,
  });
  return issues.map((issue) => {
    const [index, ...rest] = issue.at as [number, ...Path];
    const position = node === null ? null : positionAt(node, [index - first, ...rest]);
    return { ...issue, position: position && shifted(position), file };
  });
}

export const fields: PartFields = { schemas: { callers: CALLERS, caller_files: CALLER_FILES } };
