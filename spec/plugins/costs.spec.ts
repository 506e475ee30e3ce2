/**
 * Costs of replies do not depend on the pieces in which they come: what is not searched in a large piece has no cost.
 */
import { PassThrough } from "node:stream";
import { expect, it } from "vitest";
import { bookingCosts } from "../../lib/plugins/costs.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { random } from "../support/random.ts";

const DEFAULT = 7;

/** The cost that is booked for a reply of this type whose body comes in pieces of `size` bytes. */
function costOf(type: string, text: string, size: number): number {
  const booked: number[] = [];
  const body = new PassThrough();
  const keep = (<T>(_name: string, _settings: unknown, make: () => T) => make()) as never;
  const cost = { responseJson: "usage.total", default: DEFAULT };
  const handler = bookingCosts(
    () => ({ status: 200, headers: ["Content-Type", type], body }),
    cost,
    { keep },
    (_exchange, amount) => booked.push(amount),
  );
  const exchange = madeUpExchange();
  handler(exchange);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) body.emit("data", bytes.subarray(at, at + size));
  exchange.call.close();
  expect(booked.length).toBe(1);
  return booked[0]!;
}

const VALUES = [
  '{"a":1}',
  '{"usage":{"total":3}}',
  '{"usage":{"total":12},"a":"\\n"}',
  '{"usage":null}',
  '{"text":"usage total"}',
  '{"usage":{"total":-1}}',
  '{"usage"',
  "[DONE]",
  "",
];
const ENDS = ["\n\n", "\n\n", "\n", "\r\n\r\n", "\r\r", "\r\n\n", "\n\r\n", "\r"];

it.each([
  ["text/event-stream", ["data: ", "data:", "event: x\ndata: ", "data: {\ndata: ", ": ", "\n"], ENDS],
  ["application/x-ndjson", ["", "", " ", "\n"], ["\n", "\n", "\r\n", ""]],
])("%s: random values cost the same in one piece, in a few, and byte by byte", (type, begins, ends) => {
  const costs = new Set<number>();
  for (let seed = 0; seed < 3000; seed++) {
    const { int, pick } = random(seed);
    let text = "";
    for (let i = int(1, 8); i > 0; i--) text += pick(begins) + pick(VALUES) + pick(ends);
    const exact = costOf(type, text, 1);
    costs.add(exact);
    for (const size of [text.length, int(2, 40)]) expect([text, costOf(type, text, size)]).toEqual([text, exact]);
  }
  expect([...costs].sort((a, b) => a - b)).toEqual([3, DEFAULT, 12]);
});
