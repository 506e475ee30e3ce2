/**
 * Debian's Chromium without a window, driven by playwright-core; everything a page logs, asks for or breaks is kept.
 */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, onTestFinished } from "vitest";

/** As much of playwright's as is used: its types are installed with it, after everything else has been checked. */
export interface Locator {
  click(): Promise<void>;
  fill(text: string): Promise<void>;
  selectOption(value: string): Promise<unknown>;
  press(key: string): Promise<void>;
  focus(): Promise<void>;
  waitFor(options?: { state: "visible" | "hidden" | "attached" | "detached" }): Promise<void>;
  textContent(): Promise<string | null>;
  innerText(): Promise<string>;
  inputValue(): Promise<string>;
  getAttribute(name: string): Promise<string | null>;
  count(): Promise<number>;
  isVisible(): Promise<boolean>;
  allInnerTexts(): Promise<string[]>;
  first(): Locator;
  nth(index: number): Locator;
  filter(options: { hasText: string | RegExp }): Locator;
  getByRole(role: string, options?: { name?: string | RegExp; exact?: boolean }): Locator;
  getByText(text: string | RegExp, options?: { exact?: boolean }): Locator;
  locator(css: string): Locator;
}

export interface Page extends Pick<Locator, "getByRole" | "getByText" | "locator"> {
  goto(url: string): Promise<unknown>;
  reload(): Promise<unknown>;
  goBack(): Promise<unknown>;
  getByLabel(text: string | RegExp, options?: { exact?: boolean }): Locator;
  evaluate<T>(script: string): Promise<T>;
  screenshot(options: { path: string; fullPage?: boolean }): Promise<unknown>;
  setViewportSize(size: { width: number; height: number }): Promise<void>;
  emulateMedia(media: { colorScheme?: "light" | "dark"; forcedColors?: "active" | "none" }): Promise<void>;
  title(): Promise<string>;
  setDefaultTimeout(ms: number): void;
  url(): string;
  content(): Promise<string>;
  context(): Context;
  addInitScript(script: { content: string }): Promise<void>;
  close(): Promise<void>;
  waitForEvent(event: "download"): Promise<{ suggestedFilename(): string; path(): Promise<string> }>;
  on(event: "console", act: (message: { type(): string; text(): string }) => void): void;
  on(event: "pageerror", act: (error: Error) => void): void;
  on(event: "request", act: (request: { url(): string; postData(): string | null }) => void): void;
  on(
    event: "dialog",
    act: (dialog: { message(): string; accept(): Promise<void>; dismiss(): Promise<void> }) => void,
  ): void;
  readonly keyboard: { press(key: string): Promise<void>; type(text: string): Promise<void> };
}

export interface Context {
  newPage(): Promise<Page>;
  close(): Promise<void>;
  cookies(): Promise<{ name: string; value: string; httpOnly: boolean; secure: boolean }[]>;
  clearCookies(): Promise<void>;
  newCDPSession(page: Page): Promise<{ send(method: string, options: object): Promise<unknown> }>;
  addCookies(cookies: readonly { name: string; value: string; url: string }[]): Promise<void>;
}

export interface Browser {
  newContext(options?: {
    viewport?: { width: number; height: number };
    colorScheme?: "light" | "dark";
    reducedMotion?: "reduce";
  }): Promise<Context>;
  close(): Promise<void>;
}

const SHELL = "/usr/bin/chromium-headless-shell";
/**
 * A Debian package: the same Chromium without its windows, which needs a third less of the processor, or else the whole
 * one; anything else that speaks the protocol may be named by CHROMIUM.
 */
const EXECUTABLE = process.env.CHROMIUM ?? (existsSync(SHELL) ? SHELL : "/usr/bin/chromium");
const ACCESSIBILITY = readFileSync(new URL("accessibility.js", import.meta.url), "utf8");

/** To be closed by whoever has launched it. */
export async function launch(): Promise<Browser> {
  const { chromium } = createRequire(import.meta.url)("playwright-core") as {
    chromium: { launch(options: object): Promise<Browser> };
  };
  // Its sandbox wants rights that containers do not give to root.
  return chromium.launch({ executablePath: EXECUTABLE, args: ["--no-sandbox", "--disable-gpu"] });
}

export interface Visit {
  readonly page: Page;
  /** Errors that the page has met or logged, those of the network included. */
  readonly errors: string[];
  /** The origins of all that it has asked for. */
  readonly origins: Set<string>;
}

/** Cookies, storage and cache of their own. To be closed. */
export function newContext(
  browser: Browser,
  { width = 1280, colorScheme = "light" }: { readonly width?: number; readonly colorScheme?: "light" | "dark" } = {},
): Promise<Context> {
  return browser.newContext({ viewport: { width, height: 900 }, colorScheme, reducedMotion: "reduce" });
}

/** A page of a session of its own, gone when the test ends. */
export async function visit(browser: Browser, options: Parameters<typeof newContext>[1] = {}): Promise<Visit> {
  const context = await newContext(browser, options);
  onTestFinished(() => context.close());
  return visitIn(context);
}

/** A page more of this context, and gone with it. */
export async function visitIn(context: Context): Promise<Visit> {
  const page = await context.newPage();
  // Less than the test has: what was waited for in vain is then told.
  page.setDefaultTimeout(30_000);
  // By hand, to find specs that only a quick browser passes: as slow as a processor with a sixth of the speed, for
  // instance.
  const rate = Number(process.env.BROWSER_SLOWDOWN);
  if (rate > 1) await (await page.context().newCDPSession(page)).send("Emulation.setCPUThrottlingRate", { rate });
  const errors: string[] = [];
  const origins = new Set<string>();
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error.stack ?? error)));
  page.on("request", (request) => origins.add(new URL(request.url()).origin));
  return { page, errors, origins };
}

/** What is wrong with the page for those who cannot see it well; see `accessibility.js`. */
export async function faultsOf(page: Page): Promise<string[]> {
  await drawn(page);
  return page.evaluate(`${ACCESSIBILITY}\nlook()`);
}

/** Resolves once what has changed is laid out: tables learn of their width a frame later. */
export async function drawn(page: Page): Promise<void> {
  await page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))");
}

/** Expects it of what `read` gives in the end: pages show later what they are told now. */
export function soon<T>(read: () => Promise<T>) {
  return expect.poll(read, { interval: 50 });
}
