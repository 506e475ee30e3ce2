/**
 * A client that keeps its connection, may send requests before earlier ones are answered, and notes when each was sent
 * and answered.
 */
import net, { type Socket } from "node:net";

export interface Answered {
  readonly status: number;
  /** By name in lower case; of repeated headers the last. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Before it was sent and after it was answered, by `monotonic`. */
  readonly sent: number;
  readonly received: number;
}

export interface KeptClient {
  readonly socket: Socket;
  /** GET; rejects when the connection ends before its answer. */
  ask(path: string, headers?: Readonly<Record<string, string>>): Promise<Answered>;
  close(): void;
}

/** In milliseconds, by a clock that all processes and threads of the machine share. */
export const monotonic = () => Number(process.hrtime.bigint()) / 1e6;

interface Waiting {
  readonly sent: number;
  readonly resolve: (answered: Answered) => void;
  readonly reject: (error: Error) => void;
}

/** Connects to a port of 127.0.0.1; rejects when that is refused. */
export async function keptClient(port: number): Promise<KeptClient> {
  const socket = net.connect({ port, host: "127.0.0.1", noDelay: true });
  await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  return over(socket);
}

/** Over a socket that is connected. Replies need a Content-Length. */
export function over(socket: Socket): KeptClient {
  const waiting: Waiting[] = [];
  let received = "";
  socket.setEncoding("latin1");
  socket.on("data", (text: string) => {
    received += text;
    for (let end = endOf(received); end !== -1; end = endOf(received)) {
      const { sent, resolve } = waiting.shift()!;
      resolve({ ...parsed(received.slice(0, end)), sent, received: monotonic() });
      received = received.slice(end);
    }
  });
  let cause = "";
  socket.on("error", (error) => (cause = error.message));
  socket.on("close", () => {
    for (const { reject } of waiting.splice(0))
      reject(new Error(`the connection ended: ${cause} ${JSON.stringify(received.slice(0, 200))}`));
  });
  return {
    socket,
    ask(path, headers = {}) {
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      return new Promise((resolve, reject) => {
        if (socket.destroyed) return reject(new Error(`the connection has ended: ${cause}`));
        waiting.push({ sent: monotonic(), resolve, reject });
        socket.write(`GET ${path} HTTP/1.1\r\nHost: gw.example\r\n${lines.join("")}\r\n`);
      });
    },
    close: () => void socket.destroy(),
  };
}

/** Where the first response ends; -1 before all of it has come. */
function endOf(text: string): number {
  const head = text.indexOf("\r\n\r\n");
  if (head === -1) return -1;
  const length = /\r\ncontent-length: *(\d+)\r\n/i.exec(text.slice(0, head + 2))?.[1];
  if (length === undefined) throw new Error(`a response without Content-Length: ${text.slice(0, head)}`);
  const end = head + 4 + Number(length);
  return text.length < end ? -1 : end;
}

function parsed(text: string): Pick<Answered, "status" | "headers" | "body"> {
  const [head = "", body = ""] = text.split(/\r\n\r\n([^]*)/);
  const [line = "", ...fields] = head.split("\r\n");
  const headers = fields.map((field) => [
    field.slice(0, field.indexOf(":")).toLowerCase(),
    field.slice(field.indexOf(":") + 1).trim(),
  ]);
  return { status: Number(line.split(" ")[1]), headers: Object.fromEntries(headers) as Record<string, string>, body };
}
