/**
 * Writes the warnings about plugin instances: about their order on a route, and about their own settings.
 */
import { isLoopback } from "../base/url_destination.ts";
import { ROUTES_OF_A_STEP } from "../config/declarations.ts";
import type { GroupLimits } from "../config/group_limits.ts";
import type { CallerRegistry } from "../plugins/callers.ts";
import type { ResourceMetadata } from "../plugins/resource_metadata.ts";
import type { LocationTemplate } from "../plugins/template.ts";
import { readTarget } from "../route/path.ts";
import type { SampleRequest } from "../route/sample_requests.ts";
import { compileTable, type RouteTable, type TableEntry } from "../route/table.ts";
import { describePlace } from "../gateway/plugin_error.ts";
import type { ConfigWarning } from "../gateway/status.ts";
import type { Samples } from "./proven_routes.ts";
import { exampleOf, type WrittenPlugin, type WrittenRoute } from "./written.ts";

type Draft = Pick<ConfigWarning, "code" | "message" | "remedy"> & { readonly example?: string };
type Add = (plugin: WrittenPlugin, draft: Draft) => void;

/**
 * At most one of each code for a plugin instance. `plugins` has all instances, also those of services without routes;
 * `samples` all routes that are reached, each with a request.
 */
export function* ofPlugins(
  plugins: readonly WrittenPlugin[],
  samples: Samples,
  leadsBack: LeadsBack,
  callers: CallerRegistry | null,
): Generator<undefined, readonly ConfigWarning[], undefined> {
  const groups = knownGroups(plugins, callers);
  const found = new Map<WrittenPlugin, Draft[]>();
  const add: Add = (plugin, draft) => {
    const drafts = found.get(plugin) ?? [];
    if (drafts.every(({ code }) => code !== draft.code)) found.set(plugin, [...drafts, draft]);
  };
  for (let i = 0; i < plugins.length; i++) {
    if (i % ROUTES_OF_A_STEP === 0) yield;
    ofSettings(plugins[i]!, add);
    ofGroups(plugins[i]!, groups, add);
  }
  if (callers !== null) ofNames(plugins, add);
  const logins: Logins = new Map();
  let count = 0;
  for (const [route, request] of samples) {
    if (count++ % ROUTES_OF_A_STEP === 0) yield;
    for (let i = 0; i < route.plugins.length; i++) {
      ofOrder(i, route, request, add);
      ofLogin(route.plugins[i]!, route, logins, add);
    }
    ofRedirect(route, request, leadsBack, add);
  }
  /** Of the first route that runs the plugin. */
  const requests = new Map<WrittenPlugin, SampleRequest>();
  if (found.size > 0)
    for (const [{ plugins: all }, request] of samples)
      for (const plugin of all) if (found.has(plugin) && !requests.has(plugin)) requests.set(plugin, request);
  return Array.from(found).flatMap(([plugin, drafts]) => {
    const { path, at, service, route } = plugin;
    const request = requests.get(plugin);
    const example = request === undefined ? null : exampleOf(request);
    return drafts.map((draft) => ({ example, ...draft, path, at, service, route }));
  });
}

function ofSettings(plugin: WrittenPlugin, add: Add): void {
  const { kind, config } = plugin;
  if (kind.name === "fault" && config["percent"] !== 0) {
    const { match, percent, delayMs, status } = config;
    const effects = [
      ...(delayMs === undefined ? [] : [`wait ${String(delayMs)} ms`]),
      ...(status === undefined ? [] : [`get ${String(status)}`]),
    ];
    const message =
      `Faults are injected by ${nameOf(plugin)}: ${String(percent)} % of its ` +
      `requests${match === undefined ? "" : " that match"} ${effects.join(" and ")}.`;
    add(plugin, {
      code: "faults_injected",
      message,
      remedy: 'Remove the plugin, or set its "enabled" to false, when the trial is over.',
    });
  }
  const isForResource = (config["resourceMetadata"] as ResourceMetadata | undefined)?.audience === "resource";
  if (kind.name === "jwt" && config["aud"] === undefined && !("aud" in claimsOf(config)) && !isForResource) {
    const message =
      `${which(plugin)} accepts every token that its keys ` +
      (`verify${config["iss"] === undefined ? "" : " and its issuer has issued"}, ` +
        `also one that was issued for another service.`);
    add(plugin, { code: "token_for_anyone", message, remedy: 'Set "aud" to the name of this service at the issuer.' });
  }
  if (
    kind.name === "introspection" &&
    !isForResource &&
    Object.keys(claimsOf(config)).length === 0 &&
    (config["scopes"] as readonly string[]).length === 0
  ) {
    const message =
      `${which(plugin)} accepts every token that its server calls active, ` +
      `also one that was issued for another service.`;
    add(plugin, {
      code: "token_for_anyone",
      message,
      remedy: 'Set "scopes", or "claims" with the "aud" of this service.',
    });
  }
  if (kind.guards === true && config["onError"] === "allow") {
    const message =
      `${which(plugin)} admits every request, also one without credentials, ` +
      `while its server cannot be asked ("on_error": "allow").`;
    add(plugin, {
      code: "guard_fails_open",
      message,
      remedy: 'Set "on_error" to "deny", or accept the warning if nothing behind the guard needs protection.',
    });
  }
  const [field, use] = REMOTES[kind.name] ?? [];
  const url = field === undefined || typeof config[field] !== "string" ? null : new URL(config[field]);
  if (url?.protocol === "http:" && !isLoopback(url.hostname)) {
    const message =
      `${which(plugin)} ${use} over plain HTTP (${url.host}): ` +
      `anyone on the network between can read and change it.`;
    add(plugin, {
      code: "plain_http_secret",
      message,
      remedy: "Use an https:// URL, or reach the server through a proxy on this machine.",
    });
  }
}

function claimsOf(config: WrittenPlugin["config"]): object {
  return { ...(config["claims"] as object | undefined) };
}

/** The groups that callers can have; null: tokens, or plugins that are not ours, name others. */
function knownGroups(plugins: readonly WrittenPlugin[], callers: CallerRegistry | null): ReadonlySet<string> | null {
  if (
    plugins.some(
      ({ kind, config }) =>
        config["groupsClaim"] !== undefined || (kind.identifies === true && !IDENTIFYING.has(kind.name)),
    )
  )
    return null;
  // There may be a million callers.
  if (plugins.every((plugin) => groupsNamedBy(plugin).length === 0)) return null;
  const known = new Set<string>();
  for (const list of callers?.lists ?? [])
    for (const { groups } of list.callers) for (const group of groups) known.add(group);
  return known;
}

/** Of our kinds, those that identify callers; only by `groups_claim` do they name groups. */
const IDENTIFYING: ReadonlySet<string> = new Set(["key_auth", "basic_auth", "jwt", "introspection", "mtls", "oidc"]);

function groupsNamedBy({ kind, config }: WrittenPlugin): readonly string[] {
  if (kind.name === "authorize")
    return (config["rules"] as readonly { readonly groups?: readonly string[] }[]).flatMap(
      ({ groups }) => groups ?? [],
    );
  if (kind.name === "mcp") return Object.keys(config["toolsByGroup"] ?? {});
  return (config["limitsByGroup"] as GroupLimits<unknown> | undefined)?.map(({ group }) => group) ?? [];
}

function ofGroups(plugin: WrittenPlugin, known: ReadonlySet<string> | null, add: Add): void {
  if (known === null) return;
  const unknown = [...new Set(groupsNamedBy(plugin))].filter((group) => !known.has(group));
  if (unknown.length === 0) return;
  const [first, more] = [JSON.stringify(unknown[0]), unknown.length - 1];
  const message =
    `${which(plugin)} names the group ` + `${first}${more === 0 ? "" : ` and ${more} more`}, which no caller has.`;
  add(plugin, {
    code: "group_unknown",
    message,
    remedy:
      'Correct the name, add it to the "groups" of a caller, or set "groups_claim" of the plugin that reads tokens.',
  });
}

/** The field that holds a URL, and what is sent or fetched there. */
const REMOTES: Readonly<Record<string, readonly [field: string, use: string]>> = {
  jwt: ["jwksUri", "fetches the keys that verify tokens"],
  introspection: ["url", "sends access tokens and the gateway's own credentials"],
  oidc: ["issuer", "fetches tokens and the keys that verify them"],
  forward_auth: ["url", "sends the callers' credentials"],
  http_log: ["httpEndpoint", "sends its log"],
  mirror: ["url", "sends copies of requests, with credentials,"],
};

/** The kinds that count by `limit_by`. */
const COUNTING: ReadonlySet<string> = new Set(["rate_limit", "quota", "concurrency"]);

/** What kinds lack that run before any plugin that identifies the caller. */
const LOST_WITHOUT_IDENTITY: Readonly<
  Record<string, { readonly code: "authorize_before_identity" | "mcp_before_identity"; readonly effect: string }>
> = {
  authorize: {
    code: "authorize_before_identity",
    effect: "no rule about callers, groups or claims holds there",
  },
  mcp: {
    code: "mcp_before_identity",
    effect: "nobody has a group there, and sessions belong to addresses of clients",
  },
};

/** About the plugin at this place of a route. */
function ofOrder(place: number, { plugins, route, service }: WrittenRoute, request: SampleRequest, add: Add): void {
  const plugin = plugins[place]!;
  const { kind, config } = plugin;
  const lost = LOST_WITHOUT_IDENTITY[kind.name];
  if (lost !== undefined && !plugins.slice(0, place).some((other) => other.kind.identifies === true)) {
    const message =
      `${which(plugin)} runs on route "${route.name}" of service "${service.name}" before any plugin that ` +
      `identifies the caller: ${lost.effect}.`;
    add(plugin, {
      code: lost.code,
      message,
      example: exampleOf(request),
      remedy: "Write it behind key_auth, jwt or another plugin that identifies callers.",
    });
  }
  const by = COUNTING.has(kind.name) ? String(config["limitBy"]) : "";
  const hasGroups = config["limitsByGroup"] !== undefined;
  const asks = by === "credential" || by.startsWith("header:") || hasGroups;
  if (kind.stores !== true && kind.name !== "identity_token" && !asks) return;
  const [before, after] = [plugins.slice(0, place), plugins.slice(place + 1)];
  const identifying = before.some((other) => other.kind.identifies === true)
    ? undefined
    : after.find((other) => other.kind.identifies === true);
  if (kind.name === "identity_token" && identifying !== undefined) {
    const message =
      `${which(plugin)} runs before ${nameOf(identifying)}, which identifies the caller: ` +
      `the upstream gets no token.`;
    add(plugin, {
      code: "token_before_identity",
      message,
      example: exampleOf(request),
      remedy: "Move it behind that plugin.",
    });
  }
  const guard = after.findLast((other) => other.guard !== null);
  if (kind.stores === true && guard !== undefined) {
    const message =
      `${which(plugin)} is written further out than ${nameOf(guard)}, which decides who may send requests; ` +
      `the gateway runs it behind that guard all the same.`;
    add(plugin, {
      code: "cache_outside_guard",
      message,
      example: exampleOf(request),
      remedy: "Write it behind the last guard, so that the configuration shows the order that holds.",
    });
  }
  if ((by === "credential" || hasGroups) && identifying !== undefined) {
    const effect = hasGroups ? "nobody has a group there" : "it counts by client address, not by credential";
    const remedy = `Move it behind that plugin${hasGroups ? "" : ', or set "limit_by" to "client_ip"'}.`;
    add(plugin, {
      code: "limit_before_identity",
      message: `${which(plugin)} runs before ${nameOf(identifying)}, which identifies the caller: ${effect}.`,
      example: exampleOf(request),
      remedy,
    });
  }
  if (by.startsWith("header:") && !before.some((other) => other.guard !== null)) {
    const message =
      `${which(plugin)} counts callers by the header ${by.slice("header:".length)}, ` +
      `which any client can change with each request: no guard runs before it.`;
    const remedy =
      "Move it behind key_auth or another guard, add a limit by client_ip, or have a proxy in front set the header.";
    add(plugin, { code: "limit_by_any_header", message, example: exampleOf(request), remedy });
  }
}

function ofRedirect(route: WrittenRoute, request: SampleRequest, leadsBack: LeadsBack, add: Add): void {
  // The first one answers.
  const plugin = route.plugins.find(({ kind }) => kind.name === "redirect");
  if (plugin === undefined || !leadsBack(plugin, route, request)) return;
  const message =
    `${which(plugin)} leads requests of route "${route.route.name}" to the same route, ` +
    `which redirects them again, without end.`;
  add(plugin, {
    code: "redirect_loop",
    message,
    example: exampleOf(request),
    remedy: "To lead to HTTPS, use global.https_redirect; else name a path that another route takes.",
  });
}

/** The instances of `oidc` with the hosts of their services; none: all hosts. */
type Logins = Map<WrittenPlugin, readonly string[]>;

/** About one whose cookies replace those of an earlier one. */
function ofLogin(plugin: WrittenPlugin, { service }: WrittenRoute, logins: Logins, add: Add): void {
  if (plugin.kind.name !== "oidc" || logins.has(plugin)) return;
  const hosts = plugin.service === null ? [] : service.hosts;
  const other = [...logins].find(
    ([each, itsHosts]) => haveCommon(hosts, itsHosts) && cookiesCollide(plugin.config, each.config),
  )?.[0];
  logins.set(plugin, hosts);
  if (other === undefined) return;
  const message =
    `${which(plugin)} and ${nameOf(other)} keep different sessions in cookies of the same name: ` +
    `a login at one can end the session at the other.`;
  add(plugin, {
    code: "session_cookie_shared",
    message,
    remedy: 'Give one of them another "session.cookie", or both the same "issuer" and "client_id".',
  });
}

/** About those that name callers in another way than the first one does: to `callers` a name is one caller. */
function ofNames(plugins: readonly WrittenPlugin[], add: Add): void {
  const naming = plugins.filter(({ kind }) => kind.identifies === true);
  const [first] = naming;
  const seen = new Set(first === undefined ? [] : [namesOf(first)]);
  for (const plugin of naming) {
    const names = namesOf(plugin);
    if (seen.has(names)) continue;
    seen.add(names);
    const message =
      `${which(plugin)} and ${nameOf(first!)} take names of callers from different places: ` +
      "who gets the name of another at one of them has its groups and limits.";
    const remedy =
      "Accept the warning once nobody can choose such a name, or write ids that only one of them can give.";
    add(plugin, { code: "names_mixed", message, remedy });
  }
}

/**
 * Where the names of callers come from: a token has the `sub` of its issuer; those of keys and passwords are written in
 * the configuration, both of them.
 */
function namesOf({ kind, config }: WrittenPlugin): string {
  if (kind.name === "key_auth" || kind.name === "basic_auth") return "";
  return JSON.stringify([kind.name, config["iss"] ?? config["issuer"] ?? config["url"] ?? null]);
}

function haveCommon(hosts: readonly string[], others: readonly string[]): boolean {
  const covers = (one: string, other: string) =>
    one === other || (one.startsWith("*.") && other.endsWith(one.slice(1)));
  return (
    hosts.length === 0 ||
    others.length === 0 ||
    hosts.some((host) => others.some((other) => covers(host, other) || covers(other, host)))
  );
}

/** The plugin takes all cookies whose names begin with that of its session and a dot. */
function cookiesCollide(one: WrittenPlugin["config"], other: WrittenPlugin["config"]): boolean {
  const [own, its] = [one, other].map(({ session }) => (session as { readonly cookie: string }).cookie) as [
    string,
    string,
  ];
  if (own === its) return one["issuer"] !== other["issuer"] || one["clientId"] !== other["clientId"];
  return own.startsWith(`${its}.`) || its.startsWith(`${own}.`);
}

/** At the start of a sentence. */
function which(plugin: WrittenPlugin): string {
  return `The plugin ${nameOf(plugin)}`;
}

function nameOf({ kind, service, route }: WrittenPlugin): string {
  return `${kind.name} of ${describePlace({ service, route })}`;
}

/** Whether the plugin, which runs on the route, leads this request of the route back to it. */
export type LeadsBack = (plugin: WrittenPlugin, route: WrittenRoute, request: SampleRequest) => boolean;

/** The table is made when it is needed first. */
export function redirectLoops(entriesOf: () => readonly TableEntry<WrittenRoute>[]): LeadsBack {
  let table: RouteTable<WrittenRoute> | null = null;
  return ({ config: { status, location, keepQuery } }, route, sent) => {
    table ??= compileTable(entriesOf());
    const target = readTarget(sent.path + sent.query);
    const found =
      "code" in target
        ? null
        : table.find(sent.host, sent.method, target.path, target.encodedSlash, sent.headers, sent.query, sent.scheme);
    if (found?.kind !== "route") return false;
    const { method, host: authority, path } = sent;
    const led = (location as LocationTemplate).read({
      call: { trustedRemote: false },
      headers: [],
      requestId: "",
      method,
      authority,
      path,
      params: found.params,
      clientAddress: "",
      identity: null,
      claims: null,
      groups: [],
      route: route.route,
    });
    const [, scheme = sent.scheme, host = null, rest = ""] = LOCATION.exec(led)!;
    if (host !== null && !isOwn(host, route, sent)) return false;
    const next = readTarget(
      (rest.startsWith("/") ? rest : `/${rest}`) + (keepQuery === true && !rest.includes("?") ? sent.query : ""),
    );
    if ("code" in next) return false;
    const again = table.find(
      host ?? sent.host,
      methodAfter(Number(status), sent.method),
      next.path,
      next.encodedSlash,
      sent.headers,
      next.query,
      scheme.toLowerCase() === "https" ? "https" : "http",
    );
    return again.kind === "route" && again.target === route;
  };
}

const LOCATION = /^(?:(https?):\/\/([^/?#]*))?([^#]*)/i;

/**
 * Whether a host is that of the request, or one of its service. That other names lead to this gateway cannot be known.
 */
function isOwn(host: string, { service: { hosts } }: WrittenRoute, sent: SampleRequest): boolean {
  const name = host.replace(/:\d*$/, "").toLowerCase();
  return name === sent.host || hosts.some((each) => each.toLowerCase() === name);
}

/** RFC 9110 §15.4: what clients ask with. */
function methodAfter(status: number, method: string): string {
  return (status === 303 && method !== "HEAD") || (status < 303 && method === "POST") ? "GET" : method;
}
