/**
 * Measures a keystroke in the editor of the management UI: `node spec/peers/editor_bench.mjs [lines]` starts the built
 * gateway with a configuration of at least that many lines, types in its middle, and prints the times from the key to
 * the frame that shows it. Not a spec: nothing else runs it.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const LINES = Number(process.argv[2] ?? 5000);
const PASSWORD = "bench-only";

const limit = { name: "rate_limit", config: { limit_min: 5 } };
const routes = Array.from({ length: Math.ceil(LINES / 12) }, (_, i) => ({
  name: `route-${i}`,
  path: `/items/${i}`,
  plugins: [limit],
}));
const text = JSON.stringify(
  { services: [{ name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port: 9 }], routes }] },
  null,
  2,
);
const home = mkdtempSync(join(tmpdir(), "edge-gateway-"));
writeFileSync(join(home, "gw.json"), text);
const program = fileURLToPath(new URL("../../dist/bin/edge-gateway.js", import.meta.url));
const gateway = spawn(
  process.execPath,
  [program, "--config", join(home, "gw.json"), "--http-port", "0", "--listen-host", "127.0.0.1"],
  {
    env: {
      PATH: process.env.PATH,
      ADMIN_PORT: "0",
      ADMIN_USER: "admin",
      ADMIN_PASSWORD: PASSWORD,
      ADMIN_WRITE: "true",
      MANAGER: "true",
      MANAGER_PORT: "0",
      LOG_FORMAT: "text",
      ACCESS_LOG: "off",
    },
    stdio: ["ignore", "ignore", "pipe"],
  },
);
let said = "";
for await (const chunk of gateway.stderr) {
  said += chunk;
  if (/^ {2}reload/m.test(said)) break;
}
gateway.stderr.resume();
const { chromium } = createRequire(import.meta.url)("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
await page.goto(`${/^ {2}manager +(http\S+)/m.exec(said)[1]}#/edit`);
await page.getByLabel("Name").fill("admin");
await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
await page.getByLabel("Password", { exact: true }).press("Enter");
await page.getByRole("textbox", { name: "Text of the configuration" }).waitFor();
// The place is in the middle of the text.
const lines = text.split("\n");
const line = lines.findIndex((each, i) => i > lines.length / 2 && each.includes('"limit_min": 5'));
await page.evaluate(`location.hash = "#/edit?line=${line + 1}&column=${lines[line].length + 1}"`);
await page.locator(".editor__row[data-current]", { hasText: "limit_min" }).waitFor();
await page.evaluate(`(() => {
  const field = document.querySelector("textarea");
  window.times = [];
  // The message is answered once the frame has been drawn.
  field.addEventListener("keydown", ({ timeStamp }) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => times.push(performance.now() - timeStamp);
    port2.postMessage(null);
  }));
})()`);
// Time of the page's thread, which a busy machine does not lengthen as it does the time on the clock.
const devtools = await page.context().newCDPSession(page);
await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
const busyMs = async () =>
  (await devtools.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value * 1000;
for (const [name, keys] of [
  ["a digit", "123456789012345678901234567890123456789012345678901234567890"],
  ["a quote", '"x'.repeat(20)],
  ["Enter", "\n".repeat(20)],
]) {
  await page.evaluate("times.length = 0");
  const before = await busyMs();
  await page.keyboard.type(keys, { delay: 60 });
  const busy = ((await busyMs()) - before) / keys.length;
  const times = (await page.evaluate("times")).sort((a, b) => a - b);
  const at = (share) => times[Math.min(Math.floor(times.length * share), times.length - 1)].toFixed(1);
  console.log(
    `${name.padEnd(8)} median ${at(0.5)} ms, 95 % ${at(0.95)} ms, worst ${at(1)} ms, ` +
      `${busy.toFixed(1)} ms of processor a key, of ${times.length} (${text.split("\n").length} lines)`,
  );
}
await browser.close();
gateway.kill();
await once(gateway, "exit");
rmSync(home, { recursive: true });
