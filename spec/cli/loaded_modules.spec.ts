/**
 * Which modules of the program a start loads, as Node's loader reports them: those that the configuration and the
 * settings need, and no more.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { accepted } from "../../lib/cli/failure.ts";
import { askedBy, featuresNamedBy } from "../../lib/cli/on_demand.ts";
import { readSettings } from "../../lib/config/settings.ts";
import { KINDS } from "../../lib/features/table.ts";
import { SERVER } from "../support/certs.ts";
import { configServer } from "../support/config_server.ts";
import { emptyFolder, fileWith, program, runningFile, runningProgram } from "../support/process.ts";
import { recorder } from "../support/recorder.ts";
import { signed, signingKeys } from "../support/signing_keys.ts";
import { tokensOf } from "../support/tokens.ts";

const ROOT = new URL("../../", import.meta.url);
/** What is loaded at most, for the first reload, too: it loads nothing more of what it needs in any case. */
const MOST = { modules: 110, tokens: 150_400, guarded: 171_000 };
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

/** Each feature by a module that is loaded with it and with nothing else. */
const FEATURES = {
  balancing: "gateway/balancing",
  outbound: "upstream/addresses",
  http2: "upstream/sessions",
  nodeHttp1: "server/http1_node",
  serverTls: "server/tls",
  routing: "route/upstream_path",
  plugins: "gateway/plugin_instances",
  callers: "plugins/group_limits",
  sharedCounters: "gateway/shared_counters",
  workers: "server/shared_connections",
  reporting: "embed/reported_gateway",
  logs: "observe/line_filter",
  tracing: "gateway/tracing",
  proof: "proof/config_warnings",
  sources: "gateway/module_loader",
} as const;

/** What settings name besides, by a module each. */
const OF_SETTINGS = {
  settings: "config/settings",
  commandLine: "cli/command_line",
  sockets: "cli/socket_activation",
  stateDir: "cli/state_dir",
  decisionFile: "observe/decision_file",
  auditLog: "cli/audit_log",
  remoteConfig: "cli/remote_config",
  httpSource: "source/http_text_server",
  etcdSource: "source/etcd_server",
  admin: "admin/endpoints",
  adminWrite: "admin/writing",
  adminUsers: "cli/users_file",
  probes: "admin/probes",
  manager: "manager/server",
  managerProxy: "manager/proxy",
  metricsExport: "report/metrics_export",
  logsExport: "observe/otlp_logs",
  cluster: "cluster/supervisor",
} as const;

const ROWS = { ...FEATURES, ...OF_SETTINGS };
/** What only some kinds need, and must not be loaded with the others. */
const OF_KINDS = ["client/client", "store/memory", "store/held_counts", "base/shared_memory", "base/password"];

const tokensIn = (modules: readonly string[]) =>
  modules.reduce((sum, path) => sum + tokensOf(readFileSync(new URL(`${path}.ts`, ROOT), "utf8")), 0);
const rowsOf = (modules: readonly string[]) =>
  Object.entries(ROWS)
    .filter(([, path]) => modules.includes(`lib/${path}`))
    .map(([name]) => name);
const kindsOf = (modules: readonly string[]) =>
  Object.keys(KINDS).filter((name) => modules.some((path) => path.endsWith(`/${name}`) && path.includes("/plugins/")));
const codeOf = (modules: readonly string[]) => OF_KINDS.filter((path) => modules.includes(`lib/${path}`));

describe("the program with examples/quickstart.json", () => {
  it(`loads at most ${MOST.modules} of its modules with ${MOST.tokens} tokens, and no feature`, async () => {
    const modules = await loadedBy(quickstart);
    expect(modules).toContain("lib/gateway/gateway");
    expect(modules).toHaveLength(new Set(modules).size);
    expect([rowsOf(modules), kindsOf(modules), codeOf(modules)]).toEqual([[], [], []]);
    expect(modules.length).toBeLessThanOrEqual(MOST.modules);
    expect(tokensIn(modules)).toBeLessThanOrEqual(MOST.tokens);
  });
});

const KEY_AND_LIMIT = [
  { name: "key_auth", config: { key: "k" } },
  { name: "rate_limit", config: { limit_min: 1 } },
];
const HASH = "scrypt$1024$8$1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA";
const ADMIN = { ADMIN_USER: "admin", ADMIN_PASSWORD: "a long password" };
const withGlobal = (global: object) => ({ ...quickstart, global });
const withPlugin = (name: string, config: object) => withService({ plugins: [{ name, config }] });
const withUpstream = (upstream: object) => withService({ upstreams: [{ host: "127.0.0.1", port: 1, ...upstream }] });

describe("the program loads what is named, and only that,", () => {
  it.each<readonly [string, object, Record<string, string>, readonly (keyof typeof ROWS)[]]>([
    ["with a plugin", withPlugin("cors", { allow_origins: ["*"] }), {}, ["plugins"]],
    [
      "with a limit of costs",
      withPlugin("rate_limit", { limit_min: 1, cost: { response_header: "X-Cost" } }),
      {},
      ["plugins", "callers"],
    ],
    [
      "with a limit in shadow mode",
      withPlugin("rate_limit", { limit_min: 1, mode: "shadow" }),
      {},
      ["plugins", "callers"],
    ],
    ["with a quota", withPlugin("quota", { limit: 1, per: "day" }), {}, ["plugins", "reporting", "proof"]],
    [
      "with a guard of a route",
      withService({ routes: [{ path: "/a", plugins: [{ name: "key_auth", config: { key: "a" } }] }, { path: "/" }] }),
      {},
      ["plugins", "proof"],
    ],
    ["with callers", { ...quickstart, callers: [] }, {}, ["callers", "proof"]],
    ["with tests", { ...quickstart, tests: [] }, {}, ["proof"]],
    ["with a serial", { ...quickstart, serial: 1 }, {}, []],
    [
      "with two services",
      { services: ["a", "b"].map((name) => ({ ...quickstart.services[0], name, base_path: `/${name}` })) },
      {},
      ["proof"],
    ],
    ["with an upstream that speaks HTTP/2", withService({ protocol: "h2c" }), {}, ["http2"]],
    ["with HTTP/2 for clients", withGlobal({ h2c: true }), {}, ["http2"]],
    ["with rules of TLS for clients", withGlobal({ tls: { min_version: "1.3" } }), {}, ["serverTls"]],
    ["with Node's server for clients", withGlobal({ http1: "node" }), {}, ["nodeHttp1"]],
    ["with Node's parser of responses", withService({ upstream_client: "node" }), {}, ["nodeHttp1"]],
    ["with a hash", withService({ load_balancing_strategy: "ip_hash" }), {}, ["balancing"]],
    ["with a circuit breaker", withService({ circuit_breaker: {} }), {}, ["balancing"]],
    ["with health checks", withService({ health: { enabled: true } }), {}, ["balancing"]],
    ["with retries", withService({ retries: {} }), {}, ["balancing"]],
    [
      "with two upstreams",
      withService({ upstreams: [1, 2].map((port) => ({ host: "127.0.0.1", port })) }),
      {},
      ["balancing"],
    ],
    ["with a name of this machine", withUpstream({ host: "localhost" }), {}, ["outbound"]],
    ["with the name of an upstream", withUpstream({ host: "orders.test" }), {}, ["balancing", "outbound"]],
    ["with an upstream behind TLS", withService({ protocol: "https" }), {}, ["outbound"]],
    [
      "with conditions of a route",
      withService({ routes: [{ path: "/a", match: { query: { a: true } } }] }),
      {},
      ["routing", "proof"],
    ],
    ["with own errors", withGlobal({ errors: [{ content_type: "text/plain", body: "x" }] }), {}, ["routing"]],
    [
      "with an SRV record",
      withService({ upstreams: [{ srv: "_http._tcp.orders.internal" }] }),
      {},
      ["balancing", "outbound"],
    ],
    ["with another path at the upstream", withService({ upstream_path: "/api" }), {}, ["routing"]],
    ["with headers for one upstream", withUpstream({ request_headers: { "X-A": "1" } }), {}, ["balancing", "proof"]],
    [
      "with headers for one upstream behind TLS",
      withService({ protocol: "https", upstreams: [{ host: "127.0.0.1", port: 1, request_headers: { "X-A": "1" } }] }),
      {},
      ["balancing", "outbound"],
    ],
    [
      "with a backup",
      withService({
        upstreams: [
          { host: "127.0.0.1", port: 1 },
          { host: "127.0.0.1", port: 2, backup: true },
        ],
      }),
      {},
      ["balancing"],
    ],
    [
      "with timeouts of a route",
      withService({ routes: [{ path: "/{rest*}", timeouts: { total_ms: 1 } }] }),
      {},
      ["routing"],
    ],
    ["with trusted proxies", withGlobal({ trusted_proxies: ["10.0.0.0/8"] }), {}, ["routing"]],
    [
      "with shared counters",
      withGlobal({ counters: { store: "redis", url: "redis://127.0.0.1:1" } }),
      {},
      ["sharedCounters", "proof"],
    ],
    ["with an egress proxy", withGlobal({ egress_proxy: { url: "http://127.0.0.1:1" } }), {}, ["outbound", "proof"]],
    ["with the combined log", withGlobal({ access_log: { format: "combined" } }), {}, ["logs"]],
    ["with a file of the access log", withGlobal({ access_log: { file: "/dev/null" } }), {}, ["logs"]],
    ["with Server-Timing", withGlobal({ server_timing: true }), {}, ["logs"]],
    [
      "with a reference",
      withUpstream({ host: "127.0.0.${env:LAST}" }),
      { LAST: "1" },
      ["balancing", "outbound", "sources"],
    ],
    [
      "with HTTPS",
      quickstart,
      { HTTPS_PORT: "0", SERVER_CERT_PATH: SERVER.cert, SERVER_KEY_PATH: SERVER.key },
      ["http2", "serverTls", "settings"],
    ],
    ["with traces", quickstart, { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" }, ["tracing", "settings"]],
    [
      "with metrics that are sent",
      quickstart,
      { OTEL_METRICS_EXPORTER: "otlp", OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "http://127.0.0.1:1" },
      ["reporting", "tracing", "settings", "metricsExport"],
    ],
    [
      "with logs that are sent",
      quickstart,
      { OTEL_LOGS_EXPORTER: "otlp", OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: "http://127.0.0.1:1" },
      ["tracing", "settings", "logsExport"],
    ],
    ["with a folder of state", quickstart, { STATE_DIR: "folder" }, ["settings", "stateDir"]],
    [
      "with a folder of state and decisions in it",
      quickstart,
      { ...ADMIN, STATE_DIR: "folder" },
      ["reporting", "settings", "stateDir", "decisionFile", "admin"],
    ],
    [
      "with a folder of state and no decisions",
      { ...quickstart, global: { decisions: 0 } },
      { ...ADMIN, STATE_DIR: "folder" },
      ["reporting", "settings", "stateDir", "admin"],
    ],
    ["with an audit log", quickstart, { AUDIT_LOG: "file" }, ["settings", "auditLog"]],
    ["with sockets that are not for this process", quickstart, { LISTEN_FDS: "1" }, ["sockets"]],
    ["with probes", quickstart, { PROBE_PORT: "0" }, ["reporting", "settings", "probes"]],
    ["with the admin interface", quickstart, ADMIN, ["reporting", "settings", "admin"]],
    [
      "with an admin interface that writes",
      quickstart,
      { ...ADMIN, ADMIN_WRITE: "true" },
      ["reporting", "settings", "admin", "adminWrite"],
    ],
    [
      "with a file of its users",
      quickstart,
      { ADMIN_USERS_FILE: "users" },
      ["reporting", "settings", "admin", "adminUsers"],
    ],
    [
      "with the management UI",
      quickstart,
      { ...ADMIN, MANAGER: "true", MANAGER_PORT: "0" },
      ["reporting", "settings", "admin", "manager"],
    ],
    [
      "with the management UI of another gateway",
      quickstart,
      { MANAGER: "true", MANAGER_PORT: "0", MANAGER_BACKEND_API_URL: "http://127.0.0.1:1" },
      ["settings", "manager", "managerProxy"],
    ],
  ])("%s", async (_title, config, environment, rows) => {
    const files = Object.entries(environment).map(([name, text]) => [name, fileFor(text)]);
    expect(rowsOf(await loadedBy(config, [], Object.fromEntries(files)))).toEqual(rows);
  });

  it.each([
    ["key_auth", { key: "k" }, []],
    ["rate_limit", { limit_min: 1 }, ["store/memory"]],
    [
      "jwt",
      { alg: "HS256", secret: "a secret of more than thirty-two bytes" },
      ["client/client", "store/memory", "base/shared_memory"],
    ],
    ["concurrency", { max_in_flight: 1 }, ["store/memory", "store/held_counts"]],
    ["request_size_limit", { max_payload_size: 1 }, []],
  ])("with the plugin kind %s: its file, the code of its tools, and no other kind", async (kind, config, code) => {
    const modules = await loadedBy(withPlugin(kind, config));
    expect([kindsOf(modules), codeOf(modules)]).toEqual([kind === "concurrency" ? ["rate_limit", kind] : [kind], code]);
  });

  it.each<readonly [string, object, Record<string, string>, number]>([
    [
      "with a key and a limit of a route",
      withService({ routes: [{ path: "/a", plugins: KEY_AND_LIMIT }] }),
      {},
      MOST.guarded,
    ],
    ["with those of a service", withService({ plugins: KEY_AND_LIMIT }), {}, MOST.guarded],
    ["with a name of this machine", withUpstream({ host: "localhost" }), {}, MOST.tokens + 26_200],
    ["with the name of an upstream", withUpstream({ host: "orders.test" }), {}, MOST.tokens + 63_400],
    ["with the admin interface", quickstart, ADMIN, MOST.tokens + 51_700],
    [
      "with HTTPS and HTTP/2",
      quickstart,
      { HTTPS_PORT: "0", SERVER_CERT_PATH: SERVER.cert, SERVER_KEY_PATH: SERVER.key },
      MOST.tokens + 53_000,
    ],
  ])("%s within a number of tokens", async (_title, config, environment, most) => {
    const files = Object.entries(environment).map(([name, text]) => [name, fileFor(text)]);
    expect(tokensIn(await loadedBy(config, [], Object.fromEntries(files)))).toBeLessThanOrEqual(most);
  });

  it("with certificates of the configuration", async () => {
    const certificates = [{ hosts: ["localhost"], cert: fileFor(SERVER.cert), key: fileFor(SERVER.key) }];
    const modules = await loadedBy(withGlobal({ certificates }));
    expect(rowsOf(modules)).toEqual(["http2", "serverTls", "reporting"]);
    expect(modules).toContain("lib/cli/tls_files");
  });

  it("with a configuration from an HTTP server", async () => {
    const [recording, served] = [recorder(), await configServer()];
    served.files.set("/gw.json", JSON.stringify(quickstart));
    await runningFile(served.url, [], recording.environment);
    expect(rowsOf(recording.modules())).toEqual(["settings", "commandLine", "remoteConfig", "httpSource"]);
  });

  it("with a signed configuration", async () => {
    const [recording, keys] = [recorder(), signingKeys()];
    await runningFile(signed(fileWith(quickstart), keys), [], {
      ...recording.environment,
      CONFIG_PUBLIC_KEY: fileWith(keys.publicKey, "public.pem"),
    });
    expect(rowsOf(recording.modules())).toEqual(["sources"]);
  });

  it("for a command that starts nothing", async () => {
    const { environment, modules } = recorder();
    expect(await program(["hash-password"], { environment, input: "a long password\n" }).ended).toMatchObject({
      code: 0,
    });
    expect(modules()).toContain("lib/cli/hash_password");
    expect(modules().filter((path) => /^lib\/(?:server|upstream|observe)\/|^lib\/cli\/run$/.test(path))).toEqual([]);
    expect(rowsOf(modules())).toEqual(["commandLine"]);
  });
});

/** The value of a variable: "folder", "file", or the text of a certificate stand for what they name. */
function fileFor(text: string): string {
  if (text === "folder") return emptyFolder();
  if (text === "users") return fileWith([{ user: "ole", password: HASH, role: "operator" }], "users.json");
  if (text === "file") return fileWith("", "audit.log");
  return text.startsWith("-----") ? fileWith(text, "file.pem") : text;
}

describe("the settings", () => {
  it("name who can ask for figures, in all threads, and what the threads share", () => {
    const named = (workers: number, environment: Record<string, string>) => {
      const settings = accepted(readSettings({}, { WORKERS: String(workers), ...environment }));
      return [askedBy(settings), ...featuresNamedBy(settings)];
    };
    expect([1, 2].map((workers) => named(workers, {}))).toEqual([["nobody"], ["nobody", "workers"]]);
    expect(named(2, { PROBE_PORT: "0" })).toEqual(["scrapers", "reporting", "workers"]);
    expect([1, 2].map((workers) => named(workers, ADMIN))).toEqual([
      ["administrators", "reporting"],
      ["administrators", "reporting", "workers"],
    ]);
  });
});

describe("a reload", () => {
  it("loads what the new configuration names, in the running program", async () => {
    const { environment, modules } = recorder();
    const running = await runningProgram(quickstart, [], environment);
    expect(rowsOf(modules())).toEqual([]);
    writeFileSync(
      running.file,
      JSON.stringify(
        withService({ protocol: "h2c", plugins: [{ name: "request_size_limit", config: { max_payload_size: 1 } }] }),
      ),
    );
    running.child.kill("SIGHUP");
    await running.says(/"message":"configuration reloaded"/);
    expect(rowsOf(modules())).toEqual(["http2", "plugins"]);
    expect(kindsOf(modules())).toEqual(["request_size_limit"]);
  });
});
