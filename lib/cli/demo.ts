/**
 * `edge-gateway demo`: two small upstreams inside this process, the gateway in front of them, the admin interface and the
 * management UI beside it, and curl lines that show what it does.
 */
import { randomBytes } from "node:crypto";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { version } from "../base/version.ts";
import type { ConfigInput } from "../config/model.ts";
import { reachable } from "./addresses.ts";
import { UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";
import { endBySignal, logFor, reloadFrom, settingsFrom } from "./run.ts";
import { start } from "./start.ts";
import { untilStopped } from "./stop.ts";

const DEMO_KEY = "demo-key";

/** Ports and the like can be set as for `run`; the configuration is the demo's own. Resolves at shutdown. */
export async function demo(given: Arguments): Promise<ExitCode> {
  if (given.operands.length > 0 || given.flags.config !== undefined) throw new UsageError("the demo brings its own configuration");
  // Credentials of its own, whatever the environment holds: these are printed.
  const password = randomBytes(9).toString("base64url");
  const own = { ADMIN_USER: "admin", ADMIN_PASSWORD: password, ADMIN_PASSWORD_FILE: "", MANAGER: "true", MANAGER_BACKEND_API_URL: "", MANAGER_BACKEND_CA_PATH: "" };
  const environment = { LOG_FORMAT: "text", ...process.env, ...own };
  const settings = { ...settingsFrom(given, environment), configPath: "(demo)" };
  const log = logFor(settings);
  const backends = await Promise.all([startBackend("one"), startBackend("two")]);
  try {
    const config = demoConfig(backends.map(portOf));
    const started = await start(settings, { config, reload: async (begun) => reloadFrom((await begun).gateway, "admin", settings, log) }, log);
    const stopped = untilStopped(endBySignal(started, settings, log), log);
    process.stdout.write(tour(reachable(started.http[0]!), reachable(started.adminUrl!), started.managerUrl, settings.admin!));
    return await stopped;
  } finally {
    for (const backend of backends) {
      backend.close();
      backend.closeAllConnections();
    }
  }
}

/** Says who it is and what it was asked for. */
function startBackend(name: string): Promise<http.Server> {
  const server = http.createServer((request, response) => {
    const body = JSON.stringify({ upstream: name, method: request.method, path: request.url, forwarded_for: request.headers["x-forwarded-for"] });
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(`${body}\n`);
    request.resume();
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(server));
  });
}

function portOf(server: http.Server): number {
  return (server.address() as AddressInfo).port;
}

function demoConfig(ports: readonly number[]): ConfigInput {
  return {
    global: { name: "edge-gateway demo" },
    services: [
      {
        name: "shop",
        base_path: "/shop",
        upstreams: ports.map((port, i) => ({ id: i === 0 ? "one" : "two", host: "127.0.0.1", port })),
        routes: [
          { name: "items", path: "/items/{id}", methods: ["GET"] },
          { name: "orders", path: "/orders", plugins: [{ name: "key_auth", config: { key: DEMO_KEY } }] },
          { name: "search", path: "/search", methods: ["GET"], plugins: [{ name: "rate_limit", config: { limit_min: 3 } }] },
        ],
      },
    ],
  };
}

function tour(url: string, adminUrl: string, managerUrl: string | null, admin: { readonly user: string; readonly password: string }): string {
  // The demo's certificate, where one is set, need not be known to curl.
  const curl = adminUrl.startsWith("https:") ? "curl -k" : "curl";
  return `edge-gateway ${version} demo, gateway on ${url}, admin on ${adminUrl} (${admin.user} / ${admin.password})
Paste these into another terminal:

# Routing: base_path /shop is taken off, {id} matches one segment. Round robin: the two upstreams answer in turn
curl -s ${url}/shop/items/42
curl -s ${url}/shop/items/43

# No such route: 404. Wrong method: 405
curl -s ${url}/shop/nothing
curl -s -X DELETE ${url}/shop/items/42

# key_auth: 401 without the key, 200 with it
curl -s -i ${url}/shop/orders
curl -s '${url}/shop/orders?apiKey=${DEMO_KEY}'
curl -s -H 'apiKey: ${DEMO_KEY}' ${url}/shop/orders

# rate_limit, 3 a minute: the fourth is a 429
for i in 1 2 3 4; do curl -s -o /dev/null -w '%{http_code}\\n' ${url}/shop/search; done

# Admin interface: log in, keep the cookie, read the configuration
${curl} -s -X POST -u '${admin.user}:${admin.password}' -c /tmp/edge-gateway-demo.cookies ${adminUrl}/login
${curl} -s -b /tmp/edge-gateway-demo.cookies ${adminUrl}/gateway

${managerUrl === null ? "" : `# Management UI: open it in a browser, log in as ${admin.user} with the password ${admin.password}
${managerUrl}

`}Ctrl-C ends the demo.
`;
}
