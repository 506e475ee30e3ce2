/**
 * The frame of the application: navigation, the current page, connection state, sessions and messages.
 */
import { ApiError, ask } from "./api.ts";
import { callersPage } from "./callers_page.ts";
import { configPage } from "./config_page.ts";
import { el, replace, setText, svg } from "./dom.ts";
import { draft } from "./draft.ts";
import { faultBanner } from "./fault_banner.ts";
import { hashFor, loginHash, parseHash } from "./url_hash.ts";
import { LiveState } from "./live_state.ts";
import { LoginPage } from "./login.ts";
import { overviewPage } from "./overview.ts";
import type { Frame, OpenPage, Page } from "./page.ts";
import { pluginsPage } from "./plugins_page.ts";
import { routePage } from "./route_page.ts";
import { routesPage } from "./routes_page.ts";
import { servicePage, servicesPage } from "./services_page.ts";
import { testsPage } from "./tests_page.ts";
import { nextTheme, restoreTheme, type Theme } from "./theme.ts";
import { forgetDrafts, tryPage } from "./try_page.ts";
import { upstreamPage, upstreamsPage } from "./upstreams_page.ts";

interface Section {
  readonly label: string;
  /** The SVG path of an icon in a square of 18. */
  readonly icon: string;
  readonly open: OpenPage;
  /** The page of one item, and how many names of it follow in the hash. */
  readonly openOne?: OpenPage;
  readonly names?: number;
}

const SECTIONS: Readonly<Record<string, Section>> = {
  "": { label: "Overview", icon: "M2 12h3l2.5-7 3.5 10 2-5h3", open: overviewPage },
  services: { label: "Services", icon: "M3 3h12v5H3zM3 10.5h12v5H3zM6 5.5h.01M6 13h.01", open: servicesPage, openOne: servicePage, names: 1 },
  routes: { label: "Routes", icon: "M4 4v4a4 4 0 0 0 4 4h6M11 9l3 3-3 3M4 8v7", open: routesPage, openOne: routePage, names: 2 },
  upstreams: { label: "Upstreams", icon: "M9 15V8M9 8 4 4M9 8l5-4M4 4h.01M14 4h.01M9 15h.01", open: upstreamsPage, openOne: upstreamPage, names: 2 },
  plugins: { label: "Plugins", icon: "M6 2v4M12 2v4M4 6h10v3a5 5 0 0 1-10 0zM9 14v3", open: pluginsPage },
  callers: { label: "Callers", icon: "M9 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3 15.5c0-3.5 2.7-5 6-5s6 1.5 6 5", open: callersPage },
  try: { label: "Try it", icon: "M5 3.5v11l9-5.5z", open: tryPage },
  tests: { label: "Tests", icon: "M3 4.5 4.5 6 7 3M9.5 4.5H15M3 9.5 4.5 11 7 8M9.5 9.5H15M3 14.5 4.5 16 7 13M9.5 14.5H15", open: testsPage },
  config: { label: "Configuration", icon: "M2.5 5.5H9M13 5.5h2.5M2.5 12.5H5M9 12.5h6.5M11 3.5v4M7 10.5v4", open: configPage },
};

const CONNECTIONS = { connecting: "Connecting…", live: "Live", lost: "Connection lost" } as const;
const THEMES: Readonly<Record<Theme, string>> = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const MESSAGE_MS = 6000;

/** "unknown" until the admin interface has been asked. */
let session: "unknown" | "in" | "out" = "unknown";
/** Whether the gateway has answered since the last login, so that there was a session. */
let hadSession = false;
let notice: string | null = null;
let page: Page | null = null;
let theme = restoreTheme();
let countdown = 0;
let frameRequest = 0;
/** Where the page was scrolled to, by the entry of the browser's history. */
const positions = new Map<string, number>();
let entry = "";
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

const frame: Frame = { goTo, refresh: () => live.refresh(), showMessage, showError };

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
  addEventListener("hashchange", show);
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

function show(): void {
  const target = parseHash(location.hash);
  if (session === "out" && target.page !== "login") return redirect(loginHash(location.hash));
  if (session === "in" && target.page === "login") return redirect(target.returnTo);
  if (session === "unknown") return;
  // The page that is left is still there.
  positions.set(entry, scrollY);
  page?.close?.();
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
  const open = segments.length === 0 ? section?.open : segments.length === section?.names ? section.openOne : undefined;
  const first = page === null;
  page = (open ?? notFoundPage)(frame, segments);
  for (const [each, link] of links) {
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

/** Gives the history's entry a key, by which its scroll position is found again. */
function enterHistory(): void {
  const state = history.state as { readonly key?: string } | null;
  entry = state?.key ?? String(Math.random());
  if (state?.key === undefined) history.replaceState({ ...state, key: entry }, "");
  scrollTarget = positions.get(entry) ?? Number(sessionStorage.getItem(entry) ?? 0);
  scrollTo(0, 0);
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
  try {
    await ask("DELETE", "/logout");
  } catch (error) {
    // Without a reply the session may still be open, and must not be shown as ended.
    if (!(error instanceof ApiError && error.status === 401)) return showMessage(`You are still signed in. ${sentence(error)}`, "bad");
  }
  tabs?.postMessage("out");
  history.pushState(null, "", "#/login");
  onSignedOut("You have signed out.");
}

function goTo(hash: string): void {
  if (location.hash === hash) show();
  else location.hash = hash;
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
