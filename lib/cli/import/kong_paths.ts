/**
 * Turns the paths of Kong's routes, prefixes and regular expressions (`~`), and the templates of its upstream paths
 * into patterns.
 */

import { literal } from "./source_value.ts";

export interface KongPath {
  /** Such as "/items/{id}"; "" is the whole site. */
  readonly pattern: string;
  /** Whether all paths below it match, too. */
  readonly isPrefix: boolean;
  readonly isRegex: boolean;
  /** Whether a placeholder accepts more than the expression did. */
  readonly isWider: boolean;
  /** Whether its last segment may have more characters: "/a" is also "/ab". */
  readonly goesOn: boolean;
}

const LITERALS = /^(?:[\w~!'&=,%@;:-]|\\[.~_-])+$/;
/**
 * A class of characters without "/", at least once; between classes stands what separates the parts of dates and UUIDs.
 */
const CLASS = String.raw`\\[dw]|\[\^/\??\]|\[(?:[a-zA-Z0-9]-[a-zA-Z0-9]|\\[dw.-]|[\w.~])+-?\]`;
const CLASSES = new RegExp(String.raw`^(?:(?:${CLASS})(?:\+[?+]?|\{[1-9]\d*(?:,\d*)?\})?|\\?[_:-])+$`);
/** Of an expression: reading takes time in proportion to their square. */
const MAX_CHARACTERS = 2000;
const GROUP = /\((?:\?P?<(\w+)>|\?:)?([^()]+)\)/;

/** What a path without "~" has only if an expression was meant; "/$metadata" and "/me()" are texts. */
const MEANT = /\\|\(\?|\.[*+]|\][*+?{]|\)[*+?]/;

/** Returns why there is no pattern. `isOld`: by the format 1.1 or 2.1. */
export function readPath(given: string, isOld: boolean): KongPath | string {
  const written = isOld && /[^\w.~/%-]/.test(given) && !given.startsWith("~") ? `~${given}` : given;
  if (!/^~?\//.test(written)) return 'a path begins with "/" or "~/"';
  if (!written.startsWith("~")) {
    if (MEANT.test(written))
      return 'Kong 3 reads it as a text, which no request has: a regular expression begins with "~/"';
    if (/[?#]/.test(written)) return 'it has "?" or "#", which is no part of a path';
    const pattern = literal(written.replace(/\/+$/, ""));
    return { pattern, isPrefix: true, isRegex: false, isWider: false, goesOn: !written.endsWith("/") };
  }
  if (/\(\?<?[=!]/.test(written)) return "it looks ahead or behind; write routes with placeholders such as /users/{id}";
  if (written.includes("|")) return "it has alternatives (|): write a route for each of them";
  // Of ~/items/(?<id>\d+)/?$ without its end: "/items/(?<id>\d+)"
  const body = written.slice(1).replaceAll("\\/", "/");
  const isOpen = !/(?<!\\)\$$/.test(body);
  const expression = body.replace(/(?:\/\??)?\$$/, "");
  if (expression.length > MAX_CHARACTERS) return `it has more than ${MAX_CHARACTERS} characters`;
  const segments = [...expression.matchAll(/\/((?:\[(?:\\.|[^\]\\])*\]|\\.|[^/[\\])*)/g)].map(
    ([, segment]) => segment!,
  );
  if (segments.map((segment) => `/${segment}`).join("") !== expression) return "it is no regular expression";
  if (segments.at(-1) === "") segments.pop();
  const names = new Set<string>();
  let isWider = false;
  let pattern = "";
  for (const [i, segment] of segments.entries()) {
    const name = GROUP.exec(segment)?.[1] ?? `segment_${i + 1}`;
    const bare = segment.replace(GROUP, "$2");
    if (bare === ".*" && i === segments.length - 1)
      return { pattern, isPrefix: true, isRegex: true, isWider, goesOn: false };
    const isRest = bare === ".+" && i === segments.length - 1;
    if (LITERALS.test(segment)) {
      pattern += `/${segment.replaceAll("\\", "")}`;
      continue;
    }
    if (!isRest && !CLASSES.test(bare))
      return (
        `"${segment}" is no expression for one segment of the path; ` +
        `write routes with placeholders such as /users/{id}`
      );
    if (names.has(name)) return `the group "${name}" is there twice: give each a name of its own`;
    names.add(name);
    isWider ||= !isRest && !/^\[\^\/\]\+[?+]?$/.test(bare);
    pattern += isRest ? `/{${name}*}` : `/{${name}}`;
  }
  const isPrefix = isOpen && !pattern.endsWith("*}");
  return { pattern, isPrefix, isRegex: true, isWider, goesOn: isPrefix && !/\/\??$/.test(body) };
}

/**
 * The `upstream_path` for the `replace.uri` of request-transformer: /v2/$(uri_captures["id"]) is /v2/{id}. Undefined:
 * it has none.
 */
export function templateOf(uri: string, pattern: string): string | undefined {
  const template = uri.replace(
    /\$\(uri_captures(?:\.(\w+)|\[["'](\w+)["']\])\)/g,
    (_, dotted?: string, quoted?: string) => `{${dotted ?? quoted}}`,
  );
  const known = template.replace(/\{(\w+)\}/g, (whole, name: string) =>
    new RegExp(`\\{${name}\\*?\\}`).test(pattern) ? "" : whole,
  );
  return /^\/[^{}$?#]*$/.test(known) ? template : undefined;
}
