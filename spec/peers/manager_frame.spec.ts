/**
 * What stands around the pages of the management UI: names, what is wrong, addresses that can be passed on, and pages
 * that come when they are opened.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { soon, type Page } from "./browser.ts";
import {
  allFaultsOf,
  heading,
  openLogin,
  openOverview,
  replaced,
  shareGateway,
  signIn,
  until,
  upstream,
} from "./manager_pages.ts";

const shared = shareGateway();

const CHECKS = { enabled: true, interval_ms: 500, timeout_ms: 400, unhealthy_threshold: 1, healthy_threshold: 1 };

function shop(ports: readonly number[], more: Partial<AnyConfigInput> = {}): AnyConfigInput {
  const routes = ["list", "item", "cart"].map((name) => ({ name, path: `/${name}` }));
  const upstreams = ports.map((port, i) => ({ id: `till-${i + 1}`, host: "127.0.0.1", port }));
  return { services: [{ name: "shop", base_path: "/shop", upstreams, health: CHECKS, routes }], ...more };
}

const titleOf = (page: Page) => soon(() => page.title());
const INCIDENTS = 'section[aria-label="What is wrong"]';
/** The lines about what is wrong, once their list is open. */
const wrong = (page: Page) => soon(() => page.locator(`${INCIDENTS} .warnings > li`).allInnerTexts());
const summaryOf = (page: Page) => soon(() => page.locator(`${INCIDENTS} > details > summary`).innerText());

describe("a gateway's name", () => {
  it("is in the title of each page, and of a gateway without one its host", async () => {
    const { port } = await upstream();
    const { page, managerUrl, file } = await openLogin(
      shared.browser,
      shop([port], { global: { name: "corner shop" } }),
    );
    const { host } = new URL(managerUrl!);
    await titleOf(page).toBe(`Sign in · ${host}`);
    await signIn(page);
    await titleOf(page).toBe("Overview · corner shop");
    await page.getByRole("link", { name: "Routes" }).first().click();
    await titleOf(page).toBe("Routes · corner shop");
    replaced(file, JSON.stringify(shop([port])));
    await titleOf(page).toBe(`Routes · ${host}`);
  });

  it("stands beside the time zone of all times", async () => {
    const { page } = await shared.openOverview(shop([(await upstream()).port]));
    const zone = await page.evaluate<string>("Intl.DateTimeFormat().resolvedOptions().timeZone");
    await page.getByText(new RegExp(`^Times: .*${zone.split("/").at(-1)}`)).waitFor();
    await soon(() => page.evaluate<string>('document.querySelector("main time[title]")?.title ?? ""')).toMatch(
      /:\d\d (?:[A-Z]{2,5}|GMT[+-]\S+)$/,
    );
  });
});

describe("the navigation", () => {
  it("has its links in groups and Sign out in a window of 1366 × 650, and scrolls where one is lower", async () => {
    const { page, managerUrl } = await shared.openOverview(shop([(await upstream()).port]));
    const hidden = () =>
      page.evaluate<string[]>(
        `(() => { const lists = document.querySelector(".nav").getBoundingClientRect(); ` +
          `return [...document.querySelectorAll(".side a, .side button")].filter((each) => { ` +
          `const { top, bottom, height } = each.getBoundingClientRect(); ` +
          `return height > 0 && (bottom > innerHeight || (each.closest(".nav") && bottom > lists.bottom + 1)); ` +
          `}).map((each) => each.textContent); })()`,
      );
    await page.setViewportSize({ width: 1366, height: 650 });
    for (const title of ["Observe", "Configure", "Prove"])
      expect(await page.getByRole("list", { name: title }).getByRole("link").count()).toBeGreaterThan(1);
    expect(await page.getByRole("list", { name: "Change" }).count()).toBe(0);
    expect(await hidden()).toEqual([]);
    await page.setViewportSize({ width: 1366, height: 400 });
    expect(await hidden()).not.toContain("Sign out");
    const scrolls = 'getComputedStyle(document.querySelector(".nav")).overflowY';
    expect(await page.evaluate(scrolls)).toBe("auto");
    await page.locator('.nav a[href="#/tests"]').focus();
    expect(await hidden()).not.toContain("Tests");
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.goto(`${managerUrl}#/routes/shop/list`);
    await page.emulateMedia({ forcedColors: "active" });
    const colour = (css: string) =>
      page.evaluate<string>(`getComputedStyle(document.querySelector('${css}')).backgroundColor`);
    await page.getByRole("button", { name: "A day" }).waitFor();
    expect(await colour("main .button[aria-pressed=true]")).not.toBe(await colour("main .button[aria-pressed=false]"));
    await page.getByRole("link", { name: "Routes" }).first().click();
    await heading(page, "Routes");
    expect(await colour(".nav a[aria-current=page]")).not.toBe(await colour(".nav a:not([aria-current])"));
  });
});

describe("the overview", () => {
  it(
    "says first what is wrong, an outage in one line, each with a link to where it is, " +
      "and that nothing fails once it is repaired",
    async () => {
      const tills = [await upstream(), await upstream()];
      const config = shop(
        tills.map(({ port }) => port),
        { tests: [{ name: "the list is open", request: { url: "/shop/list" }, expect: { status: 200 } }] },
      );
      const { page, file } = await shared.openOverview(config);
      await page.getByText("Nothing fails at this moment.").waitFor();
      for (const till of tills) await till.end();
      await summaryOf(page).toMatch(/^Failing Service "shop" has no upstream that can be used[^.]*\.$/);
      await page.locator(`${INCIDENTS} > details > summary`).click();
      await wrong(page).toEqual([
        expect.stringMatching(/^Failing\s+Service "shop" has no upstream that can be used.*\s+Service shop$/s),
      ]);
      const outage = page.locator(`${INCIDENTS} .warnings > li`).first();
      expect(await allFaultsOf(page)).toEqual([]);
      await outage.getByText("and 2 more of it").click();
      await outage.getByText(/^Upstream "till-2" .* is unhealthy/).waitFor();
      replaced(file, JSON.stringify({ ...config, tests: [{ ...config.tests![0], expect: { status: 404 } }] }));
      await summaryOf(page).toMatch(/^Failing 1 of 1 tests .* failed\. and 2 more$/);
      await wrong(page).toEqual([
        expect.stringMatching(/1 of 1 tests .* failed\..*\s+Tests$/s),
        expect.stringMatching(/The last reload .*\s+Configuration$/s),
        expect.stringContaining('"shop"'),
      ]);
      expect(await allFaultsOf(page)).toEqual([]);
      await page.locator(INCIDENTS).getByRole("link", { name: "Tests" }).click();
      await heading(page, "Tests");
      replaced(file, JSON.stringify(config));
      for (const { port } of tills) await upstream(port);
      await page.goBack();
      await page.getByText("Nothing fails at this moment.").waitFor();
      await wrong(page).toEqual([]);
    },
  );
});

describe("a warning", () => {
  it(
    "can be snoozed in this browser until a time that is said, or woken, " + "and its figures lead to the requests",
    async () => {
      const till = await upstream();
      const { page } = await shared.openOverview(shop([till.port]));
      await till.end();
      const line = page.locator(`${INCIDENTS} > details > summary`);
      await summaryOf(page).toMatch(/^Failing Service "shop" has no upstream/);
      await line.click();
      await page.locator(INCIDENTS).getByRole("button", { name: "Snooze 1 hour" }).click();
      await summaryOf(page).toBe("1 snoozed warning");
      await page.getByText(/^Service "shop" has no upstream .* Snoozed until .*:\d\d /).waitFor();
      expect(await allFaultsOf(page)).toEqual([]);
      await page.reload();
      await summaryOf(page).toBe("1 snoozed warning");
      await line.click();
      await page.locator(INCIDENTS).getByRole("button", { name: "Wake" }).click();
      await summaryOf(page).toMatch(/^Failing /);
      const linkOf = (name: string) => page.locator(".stat").getByRole("link", { name }).getAttribute("href");
      expect(await linkOf("Error share")).toBe("#/requests?status=5xx");
      expect(await linkOf("No route")).toBe("#/requests?code=route_not_found");
    },
  );

  it(
    "about the configuration can be accepted in the draft, " + "which keeps the rest of the text, by its writers",
    async () => {
      const { port } = await upstream();
      const config = shop([port], { global: { plugins: [{ name: "key_auth", config: { key: "changeme" } }] } });
      const { page, managerUrl, file } = await openOverview(shared.browser, config, {
        environment: { ADMIN_WRITE: "true" },
      });
      const text = readFileSync(file, "utf8");
      const line = page.locator('section[aria-label="Warnings"] > details > summary');
      await line.click();
      const accept = page.locator('section[aria-label="Warnings"]').getByRole("button", { name: /^Accept .* draft$/ });
      const name = /^Accept (.*) in the draft$/.exec((await accept.first().getAttribute("aria-label"))!)![1]!;
      await accept.first().click();
      await page.getByText(`The draft accepts ${name}. Review it, and apply it.`).waitFor();
      await page.goto(`${managerUrl}#/apply`);
      await page.getByText(`"accept_warnings"`).first().waitFor();
      expect(readFileSync(file, "utf8")).toBe(text);
    },
  );
});

describe("the address of a page", () => {
  it("has what a table was searched for and sorted by, for Back, for a reload, and for somebody else", async () => {
    const { page, managerUrl } = await shared.openOverview(shop([(await upstream()).port]));
    await page.goto(`${managerUrl}#/routes`);
    const names = () => soon(() => page.locator("tbody th").allInnerTexts());
    await names().toEqual(["list", "item", "cart"]);
    await page.getByRole("searchbox").fill("i");
    await page.getByRole("button", { name: "Route", exact: true }).click();
    await page.getByRole("button", { name: "Route", exact: true }).click();
    await names().toEqual(["list", "item"]);
    await until(page, 'location.hash === "#/routes?search=i&sort=-route"');
    await page.locator("tbody").getByRole("link", { name: "item", exact: true }).click();
    await heading(page, "Route item");
    await page.goBack();
    await names().toEqual(["list", "item"]);
    await soon(() => page.getByRole("searchbox").inputValue()).toBe("i");
    await page.reload();
    await names().toEqual(["list", "item"]);
    const other = await page.context().newPage();
    onTestFinished(() => other.close());
    await other.goto(page.url());
    await soon(() => other.locator("tbody th").allInnerTexts()).toEqual(["list", "item"]);
    // The link of the navigation is without.
    await page.getByRole("link", { name: "Routes" }).first().click();
    await names().toEqual(["list", "item", "cart"]);
  });
});

describe("a session", () => {
  it("shows when it ends, and lasts longer while somebody works, not because a page is open", async () => {
    const { page, errors } = await shared.openOverview(shop([(await upstream()).port]));
    await page.getByText(/^Session ends in /).waitFor();
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    const ofSession = () => asked.filter((path) => path === "/api/gateway/session").length;
    // Half of it has passed.
    await page.evaluate("(() => { const now = Date.now; Date.now = () => now() + 1_800_000; })()");
    await expect.poll(() => asked.filter((path) => path === "/api/gateway/now").length).toBeGreaterThan(2);
    expect(ofSession()).toBe(0);
    await page.keyboard.press("Tab");
    await soon(async () => ofSession()).toBe(1);
    await page.keyboard.press("Tab");
    await page.getByText(/^Session ends in /).waitFor();
    expect(ofSession()).toBe(1);
    expect(errors).toEqual([]);
  });
});

describe("the page Tests", () => {
  it("runs the tests of the file again without a reload", async () => {
    const config = shop([(await upstream()).port], {
      tests: [{ name: "the list is open", request: { url: "/shop/list" }, expect: { status: 200 } }],
    });
    const { page, managerUrl } = await shared.openOverview(config);
    await page.goto(`${managerUrl}#/tests`);
    await page.getByRole("button", { name: "Run again" }).click();
    await page.getByText("The file as it is now: 1 passed, 0 failed.").waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
  });

  it(
    "runs one test again, shows what it expected and found, and fills in the page Try it, " +
      "with no secret in the address",
    async () => {
      const request = { url: "/shop/list?api_key=hush-hush", headers: { "X-Api-Key": "hush-hush" }, times: 2 };
      const config = (status: 200 | 201) =>
        shop([port], { tests: [{ name: "the list is open", request, expect: { status } }] });
      const { port } = await upstream();
      const { page, file, managerUrl } = await shared.openOverview(config(200));
      await page.goto(`${managerUrl}#/tests`);
      await page.locator("summary").filter({ hasText: "the list is open" }).click();
      const test = page.locator("li details.test");
      await test.getByText("Line 1", { exact: true }).waitFor();
      await test.getByRole("button", { name: "Run again" }).click();
      await test.getByText("It passes with the file as it is now.").waitFor();
      replaced(file, JSON.stringify(config(201)));
      // The watcher of the file refuses it, and the list is drawn again.
      await page.getByText("1 of 1 tests failed.").waitFor();
      await test.getByRole("button", { name: "Run again" }).click();
      await test.getByText("It fails with the file as it is now.").waitFor();
      expect(await allFaultsOf(page)).toEqual([]);
      replaced(file, JSON.stringify(config(200)));
      await page.getByText("1 test passed.").waitFor();
      await page.locator("summary").filter({ hasText: "the list is open" }).click();
      await test.getByRole("link", { name: "Try it" }).click();
      await heading(page, "Try it");
      await page.getByText("The test sends it 2 times: here it is explained once.").waitFor();
      await soon(() => page.getByLabel("Headers").inputValue()).toBe("X-Api-Key: hush-hush");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.getByText("Handled by").waitFor();
      expect(await page.evaluate("location.hash")).toBe("#/try?test=the+list+is+open");
      expect(await page.getByLabel("Path and query").inputValue()).toBe("/shop/list?api_key=hush-hush");
      expect(await allFaultsOf(page)).toEqual([]);
    },
  );
});

describe("a gateway of another version", () => {
  it(
    "is named at the top beside the UI's version; a page that cannot show what it answers says " +
      "so, and the others go on",
    async () => {
      const { page, errors } = await shared.openOverview(shop([(await upstream()).port]));
      const notice = page.getByText(/^The gateway is edge-gateway /);
      expect(await notice.count()).toBe(0);
      const other = 'if (now.status) now.status = { ...now.status, version: "0.0.1", certificates: undefined };';
      const answer =
        `real(path.replace(/&known=.*/, ""), options).then(async (reply) => { const now = await reply.json(); ` +
        `${other} return new Response(JSON.stringify(now), reply); })`;
      await page.evaluate(
        `void ((real) => { window.fetch = (path, options) => (path.includes("/gateway/now") ? ${answer} : ` +
          `real(path, options)); })(fetch)`,
      );
      await heading(page, "Page not shown");
      await page.getByText(/^This page cannot show what the gateway has answered\. /).waitFor();
      await soon(() => notice.innerText()).toMatch(
        new RegExp(
          String.raw`^The gateway is edge-gateway 0\.0\.1, this management UI is \d+\.\d+\.\d+.*\. ` +
            String.raw`Reload the page; if this notice stays, start the UI of the gateway's ` +
            String.raw`version\.$`,
        ),
      );
      expect(await allFaultsOf(page)).toEqual([]);
      await page.getByRole("link", { name: "Routes" }).first().click();
      await heading(page, "Routes");
      await soon(() => page.locator("tbody th").allInnerTexts()).toEqual(["list", "item", "cart"]);
      expect(await notice.count()).toBe(1);
      expect(errors).toHaveLength(1);
    },
  );
});

describe("a page whose module does not arrive", () => {
  it("says so, and the others go on", async () => {
    const { page, process } = await openOverview(shared.browser, shop([(await upstream()).port]));
    await page.getByRole("link", { name: "Tests", exact: true }).first().click();
    await heading(page, "Tests");
    process.kill("SIGKILL");
    await page.getByRole("link", { name: "Callers" }).click();
    await heading(page, "Page not loaded");
    await page.getByRole("button", { name: "Reload" }).waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.getByRole("link", { name: "Tests", exact: true }).first().click();
    await heading(page, "Tests");
  });
});
