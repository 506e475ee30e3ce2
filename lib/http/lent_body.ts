/**
 * The body of a reply, all of it at hand, in memory that is used again: for each larger response anew, such memory costs more than
 * what is done with it (16 µs of processor time for 64 KiB). Where the memory comes from is the affair of whoever makes one.
 *
 * To plugins it is a stream like any other. Only who sends it to the client asks for the bytes themselves, and only as long as nobody
 * has begun to read, or to listen: nobody else can have a part of them that somebody else's response is written over later.
 */
import { Readable } from "node:stream";

export class LentBody extends Readable {
  readonly byteLength: number;
  readonly #bytes: Buffer;
  readonly #giveBack: () => void;
  #state: "held" | "read" | "lent" | "given back" = "held";

  /** `giveBack` is called at most once, when nobody needs `bytes` any more. */
  constructor(bytes: Buffer, giveBack: () => void) {
    super();
    this.byteLength = bytes.length;
    this.#bytes = bytes;
    this.#giveBack = giveBack;
    // Its reader may have stopped listening, or not begun: the end of a body nobody reads is no event.
    this.on("error", ignore);
  }

  /** Whether it can be lent: nobody reads it, and nobody listens to what becomes of it. */
  get isUntouched(): boolean {
    return this.#state === "held" && !this.destroyed && this.readableFlowing === null && !this.readableDidRead && !this.#isHeard;
  }

  /** Not by `eventNames`, which makes a list of them and costs a microsecond. */
  get #isHeard(): boolean {
    return HEARD.some((event) => this.listenerCount(event) > 0) || this.listenerCount("error") > 1;
  }

  /** Whether somebody was given its bytes as they are: nobody will read them from the stream any more. */
  get isTaken(): boolean {
    return this.#state === "lent" || this.#state === "given back";
  }

  /** The bytes, until `giveBack`; to be called while it is untouched. It cannot be read any more. */
  lend(): Buffer {
    if (!this.isUntouched) throw new Error("a body that somebody reads was to be lent");
    this.#state = "lent";
    return this.#bytes;
  }

  /** The bytes as whoever asks may keep them; to be called while it is untouched, which it is no more. */
  own(): Buffer {
    const bytes = Buffer.from(this.lend());
    this.giveBack();
    return bytes;
  }

  /** What was lent has been sent. Where it never is, the memory is not used again. */
  giveBack(): void {
    if (this.#state !== "lent") return;
    this.#state = "given back";
    this.#giveBack();
  }

  override _read(): void {
    if (this.#state === "held") {
      this.push(Buffer.from(this.#bytes));
      this.#letGo();
    }
    this.push(null);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (this.#state === "held") this.#letGo();
    done(error);
  }

  /** Nobody was lent them. */
  #letGo(): void {
    this.#state = "read";
    this.#giveBack();
  }
}

/** A body as whoever sends it may keep it: a lent one as bytes of his own, where nobody reads it yet; any other as it is. */
export function ownBody(body: Buffer | Readable | null): Buffer | Readable | null {
  return body instanceof LentBody && body.isUntouched ? body.own() : body;
}

const HEARD = ["data", "end", "close", "readable", "newListener"] as const;

function ignore(): void {}
