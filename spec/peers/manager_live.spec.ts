/**
 * What the management UI shows as it happens: charts of services, routes and upstreams, threads and
 * plugins.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { launch, soon, type Browser } from "./browser.ts";
import { allFaultsOf, openOverview, replaced, until, upstream } from "./manager_pages.ts";
import { nodeOf } from "./nodes.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

const shop = (port: number, ...routes: string[]): AnyConfigInput => ({
  services: [
    {
      name: "shop",
      base_path: "/shop",
      upstreams: [{ host: "127.0.0.1", port }],
      routes: ["open", ...routes].map((name) => ({ name, path: `/${name}` })),
    },
  ],
});

describe("the history of figures", () => {
  it(
    "is charts of a service, a route and an upstream, with a mark and a sentence for a reload, " +
      "over 15 minutes or a day",
    async () => {
      const { port } = await upstream();
      const { page, url, managerUrl, file, errors } = await openOverview(browser, shop(port));
      const requests = async () => {
        for (let i = 0; i < 3; i++) await fetch(`${url}/shop/open`).then((response) => response.arrayBuffer());
      };
      await requests();
      await page.goto(`${managerUrl}#/routes/shop/open`);
      const chart = page.locator("section.chart").filter({ hasText: /^Requests over time/ });
      // A step has to begin and to end; a point alone is a dot.
      await until(
        page,
        'Boolean(document.querySelector(".chart__single")?.getAttribute("d") ' +
          '|| document.querySelector(".chart__line")?.getAttribute("d"))',
      );
      replaced(file, JSON.stringify(shop(port, "more")));
      await requests();
      await page.getByText(/^Dashed lines mark reloads: .*reloaded, [0-9a-f]{12}\.$/).waitFor();
      await until(page, 'document.querySelectorAll("line.chart__mark").length === 3');
      expect(await allFaultsOf(page)).toEqual([]);
      await page.getByRole("button", { name: "A day" }).click();
      await until(page, 'location.hash.endsWith("?span=1d")');
      await page.reload();
      await page.locator('button[aria-pressed="true"]').getByText("A day").waitFor();
      await page.getByRole("button", { name: "15 minutes" }).click();
      await chart.getByText(/peak [\d.]+\/s in 1 min\.$/).waitFor();
      for (const hash of ["services/shop", `upstreams/shop/127.0.0.1:${port}`]) {
        await page.goto(`${managerUrl}#/${hash}`);
        await chart.getByText(/peak [\d.]+\/s in 1 min\.$/).waitFor();
      }
      expect(errors).toEqual([]);
    },
  );
});

describe("live figures", () => {
  it("are those of each worker, and of plugins by kind, refusals, caches and circuit breakers", async () => {
    const { port } = await upstream();
    const config = shop(port);
    const plugins = [
      { name: "response_cache", config: {} },
      { name: "key_auth", config: { key: "under-the-mat" } },
    ];
    const [service] = config.services;
    const { page, url, managerUrl, errors } = await openOverview(
      browser,
      { services: [{ ...service!, plugins, circuit_breaker: {} }] },
      { environment: { WORKERS: "2" }, node: nodeOf(24) },
    );
    for (const key of ["under-the-mat", "wrong"])
      await fetch(`${url}/shop/open`, { headers: { apiKey: key } }).then((response) => response.arrayBuffer());
    await page.goto(`${managerUrl}#/process`);
    await until(page, 'document.querySelectorAll("main tbody tr").length === 2');
    expect(await page.locator("main tbody th").allInnerTexts()).toEqual(["worker 0", "worker 1"]);
    expect(await allFaultsOf(page)).toEqual([]);
    await page.goto(`${managerUrl}#/plugins`);
    const table = (title: string) => page.locator("main section.part").filter({ hasText: new RegExp(`^${title}`) });
    await table("By kind").getByText("key_auth").waitFor();
    await table("Refusals by code").getByText("key_invalid").waitFor();
    await table("Caches").getByText("shop open").waitFor();
    await table("Memory of caches").getByText("of 134 MB").waitFor();
    const cell = (kind: string, column: string) =>
      page
        .locator("tbody tr")
        .filter({ hasText: new RegExp(`^${kind}`) })
        .locator(`td[data-label="${column}"]`)
        .first();
    await soon(() =>
      Promise.all(["Requests", "Answered"].map((column) => cell("key_auth", column).innerText())),
    ).toEqual(["2", "1"]);
    await table("Circuit breakers").getByText("closed").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    expect((await page.content()).includes("under-the-mat")).toBe(false);
    expect(errors).toEqual([]);
  });
});
