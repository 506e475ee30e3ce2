/**
 * The login page: asks for the administrator's credentials, and explains why a login fails.
 */
import { ApiError, ask, isSessionEnd, messageOf } from "./api.ts";
import { field } from "./components.ts";
import { el, replace, setPending, setText } from "./dom.ts";
import type { Page } from "./page.ts";

interface LoginOptions {
  /** Why the page is shown: "Your session has ended. Sign in to continue." Null on the first visit. */
  readonly notice: string | null;
  /** Called after a login for which the browser has stored the cookie. */
  readonly loggedIn: () => void;
}

/** "asking": a reply is pending. "waiting": the admin interface has asked for a pause. */
type State = "idle" | "asking" | "waiting";

const WRONG =
  "The name or the password is wrong. Use the ADMIN_USER and ADMIN_PASSWORD that the gateway " +
  "was started with, or those " +
  "of a user in its ADMIN_USERS_FILE.";

export class LoginPage implements Page {
  readonly title = "Sign in";
  readonly node: HTMLElement;
  readonly #el: ReturnType<typeof loginElements>;
  readonly #loggedIn: () => void;
  #state: State = "idle";
  #timer = 0;

  constructor({ notice, loggedIn }: LoginOptions) {
    this.#loggedIn = loggedIn;
    this.#el = loginElements(notice);
    this.node = this.#el.node;
    this.#el.reveal.addEventListener("click", () => this.#toggleReveal());
    this.#el.form.addEventListener("submit", (event) => this.#send(event));
  }

  update(): void {
    const { user, password } = this.#el;
    (user.value === "" ? user : password).focus();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #toggleReveal(): void {
    const shown = this.#el.password.type === "password";
    this.#el.password.type = shown ? "text" : "password";
    this.#el.reveal.setAttribute("aria-pressed", String(shown));
    setText(this.#el.reveal, shown ? "Hide" : "Show");
  }

  #send(event: SubmitEvent): void {
    event.preventDefault();
    if (this.#state !== "idle") return;
    const missing =
      this.#el.user.value === "" ? this.#el.user : this.#el.password.value === "" ? this.#el.password : null;
    if (missing !== null) {
      this.#show("warn", missing === this.#el.user ? "Enter the name first." : "Enter the password.");
      missing.focus();
      return;
    }
    // RFC 7617: the user name ends at the first colon, so it cannot contain one.
    if (this.#el.user.value.includes(":")) {
      this.#show("bad", "A name cannot contain a colon.");
      this.#el.user.focus();
      return;
    }
    void this.#signIn();
  }

  async #signIn(): Promise<void> {
    this.#setState("asking");
    try {
      await ask("POST", "/login", {
        authorization: `Basic ${base64(`${this.#el.user.value}:${this.#el.password.value}`)}`,
      });
    } catch (error) {
      this.#setState("idle");
      this.#explainRefusal(error);
      return;
    }
    try {
      await ask("GET", "/gateway/status");
    } catch (error) {
      this.#setState("idle");
      if (isSessionEnd(error) && error.problem.cookie === undefined) this.#explainMissingCookie();
      else if (isSessionEnd(error)) this.#show("bad", error.message);
      else this.#explainRefusal(error);
      return;
    }
    this.#loggedIn();
  }

  #explainRefusal(error: unknown): void {
    if (!(error instanceof ApiError)) return this.#show("bad", messageOf(error));
    if (error.status === 401) {
      this.#show("bad", WRONG);
      this.#el.password.focus();
      this.#el.password.select();
      return;
    }
    if (error.status === 429) return this.#wait(error.retryAfterS ?? 5);
    if (error.status === 0 || error.status === 502 || error.status === 503 || error.status === 504) {
      const what =
        error.status === 0
          ? ""
          : "Is the gateway running, and does it have ADMIN_USER and ADMIN_PASSWORD? Without them its " +
            "admin interface is off. ";
      return this.#show("bad", `${error.message} `, `${what}Then try again.`.trim());
    }
    this.#show("bad", `${error.message} (HTTP ${error.status})`);
  }

  /** The cookie is `Secure`: browsers keep it over HTTPS and from localhost, and silently drop it elsewhere. */
  #explainMissingCookie(): void {
    if (isSecureContext)
      return this.#show(
        "bad",
        "The name and password are right, but your browser did not store the session cookie.",
        "Allow cookies for this site, and try again.",
      );
    const local = `http://localhost:${location.port === "" ? "80" : location.port}`;
    this.#show(
      "bad",
      `The name and password are right, but your browser stores the session cookie only over HTTPS or from ` +
        `localhost, and this page comes from ${location.origin}.`,
      `On the gateway's own machine open ${local}; from another machine open a tunnel (ssh -L ` +
        (`5173:localhost:${location.port === "" ? "80" : location.port} …), ` +
          `or serve this UI over HTTPS (MANAGER_TLS=true).`),
    );
  }

  /** The countdown is in the button, which screen readers do not repeat; the alert announces it once. */
  #wait(seconds: number): void {
    const end = Date.now() + seconds * 1000;
    this.#setState("waiting");
    this.#show("warn", `Too many failed attempts from your address. You can try again in ${spoken(seconds)}.`);
    clearInterval(this.#timer);
    const tick = (): void => {
      const left = Math.ceil((end - Date.now()) / 1000);
      if (left > 0) return setText(this.#el.submit, `Try again in ${spoken(left)}`);
      clearInterval(this.#timer);
      this.#setState("idle");
      this.#show("good", "You can try again now.");
    };
    this.#timer = window.setInterval(tick, 250);
    tick();
  }

  #setState(to: State): void {
    this.#state = to;
    setPending(this.#el.submit, to === "asking", to !== "idle");
    setText(this.#el.submit, to === "asking" ? "Signing in…" : "Sign in");
  }

  #show(kind: "good" | "warn" | "bad", ...sentences: readonly string[]): void {
    replace(
      this.#el.message,
      el("div", { class: `notice notice--${kind}` }, ...sentences.map((each) => el("p", {}, each.trim()))),
    );
  }
}

function loginElements(notice: string | null) {
  const message = el(
    "div",
    { class: "login__said", role: "alert" },
    notice === null ? null : el("p", { class: "notice" }, notice),
  );
  const user = el("input", {
    id: "login-user",
    name: "username",
    autocomplete: "username",
    autocapitalize: "none",
    spellcheck: "false",
    required: true,
  });
  const password = el("input", {
    id: "login-password",
    name: "password",
    type: "password",
    autocomplete: "current-password",
    required: true,
  });
  const reveal = el(
    "button",
    { type: "button", class: "button", "aria-pressed": "false", "aria-controls": "login-password" },
    "Show",
  );
  const submit = el("button", { type: "submit", class: "button button--primary" }, "Sign in");
  const form = el(
    "form",
    { class: "login__form", novalidate: true },
    field("Name", user),
    el(
      "div",
      { class: "field" },
      el("label", { for: "login-password" }, "Password"),
      el("div", { class: "login__password" }, password, reveal),
    ),
    submit,
  );
  return { node: el("div", { class: "stack" }, message, form), form, message, user, password, reveal, submit };
}

/** As UTF-8 in base64, which `btoa` alone cannot do. */
function base64(text: string): string {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}

function spoken(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  return minutes === 0 ? `${seconds} s` : `${minutes} min ${seconds % 60} s`;
}
