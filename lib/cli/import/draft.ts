/**
 * A configuration while it is made from another program's: what the gateway refuses is taken out again and noted, so
 * that the result is valid.
 *
 * A guard that cannot be carried over does not leave its routes open: they answer 503 until it is replaced.
 */
import { messageOf } from "../../base/errors.ts";
import { DROPPED } from "../../config/dropped_names.ts";
import { formatPath, type Issue, type Path } from "../../config/json.ts";
import { hasReference } from "../../config/references.ts";
import { ConfigError } from "../../gateway/gateway.ts";
import { loadPluginModules } from "../../features/plugin_modules.ts";
import { Candidate } from "../../proof/candidate.ts";
import { builtinPlugins } from "../../plugins/builtin.ts";
import { Failure } from "../failure.ts";
import { withoutControls } from "../terminal.ts";
import { cutHeaderChanges, isHeaderChange } from "./header_changes.ts";
import { freeName, MAX_PARTS, ImportNotes, type SourceValue } from "./source_value.ts";

export interface DraftPlugin {
  readonly name: string;
  readonly config: Readonly<Record<string, unknown>>;
}

export interface DraftRoute {
  readonly name?: string | undefined;
  readonly path: string;
  methods?: readonly string[] | undefined;
  readonly upstream_path?: string | undefined;
  readonly match?: object | undefined;
  readonly timeouts?: object | undefined;
  plugins?: DraftPlugin[] | undefined;
}

export interface DraftService {
  readonly name: string;
  readonly base_path: string;
  readonly hosts?: readonly string[] | undefined;
  plugins?: DraftPlugin[];
  routes: DraftRoute[];
  readonly [setting: string]: unknown;
}

/** Members that are undefined are left out, as by `JSON.stringify`. */
export interface Imported {
  global?: { plugins?: DraftPlugin[]; underscore_headers?: "allow" } | undefined;
  callers?: readonly { readonly id: string; readonly groups: readonly string[] }[] | undefined;
  services: DraftService[];
}

/** Requests that the source serves, and the result does not. */
interface Gap {
  readonly at: Path;
  /** The whole segments that all their paths begin with, such as "/admin"; "" for any path. */
  readonly head: string;
  /** None: all of them. */
  readonly hosts: readonly string[];
  readonly guards: readonly DraftPlugin[];
  readonly closed: DraftPlugin;
}

export class Draft {
  readonly notes = new ImportNotes();
  readonly config: Imported = { services: [] };
  /** Where in the source the services, routes and plugins come from. */
  readonly #origins = new Map<object, Path>();
  readonly #names = new Map<string, number>();
  /** Environment variables that the source refers to, too. */
  readonly #variables = new Set<string>();
  /** Those that differ, since they were last closed. */
  readonly #gaps = new Map<string, Gap>();
  /** Plugins have the same number if their kind and configuration are equal. */
  readonly #numbers = new Map<DraftPlugin | string, number>();
  readonly #closed = new Set<DraftService>();
  /** Those that `closeOverlaps` has closed: their guards are those that they have beside. */
  readonly overlapping = new Set<DraftRoute>();
  /** Routes of regular expressions; true: they accept more than the expression did. */
  readonly #expressions = new Map<object, boolean>();

  /** Remembers where a service, route or plugin comes from. */
  from<T extends object>(at: Path, made: T): T {
    this.#origins.set(made, at);
    if (this.#origins.size > MAX_PARTS)
      throw new Failure(`more than ${MAX_PARTS} services, routes and plugins cannot be imported: split the file`, 2);
    return made;
  }

  /** A regular expression of the source goes before its other routes. */
  isExpression(route: DraftRoute, isWider: boolean): void {
    this.#expressions.set(route, isWider);
  }

  originOf(made: object): Path | undefined {
    return this.#origins.get(made);
  }

  /** A name for a service: `wanted`, or `wanted_2` and so on. */
  serviceName(wanted: string): string {
    return freeName(wanted, this.#names);
  }

  /**
   * A credential of the source. References to environment variables, as Kong and decK write them, are written as ours.
   */
  secret(place: SourceValue): string | undefined {
    const text = place.text();
    const match = /^\{vault:\/\/env\/([\w-]+)\}$|^\$\{\{\s*env "(\w+)"\s*\}\}$/.exec(text ?? "");
    if (match === null) return text;
    const name = match[1]?.replaceAll("-", "_").toUpperCase() ?? match[2]!;
    this.#variables.add(name);
    place.note(`is read from the environment variable ${name}: set it before you validate`);
    return `\${env:${name}}`;
  }

  /** In place of a guard: nobody passes. */
  closed(at: Path, guard: string): DraftPlugin {
    this.notes.addClosed(
      at,
      `"${guard}" is not carried over, and may decide who passes: ` +
        `its routes answer 503 (request_termination) until you replace it`,
    );
    return this.from(at, CLOSED());
  }

  /**
   * A route of the source is left out, which had these plugins. Requests that match `pattern`, a path or a regular
   * expression (`~`), must not reach a less specific route, which may have other guards: what the pattern begins with
   * answers 503, and so do the routes there that lack a guard.
   */
  leaveGap(at: Path, pattern: string, hosts: readonly string[] = [], plugins: readonly DraftPlugin[] = []): void {
    // A last segment of a regular expression may go on: ~/a is /abc, too.
    const segments = /^~/.test(pattern) ? /^~+((?:\/[\w-]+(?=\/(?![?*{])|\$$))*)/ : /^((?:\/[\w-]+(?=\/|$))*)/;
    const head = withoutGroups(pattern).includes("|") ? "" : (segments.exec(pattern)?.[1] ?? "");
    const named = hosts.map((host) => host.toLowerCase());
    const guards = plugins.filter(({ name }) => GUARDS.has(name));
    const gap = {
      at,
      head,
      hosts: named.every((host) => HOST.test(host)) ? named : [],
      guards,
      closed: this.from(at, CLOSED()),
    };
    this.notes.addClosed(at, LEFT_OUT);
    this.#gaps.set(JSON.stringify([head, gap.hosts, guards.map((guard) => this.#numberOf(guard))]), gap);
  }

  #closeGaps(): void {
    const gaps = [...this.#gaps.values()];
    this.#gaps.clear();
    const guarded = new Map<string, Gap[]>();
    for (const gap of gaps.filter(({ guards }) => guards.length > 0)) {
      if (!guarded.has(gap.head)) guarded.set(gap.head, []);
      guarded.get(gap.head)!.push(gap);
    }
    for (const [service, route, plugins] of guarded.size === 0 ? [] : this.routes()) {
      const numbers = new Set(plugins.map((plugin) => this.#numberOf(plugin)));
      const lacks = (guard: DraftPlugin) => !numbers.has(this.#numberOf(guard));
      if (plugins.some(({ name }) => name === "request_termination")) continue;
      for (const head of headsOf(joined(service, route))) {
        const gap = guarded
          .get(head)
          ?.find(({ hosts, guards }) => guards.some(lacks) && meet(hosts, service.hosts ?? []));
        if (gap === undefined) continue;
        const missing = gap.guards
          .filter(lacks)
          .map(({ name }) => `"${name}"`)
          .join(", ");
        this.close(route, `would get requests of ${formatPath(gap.at)}, which is left out, without ${missing}`);
        break;
      }
    }
    const places = new Map(gaps.map((gap) => [JSON.stringify([gap.head, gap.hosts]), gap]));
    for (const { at, head, hosts, closed } of places.values()) {
      const routes = [`${head}/{rest*}`, head || "/"].map((path) => this.from(at, { path }));
      const service: DraftService = {
        name: this.serviceName("closed"),
        base_path: "/",
        hosts: unlessEmpty(hosts),
        upstreams: [DISCARDED],
        plugins: [closed],
        routes,
      };
      this.#closed.add(this.from(at, service));
      // Last: of two routes of one pattern, the later one is taken out.
      this.config.services.push(service);
    }
  }

  /** Until a guard is put in the place of what is left out. */
  close(route: DraftRoute, why: string): void {
    const at = this.#origins.get(route)!;
    this.notes.addClosed(at, `${why}: it answers 503 (request_termination) until you replace it`);
    route.plugins = [...(route.plugins ?? []), this.from(at, CLOSED())];
  }

  /**
   * The source asks regular expressions first, here the more specific pattern goes first, and a placeholder accepts
   * more than an expression.
   * A route that so gets requests of another one, which has a guard that it lacks, is closed.
   */
  closeOverlaps(): void {
    if (this.#expressions.size === 0) return;
    const all = [...this.routes()].map(([service, route, plugins]) => {
      return {
        route,
        hosts: service.hosts ?? [],
        guards: this.guardsIn(plugins),
        isClosed: plugins.some(({ name }) => name === "request_termination"),
        segments: joined(service, route).split("/").slice(1),
      };
    });
    for (const own of all.filter(({ route }) => this.#expressions.has(route))) {
      for (const other of all) {
        if (other === own || !overlap(own.segments, other.segments) || !shareMethod(own.route, other.route)) continue;
        const isFirst = goesBefore(other.segments, own.segments) && meet(own.hosts, other.hosts);
        const isBehind =
          this.#expressions.get(own.route) === true && (other.hosts.length === 0 || meet(own.hosts, other.hosts));
        for (const [to, from] of [
          ...(isFirst ? [[other, own] as const] : []),
          ...(isBehind ? [[own, other] as const] : []),
        ]) {
          if (to.isClosed || from.guards.every((guard) => to.guards.includes(guard))) continue;
          to.isClosed = true;
          this.overlapping.add(to.route);
          this.close(
            to.route,
            `may get requests of ${formatPath(this.#origins.get(from.route)!)}, which has other guards, ` +
              `since a regular expression is a pattern here`,
          );
        }
      }
    }
  }

  /** The routes that are not closed, with the plugins that run for them. */
  *routes(): Generator<[DraftService, DraftRoute, readonly DraftPlugin[]]> {
    for (const service of this.config.services) {
      if (this.#closed.has(service)) continue;
      const shared = [...(this.config.global?.plugins ?? []), ...(service.plugins ?? [])];
      for (const route of service.routes) yield [service, route, [...shared, ...(route.plugins ?? [])]];
    }
  }

  /** The numbers of those that decide who passes. */
  guardsIn(plugins: readonly DraftPlugin[]): readonly number[] {
    return plugins.filter(({ name }) => GUARDS.has(name)).map((plugin) => this.#numberOf(plugin));
  }

  #numberOf(plugin: DraftPlugin): number {
    const text = this.#numbers.has(plugin) ? "" : JSON.stringify(plugin);
    const number = this.#numbers.get(plugin) ?? this.#numbers.get(text) ?? this.#numbers.size;
    if (text !== "") this.#numbers.set(plugin, number).set(text, number);
    return number;
  }

  /** The source has a header with "_" in its name, which is dropped otherwise. False: that is allowed already. */
  allowUnderscores(at: Path): boolean {
    if (this.config.global?.underscore_headers === "allow") return false;
    this.config.global = { ...this.config.global, underscore_headers: "allow" };
    this.notes.add(at, 'has a header with "_" in its name: underscore_headers of "global" is "allow" here');
    return true;
  }

  /** The valid configuration. Throws a `Failure` when nothing is left of it. */
  async finished(): Promise<Imported> {
    for (;;) {
      this.#closeGaps();
      const { services } = this.config;
      for (const service of services) if (service.plugins?.length === 0) delete service.plugins;
      this.config.services = services.filter(({ routes }) => routes.length > 0);
      if (this.config.services.every((service) => this.#closed.has(service)))
        throw new Failure(
          ["no route could be carried over", ...this.notes.lines(3).map(withoutControls)].join("\n"),
          2,
        );
      const all = await this.#issues();
      const issues = all.filter(({ at, message }) => !message.endsWith(DROPPED) || !this.allowUnderscores(at));
      if (issues.length < all.length) continue;
      if (issues.length === 0)
        return { global: this.config.global, callers: this.config.callers, services: this.config.services };
      this.#takeOut(issues);
    }
  }

  async #issues(): Promise<readonly Issue[]> {
    const issues: Issue[] = [];
    findReferences(this.config, [], this.#variables, issues);
    if (issues.length > 0) return issues;
    const environment = Object.fromEntries([...this.#variables].map((name) => [name, name.padEnd(64, "x")]));
    try {
      const modules = await loadPluginModules(this.config, environment);
      await new Candidate({ config: this.config as never, acme: "checked", environment, modules }).close();
      return [];
    } catch (error) {
      if (error instanceof ConfigError) return error.issues;
      throw new Failure(messageOf(error), 2);
    }
  }

  /** Takes out the innermost plugin, route or service that each issue is in. */
  #takeOut(issues: readonly Issue[]): void {
    const out = new Set<object>();
    const doubles = new Set<object>();
    const cut = new Map<DraftPlugin, Set<string>>();
    for (const { at, message } of issues) {
      let found: any = this.config;
      let inner: { readonly part: DraftPlugin | DraftRoute | DraftService; readonly rest: Path } | null = null;
      for (const [i, step] of at.entries()) {
        found = found?.[step];
        if (this.#origins.has(found)) inner = { part: found, rest: at.slice(i + 1) };
      }
      if (inner === null) throw new Failure(`${formatPath(at)} ${message}`, 2);
      const [setting = ""] = inner.rest;
      if (OPTIONAL.has(setting) && !("config" in inner.part)) {
        this.notes.add(
          this.#origins.get(inner.part)!,
          `"${setting}" is not carried over: ${formatPath(inner.rest)}: ${message}`,
        );
        delete (inner.part as Record<string, unknown>)[setting];
        continue;
      }
      const plugin = inner.part as DraftPlugin;
      if (isHeaderChange(plugin, inner.rest)) {
        const [, action, key] = inner.rest as [string, string, string | number];
        const name = typeof key === "string" ? key : (plugin.config[action] as readonly string[])[key];
        cut.set(plugin, (cut.get(plugin) ?? new Set()).add(`${action} ${key}`));
        this.notes.add(this.#origins.get(plugin)!, `"${name}" of "${plugin.name}" is not carried over: ${message}`);
        continue;
      }
      if (out.has(inner.part)) continue;
      out.add(inner.part);
      // Its requests have a route: the earlier one. With conditions, only some of them.
      if (message.startsWith('route "') && setting !== "match") doubles.add(inner.part);
      const service = this.config.services[Number(at[1])]!;
      if (at[0] === "services" && this.#closed.has(service)) continue;
      const what =
        "config" in inner.part
          ? `"${(inner.part as DraftPlugin).name}"`
          : "path" in inner.part
            ? "the route"
            : "the service";
      this.notes.add(
        this.#origins.get(inner.part)!,
        `${what} is not carried over: ${inner.rest.length === 0 ? "" : `${formatPath(inner.rest)}: `}${message}`,
      );
    }
    for (const [plugin, changes] of cut) if (!cutHeaderChanges(plugin, changes)) out.add(plugin);
    for (const [service, route, plugins] of this.routes()) {
      const isLost = (out.has(service) || out.has(route)) && !doubles.has(route);
      if (isLost && plugins.some(({ name }) => GUARDS.has(name)))
        this.leaveGap(this.#origins.get(route)!, joined(service, route), service.hosts, plugins);
    }
    const kept = (plugins: DraftPlugin[] = []): DraftPlugin[] =>
      plugins.flatMap((plugin) => {
        if (!out.has(plugin)) return [plugin];
        return GUARDS.has(plugin.name) ? [this.closed(this.#origins.get(plugin)!, plugin.name)] : [];
      });
    if (this.config.global !== undefined) this.config.global.plugins = kept(this.config.global.plugins);
    this.config.services = this.config.services.filter((service) => !out.has(service));
    for (const service of this.config.services) {
      service.plugins = kept(service.plugins);
      service.routes = service.routes.filter((route) => !out.has(route));
      for (const route of service.routes) {
        route.plugins = kept(route.plugins);
        if (route.plugins.length === 0) delete route.plugins;
      }
    }
  }
}

/** Settings of a service or a route that change nothing about who is served. */
const OPTIONAL: ReadonlySet<string | number> = new Set(["timeouts", "retries"]);
export const HOST = /^(\*\.)?[^*:]+$/;
/** Longer ones are not looked into: that takes time in proportion to their square. */
const MAX_EXPRESSION = 2000;
/** Where nothing is forwarded to. */
export const DISCARDED = { host: "127.0.0.1", port: 9 };
const CLOSED = (): DraftPlugin => ({
  name: "request_termination",
  config: { status: 503, body: "This route is closed until its access control is configured." },
});
const LEFT_OUT =
  "the route is not carried over: its requests get 503 (request_termination) until you replace it, " +
  "or go to another route that has its guards";
const GUARDS: ReadonlySet<string> = new Set(
  builtinPlugins.filter(({ guards }) => guards === true).map(({ name }) => name),
);

export function joined(service: DraftService, route: DraftRoute): string {
  return `${service.base_path}/${route.path}`.replace(/\/{2,}/g, "/");
}

/** An alternative within a group leaves the beginning of an expression as it is. */
function withoutGroups(expression: string): string {
  const shorter = expression.replace(/\([^()]*\)/g, "");
  return shorter === expression || expression.length > MAX_EXPRESSION ? expression : withoutGroups(shorter);
}

/** Of "/a/b": "", "/a" and "/a/b". */
export function headsOf(path: string): string[] {
  const segments = path
    .split("/")
    .slice(1)
    .filter((segment) => segment !== "");
  return ["", ...segments.map((_, i) => `/${segments.slice(0, i + 1).join("/")}`)];
}

/** Whether a path can match both patterns. */
export function overlap(one: readonly string[], other: readonly string[]): boolean {
  for (let i = 0; i < Math.max(one.length, other.length); i++) {
    const [a, b] = [one[i], other[i]];
    if (a === undefined || b === undefined) return false;
    if (a.endsWith("*}") || b.endsWith("*}")) return true;
    if (a !== b && !a.startsWith("{") && !b.startsWith("{")) return false;
  }
  return true;
}

export function unlessEmpty<T>(list: readonly T[]): readonly T[] | undefined {
  return list.length === 0 ? undefined : list;
}

/** Whether the first of two patterns that overlap gets a request for both, or they are one. */
function goesBefore(one: readonly string[], other: readonly string[]): boolean {
  const rank = (segment: string) => (segment.endsWith("*}") ? 2 : Number(segment.startsWith("{")));
  const difference = one.map((segment, i) => rank(segment) - rank(other[i] ?? segment)).find((each) => each !== 0);
  return difference === undefined || difference < 0;
}

function shareMethod({ methods: one }: DraftRoute, { methods: other }: DraftRoute): boolean {
  return one === undefined || other === undefined || one.some((method) => other.includes(method));
}

/**
 * Whether a request for one of these hosts may be for a service with `others` in place of one with `hosts`; none is all
 * hosts. A service without hosts comes after those with.
 */
export function meet(hosts: readonly string[], others: readonly string[]): boolean {
  if (hosts.length === 0) return true;
  const covers = (a: string, b: string) => a === b || (a.startsWith("*.") && b.endsWith(a.slice(1)));
  return others.some((other) =>
    hosts.some((host) => covers(host, other.toLowerCase()) || covers(other.toLowerCase(), host)),
  );
}

const SECRETS: ReadonlySet<string | number> = new Set(["key", "password", "secret", "public_key"]);

/**
 * A text of the source must not become a reference: it could put any secret of this machine into a header or a name.
 */
function findReferences(value: unknown, at: Path, own: ReadonlySet<string>, issues: Issue[]): void {
  if (typeof value === "string" && hasReference(value)) {
    const name = /^\$\{env:(\w+)\}$/.exec(value)?.[1];
    if (name === undefined || !own.has(name) || !SECRETS.has(at.at(-1)!))
      issues.push({
        at,
        message: "contains ${env:…} or ${file:…}, which would be replaced here: write it differently",
        position: null,
      });
  }
  if (typeof value !== "object" || value === null || at.at(-1) === "body" || at.at(-1) === "query") return;
  for (const [key, each] of Object.entries(value))
    findReferences(each, [...at, Array.isArray(value) ? Number(key) : key], own, issues);
}

/** A server of the source. */
export interface DraftTarget {
  readonly protocol: "http" | "https";
  readonly host: string;
  readonly port: number;
  /** Without a slash at its end. */
  readonly path: string;
}

/** Reads an http(s) URL, or returns its error. */
export function readDraftTarget(text: string): DraftTarget | string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return 'expected a URL such as "http://127.0.0.1:3000"';
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    return "expected a URL without user, query and fragment";
  if (url.port === "0") return "expected a port from 1 to 65535";
  const protocol = url.protocol === "https:" ? "https" : "http";
  return {
    protocol,
    host: url.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: Number(url.port) || (protocol === "https" ? 443 : 80),
    path: url.pathname.replace(/\/+$/, ""),
  };
}
