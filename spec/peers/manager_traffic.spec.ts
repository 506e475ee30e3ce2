/**
 * How the management UI shows where requests go: conditions of routes, splits, hashing and sticky sessions, mirrors,
 * and injected faults.
 */
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { soon, type Locator, type Page } from "./browser.ts";
import { allFaultsOf, heading, replaced, shareGateway, upstream } from "./manager_pages.ts";

const shared = shareGateway();

type Service = AnyConfigInput["services"][number];
type Plugins = NonNullable<Service["plugins"]>;

/** Two routes of one path, a canary, and an upstream for those who ask for it. */
function shop(
  port: number,
  { plugins = [], split = [] }: { readonly plugins?: Plugins; readonly split?: NonNullable<Service["split"]> } = {},
): AnyConfigInput {
  return {
    services: [
      {
        ...{
          name: "shop",
          base_path: "/shop",
          load_balancing_strategy: "hash",
          hash_on: "header:X-Tenant",
          hash_balance_factor: 125,
          sticky: { cookie: "till" },
        },
        split: [
          { group: "beta", percent: 100, match: { cookies: { plan: "beta" } } },
          { group: "canary", percent: 20 },
          ...split,
        ],
        upstreams: [
          { id: "old", host: "127.0.0.1", port },
          { id: "new", host: "127.0.0.1", port, group: "canary" },
          { id: "try", host: "127.0.0.1", port, group: "beta" },
        ],
        routes: [
          { name: "list", path: "/items", plugins },
          {
            name: "second",
            path: "/items",
            match: {
              headers: { "X-Version": "2" },
              query: { "old style": null },
              cookies: { plan: { matches: "^gold" } },
            },
          },
          {
            name: "staff",
            path: "/items",
            match: {
              headers: { "X-Version": "3", "X-Staff-Token": "open-sesame" },
              query: { view: "full text" },
              cookies: { seen: true },
            },
          },
        ],
      },
    ],
  };
}

async function requests(url: string, count: number): Promise<void> {
  for (let i = 0; i < count; i++) await fetch(url).then((response) => response.arrayBuffer());
}

/** The row of a table whose name is exactly `name`. */
function rowOf(page: Page, table: string, name: string): Locator {
  return page
    .getByRole("region", { name: table, exact: true })
    .locator("tbody tr")
    .filter({ hasText: new RegExp(`^${name}`) });
}

describe("routes of one path", () => {
  it("are told apart by their conditions in the table and on their pages, without the values of secrets", async () => {
    const { page, managerUrl, errors } = await shared.openOverview(shop((await upstream()).port));
    await page.goto(`${managerUrl}#/routes`);
    const row = rowOf(page, "Routes", "second");
    for (const text of ["header X-Version = 2", "query old style absent", "cookie plan matches ^gold"])
      await row.getByText(text, { exact: true }).waitFor();
    expect(await rowOf(page, "Routes", "list").innerText()).not.toContain("header");
    await page.getByLabel("Search routes").fill("X-Version = 3");
    await page.getByText("1 of 3 routes").waitFor();
    await page.getByRole("link", { name: "staff" }).click();
    await heading(page, "Route staff");
    await page.getByRole("link", { name: "Path", exact: true }).click();
    const listener = page.locator(".stage--listener");
    for (const text of [
      "header X-Version = 3",
      "header X-Staff-Token = ********",
      "query view = full text",
      "cookie seen present",
    ])
      await listener.getByText(text).waitFor();
    expect(await page.content()).not.toContain("open-sesame");
    await listener.click();
    await page.getByRole("region", { name: "Details of the stage" }).getByText("query view = full text").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    expect(errors).toEqual([]);
  });

  it(
    "can be tried with a request that meets their conditions, " +
      "and the page says which condition another request does not meet",
    async () => {
      const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
      await page.goto(`${managerUrl}#/routes/shop/staff`);
      await page.getByRole("main").getByRole("link", { name: "Try it" }).click();
      await heading(page, "Try it");
      const headers = page.getByLabel("Headers");
      await soon(() => Promise.all([page.getByLabel("Path and query").inputValue(), headers.inputValue()])).toEqual([
        "/shop/items?view=full+text",
        "X-Version: 3\nCookie: seen=1",
      ]);
      await page.getByRole("button", { name: "Explain" }).click();
      const candidates = page.getByRole("table", { name: "Candidates" });
      // The link holds no secret, so one condition is left.
      await candidates
        .locator("tr")
        .filter({ hasText: "staff" })
        .getByText(/X-Staff-Token/)
        .waitFor();
      await page.locator("main .notice").getByRole("link", { name: "list", exact: true }).waitFor();
      expect(await allFaultsOf(page)).toEqual([]);
      await headers.fill("X-Version: 3\nCookie: seen=1\nX-Staff-Token: open-sesame");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.locator("main .notice").getByRole("link", { name: "staff", exact: true }).waitFor();
      await page.locator(".stage--listener").getByText("header X-Version = 3").waitFor();
      // Only the fields that the page was opened with stay in its address.
      expect(page.url()).not.toContain("sesame");
    },
  );
});

describe("a service with a split", () => {
  it("has a row for each group with what it gets and what it got, and names the group of each upstream", async () => {
    const { page, url, managerUrl, errors } = await shared.openOverview(shop((await upstream()).port));
    await page.goto(`${managerUrl}#/services/shop?tab=path`);
    const [canary, beta, rest] = ["canary", "beta", "no group"].map((name) => rowOf(page, "Groups", name)) as [
      Locator,
      Locator,
      Locator,
    ];
    await canary.getByText("20 %, by request", { exact: true }).waitFor();
    await beta.getByText("100 %, by request, where cookie plan = beta", { exact: true }).waitFor();
    await rest.getByText("the rest, by weight", { exact: true }).waitFor();
    // Without traffic as configured, which also says how many requests fit the conditions: none is assumed.
    await expect.poll(() => canary.innerText()).toMatch(/1 of 1 usable\s+20 %/);
    // Each is drawn: none of 100 would be for the canary once in 10^9 runs.
    await requests(`${url}/shop/items`, 100);
    await expect
      .poll(() => Promise.all([canary, beta, rest].map((row) => row.innerText())))
      .toEqual([
        expect.stringMatching(/[1-9]\d? %\s+[\d.]+\s+0 %/),
        expect.stringMatching(/\s0 %\s+0\s/),
        expect.stringMatching(/[1-9]\d %\s+[\d.]+\s+0 %/),
      ]);
    await rowOf(page, "Upstreams", "new").getByText("canary", { exact: true }).waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.goto(`${managerUrl}#/upstreams`);
    await page.getByLabel("Search upstreams").fill("canary");
    await page.getByText("1 of 3 upstreams").waitFor();
    await page.getByRole("link", { name: "new" }).click();
    await heading(page, "Upstream new");
    await page.getByRole("link", { name: "Path", exact: true }).click();
    await page
      .getByRole("definition")
      .filter({ hasText: /^canary$/ })
      .waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    expect(errors).toEqual([]);
  });

  it(
    "shows its strategy with what it hashes on, its sticky cookie and its splits, " +
      "in the table and in the path of a request",
    async () => {
      const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
      await page.goto(`${managerUrl}#/services`);
      for (const text of ["on header X-Tenant", "sticky by till", "split to beta, canary"])
        await rowOf(page, "Services", "shop").getByText(text, { exact: true }).waitFor();
      await page.goto(`${managerUrl}#/routes/shop/list?tab=path`);
      const strategy = page.locator(".stage--strategy");
      for (const text of [
        "The same upstream for the same header X-Tenant",
        "Sticky by the cookie till",
        "100 % to beta where cookie plan = beta",
        "20 % to canary",
        "At most 125 % of the mean load",
      ])
        await strategy.getByText(text).waitFor();
      await page.locator(".stage--upstream").filter({ hasText: "new" }).getByText("canary", { exact: true }).waitFor();
      await strategy.click();
      await page
        .getByRole("definition")
        .filter({ hasText: "by the cookie till, until the browser is closed" })
        .waitFor();
      expect(await allFaultsOf(page)).toEqual([]);
    },
  );

  it("counts what is too much for a drawing, and has all of it in the details", async () => {
    const split = Array.from({ length: 8 }, (_, i) => ({
      group: "canary",
      percent: 1,
      match: { headers: { "X-Trial": `${i}` } },
    }));
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port, { split }));
    await page.goto(`${managerUrl}#/routes/shop/list?tab=path`);
    const strategy = page.locator(".stage--strategy");
    // A sticky cookie, two splits of the shop, eight more, and the balance factor.
    await strategy.getByText("and 6 more").waitFor();
    expect(await strategy.innerText()).not.toContain("X-Trial = 7");
    await strategy.click();
    await page.getByRole("definition").filter({ hasText: "1 % to canary where header X-Trial = 7" }).waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
  });

  it("sends a request that fits the conditions of a split to its group, as the page Try it says", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    // As written by hand: a link of the UI escapes the second question mark.
    await page.goto(`${managerUrl}#/try?url=/shop/items?x=1&headers=Cookie: plan=beta`);
    await expect.poll(() => page.getByLabel("Path and query").inputValue()).toBe("/shop/items?x=1");
    await page.getByRole("button", { name: "Explain" }).click();
    const part = (name: string) => page.locator(".stage--upstream").filter({ hasText: name });
    await part("try").getByText("100 % planned").waitFor();
    await part("new").getByText("0 % planned").waitFor();
    await part("try").getByText("beta", { exact: true }).waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
  });
});

describe("injected faults", () => {
  const FAULT = { name: "fault", config: { percent: 10, delay_ms: 200, status: 503 } };
  const HASHES = [
    "",
    "services",
    "services/shop",
    "routes",
    "routes/shop/list?tab=path",
    "upstreams",
    "upstreams/shop/old",
    "plugins",
    "try",
    "tests",
    "config",
    "no/page",
  ];

  it("are named above every page, with links that the keyboard reaches, until a reload ends them", async () => {
    const { port } = await upstream();
    const { page, file, managerUrl, errors } = await shared.openOverview(shop(port, { plugins: [FAULT] }));
    const banner = page.getByRole("status").filter({ hasText: "Faults are injected" });
    for (const hash of HASHES) {
      await page.goto(`${managerUrl}#/${hash}`);
      await banner.getByRole("link", { name: "route list of shop", exact: true }).waitFor();
      expect([hash, await allFaultsOf(page)]).toEqual([hash, []]);
    }
    await page.getByRole("link", { name: "Overview", exact: true }).click();
    await heading(page, "Overview");
    await banner.getByRole("link", { name: "route list of shop" }).focus();
    await page.keyboard.press("Enter");
    await heading(page, "Route list");
    await page.getByRole("link", { name: "Path", exact: true }).click();
    const stage = page.locator(".stage--plugin").filter({ hasText: "fault" });
    await stage.getByText("Injects faults", { exact: true }).waitFor();
    await stage.getByText("200 ms delay, then 503 for 10 % of requests").waitFor();
    replaced(file, JSON.stringify(shop(port, { plugins: [{ ...FAULT, enabled: false }] })));
    await page.goto(`${managerUrl}#/config`);
    await page.getByRole("button", { name: "Reload the file" }).click();
    await page.getByText("Reloaded.", { exact: true }).waitFor();
    await banner.waitFor({ state: "detached" });
    await page.goto(`${managerUrl}#/plugins`);
    await page.getByText("Off", { exact: true }).waitFor();
    expect(errors).toEqual([]);
  });

  it("are named place by place up to four, those of all services by the page of plugins", async () => {
    const many = shop((await upstream()).port);
    const routes = Array.from({ length: 4 }, (_, i) => ({
      name: `r${i}`,
      path: `/r${i}`,
      plugins: [FAULT, { ...FAULT, id: "again" }],
    }));
    const { page } = await shared.openOverview({
      global: { plugins: [FAULT] },
      services: [{ ...many.services[0]!, plugins: [FAULT], routes }],
    });
    const banner = page.getByRole("status").filter({ hasText: "Faults are injected" });
    await banner.getByText("2 more").waitFor();
    await soon(() => banner.locator("a").allInnerTexts()).toEqual([
      "all routes of all services",
      "all routes of shop",
      "route r0 of shop",
      "route r1 of shop",
      "2 more",
    ]);
    expect(await allFaultsOf(page)).toEqual([]);
  });
});

describe("a mirror", () => {
  it("shows the share that it copies and the address that it copies to", async () => {
    const mirror = {
      name: "mirror",
      config: { url: "http://copies.internal:8080/a-long-path/that-is-not-cut", percent: 5 },
    };
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port, { plugins: [mirror] }));
    await page.goto(`${managerUrl}#/routes/shop/list?tab=path`);
    await page
      .locator(".stage--plugin")
      .getByText("copies 5 % to http://copies.internal:8080/a-long-path/that-is-not-cut")
      .waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.goto(`${managerUrl}#/plugins`);
    await page.getByText("copies 5 % to http://copies.internal:8080/a-long-path/that-is-not-cut").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
  });
});
