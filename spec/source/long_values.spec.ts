import { expect, it } from "vitest";
import { answerSteps } from "../../lib/source/long_values.ts";
import { atOnce } from "../../lib/base/time_slices.ts";
import { random } from "../support/random.ts";

const read = (text: string) => atOnce(answerSteps(Buffer.from(text)));
const { int } = random(7);
const bytesOf = (length: number) => Buffer.from(Array.from({ length }, () => int(0, 255)));

/** How many slices an answer takes. */
function stepsOf(body: Buffer): number {
  let count = 0;
  for (const steps = answerSteps(body); !steps.next().done; count++);
  return count;
}

it("a short answer is what JSON.parse makes of it", () => {
  const answer = { kvs: [{ key: "YQ==", value: "Yg==", mod_revision: "7" }] };
  expect(read(JSON.stringify(answer))).toEqual(answer);
});

it.each([[0], [1], [2]])("long values are buffers, with %i bytes more than a multiple of three", (more) => {
  const [one, two] = [bytesOf(300_000 + more), bytesOf(99_000)];
  const kvs = [one, Buffer.from("short: é"), two].map((value, i) => ({
    key: "YQ==",
    value: value.toString("base64"),
    i,
  }));
  const found = read(JSON.stringify({ header: { revision: "9" }, kvs, more: false })) as {
    readonly kvs: readonly { readonly value: unknown; readonly i: number }[];
  };
  expect(found).toMatchObject({ header: { revision: "9" }, more: false });
  expect(found.kvs.map(({ i }) => i)).toEqual([0, 1, 2]);
  expect(Buffer.compare(found.kvs[0]!.value as Buffer, one)).toBe(0);
  expect(found.kvs[1]!.value).toBe(Buffer.from("short: é").toString("base64"));
  expect(Buffer.compare(found.kvs[2]!.value as Buffer, two)).toBe(0);
});

it("a value of ten megabytes is decoded in many slices", () => {
  const value = Buffer.alloc(10_000_000, "configuration").toString("base64");
  expect(stepsOf(Buffer.from(JSON.stringify({ value })))).toBeGreaterThan(40);
});

const LONG = "A".repeat(100_000);
it.each([
  ["that ends in a value", `{"value":"${LONG}`],
  ["with another alphabet", `{"value":"${LONG}~~~~"}`],
  ["with a length that base64 cannot have", `{"value":"${LONG}A"}`],
  ["with white space in a value", `{"value":"${LONG.slice(1)}\\n"}`],
  ["that goes on behind its end", `{"value":"${LONG}"}}`],
])("an answer %s is none", (_what, text) => expect(() => read(text)).toThrow(SyntaxError));
