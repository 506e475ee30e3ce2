/**
 * The route table: compiled once from the configuration, asked once per request which route takes it and what the upstream is to
 * be asked for. Reading the request target is `path.ts`; what the answers 404, 405 and 400 look like is the gateway's affair.
 */
import type { RouteDeclaration, RouteIssue } from "../config/model.ts";
import { comparable, ENCODED_SLASH, PATH_PARAMETERS, type Refusal } from "./path.ts";
import { parsePattern, placeholderNames, shapeOf, type Segment } from "./pattern.ts";
import { endpointFor, endpointsOf, growTree, lookUp, NONE, Search, type Endpoint, type Tree } from "./tree.ts";

/** One route of one service. */
export interface TableEntry<T> {
  readonly basePath: string;
  /** `api.example.com`, `*.example.com`; empty: every host. */
  readonly hosts: readonly string[];
  /** Below basePath. */
  readonly path: string;
  /** In upper case; empty: all methods. */
  readonly methods: readonly string[];
  /** Whether `%2F` is let through inside placeholders. */
  readonly encodedSlashes: boolean;
  /** Whether a path that this entry takes without its parameters (`/a` for `/a;x`) may go to a less specific pattern with them. */
  readonly pathParameters: boolean;
  readonly target: T;
}

export type Found<T> =
  | {
      readonly kind: "route";
      readonly target: T;
      /** Values of the placeholders, percent-encoded as they are forwarded. */
      readonly params: Readonly<Record<string, string>>;
      /** The path below base_path, "/" at least, a trailing "/" kept. */
      readonly upstreamPath: string;
    }
  /** The pattern does not take the method; `allow` is the value of the Allow header (RFC 9110 §10.2.1). */
  | { readonly kind: "method"; readonly allow: string; readonly routes: readonly T[] }
  /** The path must not be forwarded as it is spelt. `routes` do not accept the spelling; none where nothing matches the path. */
  | { readonly kind: "refused"; readonly refusal: Refusal; readonly routes: readonly T[] }
  | { readonly kind: "none" };

export interface RouteTable<T> {
  /**
   * Host and path alone decide which pattern it is; then its routes decide whether they take the method and the spelling. What they refuse
   * never goes on to a less specific pattern, whose guards may be fewer. `authority` is the Host, with or without port, in any case; `path`
   * and `encodedSlash` are those of `readTarget`.
   */
  find(authority: string, method: string, path: string, encodedSlash: boolean): Found<T>;
}

/** Compiles entries whose patterns `checkRoutes` has passed; throws on a broken one. */
export function compileTable<T>(entries: readonly TableEntry<T>[]): RouteTable<T> {
  // By number, as the trees know an entry: what a search found is two arrays away, and no object of the entry's own lies between.
  const targets = entries.map(({ target }) => target);
  const slashes = entries.map(({ encodedSlashes }) => encodedSlashes);
  const cuts: Cut[] = [];
  const open: Endpoint[] = [];
  const byHost = new Map<string, Endpoint[]>();
  const shared: Shared = { bases: new Map(), cuts: new Map() };
  entries.forEach((entry, id) => {
    const { endpoint, cut } = compileEntry(entry, id, shared);
    cuts.push(cut);
    if (entry.hosts.length === 0) open.push(endpoint);
    else for (const host of hostKeys(entry.hosts)) pushTo(byHost, host, endpoint);
  });
  const openTree = growTree(open);
  const hostTrees = new Map<string, Tree>();
  for (const [host, list] of byHost) hostTrees.set(host, growTree(list));

  const match = (authority: string, search: Search) => {
    if (hostTrees.size === 0 || !lookUpByHost(hostTrees, hostOf(authority), search)) lookUp(openTree, search);
  };
  const routesOf = (search: Search) => Array.from(endpointsOf(search).ids, (id) => targets[id]!);
  /** The routes in whose way the path's parameters are: without them the path is theirs, and they do not let that go elsewhere. */
  const inTheWay = (authority: string, search: Search): readonly T[] => {
    const [first] = endpointsOf(search).ids;
    const bare = new Search(withoutParameters(search, cuts[first!]!.names.length));
    match(authority, bare);
    const isOther = bare.leaf !== 0 && (bare.leaf !== search.leaf || bare.tree !== search.tree);
    return isOther && Array.from(endpointsOf(bare).ids).some((id) => !entries[id]!.pathParameters) ? routesOf(bare) : [];
  };
  /** The same for `%2F`: routes, no less specific than the one found, that take the path where `%2F` is read as "/". */
  const inTheWayDecoded = (authority: string, search: Search, id: number): readonly T[] => {
    const decoded = new Search(search.path.replaceAll("%2F", "/").replace(/\/\/+/g, "/"));
    match(authority, decoded);
    if (decoded.leaf === 0) return [];
    const isOther = decoded.leaf !== search.leaf || decoded.tree !== search.tree;
    const ids = Array.from(endpointsOf(decoded).ids);
    if (isOther && ids.some((each) => !slashes[each]) && rankOf(entries[ids[0]!]!) >= rankOf(entries[id]!)) return routesOf(decoded);
    return decoded.path.includes(";") ? inTheWay(authority, decoded) : [];
  };

  return {
    find(authority, method, path, encodedSlash) {
      const search = new Search(comparable(path));
      match(authority, search);
      if (search.leaf === 0) return encodedSlash ? { kind: "refused", refusal: ENCODED_SLASH, routes: [] } : NOTHING;
      if (search.path.includes(";")) {
        const routes = inTheWay(authority, search);
        if (routes.length > 0) return { kind: "refused", refusal: PATH_PARAMETERS, routes };
        // The marks are the other search's by now.
        match(authority, search);
      }
      const id = endpointFor(search, method);
      if (encodedSlash) {
        const routes = id === NONE || !slashes[id] ? routesOf(search) : inTheWayDecoded(authority, search, id);
        if (routes.length > 0) return { kind: "refused", refusal: ENCODED_SLASH, routes };
        match(authority, search);
      }
      if (id !== NONE) return answer(targets[id]!, cuts[id]!, search, path);
      return { kind: "method", allow: [...new Set(endpointsOf(search).methods)].sort().join(", "), routes: routesOf(search) };
    },
  };
}

/**
 * Every broken pattern, and every route that matches the same method and pattern as an earlier one: in the same service, or in two
 * services with the same base_path that share a host or both have none. Below different base_paths the longer one wins: no error.
 */
export function checkRoutes(declarations: readonly RouteDeclaration[]): RouteIssue[] {
  const errors: RouteIssue[] = [];
  const bases = new Map<string, DeclaredBase | null>();
  const claims = new Map<string, RouteDeclaration[]>();
  for (const declaration of declarations) {
    const { service, route } = declaration;
    const place = service.at.join(".");
    let base = bases.get(place);
    if (base === undefined) {
      const parsed = service.basePath === null ? null : parsePattern(service.basePath, "base_path");
      if (parsed !== null && "error" in parsed) errors.push({ at: [...service.at, "base_path"], about: "pattern", message: parsed.error });
      base = parsed === null || "error" in parsed ? null : { names: placeholderNames(parsed.segments), places: placesOf(service.hosts, parsed.segments) };
      bases.set(place, base);
    }
    const parsed = parsePattern(route.path, "path", base?.names);
    if ("error" in parsed) errors.push({ at: [...route.at, "path"], about: "pattern", message: parsed.error });
    else if (base !== null) {
      const earlier = claim(claims, declaration, base.places, shapeOf(parsed.segments));
      if (earlier !== null) errors.push({ at: [...route.at, "path"], about: "conflict", message: conflict(declaration, earlier) });
    }
  }
  return errors;
}

interface DeclaredBase {
  readonly names: readonly string[];
  /** The base_path's shape on each of the service's hosts. */
  readonly places: readonly string[];
}

function placesOf(hosts: readonly string[], base: readonly Segment[]): readonly string[] {
  const shape = shapeOf(base);
  return hosts.length === 0 ? [` ${shape}`] : Array.from(hostKeys(hosts), (host) => `${host} ${shape}`);
}

/** What is cut out of a path, in terms of the marks that a search leaves; shared by the routes that cut alike. */
interface Cut {
  /** The placeholders' names, in the order of the marks. */
  readonly names: readonly string[];
  /** The mark at which the last placeholder of the base_path ends; -1: it has none. */
  readonly baseMark: number;
  /** How long the base_path goes on behind that. */
  readonly baseLiterals: number;
}

/** What the entries compiled so far have in common. */
interface Shared {
  readonly bases: Map<string, { readonly segments: readonly Segment[]; readonly names: readonly string[]; readonly literalsAtEnd: number }>;
  readonly cuts: Map<string, Cut>;
}

/** Compares as text: the greater of two is more specific. `/a/{x}/{rest*}` is "210". */
function rankOf({ basePath, path }: TableEntry<unknown>): string {
  const segments = [...segmentsOf(basePath, "base_path", []), ...segmentsOf(path, "path", [])];
  return segments.map(({ kind }) => (kind === "literal" ? "2" : kind === "one" ? "1" : "0")).join("");
}

/** How an entry is matched, and what is cut out of a path that matched. */
function compileEntry(entry: TableEntry<unknown>, id: number, { bases, cuts }: Shared): { endpoint: Endpoint; cut: Cut } {
  const { basePath, path, methods } = entry;
  let base = bases.get(basePath);
  if (base === undefined) {
    const segments = segmentsOf(basePath, "base_path", []);
    bases.set(basePath, (base = { segments, names: placeholderNames(segments), literalsAtEnd: literalsAtEnd(segments) }));
  }
  const below = segmentsOf(path, "path", base.names);
  const names = base.names.concat(placeholderNames(below));
  const key = `${base.names.length} ${names.join()} ${base.literalsAtEnd}`;
  let cut = cuts.get(key);
  if (cut === undefined) {
    cuts.set(key, (cut = { names, baseMark: 2 * base.names.length - 1, baseLiterals: base.literalsAtEnd }));
  }
  return { endpoint: { id, segments: base.segments.concat(below), baseLength: base.segments.length, methods }, cut };
}

/** The length of the literal segments, each with its "/", behind the last placeholder. */
function literalsAtEnd(segments: readonly Segment[]): number {
  let length = 0;
  for (const segment of segments) length = segment.kind === "literal" ? length + 1 + segment.text.length : 0;
  return length;
}

function segmentsOf(text: string, field: "base_path" | "path", taken: readonly string[]): readonly Segment[] {
  const parsed = parsePattern(text, field, taken);
  if ("error" in parsed) throw new Error(`${field} ${JSON.stringify(text)}: ${parsed.error}`);
  return parsed.segments;
}

/** The exact host, then wildcards from the longest: a.b.c is looked up as "a.b.c", ".b.c", ".c". */
function lookUpByHost(trees: ReadonlyMap<string, Tree>, host: string, search: Search): boolean {
  // "*.example.com" needs a name before the dot; and no name is longer than 253 (RFC 1035), so a Host full of dots costs nothing.
  if (host.charCodeAt(0) === DOT || host.length > 253) return false;
  for (let dot = 0; dot >= 0; dot = host.indexOf(".", dot + 1)) {
    const tree = trees.get(dot === 0 ? host : host.slice(dot));
    if (tree !== undefined && lookUp(tree, search)) return true;
  }
  return false;
}

/** The host of an authority: lower case, without port and trailing dot. `API.example.com.:8008` -> `api.example.com` */
function hostOf(authority: string): string {
  let end = authority.indexOf(":", authority.startsWith("[") ? authority.indexOf("]") : 0);
  if (end < 0) end = authority.length;
  if (end > 1 && authority.charCodeAt(end - 1) === DOT) end--;
  return authority.slice(0, end).toLowerCase();
}

/** Hosts as they are looked up, each once; "*.example.com" as ".example.com". */
function hostKeys(hosts: readonly string[]): Set<string> {
  return new Set(hosts.map((host) => hostOf(host.startsWith("*.") ? host.slice(1) : host)));
}

/**
 * The path as servers read it that cut the parameters of a segment off (RFC 3986 §3.3): `/admin;x/users` as `/admin/users`. A segment that has
 * nothing else vanishes. Where the pattern has a literal with `;`, the configuration itself says so, and it stays.
 */
function withoutParameters({ path, marks }: Search, placeholders: number): string {
  let bare = "";
  let from = 0;
  for (let i = 0; i < 2 * placeholders; i += 2) {
    bare += path.slice(from, marks[i]) + path.slice(marks[i], marks[i + 1]).replace(/;[^/]*/g, "");
    from = marks[i + 1]!;
  }
  return (bare + path.slice(from)).replace(/\/\/+/g, "/");
}

/** Cuts the parameters and the upstream's path out of the path as it was spelt, where it matched as `compared`. */
function answer<T>(target: T, { names, baseMark, baseLiterals }: Cut, { path: compared, marks }: Search, path: string): Found<T> {
  let below = (baseMark < 0 ? 0 : marks[baseMark]!) + baseLiterals;
  if (compared !== path) {
    const spelt = spellingOf(compared, path);
    for (let i = 0; i < 2 * names.length; i++) marks[i] = spelt[marks[i]!]!;
    below = spelt[below]!;
  }
  const params: Record<string, string> = names.length === 0 ? NO_PARAMS : new Params();
  for (let i = 0; i < names.length; i++) params[names[i]!] = path.slice(marks[2 * i], marks[2 * i + 1]);
  const upstreamPath = below === 0 ? path : below < path.length ? path.slice(below) : "/";
  return { kind: "route", target, params, upstreamPath };
}

/** Where each character of `comparable(path)` stands in the path, which has `%3A` where the other may have `:`; and both ends. */
function spellingOf(compared: string, path: string): Int32Array {
  const places = new Int32Array(compared.length + 1);
  for (let i = 0, at = 0; i < compared.length; i++) {
    at += compared.charCodeAt(i) !== PERCENT && path.charCodeAt(at) === PERCENT ? 3 : 1;
    places[i + 1] = at;
  }
  return places;
}

/** Objects without a prototype worth the name, so that `__proto__` is a name like any other; faster than `Object.create(null)`. */
const Params = function () {} as unknown as { new (): Record<string, string>; prototype: object };
Params.prototype = Object.freeze(Object.create(null) as object);

const NO_PARAMS = Object.freeze(new Params());
const NOTHING = Object.freeze({ kind: "none" });
const PERCENT = 0x25;
const DOT = 0x2e;

/**
 * Notes that a route takes its methods of a pattern, on each of its hosts; gives back the earlier route that already takes one of them.
 * A pattern is mostly one route's alone, so what is kept of it is its routes, and their methods are looked through.
 */
function claim(claims: Map<string, RouteDeclaration[]>, declaration: RouteDeclaration, places: readonly string[], shape: string): RouteDeclaration | null {
  let earlier: RouteDeclaration | null = null;
  for (const place of places) {
    const key = `${place} ${shape}`;
    const taken = claims.get(key);
    if (taken === undefined) {
      claims.set(key, [declaration]);
      continue;
    }
    for (const method of methodsOf(declaration)) earlier ??= takerOf(taken, ALL) ?? (method === ALL ? taken[0] : takerOf(taken, method)) ?? null;
    taken.push(declaration);
  }
  return earlier;
}

const ALL = "*";
const ALL_METHODS = [ALL];

function methodsOf({ route }: RouteDeclaration): readonly string[] {
  return route.methods.length === 0 ? ALL_METHODS : route.methods;
}

function takerOf(taken: readonly RouteDeclaration[], method: string): RouteDeclaration | undefined {
  return taken.find((declaration) => methodsOf(declaration).includes(method));
}

function conflict(later: RouteDeclaration, earlier: RouteDeclaration): string {
  const shared = later.route.methods.filter((method) => earlier.route.methods.length === 0 || earlier.route.methods.includes(method));
  const methods = shared.length > 0 ? shared : earlier.route.methods;
  const where = (of: RouteDeclaration) => `route "${of.route.name}" of service "${of.service.name}"`;
  return (
    `${where(later)} and ${where(earlier)} both match ${methods.length === 0 ? "all methods" : [...new Set(methods)].join(", ")}` +
    ` of "${later.route.path}" below "${later.service.basePath}": give them different paths, methods or hosts`
  );
}

function pushTo<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}
