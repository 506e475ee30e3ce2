import { expect, test } from "vitest";
import { websocketAccept, websocketKey } from "../../lib/upstream/websocket.ts";

test("the answer to a key is that of RFC 6455 §1.3", () => {
  expect(websocketAccept("dGhlIHNhbXBsZSBub25jZQ==")).toBe("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
});

test("keys are 16 bytes, and never the same", () => {
  const keys = Array.from({ length: 100 }, websocketKey);
  expect(keys.every((key) => Buffer.from(key, "base64").length === 16 && key.length === 24)).toBe(true);
  expect(new Set(keys).size).toBe(100);
});
