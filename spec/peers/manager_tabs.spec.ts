/**
 * The management UI in several tabs of one browser: those in the background, their sessions, Back, and clocks that
 * differ.
 */
import { describe, expect, it, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { drawn, soon, type Page } from "./browser.ts";
import { heading, openLogin, openOverview, shareGateway, signIn, until, upstream } from "./manager_pages.ts";

const shared = shareGateway();

/** A service with so many routes that their table has to be scrolled. */
function shop(port: number): AnyConfigInput {
  const routes = Array.from({ length: 50 }, (_, i) => ({ name: `route-${i}`, path: `/items/${i}` }));
  return { services: [{ name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port }], routes }] };
}

/** Browsers without a window take every tab for visible, so a page is told that it is hidden. */
const HIDDEN = {
  content: `(() => {
    let state = "hidden";
    for (const [name, value] of [["visibilityState", () => state], ["hidden", () => state === "hidden"]]) \
Object.defineProperty(Document.prototype, name, { get: value });
    window.reveal = () => { state = "visible"; document.dispatchEvent(new Event("visibilitychange")); };
  })()`,
};

/** Another tab of the same browser, and the paths that it has asked for. */
async function tab(
  beside: Page,
  url: string,
  options: { readonly hidden: boolean },
): Promise<{ readonly page: Page; readonly asked: string[] }> {
  const page = await beside.context().newPage();
  onTestFinished(() => page.close());
  page.setDefaultTimeout(30_000);
  if (options.hidden) await page.addInitScript(HIDDEN);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto(url);
  return { page, asked };
}

const firstFigure = (page: Page) => page.evaluate<string>('document.querySelector(".stat__value").textContent');
const ofGateway = (asked: readonly string[]) => asked.filter((path) => path.startsWith("/api/"));

describe("seven tabs", () => {
  it("that were opened in the background ask the gateway for nothing, and the visible one goes on", async () => {
    const { page, url, managerUrl, errors } = await openOverview(shared.browser, shop((await upstream()).port));
    const hidden = [];
    for (let i = 0; i < 7; i++) hidden.push(await tab(page, managerUrl!, { hidden: true }));
    await fetch(`${url}/shop/items/1`);
    await expect.poll(() => firstFigure(page)).not.toBe("0/s");
    await page.reload();
    await heading(page, "Overview");
    await page.getByText("Live", { exact: true }).waitFor({ state: "attached" });
    for (const { asked } of hidden) expect(ofGateway(asked)).toEqual([]);
    // The first time that it is visible.
    await hidden[6]!.page.evaluate("window.reveal()");
    await heading(hidden[6]!.page, "Overview");
    expect(errors).toEqual([]);
  });

  it("that are all visible keep no connection to the gateway, and all show the same figures", async () => {
    const { page, url, managerUrl } = await openOverview(shared.browser, shop((await upstream()).port));
    const tabs = [];
    for (let i = 0; i < 7; i++) tabs.push(await tab(page, managerUrl!, { hidden: false }));
    for (const { page: each } of tabs) await heading(each, "Overview");
    await fetch(`${url}/shop/items/1`);
    for (const { page: each, asked } of tabs) {
      await expect.poll(() => firstFigure(each)).not.toMatch(/^0\/s|–/);
      expect(asked.filter((path) => path.startsWith("/api/gateway/tail"))).toEqual([]);
    }
  });
});

describe("a hidden tab", () => {
  it("asks for nothing, also where the connection was lost before", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    // Time passes twenty times as fast.
    await page.addInitScript({
      content:
        "{ const [later, now] = [setTimeout, performance.now.bind(performance)]; window.setTimeout = (run, ms) " +
        "=> later(run, ms / 20); performance.now = () => now() * 20; }",
    });
    await page.goto(`${managerUrl}#/process`);
    await page.reload();
    await heading(page, "Process");
    await page.evaluate('window.fetch = () => (window.asked++, Promise.reject(new TypeError("no connection")))');
    await page
      .getByText(/^Connection lost\./)
      .first()
      .waitFor();
    await page.evaluate(
      '(Object.defineProperty(document, "hidden", { value: true }), ' +
        'document.dispatchEvent(new Event("visibilitychange")))',
    );
    // A tab that is really hidden draws no frame; the one that was due here may ask once more.
    await drawn(page);
    await page.evaluate("window.asked = 0");
    await page.evaluate("new Promise((passed) => setTimeout(passed, 6_000))");
    expect(await page.evaluate("asked")).toBe(0);
  });
});

describe("a session in several tabs", () => {
  it("begins and ends in all of them with one login and one logout", async () => {
    const { page, managerUrl } = await openLogin(shared.browser, shop((await upstream()).port));
    const other = await tab(page, `${managerUrl}#/routes`, { hidden: false });
    await heading(other.page, "Sign in");
    await signIn(page);
    await heading(page, "Overview");
    await heading(other.page, "Routes");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByText("You have signed out.").waitFor();
    await other.page.getByText("You have signed out in another tab.").waitFor();
  });

  it("that another application's cookie ends at once is explained, with the setting that prevents it", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    const other = managerUrl!.replace(/:\d+/, ":1");
    await page.context().clearCookies();
    await page.context().addCookies([{ name: "token", value: "of-an-application", url: other }]);
    await page
      .getByText(/another application of this host name has a cookie “token”, which ADMIN_COOKIE_NAME avoids/)
      .waitFor();
    await heading(page, "Sign in");
  });

  it("goes on beside a cookie “token” of another application where ADMIN_COOKIE_NAME names another one", async () => {
    const { page, managerUrl, errors } = await openOverview(shared.browser, shop((await upstream()).port), {
      environment: { ADMIN_COOKIE_NAME: "gateway_session" },
    });
    await page.context().addCookies([{ name: "token", value: "of-an-application", url: managerUrl! }]);
    expect((await page.context().cookies()).map(({ name }) => name).sort()).toEqual(["gateway_session", "token"]);
    await page.reload();
    await heading(page, "Overview");
    await page.getByText("Live", { exact: true }).waitFor({ state: "attached" });
    expect(errors).toEqual([]);
  });
});

describe("Back", () => {
  it("leads to where a page was scrolled to, also after a reload of the page", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    await page.goto(`${managerUrl}#/routes`);
    await page.getByRole("link", { name: "route-49", exact: true }).waitFor();
    await page.evaluate("scrollTo(0, 800)");
    await until(page, "scrollY === 800");
    // A click of the driver would scroll to the link.
    await page.evaluate(`document.querySelector('a[href$="/route-40"]').click()`);
    await heading(page, "Route route-40");
    await soon(() => page.evaluate("scrollY")).toBe(0);
    await page.goBack();
    await heading(page, "Routes");
    await until(page, "scrollY === 800");
    await page.reload();
    await page.getByRole("link", { name: "route-49", exact: true }).waitFor();
    await until(page, "scrollY === 800");
  });

  it(
    "leads to the page Try it with headers, body and client address as they were, " +
      "and so does a login after the session has ended",
    async () => {
      const { page, managerUrl } = await openOverview(shared.browser, shop((await upstream()).port));
      await page.goto(`${managerUrl}#/try`);
      const fields: readonly (readonly [string, string])[] = [
        ["Path and query", "/shop/items/7"],
        ["Headers", "X-Version: 2"],
        ["Body", "some text"],
        ["Client IP", "192.0.2.1"],
      ];
      for (const [label, text] of fields) await page.getByLabel(label).fill(text);
      await page.getByRole("button", { name: "Explain" }).click();
      await page.locator("main .notice").getByRole("link", { name: "route-7", exact: true }).click();
      await heading(page, "Route route-7");
      await page.goBack();
      await heading(page, "Try it");
      const entered = () =>
        Promise.all(fields.map(async ([label]) => [label, await page.getByLabel(label).inputValue()]));
      await soon(entered).toEqual(fields);
      await page.context().clearCookies();
      await page.getByText("Your session has ended. Sign in to continue.").waitFor();
      await signIn(page);
      await heading(page, "Try it");
      await soon(entered).toEqual(fields);
      await page.getByRole("button", { name: "Sign out" }).click();
      await signIn(page);
      await page.goto(`${managerUrl}#/try`);
      await heading(page, "Try it");
      await soon(() => page.getByLabel("Headers").inputValue()).toBe("");
    },
  );
});

describe("a browser whose clock is 20 minutes ahead", () => {
  it("shows times by the gateway's clock, so that they agree with each other", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    await page.addInitScript({ content: "{ const now = Date.now; Date.now = () => now() + 1_200_000; }" });
    await page.goto(`${managerUrl}#/config`);
    await page.reload();
    await page.getByText("In force since").waitFor();
    await page
      .locator("dd")
      .filter({ hasText: /just now|\d s ago/ })
      .first()
      .waitFor();
    expect(await page.locator("main").innerText()).not.toMatch(/\d+ min ago/);
    await page.getByRole("link", { name: "Overview" }).click();
    await page
      .locator("dd")
      .filter({ hasText: /just now|\d s ago/ })
      .first()
      .waitFor();
    expect(await page.locator("main").innerText()).not.toMatch(/\d+ min ago|are from/);
  });
});
