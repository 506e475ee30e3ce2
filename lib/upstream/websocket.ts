/**
 * The proof of a WebSocket handshake over HTTP/1.1: a random key, and the one answer to it (RFC 6455 §4). Where they stand is
 * `request_head.ts`, `forward.ts` and `forward_h2.ts`.
 */
import { createHash, randomBytes } from "node:crypto";

/** 16 random bytes in base64. */
export function websocketKey(): string {
  return randomBytes(16).toString("base64");
}

/** What a server that has understood the key answers: `dGhlIHNhbXBsZSBub25jZQ==` gives `s3pPLMBiTxaQ9kYGzzhZRbK+xOo=`. */
export function websocketAccept(key: string): string {
  return createHash("sha1").update(key + GUID).digest("base64");
}

/** Whether the values of a request's Sec-WebSocket-Key are what a server has to take: one, of 16 bytes (RFC 6455 §4.2.1). */
export function isWebsocketKey(values: readonly string[]): boolean {
  return values.length === 1 && KEY.test(values[0]!);
}

const KEY = /^[A-Za-z0-9+/]{22}==$/;
const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
