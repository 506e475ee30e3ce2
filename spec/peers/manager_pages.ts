/** Opens the management UI of the built gateway in a browser, and waits for what its pages show. */
import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import http, { type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import {
  drawn,
  faultsOf,
  launch,
  newContext,
  visit,
  visitIn,
  type Browser,
  type Context,
  type Page,
  type Visit,
} from "./browser.ts";
import { CREDENTIALS, PROGRAM, startBuilt, type AtEnd, type Built, type StartOptions } from "./built.ts";

/** Listens on `port`, answers 200, and can go away and come back. */
export async function upstream(
  port = 0,
): Promise<{ readonly port: number; readonly server: Server; end(): Promise<void> }> {
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

export interface Open extends Built, Visit {}

interface OpenOptions extends StartOptions {
  readonly width?: number;
  readonly colorScheme?: "light" | "dark";
  readonly environment?: Record<string, string>;
  /** Which node runs the gateway. Default: the one that runs the specs. */
  readonly node?: string;
}

/** The login page of the management UI of a gateway with this configuration. */
export async function openLogin(
  browser: Browser,
  config: AnyConfigInput | string,
  options: OpenOptions = {},
): Promise<Open> {
  const [built, seen] = await Promise.all([startWithPages(config, options), visit(browser, options)]);
  await seen.page.goto(built.managerUrl!);
  await heading(seen.page, "Sign in");
  return { ...built, ...seen };
}

/** The overview of an administrator who has signed in before: the login page takes as long as everything else here. */
export async function openOverview(
  browser: Browser,
  config: AnyConfigInput | string,
  options: OpenOptions = {},
): Promise<Open> {
  const [built, seen] = await Promise.all([startWithPages(config, options), visit(browser, options)]);
  await seen.page.context().addCookies([await sessionOf(built)]);
  await seen.page.goto(built.managerUrl!);
  await isLive(seen.page);
  return { ...built, ...seen };
}

function startWithPages(
  config: AnyConfigInput | string,
  { environment = {}, node = process.execPath, ...options }: OpenOptions,
): Promise<Built> {
  return startBuilt(config, { MANAGER: "true", MANAGER_PORT: "0", ...environment }, [node, PROGRAM], options);
}

export async function isLive(page: Page): Promise<void> {
  await heading(page, "Overview");
  await page.getByText("Live", { exact: true }).waitFor({ state: "attached" });
}

const AUTHORIZATION = `Basic ${btoa(`${CREDENTIALS.user}:${CREDENTIALS.password}`)}`;

/** The cookie of a session of the administrator. */
async function sessionOf({
  adminUrl,
  managerUrl,
}: Built): Promise<{ readonly name: string; readonly value: string; readonly url: string }> {
  const login = await fetch(`${adminUrl}/login`, { method: "POST", headers: { Authorization: AUTHORIZATION } });
  const [, name, value] = /^([^=]+)=([^;]*)/.exec(login.headers.getSetCookie()[0]!)!;
  return { name: name!, value: value!, url: managerUrl! };
}

export interface SharedGateway {
  readonly browser: Browser;
  /**
   * Puts the configuration, or what has this text, into the file, and resolves when the gateway has taken it, or with
   * the status of its refusal.
   */
  put(config: AnyConfigInput | string): Promise<number>;
  /** A page of the administrator, before it is at any address. */
  newPage(): Promise<Open>;
  /** The overview with this configuration in force. */
  openOverview(config: AnyConfigInput | string): Promise<Open>;
}

/**
 * A browser and one gateway for all tests of a file, of which each gives it the configuration that it needs, and one
 * session of the administrator, whose browser has the modules of the pages in its cache: a test of its own gateway and
 * session takes a second longer. For tests that neither end the session or the gateway, nor need figures without the
 * requests of the tests before.
 */
export function shareGateway(environment: Record<string, string> = {}): SharedGateway {
  const ends: Parameters<AtEnd>[0][] = [];
  let [browser, built, context, session] = [] as unknown as [
    Browser,
    Built,
    Context,
    Awaited<ReturnType<typeof sessionOf>>,
  ];
  const shared: SharedGateway = {
    get browser() {
      return browser;
    },
    async put(config) {
      replaced(built.file, typeof config === "string" ? config : JSON.stringify(config));
      return (
        await fetch(`${built.adminUrl}/gateway/reload`, {
          method: "POST",
          headers: { Cookie: `${session.name}=${session.value}` },
        })
      ).status;
    },
    async newPage() {
      // A test may have ended the session of this browser.
      await context.addCookies([session]);
      const seen = await visitIn(context);
      onTestFinished(() => seen.page.close());
      return { ...built, ...seen };
    },
    async openOverview(config) {
      expect(await shared.put(config)).toBe(200);
      const opened = await shared.newPage();
      await opened.page.goto(built.managerUrl!);
      await isLive(opened.page);
      return opened;
    },
  };
  beforeAll(async () => {
    const atEnd: AtEnd = (act) => void ends.unshift(act);
    [browser, built] = await Promise.all([launch(), startWithPages({ services: [] }, { environment, atEnd })]);
    [context, session] = await Promise.all([newContext(browser), sessionOf(built)]);
  });
  afterAll(async () => {
    for (const act of [() => browser.close(), ...ends]) await act();
  });
  return shared;
}

export async function signIn(page: Page, password = CREDENTIALS.password, user = CREDENTIALS.user): Promise<void> {
  await page.getByLabel("Name").fill(user);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByLabel("Password", { exact: true }).press("Enter");
}

/**
 * Ends the session and then acts: what the act asks for finds it ended. A visible page asks each second and might find
 * that before, so until then it takes itself for hidden.
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
  await expect
    .poll(
      async () =>
        (
          await fetch(`${adminUrl}/gateway/requests/${encodeURIComponent(id)}`, {
            headers: { Authorization: AUTHORIZATION },
          })
        ).status,
      { interval: 20 },
    )
    .toBe(200);
}

/**
 * Resolves once `expression` is true in the page. Asked from outside: the page's policy forbids what playwright's own
 * waiting would do.
 */
export async function until(page: Page, expression: string): Promise<void> {
  await expect.poll(() => page.evaluate(expression), { interval: 50 }).toBe(true);
}

/**
 * Resolves once the page has what it asks for when it is opened. Charts without any step yet, of which one takes ten
 * seconds, are not waited for.
 */
export function loaded(page: Page): Promise<void> {
  return until(page, '!/Waiting for .*…/.test(document.querySelector("main").innerText)');
}

/**
 * Resolves once the page is laid out for a window of this width: it learns of it later than the browser that is told,
 * and its tables a frame later.
 */
export async function resized(page: Page, width: number): Promise<void> {
  await page.setViewportSize({ width, height: 900 });
  await until(page, `innerWidth === ${width}`);
  await drawn(page);
}

/** The faults in a wide and a narrow window, light and dark. */
export async function allFaultsOf(page: Page): Promise<string[]> {
  const faults: string[] = [];
  for (const [width, colorScheme] of [
    [360, "dark"],
    [1280, "light"],
  ] as const) {
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

/** Opens the lists of what is wrong and of warnings, of which the overview shows a line each. */
export async function openIncidents(page: Page): Promise<void> {
  const lines = page.locator("details.incidents > summary");
  await until(page, "[...document.querySelectorAll('details.incidents')].some((each) => each.offsetParent !== null)");
  for (let i = 0; i < (await lines.count()); i++) if (await lines.nth(i).isVisible()) await lines.nth(i).click();
}
