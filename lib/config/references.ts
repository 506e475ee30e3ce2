/**
 * Replaces `${env:NAME}` and `${file:/path}` in a string by their values.
 */
import { resolve } from "node:path";
import { missingPermission } from "../base/errors.ts";
import type { JsonNode, Path } from "./json.ts";

/** The sources of reference values. */
export interface Sources {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly readFile: (path: string) => Buffer | string;
  /** Base of relative file names: the folder of the configuration file. */
  readonly folder: string;
  /** Gets each value that a reference stood for, with the reference. */
  readonly resolved?: Map<string, string>;
  /** Gets the values of the references that no placeholder can replace, by reference. */
  readonly formed?: Map<string, string>;
  /** Takes the place of variables and files: references are not resolved. */
  readonly placeholders?: PlaceholderSource;
  /** Returns the text in place of a reference. Default: its value. */
  readonly substitute?: (reference: string) => string;
}

/** How the value of a reference is used. */
export type ReferenceUse =
  /** As a text that is only compared or passed on. */
  | "text"
  /** As a text that must not be given away, whatever form is needed. */
  | "secret"
  /** As something that random text cannot stand for: an address, a public key. */
  | "value";

/** See `Placeholders`. */
export interface PlaceholderSource {
  /** The sources to read a text with references by: the first is used that gives a text which fits. */
  alternatives(written: string, at: Path, use: ReferenceUse, sources: Sources, root: JsonNode | undefined): readonly Sources[];
  /** Whether the configuration in force has this text, with references or the name of a file, at this place. */
  isKnown(written: string, at: Path, root: JsonNode | undefined): boolean;
  /** The places of references and files that are not known. */
  readonly unknown: Path[];
  /** Whether one of the texts is at this place, or below it. */
  isAt(at: Path): boolean;
  /** How many texts have been replaced, or could not be. */
  readonly count: number;
  /** Objects of the configuration that were made with any of these texts. */
  readonly unsure: WeakSet<object>;
}

const NONE: readonly string[] = Object.freeze([]);
/** `$${` is `${` itself. */
const TOKEN = /\$\$\{|\$\{(?:(env|file):)?([^}]*)(\}?)/g;

/** Whether the text contains a reference, whose value must never be shown. */
export function hasReference(text: string): boolean {
  return text.includes("${") && /\$\{(?:env|file):/.test(text.replaceAll("$${", " "));
}

/** The references in a text: `${env:NAME}`. */
export function referencesIn(text: string): string[] {
  return text.split(WHOLE_REFERENCE).filter((_part, i) => i % 2 === 1);
}

/**
 * Replaces every reference once: references in the values are not resolved. `problems` has one sentence for every reference that cannot be
 * resolved, and for every `${` that begins none; `text` must not be used then. "none": a text that names something, which has no references.
 */
export function resolveReferences(text: string, sources: Sources | "none"): { readonly text: string; readonly problems: readonly string[] } {
  if (!text.includes("${")) return { text, problems: NONE };
  const problems: string[] = [];
  const refused = (problem: string) => {
    problems.push(problem);
    return "";
  };
  const replaced = text.replace(TOKEN, (reference: string, kind: string | undefined, name = "", brace = "") => {
    if (reference === "$${") return "${";
    if (kind === undefined) return refused(noReference(name, sources));
    const found: Found =
      sources === "none" ? { problem: NOT_HERE }
      : brace === "" ? { problem: "lacks its closing brace" }
      : name === "" ? { problem: `names no ${kind === "env" ? "environment variable" : "file"}` }
      : sources.substitute !== undefined ? { value: sources.substitute(reference) }
      : kind === "env" ? readVariable(name, sources)
      : readSecret(name, sources);
    if ("value" in found) {
      if (found.value !== "" && sources !== "none") sources.resolved?.set(found.value, reference);
      return found.value;
    }
    // Without a closing brace the reference extends to the end of the text, which may contain a secret.
    return refused(`${brace === "" ? `\${${kind}:…` : reference} ${found.problem}`);
  });
  return { text: replaced, problems };
}

/** A text that names something; undefined: it is none, or has references, which the schema reports. */
export function nameIn(node: JsonNode | undefined): string | undefined {
  if (node?.kind !== "string") return undefined;
  const { text, problems } = resolveReferences(node.value, "none");
  return problems.length > 0 ? undefined : text;
}

/** The text for users who may not see secrets: references as they are written, everything around them masked. */
export function maskLiterals(text: string): string {
  const parts = text.split(WHOLE_REFERENCE);
  return parts.map((part, i) => (i % 2 === 1 || part === "" ? part : MASK)).join("");
}

/** Its length does not depend on the secret. */
export const MASK = "********";
const WHOLE_REFERENCE = /((?<!\$)\$\{(?:env|file):[^}]*\})/;

const NOT_HERE = "is not replaced here: write the text itself (references are for secrets and addresses, not for names, ids, paths, hosts, methods and conditions)";

/** A name that is no variable's may be a part of a secret. */
function noReference(name: string, sources: Sources | "none"): string {
  const written = /^[A-Za-z_]\w*$/.test(name) ? name : null;
  const remedy = sources === "none" ? "" : `\${env:${written ?? "NAME"}} for an environment variable, \${file:/path} for the content of a file, or `;
  return `has \${${written ?? "…"}}, which is no reference: write ${remedy}$\${${written ?? "…"}} for the text itself`;
}

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
