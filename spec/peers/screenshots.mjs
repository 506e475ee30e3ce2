/**
 * Takes the pictures of docs/images: `node spec/peers/screenshots.mjs [folder] [width] [seconds] [light|dark]` starts
 * the built gateway with two small services, sends requests for a while, and takes pictures of its management UI; with
 * ALL_PAGES=1 of every page, in full length. Not a spec: nothing else runs it.
 */
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openManager } from "./bench_page.mjs";

const [
  folder = fileURLToPath(new URL("../../docs/images", import.meta.url)),
  width = "1600",
  seconds = "100",
  scheme = "light",
] = process.argv.slice(2);
const KEY = "under-the-mat";

/** Answers after `ms`, some requests later, and 503 to a share of those for `/search`. */
async function upstream(ms) {
  const server = http.createServer((request, response) => {
    const isFailing = request.url.startsWith("/search") && Math.random() < 0.06;
    setTimeout(() => response.writeHead(isFailing ? 503 : 200).end("ok"), ms * (0.6 + Math.random() ** 4 * 4));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

const upstreams = await Promise.all([4, 11, 16].map(upstream));
const [big, small, warehouse] = upstreams.map((server) => ({ host: "127.0.0.1", port: server.address().port }));
const config = {
  global: { name: "corner shop", plugins: [{ name: "cors", config: { allow_origins: ["https://shop.example"] } }] },
  services: [
    {
      name: "orders",
      base_path: "/orders",
      upstreams: [
        { id: "big", weight: 3, ...big },
        { id: "small", ...small },
      ],
      health: { enabled: true, passive: { max_failures: 0 } },
      plugins: [{ name: "request_size_limit", config: { max_payload_size: 1_048_576 } }],
      routes: [
        {
          name: "list",
          path: "/",
          methods: ["GET"],
          plugins: [
            { name: "key_auth", config: { key: KEY } },
            { name: "rate_limit", config: { limit_second: 60 } },
          ],
        },
        { name: "one", path: "/{id}", methods: ["GET", "PUT"] },
      ],
    },
    {
      name: "stock",
      base_path: "/stock",
      upstreams: [{ id: "warehouse", ...warehouse }],
      health: { enabled: true, passive: { max_failures: 0 } },
      routes: [
        { name: "search", path: "/search" },
        { name: "item", path: "/items/{id}" },
        { name: "office", path: "/office", plugins: [{ name: "acl", config: { whitelist: ["10.0.0.0/8"] } }] },
      ],
    },
  ],
};

const { page, urlOf, close } = await openManager(JSON.stringify(config, null, 2), {
  context: { viewport: { width: Number(width), height: 900 }, colorScheme: scheme, reducedMotion: "reduce" },
});

/** Shares of the requests, with the path of each. */
const KINDS = [
  [0.4, () => `/orders/?apiKey=${KEY}`],
  [0.02, () => "/orders/"],
  [0.24, () => `/orders/${Math.floor(Math.random() * 900)}`],
  [0.1, () => "/stock/search?q=tea"],
  [0.2, () => "/stock/items/7"],
  [0.02, () => "/stock/office"],
  [0.02, () => "/favicon.ico"],
];
const agent = new http.Agent({ keepAlive: true, maxSockets: 40 });
function send() {
  let left = Math.random();
  const [, path] = KINDS.find(([share]) => (left -= share) < 0) ?? KINDS[0];
  http.get(`${urlOf("http")}${path()}`, { agent }, (response) => response.resume()).on("error", () => {});
}
const began = Date.now();
const traffic = setInterval(() => {
  const wave = 1 + 0.5 * Math.sin((Date.now() - began) / 9_000);
  for (let i = 0; i < 6 * wave; i++) send();
}, 50);

await page.waitForTimeout(Number(seconds) * 1000);
mkdirSync(folder, { recursive: true });
for (const [name, hash] of [
  ["overview", "#/"],
  ["route", "#/routes/orders/list?tab=path"],
  ["requests", "#/requests?status=5xx"],
  ["edit", "#/edit?line=44&column=20"],
  ...(process.env.ALL_PAGES
    ? ["services", "routes", "upstreams", "plugins", "try", "tests", "config"].map((each) => [each, `#/${each}`])
    : []),
]) {
  await page.goto(`${urlOf("manager")}${hash}`);
  await page.waitForTimeout(2_500);
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: process.env.ALL_PAGES !== undefined });
}
clearInterval(traffic);
await close();
for (const server of upstreams) (server.close(), server.closeAllConnections());
agent.destroy();
