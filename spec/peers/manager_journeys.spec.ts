/**
 * Jobs from their beginning to their end in the management UI, over several of its pages. What one page does alone is
 * in the specs of that page.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { hashPassword } from "../../lib/base/password.ts";
import { fileWith } from "../support/process.ts";
import { soon, visit, type Page } from "./browser.ts";
import {
  heading,
  isLive,
  openOverview,
  remembered,
  replaced,
  resized,
  shareGateway,
  signIn,
  until,
  upstream,
} from "./manager_pages.ts";
import { answered, apply, goTo, openWriting, shows, written } from "./manager_writing.ts";

const shared = shareGateway({ ADMIN_WRITE: "true" });

/** Opens a page, an item or a request with the palette. */
async function callUp(page: Page, what: string, option: RegExp): Promise<void> {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Go to" }).fill(what);
  await page.getByRole("option", { name: option }).first().waitFor();
  await page.keyboard.press("Enter");
}

/** Moves the focus with Tab to what has this text. */
async function tabTo(page: Page, text: RegExp): Promise<void> {
  const focused = () => page.evaluate<string>("document.activeElement.textContent");
  for (let i = 0; i < 100 && !text.test(await focused()); i++) await page.keyboard.press("Tab");
  expect(await focused()).toMatch(text);
}

const currentLine = '(document.querySelector(".editor__row[data-current]")?.textContent ?? "")';

describe("a complaint with the id of a request", () => {
  it("leads to the plugin that has refused it, to what the plugin was told, and to the line of the file", async () => {
    const { page, url, adminUrl, errors } = await openWriting(shared);
    const refused = await fetch(`${url}/shop/items/1`);
    const id = refused.headers.get("x-request-id")!;
    expect(refused.status).toBe(401);
    await remembered(adminUrl, id);
    await callUp(page, id, /by its id/);
    await shows(page, "key_auth");
    const steps = () => page.locator(".requests__steps > li").allInnerTexts();
    await soon(async () => (await steps()).filter((text) => /^key_auth\s/.test(text)).length).toBe(1);
    await shows(page, "No upstream was asked.");
    await page.locator(".requests__drawer").getByRole("link", { name: "items", exact: true }).first().click();
    await heading(page, "Route items");
    await page.getByRole("link", { name: "Settings", exact: true }).click();
    const setting = page.locator(".settings > div").filter({ hasText: /^plugins\[0\]\.name\s*key_auth/ });
    await setting.getByRole("link", { name: /^line \d+$/ }).click();
    await heading(page, "Edit");
    await until(page, `/"name": "items".*"key_auth"/.test(${currentLine})`);
    expect(errors).toEqual([]);
  });
});

describe("by keyboard alone", () => {
  it(
    "a configuration is broken, the error is seen from every page and from the " + "review, mended and applied",
    async () => {
      const { page, url, text, file, errors } = await openWriting(shared);
      await tabTo(page, /^Text$/);
      await page.keyboard.press("Enter");
      await heading(page, "Edit");
      await until(page, 'document.activeElement?.id === "editor-text"');
      await page.keyboard.press("Control+f");
      await page.keyboard.type('"path": "/open"');
      await page.getByText("1 of 1", { exact: true }).waitFor();
      await page.keyboard.press("Escape");
      await page.keyboard.type('"path": 5');
      await page.getByText("Checked by the gateway: one error").waitFor();
      await callUp(page, "Routes", /^Routes/);
      await heading(page, "Routes");
      await page.getByText("Draft: 1 error").waitFor();
      await tabTo(page, /^Review$/);
      await page.keyboard.press("Enter");
      await heading(page, "Review");
      await shows(page, "The gateway would refuse it: 1 error.");
      await tabTo(page, /^Apply$/);
      expect(await page.evaluate("document.activeElement.getAttribute('aria-disabled')")).toBe("true");
      await page.keyboard.press("Enter");
      await tabTo(page, /^line \d+, column \d+$/);
      await page.keyboard.press("Enter");
      await heading(page, "Edit");
      await until(page, `${currentLine}.includes('"path": 5')`);
      await page.keyboard.press("Delete");
      await page.keyboard.type('"/mended"');
      await page.getByText("Checked by the gateway: no errors").waitFor();
      await callUp(page, "Review", /^Review/);
      await heading(page, "Review");
      await until(
        page,
        `[...document.querySelectorAll("main button")].some((each) => each.textContent === "Apply" &&
      each.getAttribute("aria-disabled") === "false")`,
      );
      await tabTo(page, /^Apply$/);
      await page.keyboard.press("Enter");
      await shows(page, "In force by the one process.");
      expect(readFileSync(file, "utf8")).toBe(text.replace('"/open"', '"/mended"'));
      expect((await fetch(`${url}/shop/mended`)).status).toBe(200);
      expect(errors).toEqual([]);
    },
  );
});

describe("a canary", () => {
  it("gets a half and then all of the requests, in a window of 360 pixels", async () => {
    const [old, canary] = [await upstream(), await upstream()];
    const counts = { old: 0, canary: 0 };
    old.server.on("request", () => counts.old++);
    canary.server.on("request", () => counts.canary++);
    const text = written(old.port).replace(`"v2", "host": "127.0.0.1", "port": ${old.port}`, (part) =>
      part.replace(String(old.port), String(canary.port)),
    );
    const { page, url, errors } = await shared.openOverview(text);
    await resized(page, 360);
    for (const percent of ["50", "100"]) {
      await goTo(page, "#/upstreams/shop/v2?tab=edit", "Upstream v2");
      await page.getByRole("link", { name: "Change the share" }).click();
      await page.getByLabel("Percent").fill(percent);
      await page.getByLabel("Percent").press("Enter");
      await heading(page, "Review");
      await apply(page);
      await shows(page, "In force by the one process.");
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(360);
    }
    Object.assign(counts, { old: 0, canary: 0 });
    for (let i = 0; i < 20; i++) await fetch(`${url}/shop/open`);
    expect(counts).toEqual({ old: 0, canary: 20 });
    await goTo(page, "#/services/shop?tab=path", "Service shop");
    await shows(page, "100 % to canary");
    expect(errors).toEqual([]);
  });
});

describe("an operator", () => {
  it(
    "takes an upstream out, finds it out after a reload and puts it back, " + "and is shown no way to the text",
    async () => {
      const origin = await upstream();
      const users = [{ user: "ops", password: await hashPassword("secret"), role: "operator" }];
      const environment = { ADMIN_WRITE: "true", ADMIN_USERS_FILE: fileWith(users, "users.json") };
      const { file, managerUrl } = await openOverview(shared.browser, written(origin.port), { environment });
      const { page } = await visit(shared.browser);
      await page.goto(managerUrl!);
      await heading(page, "Sign in");
      await signIn(page, "secret", "ops");
      await isLive(page);
      await goTo(page, "#/upstreams/shop/v1", "Upstream v1");
      await page.getByRole("button", { name: "Drain", exact: true }).click();
      await answered(page, "Drain");
      await shows(page, "Taken out until it is used again");
      replaced(file, readFileSync(file, "utf8").replace('"/open"', '"/opened"'));
      await goTo(page, "#/config", "Configuration");
      await page.getByRole("button", { name: "Reload the file" }).click();
      await goTo(page, "#/routes", "Routes");
      await shows(page, "/shop/opened");
      await goTo(page, "#/upstreams/shop/v1", "Upstream v1");
      await shows(page, "Taken out until it is used again");
      await page.getByRole("button", { name: "Use", exact: true }).click();
      await answered(page, "Use");
      await until(page, '!document.querySelector("main").innerText.includes("Taken out")');
      await goTo(page, "#/edit", "Read only");
      await shows(page, "operator");
    },
  );
});

describe("the key of a caller", () => {
  it("is followed by another one, which works beside it until the day that was chosen", async () => {
    const origin = await upstream();
    const text = written(origin.port).replace(
      '"callers": []',
      '"callers": [{ "id": "ada", "keys": [{ "key": "an-old-key-of-ada" }] }]',
    );
    const { page, url, file, errors } = await shared.openOverview(text);
    const status = async (apiKey: string) => (await fetch(`${url}/shop/items/1`, { headers: { apiKey } })).status;
    await goTo(page, "#/callers/ada?tab=edit", "Caller ada");
    await page.getByRole("link", { name: "Add a key, and let the others end" }).click();
    await page.getByLabel("Days until its other keys end").fill("7");
    await page.getByRole("button", { name: "Make a key" }).click();
    const key = await page.getByLabel("The new key").inputValue();
    await page.getByRole("button", { name: "Put into the draft" }).click();
    await page.getByRole("main").getByRole("link", { name: "Review and apply" }).waitFor();
    expect(await page.getByLabel("The new key").inputValue()).toBe(key);
    expect([await status(key), await status("an-old-key-of-ada")]).toEqual([401, 200]);
    await page.getByRole("main").getByRole("link", { name: "Review and apply" }).click();
    await heading(page, "Review");
    await apply(page);
    await shows(page, "In force by the one process.");
    expect([await status(key), await status("an-old-key-of-ada")]).toEqual([200, 200]);
    const [old, made] = (JSON.parse(readFileSync(file, "utf8")) as { callers: { keys: Record<string, string>[] }[] })
      .callers[0]!.keys;
    const days = (Date.parse(old!.expires_at!) - Date.now()) / 86_400_000;
    expect([Math.round(days), Object.keys(made!)]).toEqual([7, ["key_sha256"]]);
    expect(errors).toEqual([]);
  });
});
