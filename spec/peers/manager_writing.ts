/** What specs of changes from the management UI share: a configuration as people write it, and the way to its pages. */
import { expect } from "vitest";
import type { Page } from "./browser.ts";
import { heading, until, upstream, type Open, type SharedGateway } from "./manager_pages.ts";

/** Four spaces, and short items in one line. */
export function written(port: number): string {
  return `{
    "callers": [],
    "services": [
        {
            "name": "shop",
            "base_path": "/shop",
            "upstreams": [
                { "id": "v1", "host": "127.0.0.1", "port": ${port} },
                { "id": "v2", "host": "127.0.0.1", "port": ${port}, "group": "canary" }
            ],
            "split": [{ "group": "canary", "percent": 5 }],
            "routes": [
                { "name": "items", "path": "/items/{id}", "plugins": [{ "name": "key_auth", "config": { "callers": \
true } }] },
                { "name": "open", "path": "/open" }
            ]
        }
    ],
    "tests": [
        { "name": "items need a key", "request": { "url": "/shop/items/1" }, "expect": { "status": 401 } }
    ]
}
`;
}

const OPEN = '{ "name": "open", "path": "/open" }';

/** The text with a route behind the last one. */
export function withRoute(text: string, name: string): string {
  return text.replace(OPEN, `${OPEN},\n                { "name": "${name}", "path": "/${name}" }`);
}

export interface OpenWriting extends Open {
  /** The file at the start. */
  readonly text: string;
}

/** The overview of a gateway that takes changes. */
export async function openWriting(shared: SharedGateway): Promise<OpenWriting> {
  const text = written((await upstream()).port);
  return { ...(await shared.openOverview(text)), text };
}

export async function goTo(page: Page, hash: string, title: string | RegExp): Promise<void> {
  await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
  await heading(page, title);
}

/** Adds a route to the draft; the review is shown then. */
export async function draftRoute(page: Page, name: string): Promise<void> {
  await goTo(page, "#/add/route", "Add a route");
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Path").fill(`/${name}`);
  await page.getByRole("button", { name: "Put into the draft" }).click();
  await heading(page, "Review");
}

/** Applies the draft that is shown, once the gateway has checked it. */
export async function apply(page: Page, name = "Apply"): Promise<void> {
  const pressed = page.getByRole("button", { name, exact: true });
  await expect.poll(() => pressed.getAttribute("aria-disabled"), { interval: 50 }).toBe("false");
  await pressed.click();
}

/** Answers the dialog that is shown, and returns its question. */
export async function answered(page: Page, name: string): Promise<string> {
  const dialog = page.getByRole("dialog");
  const question = await dialog.locator("#dialog-text").innerText();
  await dialog.getByRole("button", { name, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  return question;
}

export const textOf = (page: Page) => page.evaluate<string>('document.querySelector("main").innerText');
export const shows = (page: Page, text: string) =>
  until(page, `document.querySelector("main")?.innerText.includes(${JSON.stringify(text)}) === true`);
