/**
 * The objects of `kubectl get … -o json`, by kind and name, and the Services that routes refer to as upstreams.
 */
import { isObject } from "../../json_schema/values.ts";
import type { Draft } from "./draft.ts";
import { SourceValue } from "./source_value.ts";

export const GATEWAY_API = "gateway.networking.k8s.io";
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  HTTPRoute: [GATEWAY_API],
  GRPCRoute: [GATEWAY_API],
  Gateway: [GATEWAY_API],
  ReferenceGrant: [GATEWAY_API],
  Ingress: ["networking.k8s.io", "extensions"],
  Service: [""],
};

/** BackendTLSPolicy and the like concern Services. */
const GUARDING_KIND = /auth|secur|acl|access|allow|deny|waf|jwt|oidc|limit|^(?!Backend).*policy/i;

export interface KubeObject {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  /** Named by kind, namespace and name. */
  readonly place: SourceValue;
  readonly spec: SourceValue;
  readonly annotations: SourceValue;
  /** Its time of creation and its name: the order of those that are equal otherwise. */
  readonly age: string;
}

/** Where a backend is reached. */
export interface ServiceBackend {
  readonly host: string;
  readonly port: number;
  readonly protocol: "http" | "https" | "h2" | "h2c";
}

/** By `appProtocol` of a port. */
const PROTOCOLS: Readonly<Record<string, ServiceBackend["protocol"]>> = {
  "kubernetes.io/h2c": "h2c",
  "kubernetes.io/ws": "http",
  "kubernetes.io/wss": "https",
  http: "http",
  https: "https",
  grpc: "h2c",
};

export class KubeObjects {
  readonly #draft: Draft;
  readonly #byKind = new Map<string, Map<string, KubeObject>>();
  /** Kinds of policies that may decide who passes, by what they are attached to. */
  readonly #policies = new Map<string, string>();
  /** Behind `<service>.<namespace>.svc`: "" or ".cluster.local". */
  readonly #domain: string;

  constructor(draft: Draft, domain: string) {
    this.#draft = draft;
    this.#domain = domain;
  }

  /** Objects of one document: a List, or one object. */
  read(document: unknown): void {
    const isList = isObject(document) && Array.isArray(document.items);
    const items = isList ? new SourceValue(document, [], this.#draft.notes).items("items") : [];
    const all = isList ? items.map(({ value }) => value) : [document];
    for (const [i, item] of all.entries()) this.#add(item, i);
  }

  #add(item: unknown, index: number): void {
    const { notes } = this.#draft;
    if (!isObject(item)) return notes.add(["items", index], "is no object of Kubernetes, and is not read");
    const metadata: { [name: string]: unknown } = isObject(item.metadata) ? item.metadata : {};
    const [kind, version, name, namespace = "default"] = [
      item.kind,
      item.apiVersion,
      metadata.name,
      metadata.namespace,
    ];
    if ([kind, version, name, namespace].some((text) => typeof text !== "string"))
      return notes.add(
        ["items", index],
        "is no object of Kubernetes, and is not read: it needs kind, apiVersion and name",
      );
    const label = `${kind} ${namespace}/${name}`;
    const group = String(version).includes("/") ? String(version).split("/")[0]! : "";
    if (!Object.hasOwn(GROUPS, String(kind)) || !GROUPS[String(kind)]!.includes(group)) {
      this.#addPolicy(new SourceValue(item, [label], notes), String(kind), String(namespace));
      return notes.add([label], `objects of the kind ${kind} (${version}) are not read`);
    }
    if (!this.#byKind.has(String(kind))) this.#byKind.set(String(kind), new Map());
    const known = this.#byKind.get(String(kind))!;
    const key = `${namespace}/${name}`;
    if (known.has(key)) return notes.add([label], "is there more than once: the first one counts");
    const place = new SourceValue(item, [label], notes);
    const annotations = new SourceValue(metadata.annotations, [label, "metadata", "annotations"], notes);
    const age = `${typeof metadata.creationTimestamp === "string" ? metadata.creationTimestamp : "~"} ${key}`;
    const spec = place.ignore("kind", "apiVersion", "metadata", "status").get("spec");
    const names = { kind: String(kind), namespace: String(namespace), name: String(name) };
    known.set(key, { ...names, place, spec, annotations, age });
  }

  /** Of another program, attached to routes and Gateways by their names (GEP-713). */
  #addPolicy(place: SourceValue, kind: string, namespace: string): void {
    if (!GUARDING_KIND.test(kind)) return;
    const spec = place.get("spec");
    for (const ref of [...spec.items("targetRefs"), spec.get("targetRef")])
      this.#policies.set(`${ref.text("kind")} ${ref.text("namespace") ?? namespace}/${ref.text("name")}`, kind);
  }

  /** The kind of a policy that may decide who passes on a route. */
  guardOf({ kind, namespace, name, spec }: KubeObject): string | undefined {
    const parents = spec
      .items("parentRefs")
      .map((ref) => `${ref.text("kind") ?? "Gateway"} ${ref.text("namespace") ?? namespace}/${ref.text("name")}`);
    return [`${kind} ${namespace}/${name}`, ...parents].map((key) => this.#policies.get(key)).find(Boolean);
  }

  get(kind: string, namespace: string, name: string): KubeObject | undefined {
    return this.#byKind.get(kind)?.get(`${namespace}/${name}`);
  }

  /** The oldest first, then by name. */
  all(kind: string): readonly KubeObject[] {
    return [...(this.#byKind.get(kind)?.values() ?? [])].sort((a, b) => (a.age < b.age ? -1 : 1));
  }

  /**
   * The Service of a `backendRef`, or why there is none: another kind, not in the file, another namespace without a
   * ReferenceGrant, a port that it does not have.
   */
  backendOf(ref: SourceValue, from: KubeObject, isGrpc: boolean): ServiceBackend | string {
    const kind = ref.ignore("name", "namespace", "port").text("kind") ?? "Service";
    const group = ref.text("group") ?? "";
    if (kind !== "Service" || group !== "") return `a backend of the kind ${kind} is none here`;
    const namespace = ref.text("namespace") ?? from.namespace;
    const name = ref.text("name") ?? "";
    if (namespace !== from.namespace && !this.#isGranted(from, namespace, name))
      return `no ReferenceGrant in ${namespace} lets a ${from.kind} of ${from.namespace} use Service ${name}`;
    return this.service(namespace, name, ref.get("port").value, isGrpc ? "h2c" : "http");
  }

  #isGranted(from: KubeObject, namespace: string, name: string): boolean {
    return this.all("ReferenceGrant").some((grant) => {
      const allows = (list: string, fits: (item: SourceValue) => boolean) => grant.spec.items(list).some(fits);
      const is = (item: SourceValue, field: string, text: string) => (item.text(field) ?? "") === text;
      return (
        grant.namespace === namespace &&
        allows(
          "from",
          (item) =>
            is(item, "group", GATEWAY_API) && is(item, "kind", from.kind) && is(item, "namespace", from.namespace),
        ) &&
        allows(
          "to",
          (item) =>
            is(item, "group", "") && is(item, "kind", "Service") && ["", name].includes(item.text("name") ?? ""),
        )
      );
    });
  }

  /** `port`: the number or the name of a port of the Service. */
  service(namespace: string, name: string, port: unknown, usual: ServiceBackend["protocol"]): ServiceBackend | string {
    const service = this.get("Service", namespace, name);
    if (service === undefined) return `Service ${namespace}/${name} is not in the file`;
    const { spec, annotations } = service;
    const plugins = annotations.text("konghq.com/plugins");
    if (plugins !== undefined) return `Service ${namespace}/${name} has plugins of Kong, "${plugins}"`;
    const external = spec.text("type") === "ExternalName" ? (spec.text("externalName") ?? "") : undefined;
    const ports = spec.items("ports");
    const found = ports.find((each) => [each.get("port").value, each.get("name").value].includes(port));
    const number = found?.number("port") ?? (external !== undefined && typeof port === "number" ? port : undefined);
    if (port === undefined || number === undefined)
      return `Service ${namespace}/${name} has no port ${port === undefined ? "that the route names" : String(port)}`;
    const written = found?.text("appProtocol");
    const isKnown = written !== undefined && Object.hasOwn(PROTOCOLS, written.toLowerCase());
    const protocol = isKnown ? PROTOCOLS[written.toLowerCase()]! : usual;
    if (written !== undefined && !isKnown)
      found!.get("appProtocol").note(`"${written}" is not known: requests are sent by ${protocol}`);
    const secure = protocol === "https" && usual === "h2c" ? "h2" : protocol;
    if (secure === "https" || secure === "h2")
      service.place.note('certificates of upstreams are verified here, for the name of the Service: see "tls"');
    if (external !== undefined) {
      service.place.note("is an ExternalName: requests leave the cluster for that host");
      return { host: external.replace(/\.$/, ""), port: number, protocol: secure };
    }
    // The name of a headless Service has the addresses of its pods, which listen on another port.
    const target = spec.text("clusterIP") === "None" ? found?.get("targetPort") : undefined;
    if (typeof target?.value === "string")
      target.note("is a name, which only pods know: the port of the Service is used, write that of the pods");
    const reached = typeof target?.value === "number" ? target.value : number;
    return { host: `${name}.${namespace}.svc${this.#domain}`, port: reached, protocol: secure };
  }
}
