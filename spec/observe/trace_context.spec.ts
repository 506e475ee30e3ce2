import { describe, expect, it } from "vitest";
import { createIds, parentOf, tracestateOf } from "../../lib/observe/trace_context.ts";
import { traceIdOf } from "../../lib/observe/traceparent.ts";
import { counted, growth, LINEAR } from "../support/growth.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const VALID = `00-${TRACE}-b7ad6b7169203331-01`;

describe("traceIdOf", () => {
  it("returns the trace id, whatever the case of the header name", () => {
    expect(traceIdOf(["Host", "h", "TraceParent", VALID])).toBe(TRACE);
  });

  it.each([`cc-${TRACE}-b7ad6b7169203331-01`, `cc-${TRACE}-b7ad6b7169203331-01-what-comes`])(
    "accepts %s, of a later version",
    (value) => {
      expect(traceIdOf(["traceparent", value])).toBe(TRACE);
    },
  );

  it.each([
    "",
    `${VALID}-more`,
    `${VALID}0`,
    VALID.toUpperCase(),
    VALID.replace("00-", "ff-"),
    `00-${"0".repeat(32)}-b7ad6b7169203331-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    ` ${VALID}`,
    `cc-${TRACE}-b7ad6b7169203331-01.x`,
  ])("ignores %j", (value) => {
    expect(traceIdOf(["traceparent", value])).toBeNull();
  });

  it("ignores two headers", () => {
    expect(traceIdOf(["traceparent", VALID, "traceparent", VALID])).toBeNull();
    expect(traceIdOf([])).toBeNull();
  });
});

describe("parentOf", () => {
  it.each([
    ["01", true],
    ["00", false],
    ["ff", true],
    ["fe", false],
  ])("reads only the lowest of the flags %s: sampled %s", (flags, sampled) => {
    expect(parentOf(["traceparent", `00-${TRACE}-b7ad6b7169203331-${flags}`])).toEqual({
      traceId: TRACE,
      spanId: "b7ad6b7169203331",
      sampled,
    });
  });

  it("reads the known fields of a later version", () => {
    expect(parentOf(["traceparent", `cc-${TRACE}-b7ad6b7169203331-01-what`])).toEqual({
      traceId: TRACE,
      spanId: "b7ad6b7169203331",
      sampled: true,
    });
  });

  it.each([
    `${VALID}-more`,
    VALID.toUpperCase(),
    VALID.replace("00-", "ff-"),
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE}-b7ad6b7169203331-0g`,
  ])("takes %j for none", (value) => {
    expect(parentOf(["traceparent", value])).toBeNull();
  });
});

const pairs = (values: readonly string[]) => values.flatMap((value) => ["TraceState", value]);

describe("tracestateOf", () => {
  const entries = (count: number, length: number) =>
    Array.from({ length: count }, (_none, i) => `k${i}=`.padEnd(length, "v"));
  const of = (...values: string[]) => tracestateOf(pairs(values));

  it.each([
    ["one entry", ["rojo=00f067aa0ba902b7"], "rojo=00f067aa0ba902b7"],
    ["several lines, in order", ["a=1,b=2", "c=3"], "a=1,b=2,c=3"],
    ["blanks around, and empty entries", [" a=1\t, ,b=2 x,"], "a=1,b=2 x"],
    ["a system's key", ["0tenant@vendor=x"], "0tenant@vendor=x"],
    ["32 entries", [entries(32, 8).join(",")], entries(32, 8).join(",")],
    ["512 characters", [entries(4, 128).join(",").slice(0, -3)], entries(4, 128).join(",").slice(0, -3)],
  ])("accepts %s", (_title, values, expected) => {
    expect(of(...values)).toBe(expected);
  });

  it.each([
    ["none", []],
    ["an empty one", [""]],
    ["no value", ["a"]],
    ["an empty value", ["a="]],
    ["a key in upper case", ["A=1"]],
    ["a key that begins with a digit", ["1a=1"]],
    ["two = in one", ["a=1=2"]],
    ["one key twice", ["a=1,b=2", "a=3"]],
    ["a character beyond ASCII", ["a=\xe9"]],
    ["33 entries", [entries(33, 8).join(",")]],
    ["a value of more than 256 characters", [`a=${"v".repeat(257)}`]],
    ["far too much", ["a=1,".repeat(10_000)]],
  ])("ignores %s", (_title, values) => {
    expect(of(...values)).toBeNull();
  });

  it("takes linear time for a hostile value", async () => {
    const fresh = await counted(() => import("../../lib/observe/trace_context.ts"));
    for (const hostile of [
      ["a=b", " ", "c"],
      ["", ",", ""],
      ["", " ,", ""],
      ["a=", " ", ""],
    ] as const) {
      const [start, part, end] = hostile;
      const parse = (size: number) => {
        void fresh.tracestateOf(pairs([start + part.repeat(size / part.length) + end]));
      };
      expect(growth(parse, 2_000), hostile.join("")).toBeLessThan(LINEAR);
    }
  });

  it("drops the long entries first, then the last entries, when there are too many characters", () => {
    const [short, long] = [entries(5, 100), `long=${"v".repeat(200)}`];
    expect(of([...short, long].join(","))).toBe(short.join(","));
    expect(of([long, ...entries(6, 100)].join(","))).toBe(entries(5, 100).join(","));
    expect(of([long, `b${long}`, `c${long}`].join(","))).toBeNull();
  });
});

describe("createIds", () => {
  it("makes different ids of 32 and 16 hexadecimal digits", () => {
    const ids = createIds();
    const given = Array.from({ length: 2_000 }, (_none, i) => (i % 3 === 0 ? ids.trace() : ids.span()));
    expect(new Set(given).size).toBe(2_000);
    expect(given.every((id, i) => /^[0-9a-f]+$/.test(id) && id.length === (i % 3 === 0 ? 32 : 16))).toBe(true);
  });

  it("draws randomness in stock, and again when the stock is used up", () => {
    let draws = 0;
    const ids = createIds((buffer) => buffer.fill(++draws));
    for (let i = 0; i < 128; i++) expect(ids.trace()).toBe("01".repeat(16));
    expect(ids.span()).toBe("02".repeat(8));
  });

  it("makes no id of zeros", () => {
    let draws = 0;
    const ids = createIds((buffer) => buffer.fill(draws++ === 0 ? 0 : 0xab));
    expect(ids.span()).toBe("ab".repeat(8));
  });
});
