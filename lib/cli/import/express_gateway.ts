/**
 * Imports a `gateway.config` of Express Gateway: its pipelines as services, with the policies before `proxy` as plugins.
 *
 * Its users, credentials and scopes are in Redis, not in the file: policies that need them are closed until keys are written here.
 */
import { isObject } from "../../json_schema/values.ts";
import { readTarget, splitPrefix, type Draft, type Plugin, type Route, type Service, type Target } from "./draft.ts";
import type { Place } from "./place.ts";

export function importExpressGateway(root: Place, draft: Draft): void {
  const endpoints = new Map(root.either("apiEndpoints", "apiEndpoint").entries());
  const pipelines = root.either("pipelines", "pipeline");
  const listed = Array.isArray(pipelines.value) ? pipelines.items().map((place) => [place.get("name").text() ?? "pipeline", place] as const) : pipelines.entries();
  const used = new Set<string>();
  for (const [name, pipeline] of listed) importPipeline(name, pipeline, root, draft, endpoints, used);
  for (const [name, place] of endpoints) if (!used.has(name)) place.leaveOut("is in no pipeline, and is left out");
  for (const [section, remedy] of Object.entries(SETTINGS)) {
    const place = root.get(section);
    if (place.value !== undefined) place.leaveOut(`is a setting of the program here: ${remedy}`);
  }
  root.ignore("policies");
  root.noteUnread();
}

const SETTINGS = { http: "HTTP_PORT, LISTEN_HOST", https: "HTTPS_PORT, SERVER_CERT_PATH, SERVER_KEY_PATH; global.certificates", admin: "ADMIN_PORT, ADMIN_HOST" };

interface Step {
  readonly policy: string;
  readonly place: Place;
  readonly action: Place;
}

function importPipeline(name: string, pipeline: Place, root: Place, draft: Draft, endpoints: ReadonlyMap<string, Place>, used: Set<string>): void {
  const steps = stepsOf(pipeline);
  const end = steps.findIndex(({ policy }) => policy === "proxy" || policy === "terminate" || policy === "redirect");
  for (const { place } of end < 0 ? [] : steps.slice(end + 1)) place.leaveOut("comes after the policy that answers, and is left out");
  const last = steps[end];
  const isProxied = last?.policy === "proxy";
  const proxy = isProxied ? readProxy(last, root) : last === undefined ? "it has no policy that answers (proxy, redirect, terminate)" : NO_PROXY;
  if (typeof proxy === "string") pipeline.leaveOut(`the pipeline is not carried over: ${proxy}`);
  const plugins = steps.slice(0, isProxied ? end : end < 0 ? undefined : end + 1).flatMap((step) => pluginOf(step, draft));
  const services = new Map<string, Service>();
  const listed = pipeline.either("apiEndpoints", "apiEndpoint");
  for (const reference of Array.isArray(listed.value) ? listed.items() : [listed]) {
    const endpoint = endpoints.get(reference.text() ?? "");
    if (endpoint === undefined) reference.note("is no apiEndpoint, and is left out");
    used.add(reference.text() ?? "");
    for (const part of endpoint === undefined ? [] : Array.isArray(endpoint.value) ? endpoint.items() : [endpoint]) {
      if (!isObject(part.value)) {
        part.note("is no endpoint: expected an object");
        continue;
      }
      const written = texts(part.get("host"));
      const hosts = written.includes("*") ? [] : written;
      const routes = routesOf(part, proxy, draft, (pattern) => draft.leaveGap(part.at, pattern, hosts, plugins));
      if (typeof proxy === "string") continue;
      for (const { base, route } of routes) {
        const key = JSON.stringify([hosts, base]);
        let service = services.get(key);
        if (service === undefined) {
          service = { name: draft.serviceName(name), base_path: base, ...(hosts.length === 0 ? {} : { hosts }), protocol: proxy.protocol, upstreams: proxy.upstreams, ...proxy.settings, plugins: [...plugins], routes: [] };
          services.set(key, draft.from(part.at, service));
          draft.config.services.push(service);
        }
        service.routes.push(route);
      }
    }
  }
  if (services.size > 1 && plugins.some((plugin) => plugin.name === "rate_limit")) pipeline.note("is several services here, and rate_limit counts for each of them");
}

const NO_PROXY: Proxy = { upstreams: [{ host: "127.0.0.1", port: 9 }], protocol: "http", path: "", settings: {}, isStripped: false };

/** `policies` is a list of objects with one policy each, which has one step or a list of them. Steps that never run are left out. */
function stepsOf(pipeline: Place): Step[] {
  const policies = pipeline.either("policies", "policy");
  return policies.items().flatMap((entry) =>
    (typeof entry.value === "string" ? [[entry.value, entry] as const] : entry.entries()).flatMap(([policy, given]) => {
      const steps = Array.isArray(given.value) ? given.items() : [given];
      const made = (steps.length === 0 ? [given] : steps).map((place) => ({ policy, place, action: place.get("action") }));
      return made.filter(({ place }) => place.get("condition").get("name").text() !== "never");
    }),
  );
}

interface Proxy {
  readonly upstreams: readonly { readonly host: string; readonly port: number }[];
  readonly protocol: string;
  /** That of the service endpoint. */
  readonly path: string;
  readonly settings: object;
  readonly isStripped: boolean;
}

function readProxy({ place, action }: Step, root: Place): Proxy | string {
  if (isConditional(place)) return "its proxy has a condition";
  if (action.get("ignorePath").flag() === true) return '"ignorePath" has no counterpart: upstreams get the path below base_path';
  const name = action.get("serviceEndpoint").text() ?? "";
  const endpoint = root.get("serviceEndpoints").get(name);
  const urls = endpoint.get("url").value === undefined ? endpoint.get("urls").items() : [endpoint.get("url")];
  const targets: Target[] = [];
  for (const url of urls) {
    const target = readTarget(url.text() ?? "");
    if (typeof target === "string") return `the service endpoint "${name}": ${target}`;
    if (targets[0] !== undefined && (target.path !== targets[0].path || target.protocol !== targets[0].protocol)) return `the urls of "${name}" differ in path or protocol`;
    targets.push(target);
  }
  if (targets.length === 0) return `the service endpoint "${name}" has no url`;
  action.ignore("strategy");
  const path = action.get("prependPath").flag() === false ? "" : targets[0]!.path;
  // Without changeOrigin, http-proxy keeps the client's Host.
  const settings = action.get("changeOrigin").flag() === true ? {} : { preserve_host: true };
  const upstreams = targets.map(({ host, port }) => ({ host, port }));
  return { upstreams, protocol: targets[0]!.protocol, path, settings, isStripped: action.get("stripPath").flag() === true };
}

interface BasedRoute {
  readonly base: string;
  readonly route: Route;
}

/** Express patterns as ours: `/items/:id` is `/items/{id}`, `/items/*` is `/items/{rest*}`. */
function routesOf(part: Place, proxy: Proxy | string, draft: Draft, leaveGap: (pattern: string) => void): readonly BasedRoute[] {
  const left = (place: Place, pattern: string, why: string, gap = pattern) => {
    place.note(`"${pattern}" is not carried over: ${why}`);
    leaveGap(gap);
    return [];
  };
  for (const name of ["hostRegex", "pathRegex"]) {
    const pattern = part.get(name).text();
    if (pattern !== undefined) return left(part.get(name), pattern, "there are no regular expressions", name === "pathRegex" ? `^${pattern}` : "");
  }
  const wrong = ["host", "methods", "paths", "path"].find((name) => typeof part.get(name).value !== "string" && !part.get(name).isTexts());
  if (wrong !== undefined) return (part.get(wrong).leaveOut("the endpoint is not carried over: expected a text or a list of texts"), leaveGap(""), []);
  // Who has which scopes is in Redis.
  const closed = [part.get("scopes").value ?? []].flat().length === 0 ? {} : { plugins: [draft.closed(part.get("scopes").at, "scopes")] };
  const methods = texts(part.get("methods")).flatMap((text) => text.split(",")).map((text) => text.trim().toUpperCase()).filter((text) => text !== "*");
  const written = part.either("paths", "path");
  const patterns = written.value === undefined ? ["*"] : texts(written);
  if (typeof proxy === "string") return (patterns.forEach((pattern) => leaveGap(pattern)), []);
  return patterns.flatMap((pattern): readonly BasedRoute[] => {
    const match = /^((?:\/:?[\w.~-]+)*)(\/\*|\*|\/)?$/.exec(pattern);
    if (match === null) return left(written, pattern, "write it with placeholders that are whole segments");
    const head = match[1]!.replace(/:(\w+)/g, "{$1}");
    const tails = match[2] === "*" ? ["/{rest*}", ""] : [match[2] === "/*" ? "/{rest*}" : ""];
    const split = proxy.isStripped ? splitPrefix(head, proxy.path) : splitPrefix("", proxy.path);
    if (split === null) return left(written, pattern, `upstreams get the path below base_path, and nothing is put before it ("${proxy.path}")`);
    return tails.map((tail) => {
      const path = (proxy.isStripped ? split.prefix : head) + tail || "/";
      return { base: split.base, route: draft.from(part.at, { path, ...(methods.length === 0 ? {} : { methods }), ...closed }) };
    });
  });
}

/** A text, or a list of them. */
function texts(place: Place): readonly string[] {
  return Array.isArray(place.value) ? place.texts() : [place.text() ?? []].flat();
}

function isConditional(place: Place): boolean {
  return place.get("condition").value !== undefined && place.get("condition").get("name").text() !== "always";
}

/** Policies that refuse nobody. */
const OPEN = new Set(["cors", "rate-limit", "log", "headers", "request-transformer", "response-transformer"]);

function pluginOf({ policy, place, action }: Step, draft: Draft): Plugin[] {
  const made = isConditional(place) ? undefined : (Object.hasOwn(CONVERTED, policy) ? CONVERTED[policy]!(action, draft) : undefined);
  if (made !== undefined) return [draft.from(place.at, made)];
  place.ignore("action", "condition");
  if (!OPEN.has(policy)) return [draft.closed(place.at, policy)];
  place.note(`"${policy}" is not carried over${policy === "log" ? ": see the access log, and http_log" : isConditional(place) ? ": it has a condition" : ""}`);
  return [];
}

const CONVERTED: Readonly<Record<string, (action: Place, draft: Draft) => Plugin | undefined>> = {
  cors(action) {
    const origin = action.get("origin").value;
    const list = (from: string) => texts(action.get(from)).flatMap((text) => text.split(",")).map((text) => text.trim());
    const some = (from: string, to: string) => (action.get(from).value === undefined ? {} : { [to]: list(from) });
    const flags = { allow_credentials: action.get("credentials").flag(), preflight_continue: action.get("preflightContinue").flag(), max_age: action.get("maxAge").number() };
    const origins = origin === undefined || origin === true ? ["*"] : list("origin");
    const lists = { ...some("methods", "allow_methods"), ...some("allowedHeaders", "allow_headers"), ...some("exposedHeaders", "expose_headers") };
    action.ignore("optionsSuccessStatus");
    return { name: "cors", config: { allow_origins: origins, ...lists, ...JSON.parse(JSON.stringify(flags)) } };
  },

  "rate-limit"(action) {
    const [max, window] = [action.get("max").number() ?? 5, action.get("windowMs").number() ?? 60_000];
    const field = { 1000: "limit_second", 60_000: "limit_min", 3_600_000: "limit_hour" }[window];
    const by = action.get("rateLimitBy").text();
    if (field === undefined) return void action.get("windowMs").note("windows are a second, a minute and an hour");
    if (by !== undefined && !/^\$\{req\.(ip|user\.id)\}$/.test(by)) return void action.get("rateLimitBy").note('what is counted together is an address, a caller, or a header (limit_by: "header:NAME")');
    return { name: "rate_limit", config: { [field]: max, ...(by?.includes("user") ? { limit_by: "credential" } : {}) } };
  },

  jwt(action, draft) {
    const key = draft.secret(action.get("secretOrPublicKey"));
    const place = { authBearer: "header", query: `query:${action.get("jwtExtractorField").text() ?? "token"}` }[action.get("jwtExtractor").text() ?? "authBearer"];
    if (place === undefined) return void action.get("jwtExtractor").note("tokens are read from Authorization: Bearer, a cookie or the query");
    if (key === undefined) return void action.note('needs a key here: "secret", "public_key" ("${file:PATH}" reads it from a file) or "jwks_uri"');
    if (action.get("checkCredentialExistence").flag() !== false) return void action.note("credentials are in Redis: if a valid signature is enough, set checkCredentialExistence to false and import again");
    const isPem = key.includes("-----BEGIN");
    const names = { iss: action.get("issuer").text(), aud: action.get("audience").text() };
    const config = { alg: isPem ? "RS256" : "HS256", [isPem ? "public_key" : "secret"]: key, ...JSON.parse(JSON.stringify(names)), exp: "optional", from: place };
    action.note(`accepts ${config.alg} only`);
    return { name: "jwt", config };
  },

  redirect: (action) => ({ name: "redirect", config: { status: action.get("statusCode").number() ?? 302, location: action.get("redirectUrl").text() ?? "" } }),

  terminate: (action) => ({ name: "request_termination", config: { status: action.get("statusCode").number() ?? 400, body: action.get("message").text() ?? "Terminated" } }),
};
