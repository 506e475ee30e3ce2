/**
 * Imports what `kubectl get httproute,grpcroute,ingress,gateway,service,referencegrant -A -o json` prints.
 *
 * Routes of Kubernetes are rules of which the first that fits gets a request; `first_match.ts` makes routes of them.
 * Each rule becomes a service, whose upstreams are named as in the cluster: `<service>.<namespace>.svc`.
 */
import { Failure } from "../failure.ts";
import type { Draft, DraftPlugin, DraftRoute, DraftService } from "./draft.ts";
import { firstMatch, MAX_EXPANDED, type PlacedRule } from "./first_match.ts";
import { ingressRules } from "./kube_ingress.ts";
import { entranceOf, KubeListeners } from "./kube_listeners.ts";
import { KubeObjects } from "./kube_objects.ts";
import { KubeRoutes } from "./kube_routes.ts";
import { filled, type Rewrite, type RuleTarget } from "./kube_targets.ts";
import { freeName, MAX_PARTS } from "./source_value.ts";
import { closePrefixes } from "./prefixes.ts";

export interface KubernetesOptions {
  /** The Gateway, "namespace/name", or the ingress class; undefined: the only one. */
  readonly gateway?: string | undefined;
  /** Such as "cluster.local"; undefined: names end with ".svc". */
  readonly domain?: string | undefined;
}

/** `documents`: what the files have. */
export function importKubernetes(documents: readonly unknown[], draft: Draft, options: KubernetesOptions): void {
  const objects = new KubeObjects(draft, options.domain === undefined ? "" : `.${options.domain}`);
  for (const document of documents) objects.read(document);
  const kinds = ["HTTPRoute", "GRPCRoute", "Ingress"];
  if (kinds.every((kind) => objects.all(kind).length === 0))
    throw new Failure(`there is no HTTPRoute, GRPCRoute or Ingress in it: ${KUBECTL}`, 2);
  const entry = entranceOf(objects, options.gateway);
  const rules = [
    ...new KubeRoutes(draft, objects, new KubeListeners(objects, entry)).rules(),
    ...ingressRules(draft, objects, entry),
  ];
  const services = new KubeServices(draft);
  const reached = new Set<RuleTarget>();
  for (const placed of firstMatch(rules)) {
    reached.add(placed.rule.target);
    services.add(placed);
  }
  for (const { target } of rules.filter((rule) => !reached.has(rule.target)))
    draft.notes.add(target.at, "has no route here: earlier rules get all of its requests");
  services.finish();
  for (const kind of kinds) for (const { place } of objects.all(kind)) place.noteUnread();
}

export const KUBECTL =
  "kubectl get httproute,grpcroute,ingress,gateway,service,referencegrant -A -o json > kubernetes.json";

/** The routes of one rule on one host that have a base_path in common. */
interface Bucket {
  readonly target: RuleTarget;
  readonly base: string;
  /** `upstream_path` of the service. */
  readonly prefix: string | undefined;
  readonly placed: PlacedRule<RuleTarget>[];
}

class KubeServices {
  readonly #draft: Draft;
  readonly #placed: PlacedRule<RuleTarget>[] = [];
  readonly #ids = new Map<RuleTarget, number>();
  readonly #prefixes = new Set<DraftRoute>();

  constructor(draft: Draft) {
    this.#draft = draft;
  }

  add(placed: PlacedRule<RuleTarget>): void {
    if (this.#placed.push(placed) > MAX_PARTS)
      throw new Failure(`more than ${MAX_PARTS} routes would be needed: import fewer objects at a time`, 2);
  }

  /** Hosts on which a rule has the same routes are one service. */
  finish(): void {
    const nodeOf = ({ host, segments }: PlacedRule<RuleTarget>) => `${host} ${segments.join("/")}`;
    const based = new Set(this.#placed.filter(isStripped).map(nodeOf));
    const buckets = new Map<string, Bucket>();
    for (const placed of this.#placed) {
      const { target } = placed.rule;
      const isBased = based.has(nodeOf(placed));
      const base = isBased ? `/${placed.segments.join("/")}` : "/";
      const prefix = isBased ? basePath(placed) : undefined;
      const key = JSON.stringify([placed.host, this.#idOf(target), base, prefix]);
      if (!buckets.has(key)) buckets.set(key, { target, base, prefix, placed: [] });
      buckets.get(key)!.placed.push(placed);
    }
    const services = new Map<string, { bucket: Bucket; hosts: string[] }>();
    for (const bucket of buckets.values()) {
      const { host } = bucket.placed[0]!;
      const routes = bucket.placed.map(({ host: _, rule, ...rest }) => [rule.isPrefix, rest]);
      const key = JSON.stringify([host === "", this.#idOf(bucket.target), bucket.base, bucket.prefix, routes]);
      if (!services.has(key)) services.set(key, { bucket, hosts: [] });
      if (host !== "") services.get(key)!.hosts.push(host);
    }
    for (const { bucket, hosts } of services.values()) this.#service(bucket, hosts);
    this.#draft.closeOverlaps();
    closePrefixes(this.#draft, this.#prefixes);
  }

  /** Targets of one rule that forward in the same way are one. */
  #idOf(target: RuleTarget): string {
    if (!this.#ids.has(target)) this.#ids.set(target, this.#ids.size);
    return JSON.stringify([target.at, target.name, target.settings, target.plugins, target.closed ?? null]);
  }

  #service({ target, base, prefix, placed }: Bucket, hosts: readonly string[]): void {
    const { at, name, settings, plugins, closed } = target;
    const names = new Map<string, number>();
    const service: DraftService = this.#draft.from(at, {
      name: this.#draft.serviceName(name),
      base_path: base,
      ...(hosts.length === 0 ? {} : { hosts }),
      ...(prefix === undefined ? {} : { upstream_path: prefix }),
      ...settings,
      plugins: [...plugins],
      routes: [],
    });
    for (const each of placed) {
      const route = this.#draft.from(at, routeOf(each, base, names));
      service.routes.push(route);
      const own = each.rule.target;
      if (own.isRegex === true) this.#draft.isExpression(route, each.rule.isWider);
      if (own.goesOn === true && !each.isRest) this.#prefixes.add(route);
      const why = each.isLost
        ? `more than ${MAX_EXPANDED} routes would be needed to tell the rules here apart`
        : closed;
      if (why !== undefined) this.#draft.close(route, why);
      else if (own.redirect !== undefined) route.plugins = [this.#draft.from(at, redirectTo(each))];
    }
    this.#draft.config.services.push(service);
  }
}

function isStripped({ rule: { target }, segments }: PlacedRule<RuleTarget>): boolean {
  const isText = segments.every((segment) => !segment.startsWith("{"));
  return target.rewrite !== undefined && "to" in target.rewrite && isText && segments.length > 0;
}

function basePath({ segments, rule: { target } }: PlacedRule<RuleTarget>): string | undefined {
  if (target.redirect !== undefined || (target.rewrite !== undefined && "full" in target.rewrite)) return undefined;
  const path = pathTo(segments, target.rewrite);
  return path === "/" ? undefined : path;
}

/** The path that takes the place of one of these segments. */
function pathTo(segments: readonly string[], rewrite: Rewrite | undefined): string {
  if (rewrite !== undefined && "full" in rewrite) return rewrite.full;
  const below = segments.slice(rewrite?.segments ?? 0);
  return [rewrite?.to ?? "", ...below].join("/") || "/";
}

function routeOf(placed: PlacedRule<RuleTarget>, base: string, names: Map<string, number>): DraftRoute {
  const { segments, isRest, rule, methods, wanted } = placed;
  const own = base === "/" ? segments : [];
  const path = `/${[...own, ...(isRest ? ["{rest*}"] : [])].join("/")}`;
  const { rewrite, redirect } = rule.target;
  const isForwarded = rewrite !== undefined && redirect === undefined;
  const isOther = isForwarded && (base === "/" || "full" in rewrite);
  // fromEntries defines properties: a parameter named __proto__ is a condition like any other.
  const named = (place: string) =>
    Object.fromEntries(wanted.filter((each) => each.place === place).map((each) => [each.name, each.wanted]));
  const scheme = wanted.find(({ place }) => place === "scheme")?.wanted;
  const match = {
    ...filled({ headers: named("headers"), query: named("query"), cookies: named("cookies") }),
    ...(scheme === undefined ? {} : { scheme: scheme === null ? "http" : "https" }),
  };
  const conditioned = wanted.map(({ place, name }) => (place === "scheme" ? String(match.scheme) : name));
  const label = `${methods === null ? "" : `${methods.join()} `}${path} (${conditioned.join(", ")})`;
  return {
    ...(wanted.length === 0 ? {} : { name: freeName(label, names) }),
    path,
    ...(methods === null ? {} : { methods }),
    ...(isOther ? { upstream_path: upstreamPath(placed) } : {}),
    ...(wanted.length === 0 ? {} : { match }),
    ...(rule.target.timeouts === undefined ? {} : { timeouts: rule.target.timeouts }),
  };
}

function upstreamPath({ segments, isRest, rule: { target } }: PlacedRule<RuleTarget>): string {
  const isWhole = target.rewrite !== undefined && "full" in target.rewrite;
  const path = pathTo(segments, target.rewrite);
  return isRest && !isWhole ? `${path.replace(/\/$/, "")}/{rest}` : path;
}

/** `{rest}` and the placeholders of the path are values in a location, too. */
function redirectTo({ segments, isRest, rule: { target } }: PlacedRule<RuleTarget>): DraftPlugin {
  const { status, origin, rewrite, location } = target.redirect!;
  if (location !== undefined) return { name: "redirect", config: { status, location, keep_query: false } };
  const path = pathTo(segments, rewrite);
  const isWhole = rewrite !== undefined && "full" in rewrite;
  const below = isRest && !isWhole ? `${path.replace(/\/$/, "")}/{rest}` : path;
  return { name: "redirect", config: { status, location: `${origin}${below}` } };
}
