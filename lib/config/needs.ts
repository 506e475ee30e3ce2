/**
 * Finds what a configuration needs, in one walk over its parsed document: the features of the program that its fields
 * name, and its plugin kinds.
 */
import { isIP } from "node:net";
import { isForeignName } from "../base/ip_address.ts";
import { itemsOf, type JsonNode, type Path } from "./json.ts";
import { UNFILLED } from "./schema_core.ts";
import { canWarn } from "./warnable.ts";

/**
 * Called for each place that names something. `by`: a field, a text that is its value, or a rule about the document as
 * a whole. `name`: of a feature or a plugin kind.
 */
export type Need = (name: string, node: JsonNode, at: Path, by: "field" | "text" | "rule") => void;

/** What fields name, whatever their values are. */
type Fields = Readonly<Record<string, string | readonly string[]>>;
const OF_ROOT: Fields = {
  callers: "callers",
  caller_files: "callers",
  // What runs them is loaded later, and a build has to have it.
  tests: ["proof", "tests"],
  test_files: ["proof", "tests"],
  expires_at: "reporting",
};
const OF_GLOBAL: Fields = {
  https_redirect: "routing",
  trusted_proxies: "routing",
  tls: "serverTls",
  h2c: "http2",
  errors: "routing",
  counters: "sharedCounters",
  egress_proxy: "outbound",
  server_timing: "logs",
  // What keeps them is loaded later, and a build has to have it.
  acme: ["serverTls", "http2", "reporting", "acme"],
};
const OF_ACCESS_LOG: Fields = { file: "logs", sample: "logs", exclude: "logs" };
const OF_SERVICE: Fields = {
  hash_on: "balancing",
  hash_balance_factor: "balancing",
  split: "balancing",
  sticky: "balancing",
  health: "balancing",
  circuit_breaker: "balancing",
  retries: "balancing",
  tls: "outbound",
  proxy_protocol: "outbound",
  upstream_path: "routing",
  errors: "routing",
};
const OF_UPSTREAM: Fields = { backup: "balancing", request_headers: "balancing", srv: ["outbound", "balancing"] };
const OF_ROUTE: Fields = { match: "routing", upstream_path: "routing", timeouts: "routing" };
/** Of `config`, whatever the kind is. */
const OF_PLUGIN: Fields = { callers: "callers", limits_by_group: "callers", cost: "callers" };

/** What texts name. */
type Texts = Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
const IN_GLOBAL: Texts = {
  http1: { node: ["nodeHttp1"] },
  proxy_protocol: { accept: ["routing"], require: ["routing"] },
};
const IN_ACCESS_LOG: Texts = { format: { combined: ["logs"] } };
const IN_SERVICE: Texts = {
  protocol: { https: ["outbound"], h2: ["http2", "outbound"], h2c: ["http2"] },
  load_balancing_strategy: { hash: ["balancing"], ip_hash: ["balancing"] },
  upstream_client: { node: ["nodeHttp1"] },
};
const IN_PLUGIN: Texts = { mode: { shadow: ["callers"] } };
/** Kinds that a warning about the settings of the process can be about. */
const REPORTED = ["mtls", "quota"];

/** Yields after each service. What one needs that is known by its digest has been loaded for the document before. */
export function* needsIn(document: JsonNode, need: Need): Generator<void, void> {
  const whole = (name: string) => need(name, document, [], "rule");
  fieldsOf(document, OF_ROOT, need, []);
  const global = memberOf(document, "global");
  if (global !== undefined) ofGlobal(global, need);
  const services = itemsOf(memberOf(document, "services"));
  const seen = { hasReferences: false, hasUnfilled: false };
  for (const [i, service] of services.entries()) {
    // `canWarn` looks at a service that is alone.
    if (service.readSteps !== undefined && services.length > 1) continue;
    yield* service.readSteps?.() ?? [];
    ofService(service, need, whole, ["services", i]);
    look(service, seen);
    yield;
  }
  const others = document.kind === "object" ? document.members : NOTHING;
  for (const [name, node] of others) {
    if (name === "services" || node.readSteps !== undefined) continue;
    for (const part of node.kind === "array" ? node.items : [node]) {
      look(part, seen);
      yield;
    }
  }
  if (seen.hasReferences) whole("sources");
  if (seen.hasUnfilled || canWarn(document, services)) whole("proof");
}

const NOTHING: ReadonlyMap<string, JsonNode> = new Map();

function ofGlobal(global: JsonNode, need: Need): void {
  const at = ["global"];
  fieldsOf(global, OF_GLOBAL, need, at);
  textsOf(global, IN_GLOBAL, need, at);
  const log = memberOf(global, "access_log");
  if (log !== undefined) {
    fieldsOf(log, OF_ACCESS_LOG, need, at, "access_log");
    textsOf(log, IN_ACCESS_LOG, need, at, "access_log");
  }
  for (const [i, node] of itemsOf(memberOf(global, "certificates")).entries())
    for (const name of ["serverTls", "http2", "reporting"]) need(name, node, ["global", "certificates", i], "field");
  for (const [i, node] of itemsOf(memberOf(global, "plugin_modules")).entries())
    for (const name of ["sources", "plugins", "foreignKinds"])
      need(name, node, ["global", "plugin_modules", i], "field");
  ofPlugins(global, need, at);
}

function ofService(service: JsonNode, need: Need, whole: (name: string) => void, at: Path): void {
  fieldsOf(service, OF_SERVICE, need, at);
  textsOf(service, IN_SERVICE, need, at);
  ofPlugins(service, need, at);
  const upstreams = itemsOf(memberOf(service, "upstreams"));
  if (upstreams.length > 1) whole("balancing");
  for (const [i, upstream] of upstreams.entries()) fieldsOf(upstream, OF_UPSTREAM, need, at, "upstreams", i);
  for (const upstream of upstreams) {
    const host = memberOf(upstream, "host");
    if (host?.kind !== "string" || isIP(host.value) !== 0) continue;
    whole("outbound");
    // Each of its addresses is an upstream. Also a reference whose value nobody has read yet.
    if (isForeignName(host.value)) whole("balancing");
  }
  for (const [i, route] of itemsOf(memberOf(service, "routes")).entries()) {
    const place = [...at, "routes", i];
    fieldsOf(route, OF_ROUTE, need, place);
    ofPlugins(route, need, place);
  }
}

function ofPlugins(owner: JsonNode, need: Need, at: Path): void {
  const plugins = itemsOf(memberOf(owner, "plugins"));
  for (let i = 0; i < plugins.length; i++) {
    const plugin = plugins[i]!;
    const place = [...at, "plugins", i];
    need("plugins", plugin, place, "field");
    const kind = memberOf(plugin, "name");
    if (kind?.kind === "string") {
      need(kind.value, kind, [...place, "name"], "text");
      if (REPORTED.includes(kind.value)) need("reporting", kind, [...place, "name"], "text");
    }
    const config = memberOf(plugin, "config");
    if (config === undefined) continue;
    fieldsOf(config, OF_PLUGIN, need, place, "config");
    textsOf(config, IN_PLUGIN, need, place, "config");
  }
}

function memberOf(owner: JsonNode, field: string): JsonNode | undefined {
  return owner.kind === "object" ? owner.members.get(field) : undefined;
}

/** `at`, then `under`: the place of the owner, which is put together only where it is needed. */
function fieldsOf(owner: JsonNode, names: Fields, need: Need, at: Path, ...under: Path): void {
  if (owner.kind !== "object") return;
  for (const field in names) {
    const node = owner.members.get(field);
    if (node === undefined) continue;
    for (const name of [names[field]!].flat()) need(name, node, [...at, ...under, field], "field");
  }
}

function textsOf(owner: JsonNode, fields: Texts, need: Need, at: Path, ...under: Path): void {
  if (owner.kind !== "object") return;
  for (const field in fields) {
    const node = owner.members.get(field);
    if (node?.kind !== "string" || !Object.hasOwn(fields[field]!, node.value)) continue;
    for (const name of fields[field]![node.value]!) need(name, node, [...at, ...under, field], "text");
  }
}

/** Looks at all texts, whatever fields are secrets: for references, and for templates that nobody has filled in. */
function look(node: JsonNode, seen: { hasReferences: boolean; hasUnfilled: boolean }): void {
  if (node.kind === "string") {
    seen.hasReferences ||= node.value.includes("${");
    seen.hasUnfilled ||= UNFILLED.test(node.value.replaceAll("$${", "${"));
  } else if (node.kind === "array") for (const item of node.items) look(item, seen);
  else if (node.kind === "object") for (const member of node.members.values()) look(member, seen);
}
