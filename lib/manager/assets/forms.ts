/**
 * The forms for common changes: which item of the configuration each adds or changes, and what a new one begins with.
 * Their fields are those of the schema.
 */
import { isRecord, valueAt, type JsonPath } from "./json_text.ts";

export interface Choice {
  readonly label: string;
  readonly path: JsonPath;
  /** The names of service and route, or of service and group, by which a link to the form chooses it. */
  readonly of: readonly string[];
}

export interface Form {
  readonly title: string;
  /** What it is about, and the items of the draft that can be chosen; absent: the file. */
  readonly place?: { readonly label: string; readonly of: (file: unknown) => readonly Choice[] };
  /** The list of the place to which an item is added; absent: the place itself is changed. */
  readonly list?: string;
  readonly fresh?: unknown;
  /** Members that are shown at first, besides those that are required or set. */
  readonly first?: readonly string[];
  /** Members with forms of their own. */
  readonly omit?: readonly string[];
  /** Of keys: the others may end some days later. */
  readonly endsOthers?: true;
}

const PARTS = ["routes", "upstreams", "plugins"];
const SERVICE = { label: "Service", of: servicesOf };
const ROUTE = { label: "Route", of: routesOf };
const CALLER = { label: "Caller", of: callersOf };
const EVERYWHERE = { label: "For", of: placesOf };
const UPSTREAM = ["host", "port", "srv", "id", "weight", "group", "backup"];

export const FORMS: Readonly<Record<string, Form>> = {
  service: {
    title: "Add a service",
    list: "services",
    fresh: { name: "", base_path: "", upstreams: [{}], routes: [{ path: "/{rest*}" }] },
    omit: ["plugins"],
  },
  route: { title: "Add a route", place: SERVICE, list: "routes", first: ["name", "methods"], omit: ["plugins"] },
  upstream: { title: "Add an upstream", place: SERVICE, list: "upstreams", first: UPSTREAM },
  plugin: { title: "Add a plugin", place: EVERYWHERE, list: "plugins", omit: ["name"], first: ["config"] },
  limit: {
    title: "Add a rate limit",
    place: EVERYWHERE,
    list: "plugins",
    omit: ["name"],
    fresh: { name: "rate_limit", config: {} },
  },
  test: { title: "Add a test", list: "tests" },
  caller: {
    title: "Add a caller with a key",
    list: "callers",
    first: ["groups", "keys"],
    fresh: { keys: [{ key_sha256: "" }] },
  },
  key: {
    title: "Add a key to a caller",
    place: CALLER,
    list: "keys",
    first: ["expires_at"],
    fresh: { key_sha256: "" },
    endsOthers: true,
  },
  caller_state: { title: "Enable or disable a caller", place: CALLER, first: ["enabled"], omit: ["keys"] },
  share: { title: "Change the share of a canary", place: { label: "Split", of: splitsOf } },
  plugin_settings: {
    title: "Change a plugin",
    place: { label: "Plugin", of: pluginsOf },
    omit: ["name"],
    first: ["enabled"],
  },
  service_settings: { title: "Change a service", place: SERVICE, omit: PARTS },
  route_settings: { title: "Change a route", place: ROUTE, omit: PARTS },
  upstream_settings: { title: "Change an upstream", place: { label: "Upstream", of: upstreamsOf }, first: UPSTREAM },
};

/** The list at a path; empty where there is none. */
export function listAt(value: unknown, path: JsonPath): readonly unknown[] {
  const found = valueAt(value, path);
  return Array.isArray(found) ? found : [];
}

/** The keys of a caller, of which the others end in so many days, and not later than before. */
export function endingIn(days: number, keys: readonly unknown[]): readonly unknown[] {
  const end = new Date(Date.now() + days * 86_400_000).toISOString();
  return keys.map((key) => {
    const { expires_at: known } = isRecord(key) ? key : {};
    const isEarlier = typeof known === "string" && Date.parse(known) <= Date.parse(end);
    return isEarlier ? key : { ...(key as object), expires_at: end };
  });
}

function textOf(value: unknown, name: string): string {
  const found = (value as Record<string, unknown> | null)?.[name];
  return typeof found === "string" || typeof found === "number" ? String(found) : NOTHING;
}

const NOTHING = "?";

function callersOf(file: unknown): readonly Choice[] {
  return itemsOf(
    file,
    "callers",
    null,
    (caller) => textOf(caller, "id"),
    (caller) => (isRecord(caller) && caller.enabled === false ? ", disabled" : ""),
  );
}

/** Items of a list below a place, by their names. */
function itemsOf(
  file: unknown,
  list: string,
  below: Choice | null,
  nameOf: (item: unknown, i: number, all: readonly unknown[]) => string,
  noteOf: (item: unknown) => string = () => "",
): readonly Choice[] {
  const at = [...(below?.path ?? []), list];
  return listAt(file, at).map((item, i, all) => {
    const name = nameOf(item, i, all);
    const label = `${below === null ? "" : `${below.label} / `}${name}${noteOf(item)}`;
    return { label, path: [...at, i], of: [...(below?.of ?? []), name] };
  });
}

function servicesOf(file: unknown): readonly Choice[] {
  return itemsOf(file, "services", null, (service) => textOf(service, "name"));
}

function routesOf(file: unknown): readonly Choice[] {
  return servicesOf(file).flatMap((service) => itemsOf(file, "routes", service, routeName));
}

function addressIn(upstream: unknown): string {
  const srv = textOf(upstream, "srv");
  return srv === NOTHING ? `${textOf(upstream, "host")}:${textOf(upstream, "port")}` : srv;
}

function upstreamsOf(file: unknown): readonly Choice[] {
  const nameOf = (upstream: unknown) => textOf({ id: addressIn(upstream), ...(upstream as object | null) }, "id");
  return servicesOf(file).flatMap((service) => itemsOf(file, "upstreams", service, nameOf));
}

/** All that plugins can be added to. */
function placesOf(file: unknown): readonly Choice[] {
  const all = { label: "All requests", path: ["global"], of: [] };
  const routes = routesOf(file);
  return [all, ...servicesOf(file).flatMap((each) => [each, ...routes.filter(({ of }) => of[0] === each.of[0])])];
}

/** By their ids, or by kind and number: "rate_limit#2". */
function pluginsOf(file: unknown): readonly Choice[] {
  const nameOf = (plugin: unknown, i: number, all: readonly unknown[]): string => {
    if (isRecord(plugin) && typeof plugin.id === "string") return plugin.id;
    const name = textOf(plugin, "name");
    const before = all.slice(0, i).filter((each) => textOf(each, "name") === name).length;
    return before === 0 ? name : `${name}#${before + 1}`;
  };
  return placesOf(file).flatMap((place) => itemsOf(file, "plugins", place, nameOf));
}

/** The gateway names a route without a name by its methods and path: "GET,POST /items". */
function routeName(route: unknown): string {
  const methods = listAt(route, ["methods"]).join(",");
  return textOf({ name: `${methods} ${textOf(route, "path")}`.trimStart(), ...(route as object | null) }, "name");
}

function splitsOf(file: unknown): readonly Choice[] {
  const noteOf = (split: unknown): string =>
    `${isRecord(split) && split.match !== undefined ? ", by conditions" : ""}, now ${textOf(split, "percent")} %`;
  const nameOf = (split: unknown): string => textOf(split, "group");
  return servicesOf(file).flatMap((service) => itemsOf(file, "split", service, nameOf, noteOf));
}
