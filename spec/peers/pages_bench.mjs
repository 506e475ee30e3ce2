/**
 * Measures how long each page of the management UI takes with 10,000 routes in 100 services: `node
 * spec/peers/pages_bench.mjs [routes] [page…]` prints the time from the navigation to a page that can be used, its
 * longest task, the time of the page's thread in all, and the longest question to the gateway. Not a spec: nothing else
 * runs it.
 */
import http from "node:http";
import { openManager } from "./bench_page.mjs";

const ROUTES = Number(process.argv[2] ?? 10_000);
const SERVICES = 100;

const services = Array.from({ length: SERVICES }, (_, s) => ({
  name: `service-${s}`,
  base_path: `/s${s}`,
  upstreams: [0, 1].map((i) => ({ id: `u${s}-${i}`, host: "127.0.0.1", port: 10_000 + 2 * s + i })),
  plugins: s % 2 === 0 ? [{ name: "key_auth", config: { callers: true } }] : [],
  routes: Array.from({ length: ROUTES / SERVICES }, (_, r) => ({
    name: `route-${s}-${r}`,
    path: `/items/${r}`,
    methods: ["GET"],
    plugins: [{ name: "rate_limit", config: { limit_min: 500 + r } }],
  })),
}));
const callers = Array.from({ length: 200 }, (_, i) => ({
  id: `caller-${i}`,
  keys: [{ key: `a-key-for-${i}-0123456789` }],
}));
const tests = Array.from({ length: 100 }, (_, i) => ({
  name: `test-${i}`,
  request: { url: `/s${i}/items/1`, headers: { apiKey: "a-key-for-1-0123456789" } },
  expect: { route: `route-${i}-1` },
}));
const { page, busyMs, urlOf, close } = await openManager(JSON.stringify({ services, callers, tests }, null, 2));
for (let i = 0; i < 300; i++) {
  const path = `/s${i % SERVICES}/items/${i}?apiKey=a-key-for-${i % 200}-0123456789`;
  await new Promise((done) => http.get(`${urlOf("http")}${path}`, (reply) => reply.resume().on("end", done)));
}
await page.getByRole("heading", { level: 1 }).waitFor();
await page.waitForTimeout(3_000);
await page.evaluate(`(() => {
  window.tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries())).observe({ entryTypes: ["longtask"] });
  // Used can be what shows no "Waiting for …" in two frames after each other.
  window.go = async (hash) => {
    performance.clearResourceTimings();
    tasks.length = 0;
    const began = performance.now();
    const title = () => document.querySelector("h1").textContent;
    const from = title();
    location.hash = hash;
    for (let calm = 0; calm < 2 && performance.now() - began < 20_000; ) {
      await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
      const main = document.querySelector("main");
      const isUsable = title() !== from && main.textContent.length > 60 && !/Waiting \
for|loading…/i.test(main.textContent);
      calm = isUsable ? calm + 1 : 0;
    }
    const usable = performance.now() - began;
    await new Promise((rested) => setTimeout(rested, 1_500));
    const asked = performance.getEntriesByType("resource").filter(({ name }) => name.includes("/gateway"));
    asked.sort((a, b) => b.duration - a.duration);
    const [slow] = asked;
    return {
      usable: Math.round(usable),
      longest: Math.round(Math.max(0, ...tasks.map(({ duration }) => duration))),
      elements: document.querySelector("main").querySelectorAll("*").length,
      asked: asked.slice(0, 3).map(({ name, duration, decodedBodySize }) =>
        new URL(name).pathname.replace("/gateway", "") + " " + Math.round(duration) + " ms, " + \
Math.round(decodedBodySize / 1000) + " kB").join("; "),
    };
  };
})()`);
const all = [
  "#/process",
  "#/services",
  "#/services/service-50",
  "#/routes",
  "#/routes/service-50/route-50-7",
  "#/upstreams",
  "#/upstreams/service-50/u50-0",
  "#/plugins",
  "#/callers",
  "#/callers/caller-7",
  "#/requests",
  "#/config",
  "#/try",
  "#/tests",
  "#/add",
  "#/add/route",
  "#/edit",
  "#/apply",
  "#/history",
  "#/",
];
for (const hash of process.argv.length > 3 ? process.argv.slice(3) : all) {
  const before = await busyMs();
  const { usable, longest, elements, asked } = await page.evaluate(`go(${JSON.stringify(hash)})`);
  const busy = Math.round((await busyMs()) - before);
  console.log(
    `${hash.padEnd(32)} usable ${usable} ms, longest task ${longest}, thread ${busy} ms, ` +
      `${elements} elements | ${asked}`,
  );
}
await close();
