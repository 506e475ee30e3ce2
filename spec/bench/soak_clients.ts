/** The clients of the soak benchmark; each makes one exchange and checks the result. */
import { once } from "node:events";
import http2, { type ClientHttp2Session } from "node:http2";
import net, { type Socket } from "node:net";
import { CA } from "../support/certs.ts";
import type { Random } from "../support/random.ts";
import { ask, connect } from "../support/raw_client.ts";

export interface Ports {
  readonly plain: number;
  readonly secure: number;
}

export interface Tally {
  readonly done: Map<string, number>;
  readonly wrong: string[];
}

export interface Client {
  readonly what: string;
  /** Rejects when the result is wrong. */
  readonly run: (ports: Ports, dice: Random) => Promise<void>;
}

/** Each kind runs in its own loop, so that all kinds are under way at any time. */
export const CLIENTS: readonly Client[] = [
  ...times(4, { what: "HTTP/1.1, small", run: small }),
  ...times(2, { what: "HTTP/1.1, kept and pipelined", run: pipelined }),
  ...times(2, { what: "HTTP/1.1, echoed upload", run: echoed }),
  ...times(2, { what: "HTTP/1.1, download", run: ({ plain }, dice) => downloaded(plain, dice.int(0, 2_000_000)) }),
  { what: "HTTP/1.1, slow reader", run: slowReader },
  { what: "HTTP/1.1, gone in its upload", run: goneInUpload },
  { what: "HTTP/1.1, gone in its download", run: goneInDownload },
  { what: "HTTP/1.1, gone while waiting", run: goneWaiting },
  { what: "HTTP/1.1, leaves an event stream", run: leavesEvents },
  { what: "HTTP/1.1, garbage", run: garbage },
  { what: "upstream cuts a body", run: ({ plain }) => broken(plain, "/a/cut") },
  { what: "upstream resets", run: ({ plain }) => broken(plain, "/a/reset") },
  ...times(2, {
    what: "HTTP/2, ten streams",
    run: ({ secure }, dice) => overHttp2(secure, (session) => tenStreams(session, dice)),
  }),
  {
    what: "HTTP/2, streams taken back",
    run: ({ secure }, dice) => overHttp2(secure, (session) => takenBack(session, dice)),
  },
  { what: "HTTP/2, gone as a whole", run: ({ secure }) => overHttp2(secure, goneAsAWhole) },
  ...times(2, { what: "WebSocket, echoed", run: ({ plain }, dice) => webSocket(plain, dice, "end") }),
  { what: "WebSocket, torn down", run: ({ plain }, dice) => webSocket(plain, dice, "destroy") },
];

function times(n: number, client: Client): Client[] {
  return Array.from({ length: n }, () => client);
}

async function small({ plain }: Ports): Promise<void> {
  const answer = await ask(plain, { path: "/a/small" });
  expect(answer.status === 200 && answer.body.toString() === "ok", `status ${answer.status}`);
}

async function pipelined({ plain }: Ports, dice: Random): Promise<void> {
  const n = dice.int(1, 20);
  const talk = await connect(plain);
  talk.send(
    "GET /a/small HTTP/1.1\r\nHost: h\r\n\r\n".repeat(n) + "GET /none HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
  );
  const received = await talk.closed();
  expect(
    received.split("HTTP/1.1 200").length === n + 1 && received.includes("route_not_found"),
    `${n} pipelined: ${received.length} bytes`,
  );
}

async function echoed({ plain }: Ports, dice: Random): Promise<void> {
  const body = Buffer.alloc(dice.int(1, 500_000), `${dice.int(0, 1e9)}`);
  const headers: Record<string, string> = dice.chance(0.5) ? { "Transfer-Encoding": "chunked" } : {};
  const answer = await ask(plain, { method: "POST", path: "/a/echo", body, headers });
  expect(answer.status === 200 && answer.body.equals(body), `echo of ${body.length} bytes: status ${answer.status}`);
}

async function downloaded(port: number, bytes: number): Promise<void> {
  const answer = await ask(port, { path: `/a/big/${bytes}` });
  expect(answer.status === 200 && answer.body.length === bytes, `${answer.body.length} bytes of ${bytes}`);
}

/** Reads a little from time to time, and the rest at the end. */
async function slowReader({ plain }: Ports, dice: Random): Promise<void> {
  const bytes = dice.int(1_000_000, 8_000_000);
  const socket = await opened(plain);
  let got = 0;
  socket.write(`GET /a/big/${bytes} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n`);
  socket.on("data", (piece: Buffer) => {
    got += piece.length;
    socket.pause();
    setTimeout(() => socket.resume(), 2);
  });
  await once(socket, "close");
  expect(got > bytes, `${got} bytes of ${bytes}`);
}

async function goneInUpload({ plain }: Ports, dice: Random): Promise<void> {
  const socket = await opened(plain);
  const framing = dice.chance(0.5) ? "Content-Length: 1000000\r\n\r\n" : "Transfer-Encoding: chunked\r\n\r\n40\r\n";
  socket.write(`POST /a/echo HTTP/1.1\r\nHost: h\r\n${framing}${"x".repeat(dice.int(0, 64))}`);
  await pause(dice.int(0, 10));
  await gone(socket, dice);
}

async function goneInDownload({ plain }: Ports, dice: Random): Promise<void> {
  const socket = await opened(plain);
  socket.write("GET /a/big/50000000 HTTP/1.1\r\nHost: h\r\n\r\n");
  if (dice.chance(0.5)) await once(socket, "readable");
  await pause(dice.int(0, 10));
  await gone(socket, dice);
}

async function goneWaiting({ plain }: Ports, dice: Random): Promise<void> {
  const socket = await opened(plain);
  socket.write("GET /a/slow HTTP/1.1\r\nHost: h\r\n\r\n");
  await pause(dice.int(0, 40));
  await gone(socket, dice);
}

async function leavesEvents({ plain }: Ports, dice: Random): Promise<void> {
  const talk = await connect(plain);
  talk.send("GET /a/events HTTP/1.1\r\nHost: h\r\n\r\n");
  await talk.until("data: 2\n\n");
  await gone(talk.socket, dice);
}

async function garbage({ plain }: Ports, dice: Random): Promise<void> {
  const talk = await connect(plain);
  talk.send(
    dice.pick([
      "\0\x01\x02\r\n\r\n",
      "GET /a/small HTTP/1.1\r\n\r\n",
      `GET /${"x".repeat(9000)} HTTP/1.1\r\nHost: h\r\n\r\n`,
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]),
  );
  expect(/^HTTP\/1\.1 4\d\d /.test(await talk.closed()), "garbage was not refused");
}

async function broken(port: number, path: string): Promise<void> {
  const answer = await ask(port, { path }).catch(() => null);
  expect(answer === null || answer.status === 502, `a broken body came as ${answer?.status}`);
}

/** Its own connection for each exchange or a few. */
async function overHttp2(port: number, run: (session: ClientHttp2Session) => Promise<void>): Promise<void> {
  const session = http2.connect(`https://localhost:${port}`, {
    ca: CA.cert,
    host: "127.0.0.1",
  } as http2.SecureClientSessionOptions);
  session.on("error", ignore);
  const closed = new Promise((resolve) => session.once("close", resolve));
  try {
    await once(session, "connect");
    await run(session);
  } finally {
    session.close();
    if (!session.destroyed) await closed;
  }
}

async function tenStreams(session: ClientHttp2Session, dice: Random): Promise<void> {
  const each = async () => {
    const body = Buffer.alloc(dice.int(0, 100_000), "y");
    const stream = session.request({ ":method": "POST", ":path": "/a/echo" });
    const chunks: Buffer[] = [];
    let status: number | undefined;
    stream.on("response", (fields) => (status = fields[":status"]));
    stream.on("data", (piece: Buffer) => chunks.push(piece));
    stream.end(body);
    await once(stream, "close");
    const got = Buffer.concat(chunks);
    expect(
      got.equals(body),
      `echo of ${body.length} bytes: status ${status}, ${got.length} bytes, reset with ${stream.rstCode}`,
    );
  };
  await Promise.all(Array.from({ length: 10 }, each));
}

async function takenBack(session: ClientHttp2Session, dice: Random): Promise<void> {
  const each = async () => {
    const stream = session.request({ ":path": dice.pick(["/a/slow", "/a/big/5000000", "/a/events"]) });
    stream.on("error", ignore).resume();
    await pause(dice.int(0, 20));
    stream.close(http2.constants.NGHTTP2_CANCEL);
    if (!stream.closed) await once(stream, "close");
  };
  await Promise.all(Array.from({ length: 5 }, each));
}

async function goneAsAWhole(session: ClientHttp2Session): Promise<void> {
  for (const path of ["/a/slow", "/a/big/5000000", "/a/events"])
    session.request({ ":path": path }).on("error", ignore).resume();
  await pause(5);
  session.destroy();
}

async function webSocket(port: number, dice: Random, end: "end" | "destroy"): Promise<void> {
  const talk = await connect(port);
  talk.send("GET /a/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  await talk.until("\r\n\r\n");
  expect(talk.text().startsWith("HTTP/1.1 101"), `no 101: ${talk.text().slice(0, 20)}`);
  const text = "w".repeat(dice.int(1, 100_000)) + "!";
  talk.send(text);
  await talk.until(`${text.slice(-50)}`);
  if (end === "destroy") return gone(talk.socket, dice);
  talk.socket.end();
  await talk.closed();
}

async function opened(port: number): Promise<Socket> {
  const socket = net.connect({ port, host: "127.0.0.1" });
  socket.on("error", ignore);
  await once(socket, "connect");
  return socket;
}

async function gone(socket: Socket, dice: Random): Promise<void> {
  if (dice.chance(0.5)) socket.resetAndDestroy();
  else socket.destroy();
  if (!socket.closed) await once(socket, "close");
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function expect(holds: boolean, otherwise: string): void {
  if (!holds) throw new Error(otherwise);
}

function ignore(): void {}
