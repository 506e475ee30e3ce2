/**
 * Reads HTTPRoutes and GRPCRoutes of the Gateway API: each match of a rule becomes a rule of `first_match.ts`.
 */
import { linearPattern } from "../../base/linear_pattern.ts";
import * as references from "../../config/references.ts";
import { CONDITIONS } from "../../config/conditions.ts";
import { nodeFrom } from "../../config/json.ts";
import { accepts } from "../../config/schema_further.ts";
import type { Condition, Conditions, Scheme } from "../../http/condition_types.ts";
import { placedConditions } from "../../route/conditions.ts";
import type { Draft } from "./draft.ts";
import type { OrderedRule } from "./first_match.ts";
import { readPath } from "./kong_paths.ts";
import { guardAmong } from "./kube_annotations.ts";
import { FILTERS, filtersOf, literalSegments, type Filtered } from "./kube_filters.ts";
import type { KubeListeners } from "./kube_listeners.ts";
import type { KubeObject, KubeObjects } from "./kube_objects.ts";
import {
  NO_UPSTREAM,
  unknownGuard,
  upstreamsOf,
  type Redirect,
  type RuleTarget,
  type Upstreams,
} from "./kube_targets.ts";
import { literal, type SourceValue } from "./source_value.ts";

/** Where a match leads: a path, and what else a request has to fulfil. */
interface Match {
  readonly place: SourceValue;
  readonly segments: readonly string[];
  readonly isPrefix: boolean;
  readonly isWider: boolean;
  readonly isRegex: boolean;
  readonly methods: readonly string[] | null;
  readonly conditions: Conditions;
}

interface RuleOfRoute {
  readonly rule: SourceValue;
  readonly route: KubeObject;
}

const MISTYPED = "a value in it has another type";
const MAX_MS = 86_400_000;
const UNITS: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

export class KubeRoutes {
  readonly #draft: Draft;
  readonly #objects: KubeObjects;
  readonly #listeners: KubeListeners;

  constructor(draft: Draft, objects: KubeObjects, listeners: KubeListeners) {
    this.#draft = draft;
    this.#objects = objects;
    this.#listeners = listeners;
  }

  /** Those of one host and path in the order in which the Gateway API asks them. */
  rules(): OrderedRule<RuleTarget>[] {
    const routes = [...this.#objects.all("HTTPRoute"), ...this.#objects.all("GRPCRoute")];
    const rules = routes.flatMap((route) => this.#route(route));
    // Sorting is stable: the age and the name of the routes, then their order, decide the rest.
    const count = ({ wanted }: OrderedRule<RuleTarget>, place: string) =>
      wanted.filter((each) => each.place === place).length;
    const hasMethod = ({ methods }: OrderedRule<RuleTarget>) => Number(methods !== null);
    return rules.sort(
      (a, b) =>
        hasMethod(b) - hasMethod(a) ||
        count(b, "headers") - count(a, "headers") ||
        count(b, "query") - count(a, "query"),
    );
  }

  #route(route: KubeObject): OrderedRule<RuleTarget>[] {
    const hosts = this.#listeners.attached(route);
    const rules = route.spec.get("rules");
    const isGrpc = route.kind === "GRPCRoute";
    // What is served elsewhere, perhaps behind a guard, must not reach a less specific route.
    const others = this.#listeners.perhaps(route).filter((host) => !hosts.has(host));
    for (const rule of others.length === 0 ? [] : rules.items())
      for (const place of matchesOf(rule))
        this.#leftOut(place, "no route is attached by a selector", { rule, route }, others);
    if (hosts.size === 0)
      return (rules.leaveOut("its rules are not carried over: no imported listener has the route"), []);
    return rules.items().flatMap((rule) => {
      rule.ignore("name");
      const upstreams = this.#upstreams(rule, route, isGrpc);
      const settings = { retries: retries(rule.get("retry")) };
      const ofRoutes = timeouts(rule.get("timeouts"));
      if (rule.has("sessionPersistence"))
        rule.get("sessionPersistence").leaveOut("a Service is one upstream here, and the cluster chooses its pods");
      return matchesOf(rule).flatMap((place) => {
        const read = isGrpc ? grpcMatch(place) : httpMatch(place);
        const match = place.isMistyped() ? MISTYPED : read;
        if (typeof match === "string") return this.#leftOut(place, match, { rule, route }, [...hosts.keys()]);
        const made = this.#filters(rule, route, match);
        if (match.isWider)
          place.note(
            "a placeholder is any one segment here: the upstream has to refuse what the expression does not match",
          );
        return this.#targets({ rule, route, match, made, upstreams, settings, timeouts: ofRoutes, hosts });
      });
    });
  }

  #leftOut(place: SourceValue, why: string, { rule, route }: RuleOfRoute, hosts: readonly string[]): [] {
    const path = place.get("path");
    const isRegex = path.text("type") === "RegularExpression" || path.value === undefined;
    const value = path.text("value") ?? "/";
    const pattern = isRegex ? `~${value.replace(/^\^/, "")}` : value;
    const ofBackends = rule.items("backendRefs").flatMap((backend) => backend.items("filters"));
    const types = [...rule.items("filters"), ...ofBackends].map((filter) => filter.text("type") ?? "");
    const outer = [this.#objects.guardOf(route), guardAmong(route.annotations)].flatMap((each) => each ?? []);
    const guards = [...types.filter((type) => !Object.hasOwn(FILTERS, type)), ...outer].map(unknownGuard);
    this.#draft.leaveGap(place.at, pattern, hosts.includes("") ? [] : hosts, guards);
    place.leaveOut(`is not carried over: ${why}`);
    return [];
  }

  #upstreams(rule: SourceValue, route: KubeObject, isGrpc: boolean): Upstreams {
    const backends = rule.items("backendRefs").map((place) => ({
      place,
      backend: this.#objects.backendOf(place, route, isGrpc),
      weight: Math.max(0, place.number("weight") ?? 1),
    }));
    return upstreamsOf(backends, this.#draft);
  }

  /** Those of the rule, and of its backend, if it has one. */
  #filters(rule: SourceValue, route: KubeObject, { segments, isPrefix, isRegex }: Match): Filtered {
    const backends = rule.items("backendRefs");
    const own = backends.map((backend) => backend.get("filters"));
    const made = filtersOf([...rule.items("filters"), ...(own.length === 1 ? own[0]!.items() : [])], {
      draft: this.#draft,
      prefix: isPrefix && !isRegex ? segments : null,
      backendOf: (ref) => this.#objects.backendOf(ref, route, false),
    });
    for (const filters of own.length === 1 ? [] : own) {
      const types = filters.items().map((filter) => filter.text("type") ?? "");
      if (types.length > 0)
        filters.leaveOut("filters of one of several backends are not carried over: write them at the rule");
      const odd = types.find((type) => !/^(Request|Response)HeaderModifier$|^RequestMirror$/.test(type));
      if (odd !== undefined) made.closed = odd;
    }
    if ([rule.get("filters"), ...own].some((filters) => filters.isMistyped())) made.closed = "filters";
    return made;
  }

  #targets(
    given: RuleOfRoute & {
      readonly match: Match;
      readonly made: Filtered;
      readonly upstreams: Upstreams;
      readonly settings: object;
      readonly timeouts: object | undefined;
      readonly hosts: ReadonlyMap<string, ReadonlySet<Scheme>>;
    },
  ): OrderedRule<RuleTarget>[] {
    const { rule, route, match, made, upstreams, settings, timeouts, hosts } = given;
    const guard = made.closed ?? this.#objects.guardOf(route) ?? guardAmong(route.annotations);
    const closed = guard === undefined ? undefined : `"${guard}" may decide who passes, and is not carried over`;
    const isAnswered = made.redirect !== undefined;
    const target: RuleTarget = {
      at: rule.at,
      name: `${route.namespace}/${route.name}`,
      settings: isAnswered
        ? NO_UPSTREAM
        : { ...upstreams.settings, preserve_host: made.isHostReplaced === true ? undefined : true, ...settings },
      timeouts: isAnswered ? undefined : timeouts,
      plugins: isAnswered ? made.plugins : [...upstreams.plugins, ...made.plugins],
      closed: closed ?? (isAnswered ? undefined : upstreams.closed),
      rewrite: made.rewrite,
      isRegex: match.isRegex,
    };
    const wanted = placedConditions(match.conditions);
    const known = [...this.#listeners.schemes];
    return [...hosts].flatMap(([host, schemes]) => {
      const only = schemes.size === 1 && known.length > 1 ? [...schemes][0] : undefined;
      if (only !== undefined)
        route.place.note(`is for ${only} only: a proxy that ends TLS has to be in global.trusted_proxies`);
      const needsScheme = made.redirect?.origin.startsWith("scheme:") === true;
      const ways = needsScheme && only === undefined && known.length > 1 ? known : [only];
      return ways.map((scheme) => ({
        host,
        segments: match.segments,
        isPrefix: match.isPrefix,
        isWider: match.isWider,
        scheme,
        methods: match.methods,
        wanted,
        target: isAnswered ? { ...target, redirect: this.#redirectOf(made, scheme ?? known[0] ?? "http") } : target,
      }));
    });
  }

  /** With the scheme of the request, and the port of its listener if the redirect names none. */
  #redirectOf({ redirect }: Filtered, scheme: Scheme): Redirect {
    const { origin } = redirect!;
    if (!origin.startsWith("scheme:")) return redirect!;
    const hasPort = /:\d+$/.test(origin);
    const whole = `${origin.replace("scheme", scheme)}${hasPort ? "" : `:${this.#listeners.portOf(scheme)}`}`;
    return { ...redirect!, origin: whole.replace(/^(http:.*):80$|^(https:.*):443$/, "$1$2") };
  }
}

/** A rule without any is for all requests. */
function matchesOf(rule: SourceValue): readonly SourceValue[] {
  const places = rule.items("matches");
  return places.length === 0 ? [rule.get("matches")] : places;
}

/** Or why it cannot be said here. */
function httpMatch(place: SourceValue): Match | string {
  const path = place.get("path");
  const type = path.text("type") ?? "PathPrefix";
  const value = path.text("value") ?? "/";
  const method = place.text("method");
  const conditions = conditionsOf(place.get("headers"), place.get("queryParams"));
  if (typeof conditions === "string") return conditions;
  const rest = { place, methods: method === undefined ? null : [method], conditions };
  if (method === "CONNECT") return "CONNECT is not served";
  if (type === "RegularExpression") {
    const read = readPath(`~${value.replace(/^\^/, "").replace(/\$$/, "")}$`, false);
    if (typeof read === "string") return read;
    return { ...rest, ...read, segments: read.pattern.split("/").slice(1), isRegex: true };
  }
  if (!["Exact", "PathPrefix"].includes(type)) return `paths of the type ${type} are not known here`;
  if (!value.startsWith("/")) return 'a path begins with "/"';
  const isPrefix = type === "PathPrefix";
  if (!isPrefix && value !== "/")
    path.note("Exact: a path with a slash at its end is the one without it here: both get the rule");
  return { ...rest, segments: literalSegments(value), isPrefix, isWider: false, isRegex: false };
}

/** /service/method, with a placeholder for what is left out. */
function grpcMatch(place: SourceValue): Match | string {
  const method = place.get("method");
  const [service, name] = [method.text("service") ?? "", method.text("method") ?? ""];
  const conditions = conditionsOf(place.get("headers"), place.get("queryParams"));
  if (typeof conditions === "string") return conditions;
  const isAll = service === "" && name === "";
  const rest = { place, methods: ["POST"], conditions, isPrefix: isAll };
  if ((method.text("type") ?? "Exact") !== "Exact") {
    const read = readPath(`~/${service || "[^/]+"}/${name || "[^/]+"}$`, false);
    if (typeof read === "string") return read;
    return { ...rest, segments: read.pattern.split("/").slice(1), isWider: read.isWider, isRegex: true };
  }
  const segments = isAll ? [] : [literal(service) || "{service}", literal(name) || "{method}"];
  return { ...rest, segments, isWider: false, isRegex: false };
}

function conditionsOf(headers: SourceValue, query: SourceValue): Conditions | string {
  const read = (list: SourceValue, key: (name: string) => string): Record<string, Condition> => {
    const found = new Map<string, readonly [string, Condition]>();
    for (const item of list.items()) {
      const [name, value] = [item.text("name") ?? "", item.text("value") ?? ""];
      const isPattern = item.text("type") === "RegularExpression";
      const wanted = isPattern ? { matches: `^(?:${value})$` } : value.replaceAll("${", () => "$${");
      // Of equal names the first counts.
      if (!found.has(key(name))) found.set(key(name), [name, wanted]);
    }
    return Object.fromEntries(found.values());
  };
  const made = {
    headers: read(headers, (name) => name.toLowerCase()),
    query: read(query, (name) => name),
    cookies: {},
  };
  const types = [...headers.items(), ...query.items()].map((item) => item.text("type") ?? "Exact");
  const odd = types.find((type) => !["Exact", "RegularExpression"].includes(type));
  if (odd !== undefined) return `conditions of the type ${odd} are not known here`;
  // Its parts stand in a group here: "a)|(?:b" is none, and would be one.
  const isBroken = [...headers.items(), ...query.items()].some(
    (item) => item.text("type") === "RegularExpression" && typeof linearPattern(item.text("value") ?? "") === "string",
  );
  const isNone = Object.keys(made.headers).length + Object.keys(made.query).length === 0;
  if (isNone || (!isBroken && accepts(CONDITIONS, nodeFrom(made), references))) return made;
  return "its headers or queryParams cannot be conditions here";
}

/** Of GEP-2257: "1m30s". Undefined: none. */
function durationOf(place: SourceValue): number | undefined {
  const text = place.text();
  if (text === undefined) return undefined;
  if (!/^(\d{1,5}(h|ms|m|s)){1,4}$/.test(text))
    return (place.note('is no duration such as "10s", and not carried over'), undefined);
  const all = [...text.matchAll(/(\d+)(h|ms|m|s)/g)].map(([, count, unit]) => Number(count) * UNITS[unit!]!);
  return Math.min(
    all.reduce((sum, each) => sum + each, 0),
    MAX_MS,
  );
}

/** 0 is no limit. */
function timeouts(place: SourceValue): object | undefined {
  const [request, backend] = [durationOf(place.get("request")), durationOf(place.get("backendRequest"))];
  if (request === undefined && backend === undefined) return undefined;
  const limits = [request, backend].filter((each) => each !== undefined && each > 0) as number[];
  const total = limits.length === 0 ? 0 : Math.min(...limits);
  const wait = total === 0 ? MAX_MS : total;
  return { response_ms: wait, idle_ms: wait, total_ms: total };
}

function retries(place: SourceValue): object | undefined {
  if (place.value === undefined) return undefined;
  place.get("backoff").note("the next try follows at once here");
  const statuses = place.items("codes").flatMap((code) => code.number() ?? []);
  place.note("only methods that may be repeated (GET, PUT, …) are tried again");
  const attempts = place.number("attempts");
  const on = ["connect", "reset", "timeout", ...statuses];
  return { attempts: attempts === undefined ? undefined : Math.min(attempts, 10), on };
}
