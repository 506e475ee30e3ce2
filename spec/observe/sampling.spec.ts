import { describe, expect, it } from "vitest";
import type { TracesSampler } from "../../lib/config/settings_types.ts";
import { TRACES_SAMPLERS } from "../../lib/config/tracing.ts";
import { createIds } from "../../lib/observe/trace_context.ts";
import { createSampler } from "../../lib/observe/sampling.ts";

const LOW = "ffffffffffffffffff00000000000001";
const HIGH = "000000000000000000fffffffffffffe";
const parent = (sampled: boolean) => ({ traceId: LOW, spanId: "b7ad6b7169203331", sampled });

describe("createSampler", () => {
  // Columns: a trace that begins here with low and with high random digits, one whose parent is sampled, one whose
  // parent is not.
  it.each<[TracesSampler, number, readonly boolean[]]>([
    ["always_on", 0, [true, true, true, true]],
    ["always_off", 1, [false, false, false, false]],
    ["traceidratio", 0, [false, false, false, false]],
    ["traceidratio", 0.5, [false, true, false, false]],
    ["traceidratio", 1, [true, true, true, true]],
    ["parentbased_always_on", 0, [true, true, true, false]],
    ["parentbased_always_off", 1, [false, false, true, false]],
    ["parentbased_traceidratio", 0, [false, false, true, false]],
    ["parentbased_traceidratio", 0.5, [false, true, true, false]],
    ["parentbased_traceidratio", 1, [true, true, true, false]],
  ])("samples by %s with argument %d: traces that begin here, and traces with a parent", (name, ratio, expected) => {
    const sampler = createSampler(name, ratio);
    expect([sampler(null, LOW), sampler(null, HIGH), sampler(parent(true), LOW), sampler(parent(false), LOW)]).toEqual(
      expected,
    );
  });

  it("knows every sampler of OpenTelemetry that needs no remote configuration", () => {
    expect(TRACES_SAMPLERS.map((name) => typeof createSampler(name, 1))).toEqual(Array(6).fill("function"));
  });

  it.each([0.01, 0.25, 0.9])(
    "records a share of %d, and a greater share includes the traces of a smaller share",
    (ratio) => {
      const ids = createIds();
      const [smaller, greater] = [createSampler("traceidratio", ratio), createSampler("traceidratio", ratio * 1.1)];
      const traces = Array.from({ length: 20_000 }, () => ids.trace());
      const taken = traces.filter((id) => smaller(null, id));
      expect(Math.abs(taken.length / traces.length - ratio)).toBeLessThan(0.02);
      expect(taken.every((id) => greater(null, id))).toBe(true);
    },
  );
});
