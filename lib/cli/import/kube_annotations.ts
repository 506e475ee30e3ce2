/**
 * Turns the annotations of an Ingress, those of ingress-nginx, into plugins and settings of a service.
 */
import type { Draft, DraftPlugin } from "./draft.ts";
import type { ServiceBackend } from "./kube_objects.ts";
import { filled, segmentsOf, type Redirect } from "./kube_targets.ts";
import type { SourceValue } from "./source_value.ts";

export interface Annotated {
  readonly plugins: readonly DraftPlugin[];
  readonly settings: Readonly<Record<string, unknown>>;
  readonly protocol: ServiceBackend["protocol"];
  /** In place of all paths. */
  readonly redirect: Redirect | undefined;
  /** What may decide who passes, and is not carried over. */
  readonly closed: string | undefined;
}

const PREFIX = "nginx.ingress.kubernetes.io/";
/** Decide nothing about who passes. */
const OPEN =
  /^(auth-(realm|cache|keepalive|signin|always|method|proxy-set|secret|request)|limit-(rate|burst|white|allow))/;
const GUARDING = new RegExp(
  "auth|allow|deny|white|black|block|forbid|source|cidr|satisfy|snippet|secur|owasp|waf|protect|armor|middleware|" +
    "plugin|polic|limit|passthrough|jwt|oidc|mtls|access(?!-log)",
);
/** Of programs that do not serve requests. */
const OTHERS = /^(kubectl\.|meta\.helm\.sh|.*cert-manager\.io|external-dns\.|argocd\.|kubernetes\.io\/)/;
/** Of all Ingresses of a host, whichever has it: certificates are asked for, and snippets stand, once for a host. */
const OF_HOST = /^nginx\.ingress\.kubernetes\.io\/(auth-tls-|server-snippet|ssl-passthrough)/;
const READ = new Set([
  ...["rewrite-target", "use-regex", "app-root", "ssl-redirect", "force-ssl-redirect", "service-upstream"],
  ...["canary", "canary-weight", "canary-weight-total", "canary-by-header", "canary-by-header-value"],
  ...["canary-by-header-pattern", "canary-by-cookie"],
]);
const PROTOCOLS: Readonly<Record<string, ServiceBackend["protocol"]>> = {
  HTTP: "http",
  AUTO_HTTP: "http",
  HTTPS: "https",
  GRPC: "h2c",
  GRPCS: "h2",
};
const UNREACHED = "a Service is one upstream here, and the cluster chooses its pods: not carried over";

export class Annotations {
  readonly #place: SourceValue;
  readonly #draft: Draft;
  readonly #read = new Set(READ);

  constructor(place: SourceValue, draft: Draft) {
    this.#place = place;
    this.#draft = draft;
  }

  at(name: string): SourceValue {
    this.#read.add(name);
    return this.#place.get(PREFIX + name);
  }

  text(name: string): string | undefined {
    return this.at(name).text();
  }

  is(name: string): boolean {
    return this.text(name) === "true";
  }

  #list(name: string): string[] {
    return (this.text(name) ?? "")
      .split(",")
      .map((item) => item.trim())
      .filter((item) => item !== "");
  }

  #number(name: string): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    if (/^\d{1,9}$/.test(text)) return Number(text);
    this.at(name).note("is no number, and not carried over");
    return undefined;
  }

  /** What may decide who passes on all paths of its hosts. */
  ofHost(): string | undefined {
    return this.#place.entries().find(([key, { value }]) => OF_HOST.test(key) && isSet(value))?.[0];
  }

  read(): Annotated {
    const closed: string[] = [];
    const plugins = [
      ...this.#cors(),
      ...this.#limits(),
      ...this.#addresses("whitelist-source-range", "whitelist"),
      ...this.#addresses("denylist-source-range", "blacklist"),
      ...this.#forwardAuth(closed),
      ...this.#bodySize(),
    ];
    const written = (this.text("backend-protocol") ?? "HTTP").toUpperCase();
    if (!Object.hasOwn(PROTOCOLS, written)) closed.push("backend-protocol");
    const redirect = this.#redirect(closed);
    const settings = this.#settings();
    closed.push(...this.#others());
    return { plugins, settings, protocol: PROTOCOLS[written] ?? "http", redirect, closed: closed[0] };
  }

  #made(name: string, plugin: string, config: DraftPlugin["config"]): DraftPlugin[] {
    return [this.#draft.from(this.at(name).at, { name: plugin, config })];
  }

  #cors(): DraftPlugin[] {
    if (!this.is("enable-cors")) return [];
    const list = (name: string, usual: readonly string[]) => {
      const given = this.#list(name);
      return given.length === 0 ? usual : given;
    };
    const origins = list("cors-allow-origin", ["*"]);
    const isAny = origins.includes("*");
    const credentials = this.text("cors-allow-credentials") !== "false" && !isAny;
    const allowed = this.#list("cors-allow-headers");
    if (allowed.length === 0)
      this.at("enable-cors").note("all headers that a page asks for are allowed: see allow_headers");
    const config = filled({
      allow_origins: isAny ? ["*"] : origins,
      allow_methods: list("cors-allow-methods", ["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"]),
      allow_headers: allowed,
      expose_headers: this.#list("cors-expose-headers"),
      max_age: Math.min(this.#number("cors-max-age") ?? 86_400, 86_400),
    });
    return this.#made("enable-cors", "cors", credentials ? { ...config, allow_credentials: true } : config);
  }

  #limits(): DraftPlugin[] {
    const [second, minute, count] = ["limit-rps", "limit-rpm", "limit-connections"].map((name) => this.#number(name));
    const name = second === undefined ? "limit-rpm" : "limit-rps";
    const limits = filled({ limit_second: second, limit_min: minute });
    if (Object.keys(limits).length > 0)
      this.at(name).note(
        "ingress-nginx lets a burst of five times the limit pass, and refuses with 503; here it is 429",
      );
    return [
      ...(Object.keys(limits).length === 0 ? [] : this.#made(name, "rate_limit", { ...limits, limit_by: "client_ip" })),
      ...(count === undefined
        ? []
        : this.#made("limit-connections", "concurrency", { max_in_flight: count, limit_by: "client_ip" })),
    ];
  }

  #addresses(name: string, to: string): DraftPlugin[] {
    return this.text(name) === undefined ? [] : this.#made(name, "acl", { [to]: this.#list(name) });
  }

  /** Answers with 2xx let pass, in both. */
  #forwardAuth(closed: string[]): DraftPlugin[] {
    const url = this.text("auth-url");
    const sent = this.#list("auth-response-headers");
    if (url === undefined) return [];
    // Variables of nginx.
    if (url.includes("$")) return (closed.push("auth-url"), []);
    this.at("auth-url").note(
      "gets Authorization, Cookie and X-Forwarded-… only, no X-Original-URL: " +
        "list what else it needs in request_headers",
    );
    return this.#made("auth-url", "forward_auth", filled({ url, response_headers: sent }));
  }

  #bodySize(): DraftPlugin[] {
    const text = this.text("proxy-body-size");
    const [, count, unit = ""] = /^(\d{1,9})([kmg]?)$/i.exec(text ?? "") ?? [];
    if (count === undefined || (text !== undefined && Number(count) === 0)) {
      if (text === undefined)
        this.#place.note(
          "bodies of more than 1 MiB, which ingress-nginx refuses by default, pass: see request_size_limit",
        );
      else if (count === undefined) this.at("proxy-body-size").note('is no size such as "8m", and not carried over');
      return [];
    }
    const bytes = Number(count) * 1024 ** ["", "k", "m", "g"].indexOf(unit.toLowerCase());
    return this.#made("proxy-body-size", "request_size_limit", { max_payload_size: bytes });
  }

  #redirect(closed: string[]): Redirect | undefined {
    for (const [name, usual] of [
      ["temporal-redirect", 302],
      ["permanent-redirect", 301],
    ] as const) {
      const [url, status] = [this.text(name), this.#number(`${name}-code`) ?? usual];
      if (url === undefined) continue;
      const origin = url.replace(/\$request_uri$/, "");
      if (origin.includes("$")) closed.push(name);
      return origin === url ? { status, origin: "", location: url } : { status, origin: origin.replace(/\/+$/, "") };
    }
    return undefined;
  }

  #settings(): Readonly<Record<string, unknown>> {
    const ms = (name: string) => {
      const seconds = this.#number(`proxy-${name}-timeout`);
      return seconds === undefined ? undefined : Math.min(Math.max(seconds * 1000, 1), 86_400_000);
    };
    const [connect, read, send] = [ms("connect"), ms("read"), ms("send")];
    const idle = read === undefined && send === undefined ? undefined : Math.max(read ?? 0, send ?? 0);
    for (const name of ["affinity", "upstream-hash-by", "load-balance"])
      if (this.text(name) !== undefined) this.at(name).note(UNREACHED);
    const host = this.text("upstream-vhost");
    if (host !== undefined) this.at("upstream-vhost").note("the upstream gets its own host and port as Host here");
    return filled({
      preserve_host: host === undefined ? true : undefined,
      timeouts: filled({ connect_ms: connect, response_ms: read, idle_ms: idle }),
    });
  }

  /** What nothing has read: those that may decide who passes. */
  #others(): string[] {
    const all = this.#place.entries().filter(([key, { value }]) => !this.#read.has(nameOf(key)) && isSet(value));
    for (const [key, value] of all) if (!OTHERS.test(key) && !isGuard(key)) value.note("has no counterpart here");
    return all.map(([key]) => key).filter(isGuard);
  }
}

/** The annotation of a route or a Service that may decide who passes; undefined: none does. */
export function guardAmong(annotations: SourceValue): string | undefined {
  return annotations.entries().find(([key, { value }]) => isSet(value) && isGuard(key))?.[0];
}

function nameOf(key: string): string {
  return key.startsWith(PREFIX) ? key.slice(PREFIX.length) : key;
}

function isGuard(key: string): boolean {
  const name = nameOf(key);
  return !OTHERS.test(key) && GUARDING.test(name.replace(/^[^/]*\//, "")) && !OPEN.test(name);
}

function isSet(value: unknown): boolean {
  return !["", "false"].includes(String(value));
}

/** `/foo(/|$)(.*)` with `/bar/$2`: the prefix "/foo", and what takes its place, "/bar". Undefined: another form. */
export function prefixRewrite(
  path: string,
  target: string,
): { readonly prefix: string; readonly to: string } | undefined {
  const forms = /^((?:\/[\w.~-]+)*)(?:\(\/\|\$\)\(\.\*\)|\/\??\(\.\*\)|(\(\/\.\*\)\??|\(\/\.\*\|\$\)))\$?$/.exec(path);
  const [, to, slash, group] = /^((?:\/[\w.~-]+)*)(\/?)\$(\d)$/.exec(target) ?? [];
  if (forms === null || to === undefined || Number(group) !== (path.includes("(/|$)") ? 2 : 1)) return undefined;
  const hasOwnSlash = forms[2] !== undefined;
  return hasOwnSlash === (slash === "") ? { prefix: `/${segmentsOf(forms[1]!).join("/")}`, to } : undefined;
}
