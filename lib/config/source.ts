/**
 * The text of a configuration, once it is read: where it is from and who has signed it, its parsed document, and what
 * its references and file names are resolved with.
 */
import { dirname, resolve } from "node:path";
import { messageOf } from "../base/errors.ts";
import { readRegularFile } from "../base/regular_file.ts";
import { atOnce, inSlices, paced } from "../base/time_slices.ts";
import { documentSteps, type ConfigDocument, type Known } from "./config_document.ts";
import { nodeFrom, NOWHERE, type Issue } from "./json.ts";
import type { ReadableSource, SourceText } from "./text_source.ts";
import type { PlaceholderSource, ReferenceReader, Sources } from "./schema_core.ts";

/** A text that has been read, or a JavaScript value of the same shape. */
export type ConfigSource = ReadText | { readonly value: unknown; readonly file?: undefined };

export interface ReadText {
  readonly text: Buffer | string;
  /** The name of its source. */
  readonly file: string;
  /** See `TextSource`. Default: that of the file. */
  readonly folder?: string | null;
  /** The fingerprint of the key that has signed the text, where it had to be signed. */
  readonly signer?: string;
}

/**
 * `problem` is a sentence with a remedy. `signer` is the fingerprint of the key that has signed; see
 * `PublicKey.fingerprint`.
 */
export type SignatureCheck = { readonly problem: string } | { readonly problem?: undefined; readonly signer: string };
/** Whether this text of the source `name` is signed. */
export type CheckSignature = (name: string, read: SourceText) => SignatureCheck;

export interface ReadOptions {
  /** Needed where the configuration has `${`. */
  readonly references?: ReferenceReader | undefined;
  /** Resolves `${env:NAME}`. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Resolves `${file:/path}`; default: the file system. */
  readonly readFile?: (path: string) => Buffer | string;
  /** Takes the place of variables and files. */
  readonly placeholders?: PlaceholderSource | undefined;
}

/** What was read, or why it cannot be used. */
export type Reading<S extends ConfigSource = ConfigSource> =
  (S & { readonly ok: true }) | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * Reads what the source has now, in steps of about a millisecond, for `inSlices`; or returns one issue with a remedy.
 * With `checkSignature` the text must be signed, which is checked in one step. The result, if ok, is a source for
 * `loadConfig`.
 */
export function* textSteps(
  source: ReadableSource,
  checkSignature?: CheckSignature,
): Generator<void, Reading<ReadText & { readonly text: Buffer }>> {
  const { name: file, folder } = source;
  let read: SourceText;
  try {
    read = yield* source.current();
  } catch (error) {
    return refused({ message: messageOf(error) });
  }
  const checked = checkSignature?.(file, read);
  if (checked?.problem !== undefined) return refused({ message: checked.problem, isSignature: true });
  return { ok: true, text: read.text, file, folder, ...checked };
}

function refused(issue: Pick<Issue, "message" | "isSignature">): Reading<never> {
  return { ok: false, issues: [{ at: [], position: null, ...issue }] };
}

/** A source is read for what it needs before it is checked, and parsed once. */
export const parsed = new WeakMap<ConfigSource, ConfigDocument>();

/** The document of a source, and what is wrong with its text. `known`: of the configuration before. */
export function parsedFrom(source: ConfigSource, known: Known | null = null): ConfigDocument {
  const before = parsed.get(source);
  if (before !== undefined) return before;
  const document =
    "value" in source
      ? { node: nodeFrom(source.value), issues: [], positionOf: NOWHERE }
      : atOnce(documentSteps(source.text, known));
  parsed.set(source, document);
  return document;
}

/** Has `parsedFrom` know the document of a text, which is read in slices beside the traffic. */
export async function parseInSlices(source: ConfigSource, known: Known | null = null): Promise<void> {
  if ("value" in source || parsed.has(source)) return;
  parsed.set(source, await inSlices(documentSteps(source.text, known), paced()));
}

/** Ends the memory of the document of a source: sources are kept. */
export function forgetParsed(source: ConfigSource): void {
  parsed.delete(source);
}

/** See `TextSource`. */
export function folderOf(source: ConfigSource): string | null {
  if (source.file === undefined) return process.cwd();
  return source.folder === undefined ? dirname(resolve(source.file)) : source.folder;
}

/** Each file is read once, so that one load sees one state of it. */
export function sourcesFor(
  source: ConfigSource,
  { readFile = readRegularFile, placeholders, references, environment }: ReadOptions,
) {
  const contents = new Map<string, Buffer | string>();
  const readOnce = (path: string) => {
    const content = contents.get(path) ?? readFile(path);
    contents.set(path, content);
    return content;
  };
  const folder = folderOf(source);
  const noted = { resolved: new Map<string, string>(), formed: new Map<string, string>() };
  return {
    references,
    environment,
    readFile: readOnce,
    ...noted,
    folder,
    ...(placeholders && { placeholders }),
  } satisfies Sources;
}
