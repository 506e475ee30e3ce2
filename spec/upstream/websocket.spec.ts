import { expect, test } from "vitest";
import { isWebsocketKey, websocketAccept, websocketKey } from "../../lib/upstream/websocket.ts";

test("the answer to a key is that of RFC 6455 §1.3", () => {
  expect(websocketAccept("dGhlIHNhbXBsZSBub25jZQ==")).toBe("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
});

test("keys are 16 bytes, and never the same", () => {
  const keys = Array.from({ length: 100 }, websocketKey);
  expect(keys.every((key) => Buffer.from(key, "base64").length === 16 && key.length === 24)).toBe(true);
  expect(new Set(keys).size).toBe(100);
  expect(keys.every((key) => isWebsocketKey([key]))).toBe(true);
});

test("one key of 16 bytes is a key, nothing else is", () => {
  const key = "dGhlIHNhbXBsZSBub25jZQ==";
  expect(isWebsocketKey([key])).toBe(true);
  for (const values of [[], [""], [key, key], [`${key}, ${key}`], ["c2hvcnQ="], [key.slice(0, -2)], [` ${key}`]]) expect(isWebsocketKey(values)).toBe(false);
});
