/** Backends and clients that close themselves when the test ends, and bytes read as messages. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { onTestFinished } from "vitest";
import { rawOrigin, socketOrigin, type Origin, type SocketOrigin } from "../support/origin.ts";
import { connect, type RawConnection } from "../support/raw_client.ts";

export { backend } from "../support/gateway.ts";

/** Gets each request unread. */
export async function rawBackend(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<Origin> {
  const made = await rawOrigin(answer);
  onTestFinished(() => made.close());
  return made;
}

/** Gets each connection. */
export async function byteBackend(talk: (socket: Socket) => void): Promise<SocketOrigin> {
  const made = await socketOrigin(talk);
  onTestFinished(() => made.close());
  return made;
}

export interface Head {
  readonly text: string;
  readonly socket: Socket;
  /** Which head it is on its connection, from 0. */
  readonly nth: number;
}

/** Calls `answer` for every request head that arrives, bodies being skipped as if they were none: for requests without a body. */
export async function headBackend(answer: (head: Head) => void): Promise<SocketOrigin & { readonly heads: string[] }> {
  const heads: string[] = [];
  const made = await byteBackend((socket) => {
    let buffered = "";
    let nth = 0;
    socket.on("data", (chunk: Buffer) => {
      buffered += chunk.toString("latin1");
      for (let end = buffered.indexOf("\r\n\r\n"); end >= 0; end = buffered.indexOf("\r\n\r\n")) {
        const text = buffered.slice(0, end + 4);
        buffered = buffered.slice(end + 4);
        heads.push(text);
        answer({ text, socket, nth: nth++ });
      }
    });
  });
  return Object.assign(made, { heads });
}

export async function client(port: number): Promise<RawConnection> {
  const connection = await connect(port);
  onTestFinished(() => void connection.socket.destroy());
  return connection;
}

/** `GET /a/x` as a client without a library writes it. */
export function get(path = "/a/x", ...lines: string[]): string {
  return ["GET " + path + " HTTP/1.1", "Host: gw.example", ...lines, "", ""].join("\r\n");
}

/** The code of the problem document in what a client received. */
export function codeIn(received: string): string | undefined {
  return /"code":"(\w+)"/.exec(received)?.[1];
}

/** How many final responses there are in what a client received. */
export function statusesIn(received: string): number[] {
  return [...received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
}

/** Resolves when the promise of this object is kept from outside. */
export function gate<T = void>(): { readonly opened: Promise<T>; open(value: T): void } {
  let open!: (value: T) => void;
  const opened = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
