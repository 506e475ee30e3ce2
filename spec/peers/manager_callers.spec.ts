/**
 * The page Callers of the management UI, in a real browser: who is there, who knows them, and who was here within the
 * last minute.
 */
import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fileWith } from "../support/process.ts";
import { faultsOf, launch, soon, type Browser } from "./browser.ts";
import { allFaultsOf, heading, openOverview, until, upstream } from "./manager_pages.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

describe("the callers page", () => {
  it(
    "the callers page lists callers with groups and plugins, finds them among thousands, " +
      "marks who was here, and shows no key",
    async () => {
      const origin = await upstream();
      const file = fileWith("[]", "callers.json");
      writeFileSync(
        file,
        JSON.stringify(
          Array.from({ length: 3000 }, (_, i) => ({
            id: `customer ${i}`,
            groups: [`tier ${i % 3}`],
            keys: [{ key: `hush-${i}` }],
          })),
        ),
      );
      const plugins = [{ name: "key_auth", config: { callers: true } }];
      const more = Array.from({ length: 9 }, (_, i) => ({ name: `more ${i}`, path: `/more/${i}`, plugins }));
      const config = {
        global: { plugins },
        callers: [
          {
            id: "<b>ada</b>",
            groups: ["gold", "a,b"],
            keys: [{ key: "hush-ada", expires_at: "2126-01-31T12:00:00Z" }],
          },
          { id: "eve", enabled: false },
        ],
        caller_files: [file],
        services: [
          {
            name: "shop",
            base_path: "/",
            upstreams: [{ host: "127.0.0.1", port: origin.port }],
            plugins,
            routes: [{ name: "all of it", path: "/", plugins }, ...more],
          },
        ],
      };
      const { page, url, errors, managerUrl } = await openOverview(browser, config as never);
      await page.goto(`${managerUrl}#/callers`);
      await heading(page, "Callers");
      await page.getByText("3,002 of 3,002, the first 200 are here").waitFor();
      const rows = () =>
        page.evaluate<string[]>(
          '[...document.querySelectorAll("tbody tr")].map((row) => row.innerText.replace(/\\s+/g, " ").trim())',
        );
      const known =
        "key_auth of all services, key_auth of shop, key_auth of route all of it of shop and at least 7 more";
      await soon(async () => (await rows()).slice(0, 2)).toEqual([
        `<b>ada</b> gold, a,b On 2126-01-31 ${known} –`,
        "eve – Off – no plugin –",
      ]);
      expect((await fetch(`${url}/`, { headers: { apiKey: "hush-2999" } })).status).toBe(200);
      await page.getByLabel("Search callers and groups").fill("CUSTOMER 2999");
      await page.getByText("1 of 3,002").waitFor();
      await soon(rows).toEqual([`customer 2999 tier 2 On – ${known} used`]);
      expect(await page.content()).not.toContain("hush");
      expect(await faultsOf(page)).toEqual([]);
      for (const [name, title, hash] of [
        ["of all services", "Plugins", "#/plugins"],
        ["of shop", "shop", "#/services/shop"],
        ["of route", "all of it", "#/routes/shop/all%20of%20it"],
      ] as const) {
        await page.getByRole("link", { name: `key_auth ${name}` }).click();
        await heading(page, title);
        await until(page, `location.hash === ${JSON.stringify(hash)}`);
        await page.goBack();
        await page.getByText("1 of 3,002").waitFor();
        await until(page, 'document.querySelectorAll("tbody tr").length === 1');
      }
      expect(errors).toEqual([]);
    },
  );

  it(
    "the page of a caller shows when it was here, what is left of its limits, " + "and links to what changes it",
    async () => {
      const origin = await upstream();
      const config = {
        callers: [
          { id: "<b>a/da</b>", groups: ["gold"], keys: [{ key: "hush-ada" }] },
          { id: "eve", enabled: false },
        ],
        services: [
          {
            ...{ name: "shop", base_path: "/", upstreams: [{ host: "127.0.0.1", port: origin.port }] },
            plugins: [
              { name: "key_auth", config: { callers: true } },
              { name: "rate_limit", config: { limit_by: "credential", limit_hour: 3, limit_day: 50 } },
              { name: "quota", id: "plan", config: { limit: 1000, per: "month" } },
            ],
            routes: [{ name: "all", path: "/" }],
          },
        ],
      };
      const { page, url, errors } = await openOverview(browser, config as never);
      for (let i = 0; i < 3; i++)
        expect((await fetch(`${url}/`, { headers: { apiKey: "hush-ada" } })).status).toBe(200);
      await page.evaluate('location.hash = "#/callers"');
      await page.getByRole("link", { name: "<b>a/da</b>" }).click();
      await heading(page, "Caller <b>a/da</b>");
      const rows = () =>
        page.evaluate<string[]>(
          '[...document.querySelectorAll("tbody tr")].map((row) => row.innerText.replace(/\\s+/g, " ").trim())',
        );
      await soon(rows).toEqual([
        expect.stringMatching(/^rate_limit shop hour 3 0 3 \d+ (s|min)$/),
        expect.stringMatching(/^rate_limit shop day 3 47 50 \d+ (s|min|h)$/),
        expect.stringMatching(/^quota plan shop month 3 997 1,000 \d+ (s|min|h|days)$/),
      ] as string[]);
      await soon(() => page.locator("main p.badges, main div.badges").first().innerText()).toMatch(
        /^On\s*Last seen (just now|.* ago)$/,
      );
      await page
        .locator(".stat")
        .filter({ hasText: /^Requests\s*[\d.]+\/s/ })
        .waitFor();
      await page.locator("section.chart").first().waitFor();
      expect(await page.evaluate<string[]>('[...document.querySelectorAll("main a")].map((a) => a.hash)')).toContain(
        "#/requests?caller=%3Cb%3Ea%2Fda%3C%2Fb%3E",
      );
      expect(await faultsOf(page)).toEqual([]);
      const tab = async (name: string, text: string) => {
        await page.getByRole("link", { name, exact: true }).click();
        await page.getByText(text).first().waitFor();
        expect([name, await allFaultsOf(page)]).toEqual([name, []]);
      };
      await tab("Failures", "None of its 3 remembered requests got 5xx.");
      await tab("Path", "key_auth of shop");
      await page.locator("main .ranking").getByRole("link", { name: "all", exact: true }).waitFor();
      await tab("Settings", "Written in");
      expect(await page.evaluate("document.querySelector('main').innerText.replace(/\\s+/g, ' ')")).toMatch(
        /Groups gold Keys 1 key Written in the configuration/,
      );
      expect(errors).toEqual([]);
      await page.evaluate('location.hash = "#/callers/nobody"');
      await page.getByText("There is no caller “nobody”.").waitFor();
      expect(await page.content()).not.toContain("hush");
      // The gateway has answered 404.
      expect(errors.every((error) => error.includes("404"))).toBe(true);
    },
  );
});
