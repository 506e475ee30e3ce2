/**
 * Has the gateway check the draft while it is changed: once the keys rest, one text at a time, and later if the gateway
 * asks for that. Editor, review and the bar on every page share what it has found.
 */
import { ApiError, ask, messageOf, type Validation } from "./api.ts";
import { after } from "./dom.ts";

interface CheckOptions {
  readonly validate: (text: string) => Promise<Validation>;
  /** Returns what cancels it. */
  readonly after: (ms: number, run: () => void) => () => void;
}

const QUIET_MS = 400;
const RETRY_S = 5;

export class Checks {
  readonly #options: CheckOptions;
  readonly #listeners = new Set<() => void>();
  /** Gets an error that ends the session. */
  failed: (error: unknown) => void = () => {};
  /** Of `text`, and null before the first. */
  verdict: { readonly text: string; readonly found: Validation } | null = null;
  /** Why the text could not be checked; null: it was, or is about to be. */
  trouble: string | null = null;
  #text: string | null = null;
  #cancel: (() => void) | null = null;
  /** While the gateway is asked, or has asked to wait, a change neither asks again nor shortens that. */
  #state: "idle" | "asking" | "waiting" = "idle";
  /** Counts what texts are compared with. */
  #epoch = 0;

  constructor(options: CheckOptions) {
    this.#options = options;
  }

  /** `quietMs`: 0 for a text that nobody is typing. */
  check(text: string, quietMs = QUIET_MS): void {
    this.#text = text;
    if (this.#state === "idle" && text !== this.verdict?.text) this.#schedule(quietMs);
  }

  /** Another configuration is in force, with which texts are compared. */
  renew(): void {
    this.#epoch++;
    this.verdict = null;
    if (this.#text !== null) this.check(this.#text);
  }

  stop(): void {
    this.#text = null;
    this.#cancel?.();
    if (this.#state === "waiting") this.#state = "idle";
  }

  /** What was found in a text; null: it has not been checked yet. */
  of(text: string): Validation | null {
    return this.verdict?.text === text ? this.verdict.found : null;
  }

  /** Calls `listener` after each answer. Returns what ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #schedule(ms: number): void {
    this.#cancel?.();
    this.#cancel = this.#options.after(ms, () => void this.#ask());
  }

  async #ask(): Promise<void> {
    const text = this.#text;
    const epoch = this.#epoch;
    if (text === null) return;
    this.#state = "asking";
    let waitS = 0;
    try {
      const found = await this.#options.validate(text);
      if (epoch === this.#epoch) this.verdict = { text, found };
      this.trouble = null;
    } catch (error) {
      const { status = 0, retryAfterS = null } = error instanceof ApiError ? error : {};
      if (status === 401) this.failed(error);
      this.trouble = messageOf(error);
      if (status === 0 || status >= 500 || status === 429) waitS = retryAfterS ?? RETRY_S;
    }
    this.#state = waitS > 0 && this.#text !== null ? "waiting" : "idle";
    if (this.#text === null) return;
    if (waitS > 0) this.#schedule(waitS * 1000);
    else if (this.#text !== text || epoch !== this.#epoch) this.#schedule(QUIET_MS);
    for (const listener of this.#listeners) listener();
  }
}

/** Those of the tab. */
export const checks = new Checks({ validate: (text) => ask("POST", "/gateway/validate", { text }), after });
