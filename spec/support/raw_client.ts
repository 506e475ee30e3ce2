/** HTTP/1.1 clients over real sockets, at the level of messages and of bytes, and `eventually`. */
import http, { type IncomingHttpHeaders } from "node:http";
import net, { type Socket } from "node:net";

export interface Answer {
  readonly status: number;
  readonly reason: string;
  readonly headers: IncomingHttpHeaders;
  /** Flat list, as received. */
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly trailers: readonly string[];
  /** Informational responses that came before. */
  readonly informed: readonly { status: number; headers: IncomingHttpHeaders }[];
}

export interface Ask {
  readonly method?: string;
  readonly path?: string;
  /** Flat list or object. Host is added unless it is there. */
  readonly headers?: Readonly<Record<string, string>> | readonly string[];
  readonly body?: string | Buffer;
  readonly agent?: http.Agent;
}

/**
 * Sends one request on its own connection, or on one of `agent`; resolves with the whole response, rejects when it
 * breaks off.
 */
export function ask(
  port: number,
  { method = "GET", path = "/", headers = {}, body, agent }: Ask = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const informed: { status: number; headers: IncomingHttpHeaders }[] = [];
    const flat = Array.isArray(headers)
      ? [...(headers as string[])]
      : Object.entries(headers as Record<string, string>).flat();
    if (!flat.some((name, i) => i % 2 === 0 && name.toLowerCase() === "host"))
      flat.unshift("Host", `127.0.0.1:${port}`);
    const framed = flat.some((name, i) => i % 2 === 0 && /^(content-length|transfer-encoding)$/i.test(name));
    if (!framed && body !== undefined) flat.push("Content-Length", String(Buffer.byteLength(body)));
    const request = http.request({
      host: "127.0.0.1",
      port,
      method,
      path,
      headers: flat,
      setHost: false,
      agent: agent ?? false,
    });
    request.on("information", (info) => informed.push({ status: info.statusCode, headers: info.headers }));
    request.on("error", reject);
    request.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () =>
        resolve({
          status: response.statusCode!,
          reason: response.statusMessage!,
          headers: response.headers,
          rawHeaders: response.rawHeaders,
          body: Buffer.concat(chunks),
          trailers: response.rawTrailers,
          informed,
        }),
      );
    });
    request.end(body);
  });
}

export interface RawConnection {
  readonly socket: Socket;
  send(text: string | Buffer): void;
  /** Everything received so far, as Latin-1. */
  readonly text: () => string;
  /** Drops everything received so far. */
  discard(): void;
  /** Resolves when the received text contains `fits`, or matches it; rejects when the connection ends before. */
  until(fits: string | RegExp): Promise<string>;
  /** Resolves with everything received once the connection has ended. */
  closed(): Promise<string>;
}

/** A bare TCP connection; `from`: the client's address, one of 127.0.0.0/8. */
export async function connect(port: number, from = "127.0.0.1"): Promise<RawConnection> {
  const socket = net.connect({ port, host: "127.0.0.1", localAddress: from });
  await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  return overSocket(socket);
}

export function overSocket(socket: Socket): RawConnection {
  let received = "";
  let ended = false;
  const waiting = new Set<() => void>();
  const notify = () => [...waiting].forEach((look) => look());
  socket.on("data", (chunk: Buffer) => {
    received += chunk.toString("latin1");
    notify();
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    ended = true;
    notify();
  });
  const wait = (done: () => boolean, fail: () => boolean) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        if (!done() && !fail()) return;
        waiting.delete(look);
        if (done()) resolve(received);
        else reject(new Error(`the connection ended after ${JSON.stringify(received.slice(0, 500))}`));
      };
      waiting.add(look);
      look();
    });
  return {
    socket,
    send: (text) => void socket.write(typeof text === "string" ? Buffer.from(text, "latin1") : text),
    text: () => received,
    discard: () => void (received = ""),
    until: (fits) =>
      wait(
        () => (typeof fits === "string" ? received.includes(fits) : fits.test(received)),
        () => ended,
      ),
    closed: () =>
      wait(
        () => ended,
        () => false,
      ),
  };
}

/** Resolves with the error when the port refuses connections; connections that it accepted before may be reset. */
export async function refused(port: number): Promise<NodeJS.ErrnoException> {
  for (;;) {
    const connection = await connect(port).catch((error: NodeJS.ErrnoException) => error);
    if (connection instanceof Error) return connection;
    connection.socket.destroy();
  }
}

/**
 * Resolves when `holds()` is true; rejects after ten seconds, long even on a busy machine, with an error that names
 * `what`, by default the source of `holds`.
 */
export async function eventually(holds: () => boolean, what = String(holds)): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!holds()) {
    if (performance.now() > deadline) throw new Error(`waited ten seconds for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
