/**
 * Explains why a request takes one route and not another: each route whose pattern matches its path, or nearly, and why
 * it gets the request or does not.
 */
import { suggest } from "../base/suggest.ts";
import { conditionTests } from "../http/conditions.ts";
import { headersAskedFor, headerValue } from "../http/headers.ts";
import { namesOf, placesOf } from "../route/conditions.ts";
import { ENCODED_SLASH, type Target } from "../route/path.ts";
import { candidatesOf, type RouteCandidate } from "../route/candidates.ts";
import { compileTable, type Found, type RouteTable } from "../route/table.ts";
import type { Inbound } from "../server/inbound.ts";
import type { DisplayedConfig, DisplayedRoute, DisplayedService } from "../gateway/displayed_config.ts";
import type { RouteTarget } from "../gateway/snapshot.ts";

/** A request and the routes among which one was looked for. */
export interface Asked {
  readonly inbound: Inbound;
  readonly target: Target;
  readonly authority: string;
  readonly table: RouteTable<RouteTarget>;
  readonly shown: DisplayedConfig;
}

export interface ExplainedCandidate {
  readonly service: string;
  readonly route: string;
  /** With the route as the subject: "takes the request", "matches the path, but accepts only POST". */
  readonly verdict: string;
}

/** A route as it is displayed. */
export interface ShownRoute {
  readonly service: DisplayedService;
  readonly route: DisplayedRoute;
}

/** A route whose pattern matches the path. */
type Match = ShownRoute & Pick<RouteCandidate<RouteTarget>, "host" | "takes" | "match">;

/** The rest is only counted. */
const MAX_NAMED = 5;
const MAX_CANDIDATES = 100;
/** Bounds the search for similar names: the work for each grows with the square of its length. */
const MAX_COMPARED = 500;

/**
 * `found` is the answer of the route table. Gives the route of the request, or null, sentences, and at most 100
 * candidates: the routes whose patterns match the path, the most specific first; then some that nearly match.
 */
export function explainRoute(found: Found<RouteTarget>, asked: Asked) {
  const {
    table,
    authority,
    target: { path },
    shown,
  } = asked;
  const places = placesIn(shown);
  const placeOf = (target: RouteTarget) => places.get(keyOf(target.service.name, target.route.name))!;
  const matches = (host: string | null): Match[] =>
    candidatesOf(table, host, path).map(({ target, ...others }) => ({ ...placeOf(target), ...others }));
  const fits = matches(authority);
  const isFit = new Set(fits.map(({ route }) => route));
  const elsewhere = matches(null)
    .filter(({ route }) => !isFit.has(route))
    .slice(0, MAX_NAMED);
  const known: Known = {
    found,
    asked,
    fits,
    isFit,
    winner: found.kind === "route" ? fits.find(({ route }) => route === placeOf(found.target).route)! : null,
    deciding: found.kind === "none" || found.kind === "route" ? [] : found.routes.map(placeOf),
  };
  const above = found.kind === "none" && elsewhere.length === 0 ? servicesAbove(asked) : [];
  const near = above.flatMap((service) => service.routes.map((route) => ({ service, route })));
  const candidates = [
    // The work for each grows with their number.
    ...fits.slice(0, MAX_CANDIDATES).map((place) => said(place, verdictOf(place, known))),
    ...known.deciding
      .filter(({ route }) => !isFit.has(route))
      .slice(0, MAX_CANDIDATES)
      .map((place) => said(place, whyNot(place, known))),
    ...elsewhere.map((place) => said(place, otherHosts(place))),
    ...near.slice(0, MAX_NAMED).map((place) => said(place, `has another path: ${patternOf(place)}`)),
  ];
  const reasons =
    known.winner !== null
      ? whyThis(known.winner, known)
      : found.kind === "none"
        ? whyNone(elsewhere, above, asked)
        : whyRefused(known);
  return { place: known.winner, reasons, candidates: candidates.slice(0, MAX_CANDIDATES) };
}

interface Known {
  readonly found: Found<RouteTarget>;
  readonly asked: Asked;
  readonly fits: readonly Match[];
  readonly isFit: ReadonlySet<DisplayedRoute>;
  readonly winner: Match | null;
  /** The routes because of which the request is refused. */
  readonly deciding: readonly ShownRoute[];
}

const knownPlaces = new WeakMap<DisplayedConfig, ReadonlyMap<string, ShownRoute>>();

/** By `keyOf`. Made once: with 10,000 routes it takes 3 ms. */
function placesIn(shown: DisplayedConfig): ReadonlyMap<string, ShownRoute> {
  const places =
    knownPlaces.get(shown) ??
    new Map(
      shown.services.flatMap((service) =>
        service.routes.map((route) => [keyOf(service.name, route.name), { service, route }] as const),
      ),
    );
  knownPlaces.set(shown, places);
  return places;
}

/** Names have no control characters. */
function keyOf(service: string, route: string): string {
  return `${service}\0${route}`;
}

function said({ service, route }: ShownRoute, verdict: string): ExplainedCandidate {
  return { service: service.name, route: route.name, verdict };
}

function sentence(place: ShownRoute, verdict: string): string {
  return `${nameOf(place)} ${verdict}.`;
}

/** Of a route whose pattern matches the path. */
function verdictOf(place: Match, known: Known): string {
  const { winner, deciding, asked } = known;
  if (place === winner) return "takes the request";
  if (deciding.some(({ route }) => route === place.route)) return whyNot(place, known);
  if (!place.takes(wantedMethod(asked.inbound))) return otherMethods(place, asked.inbound.method);
  const unmet = otherConditions(place, known);
  if (unmet !== null) return unmet;
  if (winner === null) return "would accept it, but is less specific: host and path alone decide";
  return (
    `matches as well, but is less specific than route "${winner.route.name}" of service "${winner.service.name}": ` +
    `${whyBehind(place, winner)}`
  );
}

function whyBehind({ host, match }: Match, winner: Match): string {
  const conditions = (match ?? winner.match) === undefined ? "" : ", then more conditions";
  if (host === winner.host)
    return (
      `a literal segment comes before {name}, {name} before {name*}, ` +
      `and at a tie the longer base_path first${conditions}`
    );
  return host === ""
    ? "services for certain hosts come first"
    : "an exact host comes before a host with *., and a longer host with *. before a shorter one";
}

/** Of a route because of which the request is refused. */
function whyNot(place: ShownRoute, known: Known): string {
  const { found, asked, isFit } = known;
  if (found.kind === "conditions") return otherConditions(place, known)!;
  if (found.kind !== "refused") return otherMethods(place, asked.inbound.method);
  if (found.refusal === ENCODED_SLASH) {
    const fits = isFit.has(place.route) ? "matches the path, but" : "would match the path with “/” for %2F, and";
    return `${fits} its service does not allow %2F ("encoded_slashes")`;
  }
  return (
    "would match the path without its parameters after “;”, " +
    'and its service does not allow such paths on other routes ("path_parameters")'
  );
}

function otherMethods({ route }: ShownRoute, method: string): string {
  const { methods = [] } = route;
  const meant = methods.includes(method.toUpperCase())
    ? `. Upper and lower case are not the same in methods: write ${method.toUpperCase()}`
    : "";
  return `matches the path, but accepts ${methods.length === 1 ? "only " : ""}${methods.join(", ")}${meant}`;
}

/**
 * Names the conditions that do not hold for the request, without their values, which may be secret; null if all hold.
 */
function otherConditions(place: ShownRoute, { fits, found, asked: { inbound, target } }: Known): string | null {
  const match = fits.find(({ route }) => route === place.route)?.match;
  const isPreflight =
    inbound.method !== wantedMethod(inbound) && found.kind === "route" && found.target.takesPreflights;
  const headers = isPreflight ? headersAskedFor(inbound.headers) : inbound.headers;
  const unmet =
    match === undefined
      ? []
      : conditionTests(match.written).filter(({ holds }) => !holds(headers, target.query, inbound.scheme));
  if (unmet.length === 0) return null;
  const names = namesOf(unmet.map(({ place, name }) => [place, name]));
  return (
    `matches the path, but its ${unmet.length === 1 ? "condition" : "conditions"} on ${names} ` +
    `${unmet.length === 1 ? "does" : "do"} not hold`
  );
}

function otherHosts({ service }: ShownRoute): string {
  return `matches the path, but is for the hosts ${service.hosts?.join(", ")} only`;
}

function whyThis(winner: Match, known: Known): string[] {
  const { service, route } = winner;
  const { path, authority } = known.asked.target;
  const { inbound } = known.asked;
  const reasons = [
    `${path} matches service "${service.name}" (base_path ${service.base_path}), ` +
      `route "${route.name}" (${route.path}).`,
  ];
  if (path !== inbound.target.replace(/\?.*$/s, "") && authority === null) {
    reasons.push(`The path is matched and forwarded in its normal form, ${path}.`);
  }
  const { hosts = [] } = service;
  if (hosts.length > 0)
    reasons.push(`The service is for the hosts ${hosts.join(", ")}: it comes before services for all hosts.`);
  const { methods = [] } = route;
  if (methods.length > 0 && !methods.includes(inbound.method)) {
    const preflight = `The preflight is for a method that the route accepts: ${methods.join(", ")}.`;
    reasons.push(inbound.method === "HEAD" ? "A route that accepts GET also accepts HEAD." : preflight);
  }
  if (winner.match !== undefined) reasons.push(`Its conditions on ${namesOf(placesOf(winner.match.written))} hold.`);
  const losers = known.fits.filter((place) => place !== winner && place.takes(wantedMethod(inbound)));
  for (const place of losers.slice(0, MAX_NAMED)) reasons.push(sentence(place, verdictOf(place, known)));
  if (losers.length > MAX_NAMED)
    reasons.push(`${losers.length - MAX_NAMED} more routes match as well, and are less specific.`);
  if (losers.length === 0)
    reasons.push("No other route matches it: a literal segment would come before {name}, and {name} before {name*}.");
  return reasons;
}

/** The routes that refuse, and the less specific routes that would accept the request. */
function whyRefused(known: Known): string[] {
  const { deciding, fits, asked } = known;
  const decides = new Set(deciding.map(({ route }) => route));
  const others = fits.filter((place) => !decides.has(place.route) && place.takes(wantedMethod(asked.inbound)));
  return [
    ...deciding.slice(0, MAX_NAMED).map((place) => sentence(place, whyNot(place, known))),
    ...others.slice(0, MAX_NAMED).map((place) => sentence(place, verdictOf(place, known))),
  ];
}

function whyNone(
  elsewhere: readonly Match[],
  above: readonly DisplayedService[],
  { target: { path }, shown }: Asked,
): string[] {
  if (elsewhere.length > 0) return elsewhere.map((place) => sentence(place, otherHosts(place)));
  if (above.length === 0)
    return shown.services.length === 0 ? ["The configuration has no services."] : [noBase(path, shown)];
  return above.slice(0, MAX_NAMED).map((service) => noRoute(service, path));
}

/** The services whose base_path the path begins with, whatever their routes. */
function servicesAbove({ target: { path }, authority, shown: { services } }: Asked): DisplayedService[] {
  const anything = (service: DisplayedService, below: string) => {
    const rules = { methods: [], encodedSlashes: true, pathParameters: true };
    return { basePath: service.base_path, hosts: service.hosts ?? [], path: below, target: service, ...rules };
  };
  const table = compileTable(
    services.flatMap((service) => [anything(service, "/"), anything(service, "/{edge_gateway_rest*}")]),
  );
  const found = new Set(candidatesOf(table, authority, path).map(({ target }) => target));
  return services.filter((service) => found.has(service));
}

function noBase(path: string, { services }: DisplayedConfig): string {
  const bases = [...new Set(services.map(({ base_path }) => base_path))];
  const meant = suggest(
    path.split("/", 2)[1]!,
    bases.slice(0, MAX_COMPARED).map((base) => base.split("/")[1] ?? ""),
  );
  const nearest = bases.find((base) => base.split("/")[1] === meant);
  return `${path} begins with the base_path of no service: there are ${some(bases)}.${didYouMean(nearest)}`;
}

function noRoute(service: DisplayedService, path: string): string {
  const patterns = [...new Set(service.routes.map((route) => patternOf({ service, route })))];
  if (patterns.length === 0) return `Service "${service.name}" (base_path ${service.base_path}) has no routes.`;
  const place = `${path} begins as base_path ${service.base_path} of service "${service.name}" does`;
  return (
    `${place}, but matches none of its routes as a whole: ` +
    `${some(patterns)}.${didYouMean(suggest(path, patterns.slice(0, MAX_COMPARED)))}`
  );
}

function some(names: readonly string[]): string {
  return (
    names.slice(0, MAX_NAMED).join(", ") + (names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : "")
  );
}

function didYouMean(name: string | undefined): string {
  return name === undefined ? "" : ` Did you mean ${name}?`;
}

/**
 * A preflight is matched by the method that it asks about if a plugin handles preflights; to name routes, that is
 * assumed.
 */
function wantedMethod({ method, headers }: Inbound): string {
  return method === "OPTIONS" ? (headerValue(headers, "access-control-request-method") ?? method) : method;
}

function nameOf(place: ShownRoute): string {
  return `Route "${place.route.name}" of service "${place.service.name}" (${patternOf(place)})`;
}

/** Of base_path and path together: "/orders/{id}". */
export function patternOf({ service, route }: ShownRoute): string {
  return [service.base_path, route.path].map((path) => path.replace(/\/$/, "")).join("") || "/";
}
