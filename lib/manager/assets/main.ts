/**
 * The frame of the application: navigation, the current page, connection state, sessions and messages.
 */
import { ApiError, ask } from "./api.ts";
import { el, replace, setText, svg } from "./dom.ts";
import { draft } from "./draft.ts";
import { faultBanner } from "./fault_banner.ts";
import { hashFor, loginHash, parseHash } from "./url_hash.ts";
import { LiveState } from "./live_state.ts";
import { LoginPage } from "./login.ts";
import type { Frame, Page, Session } from "./page.ts";
import { readOnlyPage } from "./read_only_page.ts";
import { SECTIONS, type Section } from "./sections.ts";
import { nextTheme, restoreTheme, type Theme } from "./theme.ts";
import { forgetDrafts } from "./try_page.ts";

const CONNECTIONS = { connecting: "Connecting…", live: "Live", lost: "Connection lost" } as const;
const THEMES: Readonly<Record<Theme, string>> = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const MESSAGE_MS = 6000;
const LEAVE = "What you entered has not been applied. Leave and lose it?";

/** "unknown" until the admin interface has been asked. */
let session: "unknown" | "in" | "out" = "unknown";
/** Whether the gateway has answered since the last login, so that there was a session. */
let hadSession = false;
let notice: string | null = null;
let page: Page | null = null;
/** A page with text that would have been lost when the session ended: for the time after the login. */
let kept: { readonly hash: string; readonly page: Page } | null = null;
let theme = restoreTheme();
let countdown = 0;
let frameRequest = 0;
/** Where the page was scrolled to, by the entry of the browser's history. */
const positions = new Map<string, number>();
let entry = "";
/** The place of that entry among those of this tab, so that one can go back to it. */
let entryIndex = 0;
/** Where the page is to be scrolled to once it is long enough; 0: it is there. */
let scrollTarget = 0;
/** Tells the other tabs of a login or a logout. */
const tabs = sessionChannel();

const live = new LiveState({
  ask,
  shown: () => page?.shown ?? "total",
  now: () => Date.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  changed: onStateChange,
  ended: onSessionEnded,
});

const READER: Session = { user: "", role: "admin", write: false, expiresAt: null };
const frame: Frame = { session: READER, goTo, refresh: () => live.refresh(), showMessage, showError };

const main = el("main", { class: "main", id: "main", tabindex: "-1" });
const toasts = el("div", { class: "toasts", role: "status", "aria-live": "polite" });
const bannerText = el("span", { class: "banner__text" });
const banner = el("section", { class: "banner", "aria-label": "Connection", hidden: true }, bannerText, el("button", { type: "button", class: "button button--small", onclick: () => live.start() }, "Try now"));
const bannerAnnouncement = el("div", { class: "visually-hidden", role: "status" });
const faults = faultBanner();
const brandName = el("div", { class: "brand__name" }, "edge-gateway");
const brandVersion = el("div", { class: "brand__version" });
const connectionText = el("span", {}, CONNECTIONS.connecting);
const connection = el("div", { class: "connection", "data-state": "connecting" }, el("span", { class: "connection__dot", "aria-hidden": "true" }), connectionText);
const menu = el("button", { type: "button", class: "button side__menu", "aria-expanded": "false", "aria-controls": "menu", onclick: () => openMenu(!side.hasAttribute("data-open")) }, "Menu");
const themeButton = el("button", { type: "button", class: "button button--quiet", onclick: switchTheme }, THEMES[theme]);
const loginThemeButton = el("button", { type: "button", class: "button button--quiet", onclick: switchTheme }, THEMES[theme]);
const links = new Map(Object.entries(SECTIONS).map(([name, section]) => [name, linkOf(name, section)]));
const side = el(
  "header",
  { class: "side", onkeydown: (event: KeyboardEvent) => event.key === "Escape" && side.hasAttribute("data-open") && (openMenu(false), menu.focus()) },
  el("div", { class: "brand" }, logo(), el("div", { class: "brand__text" }, brandName, brandVersion)),
  menu,
  el(
    "div",
    { class: "side__body", id: "menu" },
    el("nav", { class: "nav", "aria-label": "Pages" }, ...links.values()),
    el("div", { class: "side__foot" }, connection, themeButton, el("button", { type: "button", class: "button button--quiet", onclick: signOut }, "Sign out")),
  ),
);
const skip = el("a", { class: "skip", href: "#main", onclick: skipToMain }, "Skip to the content");
const shell = el("div", { class: "frame" }, side, el("div", { class: "content" }, banner, bannerAnnouncement, faults.node, main));
const loginCard = el("main", { class: "login" });

start();

function start(): void {
  addEventListener("hashchange", onHashChange);
  addEventListener("beforeunload", (event) => (isDirty(page) || kept !== null || draft.isDirty) && event.preventDefault());
  document.addEventListener("visibilitychange", follow);
  tabs?.addEventListener("message", ({ data }) => (data === "in" ? onSignedIn() : onSignedOut("You have signed out in another tab.")));
  history.scrollRestoration = "manual";
  // For a reload of this page, whose entry keeps its key.
  addEventListener("pagehide", () => sessionStorage.setItem(entry, String(scrollY)));
  for (const type of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(type, () => (scrollTarget = 0), { passive: true });
  new ResizeObserver(scrollBack).observe(main);
  follow();
}

/** Null where the browser forbids it, as some do with cookies: the login page says so. */
function sessionChannel(): BroadcastChannel | null {
  try {
    return new BroadcastChannel("edge-gateway session");
  } catch {
    return null;
  }
}

/** Only a visible page asks, also one that was opened in the background. */
function follow(): void {
  if (document.hidden) live.pause();
  else if (session !== "out") live.start();
}

/** Shows the frame that belongs to the new state. */
function onStateChange(): void {
  const known = live.known;
  if (known.status !== null) hadSession = true;
  if (session !== "in" && (known.status !== null || (session === "unknown" && live.loss !== null))) {
    session = "in";
    show();
  }
  if (frameRequest === 0) frameRequest = requestAnimationFrame(draw);
}

function draw(): void {
  frameRequest = 0;
  if (session !== "in") return;
  const known = live.known;
  const name = known.config?.global.name ?? "";
  setText(brandName, name === "" ? "edge-gateway" : name);
  setText(brandVersion, known.status === null ? "" : `edge-gateway ${known.status.version}`);
  connection.dataset.state = known.connection;
  setText(connectionText, CONNECTIONS[known.connection]);
  main.dataset.connection = known.connection;
  drawBanner();
  faults.update(known.status);
  page?.update(known);
}

/** While the connection is lost nothing else updates the countdown and the ages. */
function drawBanner(): void {
  const loss = live.loss;
  banner.hidden = loss === null;
  clearTimeout(countdown);
  if (loss === null) return setText(bannerAnnouncement, "");
  const left = loss.retryAt === null ? 0 : Math.max(Math.ceil((loss.retryAt - Date.now()) / 1000), 0);
  setText(bannerAnnouncement, `Connection lost. ${loss.why}`);
  setText(bannerText, `Connection lost. ${loss.why} ${loss.retryAt === null ? "Trying again now…" : `Trying again in ${left} s.`}`);
  countdown = setTimeout(draw, 1000);
}

/** The address has changed already: who stays goes back to the page's own. */
function onHashChange(): void {
  const { key, index = entryIndex + 1 } = entryState();
  if (key !== undefined && key === entry) return;
  if (!isDirty(page) || confirm(LEAVE)) show();
  else history.go(entryIndex - index);
}

function isDirty(shown: Page | null): boolean {
  return shown?.isDirty === true;
}

function show(): void {
  const target = parseHash(location.hash);
  if (session === "out" && target.page !== "login") return redirect(loginHash(location.hash));
  if (session === "in" && target.page === "login") return redirect(target.returnTo);
  if (session === "unknown") return;
  // The page that is left is still there.
  positions.set(entry, scrollY);
  if (page !== kept?.page) page?.close?.();
  openMenu(false);
  if (session === "out") showLogin();
  else showPage(target.page, target.segments);
}

/** Replaces the entry of the history: an entry that only redirects would send users forward again when they go back. */
function redirect(hash: string): void {
  history.replaceState(history.state, "", hash);
  show();
}

function showPage(name: string, segments: readonly string[]): void {
  const section = Object.hasOwn(SECTIONS, name) ? SECTIONS[name]! : null;
  // Routes and upstreams are named with their service: "#/routes/shop" is about the service.
  if (section?.names === 2 && segments.length === 1) return redirect(hashFor("services", segments[0]!));
  const open = section !== null && !isOpenTo(section) ? readOnlyPage : segments.length === 0 ? section?.open : segments.length === section?.names ? section.openOne : undefined;
  const first = page === null;
  page = kept?.hash === location.hash ? kept.page : (open ?? notFoundPage)(frame, segments);
  if (page === kept?.page) kept = null;
  for (const [each, link] of links) {
    link.hidden = !isOpenTo(SECTIONS[each]!);
    if (each === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${page.title} · edge-gateway`;
  const heading = el("h1", { tabindex: "-1" }, page.title);
  replace(main, el("div", { class: "main__head" }, heading), page.node);
  if (!shell.isConnected) replace(document.body, skip, shell, toasts);
  enterHistory();
  // Moves the focus to the new page for screen readers; the first page the browser announces itself.
  if (!first) heading.focus({ preventScroll: true });
  draw();
  scrollBack();
  // What the page shows may be other figures than those that are known.
  if (!first) follow();
}

/** Gives the history's entry a key, by which its scroll position is found again, and its place. */
function enterHistory(): void {
  const { key = String(Math.random()), index = entryIndex + 1 } = entryState();
  [entry, entryIndex] = [key, index];
  history.replaceState({ ...history.state, key, index }, "");
  scrollTarget = positions.get(entry) ?? Number(sessionStorage.getItem(entry) ?? 0);
  scrollTo(0, 0);
}

function entryState(): { readonly key?: string; readonly index?: number } {
  return (history.state as { readonly key?: string; readonly index?: number } | null) ?? {};
}

/** Parts of a page arrive later than the page. */
function scrollBack(): void {
  if (scrollTarget === 0) return;
  scrollTo(0, scrollTarget);
  if (Math.abs(scrollY - scrollTarget) < 2) scrollTarget = 0;
}

function showLogin(): void {
  // What the login page is scrolled to does not concern the page that it leads back to.
  entry = "login";
  page = new LoginPage({
    notice,
    loggedIn() {
      tabs?.postMessage("in");
      onSignedIn();
    },
  });
  document.title = "Sign in · edge-gateway";
  replace(
    loginCard,
    el(
      "div",
      { class: "card login__card" },
      el("div", { class: "login__brand" }, logo(), el("h1", {}, page.title)),
      el("p", { class: "muted" }, "with the admin credentials of your gateway"),
      page.node,
      el("div", { class: "login__foot" }, loginThemeButton),
    ),
  );
  replace(document.body, loginCard, toasts);
  page.update(live.known);
}

/** The new state then leads on to the requested page. */
function onSignedIn(): void {
  if (session !== "out") return;
  notice = page = null;
  session = "unknown";
  follow();
}

function onSignedOut(text: string): void {
  if (session === "out") return;
  live.stop();
  forgetDrafts();
  draft.forget();
  notice = text;
  showSignedOut();
}

function showSignedOut(): void {
  if (page !== null && isDirty(page)) kept = { hash: location.hash, page };
  session = "out";
  hadSession = false;
  show();
}

/** 401: without any state there was no session; otherwise it has ended. */
function onSessionEnded({ problem, message }: ApiError): void {
  // The cookie of another application has taken the place of ours: the reply says what to do.
  if (typeof problem.cookie === "string") notice = message;
  else if (hadSession) notice = "Your session has ended. Sign in to continue.";
  showSignedOut();
}

async function signOut(): Promise<void> {
  if ((isDirty(page) || draft.isDirty) && !confirm(LEAVE)) return;
  try {
    await ask("DELETE", "/logout");
  } catch (error) {
    // Without a reply the session may still be open, and must not be shown as ended.
    if (!(error instanceof ApiError && error.status === 401)) return showMessage(`You are still signed in. ${sentence(error)}`, "bad");
  }
  tabs?.postMessage("out");
  page?.close?.();
  page = kept = null;
  history.pushState(null, "", "#/login");
  onSignedOut("You have signed out.");
}

function goTo(hash: string): void {
  if (location.hash !== hash) location.hash = hash;
  else if (!isDirty(page) || confirm(LEAVE)) show();
}

function showError(error: unknown): void {
  if (error instanceof ApiError && error.status === 401) {
    if (session === "in") {
      live.stop();
      onSessionEnded(error);
    }
    return;
  }
  showMessage(sentence(error), "bad");
}

function showMessage(text: string, kind: "info" | "good" | "bad" = "info"): void {
  const message = el("div", { class: kind === "info" ? "notice" : `notice notice--${kind}` }, text);
  toasts.append(message);
  setTimeout(() => message.remove(), MESSAGE_MS + text.length * 40);
}

function openMenu(open: boolean): void {
  side.toggleAttribute("data-open", open);
  menu.setAttribute("aria-expanded", String(open));
}

function switchTheme(): void {
  theme = nextTheme(theme);
  setText(themeButton, THEMES[theme]);
  setText(loginThemeButton, THEMES[theme]);
}

/** By script: the hash of the address names the page, so a link with a fragment would leave it. */
function skipToMain(event: MouseEvent): void {
  event.preventDefault();
  main.focus();
}

function notFoundPage(): Page {
  const node = el("div", { class: "card empty" }, el("p", {}, "There is no page at this address."), el("p", {}, el("a", { href: "#/" }, "Go to the overview")));
  return { title: "Page not found", node, update: () => {} };
}

/** Who cannot change anything does not see the pages for it. */
function isOpenTo({ writes }: Section): boolean {
  return writes !== true || frame.session?.write === true;
}

function linkOf(name: string, { label, icon }: Section): HTMLAnchorElement {
  return el("a", { class: "nav__link", href: `#/${name}` }, iconOf(icon), label);
}

function iconOf(path: string): SVGSVGElement {
  const line = svg("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": "1.6", "stroke-linecap": "round", "stroke-linejoin": "round" });
  return svg("svg", { class: "nav__icon", viewBox: "0 0 18 18", "aria-hidden": "true" }, line);
}

function logo(): HTMLImageElement {
  return el("img", { class: "brand__mark", src: new URL("icon.svg", import.meta.url).href, alt: "", width: 28, height: 28 });
}

function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
