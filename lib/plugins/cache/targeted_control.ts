/**
 * Parses CDN-Cache-Control (RFC 9213), which replaces Cache-Control and Expires for this cache: a dictionary of
 * structured fields (RFC 8941 §3.2).
 */
import { TOKEN_CHARACTERS } from "../../base/http_grammar.ts";
import { headerValues, type HeaderList } from "../../http/headers.ts";
import type { Directives } from "./cache_control.ts";

/**
 * Its directives; null if the header is missing, empty or no dictionary: then it counts as missing (RFC 9213 §2.1). The
 * last of two directives of one name counts, parameters do not. A value of another type than the directive's is not
 * used: `max-age="60"` is a max-age without a number, `no-cache=1` a no-cache without field names.
 */
export function targetedDirectives(list: HeaderList): Directives | null {
  const text = headerValues(list, "cdn-cache-control").join(", ");
  const found = new Map<string, string | null>();
  for (let at = 0; at < text.length;) {
    MEMBER.lastIndex = at;
    const member = MEMBER.exec(text)?.groups;
    if (member === undefined) return null;
    const { name = "", value, integer, string, token, boolean } = member;
    if (boolean === "0") found.delete(name);
    else if (value === undefined || boolean === "1") found.set(name, null);
    else if (LISTS_NAMES.has(name)) found.set(name, string?.replace(/\\(.)/g, "$1") ?? token ?? null);
    else found.set(name, integer ?? "");
    at = MEMBER.lastIndex;
  }
  return text === "" ? null : found;
}

const LISTS_NAMES = new Set(["no-cache", "private"]);

const KEY = "[a-z*][a-z0-9_.*-]*";
const STRING = String.raw`"(?:[ !#-\[\]-~]|\\["\\])*"`;
const TOKEN = `[A-Za-z*][:/${TOKEN_CHARACTERS}]*`;
const ITEM = String.raw`(?:-?\d{1,12}\.\d{1,3}|-?\d{1,15}|${STRING}|${TOKEN}|:[A-Za-z0-9+/=]*:|\?[01])`;
const PARAMETERS = `(?:; *${KEY}(?:=${ITEM})?)*`;
const INNER_LIST = String.raw`\((?: *${ITEM}${PARAMETERS}(?=[ )]))* *\)`;
const INTEGER = String.raw`-?\d{1,15}(?![\d.])`;
const VALUE = [
  `(?<integer>${INTEGER})`,
  `"(?<string>${STRING.slice(1, -1)})"`,
  `(?<token>${TOKEN})`,
  String.raw`\?(?<boolean>[01])`,
  ITEM,
  INNER_LIST,
].join("|");
/** One member, with the comma before the next one: a comma at the end is an error. */
const MEMBER = new RegExp(
  String.raw`(?<name>${KEY})(?:=(?<value>${VALUE}))?${PARAMETERS}(?:[ \t]*,[ \t]*(?=[^ \t])|$)`,
  "y",
);
