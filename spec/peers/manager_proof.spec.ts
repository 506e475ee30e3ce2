/**
 * The proof of a configuration as people meet it in the management UI: warnings, tests, and what a request would meet.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { soon, type Page } from "./browser.ts";
import { allFaultsOf, heading, openIncidents, replaced, shareGateway, upstream } from "./manager_pages.ts";

const shared = shareGateway({ ADMIN_WRITE: "true" });

const KEY = { name: "key_auth", config: { key: "under-the-mat" } };

/**
 * Routes with a key, with a service that decides, with a limit by a header that any client can choose, and a guard that
 * it bypasses.
 */
function shop(port: number, tests: AnyConfigInput["tests"] = []): AnyConfigInput {
  return {
    services: [
      {
        ...{ name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port }] },
        routes: [
          {
            name: "list",
            path: "/items",
            methods: ["GET"],
            plugins: [KEY, { name: "rate_limit", config: { limit_second: 50 } }],
          },
          {
            name: "cart",
            path: "/cart",
            plugins: [{ name: "forward_auth", config: { url: "http://127.0.0.1:1/check" } }],
          },
          {
            name: "search",
            path: "/search",
            plugins: [{ name: "rate_limit", config: { limit_second: 50, limit_by: "header:X-Tenant" } }],
          },
          { name: "rest", path: "/{rest*}", plugins: [KEY] },
        ],
      },
    ],
    tests,
  };
}

/** The texts that a page has copied, whatever the browser's clipboard allows. */
async function watchClipboard(page: Page, clipboard: "there" | "missing"): Promise<() => Promise<string[]>> {
  const api = clipboard === "there" ? "{ writeText: async (text) => void copied.push(text) }" : "undefined";
  // A browser copies the selection of the focused field.
  const onCopy =
    "() => copied.push(document.activeElement.value.slice(document.activeElement.selectionStart, " +
    "document.activeElement.selectionEnd))";
  await page.evaluate(
    `(() => { const copied = (window.copied = []); document.addEventListener("copy", ${onCopy}); ` +
      `Object.defineProperty(navigator, "clipboard", { value: ${api} }); })()`,
  );
  return () => page.evaluate("window.copied");
}

describe("warnings", () => {
  it(
    "are shown on the overview, and beside the route and the service that they " + "are about, with the remedy",
    async () => {
      const { page, file, errors } = await shared.openOverview(JSON.stringify(shop((await upstream()).port), null, 2));
      const warning = page.locator("li").filter({ hasText: "limit_by_any_header" });
      await openIncidents(page);
      await warning.filter({ hasText: "X-Tenant" }).waitFor();
      await warning.getByRole("link", { name: "Route search" }).click();
      await heading(page, "Route search");
      await warning.filter({ hasText: "Remedy: " }).waitFor();
      await page.getByRole("link", { name: "Routes" }).first().click();
      await heading(page, "Routes");
      const rows = page.locator("tbody tr");
      await rows.filter({ hasText: "search" }).getByText("1 warning").waitFor();
      expect(await rows.filter({ hasText: "list" }).getByText("1 warning").isVisible()).toBe(false);
      await page.getByRole("link", { name: "Services" }).click();
      await heading(page, "Services");
      await rows.filter({ hasText: "shop" }).getByText("3 warnings").waitFor();
      await page.getByRole("link", { name: "shop" }).click();
      await heading(page, "Service shop");
      await warning.waitFor();
      const bypass = page.locator("li").filter({ hasText: "guard_bypassed:services.shop.routes.rest" });
      await soon(() => bypass.locator("code").first().textContent()).toMatch(
        /^GET http:\/\/[^/]+\/shop\/(?:cart|search)$/,
      );
      expect(await allFaultsOf(page)).toEqual([]);
      const place = warning.getByRole("link", { name: /^line \d+$/ });
      const line = Number((await place.textContent())!.slice("line ".length));
      // The plugin begins there.
      expect(
        readFileSync(file, "utf8")
          .split("\n")
          .slice(line - 1, line + 1)
          .map((each) => each.trim()),
      ).toEqual(["{", '"name": "rate_limit",']);
      const hash = await place.getAttribute("href");
      await place.click();
      await heading(page, "Edit");
      const lineOfCaret = () =>
        page.evaluate(
          "document.querySelector('textarea').value.slice(0, " +
            "document.querySelector('textarea').selectionStart).split('\\n').length",
        );
      await soon(lineOfCaret).toBe(line);
      // The text of somebody who has edited it meanwhile has other lines.
      await page.locator("textarea").first().press("Enter");
      await page.goBack();
      await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
      await page
        .getByText(`This text is not the one that had services.shop.routes.search.plugins.rate_limit in line ${line}`)
        .waitFor();
      expect(errors).toEqual([]);
    },
  );
});

describe("the page Tests", () => {
  const PASSES = {
    name: "the list needs a key",
    request: { url: "/shop/items" },
    expect: { status: 401 as const, code: "key_missing" },
  };
  const FAILS = {
    name: "the search needs a key",
    request: { url: "/shop/search" },
    expect: { status: 401 as const, headers: { "WWW-Authenticate": { matches: "^Key" } } },
  };

  it("says what a test is if the configuration has none", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    await page.goto(`${managerUrl}#/tests`);
    await page.getByText("The configuration has no tests.").waitFor();
    await page.getByRole("main").getByRole("link", { name: "Try it" }).waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.getByRole("link", { name: "Add a test" }).click();
    await heading(page, "Add a test");
  });

  it(
    "shows the tests that refused a reload, what they expected and what they found, " +
      "and the run after the correction",
    async () => {
      const { port } = await upstream();
      const { page, file, managerUrl } = await shared.openOverview(shop(port, [PASSES]));
      await page.getByRole("link", { name: "1 passed" }).click();
      await page.getByText("1 test passed.").waitFor();
      replaced(file, JSON.stringify(shop(port, [PASSES, FAILS])));
      await page.goto(`${managerUrl}#/config`);
      await page.getByRole("button", { name: "Reload the file" }).click();
      await page.getByText("Refused.", { exact: true }).waitFor();
      await page.getByText('"the search needs a key" failed: status: expected 401, found 200').first().waitFor();
      await page.getByRole("link", { name: "1 failed, 1 passed" }).click();
      await page.getByText("1 of 2 tests failed.").waitFor();
      await page.getByText("The reload was refused, and the gateway keeps its current configuration.").waitFor();
      // The watcher of the file reloads it, too, and the list is drawn again.
      await expect
        .poll(() => page.locator("li summary strong").allInnerTexts())
        .toEqual(["the search needs a key", "the list needs a key"]);
      const rows = async () =>
        (await page.locator("li details[open] tbody tr").allInnerTexts()).map((text) => text.split(/\s+/).join(" "));
      await expect.poll(rows).toEqual(["status differs 401 200", "headers.WWW-Authenticate differs matches ^Key none"]);
      expect(await allFaultsOf(page)).toEqual([]);
      replaced(file, JSON.stringify(shop(port, [PASSES, { ...FAILS, expect: { status: 200 } }])));
      await page.goto(`${managerUrl}#/config`);
      await page.getByRole("button", { name: "Reload the file" }).click();
      await page.getByRole("link", { name: "2 passed" }).click();
      await page.getByText("2 tests passed.").waitFor();
    },
  );

  it("finds a test among many", async () => {
    const many = Array.from({ length: 120 }, (_, i) => ({ ...PASSES, name: `test ${i}` }));
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port, many));
    await page.goto(`${managerUrl}#/tests`);
    await page.getByText("120 tests passed.").waitFor();
    await soon(() => page.locator("li summary").count()).toBe(100);
    await page.getByRole("button", { name: /^Show all 120 tests/ }).click();
    await soon(() => page.locator("li summary").count()).toBe(120);
    await page.getByLabel("Search tests").fill("test 117");
    await page.getByText("1 of 120 tests").waitFor();
    await soon(() => page.locator("li summary").allInnerTexts()).toEqual([expect.stringContaining("test 117")]);
  });
});

describe("the page Try it", () => {
  async function explained(
    page: Page,
    { path, headers = "" }: { readonly path: string; readonly headers?: string },
  ): Promise<void> {
    await page.getByLabel("Path and query").fill(path);
    await page.getByLabel("Headers").fill(headers);
    await page.getByRole("button", { name: "Explain" }).click();
    await page.locator("button[type=submit]:not([aria-busy])").waitFor();
  }

  it("shows what each plugin decides, and the other candidates", async () => {
    const { page, managerUrl, errors } = await shared.openOverview(shop((await upstream()).port));
    await page.goto(`${managerUrl}#/try`);
    await page.getByLabel("Client IP").fill("203.0.113.9");
    await page.getByLabel("Body").fill("{}");
    await explained(page, { path: "/shop/items" });
    await page.getByText(/The plugin key_auth answers with 401 key_missing/).waitFor();
    const stages = page.locator(".stage--plugin");
    await stages.filter({ hasText: "key_auth" }).getByText("answers 401 key_missing").waitFor();
    await stages.filter({ hasText: "rate_limit" }).getByText("not reached").waitFor();
    await page.getByRole("table", { name: "Candidates" }).getByText("takes the request").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await explained(page, { path: "/shop/items", headers: "apiKey: under-the-mat" });
    await stages.filter({ hasText: "rate_limit" }).getByText("passes the request on").waitFor();
    expect(errors).toEqual([]);
  });

  it.each(["there", "missing"] as const)(
    "copies requests as tests that the gateway accepts and that pass, clipboard %s",
    async (clipboard) => {
      const { port } = await upstream();
      const { page, file, managerUrl } = await shared.openOverview(shop(port));
      await page.goto(`${managerUrl}#/try`);
      const copied = await watchClipboard(page, clipboard);
      for (const [i, request] of [
        { path: "/shop/items" },
        { path: "/shop/items?x=1", headers: "apiKey: under-the-mat" },
        { path: "/shop/cart" },
        { path: "/nowhere" },
      ].entries()) {
        await explained(page, request);
        await page.getByRole("button", { name: "Copy as test" }).click();
        await expect.poll(async () => (await copied()).length).toBe(i + 1);
      }
      const tests = (await copied()).map((text) => JSON.parse(text));
      expect(JSON.parse(await page.getByLabel("Test as JSON").inputValue())).toEqual(tests.at(-1));
      expect(tests).toEqual([
        {
          name: "GET /shop/items gets 401 key_missing",
          request: { method: "GET", url: "/shop/items" },
          expect: { status: 401, code: "key_missing", service: "shop", route: "list" },
        },
        {
          name: "GET /shop/items?x=1 reaches shop, list",
          request: { method: "GET", url: "/shop/items?x=1", headers: { apiKey: "under-the-mat" } },
          expect: { status: 200, service: "shop", route: "list" },
        },
        {
          name: "GET /shop/cart reaches shop, cart",
          request: { method: "GET", url: "/shop/cart" },
          expect: { service: "shop", route: "cart" },
        },
        {
          name: "GET /nowhere gets 404 route_not_found",
          request: { method: "GET", url: "/nowhere" },
          expect: { status: 404, code: "route_not_found" },
        },
      ]);
      replaced(file, JSON.stringify(shop(port, tests)));
      await page.goto(`${managerUrl}#/config`);
      await page.getByRole("button", { name: "Reload the file" }).click();
      await page.getByText("Reloaded.", { exact: true }).waitFor();
      await page.getByRole("link", { name: "4 passed" }).click();
      await page.getByText("4 tests passed.").waitFor();
    },
  );
});
