/**
 * Where a program gets the text of its configuration: a file, an HTTP server, or a key of etcd. What reads, checks and
 * applies it knows no difference.
 */

/** What a source has at one moment. */
export interface SourceText {
  readonly text: Buffer;
  /** The content of its `.sig`; null: it has none. */
  readonly signature: string | null;
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

export interface TextSource {
  /** For messages, without secrets: an absolute path, or "https://config.example.com/gw.json". */
  readonly name: string;
  /**
   * What it has now: of a file what is on disk, else what was received last. In steps of about a millisecond. Throws a
   * `SourceFailure`.
   */
  current(): Generator<void, SourceText>;
  /** Receives what it has now. Rejects with a `SourceFailure`. Of a file there is nothing to do. */
  refresh(): Promise<void>;
  /** Calls `listener` when `current` may give another text from now on. Returns a function that ends this. */
  onChange(listener: () => void): () => void;
  /** Ends what runs for it. */
  close(): void;
}

/** A server that has the text, as `RemoteSource` asks it. */
export interface TextServer {
  readonly name: string;
  /** From the end of an answer to the next question, in milliseconds, ± 20 %. */
  readonly pollMs: number;
  /** Rejects with a `SourceFailure`, within 10 s. Null: it is as it was at the last answer. One call at a time. */
  ask(signal: AbortSignal): Promise<SourceText | null>;
  /**
   * Calls `changed` when the text may be another, until `signal` is aborted. Rejects with a `SourceFailure` when that
   * cannot be known any more. Absent: the server does not tell.
   */
  watch?(changed: () => void, signal: AbortSignal): Promise<void>;
  close(): void;
}
