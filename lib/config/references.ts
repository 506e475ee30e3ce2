/**
 * Replaces `${env:NAME}` and `${file:/path}` in a string by their values.
 */
import { whyUnreadable } from "../base/regular_file.ts";
import type { JsonNode, Path } from "./json.ts";
import { IS_RELATIVE, namedPath } from "./named_path.ts";
import { INVALID, MASK, mismatch, report } from "./schema_core.ts";
import type { AcceptText, AnySchema, CheckContext, Invalid, NodeOf, ReferenceUse, Sources } from "./schema_core.ts";

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
 * Replaces every reference once: references in the values are not resolved. `problems` has one sentence for every
 * reference that cannot be resolved, and for every `${` that begins none; `text` must not be used then. "none": a text
 * that names something, which has no references.
 */
export function resolveReferences(
  text: string,
  sources: Sources | "none",
): { readonly text: string; readonly problems: readonly string[] } {
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
      sources === "none"
        ? { problem: NOT_HERE }
        : brace === ""
          ? { problem: "lacks its closing brace" }
          : name === ""
            ? { problem: `names no ${kind === "env" ? "environment variable" : "file"}` }
            : sources.substitute !== undefined
              ? { value: sources.substitute(reference) }
              : kind === "env"
                ? readVariable(name, sources)
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

/** Reads a text of the configuration that has `${`: see `ReferenceReader`. */
export function readText(
  node: NodeOf<"string">,
  at: Path,
  use: ReferenceUse,
  context: CheckContext,
  schema: AnySchema,
  accept: AcceptText,
): string | Invalid {
  const isReference = use !== "name" && hasReference(node.value);
  const read = (each: CheckContext) => {
    const { text, problems } = resolveReferences(node.value, use === "name" ? "none" : each.sources);
    for (const message of problems) report(each, at, node, message);
    if (problems.length > 0) return INVALID;
    return accept(text, (remedy) => {
      if (each.sources.substitute !== undefined) return INVALID;
      return mismatch(
        schema,
        node,
        at,
        each,
        isReference ? `the value of the reference ${text === "" ? "is empty" : "does not fit"}` : remedy,
      );
    });
  };
  return isReference ? readReferences(node, at, use, context, read) : read(context);
}

/**
 * Reads a text that has references. Where placeholders take the place of values: the first that `read` accepts. If it
 * accepts none, the result is INVALID, and no issue is reported: nobody can tell whether the text is valid. `read`
 * reports a text that does not fit only if its `sources` have no `substitute`.
 */
export function readReferences<T>(
  node: NodeOf<"string">,
  at: Path,
  use: ReferenceUse,
  context: CheckContext,
  read: (context: CheckContext) => T | Invalid,
): T | Invalid {
  const { sources, issues, root } = context;
  const before = issues.length;
  for (const each of sources.placeholders?.alternatives(node.value, at, use, sources, root) ?? []) {
    const value = read({ ...context, sources: each });
    if (value !== INVALID || issues.length > before) return value;
  }
  if (sources.placeholders !== undefined) return INVALID;
  const value = read(context);
  const { formed, resolved: _, ...others } = sources;
  if (value === INVALID || formed === undefined || use === "secret") return value;
  const needsForm =
    use === "value" ||
    use === "address" ||
    read({ ...context, sources: { ...others, substitute: () => "0".repeat(64) } }) === INVALID;
  if (needsForm) for (const each of referencesIn(node.value)) formed.set(each, resolveReferences(each, others).text);
  return value;
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

const WHOLE_REFERENCE = /((?<!\$)\$\{(?:env|file):[^}]*\})/;

const NOT_HERE =
  "is not replaced here: write the text itself (references are for secrets and addresses, not for names, ids, " +
  "paths, hosts, methods and conditions)";

/** A name that is no variable's may be a part of a secret. */
function noReference(name: string, sources: Sources | "none"): string {
  const written = /^[A-Za-z_]\w*$/.test(name) ? name : null;
  const remedy =
    sources === "none"
      ? ""
      : `\${env:${written ?? "NAME"}} for an environment variable, \${file:/path} for the content of a file, or `;
  return `has \${${written ?? "…"}}, which is no reference: write ${remedy}$\${${written ?? "…"}} for the text itself`;
}

type Found = { readonly value: string } | { readonly problem: string };

function readVariable(name: string, { environment }: Sources): Found {
  const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
  return value === undefined
    ? { problem: `cannot be resolved: the environment variable ${name} is not set` }
    : { value };
}

function readSecret(name: string, sources: Sources): Found {
  try {
    const path = namedPath(sources.folder, name);
    if (path === null) return { problem: `cannot be resolved: ${name} ${IS_RELATIVE}` };
    const content = sources.readFile(path);
    const text = typeof content === "string" ? content : new TextDecoder("utf-8", { fatal: true }).decode(content);
    // Without ONE line break at its end, which editors and `echo` add.
    return { value: text.replace(/\r?\n$/, "") };
  } catch (error) {
    const why = error instanceof TypeError ? "it is not UTF-8 text" : whyUnreadable(error);
    return { problem: `cannot be resolved: cannot read ${namedPath(sources.folder, name)}: ${why}` };
  }
}
