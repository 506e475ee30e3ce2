/**
 * The button of the management UI that purges stored replies, and what users of each role are shown of such buttons.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { hashPassword } from "../../lib/base/password.ts";
import { fileWith } from "../support/process.ts";
import { launch, soon, visit, type Browser, type Page } from "./browser.ts";
import { allFaultsOf, heading, isLive, loaded, openOverview, replaced, signIn, upstream } from "./manager_pages.ts";
import { answered, goTo } from "./manager_writing.ts";

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

/** Two services whose replies are stored, and which paths the upstream was asked for. */
async function caching() {
  const { port, server } = await upstream();
  const asked: string[] = [];
  server.prependListener("request", ({ url }, response) => {
    asked.push(url!);
    response.setHeader("Cache-Control", "max-age=600");
  });
  const service = (name: string, ...routes: readonly string[]) => ({
    name,
    base_path: `/${name}`,
    upstreams: [{ id: "v1", host: "127.0.0.1", port }],
    plugins: [{ name: "response_cache" }],
    routes: routes.map((route) => ({ name: route, path: `/${route}` })),
  });
  return { asked, config: { services: [service("shop", "items", "open"), service("news", "latest")] } };
}

/** The fields of the button; each question is answered with yes, and kept. */
async function purging(page: Page) {
  const questions: string[] = [];
  await goTo(page, "#/plugins", "Plugins");
  const fields = page.getByRole("group", { name: "Purge caches" });
  await fields.waitFor();
  const select = (what: string) => page.getByLabel(`${what} whose replies are purged`);
  return {
    questions,
    service: select("Service"),
    route: select("Route"),
    namesOf: (what: string) => select(what).locator("option").allInnerTexts(),
    async press() {
      await fields.getByRole("button", { name: "Purge" }).click();
      questions.push(await answered(page, "Purge"));
    },
  };
}

describe("Purge", () => {
  it("drops the stored replies of the chosen route alone, or of all, and says how many", async () => {
    const { asked, config } = await caching();
    const { page, url, errors } = await openOverview(browser, config);
    const askAll = async () => {
      asked.length = 0;
      for (const path of ["shop/items", "shop/open", "news/latest"])
        expect((await fetch(`${url}/${path}`)).status).toBe(200);
      return asked;
    };
    expect(await askAll()).toEqual(["/items", "/open", "/latest"]);
    expect(await askAll()).toEqual([]);
    const { questions, service, route, namesOf, press } = await purging(page);
    expect(await namesOf("Service")).toEqual(["All services", "shop", "news"]);
    expect(await route.isVisible()).toBe(false);
    await service.selectOption("news");
    expect(await namesOf("Route")).toEqual(["All routes", "latest"]);
    await route.selectOption("latest");
    await service.selectOption("shop");
    expect(await namesOf("Route")).toEqual(["All routes", "items", "open"]);
    expect(await route.inputValue()).toBe("");
    await route.selectOption("items");
    expect(await allFaultsOf(page)).toEqual([]);
    await press();
    await page.getByText("1 stored reply was purged.").waitFor();
    expect(await askAll()).toEqual(["/items"]);
    await service.selectOption("");
    expect(await route.isVisible()).toBe(false);
    await press();
    await page.getByText("3 stored replies were purged.").waitFor();
    expect(await askAll()).toEqual(["/items", "/open", "/latest"]);
    expect(questions).toEqual([
      "Purge all stored replies of route “items” of service “shop”, in all workers? Upstreams are asked again.",
      "Purge all stored replies, in all workers? Upstreams are asked again.",
    ]);
    expect(errors).toEqual([]);
  });

  it("keeps the choice of a service that a reload has removed, and drops nothing in its place", async () => {
    const { asked, config } = await caching();
    const { page, url, file } = await openOverview(browser, config);
    await fetch(`${url}/news/latest`);
    const { service, namesOf, press } = await purging(page);
    await service.selectOption("shop");
    const [shop, news] = config.services;
    replaced(file, JSON.stringify({ services: [news, { ...shop, name: "store" }] }));
    await soon(() => namesOf("Service")).toEqual(["All services", "news", "store", "shop"]);
    await press();
    await page.getByText("The configuration in force has no such service or route.").waitFor();
    await fetch(`${url}/news/latest`);
    expect(asked).toEqual(["/latest"]);
  });
});

const CHANGING = ["#/edit", "#/add/route", "#/apply", "#/history"];

/** Which of the controls that change something the page shows, and where it says that it is read only. */
async function shownTo(page: Page): Promise<readonly string[]> {
  const shown: string[] = [];
  const look = async (role: "button" | "link", ...names: readonly string[]) => {
    for (const name of names) if ((await page.getByRole(role, { name, exact: true }).count()) > 0) shown.push(name);
  };
  await look("link", "Forms", "Text", "Review", "History");
  await goTo(page, "#/plugins", "Plugins");
  // Drawn from the same answer as the button.
  await heading(page, "Memory of caches");
  await look("button", "Purge");
  await goTo(page, "#/upstreams/shop/v1", "Upstream v1");
  await loaded(page);
  await look("button", "Drain", "Eject", "Use");
  await goTo(page, "#/routes/shop/items?tab=edit", "Route items");
  await loaded(page);
  await look("link", "Add a rate limit");
  await goTo(page, "#/config", "Configuration");
  await loaded(page);
  await look("button", "Reload the file");
  for (const hash of CHANGING) {
    await goTo(page, "#/config", "Configuration");
    await goTo(page, hash, /^(?:Edit|Add a route|Review|History|Read only)$/);
    if ((await page.getByRole("heading", { name: "Read only" }).count()) > 0) shown.push(`${hash} is read only`);
  }
  return shown;
}

describe("the controls that change something", () => {
  it(
    "are all there for an administrator, Purge, Reload and those of upstreams for an operator, " +
      "and none for a viewer",
    async () => {
      const password = await hashPassword("secret");
      const users = (["administrator", "operator", "viewer"] as const).map((role) => ({ user: role, password, role }));
      const { config } = await caching();
      const environment = { ADMIN_WRITE: "true", ADMIN_USERS_FILE: fileWith(users, "users.json") };
      const { url, managerUrl } = await openOverview(browser, config, { environment });
      await fetch(`${url}/shop/items`);
      const shown: Record<string, readonly string[]> = {};
      for (const { user } of users) {
        const { page, errors } = await visit(browser);
        await page.goto(managerUrl!);
        await heading(page, "Sign in");
        await signIn(page, "secret", user);
        await isLive(page);
        shown[user] = await shownTo(page);
        expect(errors.filter((each) => !each.includes("401"))).toEqual([]);
      }
      const isReadOnly = CHANGING.map((hash) => `${hash} is read only`);
      const operating = ["Purge", "Drain", "Eject", "Use"];
      expect(shown).toEqual({
        administrator: ["Forms", "Text", "Review", "History", ...operating, "Add a rate limit", "Reload the file"],
        operator: [...operating, "Reload the file", ...isReadOnly],
        viewer: isReadOnly,
      });
    },
  );
});
