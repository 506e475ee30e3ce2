import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { eachInSlices, largeAnswer } from "../../lib/admin/large_answers.ts";
import { eventually } from "../support/raw_client.ts";
import { turnsDuring } from "../support/turns.ts";

const textOf = async (value: object, headers: string[] = []) =>
  String((await largeAnswer({}, "q", headers, async () => value)).body);

describe("a large answer", () => {
  it("is the JSON of the value, whatever is long in it", async () => {
    const long = Array.from({ length: 100 }, (_, i) => ({ name: `"${i}"`, empty: {}, list: [] }));
    const values = [
      {},
      { a: [], b: {}, c: null, d: undefined, e: "ü" },
      { long },
      { a: { long, more: { long } } },
      { list: [{ long }, 1, null, "x"] },
      { deep: [[long], [[]]] },
    ];
    for (const value of values) expect(await textOf(value)).toBe(`${JSON.stringify(value)}\n`);
    const { headers, body } = await largeAnswer({}, "q", ["Accept-Encoding", "gzip"], async () => ({ long }));
    expect([headers.slice(0, 2), JSON.parse(String(gunzipSync(body as Buffer)))]).toEqual([
      ["Content-Type", "application/json"],
      { long },
    ]);
  });

  it("lets the event loop run meanwhile", async () => {
    const busy = (i: number) => {
      const end = performance.now() + 0.25;
      while (performance.now() < end);
      return { i };
    };
    const turns = await turnsDuring(async () => {
      await largeAnswer({}, "q", [], async (slice) => ({
        made: await eachInSlices(
          Array.from({ length: 320 }, (_, i) => i),
          slice,
          busy,
        ),
      }));
    });
    expect(turns).toBeGreaterThanOrEqual(9);
  });

  it("is made once for all who ask before it has begun, one at a time, and after a failure again", async () => {
    const gateway = {};
    const open: (() => void)[] = [];
    let made = 0;
    const ask = (question = "q") =>
      largeAnswer(gateway, question, [], () => new Promise((resolve) => void open.push(() => resolve({ n: ++made }))));
    const [first, second] = [ask(), ask()];
    expect(second).toBe(first);
    await new Promise(setImmediate);
    expect(open).toHaveLength(1);
    // It has begun: what happens from now on may not be in it.
    const [third, fourth, other] = [ask(), ask(), ask("another")];
    expect([third === first, fourth === third, other === third]).toEqual([false, true, false]);
    for (const [i, answer] of [first, third, other].entries()) {
      await eventually(() => open.length > i);
      expect(open).toHaveLength(i + 1);
      open[i]!();
      expect(String((await answer).body)).toBe(`{"n":${i + 1}}\n`);
    }
    await expect(largeAnswer(gateway, "q", [], () => Promise.reject(new Error("lost")))).rejects.toThrow("lost");
    expect(await textOf({ a: 1 })).toBe('{"a":1}\n');
    expect(String((await largeAnswer(gateway, "q", [], async () => ({ a: 2 }))).body)).toBe('{"a":2}\n');
  });
});
