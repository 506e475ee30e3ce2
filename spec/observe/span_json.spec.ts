import { describe, expect, it } from "vitest";
import { attributesText, scopeWriter, spanText, type FinishedSpan } from "../../lib/observe/span_json.ts";
import { readExport } from "../support/collector.ts";

const SPAN: FinishedSpan = {
  traceId: "0af7651916cd43dd8448eb211c80319c",
  spanId: "b7ad6b7169203331",
  parentId: "00f067aa0ba902b7",
  parent: "remote",
  tracestate: "a=1",
  name: "GET /x",
  kind: "server",
  startMs: 1_767_225_600_000,
  endMs: 1_767_225_600_001.25,
  attributes: "",
  status: "unset",
};
const read = (changes: Partial<FinishedSpan>) =>
  readExport(scopeWriter({ "service.name": "s" }, "Spans")([spanText({ ...SPAN, ...changes })]).toString()).spans[0]!;

describe("spanText", () => {
  it("spanText has ids in hexadecimal, times as strings of nanoseconds, enums as numbers", () => {
    expect(JSON.parse(spanText(SPAN))).toEqual({
      traceId: SPAN.traceId,
      spanId: SPAN.spanId,
      parentSpanId: SPAN.parentId,
      traceState: "a=1",
      flags: 0x301,
      name: "GET /x",
      kind: 2,
      startTimeUnixNano: "1767225600000000000",
      endTimeUnixNano: "1767225600001250000",
      attributes: [],
      status: {},
    });
  });

  it("leaves out absent values", () => {
    const { parentSpanId, traceState, flags, attributes } = read({
      parentId: null,
      parent: "local",
      tracestate: null,
      attributes: attributesText(["a", null]),
    });
    expect({ parentSpanId, traceState, flags, attributes }).toEqual({
      parentSpanId: null,
      traceState: null,
      flags: 0x101,
      attributes: {},
    });
  });

  it.each([
    ["internal", 1],
    ["server", 2],
    ["client", 3],
  ] as const)("writes kind %s as %d", (kind, number) => {
    expect(read({ kind }).kind).toBe(number);
  });

  it.each([
    [1_767_225_600_000.001_5, "1767225600000001"],
    [1_767_225_600_000.999_2, "1767225600000999"],
    [1_767_225_600_009.5, "1767225600009500"],
  ])("writes %d ms to the microsecond", (startMs, begins) => {
    expect(String(read({ startMs, endMs: startMs }).start).slice(0, 16)).toBe(begins);
  });

  it("never ends before it begins", () => {
    const { start, end } = read({ endMs: SPAN.startMs - 5 });
    expect(end).toBe(start);
  });

  it("preserves any text", () => {
    const hostile = '"\\\n\u0000\u001b\u009b\ud800é\u2028</script>';
    expect(read({ attributes: attributesText(["text", hostile, "number", -7]) }).attributes).toEqual({
      text: JSON.parse(JSON.stringify(hostile)) as string,
      number: -7n,
    });
  });
});
