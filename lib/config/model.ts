/**
 * The schema of a configuration: global settings, services, upstreams, routes and plugin instances, with their
 * defaults.
 */
import { HOP_BY_HOP, TOKEN } from "../base/http_grammar.ts";
import { ADDRESS_RANGE } from "./address_range.ts";
import { DECISIONS } from "./decisions.ts";
import { droppedProblem } from "./dropped_names.ts";
import {
  BASE_PATH,
  GATEWAY_NAME,
  HOST_PATTERN,
  hostProblem,
  METHOD,
  NAME,
  PATH,
  choice,
  DAY_MS,
  flag,
  boundedInteger,
  milliseconds,
  NO_HEALTH,
  share,
} from "./fields.ts";
import type { JsonNode } from "./json.ts";
import * as s from "./schema.ts";
import { define, INVALID, reportAt } from "./schema_core.ts";
import { fieldsOf, type FeatureFields } from "./feature_fields.ts";
import type { FeatureField, FeatureSchemas } from "./feature_schemas.ts";
import { EXPIRES_AT, SERIAL } from "./validity_fields.ts";

/** What the configuration needs of a plugin kind. */
export interface PluginKind {
  readonly name: string;
  readonly schema: s.AnySchema;
  /** The same, with the fields of features that have been loaded. */
  readonly schemaWith?: (field: FeatureField) => s.AnySchema;
}

export interface PluginInstance {
  readonly id?: string;
  readonly name: string;
  readonly enabled: boolean;
  /** The output of the kind's schema. */
  readonly config: unknown;
}

/** An instance as written, of any kind. */
export interface PluginInput {
  readonly id?: string | undefined;
  readonly name: string;
  readonly enabled?: boolean | undefined;
  readonly config?: unknown;
}

export type CheckedConfig = s.Infer<ReturnType<typeof configSchema>>;
/** The tests are not part of it: they do not change what the gateway does. */
export type Config = Pick<CheckedConfig, "global" | "services" | "serial" | "expiresAt">;
export type Service = Config["services"][number];
export type Route = Service["routes"][number];
export type Upstream = Service["upstreams"][number];
/** An upstream with an SRV record in place of host and port. */
export type RecordUpstream = Extract<Upstream, { readonly srv: string }>;
export type ServerUpstream = Exclude<Upstream, RecordUpstream>;
/** The configuration as written. */
export type AnyConfigInput<P extends PluginInput = PluginInput> = s.InputOf<ReturnType<typeof configSchema<P>>> & {
  readonly $schema?: string | undefined;
};

/** `P` types the instances; what they may be is decided by the schemas of `kinds`. */
export function configSchema<P extends PluginInput = PluginInput>(
  kinds: readonly PluginKind[],
  features: readonly FeatureFields[] = [],
) {
  const field = fieldsOf<FeatureSchemas>(features);
  const plugins: Plugins<P> = s.array(s.named("Plugin", pluginSchema<P>(kinds, features)), {
    unique: "id",
    describe: "Plugin instances, in the order they run.",
  });
  const service = s.named("Service", serviceSchema(plugins, features));
  return s.object(
    {
      global: s.withDefault(globalSchema(plugins, features), {}),
      services: s.array(service, { unique: "name", describe: "The configured services." }),
      serial: s.optional(SERIAL),
      expires_at: s.optional(EXPIRES_AT),
      callers: s.optional(field("callers")),
      caller_files: s.optional(field("caller_files")),
      tests: s.optional(field("tests")),
      test_files: s.optional(field("test_files")),
    },
    {
      ignoreKeys: ["$schema"],
      refine: ({ services }, report) => features.forEach((feature) => feature.checkServices?.(services, report)),
    },
  );
}

export const STRATEGIES = [
  "round_robin",
  "weighted",
  "least_connections",
  "random_two_choices",
  "ip_hash",
  "hash",
] as const;

type Plugins<P extends PluginInput> = s.Schema<readonly PluginInstance[], readonly P[]>;

function globalSchema<P extends PluginInput>(plugins: Plugins<P>, features: readonly FeatureFields[]) {
  const field = fieldsOf<FeatureSchemas>(features);
  return s.object(
    {
      name: s.withDefault(GATEWAY_NAME, "edge-gateway"),
      plugins: s.withDefault(plugins, []),
      plugin_modules: s.withDefault(
        s.array(field("plugin_module"), {
          describe: "Plugin kinds from files; a file is loaded only if its digest is right.",
        }),
        [],
      ),
      trusted_proxies: s.withDefault(
        s.array(ADDRESS_RANGE, { describe: "Proxies whose Forwarded values are trusted." }),
        [],
      ),
      client_ip_headers: s.withDefault(
        s.array(CLIENT_IP_HEADER, {
          max: 8,
          describe: "Headers of these proxies with the address of the client, in place of X-Forwarded-For.",
        }),
        [],
      ),
      proxy_protocol: choice(
        ["off", "accept", "require"],
        "Whether connections of trusted proxies may, or must, begin with a header of the PROXY protocol.",
      ),
      access_log: s.withDefault(accessLogSchema(field), {}),
      decisions: s.optional(DECISIONS),
      server_timing: flag("Whether replies report the durations of a request in Server-Timing.", false),
      certificates: s.withDefault(
        s.array(field("certificate"), { describe: "Server certificates by host name (SNI), besides the default one." }),
        [],
      ),
      acme: s.optional(field("acme")),
      tls: s.optional(field("server_tls")),
      http1: choice(["wire", "node"], "What serves HTTP/1.1 to clients: the gateway's own codec, or Node's server."),
      https_redirect: s.optional(field("https_redirect")),
      errors: s.optional(field("errors")),
      http2: flag("Whether HTTPS ports offer HTTP/2.", true),
      h2c: flag("Whether plain HTTP ports take HTTP/2 by prior knowledge.", false),
      dns_ttl_ms: boundedInteger(
        100,
        DAY_MS,
        30_000,
        "How often names and SRV records of upstreams are looked up again, in milliseconds.",
      ),
      limits: s.withDefault(LIMITS, {}),
      counters: s.optional(field("counters")),
      egress_proxy: s.optional(field("egress_proxy")),
      accept_warnings: s.withDefault(s.array(field("accepted_warning"), { describe: ACCEPTED }), []),
      underscore_headers: choice(
        ["drop", "allow"],
        "What becomes of request headers with an underscore in their names.",
      ),
    },
    {
      describe: "Gateway-level settings.",
      refine(global, report) {
        const { clientIpHeaders, proxyProtocol, trustedProxies } = global;
        if (proxyProtocol === "require" && trustedProxies.length === 0)
          report('takes headers of "trusted_proxies" alone, and there are none', "proxy_protocol");
        if (clientIpHeaders.length > 0 && trustedProxies.length === 0)
          report('count from "trusted_proxies" alone, and there are none', "client_ip_headers");
        for (const feature of features) feature.checkGlobal?.(global, report);
      },
    },
  );
}

const NO_CLIENT = new RegExp(`^(?:host|content-length|${HOP_BY_HOP.join("|")})$`);
const CLIENT_IP_HEADER = s.string({
  references: "none",
  hint: "the name of a header",
  describe: "A header that is one address.",
  check(name, context) {
    if (!TOKEN.test(name)) return "";
    const lower = name.toLowerCase();
    if (lower === "x-forwarded-for") return "this header counts where none of these does";
    return NO_CLIENT.test(lower) ? "it does not name a client" : droppedProblem(name, context);
  },
});

function accessLogSchema(field: FeatureField) {
  return s.object(
    {
      enabled: flag("Whether requests are logged.", true),
      format: choice(["json", "combined"], "JSON, or Apache's combined log format."),
      sample: share(0, 1, "Share of the requests that are logged; failures always are."),
      exclude: s.withDefault(
        s.array(field("unlogged_path"), {
          describe: "Paths that are not logged: exact paths, or prefixes that end with *.",
        }),
        [],
      ),
      file: s.optional(field("log_file")),
    },
    { describe: "One line for each request." },
  );
}

function serviceSchema<P extends PluginInput>(plugins: Plugins<P>, features: readonly FeatureFields[]) {
  const field = fieldsOf<FeatureSchemas>(features);
  const upstream = s.named("Upstream", upstreamSchema(field));
  const route = s.object({
    name: s.derived(NAME, ({ methods, path }) => defaultRouteName(methods, path)),
    path: PATH,
    methods: s.withDefault(
      s.array(METHOD, { describe: "HTTP methods the route accepts; none means all. GET implies HEAD." }),
      [],
    ),
    match: s.optional(field("match")),
    upstream_path: s.optional(field("route_upstream_path")),
    timeouts: s.optional(field("route_timeouts")),
    plugins: s.withDefault(plugins, []),
  });
  return s.object(
    {
      name: NAME,
      base_path: BASE_PATH,
      upstream_path: s.optional(field("upstream_path")),
      protocol: choice(["http", "https", "h2c", "h2"], "Protocol used towards upstreams."),
      load_balancing_strategy: choice(STRATEGIES, "Upstream selection strategy."),
      hash_on: s.optional(field("hash_on")),
      hash_balance_factor: s.optional(field("hash_balance_factor")),
      sticky: s.optional(field("sticky")),
      split: s.optional(field("split")),
      upstreams: s.array(upstream, { min: 1, unique: "id", describe: "Backend targets." }),
      routes: s.array(s.named("Route", route), { unique: "name", describe: "Routes of the service." }),
      plugins: s.withDefault(plugins, []),
      hosts: s.withDefault(
        s.array(HOST_PATTERN, { describe: "Restricts the service to these Host names; none means all." }),
        [],
      ),
      encoded_slashes: choice(["reject", "allow"], "Whether %2F is allowed inside a placeholder."),
      path_parameters: choice(["reject", "allow"], "Whether /a;x may go to another route than this service's /a."),
      preserve_host: flag("Whether upstreams get the Host header the client sent.", false),
      timeouts: s.withDefault(TIMEOUTS, {}),
      upstream_client: choice(
        ["wire", "node"],
        "What parses HTTP/1.1 responses of upstreams: the gateway's own strict parser, or Node's.",
      ),
      pool: s.withDefault(POOL, {}),
      health: s.withDefault(field("health", NO_HEALTH), {}),
      circuit_breaker: s.optional(field("circuit_breaker")),
      retries: s.optional(field("retries")),
      errors: s.optional(field("errors")),
      tls: s.optional(field("tls")),
      proxy_protocol: s.optional(field("proxy_protocol")),
    },
    { refine: (service, report) => features.forEach((feature) => feature.checkService?.(service, report)) },
  );
}

const ACCEPTED = "Warnings that are not reported: a code, a colon, and the path that the warning names.";

/** "GET /b/{id}"; "/b" if all methods are accepted. */
export function defaultRouteName(methods: readonly string[], path: string): string {
  return methods.length === 0 ? path : `${methods.join(",")} ${path}`;
}

const BACKUP = s.boolean({ describe: "Whether it gets requests only while no other upstream can be used." });

/** One server, by host and port; or those that an SRV record names. */
function upstreamSchema(field: FeatureField) {
  const common = {
    group: s.optional(NAME),
    backup: s.optional(BACKUP),
    request_headers: s.optional(field("upstream_request_headers")),
  };
  const server = s.object({
    id: s.derived(NAME, ({ host, port }) => (String(host).includes(":") ? `[${host}]:${port}` : `${host}:${port}`)),
    host: s.string({
      hint: "a host name or an IP address",
      describe: "Backend host name or IP address.",
      check: hostProblem,
    }),
    port: s.integer({ min: 1, max: 65535, describe: "Backend port, 1–65535." }),
    weight: boundedInteger(0, 65_535, 1, "Relative share of the requests; 0: no new requests."),
    ...common,
  });
  const record = s.object({ id: s.derived(NAME, ({ srv }) => String(srv)), srv: field("upstream_srv"), ...common });
  return eitherUpstream(server, record);
}

type AnyObject = s.AnySchema & { readonly fields?: ReadonlyMap<string, s.AnySchema> };

/** An upstream with `srv` is a record. */
function eitherUpstream<S extends AnyObject, R extends AnyObject>(server: S, record: R) {
  const isRecord = (node: JsonNode) => node.kind === "object" && node.members.has("srv");
  const schema: s.Schema<s.Infer<S> | s.Infer<R>, s.InputOf<S> | s.InputOf<R>> = {
    ...server,
    check(node, at, context) {
      if (node.kind !== "object" || !isRecord(node)) return server.check(node, at, context);
      const members = new Map(node.members);
      let isAlone = true;
      for (const [name, why] of Object.entries(NOT_BESIDE_RECORDS)) {
        const member = members.get(name);
        if (member === undefined) continue;
        members.delete(name);
        reportAt(context, [...at, name], member.keyOffset, why);
        isAlone = false;
      }
      const checked = record.check({ ...node, members }, at, context);
      return isAlone ? checked : INVALID;
    },
    show: (node, lists) => (isRecord(node) ? record : server).show(node, lists),
    jsonSchema(definitions) {
      const [one, other] = [server, record].map((each) => each.jsonSchema(definitions)) as unknown as [
        ObjectJson,
        ObjectJson,
      ];
      const { required, ...rest } = one;
      return {
        ...rest,
        properties: { ...one.properties, srv: other.properties.srv },
        if: { required: ["srv"] },
        then: { properties: Object.fromEntries(Object.keys(NOT_BESIDE_RECORDS).map((name) => [name, false])) },
        else: { required },
      };
    },
  };
  return { ...schema, fields: new Map([...server.fields!, ...record.fields!]) };
}

interface ObjectJson {
  readonly required: readonly string[];
  readonly properties: Readonly<Record<string, s.JsonSchema>>;
}

const NOT_BESIDE_RECORDS = {
  host: 'is not for an upstream with "srv": the record names its hosts',
  port: 'is not for an upstream with "srv": the record names its ports',
  weight: 'is not for an upstream with "srv": the record has the weights of its targets',
};

const TIMEOUTS = s.object({
  connect_ms: milliseconds(1, 3000, "Longest wait for a connection to an upstream"),
  response_ms: milliseconds(1, 60_000, "Longest wait for the headers of the response"),
  idle_ms: milliseconds(1, 60_000, "Longest silence between bytes, either way"),
  total_ms: boundedInteger(
    0,
    DAY_MS,
    0,
    "Longest time for a whole exchange, retries included, in milliseconds; 0: no limit.",
  ),
});

const POOL = s.object({
  max_connections: boundedInteger(1, 65_535, 256, "Most connections to one upstream, unused ones included."),
  keepalive_idle_ms: milliseconds(1, 30_000, "How long an unused connection is kept"),
});

/** Limits for one client, one message, and all of them together. 0 switches a limit off where 0 is allowed. */
const LIMITS = s.object(
  {
    headers_timeout_ms: milliseconds(1, 60_000, "Longest wait for the whole head of a request"),
    request_timeout_ms: boundedInteger(
      0,
      DAY_MS,
      0,
      "Longest time for a whole request to arrive, in milliseconds; 0: no limit.",
    ),
    min_body_bytes_per_s: boundedInteger(
      0,
      1_000_000_000,
      100,
      "Slowest a request body may arrive on average, looked at from its tenth second; 0: no limit.",
    ),
    min_reply_bytes_per_s: boundedInteger(
      0,
      1_000_000_000,
      100,
      "Slowest a client may read a reply on average, after the first minute of waiting for it; 0: no limit.",
    ),
    max_header_bytes: boundedInteger(1024, 1_048_576, 32_768, "Largest head of a request, in bytes."),
    max_headers: boundedInteger(1, 10_000, 200, "Most header lines in a request."),
    max_uri_bytes: boundedInteger(64, 1_048_576, 8192, "Longest request target, in bytes."),
    max_body_bytes: boundedInteger(0, Number.MAX_SAFE_INTEGER, 0, "Largest body of a request, in bytes; 0: no limit."),
    max_connections: boundedInteger(0, 1_000_000, 10_000, "Most client connections; 0: no limit."),
    max_connections_per_ip: boundedInteger(0, 1_000_000, 0, "Most connections of one client address; 0: no limit."),
    max_requests_in_flight: boundedInteger(0, 1_000_000, 10_000, "Most requests at one time; 0: no limit."),
    max_client_share: share(
      0.001,
      0.5,
      "Share of an upstream's pool.max_connections (over HTTP/2: of the streams on them), " +
        "and of max_requests_in_flight, " +
        "that the requests of one client address hold at one time, at least one; 1: all.",
    ),
  },
  { describe: "Limits for clients." },
);

const ANYTHING = define({
  expects: "an object",
  kinds: ["object"],
  check: () => ({}),
  jsonSchema: () => ({ type: "object", additionalProperties: {} }),
});

/** An instance of any of the kinds: its `name` selects the schema of its `config`. */
function pluginSchema<P extends PluginInput>(
  given: readonly PluginKind[],
  features: readonly FeatureFields[],
): s.Schema<PluginInstance, P> {
  const kinds = given.map(({ name, schema, schemaWith }) => ({
    name,
    schema: schemaWith?.(fieldsOf(features)) ?? schema,
  }));
  const names = kinds.map((kind) => kind.name);
  const shape = (config: s.AnySchema) =>
    s.object({
      id: s.optional(NAME),
      name: s.oneOf(names, { hint: `a plugin kind (${names.join(", ")})`, describe: "Plugin kind." }),
      enabled: flag("Whether the plugin is active.", true),
      config: s.withDefault(config, {}),
    });
  const shapes = new Map(kinds.map((kind) => [kind.name, shape(kind.schema)]));
  const unknown = shape(ANYTHING);
  const shapeOf = (node: JsonNode) => {
    const name = node.kind === "object" ? node.members.get("name") : undefined;
    return (name?.kind === "string" ? shapes.get(name.value) : undefined) ?? unknown;
  };
  return {
    expects: "a plugin",
    describe: undefined,
    kinds: ["object"],
    check(node, at, context) {
      const shape = shapeOf(node);
      return (
        context.sources.placeholders?.checkInstance(shape, unknown, node, at, context) ?? shape.check(node, at, context)
      );
    },
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
