/**
 * Reads from the first message of a TLS handshake (ClientHello, RFC 8446 §4.1.2) which name and which protocols it
 * asks for, before a certificate is chosen: OpenSSL, and with it Node, reports protocols only afterwards.
 */

/** Null: the client sends none. */
export interface ClientHello {
  /** As sent (SNI, RFC 6066 §3). */
  readonly servername: string | null;
  /** As offered (ALPN, RFC 7301 §3.1). */
  readonly protocols: readonly string[] | null;
}

const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const PROTOCOLS = 16;
/** Of a message: its type and its length. */
const HEAD_BYTES = 4;
/** Several times what clients send, with keys against quantum computers and a ticket. */
const MAX_BYTES = 16_384;

/**
 * What the bytes so far are. "part": more has to come. "other": they are no ClientHello, or one that cannot be read.
 */
export type HelloReading = (bytes: Buffer) => ClientHello | "part" | "other";

/**
 * Reads the first bytes of one connection. Each call gets those of the call before and what has come since, and goes on
 * where that ended: the cost grows with the bytes, however many records and calls they come in.
 */
export function clientHelloReader(): HelloReading {
  const readMessage = handshakeReader();
  return (bytes) => {
    const message = readMessage(bytes);
    if (typeof message === "string") return message;
    try {
      return helloIn(new Reader(message));
    } catch {
      return "other";
    }
  };
}

/**
 * The first message, which may be in several records (RFC 8446 §5.1), without its head. Its parts are joined once, when
 * all are there: each byte could be in a record of its own.
 */
function handshakeReader(): (bytes: Buffer) => Buffer | "part" | "other" {
  /** Of the records that are there as a whole. */
  const fragments: Buffer[] = [];
  /** Of all fragments. */
  let length = 0;
  /** Where the next record begins. */
  let at = 0;
  /** The length of the message. */
  let whole = Infinity;
  return (bytes) => {
    for (;;) {
      if (bytes.length > at && bytes[at] !== HANDSHAKE) return "other";
      if (bytes.length > MAX_BYTES) return "other";
      if (bytes.length < at + 5) return "part";
      const end = at + 5 + bytes.readUInt16BE(at + 3);
      const fragment = bytes.subarray(at + 5, end);
      if (length === 0 && fragment.length > 0 && fragment[0] !== CLIENT_HELLO) return "other";
      const lengthNow = length + fragment.length;
      if (whole === Infinity && lengthNow >= HEAD_BYTES)
        whole = HEAD_BYTES + Buffer.concat([...fragments, fragment]).readUIntBE(1, 3);
      if (whole !== Infinity && whole > MAX_BYTES) return "other";
      if (lengthNow >= whole) return Buffer.concat([...fragments, fragment]).subarray(HEAD_BYTES, whole);
      if (bytes.length < end) return "part";
      // A record without content, of which there could be any number.
      if (fragment.length === 0) return "other";
      fragments.push(fragment);
      length = lengthNow;
      at = end;
    }
  };
}

function helloIn(hello: Reader): ClientHello {
  hello.skip(2 + 32); // version and random
  hello.vector(1); // session id
  hello.vector(2); // cipher suites
  hello.vector(1); // compression methods
  let servername: string | null = null;
  let protocols: string[] | null = null;
  const extensions = hello.isAtEnd ? hello : hello.vector(2);
  while (!extensions.isAtEnd) {
    const type = extensions.integer(2);
    const content = extensions.vector(2);
    if (type === SERVER_NAME) {
      const names = content.vector(2);
      // host_name, the only type of names there is
      if (names.integer(1) === 0) servername = names.vector(2).text;
    } else if (type === PROTOCOLS) {
      const list = content.vector(2);
      for (protocols = []; !list.isAtEnd;) protocols.push(list.vector(1).text);
    }
  }
  return { servername, protocols };
}

/** Throws a `RangeError` beyond the end. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  get text(): string {
    return this.#bytes.toString("latin1");
  }

  skip(length: number): void {
    if (this.#at + length > this.#bytes.length) throw new RangeError("it ends early");
    this.#at += length;
  }

  integer(length: 1 | 2): number {
    const value = this.#bytes.readUIntBE(this.#at, length);
    this.#at += length;
    return value;
  }

  /** Bytes behind their length, which has so many bytes. */
  vector(lengthBytes: 1 | 2): Reader {
    const length = this.integer(lengthBytes);
    const start = this.#at;
    this.skip(length);
    return new Reader(this.#bytes.subarray(start, start + length));
  }
}
