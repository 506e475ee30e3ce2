/**
 * Explains how a request would be handled: its route or why it has none, its plugins in their order, and the upstreams
 * that could get it.
 * The answer comes from the data path itself (`gateway/serve.ts`), run with a handler that sends nothing; only the
 * sentences are written here.
 */
import { METHODS } from "node:http";
import type { OptionNames } from "../base/option_names.ts";
import type { Json } from "../config/json.ts";
import type { Service } from "../config/model.ts";
import { concealerOf } from "../config/secrets.ts";
import type { Exchange } from "../http/exchange.ts";
import { headerValue, type HeaderList } from "../http/headers.ts";
import { asSent, type Reply } from "../http/reply.ts";
import { pluginLabels, type Metrics } from "../observe/metrics_plan.ts";
import { runningOrder } from "../plugins/chain.ts";
import { readTarget } from "../route/path.ts";
import type { SplitDestination } from "../upstream/balancing.ts";
import { upstreamSetReport, type UpstreamSetReport, type UpstreamReport } from "../upstream/upstream_report.ts";
import { hashing, hashKey } from "../upstream/hash.ts";
import { servingOf, usableOf } from "../upstream/usable.ts";
import type { Configuration } from "../gateway/configuration.ts";
import type {
  DisplayedConfig,
  DisplayedPlugin,
  DisplayedRoute,
  DisplayedService,
} from "../gateway/displayed_config.ts";
import { viaNameOf } from "../gateway/upstreams.ts";
import { displayed } from "./displayed.ts";
import { headersFor } from "./stand_ins.ts";
import { checkRequest, injected } from "./made_request.ts";
import { NOT_REACHED, tryRequest, type PluginVerdict, type Step } from "./plugin_verdicts.ts";
import { explainRoute, patternOf, type ExplainedCandidate, type ShownRoute } from "./route_reasons.ts";
import type { Runtime } from "../gateway/runtime.ts";
import type { ServeTools } from "../gateway/serve.ts";
import type { Snapshot } from "../gateway/snapshot.ts";

/** A request that is not sent. */
export interface Question {
  readonly method: string;
  /** "/shop/items?x=1", or an absolute http(s) URL. */
  readonly url: string;
  /** Without `Host` and with a `url` that names none, the host is "localhost". */
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** The address that connects to the gateway. Default "127.0.0.1". */
  readonly clientIp?: string;
  /** Default: none, whatever a Content-Length says. */
  readonly body?: string;
}

const QUESTION_NAMES: OptionNames<Question> = { method: true, url: true, headers: true, clientIp: true, body: true };

export interface Explanation {
  readonly outcome: "matched" | "refused";
  /**
   * The status over HTTP/1.1 of a request that is refused before any plugin: 400, 404, 405, 413, 414, 417 or 431, or
   * that of an entry of `errors`; the status of a redirect to HTTPS, or 200 for metadata of a protected resource.
   */
  readonly status: number | null;
  readonly code: string | null;
  /** Sentences on why this route matches, or why none does. */
  readonly reasons: readonly string[];
  /** The routes whose patterns fit the path, the most specific first; then some that nearly fit. */
  readonly candidates: readonly ExplainedCandidate[];
  /** Normalised; null when the path is refused. */
  readonly path: string | null;
  readonly service: string | null;
  readonly route: string | null;
  /** base_path and path together. */
  readonly pattern: string | null;
  readonly params: Readonly<Record<string, string>>;
  /** Path and query as the upstream gets them, unless a plugin changes them. */
  readonly forwarded: string | null;
  /**
   * Names and values in turn, as the first upstream would get them, secrets masked; null where a plugin answers, or the
   * request is refused.
   */
  readonly upstreamHeaders: HeaderList | null;
  /** In the order in which they run; `config` as it is displayed. */
  readonly plugins: readonly ExplainedPlugin[];
  /**
   * Whether the reply is not known: a plugin on its way asks another machine, or what it does is not known. Such a
   * plugin may still refuse the request.
   */
  readonly open: boolean;
  /** The plugin that answers the request itself, if those before it let it pass; null: none does. */
  readonly answer: Pick<ExplainedPlugin, "level" | "name" | "id" | "status" | "code" | "rule"> | null;
  readonly strategy: string | null;
  /** What the strategy `hash` looks at; null with any other. */
  readonly hashOn: string | null;
  /** Name of the cookie that goes before the strategy; null without `sticky`. */
  readonly sticky: string | null;
  /** Of the route, and of its service where the route says nothing; null where the request is refused. */
  readonly timeouts: Service["timeouts"] | null;
  /** `share`: of such requests, 0 to 1, as things stand. */
  readonly upstreams: readonly UpstreamReport[];
}

/** A plugin that runs for a route. */
export interface RunningPlugin {
  readonly level: "global" | "service" | "route";
  readonly name: string;
  readonly id: string | null;
  readonly config: DisplayedPlugin["config"];
}

/** Since the start, on all routes for which the instance runs. */
export interface CountedPlugin extends RunningPlugin {
  readonly requests: number;
  /** Those that it answered itself: it refused them, or had the reply. */
  readonly answered: number;
}

/** What it does with the request, as far as that needs no other machine. */
export interface ExplainedPlugin extends RunningPlugin, PluginVerdict {}

/** A snapshot, in force or not, and the parts of a gateway that it is explained with. */
type ExplainSource = ServeTools & { readonly runtime: Runtime } & {
  readonly configuration: Pick<Configuration, "snapshot">;
};

/** `displayed` is the configuration of the snapshot, with secrets masked or not. Takes 2 s at most. */
export async function explain(question: Question, displayed: Json, source: ExplainSource): Promise<Explanation> {
  checkRequest("explain", question, QUESTION_NAMES);
  const { method } = question;
  const { snapshot } = source.configuration;
  const inbound = injected(
    question,
    snapshot.receiving,
    snapshot.config.global.httpsRedirect === undefined ? "http" : "https",
    question.body === undefined,
  );
  const target = readTarget(inbound.target);
  const shown = displayed as unknown as DisplayedConfig;
  const asked =
    "code" in target
      ? null
      : { inbound, target, authority: target.authority ?? inbound.authority, table: snapshot.table, shown };
  // A reload may replace them while the plugins run.
  const upstreamSets = source.runtime.upstreamSets;
  const { found, reply, problem, forwarded, steps } = await tryRequest(inbound, snapshot, source.clock);
  const answer =
    asked === null || found === null ? { place: null, reasons: [], candidates: [] } : explainRoute(found, asked);
  const { place, candidates } = answer;
  const path = asked === null ? null : asked.target.path;
  if (place === null || found?.kind !== "route") {
    const { code, detail } = problemOf(reply!);
    const reasons = [detail, ...answer.reasons, ...(found === null ? [] : ofMethod(method))];
    return { ...NOTHING, outcome: "refused", status: asSent(reply!).status, code, reasons, candidates, path };
  }
  const { service, route } = place;
  const upstreams = upstreamSets.find((each) => each.service === service.name);
  const followed = followedBy(service, upstreams?.peers ?? []);
  const unserved = upstreams === undefined ? [] : whyUnserved(upstreamSetReport(upstreams), followed);
  // Another server may give an identity or headers.
  const isComplete = forwarded !== null && !steps.some(({ now }) => now.action === "asks");
  const plan = snapshot.inUse.upstreamSets.get(service.name);
  const session = (isComplete && plan?.sticky?.session(forwarded)) || null;
  // Without a split, all upstreams that can be used share the requests.
  const divided =
    upstreams === undefined
      ? []
      : (plan?.split?.destinations(forwarded) ?? [{ peers: servingOf(usableOf(upstreams.peers)), share: 1 }]);
  const destinations = session === null ? divided : [{ peers: [session], share: 1 }];
  const ofHash = isComplete ? whyUpstream(service, destinations, forwarded) : [];
  const chosen =
    session === null
      ? ofHash
      : [`Its cookie ${service.sticky!.cookie} leads to upstream ${JSON.stringify(session.id)}.`];
  const plugins = pluginsOf(place, shown, snapshot.kinds, steps);
  const unrun = problem === null ? [] : [`The plugins cannot be run here: ${problem}.`];
  return {
    outcome: "matched",
    status: null,
    code: null,
    reasons: [
      ...answer.reasons,
      ...unrun,
      ...ofTimeouts(route),
      ...chosen,
      ...followed,
      ...unserved,
      ...ofMethod(method),
    ],
    candidates,
    path,
    service: service.name,
    route: route.name,
    pattern: patternOf(place),
    params: { ...found.params },
    forwarded: forwarded === null ? found.upstreamPath + asked!.target.query : forwarded.upstreamPath + forwarded.query,
    upstreamHeaders: forwarded === null ? null : shownHeaders(forwarded, snapshot),
    plugins,
    ...endOf(plugins),
    strategy: service.load_balancing_strategy,
    hashOn: service.hash_on ?? null,
    sticky: service.sticky?.cookie ?? null,
    timeouts: timeoutsOf(place, snapshot),
    upstreams: upstreams === undefined ? [] : upstreamSetReport(upstreams, plan?.split, destinations).upstreams,
  };
}

function timeoutsOf(place: ShownRoute, { config }: Snapshot): Service["timeouts"] {
  const service = config.services.find(({ name }) => name === place.service.name)!;
  return { ...service.timeouts, ...service.routes.find(({ name }) => name === place.route.name)!.timeouts };
}

function ofTimeouts({ timeouts = {} }: DisplayedRoute): string[] {
  const own = Object.entries(timeouts).map(([name, ms]) => `${name} ${ms}`);
  return own.length === 0 ? [] : [`The route has timeouts of its own: ${own.join(", ")}.`];
}

/** A method that listeners refuse: node's HTTP/1 parser has a fixed list. */
function ofMethod(method: string): string[] {
  return METHODS.includes(method)
    ? []
    : [`That is over HTTP/2: HTTP/1.1 has no method ${method} here, and answers 400.`];
}

const NOTHING = {
  service: null,
  route: null,
  pattern: null,
  params: {},
  forwarded: null,
  upstreamHeaders: null,
  plugins: [],
  open: false,
  answer: null,
  strategy: null,
  hashOn: null,
  sticky: null,
  timeouts: null,
  upstreams: [],
} as const;

/** Null: there is no upstream, or no such head can be sent. */
function shownHeaders(forwarded: Exchange, snapshot: Snapshot): HeaderList | null {
  const { global, services } = snapshot.config;
  const service = services.find(({ name }) => name === forwarded.service.name)!;
  const conceal = concealerOf(snapshot);
  const valueOf = (name: string, value: string) =>
    value === forwarded.call.id ? REQUEST_ID : displayed(value, conceal, name);
  try {
    return (
      headersFor(forwarded, service, viaNameOf(global.name))?.map((text, i, list) =>
        i % 2 === 0 ? text : String(valueOf(list[i - 1]!, text)),
      ) ?? null
    );
  } catch {
    return null;
  }
}

/** In the place of an id that is another one each time. */
const REQUEST_ID = "(id of the request)";

function problemOf({ status, body, headers }: Reply): { readonly code: string | null; readonly detail: string } {
  if (status === 200 || status === 204)
    return { code: null, detail: "The gateway answers with the metadata of a protected resource (resource_metadata)." };
  if (body === null)
    return { code: null, detail: `global.https_redirect leads to ${headerValue(headers, "location") ?? ""}.` };
  const { code, detail, title } = JSON.parse(String(body)) as { code: string; detail?: string; title: string };
  return { code, detail: detail ?? `${title}.` };
}

interface WithUpstreams {
  readonly upstreams: readonly { readonly id: string; readonly host?: string; readonly srv?: string }[];
}

/** What of its upstreams changes without a reload. */
function followedBy(service: DisplayedService, peers: readonly { readonly id: string }[]): string[] {
  const { upstreams } = service as DisplayedService & WithUpstreams;
  const configured = new Set(upstreams.map(({ id }) => id));
  return upstreams.flatMap(({ id: own, host, srv }) => {
    if (srv !== undefined)
      return `Upstreams of the service are the targets of the SRV record ${srv}, as name servers say.`;
    const isDivided = peers.some(({ id }) => id.startsWith(`${own}/`) && !configured.has(id));
    return isDivided ? `Upstreams of the service are the addresses of the name ${host}, as name servers say.` : [];
  });
}

function whyUnserved({ circuitBreaker, upstreams }: UpstreamSetReport, followed: readonly string[]): string[] {
  const reasons: string[] = [];
  if (circuitBreaker?.state === "open")
    reasons.push("The circuit of the service is open: what the plugins let pass gets 503 until it tries again.");
  const serving = upstreams.filter(({ share }) => share > 0);
  if (serving.length > 0 && serving.every(({ backup }) => backup))
    reasons.push("No other upstream of the service can be used: its backups get the requests.");
  if (upstreams.length === 0 && followed.length > 0) reasons.push("No targets are known at the moment.");
  else if (!upstreams.some(({ usable }) => usable))
    reasons.push("No upstream of the service can be used: what the plugins let pass gets 503.");
  return reasons;
}

/**
 * The upstream that a hash leads to; nothing with other strategies, which depend on the requests before this one, as a
 * split may.
 */
function whyUpstream(
  service: DisplayedService,
  [first, ...others]: readonly SplitDestination[],
  request: Exchange,
): string[] {
  const { load_balancing_strategy: strategy, hash_on: on = "client_ip", hash_balance_factor: factor = 0 } = service;
  if (strategy !== "hash" && strategy !== "ip_hash") return [];
  if (hashKey(on)(request) === null)
    return [`The request has no value for hash_on ${on}: such requests go to each upstream in turn.`];
  if (first === undefined || others.length > 0) return [];
  const peer = hashing(on, 0).pick(first.peers, request);
  const bound = factor === 0 ? "" : `, unless it has ${factor} % of the mean load`;
  return peer === null ? [] : [`Its hash of ${on} leads to upstream ${JSON.stringify(peer.id)}${bound}.`];
}

/** The enabled plugins of a route in the order in which they run; null: there is no such route. */
export function routePlugins(
  names: { readonly service: string; readonly route: string },
  displayed: Json,
  kinds: Snapshot["kinds"],
  meters: Metrics["plugins"] = new Map(),
): readonly CountedPlugin[] | null {
  const shown = displayed as unknown as DisplayedConfig;
  const service = shown.services.find(({ name }) => name === names.service);
  const route = service?.routes.find(({ name }) => name === names.route);
  if (service === undefined || route === undefined) return null;
  return running({ service, route }, shown, kinds).map(({ plugin, nth }) => {
    const { level, name, id } = plugin;
    const place = {
      name,
      level,
      service: level === "global" ? null : service.name,
      route: level === "route" ? route.name : null,
    };
    const { requests, answered } = meters.get(JSON.stringify(pluginLabels({ ...place, id: id ?? String(nth) }))) ?? {
      requests: 0,
      answered: 0,
    };
    return { ...plugin, requests, answered };
  });
}

function pluginsOf(
  place: ShownRoute,
  shown: DisplayedConfig,
  kinds: Snapshot["kinds"],
  steps: readonly Step[],
): ExplainedPlugin[] {
  const { service, route } = place;
  const own = steps.filter(
    ({ scope }) => (scope.service ?? service.name) === service.name && (scope.route ?? route.name) === route.name,
  );
  const verdict = (level: string, i: number) => own.filter(({ scope }) => scope.level === level)[i]?.now ?? NOT_REACHED;
  return running(place, shown, kinds).map(({ plugin, i }) => ({ ...plugin, ...verdict(plugin.level, i) }));
}

function endOf(plugins: readonly ExplainedPlugin[]): Pick<Explanation, "open" | "answer"> {
  const end = plugins.findIndex(({ action }) => action === "answers");
  const open = plugins.slice(0, end < 0 ? plugins.length : end).some(({ action }) => action !== "passes");
  if (end < 0) return { open, answer: null };
  const { level, name, id, status, code, rule } = plugins[end]!;
  return { open, answer: { level, name, id, status, code, rule } };
}

/**
 * In the order in which they run. `i`: the place of a plugin among the enabled ones of its level; `nth`: among all of
 * its kind there, from 1.
 */
function running(
  { service, route }: ShownRoute,
  { global }: DisplayedConfig,
  kinds: Snapshot["kinds"],
): readonly { readonly plugin: RunningPlugin; readonly i: number; readonly nth: number }[] {
  const written = LEVELS.flatMap((level) => {
    const { plugins } = { global, service, route }[level];
    return plugins
      .filter(({ enabled }) => enabled)
      .map((instance, i) => {
        const { name, id = null, config } = instance;
        const nth = plugins.slice(0, plugins.indexOf(instance) + 1).filter((each) => each.name === name).length;
        return { plugin: { level, name, id, config }, i, nth, kind: kinds.find((kind) => kind.name === name)! };
      });
  });
  return runningOrder(written);
}

const LEVELS = ["global", "service", "route"] as const;
