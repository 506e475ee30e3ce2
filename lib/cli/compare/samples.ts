/**
 * Makes the requests on which two versions are compared: for every route one that it takes, one for each overlap of two
 * routes, near misses, and those of the configuration's tests. Only one of the versions may accept the configuration,
 * so that it is read as JSON alone.
 */
import { readRegularFile } from "../../base/regular_file.ts";
import { dirname } from "node:path";
import { isHashed } from "../../base/password.ts";
import { atOnce } from "../../base/time_slices.ts";
import { resolveReferences } from "../../config/references.ts";
import type { Question } from "../../proof/explain.ts";
import { routeConditions } from "../../route/conditions.ts";
import { proveRoutes, type Proof } from "../../route/overlaps.ts";
import { parsePattern } from "../../route/pattern.ts";
import type { SampleRequest } from "../../route/sample_requests.ts";
import type { TableEntry } from "../../route/table.ts";
import { pairs } from "../../server/reply_headers.ts";

export interface Sample {
  readonly question: Question;
  /** "a route", "with %2F" */
  readonly form: string;
  /** Credentials in it. */
  readonly secrets?: readonly string[];
}

/** "GET shop.example.com/items/7" */
export function shownOf({ question: { method, url, headers } }: Sample): string {
  return `${method} ${/^https?:/.test(url) ? "" : (headers?.Host ?? "")}${url}`;
}

/** A part of a configuration that nobody has checked. */
type Written = any;

interface WrittenRoute {
  readonly service: Written;
  readonly route: Written;
}

/** Of near misses, each route has as many as fit. */
const MAX_SAMPLES = 40_000;

/** `file` is the configuration's. */
export function samplesOf(config: Written, file: string): readonly Sample[] {
  const entries = listOf(config?.services).flatMap((service) =>
    listOf(service.routes).flatMap((route) => entryOf({ service, route })),
  );
  const proof = proofOf(entries);
  const requests = entries.flatMap(({ target }) =>
    proof.samples.has(target) ? [{ target, request: proof.samples.get(target)! }] : [],
  );
  const overlaps = [...proof.unreachable, ...proof.bypasses.flatMap(({ takers }) => takers)].flatMap(
    ({ request }) => request ?? [],
  );
  const samples = [
    ...requests.flatMap(({ target, request }) => [
      sample(request, "a route"),
      ...withCredentials(request, config, target, file),
    ]),
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
function entryOf({ service, route }: WrittenRoute): TableEntry<WrittenRoute>[] {
  try {
    const { base_path: basePath, hosts = [], encoded_slashes: slashes, path_parameters: parameters } = service;
    const { path, methods = [], match } = route;
    const base = parsePattern(basePath, "base_path");
    if ("error" in base || "error" in parsePattern(path, "path", base.segments)) return [];
    return [
      {
        basePath,
        hosts,
        path,
        methods,
        match: match && routeConditions(match),
        encodedSlashes: slashes === "allow",
        pathParameters: parameters === "allow",
        target: { service, route },
      },
    ];
  } catch {
    return [];
  }
}

/** Every route has guards of its own, so that all overlaps are found. */
function proofOf(
  entries: readonly TableEntry<WrittenRoute>[],
): Pick<Proof<WrittenRoute>, "samples" | "unreachable" | "bypasses"> {
  try {
    const names = new Map(entries.map(({ target }, i) => [target, new Set([String(i)])]));
    return atOnce(proveRoutes(entries, { guardsOf: (target) => names.get(target)! }));
  } catch {
    // Both versions refuse two routes that are the same.
    return { samples: new Map(), unreachable: [], bypasses: [] };
  }
}

function sample({ method, host, path, query, headers, scheme }: SampleRequest, form: string): Sample {
  const url = path + query;
  const given = Object.fromEntries(pairs(headers));
  // With a Host, a whole URL would be that of a request to a proxy.
  const question =
    scheme === "https"
      ? { method, url: `https://${host}${url}`, headers: given }
      : { method, url, headers: { Host: host, ...given } };
  return { question, form };
}

/** What a request shows to a guard. */
interface Credentials {
  readonly form: "key" | "password";
  /** "header:apiKey" */
  readonly place: string;
  readonly text: string;
  /** In it. */
  readonly secrets: readonly string[];
}

/** With the first key and the first password that admit to the route. */
function withCredentials(
  request: SampleRequest,
  { global, callers }: Written,
  { service, route }: WrittenRoute,
  file: string,
): Sample[] {
  const plugins = [route, service, global]
    .flatMap((place) => listOf(place?.plugins))
    .filter(({ enabled }) => enabled !== false);
  const configOf = (kind: string): Written => plugins.find(({ name }) => name === kind)?.config ?? {};
  const shown = [...keyOf(configOf("key_auth"), callers, file), ...passwordOf(configOf("basic_auth"), file)];
  if (shown.length === 0) return [];
  let { query, headers } = request;
  for (const { place, text } of shown) {
    const [kind, name = ""] = place.split(":");
    if (kind === "query") query += `${query === "" ? "?" : "&"}${name}=${encodeURIComponent(text)}`;
    else headers = [...headers, name, text];
  }
  const form = `a route, with its ${shown.map((each) => each.form).join(" and ")}`;
  return [{ ...sample({ ...request, query, headers }, form), secrets: shown.flatMap(({ secrets }) => secrets) }];
}

function keyOf({ callers: isOfAll, from, keys, ...own }: Written, callers: unknown, file: string): Credentials[] {
  const entries = isOfAll === true ? listOf(callers).flatMap((caller) => listOf(caller.keys)) : [own, ...listOf(keys)];
  const text = entries
    .map(({ key }) => valueOf(key, file))
    .find((value) => value !== null && /^[\x21-\x7e]+$/.test(value));
  return text == null ? [] : [{ form: "key", place: String(from?.[0] ?? "header:apiKey"), text, secrets: [text] }];
}

function passwordOf({ users, ...own }: Written, file: string): Credentials[] {
  for (const { username, password } of [own, ...listOf(users)]) {
    const user = valueOf(username, file);
    const secret = valueOf(password, file);
    if (user === null || secret === null || isHashed(secret)) continue;
    const pair = Buffer.from(`${user}:${secret}`).toString("base64");
    return [{ form: "password", place: "header:Authorization", text: `Basic ${pair}`, secrets: [pair, secret] }];
  }
  return [];
}

/** With its references resolved; null if that is not possible here. */
function valueOf(value: unknown, file: string): string | null {
  if (typeof value !== "string") return null;
  const { text, problems } = resolveReferences(value, {
    environment: process.env,
    folder: dirname(file),
    readFile: readRegularFile,
  });
  return problems.length === 0 && text !== "" ? text : null;
}

function ofTest({ method = "GET", url, headers = {}, client_ip: clientIp }: Written): Sample[] {
  return typeof url === "string"
    ? [{ question: { method, url, headers, ...(clientIp !== undefined && { clientIp }) }, form: "of a test" }]
    : [];
}

/** How requests are spelt that a gateway has to read as the upstream does. */
function nearMisses(request: SampleRequest): readonly Sample[] {
  const { path, query } = request;
  const last = path.lastIndexOf("/");
  const before = path.slice(0, last);
  const segment = path.slice(last + 1);
  const spellings: readonly (readonly [form: string, ...paths: string[]])[] = [
    ["with or without a trailing slash", segment === "" && before !== "" ? before : `${path}/`],
    ["with %2F", `${path}%2Fx`, `${before}%2f${segment}`, `${before}/%252F${segment}`],
    ["with dots", `${path}/../${segment}`, `${before}/x/%2e%2E/${segment}`, `${before}/./${segment}`],
    ["with //", `${before}//${segment}`],
    ["in upper case", path.toUpperCase()],
    [
      "with other percent-encoded characters",
      `${before}/${segment.replace(/^\w/, (letter) => `%${letter.charCodeAt(0).toString(16)}`)}`,
      `${path}%00`,
      `${path}%C3%A9%20+`,
    ],
    ["with path parameters", `${path};x=1`, `${before};x/${segment}`],
    ["with a backslash", `${before}\\${segment}`],
  ];
  const methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"].filter(
    (method) => method !== request.method,
  );
  return [
    ...spellings.flatMap(([form, ...paths]) => paths.map((each) => sample({ ...request, path: each }, form))),
    sample({ ...request, query: `${query === "" ? "?" : `${query}&`}a=1&a=%2F;b&c[]=%e9` }, "with a query"),
    ...methods.map((method) => sample({ ...request, method }, "with another method")),
    sample({ ...request, headers: [...request.headers, ...CLIENT_HEADERS] }, "with headers that a proxy changes"),
    sample({ ...request, host: `${request.host.toUpperCase()}:8443` }, "with another spelling of its host"),
  ];
}

const CLIENT_HEADERS = [
  "X-Forwarded-For",
  "192.0.2.1",
  "X-Forwarded-Host",
  "a.example",
  "Forwarded",
  "for=192.0.2.1",
  "X-Real-IP",
  "192.0.2.1",
  "Via",
  "1.1 a",
  "X-Request-Id",
  "of-a-client",
  "Connection",
  "close, X-Hop",
  "X-Hop",
  "1",
  "TE",
  "trailers",
  "Accept-Encoding",
  "gzip, br",
  "Cookie",
  "a=b",
  "Range",
  "bytes=0-9",
  "X_Name",
  "1",
];

/** A version says what is wrong with a value that is no list of objects. */
function listOf(value: unknown): readonly Written[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "object" && each !== null) : [];
}
