/**
 * Replies on a bare HTTP/1 socket, where node offers no ServerResponse: upgrades, CONNECT, and requests that could not be parsed.
 * Every such reply ends the connection, except a 101, after which the socket is a tunnel.
 */
import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { ERRORS, Fault, type ErrorCode } from "../base/errors.ts";
import { pump } from "../http/body.ts";
import type { Call } from "../http/exchange.ts";
import { isWritable, withoutHeader, type HeaderList } from "../http/headers.ts";
import { discard, problem, problemDocument, type Reply } from "../http/reply.ts";
import { Delivery, type DeliveryOptions } from "./delivery.ts";
import { endSoon } from "./linger.ts";
import { hasContent, replyHeaders, spoiltReply, statedLength, withLength } from "./reply_checks.ts";
import { breakOff } from "./node_reply.ts";

/** The answer to an upgrade request. True when it was a 101 and the socket now belongs to the tunnel. */
export function respondBare(socket: Duplex, call: Call, reply: Reply, options: DeliveryOptions): boolean {
  if (call.aborted || !socket.writable) {
    discard(reply);
    return false;
  }
  const spoilt = spoiltReply(call, reply);
  if (spoilt !== null) return respondBare(socket, call, spoilt, options);
  call.notes.status = reply.status;
  const switches = reply.status === 101 && reply.tunnel !== undefined;
  const body = hasContent("GET", reply) ? reply.body : null;
  // Trailers cannot follow what is not chunked.
  const headers = withoutHeader(withLength(replyHeaders(reply, call.id), "GET", reply), "trailer").slice();
  if (!switches) headers.push("Connection", "close");
  if (!isWritable(headers) || !isWritable(["Reason", reply.reason ?? ""])) {
    discard(reply);
    return respondBare(socket, call, problem(call, "internal", { why: "the reply's head cannot be written" }), options);
  }
  socket.write(head(`HTTP/1.1 ${reply.status} ${reply.reason ?? STATUS_CODES[reply.status] ?? ""}`, headers), "latin1");
  if (switches) return true;
  call.notes.sent = 0;
  if (body === null || Buffer.isBuffer(body)) {
    if (body === null) discard(reply);
    else {
      call.notes.sent = body.length;
      socket.write(body);
    }
    endSoon(socket, options.clock);
    return false;
  }
  call.onAbort(() => body.destroy());
  // Delimited by its Content-Length or by the end of the connection (RFC 9112 §6.3).
  const length = statedLength(headers);
  const cut = () => breakOff(socket, length === Infinity ? "until close" : "delimited");
  const end = {
    passed: (bytes: number) => (call.notes.sent! += bytes),
    done: () => endSoon(socket, options.clock),
    broken(cause: Error | null) {
      call.fail(cause instanceof Fault ? cause.code : "upstream_reset", cause?.message ?? "the body broke off");
      cut();
    },
  };
  pump(body, new Delivery(call, { to: socket, outlet: socket, cut }, options), end, length);
  return false;
}

/** A problem document for a request that never became one, and the end of the connection. */
export function refuseBare(socket: Duplex, code: ErrorCode, options: { requestId: string; clock: Clock; detail?: string | undefined }): void {
  if (!socket.writable) return void socket.destroy();
  const { requestId, clock, detail } = options;
  const { status, title } = ERRORS[code];
  const body = problemDocument({ code, status, title }, requestId, detail);
  const headers = ["Content-Type", "application/problem+json", "Content-Length", String(body.length)];
  headers.push("X-Request-Id", requestId, "Connection", "close");
  socket.write(head(`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, headers), "latin1");
  socket.write(body);
  endSoon(socket, clock);
}

/** The head of a message as bytes will have it, Latin-1. */
export function head(firstLine: string, headers: HeaderList): string {
  let text = `${firstLine}\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return text + "\r\n";
}
