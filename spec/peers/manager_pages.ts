/** Opens the management UI of the built gateway in a browser, and waits for what its pages show. */
import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import http, { type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished } from "vitest";
import type { ConfigInput } from "../../lib/config/model.ts";
import { drawn, faultsOf, visit, type Browser, type Page } from "./browser.ts";
import { CREDENTIALS, PROGRAM, startBuilt, type Built } from "./built.ts";

/** Listens on `port`, answers 200, and can go away and come back. */
export async function upstream(port = 0): Promise<{ readonly port: number; readonly server: Server; end(): Promise<void> }> {
  const server = http.createServer((_request, response) => response.end("ok"));
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const end = async () => {
    if (!server.listening) return;
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  };
  onTestFinished(end);
  return { port: (server.address() as AddressInfo).port, server, end };
}

export interface Open extends Built {
  readonly page: Page;
  readonly errors: string[];
  readonly origins: Set<string>;
}

interface OpenOptions {
  readonly width?: number;
  readonly colorScheme?: "light" | "dark";
  readonly environment?: Record<string, string>;
  /** Which node runs the gateway. Default: the one that runs the specs. */
  readonly node?: string;
}

/** The login page of the management UI of a gateway with this configuration. */
export async function openLogin(browser: Browser, config: ConfigInput | string, options: OpenOptions = {}): Promise<Open> {
  const built = await startBuilt(config, { MANAGER: "true", MANAGER_PORT: "0", ...options.environment }, [options.node ?? process.execPath, PROGRAM]);
  const seen = await visit(browser, options);
  await seen.page.goto(built.managerUrl!);
  await heading(seen.page, "Sign in");
  return { ...built, ...seen };
}

/** The overview, after the login. */
export async function openOverview(browser: Browser, config: ConfigInput | string, options: OpenOptions = {}): Promise<Open> {
  const all = await openLogin(browser, config, options);
  await signIn(all.page);
  await heading(all.page, "Overview");
  await all.page.getByText("Live", { exact: true }).waitFor({ state: "attached" });
  // The one question that found no session.
  expect(all.errors.splice(0)).toEqual([expect.stringContaining("401")]);
  return all;
}

export async function signIn(page: Page, password = CREDENTIALS.password, user = CREDENTIALS.user): Promise<void> {
  await page.getByLabel("Name").fill(user);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByLabel("Password", { exact: true }).press("Enter");
}

/**
 * Ends the session and then acts: what the act asks for finds it ended. A visible page asks each second and might find that before, so until then
 * it takes itself for hidden.
 */
export async function endSession(page: Page, act: () => Promise<void>): Promise<void> {
  const turned = 'document.dispatchEvent(new Event("visibilitychange"))';
  await page.evaluate(`(Object.defineProperty(document, "hidden", { value: true, configurable: true }), ${turned})`);
  await page.context().clearCookies();
  await act();
  await heading(page, "Sign in");
  await page.evaluate(`(delete document.hidden, ${turned})`);
}

export function heading(page: Page, text: string | RegExp): Promise<void> {
  return page.getByRole("heading", { name: text }).first().waitFor();
}

/** Resolves once the gateway remembers what became of a request: from its end, which may come later than its answer. */
export async function remembered(adminUrl: string, id: string): Promise<void> {
  const Authorization = `Basic ${btoa(`${CREDENTIALS.user}:${CREDENTIALS.password}`)}`;
  await expect.poll(async () => (await fetch(`${adminUrl}/gateway/requests/${encodeURIComponent(id)}`, { headers: { Authorization } })).status, { interval: 20 }).toBe(200);
}

/** Resolves once `expression` is true in the page. Asked from outside: the page's policy forbids what playwright's own waiting would do. */
export async function until(page: Page, expression: string): Promise<void> {
  await expect.poll(() => page.evaluate(expression), { interval: 50 }).toBe(true);
}

/** Resolves once the page is laid out for a window of this width: it learns of it later than the browser that is told, and its tables a frame later. */
export async function resized(page: Page, width: number): Promise<void> {
  await page.setViewportSize({ width, height: 900 });
  await until(page, `innerWidth === ${width}`);
  await drawn(page);
}

/** The faults in a wide and a narrow window, light and dark. */
export async function allFaultsOf(page: Page): Promise<string[]> {
  const faults: string[] = [];
  for (const [width, colorScheme] of [[360, "dark"], [1280, "light"]] as const) {
    await resized(page, width);
    await page.emulateMedia({ colorScheme });
    faults.push(...(await faultsOf(page)));
  }
  return faults;
}

/** In one step, as editors do it: a watcher never sees half of it. */
export function replaced(file: string, text: string): void {
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}
