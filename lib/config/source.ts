/**
 * Where the text of a configuration comes from: its file and signature, its parsed document, and what its references
 * and file names are resolved with.
 */
import { dirname, resolve } from "node:path";
import { messageOf } from "../base/errors.ts";
import { readFileSteps, readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { atOnce, inSlices, paced } from "../base/time_slices.ts";
import { documentSteps, type ConfigDocument, type Known } from "./config_document.ts";
import { nodeFrom, NOWHERE, type Issue } from "./json.ts";
import type { TextSource } from "./text_source.ts";
import type { PlaceholderSource, ReferenceReader, Sources } from "./schema_core.ts";

/** A file that has been read, or a JavaScript value of the same shape. */
export type ConfigSource = ReadFile | { readonly value: unknown; readonly file?: undefined };

interface ReadFile {
  readonly text: Buffer | string;
  /** Its path, or the name of the server that has given it. */
  readonly file: string;
  /** Whether it is from a server. Default false. */
  readonly isReceived?: true;
  /** The fingerprint of the key that has signed the text, where it had to be signed. */
  readonly signer?: string;
}

/**
 * `problem` is a sentence with a remedy. `signer` is the fingerprint of the key that has signed; see
 * `PublicKey.fingerprint`.
 */
export type SignatureCheck = { readonly problem: string } | { readonly problem?: undefined; readonly signer: string };
/**
 * Whether these bytes, which were read from `path`, are signed. `signature`: of a text from a server; null: it has
 * none.
 */
export type CheckSignature = (path: string, content: Uint8Array, signature?: string | null) => SignatureCheck;

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
  return signed({ ok: true, text, file }, checkSignature?.(file, text));
}

/** The same of a text that a server has. */
export function* receivedSteps(
  source: Pick<TextSource, "name" | "current">,
  checkSignature?: CheckSignature,
): Generator<void, ConfigFile> {
  try {
    const { text, signature } = yield* source.current();
    const received = { ok: true as const, text, file: source.name, isReceived: true as const };
    return signed(received, checkSignature?.(source.name, text, signature));
  } catch (error) {
    return refused({ message: messageOf(error) });
  }
}

function signed(read: ConfigFile & { readonly ok: true }, checked: SignatureCheck | undefined): ConfigFile {
  if (checked === undefined) return read;
  return checked.problem === undefined
    ? { ...read, signer: checked.signer }
    : refused({ message: checked.problem, isSignature: true });
}

function refused(issue: Pick<Issue, "message" | "isSignature">): ConfigFile {
  return { ok: false, issues: [{ at: [], position: null, ...issue }] };
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

/** The base of relative file names; null: the text is in no folder of this machine. */
export function folderOf(source: ConfigSource): string | null {
  if (source.file === undefined) return process.cwd();
  return isReceived(source) ? null : dirname(resolve(source.file));
}

function isReceived(source: ConfigSource): boolean {
  return "isReceived" in source && source.isReceived === true;
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

/**
 * A configuration and, where it must be signed, its signature and the public keys. `keyFile`: null where it need not.
 */
export function withSignature(path: string, keyFile: string | null): readonly string[] {
  return keyFile === null ? [path] : [path, signatureFile(path), keyFile];
}
