/**
 * The text of the configuration under edit, which the editor, the forms and "Apply" share. It is kept in memory only,
 * because it may hold secrets:
 * it survives a change of the page and the end of a session, and ends with the tab or a sign-out.
 */
import { askSource } from "./api.ts";

export interface Source {
  readonly text: string;
  /** As the ETag of GET /gateway/source and as `digest` of the status. */
  readonly digest: string;
  /** Why the file cannot be changed from here, as where it is signed. Absent or null: it can. */
  readonly readOnly?: string | null;
}

const NONE: Source = { text: "", digest: "" };

export class Draft {
  readonly #read: () => Promise<Source>;
  readonly #listeners = new Set<() => void>();
  #base = NONE;
  #text = "";
  #user: string | null = null;
  #reading: Promise<void> | null = null;

  /** `read` reads the file. */
  constructor(read: () => Promise<Source>) {
    this.#read = read;
  }

  /** The file that the text is based on. "" before `load`. */
  get baseText(): string {
    return this.#base.text;
  }

  /** For If-Match. "" before `load`. */
  get baseDigest(): string {
    return this.#base.digest;
  }

  get readOnly(): string | null {
    return this.#base.readOnly ?? null;
  }

  get text(): string {
    return this.#text;
  }

  /** Whether the text differs from its base. */
  get isDirty(): boolean {
    return this.#base !== NONE && this.#text !== this.#base.text;
  }

  setText(text: string): void {
    if (text === this.#text) return;
    this.#text = text;
    this.#changed();
  }

  /** Reads the file, unless a text based on it is under edit. Rejects with an `ApiError`, and then changes nothing. */
  async load(): Promise<void> {
    if (!this.isDirty) await this.rebase();
  }

  /**
   * Reads the file and takes it as the base. A text under edit stays: its difference to the file is then what Apply
   * shows and sends.
   */
  rebase(): Promise<void> {
    this.#reading ??= this.#readBase().finally(() => (this.#reading = null));
    return this.#reading;
  }

  /** Takes `source` as the base: what has just been applied. */
  setBase(source: Source): void {
    if (!this.isDirty) this.#text = source.text;
    this.#base = source;
    this.#changed();
  }

  discard(): void {
    this.setText(this.baseText);
  }

  /** After a sign-out, and when another user has signed in. */
  forget(): void {
    [this.#base, this.#text] = [NONE, ""];
    this.#changed();
  }

  /** The draft of one user is not shown to another one. */
  keepFor(user: string): void {
    if (this.#user !== null && this.#user !== user) this.forget();
    this.#user = user;
  }

  /** Calls `listener` after each change of the text or its base. Returns what ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #readBase(): Promise<void> {
    const user = this.#user;
    const source = await this.#read();
    if (user === this.#user) this.setBase(source);
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** The only one of the tab. */
export const draft = new Draft(askSource);
