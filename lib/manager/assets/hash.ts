/**
 * Reads and writes the part of the address behind "#": which page it names, with which parameters, and where a login leads back to.
 */
import type { Warning } from "./api.ts";

export interface Place {
  /** "" is the overview. */
  readonly page: string;
  /** Decoded: "#/routes/shop/list%20all" has ["shop", "list all"]. */
  readonly words: readonly string[];
  /** The hash to open after a login. */
  readonly back: string;
}

/** "#/", "" and anything else without "#/" is the overview. A part that is not valid UTF-8 stays encoded. */
export function placeOf(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...words] = path.split("/").filter((part) => part !== "").map(decoded);
  return { page, words, back: safeBack(new URLSearchParams(query).get("back")) };
}

/** "#/routes/shop/a%2Fb": names may contain any character. */
export function hashOf(...words: readonly string[]): string {
  return `#/${words.map(encoded).join("/")}`;
}

/** "#/login?back=%23%2Froutes" */
export function loginHash(from: string): string {
  const back = safeBack(from);
  return back === "#/" ? "#/login" : `#/login?back=${encodeURIComponent(back)}`;
}

/** The page for a warning, and the text of the link; null: there is none. */
export function hashOfWarning({ code, service, route }: Warning): { readonly hash: string; readonly text: string } | null {
  if (code.startsWith("reload") || code.startsWith("config")) return { hash: "#/config", text: "Configuration" };
  if (service !== null && route !== null) return { hash: hashOf("routes", service, route), text: `Route ${route}` };
  if (service !== null) return { hash: hashOf("services", service), text: `Service ${service}` };
  if (code.startsWith("plugin")) return { hash: "#/plugins", text: "Plugins" };
  if (code.startsWith("upstream") || code.startsWith("circuit")) return { hash: "#/upstreams", text: "Upstreams" };
  return null;
}

/** Only a page of this application, and not the login again: a crafted address must not lead elsewhere. */
function safeBack(hash: string | null): string {
  return hash === null || !hash.startsWith("#/") || /^#\/+login\b/.test(hash) ? "#/" : hash;
}

/** JSON can hold half of a surrogate pair, for which `encodeURIComponent` throws: it becomes "%uD800", which has no other meaning. */
function encoded(word: string): string {
  return word.split(/(\p{Cs})/u).map((part, i) => (i % 2 === 0 ? encodeURIComponent(part) : `%u${part.charCodeAt(0).toString(16).toUpperCase()}`)).join("");
}

function decoded(part: string): string {
  try {
    return part.split(/%u(D[89A-F][0-9A-F]{2})/).map((each, i) => (i % 2 === 0 ? decodeURIComponent(each) : String.fromCharCode(Number.parseInt(each, 16)))).join("");
  } catch {
    return part;
  }
}
