/**
 * Reaches servers through an HTTP proxy: a CONNECT (RFC 9110 §9.3.6) on each connection, whose bytes from then on are
 * those of the server. The proxy gets the name of the server, and nothing here looks it up.
 */
import { hash } from "node:crypto";
import { isIP, Socket } from "node:net";
import tls from "node:tls";
import { cidrSet } from "./cidr.ts";
import { Egress, type Destination, type EgressProxy } from "./egress.ts";
import { overTls } from "./egress_tls.ts";
import { guardedEmitter } from "./event_loop.ts";
import { addressOf } from "./ip_address.ts";

export interface EgressProxySettings {
  readonly url: {
    /** Whether the proxy itself is reached over TLS. */
    readonly secure: boolean;
    readonly host: string;
    readonly port: number;
    /** Null: none is sent. */
    readonly user: string | null;
    readonly password: string | null;
  };
  /** Names, names below a domain (".internal"), addresses and ranges that are connected to directly. */
  readonly except: readonly string[];
  /** CA certificates of a proxy that is reached over TLS, PEM. Default: the system's. */
  readonly tls?: { readonly ca?: { readonly content: Buffer } | undefined } | undefined;
  /** Whether Redis is reached through it, too. */
  readonly all: boolean;
}

export function egressProxy(settings: EgressProxySettings): EgressProxy {
  const { url, except, all } = settings;
  const ca = settings.tls?.ca?.content;
  const { host, port, user, password } = url;
  const dial = new Egress([proxyDestination(settings)]).dialer(proxyDestination(settings));
  const secure = url.secure
    ? overTls({
        // One context for all connections: reading the system's certificates takes milliseconds.
        secureContext: tls.createSecureContext({ ca }),
        servername: isIP(host) === 0 ? host : "",
        ALPNProtocols: ["http/1.1"],
        // Set in any case: NODE_TLS_REJECT_UNAUTHORIZED must not decide it.
        rejectUnauthorized: true,
      })
    : null;
  const credentials =
    password === null ? "" : `Proxy-Authorization: Basic ${Buffer.from(`${user}:${password}`).toString("base64")}\r\n`;
  const isExempt = exemptions(except);
  const open: EgressProxy["open"] = (to, options = {}) => {
    const { onread, ...others } = options;
    const target = addressOf(to);
    const request = `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${credentials}\r\n`;
    const toProxy = dial({ ...others, allowHalfOpen: true }, secure);
    return guardedEmitter(new ProxiedSocket(toProxy, request, onread?.callback));
  };
  return {
    // A digest: it has the password.
    identity: hash("sha256", JSON.stringify([url, ca?.toString("base64")])),
    address: addressOf({ host, port }),
    leadsTo: (to) => (all || to.why !== "redis") && !isExempt(to.host),
    open,
    dialer: (to) => (options, inside) => {
      const socket = open(to, options);
      return inside === null ? socket : guardedEmitter(inside.open({ ...inside, ...options, socket }));
    },
  };
}

export function proxyDestination({ url: { host, port } }: EgressProxySettings): Destination {
  return { host, port, why: "egress_proxy" };
}

/** Addresses are compared as they are written, never looked up; names without a dot at their end. */
function exemptions(except: readonly string[]): (host: string) => boolean {
  const named = except.map(nameOf);
  const ranges = cidrSet(named.filter((each) => isRange(each)));
  const names = new Set(named.filter((each) => !isRange(each)));
  const domains = [...names].filter((name) => name.startsWith("."));
  return (host) => {
    if (isIP(host) !== 0) return ranges.has(host);
    const name = nameOf(host);
    return names.has(name) || domains.some((domain) => name.endsWith(domain));
  };
}

/** Whether an item of `except` is an address or a range of them. */
export function isRange(text: string): boolean {
  return text.includes("/") || isIP(text) !== 0;
}

function nameOf(host: string): string {
  const name = host.toLowerCase();
  return name.endsWith(".") ? name.slice(0, -1) : name;
}

type OnRead = (bytes: number, buffer: Buffer) => boolean;

/**
 * A connection through the proxy. It emits "connect" once the proxy has opened the way; what is written before waits.
 * As a `Socket` without a handle: it takes the place of a connection, also below TLS.
 */
class ProxiedSocket extends Socket {
  readonly #toProxy: Socket;
  readonly #onread: OnRead | undefined;
  /** What has arrived of the proxy's answer; null once the way is open. */
  #head: Buffer | null = Buffer.alloc(0);
  #waiting: (() => void) | null = null;

  /** `onread`: gets the bytes in place of "data", see `net.Socket`. */
  constructor(toProxy: Socket, request: string, onread: OnRead | undefined) {
    super();
    this.#toProxy = toProxy;
    this.#onread = onread;
    toProxy.setNoDelay(true);
    // A session of HTTP/2 sees by it whether its server lives.
    Object.defineProperty(this, "bytesRead", { get: () => toProxy.bytesRead });
    toProxy.once("encrypted" in toProxy ? "secureConnect" : "connect", () => void toProxy.write(request, "latin1"));
    toProxy.on("data", (chunk: Buffer) => (this.#head === null ? this.#deliver(chunk) : this.#answered(chunk)));
    toProxy.on("end", () => {
      if (this.#head !== null) return this.destroy(new Error("the proxy closed the connection before it answered"));
      this.push(null);
      this.read(0);
    });
    toProxy.on("timeout", () => this.emit("timeout"));
    toProxy.on("error", (error) => this.destroy(error));
    toProxy.on("close", () => this.destroy());
  }

  #answered(chunk: Buffer): void {
    const received = Buffer.concat([this.#head!, chunk]);
    const start = endOfInterim(received);
    const end = received.indexOf("\r\n\r\n", start);
    if (!couldBeHead(received, start) || (end >= 0 && !STATUS_LINE.test(received.toString("latin1", start, end))))
      return void this.destroy(new Error("the proxy's answer is not HTTP"));
    if ((end < 0 ? received.length : end) > MAX_HEAD_BYTES)
      return void this.destroy(new Error(`the head of the proxy's answer has more than ${MAX_HEAD_BYTES} bytes`));
    this.#head = received;
    if (end < 0) return;
    const status = received.toString("latin1", start + "HTTP/1.1 ".length, start + "HTTP/1.1 200".length);
    // Its length and its coding mean nothing: what follows are the server's bytes (RFC 9110 §9.3.6).
    if (!status.startsWith("2"))
      return void this.destroy(new Error(`the proxy refused the connection with status ${status}`));
    this.#head = null;
    this.#waiting?.();
    this.#waiting = null;
    this.emit("connect");
    this.emit("ready");
    const rest = received.subarray(end + 4);
    if (rest.length > 0 && !this.destroyed) this.#deliver(rest);
  }

  #deliver(chunk: Buffer): void {
    if (this.#onread !== undefined) this.#onread(chunk.length, chunk);
    else if (!this.push(chunk)) this.#toProxy.pause();
  }

  override _read(): void {
    this.#toProxy.resume();
  }

  override pause(): this {
    if (this.#head === null) this.#toProxy.pause();
    return super.pause();
  }

  override resume(): this {
    this.#toProxy.resume();
    return super.resume();
  }

  /** By the connection's own functions, so that an error of a write is this stream's: what has arrived can be read. */
  override _write(chunk: Buffer | string, encoding: BufferEncoding, done: WriteDone): void {
    this.#whenOpen(() => this.#toProxy._write(chunk, encoding, done));
  }

  override _writev(chunks: { chunk: Buffer | string; encoding: BufferEncoding }[], done: WriteDone): void {
    this.#whenOpen(() => this.#toProxy._writev!(chunks, done));
  }

  override _final(done: WriteDone): void {
    this.#whenOpen(() => void this.#toProxy.end(() => done()));
  }

  override _destroy(error: Error | null, done: WriteDone): void {
    this.#toProxy.destroy();
    super._destroy(error, done);
  }

  override resetAndDestroy(): this {
    if (!("encrypted" in this.#toProxy)) this.#toProxy.resetAndDestroy();
    return this.destroy();
  }

  /** A stream makes one write at a time, and ends behind the last. */
  #whenOpen(act: () => void): void {
    if (this.#head === null) act();
    else this.#waiting = act;
  }

  override ["setTimeout"](ms: number, listener?: () => void): this {
    if (listener !== undefined) this.once("timeout", listener);
    this.#toProxy.setTimeout(ms);
    // As Node has it: its agents look at it.
    (this as { timeout?: number }).timeout = ms;
    return this;
  }

  override setNoDelay(): this {
    return this;
  }

  override setKeepAlive(enable?: boolean, delay?: number): this {
    this.#toProxy.setKeepAlive(enable, delay);
    return this;
  }

  override ref(): this {
    this.#toProxy.ref();
    return this;
  }

  override unref(): this {
    this.#toProxy.unref();
    return this;
  }
}

type WriteDone = (error?: Error | null) => void;

const STATUS_LINE = /^HTTP\/1\.[01] [2-5]\d\d(?: |\r|$)/;
const STATUS_START = "HTTP/1.";

/** Whether the bytes so far can begin an answer: garbage without an end is refused at once. */
function couldBeHead(bytes: Buffer, start: number): boolean {
  return STATUS_START.startsWith(bytes.toString("latin1", start, start + STATUS_START.length));
}

const INTERIM = /^HTTP\/1\.1 1(?!01)\d\d(?: |\r)/;

/** Where the answer begins: behind those that are not the last one (RFC 9110 §15.2). */
function endOfInterim(bytes: Buffer): number {
  let start = 0;
  for (;;) {
    const end = bytes.indexOf("\r\n\r\n", start);
    if (end < 0 || !INTERIM.test(bytes.toString("latin1", start, end + 1))) return start;
    start = end + 4;
  }
}

const MAX_HEAD_BYTES = 16 * 1024;
