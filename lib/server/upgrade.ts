/**
 * Answers a request for a WebSocket on a client's HTTP/1 connection.
 */
import type { Duplex } from "node:stream";
import type { Reply } from "../http/reply.ts";
import { respondBare } from "./socket_reply.ts";
import type { Http1Options } from "./http1.ts";
import type { Inbound } from "./receive.ts";

/** `behind`: what the client has sent behind its request. The caller must not use the socket any more. */
export function answerUpgrade(socket: Duplex, behind: Buffer, inbound: Inbound, { delivery, answer, ended, join }: Http1Options): void {
  const { call } = inbound;
  let tunnelled = false;
  socket.once("close", () => {
    if (!tunnelled && !socket.writableFinished) call.abort();
    else call.close();
    ended(inbound);
  });
  const release = holdBack(socket, behind, () => {
    call.abort();
    socket.destroy();
  });
  answer(inbound, {
    send(reply: Reply) {
      const held = release();
      tunnelled = respondBare(socket, call, reply, delivery);
      if (!tunnelled) return;
      call.close();
      join(socket, held, reply.tunnel!, call.notes);
      socket.resume();
    },
    giveUp: () => void socket.destroy(),
  });
}

/** Most bytes a client may send behind its upgrade request before the answer; the rest stays unread till then. */
const MAX_HELD_BYTES = 64 * 1024;

/**
 * Reads an upgrading socket while its answer is awaited, for only a socket that is read reports its end. Returns what stops that
 * and gives what was read. A client that ends its side before it is answered has disconnected.
 */
function holdBack(socket: Duplex, behind: Buffer, gone: () => void): () => Buffer {
  const chunks = [behind];
  let size = behind.length;
  const keep = (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MAX_HELD_BYTES) socket.pause();
  };
  socket.on("data", keep);
  socket.on("end", gone);
  return () => {
    socket.removeListener("data", keep);
    socket.removeListener("end", gone);
    return Buffer.concat(chunks);
  };
}
