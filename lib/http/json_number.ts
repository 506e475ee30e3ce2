/**
 * Finds a member with a number in JSON that passes by, in parts of any size, and keeps none of it: its memory does not
 * grow with the text, so that long replies to many clients cost nothing.
 */

const MAX_DEPTH = 512;
const MAX_NUMBER = 32;

const [QUOTE, BACKSLASH, OPEN, CLOSE, OPEN_LIST, CLOSE_LIST, COMMA, COLON] = Array.from('"\\{}[],:', (character) =>
  character.charCodeAt(0),
);

/**
 * What comes next in an object on the way to the member: a key, a colon, a value, the rest of a number or of true,
 * false or null, or what follows a value. Over: the value of JSON is complete. Dead: it is not valid, or too long, and
 * nothing of it counts until the next one begins.
 */
type State = "start" | "key" | "colon" | "value" | "scalar" | "behind" | "over" | "dead";

export class JsonNumber {
  /** The text of the number in the last value of JSON that was complete and has it; null: none has. */
  found: string | null = null;
  /** The names that lead to the member. Names with escapes are not found. */
  readonly #path: readonly Buffer[];
  #state: State = "start";
  #size = 0;
  /** What closes each open object and list. */
  #closers: number[] = [];
  /** How many names of the path lead to the innermost object that is on the way. */
  #matched = 0;
  #isInString = false;
  #isEscaped = false;
  /** Bytes of the current key that are those of the next name of the path; -1: the key is another one. */
  #same = -1;
  /** The key before the value is the next name. */
  #isHit = false;
  #number = "";
  /** In the value of JSON that is not complete yet. */
  #candidate: string | null = null;
  /** `found` before the last value of JSON. */
  #earlier: string | null = null;

  constructor(path: readonly string[]) {
    this.#path = path.map((name) => Buffer.from(name));
  }

  /** The last name: a value without these bytes does not have the member. */
  get name(): Buffer {
    return this.#path.at(-1)!;
  }

  /** Nothing of the next value of JSON has been written yet. */
  get isAtStart(): boolean {
    return this.#size === 0 && this.#state === "start";
  }

  /** Another value of JSON begins. */
  reset(): void {
    this.#state = "start";
    this.#size = 0;
    this.#closers.length = this.#matched = 0;
    this.#isInString = this.#isEscaped = false;
    this.#number = "";
    this.#candidate = null;
  }

  write(bytes: Buffer, from = 0, end = bytes.length): void {
    this.#size += end - from;
    for (let i = from; i < end && this.#state !== "dead"; i++) {
      const byte = bytes[i]!;
      if (this.#isInString) this.#inString(byte);
      else if (this.#number !== "" && isOfNumber(byte) && this.#number.length < MAX_NUMBER)
        this.#number += String.fromCharCode(byte);
      else if (byte !== 0x20 && (byte < 0x09 || byte > 0x0d)) this.#token(byte);
      else if (this.#state === "scalar") this.#endScalar();
    }
  }

  /** Whether the innermost object or list is an object on the way to the member. */
  get #isOnWay(): boolean {
    return this.#closers.length === this.#matched + 1;
  }

  #inString(byte: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (byte === BACKSLASH) {
      this.#isEscaped = true;
      this.#same = -1;
    } else if (byte === QUOTE) this.#endString();
    else if (this.#same >= 0) this.#same = this.#path[this.#matched]![this.#same] === byte ? this.#same + 1 : -1;
  }

  #endString(): void {
    this.#isInString = false;
    if (!this.#isOnWay) return;
    if (this.#state === "key") {
      this.#isHit = this.#same === this.#path[this.#matched]!.length;
      this.#state = "colon";
    } else this.#state = "behind";
  }

  #token(byte: number): void {
    if (this.#state === "scalar" && (byte === COMMA || byte === CLOSE)) this.#endScalar();
    if (byte === OPEN || byte === OPEN_LIST) return this.#open(byte);
    if (byte === CLOSE || byte === CLOSE_LIST) return this.#close(byte);
    if (this.#closers.length === 0) this.#fail();
    else if (byte === QUOTE) {
      this.#isInString = true;
      this.#same = this.#isOnWay && this.#state === "key" ? 0 : -1;
      if (this.#isOnWay && this.#state !== "key" && this.#state !== "value") this.#fail();
    } else if (this.#isOnWay) this.#inObject(byte);
  }

  /** A colon, a comma, or a character of a number or of true, false or null, whose letters are not checked. */
  #inObject(byte: number): void {
    const state = this.#state;
    if (byte === COLON && state === "colon") this.#state = "value";
    else if (byte === COMMA && state === "behind") this.#state = "key";
    else if (state === "value" && isOfScalar(byte)) {
      this.#state = "scalar";
      if (this.#isHit && this.#matched === this.#path.length - 1 && isOfNumber(byte))
        this.#number = String.fromCharCode(byte);
    } else if (state !== "scalar" || this.#number !== "" || !isOfScalar(byte)) this.#fail();
  }

  #open(byte: number): void {
    const isRoot = this.#closers.length === 0;
    if (isRoot ? this.#state !== "start" || byte !== OPEN : this.#isOnWay && this.#state !== "value")
      return this.#fail();
    const isStep = !isRoot && this.#isOnWay && this.#isHit && byte === OPEN && this.#matched < this.#path.length - 1;
    if (!isRoot && this.#isOnWay) this.#state = "behind";
    if (this.#closers.push(byte === OPEN ? CLOSE! : CLOSE_LIST!) > MAX_DEPTH) return this.#fail();
    if (isStep) this.#matched++;
    if (isRoot || isStep) this.#state = "key";
  }

  #close(byte: number): void {
    const isOnWay = this.#isOnWay;
    if (this.#closers.pop() !== byte || (isOnWay && this.#state !== "behind" && this.#state !== "key"))
      return this.#fail();
    if (!isOnWay) return;
    if (this.#closers.length > 0) {
      this.#matched--;
      this.#state = "behind";
      return;
    }
    this.#state = "over";
    this.#earlier = this.found;
    this.found = this.#candidate ?? this.found;
  }

  #endScalar(): void {
    this.#state = "behind";
    if (this.#number === "") return;
    this.#candidate = this.#number;
    this.#number = "";
  }

  /** Text behind a complete value makes that one invalid, too. */
  #fail(): void {
    if (this.#state === "over") this.found = this.#earlier;
    this.#state = "dead";
  }
}

function isOfScalar(byte: number): boolean {
  return isOfNumber(byte) || (byte >= 0x61 && byte <= 0x7a);
}

function isOfNumber(byte: number): boolean {
  return (
    (byte >= 0x30 && byte <= 0x39) || byte === 0x2b || byte === 0x2d || byte === 0x2e || byte === 0x45 || byte === 0x65
  );
}
