/**
 * Imports a declarative configuration of Kong (decK's JSON): services with their routes, upstreams and targets.
 *
 * Kong runs one instance of a plugin kind for a request, the most specific one, in the order of fixed priorities. Each
 * route gets the list that it has in Kong; what all lists begin with moves to the service, and what all services begin
 * with to the gateway, so that the order stays.
 */
import { isObject } from "../../json_schema/values.ts";
import {
  unlessEmpty,
  type Draft,
  type DraftPlugin,
  type DraftRoute,
  type DraftService,
  type DraftTarget,
} from "./draft.ts";
import { balancing } from "./kong_balancing.ts";
import { matchOf, whyUnroutable } from "./kong_conditions.ts";
import { readPath, templateOf, type KongPath } from "./kong_paths.ts";
import { groupNames, LABELS, limitOf, type GroupLimit } from "./kong_limits.ts";
import { KongPlugins, OPEN, type Attached } from "./kong_plugins.ts";
import { retries, draftTargetOf, timeouts } from "./kong_services.ts";
import { freeName, type SourceValue } from "./source_value.ts";
import { addMethods, closePrefixes } from "./prefixes.ts";

export function importKong(root: SourceValue, draft: Draft): void {
  new KongReader(root, draft).run();
  root.noteUnread();
}

/** Each is compared with all routes. */
const MAX_EXPRESSIONS = 1000;

const STREAMED = "bodies are always streamed here, unless a plugin reads them";
/** Settings of a route without a counterpart, with Kong's default. */
const OF_ROUTES = {
  regex_priority: [0, "the more specific pattern goes first here"],
  https_redirect_status_code: [426, "requests over HTTP get 404 here: global.https_redirect redirects all of them"],
  request_buffering: [true, STREAMED],
  response_buffering: [true, STREAMED],
} as const;

/** One of our services while its routes are collected. */
interface Bucket {
  readonly service: DraftService;
  readonly lists: DraftPlugin[][];
}

class KongReader {
  readonly #root: SourceValue;
  readonly #draft: Draft;
  readonly #plugins: KongPlugins;
  /** Entities that name their parent, and have found it. */
  readonly #placed = new Set<SourceValue>();
  readonly #buckets: Bucket[] = [];
  /** Of routes with conditions, whose methods and path do not tell them apart. */
  readonly #routeNames = new Map<string, number>();
  /** Names of the cookies of sticky sessions, by base_path. */
  readonly #cookies = new Map<string, Map<string, number>>();
  /** Of the lists at the top: entities by what they refer to. */
  readonly #indexes = new Map<string, Map<unknown, SourceValue[]>>();
  readonly #upstreamsByName: ReadonlyMap<string, SourceValue>;
  readonly #limits: readonly GroupLimit[];
  /** Routes whose last segment may go on in Kong: "/admin" is also "/admin.php". */
  readonly #prefixes = new Set<DraftRoute>();
  #expressions = 0;
  /** Before 3.0 every path with a character of regular expressions is one. */
  readonly #isOld: boolean;

  constructor(root: SourceValue, draft: Draft) {
    this.#root = root;
    this.#draft = draft;
    this.#isOld = Number(root.get("_format_version").value ?? 3) < 3;
    this.#upstreamsByName = new Map(
      root.items("upstreams").map((place) => [place.text("name")?.toLowerCase() ?? "", place]),
    );
    const groups = root.items("consumer_groups").map((group) => group.ignore(...LABELS, "name", "consumers"));
    const all = [
      ...groups.flatMap((group) => group.items("plugins").map((place) => ({ group, place }))),
      ...root
        .items("plugins")
        .map((place) => ({ group: place.get("consumer_group"), place }))
        .filter(({ group }) => group.value !== undefined),
    ];
    this.#limits = all.flatMap(({ group, place }) => limitOf(group, place));
    for (const { place } of this.#limits) this.#placed.add(place);
    const ofGroups = all.map(({ place }) => place).filter((place) => !this.#placed.has(place));
    const consumers = root.items("consumers").map((place) => {
      const of = (list: string) => this.#children(place.ignore(...LABELS, "custom_id"), list, "consumer", "username");
      const isInGroup = Object.keys(Object(place.get("groups").value)).length > 0;
      return {
        place,
        of,
        groups: groupNames(place),
        refusal: refusalOf([...of("plugins"), ...(isInGroup ? ofGroups : [])]),
      };
    });
    this.#plugins = new KongPlugins(draft, consumers, this.#limits);
  }

  run(): void {
    const global = this.#attached(
      this.#root
        .items("plugins")
        .filter((plugin) => !["service", "route", "consumer", "consumer_group"].some((name) => plugin.has(name))),
    );
    for (const service of this.#root.items("services")) this.#service(service.ignore(...LABELS), global);
    for (const list of [
      "routes",
      "plugins",
      "targets",
      "keyauth_credentials",
      "basicauth_credentials",
      "jwt_secrets",
      "acls",
    ]) {
      for (const place of this.#root.items(list)) {
        const isPlaced = this.#placed.has(place) || global.some((each) => each.place === place);
        if (!isPlaced)
          place.leaveOut(
            "is not carried over: it is disabled, belongs to a consumer or group, or to nothing that is here",
          );
      }
    }
    for (const { place, isUsed } of this.#limits) {
      if (!isUsed) place.leaveOut('is not carried over: there is no "rate-limiting-advanced" for all others');
    }
    for (const { service, lists } of this.#buckets) this.#settle(service, lists);
    const callers = this.#plugins.callers();
    if (callers.length > 0) this.#draft.config.callers = callers;
    const start = commonStart(this.#draft.config.services.map(({ plugins }) => plugins ?? []));
    const end = start.findIndex((plugin) => !global.some(({ place }) => place.at === this.#draft.originOf(plugin)));
    const shared = start.slice(0, end < 0 ? start.length : end);
    if (shared.length > 0) this.#draft.config.global = { plugins: shared };
    for (const service of this.#draft.config.services) service.plugins = service.plugins?.slice(shared.length) ?? [];
    this.#noteCounters();
    addMethods(this.#draft);
    this.#draft.closeOverlaps();
    closePrefixes(this.#draft, this.#prefixes);
  }

  /** The entities of a list that are within the parent, or at the top with a reference to it by name or id. */
  #children(parent: SourceValue, list: string, reference: string, name: string): readonly SourceValue[] {
    let index = this.#indexes.get(list + reference);
    if (index === undefined) this.#indexes.set(list + reference, (index = indexOf(this.#root.get(list), reference)));
    const names = new Set([parent.get(name).value, parent.get("id").value].filter((each) => each !== undefined));
    const outside = [...names].flatMap((each) => index.get(each) ?? []);
    for (const place of outside) this.#placed.add(place);
    return [...parent.items(list), ...outside];
  }

  #attached(places: readonly SourceValue[]): Attached[] {
    return places.flatMap((place) => {
      place.ignore(...LABELS, "protocols", "instance_name", "service", "route");
      const kind = place.text("name");
      if (kind === undefined) return (place.note('is no plugin: it needs "name"'), []);
      if (place.flag("enabled") === false) return (place.leaveOut("is disabled, and left out"), []);
      const isForSome = ["consumer", "consumer_group"].some((name) => place.has(name));
      // Those at the top count where the credentials of the consumers are read.
      if (isForSome && place.at[0] !== "plugins" && !OPEN.test(kind))
        return [{ kind: `${kind} of some consumers`, place }];
      if (isForSome) return (place.leaveOut("is not carried over: it is for some consumers only"), []);
      return [{ kind, place }];
    });
  }

  #service(place: SourceValue, global: readonly Attached[]): void {
    if (place.flag("enabled") === false) return place.leaveOut("is disabled, and left out");
    const target = draftTargetOf(place);
    const isLost = typeof target === "string";
    const name = place.text("name") ?? (isLost ? "" : target.host);
    const settings = isLost ? {} : { ...this.#upstreams(place, target), ...timeouts(place), ...retries(place) };
    const own = this.#attached(this.#children(place, "plugins", "service", "name"));
    const routes = this.#children(place, "routes", "service", "name");
    if (isLost) place.leaveOut(`the service is not carried over: ${target}`);
    else if (routes.length === 0) place.note("the service has no routes, and is left out");
    const buckets = new Map<string, Bucket>();
    for (const route of routes) {
      if (!isObject(route.value)) {
        route.note("is no route: expected an object");
        continue;
      }
      route.ignore(...LABELS, "name", "service", "path_handling", ...Object.keys(OF_ROUTES));
      const attached = [...global, ...own, ...this.#attached(this.#children(route, "plugins", "route", "name"))];
      const plugins = this.#plugins.list(attached);
      const uri = attached
        .findLast(({ kind }) => kind === "request-transformer")
        ?.place.get("config")
        .get("replace")
        .get("uri");
      const hosts = route.isTexts("hosts") ? route.texts("hosts").map((host) => host.replace(/:\d+$/, "")) : [];
      const close = (path: string) => this.#draft.leaveGap(route.at, path, hosts, plugins);
      const reason = isLost ? "its service is not" : whyUnroutable(route);
      if (isLost || reason !== undefined) {
        for (const path of Array.isArray(route.get("paths").value) ? route.texts("paths") : ["/"]) close(path);
        route.leaveOut(`the route is not carried over: ${reason}`);
        continue;
      }
      route.noteUnusual(OF_ROUTES);
      for (const path of this.#paths(route, close))
        this.#route({ route, path, uri, plugins, target, name, settings, buckets });
    }
  }

  #route(given: {
    route: SourceValue;
    path: KongPath;
    uri: SourceValue | undefined;
    plugins: DraftPlugin[];
    target: DraftTarget;
    name: string;
    settings: object;
    buckets: Map<string, Bucket>;
  }): void {
    const {
      route,
      path: { pattern, isPrefix, isRegex, isWider, goesOn },
      uri,
      plugins,
      target,
      name,
      settings,
      buckets,
    } = given;
    const isStripped = route.flag("strip_path") ?? true;
    const isRest = pattern.endsWith("*}");
    if (target.path !== "")
      route.noteUnusual({
        path_handling: ["v0", "the paths of the service and of the request are joined with a slash here, as by v0"],
      });
    const template = uri?.text() === undefined ? undefined : templateOf(uri.text()!, pattern);
    if (uri?.value !== undefined && template === undefined)
      uri.note(
        "is not carried over: expected a path whose whole segments are texts or groups of the route's path: " +
          "write upstream_path of the route",
      );
    // Of a stripped path, whose rest belongs to it, nothing is left.
    const asked = template ?? (isStripped && isRest ? target.path || "/" : undefined);
    const base = isStripped && !isRest ? pattern || "/" : "/";
    const hosts = route.texts("hosts");
    const isHostKept = route.flag("preserve_host") === true;
    const prefix = asked === undefined && target.path !== "" ? { upstream_path: target.path } : {};
    const key = JSON.stringify([base, [...hosts].sort(), isHostKept, prefix]);
    let bucket = buckets.get(key);
    if (bucket === undefined) {
      const service: DraftService = {
        name: this.#draft.serviceName(name),
        base_path: base,
        ...prefix,
        hosts: unlessEmpty(hosts),
        ...(isHostKept ? { preserve_host: true } : {}),
        ...settings,
        ...this.#stickyAt(base, settings),
        routes: [],
      };
      bucket = { service: this.#draft.from(route.at, service), lists: [] };
      buckets.set(key, bucket);
      this.#buckets.push(bucket);
      this.#draft.config.services.push(service);
    }
    const methods = route.texts("methods").map((method) => method.toUpperCase());
    const match = matchOf(route);
    if (match !== undefined && route.has("name"))
      route.get("name").note("the names of its routes here end with their path");
    const whole = base === "/" ? pattern : "";
    for (const below of [...(isPrefix ? [`${whole}/{rest*}`] : []), whole || "/"]) {
      const named =
        match === undefined
          ? {}
          : { name: freeName(`${route.text("name") ?? "route"} ${below}`, this.#routeNames), match };
      const made = this.#draft.from(route.at, {
        ...named,
        path: below,
        upstream_path: asked,
        methods: unlessEmpty(methods),
      });
      if (isRegex) this.#draft.isExpression(made, isWider);
      if (goesOn && !below.endsWith("*}")) this.#prefixes.add(made);
      bucket.service.routes.push(made);
      bucket.lists.push(plugins);
    }
    if (isPrefix && pattern !== "")
      this.#draft.notes.add(route.at, "a path matches whole segments here: /a is /a and /a/…, not /ab");
  }

  #paths(route: SourceValue, close: (path: string) => void): KongPath[] {
    const places = route.items("paths");
    const paths = new Map<string, KongPath>();
    for (const place of places) {
      const written = place.text()!;
      const isTooMany = written.startsWith("~") && ++this.#expressions > MAX_EXPRESSIONS;
      const path = isTooMany
        ? `only ${MAX_EXPRESSIONS} regular expressions are: split the file`
        : readPath(written, this.#isOld);
      if (typeof path === "string") {
        close(written);
        place.note(`"${written}" is not carried over: ${path}`);
        continue;
      }
      paths.set(JSON.stringify(path), path);
      if (path.isWider)
        place.note(
          `is "${path.pattern}" here, in which a placeholder is any one segment: ` +
            `the upstream has to refuse what the expression does not match`,
        );
    }
    return places.length === 0
      ? [{ pattern: "", isPrefix: true, isRegex: false, isWider: false, goesOn: false }]
      : [...paths.values()];
  }

  /** With a cookie of its own: in Kong an upstream has one, here each service that uses the upstream. */
  #stickyAt(base: string, settings: { readonly sticky?: { readonly cookie?: string } }): object {
    if (settings.sticky === undefined) return {};
    const taken = this.#cookies.get(base) ?? new Map<string, number>();
    this.#cookies.set(base, taken);
    return { sticky: { cookie: freeName(settings.sticky.cookie ?? "route", taken) } };
  }

  /** Moves to the service what the lists of all its routes begin with. */
  #settle(service: DraftService, lists: readonly DraftPlugin[][]): void {
    const shared = commonStart(lists);
    service.plugins = [...shared];
    service.routes.forEach((route, i) => {
      const own = lists[i]!.slice(shared.length);
      if (own.length > 0) route.plugins = own;
    });
  }

  /** The targets of the upstream that the service names as its host, or that host itself. */
  #upstreams(place: SourceValue, target: DraftTarget): Record<string, unknown> {
    const written = place.text("protocol");
    const protocol = written === "grpc" ? "h2c" : written === "grpcs" ? "h2" : target.protocol;
    if (place.items("ca_certificates").length + Number(place.has("client_certificate")) > 0)
      place.note('certificates towards upstreams are files here: name them in "tls"');
    if (target.protocol === "https" && !place.has("tls_verify"))
      place.note("certificates of upstreams are verified here, unless tls.verify is false");
    const tls = target.protocol === "https" && place.flag("tls_verify") === false ? { tls: { verify: false } } : {};
    const group = this.#upstreamsByName.get(target.host);
    if (Object.keys(Object(group?.get("healthchecks").value)).length > 0)
      group!.get("healthchecks").leaveOut('health checks are not carried over: write "health" of the service');
    const targets = group === undefined ? [] : this.#children(group, "targets", "upstream", "name");
    if (group === undefined || targets.length === 0)
      return { protocol, upstreams: [{ host: target.host, port: target.port }], ...tls };
    const weights = targets.map((each) => each.ignore(...LABELS).number("weight") ?? 100);
    const isWeighted = new Set(weights).size > 1;
    const spares = targets.map((each) => each.flag("failover") === true);
    const hasPrimary = spares.includes(false);
    if (!hasPrimary) place.note('all targets are "failover" ones, and get requests as others do here');
    const upstreams = targets.map((each, i) => {
      const [, host, port] = /^\[?(.*?)\]?(?::(\d+))?$/.exec(each.ignore("upstream").text("target") ?? "")!;
      const backup = hasPrimary && spares[i] === true ? true : undefined;
      return { host, port: Number(port ?? 8000), weight: isWeighted ? weights[i] : undefined, backup };
    });
    return { protocol, ...balancing(group, isWeighted), upstreams, ...tls };
  }

  /** A limit that several services or routes have got counts for each of them. */
  #noteCounters(): void {
    const seen = new Set<DraftPlugin>();
    const lists = this.#draft.config.services.flatMap(({ plugins = [], routes }) => [
      plugins,
      ...routes.map((route) => route.plugins ?? []),
    ]);
    for (const plugin of lists.flat()) {
      if (plugin.name === "rate_limit" && seen.has(plugin))
        this.#draft.notes.add(
          this.#draft.originOf(plugin)!,
          "counts separately for each service or route that it is written at",
        );
      seen.add(plugin);
    }
  }
}

/** The entities of a list by the name or id that they refer to. */
function indexOf(list: SourceValue, reference: string): Map<unknown, SourceValue[]> {
  const index = new Map<unknown, SourceValue[]>();
  for (const place of list.items()) {
    const given = place.get(reference);
    const names =
      typeof given.value === "object"
        ? ["name", "id", "username"].map((field) => given.get(field).value)
        : [given.value];
    for (const name of new Set(names)) {
      if (!index.has(name)) index.set(name, []);
      index.get(name)!.push(place);
    }
  }
  return index;
}

/** The kind of a plugin of a consumer or its groups that may refuse it. */
function refusalOf(plugins: readonly SourceValue[]): string | undefined {
  for (const plugin of plugins) plugin.leaveOut("is not carried over: it is for some consumers only");
  return plugins
    .filter((plugin) => plugin.flag("enabled") !== false)
    .map((plugin) => plugin.text("name") ?? "")
    .find((kind) => !OPEN.test(kind));
}

function commonStart(lists: readonly (readonly DraftPlugin[])[]): DraftPlugin[] {
  const [first = [], ...others] = lists;
  const end = first.findIndex((plugin, i) => others.some((list) => list[i] !== plugin));
  return first.slice(0, end < 0 ? first.length : end);
}
