import { describe, expect, it } from "vitest";
import { lastChunk } from "../../lib/server/client_reply.ts";
import { REPLY_CASES, textOf, TRAILER_CASES } from "./client_reply.cases.ts";

describe("the head of a reply", () => {
  it.each(REPLY_CASES.filter(({ lines }) => lines !== null))("writes a head correctly: $title", (each) => {
    const { lines, ownDate = false } = each;
    const end = [`X-Request-Id: id`, ...(ownDate ? [] : ["Date: today"]), "Connection: close"];
    expect(textOf(each)).toBe([...lines!, ...end, "", ""].join("\r\n"));
  });

  it.each(REPLY_CASES.filter(({ lines }) => lines === null))(
    "the head of a reply cannot be written with $title",
    (each) => {
      expect(() => textOf(each)).toThrow(TypeError);
    },
  );
});

it.each(TRAILER_CASES)("writes the end of a chunked body with %s", (_title, trailers, text) => {
  expect(lastChunk(trailers)).toBe(text);
});
