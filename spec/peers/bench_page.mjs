/** The built gateway with a configuration, and its management UI in Chromium, signed in: for what is run by hand. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const PASSWORD = "bench-only";

/**
 * `text`: of the configuration. `urlOf("http")` and `urlOf("manager")`; `busyMs` is the time of the page's thread,
 * which a busy machine does not lengthen as it does the time on the clock.
 */
export async function openManager(text, { context = { viewport: { width: 1280, height: 900 } }, hash = "#/" } = {}) {
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
  for await (const chunk of gateway.stderr) if (/^ {2}reload/m.test((said += chunk))) break;
  if (!/manager/.test(said)) throw new Error(said.slice(0, 3000));
  gateway.stderr.resume();
  const urlOf = (name) => new RegExp(`^ {2}${name} +(http\\S+)`, "m").exec(said)[1];
  const { chromium } = createRequire(import.meta.url)("playwright-core");
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu"],
  });
  const page = await (await browser.newContext(context)).newPage();
  await page.goto(`${urlOf("manager")}${hash}`);
  await page.getByLabel("Name").fill("admin");
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByLabel("Password", { exact: true }).press("Enter");
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  return {
    page,
    devtools,
    urlOf,
    pid: gateway.pid,
    busyMs: async () =>
      (await devtools.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value * 1000,
    async close() {
      await browser.close();
      gateway.kill();
      await once(gateway, "exit");
      rmSync(home, { recursive: true });
    },
  };
}
