/**
 * The upstream of the soak benchmark, both well and badly behaved, in its own process so that its faults are not
 * counted as the gateway's.
 */
import { fork } from "node:child_process";
import http from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { fileURLToPath } from "node:url";

export interface Origin {
  readonly port: number;
  /** Connections to it at this moment, as far as it has told. */
  readonly open: number;
  /** Ends the process; resolves when it is gone. */
  close(): Promise<void>;
}

type Told = { readonly port: number } | { readonly open: number };

/** Starts it. The process ends with `close`, and with this one at the latest, however that ends. */
export async function startOrigin(): Promise<Origin> {
  const child = fork(PROGRAM, [WORD], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const gone = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const kill = () => void child.kill("SIGKILL");
  process.once("exit", kill);
  let open = 0;
  const listening = new Promise<number>((resolve, reject) => {
    child.on("message", (told: Told) => {
      if ("port" in told) resolve(told.port);
      else open = told.open;
    });
    child.once("error", reject);
    void gone.then(() => reject(new Error("the upstream ended before it listened")));
  });
  const close = async () => {
    kill();
    await gone;
    process.removeListener("exit", kill);
  };
  const port = await listening;
  return {
    port,
    get open() {
      return open;
    },
    close,
  };
}

const PROGRAM = fileURLToPath(import.meta.url);
/** Says that this file is to serve, and is not only read for the function above. */
const WORD = "serve";
const PIECE = Buffer.alloc(32 * 1024, "z");

/**
 * /small /echo /big/BYTES /slow /events /together/N, and for worse: /cut (mid-body), /reset (no answer at all).
 * Upgrades echo.
 */
async function serve(): Promise<void> {
  let open = 0;
  let told = true;
  // Many connections come and go in one turn: they are one message.
  const tell = () => {
    if (told) setImmediate(report);
    told = false;
  };
  const report = () => {
    told = true;
    send({ open });
  };
  const waiting: http.ServerResponse[] = [];
  const server = http.createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    request.on("error", ignore);
    response.on("error", ignore);
    const [, what, how] = request.url!.split("/");
    if (what === "echo") return void request.pipe(response);
    request.resume();
    if (what === "big") return sendMany(response, Number(how));
    if (what === "slow") return later(response, 30, () => void response.end("ok"));
    if (what === "events") return sendEvents(response);
    if (what === "reset") return void request.socket.resetAndDestroy();
    if (what === "cut") {
      response.writeHead(200, { "Content-Length": "100000" });
      response.write(PIECE);
      return later(response, 5, () => void request.socket.destroy());
    }
    if (what === "together") {
      waiting.push(response);
      if (waiting.length === Number(how)) for (const each of waiting.splice(0)) each.end("ok");
      return;
    }
    response.end("ok");
  });
  server.on("upgrade", (_request, socket: Socket) => {
    socket.on("error", ignore);
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    socket.pipe(socket);
  });
  server.on("connection", (socket) => {
    open++;
    tell();
    socket.on("error", ignore);
    socket.on("close", () => {
      open--;
      tell();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  send({ port: (server.address() as AddressInfo).port });
}

function send(told: Told): void {
  if (process.connected) process.send!(told, ignore);
}

function sendMany(response: http.ServerResponse, bytes: number): void {
  response.writeHead(200, { "Content-Length": String(bytes) });
  let left = bytes;
  const push = () => {
    while (left > 0 && !response.destroyed) {
      const piece = left >= PIECE.length ? PIECE : PIECE.subarray(0, left);
      left -= piece.length;
      if (!response.write(piece)) return void response.once("drain", push);
    }
    response.end();
  };
  push();
}

function sendEvents(response: http.ServerResponse): void {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  let sent = 0;
  const timer = setInterval(() => response.write(`data: ${sent++}\n\n`), 5);
  response.once("close", () => clearInterval(timer));
}

function later(response: http.ServerResponse, ms: number, run: () => void): void {
  const timer = setTimeout(run, ms);
  response.once("close", () => clearTimeout(timer));
}

function ignore(): void {}

if (process.argv[1] === PROGRAM && process.argv[2] === WORD) {
  // Sent when the other process ends in any way.
  process.once("disconnect", () => process.exit());
  await serve();
}
