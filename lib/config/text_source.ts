/**
 * Where a program gets the text of its configuration: a file, an HTTP server, or a key of etcd. What reads, checks and
 * applies it knows no difference.
 */

/** What a source has at one moment. */
export interface SourceText {
  readonly text: Buffer;
  /** The content of its `.sig`; null: it has none. */
  readonly signature: string | null;
  /** Why it has no signature, where one was looked for. Default: "there is none". */
  readonly whyUnsigned?: string;
  /** How the source names this state: an ETag, "rev:42" of etcd. Null: it has no name. */
  readonly revision: string | null;
}

/**
 * Why a source gives no text. "unreachable": there is no answer, or one that says nothing of the text, such as 503 or a
 * refused password. "missing": it answers that there is no text, or an empty one.
 */
export class SourceFailure extends Error {
  readonly kind: "unreachable" | "missing";

  constructor(kind: SourceFailure["kind"], message: string) {
    super(message);
    this.name = "SourceFailure";
    this.kind = kind;
  }
}

/** What is known of a server that has the text. */
export interface SourceState {
  /** Whether it has answered the last question. */
  readonly isUp: boolean;
  /** When that began, in milliseconds since 1970. */
  readonly since: number;
  /** When it has answered last, in milliseconds since 1970; null: never. */
  readonly answeredAt: number | null;
  /** See `SourceText`, of the last answer with a text. */
  readonly revision: string | null;
  /** Why there is no text; null: there is one. */
  readonly problem: string | null;
  /** The copy of an earlier text is in force, which was kept at `keptAt`, in milliseconds since 1970; null: none is. */
  readonly copy: { readonly keptAt: number } | null;
  /** The setting whose secret is sent to it in the clear: "CONFIG_TOKEN_FILE"; null: none is. */
  readonly plainSecret: string | null;
}

export interface TextSource {
  /** For messages, without secrets: a path as it was given, or "https://config.example.com/gw.json". */
  readonly name: string;
  /** The base of relative file names in the text; null: it is in no folder of this machine. */
  readonly folder: string | null;
  /** What a reload after a change of it is caused by, see `ReloadCause`. */
  readonly cause: "file" | "source";
  /** Null: of a file. */
  readonly state: SourceState | null;
  /**
   * What it has now: of a file what is on disk, else what was received last. In steps of about a millisecond. Throws a
   * `SourceFailure`.
   */
  current(): Generator<void, SourceText>;
  /**
   * Receives what it has now. Rejects with a `SourceFailure` where it is unreachable; that it has no text, `current`
   * says. Of a file there is nothing to do.
   */
  refresh(): Promise<void>;
  /** Calls `listener` when `current` may give another text from now on. Returns a function that ends this. */
  onChange(listener: () => void): () => void;
  /** Of a file: one with this signature (`signature` in `watch.ts`) is no change. */
  readonly expect?: (signature: string) => void;
  /** Ends what runs for it. */
  close(): void;
}

/** What a gateway reads of a source. */
export type ReadableSource = Pick<TextSource, "name" | "folder" | "state" | "current">;

/**
 * One text that does not change, under the name of where it is from: to try it out. `text`: or why there is none.
 * `folder`: see `TextSource`.
 */
export function givenText(name: string, text: SourceText | Error, folder: string | null = null): ReadableSource {
  return {
    name,
    folder,
    state: null,
    // eslint-disable-next-line require-yield
    *current() {
      if (text instanceof Error) throw text;
      return text;
    },
  };
}

/** A server that has the text, as `RemoteSource` asks it. */
export interface TextServer {
  readonly name: string;
  /** From the end of an answer to the next question, in milliseconds, ± 20 %. */
  readonly pollMs: number;
  /**
   * Rejects with a `SourceFailure`, within 10 s. Null: the text and its signature are those of the last answer, which
   * had a text. One call at a time.
   */
  ask(signal: AbortSignal): Promise<SourceText | null>;
  /** The next answer is a whole one, whatever was received before. Absent: an answer never is half of another one. */
  forget?(): void;
  /**
   * Calls `changed` when the text may be another, until `signal` is aborted. Rejects with a `SourceFailure` when that
   * cannot be known any more. Absent: the server does not tell.
   */
  watch?(changed: () => void, signal: AbortSignal): Promise<void>;
  close(): void;
}
