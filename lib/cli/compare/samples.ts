/**
 * Makes the requests on which two versions are compared: for every route one that it takes, one for each overlap of two routes, near misses, and
 * those of the configuration's tests. Only one of the versions may accept the configuration, so that it is read as JSON alone.
 */
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { atOnce } from "../../base/time_slices.ts";
import { routeConditions } from "../../route/conditions.ts";
import { proveRoutes, type Proof } from "../../route/overlaps.ts";
import { parsePattern } from "../../route/pattern.ts";
import type { SampleRequest } from "../../route/sample_requests.ts";
import type { TableEntry } from "../../route/table.ts";
import type { AskedRequest } from "./child.ts";

export interface Sample {
  readonly question: AskedRequest;
  /** Without its key: "GET shop.example.com/items/7". */
  readonly shown: string;
  /** "a route", "with %2F" */
  readonly form: string;
  /** The key that the request presents. */
  readonly secret?: string;
}

/** A part of a configuration that nobody has checked. */
type Written = any;

interface Place {
  readonly service: Written;
  readonly route: Written;
}

/** Of near misses, each route has as many as fit. */
const MAX_SAMPLES = 40_000;

/** `file` is the configuration's. */
export function samplesOf(config: Written, file: string): readonly Sample[] {
  const entries = listOf(config?.services).flatMap((service) => listOf(service.routes).flatMap((route) => entryOf({ service, route })));
  const proof = proofOf(entries);
  const requests = entries.flatMap(({ target }) => (proof.samples.has(target) ? [{ target, request: proof.samples.get(target)! }] : []));
  const overlaps = [...proof.unreachable, ...proof.bypasses.flatMap(({ takers }) => takers)].flatMap(({ request }) => request ?? []);
  const samples = [
    ...requests.flatMap(({ target, request }) => [sample(request, "a route"), ...withKey(request, config, target, file)]),
    ...overlaps.map((request) => sample(request, "an overlap of routes")),
    ...listOf(config?.tests).flatMap(({ request }) => ofTest(request ?? {})),
  ].slice(0, MAX_SAMPLES);
  const each = (MAX_SAMPLES - samples.length) / requests.length;
  requests.forEach(({ request }, i) => {
    const all = nearMisses(request);
    // Other ones of each route, if there is not room for all.
    for (let n = 0; n < Math.min(Math.floor(each), all.length); n++) samples.push(all[(i + n) % all.length]!);
  });
  return samples;
}

/** None where a version would refuse the route. */
function entryOf({ service, route }: Place): TableEntry<Place>[] {
  try {
    const { base_path: basePath, hosts = [], encoded_slashes: slashes, path_parameters: parameters } = service;
    const { path, methods = [], match } = route;
    const base = parsePattern(basePath, "base_path");
    if ("error" in base || "error" in parsePattern(path, "path", base.segments)) return [];
    return [{ basePath, hosts, path, methods, match: match && routeConditions(match), encodedSlashes: slashes === "allow", pathParameters: parameters === "allow", target: { service, route } }];
  } catch {
    return [];
  }
}

/** Every route has guards of its own, so that all overlaps are found. */
function proofOf(entries: readonly TableEntry<Place>[]): Pick<Proof<Place>, "samples" | "unreachable" | "bypasses"> {
  try {
    const names = new Map(entries.map(({ target }, i) => [target, new Set([String(i)])]));
    return atOnce(proveRoutes(entries, { guardsOf: (target) => names.get(target)! }));
  } catch {
    // Both versions refuse two routes that are the same.
    return { samples: new Map(), unreachable: [], bypasses: [] };
  }
}

function sample({ method, host, path, query, headers, scheme }: SampleRequest, form: string): Sample {
  const given = Object.fromEntries(headers.flatMap((name, i) => (i % 2 === 0 ? [[name, headers[i + 1]!]] : [])));
  const url = path + query;
  // With a Host, a whole URL would be that of a request to a proxy.
  const question = scheme === "https" ? { method, url: `https://${host}${url}`, headers: given } : { method, url, headers: { Host: host, ...given } };
  return { question, shown: `${method} ${host}${url}`, form };
}

/** With the first key that admits to the route. */
function withKey(request: SampleRequest, { global, callers }: Written, { service, route }: Place, file: string): Sample[] {
  const config = [route, service, global].flatMap((place) => listOf(place?.plugins)).find(({ name, enabled }) => name === "key_auth" && enabled !== false)?.config;
  const keys = config?.callers === true ? listOf(callers).flatMap((caller) => listOf(caller.keys)) : [config, ...listOf(config?.keys)];
  const secret = keys.map((each) => valueOf(each?.key, file)).find((value) => value !== null);
  if (secret === null || secret === undefined) return [];
  const [kind, name = ""] = String(config.from?.[0] ?? "header:apiKey").split(":");
  const plain = sample(request, "a route, with its key");
  const { url, headers } = plain.question;
  const asked = kind === "query" ? { url: `${url}${url.includes("?") ? "&" : "?"}${name}=${encodeURIComponent(secret)}` } : { headers: { ...headers, [name]: secret } };
  return [{ ...plain, question: { ...plain.question, ...asked }, secret }];
}

/** With its reference resolved; null if that is not possible here. */
function valueOf(text: unknown, file: string): string | null {
  const [, kind, name = ""] = /^\$\{(env|file):([^}]+)\}$/.exec(String(text)) ?? [];
  try {
    const value = kind === "env" ? process.env[name] : kind === "file" ? readFileSync(resolve(dirname(file), name), "utf8").trim() : text;
    return typeof value === "string" && /^[\x21-\x7e]+$/.test(value) ? value : null;
  } catch {
    return null;
  }
}

function ofTest({ method = "GET", url, headers = {}, client_ip: clientIp }: Written): Sample[] {
  return typeof url === "string" ? [{ question: { method, url, headers, ...(clientIp !== undefined && { clientIp }) }, shown: `${method} ${url}`, form: "of a test" }] : [];
}

/** How requests are spelt that a gateway has to read as the upstream does. */
function nearMisses(request: SampleRequest): readonly Sample[] {
  const { path, query } = request;
  const last = path.lastIndexOf("/");
  const [before, segment] = [path.slice(0, last), path.slice(last + 1)];
  const spellings: readonly (readonly [form: string, ...paths: string[]])[] = [
    ["with or without a trailing slash", segment === "" && before !== "" ? before : `${path}/`],
    ["with %2F", `${path}%2Fx`, `${before}%2f${segment}`, `${before}/%252F${segment}`],
    ["with dots", `${path}/../${segment}`, `${before}/x/%2e%2E/${segment}`, `${before}/./${segment}`],
    ["with //", `${before}//${segment}`],
    ["in upper case", path.toUpperCase()],
    ["with other percent-encoded characters", `${before}/${segment.replace(/^\w/, (letter) => `%${letter.charCodeAt(0).toString(16)}`)}`, `${path}%00`, `${path}%C3%A9%20+`],
    ["with path parameters", `${path};x=1`, `${before};x/${segment}`],
    ["with a backslash", `${before}\\${segment}`],
  ];
  const methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"].filter((method) => method !== request.method);
  return [
    ...spellings.flatMap(([form, ...paths]) => paths.map((each) => sample({ ...request, path: each }, form))),
    sample({ ...request, query: `${query === "" ? "?" : `${query}&`}a=1&a=%2F;b&c[]=%e9` }, "with a query"),
    ...methods.map((method) => sample({ ...request, method }, "with another method")),
    sample({ ...request, headers: [...request.headers, ...CLIENT_HEADERS] }, "with headers that a proxy changes"),
    sample({ ...request, host: `${request.host.toUpperCase()}:8443` }, "with another spelling of its host"),
  ];
}

const CLIENT_HEADERS = [
  ...["X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", "a.example", "Forwarded", "for=192.0.2.1", "X-Real-IP", "192.0.2.1", "Via", "1.1 a", "X-Request-Id", "of-a-client"],
  ...["Connection", "close, X-Hop", "X-Hop", "1", "TE", "trailers", "Accept-Encoding", "gzip, br", "Cookie", "a=b", "Range", "bytes=0-9", "X_Name", "1"],
];

/** A version says what is wrong with a value that is no list of objects. */
function listOf(value: unknown): readonly Written[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "object" && each !== null) : [];
}
