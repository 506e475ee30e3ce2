/**
 * Reads Ingresses, as ingress-nginx serves them: each path becomes a rule of `first_match.ts`.
 */
import type { Scheme } from "../../http/condition_types.ts";
import type { Draft } from "./draft.ts";
import type { OrderedRule } from "./first_match.ts";
import { readPath } from "./kong_paths.ts";
import { Annotations, prefixRewrite, type Annotated } from "./kube_annotations.ts";
import { literalSegments } from "./kube_filters.ts";
import { classOf } from "./kube_listeners.ts";
import type { ServiceBackend, KubeObject, KubeObjects } from "./kube_objects.ts";
import {
  NO_UPSTREAM,
  unknownGuard,
  upstreamsOf,
  type Redirect,
  type Rewrite,
  type RuleTarget,
  type Weighted,
} from "./kube_targets.ts";
import { literal, type SourceValue } from "./source_value.ts";

interface IngressPath {
  readonly place: SourceValue;
  readonly host: string;
  readonly path: string;
  readonly type: string;
  readonly backend: SourceValue;
}

interface Ingress {
  readonly object: KubeObject;
  readonly annotations: Annotations;
  readonly paths: readonly IngressPath[];
}

/** What all Ingresses of the class have in common. */
interface IngressClass {
  /** Canary Ingresses by host and path. */
  readonly canaries: ReadonlyMap<string, readonly [Ingress, IngressPath]>;
  /** With a certificate. */
  readonly secureHosts: ReadonlySet<string>;
  /** What may decide who passes on a host, by any of its Ingresses. */
  readonly hostGuards: ReadonlyMap<string, string>;
  /** ingress-nginx reads all their paths as regular expressions, as one of their Ingresses has one. */
  readonly regexHosts: ReadonlySet<string>;
}

type Shape = Pick<OrderedRule<RuleTarget>, "segments" | "isPrefix" | "isWider"> &
  Pick<RuleTarget, "rewrite" | "isRegex" | "goesOn">;

export function ingressRules(draft: Draft, objects: KubeObjects, entry: string): OrderedRule<RuleTarget>[] {
  const all = objects
    .all("Ingress")
    .filter((object) => classOf(object) === entry)
    .map((object) => ingressOf(object, draft));
  const isCanary = ({ annotations }: Ingress) => annotations.is("canary");
  const canaries = new Map(
    all.filter(isCanary).flatMap((canary) => canary.paths.map((path) => [keyOf(path), [canary, path]] as const)),
  );
  const main = all.filter((ingress) => !isCanary(ingress));
  const known = new Set(main.flatMap(({ paths }) => paths.map(keyOf)));
  for (const [key, [{ object }]] of canaries)
    if (!known.has(key))
      object.place.note("is a canary of a host and path that no other Ingress has: not carried over");
  const secureHosts = new Set(all.flatMap(({ object }) => securedBy(object.spec)));
  const hostGuards = new Map(
    main.flatMap(({ annotations, paths }) => {
      const guard = annotations.ofHost();
      return guard === undefined ? [] : paths.map(({ host }) => [host, guard] as const);
    }),
  );
  const isRegex = ({ annotations }: Ingress) =>
    annotations.is("use-regex") || annotations.text("rewrite-target") !== undefined;
  const regexHosts = new Set(main.filter(isRegex).flatMap(({ paths }) => paths.map(({ host }) => host)));
  const ofClass = { canaries, secureHosts, hostGuards, regexHosts };
  return main.flatMap((ingress) => new IngressReader(draft, objects, ofClass, ingress).rules());
}

function keyOf({ host, path }: IngressPath): string {
  return `${host} ${path}`;
}

function ingressOf(object: KubeObject, draft: Draft): Ingress {
  const { spec } = object;
  spec.ignore("ingressClassName");
  const paths = spec.items("rules").flatMap((rule) => {
    const host = (rule.text("host") ?? "").toLowerCase();
    const items = rule.get("http").items("paths");
    // Without its host it would be for all hosts.
    return (rule.get("host").isMistyped() ? [] : items).map((each) => ({
      place: each,
      host,
      path: each.text("path") ?? "/",
      type: each.text("pathType") ?? "ImplementationSpecific",
      backend: each.get("backend"),
    }));
  });
  const backend = spec.get(spec.has("backend") ? "backend" : "defaultBackend");
  const rest = backend.value === undefined ? [] : [{ place: backend, host: "", path: "/", type: "Prefix", backend }];
  return { object, annotations: new Annotations(object.annotations, draft), paths: [...paths, ...rest] };
}

function securedBy(spec: SourceValue): string[] {
  const secure = spec.items("tls").map((item) => item.ignore("secretName"));
  if (secure.length > 0)
    spec.get("tls").note("certificates are not in the file: name theirs in SERVER_CERT_PATH or global.certificates");
  return secure.flatMap((item) => item.texts("hosts")).map((host) => host.toLowerCase());
}

class IngressReader {
  readonly #draft: Draft;
  readonly #objects: KubeObjects;
  readonly #class: IngressClass;
  readonly #ingress: Ingress;
  readonly #annotated: Annotated;

  constructor(draft: Draft, objects: KubeObjects, ofClass: IngressClass, ingress: Ingress) {
    this.#draft = draft;
    this.#objects = objects;
    this.#class = ofClass;
    this.#ingress = ingress;
    const annotated = ingress.annotations.read();
    const isMistyped = ingress.object.annotations.isMistyped();
    this.#annotated = isMistyped ? { ...annotated, closed: annotated.closed ?? "annotations" } : annotated;
  }

  rules(): OrderedRule<RuleTarget>[] {
    const { annotations, paths } = this.#ingress;
    const root = annotations.text("app-root");
    const hosts = root === undefined ? [] : [...new Set(paths.map(({ host }) => host))];
    const exact = { segments: [], isPrefix: false, isWider: false };
    return [
      ...hosts.flatMap((host) =>
        this.#ways(
          host,
          exact,
          this.#answer(annotations.at("app-root"), host, { status: 302, origin: "", location: root! }),
        ),
      ),
      ...paths.flatMap((path) => this.#path(path)),
    ];
  }

  #path(path: IngressPath): OrderedRule<RuleTarget>[] {
    const shape = this.#shape(path);
    const { redirect, plugins } = this.#annotated;
    const closed = this.#closed(path.host);
    if (typeof shape === "string") {
      const guards = closed === undefined ? plugins : [...plugins, unknownGuard(closed)];
      this.#draft.leaveGap(path.place.at, `~${path.path}`, path.host === "" ? [] : [path.host], guards);
      return (path.place.leaveOut(`is not carried over: ${shape}`), []);
    }
    const { segments, isPrefix, isWider } = shape;
    const target = redirect === undefined ? this.#forward(path, shape) : this.#answer(path.place, path.host, redirect);
    if (redirect !== undefined) path.place.ignore("backend");
    return this.#ways(path.host, { segments, isPrefix, isWider }, target);
  }

  /** For one host; over HTTP a redirect to HTTPS, if it has a certificate and no annotation says otherwise. */
  #ways(
    host: string,
    path: Pick<OrderedRule<RuleTarget>, "segments" | "isPrefix" | "isWider">,
    target: RuleTarget,
  ): OrderedRule<RuleTarget>[] {
    const { annotations, object } = this.#ingress;
    const isSecure = this.#class.secureHosts.has(host) && annotations.text("ssl-redirect") !== "false";
    const rule = (scheme: Scheme | undefined, to: RuleTarget) => ({
      host,
      ...path,
      scheme,
      methods: null,
      wanted: [],
      target: to,
    });
    if (!isSecure && !annotations.is("force-ssl-redirect")) return [rule(undefined, target)];
    object.place.note("redirects HTTP to HTTPS: a proxy that ends TLS has to be in global.trusted_proxies");
    const redirect = this.#answer(object.place, host, { status: 308, origin: "https://${request.host}" });
    return [rule("https", target), rule("http", { ...redirect, plugins: [] })];
  }

  #answer(place: SourceValue, host: string, redirect: Redirect): RuleTarget {
    const { plugins } = this.#annotated;
    const closed = closedBy(this.#closed(host));
    return { ...this.#named(place), settings: NO_UPSTREAM, plugins, closed, redirect };
  }

  #closed(host: string): string | undefined {
    return this.#annotated.closed ?? this.#class.hostGuards.get(host);
  }

  #named(place: SourceValue): Pick<RuleTarget, "at" | "name"> {
    const { namespace, name } = this.#ingress.object;
    return { at: place.at, name: `${namespace}/${name}` };
  }

  #forward(path: IngressPath, shape: Shape): RuleTarget {
    const backend = this.#backend(path.backend, this.#ingress);
    const canary = this.#canary(path, backend);
    const backends: Weighted[] = [{ place: path.backend, backend, weight: 1 }, ...canary.backends];
    const { settings, closed } = upstreamsOf(backends, this.#draft);
    const { rewrite, isRegex = false, goesOn = false } = shape;
    return {
      ...this.#named(path.place),
      settings: { ...settings, split: canary.split, ...this.#annotated.settings },
      plugins: this.#annotated.plugins,
      closed: closedBy(this.#closed(path.host)) ?? closed,
      rewrite,
      isRegex,
      goesOn,
    };
  }

  /** Its Service is a group of the same service. */
  #canary(path: IngressPath, main: ServiceBackend | string): { backends: Weighted[]; split?: readonly object[] } {
    const [canary, { backend: place } = path] = this.#class.canaries.get(keyOf(path)) ?? [];
    if (canary === undefined || typeof main === "string") return { backends: [] };
    const backend = this.#backend(place, canary);
    if (typeof backend !== "string" && backend.protocol === main.protocol)
      return { backends: [{ place, backend, weight: 1, group: "canary" }], split: splitOf(canary.annotations) };
    place.note(
      `the canary is not carried over: ${typeof backend === "string" ? backend : "its protocol is another one"}`,
    );
    return { backends: [] };
  }

  #backend(place: SourceValue, { object }: Ingress): ServiceBackend | string {
    const service = place.get("service");
    // Of networking.k8s.io/v1beta1.
    const old = place.text("serviceName");
    const name = service.text("name") ?? old;
    if (name === undefined) return "a backend that is no Service is none here";
    const port = service.get("port");
    const wanted = port.get("number").value ?? port.get("name").value ?? place.get("servicePort").value;
    return this.#objects.service(object.namespace, name, wanted, this.#annotated.protocol);
  }

  /** Or why there is none. */
  #shape({ place, host, path, type }: IngressPath): Shape | string {
    const { annotations } = this.#ingress;
    if (["path", "pathType"].some((name) => place.get(name).isMistyped())) return "its path has another type";
    const target = annotations.text("rewrite-target");
    const isRegex = annotations.is("use-regex") || target !== undefined;
    if (!path.startsWith("/")) return 'a path begins with "/"';
    const isRegexHost = this.#class.regexHosts.has(host);
    if (type === "Exact" && !annotations.is("use-regex") && !target?.includes("$")) {
      if (path !== "/")
        place.note("Exact: a path with a slash at its end is the one without it here: both get the rule");
      return {
        segments: literalSegments(path),
        isPrefix: false,
        isWider: false,
        goesOn: isRegexHost,
        ...fullRewrite(target),
      };
    }
    const prefix = target === undefined ? undefined : prefixRewrite(path, target);
    if (prefix !== undefined) {
      const segments = literalSegments(prefix.prefix);
      const rewrite = { segments: segments.length, to: prefix.to };
      return { segments, isPrefix: true, isWider: false, rewrite, goesOn: path.includes("/?(") };
    }
    if (target?.includes("$")) return `rewrite-target "${target}" for "${path}" is no path with a prefix replaced`;
    if (!isRegex || type === "Prefix") {
      const goesOn = (type !== "Prefix" || isRegexHost) && !path.endsWith("/");
      if (goesOn) place.note("a path matches whole segments here: /a is /a and /a/…, not /ab");
      return { segments: literalSegments(path), isPrefix: true, isWider: false, goesOn, ...fullRewrite(target) };
    }
    const read = readPath(`~${path}`, false);
    if (typeof read === "string") return read;
    if (read.isWider)
      place.note(
        "a placeholder is any one segment here: the upstream has to refuse what the expression does not match",
      );
    return { ...read, segments: read.pattern.split("/").slice(1), ...fullRewrite(target) };
  }
}

function closedBy(name: string | undefined): string | undefined {
  return name === undefined ? undefined : `"${name}" may decide who passes, and is not carried over`;
}

/** A target without groups is the whole path at the upstream. */
function fullRewrite(target: string | undefined): { readonly rewrite?: Rewrite } {
  return target === undefined ? {} : { rewrite: { full: literal(target) } };
}

/** The header, the cookie and then the weight decide. */
function splitOf(annotations: Annotations): readonly object[] {
  const [header, cookie] = [annotations.text("canary-by-header"), annotations.text("canary-by-cookie")];
  const [value, pattern] = [annotations.text("canary-by-header-value"), annotations.text("canary-by-header-pattern")];
  const entry = (percent: number, match: object) => ({ group: "canary", percent, match });
  const both = (match: (wanted: unknown) => object) => [entry(100, match("always")), entry(0, match("never"))];
  const byHeader = (wanted: unknown) => ({ headers: { [header!]: wanted } });
  const wanted = value ?? (pattern === undefined ? undefined : { matches: pattern });
  const headers = wanted === undefined ? both(byHeader) : [entry(100, byHeader(wanted))];
  const [weight, total] = [annotations.text("canary-weight"), annotations.text("canary-weight-total")].map(Number);
  const percent = Math.min(100, Math.round(((weight || 0) / (total || 100)) * 10_000) / 100);
  return [
    ...(header === undefined ? [] : headers),
    ...(cookie === undefined ? [] : both((sent) => ({ cookies: { [cookie]: sent } }))),
    { group: "canary", percent },
  ];
}
