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
  /** Makes the text of what is being typed, once somebody looks at it. */
  #later: (() => string) | null = null;
  #isUntold = false;
  /** The digest of the file as the gateway has told it last. */
  #seen: string | null = null;
  #isStale = false;
  #user: string | null = null;
  #reading: Promise<Source> | null = null;

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
    if (this.#later !== null) this.#text = this.#later();
    this.#later = null;
    return this.#text;
  }

  /** Whether the text differs from its base. */
  get isDirty(): boolean {
    return this.#base !== NONE && this.text !== this.#base.text;
  }

  /** Whether the file has been changed, by somebody else or by hand, since it was taken as the base. */
  get isStale(): boolean {
    return this.#isStale;
  }

  /** `digest`: of the file, as the gateway tells it; one that stays may be older than the base. */
  seeFile(digest: string): void {
    const isFirst = this.#seen === null;
    if (digest === this.#seen) return;
    this.#seen = digest;
    if (!isFirst) this.#compare(digest);
  }

  /** What `text` returns is the text from now on; listeners hear of it with the next `setText`. */
  setLater(text: () => string): void {
    [this.#later, this.#isUntold] = [text, true];
  }

  setText(text: string): void {
    this.#later = null;
    if (text === this.#text && !this.#isUntold) return;
    [this.#text, this.#isUntold] = [text, false];
    this.#changed();
  }

  /**
   * Reads the file, and takes it as the base unless a text is under edit by the time of the answer: that is only
   * compared with the file, since Apply would undo a change of the file that nobody has seen. Nobody waits for the file
   * where a text is under edit already. Rejects with an `ApiError`, and then changes nothing.
   */
  async load(): Promise<void> {
    const [base, user] = [this.#base, this.#user];
    const reading = this.#readOnce().then((source) => {
      if (base !== this.#base || user !== this.#user) return;
      if (this.isDirty) this.#compare(source.digest);
      else this.setBase(source);
    });
    if (!this.isDirty) return reading;
    // Not all gateways watch their file. Where it cannot be read, the page works with the draft.
    void reading.catch(() => {});
  }

  /**
   * Reads the file and takes it as the base. A text under edit stays: its difference to the file is then what Apply
   * shows and sends.
   */
  async rebase(): Promise<void> {
    const user = this.#user;
    const source = await this.#readOnce();
    if (user === this.#user) this.setBase(source);
  }

  /** Takes `source` as the base: what has just been applied. */
  setBase(source: Source): void {
    if (!this.isDirty) this.#text = source.text;
    this.#base = source;
    this.#isStale = false;
    this.#changed();
  }

  discard(): void {
    this.setText(this.baseText);
  }

  /** After a sign-out, and when another user has signed in. */
  forget(): void {
    [this.#base, this.#text, this.#isStale, this.#later, this.#reading] = [NONE, "", false, null, null];
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

  #readOnce(): Promise<Source> {
    this.#reading ??= this.#read().finally(() => (this.#reading = null));
    return this.#reading;
  }

  #compare(digest: string): void {
    const isStale = this.#base !== NONE && digest !== this.#base.digest;
    if (isStale === this.#isStale) return;
    this.#isStale = isStale;
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** The only one of the tab. */
export const draft = new Draft(askSource);
