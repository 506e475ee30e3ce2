/**
 * The gateway, nginx and Caddy with one configuration of many routes, as alike as they can be: every other route asks
 * for a key, the others limit a rate.
 */
import { hash } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { find, freePort, type Command, type Running } from "./peers/machine.ts";
import { PROGRAM } from "./ready.ts";

export const ROUTES_OF_A_SERVICE = 100;

/** What a reload finds changed: every service, one of them, or nothing. */
export type Change = "all" | "one" | "none";
/** What there is much of. Of upstreams and callers, in ten routes of a service. */
export type Shape = "routes" | "upstreams" | "callers";

export interface Written {
  readonly change: Change;
  readonly generation: number;
}

export interface Served {
  readonly port: number;
  readonly command: Command;
  /** A path without a plugin, which every generation answers. */
  readonly steady: string;
  /** A path whose status tells the generation, see `statusOf`. */
  readonly marker: string;
  /** Beside the file of the configuration, whose place it takes at the start or by `reload`. */
  write(written: Written): void;
  reload(running: Running | null): void;
}

export interface Program {
  readonly name: string;
  /** Why it cannot be measured; null: it can. */
  missing(): string | null;
  prepare(folder: string, shape: Shape, size: number): Promise<Served>;
}

export const PROGRAMS: readonly Program[] = [
  { name: "ours", missing: () => null, prepare: ours },
  { name: "nginx", missing: () => notFound("nginx"), prepare: nginx },
  { name: "caddy", missing: () => notFound("caddy"), prepare: caddy },
];

function notFound(program: string): string | null {
  return find(program) === null ? `the program ${program} is not installed (Debian's package of this name)` : null;
}

/** Routes of one service: paths and the plugin of each by its place. */
interface Route {
  readonly path: string;
  readonly kind: "key" | "limit";
  readonly key: string;
  readonly limit: number;
}

/** The generation that each service was last changed in. */
class Generations {
  readonly #of: number[];

  constructor(services: number) {
    this.#of = Array<number>(services).fill(0);
  }

  apply({ change, generation }: Written): readonly number[] {
    if (change === "all") this.#of.fill(generation);
    else if (change === "one") this.#of[0] = generation;
    return this.#of;
  }
}

function routesOf(service: number, generation: number, count: number): readonly Route[] {
  return Array.from({ length: count }, (_none, i) => ({
    path: `/r${i}`,
    kind: i % 2 === 0 ? "key" : "limit",
    key: `key-${service}-${i}-${generation}`,
    limit: 1_000 + generation,
  }));
}

const steady = "/steady";
const marker = "/marker";

/** So no pattern differs from one generation to the next. */
export function statusOf(generation: number): number {
  return 210 + generation;
}

function put(file: string): void {
  renameSync(`${file}.new`, file);
}

async function ours(folder: string, shape: Shape, size: number): Promise<Served> {
  const [port, backend] = [await freePort(), await freePort()];
  const file = join(folder, "gw.json");
  const perService = shape === "routes" ? ROUTES_OF_A_SERVICE : 10;
  const services = shape === "callers" ? 10 : size / ROUTES_OF_A_SERVICE;
  const generations = new Generations(services);
  let isSame = false;
  const command = {
    program: process.execPath,
    words: [
      PROGRAM,
      "--config",
      file,
      "--http-port",
      String(port),
      "--listen-host",
      "127.0.0.1",
      "--log-level",
      "warn",
    ],
  };
  return {
    ...{ port, command, steady, marker },
    // It notices a new file by itself; one that is as before is read again on SIGHUP.
    reload(running) {
      put(file);
      if (isSame) running?.child.kill("SIGHUP");
    },
    write(written) {
      isSame = written.change === "none";
      const of = generations.apply(written);
      const newest = Math.max(...of);
      const fixed = (path: string, status: number) => {
        return { path, plugins: [{ name: "request_termination", config: { status, body: "ok" } }] };
      };
      const config: AnyConfigInput = {
        global: { access_log: { enabled: false }, ...(shape === "callers" && { plugins: [] }) },
        services: [
          {
            name: "fixed",
            base_path: "/",
            upstreams: [{ host: "127.0.0.1", port: backend }],
            routes: [fixed(steady, 200), fixed(marker, statusOf(newest))],
          },
          ...of.map((generation, s) => ({
            name: `s${s}`,
            base_path: `/s${s}`,
            upstreams: Array.from({ length: shape === "upstreams" ? ROUTES_OF_A_SERVICE : 1 }, (_none, i) => ({
              id: `u${i}-${shape === "upstreams" ? generation : 0}`,
              host: `127.${1 + (s >> 8)}.${s & 255}.${i + 1}`,
              port: backend,
            })),
            routes: routesOf(s, generation, perService).map(({ path, kind, key, limit }) => ({
              path,
              plugins: [
                kind === "key"
                  ? { name: "key_auth", config: { key } }
                  : { name: "rate_limit", config: { limit_second: limit } },
              ],
            })),
          })),
        ],
        ...(shape === "callers" && { callers: callersOf(size, newest) }),
      };
      writeFileSync(`${file}.new`, JSON.stringify(config, null, 1));
    },
  };
}

function callersOf(count: number, generation: number) {
  return Array.from({ length: count }, (_none, i) => ({
    id: `caller-${i}`,
    groups: [`group-${(i + generation) % 10}`],
    keys: [{ key_sha256: hash("sha256", `key ${i}`) }],
  }));
}

async function nginx(folder: string, _shape: Shape, size: number): Promise<Served> {
  const [port, backend] = [await freePort(), await freePort()];
  const file = join(folder, "nginx.conf");
  const generations = new Generations(size / ROUTES_OF_A_SERVICE);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((what) => `${what}_temp_path ${folder}/${what};`)
    .join(" ");
  const user = process.getuid?.() === 0 ? "user root;" : "";
  const main = `daemon off; worker_processes 1; ${user} pid ${folder}/nginx.pid; error_log ${folder}/error.log error;`;
  return {
    ...{ port, steady, marker },
    command: { program: find("nginx")!, words: ["-e", join(folder, "error.log"), "-p", folder, "-c", file] },
    reload(running) {
      put(file);
      running?.child.kill("SIGHUP");
    },
    write(written) {
      const of = generations.apply(written);
      const location = (s: number, route: Route) => {
        const guard =
          route.kind === "key"
            ? `if ($http_apikey != "${route.key}") { return 401; }`
            : `limit_req zone=callers burst=${route.limit} nodelay;`;
        return `location = /s${s}${route.path} { ${guard} proxy_pass http://s${s}/; }`;
      };
      const locations = of.flatMap((generation, s) =>
        routesOf(s, generation, ROUTES_OF_A_SERVICE).map((route) => location(s, route)),
      );
      const upstreams = of.map((_none, s) => {
        const server = `127.${1 + (s >> 8)}.${s & 255}.1:${backend}`;
        return `upstream s${s} { server ${server}; keepalive 16; }`;
      });
      const newest = statusOf(Math.max(...of));
      const fixed = [`location = ${steady} { return 200 "ok"; }`, `location = ${marker} { return ${newest} "ok"; }`];
      const text = [
        main,
        "events { worker_connections 1024; }",
        `http { access_log off; keepalive_timeout 600s; ${temporary}`,
        "limit_req_zone $binary_remote_addr zone=callers:10m rate=1000r/s;",
        ...upstreams,
        `server { listen 127.0.0.1:${port};`,
        ...fixed,
        ...locations,
        "location / { return 404; } } }\n",
      ];
      writeFileSync(`${file}.new`, text.join("\n"));
    },
  };
}

async function caddy(folder: string, _shape: Shape, size: number): Promise<Served> {
  const [port, backend, admin] = [await freePort(), await freePort(), await freePort()];
  const file = join(folder, "caddy.json");
  const generations = new Generations(size / ROUTES_OF_A_SERVICE);
  const fixed = (path: string, status: number) => {
    return { match: [{ path: [path] }], handle: [{ handler: "static_response", status_code: status, body: "ok" }] };
  };
  const places = { XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
  const program = find("caddy")!;
  return {
    ...{ port, steady, marker },
    command: { program, words: ["run", "--config", file], environment: places },
    // Caddy is sent its configuration by its own program, whose processor time does not count.
    reload(running) {
      put(file);
      if (running !== null) void postTo(admin, file);
    },
    write(written) {
      const of = generations.apply(written);
      const routes = of.map((generation, s) => ({
        match: [{ path: [`/s${s}/*`] }],
        terminal: true,
        handle: [
          {
            handler: "subroute",
            routes: routesOf(s, generation, ROUTES_OF_A_SERVICE).map(({ path, kind, key, limit }) => ({
              match: [{ path: [`/s${s}${path}`], ...(kind === "key" && { header: { Apikey: [key] } }) }],
              terminal: true,
              handle: [
                ...(kind === "key" ? [] : [{ handler: "headers", request: { set: { "X-Limit": [String(limit)] } } }]),
                { handler: "reverse_proxy", upstreams: [{ dial: `127.${1 + (s >> 8)}.${s & 255}.1:${backend}` }] },
              ],
            })),
          },
        ],
      }));
      const missing = { handle: [{ handler: "static_response", status_code: 404 }] };
      const server = {
        listen: [`127.0.0.1:${port}`],
        automatic_https: { disable: true },
        idle_timeout: "600s",
        routes: [fixed(steady, 200), fixed(marker, statusOf(Math.max(...of))), ...routes, missing],
      };
      const config = {
        admin: { listen: `127.0.0.1:${admin}`, config: { persist: false } },
        storage: { module: "file_system", root: folder },
        logging: { logs: { default: { level: "ERROR" } } },
        apps: { http: { servers: { front: server } } },
      };
      writeFileSync(`${file}.new`, JSON.stringify(config));
    },
  };
}

async function postTo(port: number, file: string): Promise<void> {
  const headers = { "Content-Type": "application/json", "Cache-Control": "must-revalidate" };
  const reply = await fetch(`http://127.0.0.1:${port}/load`, { method: "POST", headers, body: readFileSync(file) });
  if (!reply.ok) throw new Error(`Caddy refuses the configuration: ${await reply.text()}`);
}
