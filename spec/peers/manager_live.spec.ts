/**
 * What the management UI shows as it happens: charts of services, routes and upstreams, the tail of the access log,
 * threads and plugins.
 */
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { launch, soon, type Browser } from "./browser.ts";
import {
  allFaultsOf,
  heading,
  openLogin,
  openOverview,
  remembered,
  replaced,
  signIn,
  until,
  upstream,
} from "./manager_pages.ts";
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
      await until(page, 'document.querySelector("[aria-pressed=true]")?.textContent === "A day"');
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

/** Sent as bytes: fetch would encode the path. */
function raw(url: string, path: string, agent: string): Promise<void> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () =>
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nUser-Agent: ${agent}\r\nConnection: close\r\n\r\n`),
    );
    socket
      .on("error", reject)
      .on("close", () => resolve())
      .resume();
  });
}

describe("the tail", () => {
  it(
    "shows requests as they end, by filters that are in the address, pauses, and links to their routes; " +
      "what clients send stays text",
    async () => {
      const { page, url, managerUrl, errors } = await openOverview(browser, shop((await upstream()).port, "more"), {
        environment: { WORKERS: "2" },
        node: nodeOf(24),
      });
      await page.goto(`${managerUrl}#/tail`);
      await page.getByText("Waiting for requests…").waitFor();
      // The stream may open later than the page is there.
      const rows = () => page.evaluate<number>('document.querySelectorAll("main tbody tr").length');
      await expect
        .poll(async () => {
          await raw(url, "/shop/open?key=hush", "spec");
          return rows();
        })
        .toBeGreaterThan(0);
      await raw(url, "/shop/more/<img/src=x/onerror=window.broken=1>", "<img src=x onerror=window.broken=1>");
      await page.getByText("/shop/more/<img/src=x/onerror=window.broken=1>").first().waitFor();
      expect(
        await page.evaluate(
          "[window.broken === undefined, document.querySelectorAll('main img').length, " +
            "document.body.innerText.includes('hush')]",
        ),
      ).toEqual([true, 0, false]);
      expect(await allFaultsOf(page)).toEqual([]);
      await page.getByLabel("Path has").fill("/shop/open");
      await until(
        page,
        'location.hash === "#/tail?path=%2Fshop%2Fopen" && document.querySelectorAll("main tbody tr").length === 0',
      );
      await expect
        .poll(async () => {
          await raw(url, "/shop/more", "spec");
          await raw(url, "/shop/open", "spec");
          return rows();
        })
        .toBeGreaterThan(0);
      expect(
        await page
          .locator("main td .mono")
          .allInnerTexts()
          .then((paths) => [...new Set(paths)]),
      ).toEqual(["/shop/open"]);
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByText("Paused.").waitFor();
      const before = await rows();
      await raw(url, "/shop/open", "spec");
      await page.getByRole("button", { name: "Go on" }).click();
      await page.getByText("Waiting for requests…").waitFor();
      expect(await rows()).toBe(before);
      await page.locator("main tbody a").first().click();
      await heading(page, "Route open");
      expect(await page.getByRole("main").getByRole("link", { name: "Requests" }).getAttribute("href")).toBe(
        "#/requests?service=shop&route=open",
      );
      expect(errors).toEqual([]);
    },
  );
});

describe("one request", () => {
  it(
    "is found by its id from every page and from its line of the tail, by viewers too, " +
      "and what clients send stays text",
    async () => {
      const { port } = await upstream();
      const config = shop(port, "more");
      const down = {
        name: "down",
        base_path: "/down",
        upstreams: [{ id: "gone", host: "127.0.0.1", port: 1 }],
        routes: [{ name: "r", path: "/" }],
        plugins: [{ name: "key_auth", config: { key: "under-the-mat" } }],
      };
      const environment = {
        ADMIN_VIEWER_USER: "eve",
        ADMIN_VIEWER_PASSWORD: "only-looking",
        MANAGER_TRACE_URL: 'https://t.example/?q="{trace_id}"&b=<i>#{trace_id}',
      };
      const { page, url, managerUrl, adminUrl, file, errors } = await openLogin(
        browser,
        { global: { trusted_proxies: ["127.0.0.1"] }, services: [...config.services, down as never] },
        { environment },
      );
      await signIn(page, "only-looking", "eve");
      await heading(page, "Overview");
      errors.splice(0);
      const get = async (path: string, id: string, headers = {}) => {
        await fetch(`${url}${path}`, { headers: { "X-Request-Id": id, ...headers } }).then((response) =>
          response.arrayBuffer(),
        );
        await remembered(adminUrl, id);
      };
      const search = async (id: string) => {
        await page.getByLabel("Request id").fill(id);
        await page.getByLabel("Request id").press("Enter");
      };
      // An id may have any of these characters.
      await get("/shop/more?key=hush", "a/b:C+d=@.-");
      await search("  a/b:C+d=@.- ");
      await heading(page, "Request a/b:C+d=@.-");
      await page.getByText(`The upstream 127.0.0.1:${port} answered 200.`, { exact: true }).waitFor();
      await page.locator("main").getByText("In force", { exact: true }).waitFor();
      expect(await page.locator("main tbody tr").allInnerTexts()).toEqual([
        expect.stringMatching(new RegExp(`^127\\.0\\.0\\.1:${port}\\s+200\\s`)),
      ]);
      expect(
        await page.evaluate(
          "[document.body.innerText.includes('/shop/more'), document.body.innerText.includes('hush')]",
        ),
      ).toEqual([true, false]);
      expect(await allFaultsOf(page)).toEqual([]);
      replaced(
        file,
        JSON.stringify({ global: { trusted_proxies: ["127.0.0.1"] }, services: [...config.services, down], tests: [] }),
      );
      await page.locator("main").getByText("No longer in force").waitFor();
      await page.locator("main").getByRole("link", { name: "more" }).click();
      await heading(page, "Route more");
      for (const [id, headers, said] of [
        ["refused", {}, "The plugin key_auth answered 401 key_missing."],
        ["failed", { apiKey: "under-the-mat" }, "The gateway itself answered 502 upstream_connect_failed."],
      ] as const) {
        await get("/down", id, headers);
        await search(id);
        await heading(page, `Request ${id}`);
        await page.getByText(said).waitFor();
        if (id === "refused") await page.locator("main").getByRole("link", { name: "plugins.key_auth" }).waitFor();
      }
      await until(
        page,
        'document.querySelector("main tbody tr")?.innerText.replace(/\\s+/g, " ").startsWith("gone no response")',
      );
      for (const id of [
        "REFUSED",
        "<img src=x onerror=window.broken=1>",
        "..",
        "a//b",
        "a/../refused",
        "%",
        "a?b#c",
        "\u202e",
        "x".repeat(5000),
      ]) {
        await search(id);
        await until(
          page,
          `document.querySelector("h1").textContent === ${JSON.stringify(`Request ${id}`)} && ` +
            `document.querySelector("main .notice") !== null`,
        );
        expect(await page.locator("main .notice").innerText()).toMatch(
          new RegExp(
            String.raw`^No request with this id is remembered\. The latest 10,000 requests of all ` +
              String.raw`workers are remembered, as global\.decisions says[^]*Ids are compared ` +
              String.raw`exactly`,
          ),
        );
      }
      expect(
        await page.evaluate("[window.broken === undefined, document.querySelectorAll('main img').length]"),
      ).toEqual([true, 0]);
      expect(await allFaultsOf(page)).toEqual([]);
      await search("later");
      await heading(page, "Request later");
      await page.getByRole("button", { name: "Look again" }).waitFor();
      await get("/nowhere", "later");
      await page.getByRole("button", { name: "Look again" }).click();
      await page.getByText("The gateway itself answered 404 route_not_found.").waitFor();
      await search(" ");
      await heading(page, "Requests");
      await page.goto(`${managerUrl}#/tail`);
      await page.getByText("Waiting for requests…").waitFor();
      const line = page.getByRole("link", { name: "tail-lon…" });
      const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
      await expect
        .poll(async () => {
          await get("/nowhere", "tail-long-id", { traceparent: `00-${trace}-00f067aa0ba902b7-01` });
          return line.count();
        })
        .toBeGreaterThan(0);
      const traceLinks = page.getByRole("link", { name: "Trace 4bf92f35…" });
      const attributes = ["href", "target", "rel"].map((name) => traceLinks.first().getAttribute(name));
      expect(await Promise.all(attributes)).toEqual([
        `https://t.example/?q="${trace}"&b=<i>#${trace}`,
        "_blank",
        "noopener noreferrer",
      ]);
      await line.first().click();
      await heading(page, "Request tail-long-id");
      await page.getByText("The gateway itself answered 404 route_not_found.").waitFor();
      await page.getByText("No upstream was asked.").waitFor();
      // Unknown ones were answered with 404, which the browser reports.
      expect(errors.filter((each) => !each.includes("404"))).toEqual([]);
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
