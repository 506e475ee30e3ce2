import { createHash } from "node:crypto";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { once } from "node:events";
import { Session } from "node:inspector";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import type { JsonSchema } from "../../lib/config/schema.ts";
import { withAllFeatures } from "../../lib/features/all.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { freshFeatures } from "../../lib/features/load.ts";
import type { RedisCounters } from "../../lib/store/redis.ts";
import { PublishedHealth } from "../../lib/upstream/health.ts";
import type { HealthSettings } from "../../lib/upstream/contracts.ts";
import type { Peer } from "../../lib/upstream/upstream_set.ts";
import { builtinPlugins } from "../../lib/plugins/builtin.ts";
import { CA, CLIENT, SERVER } from "../support/certs.ts";
import { manualClock } from "../support/clock.ts";
import { together } from "../support/following.ts";
import { backend, running } from "../support/gateway.ts";
import { closedPort } from "../support/origin.ts";
import { authority } from "../support/pki.ts";
import { fileWith } from "../support/process.ts";
import { behindHeaders } from "../support/proxy_header.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { configJsonSchema } from "../../lib/cli/schema.ts";

/** The port of a server of this kind that answers every request with 200, closed with the test. */
async function answering(server: https.Server | http2.Http2Server): Promise<number> {
  const sessions = new Set<http2.Http2Session>();
  server.on("session", (session) => sessions.add(session));
  server.on("request", (_request, response: http.ServerResponse) => void response.end("ok"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const session of sessions) session.destroy();
    if (server instanceof https.Server) server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const GROUPED = [
  { id: "old", group: "old" },
  { id: "new", group: "new", weight: 3 },
  { id: "spare", backup: true, request_headers: { "X-Provider": "spare" } },
] as const;
const PASSIVE = { max_failures: 3, window_ms: 2000, eject_ms: 2000, statuses: [503], slow_start_ms: 100 };
const HEALTH = {
  enabled: true,
  path: "/up",
  interval_ms: 100,
  timeout_ms: 60_000,
  healthy_threshold: 1,
  unhealthy_threshold: 2,
  expect_status: [200],
  request_headers: true,
  addresses: "one",
  passive: PASSIVE,
};
const MODULE =
  'export default (kit) => kit.definePlugin({ name: "foreign", schema: kit.schema.object({}), create: () ' +
  "=> (next) => (exchange) => next(exchange) });";

/** Each serves GET /a/x with the header apiKey: k. Together they have every field of the configuration. */
async function configurations(): Promise<readonly AnyConfigInput[]> {
  const { port } = await backend();
  const root = authority("root");
  const issued = root.issue("localhost", { hosts: ["localhost"] });
  const secure = await answering(https.createServer({ cert: issued.cert, key: issued.key }));
  const http2Port = await answering(http2.createServer());
  const headed = await behindHeaders(http.createServer((_request, response) => void response.end("ok")));
  const [cert, key, ca] = [fileWith(SERVER.cert), fileWith(SERVER.key), fileWith(CA.cert + root.cert)];
  const crl = fileWith(root.list({ from: Date.UTC(2025, 0, 1), to: Date.UTC(2120, 0, 1) }));
  const [clientCert, clientKey] = [fileWith(CLIENT.cert), fileWith(CLIENT.key)];
  const log = fileWith("");
  const module = { path: fileWith(MODULE), sha256: createHash("sha256").update(MODULE).digest("hex") };
  const upstreams = [{ host: "127.0.0.1", port }];
  const routes = [{ path: "/{rest*}" }];
  const of = (parts: object, global: AnyConfigInput["global"] = {}, more: object = {}): AnyConfigInput => {
    return { global, services: [{ name: "s", base_path: "/a", upstreams, routes, ...parts }], ...more };
  };
  const limits = {
    ...{
      headers_timeout_ms: 50_000,
      request_timeout_ms: 50_000,
      min_body_bytes_per_s: 10,
      max_header_bytes: 20_000,
      max_headers: 150,
      max_uri_bytes: 9000,
    },
    ...{
      max_body_bytes: 1_000_000,
      max_connections: 500,
      max_connections_per_ip: 400,
      max_requests_in_flight: 300,
      max_client_share: 0.4,
    },
    min_reply_bytes_per_s: 10,
  };
  const access_log = { enabled: true, format: "combined", sample: 0.5, exclude: ["/b/*"], file: log } as const;
  const tests = [{ name: "t", request: { url: "/a/x" }, expect: { status: 200 } }];
  const counters = {
    store: "redis",
    url: `rediss://127.0.0.1:${await closedPort()}`,
    tls: { ca, cert: clientCert, key: clientKey, servername: "localhost" },
    timeout_ms: 50,
    on_error: "local",
    prefix: "p",
  } as const;
  const errors = [
    { codes: ["rate_limited"], statuses: [502], methods: ["GET"], content_type: "text/plain", body: "own" },
    { status: 599, content_type: "text/html", body_file: fileWith("<p>"), always: true },
  ] as const;
  const callers = [
    {
      id: "ada",
      groups: ["gold"],
      keys: [
        { key: "k2", expires_at: "2126-01-31T12:00:00Z" },
        { key_sha256: createHash("sha256").update("k3").digest("hex") },
      ],
      enabled: true,
    },
  ];
  // For the upstreams of others below, with other values.
  const others = {
    enabled: true,
    interval_ms: 150,
    timeout_ms: 50_000,
    healthy_threshold: 2,
    expect_status: ["200-299"],
    passive: { ...PASSIVE, max_failures: 4, statuses: [] },
  };
  return [
    of(
      {
        ...{
          upstreams: [{ ...upstreams[0], weight: 5, group: "one" }],
          split: [{ group: "one", percent: 100 }],
          pool: { max_connections: 7 },
        },
        ...{
          health: { ...HEALTH, ...others },
          circuit_breaker: { error_ratio: 0.8, min_requests: 6, window_ms: 2000, open_ms: 20, probes: 3 },
        },
        plugins: [{ name: "rate_limit", config: { limit_hour: 1_000_000 } }],
      },
      { limits: { max_client_share: 0.3 }, dns_ttl_ms: 300, counters: { ...counters, timeout_ms: 60 } },
    ),
    of({
      protocol: "https",
      upstreams: [{ host: "127.0.0.1", port: secure }],
      tls: { verify: false },
      health: { ...HEALTH, ...others, path: "/" },
    }),
    of({}),
    of({ upstreams: [...upstreams, { srv: "_http._tcp.a.invalid", backup: true }], pool: { max_connections: 5 } }),
    of({
      health: { ...HEALTH, enabled: true },
      circuit_breaker: { error_ratio: 0.9, min_requests: 5, window_ms: 1000, open_ms: 10, probes: 2 },
    }),
    of({
      upstreams: GROUPED.map((each) => ({ ...each, host: "localhost", port })),
      split: [
        { group: "new", percent: 100, match: { headers: { "X-Beta": "1" } } },
        { group: "old", percent: 40, hash_on: "client_ip" },
        { group: "new", percent: 60, hash_on: "client_ip" },
      ],
      retries: {
        ...{ attempts: 1, on: ["connect", 503], methods: ["GET", "POST"] },
        ...{ per_try_ms: 50_000, budget_ratio: 0.5, max_replay_bytes: 100 },
      },
      health: { ...HEALTH, interval_ms: 200 },
    }),
    of({
      ...{ load_balancing_strategy: "hash", hash_on: "header:apiKey", hash_balance_factor: 150 },
      ...{
        pool: { max_connections: 9, keepalive_idle_ms: 1500 },
        timeouts: { connect_ms: 50_000, response_ms: 50_000, idle_ms: 50_000, total_ms: 55_000 },
      },
      ...{
        upstream_path: "/api",
        routes: [
          {
            ...{ path: "/{rest*}", upstream_path: "/v2/{rest}" },
            timeouts: { response_ms: 45_000, idle_ms: 45_000, total_ms: 50_000 },
          },
        ],
      },
      sticky: { cookie: "c", ttl_s: 60, secret: "0123456789abcdef0123456789abcdef" },
    }),
    of(
      {
        ...{ protocol: "https", upstreams: [{ host: "127.0.0.1", port: secure }] },
        tls: {
          ...{ ca, cert: clientCert, key: clientKey, servername: "localhost", verify: true },
          ...{ min_version: "1.3", ciphers: ["TLS_AES_128_GCM_SHA256"], groups: ["X25519"] },
          ...{ crl, crl_expired: "refuse" },
        },
        health: { ...HEALTH, path: "/" },
      },
      {
        certificates: [{ hosts: ["localhost"], cert, key }],
        acme: {
          ...{ directory: "https://ca.example/directory", email: "ops@a.example", hosts: ["a.example", "127.0.0.1"] },
          ...{ ca, terms_agreed: true, challenge: "tls-alpn-01", eab: { kid: "k", hmac_key: "c2VjcmV0" } },
          ...{ profile: "shortlived", hosts_allowed: ["b.example"] },
        },
        tls: {
          ...{ min_version: "1.3", ciphers: ["TLS_AES_128_GCM_SHA256"], groups: ["X25519"] },
          ...{ client_crl: crl, crl_expired: "allow" },
        },
      },
    ),
    of(
      { protocol: "h2c", upstreams: [{ host: "127.0.0.1", port: http2Port }], health: HEALTH },
      { h2c: true, http2: false },
    ),
    of(
      {
        upstreams: [{ host: "localhost", port: headed.port }],
        hosts: ["127.0.0.1"],
        errors,
        encoded_slashes: "allow",
        path_parameters: "allow",
        preserve_host: true,
        upstream_client: "node",
        proxy_protocol: "v1",
      },
      {
        name: "seven",
        http1: "node",
        limits,
        access_log,
        server_timing: true,
        decisions: 5,
        egress_proxy: {
          url: `https://user:password@127.0.0.1:${secure}`,
          except: ["127.0.0.1", "localhost"],
          tls: { ca },
          all: true,
        },
        trusted_proxies: ["127.0.0.0/8"],
        client_ip_headers: ["X-Client"],
        proxy_protocol: "accept",
        errors,
        https_redirect: { status: 307, port: 8443 },
        underscore_headers: "allow",
        dns_ttl_ms: 200,
      },
    ),
    of(
      {
        plugins: [
          { name: "key_auth", config: { key: "k" } },
          { name: "bot_protection", enabled: false },
        ],
        routes: [
          {
            name: "r",
            path: "/{rest*}",
            methods: ["GET"],
            match: { headers: { apiKey: "k" }, scheme: "http" },
            plugins: [{ id: "one", name: "rate_limit", config: { limit_hour: 1_000_000 } }, { name: "foreign" }],
          },
        ],
      },
      {
        counters,
        plugins: [{ name: "cors", config: { allow_origins: ["https://example.com"] } }],
        plugin_modules: [module],
        accept_warnings: ["plain_http_secret:services.s.routes.r"],
      },
      {
        $schema: "x",
        serial: 7,
        expires_at: "2027-01-31T12:00:00Z",
        tests: tests.map((each) => ({ ...each, request: { ...each.request, headers: { apiKey: "k" } } })),
        test_files: [fileWith("[]"), pinned("[]")],
        callers,
        caller_files: [fileWith("[]"), pinned("[]")],
      },
    ),
  ] as readonly AnyConfigInput[];
}

/** Every ordered pair of 0 … n-1 stands in it side by side. */
function walk(n: number): readonly number[] {
  return Array.from({ length: n }, (_, i) => [
    i,
    ...Array.from({ length: n - i - 1 }, (_, j) => [i + 1 + j, i]).flat(),
  ]).flat();
}

/** Sends requests without a pause, on new connections and on a kept one; `served` waits for one more answer. */
function load(ports: readonly number[]) {
  const agent = new http.Agent({ keepAlive: true });
  const statuses: (number | string)[] = [];
  let isOver = false;
  const clients = ports.flatMap((port) =>
    [undefined, agent].map(async (kept) => {
      while (!isOver)
        statuses.push(
          await ask(port, {
            path: "/a/x",
            headers: { apiKey: "k", "X-Forwarded-Proto": "https" },
            ...(kept && { agent: kept }),
          }).then(({ status }) => status, String),
        );
    }),
  );
  const served = async () => {
    const { length } = statuses;
    while (statuses.length === length) await new Promise(setImmediate);
  };
  onTestFinished(() => {
    isOver = true;
    agent.destroy();
  });
  const end = async () => {
    isOver = true;
    await Promise.all(clients);
    return new Set(statuses);
  };
  return { served, end };
}

const session = new Session();

/** The value of a private field. */
function fieldOf<T>(object: object, name: `#${string}`): T {
  const held = globalThis as { inspected?: unknown };
  let value: unknown;
  const post = (method: string, params: object) =>
    session.post(method, params, (error: Error | null, result: unknown) => {
      if (error !== null) throw error;
      value = result;
    });
  session.connect();
  try {
    held.inspected = object;
    post("Runtime.evaluate", { expression: "inspected" });
    post("Runtime.getProperties", {
      objectId: (value as { result: { objectId: string } }).result.objectId,
      ownProperties: true,
    });
    const { privateProperties = [] } = value as {
      privateProperties?: { name: string; value: { value?: unknown; objectId?: string } }[];
    };
    const found = privateProperties.find((each) => each.name === name)?.value;
    if (found === undefined) throw new Error(`there is no field ${name}`);
    if (found.objectId === undefined) return found.value as T;
    post("Runtime.callFunctionOn", {
      objectId: found.objectId,
      functionDeclaration: "function () { globalThis.inspected = this; }",
    });
    return held.inspected as T;
  } finally {
    session.disconnect();
    delete held.inspected;
  }
}

/** What the survivors of a reload hold of a configuration; functions and private parts of Node left out. */
function rulesOf(gateway: Gateway): unknown {
  const { runtime } = Gateway.internalsOf(gateway);
  const upstreamSets = runtime.upstreamSets.map((upstreamSet) => {
    const { breaker } = upstreamSet;
    const peers = upstreamSet.peers.map(({ id, weight, group, authority, health, pool }) => {
      const { protocol, host, port, keepaliveIdleMs, tls } = pool.options;
      const options = {
        protocol,
        host,
        port,
        keepaliveIdleMs,
        tls: tls?.identity,
        maxConnections: pool.leases.maxConnections,
        clientShare: fieldOf(pool.leases, "#clientShare"),
      };
      // Not so: the only upstream of a service, without checks, is always usable.
      const settings =
        health instanceof PublishedHealth
          ? (health as unknown as { readonly settings: HealthSettings }).settings
          : null;
      return { id, weight, group, authority, options, statuses: [...(health.failureStatuses ?? [])], health: settings };
    });
    return { service: upstreamSet.service, breaker: breaker === null ? null : fieldOf(breaker, "#settings"), peers };
  });
  const active = fieldOf<object | null>(runtime, "#checks");
  const running = active === null ? [] : [...fieldOf<Map<Peer, { readonly settings: string }>>(active, "#running")];
  const checks = running.map(([{ id }, { settings }]) => [id, settings]);
  const shared = runtime.shared === null ? null : (runtime.shared as RedisCounters).settings;
  // Names of earlier configurations are no longer looked up.
  const hasNames = runtime.upstreamSets.some(({ peers }) => peers.some(({ pool }) => pool.options.name !== undefined));
  const ttlMs = hasNames ? fieldOf<{ readonly ttlMs: number }>(runtime, "#names").ttlMs : null;
  return { upstreamSets, checks, ttlMs, shared };
}

/** Reloads between all pairs, and past the first probes of each configuration. */
async function reloadAll(
  configs: readonly AnyConfigInput[],
  gateway: Gateway,
  advance: (ms: number) => void,
  served: () => Promise<void>,
  reloaded: (i: number) => Promise<void>,
): Promise<void> {
  for (const i of walk(configs.length).slice(1)) {
    await gateway.loadModules(configs[i]!);
    await gateway.reload(configs[i]!);
    for (let n = 0; n < 4; n++) {
      advance(300);
      await served();
    }
    await reloaded(i);
  }
}

/** There is no such record. */
const lookUpService = async () => [];

describe("reloads between every two of a set of configurations that have every field", () => {
  it(
    "serves all requests; what survives a reload holds the rules of the configuration in force, " +
      "and its timers may act under them",
    async () => {
      const configs = await configurations();
      const clock = manualClock();
      const modules = withAllFeatures();
      const { gateway, port } = await running(configs[0]!, { clock, modules, lookUpService, acme: "checked" });
      const { served, end } = load([port]);
      const rules: unknown[] = [];
      for (const config of configs) {
        await gateway.loadModules(config);
        rules.push(
          rulesOf((await running(config, { clock: manualClock(), modules, lookUpService, acme: "checked" })).gateway),
        );
      }
      expect(new Set(rules.map((each) => JSON.stringify(each))).size).toBe(configs.length);
      await reloadAll(
        configs,
        gateway,
        (ms) => clock.advance(ms),
        served,
        async (i) => expect(rulesOf(gateway), `configuration ${i}`).toEqual(rules[i]),
      );
      expect(await end()).toEqual(new Set([200]));
      await gateway.reload(configs[1]!);
      await eventually(() => {
        clock.advance(100);
        return gateway.health.services[0]!.upstreams[0]!.state === "healthy";
      }, "a probe has passed");
    },
    60_000,
  );

  it(
    "serves all requests also with workers, whose survivors hold the rules of " + "the configuration in force",
    async () => {
      const configs = await configurations();
      const clock = manualClock();
      const modules = freshFeatures();
      const { main, workers, ports } = await together({
        config: configs[0]!,
        clock,
        modules,
        lookUpService,
        acme: "checked",
      });
      const { served, end } = load(ports);
      const rules: unknown[] = [];
      for (const config of configs) {
        await main.loadModules(config);
        const fresh = await together({
          ...{ config, modules, clock: manualClock(), lookUpService, acme: "checked" },
          ofWorkers: [{ modules }, { modules }],
        });
        rules.push([fresh.main, ...fresh.workers].map(rulesOf));
      }
      await reloadAll(
        configs,
        main,
        (ms) => clock.advance(ms),
        served,
        async (i) => {
          // A worker follows at its next request.
          for (const port of ports) await ask(port, { path: "/a/x" });
          expect([main, ...workers].map(rulesOf), `configuration ${i}`).toEqual(rules[i]);
        },
      );
      expect(await end()).toEqual(new Set([200]));
    },
    60_000,
  );
});

/** A file with its digest. */
function pinned(content: string): { readonly path: string; readonly sha256: string } {
  return { path: fileWith(content), sha256: createHash("sha256").update(content).digest("hex") };
}

/**
 * The fields of a JSON Schema, as "services[].health.enabled"; without the settings of plugins and what is in a test,
 * which is none of the gateway's.
 */
function fieldsOf(schema: JsonSchema, definitions: Readonly<Record<string, JsonSchema>>, at = ""): readonly string[] {
  const {
    $ref,
    properties = {},
    items,
    anyOf = [],
  } = schema as {
    $ref?: string;
    properties?: Record<string, JsonSchema>;
    items?: JsonSchema;
    anyOf?: readonly JsonSchema[];
  };
  if (/\.plugins\[\]\.config$|^tests$|\.match$|\.hash_on$/.test(at)) return [];
  if ($ref !== undefined) return fieldsOf(definitions[$ref.replace("#/$defs/", "")]!, definitions, at);
  const own = Object.entries(properties).flatMap(([name, field]) => [
    `${at}${at === "" ? "" : "."}${name}`,
    ...fieldsOf(field, definitions, `${at}${at === "" ? "" : "."}${name}`),
  ]);
  return [
    ...own,
    ...(items === undefined ? [] : fieldsOf(items, definitions, `${at}[]`)),
    ...anyOf.flatMap((each) => fieldsOf(each, definitions, at)),
  ];
}

function writtenIn(value: unknown, at = ""): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((each) => writtenIn(each, `${at}[]`));
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, field]) => [
    `${at}${at === "" ? "" : "."}${name}`,
    ...writtenIn(field, `${at}${at === "" ? "" : "."}${name}`),
  ]);
}

it("the set of configurations between which this file reloads has every field of the configuration", async () => {
  // The levels of plugins have the same fields.
  const anyLevel = (field: string) => field.replace(/^.*\.plugins\[\]/, "plugins[]");
  const written = new Set((await configurations()).flatMap((config) => writtenIn(config)).map(anyLevel));
  const schema = configJsonSchema(builtinPlugins) as JsonSchema & { $defs: Record<string, JsonSchema> };
  expect([...new Set(fieldsOf(schema, schema.$defs).map(anyLevel))].filter((field) => !written.has(field))).toEqual([]);
});
