import { expect, it } from "vitest";
import { jsonText } from "../../lib/base/terminal_json.ts";

it("jsonText is JSON that a parser gives back as it was, without any control character", () => {
  const value = { text: 'a "b" \\ \u0000\u001b\u007f\u0085\u009b é \u2028', list: [1, null] };
  expect(jsonText(value)).not.toMatch(/[\x00-\x1f\x7f-\x9f]/);
  expect(JSON.parse(jsonText(value))).toEqual(value);
  expect(jsonText(() => 1)).toBe("null");
});
