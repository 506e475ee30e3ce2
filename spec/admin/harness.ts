import { Readable } from "node:stream";
import { createHmac } from "node:crypto";
import { request, type Agent, type IncomingHttpHeaders } from "node:http";
import { request as tlsRequest } from "node:https";
import { connect } from "node:net";
import { afterEach } from "vitest";
import { createAdmin, type Admin, type AdminOptions } from "../../lib/admin/server.ts";
import type { InterfaceOptions, Secrets, ShownGateway } from "../../lib/admin/views.ts";
import { silentLog } from "../../lib/base/log.ts";
import type { Json } from "../../lib/config/json.ts";
import { OF_ADMIN } from "../../lib/cli/admin_requests.ts";
import type { ReloadOutcome } from "../../lib/gateway/status.ts";
import type { DryRun } from "../../lib/proof/dry_run.ts";
import type {
  Explanation,
  Figures,
  GatewayHealth,
  GatewayStats,
  GatewayStatus,
  LastReload,
  LastTests,
  Point,
  TryFigures,
} from "../../lib/index.ts";
import { manualClock, type ManualClock } from "../support/clock.ts";
import { features } from "../support/listener_features.ts";
import type { Pair } from "../../lib/server/certificates.ts";

export const USER = "ädmin";
export const PASSWORD = "s3cret:with:cölons";
export const SECRET = "a secret of at least thirty-two bytes";
export const UI = "http://localhost:5173";
export const RIGHT = basic(USER, PASSWORD);
export const WRONG = basic(USER, "wrong");

export const SETTINGS = {
  ServerCertPath: "/etc/gw/cert.pem",
  ServerKeyPath: "/etc/gw/key.pem",
  CACertPath: "",
  AdminUser: USER,
  AdminPassword: PASSWORD,
  ConfigFilePath: "/etc/gw/gw.json",
};

export const PROXY_CONFIG = {
  services: [{ name: "a", base_path: "/a", routes: [{ name: "r", path: "/x", plugins: [] }] }],
  plugins: [{ name: "key_auth", enabled: true, config: { key: "${env:KEY}" } }],
  global: { name: "gw", plugins: [{ name: "key_auth", enabled: true, config: { key: "${env:KEY}" } }] },
};

export interface Asked {
  headers?: Record<string, string>;
  body?: string | Buffer;
  agent?: Agent;
  /** Which of this machine's addresses the request comes from. */
  from?: string;
}

export interface Got {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  /** The body as JSON, null when it is none. */
  json: any;
}

export interface Running {
  readonly admin: Admin;
  readonly clock: ManualClock;
  readonly port: number;
  ask(method: string, path: string, asked?: Asked): Promise<Got>;
  login(authorization?: string, from?: string): Promise<Got>;
  /** The Cookie header of a new session. */
  session(): Promise<string>;
  /** Writes raw bytes, and gives all that comes back until the connection ends. */
  raw(...texts: string[]): Promise<string>;
  /** What `pending` resolves with, while the clock of the interface goes on. */
  inTime<T>(pending: Promise<T>): Promise<T>;
}

const running: Admin[] = [];
const clocks: ManualClock[] = [];
afterEach(async () => {
  const closed = Promise.all(running.splice(0).map((admin) => admin.close()));
  // Whatever a failed spec left open is cut.
  for (const clock of clocks.splice(0)) clock.advance(10_000);
  await closed;
});

export const STATUS: GatewayStatus = {
  version: "1.2.3",
  state: "serving",
  ready: true,
  uptimeMs: 61_999,
  inFlight: 2,
  digest: "0123456789ab",
  loadedAt: Date.UTC(2026, 0, 2),
  counts: { services: 1, routes: 1, upstreams: 1 },
  lastReload: null,
  lastChange: null,
  counters: null,
  workers: null,
  tests: { passed: 1, failed: 0 },
  pluginFaults: [],
  certificates: [],
  revocationLists: [],
  acme: null,
  source: null,
  warnings: [],
};

const TRIES: TryFigures = { requestsPerS: 0, errorsPerS: 0, p50Ms: null, p95Ms: null, p99Ms: null, inFlight: 0 };
const QUIET: Figures = { ...TRIES, limitedPerS: 0, statusesPerS: {} };
const STEP: Point = {
  at: Date.UTC(2026, 0, 1),
  requests: 3,
  errors: 1,
  limited: 1,
  statuses: { "4xx": 1, "5xx": 1 },
  p50Ms: 1.5,
  p95Ms: 2,
  p99Ms: 3,
};

export const STATS: GatewayStats = {
  at: Date.UTC(2026, 0, 1, 0, 0, 7),
  windowS: 60,
  total: { ...QUIET, requestsPerS: 1 / 3, statusesPerS: { "4xx": 2 / 3, "401": 1 / 3 }, inFlight: 2 },
  unrouted: QUIET,
  codesPerS: { key_missing: 1 / 3 },
  services: [
    {
      name: "a",
      total: QUIET,
      groups: [{ group: null, ...TRIES }],
      routes: [{ name: "r", ...QUIET, p95Ms: 12 }],
      upstreams: [{ id: "u", ...TRIES, errorsPerS: 2 }],
    },
  ],
  point: { ...STEP, at: Date.UTC(2026, 0, 1, 0, 0, 5) },
  stepS: 5,
  history: [STEP],
};

export const EXPLANATION: Explanation = {
  outcome: "matched",
  status: null,
  code: null,
  reasons: ["Because."],
  candidates: [{ service: "a", route: "r", verdict: "takes the request" }],
  path: "/a/x",
  service: "a",
  route: "r",
  pattern: "/a/x",
  params: {},
  forwarded: "/x",
  upstreamHeaders: null,
  plugins: [
    {
      level: "global",
      name: "key_auth",
      id: null,
      config: { key: "${env:KEY}" },
      action: "answers",
      status: 401,
      code: "key_missing",
      rule: null,
      location: null,
      asks: null,
      caller: null,
      groups: [],
      sets: [],
      removes: [],
      verdict: "answers 401 key_missing",
    },
  ],
  open: false,
  answer: { level: "global", name: "key_auth", id: null, status: 401, code: "key_missing", rule: null },
  strategy: "round_robin",
  hashOn: null,
  timeouts: { connectMs: 3000, responseMs: 500, idleMs: 60_000, totalMs: 0 },
  sticky: null,
  upstreams: [
    {
      id: "u",
      host: "h",
      port: 1,
      weight: 1,
      group: null,
      backup: false,
      state: "healthy",
      usable: true,
      since: Date.UTC(2026, 0, 1),
      until: null,
      reason: null,
      inFlight: 0,
      adminState: null,
      adminSince: null,
      adminId: null,
      share: 1,
      rest: true,
    },
  ],
};

export const TAKEN: Extract<LastReload, { readonly outcome: "taken" }> = {
  at: Date.UTC(2026, 0, 2),
  by: "admin",
  digest: "0123456789ab",
  outcome: "taken",
  changes: [{ kind: "route", name: 'service "a" / route "r"', change: "added", fields: [] }],
};

/** The same, as the reload itself returns it. */
export const RELOADED: ReloadOutcome = {
  outcome: "taken",
  digest: TAKEN.digest,
  changed: true,
  changes: TAKEN.changes,
};

export const TESTS: LastTests = {
  at: Date.UTC(2026, 0, 2),
  digest: "0123456789ab",
  report: {
    passed: 1,
    failed: 0,
    tests: [
      { name: "t", passed: true, expected: { status: 401 }, found: { status: 401 }, differences: [], differing: [] },
    ],
  },
};

export const HEALTH: GatewayHealth = {
  services: [
    {
      name: "a",
      circuitBreaker: { state: "open", since: Date.UTC(2026, 0, 3) },
      upstreams: [
        {
          id: "u",
          host: "h",
          port: 1,
          weight: 2,
          group: "canary",
          backup: false,
          state: "ejected",
          usable: false,
          since: Date.UTC(2026, 0, 1),
          until: Date.UTC(2026, 0, 2),
          reason: "status 503",
          inFlight: 4,
          adminState: "drain",
          adminSince: Date.UTC(2026, 0, 1),
          adminId: "u",
          share: 0,
          rest: false,
        },
      ],
    },
    {
      name: "b",
      circuitBreaker: null,
      upstreams: [
        {
          id: "v",
          host: "h",
          port: 2,
          weight: 1,
          group: null,
          backup: false,
          state: "unknown",
          usable: true,
          since: null,
          until: null,
          reason: null,
          inFlight: 0,
          adminState: null,
          adminSince: null,
          adminId: null,
          share: 1,
          rest: true,
        },
      ],
    },
  ],
};

export const DRY_RUN: DryRun = {
  outcome: "accepted",
  file: null,
  issues: [],
  warnings: [],
  tests: { passed: 2, failed: 0, notRun: 1, failures: [] },
  untested: null,
  diff: {
    guardsLost: [
      {
        service: "s",
        route: "r",
        guards: ["jwt"],
        altered: [],
        before: { service: "s", route: "r" },
        example: "GET http://localhost/",
      },
    ],
    added: [],
    removed: [],
    changed: [],
    other: [],
  },
  requests: { checked: 7, otherRoute: 2, noRoute: 1, undecided: 3, examples: [] },
};

/** What an admin interface shows and asks, as functions that a spec can replace one by one. */
export interface AdminSource
  extends
    Pick<ShownGateway, "explain" | "routePlugins" | "dryRun">,
    Pick<InterfaceOptions, "refresh" | "metrics" | "reload"> {
  config(secrets: Secrets): object;
  ready(): boolean;
  status(): GatewayStatus;
  health(): GatewayHealth;
  stats: ShownGateway["recentStats"];
  tests(): LastTests | null;
}

/** The same as options of an admin interface. */
export function optionsFrom(source: AdminSource) {
  const { explain, routePlugins, dryRun, refresh, metrics, reload } = source;
  const gateway: ShownGateway = {
    get shownConfig() {
      return source.config("shown") as Json;
    },
    get maskedConfig() {
      return source.config("masked") as Json;
    },
    get ready() {
      return source.ready();
    },
    get status() {
      return source.status();
    },
    get health() {
      return source.health();
    },
    get lastTests() {
      return source.tests();
    },
    recentStats: (extent) => source.stats(extent),
    pluginKinds: [],
    ...{ explain, routePlugins, dryRun },
    decision: () => Promise.resolve(null),
  };
  return { gateway, refresh, metrics, reload };
}

export const source: AdminSource = {
  config: () => PROXY_CONFIG,
  ready: () => true,
  refresh: () => null,
  status: () => STATUS,
  health: () => HEALTH,
  stats: () => STATS,
  tests: () => TESTS,
  explain: () => Promise.resolve(EXPLANATION),
  routePlugins: (service, route) =>
    Promise.resolve(
      service === "a" && route === "r"
        ? EXPLANATION.plugins.map(({ level, name, id, config }) => ({
            level,
            name,
            id,
            config,
            requests: 7,
            answered: 2,
          }))
        : null,
    ),
  metrics: () => Promise.resolve(Readable.from(["# metrics\n"])),
  reload: () => Promise.resolve(RELOADED),
  dryRun: () => Promise.resolve(DRY_RUN),
};

export type AdminChanges = Partial<Omit<AdminOptions, "tls">> & {
  readonly tls?: Pair | null;
  readonly source?: AdminSource;
};

export function optionsWith({ tls = null, source: shown = source, ...changes }: AdminChanges = {}): AdminOptions {
  return {
    user: USER,
    password: PASSWORD,
    viewer: null,
    write: false,
    writing: null,
    jwtSecret: SECRET,
    sessionTtlS: 3600,
    cookie: "token",
    metricsToken: null,
    redactSecrets: false,
    corsOrigins: [UI],
    hosts: [],
    tls: tls && { ...tls, features },
    clock: manualClock(),
    log: silentLog,
    version: "1.2.3",
    paths: {
      serverCertPath: SETTINGS.ServerCertPath,
      serverKeyPath: SETTINGS.ServerKeyPath,
      caCertPath: null,
      configPath: SETTINGS.ConfigFilePath,
    },
    ...optionsFrom(shown),
    onRequest: OF_ADMIN,
    ...changes,
  };
}

export async function startAdmin(changes: AdminChanges = {}): Promise<Running> {
  const clock = (changes.clock as ManualClock | undefined) ?? manualClock();
  const options = optionsWith({ ...changes, clock });
  const admin = createAdmin(options);
  running.push(admin);
  clocks.push(clock);
  const { port } = await admin.listen({ host: "127.0.0.1", port: 0 });
  const ask: Running["ask"] = (method, path, { headers = {}, body, agent, from } = {}) =>
    new Promise((resolve, reject) => {
      const settings = {
        host: "127.0.0.1",
        port,
        method,
        path,
        headers,
        agent: agent ?? false,
        rejectUnauthorized: false,
      } as const;
      const asking = (options.tls === null ? request : tlsRequest)(
        { ...settings, ...(from && { localAddress: from }) },
        (response) => {
          let text = "";
          response.setEncoding("utf8");
          response.on("data", (part: string) => (text += part));
          response.on("error", reject);
          response.on("end", () => {
            resolve({
              status: response.statusCode!,
              headers: response.headers,
              text,
              json: /json$/.test(response.headers["content-type"] ?? "") ? parsed(text) : null,
            });
          });
        },
      );
      asking.on("error", reject);
      asking.end(body);
    });
  const login: Running["login"] = (authorization = RIGHT, from) =>
    ask("POST", "/login", { headers: { authorization }, ...(from && { from }) });
  return {
    admin,
    clock,
    port,
    ask,
    login,
    session: async () => cookieOf(await login()),
    async inTime(pending) {
      const ticking = setInterval(() => clock.advance(500), 2);
      try {
        return await pending;
      } finally {
        clearInterval(ticking);
      }
    },
    raw: (...texts) =>
      new Promise((resolve) => {
        let received = "";
        const socket = connect(port, "127.0.0.1");
        socket.on("data", (part) => (received += part.toString()));
        socket.on("error", () => {}); // A reset ends the connection too.
        socket.on("close", () => resolve(received));
        for (const text of texts) socket.write(text);
      }),
  };
}

/** Null: the text is no JSON, as a configuration file may be. */
function parsed(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
}

/** What a browser would send back for the Set-Cookie of this answer. */
export function cookieOf(got: Got): string {
  return got.headers["set-cookie"]![0]!.split(";")[0]!;
}

/**
 * A Cookie header with a token rightly signed with the key that `secret` and the credentials give, whatever it says.
 */
export function forged(header: object, claims: object, secret = SECRET, hash = "sha256"): string {
  const key = createHmac("sha256", secret)
    .update(JSON.stringify([USER, PASSWORD]))
    .digest();
  const text = [header, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  return `token=${text}.${createHmac(hash, key).update(text).digest("base64url")}`;
}
