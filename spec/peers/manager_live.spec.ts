/** What the management UI shows as it happens: charts of services, routes and upstreams, the tail of the access log, threads and plugins. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ConfigInput } from "../../lib/config/model.ts";
import { launch, type Browser } from "./browser.ts";
import { allFaultsOf, openOverview, replaced, until, upstream } from "./manager_pages.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

const shop = (port: number, ...routes: string[]): ConfigInput => ({
  services: [{ name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port }], routes: ["open", ...routes].map((name) => ({ name, path: `/${name}` })) }],
});

describe("the history of figures", () => {
  it("is charts of a service, a route and an upstream, with a mark and a sentence for a reload, over 15 minutes or a day", async () => {
    const { port } = await upstream();
    const { page, url, managerUrl, file, errors } = await openOverview(browser, shop(port));
    const requests = async () => {
      for (let i = 0; i < 3; i++) await fetch(`${url}/shop/open`).then((response) => response.arrayBuffer());
    };
    await requests();
    await page.goto(`${managerUrl}#/routes/shop/open`);
    const chart = page.locator("section.chart").filter({ hasText: /^Requests over time/ });
    // A step has to begin and to end; a point alone is a dot.
    await until(page, 'Boolean(document.querySelector(".chart__single")?.getAttribute("d") || document.querySelector(".chart__line")?.getAttribute("d"))');
    replaced(file, JSON.stringify(shop(port, "more")));
    await requests();
    await page.getByText(/^Dashed lines mark reloads: .*reloaded, [0-9a-f]{12}\.$/).waitFor();
    await until(page, 'document.querySelectorAll("line.chart__mark").length === 3');
    expect(await allFaultsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "A day" }).click();
    await until(page, 'location.hash.endsWith("?span=1d")');
    await page.reload();
    await until(page, 'document.querySelector("[aria-pressed=true]")?.textContent === "A day"');
    await page.getByRole("button", { name: "15 minutes" }).click();
    await chart.getByText(/peak [\d.]+\/s in 1 min\.$/).waitFor();
    for (const hash of ["services/shop", `upstreams/shop/127.0.0.1:${port}`]) {
      await page.goto(`${managerUrl}#/${hash}`);
      await chart.getByText(/peak [\d.]+\/s in 1 min\.$/).waitFor();
    }
    expect(errors).toEqual([]);
  }, 90_000);
});
