/**
 * One connection to an upstream over HTTP/1.1, from its first exchange to its end, with the listeners that serve all of them. Which
 * connection an exchange gets is `pool.ts`, what is said over it `forward_wire.ts`.
 */
import type { Socket } from "node:net";
import { ResponseParser } from "./response_parser.ts";

/** The exchange that has the connection. */
export interface Occupant {
  /** TCP, and TLS where it is spoken, stand. */
  connected(): void;
  received(chunk: Buffer): void;
  /** What was written has left. */
  drained(): void;
  /** The upstream has ended its side in good order. */
  endOfConnection(): void;
  /** Not a byte either way for as long as `setSilence` says. */
  silent(): void;
  /** The connection is gone, and `closed` comes next. */
  failed(error: NodeJS.ErrnoException): void;
  closed(): void;
}

/** Where a connection is kept between two exchanges. */
export interface ConnectionOwner {
  /** It has closed. */
  gone(connection: Connection): void;
}

export class Connection {
  readonly socket: Socket;
  /** What its occupant is given of it is overwritten afterwards. */
  readonly lendsBytes: boolean;
  readonly home: ConnectionOwner;
  readonly parser = new ResponseParser();
  /** Whether it has served an exchange before the present one. */
  isReused = false;
  /** In use, but not to be used again: its address belongs to the upstream no more. */
  isLeaving = false;
  #isConnected = false;
  #occupant: Occupant | null = null;
  readonly #idleMs: number;
  #silenceMs = 0;
  readonly #listeners: readonly (readonly [string, (argument: unknown) => void])[];

  /** `idleMs`: how long it is kept without being used, in milliseconds; 0: for ever. */
  constructor(socket: Socket, connectedBy: "connect" | "secureConnect", idleMs: number, home: ConnectionOwner, lendsBytes: boolean) {
    this.socket = socket;
    this.lendsBytes = lendsBytes;
    this.home = home;
    this.#idleMs = idleMs;
    this.#listeners = [
      [connectedBy, () => this.#connected()],
      ["data", (chunk) => this.read(chunk as Buffer)],
      ["drain", () => this.#occupant?.drained()],
      ["end", () => (this.#occupant === null ? socket.destroy() : this.#occupant.endOfConnection())],
      ["timeout", () => (this.#occupant === null ? socket.destroy() : this.#occupant.silent())],
      ["error", (error) => this.#occupant?.failed(error as NodeJS.ErrnoException)],
      [
        "close",
        () => {
          home.gone(this);
          this.#occupant?.closed();
        },
      ],
    ];
    for (const [event, listener] of this.#listeners) socket.on(event, listener);
    this.setSilence(idleMs);
  }

  get isConnected(): boolean {
    return this.#isConnected;
  }

  /** Whether another exchange can be sent; an end that has come is known here before its events are, and so is what nobody asked for. */
  get isUsable(): boolean {
    const { socket } = this;
    return socket.writable && !socket.destroyed && !this.isLeaving && socket.readableLength === 0;
  }

  /** What has come. */
  read(chunk: Buffer): void {
    // Bytes on an idle connection answer no question: a second response, or the answer to a request smuggled past us. Left in the
    // socket they would become the reply to whoever has it next.
    if (this.#occupant === null) this.socket.destroy();
    else this.#occupant.received(chunk);
  }

  take(occupant: Occupant): void {
    this.#occupant = occupant;
  }

  /** The exchange is over: bytes that come now are nobody's. */
  leave(): void {
    this.#occupant = null;
    this.isReused = true;
    const { keepsFor } = this.parser;
    this.setSilence(this.#idleMs === 0 ? (keepsFor === Infinity ? 0 : keepsFor) : Math.min(this.#idleMs, keepsFor));
    // Left paused by its last reader, it would not tell of its end.
    if (this.socket.isPaused()) this.socket.resume();
  }

  /** Nothing can be sent over it any more. */
  end(): void {
    this.#occupant = null;
    this.socket.destroy();
  }

  /** Its occupant hears of it when nothing has moved for so long, in milliseconds; 0: never. */
  setSilence(ms: number): void {
    if (ms === this.#silenceMs) return;
    this.#silenceMs = ms;
    this.socket.setTimeout(ms);
  }

  /** What comes from now on is no HTTP: the socket is somebody else's, who resumes it. Its end is still told to its home, which counts it. */
  detach(): Socket {
    const { socket } = this;
    this.#occupant = null;
    for (const [event, listener] of this.#listeners) if (event !== "close") socket.removeListener(event, listener);
    socket.setTimeout(0);
    socket.pause();
    return socket;
  }

  #connected(): void {
    this.#isConnected = true;
    this.#occupant?.connected();
  }
}
