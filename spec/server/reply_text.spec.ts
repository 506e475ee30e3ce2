import { describe, expect, test } from "vitest";
import { lastChunk } from "../../lib/server/reply_text.ts";
import { REPLY_CASES, textOf, TRAILER_CASES } from "./reply_text.cases.ts";

describe("the head of a reply", () => {
  test.each(REPLY_CASES.filter(({ lines }) => lines !== null))("$title", (each) => {
    const { lines, ownDate = false } = each;
    const end = [`X-Request-Id: id`, ...(ownDate ? [] : ["Date: today"]), "Connection: close"];
    expect(textOf(each)).toBe([...lines!, ...end, "", ""].join("\r\n"));
  });

  test.each(REPLY_CASES.filter(({ lines }) => lines === null))("cannot be written with $title", (each) => {
    expect(() => textOf(each)).toThrow(TypeError);
  });
});

test.each(TRAILER_CASES)("the end of a chunked body with %s", (_title, trailers, text) => {
  expect(lastChunk(trailers)).toBe(text);
});
