import { describe, expect, it } from "vitest";
import { JsonNumber } from "../../lib/http/json_number.ts";
import { random, type Random } from "../support/random.ts";

const PATH = ["usage", "total_tokens"];

/** In parts that end at each of these places. */
function find(text: string, path: readonly string[] = PATH, cuts: readonly number[] = []): string | null {
  const number = new JsonNumber(path);
  const bytes = Buffer.from(text);
  [...cuts, bytes.length].reduce((from, end) => (number.write(bytes.subarray(from, end)), end), 0);
  return number.found;
}

const MB = 1024 * 1024;

describe("a number in JSON that passes by", () => {
  it.each([
    ['{"usage":{"total_tokens":17}}', "17"],
    [
      '{"id":"x","choices":[{"message":{"content":"{\\"usage\\":{\\"total_tokens\\":0}}"}}],"usage":' +
        '{"prompt_tokens":1,"total_tokens":9,"x":{"total_tokens":3}}}',
      "9",
    ],
    [' \r\n{ "usage" : { "total_tokens" : 1.5e3 } } \n', "1.5e3"],
    [
      '{"total_tokens":1,"other":{"usage":{"total_tokens":2}},"usage":{"a":[{"total_tokens":3}],"total_tokens":4}}',
      "4",
    ],
    ['{"usage":{"total_tokens":1,"total_tokens":2}}', "2"],
    ['{"usage":null}', null],
    ['{"usage":{"total_tokens":null}}', null],
    ['{"usage":{"total_tokens":"17"}}', null],
    ['{"usage":{"total_tokens":[17]}}', null],
    ['{"usage":{"total_tokens":-1}}', "-1"],
    ['{"usage":[{"total_tokens":1}]}', null],
    ['[{"usage":{"total_tokens":1}}]', null],
    ['{"usage":{"total_token":1,"total_tokens2":2,"xtotal_tokens":3}}', null],
    ['{"us\\u0061ge":{"total_tokens":1}}', null],
    ['{"usage":{"total_tokens":5},"x":"\\"}"}', "5"],
    ["", null],
    ["17", null],
  ])("of %s it finds %j", (text, expected) => {
    expect(find(text)).toBe(expected);
    for (let cut = 1; cut < text.length; cut++) expect(find(text, PATH, [cut])).toBe(expected);
    expect(
      find(
        text,
        PATH,
        Array.from({ length: text.length }, (_, i) => i),
      ),
    ).toBe(expected);
  });

  it.each([
    '{"usage":{"total_tokens":5}',
    '{"usage":{"total_tokens":5',
    '{"usage":{"total_tokens":5}]',
    '{"usage":{"total_tokens":5}}}',
    '{"usage":{"total_tokens":5}} {"usage":{"total_tokens":6}}',
    '{"usage":{"total_tokens":5}} x',
    '{"usage":{"total_tokens":5x}}',
    '{"usage":{"total_tokens":5 6}}',
    '{"usage":{"total_tokens" 5}}',
    '{"usage":{"total_tokens"::5}}',
    '{"usage":{"total_tokens":5},,"a":1}',
    '{"usage":{"total_tokens":5};}',
    '{usage:{"total_tokens":5}}',
    '{"usage":{"total_tokens":5},"a"}',
    '{"usage":{"total_tokens":5},"a":}',
    '{"usage":{"total_tokens":123456789012345678901234567890123}}',
    'x{"usage":{"total_tokens":5}}',
    "<html>",
  ])("of what is not valid it finds nothing: %s", (text) => {
    expect(find(text)).toBeNull();
    for (let cut = 1; cut < text.length; cut++) expect(find(text, PATH, [cut])).toBeNull();
  });

  it("after `reset` another value begins: the last complete one that has the number counts", () => {
    const number = new JsonNumber(PATH);
    for (const text of [
      '{"usage":{"total_tokens":1}}',
      '{"usage":null}',
      '{"usage":{"total_tokens":2}}',
      "[DONE]",
      '{"usage":{"total_tokens":3',
    ]) {
      number.write(Buffer.from(text));
      number.reset();
    }
    expect(number.found).toBe("2");
  });

  it("a value of any length is searched, and objects in 512 others", () => {
    expect(find(`{"pad":"${"x".repeat(MB)}","usage":{"total_tokens":5}}`)).toBe("5");
    const deep = (depth: number) => `{"a":${"[".repeat(depth)}${"]".repeat(depth)},"usage":{"total_tokens":5}}`;
    expect(find(deep(511))).toBe("5");
    expect(find(deep(512))).toBeNull();
    expect(find("[".repeat(MB))).toBeNull();
  });

  /** A value of JSON that may have the member, at the right place and at wrong ones. */
  function value(from: Random, depth: number): unknown {
    const object = () =>
      Object.fromEntries(
        from.list(0, 4, () => [from.pick(["usage", "total_tokens", "a", 'q"\\', "ü", ""]), value(from, depth - 1)]),
      );
    if (depth === 0 || from.chance(0.3))
      return from.pick([0, 12, 3.5, 1e21, "x", '"', "\\", '{"usage":{"total_tokens":7}}', true, false, null]);
    return from.chance(0.7) ? object() : from.list(0, 3, () => value(from, depth - 1));
  }

  it("finds in any JSON, in any parts, what JSON.parse has there", () => {
    for (let seed = 0; seed < 400; seed++) {
      const from = random(seed);
      const root = Object.fromEntries(from.list(0, 4, () => [from.pick(["usage", "usage", "b"]), value(from, 4)]));
      const text = JSON.stringify(root, null, from.pick([0, 1]));
      const usage = (JSON.parse(text) as { usage?: { total_tokens?: unknown } }).usage;
      const found = usage === null || usage === undefined || Array.isArray(usage) ? undefined : usage.total_tokens;
      const length = Buffer.byteLength(text);
      const cuts = from.list(0, 6, () => from.int(0, length)).sort((a, b) => a - b);
      expect(find(text, PATH, cuts), text).toBe(typeof found === "number" ? String(found) : null);
    }
  });
});
