/**
 * Which modules of the program a start loads, as Node's loader reports them: those that the configuration and the
 * settings need, and no more.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { accepted } from "../../lib/cli/failure.ts";
import { partsNamedBy } from "../../lib/cli/on_demand.ts";
import { readSettings } from "../../lib/config/settings.ts";
import { SERVER } from "../support/certs.ts";
import { emptyFolder, fileWith, program, runningFile, runningProgram } from "../support/process.ts";
import { recorder } from "../support/recorder.ts";
import { signed, signingKeys } from "../support/signing_keys.ts";
import { tokensOf } from "../support/tokens.ts";

const ROOT = new URL("../../", import.meta.url);
const quickstart = JSON.parse(readFileSync(new URL("examples/quickstart.json", ROOT), "utf8")) as {
  readonly services: readonly [Record<string, unknown>];
};

/** The modules that are loaded when the program has started. */
async function loadedBy(
  config: unknown,
  words: readonly string[] = [],
  environment: Record<string, string> = {},
): Promise<string[]> {
  const recording = recorder();
  await runningProgram(config, words, { ...recording.environment, ...environment });
  return recording.modules();
}

const withService = (more: object) => ({ services: [{ ...quickstart.services[0], ...more }] });

/** Every module but those that any configuration needs, by a part of its path. */
const PARTS = {
  kinds: /^lib\/(?:plugins\/(?!callers$|chain$|costs$|group_limits$|shadow$|kit$|plugin$|foreign_kind$)|json_schema\/)/,
  plugins: /^lib\/(?:gateway\/plugin_instances|plugins\/chain)$/,
  http2: /^lib\/upstream\/(?:sessions|http2_request)$/,
  hashOn: /^lib\/config\/hash_on$/,
  hash: /^lib\/upstream\/hash/,
  breaker: /^lib\/(?:upstream\/breaker|config\/circuit_breaker)$/,
  upstreamTls: /^lib\/upstream\/tls$/,
  names: /^lib\/upstream\/addresses$/,
  health: /^lib\/upstream\/health$/,
  choice: /^lib\/upstream\/(?:balance|choice)$/,
  healthChecks: /^lib\/upstream\/health_checks$/,
  sharedHealth: /^lib\/upstream\/shared_health$/,
  retries: /^lib\/(?:upstream\/(?:retries|replay)|config\/retries)$/,
  nodeParser: /^lib\/upstream\/node_response_parser$/,
  conditions: /^lib\/(?:config|http|route)\/conditions$/,
  split: /^lib\/(?:upstream|config)\/split$/,
  sticky: /^lib\/(?:upstream|config)\/sticky$/,
  trustedProxies: /^lib\/(?:server\/trusted_proxies|base\/cidr|config\/address_range)$/,
  tls: /^lib\/config\/tls_fields$/,
  certificates: /^lib\/(?:gateway\/host_certificates|server\/certificates)$/,
  callers: /^lib\/(?:config\/(?:callers|caller_list|json_paths)|plugins\/callers)$/,
  tests: /^lib\/config\/(?:read_)?tests$/,
  counters: /^lib\/store\/(?!redis|resp|shared_|held_|costs$|quota)/,
  state: /^lib\/(?:cli\/(?:state_dir|seen_file)|store\/quota_file)$/,
  heldFolder: /^lib\/base\/state_folder$/,
  auditLog: /^lib\/(?:cli\/audit_log|gateway\/gateway_audit|observe\/audit_(?:log|file)|base\/audit_chain)$/,
  quotas: /^lib\/(?:store\/quotas|base\/calendar)$/,
  costs: /^lib\/(?:plugins\/costs|config\/cost|http\/json_number)$/,
  beforeRoutes: /^lib\/gateway\/before_routes$/,
  shadow: /^lib\/plugins\/shadow$/,
  groupLimits: /^lib\/(?:config|plugins)\/group_limits$/,
  heldCounts: /^lib\/store\/held_counts$/,
  sharedCallers: /^lib\/store\/shared_callers$/,
  client: /^lib\/(?:client\/client|gateway\/plugin_destinations)$/,
  http2Server: /^lib\/server\/h(?:ttp2|2_)/,
  nodeHttp1: /^lib\/server\/(?:http1_node|node_)/,
  tlsServer: /^lib\/(?:server\/tls|cli\/tls_files)$/,
  redis: /^lib\/(?:store\/(?:redis|resp)|config\/counters$)/,
  modules: /^lib\/(?:config\/plugin_modules|gateway\/module_loader)$/,
  signatures: /^lib\/(?:config\/signed|base\/signature|gateway\/validity)$/,
  validity: /^lib\/config\/validity_fields$/,
  tracing: /^lib\/(?:observe\/(?:trace|trace_context|sampling|otlp|span_json)|(?:config|gateway)\/tracing)$/,
  reporting: /^lib\/report\/(?:reports|warnings)$/,
  metrics: /^lib\/(?:report\/reporting|observe\/(?:metrics|metrics_plan|stats))$/,
  exposition: /^lib\/(?:report\/families|observe\/(?:exposition|process))$/,
  upstreamPath: /^lib\/route\/upstream_path$/,
  logFile: /^lib\/observe\/log_file$/,
  logFilter: /^lib\/observe\/line_filter$/,
  combinedLog: /^lib\/observe\/combined_line$/,
  serverTiming: /^lib\/observe\/server_timing$/,
  shared: /^lib\/(?:base\/shared_(?:counts|memory)|server\/shared_connections)$/,
  embedding: /^lib\/embed\/(?!gateway$)/,
  workerReports: /^lib\/(?:report\/worker_reports|observe\/metrics_report)$/,
  recentRequests: /^lib\/(?:gateway\/recent_requests|observe\/decisions)$/,
  decisionsField: /^lib\/config\/decisions$/,
  operator: /^lib\/operator\//,
  admin: new RegExp(
    String.raw`^lib\/(?:admin\/(?!writing$|source_file$|masked_text$|history$|change_log$)|` +
      String.raw`cli\/(?:admin_interface|admin_requests|own_folder)$)`,
  ),
  seal: /^lib\/(?:cli\/seal|base\/rights)$/,
  adminWrite: /^lib\/admin\/(?:writing|source_file|masked_text|history|change_log)$/,
  manager: /^lib\/(?:manager\/(?!proxy$|backend$)|cli\/(?:manager|management_ui)$)/,
  managerProxy: /^lib\/manager\/(?:proxy|backend)$/,
  cluster: /^lib\/(?:cluster\/|cli\/workers$)/,
  settings: /^lib\/config\/(?:settings(?:_table|_errors)?|tracing)$/,
  commandLine: /^lib\/cli\/(?:command_line|commands|arguments)$/,
  warnings: new RegExp(
    String.raw`^lib\/(?:proof\/(?:config_warnings|known_callers|plugin_warnings|proven_routes|route_warnings|` +
      String.raw`written)|route\/(?:\w*overlaps|placed_routes|pattern_index|spellings|` +
      String.raw`sample_requests))$`,
  ),
  proof: new RegExp(
    String.raw`^lib\/proof\/(?!config_diff$|config_warnings$|displayed$|known_callers$|proven_routes$|` +
      String.raw`plugin_warnings$|route_warnings$|written$)`,
  ),
  reloads: /^lib\/gateway\/reloads$/,
  changes: /^lib\/proof\/config_diff$/,
  sockets: /^lib\/cli\/socket_activation$/,
  commands: new RegExp(
    String.raw`^lib\/cli\/(?:demo|config_file|test|junit|explain|explain_id|diff|compare|` +
      String.raw`compare\/\w+|reload|admin_client|schema|hash_password|help|terminal|warning_text)$`,
  ),
} as const;

const tokensIn = (modules: readonly string[]) =>
  modules.reduce((sum, path) => sum + tokensOf(readFileSync(new URL(`${path}.ts`, ROOT), "utf8")), 0);
const partsOf = (modules: readonly string[]) =>
  Object.entries(PARTS)
    .filter(([, part]) => modules.some((path) => part.test(path)))
    .map(([name]) => name);

describe("the program with examples/quickstart.json", () => {
  it(
    "loads at most 94 of its modules with 129,000 tokens, " + "and no part that the configuration does not name",
    async () => {
      const modules = await loadedBy(quickstart);
      expect(modules).toContain("lib/gateway/gateway");
      expect(modules).toHaveLength(new Set(modules).size);
      expect(partsOf(modules)).toEqual([]);
      expect(modules.length).toBeLessThanOrEqual(94);
      expect(tokensIn(modules)).toBeLessThanOrEqual(129_000);
    },
  );
});

const KEY_AND_LIMIT = [
  { name: "key_auth", config: { key: "k" } },
  { name: "rate_limit", config: { limit_min: 1 } },
];
const ADMIN = { ADMIN_USER: "admin", ADMIN_PASSWORD: "a long password" };

describe("the program loads what is named, and only that,", () => {
  it.each<readonly [string, object, readonly string[], Record<string, string>, readonly (keyof typeof PARTS)[]]>([
    [
      "with a plugin",
      withService({
        plugins: [{ name: "jwt", config: { alg: "HS256", secret: "a secret of more than thirty-two bytes" } }],
      }),
      [],
      {},
      ["kinds", "plugins", "tls", "client", "shared", "warnings"],
    ],
    [
      "with a limit",
      withService({ plugins: [{ name: "rate_limit", config: { limit_min: 1 } }] }),
      [],
      {},
      ["kinds", "plugins", "counters"],
    ],
    [
      "with a limit of costs",
      withService({ plugins: [{ name: "rate_limit", config: { limit_min: 1, cost: { response_header: "X-Cost" } } }] }),
      [],
      {},
      ["kinds", "plugins", "counters", "costs"],
    ],
    [
      "with CORS for all services",
      { ...quickstart, global: { plugins: [{ name: "cors", config: { allow_origins: ["*"] } }] } },
      [],
      {},
      ["kinds", "plugins", "beforeRoutes"],
    ],
    [
      "with a limit in shadow mode",
      withService({ plugins: [{ name: "rate_limit", config: { limit_min: 1, mode: "shadow" } }] }),
      [],
      {},
      ["kinds", "plugins", "counters", "shadow"],
    ],
    [
      "with a quota",
      withService({ plugins: [{ name: "quota", config: { limit: 1, per: "day" } }] }),
      [],
      {},
      ["kinds", "plugins", "counters", "quotas", "reporting", "warnings"],
    ],
    [
      "with a folder of state",
      quickstart,
      [],
      { STATE_DIR: "folder" },
      ["counters", "state", "heldFolder", "quotas", "settings"],
    ],
    ["with an audit log", quickstart, [], { AUDIT_LOG: "file" }, ["heldFolder", "auditLog", "logFile", "settings"]],
    [
      "with limits of groups",
      withService({
        plugins: [{ name: "rate_limit", config: { limit_min: 1, limits_by_group: { gold: { limit_min: 2 } } } }],
      }),
      [],
      {},
      ["kinds", "plugins", "counters", "groupLimits", "warnings"],
    ],
    [
      "with a limit of requests in progress",
      withService({ plugins: [{ name: "concurrency", config: { max_in_flight: 1 } }] }),
      [],
      {},
      ["kinds", "plugins", "counters", "heldCounts", "shared", "warnings"],
    ],
    [
      "with a guard of a route",
      withService({ routes: [{ path: "/a", plugins: [{ name: "key_auth", config: { key: "a" } }] }, { path: "/" }] }),
      [],
      {},
      ["kinds", "plugins", "warnings"],
    ],
    [
      "with a guard of the only route",
      withService({ routes: [{ path: "/a", plugins: [{ name: "key_auth", config: { key: "a" } }] }] }),
      [],
      {},
      ["kinds", "plugins"],
    ],
    ["with tests", { ...quickstart, tests: [] }, [], {}, ["tests"]],
    ["with a serial", { ...quickstart, serial: 1 }, [], {}, ["validity"]],
    ["with callers", { ...quickstart, callers: [] }, [], {}, ["callers", "warnings"]],
    ["with an upstream that speaks HTTP/2", withService({ protocol: "h2c" }), [], {}, ["http2"]],
    ["with a hash", withService({ load_balancing_strategy: "ip_hash" }), [], {}, ["hashOn", "hash", "choice"]],
    ["with a circuit breaker", withService({ circuit_breaker: {} }), [], {}, ["breaker"]],
    ["with health checks", withService({ health: { enabled: true } }), [], {}, ["health", "choice", "healthChecks"]],
    [
      "with two upstreams",
      withService({ upstreams: [1, 2].map((port) => ({ host: "127.0.0.1", port })) }),
      [],
      {},
      ["health", "choice"],
    ],
    ["with the name of an upstream", withService({ upstreams: [{ host: "localhost", port: 1 }] }), [], {}, ["names"]],
    ["with an upstream behind TLS", withService({ protocol: "https" }), [], {}, ["upstreamTls"]],
    [
      "with a split",
      withService({
        upstreams: [{ host: "127.0.0.1", port: 1, group: "canary" }],
        split: [{ group: "canary", percent: 5 }],
      }),
      [],
      {},
      ["hashOn", "choice", "conditions", "split"],
    ],
    [
      "with conditions of a route",
      withService({ routes: [{ path: "/a", match: { query: { a: true } } }] }),
      [],
      {},
      ["conditions", "warnings"],
    ],
    ["with another path at the upstream", withService({ upstream_path: "/api" }), [], {}, ["upstreamPath"]],
    ["with retries", withService({ retries: {} }), [], {}, ["retries"]],
    ["with Node's parser of responses", withService({ upstream_client: "node" }), [], {}, ["nodeParser"]],
    ["with sticky sessions", withService({ sticky: {} }), [], {}, ["sticky"]],
    [
      "with trusted proxies",
      { ...quickstart, global: { trusted_proxies: ["10.0.0.0/8"] } },
      [],
      {},
      ["trustedProxies"],
    ],
    ["with HTTP/2 for clients", { ...quickstart, global: { h2c: true } }, [], {}, ["http2Server"]],
    ["with Node's server for clients", { ...quickstart, global: { http1: "node" } }, [], {}, ["nodeHttp1"]],
    [
      "with HTTPS",
      quickstart,
      [],
      { HTTPS_PORT: "0", SERVER_CERT_PATH: SERVER.cert, SERVER_KEY_PATH: SERVER.key },
      ["http2Server", "tlsServer", "settings"],
    ],
    [
      "with two services",
      { services: ["a", "b"].map((name) => ({ ...quickstart.services[0], name, base_path: `/${name}` })) },
      [],
      {},
      ["warnings"],
    ],
    [
      "with shared counters",
      { ...quickstart, global: { counters: { store: "redis", url: "redis://127.0.0.1:1" } } },
      [],
      {},
      ["upstreamTls", "tls", "counters", "redis", "shared", "warnings"],
    ],
    ["with a flag that is true or false", quickstart, ["--no-tests"], {}, ["settings", "commandLine"]],
    ["with sockets that are not for this process", quickstart, [], { LISTEN_FDS: "1" }, ["sockets"]],
    [
      "with traces",
      quickstart,
      [],
      { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" },
      ["client", "tracing", "settings"],
    ],
    ["with a number of decisions", { ...quickstart, global: { decisions: 5 } }, [], {}, ["decisionsField"]],
    [
      "with the combined log",
      { ...quickstart, global: { access_log: { format: "combined" } } },
      [],
      {},
      ["combinedLog"],
    ],
    [
      "with a file of the access log",
      { ...quickstart, global: { access_log: { file: "/dev/null" } } },
      [],
      {},
      ["logFile"],
    ],
    [
      "with paths that are not logged",
      { ...quickstart, global: { access_log: { exclude: ["/healthz"] } } },
      [],
      {},
      ["logFilter"],
    ],
    ["with Server-Timing", { ...quickstart, global: { server_timing: true } }, [], {}, ["serverTiming"]],
    ["with probes", quickstart, [], { PROBE_PORT: "0" }, ["reporting", "metrics", "operator", "admin", "settings"]],
    [
      "with the admin interface",
      quickstart,
      [],
      ADMIN,
      ["reporting", "metrics", "recentRequests", "operator", "admin", "settings"],
    ],
    [
      "with an admin interface that writes",
      quickstart,
      [],
      { ...ADMIN, ADMIN_WRITE: "true" },
      ["reporting", "metrics", "logFile", "recentRequests", "operator", "admin", "adminWrite", "settings"],
    ],
    [
      "with the management UI",
      quickstart,
      ["--manager"],
      ADMIN,
      ["reporting", "metrics", "recentRequests", "operator", "admin", "manager", "settings", "commandLine"],
    ],
    [
      "with the management UI of another gateway",
      quickstart,
      ["--manager"],
      { MANAGER_BACKEND_API_URL: "http://127.0.0.1:1" },
      ["operator", "manager", "managerProxy", "settings", "commandLine"],
    ],
  ])("%s", async (_title, config, words, environment, parts) => {
    const files = Object.entries(environment).map(([name, text]) => [
      name,
      text === "folder"
        ? emptyFolder()
        : text === "file"
          ? fileWith("", "audit.log")
          : text.startsWith("-----")
            ? fileWith(text, "file.pem")
            : text,
    ]);
    expect(partsOf(await loadedBy(config, words, Object.fromEntries(files)))).toEqual(parts);
  });

  it.each<readonly [string, object, Record<string, string>, number]>([
    [
      "with a key and a limit of a route: 145,000 tokens",
      withService({ routes: [{ path: "/a", plugins: KEY_AND_LIMIT }] }),
      {},
      145_000,
    ],
    [
      "with those of a service: no more than with those of a route",
      withService({ plugins: KEY_AND_LIMIT }),
      {},
      145_000,
    ],
  ])("%s at most", async (_title, config, environment, most) => {
    expect(tokensIn(await loadedBy(config, [], environment))).toBeLessThanOrEqual(most);
  });

  it.each([
    ["with the admin interface: 33,500 tokens", ADMIN, 34_000],
    [
      "with HTTPS and HTTP/2: 21,000 tokens",
      { HTTPS_PORT: "0", SERVER_CERT_PATH: SERVER.cert, SERVER_KEY_PATH: SERVER.key },
      21_000,
    ],
  ])("%s more than the quickstart at most", async (_title, environment, most) => {
    const files = Object.entries(environment).map(([name, text]) => [
      name,
      text.startsWith("-----") ? fileWith(text, "file.pem") : text,
    ]);
    expect(
      tokensIn(await loadedBy(quickstart, [], Object.fromEntries(files))) - tokensIn(await loadedBy(quickstart)),
    ).toBeLessThanOrEqual(most);
  });

  it("with a plugin: the file of its kind, and of none of the other kinds", async () => {
    const modules = await loadedBy(
      withService({ plugins: [{ name: "request_size_limit", config: { max_payload_size: 1 } }] }),
    );
    expect(modules.filter((path) => PARTS.kinds.test(path))).toEqual(["lib/plugins/request_size_limit"]);
  });

  it("with references: what resolves them", async () => {
    const isReader = (path: string) => /^lib\/config\/(?:references|masked|placeholders)$/.test(path);
    expect((await loadedBy(quickstart)).filter(isReader)).toEqual([]);
    expect(
      (
        await loadedBy(withService({ upstreams: [{ host: "127.0.0.${env:LAST}", port: 9 }] }), [], { LAST: "1" })
      ).filter(isReader),
    ).toEqual(["lib/config/references"]);
  });

  it("with a signed configuration", async () => {
    const [recording, keys] = [recorder(), signingKeys()];
    await runningFile(signed(fileWith(quickstart), keys), [], {
      ...recording.environment,
      CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem"),
    });
    expect(partsOf(recording.modules())).toEqual(["signatures", "validity"]);
  });

  it("with SEAL, which this Node refuses", async () => {
    const { environment, modules } = recorder();
    expect(
      await program(["--config", fileWith(quickstart)], {
        environment: { ...environment, SEAL: "true", HTTP_PORT: "0", LISTEN_HOST: "127.0.0.1" },
      }).ended,
    ).toMatchObject({ code: 2 });
    // What names the files of certificates belongs to their server.
    expect(partsOf(modules())).toEqual(["tlsServer", "seal", "settings"]);
  });

  it("for a command that starts nothing", async () => {
    const { environment, modules } = recorder();
    expect(await program(["hash-password"], { environment, input: "a long password\n" }).ended).toMatchObject({
      code: 0,
    });
    expect(modules()).toContain("lib/cli/hash_password");
    expect(modules().filter((path) => /^lib\/(?:server|upstream|observe)\/|^lib\/cli\/run$/.test(path))).toEqual([]);
    expect(partsOf(modules())).toEqual(["settings", "commandLine", "commands"]);
  });
});

describe("the settings", () => {
  it("name what counts requests, in all threads, where somebody can ask for it, and only there", () => {
    const counting = (workers: number, environment: Record<string, string>) => {
      const read = readSettings({}, { WORKERS: String(workers), ...environment });
      return partsNamedBy(accepted(read)).filter((name) => name === "metrics" || name === "workerReports");
    };
    expect([1, 2].map((workers) => counting(workers, {}))).toEqual([[], []]);
    expect([1, 2].map((workers) => counting(workers, { PROBE_PORT: "0" }))).toEqual([
      ["metrics"],
      ["metrics", "workerReports"],
    ]);
    expect([1, 2].map((workers) => counting(workers, ADMIN))).toEqual([["metrics"], ["metrics", "workerReports"]]);
  });

  it("name the audit log, in all threads, with AUDIT_LOG alone", () => {
    const auditing = (environment: Record<string, string>) =>
      partsNamedBy(accepted(readSettings({}, { WORKERS: "2", ...ADMIN, ...environment }))).includes("gatewayAudit");
    expect([auditing({}), auditing({ AUDIT_LOG: "a.log" })]).toEqual([false, true]);
  });
});

describe("a reload", () => {
  it("loads what the new configuration names, in the running program", async () => {
    const { environment, modules } = recorder();
    const running = await runningProgram(quickstart, [], environment);
    expect(partsOf(modules())).toEqual([]);
    writeFileSync(
      running.file,
      JSON.stringify(
        withService({ protocol: "h2c", plugins: [{ name: "request_size_limit", config: { max_payload_size: 1 } }] }),
      ),
    );
    running.child.kill("SIGHUP");
    await running.says(/"message":"configuration reloaded"/);
    expect(partsOf(modules())).toEqual(["kinds", "plugins", "http2", "reloads", "changes"]);
  });
});
