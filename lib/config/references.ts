/**
 * Replaces `${env:NAME}` and `${file:/path}` in a string by their values.
 */
import { resolve } from "node:path";
import { missingPermission } from "../base/errors.ts";

/** The sources of reference values. */
export interface Sources {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly readFile: (path: string) => Buffer | string;
  /** Base of relative file names: the folder of the configuration file. */
  readonly folder: string;
  /** Gets each value that a reference stood for, with the reference. */
  readonly resolved?: Map<string, string>;
}

const NONE: readonly string[] = Object.freeze([]);
const REFERENCE = /\$\{(env|file):([^}]*)(\}?)/g;

/** Whether the text contains a reference, whose value must never be shown. */
export function hasReference(text: string): boolean {
  return text.includes("${") && (text.includes("${env:") || text.includes("${file:"));
}

/**
 * Replaces every reference once: references in the values are not resolved, and other `${…}` stay as they are. `problems` has one
 * sentence for every reference that cannot be resolved; `text` must not be used then.
 */
export function resolveReferences(text: string, sources: Sources): { readonly text: string; readonly problems: readonly string[] } {
  if (!hasReference(text)) return { text, problems: NONE };
  const problems: string[] = [];
  const replaced = text.replace(REFERENCE, (reference: string, kind: string, name: string, brace: string) => {
    const found =
      brace === "" ? { problem: "lacks its closing brace" }
      : name === "" ? { problem: `names no ${kind === "env" ? "environment variable" : "file"}` }
      : kind === "env" ? readVariable(name, sources)
      : readSecret(name, sources);
    if ("value" in found) {
      if (found.value !== "") sources.resolved?.set(found.value, reference);
      return found.value;
    }
    // Without a closing brace the reference extends to the end of the text, which may contain a secret.
    problems.push(`${brace === "" ? `\${${kind}:…` : reference} ${found.problem}`);
    return "";
  });
  return { text: replaced, problems };
}

/** The text for users who may not see secrets: references as they are written, everything around them masked. */
export function maskLiterals(text: string): string {
  const parts = text.split(WHOLE_REFERENCE);
  return parts.map((part, i) => (i % 2 === 1 || part === "" ? part : MASK)).join("");
}

/** Its length does not depend on the secret. */
export const MASK = "********";
const WHOLE_REFERENCE = /(\$\{(?:env|file):[^}]*\})/;

/** Why a file cannot be read: "no such file". */
export function whyUnreadable(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === "ENOENT" || code === "ENOTDIR") return "no such file";
  if (code === "EACCES" || code === "EPERM") return "permission denied";
  if (code === "EISDIR") return "it is a folder";
  return missingPermission(error) ?? message;
}

/** Whether a text that should be a path is a certificate, a key or a set of keys, which no message may quote. */
export function isContent(text: string): boolean {
  return text.includes("\n") || text.includes("-----BEGIN ") || text.trimStart().startsWith("{");
}

/** The text without ONE line break at its end, which editors and `echo` add. */
export function withoutFinalNewline(text: string): string {
  return text.replace(/\r?\n$/, "");
}

type Found = { readonly value: string } | { readonly problem: string };

function readVariable(name: string, { environment }: Sources): Found {
  const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
  return value === undefined ? { problem: `cannot be resolved: the environment variable ${name} is not set` } : { value };
}

function readSecret(name: string, sources: Sources): Found {
  try {
    const content = sources.readFile(resolve(sources.folder, name));
    const text = typeof content === "string" ? content : new TextDecoder("utf-8", { fatal: true }).decode(content);
    return { value: withoutFinalNewline(text) };
  } catch (error) {
    const why = error instanceof TypeError ? "it is not UTF-8 text" : whyUnreadable(error);
    return { problem: `cannot be resolved: cannot read ${resolve(sources.folder, name)}: ${why}` };
  }
}
