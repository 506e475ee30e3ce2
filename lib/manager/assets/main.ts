/**
 * The frame of the application: which page is shown, sessions, the live state, and what pages ask of it.
 */
import { updateAges } from "./ages.ts";
import { ask, isSessionEnd, messageOf, type ApiError } from "./api.ts";
import { after, button, el } from "./dom.ts";
import { confirmed } from "./dialog.ts";
import { draft } from "./draft.ts";
import { checks } from "./draft_checks.ts";
import { setLive } from "./live.ts";
import { LiveState } from "./live_state.ts";
import { LoginPage } from "./login.ts";
import type { Frame, OpenPage, Page, Session } from "./page.ts";
import { ON_DEMAND, READ_ONLY, SECTIONS, type Section } from "./sections.ts";
import { Shell } from "./shell.ts";
import { followKeys } from "./shortcuts.ts";
import { hashFor, loginHash, parseHash, pathIn } from "./url_hash.ts";
import { Visits } from "./visits.ts";

/** What the frame shows. */
type State =
  /** Nothing new: whether there is a session is being asked. */
  | { readonly is: "asking"; readonly page: null }
  | { readonly is: "signed out"; readonly page: Page; readonly notice: string | null }
  /** The page is null while the first one is on its way. */
  | { readonly is: "signed in"; readonly page: Page | null };

const ASKING: State = { is: "asking", page: null };
const LEAVE = "The draft has not been applied. Sign out and lose it?";
/** A session is renewed once this part of it has passed. */
const RENEWED_AFTER = 1 / 4;
/** Pause after a renewal that failed. */
const RENEW_AGAIN_MS = 30_000;

class App implements Frame {
  readonly texts = new Map<string, Readonly<Record<string, string>>>();
  readonly #shell = new Shell({
    find: () => this.#openPalette("search"),
    signOut: () => void this.#signOut(),
    tryNow: () => this.#live.start(),
  });
  readonly #visits = new Visits(this.#shell.main);
  readonly #live: LiveState;
  /** Tells the other tabs "in", "out" and "renewed". */
  readonly #tabs = sessionChannel();
  #state: State = ASKING;
  /** Null until it is known, and without one. */
  #session: Session | null = null;
  /** What asks for the session now: an answer that comes after the end of a session is not about the next one. */
  #asking: object | null = null;
  /** The last user: what they entered is not shown to another one. */
  #user: string | null = null;
  /** By this browser's clock: from when on a user who works renews the session. */
  #renewAt = Number.POSITIVE_INFINITY;
  /** Of the page that is shown. */
  #path = "";
  /** Counts pages: a module that arrives for an earlier one is ignored. */
  #turn = 0;
  #countdown = 0;
  #frameRequest = 0;

  constructor() {
    this.#live = new LiveState({
      ask,
      shown: () => this.#state.page?.shown ?? "total",
      now: () => Date.now(),
      after,
      changed: () => this.#onStateChange(),
      ended: (error) => this.#onSessionEnded(error),
    });
  }

  start(): void {
    checks.failed = this.showError;
    addEventListener("hashchange", () => this.#show());
    followKeys({
      mayGo: () => this.#state.is === "signed in",
      goTo: this.goTo,
      open: (what) => this.#openPalette(what),
    });
    addEventListener("beforeunload", (event) => draft.isDirty && event.preventDefault());
    document.addEventListener("visibilitychange", () => this.#follow());
    this.#tabs?.addEventListener("message", ({ data }) => this.#onTab(data));
    for (const type of ["wheel", "keydown", "pointerdown"])
      addEventListener(type, () => this.#onInput(), { passive: true });
    this.#follow();
  }

  get session(): Session | null {
    return this.#session;
  }

  // Pages also pass these on as functions.
  readonly goTo = (hash: string): void => {
    if (location.hash !== hash) location.hash = hash;
    else this.#show();
  };

  readonly acceptWarning = (name: string): void =>
    void ON_DEMAND.acceptWarning().then((module) => module.acceptWarning(this, name), this.showError);

  readonly refresh = (): Promise<void> => this.#live.refresh();

  readonly showError = (error: unknown): void => {
    if (!isSessionEnd(error)) return this.showMessage(messageOf(error), "bad");
    if (this.#state.is === "signed in") this.#onSessionEnded(error);
  };

  readonly showMessage = (text: string, kind: "info" | "good" | "bad" = "info"): void =>
    this.#shell.showMessage(text, kind);

  #openPalette(what: "search" | "keys"): void {
    const show = ({ showKeys, showPalette }: Awaited<ReturnType<typeof ON_DEMAND.palette>>) =>
      what === "keys" ? showKeys(SECTIONS) : showPalette(this, SECTIONS);
    void ON_DEMAND.palette().then(show, this.showError);
  }

  /** Only a visible page asks, also one that was opened in the background. */
  #follow(): void {
    if (document.hidden) this.#live.pause();
    else if (this.#state.is !== "signed out") this.#live.start();
  }

  /** Shows what belongs to the new state. */
  #onStateChange(): void {
    const { known, loss } = this.#live;
    if (known.status !== null && this.#session === null && this.#state.is !== "signed out")
      void this.#askSession("GET");
    // Without a connection there is a page that says so.
    if (loss !== null) this.#enter();
    if (this.#frameRequest === 0) this.#frameRequest = requestAnimationFrame(() => this.#draw());
  }

  /** What a user has entered is shown again once it is known who has signed in. */
  #enter(): void {
    if (this.#state.is !== "asking" || (this.#session === null && this.#user !== null)) return;
    this.#state = { is: "signed in", page: null };
    this.#show();
  }

  #draw(): void {
    this.#frameRequest = 0;
    const { page } = this.#state;
    if (this.#state.is !== "signed in" || page === null) return;
    const { known, loss } = this.#live;
    const name = known.config?.global.name ?? "";
    // Gateways without a name are called as the program.
    const title = `${page.title} · ${name === "" || name === "edge-gateway" ? location.host : name}`;
    if (document.title !== title) document.title = title;
    this.#shell.draw(known, loss, this.#session);
    setLive(known);
    updateAges(known.now);
    try {
      page.update(known);
    } catch (error) {
      reportError(error);
      this.#showPage(
        parseHash(location.hash).page,
        unreadablePage(error, () => this.#show()),
      );
    }
    clearTimeout(this.#countdown);
    // While the connection is lost nothing else updates the countdown and the ages, and no figures are asked for while
    // the tab is hidden.
    if (loss !== null) this.#countdown = window.setTimeout(() => !document.hidden && this.#draw(), 1000);
  }

  #show(): void {
    const { page, segments, returnTo } = parseHash(location.hash);
    if (this.#state.is === "signed out") this.#showLogin(this.#state.notice);
    else if (this.#state.is === "signed in" && page === "login") this.#redirect(returnTo);
    else if (this.#state.page?.hasTabs === true && this.#path === pathIn(location.hash)) this.#turnTab();
    else if (this.#state.is === "signed in") void this.#openPage(page, segments);
  }

  /** The page stays, and with it the focus. */
  #turnTab(): void {
    // Another page may be on its way.
    this.#turn += 1;
    this.#visits.leave();
    this.#visits.enter(true);
    this.#draw();
    this.#visits.scrollBack();
  }

  /**
   * Replaces the entry of the history: an entry that only redirects would send users forward again when they go back.
   */
  #redirect(hash: string): void {
    history.replaceState(history.state, "", hash);
    this.#show();
  }

  async #openPage(name: string, segments: readonly string[]): Promise<void> {
    const own = ++this.#turn;
    const section = Object.hasOwn(SECTIONS, name) ? SECTIONS[name]! : null;
    // Routes and upstreams are named with their service: "#/routes/shop" is about the service.
    if (section?.names === 2 && segments.length === 1) return this.#redirect(hashFor("services", segments[0]!));
    const isClosed = section?.writes === true && this.#session?.write === false;
    const open = await opener(isClosed ? READ_ONLY : section, isClosed ? 0 : segments.length).catch(
      (): OpenPage => unloadablePage,
    );
    if (own !== this.#turn || this.#state.is !== "signed in") return;
    let page: Page;
    try {
      page = open(this, segments);
    } catch (error) {
      reportError(error);
      page = unreadablePage(error, () => this.#show());
    }
    this.#showPage(name, page);
  }

  #showPage(name: string, page: Page): void {
    const before = this.#state.page;
    // The page that is left is still there.
    this.#visits.leave();
    before?.close?.();
    this.#state = { is: "signed in", page };
    this.#path = pathIn(location.hash);
    const heading = this.#shell.showPage(name, page);
    this.#visits.enter();
    // Moves the focus to the new page for screen readers; the first page the browser announces itself.
    if (before !== null) heading.focus({ preventScroll: true });
    this.#draw();
    this.#visits.scrollBack();
    // What the page shows may be other figures than those that are known.
    if (before !== null) this.#follow();
  }

  #showLogin(notice: string | null): void {
    if (parseHash(location.hash).page !== "login") history.replaceState(history.state, "", loginHash(location.hash));
    const page = new LoginPage({
      notice,
      loggedIn: () => {
        this.#tabs?.postMessage("in");
        this.#onSignedIn();
      },
    });
    this.#state.page?.close?.();
    this.#state = { is: "signed out", page, notice };
    this.#visits.enterLogin();
    document.title = `Sign in · ${location.host}`;
    this.#shell.showLogin(page);
    page.update();
  }

  /** The new state then leads on to the requested page. */
  #onSignedIn(): void {
    if (this.#state.is !== "signed out") return;
    this.#state.page.close?.();
    this.#state = ASKING;
    this.#follow();
  }

  #showSignedOut(notice: string | null): void {
    const { is, page } = this.#state;
    if (is === "signed out") return;
    this.#live.stop();
    setLive(null);
    if (page !== null) this.#visits.leave();
    page?.close?.();
    this.#turn += 1;
    this.#session = null;
    this.#asking = null;
    this.#renewAt = Number.POSITIVE_INFINITY;
    this.#state = ASKING;
    this.#showLogin(notice);
  }

  #forget(): void {
    this.texts.clear();
    draft.forget();
  }

  /** 401: without a session before there was none; otherwise it has ended. */
  #onSessionEnded({ problem, message }: ApiError): void {
    // The cookie of another application has taken the place of ours: the reply says what to do.
    const isForeign = typeof problem.cookie === "string";
    this.#showSignedOut(
      isForeign ? message : this.#session !== null ? "Your session has ended. Sign in to continue." : null,
    );
  }

  async #signOut(): Promise<void> {
    if (draft.isDirty && !(await confirmed(LEAVE, "Sign out"))) return;
    try {
      await ask("DELETE", "/logout");
    } catch (error) {
      // Without a reply the session may still be open, and must not be shown as ended.
      if (!isSessionEnd(error)) return this.showMessage(`You are still signed in. ${messageOf(error)}`, "bad");
    }
    this.#tabs?.postMessage("out");
    history.pushState(null, "", "#/login");
    // First: a page that is left says that an unfinished draft is kept.
    this.#forget();
    this.#showSignedOut("You have signed out.");
  }

  #onTab(message: unknown): void {
    if (message === "in") this.#onSignedIn();
    else if (message === "out") this.#showSignedOut("You have signed out in another tab.");
    else if (message === "renewed" && this.#session !== null) void this.#askSession("GET");
  }

  /** A session lasts as long as somebody works, and ends although pages ask by themselves. */
  #onInput(): void {
    if (this.#state.is === "signed in" && Date.now() >= this.#renewAt) void this.#askSession("POST");
  }

  /** POST renews it. */
  async #askSession(method: "GET" | "POST"): Promise<void> {
    if (this.#asking !== null) return;
    const own = (this.#asking = {});
    try {
      const { expires_at: end, ...session } = await ask<SessionJson>(method, "/gateway/session");
      if (own !== this.#asking) return;
      this.#setSession({ ...session, expiresAt: Date.parse(end) });
      if (method === "POST") this.#tabs?.postMessage("renewed");
    } catch (error) {
      if (own !== this.#asking) return;
      const { status } = error as ApiError;
      this.#renewAt = Date.now() + RENEW_AGAIN_MS;
      if (status === 401) this.showError(error);
    } finally {
      if (own === this.#asking) this.#asking = null;
    }
    this.#enter();
  }

  #setSession(session: Session): void {
    this.#session = session;
    this.#renewAt = Date.now() + (session.expiresAt - this.#live.known.now) * RENEWED_AFTER;
    if (this.#user !== null && this.#user !== session.user) this.#forget();
    this.#user = session.user;
    draft.keepFor(session.user);
  }
}

/** The answer to GET and POST /gateway/session. */
interface SessionJson extends Omit<Session, "expiresAt"> {
  readonly expires_at: string;
}

new App().start();

/** Null where the browser forbids it, as some do with cookies: the login page says so. */
function sessionChannel(): BroadcastChannel | null {
  try {
    return new BroadcastChannel("edge-gateway session");
  } catch {
    return null;
  }
}

/** What opens the page of a section, or the one of an item that has so many names. */
async function opener(section: Pick<Section, "load" | "loadOne" | "names"> | null, names: number): Promise<OpenPage> {
  if (section === null) return notFoundPage;
  if (names === 0) return (await section.load()).page;
  return names === section.names ? (await section.loadOne!()).onePage : notFoundPage;
}

function notFoundPage(): Page {
  return emptyPage(
    "Page not found",
    "There is no page at this address.",
    el("a", { href: "#/" }, "Go to the overview"),
  );
}

/** Its module does not arrive: the connection is lost, or the UI is now one of another version. */
function unloadablePage(): Page {
  const text = "This page could not be loaded. The management UI may have been updated or have ended.";
  return emptyPage(
    "Page not loaded",
    text,
    button("Reload", () => location.reload()),
  );
}

/** It cannot show an answer of the gateway, as one of another version may have. */
function unreadablePage(error: unknown, again: () => void): Page {
  return emptyPage(
    "Page not shown",
    `This page cannot show what the gateway has answered. ${messageOf(error)}`,
    button("Try again", again),
  );
}

function emptyPage(title: string, text: string, remedy: HTMLElement): Page {
  return { title, node: el("div", { class: "card empty" }, el("p", {}, text), el("p", {}, remedy)), update: () => {} };
}
