/**
 * What a configuration holds: global settings, services, upstreams, routes and plugin instances, with their defaults.
 * The syntax of path patterns is `route/`, the `config` of each plugin kind comes in with the kind.
 */
import { hash } from "node:crypto";
import { isIP } from "node:net";
import { parseCidr } from "../base/cidr.ts";
import { certificatesProblem, keyProblem, pairProblem } from "../base/pem.ts";
import type { Issue, JsonNode, Path } from "./json.ts";
import { CIRCUIT_BREAKER, HEALTH, RETRIES } from "./resilience.ts";
import * as s from "./schema.ts";

/** What this floor needs to know of a plugin kind. */
export interface PluginKind {
  readonly name: string;
  readonly schema: s.AnySchema;
}

export interface PluginInstance {
  readonly id?: string;
  readonly name: string;
  readonly enabled: boolean;
  /** As the kind's schema gives it. */
  readonly config: unknown;
}

export interface PluginInput {
  readonly id?: string;
  readonly name: string;
  readonly enabled?: boolean;
  readonly config?: Readonly<Record<string, unknown>>;
}

export type Config = s.Infer<ReturnType<typeof configSchema>>;
export type Service = Config["services"][number];
export type Route = Service["routes"][number];
export type Upstream = Service["upstreams"][number];
export type PluginModule = s.Infer<typeof PLUGIN_MODULE>;
/** What a person writes. */
export type ConfigInput = s.InputOf<ReturnType<typeof configSchema>> & { readonly $schema?: string };

/** A route as far as it can be read before the configuration is known to be valid. */
export interface RouteDeclaration {
  /** `basePath` is null when it cannot be read: the route's own pattern can be checked all the same. */
  readonly service: { readonly name: string; readonly basePath: string | null; readonly hosts: readonly string[]; readonly at: Path };
  /** No methods: all of them. */
  readonly route: { readonly name: string; readonly path: string; readonly methods: readonly string[]; readonly at: Path };
}

/** What is wrong with a declared route: its pattern itself, or that another one is in its way. */
export interface RouteIssue {
  readonly at: Path;
  readonly about: "pattern" | "conflict";
  readonly message: string;
}

const MODULE_FIELDS = s.object(
  {
    path: s.file({ describe: "An ES module that brings plugin kinds; relative to the configuration's folder." }),
    sha256: s.string({ pattern: /^[0-9a-fA-F]{64}$/, hint: "64 hex digits", lowerCase: true, describe: "SHA-256 of the file, in hexadecimal." }),
  },
  {
    refine({ path: file, sha256 }, report) {
      const found = hash("sha256", file.content);
      if (found !== sha256) report(`${file.path} is another file than this digest is for: its SHA-256 is ${found}`, "sha256");
    },
  },
);

/** As its fields say; where the digest is missing, it says which one the file has now. */
export const PLUGIN_MODULE: typeof MODULE_FIELDS = {
  ...MODULE_FIELDS,
  check(node, at, context) {
    const issues: Issue[] = [];
    const value = MODULE_FIELDS.check(node, at, { ...context, issues });
    const path = node.kind === "object" && !node.members.has("sha256") ? node.members.get("path") : undefined;
    const file = path === undefined ? s.INVALID : s.file().check(path.value, at, { ...context, issues: [] });
    for (const issue of issues) {
      const isDigest = file !== s.INVALID && issue.at.at(-1) === "sha256";
      context.issues.push(isDigest ? { ...issue, message: `is required; once you trust the file: "${hash("sha256", file.content)}"` } : issue);
    }
    return value;
  },
};

const PLUGIN_MODULES = s.array(PLUGIN_MODULE, { describe: "Plugin kinds from files: each is loaded only while its digest fits." });

export function configSchema(kinds: readonly PluginKind[]) {
  const plugins = s.array(s.named("Plugin", pluginSchema(kinds)), { unique: "id", describe: "Plugin instances, in the order they run." });

  const global = s.object(
    {
      name: s.withDefault(GATEWAY_NAME, "edge-gateway"),
      plugins: s.withDefault(plugins, []),
      plugin_modules: s.withDefault(PLUGIN_MODULES, []),
      trusted_proxies: s.withDefault(s.array(ADDRESS_RANGE, { describe: "Proxies whose Forwarded values are believed." }), []),
      access_log: s.withDefault(ACCESS_LOG, {}),
      server_timing: s.withDefault(s.boolean({ describe: "Whether clients are told in Server-Timing where the time of a request went." }), false),
      certificates: s.withDefault(s.array(CERTIFICATE, { describe: "Server certificates by host name (SNI), beside the default one." }), []),
      http1: s.withDefault(s.oneOf(["wire", "node"], { describe: "What serves HTTP/1.1 to clients: the gateway's own codec, or Node's server." }), "wire"),
      h2c: s.withDefault(s.boolean({ describe: "Whether plain HTTP ports take HTTP/2 by prior knowledge." }), false),
      dns_ttl_ms: s.withDefault(s.integer({ min: 100, max: 86_400_000, describe: "How often names of upstreams are looked up again, in milliseconds." }), 30_000),
      limits: s.withDefault(LIMITS, {}),
      underscore_headers: s.withDefault(s.oneOf(["drop", "allow"], { describe: "What becomes of request headers with an underscore in their names." }), "drop"),
    },
    {
      describe: "Gateway-level settings.",
      refine({ certificates }, report) {
        const places = new Map<string, string>();
        certificates.forEach(({ hosts }, i) =>
          hosts.forEach((host, j) => {
            const first = places.get(host);
            if (first !== undefined) report(`is the same host as ${first}`, "certificates", i, "hosts", j);
            else places.set(host, `global.certificates[${i}].hosts[${j}]`);
          }),
        );
      },
    },
  );

  const route = s.object({
    name: s.derived(NAME, ({ methods, path }) => defaultRouteName(methods, path)),
    path: PATH,
    methods: s.withDefault(s.array(METHOD, { describe: "HTTP methods the route accepts; none means all. GET implies HEAD." }), []),
    plugins: s.withDefault(plugins, []),
  });

  const service = s.object(
    {
      name: NAME,
      base_path: BASE_PATH,
      protocol: s.withDefault(s.oneOf(["http", "https", "h2c", "h2"], { describe: "Protocol used towards upstreams." }), "http"),
      load_balancing_strategy: s.withDefault(s.oneOf(["round_robin", "weighted", "least_connections", "random_two_choices", "ip_hash"], { describe: "Upstream selection strategy." }), "round_robin"),
      upstreams: s.array(UPSTREAM, { min: 1, unique: "id", describe: "Backend targets." }),
      routes: s.array(s.named("Route", route), { unique: "name", describe: "Routes of the service." }),
      plugins: s.withDefault(plugins, []),
      hosts: s.withDefault(s.array(HOST_PATTERN, { describe: "Restricts the service to these Host names; none means all." }), []),
      encoded_slashes: s.withDefault(s.oneOf(["reject", "allow"], { describe: "Whether %2F may stand inside a placeholder." }), "reject"),
      path_parameters: s.withDefault(s.oneOf(["reject", "allow"], { describe: "Whether /a;x may go to another route than this service's /a." }), "reject"),
      preserve_host: s.withDefault(s.boolean({ describe: "Whether upstreams get the Host header the client sent." }), false),
      timeouts: s.withDefault(TIMEOUTS, {}),
      upstream_client: s.withDefault(s.oneOf(["wire", "node"], { describe: "What parses HTTP/1.1 responses of upstreams: the gateway's own strict parser, or Node's." }), "wire"),
      pool: s.withDefault(POOL, {}),
      health: s.withDefault(HEALTH, {}),
      circuit_breaker: s.optional(CIRCUIT_BREAKER),
      retries: s.optional(RETRIES),
      tls: s.optional(UPSTREAM_TLS),
    },
    {
      refine({ protocol, tls }, report) {
        if (tls !== undefined && protocol !== "https" && protocol !== "h2") report(`is for protocol "https" and "h2"; this service has "${protocol}"`, "tls");
      },
    },
  );

  return s.object(
    {
      global: s.withDefault(global, {}),
      services: s.array(s.named("Service", service), { unique: "name", describe: "The configured services." }),
    },
    { ignoreKeys: ["$schema"] },
  );
}

/** For editors: the whole configuration as one JSON Schema document. */
export function configJsonSchema(kinds: readonly PluginKind[]): s.JsonSchema {
  const definitions: Record<string, s.JsonSchema> = {};
  const root = configSchema(kinds).jsonSchema(definitions);
  return { $schema: "https://json-schema.org/draft/2020-12/schema", title: "edge-gateway configuration", ...root, $defs: definitions };
}

/** "GET /b/{id}"; "/b" where every method is accepted. */
export function defaultRouteName(methods: readonly string[], path: string): string {
  return methods.length === 0 ? path : `${methods.join(",")} ${path}`;
}

/** Undefined when the text is a host name, IPv4 or IPv6 address and nothing more; else what to do about it. */
export function hostProblem(text: string): string | undefined {
  if (isIP(text) !== 0) return undefined;
  if (text.includes("://")) return 'write no scheme here; the scheme is the service\'s "protocol"';
  if (text.includes("/")) return "write no path here";
  if (text.startsWith("[")) return "write IPv6 addresses without brackets";
  if (/^[^:]*:\d*$/.test(text)) return "write no port here";
  if (/(^|\.)\d+$/.test(text)) return "this is no valid IPv4 address";
  if (/[^\u0000-\u007f]/.test(text)) return "write international names in their ASCII form (xn--…)";
  return HOST_NAME.test(text) ? undefined : "";
}

/** Undefined when the text is an IP address or a range in CIDR notation. */
export function rangeProblem(text: string): string | undefined {
  if (text.includes("%")) return "leave the zone out";
  const block = parseCidr(text);
  return typeof block === "string" ? block : undefined;
}

const HOST_NAME = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?$/i;
export const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/; // RFC 9110 §5.6.2

/** Names stand in logs, metrics and the terminal. */
const NAME = s.string({
  min: 1,
  max: 200,
  hint: "a name of 1–200 characters without control characters",
  check: (text) => (/\p{Cc}/u.test(text) ? "" : undefined),
});

/** Stands in `WWW-Authenticate: Key realm="…"`. */
const GATEWAY_NAME = s.string({
  min: 1,
  max: 200,
  pattern: /^[ !#-[\]-~]+$/,
  hint: "a name of printable ASCII characters without quotes and backslashes",
  describe: "Name of the gateway.",
});

const BASE_PATH = pathSchema("Path prefix that selects the service.");
const PATH = pathSchema("Path below the service's base_path. {name} matches one segment, {name*} at the end the rest.");

function pathSchema(describe: string) {
  const check = (text: string) => (text.startsWith("/") ? undefined : `write "/${text}"`);
  return s.string({ min: 1, hint: 'a path that starts with "/"', describe, check });
}

const EXCLUDED_PATH = s.string({
  hint: 'a path, or the beginning of one and "*"',
  check(text) {
    if (!text.startsWith("/")) return text === "*" ? 'to log nothing, set "enabled" to false' : `write "/${text}"`;
    if (/[?#]/.test(text)) return "leave the query out: paths are compared without it";
    return text.slice(0, -1).includes("*") ? '"*" can only stand at the end' : undefined;
  },
});

/** Thousands of routes have little else. */
const USUAL_METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

const METHOD = s.string({
  hint: "an HTTP method in upper case",
  check(text) {
    if (USUAL_METHODS.has(text)) return undefined;
    if (!TOKEN.test(text)) return "";
    if (text !== text.toUpperCase()) return `methods are case-sensitive, write "${text.toUpperCase()}"`;
    return text === "CONNECT" ? "CONNECT is not forwarded" : undefined;
  },
});

const HOST_PATTERN = s.string({
  lowerCase: true,
  hint: "a host name such as api.example.com or *.example.com",
  check(text) {
    const name = text.startsWith("*.") ? text.slice(2) : text;
    const problem = hostProblem(name);
    if (problem !== undefined) return problem;
    if (name.includes(":")) return "an IPv6 address cannot be matched";
    return name.endsWith(".") ? "write it without the dot at its end" : undefined;
  },
});

export const ADDRESS_RANGE = s.string({ hint: "an IP address or a range such as 10.0.0.0/8", check: rangeProblem });

const UPSTREAM = s.named(
  "Upstream",
  s.object({
    id: s.derived(NAME, ({ host, port }) => (String(host).includes(":") ? `[${host}]:${port}` : `${host}:${port}`)),
    host: s.string({ hint: "a host name or an IP address", describe: "Backend host name or IP address.", check: hostProblem }),
    port: s.integer({ min: 1, max: 65535, describe: "Backend port, 1–65535." }),
    weight: s.withDefault(s.integer({ min: 0, max: 65_535, describe: "Share of the requests beside the others'; 0: no new ones." }), 1),
  }),
);

const milliseconds = (describe: string) => s.integer({ min: 1, max: 86_400_000, describe: `${describe}, in milliseconds.` });

const TIMEOUTS = s.object({
  connect_ms: s.withDefault(milliseconds("Longest wait for a connection to an upstream"), 3000),
  response_ms: s.withDefault(milliseconds("Longest wait for the headers of the response"), 60_000),
  idle_ms: s.withDefault(milliseconds("Longest silence between bytes, either way"), 60_000),
  total_ms: s.withDefault(s.integer({ min: 0, max: 86_400_000, describe: "Longest time for a whole exchange, retries included, in milliseconds; 0: no limit." }), 0),
});

const POOL = s.object({
  max_connections: s.withDefault(s.integer({ min: 1, max: 65_535, describe: "Most connections to one upstream." }), 256),
  keepalive_idle_ms: s.withDefault(milliseconds("How long an unused connection is kept"), 30_000),
});

const ACCESS_LOG = s.object(
  {
    enabled: s.withDefault(s.boolean({ describe: "Whether requests are logged." }), true),
    format: s.withDefault(s.oneOf(["json", "combined"], { describe: "JSON, or Apache's combined log format." }), "json"),
    sample: s.withDefault(s.number({ min: 0, max: 1, describe: "Share of the requests that are logged; failures always are." }), 1),
    exclude: s.withDefault(s.array(EXCLUDED_PATH, { describe: "Paths that are not logged: exact, or what they begin with before a final *." }), []),
    file: s.optional(s.filePath({ describe: "File that is appended to, in place of standard output; opened anew on SIGUSR1." })),
  },
  { describe: "One line for each request." },
);

const CERTIFICATE = s.object(
  {
    hosts: s.array(HOST_PATTERN, { min: 1, describe: "Host names for which it is shown; *. stands for one label." }),
    cert: s.file({ describe: "Certificate chain, a PEM file.", check: certificatesProblem }),
    key: s.file({ describe: "Its private key, a PEM file.", check: keyProblem }),
  },
  {
    refine({ cert, key }, report) {
      checkPair(cert, key, report);
    },
  },
);

/** Says what keeps a certificate and a key from being used together. */
function checkPair(cert: s.NamedFile, key: s.NamedFile, report: (message: string, ...under: Path) => void): void {
  const problem = pairProblem(cert.content, key.content);
  if (problem === "mismatch") report(`${key.path}: the key does not belong to the certificate ${cert.path}`, "key");
  else if (problem !== undefined) report(`${cert.path}: the certificate cannot be used for TLS: ${problem.unusable}`, "cert");
}

const TLS_FIELDS = {
  ca: s.optional(s.file({ describe: "CA certificates that sign the server's certificate, a PEM file; default: the system's.", check: certificatesProblem })),
  cert: s.optional(s.file({ describe: "Client certificate chain, a PEM file.", check: certificatesProblem })),
  key: s.optional(s.file({ describe: "Private key of the client certificate, a PEM file.", check: keyProblem })),
  servername: s.optional(s.string({ describe: "Name that is asked for (SNI) and verified; default: the server's host.", check: hostProblem })),
};

/** How a plugin reaches a server over TLS. There is no way not to verify it. */
export const CLIENT_TLS = s.object(TLS_FIELDS, { describe: "How the server is reached over TLS; for https:// URLs.", refine: checkClientCertificate });

function checkClientCertificate({ cert, key }: { readonly cert?: s.NamedFile; readonly key?: s.NamedFile }, report: Parameters<typeof checkPair>[2]): void {
  if (cert !== undefined && key === undefined) report('needs "key" beside "cert"');
  if (key !== undefined && cert === undefined) report('needs "cert" beside "key"');
  if (cert !== undefined && key !== undefined) checkPair(cert, key, report);
}

const UPSTREAM_TLS = s.object(
  { ...TLS_FIELDS, verify: s.withDefault(s.boolean({ describe: "Whether the upstreams' certificates are verified." }), true) },
  {
    describe: 'How upstreams are reached over TLS; for protocol "https" and "h2".',
    refine(value, report) {
      checkClientCertificate(value, report);
      if (!value.verify && value.ca !== undefined) report('"ca" verifies nothing where "verify" is false: leave one of them out');
    },
  },
);

const upTo = (min: number, max: number, describe: string) => s.integer({ min, max, describe });

/** What one client, one message, and all of them together may take. 0 switches a limit off where 0 is allowed. */
const LIMITS = s.object(
  {
    headers_timeout_ms: s.withDefault(milliseconds("Longest wait for the whole head of a request"), 60_000),
    request_timeout_ms: s.withDefault(upTo(0, 86_400_000, "Longest time for a whole request to arrive, in milliseconds; 0: no limit."), 0),
    min_body_bytes_per_s: s.withDefault(upTo(0, 1_000_000_000, "Slowest a request body may arrive on average, looked at from its tenth second; 0: no limit."), 100),
    max_header_bytes: s.withDefault(upTo(1024, 1_048_576, "Largest head of a request, in bytes."), 32_768),
    max_headers: s.withDefault(upTo(1, 10_000, "Most header lines in a request."), 200),
    max_uri_bytes: s.withDefault(upTo(64, 1_048_576, "Longest request target, in bytes."), 8192),
    max_body_bytes: s.withDefault(upTo(0, Number.MAX_SAFE_INTEGER, "Largest body of a request, in bytes; 0: no limit."), 0),
    max_connections: s.withDefault(upTo(0, 1_000_000, "Most client connections; 0: no limit."), 10_000),
    max_connections_per_ip: s.withDefault(upTo(0, 1_000_000, "Most connections of one client address; 0: no limit."), 0),
    max_requests_in_flight: s.withDefault(upTo(0, 1_000_000, "Most requests at one time; 0: no limit."), 10_000),
  },
  { describe: "Limits on what clients may take." },
);

const ANYTHING: s.Schema<unknown> = {
  expects: "a value",
  describe: undefined,
  kinds: ["object"],
  check: () => undefined,
  show: () => null,
  jsonSchema: () => ({}),
};

/** An instance of any of the kinds: its `name` says by which schema its `config` is read. */
function pluginSchema(kinds: readonly PluginKind[]): s.Schema<PluginInstance, PluginInput> {
  const names = kinds.map((kind) => kind.name);
  const shape = (config: s.AnySchema) =>
    s.object({
      id: s.optional(NAME),
      name: s.oneOf(names, { hint: `a plugin kind (${names.join(", ")})`, describe: "Plugin kind." }),
      enabled: s.withDefault(s.boolean({ describe: "Whether the plugin is active." }), true),
      config: s.withDefault(config, {}),
    });
  const shapes = new Map(kinds.map((kind) => [kind.name, shape(kind.schema)]));
  const unknown = shape(s.record(ANYTHING));
  const shapeOf = (node: JsonNode) => {
    const name = node.kind === "object" ? node.members.get("name")?.value : undefined;
    return (name?.kind === "string" ? shapes.get(name.value) : undefined) ?? unknown;
  };
  return {
    expects: "a plugin",
    describe: undefined,
    kinds: ["object"],
    check: (node, at, context) => shapeOf(node).check(node, at, context),
    show: (node) => shapeOf(node).show(node),
    jsonSchema: (definitions) => ({
      ...unknown.jsonSchema(definitions),
      allOf: kinds.map(({ name, schema }) => ({
        if: { properties: { name: { const: name } }, required: ["name"] },
        then: { properties: { config: schema.jsonSchema(definitions) } },
      })),
    }),
  };
}
