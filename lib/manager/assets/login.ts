/**
 * The login page: asks for the administrator's credentials, and explains what prevents a login.
 */
import { ApiError, ask } from "./api.ts";
import { el, replace, setText } from "./dom.ts";
import type { Page } from "./page.ts";

export interface LoginOptions {
  /** Why the page is shown: "Your session has ended. Sign in to go on." Null at the first visit. */
  readonly notice: string | null;
  /** Logged in, and the browser has kept the cookie. */
  readonly entered: () => void;
}

const WRONG = "That name and password are not right. They are the ADMIN_USER and ADMIN_PASSWORD that the gateway was started with.";

export function loginPage({ notice, entered }: LoginOptions): Page {
  const said = el("div", { class: "login__said", role: "alert" }, notice === null ? null : el("p", { class: "notice" }, notice));
  const user = el("input", { id: "login-user", name: "username", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true });
  const password = el("input", { id: "login-password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const reveal = el("button", { type: "button", class: "button", "aria-pressed": "false", "aria-controls": "login-password", onclick: turnReveal }, "Show");
  const submit = el("button", { type: "submit", class: "button button--primary" }, "Sign in");
  /** "waiting": the admin interface has asked for a pause; "asking": a reply is pending. */
  let state: "idle" | "asking" | "waiting" = "idle";
  let timer = 0;

  const form = el(
    "form",
    { class: "login__form", onsubmit: send, novalidate: true },
    el("div", { class: "field" }, el("label", { for: "login-user" }, "Name"), user),
    el("div", { class: "field" }, el("label", { for: "login-password" }, "Password"), el("div", { class: "login__password" }, password, reveal)),
    submit,
  );
  const node = el("div", { class: "stack" }, said, form);
  return { title: "Sign in", node, update: () => (user.value === "" ? user : password).focus(), close: () => clearInterval(timer) };

  function turnReveal(): void {
    const shown = password.type === "password";
    password.type = shown ? "text" : "password";
    reveal.setAttribute("aria-pressed", String(shown));
    setText(reveal, shown ? "Hide" : "Show");
  }

  function send(event: SubmitEvent): void {
    event.preventDefault();
    if (state !== "idle") return;
    const missing = user.value === "" ? user : password.value === "" ? password : null;
    if (missing !== null) {
      tell("warn", missing === user ? "Enter the name first." : "Enter the password.");
      missing.focus();
      return;
    }
    // RFC 7617: the user name ends at the first colon, so it cannot contain one.
    if (user.value.includes(":")) {
      tell("bad", "A name cannot contain a colon.");
      user.focus();
      return;
    }
    void signIn();
  }

  async function signIn(): Promise<void> {
    turn("asking");
    try {
      await ask("POST", "/login", { authorization: `Basic ${base64(`${user.value}:${password.value}`)}` });
    } catch (error) {
      turn("idle");
      refused(error);
      return;
    }
    try {
      await ask("GET", "/gateway/status");
    } catch (error) {
      turn("idle");
      if (error instanceof ApiError && error.status === 401) withoutCookie();
      else refused(error);
      return;
    }
    entered();
  }

  function refused(error: unknown): void {
    if (!(error instanceof ApiError)) return tell("bad", String(error));
    if (error.status === 401) {
      tell("bad", WRONG);
      password.focus();
      password.select();
      return;
    }
    if (error.status === 429) return wait(error.retryAfterS ?? 5);
    if (error.status === 0 || error.status === 502 || error.status === 503 || error.status === 504) {
      const what = error.status === 0 ? "" : "Is the gateway running, and does it have ADMIN_USER and ADMIN_PASSWORD? Without them its admin interface is off. ";
      return tell("bad", `${error.message} `, `${what}Then try again.`.trim());
    }
    tell("bad", `${error.message} (HTTP ${error.status})`);
  }

  /** The cookie is `Secure`: browsers keep it over HTTPS and from localhost, and silently drop it elsewhere. */
  function withoutCookie(): void {
    if (isSecureContext) return tell("bad", "The name and password are right, but your browser has not kept the session's cookie.", "Allow cookies for this site, and try again.");
    const local = `http://localhost:${location.port === "" ? "80" : location.port}`;
    tell(
      "bad",
      `The name and password are right, but your browser keeps the session's cookie only over HTTPS or from localhost, and this page comes from ${location.origin}.`,
      `On the gateway's own machine open ${local}; from elsewhere lead a tunnel there (ssh -L 5173:localhost:${location.port === "" ? "80" : location.port} …), or serve this UI over HTTPS (MANAGER_TLS=true).`,
    );
  }

  /** The countdown is in the button, which screen readers do not repeat; the alert announces it once. */
  function wait(seconds: number): void {
    const end = Date.now() + seconds * 1000;
    turn("waiting");
    tell("warn", `Too many failed attempts from your address. You can try again in ${spoken(seconds)}.`);
    clearInterval(timer);
    timer = setInterval(tick, 250);
    tick();

    function tick(): void {
      const left = Math.ceil((end - Date.now()) / 1000);
      if (left > 0) return setText(submit, `Try again in ${spoken(left)}`);
      clearInterval(timer);
      turn("idle");
      tell("good", "You can try again now.");
    }
  }

  /** `aria-disabled` instead of `disabled`, so that the button keeps the focus. */
  function turn(to: typeof state): void {
    state = to;
    submit.setAttribute("aria-disabled", String(to !== "idle"));
    submit.setAttribute("aria-busy", String(to === "asking"));
    setText(submit, to === "asking" ? "Signing in…" : "Sign in");
  }

  function tell(kind: "good" | "warn" | "bad", ...sentences: readonly string[]): void {
    replace(said, el("div", { class: `notice notice--${kind}` }, ...sentences.map((each) => el("p", {}, each.trim()))));
  }
}

/** As UTF-8 in base64, which `btoa` alone cannot do. */
function base64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}

function spoken(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  return minutes === 0 ? `${seconds} s` : `${minutes} min ${seconds % 60} s`;
}
