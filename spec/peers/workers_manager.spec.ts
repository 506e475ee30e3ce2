/** What the management UI shows of a gateway with several workers. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { oneService } from "../support/gateway.ts";
import { faultsOf, launch, type Browser } from "./browser.ts";
import { openOverview, upstream } from "./manager_pages.ts";
import { nodeOf } from "./nodes.ts";
import { until } from "./redis.ts";
import { probeModule } from "./workers.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

it.each([1280, 360])(
  "the overview shows the requests of all workers, how many serve, and restarts once one has ended, " +
    "on a screen of %i pixels",
  async (width) => {
    const { port } = await upstream();
    const config = oneService(port, { plugins: [{ name: "probe" }] }, { plugin_modules: [probeModule()] });
    const { page, url, errors } = await openOverview(browser, config, {
      width,
      environment: { WORKERS: "2" },
      node: nodeOf(24),
    });
    const tiles = async () => (await page.locator(".stats").innerText()).replaceAll("\u00a0", " ");
    await until(async () => (await tiles()).includes("serving · 2 of 2 workers"));
    const ask = () =>
      fetch(`${url}/a/x`, { headers: { connection: "close" } }).then((response) => response.arrayBuffer());
    for (let i = 0; i < 20; i++) await ask();
    await until(async () => /[1-9]\S*\s*\/s/.test(await tiles()));
    await fetch(`${url}/a/x?exit`).catch(() => {});
    await until(async () => (await tiles()).includes("serving · 2 of 2 workers · 1 restart"));
    expect(
      await page.evaluate<number>("document.documentElement.scrollWidth - document.documentElement.clientWidth"),
    ).toBeLessThanOrEqual(0);
    expect(await faultsOf(page)).toEqual([]);
    expect(errors).toEqual([]);
  },
);
