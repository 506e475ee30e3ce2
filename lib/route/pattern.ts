/**
 * Reads the patterns of a configuration, `base_path` and `path`, into segments, or returns an error that says how to
 * correct it.
 */
import { comparable, normalisePath } from "./path.ts";

export type Segment =
  /** `text` in the spelling in which paths are compared, see `comparable`. */
  | { readonly kind: "literal"; readonly text: string }
  /** `{name}`: exactly one segment. */
  | { readonly kind: "one"; readonly name: string }
  /** `{name*}`: all that is left, at least one segment. */
  | { readonly kind: "rest"; readonly name: string };

export type Parsed = { readonly segments: readonly Segment[] } | { readonly error: string };

/** `base` is the base_path of the path: a parameter name may occur only once in both together. */
export function parsePattern(text: string, field: "base_path" | "path", base: readonly Segment[] = []): Parsed {
  if (!text.startsWith("/")) return { error: `must start with "/": write ${show("/" + text)}` };
  const trimmed = text.endsWith("/") ? text.slice(0, -1) : text;
  if (trimmed === "") return { segments: [] };

  const segments: Segment[] = [];
  for (const written of trimmed.slice(1).split("/")) {
    const before = segments.at(-1);
    if (before?.kind === "rest")
      return { error: `${show(`{${before.name}*}`)} matches the rest of the path: it must be the last segment` };
    const segment = parseSegment(written, text);
    if ("error" in segment) return segment;
    if (segment.kind !== "literal") {
      if (segment.kind === "rest" && field === "base_path") {
        return {
          error:
            `${show(written)} would leave nothing for the routes: use it in a route's path, ` +
            `or "{${segment.name}}" here`,
        };
      }
      const isBound = (other: Segment) => other.kind !== "literal" && other.name === segment.name;
      if (base.some(isBound) || segments.some(isBound))
        return { error: `the placeholder "${segment.name}" occurs twice in base_path and path: rename one` };
    }
    segments.push(segment);
  }
  return { segments };
}

function parseSegment(written: string, text: string): Segment | { readonly error: string } {
  if (PLAIN.test(written)) return { kind: "literal", text: written };
  if (PLAIN_PLACEHOLDER.test(written)) return { kind: "one", name: written.slice(1, -1) };
  if (written === "") return { error: `has an empty segment: write "/" once in ${show(text)}` };
  const foreign = QUERY.test(written) ? undefined : foreignPattern(written);
  if (foreign !== undefined) return { error: `${show(written)} ${foreign}` };
  if (/[?#]/.test(written))
    return { error: `a pattern describes the path only: leave out everything from "?" or "#" on in ${show(text)}` };
  if (/[{}<>]/.test(written)) return parsePlaceholder(written);
  if (/\p{Surrogate}/u.test(written))
    return { error: `${show(written)} contains half a surrogate pair, which no path can contain` };
  const ascii = written.replace(/[^\0-\x7f]+/g, encodeURIComponent);
  const normal = normalisePath("/" + ascii);
  if ("code" in normal)
    return { error: `${show(written)} never matches: ${normal.detail} and is refused before matching` };
  if (normal.encodedSlash)
    return { error: `${show(written)} never matches: an encoded "/" is let through inside placeholders only` };
  return { kind: "literal", text: comparable(normal.path.slice(1)) };
}

/** Unreserved characters (RFC 3986 §2.3) and no dot segment: most literals need no normalising. */
const PLAIN = /^[\w~-][\w.~-]*$/;
const PLAIN_PLACEHOLDER = /^\{[A-Za-z_]\w*\}$/;

/** `?page=1`, unlike the `?` of a regular expression. */
const QUERY = /\?[\w.~-]+=/;

/** What is wrong with a segment that other gateways read as a pattern: `*`, `:id?`, `(.*)`, `[0-9]+`. */
function foreignPattern(written: string): string | undefined {
  if (/^\*+$/.test(written))
    return (
      `is no pattern here: write "{rest*}" as the last segment for the rest of the path, ` +
      `"{name}" for one segment, or %2A for the character`
    );
  const [, optional] = /^\{(\w+)(?:\?\}|\}\?)$/.exec(written) ?? [];
  if (optional !== undefined) return `cannot be optional: write "{${optional}}", and ${WITHOUT}`;
  const [, name, mark = ""] = /^:([A-Za-z_]\w*)([*+?]?)/.exec(written) ?? [];
  if (name !== undefined) {
    const placeholder = mark === "*" || mark === "+" ? `{${name}*}` : `{${name}}`;
    const second = mark === "*" || mark === "?" ? `, and ${WITHOUT}` : "";
    return `is no placeholder here: write "${placeholder}"${second}, or %3A for the character`;
  }
  const outside = written.replace(/\{\w*\*?\}|<\w*\*?>/g, "");
  const found = /[()[\]^$\\]|\.\*|\.\+\??$/.exec(outside)?.[0].replace("?", "");
  if (found === undefined) return undefined;
  const encoded = Array.from(found, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`).join("");
  const literal =
    found === "\\"
      ? "no path can contain a backslash"
      : `${encoded} stands for the ${found.length === 1 ? "character" : "characters"} ${show(found)}`;
  return (
    `looks like a regular expression, which is no pattern here: write "{name}" for one segment, ` +
    `"{name*}" for the rest of the path; ${literal}`
  );
}

const WITHOUT = "a route of its own for the path without it";

/** `{name}`, `<name>` and both with a star. */
function parsePlaceholder(written: string): Segment | { readonly error: string } {
  const match = /^(?:\{([^{}<>]*?)(\*?)\}|<([^{}<>]*?)(\*?)>)$/.exec(written);
  if (match === null) {
    return {
      error:
        `${show(written)} mixes text and placeholders: a placeholder is a whole segment, like "{name}"` +
        ` (a literal brace or angle bracket is written percent-encoded: %7B %7D %3C %3E)`,
    };
  }
  const name = match[1] ?? match[3] ?? "";
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
    return {
      error:
        `${show(written)} needs a name of letters, digits and underscores that does not start with ` +
        `a digit, like "{user_id}"`,
    };
  }
  return { kind: (match[2] ?? match[4]) === "*" ? "rest" : "one", name };
}

/** Quoted, with control characters made visible. */
const show: (text: string) => string = JSON.stringify;
