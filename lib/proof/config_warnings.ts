/**
 * Computes the warnings about a configuration from the configuration alone.
 */
import { addressOf } from "../base/ip_address.ts";
import { isSecretName } from "../base/secret_names.ts";
import { atOnce, inSlices, paced, type NextTimeSlice } from "../base/time_slices.ts";
import { isLoopback } from "../base/url_destination.ts";
import { formatPath, type Path } from "../config/json.ts";
import { concealerOf, unfilledSecrets } from "../config/secrets.ts";
import { MAX_TAKERS } from "../route/overlaps.ts";
import type { DisplayedConfig } from "../gateway/displayed_config.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import { entryOf } from "../gateway/snapshot.ts";
import type { ConfigWarning } from "../gateway/status.ts";
import { ofErrors } from "./error_warnings.ts";
import { ofCallers } from "./known_callers.ts";
import { ofPlugins, redirectLoops } from "./plugin_warnings.ts";
import { bypassPath, ofRetries, ofRoutes } from "./route_warnings.ts";
import { provenRoutes, type ProofMemory } from "./proven_routes.ts";
import { written, type WrittenRoute } from "./written.ts";

/**
 * Injected faults first, else in the order of the configuration; without those that `global.accept_warnings` names.
 * With 10,000 routes it takes a second.
 */
export function configWarnings(valid: ValidConfig): readonly ConfigWarning[] {
  return atOnce(warningSteps(valid));
}

/** The same in slices, between which the event loop runs. `memory`: of the gateway; default: of nothing. */
export function configWarningsInSlices(
  valid: ValidConfig,
  memory?: ProofMemory,
  nextSlice?: NextTimeSlice,
): Promise<readonly ConfigWarning[]> {
  return inSlices(warningSteps(valid, memory), paced(nextSlice));
}

function* warningSteps(
  valid: ValidConfig,
  memory?: ProofMemory,
): Generator<undefined, readonly ConfigWarning[], undefined> {
  const { services, routes, plugins } = yield* written(valid);
  const accepted = new Acceptances(valid.config.global.acceptWarnings);
  const isAccepted = (guarded: WrittenRoute, taker: WrittenRoute) =>
    accepted.has("guard_bypassed", bypassPath(guarded, taker));
  const proof = yield* provenRoutes(routes, { valid, services, memory, isAccepted });
  const entriesOf = () => routes.map((each) => entryOf(each.service, each.route, each, valid));
  const ofInstances = yield* ofPlugins(plugins, proof.samples, redirectLoops(entriesOf), valid.callers);
  const ofSecrets = yield* ofUnfilled(valid);
  const ofIdle = yield* ofCallers(valid, plugins);
  const isLate = ({ code }: ConfigWarning) => Number(code !== "faults_injected");
  const found: ConfigWarning[] = [];
  for (const find of [
    () => ofPlainServers(valid),
    () => ofPlainUpstreams(valid),
    () => ofProxyHeaders(valid),
    () => ofErrors(valid),
    () => ofSecrets,
    () => ofIdle,
    () => ofInstances,
    () => ofRoutes(proof),
    () => ofRetries(routes, proof.samples),
  ]) {
    yield;
    found.push(...find());
  }
  const warnings = found.sort((a, b) => isLate(a) - isLate(b) || compare(a.at, b.at));
  // An example contains the values of conditions, which may be secret.
  const hasValues = routes.some(({ route }) => route.match !== undefined);
  const shown = hasValues
    ? warnings.map((each) => (each.example === null ? each : { ...each, example: concealerOf(valid)(each.example) }))
    : warnings;
  const left = shown.filter(({ code, path }) => !accepted.has(code, path));
  const mayBeUsed = proof.bypasses.flatMap(({ target, takers }) =>
    takers.length === MAX_TAKERS ? `guard_bypassed:${target.path} by ` : [],
  );
  return [...left, ...accepted.stale(left, mayBeUsed)];
}

/** Of servers that get a password. */
function ofPlainServers({ config: { global } }: ValidConfig): readonly ConfigWarning[] {
  const { counters, egressProxy } = global;
  const servers = [
    { field: "counters", urls: [counters?.url ?? []].flat(), scheme: "rediss" },
    { field: "egress_proxy", urls: [egressProxy?.url ?? []].flat(), scheme: "https" },
  ];
  return servers.flatMap(({ field, urls, scheme }): readonly ConfigWarning[] => {
    const remote = urls.find(({ secure, password, host }) => !secure && password !== null && !isLoopback(host));
    if (remote === undefined) return [];
    const path = `global.${field}`;
    const message =
      `${path} sends its password without TLS (${addressOf(remote)}): ` + `anyone on the network between can read it.`;
    const remedy = `Use a ${scheme}:// URL, or reach the server through a proxy on this machine.`;
    const place = { path, at: ["global", field], service: null, route: null };
    return [{ code: "plain_http_secret", message, example: null, remedy, ...place }];
  });
}

function ofProxyHeaders({ config: { global } }: ValidConfig): readonly ConfigWarning[] {
  // Without trusted proxies no header is taken.
  if (global.proxyProtocol !== "accept" || global.trustedProxies.length === 0) return [];
  const path = "global.proxy_protocol";
  const message =
    `${path} takes connections of trusted proxies with and without a header: ` +
    `where one of these passes on bytes without a header of its own, ` +
    `its clients can send one, and be whoever they like.`;
  const remedy = 'Let each of the proxies send a header, and write "require".';
  const place = { path, at: ["global", "proxy_protocol"], service: null, route: null };
  return [{ code: "proxy_header_optional", message, example: null, remedy, ...place }];
}

/** References as they are written. */
interface WithUpstreams {
  readonly services: readonly {
    readonly upstreams: readonly { readonly request_headers?: Readonly<Record<string, string>> }[];
  }[];
}

/** One for each service whose upstreams get secrets of their own; the first of these upstreams is named. */
function ofPlainUpstreams({ config, shown }: ValidConfig): readonly ConfigWarning[] {
  const written = (shown as unknown as WithUpstreams).services;
  return config.services.flatMap(({ name, protocol, upstreams }, i): readonly ConfigWarning[] => {
    if (protocol === "https" || protocol === "h2") return [];
    for (const [j, upstream] of upstreams.entries()) {
      const headers = Object.entries(
        "host" in upstream && isLoopback(upstream.host) ? {} : (written[i]!.upstreams[j]!.request_headers ?? {}),
      );
      const [header] = headers.find(([each, value]) => isSecretName(each) || value.includes("${")) ?? [];
      if (header === undefined) continue;
      const to = "srv" in upstream ? upstream.srv : addressOf(upstream);
      const message =
        `Service "${name}" sends ${header} of upstream "${upstream.id}" over plain HTTP (${to}): ` +
        `anyone on the network between can read it.`;
      const remedy = 'Use "https" or "h2" as the protocol, or reach the upstream through a proxy on this machine.';
      const at = ["services", i, "upstreams", j, "request_headers"];
      const place = { path: `services.${name}`, at, service: name, route: null };
      return [{ code: "plain_http_secret", message, example: null, remedy, ...place }];
    }
    return [];
  });
}

/** One for each plugin, or other part, with secrets that look like templates. */
function* ofUnfilled(valid: ValidConfig): Generator<undefined, readonly ConfigWarning[]> {
  const { global, services } = valid.shown as unknown as DisplayedConfig;
  const places = yield* unfilledSecrets(valid);
  const found = places.map((at): ConfigWarning => {
    const [service, route] = [
      services[Number(at[0] === "services" ? at[1] : -1)],
      at[2] === "routes" ? Number(at[3]) : -1,
    ];
    const around = service?.routes[route] ?? service ?? global;
    const depth = around === global ? 1 : around === service ? 2 : 4;
    const plugin = at[depth] === "plugins" ? around.plugins[Number(at[depth + 1])] : undefined;
    const names = [
      ...(service === undefined ? ["global"] : ["services", service.name]),
      ...(service?.routes[route] === undefined ? [] : ["routes", service.routes[route].name]),
    ];
    const path = [
      ...names,
      ...(plugin === undefined ? (service === undefined ? at.slice(1, 2) : []) : ["plugins", plugin.id ?? plugin.name]),
    ].join(".");
    const message =
      `The secret at ${formatPath(at)} looks like a template that nobody has filled in: ` +
      `it is used as it is written.`;
    const remedy =
      `Write \${env:NAME} for an environment variable, or \${file:/path} for the content of a file; ` +
      `if it is the secret itself, add "placeholder_secret:${path}" to global.accept_warnings.`;
    return {
      code: "placeholder_secret",
      path,
      message,
      example: null,
      remedy,
      service: service?.name ?? null,
      route: service?.routes[route]?.name ?? null,
      at,
    };
  });
  return [...new Map(found.reverse().map((each) => [each.path, each])).values()];
}

/** The entries of `global.accept_warnings`. Each accepts the warnings of one code and path. */
class Acceptances {
  readonly #entries: readonly string[];
  readonly #areUsed: Map<string, boolean>;

  constructor(entries: readonly string[]) {
    this.#entries = entries;
    this.#areUsed = new Map(entries.map((entry) => [entry, false]));
  }

  has(code: string, path: string | null): boolean {
    const name = `${code}:${path}`;
    const isAccepted = this.#areUsed.has(name);
    if (isAccepted) this.#areUsed.set(name, true);
    return isAccepted;
  }

  /**
   * Warnings about the entries that accept nothing, but for those that begin with one of `mayBeUsed`: what they accept
   * was not looked for.
   */
  stale(left: readonly ConfigWarning[], mayBeUsed: readonly string[]): readonly ConfigWarning[] {
    const names = left.map(({ code, path }) => `${code}:${path}`);
    return this.#entries.flatMap((entry, i) => {
      if (this.#areUsed.get(entry) === true || mayBeUsed.some((begin) => entry.startsWith(begin))) return [];
      // Entries of versions before 0.3 stood for all routes that bypass a guarded one, and for all plugins of a place.
      const meant = names.filter((name) => name.startsWith(`${entry} by `) || name.startsWith(`${entry}.plugins.`));
      return [staleAcceptance(entry, i, meant)];
    });
  }
}

function staleAcceptance(entry: string, i: number, meant: readonly string[]): ConfigWarning {
  const at = ["global", "accept_warnings", i];
  const message = `global.accept_warnings has "${entry}", and there is no such warning.`;
  const remedy =
    meant.length === 0
      ? "Remove the entry, or correct the path: it is the one that the warning names."
      : `Write instead, for each that is intended: ${meant.map((name) => `"${name}"`).join(", ")}.`;
  return {
    code: "stale_acceptance",
    path: `global.accept_warnings[${i}]`,
    message,
    example: null,
    remedy,
    service: null,
    route: null,
    at,
  };
}

/** In the order of the configuration. */
function compare(a: Path, b: Path): number {
  const i = a.findIndex((step, at) => step !== b[at]);
  const [x, y] = [a[i], b[i]];
  if (x === undefined || y === undefined) return a.length - b.length;
  return typeof x === "number" && typeof y === "number" ? x - y : x < y ? -1 : 1;
}
