/**
 * What stands around a page: the navigation, the state of the connection and of the session, banners and messages; and
 * the login page's card.
 */
import { ownVersion } from "./api.ts";
import { button, el, replace, setText, svg } from "./dom.ts";
import { changeBar } from "./change_bar.ts";
import { faultBanner } from "./fault_banner.ts";
import { moment, timeZone, until } from "./format.ts";
import type { ConnectionLoss } from "./live_state.ts";
import type { Known, Page, Session } from "./page.ts";
import { NAVIGATION, SECTIONS, type Section } from "./sections.ts";
import { nextTheme, restoreTheme, type Theme } from "./theme.ts";

const CONNECTIONS = { connecting: "Connecting…", live: "Live", lost: "Connection lost" } as const;
const THEMES: Readonly<Record<Theme, string>> = { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const MESSAGE_MS = 6000;
/** What is left of a session when that is said more loudly. */
const ENDS_SOON_MS = 5 * 60_000;
/** What is said behind the name of a user. */
const ROLES = { admin: "", operator: ", an operator", viewer: ", who reads only" } as const;

interface ShellOptions {
  /** Opens the palette. */
  readonly find: () => void;
  readonly signOut: () => void;
  /** Asks for the state now. */
  readonly tryNow: () => void;
}

export class Shell {
  readonly #el: ReturnType<typeof shellElements>;
  readonly #toasts = el("div", { class: "toasts", role: "status", "aria-live": "polite" });
  readonly #themeButtons = [0, 1].map(() => button("", () => this.#setTheme(nextTheme(this.#theme)), "quiet"));
  readonly #faults = faultBanner();
  readonly #change = changeBar();
  readonly #skip: HTMLElement;
  #theme: Theme = "system";

  constructor(options: ShellOptions) {
    this.#el = shellElements(options, this.#themeButtons[0]!, this.#faults.node);
    const { main, menu, side } = this.#el;
    main.before(this.#change.node);
    // By script: the hash of the address names the page, so a link with a fragment would leave it.
    this.#skip = el(
      "a",
      { class: "skip", href: "#main", onclick: (event: MouseEvent) => (event.preventDefault(), main.focus()) },
      "Skip to the content",
    );
    menu.addEventListener("click", () => this.#openMenu(!side.hasAttribute("data-open")));
    side.addEventListener(
      "keydown",
      ({ key }) => key === "Escape" && side.hasAttribute("data-open") && (this.#openMenu(false), menu.focus()),
    );
    this.#setTheme(restoreTheme());
  }

  /** Where pages are. */
  get main(): HTMLElement {
    return this.#el.main;
  }

  /** Shows a page, whose name in the navigation is `name`. Returns its heading. */
  showPage(name: string, page: Page): HTMLElement {
    const { main, links, frame } = this.#el;
    this.#openMenu(false);
    for (const [each, link] of links) {
      if (each === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const heading = el("h1", { tabindex: "-1" }, page.title);
    replace(main, el("div", { class: "main__head" }, heading), page.node);
    if (!frame.isConnected) replace(document.body, this.#skip, frame, this.#toasts);
    return heading;
  }

  showLogin(page: Page): void {
    const card = el(
      "div",
      { class: "card login__card" },
      el("div", { class: "login__brand" }, logo(), el("h1", {}, page.title)),
      el("p", { class: "muted" }, "with the credentials of your gateway's admin interface"),
      page.node,
      el("div", { class: "login__foot" }, this.#themeButtons[1]!),
    );
    replace(document.body, el("main", { class: "login" }, card), this.#toasts);
  }

  draw(known: Known, loss: ConnectionLoss | null, session: Session | null): void {
    const { brandName, brandVersion, versions, connection, connectionText, main } = this.#el;
    setText(brandName, known.config?.global.name || "edge-gateway");
    const version = known.status?.version ?? null;
    setText(brandVersion, version === null ? "" : `edge-gateway ${version}`);
    versions.hidden = version === null || ownVersion === null || version === ownVersion;
    setText(
      versions,
      versions.hidden
        ? ""
        : `The gateway is edge-gateway ${version}, this management UI is ${ownVersion}. Reload the page; ` +
            `if this notice stays, start the UI of the gateway's version.`,
    );
    connection.dataset.state = known.connection;
    setText(connectionText, CONNECTIONS[known.connection]);
    main.dataset.connection = known.connection;
    this.#drawLoss(loss);
    this.#drawSession(session, known.now);
    this.#faults.update(known.status);
    this.#change.update(known.status, session);
  }

  showMessage(text: string, kind: "info" | "good" | "bad"): void {
    const message = el("div", { class: kind === "info" ? "notice" : `notice notice--${kind}` }, text);
    this.#toasts.append(message);
    setTimeout(() => message.remove(), MESSAGE_MS + text.length * 40);
  }

  #drawLoss(loss: ConnectionLoss | null): void {
    const { banner, bannerText, announcement } = this.#el;
    banner.hidden = loss === null;
    if (loss === null) return setText(announcement, "");
    const left = loss.retryAt === null ? 0 : Math.max(Math.ceil((loss.retryAt - Date.now()) / 1000), 0);
    setText(announcement, `Connection lost. ${loss.why}`);
    setText(
      bannerText,
      `Connection lost. ${loss.why} ${loss.retryAt === null ? "Trying again now…" : `Trying again in ${left} s.`}`,
    );
  }

  #drawSession(session: Session | null, now: number): void {
    const { user, ends, links, groups } = this.#el;
    // Who cannot change anything does not see the pages for it.
    for (const [name, link] of links) link.hidden = SECTIONS[name]!.writes === true && session?.write !== true;
    for (const { node, names } of groups) node.hidden = names.every((name) => links.get(name)!.hidden);
    setText(user, session === null ? "" : `${session.user}${ROLES[session.role]}`);
    ends.hidden = session === null;
    if (session === null) return;
    const at = new Date(session.expiresAt).toISOString();
    setText(ends, `Session ends ${until(at, now)}`);
    ends.title = `${moment(at)}, unless you go on working`;
    ends.classList.toggle("figure--bad", session.expiresAt - now < ENDS_SOON_MS);
  }

  #openMenu(open: boolean): void {
    this.#el.side.toggleAttribute("data-open", open);
    this.#el.menu.setAttribute("aria-expanded", String(open));
  }

  #setTheme(theme: Theme): void {
    this.#theme = theme;
    for (const each of this.#themeButtons) setText(each, THEMES[theme]);
  }
}

function shellElements({ find, signOut, tryNow }: ShellOptions, themeButton: HTMLElement, faults: HTMLElement) {
  const main = el("main", { class: "main", id: "main", tabindex: "-1" });
  const bannerText = el("span", { class: "banner__text" });
  const banner = el(
    "section",
    { class: "banner", "aria-label": "Connection", hidden: true },
    bannerText,
    button("Try now", tryNow, "small"),
  );
  const versions = el("div", { class: "banner banner--warn", role: "status", hidden: true });
  const announcement = el("div", { class: "visually-hidden", role: "status" });
  const brandName = el("div", { class: "brand__name" }, "edge-gateway");
  const brandVersion = el("div", { class: "brand__version" });
  const connectionText = el("span", {}, CONNECTIONS.connecting);
  const connection = el(
    "div",
    { class: "connection", "data-state": "connecting" },
    el("span", { class: "connection__dot", "aria-hidden": "true" }),
    connectionText,
  );
  const user = el("div");
  const ends = el("div", { hidden: true });
  const menu = el(
    "button",
    { type: "button", class: "button side__menu", "aria-expanded": "false", "aria-controls": "menu" },
    "Menu",
  );
  const links = new Map<string, HTMLAnchorElement>();
  const groups = Object.entries(NAVIGATION).map(([title, names]) => {
    for (const name of names) links.set(name, linkOf(name, SECTIONS[name]!));
    const id = `nav-${title}`;
    const heading = el("p", { class: "nav__title", id }, title);
    const list = el(
      "ul",
      { class: "nav__list", "aria-labelledby": id },
      ...names.map((name) => el("li", {}, links.get(name)!)),
    );
    return { node: el("div", {}, heading, list), names };
  });
  const signOutButton = button("Sign out", signOut, "quiet");
  const side = el(
    "header",
    { class: "side" },
    el("div", { class: "brand" }, logo(), el("div", { class: "brand__text" }, brandName, brandVersion)),
    menu,
    el(
      "div",
      { class: "side__body", id: "menu" },
      button("Find anything", find, "", { "aria-haspopup": "dialog", title: "Ctrl+K" }),
      el("nav", { class: "nav", "aria-label": "Pages" }, ...groups.map(({ node }) => node)),
      el(
        "div",
        { class: "side__foot" },
        connection,
        el("div", { class: "session" }, user, ends, el("div", {}, `Times: ${timeZone()}`)),
        el("div", { class: "side__buttons" }, themeButton, signOutButton),
      ),
    ),
  );
  const frame = el(
    "div",
    { class: "frame" },
    side,
    el("div", { class: "content" }, banner, announcement, versions, faults, main),
  );
  return {
    frame,
    side,
    menu,
    links,
    groups,
    main,
    banner,
    bannerText,
    announcement,
    versions,
    brandName,
    brandVersion,
    connection,
    connectionText,
    user,
    ends,
  };
}

function linkOf(name: string, { label, icon }: Section): HTMLAnchorElement {
  const line = svg("path", {
    d: icon ?? "",
    fill: "none",
    stroke: "currentColor",
    "stroke-width": "1.6",
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
  });
  return el(
    "a",
    { class: "nav__link", href: `#/${name}` },
    svg("svg", { class: "nav__icon", viewBox: "0 0 18 18", "aria-hidden": "true" }, line),
    label,
  );
}

function logo(): HTMLImageElement {
  return el("img", {
    class: "brand__mark",
    src: new URL("icon.svg", import.meta.url).href,
    alt: "",
    width: 28,
    height: 28,
  });
}
