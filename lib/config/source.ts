/**
 * Where the text of a configuration comes from: its file and signature, its parsed document, and what its references
 * and file names are resolved with.
 */
import { dirname, resolve } from "node:path";
import { readFileSteps, readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { atOnce, inSlices, paced } from "../base/time_slices.ts";
import { documentSteps, type ConfigDocument, type Known } from "./config_document.ts";
import { nodeFrom, NOWHERE, type Issue } from "./json.ts";
import type { PlaceholderSource, ReferenceReader, Sources } from "./schema_core.ts";

/** A file that has been read, or a JavaScript value of the same shape. */
export type ConfigSource = ReadFile | { readonly value: unknown; readonly file?: undefined };

interface ReadFile {
  readonly text: Buffer | string;
  readonly file: string;
  /** The fingerprint of the key that has signed the text, where it had to be signed. */
  readonly signer?: string;
}

/**
 * `problem` is a sentence with a remedy. `signer` is the fingerprint of the key that has signed; see
 * `PublicKey.fingerprint`.
 */
export type SignatureCheck = { readonly problem: string } | { readonly problem?: undefined; readonly signer: string };
/** Whether these bytes, which were read from `path`, are signed. */
export type CheckSignature = (path: string, content: Uint8Array) => SignatureCheck;

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

/**
 * Reads the file, or returns one issue with a remedy. With `checkSignature` it must be signed. The result, if ok, is a
 * source for `loadConfig`.
 */
export function readConfigFile(file: string, checkSignature?: CheckSignature): ConfigFile {
  return atOnce(configFileSteps(file, checkSignature));
}

type ConfigFile =
  (ReadFile & { readonly ok: true; readonly text: Buffer }) | { readonly ok: false; readonly issues: readonly Issue[] };

/** The same in steps of about a millisecond, for `inSlices`; but a signature is checked in one. */
export function* configFileSteps(file: string, checkSignature?: CheckSignature): Generator<void, ConfigFile> {
  const refused = (issue: Pick<Issue, "message" | "isSignature">) => ({
    ok: false as const,
    issues: [{ at: [], position: null, ...issue }],
  });
  let text: Buffer;
  try {
    text = yield* readFileSteps(file);
  } catch (error) {
    return refused({
      message:
        `cannot read ${resolve(file)}: ${whyUnreadable(error)}; ` +
        `name another file with --config PATH or CONFIG_FILE_PATH`,
    });
  }
  if (checkSignature === undefined) return { ok: true, text, file };
  const checked = checkSignature(file, text);
  return checked.problem === undefined
    ? { ok: true, text, file, signer: checked.signer }
    : refused({ message: checked.problem, isSignature: true });
}

/** Where the signature of a file is. */
export function signatureFile(path: string): string {
  return `${path}.sig`;
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
  const folder = "value" in source ? process.cwd() : dirname(resolve(source.file));
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

/**
 * A configuration and, where it must be signed, its signature and the public keys. `keyFile`: null where it need not.
 */
export function withSignature(path: string, keyFile: string | null): readonly string[] {
  return keyFile === null ? [path] : [path, signatureFile(path), keyFile];
}
