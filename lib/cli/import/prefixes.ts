/**
 * Makes the routes of a draft answer as those of a source where a path is a prefix: one that does not accept a method
 * leaves it to a shorter one, and "/admin" is also "/admin.php".
 */
import { formatPath } from "../../config/json.ts";
import { headsOf, joined, meet, DISCARDED, overlap, type Draft, type DraftRoute, type DraftService } from "./draft.ts";

/** Those of a route that names none; others are rare. */
export const ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const REST = "/{rest*}";

interface Receiver {
  readonly hosts: readonly string[];
  readonly route: DraftRoute;
  /** Of its path. */
  readonly segments: readonly string[];
}

interface Found {
  readonly service: DraftService;
  readonly route: DraftRoute;
  /** Of service and route. */
  readonly path: string;
}

/** Here the longest path alone decides: it gets routes for the methods that a shorter one accepts. */
export function addMethods(draft: Draft): void {
  const all = [...draft.routes()].map(([service, route]) => ({ service, route, path: pathOf(service, route) }));
  /** By place: of all routes, and of those without conditions. */
  const taken = new Map(all.map((found) => [placeOf(found), new Set<string>()]));
  const plain = new Map(all.map((found) => [placeOf(found), new Set<string>()]));
  for (const found of all) {
    for (const method of found.route.methods ?? []) {
      taken.get(placeOf(found))!.add(method);
      if (found.route.match === undefined) plain.get(placeOf(found))!.add(method);
    }
  }
  for (const found of all.filter(({ route }) => route.methods === undefined && route.match === undefined)) {
    const others = plain.get(placeOf(found))!;
    const left = ALL_METHODS.filter((method) => !others.has(method));
    if (others.size > 0 && left.length > 0) found.route.methods = left;
    for (const method of left) taken.get(placeOf(found))!.add(method);
  }
  const isWide = ({ path }: Found) => path.endsWith(REST);
  const onHosts = all.filter(isWide).flatMap((found) => namesOf(found.service).map((host) => ({ host, found })));
  const wide = grouped(onHosts, ({ host, found: { path } }) => `${host} ${path.slice(0, -REST.length)}`);
  for (const found of all)
    if (found.route.methods !== undefined) addOthers(draft, found, wide, taken.get(placeOf(found))!);
}

function addOthers(
  draft: Draft,
  { service, route: longer, path }: Found,
  wide: ReadonlyMap<string, readonly { readonly found: Found }[]>,
  taken: Set<string>,
): void {
  const heads = headsOf(path).filter((head) => head !== path && head + REST !== path);
  const hosts = hostsOf(service);
  const names = [...new Set(namesOf(service).flatMap(coveringNames))];
  const keys = heads.reverse().flatMap((head) => names.map((name) => `${name} ${head}`));
  const shorter = [...new Set(keys.flatMap((key) => wide.get(key) ?? []).map(({ found }) => found))];
  // Those of its own hosts first: methods that get a route need no note.
  const isOther = (found: Found) => Number(hostsOf(found.service) !== hosts);
  for (const { service: other, route } of shorter.sort((a, b) => isOther(a) - isOther(b))) {
    const methods = (route.methods ?? ALL_METHODS).filter((method) => !taken.has(method));
    if (methods.length === 0) continue;
    const base = other.base_path.replace(/\/$/, "");
    const isSame = hosts === hostsOf(other) && route.upstream_path === undefined && route.match === undefined;
    if (!isSame || !path.startsWith(`${base}/`)) {
      const at = formatPath(draft.originOf(route)!);
      draft.notes.add(
        draft.originOf(longer)!,
        `${methods.join(", ")} get 405 here, and do not reach the shorter path of ${at}: add a route for them ` +
          `with this path and these hosts, and with the upstreams and plugins of that one`,
      );
      continue;
    }
    for (const method of methods) taken.add(method);
    const plugins = route.plugins && [...route.plugins];
    other.routes.push(draft.from(draft.originOf(route)!, { path: path.slice(base.length), methods, plugins }));
  }
}

/**
 * Closes the routes that would get "/admin.php" of a route "/admin" without its guards, at the same upstream. At
 * another one it is nothing that the source would have guarded: noted.
 */
export function closePrefixes(draft: Draft, prefixes: ReadonlySet<DraftRoute>): void {
  const all = [...draft.routes()].map(([service, route, plugins]) => ({
    hosts: service.hosts ?? [],
    upstreams: upstreamsOf(service),
    route,
    guards: draft.guardsIn(plugins),
    isClosed: plugins.some(({ name }) => name === "request_termination"),
    segments: pathOf(service, route).split("/").slice(1),
  }));
  const open = grouped(all, ({ segments }) => fixedStart(segments));
  // Those that are closed, too: the source has a guard there.
  const isGuarded = ({ route, guards }: (typeof all)[number]) => guards.length > 0 && !draft.overlapping.has(route);
  for (const own of all.filter((each) => prefixes.has(each.route) && isGuarded(each))) {
    const before = own.segments.slice(0, -1);
    const longer = [
      [...before, "{x}"],
      [...before, "{x}", "{rest*}"],
    ];
    const groups = headsOf(fixedStart(before)).map((head) => open.get(head) ?? []);
    // A shorter path gets nothing of what a longer one takes as a whole.
    const end = groups.findLastIndex((group) => group.some((other) => isWhole(other, own)));
    for (const other of groups.slice(Math.max(end, 0)).flat()) {
      if (other.isClosed || own.guards.every((guard) => other.guards.includes(guard))) continue;
      const segment = other.segments[before.length] ?? other.segments.at(-1) ?? "";
      const isReached = segment.startsWith("{") && longer.some((path) => overlap(path, other.segments));
      if (!isReached || !(other.hosts.length === 0 || meet(own.hosts, other.hosts))) continue;
      const what = `requests such as "/${own.segments.join("/")}.php" of ${formatPath(draft.originOf(own.route)!)}`;
      const why = "which has other guards, since a path matches whole segments here";
      if (own.upstreams.some((upstream) => other.upstreams.includes(upstream))) {
        other.isClosed = true;
        draft.close(other.route, `would get ${what}, ${why}`);
      } else draft.notes.add(draft.originOf(other.route)!, `gets ${what}, ${why}: its upstream is another one`);
    }
  }
}

/** Whether the first route takes all requests that begin as its path does, of the hosts of the second. */
function isWhole(one: Receiver, other: Receiver): boolean {
  const { route, hosts, segments } = one;
  const isEverything = segments.at(-1) === "{rest*}" && route.methods === undefined && route.match === undefined;
  return isEverything && String(hosts) === String(other.hosts) && one.segments.length <= other.segments.length;
}

function grouped<T>(list: readonly T[], keyOf: (item: T) => string): ReadonlyMap<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of list) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}

/** "/a/b" of /a/b/{id}/c. */
function fixedStart(segments: readonly string[]): string {
  const end = segments.findIndex((segment) => segment.startsWith("{") || segment === "");
  return segments
    .slice(0, end < 0 ? segments.length : end)
    .map((segment) => `/${segment}`)
    .join("");
}

/** Without a slash at its end: a service at /a has its route / at /a. */
function pathOf(service: DraftService, route: DraftRoute): string {
  return joined(service, route).replace(/\/$/, "");
}

/** Routes of one place differ by their methods only. */
function placeOf({ service, path }: Found): string {
  return `${hostsOf(service)} ${path.replace(/\{[^{}*]*/g, "{")}`;
}

function hostsOf({ hosts = [] }: DraftService): string {
  return [...hosts]
    .map((host) => host.toLowerCase())
    .sort()
    .join();
}

/** "": all hosts. */
function namesOf({ hosts = [] }: DraftService): string[] {
  return hosts.length === 0 ? [""] : hosts.map((host) => host.toLowerCase());
}

/** The name, the wildcards that cover it, the longest first, and "". */
export function coveringNames(name: string): string[] {
  const labels = name.replace(/^\*\./, "").split(".");
  return [name, ...labels.slice(1).map((_label, i) => `*.${labels.slice(i + 1).join(".")}`), ""];
}

function upstreamsOf({ upstreams }: DraftService): string[] {
  return (upstreams as readonly { readonly host: string; readonly port: number }[])
    .filter(({ host, port }) => host !== DISCARDED.host || port !== DISCARDED.port)
    .map(({ host, port }) => `${host}:${port}`);
}
