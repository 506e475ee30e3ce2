/**
 * The proxies that are measured, and the backend behind them: what there is of them on this machine, what each can do,
 * and its configuration for a scenario, as alike as they can be. Starting them is `machine.ts`, measuring is
 * `../peers.ts`.
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { AnyConfigInput } from "../../../lib/config/model.ts";
import { nodeOf } from "../../peers/nodes.ts";
import { SERVER } from "../../support/certs.ts";
import { PROGRAM, run, versionOf } from "../ready.ts";
import { find, type Command } from "./machine.ts";
import { KEY, LARGE_BYTES, PIECE_BYTES, PIECES, SMALL_BYTES, type Scenario } from "./scenarios.ts";

export interface Competitor {
  readonly name: string;
  /** What the ratios and targets are taken of and against. */
  readonly kind: "ours" | "native" | "node";
  /** Null when it is not on this machine. */
  readonly version: string | null;
  /** Whether it asks for the key in a guarded scenario: those that do not are what guarding is compared with. */
  readonly guards: boolean;
  /** It takes part only where `--only` names it, so that a whole run ends in its time. */
  readonly onlyIfNamed?: boolean;
  takesPart(scenario: Scenario): boolean;
  /** Writes what files it needs into `folder`, which is its own. */
  command(scenario: Scenario, place: Place): Command;
}

export interface Place {
  readonly folder: string;
  readonly port: number;
  readonly backendPort: number;
}

/** In the order of the tables. Has to be called after the build and the installation. */
export function competitors(): Competitor[] {
  const newer = newerNode();
  return [
    ours("ours", {}),
    ours("ours-log", { log: true }),
    { ...ours("ours-node24", { node: newer }), version: newer === null ? null : run(newer, ["--version"]).trim() },
    ...(oursHas("http1") ? [ours("ours-http1-node", { http1: "node" })] : []),
    ...(oursHas("upstream_client") ? [{ ...ours("ours-node", { client: "node" }), onlyIfNamed: true }] : []),
    ours("ours-plain", { plain: true }),
    {
      name: "nginx",
      kind: "native",
      version: versionSaid("nginx", ["-v"]),
      guards: true,
      takesPart: () => true,
      command: (scenario, place) => nginx(scenario, place, TUNED),
    },
    {
      ...{ name: "nginx-default", kind: "native", version: versionSaid("nginx", ["-v"]), guards: true },
      // Its buffers matter to bodies only.
      takesPart: ({ name }) => ["large", "post"].includes(name),
      command: (scenario, place) => nginx(scenario, place, ""),
    },
    {
      name: "haproxy",
      kind: "native",
      version: versionSaid("haproxy", ["-v"]),
      guards: true,
      takesPart: () => true,
      command: haproxy,
    },
    {
      name: "caddy",
      kind: "native",
      version: versionSaid("caddy", ["version"]),
      guards: true,
      takesPart: () => true,
      command: caddy,
    },
    {
      ...{ name: "bare", kind: "node", version: process.versions.node, guards: false },
      takesPart: ({ name }) => ["small", "large"].includes(name),
      command: (scenario, place) =>
        nodeProgram("bare.mjs", [String(place.port), String(place.backendPort)], scenario, place),
    },
    {
      ...{ name: "undici", kind: "node", version: versionOf("undici"), guards: false },
      takesPart: ({ routes, protocol }) => routes === 0 && protocol !== "h2",
      command: (scenario, place) =>
        nodeProgram("undici.mjs", [String(place.port), String(place.backendPort)], scenario, place),
    },
    foreign("http-proxy", "http-proxy", ({ routes, protocol }) => routes === 0 && protocol !== "h2"),
    { ...foreign("fastify", "@fastify/http-proxy", () => true), onlyIfNamed: true },
    { ...foreign("fast-gateway", "fast-gateway", ({ protocol }) => protocol !== "h2"), onlyIfNamed: true },
  ];
}

/** nginx where it is installed: it costs the processor it shares with the load least. */
export function backend({ folder, port }: Omit<Place, "backendPort">): Command {
  const program = find("nginx");
  if (program === null)
    return {
      program: process.execPath,
      words: [own("backend.mjs"), String(port), String(SMALL_BYTES), String(LARGE_BYTES)],
    };
  writeFileSync(join(folder, "large"), "x".repeat(LARGE_BYTES));
  const locations = `root ${folder}; location = /large { } location / { return 200 "${"x".repeat(SMALL_BYTES)}"; }`;
  const settings = "default_type text/plain; sendfile on; tcp_nopush on; open_file_cache max=10;";
  return nginxWith(program, folder, `${settings} server { listen 127.0.0.1:${port} backlog=4096; ${locations} }`);
}

/** The backend of the scenario whose responses come in pieces. */
export function piecesBackend(port: number): Command {
  return { program: process.execPath, words: [own("pieces.mjs"), String(port), String(PIECES), String(PIECE_BYTES)] };
}

/** Node 24 as installed beside the peers of the specs; null where it is not. */
function newerNode(): string | null {
  try {
    return nodeOf(24);
  } catch {
    return null;
  }
}

/** Whether the built gateway has a setting. */
function oursHas(field: string): boolean {
  const { status, stdout } = spawnSync(process.execPath, [PROGRAM, "schema"], { encoding: "utf8" });
  if (status !== 0) throw new Error("the built gateway does not print its schema");
  return stdout.includes(`"${field}"`);
}

interface Variant {
  readonly log?: boolean;
  readonly client?: "node";
  readonly http1?: "node";
  /** Without plugins where others guard. */
  readonly plain?: boolean;
  /** The program of another release of Node. */
  readonly node?: string | null;
}

function ours(name: string, { log = false, client, http1, plain = false, node = null }: Variant): Competitor {
  return {
    ...{ name, kind: "ours", version: "as built", guards: !plain },
    takesPart({ name: scenario, guarded }) {
      if (plain) return guarded;
      if (log) return ["small", "guarded", "connections"].includes(scenario);
      // Both are to be seen beside the others, not everywhere.
      return node === null && http1 === undefined ? true : !["routes", "pieces"].includes(scenario);
    },
    command(scenario, { folder, port, backendPort }) {
      const service = {
        name: "backend",
        base_path: "/",
        upstreams: [{ host: "127.0.0.1", port: backendPort }],
        routes:
          scenario.routes === 0
            ? [{ path: "/{rest*}" }]
            : Array.from({ length: scenario.routes }, (_none, i) => ({ path: `/r${i}/{id}` })),
        plugins: scenario.guarded && !plain ? GUARDS : [],
        ...(client === undefined ? {} : { upstream_client: client }),
      };
      const config: AnyConfigInput = {
        // The load comes from one address; the others limit no client either.
        global: {
          ...(http1 === undefined ? {} : { http1 }),
          limits: { max_client_share: 1 },
          access_log: log ? { file: join(folder, "access.log") } : { enabled: false },
        },
        services: [service],
      };
      const file = join(folder, "gw.json");
      writeFileSync(file, JSON.stringify(config));
      const secure = scenario.protocol !== "http";
      const ports = secure ? ["--http-port", "0", "--https-port", String(port)] : ["--http-port", String(port)];
      const [cert, key] = secure ? certificate(folder) : [];
      return {
        program: node ?? process.execPath,
        words: [PROGRAM, "--config", file, ...ports, "--listen-host", "127.0.0.1"],
        environment: secure ? { SERVER_CERT_PATH: cert!, SERVER_KEY_PATH: key! } : {},
      };
    },
  };
}

/** Limits that are counted and never reached. */
const PER_SECOND = 1_000_000;
const GUARDS = [
  { name: "key_auth", config: { keys: [{ id: "bench", key: KEY }] } },
  { name: "rate_limit", config: { limit_second: PER_SECOND, limit_by: "credential" } },
];

function foreign(name: string, from: string, takesPart: Competitor["takesPart"]): Competitor {
  return {
    ...{ name, kind: "node", version: versionOf(from), guards: false, takesPart },
    command: (scenario, place) => {
      const words = [
        name,
        String(place.port),
        String(place.backendPort),
        String(scenario.routes),
        scenario.protocol === "h2" ? "2" : "1",
      ];
      return nodeProgram("foreign.mjs", words, scenario, place);
    },
  };
}

function nodeProgram(file: string, words: readonly string[], scenario: Scenario, { folder }: Place): Command {
  return {
    program: process.execPath,
    words: [own(file), ...words, ...(scenario.protocol === "http" ? [] : certificate(folder))],
  };
}

function own(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}

/** Files of the certificate and of its key. */
function certificate(folder: string): [cert: string, key: string] {
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  writeFileSync(cert, SERVER.cert);
  writeFileSync(key, SERVER.key);
  return [cert, key];
}

function versionSaid(program: string, words: readonly string[]): string | null {
  const path = find(program);
  if (path === null) return null;
  const { stdout, stderr } = spawnSync(path, words, { encoding: "utf8" });
  return /\d+\.\d+[\w.]*/.exec(stdout + stderr)?.[0] ?? "unknown";
}

/** Buffers that hold the bodies of the scenarios: with those of its default, nginx writes them to files. */
const TUNED = "client_body_buffer_size 64k; proxy_buffers 16 8k;";

function nginx(scenario: Scenario, { folder, port, backendPort }: Place, buffers: string): Command {
  const secure = scenario.protocol !== "http";
  const [cert, key] = secure ? certificate(folder) : [];
  const guards = scenario.guarded ? `if ($known = 0) { return 401; } limit_req zone=callers burst=10000 nodelay;` : "";
  const locations =
    scenario.routes === 0
      ? `location / { ${guards} proxy_pass http://backend; }`
      : Array.from({ length: scenario.routes }, (_none, i) => `location /r${i}/ { proxy_pass http://backend; }`).join(
          "\n",
        );
  return nginxWith(
    find("nginx")!,
    folder,
    `
    map $http_apikey $known { default 0; "${KEY}" 1; }
    limit_req_zone $http_apikey zone=callers:10m rate=${PER_SECOND}r/s;
    upstream backend { server \
127.0.0.1:${backendPort}; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 600s; }
    server {
      listen 127.0.0.1:${port} backlog=4096 ${secure ? "ssl" : ""} ${scenario.protocol === "h2" ? "http2" : ""};
      ${secure ? `ssl_certificate ${cert}; ssl_certificate_key ${key};` : ""}
      ${buffers}
      ${scenario.pieces ? "proxy_buffering off;" : ""}
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Request-Id $request_id;
      ${locations}
    }`,
  );
}

function nginxWith(program: string, folder: string, http: string): Command {
  const file = join(folder, "nginx.conf");
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((what) => `${what}_temp_path ${folder}/${what};`)
    .join(" ");
  // Its worker is to be able to read what lies in the folder.
  const user = process.getuid?.() === 0 ? "user root;" : "";
  const common = `access_log off; keepalive_timeout 600s; keepalive_requests 1000000000; ${temporary}`;
  const main = `daemon off; worker_processes 1; ${user} pid ${folder}/nginx.pid; error_log ${folder}/error.log error;`;
  writeFileSync(file, `${main}\nevents { worker_connections 8192; }\nhttp { ${common} ${http} }\n`);
  return { program, words: ["-e", join(folder, "error.log"), "-p", folder, "-c", file] };
}

function haproxy(scenario: Scenario, { folder, port, backendPort }: Place): Command {
  let tls = "";
  if (scenario.protocol !== "http") {
    writeFileSync(join(folder, "both.pem"), SERVER.cert + SERVER.key);
    tls = `ssl crt ${folder}/both.pem ${scenario.protocol === "h2" ? "alpn h2,http/1.1" : ""}`;
  }
  let rules = "";
  if (scenario.guarded) {
    rules = `
  stick-table type string len 64 size 100k expire 60s store http_req_rate(1s)
  acl known req.hdr(apikey) -m str ${KEY}
  http-request deny deny_status 401 unless known
  http-request track-sc0 req.hdr(apikey)
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt ${PER_SECOND} }`;
  }
  if (scenario.routes > 0) {
    writeFileSync(
      join(folder, "routes"),
      Array.from({ length: scenario.routes }, (_none, i) => `/r${i}/ found\n`).join(""),
    );
    rules = `\n  http-request deny deny_status 404 unless { path,map_beg(${folder}/routes) -m found }`;
  }
  const file = join(folder, "haproxy.cfg");
  writeFileSync(
    file,
    `global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 3s
  timeout client 600s
  timeout server 60s
  http-reuse always
frontend front
  bind 127.0.0.1:${port} backlog 4096 ${tls}
  option forwardfor
  http-request set-header X-Forwarded-Proto ${scenario.protocol === "http" ? "http" : "https"}
  http-request set-header X-Request-Id %[uuid()]${rules}
  default_backend back
backend back
  server one 127.0.0.1:${backendPort}
`,
  );
  return { program: find("haproxy")!, words: ["-db", "-f", file] };
}

function caddy(scenario: Scenario, { folder, port, backendPort }: Place): Command {
  const secure = scenario.protocol !== "http";
  const [certFile, keyFile] = secure ? certificate(folder) : [];
  const transport = { protocol: "http", keep_alive: { max_idle_conns_per_host: 256, idle_timeout: "600s" } };
  const handle = [{ handler: "reverse_proxy", upstreams: [{ dial: `127.0.0.1:${backendPort}` }], transport }];
  const refuse = { handle: [{ handler: "static_response", status_code: 401 }] };
  const routes = scenario.guarded
    ? [{ match: [{ header: { apiKey: [KEY] } }], handle, terminal: true }, refuse]
    : scenario.routes === 0
      ? [{ handle }]
      : [
          ...Array.from({ length: scenario.routes }, (_none, i) => ({
            match: [{ path: [`/r${i}/*`] }],
            handle,
            terminal: true,
          })),
          { handle: [{ handler: "static_response", status_code: 404 }] },
        ];
  const server = {
    listen: [`127.0.0.1:${port}`],
    automatic_https: { disable: true },
    protocols: ["h1", "h2"],
    idle_timeout: "600s",
    routes,
    ...(secure ? { tls_connection_policies: [{}] } : {}),
  };
  const tls = { certificates: { load_files: [{ certificate: certFile, key: keyFile }] } };
  const config = {
    admin: { disabled: true, config: { persist: false } },
    storage: { module: "file_system", root: folder },
    logging: { logs: { default: { level: "ERROR" } } },
    apps: { http: { servers: { front: server } }, ...(secure ? { tls } : {}) },
  };
  const file = join(folder, "caddy.json");
  writeFileSync(file, JSON.stringify(config));
  return {
    program: find("caddy")!,
    words: ["run", "--config", file],
    environment: { XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder },
  };
}
