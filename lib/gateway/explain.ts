/**
 * Explains how a request would be handled: its route or why it has none, its plugins in their order, and the upstreams that could get it.
 * The answer comes from the data path itself (`serve.ts`), run with a handler that sends nothing; only the sentences are written here.
 */
import { METHODS } from "node:http";
import { suggest } from "../base/suggest.ts";
import type { Json } from "../config/json.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import type { Reply } from "../http/reply.ts";
import { RouteMeter } from "../observe/metrics.ts";
import { runningOrder } from "../plugins/plugin.ts";
import { ENCODED_SLASH, readTarget, type Target } from "../route/path.ts";
import { compileTable, type Candidate, type Found } from "../route/table.ts";
import type { Refusal } from "../server/framing.ts";
import { refuseFramingOf, refuseSize, UNKNOWN_EXPECTATION, type Inbound, type ReceiveOptions } from "../server/receive.ts";
import type { UpstreamSet, UpstreamSetReport, UpstreamReport } from "../upstream/upstream_set.ts";
import type { Configuration } from "./configuration.ts";
import type { DisplayedConfig, DisplayedPlugin, DisplayedRoute, DisplayedService } from "./displayed_config.ts";
import { injected } from "./inject.ts";
import type { ReportSource } from "./reports.ts";
import { serve, type ServeTools } from "./serve.ts";
import type { RouteTarget, Snapshot } from "./snapshot.ts";

/** A request that is not sent. */
export interface Question {
  readonly method: string;
  /** "/shop/items?x=1", or an absolute http(s) URL. */
  readonly url: string;
  /** Without `Host` and with a `url` that names none, the host is "localhost". */
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Explanation {
  readonly outcome: "matched" | "refused";
  /** The status over HTTP/1.1 of a request that is refused before any plugin: 400, 404, 405, 413, 414, 417 or 431. */
  readonly status: number | null;
  readonly code: string | null;
  /** Sentences on why this route matches, or why none does. */
  readonly reasons: readonly string[];
  /** Normalised; null when the path is refused. */
  readonly path: string | null;
  readonly service: string | null;
  readonly route: string | null;
  /** base_path and path together. */
  readonly pattern: string | null;
  readonly params: Readonly<Record<string, string>>;
  /** Path and query as the upstream gets them, unless a plugin changes them. */
  readonly forwarded: string | null;
  /** In the order in which they run; `config` as it is displayed. */
  readonly plugins: readonly ExplainedPlugin[];
  readonly strategy: string | null;
  readonly upstreams: readonly (UpstreamReport & { /** Of the requests, 0 to 1, as things stand. */ readonly share: number })[];
}

export interface ExplainedPlugin {
  readonly level: "global" | "service" | "route";
  readonly name: string;
  readonly id: string | null;
  readonly config: DisplayedPlugin["config"];
}

/** A snapshot, in force or not, and the parts of a gateway that it is explained with. */
type ExplainSource = ServeTools & Pick<ReportSource, "runtime"> & { readonly configuration: Pick<Configuration, "snapshot" | "receiving"> };

/** `displayed` is the configuration of the snapshot, with secrets masked or not. */
export function explain(question: Question, displayed: Json, source: ExplainSource): Explanation {
  const { method, url } = question;
  const { snapshot, receiving } = source.configuration;
  const inbound = received(question, receiving);
  const target = readTarget(url);
  const shown = displayed as unknown as DisplayedConfig;
  const asked = "code" in target ? null : { inbound, target, authority: target.authority ?? inbound.authority, table: snapshot.table, shown };
  const { reply, found } = walk(inbound, snapshot, source);
  if (asked === null || found?.kind !== "route") {
    const { code, detail } = problemOf(reply);
    const reasons = [detail, ...(asked === null || found === null ? [] : [...whyNone(found, asked), ...ofMethod(method)])];
    return { ...NOTHING, outcome: "refused", status: reply.status, code, reasons, path: asked === null ? null : asked.target.path };
  }
  const { path, query } = asked.target;
  const place = placesOf(shown).find((each) => isAt(found.target, each))!;
  const { service, route } = place;
  const upstreams = source.runtime.upstreamSets.find((each) => each.service === service.name);
  const unserved = upstreams === undefined ? [] : whyUnserved(upstreams.report);
  return {
    outcome: "matched",
    status: null,
    code: null,
    reasons: [...whyThis(place, asked), ...unserved, ...ofMethod(method)],
    path,
    service: service.name,
    route: route.name,
    pattern: patternOf(service, route),
    params: { ...found.params },
    forwarded: found.upstreamPath + query,
    plugins: pluginsOf({ global: shown.global, service, route }, snapshot.kinds),
    strategy: service.load_balancing_strategy,
    upstreams: upstreams === undefined ? [] : withShares(upstreams),
  };
}

/**
 * Receives the question like a request from the network, except for the body, of which a question has only the length. Also refuses
 * questions that the parser of a listener would refuse.
 */
function received({ method, url, headers = {} }: Question, receiving: ReceiveOptions): Inbound {
  const framing = Object.entries(headers).filter(([name]) => FRAMING.test(name)).flat();
  const inbound = injected({ method, path: url, headers: Object.entries(headers).filter(([name]) => !FRAMING.test(name)).flat() }, receiving);
  const all = [...inbound.headers, ...framing];
  const refusal = refuseBytes(url, all, receiving) ?? inbound.refusal ?? refuseLength(all) ?? refuseFramingOf(all) ?? refuseSize(url, all, receiving.limits);
  return { ...inbound, refusal: refusal ?? (CONTINUE.test(headerValue(all, "expect") ?? "100-continue") ? null : UNKNOWN_EXPECTATION) };
}

const FRAMING = /^(?:content-length|transfer-encoding)$/i;
/** The same test as node's. */
const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

/** Counts as node does: the target, and names and values of headers, without separators. */
function refuseBytes(url: string, headers: HeaderList, { limits: { maxHeaderBytes, maxUriBytes } }: ReceiveOptions): Refusal | null {
  if (url.length > maxUriBytes || headers.reduce((sum, text) => sum + text.length, url.length) < maxHeaderBytes) return null;
  return { code: "headers_too_large", detail: `The request line and header fields may have at most ${maxHeaderBytes} bytes together.` };
}

function refuseLength(headers: HeaderList): Refusal | null {
  const isLength = /^\d+$/.test(headerValue(headers, "content-length") ?? "0");
  return isLength ? null : { code: "bad_request", detail: "The Content-Length is not a number." };
}

/** A method that listeners refuse: node's HTTP/1 parser has a fixed list. */
function ofMethod(method: string): string[] {
  return METHODS.includes(method) ? [] : [`That is over HTTP/2: HTTP/1.1 has no method ${method} here, and answers 400.`];
}

interface Asked {
  readonly inbound: Inbound;
  readonly target: Target;
  readonly authority: string;
  readonly table: Snapshot["table"];
  readonly shown: DisplayedConfig;
}

const NOTHING = { service: null, route: null, pattern: null, params: {}, forwarded: null, plugins: [], strategy: null, upstreams: [] } as const;

/** Runs the data path with a handler that does nothing. `found` is the answer of the route table; null: the table was not asked. */
function walk(inbound: Inbound, snapshot: Snapshot, tools: ServeTools): { readonly reply: Reply; readonly found: Found<RouteTarget> | null } {
  let last: Found<RouteTarget> | null = null;
  const handler = (): Reply => ({ status: 200, headers: [], body: null });
  const table: Snapshot["table"] = {
    ...snapshot.table,
    find(...request) {
      const found = (last = snapshot.table.find(...request));
      return found.kind === "route" ? { ...found, target: { ...found.target, handler, meter: new RouteMeter() } } : found;
    },
  };
  const reply = serve(inbound, { ...snapshot, table }, tools);
  inbound.call.close();
  if (reply instanceof Promise) throw new Error("the data path returned a promise for a handler without one");
  return { reply, found: last };
}

function problemOf({ body }: Reply): { readonly code: string; readonly detail: string } {
  const { code, detail, title } = JSON.parse(String(body)) as { code: string; detail?: string; title: string };
  return { code, detail: detail ?? `${title}.` };
}

/** A route as it is displayed. */
interface Place {
  readonly service: DisplayedService;
  readonly route: DisplayedRoute;
}

/** A route whose pattern matches the path. */
type Match = Place & Pick<Candidate<RouteTarget>, "host" | "takes">;

/** The routes whose patterns match the path, in the order of the configuration. */
function matches({ target: { path }, authority, table, shown }: Asked, hosts: "its host" | "any host" = "its host"): Match[] {
  const candidates = table.candidates(hosts === "any host" ? null : authority, path);
  return placesOf(shown).flatMap((place) => {
    const candidate = candidates.find(({ target }) => isAt(target, place));
    return candidate === undefined ? [] : [{ ...place, host: candidate.host, takes: candidate.takes }];
  });
}

function placesOf({ services }: DisplayedConfig): Place[] {
  return services.flatMap((service) => service.routes.map((route) => ({ service, route })));
}

function isAt(target: RouteTarget, { service, route }: Place): boolean {
  return target.service.name === service.name && target.route.name === route.name;
}

/** The rest is only counted. */
const MOST_NAMED = 5;
/** Bounds the search for similar names: the work for each grows with the square of its length. */
const MOST_COMPARED = 500;

function whyThis({ service, route }: Place, asked: Asked): string[] {
  const { path, authority } = asked.target;
  const { method, target } = asked.inbound;
  const reasons = [`${path} matches service "${service.name}" (base_path ${service.base_path}), route "${route.name}" (${route.path}).`];
  if (path !== target.replace(/\?.*$/s, "") && authority === null) {
    reasons.push(`The path is matched and forwarded in its normal form, ${path}.`);
  }
  const hosts = hostsOf(service).join(", ");
  if (hosts !== "") reasons.push(`The service is for the hosts ${hosts}: it comes before services for all hosts.`);
  const methods = methodsOf(route);
  if (methods.length > 0 && !methods.includes(method)) {
    const preflight = `The preflight is for a method that the route accepts: ${methods.join(", ")}.`;
    reasons.push(method === "HEAD" ? "A route that accepts GET also accepts HEAD." : preflight);
  }
  const all = matches(asked);
  const winner = all.find((place) => place.route === route)!;
  const losers = all.filter((place) => place !== winner && place.takes(wantedMethod(asked.inbound)));
  for (const place of losers.slice(0, MOST_NAMED)) reasons.push(`${nameOf(place)} matches as well, but is less specific: ${whyBehind(place, winner)}.`);
  if (losers.length > MOST_NAMED) reasons.push(`${losers.length - MOST_NAMED} more routes match as well, and are less specific.`);
  if (losers.length === 0) reasons.push("No other route matches it: a literal segment would come before {name}, and {name} before {name*}.");
  return reasons;
}

function whyBehind({ host }: Match, winner: Match): string {
  if (host === winner.host) return "a literal segment comes before {name}, {name} before {name*}, and at a tie the longer base_path first";
  return host === "" ? "services for certain hosts come first" : "an exact host comes before a host with *., and a longer host with *. before a shorter one";
}

function whyUnserved({ circuitBreaker, upstreams }: UpstreamSetReport): string[] {
  const reasons: string[] = [];
  if (circuitBreaker?.state === "open") reasons.push("The circuit of the service is open: what the plugins let pass gets 503 until it tries again.");
  if (!upstreams.some(({ usable }) => usable)) reasons.push("No upstream of the service can be used: what the plugins let pass gets 503.");
  return reasons;
}

function whyNone(found: Found<RouteTarget>, asked: Asked): string[] {
  if (found.kind === "method" || found.kind === "refused") return whyRefused(found, asked);
  const { target: { path }, shown } = asked;
  const elsewhere = matches(asked, "any host");
  if (elsewhere.length > 0) {
    const only = (place: Place) => `${nameOf(place)} matches the path, but is for the hosts ${hostsOf(place.service).join(", ")} only.`;
    return elsewhere.slice(0, MOST_NAMED).map(only);
  }
  const near = servicesAbove(asked);
  if (near.length === 0) return shown.services.length === 0 ? ["The configuration has no services."] : [noBase(path, shown)];
  return near.slice(0, MOST_NAMED).map((service) => noRoute(service, path));
}

/** The routes that refuse, and the less specific routes that would get the request. */
function whyRefused(found: Extract<Found<RouteTarget>, { routes: unknown }>, asked: Asked): string[] {
  const decides = (place: Place) => found.routes.some((target) => isAt(target, place));
  const places = matches(asked);
  const reasons = placesOf(asked.shown).filter(decides).slice(0, MOST_NAMED).map((place) => {
    if (found.kind === "method") return otherMethods(place, asked.inbound.method);
    if (found.refusal === ENCODED_SLASH) {
      const fits = places.some(({ route }) => route === place.route) ? "matches the path, but" : "would match the path with “/” for %2F, and";
      return `${nameOf(place)} ${fits} its service does not allow %2F ("encoded_slashes").`;
    }
    return `${nameOf(place)} would match the path without its parameters after “;”, and its service does not allow such paths on other routes ("path_parameters").`;
  });
  const others = places.filter((place) => !decides(place) && place.takes(wantedMethod(asked.inbound)));
  for (const place of others.slice(0, MOST_NAMED)) reasons.push(`${nameOf(place)} would accept it, but is less specific: host and path alone decide.`);
  return reasons;
}

function otherMethods(place: Place, method: string): string {
  const methods = methodsOf(place.route);
  const meant = methods.includes(method.toUpperCase()) ? ` Upper and lower case are not the same in methods: write ${method.toUpperCase()}.` : "";
  return `${nameOf(place)} matches the path, but accepts ${methods.length === 1 ? "only " : ""}${methods.join(", ")}.${meant}`;
}

/** The services whose base_path the path begins with, whatever their routes. */
function servicesAbove({ target: { path }, authority, shown: { services } }: Asked): DisplayedService[] {
  const anything = (service: DisplayedService, below: string) => {
    const rules = { methods: [], encodedSlashes: true, pathParameters: true };
    return { basePath: service.base_path, hosts: hostsOf(service), path: below, target: service, ...rules };
  };
  const table = compileTable(services.flatMap((service) => [anything(service, "/"), anything(service, "/{edge_gateway_rest*}")]));
  const found = new Set(table.candidates(authority, path).map(({ target }) => target));
  return services.filter((service) => found.has(service));
}

function noBase(path: string, { services }: DisplayedConfig): string {
  const bases = [...new Set(services.map(({ base_path }) => base_path))];
  const meant = suggest(path.split("/", 2)[1]!, bases.slice(0, MOST_COMPARED).map((base) => base.split("/")[1] ?? ""));
  const nearest = bases.find((base) => base.split("/")[1] === meant);
  return `${path} begins with the base_path of no service: there are ${some(bases)}.${didYouMean(nearest)}`;
}

function noRoute(service: DisplayedService, path: string): string {
  const patterns = [...new Set(service.routes.map((route) => patternOf(service, route)))];
  if (patterns.length === 0) return `Service "${service.name}" (base_path ${service.base_path}) has no routes.`;
  const place = `${path} begins as base_path ${service.base_path} of service "${service.name}" does`;
  return `${place}, but matches none of its routes as a whole: ${some(patterns)}.${didYouMean(suggest(path, patterns.slice(0, MOST_COMPARED)))}`;
}

function some(names: readonly string[]): string {
  return names.slice(0, MOST_NAMED).join(", ") + (names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : "");
}

function didYouMean(name: string | undefined): string {
  return name === undefined ? "" : ` Did you mean ${name}?`;
}

/** A preflight is matched by the method that it asks about if a plugin handles preflights; to name routes, that is assumed. */
function wantedMethod({ method, headers }: Inbound): string {
  return method === "OPTIONS" ? (headerValue(headers, "access-control-request-method") ?? method) : method;
}

function pluginsOf(levels: Readonly<Record<ExplainedPlugin["level"], { readonly plugins: readonly DisplayedPlugin[] }>>, kinds: Snapshot["kinds"]): ExplainedPlugin[] {
  const written = LEVELS.flatMap((level) =>
    levels[level].plugins.filter(({ enabled }) => enabled).map((plugin) => ({ level, plugin, kind: kinds.find(({ name }) => name === plugin.name)! })),
  );
  return runningOrder(written).map(({ level, plugin: { name, id, config } }) => ({ level, name, id: id ?? null, config }));
}

const LEVELS = ["global", "service", "route"] as const;

function withShares(upstreamSet: UpstreamSet): Explanation["upstreams"] {
  const { upstreams, circuitBreaker } = upstreamSet.report;
  const isOpen = circuitBreaker?.state === "open";
  const weights = upstreams.map(({ usable }, i) => (usable && !isOpen ? upstreamSet.peers[i]!.weightNow : 0));
  const sum = weights.reduce((all, weight) => all + weight, 0);
  return upstreams.map((upstream, i) => ({ ...upstream, share: sum === 0 ? 0 : weights[i]! / sum }));
}

function nameOf({ service, route }: Place): string {
  return `Route "${route.name}" of service "${service.name}" (${patternOf(service, route)})`;
}

function patternOf({ base_path: base }: DisplayedService, { path }: DisplayedRoute): string {
  const whole = withoutFinalSlash(base) + withoutFinalSlash(path);
  return whole === "" ? "/" : whole;
}

function withoutFinalSlash(path: string): string {
  return path.endsWith("/") ? path.slice(0, -1) : path;
}

function hostsOf({ hosts }: DisplayedService): readonly string[] {
  return hosts ?? [];
}

function methodsOf({ methods }: DisplayedRoute): readonly string[] {
  return methods ?? [];
}
