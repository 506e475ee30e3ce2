/**
 * The palette of the management UI and its keys: what they find, by keyboard alone, and that their code comes when
 * asked.
 */
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { soon, type Page } from "./browser.ts";
import { allFaultsOf, heading, resized, shareGateway, until, upstream } from "./manager_pages.ts";

const shared = shareGateway();

function shop(port: number): AnyConfigInput {
  return {
    services: [
      {
        ...{ name: "shop", base_path: "/shop", upstreams: [{ id: "till", host: "127.0.0.1", port }] },
        routes: ["list", "item"].map((name) => ({ name, path: `/${name}` })),
        plugins: [{ name: "cors", config: { allow_origins: ["https://shop.example"] } }],
      },
    ],
  };
}

const options = (page: Page) =>
  soon(async () =>
    (await page.locator(".palette [role=option]").allInnerTexts()).map((text) => text.replace(/\s+/g, " ")),
  );
const chosen = (page: Page) =>
  page.evaluate<string>(
    'document.getElementById(document.activeElement.getAttribute("aria-activedescendant"))?.textContent ?? ""',
  );

describe("the palette", () => {
  it(
    "opens with Ctrl+K and with a slash, finds routes, services, upstreams, plugins, pages and codes, and goes there " +
      "by keyboard; its code comes when it is opened",
    async () => {
      const { page, url, errors } = await shared.openOverview(shop((await upstream()).port));
      await fetch(`${url}/nowhere`).then((response) => response.arrayBuffer());
      const asked: string[] = [];
      page.on("request", (request) => asked.push(new URL(request.url()).pathname));
      const loaded = () => asked.filter((path) => path.includes("palette")).length;
      expect(loaded()).toBe(0);
      await page.keyboard.press("Control+k");
      await until(page, 'document.activeElement.getAttribute("role") === "combobox"');
      expect(loaded()).toBeGreaterThan(0);
      expect(await allFaultsOf(page)).toEqual([]);
      await page.keyboard.type("shop");
      await options(page).toEqual([
        "shop /shop Service",
        "list shop /shop/list Route",
        "item shop /shop/item Route",
        "till shop Upstream",
      ]);
      expect(await chosen(page)).toBe("shop /shop Service");
      await page.keyboard.press("ArrowDown");
      expect(await chosen(page)).toBe("list shop /shop/list Route");
      await page.keyboard.press("Enter");
      await heading(page, "Route list");
      await page.keyboard.press("/");
      await page.keyboard.type("route_not");
      await options(page).toContain("route_not_found No route matches the request Code");
      await page.keyboard.press("Escape");
      await until(page, 'document.querySelector("dialog") === null');
      await page.keyboard.press("/");
      await page.keyboard.type("zzqx such");
      await page.getByText("Nothing has this name.").waitFor();
      await page.keyboard.press("Escape");
      expect(errors).toEqual([]);
    },
  );

  it("g with a letter goes to a page, ? lists all keys, and none of them is taken from what is typed", async () => {
    const { page, managerUrl } = await shared.openOverview(shop((await upstream()).port));
    await page.keyboard.press("g");
    await page.keyboard.press("r");
    await heading(page, "Routes");
    await page.getByRole("searchbox").fill("");
    await page.getByRole("searchbox").focus();
    await page.keyboard.type("g/?s");
    await soon(() => page.getByRole("searchbox").inputValue()).toBe("g/?s");
    expect(await page.locator("dialog").count()).toBe(0);
    await page.goto(`${managerUrl}#/services`);
    await heading(page, "Services");
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).getByText("g u", { exact: true }).waitFor();
    expect(await allFaultsOf(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await resized(page, 1280);
    await page.getByRole("button", { name: "Find anything" }).click();
    await until(page, 'document.activeElement.getAttribute("role") === "combobox"');
  });
});
