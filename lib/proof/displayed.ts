/**
 * Shows values of tests where they are logged, stored and displayed: without secrets of the configuration and without
 * credentials, and cut.
 */
import { hasSecretField, isSecretName } from "../base/secret_names.ts";
import type { Json } from "../config/json.ts";
import { maskLiterals } from "../config/references.ts";
import { redacted } from "../http/redact_query.ts";

/** Conceals the secrets of a configuration in a text. */
export type Conceal = (text: string) => string;

/**
 * A text of a test; `path` are the names of the members that it is in, or of its header. Tests have the credentials of
 * callers, of which the configuration may have hashes alone: of a text with a secret name, only references are shown.
 */
export function testText(path: readonly string[], text: string, conceal: Conceal): string {
  // A form or a document: where in it the secret is, only its reader knows.
  const isSecret = path.some(isSecretName) || (path.at(-1) === "body" && isSecretName(text));
  return isSecret ? maskLiterals(conceal(text)) : conceal(redacted(text));
}

/** A value as `testText` shows its texts, each cut. */
export function displayed(value: Json, conceal: Conceal, ...path: readonly string[]): Json {
  if (typeof value === "string") return cut(testText(path, value.slice(0, MAX_KEPT + MAX_SECRET), conceal));
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((each) => displayed(each, conceal, ...path));
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, displayed(member, conceal, ...path, name)]),
  );
}

/** What was found, cut as a whole. A document is shown by the names of its members, as far as it is not too long. */
export function displayedFound(value: Json, conceal: Conceal, ...path: readonly string[]): Json {
  if (typeof value === "string") {
    if (path[0] !== "body") return displayed(value, conceal, ...path);
    const content = value.length <= MAX_SECRET ? jsonIn(value) : null;
    if (content !== null) return cut(JSON.stringify(displayed(content, conceal, ...path)));
    return displayed(value, conceal, hasSecretField(value.slice(0, MAX_SECRET)) ? "body" : "text");
  }
  const text = typeof value === "object" ? JSON.stringify(value) : "";
  if (text.length > MAX_SECRET) return displayed(text, conceal, ...path);
  const shown = displayed(value, conceal, ...path);
  return text.length > MAX_KEPT ? cut(JSON.stringify(shown)) : shown;
}

/** The object or list that a text is; else null. */
function jsonIn(text: string): Json | null {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return null;
  }
}

function cut(text: string): string {
  return text.length > MAX_KEPT ? `${text.slice(0, MAX_KEPT)}…` : text;
}

/** The characters of a text that are kept: the results of all tests stay in memory until the next run. */
const MAX_KEPT = 2_000;

/** A secret of up to so many characters is found whole, also where the text is cut. */
const MAX_SECRET = 2 ** 16;
