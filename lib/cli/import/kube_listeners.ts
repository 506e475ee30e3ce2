/**
 * Reads which listeners of the imported Gateway a route of the Gateway API is attached to: the hosts and schemes by
 * which its requests come.
 */
import type { Scheme } from "../../http/condition_types.ts";
import { Failure } from "../failure.ts";
import { GATEWAY_API, type KubeObject, type KubeObjects } from "./kube_objects.ts";
import type { SourceValue } from "./source_value.ts";

interface Listener {
  readonly name: string;
  readonly port: number;
  readonly scheme: Scheme;
  /** In lower case; "": all. */
  readonly host: string;
  readonly place: SourceValue;
}

const USUAL_PORTS = { http: 80, https: 443 };

/**
 * What is imported: one Gateway, or the Ingresses of one class. `wanted`: its "namespace/name", or the class. Each is
 * an address of its own: together they would open what was for one of them.
 */
export function entranceOf(objects: KubeObjects, wanted: string | undefined): string {
  const used = [...objects.all("HTTPRoute"), ...objects.all("GRPCRoute")].flatMap((route) =>
    route.spec
      .items("parentRefs")
      .flatMap((ref) => gatewayOf(ref, route, objects) ?? [])
      .map(({ namespace, name }) => `${namespace}/${name}`),
  );
  const entries = [...new Set([...used, ...objects.all("Ingress").map(classOf)])].sort();
  if (wanted === undefined && entries.length < 2) return entries[0] ?? "";
  if (wanted !== undefined && entries.includes(wanted)) return wanted;
  const names = `${entries.slice(0, 20).join(", ")}${entries.length > 20 ? ", …" : ""}`;
  throw new Failure(
    wanted === undefined
      ? `there are routes of several Gateways and ingress classes, each with an address of its own: ` +
          `import one of them with --gateway: ${names}`
      : `--gateway: "${wanted}" has no routes here; ${names === "" ? "nothing has" : names}`,
    2,
  );
}

/** The name of its class. */
export function classOf({ annotations, spec }: KubeObject): string {
  const annotation = annotations.text("kubernetes.io/ingress.class");
  return spec.text("ingressClassName") ?? annotation ?? "default";
}

function gatewayOf(ref: SourceValue, route: KubeObject, objects: KubeObjects): KubeObject | undefined {
  const isGateway = (ref.text("kind") ?? "Gateway") === "Gateway" && (ref.text("group") ?? GATEWAY_API) === GATEWAY_API;
  const name = ref.text("name") ?? "";
  return isGateway ? objects.get("Gateway", ref.text("namespace") ?? route.namespace, name) : undefined;
}

export class KubeListeners {
  readonly #objects: KubeObjects;
  readonly #entry: string;
  readonly #listeners: readonly Listener[];

  /** `entry`: see `entranceOf`. */
  constructor(objects: KubeObjects, entry: string) {
    this.#objects = objects;
    this.#entry = entry;
    const gateway = objects.all("Gateway").find(({ namespace, name }) => `${namespace}/${name}` === entry);
    this.#listeners = listenersOf(gateway);
  }

  get schemes(): ReadonlySet<Scheme> {
    return new Set(this.#listeners.map(({ scheme }) => scheme));
  }

  portOf(scheme: Scheme): number {
    return this.#listeners.find((each) => each.scheme === scheme)?.port ?? USUAL_PORTS[scheme];
  }

  /** The hosts by which requests for a route may come: listeners choose its namespace by labels, which nobody knows. */
  perhaps(route: KubeObject): string[] {
    const own = route.spec.texts("hostnames").map((host) => host.toLowerCase());
    const isOwn = (ref: SourceValue) => {
      const gateway = gatewayOf(ref, route, this.#objects);
      return gateway !== undefined && `${gateway.namespace}/${gateway.name}` === this.#entry;
    };
    const hosts = route.spec
      .items("parentRefs")
      .filter(isOwn)
      .flatMap((ref) =>
        this.#named(ref)
          .filter(({ place }) => fromOf(place) === "Selector")
          .flatMap(({ host }) => (own.length === 0 ? [host] : own.flatMap((each) => common(host, each) ?? []))),
      );
    return [...new Set(hosts)];
  }

  #named(ref: SourceValue): readonly Listener[] {
    const [section, port] = [ref.text("sectionName"), ref.number("port")];
    return this.#listeners.filter(
      (each) => (section === undefined || each.name === section) && (port === undefined || each.port === port),
    );
  }

  /** The hosts by which requests for a route come ("": all), with their schemes. */
  attached(route: KubeObject): ReadonlyMap<string, ReadonlySet<Scheme>> {
    const hosts = new Map<string, Set<Scheme>>();
    const own = route.spec.texts("hostnames").map((host) => host.toLowerCase());
    // Without them the route would be for all hosts.
    if (route.spec.get("hostnames").isMistyped()) return hosts;
    for (const ref of route.spec.items("parentRefs")) {
      const gateway = gatewayOf(ref, route, this.#objects);
      if (gateway === undefined) {
        ref.leaveOut("is not in the file, or no Gateway: the route gets no requests of it here");
        continue;
      }
      const named = this.#named(ref);
      if (ref.isMistyped() || `${gateway.namespace}/${gateway.name}` !== this.#entry) continue;
      const open = named.filter((each) => isAllowed(each.place, gateway, route));
      const pairs = open.flatMap(({ host, scheme }) =>
        (own.length === 0 ? [host] : own.flatMap((each) => common(host, each) ?? [])).map(
          (each) => [each, scheme] as const,
        ),
      );
      if (pairs.length === 0) ref.note(whyNot(named, open));
      for (const [host, scheme] of pairs) hosts.set(host, (hosts.get(host) ?? new Set()).add(scheme));
    }
    return hosts;
  }
}

function whyNot(named: readonly Listener[], open: readonly Listener[]): string {
  if (named.length === 0) return "the route is not attached: no listener that is imported has this name and port";
  if (open.length === 0) return "the route is not attached: no listener allows its kind and namespace";
  return "the route is not attached: no listener has one of its hostnames";
}

/** Those of HTTP and HTTPS, of one port each. */
function listenersOf(gateway: KubeObject | undefined): readonly Listener[] {
  const all = (gateway?.spec.items("listeners") ?? []).flatMap((place): Listener[] => {
    const protocol = place.text("protocol") ?? "";
    const scheme = protocol.toLowerCase() as Scheme;
    if (!["HTTP", "HTTPS"].includes(protocol))
      return (place.leaveOut(`a listener for ${protocol} is not carried over`), []);
    if (scheme === "https")
      place.get("tls").note("certificates are not in the file: name theirs in SERVER_CERT_PATH or global.certificates");
    const host = (place.text("hostname") ?? "").toLowerCase();
    const port = place.number("port") ?? USUAL_PORTS[scheme];
    const listener = { name: place.text("name") ?? "", port, scheme, host, place };
    return place.isMistyped() ? [] : [listener];
  });
  const kept = all.filter(({ scheme, port }) => {
    const ports = all.filter((each) => each.scheme === scheme).map((each) => each.port);
    return port === (ports.includes(USUAL_PORTS[scheme]) ? USUAL_PORTS[scheme] : ports[0]);
  });
  for (const { place, scheme } of all.filter((each) => !kept.includes(each)))
    place.leaveOut(
      `its routes are not attached: the gateway has one port for ${scheme}, and ports cannot be conditions`,
    );
  for (const { host, place } of kept) {
    if (kept.some((other) => other.host !== host && common(other.host, host) === host))
      place.note("requests for this hostname that no route of it fits go to the routes of a wider listener here");
  }
  return kept;
}

function fromOf(listener: SourceValue): string {
  return listener.get("allowedRoutes").get("namespaces").text("from") ?? "Same";
}

function isAllowed(listener: SourceValue, gateway: KubeObject, route: KubeObject): boolean {
  const allowed = listener.get("allowedRoutes");
  const from = fromOf(listener);
  const isNear = from === "All" || (from === "Same" && route.namespace === gateway.namespace);
  if (from === "Selector")
    allowed.get("namespaces").note("labels of namespaces are not in the file: no route is attached by a selector");
  const kinds = allowed.items("kinds");
  const isKind = (kind: SourceValue) =>
    (kind.text("group") ?? GATEWAY_API) === GATEWAY_API && kind.text("kind") === route.kind;
  return isNear && !allowed.isMistyped() && (kinds.length === 0 || kinds.some(isKind));
}

/** The narrower of two hosts, "*.example.com" and "" included; undefined if they have none in common. */
export function common(one: string, other: string): string | undefined {
  const covers = (wide: string, host: string) =>
    wide === "" || wide === host || (wide.startsWith("*.") && host.endsWith(wide.slice(1)));
  if (covers(one, other)) return other;
  return covers(other, one) ? one : undefined;
}
