/**
 * The proof of a WebSocket handshake over HTTP/1.1: a random key, and the one answer to it (RFC 6455 §4). Where they stand is
 * `request_head.ts` and `forward.ts`.
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

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
