/**
 * What the management UI shows of replies, plugins, secrets and reloads: as the gateway says it, at any width, and in
 * few bytes.
 */
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { soon, type Locator, type Page } from "./browser.ts";
import {
  allFaultsOf,
  heading,
  loaded,
  openOverview,
  replaced,
  resized,
  shareGateway,
  until,
  upstream,
} from "./manager_pages.ts";

const shared = shareGateway();

const KEY = { name: "key_auth", id: "door", config: { key: "under-the-mat" } };

/** A cache that is written outside of a guard, and a route for each refusal. */
function shop(port: number): AnyConfigInput {
  return {
    global: {
      plugins: [
        { name: "response_cache", config: {} },
        { name: "cors", config: { allow_origins: ["https://shop.example"] } },
      ],
    },
    services: [
      {
        ...{ name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port }] },
        routes: [
          { name: "open", path: "/open" },
          { name: "closed", path: "/closed", plugins: [KEY] },
          { name: "inside", path: "/inside", plugins: [{ name: "acl", config: { whitelist: ["10.0.0.0/8"] } }] },
        ],
      },
    ],
  };
}

async function requests(url: string, paths: readonly string[]): Promise<void> {
  for (const path of paths) await fetch(`${url}${path}`).then((response) => response.arrayBuffer());
}

/** A tile of the overview: its value and its note. */
function tile(page: Page, label: string): Locator {
  return page.locator(".stat").filter({ hasText: new RegExp(`^${label}`) });
}

describe("the page of a route", () => {
  it(
    "says why its requests fail, by code, plugin and upstream with the latest of them, which lead to Requests, " +
      "and has figures of its own requests alone",
    async () => {
      const failing = http.createServer((request, response) =>
        response.writeHead(request.url!.startsWith("/open") ? 200 : 502).end(),
      );
      failing.listen(0, "127.0.0.1");
      await once(failing, "listening");
      onTestFinished(() => void failing.close());
      const { port } = failing.address() as AddressInfo;
      const service = {
        ...{ name: "shop", base_path: "/shop", upstreams: [{ id: "till", host: "127.0.0.1", port }] },
        plugins: [KEY],
        health: { enabled: false, passive: { max_failures: 0 } },
        routes: ["open", "failing", "quiet"].map((name) => ({ name, path: `/${name}` })),
      };
      const { page, url, managerUrl, errors } = await openOverview(shared.browser, { services: [service] });
      const key = "?apiKey=under-the-mat";
      await requests(url, [`/shop/open${key}`, `/shop/open${key}`, "/shop/open", `/shop/failing${key}`]);
      await page.goto(`${managerUrl}#/routes/shop/failing?tab=failures`);
      const part = page.locator("section.part").filter({ hasText: /^Failures/ });
      await part.getByText("100 % of its 1 remembered requests got 5xx").waitFor();
      const hashOf = (name: string) => part.getByRole("link", { name, exact: true }).getAttribute("href");
      expect(await hashOf("as the upstream answered")).toBe(
        "#/requests?service=shop&route=failing&status=5xx&by=upstream",
      );
      expect(await hashOf("till")).toBe("#/requests?service=shop&route=failing&status=5xx&upstream=till");
      await part.getByText(/^GET \/shop\/failing 502 · upstream · till: 502 /).waitFor();
      expect(await allFaultsOf(page)).toEqual([]);
      await page.goto(`${managerUrl}#/routes/shop/open?tab=failures`);
      await part.getByText("33 % of its 3 remembered requests got 4xx").waitFor();
      expect(await hashOf("key_missing")).toBe("#/requests?service=shop&route=open&status=4xx&code=key_missing");
      const path = page.getByRole("link", { name: "Path", exact: true });
      await path.click();
      const stage = (kind: string) => soon(() => page.locator(`.stage--${kind}`).innerText());
      await stage("plugin").toContain("33 % answered here");
      await stage("upstream").toContain("67 % of the requests");
      // The same plugin and the same upstream, which other routes have used.
      await page.goto(`${managerUrl}#/routes/shop/quiet?tab=failures`);
      await part.getByText("None of its requests is remembered.").waitFor();
      await path.click();
      await stage("upstream").toMatch(/100 % planned/);
      expect(await page.locator(".stage--plugin").innerText()).not.toMatch(/answered| in$/m);
      expect(await page.locator(".stage--upstream").innerText()).not.toMatch(/\/s|p95/);
      expect(await allFaultsOf(page)).toEqual([]);
      expect(errors).toEqual([]);
    },
  );
});

describe("replies with 4xx", () => {
  it(
    "are shown by the overview, of the gateway and of requests without a route, " + "and by services and routes",
    async () => {
      const { page, url, managerUrl, errors } = await openOverview(shared.browser, shop((await upstream()).port));
      await requests(url, ["/shop/open", "/shop/closed", "/shop/inside", "/nowhere", "/none"]);
      await tile(page, "4xx")
        .getByText(/401\s[\d.]+\/s · 403\s[\d.]+\/s · 404\s[\d.]+\/s/)
        .waitFor();
      await tile(page, "4xx").getByText("80 %", { exact: true }).waitFor();
      await tile(page, "No route")
        .getByText(/4xx [\d.]+\/s \(404 [\d.]+\/s\)/)
        .waitFor();
      expect(await allFaultsOf(page)).toEqual([]);
      await page.goto(`${managerUrl}#/services`);
      const cell = (row: string) =>
        page
          .locator("tbody tr")
          .filter({ hasText: new RegExp(`^${row}`) })
          .locator('td[data-label="4xx"]');
      await cell("shop").getByText("67 %").waitFor();
      await page.goto(`${managerUrl}#/routes`);
      await cell("closed").getByText("100 %").waitFor();
      await cell("open").getByText("0 %").waitFor();
      await page.goto(`${managerUrl}#/routes/shop/inside`);
      await page.getByText(/^4xx [\d.]+\/s \(403 [\d.]+\/s\)$/).waitFor();
      expect(errors).toEqual([]);
    },
  );
});

describe("the overview", () => {
  it(
    "has the busiest, slowest and most failing routes with links to them, " + "and refusals by the gateway's codes",
    async () => {
      const { port, server } = await upstream();
      server
        .removeAllListeners("request")
        .on("request", (request, response) => void response.writeHead(request.url === "/fails" ? 500 : 200).end());
      const config = shop(port);
      const [service] = config.services;
      const { page, url, errors } = await openOverview(shared.browser, {
        ...config,
        services: [{ ...service!, routes: [...service!.routes, { name: "fails", path: "/fails" }] }],
      });
      const card = (title: string) => page.locator("section.card").filter({ hasText: new RegExp(`^${title}`) });
      await card("Busiest routes").getByText("No requests.").waitFor();
      await requests(url, [
        "/shop/open",
        "/shop/open",
        "/shop/open",
        "/shop/closed",
        "/shop/closed",
        "/shop/inside",
        "/shop/fails",
        "/nowhere",
      ]);
      await card("Most failing routes")
        .getByText(/^[\d.]+\/s · 100 %$/)
        .waitFor();
      // Of the last request: figures may have come before it.
      await card("Refusals by code").getByText("route_not_found").waitFor();
      await soon(() => card("Busiest routes").locator("a").allInnerTexts()).toEqual([
        "open",
        "closed",
        expect.stringMatching(/inside|fails/),
        expect.stringMatching(/inside|fails/),
      ]);
      await soon(() => card("Most failing routes").locator("a").allInnerTexts()).toEqual(["fails"]);
      await soon(() => card("Slowest routes").locator("a").count()).toBe(4);
      const refusals = async () => {
        const [first, ...others] = await card("Refusals by code").locator(".ranking__name").allInnerTexts();
        return [first, ...others.sort()];
      };
      await soon(refusals).toEqual(["key_missing", "forbidden", "route_not_found"]);
      expect(await allFaultsOf(page)).toEqual([]);
      await card("Most failing routes").getByRole("link", { name: "fails" }).click();
      await heading(page, "Route fails");
      expect(errors).toEqual([]);
    },
  );

  it("has charts that begin at the start of the gateway and show replies by class of status", async () => {
    const { page, url } = await openOverview(shared.browser, shop((await upstream()).port));
    const chart = page.locator("section.chart").filter({ hasText: /^Replies by status/ });
    await requests(url, ["/shop/open", "/shop/closed"]);
    await chart.getByText(/^2xx now [\d.]+\/s, peak [\d.]+\/s in 1 min\.$/).waitFor();
    await soon(() => chart.locator(".chart__key").allInnerTexts()).toEqual(
      ["2xx", "3xx", "4xx", "5xx"].map((name) => expect.stringMatching(new RegExp(`^${name}\\s*[\\d.]+/s$`)) as string),
    );
    // The line begins at the left end of the axis.
    await until(
      page,
      'document.querySelector(".chart__line").getAttribute("d")' +
        '.startsWith(`M${document.querySelector(".chart__grid").getAttribute("x1")} `)',
    );
  });

  it(
    "fills a window of 1920 pixels: tiles and charts stand in one row each, " + "and nothing is wider than the window",
    async () => {
      const { page } = await shared.openOverview(shop((await upstream()).port));
      await resized(page, 1920);
      const rows = (css: string) =>
        page.evaluate<number>(
          `new Set([...document.querySelectorAll(${JSON.stringify(css)})].map((each) ` +
            `=> Math.round(each.getBoundingClientRect().top))).size`,
        );
      await until(page, 'document.querySelectorAll(".rankings > *").length === 4');
      await soon(() => Promise.all([rows(".stats .stat"), rows(".charts > *"), rows(".rankings > *")])).toEqual([
        1, 1, 1,
      ]);
      await soon(() =>
        page.evaluate("innerWidth - document.querySelector('.charts').getBoundingClientRect().right"),
      ).toBeLessThan(60);
      await until(page, "document.documentElement.scrollWidth <= innerWidth");
    },
  );
});

describe("the path of a request", () => {
  it(
    "has the plugins in the order in which the gateway runs them: " +
      "a cache behind the guards, wherever it is written",
    async () => {
      const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
      await page.goto(`${managerUrl}#/routes/shop/closed?tab=path`);
      await page.locator(".stage--plugin").first().waitFor();
      await soon(() => page.locator(".stage--plugin .stage__name").allInnerTexts()).toEqual([
        "cors",
        "key_auth",
        "response_cache",
      ]);
      await soon(() => page.locator(".pipe__level").allInnerTexts()).toEqual(
        ["Global plugins", "Route plugins", "Global plugins"].map(
          (text) => expect.stringMatching(new RegExp(text, "i")) as string,
        ),
      );
      expect(await allFaultsOf(page)).toEqual([]);
    },
  );
});

describe("secrets", () => {
  it(
    "are never sent to a page that has not asked for them, " +
      "and a copy of the configuration is as the gateway masks it",
    async () => {
      const config = shop((await upstream()).port);
      const [service] = config.services;
      // Names that sound harmless: only the schemas know that their values may be secret.
      const plugins = [
        { name: "request_headers", config: { set: { "X-Team": "under-the-mat 2" } } },
        { name: "http_log", config: { http_endpoint: "http://127.0.0.1:9/under-the-mat/3" } },
        { name: "jwt", config: { alg: "RS256", jwks_uri: "http://127.0.0.1:9/keys?apikey=under-the-mat" } },
      ];
      const { page, managerUrl } = await shared.openOverview({ ...config, services: [{ ...service!, plugins }] });
      await page.evaluate(
        '(() => { const copied = (window.copied = []); Object.defineProperty(navigator, "clipboard", { value: ' +
          "{ writeText: async (text) => void copied.push(text) } }); })()",
      );
      for (const [hash, title] of [
        ["", "Overview"],
        ["services/shop", "Service shop"],
        ["routes/shop/closed", "Route closed"],
        ["plugins", "Plugins"],
        ["config", "Configuration"],
      ] as const) {
        await page.goto(`${managerUrl}#/${hash}`);
        await heading(page, title);
        await loaded(page);
        expect([hash, (await page.content()).includes("under-the-mat")]).toEqual([hash, false]);
      }
      await page.getByRole("button", { name: "Show secrets" }).click();
      await page.getByRole("button", { name: "Hide secrets" }).waitFor();
      await page.getByRole("button", { name: "Open all" }).click();
      await page.getByText('"under-the-mat"').first().waitFor();
      await page.getByRole("button", { name: "Copy" }).click();
      await page.getByText("Copied, with secrets masked.").waitFor();
      const [copy] = await page.evaluate<string[]>("window.copied");
      expect([copy!.includes("under-the-mat"), copy!.includes('"key": "********"')]).toEqual([false, true]);
      await page.getByRole("button", { name: "Hide secrets" }).click();
      await page.getByRole("button", { name: "Show secrets" }).waitFor();
      await soon(() => page.content()).not.toContain("under-the-mat");
    },
  );
});

describe("the page of the configuration", () => {
  it("drops the outcome of its reload once another one had another outcome", async () => {
    const config = shop((await upstream()).port);
    const { page, file, managerUrl } = await shared.openOverview(config);
    await page.goto(`${managerUrl}#/config`);
    await page.getByRole("button", { name: "Reload the file" }).click();
    await page.getByText("The configuration has not changed.").waitFor();
    replaced(file, "{");
    await page.getByText(/The last reload was refused/).waitFor();
    await page.getByText("The configuration has not changed.").waitFor({ state: "detached" });
    replaced(file, JSON.stringify(config));
    await page.getByRole("button", { name: "Reload the file" }).click();
    await page.getByText("The configuration has not changed.").waitFor();
    // The state is drawn with the next frame.
    await page.getByText(/The last reload was refused/).waitFor({ state: "detached" });
    await page.getByText("The configuration has not changed.").waitFor();
  });
});

describe("the page Try it", () => {
  it("shows no answer of an earlier request beside the error of a field", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    await page.goto(`${managerUrl}#/try`);
    await page.getByLabel("Path and query").fill("/shop/open");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByText("Handled by").waitFor();
    await page.getByLabel("Path and query").fill("no path");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByText("A path contains no spaces").waitFor();
    await soon(() => Promise.all([page.getByText("Handled by").count(), page.locator(".pipe").count()])).toEqual([
      0, 0,
    ]);
  });
});

describe("an address with the name of a service where a route or an upstream belongs", () => {
  it.each(["routes", "upstreams"])(
    "shows the service for #/%s/shop, and says what is wrong with further names",
    async (list) => {
      const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
      await page.goto(`${managerUrl}#/${list}/shop`);
      await heading(page, "Service shop");
      await page.goto(`${managerUrl}#/${list}/shop/a/b`);
      await page.getByText("There is no page at this address.").waitFor();
    },
  );
});

describe("tables", () => {
  it(
    "leave out columns in a window of 1024 pixels, and become cards of all columns in one of 360, " +
      "never wider than the window",
    async () => {
      const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
      const columns = () =>
        page.evaluate<string[]>(
          '[...document.querySelectorAll("table[role=table] thead th")].filter((each) ' +
            "=> each.offsetWidth > 0).map((each) => each.textContent)",
        );
      const isTable = () =>
        page.evaluate<boolean>(
          'getComputedStyle(document.querySelector("table[role=table] tbody tr")).display === "table-row"',
        );
      for (const hash of ["services", "routes", "upstreams", "plugins"]) {
        await page.goto(`${managerUrl}#/${hash}`);
        await heading(page, `${hash.charAt(0).toUpperCase()}${hash.slice(1)}`);
        // The page Plugins has small tables beside it.
        await page.locator("table[role=table] tbody tr").first().waitFor();
        await resized(page, 1700);
        const all = await columns();
        for (const [width, table] of [
          [1024, true],
          [360, false],
        ] as const) {
          await resized(page, width);
          await expect.poll(async () => [hash, width, await isTable()]).toEqual([hash, width, table]);
          await until(
            page,
            "document.documentElement.scrollWidth <= innerWidth && " +
              "[...document.querySelectorAll('.table-wrap')].every((wrap) => wrap.scrollWidth <= wrap.clientWidth)",
          );
          const shown = await columns();
          if (table) expect(all).toEqual(expect.arrayContaining(shown));
          else expect(shown).toEqual(all);
          expect(shown.length, `${hash}: ${shown}`).toBeGreaterThan(4);
        }
      }
    },
  );
});

describe("a second visit", () => {
  it("revalidates the page alone, and loads no script again", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    const loaded = () =>
      page.evaluate<{ name: string; bytes: number }[]>(
        'performance.getEntriesByType("resource").map(({ name, transferSize }) => ({ name, bytes: transferSize }))',
      );
    const files = async () => (await loaded()).filter(({ name }) => /\.(?:js|css|svg)$/.test(name));
    expect((await files()).length).toBeGreaterThan(20);
    await page.goto("about:blank");
    await page.goto(managerUrl!);
    await heading(page, "Overview");
    expect((await files()).filter(({ bytes }) => bytes > 0)).toEqual([]);
  });
});
