/**
 * `edge-gateway demo`: starts a gateway with admin interface, management UI and two small upstreams, and prints curl
 * commands to try.
 */
import { randomBytes } from "node:crypto";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { version } from "../base/version.ts";
import type { ConfigInput } from "../gateway/config_input.ts";
import type { RunCommand } from "./arguments.ts";
import { Failure } from "./failure.ts";
import { ON_DEMAND, openLog, settingsOf } from "./on_demand.ts";
import { reachableUrl } from "./operators.ts";
import { reloadFrom } from "./reloading.ts";
import { drain, untilStopped } from "./shutdown.ts";
import { start } from "./start.ts";
import { printable } from "./terminal.ts";

const DEMO_KEY = "demo-key";

export const demo: RunCommand = async (given) => {
  const other = ["config", "config-key"].find((flag) => given.flags[flag] !== undefined);
  if (other !== undefined) throw new Failure(`the demo has its own configuration: leave --${other} out`, 2);
  // Ignores the credentials in the environment: these are printed.
  const password = randomBytes(9).toString("base64url");
  const admin = { ADMIN_USER: "admin", ADMIN_PASSWORD: password, ADMIN_PASSWORD_FILE: "" };
  const ownManager = { MANAGER: "true", MANAGER_BACKEND_API_URL: "", MANAGER_BACKEND_CA_PATH: "" };
  // Its key is printed, so only this machine gets to it, unless LISTEN_HOST or --listen-host says otherwise.
  const environment = { LOG_FORMAT: "text", LISTEN_HOST: "127.0.0.1", ...process.env, ...admin, ...ownManager };
  const read = await settingsOf(given.flags, environment, {
    terminal: process.stderr.isTTY === true,
    issues: given.unknown ?? [],
  });
  if (read.audit !== null) throw new Failure("the demo writes no audit log: leave AUDIT_LOG (--audit-log) out", 2);
  const settings = { ...read, configPath: "(demo)", source: null };
  const log = await openLog(settings);
  const backends = await Promise.all([startBackend("one"), startBackend("two")]);
  try {
    const config = demoConfig(backends.map((backend) => (backend.address() as AddressInfo).port));
    const starting = start(
      settings,
      {
        config,
        accessLog: printRequests,
        reload: async () => reloadFrom((await starting).gateway, { by: "admin" }, settings, log),
      },
      log,
    );
    const started = await starting;
    const stopped = untilStopped((signal) => drain(signal, started, settings, log), log);
    process.stdout.write(
      tour(
        reachableUrl((started.http[0] ?? started.https[0])!),
        reachableUrl(started.adminUrl!),
        started.managerUrl,
        password,
      ),
    );
    const code = await stopped;
    if (settings.logsExport !== null) await (await ON_DEMAND.logsExport()).endLogs(log);
    return code;
  } finally {
    for (const backend of backends) {
      backend.close();
      backend.closeAllConnections();
    }
  }
};

/**
 * One line for each request that the gateway has answered: "GET /shop/items/42 got 200 from upstream one". `lines` are
 * those of the access log.
 */
function printRequests(lines: string): void {
  const texts = lines
    .trimEnd()
    .split("\n")
    .map((line) => {
      const { method, path, status, code, upstream } = JSON.parse(line) as Readonly<
        Record<string, string | number | null>
      >;
      return (
        `${String(method)} ${String(path)} got ${String(status)} ` +
        `${upstream === null ? String(code) : `from upstream ${String(upstream)}`}`
      );
    });
  process.stdout.write(printable(texts));
}

/** An upstream that answers with its name and the request. */
function startBackend(name: string): Promise<http.Server> {
  const server = http.createServer((request, response) => {
    const body = JSON.stringify({
      upstream: name,
      method: request.method,
      path: request.url,
      forwarded_for: request.headers["x-forwarded-for"],
    });
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(`${body}\n`);
    request.resume();
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => resolve(server));
  });
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
          {
            name: "search",
            path: "/search",
            methods: ["GET"],
            plugins: [{ name: "rate_limit", config: { limit_min: 3 } }],
          },
        ],
      },
    ],
  };
}

function tour(url: string, adminUrl: string, managerUrl: string | null, password: string): string {
  // -k: curl may not trust the server certificate.
  const ui =
    managerUrl === null ? "" : `# Management UI: log in as admin with the password ${password}\n${managerUrl}\n\n`;
  const curl = [url, adminUrl].some((each) => each.startsWith("https:")) ? "curl -k" : "curl";
  return `edge-gateway ${version} demo, gateway on ${url}, admin on ${adminUrl} (admin / ${password})
Paste these into another terminal:

# Routing: base_path /shop is stripped, {id} matches one segment. Round robin: the two upstreams answer in turn
${curl} -s ${url}/shop/items/42
${curl} -s ${url}/shop/items/43

# No such route: 404. Wrong method: 405
${curl} -s ${url}/shop/nothing
${curl} -s -X DELETE ${url}/shop/items/42

# key_auth: 401 without the key, 200 with it
${curl} -s -i ${url}/shop/orders
${curl} -s '${url}/shop/orders?apiKey=${DEMO_KEY}'
${curl} -s -H 'apiKey: ${DEMO_KEY}' ${url}/shop/orders

# rate_limit, 3 a minute: the fourth is a 429
for i in 1 2 3 4; do ${curl} -s -o /dev/null -w '%{http_code}\\n' ${url}/shop/search; done

# Admin interface: reading takes the credentials; the configuration, which may show secrets, takes a login and its \
cookie
${curl} -s -u 'admin:${password}' ${adminUrl}/gateway/health
${curl} -s -X POST -u 'admin:${password}' -c /tmp/edge-gateway-demo.cookies ${adminUrl}/login
${curl} -s -b /tmp/edge-gateway-demo.cookies ${adminUrl}/gateway

${ui}Each request to the gateway is one line below. Ctrl-C ends the demo.
`;
}
