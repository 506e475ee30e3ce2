/**
 * Reads and writes the fragment of the URL (after "#"): the page, its parameters, and the page to open after a login.
 */
import type { Warning } from "./api.ts";

interface PageAddress {
  /** "" is the overview. */
  readonly page: string;
  /** Decoded: "#/routes/shop/list%20all" has ["shop", "list all"]. */
  readonly segments: readonly string[];
  /** The hash to open after a login. */
  readonly returnTo: string;
}

/** "#/", "" and anything else without "#/" is the overview. A part that is not valid UTF-8 stays encoded. */
export function parseHash(hash: string): PageAddress {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...segments] = path
    .split("/")
    .filter((part) => part !== "")
    .map(decoded);
  return { page, segments, returnTo: safeReturn(new URLSearchParams(query).get("back")) };
}

/** "#/routes" of "#/routes?sort=name" */
export function pathIn(hash: string): string {
  return hash.replace(/\?.*$/s, "");
}

export function queryIn(hash: string): URLSearchParams {
  return new URLSearchParams(hash.slice(pathIn(hash).length));
}

/** With other parameters; "" removes one. */
export function hashWith(hash: string, values: Readonly<Record<string, string>>): string {
  const query = queryIn(hash);
  for (const [name, value] of Object.entries(values)) {
    if (value === "") query.delete(name);
    else query.set(name, value);
  }
  return query.size === 0 ? pathIn(hash) : `${pathIn(hash)}?${query}`;
}

/** "#/routes/shop/a%2Fb": names may contain any character. */
export function hashFor(...segments: readonly string[]): string {
  return `#/${segments.map(encoded).join("/")}`;
}

/** "#/requests?status=5xx&route=list": the requests that fit; with an `id` one of them beside the list. */
export function hashForRequests(filter: Readonly<Record<string, string>>, id: string | null = null): string {
  return hashWith(id === null ? "#/requests" : hashFor("requests", id), filter);
}

/** "#/add/limit?of=shop&of=list": a form with the route "list" of the service "shop" chosen. */
export function hashForForm(form: string, ...names: readonly string[]): string {
  const hash = hashFor("add", form);
  return names.length === 0 ? hash : `${hash}?${new URLSearchParams(names.map((name) => ["of", name]))}`;
}

/** The page of a route, of a service, or of the plugins for what is global. */
export function hashForPlace({ service, route }: Pick<Warning, "service" | "route">): string {
  return service === null
    ? "#/plugins"
    : route === null
      ? hashFor("services", service)
      : hashFor("routes", service, route);
}

/** The editor at a place of the text with this digest; `path` is what is there, for a text that has changed since. */
export function editorHash(
  { line, column, path }: { readonly line: number; readonly column?: number | null | undefined; readonly path: string },
  digest: string,
): string {
  return `#/edit?${new URLSearchParams({ line: `${line}`, column: `${column ?? 1}`, of: digest, path })}`;
}

/** "#/login?back=%23%2Froutes" */
export function loginHash(from: string): string {
  const returnTo = safeReturn(from);
  return returnTo === "#/" ? "#/login" : `#/login?back=${encodeURIComponent(returnTo)}`;
}

/** The page for a warning, and the text of the link; null: there is none. */
export function linkForWarning({
  code,
  path,
  service,
  route,
}: Pick<Warning, "code" | "path" | "service" | "route">): { readonly hash: string; readonly text: string } | null {
  if (code.startsWith("reload") || code.startsWith("config") || code === "stale_acceptance")
    return { hash: "#/config", text: "Configuration" };
  if (code === "tests_failed") return { hash: "#/tests", text: "Tests" };
  if (service !== null && route !== null) return { hash: hashFor("routes", service, route), text: `Route ${route}` };
  if (service !== null) return { hash: hashFor("services", service), text: `Service ${service}` };
  if (code.startsWith("plugin") || path?.startsWith("global.plugins.")) return { hash: "#/plugins", text: "Plugins" };
  if (code.startsWith("upstream") || code.startsWith("circuit")) return { hash: "#/upstreams", text: "Upstreams" };
  return null;
}

/** Only a page of this application, and not the login page: a crafted URL must not redirect to another site. */
function safeReturn(hash: string | null): string {
  return hash === null || !hash.startsWith("#/") || /^#\/+login\b/.test(hash) ? "#/" : hash;
}

/**
 * JSON can hold half of a surrogate pair, for which `encodeURIComponent` throws: it becomes "%uD800", which is
 * otherwise invalid.
 */
function encoded(segment: string): string {
  return segment
    .split(/(\p{Cs})/u)
    .map((part, i) => (i % 2 === 0 ? encodeURIComponent(part) : `%u${part.charCodeAt(0).toString(16).toUpperCase()}`))
    .join("");
}

function decoded(part: string): string {
  try {
    return part
      .split(/%u(D[89A-F][0-9A-F]{2})/)
      .map((each, i) => (i % 2 === 0 ? decodeURIComponent(each) : String.fromCharCode(Number.parseInt(each, 16))))
      .join("");
  } catch {
    return part;
  }
}
