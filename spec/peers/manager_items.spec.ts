/**
 * The pages of one service, route, upstream or caller in the management UI, whose parts are tabs in the address.
 */
import { describe, expect, it } from "vitest";
import { soon, type Page } from "./browser.ts";
import { allFaultsOf, heading, loaded, shareGateway, until, upstream } from "./manager_pages.ts";

const shared = shareGateway({ ADMIN_WRITE: "true" });

async function shop() {
  const { port } = await upstream();
  const routes = ["open", "closed"].map((name) => ({ name, path: `/${name}` }));
  return {
    services: [{ name: "shop", base_path: "/shop", upstreams: [{ id: "till", host: "127.0.0.1", port }], routes }],
  };
}

/** What the page asks the gateway for from now on, beside what every page asks each second. */
function asked(page: Page): Set<string> {
  const paths = new Set<string>();
  page.on("request", (request) => {
    const { pathname } = new URL(request.url());
    if (pathname.startsWith("/api/gateway/") && !/\/(?:now|session)$/.test(pathname))
      paths.add(pathname.slice("/api/gateway/".length));
  });
  return paths;
}

const current = (page: Page) => page.locator(".tabs [aria-current=page]").innerText();

describe("the page of an item", () => {
  it(
    "shows the tab of its address and asks for nothing that is hidden; a tab opens by keyboard and keeps the focus, " +
      "and Back leads to the one before",
    async () => {
      const { page, managerUrl, errors } = await shared.openOverview(await shop());
      const paths = asked(page);
      await page.goto(`${managerUrl}#/routes/shop/open?tab=nothing`);
      await soon(() => current(page)).toBe("Traffic");
      await until(page, 'document.querySelectorAll("section.chart").length === 3');
      expect([...paths].sort()).toEqual(["figures"]);
      paths.clear();
      await page.goto(`${managerUrl}#/services/shop?tab=settings`);
      await soon(() => current(page)).toBe("Settings");
      await page.getByText("load_balancing_strategy").waitFor();
      expect([...paths]).not.toContain("figures");
      expect([...paths]).not.toContain("requests");
      await page.getByRole("link", { name: "Failures", exact: true }).focus();
      await page.keyboard.press("Enter");
      await page.getByText("None of its requests is remembered.").waitFor();
      expect(await page.evaluate("[document.activeElement.textContent, location.hash]")).toEqual([
        "Failures",
        "#/services/shop?tab=failures",
      ]);
      expect([...paths]).not.toContain("figures");
      await page.getByRole("link", { name: "Traffic", exact: true }).press("Enter");
      await until(page, 'location.hash === "#/services/shop"');
      await soon(() => current(page)).toBe("Traffic");
      await page.goBack();
      await soon(() => current(page)).toBe("Failures");
      await page.goBack();
      await soon(() => current(page)).toBe("Settings");
      await page.goBack();
      await heading(page, "Route open");
      expect(errors).toEqual([]);
    },
  );

  it("says of each setting where it is written, which leads to the editor, or that it is a default", async () => {
    const { page, managerUrl, errors } = await shared.openOverview(JSON.stringify(await shop(), null, 2));
    const setting = (name: string) => page.locator(".settings > div").filter({ hasText: new RegExp(`^${name}`) });
    await page.goto(`${managerUrl}#/upstreams/shop/till?tab=settings`);
    await setting("weight").getByText("1 default", { exact: true }).waitFor();
    await setting("port").getByRole("link", { name: "line 10", exact: true }).click();
    await heading(page, "Edit");
    await until(page, 'document.querySelector("textarea").selectionStart > 0');
    const before =
      'document.querySelector("textarea").value.slice(0, document.querySelector("textarea").selectionStart)';
    expect(await page.evaluate(`${before}.split("\\n").length`)).toBe(10);
    await page.goto(`${managerUrl}#/routes/shop/closed?tab=edit`);
    const editor = page.getByRole("link", { name: "Open in the editor" });
    await soon(() => editor.getAttribute("href")).toMatch(
      /^#\/edit\?line=\d+&column=\d+&of=[0-9a-f]{12}&path=services/,
    );
    expect(errors).toEqual([]);
  });

  it("has no accessibility fault in any tab, in wide and narrow windows, light and dark", async () => {
    const { page, managerUrl, errors } = await shared.openOverview(await shop());
    for (const hash of ["services/shop", "routes/shop/open", "upstreams/shop/till"])
      for (const tab of ["traffic", "failures", "path", "settings", "edit"]) {
        await page.goto(`${managerUrl}#/${hash}?tab=${tab}`);
        await loaded(page);
        expect([hash, tab, await allFaultsOf(page)]).toEqual([hash, tab, []]);
      }
    expect(errors).toEqual([]);
  });
});
