/**
 * Refuses requests that could not be read, on their HTTP/1 connection.
 */
import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { ERRORS, type ErrorCode } from "../base/errors.ts";
import type { HeaderList } from "../http/headers.ts";
import { problemDocument } from "../http/reply.ts";
import { endSoon } from "./linger.ts";

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

/** The head of a message, to be written as Latin-1. */
export function head(firstLine: string, headers: HeaderList): string {
  let text = `${firstLine}\r\n`;
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return text + "\r\n";
}
