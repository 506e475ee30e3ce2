/**
 * The parts of the program that not every gateway needs: how each is loaded, and which have been.
 *
 * What a configuration does not name, and nobody asks for, is not loaded. The commands of the program have a table of their own,
 * `cli/commands.ts`.
 */
import { quotesIn, type ConfigSource } from "../config/load.ts";
import { report, type AnySchema } from "../config/schema.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";

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

/** What a snapshot is compiled with, besides plugin kinds. */
const PARTS = {
  /** Connections and requests to upstreams over HTTP/2. */
  http2: async () => ({ ...(await import("../upstream/sessions.ts")), ...(await import("../upstream/http2_request.ts")) }),
  split: () => import("../upstream/split.ts"),
  sticky: () => import("../upstream/sticky.ts"),
  httpsRedirect: () => import("./https_redirect.ts"),
  misdirected: () => import("./misdirected.ts"),
  /** Counters that gateways share. */
  redis: () => import("../store/redis.ts"),
  tracing: async () => ({ ...(await import("../observe/trace.ts")), ...(await import("../observe/otlp.ts")) }),
  adminCookie: () => import("../http/admin_cookie.ts"),
};

/** What the text of a dry run can name, whatever the configuration in force names. */
export const OF_TEXTS: readonly (() => Promise<unknown>)[] = [...Object.values(KINDS), PARTS.http2, PARTS.split, PARTS.sticky, PARTS.httpsRedirect, PARTS.misdirected, PARTS.redis];

/** What can wait until it is asked for. */
export const ON_DEMAND = {
  tests: () => import("./proof/run_tests.ts"),
  explain: () => import("./explain.ts"),
  dryRuns: () => import("./dry_runs.ts"),
  dryRun: () => import("./proof/dry_run.ts"),
};

/** The texts by which a configuration names a part: values of `protocol`, keys of a service, the key in `global`. The others are named by settings. */
const NAMED_BY = { http2: ["h2", "h2c"], split: ["split"], sticky: ["sticky"], httpsRedirect: ["https_redirect"], misdirected: ["certificates"], redis: ["counters"] } as const;

type PartName = keyof typeof PARTS;
type PartsByName = { readonly [Name in PartName]: Awaited<ReturnType<(typeof PARTS)[Name]>> };

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

  /** Loads what a configuration names. A text that only equals such a name, of a service for instance, counts as well. */
  async load(source: ConfigSource): Promise<void> {
    const quotes = quotesIn(source);
    const kinds = Object.entries<() => Promise<AnyPlugin>>(KINDS).filter(([name]) => !this.#kinds.has(name) && quotes(name));
    const parts = (Object.keys(NAMED_BY) as (keyof typeof NAMED_BY)[]).filter((name) => NAMED_BY[name].some(quotes));
    await Promise.all([...kinds.map(async ([name, load]) => this.#kinds.set(name, await this.#call(load))), ...parts.map((name) => this.loadPart(name))]);
  }

  async loadPart<Name extends PartName>(name: Name): Promise<void> {
    this.#parts[name] ??= (await this.#call<PartsByName[PartName]>(PARTS[name])) as PartsByName[Name];
  }

  #call<T>(load: () => Promise<T>): Promise<T> {
    this.called.add(load);
    return load();
  }

  /** Takes over parts that are there already. */
  add({ kinds, ...parts }: LoadedParts): void {
    for (const kind of kinds) this.#kinds.set(kind.name, kind);
    Object.assign(this.#parts, parts);
  }

  /** Throws when it has not been loaded. */
  part<Name extends PartName>(name: Name): PartsByName[Name] {
    const part = this.#parts[name];
    if (part === undefined) throw new Error(`the part "${name}" ${NOT_LOADED}`);
    return part as PartsByName[Name];
  }
}

export const NOT_LOADED = "has not been loaded: await loadPluginModules(…) before createGateway, and gateway.loadModules() before reload";

/** Stands for a kind that no configuration has named: it accepts no configuration. */
function notLoaded(name: string): AnyPlugin {
  const problem = `the plugin kind "${name}" ${NOT_LOADED}`;
  const check: AnySchema["check"] = (node, at, context) => report(context, at, node, problem);
  const create = (): never => {
    throw new Error(problem);
  };
  return { name, schema: { expects: "an object", describe: undefined, kinds: ["object"], check, show: () => ({}), jsonSchema: () => ({}) }, create };
}
