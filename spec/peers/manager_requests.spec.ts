/**
 * The page Requests of the management UI: the list, its filters and its live switch, and one request beside the list.
 */
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { launch, soon, type Browser, type Page } from "./browser.ts";
import {
  allFaultsOf,
  heading,
  openLogin,
  openOverview,
  remembered,
  replaced,
  resized,
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
  global: { trusted_proxies: ["127.0.0.1"] },
  services: [
    {
      name: "shop",
      base_path: "/shop",
      upstreams: [{ host: "127.0.0.1", port }],
      routes: ["open", ...routes].map((name) => ({ name, path: `/${name}` })),
    },
  ],
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

/** Paths of the rows, the newest first. */
const paths = (page: Page) => page.locator("main td .mono").allInnerTexts();
const opened = (page: Page, id: string) =>
  until(page, `document.querySelector("main h2")?.textContent === ${JSON.stringify(`Request ${id}`)}`);

describe("the list of requests", () => {
  it(
    "has what was remembered, the newest first, by filters that are in the address and that are offered, " +
      "and what clients send stays text",
    async () => {
      const { page, url, managerUrl, adminUrl, errors } = await openOverview(
        browser,
        shop((await upstream()).port, "more"),
        {
          environment: { WORKERS: "2" },
          node: nodeOf(24),
        },
      );
      const evil = "/shop/more/<img/src=x/onerror=window.broken=1>";
      await raw(url, "/shop/open?key=hush", "spec");
      await raw(url, evil, "<img src=x onerror=window.broken=1>");
      for (let i = 0; i < 3; i++) await fetch(`${url}/shop/more`, { headers: { "X-Request-Id": `m${i}` } });
      await remembered(adminUrl, "m2");
      await page.getByRole("link", { name: "Requests", exact: true }).first().click();
      await heading(page, "Requests");
      await soon(() => paths(page)).toEqual([
        ...Array.from({ length: 3 }, () => "GET /shop/more"),
        `GET ${evil}`,
        "GET /shop/open",
      ]);
      await page.getByText(/^5 of the latest 5 requests, since /).waitFor();
      await page.getByText(/^Over time: 4 2xx, 1 4xx\. At most \d in 1 s, at /).waitFor();
      expect(
        await page.evaluate(
          "[window.broken === undefined, document.querySelectorAll('main img').length, " +
            "document.body.innerText.includes('hush')]",
        ),
      ).toEqual([true, 0, false]);
      expect(await allFaultsOf(page)).toEqual([]);
      // Counted choices are buttons; those of a filter that is set are still there.
      await page.getByRole("button", { name: "4xx 1" }).press("Enter");
      await until(
        page,
        'location.hash === "#/requests?status=4xx" && document.querySelectorAll("main tbody tr").length === 1',
      );
      await until(
        page,
        'document.activeElement.textContent === "4xx 1" && document.activeElement.ariaPressed === "true"',
      );
      await page.getByRole("button", { name: "2xx 4" }).click();
      await until(
        page,
        'location.hash === "#/requests?status=4xx%2C2xx" && document.querySelectorAll("main tbody tr").length === 5',
      );
      await page.getByLabel("Route", { exact: true }).fill("more");
      await until(
        page,
        'location.hash.includes("route=more") && document.querySelectorAll("main tbody tr").length === 3',
      );
      const offered =
        'Array.from(document.querySelector("#requests-route").list.options, ({ value }) => value).sort().join()';
      await until(page, `${offered} === "more,open"`);
      await page.getByLabel("Status", { exact: true }).fill("9xx");
      await page.getByText(/^"status" must be a status \(404\), a class of statuses \(4xx\), or none/).waitFor();
      await page.goto(`${managerUrl}#/requests?path=%2Fshop%2Fopen&max_ms=60000`);
      await soon(() => paths(page)).toEqual(["GET /shop/open"]);
      expect(await page.getByLabel("Took at most, ms").inputValue()).toBe("60000");
      // A bar is pressed by keyboard: its time alone, in the address; one key brings all back.
      await page.goto(`${managerUrl}#/requests?status=2xx`);
      const bar = page.getByRole("button", { name: /, \d+ s: \d 2xx$/ }).first();
      await bar.focus();
      await page.keyboard.press("Enter");
      await until(page, "/^#.requests.status=2xx&since=2[^&]+Z&until=2[^&]+Z$/.test(location.hash)");
      await page.getByText(/^[1-4] of the latest [1-5] requests, since /).waitFor();
      expect(await page.getByLabel("Ended before").inputValue()).toMatch(/^2.*Z$/);
      expect(await allFaultsOf(page)).toEqual([]);
      await page.getByRole("button", { name: "Show all times" }).press("Enter");
      await until(page, 'location.hash === "#/requests?status=2xx"');
      await page.getByText(/^4 of the latest 5 requests, since /).waitFor();
      // Refused filters were answered with 400, which the browser reports.
      expect(errors.filter((each) => !each.includes("400"))).toEqual([]);
    },
  );

  it(
    "follows what ends while it is switched on, stands still under the pointer, " + "and Back finds it as it was",
    async () => {
      const { page, url, managerUrl, errors } = await openOverview(browser, shop((await upstream()).port, "more"));
      // An address of before.
      await page.goto(`${managerUrl}#/tail?service=shop&route=open`);
      await until(page, 'location.hash === "#/requests?service=shop&route=open&live=1"');
      await page.getByText(/^0 remembered requests\.$|^0 of /).waitFor();
      const rows = () => page.locator("main tbody tr").count();
      // The stream may open later than the page is there.
      await expect
        .poll(async () => {
          await raw(url, "/shop/more", "spec");
          await raw(url, "/shop/open", "spec");
          return rows();
        })
        .toBeGreaterThan(1);
      expect(new Set(await paths(page))).toEqual(new Set(["GET /shop/open"]));
      await page.locator("main tbody tr a").first().focus();
      const before = await rows();
      await raw(url, "/shop/open", "spec");
      await page.getByRole("button", { name: /^Show \d+ new$/ }).waitFor();
      expect(await rows()).toBe(before);
      await page.getByRole("button", { name: /^Show \d+ new$/ }).press("Enter");
      await expect.poll(rows).toBeGreaterThan(before);
      await page.getByRole("button", { name: "Follow live" }).click();
      await until(page, 'location.hash === "#/requests?service=shop&route=open"');
      const kept = await rows();
      await raw(url, "/shop/open", "spec");
      const id = await page.locator("main tbody tr").first().getAttribute("data-id");
      await page.locator("main tbody tr a").first().press("Enter");
      await opened(page, id!);
      await until(page, 'location.hash.endsWith("?service=shop&route=open")');
      await page.locator("main dl").getByRole("link", { name: "open", exact: true }).click();
      await heading(page, "Route open");
      await page.goBack();
      await opened(page, id!);
      expect(await rows()).toBe(kept);
      await page.locator("main h2").first().press("Escape");
      await until(
        page,
        `document.activeElement.title === ${JSON.stringify(id)} && document.querySelector("main h2") === null`,
      );
      expect(await rows()).toBe(kept);
      await until(page, 'location.hash === "#/requests?service=shop&route=open"');
      expect(errors).toEqual([]);
    },
  );

  it("goes on to older requests, and is led to by the failures of a route and of a service", async () => {
    const { page, url, managerUrl, adminUrl, errors } = await openOverview(browser, {
      ...shop((await upstream()).port),
      services: [{ ...shop(1).services[0]!, upstreams: [{ host: "127.0.0.1", port: 1 }] }],
    });
    for (let i = 0; i < 103; i++)
      await fetch(`${url}/shop/open`, { headers: { "X-Request-Id": `f${i}` } }).then((response) =>
        response.arrayBuffer(),
      );
    await remembered(adminUrl, "f102");
    await page.goto(`${managerUrl}#/services/shop?tab=failures`);
    await page.getByRole("link", { name: "All 103" }).waitFor();
    await page.goto(`${managerUrl}#/routes/shop/open?tab=failures`);
    await page.getByRole("link", { name: "All 103" }).click();
    await heading(page, "Requests");
    await until(
      page,
      'location.hash === "#/requests?service=shop&route=open&status=5xx" ' +
        '&& document.querySelectorAll("main tbody tr").length === 100',
    );
    await page.getByRole("button", { name: "Show older" }).press("Enter");
    await until(
      page,
      'document.querySelectorAll("main tbody tr").length === 103 && document.activeElement.title === "f2"',
    );
    await until(
      page,
      'document.querySelector("main button:not([hidden])") ' +
        '!== null && !/Show older/.test(document.querySelector("main").innerText)',
    );
    await resized(page, 360);
    expect(await allFaultsOf(page)).toEqual([]);
    await page.locator("main tbody tr a").first().click();
    await page.getByText("The gateway itself answered 502 upstream_connect_failed.").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.getByRole("button", { name: "Close" }).click();
    await until(
      page,
      'document.querySelectorAll("main tbody tr").length === 103 && document.querySelector("main h2") === null',
    );
    expect(errors).toEqual([]);
  });
});

describe("a request of a caller", () => {
  it("says who it was and what is left of its limits, and leads to all requests of that caller", async () => {
    const long = `https://issuer.example/${"x".repeat(60)}`;
    const [service] = shop((await upstream()).port).services;
    const plugins = [
      { name: "key_auth", config: { callers: true } },
      { name: "rate_limit", config: { limit_hour: 60, limit_by: "credential" } },
    ];
    const { page, url, managerUrl, adminUrl, errors } = await openOverview(browser, {
      ...shop(1),
      callers: [
        { id: "ada", keys: [{ key: "a-key-of-ada-that-is-long" }] },
        { id: long, keys: [{ key: "another-key-that-is-long" }] },
      ],
      services: [{ ...service!, plugins }],
    } as never);
    for (const [id, apiKey] of [
      ["r-1", "a-key-of-ada-that-is-long"],
      ["r-2", "another-key-that-is-long"],
    ] as const) {
      await fetch(`${url}/shop/open`, { headers: { "X-Request-Id": id, apiKey } }).then((got) => got.arrayBuffer());
      await remembered(adminUrl, id);
    }
    await page.goto(`${managerUrl}#/requests`);
    // Ids of callers of any length stay in their column.
    await page
      .getByText(/^https:\/\/issuer\.example\/x+…$/)
      .first()
      .waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.locator('main tr[data-id="r-1"]').click();
    await page.getByText("The caller has left now 59 of 60 per hour (rate_limit).").waitFor();
    await soon(() => page.locator("main ol li").allInnerTexts()).toEqual([
      // Those that took 0.1 ms or more say how long, and when.
      expect.stringMatching(/^key_auth\s+service\s+let it pass(\s+[\d.]+ ms\s+after [\d.]+ ms)?$/),
      expect.stringMatching(/^rate_limit\s+service\s+let it pass(\s+[\d.]+ ms\s+after [\d.]+ ms)?$/),
      expect.stringMatching(/\s200\s+[\d.]+ ms\s+after [\d.]+ ms$/),
      expect.stringMatching(/^All else/),
    ]);
    await page.getByRole("link", { name: "Requests of this caller" }).click();
    await until(
      page,
      'location.hash === "#/requests?caller=ada" && document.querySelectorAll("main tbody tr").length === 1',
    );
    expect(errors).toEqual([]);
  });
});

describe("one request", () => {
  it(
    "is found by its id from every page and from its row in the list, by viewers too, " +
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
        { ...config, services: [...config.services, down as never] },
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
      const search = (id: string) => page.goto(`${managerUrl}#/requests/${encodeURIComponent(id)}`);
      // An id may have any of these characters.
      await get("/shop/more?key=hush", "a/b:C+d=@.-");
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox", { name: "Go to" }).fill("  a/b:C+d=@.- ");
      await page.getByRole("option", { name: "a/b:C+d=@.- by its id Request" }).waitFor();
      await page.keyboard.press("Enter");
      await opened(page, "a/b:C+d=@.-");
      await page.getByText(`The upstream 127.0.0.1:${port} answered 200.`, { exact: true }).waitFor();
      await page.locator("main").getByText("In force", { exact: true }).waitFor();
      await soon(() => page.locator("main ol li").allInnerTexts()).toEqual([
        expect.stringMatching(new RegExp(`^127\\.0\\.0\\.1:${port}\\s+200\\s`)),
        expect.stringMatching(/^All else: waiting, sending\s/),
      ]);
      const again = page.locator("main").getByRole("link", { name: "Try it" });
      expect(await again.getAttribute("href")).toMatch(
        /^#\/try\?method=GET&url=http%3A%2F%2F127\.0\.0\.1%3A\d+%2Fshop%2Fmore&clientIp=127\.0\.0\.1$/,
      );
      await page.getByText(/^curl -i 'http:\/\/127\.0\.0\.1:\d+\/shop\/more'$/).waitFor();
      expect(
        await page.evaluate(
          "[document.body.innerText.includes('/shop/more'), document.body.innerText.includes('hush')]",
        ),
      ).toEqual([true, false]);
      expect(await allFaultsOf(page)).toEqual([]);
      replaced(file, JSON.stringify({ ...config, services: [...config.services, down], tests: [] }));
      await page.locator("main").getByText("No longer in force").waitFor();
      await page.locator("main dl").getByRole("link", { name: "more", exact: true }).click();
      await heading(page, "Route more");
      for (const [id, headers, said] of [
        ["refused", {}, "The plugin key_auth answered 401 key_missing."],
        ["failed", { apiKey: "under-the-mat" }, "The gateway itself answered 502 upstream_connect_failed."],
      ] as const) {
        await get("/down", id, headers);
        await search(id);
        await opened(page, id);
        await page.getByText(said).waitFor();
        if (id !== "refused") continue;
        await page.locator("main").getByRole("link", { name: "plugins.key_auth" }).waitFor();
        await page.locator("main ol").getByText("answered 401 key_missing").waitFor();
      }
      await until(
        page,
        'document.querySelectorAll("main ol li")[1]?.innerText.replace(/\\s+/g, " ").startsWith("gone no response")',
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
          `document.querySelector("main h2")?.textContent === ${JSON.stringify(`Request ${id}`)} && ` +
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
      await opened(page, "later");
      await page.getByRole("button", { name: "Look again" }).waitFor();
      await get("/nowhere", "later");
      await page.getByRole("button", { name: "Look again" }).click();
      await page.getByText("The gateway itself answered 404 route_not_found.").waitFor();
      await page.goto(`${managerUrl}#/requests?live=1&path=%2Fnowhere`);
      const line = page.locator('main tr[data-id="line-long-id"] a');
      const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
      await expect
        .poll(async () => {
          await get("/nowhere", "line-long-id", { traceparent: `00-${trace}-00f067aa0ba902b7-01` });
          return line.count();
        })
        .toBeGreaterThan(0);
      await line.first().click();
      await opened(page, "line-long-id");
      const traceLink = page.getByRole("link", { name: "Trace" });
      const attributes = ["href", "target", "rel"].map((name) => traceLink.getAttribute(name));
      expect(await Promise.all(attributes)).toEqual([
        `https://t.example/?q="${trace}"&b=<i>#${trace}`,
        "_blank",
        "noopener noreferrer",
      ]);
      await page.getByText("The gateway itself answered 404 route_not_found.").waitFor();
      await page.getByText("No upstream was asked.").waitFor();
      // Unknown ones were answered with 404, which the browser reports.
      expect(errors.filter((each) => !each.includes("404"))).toEqual([]);
    },
  );
});
