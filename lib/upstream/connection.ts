/**
 * One HTTP/1.1 connection to an upstream, from its first request to its end; its listeners serve all of them.
 */
import type { Socket } from "node:net";
import { readyEvent } from "./connect.ts";
import { NodeResponseParser } from "./node_response_parser.ts";
import { ResponseParser, type ResponseSink } from "./response_parser.ts";

/** The request that has the connection. */
export interface ConnectionUser {
  /** TCP, and TLS where it is spoken, are set up. */
  connected(): void;
  received(chunk: Buffer): void;
  /** What was written has been sent. */
  drained(): void;
  /** The upstream has ended its side in good order. */
  endOfConnection(): void;
  /** Not a byte either way for as long as `setSilence` says. */
  silent(): void;
  /** The connection has broken; `closed` comes next. */
  failed(error: NodeJS.ErrnoException): void;
  closed(): void;
}

export class Connection {
  readonly socket: Socket;
  /** Whether the bytes that its user is given are overwritten afterwards. */
  readonly lendsBytes: boolean;
  /** The list in which it waits between two requests. */
  readonly idle: Connection[];
  parser: ResponseParser | NodeResponseParser;
  /** Whether it has served a request before the present one. */
  isReused = false;
  /** In use, but not to be used again: the upstream no longer has its address. */
  isLeaving = false;
  isConnected = false;
  #user: ConnectionUser | null = null;
  readonly #idleMs: number;
  #silenceMs = 0;
  readonly #listeners: readonly (readonly [string, (argument: unknown) => void])[];

  /** `idleMs`: how long it is kept without being used, in milliseconds; 0: for ever. */
  constructor(socket: Socket, idleMs: number, idle: Connection[], lendsBytes: boolean) {
    this.socket = socket;
    this.lendsBytes = lendsBytes;
    this.idle = idle;
    this.parser = new ResponseParser();
    this.#idleMs = idleMs;
    this.#listeners = [
      [readyEvent(socket), () => this.#connected()],
      ["data", (chunk) => this.read(chunk as Buffer)],
      ["drain", () => this.#user?.drained()],
      ["end", () => (this.#user === null ? socket.destroy() : this.#user.endOfConnection())],
      ["timeout", () => (this.#user === null ? socket.destroy() : this.#user.silent())],
      ["error", (error) => this.#user?.failed(error as NodeJS.ErrnoException)],
      ["close", () => this.#closed()],
    ];
    for (const [event, listener] of this.#listeners) socket.on(event, listener);
    this.setSilence(idleMs);
  }

  /** Whether another request can be sent: an end or unasked bytes that have arrived are known here before their events. */
  get isUsable(): boolean {
    const { socket } = this;
    return socket.writable && !socket.destroyed && !this.isLeaving && socket.readableLength === 0;
  }

  /** How long the upstream keeps it open when it is unused, in milliseconds; Infinity if it has not said so. */
  get keepsFor(): number {
    return this.parser.keepsFor;
  }

  read(chunk: Buffer): void {
    // Bytes on an unused connection answer no request: a second response, or the response to a request smuggled past us. Left in the
    // socket they would be the response to the next request.
    if (this.#user === null) this.socket.destroy();
    else this.#user.received(chunk);
  }

  use(user: ConnectionUser): void {
    this.#user = user;
  }

  /** The response to `method` comes next; `client` names what parses it. */
  beginResponse(method: string, sink: ResponseSink, client: "wire" | "node"): void {
    if (client === "node" && !(this.parser instanceof NodeResponseParser)) this.parser = new NodeResponseParser();
    else if (client === "wire" && !(this.parser instanceof ResponseParser)) this.parser = new ResponseParser();
    this.parser.begin(method, sink);
  }

  /** The request is over: the connection has no user, and times out if it gets none. */
  leave(): void {
    this.#user = null;
    this.isReused = true;
    const { keepsFor } = this;
    this.setSilence(this.#idleMs === 0 ? (keepsFor === Infinity ? 0 : keepsFor) : Math.min(this.#idleMs, keepsFor));
    // Paused by its last reader, it would not report its end.
    if (this.socket.isPaused()) this.socket.resume();
  }

  /** Closes it; its user is not called any more. */
  end(): void {
    this.#user = null;
    this.socket.destroy();
  }

  /** Its user is called when nothing has moved for `ms` milliseconds; 0: never. */
  setSilence(ms: number): void {
    if (ms === this.#silenceMs) return;
    this.#silenceMs = ms;
    this.socket.setTimeout(ms);
  }

  /** What comes from now on is not HTTP: gives the socket, paused, to its next owner. */
  detach(): Socket {
    const { socket } = this;
    this.#user = null;
    for (const [event, listener] of this.#listeners) socket.removeListener(event, listener);
    socket.setTimeout(0);
    socket.pause();
    return socket;
  }

  #connected(): void {
    this.isConnected = true;
    this.#user?.connected();
  }

  #closed(): void {
    this.#user?.closed();
    if (this.parser instanceof NodeResponseParser) this.parser.close();
  }
}
