/**
 * The parts of the program that not every gateway needs: how each is loaded, and which have been.
 *
 * What a configuration does not name, and nobody asks for, is not loaded. The commands of the program have a table of their own,
 * `cli/commands.ts`.
 */
import { builtParts, isInBuild } from "../base/version.ts";
import { formatPath, valuesAt, type JsonNode } from "../config/json.ts";
import { parsedFrom, type ConfigIssue, type ConfigSource } from "../config/load.ts";
import { NOT_LOADED, unloaded, type PartFields } from "../config/part_fields.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import type { Strategy } from "../upstream/balance.ts";
import { canHaveWarnings } from "./can_have_warnings.ts";

/** The built-in plugin kinds by their names, in the order in which messages list them. */
export const KINDS = {
  key_auth: async () => (await import("../plugins/key_auth.ts")).keyAuth,
  rate_limit: async () => (await import("../plugins/rate_limit.ts")).rateLimit,
  mtls: async () => (await import("../plugins/mtls.ts")).mtls,
  jwt: async () => (await import("../plugins/jwt.ts")).jwt,
  introspection: async () => (await import("../plugins/introspection.ts")).introspection,
  forward_auth: async () => (await import("../plugins/forward_auth.ts")).forwardAuth,
  http_log: async () => (await import("../plugins/http_log.ts")).httpLog,
  basic_auth: async () => (await import("../plugins/basic_auth.ts")).basicAuth,
  acl: async () => (await import("../plugins/acl.ts")).acl,
  bot_protection: async () => (await import("../plugins/bot_protection.ts")).botProtection,
  cors: async () => (await import("../plugins/cors.ts")).cors,
  request_size_limit: async () => (await import("../plugins/request_size_limit.ts")).requestSizeLimit,
  request_termination: async () => (await import("../plugins/request_termination.ts")).requestTermination,
  request_headers: async () => (await import("../plugins/request_headers.ts")).requestHeaders,
  response_headers: async () => (await import("../plugins/response_headers.ts")).responseHeaders,
  redirect: async () => (await import("../plugins/redirect.ts")).redirect,
  compress: async () => (await import("../plugins/compress.ts")).compress,
  response_cache: async () => (await import("../plugins/cache/response_cache.ts")).responseCache,
  request_validation: async () => (await import("../plugins/request_validation.ts")).requestValidation,
  mirror: async () => (await import("../plugins/mirror.ts")).mirror,
  fault: async () => (await import("../plugins/fault.ts")).fault,
} satisfies Readonly<Record<string, () => Promise<AnyPlugin>>>;

/** The places of plugin kinds. */
const KIND_PLACES = ["global.plugins[].name", "services[].plugins[].name", "services[].routes[].plugins[].name"];

function namedByKinds(...kinds: (keyof typeof KINDS)[]): string[] {
  return kinds.flatMap((kind) => KIND_PLACES.map((place) => `${place}=${kind}`));
}

function namedByStrategies(...strategies: Strategy[]): string[] {
  return strategies.map((strategy) => `services[].load_balancing_strategy=${strategy}`);
}

/**
 * What a snapshot is compiled with, besides plugin kinds. `named`: the places of a configuration that name the part, see `valuesAt`, or a rule;
 * without it, settings or a reload do. A part that brings fields has their schemas in `fields`.
 */
export const PARTS = {
  /** Connections and requests to upstreams over HTTP/2. */
  http2: {
    named: ["services[].protocol=h2", "services[].protocol=h2c"],
    load: async () => ({ ...(await import("../upstream/sessions.ts")), ...(await import("../upstream/http2_request.ts")) }),
  },
  hash: {
    named: [...["hash_on", "hash_balance_factor", "split[].hash_on"].map((field) => `services[].${field}`), ...namedByStrategies("hash", "ip_hash")],
    load: () => import("../upstream/hash.ts"),
  },
  /** The strategies that look at the load. */
  byLoad: {
    named: namedByStrategies("least_connections", "random_two_choices"),
    load: () => import("../upstream/by_load.ts"),
  },
  breaker: { named: ["services[].circuit_breaker"], load: () => import("../upstream/breaker.ts") },
  healthChecks: { named: ["services[].health.enabled"], load: () => import("../upstream/health_checks.ts") },
  /** How workers share the health of upstreams. */
  sharedHealth: { load: () => import("../upstream/shared_health.ts") },
  /** Conditions of routes. */
  conditions: {
    named: ["services[].routes[].match"],
    load: () => import("../route/conditions.ts"),
  },
  retries: { named: ["services[].retries"], load: () => import("../upstream/retries.ts") },
  /** Node's parser of responses. */
  nodeParser: { named: ["services[].upstream_client=node"], load: () => import("../upstream/node_response_parser.ts") },
  split: {
    named: ["services[].split"],
    load: async () => ({ ...(await import("../upstream/split.ts")), ...(await import("../http/conditions.ts")) }),
  },
  sticky: {
    named: ["services[].sticky"],
    load: () => import("../upstream/sticky.ts"),
  },
  httpsRedirect: {
    named: ["global.https_redirect"],
    load: () => import("./https_redirect.ts"),
  },
  misdirected: {
    named: ["global.certificates[]"],
    load: async () => ({ ...(await import("./misdirected.ts")), ...(await import("../server/certificates.ts")), ...(await import("../base/pem.ts")) }),
  },
  /** The fields of certificates and TLS. */
  tls: {
    named: ["global.certificates[]", "services[].tls"],
    load: () => import("../config/tls_fields.ts"),
  },
  /** The tests of a configuration, which `ON_DEMAND.tests` runs. */
  tests: {
    named: ["tests", "test_files"],
    load: () => import("../config/read_tests.ts"),
  },
  /** Rate counters in the memory of the program. */
  counters: {
    named: [...namedByKinds("rate_limit"), "global.counters", "global.plugin_modules[]"],
    load: () => import("../store/memory.ts"),
  },
  /** What plugin modules get, and how their errors are reported. */
  modules: {
    named: ["global.plugin_modules[]"],
    load: async () => ({ ...(await import("../plugins/kit.ts")), ...(await import("./module_errors.ts")) }),
  },
  /** How plugins ask other servers. */
  client: {
    named: [...namedByKinds("jwt", "introspection", "forward_auth", "http_log", "mirror"), "global.plugin_modules[]"],
    load: () => import("../http/client.ts"),
  },
  /** Counters that gateways share. */
  redis: {
    named: ["global.counters"],
    load: async () => ({ ...(await import("../store/redis.ts")), ...(await import("../config/counters.ts")) }),
  },
  /** The prover, and what else finds warnings about a configuration. */
  warnings: { named: canHaveWarnings, load: () => import("./proof/config_warnings.ts") },
  /** HTTP/2 for clients. */
  http2Server: { named: ["global.h2c"], load: () => import("../server/http2.ts") },
  /** HTTP/1.1 for clients by Node's server. */
  nodeHttp1: { named: ["global.http1=node"], load: () => import("../server/http1_node.ts") },
  tlsServer: { load: async () => ({ ...(await import("../server/tls.ts")), ...(await import("./https_facts.ts")) }) },
  /** The status; also what of the configuration causes a warning at the start because of the settings. */
  reporting: { named: ["global.certificates[]", ...namedByKinds("mtls")], load: () => import("./reports.ts") },
  /** What is counted of requests, and statistics and metrics of it. Only settings name it: what is counted is counted from the start. */
  metrics: { load: async () => ({ ...(await import("../observe/metrics.ts")), ...(await import("./reporting.ts")) }) },
  /** What threads of one program share, and memory for what plugins remember. */
  shared: {
    named: [...namedByKinds("jwt", "basic_auth", "introspection", "request_validation"), "global.counters", "global.plugin_modules[]"],
    load: async () => ({ ...(await import("../base/shared_counts.ts")), ...(await import("../base/shared_memory.ts")), ...(await import("../server/shared_connections.ts")) }),
  },
  /** What a program that embeds a gateway calls, and ours never does. */
  embedding: { load: async () => ({ ...(await import("./inject.ts")), ...(await import("./mounted.ts")) }) },
  /** What a reload changes. */
  changes: { load: () => import("./config_diff.ts") },
  workerReports: { load: () => import("./worker_reports.ts") },
  tracing: { load: async () => ({ ...(await import("../observe/trace.ts")), ...(await import("../observe/sampling.ts")), ...(await import("../observe/otlp.ts")) }) },
  adminCookie: { load: () => import("../http/admin_cookie.ts") },
} satisfies Readonly<Record<string, { readonly named?: Naming; readonly load: () => Promise<object> }>>;

type Naming = readonly string[] | ((document: JsonNode) => boolean);

/** What a configuration can name, and what names it. */
const NAMED: readonly (readonly [PartName, Naming])[] = Object.entries(PARTS).flatMap(([name, part]) => ("named" in part ? [[name as PartName, part.named] as const] : []));

/** What the text of a dry run can name, whatever the configuration in force names. */
export const OF_TEXTS: readonly (() => Promise<unknown>)[] = [
  ...Object.entries(KINDS).flatMap(([name, load]) => (isInBuild(name) ? [load] : [])),
  ...NAMED.flatMap(([name]) => (isInBuild(name) ? [PARTS[name].load] : [])),
];

/** What can wait until it is asked for. */
export const ON_DEMAND = {
  tests: () => import("./proof/run_tests.ts"),
  explain: () => import("./explain.ts"),
  dryRuns: () => import("./dry_runs.ts"),
  dryRun: () => import("./proof/dry_run.ts"),
};

export type PartName = keyof typeof PARTS;
type PartsByName = { readonly [Name in PartName]: Awaited<ReturnType<(typeof PARTS)[Name]["load"]>> };

export interface LoadedParts extends PartsByName {
  readonly kinds: readonly AnyPlugin[];
}

/** The parts that have been loaded for one gateway, by all configurations that it has had. */
export class Parts {
  /** The functions of the tables that have been called. */
  readonly called = new Set<() => Promise<unknown>>();
  readonly #kinds = new Map<string, AnyPlugin>();
  readonly #parts: { -readonly [Name in PartName]?: PartsByName[Name] } = {};

  /** All built-in kinds by name. One that has not been loaded accepts no configuration. */
  get kinds(): readonly AnyPlugin[] {
    return Object.keys(KINDS).map((name) => this.#kinds.get(name) ?? notLoaded(name));
  }

  /** What the parts add to the schema of a configuration. */
  get fields(): readonly PartFields[] {
    return fieldsOfParts(this.#parts);
  }

  /** Loads what a configuration names, as far as this build has it: see `lacks`. */
  async load(source: ConfigSource): Promise<void> {
    const { node } = parsedFrom(source);
    if (node === null) return;
    const names = new Set(KIND_PLACES.flatMap((place) => valuesAt(node, place).map(({ value }) => value.kind === "string" && value.value)));
    const kinds = Object.entries<() => Promise<AnyPlugin>>(KINDS).filter(([name]) => isInBuild(name) && !this.#kinds.has(name) && names.has(name));
    const parts = NAMED.filter(([name, naming]) => isInBuild(name) && namings(node, naming).length > 0);
    await Promise.all([...kinds.map(async ([name, load]) => this.#kinds.set(name, await this.#call(load))), ...parts.map(([name]) => this.loadPart(name))]);
  }

  async loadPart<Name extends PartName>(name: Name): Promise<void> {
    this.#parts[name] ??= (await this.#call<PartsByName[PartName]>(PARTS[name].load)) as PartsByName[Name];
  }

  async #call<T>(load: () => Promise<T>): Promise<T> {
    this.called.add(load);
    try {
      return await load();
    } catch (error) {
      const { message } = error as Error;
      throw new Error(`a part of the program cannot be loaded; if its files were replaced since it started, restart it: ${message}`, { cause: error });
    }
  }

  /** Takes over parts that are there already. */
  add({ kinds = [], ...parts }: Partial<LoadedParts>): void {
    for (const kind of kinds) this.#kinds.set(kind.name, kind);
    Object.assign(this.#parts, parts);
  }

  /** Null: it has not been loaded. */
  partIfLoaded<Name extends PartName>(name: Name): PartsByName[Name] | null {
    return (this.#parts[name] as PartsByName[Name] | undefined) ?? null;
  }

  /** Throws when it has not been loaded. */
  part<Name extends PartName>(name: Name): PartsByName[Name] {
    const part = this.partIfLoaded(name);
    if (part === null) throw new Error(`the part "${name}" ${NOT_LOADED}`);
    return part;
  }
}

/** What a configuration names and this build does not have. */
export function lacks(source: ConfigSource): readonly ConfigIssue[] {
  const { node } = builtParts === null ? { node: null } : parsedFrom(source);
  return node === null ? [] : lacksOf(node);
}

function lacksOf(node: JsonNode): ConfigIssue[] {
  const kinds = Object.keys(KINDS).map((name) => [name, KIND_PLACES.map((place) => `${place}=${name}`)] as const);
  const has = kinds.flatMap(([name]) => (isInBuild(name) ? [name] : [])).join(", ") || "no plugin kind";
  const found = new Map<string, ConfigIssue>();
  for (const [name, naming] of [...kinds, ...NAMED]) {
    if (isInBuild(name)) continue;
    for (const { at, what, position } of namings(node, naming)) {
      const message = `${what ?? `needs the part "${name}", which `}is not in this build${name in KINDS ? `, which has ${has}` : ""}: build again with this configuration, or with --with ${name}`;
      const path = formatPath(at);
      if (!found.has(path)) found.set(path, { at, message, position });
    }
  }
  return [...found.values()];
}

/** Where a document names a part. `what`: the text that does, quoted; undefined: a rule finds that it needs the part. */
function namings(node: JsonNode, naming: Naming) {
  if (typeof naming === "function") return naming(node) ? [{ at: [], what: undefined, position: node.position }] : [];
  return naming.flatMap((place) => {
    const [, text] = place.split("=");
    return valuesAt(node, place).map(({ at, value: { position } }) => ({ at, what: text === undefined ? "" : `"${text}" `, position }));
  });
}

export function fieldsOfParts(parts: Readonly<Record<string, any>>): readonly PartFields[] {
  return Object.values(parts).flatMap((part: { readonly fields?: PartFields }) => part.fields ?? []);
}

/** Stands for a kind that no configuration has named: it accepts no configuration. */
function notLoaded(name: string): AnyPlugin {
  const what = `the plugin kind "${name}"`;
  const create = (): never => {
    throw new Error(`${what} ${NOT_LOADED}`);
  };
  return { name, schema: unloaded(what), create };
}
