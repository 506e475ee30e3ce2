/**
 * Shows a gateway inside a program of one's own: mounted in its server, listening by itself, asked without a socket, reloaded, ended.
 * Plugins of one's own are `custom_plugin.ts`. Run it with `npx tsx examples/embed.ts`: it takes free ports and ends by itself.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { ConfigError, createGateway, createLog, defineConfig } from "edge-gateway";

const backend = http.createServer((request, response) => response.end(`backend saw ${request.method} ${request.url}\n`));
const backendPort = await listenAnywhere(backend);

// 1. A configuration as a value, with the fields of the JSON file.
const config = defineConfig({
  global: { name: "embedded" },
  services: [
    {
      name: "shop",
      base_path: "/shop",
      upstreams: [{ host: "127.0.0.1", port: backendPort }],
      routes: [
        { name: "items", path: "/items/{id}", methods: ["GET"] },
        { name: "orders", path: "/orders", plugins: [{ name: "key_auth", config: { key: "${env:SHOP_KEY}" } }] },
      ],
    },
  ],
});

const gateway = createGateway({
  config,
  environment: { SHOP_KEY: "an example key" },
  log: createLog({ level: "warn" }),
});

// 2. Without a socket: for tests of a configuration.
const refused = await gateway.inject({ url: "/shop/orders" });
assert.equal(refused.status, 401);
assert.equal((refused.json() as { code: string }).code, "key_missing");
const ordered = await gateway.inject({ method: "POST", url: "/shop/orders", headers: { apiKey: "an example key" }, body: "1 lamp" });
assert.equal(ordered.text(), "backend saw POST /orders\n");
console.log("injected:", refused.status, ordered.status);

// 3. In a server of one's own: some paths are the host's, all others the gateway's. `upgrade` lets WebSockets pass.
const host = http.createServer((request, response) => {
  if (request.url === "/own") response.end("the host's own page\n");
  else gateway.handler(request, response);
});
host.on("upgrade", gateway.upgrade);
const hostPort = await listenAnywhere(host);
console.log("mounted: ", await textOf(`http://127.0.0.1:${hostPort}/own`), await textOf(`http://127.0.0.1:${hostPort}/shop/items/1`));

// 4. On a listener of the gateway's. Port 0 is any free one.
const { port } = await gateway.listen({ port: 0 });
console.log("listens:  ", await textOf(`http://127.0.0.1:${port}/shop/items/2`));

// 5. A new configuration: all or nothing, requests under way end as they began.
const { changed, digest } = await gateway.reload({ ...config, services: config.services.map((service) => ({ ...service, base_path: "/store" })) });
assert.equal(changed, true);
console.log("reloaded: ", digest.length, await textOf(`http://127.0.0.1:${port}/store/items/3`));
try {
  await gateway.reload({ services: config.services.map((service) => ({ ...service, base_path: "store" })) });
  assert.fail("a broken configuration was taken");
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  console.log("refused:  ", error.message);
}
assert.equal(gateway.digest, digest);

// 6. The end: nothing new is accepted, what is under way has five seconds. The host closes its own server.
host.close();
host.closeIdleConnections();
console.log("closed:   ", await gateway.close(5_000));
backend.close();
backend.closeAllConnections();

async function listenAnywhere(server: http.Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

async function textOf(url: string): Promise<string> {
  const response = await fetch(url);
  return `${response.status} ${(await response.text()).trim()}`;
}
